//! Writes a wire: one ordered, bounded queue per peer.
//!
//! Owns the writing half of a wire and the task that serves it. Invariants: bytes leave in the order they were queued; what
//! waits is written together; the queue is bounded, so a slow reader holds its writer up; closing writes what was queued.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What may wait in a queue, counted in entries.
pub const DEFAULT_QUEUE: usize = 64;

/// Entries are joined into one write up to this size; a larger entry is written on its own.
const JOIN_UP_TO: usize = 64 * 1024;

/// The wire takes no more: the peer closed its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer no longer reads ({kind}); look at how it ended")]
pub struct SinkClosed {
    /// What writing failed with.
    pub kind: io::ErrorKind,
}

/// Why [`LineSink::try_send`] did not take an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrySendError {
    /// The queue is full; the entry comes back. Wait for [`LineSink::ready`].
    #[error("the queue is full; wait until the peer has read some of it")]
    Full(Vec<u8>),
    /// The peer closed its end.
    #[error(transparent)]
    Closed(#[from] SinkClosed),
}

/// The writing half of a wire. Dropping it writes what is queued and closes the wire.
#[derive(Debug)]
pub struct LineSink {
    queue: mpsc::Sender<Vec<u8>>,
    task: JoinHandle<io::Result<()>>,
    failure: Arc<OnceLock<io::ErrorKind>>,
}

impl LineSink {
    /// Serves `io` with a task of the current tokio runtime; at most `queue` entries wait.
    pub fn spawn<W: AsyncWrite + Send + Unpin + 'static>(io: W, queue: usize) -> Self {
        let (sender, receiver) = mpsc::channel(queue.max(1));
        let failure = Arc::new(OnceLock::new());
        let task = tokio::spawn(serve(io, receiver, Arc::clone(&failure)));
        Self { queue: sender, task, failure }
    }

    /// Queues whole lines, each with its LF (see [`write_line`](crate::wire::frame::write_line)), and waits while the queue
    /// is full. Dropped while waiting, it has queued nothing.
    ///
    /// # Errors
    /// [`SinkClosed`] when the peer closed its end: not fatal by itself, the peer may still have something to say.
    pub async fn send(&self, lines: Vec<u8>) -> Result<(), SinkClosed> {
        self.queue.send(lines).await.map_err(|_| self.closed())
    }

    /// Queues whole lines if there is room.
    ///
    /// # Errors
    /// [`TrySendError::Full`] gives the lines back.
    pub fn try_send(&self, lines: Vec<u8>) -> Result<(), TrySendError> {
        self.queue.try_send(lines).map_err(|error| match error {
            mpsc::error::TrySendError::Full(lines) => TrySendError::Full(lines),
            mpsc::error::TrySendError::Closed(_) => TrySendError::Closed(self.closed()),
        })
    }

    /// Waits until the queue has room, so that the next [`try_send`](Self::try_send) of its only user succeeds. May be
    /// dropped at any time.
    ///
    /// # Errors
    /// [`SinkClosed`] when the peer closed its end.
    pub async fn ready(&self) -> Result<(), SinkClosed> {
        self.queue.reserve().await.map(drop).map_err(|_| self.closed())
    }

    /// Closes the wire after what is queued, and waits until that is written.
    ///
    /// # Errors
    /// What writing failed with.
    pub async fn close(self) -> io::Result<()> {
        drop(self.queue);
        self.task.await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    fn closed(&self) -> SinkClosed {
        SinkClosed { kind: self.failure.get().copied().unwrap_or(io::ErrorKind::BrokenPipe) }
    }
}

async fn serve<W: AsyncWrite + Unpin>(
    mut io: W,
    mut queue: mpsc::Receiver<Vec<u8>>,
    failure: Arc<OnceLock<io::ErrorKind>>,
) -> io::Result<()> {
    let written = write_all(&mut io, &mut queue).await;
    if let Err(error) = &written {
        tracing::debug!(%error, "the peer no longer reads");
        // Nothing else sets it.
        _ = failure.set(error.kind());
    }
    written
}

async fn write_all<W: AsyncWrite + Unpin>(io: &mut W, queue: &mut mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, DEFAULT_QUEUE).await > 0 {
        if let [only] = &waiting[..] {
            io.write_all(only).await?;
        } else {
            let mut joined = Vec::new();
            for entry in &waiting {
                if joined.len() + entry.len() > JOIN_UP_TO && !joined.is_empty() {
                    io.write_all(&joined).await?;
                    joined.clear();
                }
                if entry.len() > JOIN_UP_TO {
                    io.write_all(entry).await?;
                } else {
                    joined.extend_from_slice(entry);
                }
            }
            io.write_all(&joined).await?;
        }
        io.flush().await?;
        waiting.clear();
    }
    io.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::sync::Mutex;
    use std::task::{Context, Poll};
    use tokio::io::AsyncReadExt as _;

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.expect("a runtime without drivers needs nothing").block_on(test)
    }

    /// Remembers every write.
    #[derive(Clone, Default)]
    struct Writes(Arc<Mutex<Vec<Vec<u8>>>>);

    impl AsyncWrite for Writes {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.0.lock().expect("no test panics while it holds this").push(buf.to_vec());
            Poll::Ready(Ok(buf.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn what_waits_is_written_together_and_in_order() {
        run(async {
            let writes = Writes::default();
            let sink = LineSink::spawn(writes.clone(), 10);
            let big = vec![b'b'; JOIN_UP_TO + 1];
            for entry in [b"1\n".to_vec(), b"2\n".to_vec(), big.clone(), b"3\n".to_vec()] {
                sink.try_send(entry).expect("the queue has room");
            }
            sink.close().await.expect("nothing fails");
            let got = writes.0.lock().expect("no test panics while it holds this");
            assert_eq!(*got, [b"1\n2\n".to_vec(), big, b"3\n".to_vec()]);
        });
    }

    #[test]
    fn a_full_queue_gives_the_lines_back_and_says_when_there_is_room() {
        run(async {
            let (near, mut far) = tokio::io::duplex(1);
            let sink = LineSink::spawn(near, 1);
            sink.try_send(b"12".to_vec()).expect("the queue is empty");
            assert_eq!(sink.try_send(b"3".to_vec()), Err(TrySendError::Full(b"3".to_vec())));
            let mut got = [0; 2];
            let (ready, read) = tokio::join!(sink.ready(), far.read_exact(&mut got));
            ready.expect("the other end is open");
            read.expect("the other end is open");
            sink.try_send(b"3".to_vec()).expect("there is room now");
            drop(sink);
            let mut rest = Vec::new();
            far.read_to_end(&mut rest).await.expect("closing is no error");
            assert_eq!((&got, &rest[..]), (b"12", &b"3"[..]));
        });
    }

    #[test]
    fn a_peer_that_stopped_reading_is_reported() {
        run(async {
            let (near, far) = tokio::io::duplex(1);
            drop(far);
            let sink = LineSink::spawn(near, 1);
            sink.try_send(b"12".to_vec()).expect("the failure is not known yet");
            let closed = SinkClosed { kind: io::ErrorKind::BrokenPipe };
            while sink.ready().await.is_ok() {
                tokio::task::yield_now().await;
            }
            assert_eq!(sink.send(b"3".to_vec()).await, Err(closed));
            assert_eq!(sink.try_send(b"3".to_vec()), Err(TrySendError::Closed(closed)));
            assert!(sink.close().await.is_err());
        });
    }
}
