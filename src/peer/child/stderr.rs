//! Keeps the end of what an agent writes to stderr, and reads it always, so that the agent never waits for it.
//!
//! Invariant: about 4 KiB are kept, whatever is written.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::task::JoinHandle;

/// How many bytes are kept.
const KEEP: usize = 4096;

#[derive(Debug)]
pub(super) struct StderrTail {
    tail: Arc<Mutex<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl StderrTail {
    /// Reads `stderr` of the process `pid` with a task of the current runtime.
    pub(super) fn spawn<R: AsyncRead + Send + Unpin + 'static>(stderr: R, pid: u32) -> Self {
        let tail = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(collect(stderr, Arc::clone(&tail), pid));
        Self { tail, task }
    }

    /// Waits for the end of stderr. May be dropped and called again.
    pub(super) async fn end(&mut self) {
        if !self.task.is_finished() {
            // It neither panics nor is it cancelled.
            _ = (&mut self.task).await;
        }
    }

    /// What is kept, as text.
    pub(super) fn text(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        text(&tail)
    }
}

fn text(tail: &[u8]) -> String {
    let mut from = tail.len().saturating_sub(KEEP);
    if from > 0 {
        // Not in the middle of a character.
        from += tail[from..].iter().take_while(|byte| **byte & 0xC0 == 0x80).count();
    }
    String::from_utf8_lossy(&tail[from..]).into_owned()
}

async fn collect<R: AsyncRead + Unpin>(mut stderr: R, tail: Arc<Mutex<Vec<u8>>>, pid: u32) {
    let mut chunk = [0; 1024];
    let mut line = Vec::new();
    while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
        let bytes = &chunk[..read];
        log(&mut line, bytes, pid);
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.len() + read > 2 * KEEP {
            let excess = tail.len() - KEEP;
            tail.drain(..excess);
        }
        tail.extend_from_slice(bytes);
    }
    if !line.is_empty() {
        log(&mut line, b"\n", pid);
    }
}

/// Logs whole lines; an endless one in pieces.
fn log(line: &mut Vec<u8>, bytes: &[u8], pid: u32) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        line.extend_from_slice(piece);
        if piece.ends_with(b"\n") || line.len() > KEEP {
            tracing::debug!(pid, "agent's stderr: {}", String::from_utf8_lossy(line).trim_end());
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_begins_with_a_whole_character() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime without drivers needs nothing");
        let written = format!("{}\nlast words: é", "é".repeat(100_000));
        let tail = Arc::default();
        runtime.block_on(collect(written.as_bytes(), Arc::clone(&tail), 0));
        let tail = tail.lock().expect("nothing panicked");
        assert!(tail.len() <= 2 * KEEP);
        let text = text(&tail);
        assert!(text.len() <= KEEP && text.len() > KEEP - 4, "{} bytes", text.len());
        assert!(written.ends_with(&text));
    }
}
