//! The agent's process: started, read, written, interrupted, ended, and its end reported.
//!
//! Owns the life of a far process as diglot sees it. Invariants: nothing of the process outlives diglot (on Linux by the
//! [guard](super::guard), elsewhere by its process group or its handle); its end is reported once it can be known that
//! nothing more comes out of its stdout; every future here may be dropped by `select!` and taken up again.

#[cfg(unix)]
mod resting;
mod stderr;

#[cfg(target_os = "linux")]
#[path = "child/linux.rs"]
mod system;
#[cfg(all(unix, not(target_os = "linux")))]
#[path = "child/unix.rs"]
mod system;
#[cfg(windows)]
#[path = "child/windows.rs"]
mod system;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::guard::Guards;
use super::reader::FrameReader;
use super::sink::{DEFAULT_QUEUE, LineSink};
use crate::wire::frame::{Frame, FrameDecoder, MAX_LINE};
use stderr::StderrTail;

/// How long what still holds the agent's pipes after its end may keep its last words back. Only a process that could not
/// be killed does.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What to start, and where.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    /// A name that is looked up on the child's `PATH`, or a path; a relative path is relative to `cwd`.
    pub program: OsString,
    /// Its arguments, without its name.
    pub args: Vec<OsString>,
    /// Variables set on top of diglot's own environment.
    pub env: Vec<(OsString, OsString)>,
    /// Variables of diglot's own environment that the child must not have.
    pub env_remove: Vec<OsString>,
    /// Its working directory.
    pub cwd: PathBuf,
    /// The longest line taken from its stdout as a message, in bytes.
    pub max_line: usize,
    /// Where its [guard](super::guard) comes from.
    pub guards: Guards,
}

impl ChildSpec {
    /// A child without arguments and with diglot's own environment.
    pub fn new(program: impl Into<OsString>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            env_remove: Vec::new(),
            cwd: cwd.into(),
            max_line: MAX_LINE,
            guards: Guards::default(),
        }
    }
}

/// Why no process came to be.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The working directory does not exist.
    #[error("the working directory {} does not exist; create it or open another one", cwd.display())]
    CwdMissing {
        /// As it was asked for.
        cwd: PathBuf,
    },
    /// The working directory is no directory.
    #[error("the working directory {} is not a directory; give a directory", cwd.display())]
    CwdNotADirectory {
        /// As it was asked for.
        cwd: PathBuf,
    },
    /// There is no such program.
    #[error("{} was not found; install it, put its directory on PATH or give its full path", program.display())]
    NotFound {
        /// As it was asked for.
        program: PathBuf,
    },
    /// The program is a script whose interpreter does not exist.
    #[error("{} names an interpreter that does not exist; install what its first line names", program.display())]
    NoInterpreter {
        /// Where the script was found.
        program: PathBuf,
    },
    /// The file is there but cannot be run.
    #[error("{} cannot be executed; make it executable or give another program", program.display())]
    NotExecutable {
        /// Where it was found, or as it was asked for.
        program: PathBuf,
    },
    /// The guard process could not be started, or ended before the agent began.
    #[error("the guard process did not start ({source}); check that diglot's own program file can be run")]
    Guard {
        /// What the system said.
        source: io::Error,
    },
    /// Anything else.
    #[error("cannot start {}: {source}", program.display())]
    Other {
        /// As it was asked for.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// How a process ended. `Display` gives one sentence for people, with the end of its stderr.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExitReport {
    /// The exit code, if it exited.
    pub code: Option<i32>,
    /// The signal that ended it, if one did. With neither, how it ended is not known.
    pub signal: Option<i32>,
    /// The end of what it wrote to stderr, at most about 4 KiB.
    pub stderr_tail: String,
}

impl ExitReport {
    /// Whether it exited with code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }
}

impl fmt::Display for ExitReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(out, "exited with code {code}")?,
            (None, Some(signal)) => match signal_name(signal) {
                Some(name) => write!(out, "was ended by signal {signal} ({name})")?,
                None => write!(out, "was ended by signal {signal}")?,
            },
            (None, None) => out.write_str("ended in an unknown way")?,
        }
        match self.stderr_tail.trim() {
            "" => Ok(()),
            tail => write!(out, "; the end of its stderr: {tail}"),
        }
    }
}

/// Names of the signals that end processes, where their numbers are the same everywhere.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return None,
    })
}

/// The frames on the child's stdout.
pub type ChildOutput = FrameReader<system::Stdout>;

impl ChildOutput {
    /// What the child writes wakes nobody until the next frame is asked for: for a reader that will not read for a while,
    /// as an awake pipe costs a wake-up for every line written.
    pub fn rest(&mut self) {
        #[cfg(unix)]
        self.io_mut().rest();
    }
}

/// The lines to the child's stdin; dropping it closes stdin after what is queued.
pub type ChildInput = LineSink;

/// A running process, in the parts that a session uses side by side.
///
/// Dropping all of it ends the process as [`ChildControl::terminate`] does.
#[derive(Debug)]
pub struct Child {
    /// What it says.
    pub output: ChildOutput,
    /// What it is told.
    pub input: ChildInput,
    /// Signals to it.
    pub control: ChildControl,
    /// Its end.
    pub exit: ChildExit,
}

impl Child {
    /// Starts a process; returns when it runs.
    ///
    /// Needs a tokio runtime with I/O and time. Dropped before it returns, it leaves nothing behind.
    ///
    /// # Errors
    /// [`SpawnError`], precise enough to tell the user what to do.
    pub async fn spawn(spec: &ChildSpec) -> Result<Self, SpawnError> {
        check_cwd(&spec.cwd)?;
        let started = system::start(spec).await?;
        let control = ChildControl { system: started.control };
        Ok(Self {
            output: FrameReader::with_decoder(started.stdout, FrameDecoder::new(spec.max_line)),
            input: LineSink::spawn(started.stdin, DEFAULT_QUEUE),
            exit: ChildExit {
                system: started.exit,
                stderr: StderrTail::spawn(started.stderr, control.pid()),
                _control: control.clone(),
                report: None,
            },
            control,
        })
    }

    /// Ends the process in order: stdin is closed; after `grace` it is [terminated](ChildControl::terminate). What it
    /// still says goes to `on_frame`.
    pub async fn stop(self, grace: Duration, mut on_frame: impl FnMut(Frame)) -> ExitReport {
        let Self { mut output, input, control, mut exit } = self;
        drop(input);
        let grace = sleep(grace);
        tokio::pin!(grace);
        let mut talking = true;
        let mut patient = true;
        let report = loop {
            tokio::select! {
                frame = output.next_frame(), if talking => match frame {
                    Some(frame) => on_frame(frame),
                    None => talking = false,
                },
                report = exit.wait() => break report,
                () = &mut grace, if patient => {
                    patient = false;
                    control.terminate();
                }
            }
        };
        let rest = async {
            while let Some(frame) = output.next_frame().await {
                on_frame(frame);
            }
        };
        // Whatever is still in the pipe comes at once; only a process that could not be killed can keep it open.
        _ = timeout(LAST_WORDS, rest).await;
        report
    }
}

/// Signals to a process. They are sent at once and never wait; on a process that has ended they do nothing.
#[derive(Debug, Clone)]
pub struct ChildControl {
    system: system::Control,
}

impl ChildControl {
    /// Asks it to break off what it is doing: SIGINT to the agent alone. Does nothing on Windows.
    pub fn interrupt(&self) {
        self.system.interrupt();
    }

    /// Ends it: SIGTERM to its group, also when it is stopped, and after 1.5 s SIGKILL to all that is left of it and its
    /// descendants. On Windows it is killed.
    pub fn terminate(&self) {
        self.system.terminate();
    }

    /// Kills it and all its descendants now.
    pub fn kill(&self) {
        self.system.kill();
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.system.pid()
    }
}

/// The end of a process.
#[derive(Debug)]
pub struct ChildExit {
    system: system::Exit,
    stderr: StderrTail,
    /// Waiting for the end must not be what brings it about: the last control that is dropped ends the process.
    _control: ChildControl,
    report: Option<ExitReport>,
}

impl ChildExit {
    /// Waits for the end of the process and of everything that it started.
    ///
    /// As nothing is left then that could write to its stdout, the frames of [`Child::output`] are complete: read them to
    /// their `None` before acting on the report. May be dropped and called again at any time, also after the end.
    pub async fn wait(&mut self) -> ExitReport {
        if let Some(report) = &self.report {
            return report.clone();
        }
        let status = self.system.wait().await;
        _ = timeout(LAST_WORDS, self.stderr.end()).await;
        let report = ExitReport { stderr_tail: self.stderr.text(), ..status };
        self.report.insert(report).clone()
    }

    /// The end of what it has written to stderr so far, at most about 4 KiB.
    #[must_use]
    pub fn stderr_tail(&self) -> String {
        self.stderr.text()
    }
}

fn check_cwd(cwd: &Path) -> Result<(), SpawnError> {
    match std::fs::metadata(cwd) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(SpawnError::CwdNotADirectory { cwd: cwd.to_owned() }),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Err(SpawnError::CwdMissing { cwd: cwd.to_owned() }),
            io::ErrorKind::NotADirectory => Err(SpawnError::CwdNotADirectory { cwd: cwd.to_owned() }),
            // Left to the system, which says more when the child is to enter it.
            _ => Ok(()),
        },
    }
}
