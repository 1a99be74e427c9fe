//! The one ordered, bounded queue to the near side.
//!
//! Owns everything that is written to the editor: notifications and responses of all sessions, in one order. Keeps: what
//! was queued first is written first, one write per batch; pieces of text that wait behind each other become one
//! piece, so that a slow reader gets longer pieces instead of a longer queue (design, section 3, rules 2 and 10).

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::trace::{Dir, Trace, Wire};
use crate::translate::Chunk;
use crate::wire::frame::write_line;

/// Lines that may wait.
const QUEUE: usize = 256;

/// A batch is written when it has this many bytes, even if more waits.
const BATCH: usize = 256 * 1024;

/// One thing to write.
#[derive(Debug)]
pub(super) enum Out {
    /// A line, without its LF.
    Line(Vec<u8>),
    /// A piece of text; may be joined with the next one.
    Chunk(Chunk),
}

impl Out {
    /// Takes `next` in if it only continues this piece; else gives it back.
    pub(super) fn join(&mut self, next: Out) -> Option<Out> {
        match (self, next) {
            (Out::Chunk(this), Out::Chunk(next)) if this.continues_with(&next) => {
                this.text.push_str(&next.text);
                None
            }
            (_, next) => Some(next),
        }
    }
}

/// A way into the queue.
pub(super) type NearQueue = mpsc::Sender<Out>;

/// Makes the queue and the task that serves it. The task ends when every way in is dropped, or when the reader is gone.
pub(super) fn spawn<W>(io: W, trace: Trace) -> (NearQueue, tokio::task::JoinHandle<()>)
where
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (sender, receiver) = mpsc::channel(QUEUE);
    (sender, tokio::spawn(serve(io, receiver, trace)))
}

async fn serve<W: AsyncWrite + Unpin>(mut io: W, mut queue: mpsc::Receiver<Out>, trace: Trace) {
    let mut waiting = Vec::with_capacity(QUEUE);
    let mut bytes = Vec::new();
    while queue.recv_many(&mut waiting, QUEUE).await > 0 {
        let mut items = waiting.drain(..).peekable();
        while let Some(mut item) = items.next() {
            while let Some(next) = items.peek() {
                match (&item, next) {
                    (Out::Chunk(this), Out::Chunk(that)) if this.continues_with(that) => {}
                    _ => break,
                }
                if let Some(next) = items.next() {
                    item.join(next);
                }
            }
            let line = match item {
                Out::Line(line) => line,
                Out::Chunk(chunk) => chunk.to_line(),
            };
            trace.line(Wire::Near, Dir::Out, None, &line);
            write_line(&mut bytes, &line);
            if bytes.len() >= BATCH && !flush(&mut io, &mut bytes).await {
                return;
            }
        }
        if !flush(&mut io, &mut bytes).await {
            return;
        }
    }
}

/// Writes what is there; false when the reader is gone.
async fn flush<W: AsyncWrite + Unpin>(io: &mut W, bytes: &mut Vec<u8>) -> bool {
    let written = async {
        io.write_all(bytes).await?;
        io.flush().await
    };
    let result = written.await;
    bytes.clear();
    // A huge line must not keep its room for ever.
    bytes.shrink_to(BATCH);
    if let Err(error) = &result {
        tracing::debug!(%error, "the editor no longer reads");
    }
    result.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::ChunkKind;
    use tokio::io::AsyncReadExt as _;

    fn chunk(message: &str, text: &str) -> Out {
        Out::Chunk(Chunk {
            session_id: "s".into(),
            kind: ChunkKind::Message,
            message_id: Some(message.into()),
            text: text.into(),
        })
    }

    #[tokio::test(flavor = "current_thread")]
    async fn waiting_pieces_of_one_message_are_joined_and_order_is_kept() {
        let (io, mut reader) = tokio::io::duplex(1 << 16);
        let (queue, task) = spawn(io, Trace::disabled());
        for out in
            [chunk("a", "1"), chunk("a", "2"), Out::Line(b"{\"x\":1}".to_vec()), chunk("a", "3"), chunk("b", "4")]
        {
            assert!(queue.send(out).await.is_ok());
        }
        drop(queue);
        assert!(task.await.is_ok());
        let mut all = String::new();
        assert!(reader.read_to_string(&mut all).await.is_ok());
        let texts: Vec<String> = all
            .lines()
            .map(|l| {
                let v: serde_json::Value = serde_json::from_str(l).unwrap_or_default();
                v["params"]["update"]["content"]["text"].as_str().unwrap_or("line").to_owned()
            })
            .collect();
        assert_eq!(texts, ["12", "line", "3", "4"]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_reader_that_is_gone_ends_the_queue() {
        let (io, reader) = tokio::io::duplex(16);
        let (queue, task) = spawn(io, Trace::disabled());
        drop(reader);
        assert!(queue.send(Out::Line(vec![b'x'; 100])).await.is_ok());
        assert!(task.await.is_ok());
        assert!(queue.is_closed());
    }
}
