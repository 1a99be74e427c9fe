//! Records what passes over both wires, as NDJSON.
//!
//! Owns the [`Trace`] handle and the shape of a trace file. Invariants: a disabled handle costs one
//! comparison; an enabled one loses no record while its file can be written (a full queue blocks the
//! caller, see `queue`); no record reaches the file before `mask` has seen it.
//!
//! A trace file holds one or more runs, each beginning with a header line:
//!
//! ```text
//! {"trace":1,"diglot":"0.1.0","pid":4711,"agent":"claude","at_ms":1795996595020}
//! {"t_ms":0.112,"event":"started","argv":["diglot","acp"],"cwd":"/home/me/project"}
//! {"t_ms":3.004,"wire":"near","dir":"in","line":{"jsonrpc":"2.0","id":0,"method":"initialize"}}
//! {"t_ms":9.871,"wire":"far","dir":"in","session":"5f…","noise":"warning: …","why":"not_json"}
//! {"t_ms":9.902,"note":"dropped a second answer to request 3","session":"5f…"}
//! {"t_ms":812.400,"event":"exit","code":0}
//! ```
//!
//! `t_ms` counts milliseconds from the header; `at_ms` is the wall clock of the header, in milliseconds
//! since 1970. `wire` is `near` (the program that started diglot) or `far` (the program that diglot
//! started); `dir` is as diglot sees it: `in` was read, `out` was written.

mod mask;
mod queue;
pub mod read;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use queue::{Body, Queue, Record};

pub use mask::Masker;

/// Longest piece of noise that a trace keeps, in bytes; the rest is counted, not kept.
const NOISE_LIMIT: usize = 64 * 1024;

/// Which of the two conversations a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The side that started diglot: an editor or a host.
    Near,
    /// The side that diglot started: an agent.
    Far,
}

impl Wire {
    /// The word that stands for this wire in a trace file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

/// The way a line went, as diglot sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dir {
    /// Read by diglot.
    In,
    /// Written by diglot.
    Out,
}

impl Dir {
    /// The word that stands for this direction in a trace file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// Why a trace cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened or created.
    #[error("cannot write the trace to {path}: {source}; name a file in a folder that exists and is yours")]
    Open {
        /// The file that was asked for.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is a named pipe and nobody has it open for reading.
    #[error("cannot write the trace to {path}: nobody reads this named pipe; start its reader first")]
    NoReader {
        /// The named pipe.
        path: PathBuf,
    },
    /// The thread that writes the file could not be started.
    #[error("cannot start the trace writer: {0}; run without --trace")]
    Thread(io::Error),
}

/// A handle to the trace of this run; cheap to clone, and free when tracing is off.
///
/// The calls block while the queue is full, so that nothing is lost and memory stays bounded.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    queue: Arc<Queue>,
    start: Instant,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Trace {
    /// A trace that records nothing.
    pub fn disabled() -> Self {
        Self::default()
    }

    /// Starts a trace in `path`, which may be a file (created for the owner alone, appended to when it
    /// exists) or a named pipe that somebody reads. `%p` in the path becomes this process's id, for
    /// editors that start several agents. `agent` goes into the header.
    ///
    /// # Errors
    /// When the file cannot be opened, the pipe has no reader, or no thread can be started.
    pub fn create(path: &Path, agent: Option<&str>) -> Result<Self, TraceError> {
        let path = expand(path);
        let file = open_file(&path)?;
        let queue = Arc::new(Queue::default());
        let start = Instant::now();
        let masker = Masker::from_env(std::env::vars_os());
        queue.push(Record { t_us: 0, body: Body::Header { agent: agent.map(Into::into), at_ms: unix_ms() } });
        let for_writer = Arc::clone(&queue);
        let writer = std::thread::Builder::new()
            .name("trace".into())
            .spawn(move || queue::write_all(&for_writer, file, masker))
            .map_err(TraceError::Thread)?;
        Ok(Self { shared: Some(Arc::new(Shared { queue, start, writer: Mutex::new(Some(writer)) })) })
    }

    /// Whether anything is recorded; ask before preparing something costly.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.shared.is_some()
    }

    /// Records one line of a wire: the JSON text as it was read or written, without its line end.
    /// Bytes that are no JSON text are recorded as noise.
    #[inline]
    pub fn line(&self, wire: Wire, dir: Dir, session: Option<&str>, line: &[u8]) {
        if let Some(shared) = &self.shared {
            shared.push(Body::Line { wire, dir, session: session.map(Into::into), line: line.into() });
        }
    }

    /// Records bytes that were not a line of the protocol; `why` is a word such as `not_json`.
    #[inline]
    pub fn noise(&self, wire: Wire, dir: Dir, session: Option<&str>, bytes: &[u8], why: &'static str) {
        if let Some(shared) = &self.shared {
            let kept = &bytes[..bytes.len().min(NOISE_LIMIT)];
            shared.push(Body::Noise {
                wire,
                dir,
                session: session.map(Into::into),
                bytes: kept.into(),
                cut: bytes.len() - kept.len(),
                why,
            });
        }
    }

    /// Records that something was skipped, dropped or answered on somebody's behalf. Formatted only when
    /// recorded: `trace.note(None, format_args!("…"))`.
    #[inline]
    pub fn note(&self, session: Option<&str>, note: fmt::Arguments<'_>) {
        if let Some(shared) = &self.shared {
            shared.push(Body::Note { session: session.map(Into::into), note: note.to_string() });
        }
    }

    /// Records an event of diglot's own life (`started`, `spawned`, `exit` …) with its facts; `facts` is
    /// called only when recorded and gives a JSON object.
    #[inline]
    pub fn event(&self, name: &'static str, facts: impl FnOnce() -> serde_json::Value) {
        if let Some(shared) = &self.shared {
            shared.push(Body::Event { name, facts: facts() });
        }
    }

    /// Writes what is still queued and ends the trace, for every clone of this handle. Records that come
    /// later are dropped. Dropping the last clone does the same.
    pub fn close(&self) {
        if let Some(shared) = &self.shared {
            shared.close();
        }
    }
}

impl Shared {
    fn push(&self, body: Body) {
        let t_us = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.queue.push(Record { t_us, body });
    }

    fn close(&self) {
        self.queue.close();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            // A writer that panicked has said so on stderr; there is nothing left to save.
            let _ = writer.join();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn expand(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) if text.contains("%p") => text.replace("%p", &std::process::id().to_string()).into(),
        _ => path.to_owned(),
    }
}

/// Opens a file for appending, as the trace's own: for the owner alone when it is new, and without waiting for the reader
/// of a named pipe.
#[cfg(unix)]
pub(crate) fn open_file(path: &Path) -> Result<std::fs::File, TraceError> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use std::os::unix::fs::OpenOptionsExt;

    // Without O_NONBLOCK, opening a named pipe that nobody reads would hang before the first answer.
    let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file =
        std::fs::OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(nonblock).open(path).map_err(
            |source| {
                if source.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) {
                    TraceError::NoReader { path: path.to_owned() }
                } else {
                    TraceError::Open { path: path.to_owned(), source }
                }
            },
        )?;
    // From here a slow reader must slow the writer down, not make it fail.
    let blocking = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK));
    blocking.map_err(|errno| TraceError::Open { path: path.to_owned(), source: errno.into() })?;
    Ok(file)
}

#[cfg(not(unix))]
pub(crate) fn open_file(path: &Path) -> Result<std::fs::File, TraceError> {
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|source| TraceError::Open { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_disabled_trace_neither_formats_nor_builds_anything() {
        struct Loud;
        impl fmt::Display for Loud {
            fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
                panic!("formatted although the trace is off")
            }
        }
        let trace = Trace::disabled();
        assert!(!trace.is_enabled());
        trace.note(None, format_args!("{Loud}"));
        trace.event("started", || panic!("built although the trace is off"));
        trace.line(Wire::Near, Dir::In, None, b"{}");
        trace.close();
    }

    #[test]
    fn every_kind_of_record_is_one_json_line_in_the_order_of_the_calls() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.ndjson");
        let trace = Trace::create(&path, Some("demo")).unwrap();
        trace.event("started", || serde_json::json!({"argv": ["diglot", "acp"], "cwd": "/w"}));
        trace.line(Wire::Near, Dir::In, None, br#"{"b":1.0, "a":2e3}"#);
        trace.line(Wire::Far, Dir::Out, Some("s1"), br#"{"type":"user"}"#);
        trace.noise(Wire::Far, Dir::In, None, b"hello \xff", "not_utf8");
        trace.line(Wire::Far, Dir::In, None, b"{oops");
        trace.note(Some("s1"), format_args!("dropped {}", 2));
        trace.event("exit", || serde_json::json!({"code": 0}));
        trace.close();

        let got = lines(&path);
        assert_eq!(got[0]["trace"], 1);
        assert_eq!(got[0]["agent"], "demo");
        assert_eq!(got[0]["diglot"], env!("CARGO_PKG_VERSION"));
        assert_eq!(got[1]["event"], "started");
        assert_eq!(got[1]["cwd"], "/w");
        assert_eq!((&got[2]["wire"], &got[2]["dir"]), (&"near".into(), &"in".into()));
        assert_eq!(got[3]["session"], "s1");
        assert_eq!(got[4]["noise"], "hello \u{fffd}");
        assert_eq!(got[4]["why"], "not_utf8");
        assert_eq!((&got[5]["noise"], &got[5]["why"]), (&"{oops".into(), &"not_json".into()));
        assert_eq!(got[6]["note"], "dropped 2");
        assert_eq!(got[7]["event"], "exit");
        assert_eq!(got.len(), 8);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(r#""line":{"b":1.0, "a":2e3}"#), "a line is kept as it is: {text}");
    }

    #[test]
    fn a_second_run_is_appended_behind_its_own_header() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.ndjson");
        for _ in 0..2 {
            let trace = Trace::create(&path, None).unwrap();
            trace.note(None, format_args!("x"));
            drop(trace);
        }
        let kinds: Vec<bool> = lines(&path).iter().map(|line| line.get("trace").is_some()).collect();
        assert_eq!(kinds, [true, false, true, false]);
    }

    #[test]
    fn a_full_queue_waits_and_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.ndjson");
        let trace = Trace::create(&path, None).unwrap();
        let big = format!("\"{}\"", "x".repeat(100_000));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        trace.line(Wire::Far, Dir::In, None, big.as_bytes());
                    }
                });
            }
        });
        trace.close();
        assert_eq!(lines(&path).len(), 201);
    }

    #[test]
    fn an_impossible_path_names_the_file_and_the_way_out() {
        let error = Trace::create(Path::new("/nonexistent-folder/t"), None).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("/nonexistent-folder/t") && text.contains("name a file"), "{text}");
    }

    #[cfg(unix)]
    #[test]
    fn a_new_trace_belongs_to_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.ndjson");
        Trace::create(&path, None).unwrap().close();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_named_pipe_works_with_a_reader_and_is_refused_without() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        use std::io::Read;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_bits_truncate(0o600), 0).unwrap();
        assert!(matches!(Trace::create(&path, None), Err(TraceError::NoReader { .. })));

        let for_reader = path.clone();
        let (opened, wait) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            // Opened for both ways, so that this open does not wait for the writer.
            let mut pipe = std::fs::OpenOptions::new().read(true).write(true).open(for_reader).unwrap();
            opened.send(()).unwrap();
            let mut seen = Vec::new();
            let mut byte = [0];
            while seen.iter().filter(|&&byte| byte == b'\n').count() < 2 {
                pipe.read_exact(&mut byte).unwrap();
                seen.push(byte[0]);
            }
            String::from_utf8(seen).unwrap()
        });
        wait.recv().unwrap();
        let trace = Trace::create(&path, None).unwrap();
        trace.note(None, format_args!("through the pipe"));
        trace.close();
        assert!(reader.join().unwrap().contains("through the pipe"));
    }
}
