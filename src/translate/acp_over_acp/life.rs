//! The process: its start, `initialize`, its death.
//!
//! Owns quirks 49 (codex-acp 2.6: version 2 is another dialect; always 1 is asked for and expected), 50 (Grok 1.0, codex-acp:
//! `initialize` first, and its answer awaited), 58 (Gemini 0.61: what does not work is not announced) and 62 (kimi-cli: exits
//! with 0 before it answers). Keeps: whatever waits for a process that dies or does not come up is answered with the reason.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::near::Change;
use super::open::State;
use super::{AcpOverAcp, Asked, Stage, errors, strict};
use crate::translate::{Action, Actions, FarExit, FarSpec, StartFailure, Stop, Timer};
use crate::wire::acp::methods;
use crate::wire::jsonrpc::{self, Id, Message, RpcError, codes};
use crate::wire::text::{Raw, cut};

/// How long an agent may take to answer `initialize`, or to take a session up again: cold, OpenCode takes 7 s and Vibe 9 s.
pub(super) const START: Duration = Duration::from_secs(60);

/// How much of an agent's stderr an editor is told.
const STDERR: usize = 600;

impl AcpOverAcp {
    /// The editor's `initialize`.
    pub(super) fn asked_to_initialize(&mut self, id: Id, params: Raw<'_>, out: &mut Actions) {
        if let (Stage::Ready, Some(result)) = (self.stage, &self.initialized) {
            return out.near(jsonrpc::response(&id, &strict::raw(result.clone())));
        }
        if self.waits_to_initialize.is_some() {
            let error = RpcError::new(codes::INVALID_REQUEST, "`initialize` is being answered; send it once");
            return out.near(jsonrpc::error(&id, &error));
        }
        self.know_editor(params.map_or("{}", RawValue::get));
        self.waits_to_initialize = Some(id);
        self.come_up(out);
    }

    /// Starts the process if there is none.
    pub(super) fn come_up(&mut self, out: &mut Actions) {
        if self.stage != Stage::Gone || self.near_gone || self.leaving {
            return;
        }
        let Some(params) = self.initialize.clone() else { return };
        self.stage = Stage::Starting;
        self.tried_login = false;
        out.push(Action::StartFar(FarSpec {
            args: self.set.profile.args.clone(),
            file: None,
            cwd: self.set.cwd.clone(),
            roots: Vec::new(),
        }));
        out.push(Action::SetTimer(Timer::Start, START));
        self.ask_agent(methods::INITIALIZE, &strict::raw(params.to_string()), Asked::Initialize, out);
    }

    /// The agent answered `initialize`.
    pub(super) fn agent_initialized(&mut self, outcome: Result<&RawValue, &RawValue>, out: &mut Actions) {
        let title = self.set.profile.title.clone();
        let result = match outcome {
            Ok(result) => serde_json::from_str::<Map<String, Value>>(result.get()).unwrap_or_default(),
            Err(error) => {
                let error = errors::mend(&self.set.profile, error).error;
                return self.not_up(&error, out);
            }
        };
        match result.get("protocolVersion") {
            Some(version) if version.as_u64() == Some(1) => {}
            version => {
                let found = version.map_or_else(|| "no version".to_owned(), |v| format!("version {v}"));
                let error = RpcError::new(
                    codes::INTERNAL_ERROR,
                    format!(
                        "{title} answered with {found} of the protocol; diglot speaks version 1. Install another version of {title}"
                    ),
                );
                return self.not_up(&errors::raw(&error), out);
            }
        }
        let result = self.correct(result);
        let can = &result["agentCapabilities"];
        self.serves.load = can["loadSession"] == true;
        self.serves.resume = can["sessionCapabilities"]["resume"].is_object();
        self.logins = result["authMethods"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|method| method["id"].as_str().map(str::to_owned))
            .collect();
        self.initialized = Some(result.to_string());
        out.push(Action::ClearTimer(Timer::Start));
        if let Some(id) = self.waits_to_initialize.take() {
            out.near(jsonrpc::response(&id, &result));
        }
        match self.set.login.clone() {
            Some(login) => {
                self.stage = Stage::LoggingIn;
                let params = strict::params(methods::AUTHENTICATE, Some(&strict::raw(login.to_string())));
                self.ask_agent(methods::AUTHENTICATE, &params, Asked::Login, out);
            }
            None => self.is_up(out),
        }
    }

    /// What the editor is told of the agent: what it says of itself, without what is known not to work.
    fn correct(&self, mut result: Map<String, Value>) -> Value {
        let profile = &self.set.profile;
        let can = result.entry("agentCapabilities").or_insert_with(|| json!({}));
        if !can.is_object() {
            *can = json!({});
        }
        if !profile.acp.load && can.get("loadSession").is_some() {
            can["loadSession"] = json!(false);
        }
        if !profile.acp.mcp_sse && can.pointer("/mcpCapabilities/sse").is_some() {
            can["mcpCapabilities"]["sse"] = json!(false);
        }
        if !result.get("agentInfo").is_some_and(|info| info["name"].is_string() && info["version"].is_string()) {
            // Grok and CodeBuddy do not say who they are.
            let version = result.get("_meta").and_then(|meta| meta["agentVersion"].as_str()).unwrap_or("unknown");
            let info = json!({ "name": profile.name, "title": profile.title, "version": version });
            result.insert("agentInfo".into(), info);
        }
        if !result.get("authMethods").is_some_and(Value::is_array) {
            result.insert("authMethods".into(), json!([]));
        }
        Value::Object(result)
    }

    /// The process serves: what waited goes its way.
    pub(super) fn is_up(&mut self, out: &mut Actions) {
        self.stage = Stage::Ready;
        for line in std::mem::take(&mut self.held) {
            self.near_line(&line, out);
        }
        let waiting: Vec<Arc<str>> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.state == State::Lost && !session.is_settled())
            .map(|(id, _)| id.clone())
            .collect();
        for id in waiting {
            self.take_up(&id, out);
        }
        self.leave_if_empty(out);
    }

    /// The process will not serve; it is ended, and what waits for it is told why.
    fn not_up(&mut self, error: &RawValue, out: &mut Actions) {
        out.push(Action::ClearTimer(Timer::Start));
        self.fail_waiting(error, out);
        out.push(Action::StopFar(Stop::Kill));
    }

    /// What waits for the process to come up fails.
    fn fail_waiting(&mut self, error: &RawValue, out: &mut Actions) {
        if let Some(id) = self.waits_to_initialize.take() {
            out.near(errors::answer(&id, error));
        }
        for line in std::mem::take(&mut self.held) {
            if let Ok(Message::Request { id, .. }) = Message::parse(&line) {
                out.near(errors::answer(&id, error));
            }
        }
        let lost: Vec<Arc<str>> =
            self.sessions.iter().filter(|(_, session)| session.state.is_away()).map(|(id, _)| id.clone()).collect();
        for id in lost {
            self.not_taken_up(&id, error, out);
        }
    }

    pub(super) fn start_timed_out(&mut self, out: &mut Actions) {
        let error = RpcError::new(
            codes::INTERNAL_ERROR,
            format!(
                "{} did not answer within {} s; try it in a terminal, or look at its log",
                self.set.profile.title,
                START.as_secs()
            ),
        );
        if self.stage == Stage::Ready {
            // A session that is taken up again: a process that does not manage that is of no use.
            let error = errors::raw(&error);
            self.fail_waiting(&error, out);
            self.spoilt = true;
            self.end_spoilt(out);
        } else {
            self.not_up(&errors::raw(&error), out);
        }
    }

    pub(super) fn far_failed(&mut self, why: &StartFailure, out: &mut Actions) {
        let code = match why {
            StartFailure::BadDirectory(_) => codes::INVALID_PARAMS,
            StartFailure::NoProgram(_) | StartFailure::Other(_) => codes::INTERNAL_ERROR,
        };
        let error = RpcError::new(code, why.message());
        self.gone(&error, out);
    }

    pub(super) fn far_closed(&mut self, exit: &FarExit, out: &mut Actions) {
        let stderr = exit.stderr.trim();
        let tail = &stderr[stderr.len() - cut_end(stderr, STDERR).len()..];
        let said = if tail.is_empty() { String::new() } else { format!("; its last words: {tail}") };
        let title = &self.set.profile.title;
        let text = match self.stage {
            Stage::Starting => format!("{title} {} before it answered `initialize`{said}", exit.how()),
            _ => format!("{title} {} in the middle of its work{said}. The next prompt starts it again", exit.how()),
        };
        let error = RpcError::new(codes::INTERNAL_ERROR, text)
            .with_data(json!({ "exitCode": exit.code, "signal": exit.signal }));
        self.gone(&error, out);
    }

    /// There is no process any more.
    fn gone(&mut self, error: &RpcError, out: &mut Actions) {
        let was_up = self.stage == Stage::Ready;
        self.stage = Stage::Gone;
        (self.spoilt, self.barrier) = (false, false);
        for timer in [Timer::Start, Timer::Cancel, Timer::Barrier, Timer::Control] {
            out.push(Action::ClearTimer(timer));
        }
        self.forget_questions(out);
        let raw = errors::raw(error);
        let asked = std::mem::take(&mut self.asked);
        for (id, session) in &mut self.sessions {
            session.calls.end(id, out);
        }
        for asked in asked.into_values() {
            match asked {
                Asked::Initialize | Asked::Login => {}
                Asked::Open(opening) | Asked::LoginToOpen(opening) => self.opening_failed(opening, error, out),
                Asked::AskingMode(id) => self.not_begun(&id, error, out),
                // A session that cannot be closed any more is closed.
                Asked::Pass(passed) if passed.change == Change::Closed => {
                    self.changed(passed.session.as_ref(), Change::Closed, out);
                    out.near(jsonrpc::response(&passed.near, &json!({})));
                }
                Asked::Pass(passed) => out.near(jsonrpc::error(&passed.near, error)),
                // One that did not come in time has failed what waited then.
                Asked::Reopen(id) => {
                    if self.sessions.get(&id).is_some_and(|session| session.state == State::Returning) {
                        self.not_taken_up(&id, &raw, out);
                    }
                }
                Asked::Prompt(id) => self.turn_failed(&id, &raw, out),
            }
        }
        for session in self.sessions.values_mut() {
            session.state = State::Lost;
        }
        self.settle_all(out);
        if self.near_gone || self.leaving {
            // What has come since it was sent away finds nobody.
            if !self.near_gone {
                self.fail_waiting(&raw, out);
            }
            self.ended = true;
            out.push(Action::End);
            return;
        }
        if !was_up {
            self.fail_waiting(&raw, out);
        }
        if self.set.own && self.sessions.is_empty() {
            // What has come for it finds nobody.
            self.fail_waiting(&raw, out);
            return self.leave(out);
        }
        if !self.held.is_empty() || self.sessions.values().any(|session| !session.is_settled()) {
            self.come_up(out);
        }
    }

    /// A session that the editor was not told about yet.
    fn not_begun(&mut self, id: &Arc<str>, error: &RpcError, out: &mut Actions) {
        match self.sessions.get_mut(id).and_then(|session| session.after.take()) {
            Some(super::open::After::Answer { near, .. }) => {
                out.near(jsonrpc::error(&near, error));
                self.not_taken_up(id, &errors::raw(error), out);
                self.sessions.remove(id);
            }
            Some(super::open::After::GoOn) => {
                self.say_early(id, out);
                self.not_taken_up(id, &errors::raw(error), out);
            }
            None => {}
        }
    }
}

/// The end of a text, at most `limit` bytes.
fn cut_end(text: &str, limit: usize) -> &str {
    let mut from = text.len().saturating_sub(limit);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    // `cut` keeps the other end in bounds too.
    cut(&text[from..], limit)
}
