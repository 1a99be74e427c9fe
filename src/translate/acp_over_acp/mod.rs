//! `acp_over_acp`: an editor speaks ACP, the agent speaks ACP, and diglot passes everything on, repaired.
//!
//! Owns one agent process and the sessions that live in it. Keeps: at most one `session/prompt` of a session is outstanding
//! (quirk 44); every request is answered once, on both wires; text passes as the bytes it came in; nothing is granted that the
//! editor did not grant. The quirks are the rows of acp-agents.md, section 6; `mappings/quirks.toml` says which file holds which.
//!
//! # Which process serves what
//!
//! `initialize`, `authenticate` and `session/list` need a process before there is a session, so the connection has a first
//! process, the *front*, started by `initialize` in diglot's own directory. Sessions live in it too: agents take several
//! hundred MB each, and all but one serve several sessions in one process and in the directory that the session names. Where
//! the profile says `process_per_session` (CodeBuddy, quirks 46 and 47), each session gets a process of its own in its own
//! directory, told the same `initialize` and the same login, and the front keeps what needs no session. [`front`] says which
//! line belongs where; each process has its own [`AcpOverAcp`], and none knows of another.
//!
//! A process that dies takes its turns with it: each prompt that runs is answered with an error, its calls end, its questions
//! are withdrawn. The next request for one of its sessions starts the agent again and takes the session up with
//! `session/resume` or `session/load` (whose replay the editor has seen already and does not get again), or says that this
//! agent cannot.
//!
//! | file | what it does |
//! |---|---|
//! | `front` | which process a line of the editor belongs to |
//! | `near` | what the editor says |
//! | `far` | what the agent says |
//! | `life` | the process: start, `initialize`, its death, its sessions taken up again |
//! | `open` | sessions: new, load, resume, fork, close |
//! | `modes` | modes and models: the one that asks, the editor's choice |
//! | `turn` | prompts: the queue, the end, the cancel |
//! | `stream` | updates that are no calls |
//! | `calls` | tool calls: announced, filled, ended |
//! | `arguments`, `output`, `terminals` | what a call shows: not its arguments, but its output |
//! | `questions` | what the agent asks of the editor |
//! | `errors` | what went wrong, in ACP's own words |
//! | `strict` | only standard members, and words that the schema knows |

mod arguments;
mod calls;
mod errors;
mod far;
pub mod front;
mod life;
mod modes;
mod near;
mod open;
mod output;
mod questions;
mod stream;
mod strict;
mod terminals;
mod turn;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::mappings::AgentProfile;
use crate::translate::{Action, Actions, Event, Stop, Timer, Translator};
use crate::wire::acp_piece::Pieces;
use crate::wire::jsonrpc::{self, Id};

/// Lines of the editor that wait for the agent to come up.
const HELD: usize = 256;

/// What a process starts from.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The agent.
    pub profile: Arc<AgentProfile>,
    /// The process's number on its connection; the front's is 0. Ids toward the editor are made of it.
    pub number: u32,
    /// Where it is started.
    pub cwd: PathBuf,
    /// The parameters of the editor's `initialize`, as JSON; the front gets the line itself.
    pub initialize: Option<Arc<str>>,
    /// The parameters of the `authenticate` that the editor said to another process, as JSON.
    pub login: Option<Arc<str>>,
    /// It serves one session and ends with it.
    pub own: bool,
}

/// Where the process stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// There is none.
    #[default]
    Gone,
    /// It has not answered `initialize`.
    Starting,
    /// It is told a login.
    LoggingIn,
    Ready,
}

/// What a request to the agent was.
#[derive(Debug)]
enum Asked {
    Initialize,
    /// A login that the editor did not ask for now.
    Login,
    /// What opens a session.
    Open(open::Opening),
    /// The same once more, after a login of diglot's own.
    LoginToOpen(open::Opening),
    /// A session taken up again in a new process.
    Reopen(Arc<str>),
    Prompt(Arc<str>),
    /// Diglot's own change of a mode; the session.
    AskingMode(Arc<str>),
    /// The editor's request, passed on.
    Pass(near::Passed),
}

/// What the agent serves.
#[derive(Debug, Clone, Copy, Default)]
struct Serves {
    load: bool,
    resume: bool,
}

/// One agent process and its sessions.
pub struct AcpOverAcp {
    set: Settings,
    stage: Stage,
    /// The parameters that the agent is told, as JSON.
    initialize: Option<Arc<str>>,
    /// The editor's `initialize` that waits.
    waits_to_initialize: Option<Id>,
    /// What the editor was answered, as JSON.
    initialized: Option<String>,
    editor: near::Editor,
    serves: Serves,
    /// Authentication methods that the agent names.
    logins: Vec<String>,
    tried_login: bool,
    held: VecDeque<Vec<u8>>,
    next_far: u64,
    asked: BTreeMap<u64, Asked>,
    next_near: u32,
    questions: BTreeMap<u64, questions::Question>,
    sessions: BTreeMap<Arc<str>, open::Session>,
    early: open::Early,
    pieces: Pieces,
    /// A prompt would be swallowed because of a cancel just before (quirk 45).
    barrier: bool,
    /// The process is of no use any more: it is ended as soon as no turn runs in it.
    spoilt: bool,
    /// It was told to end.
    leaving: bool,
    near_gone: bool,
    ended: bool,
}

impl AcpOverAcp {
    /// A process that has not been started.
    #[must_use]
    pub fn new(set: Settings) -> Self {
        let mut link = Self {
            stage: Stage::Gone,
            initialize: None,
            waits_to_initialize: None,
            initialized: None,
            editor: near::Editor::default(),
            serves: Serves::default(),
            logins: Vec::new(),
            tried_login: false,
            held: VecDeque::new(),
            next_far: 0,
            asked: BTreeMap::new(),
            next_near: 0,
            questions: BTreeMap::new(),
            sessions: BTreeMap::new(),
            early: open::Early::default(),
            pieces: Pieces::default(),
            barrier: false,
            spoilt: false,
            leaving: false,
            near_gone: false,
            ended: false,
            set,
        };
        if let Some(params) = link.set.initialize.clone() {
            link.know_editor(&params);
        }
        link
    }

    /// Whether nothing waits to be answered.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.waits_to_initialize.is_none()
            && self.held.is_empty()
            && self.asked.is_empty()
            && self.questions.is_empty()
            && self.sessions.values().all(open::Session::is_settled)
    }

    /// A request to the agent; gives its id.
    fn ask_agent<P: Serialize + ?Sized>(&mut self, method: &str, params: &P, asked: Asked, out: &mut Actions) -> u64 {
        self.next_far += 1;
        let id = self.next_far;
        self.asked.insert(id, asked);
        out.far(jsonrpc::request(&Id::number(id), method, params));
        id
    }

    /// Ends the process, and then the link.
    fn leave(&mut self, out: &mut Actions) {
        self.leaving = true;
        if self.stage == Stage::Gone {
            self.ended = true;
            out.push(Action::End);
        } else {
            out.push(Action::StopFar(Stop::Gently));
        }
    }
}

impl Translator for AcpOverAcp {
    fn handle(&mut self, event: Event<'_>, out: &mut Actions) {
        if self.ended {
            return;
        }
        match event {
            Event::Near(line) => self.near_line(line, out),
            Event::NearClosed => self.near_closed(out),
            Event::Far(line) => self.far_line(line, out),
            Event::FarFailed(why) => self.far_failed(why, out),
            Event::FarClosed(exit) => self.far_closed(exit, out),
            Event::Timer(timer) => match timer {
                Timer::Start => self.start_timed_out(out),
                Timer::Cancel => self.cancel_timed_out(out),
                Timer::Settle => self.settled(out),
                Timer::Control => self.modes_timed_out(out),
                Timer::Barrier => self.barrier_over(out),
                Timer::Commands | Timer::Hook(_) => {}
            },
            // Of a host's session, or of files, which are not read here.
            Event::Begin
            | Event::Interrupted
            | Event::ToolCalled { .. }
            | Event::Relay { .. }
            | Event::FileRead { .. }
            | Event::Client { .. }
            | Event::CommandEnded { .. } => {}
        }
    }
}
