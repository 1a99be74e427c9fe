//! The reading end of a pipe that can be left alone.
//!
//! A pipe that is watched wakes its reader at every write, also a reader that is not going to read yet: an agent that
//! writes ten thousand short lines a second costs ten thousand wake-ups, which is far more than to read them. One that rests
//! is not watched; the next read looks at it and has it watched again only if there was nothing to read.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::io::Errno;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::Receiver;

/// See the module.
#[derive(Debug)]
pub struct RestingPipe {
    state: State,
}

#[derive(Debug)]
enum State {
    Watched(Receiver),
    /// Not watched; does not block.
    Resting(OwnedFd),
    /// It could not be watched again.
    Lost,
}

impl RestingPipe {
    /// Takes over a pipe's reading end.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        Receiver::from_owned_fd(fd).map(|pipe| Self { state: State::Watched(pipe) })
    }

    /// Is not watched until it is read again.
    pub(super) fn rest(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Lost) {
            State::Watched(pipe) => match pipe.into_nonblocking_fd() {
                Ok(fd) => State::Resting(fd),
                Err(error) => {
                    tracing::debug!(%error, "an agent's stdout could not be taken off the poll");
                    State::Lost
                }
            },
            other => other,
        };
    }
}

impl AsyncRead for RestingPipe {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.state {
                State::Watched(pipe) => return Pin::new(pipe).poll_read(cx, buf),
                State::Resting(fd) => match rustix::io::read(&*fd, buf.initialize_unfilled()) {
                    Ok(read) => {
                        buf.advance(read);
                        return Poll::Ready(Ok(()));
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => {
                        if let State::Resting(fd) = std::mem::replace(&mut self.state, State::Lost) {
                            self.state = State::Watched(Receiver::from_owned_fd_unchecked(fd)?);
                        }
                    }
                    Err(errno) => return Poll::Ready(Err(errno.into())),
                },
                State::Lost => return Poll::Ready(Err(io::Error::from(io::ErrorKind::BrokenPipe))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use tokio::io::AsyncReadExt as _;

    /// Room for what comes, and a pipe whose reading end is looked at.
    fn pipe() -> (RestingPipe, std::io::PipeWriter) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        (RestingPipe::new(reader.into()).expect("inside of a runtime"), writer)
    }

    #[tokio::test]
    async fn what_was_written_while_it_rested_is_read() {
        let (mut pipe, mut writer) = pipe();
        let mut room = [0; 8];
        for round in 0_u8..3 {
            pipe.rest();
            writer.write_all(&[round; 3]).expect("the pipe has room");
            assert_eq!(pipe.read(&mut room).await.expect("it is open"), 3);
            assert_eq!(&room[..3], &[round; 3]);
        }
    }

    #[tokio::test]
    async fn a_read_of_a_resting_empty_pipe_waits_for_the_next_bytes_and_the_end() {
        let (mut pipe, mut writer) = pipe();
        let mut room = [0; 8];
        pipe.rest();
        pipe.rest();
        let write = tokio::task::spawn(async move { writer.write_all(b"late").map(|()| writer) });
        assert_eq!(pipe.read(&mut room).await.expect("it is open"), 4);
        let writer = write.await.expect("it does not panic").expect("the pipe has room");
        pipe.rest();
        let close = tokio::task::spawn(async move { drop(writer) });
        assert_eq!(pipe.read(&mut room).await.expect("it ends"), 0);
        close.await.expect("it does not panic");
    }
}
