//! diglot's own stdin and stdout as wires.
//!
//! Owns how they are waited on. Pipes and sockets, which is what every editor and host gives, are waited on by the runtime
//! itself, without threads. Invariant: nothing is changed on them that other processes share. A description's non-blocking
//! flag would be: so a pipe is opened once more, which gives a description of its own, and a socket is read and written with
//! flags that count for the one call. Everything else (files, terminals) goes by tokio's blocking threads; so do pipes where
//! opening once more is not possible.
//!
//! A runtime that read a terminal or a file here should be ended with `shutdown_background`: its thread may still wait.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::reader::FrameReader;
use super::sink::LineSink;

/// The frames on diglot's stdin.
pub type StdinFrames = FrameReader<Stdin>;

/// The frames on diglot's stdin. Needs a tokio runtime with I/O.
#[must_use]
pub fn frames() -> StdinFrames {
    FrameReader::new(Stdin::open())
}

/// The queue to diglot's stdout, of at most `queue` entries. Needs a tokio runtime with I/O.
#[must_use]
pub fn sink(queue: usize) -> LineSink {
    LineSink::spawn(Stdout::open(), queue)
}

/// diglot's stdin.
#[derive(Debug)]
pub struct Stdin(Source);

/// diglot's stdout. Everything that is written at once leaves with one system call as far as the system takes it.
#[derive(Debug)]
pub struct Stdout(Target);

#[derive(Debug)]
enum Source {
    #[cfg(target_os = "linux")]
    Pipe(tokio::net::unix::pipe::Receiver),
    #[cfg(target_os = "linux")]
    Socket(linux::Socket),
    Blocking(tokio::io::Stdin),
}

#[derive(Debug)]
enum Target {
    #[cfg(target_os = "linux")]
    Pipe(tokio::net::unix::pipe::Sender),
    #[cfg(target_os = "linux")]
    Socket(linux::Socket),
    Blocking(tokio::io::Stdout),
}

impl Stdin {
    /// Opens it in the best way there is. Needs a tokio runtime with I/O.
    #[must_use]
    pub fn open() -> Self {
        #[cfg(target_os = "linux")]
        match linux::source(rustix::stdio::stdin()) {
            Ok(source) => return Self(source),
            Err(error) => tracing::debug!(%error, "stdin is read by a thread"),
        }
        Self(Source::Blocking(tokio::io::stdin()))
    }
}

impl Stdout {
    /// Opens it in the best way there is. Needs a tokio runtime with I/O.
    #[must_use]
    pub fn open() -> Self {
        #[cfg(target_os = "linux")]
        match linux::target(rustix::stdio::stdout()) {
            Ok(target) => return Self(target),
            Err(error) => tracing::debug!(%error, "stdout is written by a thread"),
        }
        Self(Target::Blocking(tokio::io::stdout()))
    }
}

impl AsyncRead for Stdin {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            #[cfg(target_os = "linux")]
            Source::Pipe(pipe) => Pin::new(pipe).poll_read(cx, buf),
            #[cfg(target_os = "linux")]
            Source::Socket(socket) => socket.poll_read(cx, buf),
            Source::Blocking(stdin) => Pin::new(stdin).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stdout {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            #[cfg(target_os = "linux")]
            Target::Pipe(pipe) => Pin::new(pipe).poll_write(cx, buf),
            #[cfg(target_os = "linux")]
            Target::Socket(socket) => socket.poll_write(cx, buf),
            Target::Blocking(stdout) => Pin::new(stdout).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Target::Blocking(stdout) => Pin::new(stdout).poll_flush(cx),
            #[cfg(target_os = "linux")]
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Descriptor 1 stays open until the process ends, so there is nothing to shut but what is buffered.
        self.poll_flush(cx)
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{Context, Poll, ReadBuf, Source, Target, io};
    use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

    use rustix::fs::{FileType, Mode, OFlags, fstat, open};
    use rustix::net::{RecvFlags, SendFlags, recv, send};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;
    use tokio::net::unix::pipe;

    /// What one read of a socket asks for at most.
    const READ: usize = 16 * 1024;

    /// A socket that is waited on by the runtime without its description being non-blocking.
    #[derive(Debug)]
    pub(super) struct Socket(AsyncFd<OwnedFd>);

    fn kind(fd: BorrowedFd<'_>) -> io::Result<FileType> {
        Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
    }

    fn unsuitable() -> io::Error {
        io::Error::new(io::ErrorKind::Unsupported, "neither a pipe nor a socket")
    }

    /// Opens a pipe once more, as a description of its own.
    fn reopen(fd: BorrowedFd<'_>, access: OFlags) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        Ok(open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
    }

    pub(super) fn source(fd: BorrowedFd<'_>) -> io::Result<Source> {
        match kind(fd)? {
            FileType::Fifo => pipe::Receiver::from_owned_fd(reopen(fd, OFlags::RDONLY)?).map(Source::Pipe),
            FileType::Socket => Socket::new(fd, Interest::READABLE).map(Source::Socket),
            _ => Err(unsuitable()),
        }
    }

    pub(super) fn target(fd: BorrowedFd<'_>) -> io::Result<Target> {
        match kind(fd)? {
            FileType::Fifo => pipe::Sender::from_owned_fd(reopen(fd, OFlags::WRONLY)?).map(Target::Pipe),
            FileType::Socket => Socket::new(fd, Interest::WRITABLE).map(Target::Socket),
            _ => Err(unsuitable()),
        }
    }

    impl Socket {
        fn new(fd: BorrowedFd<'_>, interest: Interest) -> io::Result<Self> {
            // A descriptor of its own: stdin and stdout may be one socket, and are watched apart.
            let fd = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
            #[expect(
                deprecated,
                reason = "its successor is unsafe and asks for a descriptor that stays the same and open: this one does"
            )]
            AsyncFd::with_interest(fd, interest).map(Self)
        }

        pub(super) fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            loop {
                let mut ready = std::task::ready!(self.0.poll_read_ready(cx))?;
                let room = buf.remaining().min(READ);
                let into = buf.initialize_unfilled_to(room);
                match ready.try_io(|fd| Ok(recv(fd, into, RecvFlags::DONTWAIT)?.0)) {
                    Ok(Ok(read)) => {
                        buf.advance(read);
                        return Poll::Ready(Ok(()));
                    }
                    Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(Err(error)) => return Poll::Ready(Err(error)),
                    Err(_would_block) => {}
                }
            }
        }

        pub(super) fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            loop {
                let mut ready = std::task::ready!(self.0.poll_write_ready(cx))?;
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                match ready.try_io(|fd| Ok(send(fd, buf, flags)?)) {
                    Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(done) => return Poll::Ready(done),
                    Err(_would_block) => {}
                }
            }
        }
    }
}
