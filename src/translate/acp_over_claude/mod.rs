//! Forward: an editor's ACP session over a claude that speaks stream-json.
//!
//! Owns one session: its far process, its queue of prompts, its open questions and calls. Keeps the design's rules of
//! section 3; the ones that live here: every request is answered exactly once, a call is announced before anything
//! refers to it and is closed before its turn ends, only an explicit allow allows, and everything of a turn is
//! written before the turn's end.
//!
//! | file | what it does |
//! |---|---|
//! | `near` | what the editor says: prompt, cancel, mode, answers |
//! | `far` | what claude says, line by line |
//! | `life` | start, death and return of the far process |
//! | `open` | `session/new`: parameters to flags |
//! | `turn` | the queue of prompts; when a turn ends and how |
//! | `stream` | text and thoughts, never twice |
//! | `tools`, `cards` | the life of a call, of its task in the background, and how it looks |
//! | `questions` | permission questions |

mod cards;
mod far;
mod life;
mod near;
mod open;
mod questions;
mod stream;
mod tools;
mod turn;

use std::collections::HashMap;
use std::sync::Arc;

use super::plan::Plan;
use super::{Actions, Event, IdSource, Translator};
use crate::mappings::{AgentProfile, Mappings};
use crate::wire::acp::{AvailableCommand, ClientCapabilities};
use crate::wire::jsonrpc::Id;
use crate::wire::stream_json::Deltas;

use life::Far;
use open::Opening;
use questions::Questions;
use stream::Streams;
use tools::Tools;
use turn::Turns;

/// What a session needs to know when it is made.
pub struct Settings {
    /// The tables.
    pub mappings: Arc<Mappings>,
    /// The agent: its name in messages, its flags, its dialect.
    pub profile: Arc<AgentProfile>,
    /// What the editor can do.
    pub client: ClientCapabilities,
    /// The session's number on its connection, for the ids of our requests.
    pub number: u32,
    /// The session's id; also claude's.
    pub session_id: Arc<str>,
    /// Where uuids come from.
    pub ids: Box<dyn IdSource>,
}

/// One ACP session over one claude.
pub struct AcpOverClaude {
    set: Settings,
    /// What `session/new` asked for; `None` before it and after it failed.
    opening: Option<Opening>,
    /// Claude's session id of the moment: `/clear` changes it, ACP's stays.
    claude_session: String,
    far: Far,
    /// `session/new` was answered with success.
    opened: bool,
    /// Lines that came before the session was open.
    early: Vec<Vec<u8>>,
    turns: Turns,
    streams: Streams,
    deltas: Deltas,
    tools: Tools,
    questions: Questions,
    plan: Plan,
    /// The permission mode in force, once known.
    mode: Option<String>,
    /// The mode that the editor chose; a new process is started in it.
    chosen_mode: Option<String>,
    /// The title last told.
    title: Option<String>,
    /// The commands last told.
    commands: Vec<AvailableCommand>,
    /// Our open control requests.
    asks: HashMap<String, Asked>,
    ask_count: u64,
    /// Tokens of the last API call: what the context holds.
    context_used: u64,
    /// The model that answered last.
    model: Option<String>,
    /// What the user must know, for an editor without notices: told with the turn that follows.
    untold: Vec<String>,
    near_closed: bool,
    ended: bool,
}

/// What an open control request was for.
#[derive(Debug)]
enum Asked {
    Initialize,
    Interrupt,
    SetMode {
        near: Id,
        mode: String,
    },
    /// The mode of before, set again in a new process; otherwise it is in this one.
    KeepMode {
        instead: Option<String>,
    },
}

impl std::fmt::Debug for AcpOverClaude {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcpOverClaude").field("session_id", &self.set.session_id).finish_non_exhaustive()
    }
}

impl AcpOverClaude {
    /// A session that waits for its `session/new`.
    #[must_use]
    pub fn new(set: Settings) -> Self {
        Self {
            claude_session: set.session_id.to_string(),
            set,
            opening: None,
            far: Far::default(),
            opened: false,
            early: Vec::new(),
            turns: Turns::default(),
            streams: Streams::default(),
            deltas: Deltas::default(),
            tools: Tools::default(),
            questions: Questions::default(),
            plan: Plan::default(),
            mode: None,
            chosen_mode: None,
            title: None,
            commands: Vec::new(),
            asks: HashMap::new(),
            ask_count: 0,
            context_used: 0,
            model: None,
            untold: Vec::new(),
            near_closed: false,
            ended: false,
        }
    }

    /// The id for our next control request.
    fn ask_id(&mut self) -> String {
        self.ask_count += 1;
        format!("diglot-{}", self.ask_count)
    }

    /// Whether nothing is left to be answered: what simulation checks at the end.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.turns.is_idle() && self.questions.is_empty() && !self.far.is_opening()
    }
}

impl Translator for AcpOverClaude {
    fn handle(&mut self, event: Event<'_>, out: &mut Actions) {
        if self.ended {
            return;
        }
        let (gone, before) = (self.near_closed, out.len());
        match event {
            // Claude is started by `session/new`; the others are for hosts.
            Event::Begin
            | Event::Interrupted
            | Event::ToolCalled { .. }
            | Event::Client { .. }
            | Event::CommandEnded { .. }
            | Event::Relay { .. } => {}
            Event::Near(line) => self.near_line(line, out),
            Event::NearClosed => self.near_closed(out),
            Event::Far(line) => self.far_line(line, out),
            Event::FarFailed(why) => self.far_failed(why, out),
            Event::FarClosed(exit) => self.far_closed(exit, out),
            Event::Timer(timer) => self.timer(timer, out),
            Event::FileRead { effect, content } => self.file_read(effect, content, out),
        }
        if gone {
            // Everything was answered when the editor left; what claude still says is for nobody.
            out.mute_near(before);
        }
    }
}
