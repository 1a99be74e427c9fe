//! What the agent says: answers, updates, questions.
//!
//! Owns the connection to the agent: which requests wait for an answer, and what is known of the agent. Keeps: each request
//! of the agent's is answered once, at once if diglot does not serve it (quirks 11 and 12); updates of other sessions and
//! of a history that is read again are not shown (quirks 43 and 58).

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::finish::{Finish, describe};
use super::render::todos::todos;
use super::subagent::parent_of;
use super::{ClaudeOverAcp, host};
use crate::translate::rules::PermissionMode;
use crate::translate::{Action, Actions, ChunkKind, FarExit, StartFailure, Timer};
use crate::wire::acp::methods;
use crate::wire::acp_client::{Block, Cost, Named, Prompted, SessionParams, Update, methods as more};
use crate::wire::acp_piece::{Piece, Pieces};
use crate::wire::jsonrpc::{self, ErrorObject, Id, Message, RpcError};
use crate::wire::stream_json_agent as say;
use crate::wire::text::{Raw, float, items, read, text, uint};

/// Updates that may come before the agent has said which session they belong to (quirk 43).
const EARLY: usize = 256;

/// Bytes kept of what the agent says outside of a turn.
const STRAY: usize = 64 * 1024;

/// What a request of ours was.
#[derive(Debug)]
pub(super) enum Asked {
    Initialize,
    Authenticate,
    /// `session/new`, `load`, `resume` or `fork`.
    Open(OpenBy),
    Prompt,
    /// A mode or a model; the host's request that waits for it.
    Setting {
        host: Option<String>,
        done: Value,
        change: Change,
    },
    Nothing,
}

/// What a change is of, and what it is to.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// The agent's mode, and the host's before.
    Mode(String, PermissionMode),
    Model(String),
    /// How much it thinks.
    Effort(String),
}

/// How a session is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenBy {
    New,
    Load,
    Resume,
    Fork,
}

/// Where the connection stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// There is no process.
    #[default]
    Gone,
    Starting,
    Initialized,
    Opening,
    Setting,
    Ready,
}

/// What the agent serves.
#[derive(Debug, Default, Clone)]
pub(super) struct Serves {
    pub(super) load: bool,
    pub(super) resume: bool,
    pub(super) fork: bool,
    pub(super) close: bool,
    pub(super) directories: bool,
    pub(super) system_prompt: bool,
    pub(super) system_override: bool,
    pub(super) http: bool,
    pub(super) sse: bool,
    pub(super) image: bool,
    pub(super) embedded: bool,
}

/// A model, a mode: its id and what a person reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) description: String,
}

/// Values of one kind and which is in force.
#[derive(Debug, Default, Clone)]
pub(super) struct Choices {
    pub(super) all: Vec<Choice>,
    pub(super) current: Option<String>,
    /// The configuration option that sets it; else it has a method of its own.
    pub(super) option: Option<String>,
}

/// The agent as it is known.
#[derive(Debug, Default)]
pub(super) struct Agent {
    pub(super) stage: Stage,
    next_id: u64,
    waiting: Vec<(u64, Asked)>,
    pieces: Pieces,
    pub(super) serves: Serves,
    /// The agent's id of the session.
    pub(super) session_id: Option<String>,
    pub(super) models: Choices,
    pub(super) modes: Choices,
    /// How much it thinks.
    pub(super) efforts: Choices,
    /// A mode that it went into by itself, and in which it asks for less than the host's.
    pub(super) own_mode: Option<PermissionMode>,
    /// The host's mode before the agent began to plan.
    pub(super) mode_before_plan: Option<PermissionMode>,
    pub(super) commands: Vec<Value>,
    /// Updates that came before the session's id.
    early: Vec<Vec<u8>>,
    /// Its history is read again.
    pub(super) replaying: bool,
    /// What stands before the first prompt, for want of a better place.
    pub(super) preamble: Option<String>,
    /// A prompt would be swallowed.
    pub(super) barrier: bool,
    /// Its stdin is closed; its end is awaited.
    pub(super) leaving: bool,
    /// Turns that have ended.
    pub(super) turns: u64,
    pub(super) tried_login: bool,
    pub(super) tried_without_servers: bool,
    /// MCP servers that the agent refused.
    pub(super) refused_servers: bool,
    /// MCP servers that it cannot reach, by their names.
    pub(super) left_out: Vec<String>,
    /// Once it was ready.
    pub(super) was_ready: bool,
    /// What it said outside of a turn.
    stray: String,
}

impl Agent {
    pub(super) fn is_running(&self) -> bool {
        self.stage > Stage::Gone
    }

    pub(super) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready && !self.leaving
    }

    /// The model as the agent calls it.
    pub(super) fn model(&self) -> String {
        self.models.current.clone().unwrap_or_else(|| "default".to_owned())
    }

    /// Whether a turn without a word is suspicious: it is not for an agent's own commands.
    pub(super) fn turns_are_silent(&self) -> bool {
        true
    }

    /// Another process of the same agent: what is known of it stays. Gives the host's requests that nobody answers now.
    pub(super) fn restart(&mut self) -> Vec<String> {
        let of_host = |(_, asked)| match asked {
            Asked::Setting { host, .. } => host,
            _ => None,
        };
        let unanswered = std::mem::take(&mut self.waiting).into_iter().filter_map(of_host).collect();
        self.stage = Stage::Gone;
        self.leaving = false;
        self.barrier = false;
        self.early.clear();
        self.tried_login = false;
        // It comes up in a mode of its own (quirks 53 and 58).
        self.modes.current = None;
        unanswered
    }

    /// The changes that were not answered: the host's request that waits, and what was to change.
    pub(super) fn forget_settings(&mut self) -> Vec<(Option<String>, Change)> {
        let (gone, kept) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|(_, asked)| matches!(asked, Asked::Setting { .. }));
        self.waiting = kept;
        let setting = |(_, asked)| match asked {
            Asked::Setting { host, change, .. } => Some((host, change)),
            _ => None,
        };
        gone.into_iter().filter_map(setting).collect()
    }

    /// It was asked to go into this mode.
    pub(super) fn waits_for_mode(&self, id: &str) -> bool {
        let is = |asked: &Asked| matches!(asked, Asked::Setting { change: Change::Mode(mode, _), .. } if mode == id);
        self.waiting.iter().any(|(_, asked)| is(asked))
    }

    pub(super) fn settings_wait(&self) -> bool {
        self.waiting.iter().any(|(_, asked)| matches!(asked, Asked::Setting { .. }))
    }
}

impl ClaudeOverAcp {
    /// A request to the agent.
    pub(super) fn ask_agent<P: Serialize + ?Sized>(
        &mut self,
        method: &str,
        params: &P,
        asked: Asked,
        out: &mut Actions,
    ) {
        self.agent.next_id += 1;
        let id = self.agent.next_id;
        self.agent.waiting.push((id, asked));
        out.far(jsonrpc::request(&Id::number(id), method, params));
    }

    /// A line of the agent's.
    pub(super) fn agent_line(&mut self, line: &[u8], out: &mut Actions) {
        let mut pieces = std::mem::take(&mut self.agent.pieces);
        let is_piece = pieces.read(line).map(|piece| self.piece(line, &piece, out)).is_some();
        self.agent.pieces = pieces;
        if is_piece {
            return;
        }
        match Message::parse(line) {
            Ok(Message::Notification { method, params }) => match &*method {
                methods::SESSION_UPDATE => self.updated(line, params, out),
                methods::CANCEL_REQUEST => {
                    let params = SessionParams::read(params);
                    if let Some(id) = params.request_id.and_then(Id::from_raw) {
                        self.question_withdrawn(&id, out);
                    }
                }
                more::ELICITATION_COMPLETE => self.elicitation_complete(params, out),
                // Extensions (quirks 11, 12).
                other => out.note(format!("the agent's notification {other} is not shown")),
            },
            Ok(Message::Request { id, method, params }) => match &*method {
                methods::REQUEST_PERMISSION => self.permission_asked(id, params, out),
                more::ELICITATION_CREATE => self.elicitation_asked(id, params, out),
                other if self.own_question(id.clone(), other, params, out) => {}
                other if self.client_asked(&id, other, params, out) => {}
                other => {
                    out.note(format!("the agent's request {other} is not served"));
                    let error = RpcError::new(-32601, format!("method not found: {other}"));
                    out.far(jsonrpc::error(&id, &error));
                }
            },
            Ok(Message::Response { id, .. }) if !is_answer(line) => {
                // A log line with an `id`, say (report 34): the answer is still to come.
                out.note(format!(
                    "a line of the agent's with the id {id} is no answer: it has neither `result` nor `error`"
                ));
            }
            Ok(Message::Response { id, outcome }) => {
                let at = id.as_number().and_then(|n| self.agent.waiting.iter().position(|(own, _)| *own == n));
                match at {
                    Some(at) => {
                        let (_, asked) = self.agent.waiting.remove(at);
                        self.agent_answered(asked, outcome, out);
                    }
                    None => out.note(format!("an answer of the agent's to no request ({id})")),
                }
            }
            Err(malformed) => out.note(format!("a line of the agent's is no message: {malformed}")),
        }
    }

    /// A piece of the usual shape: most lines.
    fn piece(&mut self, line: &[u8], piece: &Piece<'_>, out: &mut Actions) {
        if self.is_of_session(line, Some(&*piece.session_id.0), out) {
            let kind = if piece.is_thought { ChunkKind::Thought } else { ChunkKind::Message };
            self.said(kind, piece.message_id.as_ref().map(|id| &*id.0), None, &piece.text.0, out);
        }
    }

    fn agent_answered(&mut self, asked: Asked, outcome: Result<&RawValue, ErrorObject>, out: &mut Actions) {
        match asked {
            Asked::Initialize | Asked::Authenticate | Asked::Open(_) if self.agent.leaving => {
                out.note("the agent answers after it was given up");
            }
            Asked::Initialize => self.initialized(outcome, out),
            Asked::Authenticate => self.authenticated(outcome, out),
            Asked::Open(by) => self.opened(by, outcome, out),
            Asked::Setting { host, done, change } => self.setting_answered(host, done, change, outcome.err(), out),
            Asked::Nothing => {}
            Asked::Prompt => {
                let finish = match outcome {
                    Ok(result) => {
                        let result = Prompted::read(Some(result));
                        self.count(&result);
                        Finish::Stop(text(result.stop_reason).unwrap_or_default().into_owned())
                    }
                    Err(error) => Finish::Error(error),
                };
                self.prompted(finish, out);
            }
        }
    }

    /// Whether an update is the session's; one that comes before the session is known is kept.
    fn is_of_session(&mut self, line: &[u8], id: Option<&str>, out: &mut Actions) -> bool {
        match (&self.agent.session_id, id) {
            (None, _) => {
                if self.agent.early.len() < EARLY {
                    self.agent.early.push(line.to_vec());
                }
                false
            }
            (Some(own), Some(id)) if own != id => {
                out.note("an update of another session of the agent's");
                false
            }
            _ => true,
        }
    }

    /// `session/update`.
    fn updated(&mut self, line: &[u8], params: Raw<'_>, out: &mut Actions) {
        let params = SessionParams::read(params);
        let update = Update::read(params.update);
        let kind = text(update.kind).unwrap_or_default();
        if !self.is_of_session(line, text(params.session_id).as_deref(), out) {
            return;
        }
        match &*kind {
            "agent_message_chunk" | "agent_thought_chunk" => {
                let kind = if &*kind == "agent_message_chunk" { ChunkKind::Message } else { ChunkKind::Thought };
                self.chunk(kind, &update, out);
            }
            "tool_call" | "tool_call_update" if !self.agent.replaying => {
                if let (Some(raw), Some(id)) = (params.update, text(update.tool_call_id)) {
                    self.call_changed(raw, &id, false, out);
                }
            }
            "plan" if !self.agent.replaying => {
                let entries: Option<Value> = read(update.entries);
                if let Some(todos) = entries.as_ref().and_then(todos) {
                    self.plan(todos, out);
                }
            }
            "available_commands_update" => {
                let commands = commands(update.available_commands);
                let changed = commands != self.agent.commands;
                self.agent.commands = commands;
                if self.host.initialize.is_some() && self.agent.stage == Stage::Ready {
                    self.answer_initialize(out);
                } else if changed && self.set.options.modern && self.host.initialized {
                    let mut members = serde_json::Map::new();
                    members.insert("commands".into(), Value::Array(self.agent.commands.clone()));
                    self.system("commands_changed", members, out);
                }
            }
            "current_mode_update" if !self.agent.replaying => {
                if let Some(id) = text(update.current_mode_id) {
                    self.agent_mode_is(&id, out);
                }
            }
            "config_option_update" => {
                let before = self.agent.modes.current.clone();
                self.read_options(update.config_options);
                let now = std::mem::replace(&mut self.agent.modes.current, before);
                if let Some(id) = now {
                    self.agent_mode_is(&id, out);
                }
            }
            "usage_update" => {
                if let (Some(used), Some(size)) = (uint(update.used), uint(update.size)) {
                    self.context = Some((used, size));
                }
                let cost = Cost::read(update.cost);
                if let Some(amount) = float(cost.amount).filter(|_| text(cost.currency).is_none_or(|c| c == "USD")) {
                    self.cost_usd = amount;
                    self.limit_budget(out);
                }
            }
            "compaction_update" if !self.agent.replaying => self.compaction(&update, out),
            "notice" if !self.agent.replaying => self.notice(&update, out),
            "session_info_update" => {
                if let Some(title) = text(update.title).filter(|_| self.set.options.modern) {
                    let mut members = serde_json::Map::new();
                    members.insert("title".into(), title.into_owned().into());
                    self.system("session_title_changed", members, out);
                }
            }
            // The host's own words (quirk 32), history, and what a host has no word for.
            _ => {}
        }
    }

    fn chunk(&mut self, kind: ChunkKind, update: &Update<'_>, out: &mut Actions) {
        if self.agent.replaying {
            return;
        }
        let block = Block::read(update.content);
        let message_id = text(update.message_id);
        if update.meta.is_some() {
            self.harvest(update.meta);
        }
        let said = match text(block.kind).as_deref() {
            Some("text") | None => text(block.text).unwrap_or_default(),
            Some("resource_link") => {
                let (name, uri) = (text(block.name).unwrap_or_default(), text(block.uri).unwrap_or_default());
                format!("[{name}]({uri})").into()
            }
            Some("resource") => {
                Block::read(block.resource).text.and_then(|t| text(Some(t))).unwrap_or("[resource]".into())
            }
            Some(other) => format!("[{other}]").into(),
        };
        self.said(kind, message_id.as_deref(), update.meta, &said, out);
    }

    /// A piece of text.
    fn said(&mut self, kind: ChunkKind, message_id: Option<&str>, meta: Raw<'_>, said: &str, out: &mut Actions) {
        if self.agent.replaying {
            return;
        }
        if self.turn.is_none() {
            // Before or between turns: start-up notices, late answers (quirks 30 and 42). No turn's answer, and not lost.
            if kind == ChunkKind::Message && self.agent.stray.len() < STRAY {
                self.agent.stray.push_str(said);
            }
            return;
        }
        if self.turn.as_ref().is_some_and(|t| t.stopping.is_some()) {
            return;
        }
        // Of a call that nobody knows, it is the agent's own.
        let known = |parent: &String| self.turn.as_ref().is_some_and(|t| t.calls.iter().any(|c| c.call.id == *parent));
        if let Some(parent) = parent_of(meta).filter(known) {
            return self.subagent_said(&parent, kind, said, out);
        }
        if self.over_the_limit(out) {
            return;
        }
        self.say(kind, message_id, said, out);
    }

    /// What the agent said outside of a turn is told before the next one: it is part of no answer.
    pub(super) fn stray_text(&mut self, out: &mut Actions) {
        let said = std::mem::take(&mut self.agent.stray);
        if !said.trim().is_empty() {
            let members = super::open::members([("content", said.into()), ("level", "info".into())]);
            self.system("informational", members, out);
        }
    }

    /// What came before the session's id was known.
    pub(super) fn early_updates(&mut self, out: &mut Actions) {
        for line in std::mem::take(&mut self.agent.early) {
            self.agent_line(&line, out);
        }
    }

    /// The process could not be started.
    pub(super) fn agent_failed(&mut self, why: &StartFailure, out: &mut Actions) {
        self.agent_is_gone(out);
        self.cannot_start(why.message(), out);
    }

    /// The process ended.
    pub(super) fn agent_closed(&mut self, exit: &FarExit, out: &mut Actions) {
        let (stage, leaving) = (self.agent.stage, self.agent.leaving);
        self.agent_is_gone(out);
        if leaving {
            // It came after the start had failed, or the end had begun.
            if let Some(id) = self.host.initialize.take() {
                out.near(say::refuse_host(&id, "the session is over"));
            }
            self.ended = true;
            out.push(Action::Exit(u8::from(self.failed)));
            return;
        }
        let mut how = format!("{} {}", self.set.profile.title, exit.how());
        let tail = exit.stderr.trim();
        if !tail.is_empty() {
            how.push_str(": ");
            how.push_str(crate::wire::text::cut(tail, 2000));
        }
        self.relays_closed(out);
        self.questions_void(out);
        if stage < Stage::Ready && self.turn.is_none() {
            self.cannot_start(&format!("{how}, before it could be used"), out);
            return;
        }
        let comes_back = self.agent.serves.resume || (self.agent.serves.load && self.set.profile.acp.load);
        let kept = self.agent.session_id.clone().filter(|_| comes_back);
        if kept.is_none() && self.agent.was_ready && !self.host.closed {
            let title = &self.set.profile.title;
            out.push(Action::Warn(format!("{title} cannot resume a session: what comes next begins anew")));
        }
        if let Some(turn) = &mut self.turn {
            turn.prompting = false;
            let finish = if turn.interrupted { Finish::Stop("cancelled".into()) } else { Finish::Died(how) };
            // What it had ended before is ended.
            if turn.finish.is_none() {
                turn.finish = Some(turn.stopping.take().unwrap_or(finish));
            }
            self.close_calls("the agent's process ended", out);
            self.end_message("end_turn", out);
            // The next prompt starts another process.
            self.reopen(kept);
            self.end_turn(out);
        } else {
            self.reopen(kept);
        }
        if !self.ended && !self.agent.is_running() {
            if self.host.closed && self.queue.is_empty() {
                self.exit(out);
            } else if !self.queue.is_empty() {
                self.start_far(out);
            }
        }
    }

    /// Nothing more comes of the process: who waited for it is told.
    fn agent_is_gone(&mut self, out: &mut Actions) {
        for id in self.agent.restart() {
            let said = format!("{} ended before it answered", self.set.profile.title);
            out.near(say::refuse_host(&id, &said));
        }
        out.push(Action::ClearTimer(Timer::Start));
        out.push(Action::ClearTimer(Timer::Cancel));
    }

    /// What to tell a person who has to log in; `None` when it is another error (quirks 38 and 59).
    pub(super) fn needs_login(&self, error: &ErrorObject) -> Option<String> {
        let said = error.message.to_lowercase();
        let auth = error.code == -32000
            || error.code == 401
            || ["authentication required", "unauthorized", "invalid api key", "not logged in"]
                .iter()
                .any(|w| said.contains(w));
        auth.then(|| {
            let title = &self.set.profile.title;
            match &self.set.profile.acp.login {
                Some(how) => format!("log in to {title} first: {how}"),
                None => format!("log in to {title} with its own command first"),
            }
        })
    }

    pub(super) fn agent_error(&self, what: &str, error: &ErrorObject) -> String {
        let login = self.needs_login(error).map(|how| format!("; {how}")).unwrap_or_default();
        format!("{} refused {what}: {}{login}", self.set.profile.title, describe(error))
    }

    /// Ends the session in order on the agent's side.
    pub(super) fn forget_agent_session(&mut self, out: &mut Actions) {
        if self.set.options.forget
            && self.agent.serves.close
            && let Some(session_id) = self.agent.session_id.clone()
        {
            let params = crate::wire::acp_client::OfSession { session_id: &session_id };
            self.ask_agent(more::SESSION_CLOSE, &params, Asked::Nothing, out);
        }
    }
}

/// Whether a line without a method is an answer, and no other JSON with an `id` in it.
fn is_answer(line: &[u8]) -> bool {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(line).unwrap_or_default();
    let whole = members.get("jsonrpc").is_some_and(|v| v.get() == "\"2.0\"");
    whole && (members.contains_key("result") || members.contains_key("error"))
}

/// ACP's commands as Claude's.
fn commands(raw: Raw<'_>) -> Vec<Value> {
    let commands = items(raw).unwrap_or_default();
    let known = commands.into_iter().filter_map(|raw| {
        let command = Named::read(Some(raw));
        let name = text(command.name)?;
        let hint = host::hint(command.input);
        Some(json!({"name": name, "description": text(command.description).unwrap_or_default(), "argumentHint": hint}))
    });
    known.collect()
}
