//! What an ACP agent has done by its client: files read and written, commands run.
//!
//! Owns the vocabulary between a translator, which decides, and the session, which does. Keeps: every work with an effect
//! number is answered once, by [`Event::Client`](super::Event::Client), and every command that runs ends once, by
//! [`Event::CommandEnded`](super::Event::CommandEnded), after that.

use std::path::PathBuf;

/// Something to be done. All paths are absolute; `roots` are the directories outside of which nothing is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientWork {
    /// Say where a path leads: [`ClientDone::Found`]. Nothing is opened.
    Find {
        /// The path as the agent has it.
        path: PathBuf,
        /// What may be there.
        want: Want,
        /// Where it may lie.
        roots: Vec<PathBuf>,
    },
    /// Read a text file: [`ClientDone::Text`].
    Read {
        /// The file.
        path: PathBuf,
        /// Lines left out before the first that is wanted.
        skip: u64,
        /// How many lines are wanted; `None`: all.
        limit: Option<u64>,
        /// Where it may lie.
        roots: Vec<PathBuf>,
    },
    /// Write a text file, and the directories on the way to it: [`ClientDone::Written`].
    Write {
        /// The file.
        path: PathBuf,
        /// All that it holds then.
        content: String,
        /// What it must hold until then, nothing if it is not there; `None`: anything.
        over: Option<String>,
        /// Where it may lie.
        roots: Vec<PathBuf>,
    },
    /// Start a command: [`ClientDone::Runs`].
    Run {
        /// The terminal's number; never used for another one.
        terminal: u64,
        /// What is started.
        command: Command,
        /// Where it may start.
        roots: Vec<PathBuf>,
    },
    /// Say what a command has put out so far: [`ClientDone::Output`].
    Output {
        /// The terminal's number.
        terminal: u64,
    },
    /// Kill a command and all that it started; has no answer but its end.
    Kill {
        /// The terminal's number.
        terminal: u64,
    },
    /// Kill all commands; has no answer but their ends.
    KillAll,
}

/// What may be at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// A regular file.
    File,
    /// A regular file, or nothing yet.
    NewFile,
    /// A directory.
    Directory,
}

/// What is started in a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables on top of diglot's own.
    pub env: Vec<(String, String)>,
    /// Where it starts.
    pub cwd: PathBuf,
    /// How many bytes of its output are kept; the last ones.
    pub keep: usize,
}

/// What came of a work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientDone {
    /// Where the path leads, with every link below its root resolved.
    Found(PathBuf),
    /// What the file holds.
    Text(String),
    /// It was written.
    Written,
    /// It runs.
    Runs,
    /// Its output so far.
    Output(Output),
    /// It was not done.
    Failed(ClientFailure),
}

/// Why a work was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientFailure {
    /// There is no such file or terminal.
    #[error("Resource not found: {0}")]
    NotFound(String),
    /// It is none that may be touched, or no text.
    #[error("{0}")]
    NotAllowed(String),
    /// The system said no.
    #[error("{0}")]
    Failed(String),
}

/// What a command has put out, stdout and stderr together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The last of it; what is not UTF-8 is replaced.
    pub text: String,
    /// There was more before that.
    pub truncated: bool,
    /// How it ended; `None`: it runs.
    pub exit: Option<CommandExit>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommandExit {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}
