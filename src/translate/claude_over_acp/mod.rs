//! `claude_over_acp`: toward the host diglot is `claude`, toward the agent it is an ACP client.
//!
//! Owns one session: a host's conversation, carried by one agent process. The twenty rules are those of
//! stream-json-hosts.md, section 0; the quirks are the rows of acp-agents.md, section 6. Keeps: one prompt is one turn and
//! one `result`; at most one `session/prompt` is outstanding (quirk 44); a call is shown once, when its input is known, and
//! always gets its result; nothing is granted that neither the host nor a rule of the user granted.
//!
//! | file | what it does |
//! |---|---|
//! | `host` | what the host says: prompts, control requests, answers |
//! | `agent` | what the agent says: answers, updates, questions |
//! | `open` | initialize, session/new, load, resume |
//! | `setting` | modes, models and options |
//! | `turn` | the queue and the turn |
//! | `finish` | its end and its `result` |
//! | `shown` | its calls as the host sees them |
//! | `usage` | tokens |
//! | `stream` | text and thoughts as messages and stream events |
//! | `subagent` | what the agent's subagents do |
//! | `calls`, `render` | what is known of a call, and how Claude would have said it |
//! | `permission`, `question` | who decides about a call, and how the agent is told |
//! | `choices` | questions with choices that an agent asks in its own way |
//! | `elicit` | forms that an agent wants filled in |
//! | `notices` | compactions and notices |
//! | `hooks` | the host's hooks around calls, prompts and turns |
//! | `relay` | MCP servers that live in the host |
//! | `served`, `command`, `grants` | files and commands that the agent has diglot read, write and run |
//! | `schema` | structured output |

mod agent;
mod answer;
pub mod calls;
mod choices;
mod command;
mod elicit;
mod finish;
mod grants;
mod hooks;
pub mod host;
mod notices;
mod open;
mod permission;
mod question;
mod relay;
pub mod render;
mod schema;
mod served;
mod setting;
mod shown;
mod stream;
mod subagent;
mod turn;
mod usage;

pub use setting::Effort;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::mappings::AgentProfile;
use crate::translate::rules::{PermissionMode, Rules};
use crate::translate::{Action, Actions, Clock, Event, FarSpec, IdSource, Timer, Translator};
use crate::wire::acp_client::{McpServer, PromptBlock};
use crate::wire::stream_json_agent as say;

/// The version of Claude Code that diglot stands in for: what hosts compare (rule 20).
pub const CLAUDE_VERSION: &str = "2.1.332";

/// What a session starts from. The command line, the configuration and the state directory make it.
pub struct Settings {
    /// The agent.
    pub profile: Arc<AgentProfile>,
    /// The host's id of the session.
    pub session_id: String,
    /// Which of the agent's sessions it is.
    pub open: Open,
    /// Absolute.
    pub cwd: PathBuf,
    /// `--add-dir`; absolute.
    pub add_dirs: Vec<PathBuf>,
    /// What the command line says of the conversation.
    pub options: Options,
    /// How the relay is started, for MCP servers that live in the host; `None`: there is no relay on this system.
    pub relay: Option<RelayCommand>,
    /// diglot's own, which hosts are told.
    pub pid: u32,
    /// Where ids come from.
    pub ids: Box<dyn IdSource>,
    /// Where time comes from.
    pub clock: Box<dyn Clock>,
}

/// Which of the agent's sessions it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Open {
    /// A new one.
    New,
    /// One that there is.
    Resume {
        /// The agent's id of it.
        agent_session: String,
        /// Go on in a copy.
        fork: bool,
    },
}

/// How the MCP relay is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayCommand {
    /// diglot itself.
    pub program: String,
    /// Its arguments but the server's name, which follows.
    pub args: Vec<String>,
    /// Variables it needs.
    pub env: Vec<(String, String)>,
    /// Whether servers over https can be reached through it; those over http can.
    pub https: bool,
}

/// What the command line says of the conversation.
#[derive(Debug, Default)]
pub struct Options {
    /// `--include-partial-messages`.
    pub partial: bool,
    /// `--replay-user-messages`.
    pub replay: bool,
    /// `--permission-prompt-tool stdio`: the host answers `can_use_tool`.
    pub asks_host: bool,
    /// `--permission-prompt-tool mcp__S__T`: this tool of the server S answers.
    pub permission_tool: Option<String>,
    /// The mode at the start.
    pub mode: PermissionMode,
    /// Rules of flags and settings.
    pub rules: Rules,
    /// The host may choose `bypassPermissions`: it, or the flag that permits it, was on the command line.
    pub may_bypass: bool,
    /// `--model`.
    pub model: Option<String>,
    /// `--effort`, `--thinking`, `--max-thinking-tokens`.
    pub effort: Option<Effort>,
    /// `--append-system-prompt`.
    pub append_system_prompt: Option<String>,
    /// `--system-prompt`.
    pub system_prompt: Option<String>,
    /// `--mcp-config`.
    pub mcp_servers: Vec<McpServer>,
    /// Servers of `--mcp-config` that live in the host (Python).
    pub sdk_servers: Vec<String>,
    /// `--max-turns`.
    pub max_turns: Option<u64>,
    /// `--max-budget-usd`.
    pub max_budget_usd: Option<f64>,
    /// `--json-schema`.
    pub json_schema: Option<Value>,
    /// `CLAUDE_CODE_SDK_READS_SESSION_STATE`, `CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS`: what kind of state lines the host wants.
    pub states: States,
    /// The host waits to be asked `initialize` before anything is started (`--await-initialize`), or sends it in any case.
    pub await_initialize: bool,
    /// The host is no old one: it knows newer `system` lines (`CLAUDE_AGENT_SDK_VERSION`).
    pub modern: bool,
    /// `--forward-subagent-text`, `CLAUDE_CODE_FORWARD_SUBAGENT_TEXT`: the host is told what subagents say.
    pub forward_subagent_text: bool,
    /// The host answers `elicitation`.
    pub elicits: bool,
    /// `--no-session-persistence`.
    pub forget: bool,
    /// The agent may read and write files through diglot.
    pub files: bool,
    /// The agent may run commands through diglot.
    pub terminals: bool,
}

/// Whether `session_state_changed` is sent (rule 15).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum States {
    /// Not at all.
    #[default]
    None,
    /// Marked `sdk_host_only`.
    Marked,
    /// Unmarked.
    Plain,
}

/// One session of a host.
pub struct ClaudeOverAcp {
    set: Settings,
    /// The host's id of the session.
    session: Arc<str>,
    agent: agent::Agent,
    host: host::Host,
    queue: VecDeque<turn::Queued>,
    /// What the host said without asking: it stands before the next prompt.
    context_blocks: Vec<PromptBlock>,
    turn: Option<turn::Turn>,
    stream: stream::Stream,
    /// What subagents are saying.
    lanes: Vec<subagent::Lane>,
    questions: permission::Questions,
    asks: Vec<host::HostAsk>,
    hooks: hooks::Hooks,
    relays: relay::Relays,
    served: served::Served,
    mode: PermissionMode,
    rules: Rules,
    /// What the session cost so far, as the agent says.
    cost_usd: f64,
    spent: finish::Spent,
    /// The agent makes room in its context; the tokens that were in it.
    compacting: Option<u64>,
    /// The last `usage_update`: tokens in the context, tokens that fit.
    context: Option<(u64, u64)>,
    /// The last result was an error.
    failed: bool,
    /// Why the session cannot begin, until the host can hear it.
    doomed: Option<String>,
    /// SIGINT came: the turn that it ends is no failure (rule 17).
    signalled: bool,
    ended: bool,
}

impl ClaudeOverAcp {
    /// A session that has not begun.
    #[must_use]
    pub fn new(mut set: Settings) -> Self {
        let mode = set.options.mode;
        let rules = std::mem::take(&mut set.options.rules);
        Self {
            session: set.session_id.as_str().into(),
            agent: agent::Agent::default(),
            host: host::Host::new(&set.options),
            queue: VecDeque::new(),
            context_blocks: Vec::new(),
            turn: None,
            stream: stream::Stream::default(),
            lanes: Vec::new(),
            questions: permission::Questions::default(),
            asks: Vec::new(),
            hooks: hooks::Hooks::default(),
            relays: relay::Relays::default(),
            served: served::Served::default(),
            mode,
            rules,
            cost_usd: 0.0,
            spent: finish::Spent::default(),
            compacting: None,
            context: None,
            failed: false,
            doomed: None,
            signalled: false,
            ended: false,
            set,
        }
    }

    fn uuid(&mut self) -> String {
        self.set.ids.uuid().to_string()
    }

    /// A `system` line.
    fn system(&mut self, subtype: &str, members: Map<String, Value>, out: &mut Actions) {
        let uuid = self.uuid();
        out.near(say::system(subtype, members, &self.set.session_id, &uuid));
    }

    /// `session_state_changed`, if the host wants it (rule 15).
    fn state(&mut self, state: &str, out: &mut Actions) {
        if self.set.options.states == States::None {
            return;
        }
        let mut members = Map::new();
        members.insert("state".into(), state.into());
        if self.set.options.states == States::Marked {
            members.insert("sdk_host_only".into(), true.into());
        }
        self.system("session_state_changed", members, out);
    }

    fn start_far(&mut self, out: &mut Actions) {
        out.push(Action::StartFar(FarSpec {
            args: self.set.profile.args.clone(),
            file: None,
            cwd: self.set.cwd.clone(),
            roots: self.set.add_dirs.clone(),
        }));
        self.begin_agent(out);
    }

    /// Ends the process: the agent first, if it runs.
    fn exit(&mut self, out: &mut Actions) {
        if let Some(id) = self.host.initialize.take() {
            out.near(say::refuse_host(&id, "the process was interrupted before the session was open"));
        }
        if self.agent.is_running() {
            self.forget_agent_session(out);
            self.agent.leaving = true;
            out.push(Action::StopFar(crate::translate::Stop::Gently));
        } else {
            self.ended = true;
            out.push(Action::Exit(u8::from(self.failed)));
        }
    }
}

impl Translator for ClaudeOverAcp {
    fn handle(&mut self, event: Event<'_>, out: &mut Actions) {
        if self.ended {
            return;
        }
        match event {
            Event::Begin => self.start_far(out),
            Event::Near(line) => self.host_line(line, out),
            Event::NearClosed => self.host_closed(out),
            Event::Interrupted => self.interrupted_by_signal(out),
            Event::ToolCalled { effect, answer } => self.permission_tool_answered(effect, answer, out),
            Event::Client { effect, done } => self.client_did(effect, done, out),
            Event::CommandEnded { terminal, output } => self.command_ended(terminal, output, out),
            Event::Relay { conn, server, line } => self.relay_said(conn, server, line, out),
            Event::Far(line) => self.agent_line(line, out),
            Event::FarFailed(why) => self.agent_failed(why, out),
            Event::FarClosed(exit) => self.agent_closed(exit, out),
            Event::Timer(timer) => match timer {
                Timer::Start => self.start_timed_out(out),
                Timer::Cancel => self.cancel_timed_out(out),
                Timer::Settle => self.settled(out),
                Timer::Commands => self.answer_initialize(out),
                Timer::Barrier => self.barrier_over(out),
                Timer::Hook(number) => self.hook_timed_out(number, out),
                Timer::Control => match self.doomed.take() {
                    Some(why) => self.fail_to_start(&why, out),
                    None => self.settings_timed_out(out),
                },
            },
            // Nothing is read from files here.
            Event::FileRead { .. } => {}
        }
    }
}

/// Claude's mode as the agent's profile or the agent's own names have it.
fn word(mode: PermissionMode) -> &'static str {
    mode.as_str()
}
