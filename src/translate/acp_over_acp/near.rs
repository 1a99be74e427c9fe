//! What the editor says.
//!
//! Owns the reading of its lines. Keeps: every request is answered here, waits in a place that answers it, or is known under
//! the id that the agent got; ids of the editor's never reach the agent (quirk 63, all Node agents: numbers beyond 2^53 are
//! rounded).

use std::sync::Arc;

use serde_json::value::RawValue;

use super::{AcpOverAcp, Asked, HELD, Stage, open, strict};
use crate::translate::acp_agent::{null_id, object};
use crate::translate::{Action, Actions};
use crate::wire::acp::{Empty, methods};
use crate::wire::acp_client::methods as more;
use crate::wire::acp_editor::{Block, Capabilities, Fs, Meta, Params};
use crate::wire::jsonrpc::{self, Id, Message, RpcError, codes, json_kind};
use crate::wire::text::{Raw, boolean, items, text};

/// What the editor can do.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Editor {
    pub(super) reads: bool,
    pub(super) writes: bool,
    pub(super) terminals: bool,
    pub(super) elicits: bool,
    /// It shows terminals that are none of its own, from `_meta`.
    pub(super) shows_terminals: bool,
}

/// A request of the editor's that was passed on.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) near: Id,
    pub(super) session: Option<Arc<str>>,
    pub(super) change: Change,
}

/// What it changes when it succeeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Mode(String),
    /// A configuration option and its value.
    Option(String, String),
    Closed,
}

impl AcpOverAcp {
    pub(super) fn know_editor(&mut self, params: &str) {
        let raw = strict::raw(params.to_owned());
        let can = Capabilities::read(Params::read(Some(&raw)).client_capabilities);
        let fs = Fs::read(can.fs);
        let yes = |raw| boolean(raw) == Some(true);
        self.editor = Editor {
            reads: yes(fs.read),
            writes: yes(fs.write),
            terminals: yes(can.terminal),
            elicits: can.elicitation.is_some_and(|raw| raw.get().starts_with('{')),
            shows_terminals: yes(Meta::read(can.meta).terminal_output),
        };
        let all = strict::members(Some(&raw));
        let mut list = vec![("protocolVersion", "1")];
        for name in ["clientCapabilities", "clientInfo", "_meta"] {
            if let Some(value) = all.get(name) {
                list.push((name, value.get()));
            }
        }
        self.initialize = Some(strict::write(list).get().into());
    }

    pub(super) fn near_line(&mut self, line: &[u8], out: &mut Actions) {
        match Message::parse(line) {
            Ok(Message::Request { id, method, params }) => self.near_request(line, id, &method, params, out),
            Ok(Message::Notification { method, params }) => match &*method {
                methods::SESSION_CANCEL => {
                    if let Some(session) = self.session_of(params) {
                        self.cancel(&session, out);
                    }
                }
                methods::CANCEL_REQUEST => {
                    let read = Params::read(params);
                    let id = read.request_id.and_then(Id::from_raw).or_else(|| null_id(params));
                    self.withdraw(&id.unwrap_or(Id::Null), out);
                }
                // An agent knows what it asked for.
                _ if self.stage == Stage::Ready => out.far(line.to_vec()),
                other => out.note(format!("the notification {other} came while there is no agent")),
            },
            Ok(Message::Response { id, outcome }) => self.editor_answered(&id, line, outcome, out),
            Err(malformed) => out.note(malformed.to_string()),
        }
    }

    fn near_request(&mut self, line: &[u8], id: Id, method: &str, params: Raw<'_>, out: &mut Actions) {
        match method {
            methods::INITIALIZE => return self.asked_to_initialize(id, params, out),
            // Quirk 65 (Grok 0.1): as a request it would cancel nothing.
            methods::SESSION_CANCEL => {
                if let Some(session) = self.session_of(params) {
                    self.cancel(&session, out);
                }
                out.near(jsonrpc::response(&id, &Empty {}));
                return;
            }
            methods::SESSION_PROMPT => return self.prompted(id, params, out),
            _ => {}
        }
        let session = self.session_of(params);
        // A session whose process has died is closed without it.
        if method == more::SESSION_CLOSE
            && let Some(name) = session.as_ref().filter(|name| self.sessions[*name].state == open::State::Lost)
        {
            let name = name.clone();
            self.changed(Some(&name), Change::Closed, out);
            out.near(jsonrpc::response(&id, &Empty {}));
            return self.leave_if_empty(out);
        }
        if self.stage < Stage::Ready || self.spoilt {
            return self.hold(line, &id, out);
        }
        let opens = matches!(method, more::SESSION_LOAD | more::SESSION_RESUME);
        if let Some(name) = session.as_ref().filter(|_| !opens)
            && let Some(session) = self.sessions.get_mut(name)
        {
            // A session whose process has died is taken up again first; one that is just being opened, opened.
            if session.state.is_away() {
                session.held.push(line.to_vec());
                let name = name.clone();
                return self.take_up(&name, out);
            }
            if matches!(session.state, open::State::Opening | open::State::Loading) {
                session.held.push(line.to_vec());
                return;
            }
        }
        match method {
            methods::SESSION_NEW | more::SESSION_LOAD | more::SESSION_RESUME | more::SESSION_FORK => {
                self.open(id, method, params, out);
            }
            methods::AUTHENTICATE => {
                self.pass(id, method, params, None, Change::Nothing, out);
            }
            _ => {
                let change = match self.change(method, session.as_deref(), params) {
                    Ok(change) => change,
                    Err(error) => return out.near(jsonrpc::error(&id, &error)),
                };
                self.pass(id, method, params, session, change, out);
            }
        }
    }

    /// What a request changes.
    fn change(&self, method: &str, session: Option<&str>, params: Raw<'_>) -> Result<Change, RpcError> {
        let member = |name: &str, raw: Raw<'_>| match raw {
            None => Err(RpcError::invalid_params(format!("{method}: `{name}` is missing"))),
            Some(found) => text(raw).map(std::borrow::Cow::into_owned).ok_or_else(|| {
                RpcError::invalid_params(format!("{method}: `{name}` must be a string; found {}", json_kind(found)))
            }),
        };
        Ok(match method {
            methods::SESSION_SET_MODE => {
                let read: Params<'_> = object(method, params)?;
                Change::Mode(member("modeId", read.mode_id)?)
            }
            more::SESSION_SET_MODEL => {
                let read: Params<'_> = object(method, params)?;
                let model = member("modelId", read.model_id)?;
                self.check_model(session, &model)?;
                Change::Nothing
            }
            more::SESSION_SET_CONFIG_OPTION => {
                let read: Params<'_> = object(method, params)?;
                let option = member("configId", read.config_id)?;
                let value = text(read.value).unwrap_or_default().into_owned();
                self.check_option(session, &option, &value)?;
                Change::Option(option, value)
            }
            more::SESSION_CLOSE => Change::Closed,
            _ => Change::Nothing,
        })
    }

    /// Passes a request on, under an id of our own and with standard members only.
    pub(super) fn pass(
        &mut self,
        near: Id,
        method: &str,
        params: Raw<'_>,
        session: Option<Arc<str>>,
        change: Change,
        out: &mut Actions,
    ) {
        let params = strict::params(method, params);
        let passed = Passed { near, session, change };
        self.ask_agent(method, &params, Asked::Pass(passed), out);
    }

    /// Keeps a line until the agent has come up.
    fn hold(&mut self, line: &[u8], id: &Id, out: &mut Actions) {
        if self.held.len() >= HELD {
            let error = RpcError::new(codes::INTERNAL_ERROR, format!("{HELD} requests already wait for the agent"));
            return out.near(jsonrpc::error(id, &error));
        }
        self.held.push_back(line.to_vec());
        self.come_up(out);
    }

    /// The session that the parameters name, if it is one of ours.
    pub(super) fn session_of(&self, params: Raw<'_>) -> Option<Arc<str>> {
        let id = text(Params::read(params).session_id)?;
        self.sessions.get_key_value(&*id).map(|(id, _)| id.clone())
    }

    /// `session/prompt`: read here, sent when its turn has come.
    fn prompted(&mut self, id: Id, params: Raw<'_>, out: &mut Actions) {
        let Some(session) = self.session_of(params) else {
            let named = text(Params::read(params).session_id).unwrap_or_default();
            return out.near(super::front::unknown_session(&id, &named));
        };
        match read_prompt(Params::read(params).prompt) {
            Err(error) => out.near(jsonrpc::error(&id, &error)),
            // Quirk 48 (Gemini 0.61): an empty text blocks the session for ever, an empty list is an error.
            Ok(prompt) if prompt.is_empty => {
                let done = crate::wire::acp::PromptResult { stop_reason: "end_turn" };
                out.near(jsonrpc::response(&id, &done));
            }
            Ok(prompt) => {
                let mut all = strict::members(params);
                let blocks = strict::raw(prompt.blocks);
                all.insert("prompt".into(), &blocks);
                let whole = strict::write(all.iter().map(|(name, value)| (name.as_str(), value.get())));
                let params = strict::params(methods::SESSION_PROMPT, Some(&whole));
                self.queue_prompt(&session, id, params, prompt.is_command, out);
            }
        }
    }

    /// `$/cancel_request`: a prompt is cancelled, what waits is not sent, for the rest the agent is told.
    fn withdraw(&mut self, id: &Id, out: &mut Actions) {
        if self.withdraw_prompt(id, out) {
            return;
        }
        let is_it =
            |line: &[u8]| matches!(Message::parse(line), Ok(Message::Request { id: other, .. }) if other == *id);
        let withdrawn = || jsonrpc::error(id, &RpcError::new(codes::REQUEST_CANCELLED, "the request was withdrawn"));
        if let Some(at) = self.held.iter().position(|line| is_it(line)) {
            self.held.remove(at);
            return out.near(withdrawn());
        }
        for session in self.sessions.values_mut() {
            if let Some(at) = session.held.iter().position(|line| is_it(line)) {
                session.held.remove(at);
                return out.near(withdrawn());
            }
        }
        let far = self.asked.iter().find_map(|(far, asked)| match asked {
            Asked::Pass(passed) if passed.near == *id => Some(*far),
            Asked::Open(opening) | Asked::LoginToOpen(opening) if opening.near == *id => Some(*far),
            _ => None,
        });
        match far {
            Some(far) => {
                let request_id = Id::number(far);
                let params = crate::wire::acp::CancelRequest { request_id: &request_id };
                out.far(jsonrpc::notification(methods::CANCEL_REQUEST, &params));
            }
            None => out.note(format!("nothing to withdraw under {id}")),
        }
    }

    /// The editor is gone: what runs is cancelled, every question of the agent's is answered, and the process ends (quirk 60:
    /// some would finish the turn first, some would never leave).
    pub(super) fn near_closed(&mut self, out: &mut Actions) {
        self.near_gone = true;
        let running: Vec<Arc<str>> = self.sessions.keys().cloned().collect();
        for session in running {
            self.cancel(&session, out);
        }
        self.refuse_questions(None, out);
        self.held.clear();
        self.asked.retain(|_, asked| !matches!(asked, Asked::Pass(_)));
        self.waits_to_initialize = None;
        for timer in [crate::translate::Timer::Start, crate::translate::Timer::Cancel] {
            out.push(Action::ClearTimer(timer));
        }
        self.leave(out);
    }
}

/// A prompt that can be sent.
pub(super) struct Prompt {
    /// The blocks, as JSON; without empty texts.
    blocks: String,
    is_empty: bool,
    /// It begins with a slash.
    is_command: bool,
}

/// Reads `prompt`: an agent gets only what has the schema's form (each has its own idea of an error message).
fn read_prompt(prompt: Raw<'_>) -> Result<Prompt, RpcError> {
    const EXPECTED: &str = "prompt must be an array of content blocks";
    let Some(raw) = prompt else {
        return Err(RpcError::invalid_params(format!("{EXPECTED}; it is missing")));
    };
    let Some(list) = items(prompt) else {
        return Err(RpcError::invalid_params(format!("{EXPECTED}; found {}", json_kind(raw))));
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut is_command = false;
    for (at, raw) in list.iter().enumerate() {
        let wrong = |what: String| RpcError::invalid_params(format!("{EXPECTED}; prompt[{at}] {what}"));
        if let Some(text) = block(raw).map_err(wrong)? {
            if text.is_empty() {
                continue;
            }
            is_command |= kept.is_empty() && text.starts_with('/');
        }
        kept.push(raw.get());
    }
    Ok(Prompt { is_empty: kept.is_empty(), blocks: format!("[{}]", kept.join(",")), is_command })
}

/// What is wrong with a block; the text of one that is text.
fn block(raw: &RawValue) -> Result<Option<std::borrow::Cow<'_, str>>, String> {
    if !raw.get().starts_with('{') {
        return Err(format!("is {}; each block is an object with a `type`", json_kind(raw)));
    }
    let block = Block::read(Some(raw));
    let Some(kind) = text(block.kind) else {
        return Err("has no `type`; expected text, image, audio, resource_link or resource".into());
    };
    let need = |name: &str, raw: Raw<'_>| match raw {
        None => Err(format!("is {kind:?} without `{name}`")),
        Some(found) if !found.get().starts_with('"') => {
            Err(format!("is {kind:?} whose `{name}` is {}; it must be a string", json_kind(found)))
        }
        Some(_) => Ok(()),
    };
    match &*kind {
        "text" => {
            need("text", block.text)?;
            return Ok(text(block.text));
        }
        "image" | "audio" => {
            need("data", block.data)?;
            need("mimeType", block.mime_type)?;
        }
        "resource_link" => {
            need("uri", block.uri)?;
            need("name", block.name)?;
        }
        "resource" => {
            let Some(inner) = block.resource.filter(|raw| raw.get().starts_with('{')) else {
                return Err("is a resource without its `resource` object".into());
            };
            need("resource.uri", Block::read(Some(inner)).uri)?;
        }
        other => {
            return Err(format!(
                "has the unknown type {:?}; expected text, image, audio, resource_link or resource",
                crate::wire::text::cut(other, 60)
            ));
        }
    }
    Ok(None)
}

impl open::State {
    /// Its process has died.
    pub(super) fn is_away(&self) -> bool {
        matches!(self, Self::Lost | Self::Returning)
    }
}
