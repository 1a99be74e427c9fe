//! Reads a wire frame by frame.
//!
//! Owns the read buffer of one wire. Invariant: an idle wire keeps a small one, whatever has passed, so that a thousand sessions
//! cost little; and a call that is dropped loses nothing.

use std::io;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::wire::frame::{Frame, FrameDecoder};

/// What a read asks for at first.
const SMALL: usize = 8 * 1024;
/// What a read asks for when the peer keeps filling the buffer: what a Linux pipe holds.
const LARGE: usize = 64 * 1024;

/// The frames of a stream.
#[derive(Debug)]
pub struct FrameReader<R> {
    io: R,
    buf: BytesMut,
    decoder: FrameDecoder,
    ask: usize,
    /// Whether the buffer's allocation is larger than an idle wire should keep.
    grown: bool,
    ended: bool,
    error: Option<io::Error>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Frames of `io`, lines being at most [`MAX_LINE`](crate::wire::frame::MAX_LINE) bytes.
    pub fn new(io: R) -> Self {
        Self::with_decoder(io, FrameDecoder::default())
    }

    /// Frames of `io` as `decoder` cuts them.
    pub fn with_decoder(io: R, decoder: FrameDecoder) -> Self {
        Self { io, buf: BytesMut::new(), decoder, ask: SMALL, grown: false, ended: false, error: None }
    }

    /// The next frame; `None` once the stream has ended, and then always.
    ///
    /// May be dropped at any time, as `select!` does, without losing bytes.
    pub async fn next_frame(&mut self) -> Option<Frame> {
        loop {
            if self.ended {
                return self.decoder.finish(&mut self.buf);
            }
            if let Some(frame) = self.decoder.decode(&mut self.buf) {
                return Some(frame);
            }
            if self.grown && self.buf.is_empty() && self.ask == SMALL {
                self.buf = BytesMut::new();
                self.grown = false;
            }
            if self.buf.capacity() - self.buf.len() < self.ask / 4 {
                self.buf.reserve(self.ask);
                self.grown |= self.buf.capacity() > 2 * SMALL;
            }
            let room = self.buf.capacity() - self.buf.len();
            match self.io.read_buf(&mut self.buf).await {
                Ok(0) => self.ended = true,
                Ok(read) if read == room => self.ask = LARGE,
                Ok(_) => self.ask = SMALL,
                Err(error) => {
                    tracing::debug!(%error, "reading failed; taken as the end of the stream");
                    self.error = Some(error);
                    self.ended = true;
                }
            }
        }
    }

    /// What is read from, for one who wants its bytes as they are. What was already read is lost: call it before any frame.
    pub fn into_io(self) -> R {
        self.io
    }

    /// What is read from.
    pub(super) fn io_mut(&mut self) -> &mut R {
        &mut self.io
    }

    /// The error that ended the stream, if it was one.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime without drivers needs nothing").block_on(test)
    }

    #[test]
    fn a_dropped_call_loses_nothing() {
        run(async {
            let (mut near, far) = tokio::io::duplex(64);
            let mut reader = FrameReader::new(far);
            for part in ["{\"a\"", ":1}\n{", "}\n"] {
                tokio::select! {
                    biased;
                    frame = reader.next_frame() => panic!("{frame:?} before {part}"),
                    () = std::future::ready(()) => {}
                }
                near.write_all(part.as_bytes()).await.expect("the pipe has room");
                if part.ends_with('{') {
                    assert!(matches!(reader.next_frame().await, Some(Frame::Line(line)) if line == "{\"a\":1}"));
                }
            }
            drop(near);
            assert!(matches!(reader.next_frame().await, Some(Frame::Line(line)) if line == "{}"));
            assert_eq!(reader.next_frame().await, None);
            assert_eq!(reader.next_frame().await, None);
        });
    }

    #[test]
    fn a_large_line_passes_and_its_memory_is_let_go() {
        run(async {
            let (mut near, far) = tokio::io::duplex(4096);
            let mut reader = FrameReader::new(far);
            let large = format!("{{\"a\":\"{}\"}}\n{{}}\n", "x".repeat(1 << 20));
            let write = async move { near.write_all(large.as_bytes()).await };
            let read = async {
                let Some(Frame::Line(line)) = reader.next_frame().await else { panic!("no line") };
                assert_eq!(line.len(), (1 << 20) + 8);
                assert_eq!(reader.next_frame().await, Some(Frame::Line("{}".into())));
                assert_eq!(reader.next_frame().await, None);
            };
            let (written, ()) = tokio::join!(write, read);
            written.expect("the reader reads on");
            assert!(reader.buf.capacity() <= 2 * SMALL, "{} bytes kept", reader.buf.capacity());
        });
    }
}
