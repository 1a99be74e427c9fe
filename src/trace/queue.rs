//! The bounded queue between those who record and the one thread that writes.
//!
//! Invariant: what waits here is at most [`LIMIT`] bytes plus one record; a caller that finds it full
//! waits. Once the file can no longer be written, records are thrown away instead of piling up, and the
//! log says so once.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{Dir, Masker, Wire};

/// How many bytes of records may wait for the writer.
const LIMIT: usize = 4 * 1024 * 1024;

/// What a record costs beside its text.
const OVERHEAD: usize = 128;

#[derive(Debug)]
pub(super) struct Record {
    /// Microseconds since the header.
    pub(super) t_us: u64,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Header { agent: Option<Box<str>>, at_ms: u64 },
    Line { wire: Wire, dir: Dir, session: Option<Box<str>>, line: Box<[u8]> },
    Noise { wire: Wire, dir: Dir, session: Option<Box<str>>, bytes: Box<[u8]>, cut: usize, why: &'static str },
    Note { session: Option<Box<str>>, note: String },
    Event { name: &'static str, facts: serde_json::Value },
}

impl Record {
    fn weight(&self) -> usize {
        OVERHEAD
            + match &self.body {
                Body::Line { line, .. } => line.len(),
                Body::Noise { bytes, .. } => bytes.len(),
                Body::Note { note, .. } => note.len(),
                Body::Header { .. } | Body::Event { .. } => 0,
            }
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Something came, or the end.
    filled: Condvar,
    /// Something was taken, or the end.
    drained: Condvar,
}

#[derive(Debug, Default)]
struct State {
    records: VecDeque<Record>,
    weight: usize,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under this lock can leave it half done, so a poisoned one is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record; waits while the queue is full; drops it when the trace has ended.
    pub(super) fn push(&self, record: Record) {
        let mut state = self.lock();
        while state.weight >= LIMIT && !state.closed {
            state = self.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return;
        }
        state.weight += record.weight();
        state.records.push_back(record);
        drop(state);
        self.filled.notify_one();
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
        self.drained.notify_all();
    }

    /// Everything that waits, once something waits; `None` after the end.
    fn take(&self) -> Option<VecDeque<Record>> {
        let mut state = self.lock();
        while state.records.is_empty() {
            if state.closed {
                return None;
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.weight = 0;
        let batch = std::mem::take(&mut state.records);
        drop(state);
        self.drained.notify_all();
        Some(batch)
    }
}

/// The writer thread: each batch is one write, so that a killed diglot leaves whole lines behind.
pub(super) fn write_all(queue: &Queue, mut file: File, mut masker: Masker) {
    let mut text = Vec::new();
    while let Some(batch) = queue.take() {
        text.clear();
        for record in batch {
            render(&record, &mut masker, &mut text);
        }
        if let Err(error) = file.write_all(&text) {
            tracing::warn!(%error, "the trace ends here: it can no longer be written");
            queue.close();
            return;
        }
        // One huge line must not keep its memory for ever.
        if text.capacity() > LIMIT {
            text = Vec::new();
        }
    }
}

fn render(record: &Record, masker: &mut Masker, out: &mut Vec<u8>) {
    match &record.body {
        Body::Header { agent, at_ms } => {
            out.extend_from_slice(br#"{"trace":1,"diglot":"#);
            string(env!("CARGO_PKG_VERSION"), out);
            out.extend_from_slice(format!(r#","pid":{}"#, std::process::id()).as_bytes());
            if let Some(agent) = agent {
                out.extend_from_slice(br#","agent":"#);
                string(agent, out);
            }
            out.extend_from_slice(format!(r#","at_ms":{at_ms}"#).as_bytes());
        }
        Body::Line { wire, dir, session, line } => {
            place(record.t_us, *wire, *dir, session.as_deref(), out);
            let start = out.len();
            out.extend_from_slice(br#","line":"#);
            if !masker.json(line, out) {
                out.truncate(start);
                noise(line, 0, "not_json", masker, out);
            }
        }
        Body::Noise { wire, dir, session, bytes, cut, why } => {
            place(record.t_us, *wire, *dir, session.as_deref(), out);
            noise(bytes, *cut, why, masker, out);
        }
        Body::Note { session, note } => {
            time(record.t_us, out);
            out.extend_from_slice(br#","note":"#);
            string(&masker.text(note), out);
            named(br#","session":"#, session.as_deref(), out);
        }
        Body::Event { name, facts } => {
            time(record.t_us, out);
            out.extend_from_slice(br#","event":"#);
            string(name, out);
            let mut masked = Vec::new();
            if masker.json(facts.to_string().as_bytes(), &mut masked)
                && let Some(members) = masked.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"))
                && !members.is_empty()
            {
                out.push(b',');
                out.extend_from_slice(members);
            }
        }
    }
    out.extend_from_slice(b"}\n");
}

fn noise(bytes: &[u8], cut: usize, why: &str, masker: &Masker, out: &mut Vec<u8>) {
    out.extend_from_slice(br#","noise":"#);
    string(&masker.text(&String::from_utf8_lossy(bytes)), out);
    out.extend_from_slice(br#","why":"#);
    string(why, out);
    if cut > 0 {
        out.extend_from_slice(format!(r#","cut_bytes":{cut}"#).as_bytes());
    }
}

fn place(t_us: u64, wire: Wire, dir: Dir, session: Option<&str>, out: &mut Vec<u8>) {
    time(t_us, out);
    out.extend_from_slice(format!(r#","wire":"{}","dir":"{}""#, wire.as_str(), dir.as_str()).as_bytes());
    named(br#","session":"#, session, out);
}

fn time(t_us: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(format!(r#"{{"t_ms":{}.{:03}"#, t_us / 1000, t_us % 1000).as_bytes());
}

fn named(name: &[u8], value: Option<&str>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        out.extend_from_slice(name);
        string(value, out);
    }
}

fn string(text: &str, out: &mut Vec<u8>) {
    // Writing a string into memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}
