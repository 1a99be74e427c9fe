//! The translators: each a pure state machine between two wires.
//!
//! Owns the vocabulary of that machine: what can happen ([`Event`]) and what can be done about it ([`Action`]). Keeps:
//! nothing here does I/O, reads a clock or awaits; time, ids and file contents come in as events, so a conversation is
//! a pure function of its events. Golden files, simulation and fuzzing drive the same code as the real pipes do.

pub mod acp_agent;
pub mod acp_over_acp;
pub mod acp_over_claude;
pub mod claude_over_acp;
pub mod client;
pub mod content;
pub mod diff;
pub mod partial_json;
pub mod permission;
pub mod plan;
pub mod rules;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::wire::acp::{ContentBlock, ContentChunk, SessionNotification, SessionUpdate};
use crate::wire::acp_client::McpServer;
use crate::wire::long::LongLine;
use crate::wire::stream_json_agent::{Delta, StreamEvent, stream_event};

/// A state machine between two wires.
pub trait Translator {
    /// Takes one thing that happened and says, in order, what to do about it.
    fn handle(&mut self, event: Event<'_>, out: &mut Actions);
}

/// One thing that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// The session begins; the first event of its life.
    Begin,
    /// A line from the near side that concerns this session.
    Near(&'a [u8]),
    /// The near side is gone: nobody can be asked or told any more. (A host that has closed stdin still reads.)
    NearClosed,
    /// The user interrupts from outside of the wire: SIGINT.
    Interrupted,
    /// The permission tool answered [`Action::AskTool`].
    ToolCalled {
        /// The action's number.
        effect: u64,
        /// The text it gave, or why there is none.
        answer: Result<String, String>,
    },
    /// What came of [`Action::Client`].
    Client {
        /// The action's number.
        effect: u64,
        /// What came of it.
        done: client::ClientDone,
    },
    /// A command that [`client::ClientWork::Run`] started has ended.
    CommandEnded {
        /// The terminal's number.
        terminal: u64,
        /// All that is kept of its output.
        output: client::Output,
    },
    /// A line of a program that reached diglot through its MCP relay.
    Relay {
        /// The connection.
        conn: u64,
        /// The MCP server it wants.
        server: &'a str,
        /// What it says; `None` when it has gone.
        line: Option<&'a [u8]>,
    },
    /// A line from the far process that runs now.
    Far(&'a [u8]),
    /// The far process could not be started.
    FarFailed(&'a StartFailure),
    /// The far process ended; the last event of its life.
    FarClosed(&'a FarExit),
    /// A timer that was set and not cleared ran out.
    Timer(Timer),
    /// A file that [`Action::ReadFile`] asked for.
    FileRead {
        /// The action's number.
        effect: u64,
        /// Its text, or why there is none.
        content: FileContent,
    },
}

/// Why a far process did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartFailure {
    /// The session's directory is not there or is no directory.
    BadDirectory(String),
    /// The program is not there or cannot be run.
    NoProgram(String),
    /// Anything else.
    Other(String),
}

impl StartFailure {
    /// The text for a person; says what to do next.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::BadDirectory(m) | Self::NoProgram(m) | Self::Other(m) => m,
        }
    }
}

/// How a far process ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FarExit {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The tail of what it wrote to stderr.
    pub stderr: String,
}

impl FarExit {
    /// `exited with status 1`, `was ended by signal 9`.
    #[must_use]
    pub fn how(&self) -> String {
        match (self.code, self.signal) {
            (_, Some(signal)) => format!("was ended by signal {signal}"),
            (Some(code), None) => format!("exited with status {code}"),
            (None, None) => "ended".to_owned(),
        }
    }
}

/// The content of a file as it was just now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileContent {
    /// Its text.
    Text(String),
    /// There is no such file.
    Missing,
    /// It cannot be shown: outside of the session's directories, no regular file, too large, not text.
    Unreadable(&'static str),
}

/// The timers of a session; each runs at most once at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Timer {
    /// The far process has not answered `initialize`.
    Start,
    /// The far process has not stopped after a cancel.
    Cancel,
    /// The far process said that a prompt is over and sent no result.
    Settle,
    /// The far process has not answered a change of its settings.
    Control,
    /// The far process has not said which commands it has.
    Commands,
    /// The far process would still swallow a prompt because of the cancel before it.
    Barrier,
    /// The host has not answered a hook.
    Hook(u32),
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Write a line to the near side.
    Near(Vec<u8>),
    /// Write a line with a long text in it to the near side.
    NearLong(LongLine),
    /// Write a piece of text to the near side; adjacent pieces of one message may be joined on the way.
    Chunk(Chunk),
    /// Write a line to the far process.
    Far(Vec<u8>),
    /// Start a far process; the one before, if any, is already closed.
    StartFar(FarSpec),
    /// Stop the far process. [`Event::FarClosed`] follows.
    StopFar(Stop),
    /// Read a file if it is a regular file inside of the session's directories; [`Event::FileRead`] follows.
    ReadFile {
        /// Comes back with the content.
        effect: u64,
        /// Absolute.
        path: PathBuf,
    },
    /// Remove the file of [`FarSpec::file`]: the process has read it.
    ForgetFile,
    /// Start (again) a timer.
    SetTimer(Timer, Duration),
    /// Forget a timer.
    ClearTimer(Timer),
    /// Something was skipped, dropped or decided: for the trace.
    Note(String),
    /// A line for the program behind a connection of the MCP relay.
    Relay {
        /// The connection.
        conn: u64,
        /// The line.
        line: Vec<u8>,
    },
    /// Ask the host's permission tool; [`Event::ToolCalled`] follows.
    AskTool {
        /// Comes back with the answer.
        effect: u64,
        /// The tool's name on its server.
        tool: String,
        /// `{tool_name, input, tool_use_id}`.
        arguments: serde_json::Value,
    },
    /// The relay's clients that want the server of this name are to be carried to it: the agent cannot reach it by itself.
    Proxy(McpServer),
    /// Do something for the agent; [`Event::Client`] follows where the work has an answer.
    Client {
        /// Comes back with the answer.
        effect: u64,
        /// What.
        work: client::ClientWork,
    },
    /// Keep which session of the agent belongs to the host's session.
    Remember {
        /// The agent's id of it.
        agent_session: String,
    },
    /// Say something to the person behind stderr.
    Warn(String),
    /// The session is over; nothing more comes from it.
    End,
    /// The session is over, and with it the process: its exit code.
    Exit(u8),
}

/// A piece of streamed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The ACP session.
    pub session_id: Arc<str>,
    /// Whose text.
    pub kind: ChunkKind,
    /// The API message it belongs to.
    pub message_id: Option<Arc<str>>,
    /// The text.
    pub text: String,
    /// How it is written.
    pub form: ChunkForm,
}

/// How a piece of text is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkForm {
    /// As a `session/update`.
    Acp,
    /// As a `stream_event` of this block.
    StreamEvent {
        /// The block's place in its message.
        index: u32,
        /// The line's; written out only with the line, since most pieces are joined with the one before.
        uuid: Uuid,
    },
}

/// Whose text a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkKind {
    /// The answer's.
    Message,
    /// The thoughts'.
    Thought,
}

impl Chunk {
    /// Whether `next` only continues this piece.
    #[must_use]
    pub fn continues_with(&self, next: &Self) -> bool {
        let same_block = match (&self.form, &next.form) {
            (ChunkForm::Acp, ChunkForm::Acp) => true,
            (ChunkForm::StreamEvent { index: this, .. }, ChunkForm::StreamEvent { index: next, .. }) => this == next,
            _ => false,
        };
        same_block && self.kind == next.kind && self.message_id == next.message_id && self.session_id == next.session_id
    }

    /// The line.
    #[must_use]
    pub fn to_line(&self) -> Vec<u8> {
        if let ChunkForm::StreamEvent { index, uuid } = &self.form {
            let delta = match self.kind {
                ChunkKind::Message => Delta::TextDelta { text: &self.text },
                ChunkKind::Thought => Delta::ThinkingDelta { thinking: &self.text },
            };
            let event = StreamEvent::ContentBlockDelta { index: *index, delta };
            let mut room = Uuid::encode_buffer();
            return stream_event(&self.session_id, uuid.hyphenated().encode_lower(&mut room), &event);
        }
        let chunk = ContentChunk {
            content: ContentBlock::Text { text: (&*self.text).into() },
            message_id: self.message_id.as_deref(),
        };
        let update = match self.kind {
            ChunkKind::Message => SessionUpdate::AgentMessageChunk(chunk),
            ChunkKind::Thought => SessionUpdate::AgentThoughtChunk(chunk),
        };
        SessionNotification { session_id: &self.session_id, update }.to_line()
    }
}

/// How to start a far process. The program and its environment come from the profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FarSpec {
    /// All arguments.
    pub args: Vec<String>,
    /// A flag and what the file that it names holds. Arguments can be read by everybody on the machine; this file only by
    /// the user, until [`Action::ForgetFile`].
    pub file: Option<(String, String)>,
    /// Working directory; absolute.
    pub cwd: PathBuf,
    /// Directories besides `cwd` from which files may be shown.
    pub roots: Vec<PathBuf>,
}

/// How to stop a far process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Close its stdin, wait a little, then terminate, then kill.
    Gently,
    /// SIGINT; it may live on.
    Interrupt,
    /// Kill it and everything it started.
    Kill,
}

/// Where ids come from.
pub trait IdSource: Send {
    /// A new UUID.
    fn uuid(&mut self) -> Uuid;
}

/// Where the time comes from.
pub trait Clock: Send {
    /// Milliseconds since any fixed moment.
    fn now_ms(&mut self) -> u64;
}

/// The actions of one event, in order.
#[derive(Debug, Default)]
pub struct Actions {
    list: Vec<Action>,
}

impl Actions {
    /// Adds an action.
    pub fn push(&mut self, action: Action) {
        // A piece of text that only continues the piece before needs no action of its own.
        if let (Action::Chunk(next), Some(Action::Chunk(last))) = (&action, self.list.last_mut())
            && last.continues_with(next)
        {
            last.text.push_str(&next.text);
            return;
        }
        self.list.push(action);
    }

    /// Takes the actions out, in order; the room stays.
    pub fn drain(&mut self) -> impl Iterator<Item = Action> + '_ {
        self.list.drain(..)
    }

    /// The actions so far.
    #[must_use]
    pub fn as_slice(&self) -> &[Action] {
        &self.list
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many actions there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Takes back what was to be written to the near side from this action on.
    pub(crate) fn mute_near(&mut self, from: usize) {
        let mut at = 0;
        self.list.retain(|action| {
            at += 1;
            at <= from || !matches!(action, Action::Near(_) | Action::NearLong(_) | Action::Chunk(_))
        });
    }

    pub(crate) fn near(&mut self, line: Vec<u8>) {
        self.push(Action::Near(line));
    }

    pub(crate) fn far(&mut self, line: Vec<u8>) {
        self.push(Action::Far(line));
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.push(Action::Note(text.into()));
    }

    pub(crate) fn update(&mut self, session_id: &str, update: SessionUpdate<'_>) {
        self.near(SessionNotification { session_id, update }.to_line());
    }
}
