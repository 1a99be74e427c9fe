//! The one ordered, bounded queue to the near side.
//!
//! Owns everything that is written to the editor: notifications and responses of all sessions, in one order. Keeps: what
//! was queued first is written first, one write per batch; pieces of text that wait behind each other become one
//! piece, so that a slow reader gets longer pieces instead of a longer queue (design, section 3, rules 2 and 10).

use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use super::printer::Printer;
use crate::trace::{Dir, Trace, Wire};
use crate::translate::Chunk;
use crate::wire::frame::write_line;
use crate::wire::long::LongLine;

/// Lines that may wait.
const QUEUE: usize = 256;

/// Bytes that may wait. A longer line waits alone.
const ROOM: u32 = 1024 * 1024;

/// A batch is written when it has this many bytes, even if more waits: half of what a pipe takes. What is allocated in larger
/// pieces glibc keeps longer once they are freed.
const BATCH: usize = 32 * 1024;

/// Room for a batch that is kept from one to the next, in bytes: more than a batch of a stream needs.
const KEPT: usize = 8 * 1024;

/// What an entry takes beside its bytes.
const ENTRY: usize = 128;

/// One thing to write.
#[derive(Debug)]
pub(super) enum Out {
    /// A line, without its LF.
    Line(Vec<u8>),
    /// A line with a long text in it.
    Long(LongLine),
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

    /// What it takes up while it waits, in bytes.
    pub(super) fn size(&self) -> usize {
        ENTRY
            + match self {
                Out::Line(line) => line.len(),
                Out::Long(line) => line.size(),
                Out::Chunk(chunk) => chunk.text.len(),
            }
    }

    /// What it takes of the room.
    fn cost(&self) -> u32 {
        u32::try_from(self.size()).unwrap_or(ROOM).min(ROOM)
    }
}

/// An entry and what it took of the room.
#[derive(Debug)]
struct Entry {
    out: Out,
    cost: u32,
}

/// The reader is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// A way into the queue. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct NearQueue {
    sender: mpsc::Sender<Entry>,
    room: Arc<Semaphore>,
}

/// A place in the queue for one entry.
pub(super) struct Place<'q> {
    place: mpsc::Permit<'q, Entry>,
    room: SemaphorePermit<'q>,
    cost: u32,
}

impl Place<'_> {
    /// Takes the place: for the entry it was made for.
    pub(super) fn fill(self, out: Out) {
        self.room.forget();
        self.place.send(Entry { out, cost: self.cost });
    }
}

impl NearQueue {
    /// A place for `out` as soon as there is one. Dropped while waiting, it has changed nothing.
    pub(super) async fn place(&self, out: &Out) -> Result<Place<'_>, Gone> {
        let cost = out.cost();
        let room = self.room.acquire_many(cost).await.map_err(|_| Gone)?;
        let place = self.sender.reserve().await.map_err(|_| Gone)?;
        Ok(Place { place, room, cost })
    }

    /// A place for `out` if there is one now.
    pub(super) fn place_now(&self, out: &Out) -> Option<Place<'_>> {
        let cost = out.cost();
        let room = self.room.try_acquire_many(cost).ok()?;
        let place = self.sender.try_reserve().ok()?;
        Some(Place { place, room, cost })
    }

    /// Whether the reader is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// Makes the queue and the task that serves it. The task ends when every way in is dropped, or when the reader is gone.
pub(super) fn spawn<W>(io: W, trace: Trace) -> (NearQueue, tokio::task::JoinHandle<()>)
where
    W: AsyncWrite + Send + Unpin + 'static,
{
    spawn_printing(io, trace, None)
}

/// The same for a reader that wants the lines in another form.
pub(super) fn spawn_printing<W>(
    io: W,
    trace: Trace,
    printer: Option<Printer>,
) -> (NearQueue, tokio::task::JoinHandle<()>)
where
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (sender, receiver) = mpsc::channel(QUEUE);
    let room = Arc::new(Semaphore::new(ROOM as usize));
    let queue = NearQueue { sender, room: room.clone() };
    let task = tokio::spawn(async move {
        serve(io, receiver, &room, trace, printer).await;
        // Whoever waits for room learns that there will be none.
        room.close();
    });
    (queue, task)
}

async fn serve<W: AsyncWrite + Unpin>(
    mut io: W,
    mut queue: mpsc::Receiver<Entry>,
    room: &Semaphore,
    trace: Trace,
    mut printer: Option<Printer>,
) {
    let mut waiting = Vec::with_capacity(QUEUE);
    let mut bytes = Vec::new();
    while queue.recv_many(&mut waiting, QUEUE).await > 0 {
        // What was taken out of the queue keeps its room until it is written.
        let mut taken = 0;
        let mut entries = waiting.drain(..).peekable();
        while let Some(Entry { mut out, cost }) = entries.next() {
            taken += cost as usize;
            while let Some(next) = entries.next_if(|next| continues(&out, &next.out)) {
                taken += next.cost as usize;
                out.join(next.out);
            }
            let line = match out {
                Out::Line(line) => line,
                Out::Long(long) if printer.is_none() && !trace.is_enabled() => {
                    if !write_long(&mut io, &mut bytes, &long).await {
                        return;
                    }
                    continue;
                }
                Out::Long(long) => long.to_line(),
                Out::Chunk(chunk) => chunk.to_line(),
            };
            trace.line(Wire::Near, Dir::Out, None, &line);
            match &mut printer {
                None => write_line(&mut bytes, &line),
                Some(printer) => bytes.extend(printer.line(line).unwrap_or_default()),
            }
            if bytes.len() >= BATCH {
                if !flush(&mut io, &mut bytes).await {
                    return;
                }
                room.add_permits(std::mem::take(&mut taken));
            }
        }
        if !flush(&mut io, &mut bytes).await {
            return;
        }
        room.add_permits(taken);
    }
    if let Some(end) = printer.and_then(|mut printer| printer.finish()) {
        bytes.extend(end);
        flush(&mut io, &mut bytes).await;
    }
}

/// Writes a long line without ever holding it whole; false when the reader is gone.
async fn write_long<W: AsyncWrite + Unpin>(io: &mut W, bytes: &mut Vec<u8>, line: &LongLine) -> bool {
    for part in line.parts() {
        bytes.extend_from_slice(&part);
        if bytes.len() >= BATCH && !flush(io, bytes).await {
            return false;
        }
    }
    true
}

fn continues(this: &Out, next: &Out) -> bool {
    matches!((this, next), (Out::Chunk(this), Out::Chunk(next)) if this.continues_with(next))
}

/// Writes what is there; false when the reader is gone.
async fn flush<W: AsyncWrite + Unpin>(io: &mut W, bytes: &mut Vec<u8>) -> bool {
    let written = async {
        io.write_all(bytes).await?;
        io.flush().await
    };
    let result = written.await;
    bytes.clear();
    // What was needed once is not kept, not even a part of it: at the end of the heap it would keep all that is before it.
    if bytes.capacity() > KEPT {
        *bytes = Vec::new();
    }
    if let Err(error) = &result {
        tracing::debug!(%error, "the editor no longer reads");
    }
    result.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::{ChunkForm, ChunkKind};
    use tokio::io::AsyncReadExt as _;

    fn chunk(message: &str, text: &str) -> Out {
        Out::Chunk(Chunk {
            session_id: "s".into(),
            kind: ChunkKind::Message,
            message_id: Some(message.into()),
            text: text.into(),
            form: ChunkForm::Acp,
        })
    }

    #[tokio::test(flavor = "current_thread")]
    async fn waiting_pieces_of_one_message_are_joined_and_order_is_kept() {
        let (io, mut reader) = tokio::io::duplex(1 << 16);
        let (queue, task) = spawn(io, Trace::disabled());
        for out in
            [chunk("a", "1"), chunk("a", "2"), Out::Line(b"{\"x\":1}".to_vec()), chunk("a", "3"), chunk("b", "4")]
        {
            send(&queue, out).await.unwrap();
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
    async fn a_long_line_is_written_in_its_place_and_gives_its_room_back() {
        let (io, mut reader) = tokio::io::duplex(1 << 16);
        let (queue, task) = spawn(io, Trace::disabled());
        let text = "\"long\"\n".repeat(50_000);
        let line = |text: &str| format!("{{\"text\":{}}}", serde_json::Value::from(text));
        let long = LongLine::new(line("here").as_bytes(), "here", Arc::new(text.clone().into()), 350_000).unwrap();
        let writing = tokio::spawn(async move {
            // More than there is room for at once.
            for at in 0..8 {
                send(&queue, Out::Line(format!("{{\"at\":{at}}}").into_bytes())).await.unwrap();
                send(&queue, Out::Long(long.clone())).await.unwrap();
            }
        });
        let mut all = String::new();
        assert!(reader.read_to_string(&mut all).await.is_ok());
        assert!(writing.await.is_ok() && task.await.is_ok());
        let lines: Vec<&str> = all.lines().collect();
        assert_eq!(lines.len(), 16);
        for at in 0..8 {
            assert_eq!(lines[2 * at], format!("{{\"at\":{at}}}"));
            assert!(lines[2 * at + 1] == line(&text[..350_000]));
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_reader_that_goes_away_within_a_long_line_ends_the_queue() {
        let (io, mut reader) = tokio::io::duplex(1024);
        let (queue, task) = spawn(io, Trace::disabled());
        let text = Arc::new("x".repeat(200_000).into());
        send(&queue, Out::Long(LongLine::new(b"[\"m\"]", "m", text, 200_000).unwrap())).await.unwrap();
        assert!(reader.read_u8().await.is_ok());
        drop(reader);
        assert!(task.await.is_ok());
        assert!(queue.is_closed());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_reader_that_is_gone_ends_the_queue() {
        let (io, reader) = tokio::io::duplex(16);
        let (queue, task) = spawn(io, Trace::disabled());
        drop(reader);
        send(&queue, Out::Line(vec![b'x'; 100])).await.unwrap();
        assert!(task.await.is_ok());
        assert!(queue.is_closed());
        assert_eq!(send(&queue, Out::Line(vec![b'x'; 100])).await, Err(Gone));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_reader_that_does_not_read_bounds_the_bytes_that_wait() {
        let (io, mut reader) = tokio::io::duplex(16);
        let (queue, task) = spawn(io, Trace::disabled());
        let mut sent = 0;
        let long = || Out::Line(vec![b'x'; 100_000]);
        while let Some(place) = queue.place_now(&long()) {
            place.fill(long());
            sent += 1;
            // The queue is taken over by its task, which keeps the room all the same.
            tokio::task::yield_now().await;
        }
        assert_eq!(sent, 10, "10 of 100 kB fit into 1 MiB");
        // A line that is longer than all the room waits until it is alone.
        let huge = Out::Line(vec![b'y'; 2 * ROOM as usize]);
        let (sent, read) = tokio::join!(send(&queue, huge), async {
            let mut all = vec![0; sent * 100_001];
            reader.read_exact(&mut all).await
        });
        assert!(sent.is_ok() && read.is_ok());
        drop(queue);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest.len(), 2 * ROOM as usize + 1);
        task.await.unwrap();
    }

    async fn send(queue: &NearQueue, out: Out) -> Result<(), Gone> {
        queue.place(&out).await?.fill(out);
        Ok(())
    }
}
