//! Sessions: new, load, resume, fork, close.
//!
//! Owns what is known of a session beside its turns and calls. Keeps: the editor hears of a session first by the answer that
//! names it, and only then by its updates (quirk 43: CodeBuddy 2.163, codex-acp 2.6, OpenCode 1.18, Vibe 3.0 speak before); a
//! refused session is tried once more after a login that needs no person (quirk 59), and never opens a browser. A server or a
//! failed call that an agent reports before the first prompt is no failure of the session (quirk 52, codex-acp).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::json;
use serde_json::value::RawValue;

use super::calls::Calls;
use super::modes::Modes;
use super::near::Change;
use super::turn::{Queued, Turn};
use super::{AcpOverAcp, Asked, errors, strict};
use crate::translate::{Action, Actions, Timer};
use crate::wire::acp::methods;
use crate::wire::acp_client::{Opened, methods as more};
use crate::wire::jsonrpc::{self, Id, RpcError, codes};
use crate::wire::text::{Raw, text};

/// Updates of sessions that the editor does not know yet: so many, and so many bytes.
const EARLY: usize = 4096;
const EARLY_BYTES: usize = 4 * 1024 * 1024;

/// A request that opens a session.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) near: Id,
    method: Box<str>,
    params: Box<RawValue>,
    /// The session that is loaded, resumed or forked.
    session: Option<Arc<str>>,
}

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The agent has opened it and the editor does not know yet.
    Opening,
    /// Its history is read for the editor.
    Loading,
    Live,
    /// Its process has died.
    Lost,
    /// It is taken up again.
    Returning,
}

/// What follows when the session's mode is set.
#[derive(Debug)]
pub(super) enum After {
    /// The editor is told that the session is open.
    Answer { near: Id, result: Box<RawValue> },
    /// The session goes on.
    GoOn,
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) state: State,
    /// Where it stood before it was loaded once more.
    before: Option<State>,
    /// The parameters with which it was opened.
    params: Box<RawValue>,
    pub(super) after: Option<After>,
    pub(super) modes: Modes,
    pub(super) turn: Option<Turn>,
    pub(super) queue: VecDeque<Queued>,
    pub(super) calls: Calls,
    /// Terminals that the editor made for the agent and still keeps.
    pub(super) terminals: BTreeSet<String>,
    /// Terminals that it made, also those that are released: it goes on showing them.
    pub(super) made: VecDeque<String>,
    /// The commands as they were said last.
    pub(super) commands: String,
    /// Requests that wait until it is taken up again.
    pub(super) held: Vec<Vec<u8>>,
    early: Vec<Vec<u8>>,
}

impl Session {
    fn new(state: State, params: Box<RawValue>) -> Self {
        Self {
            state,
            before: None,
            params,
            after: None,
            modes: Modes::default(),
            turn: None,
            queue: VecDeque::new(),
            calls: Calls::default(),
            terminals: BTreeSet::new(),
            made: VecDeque::new(),
            commands: String::new(),
            held: Vec::new(),
            early: Vec::new(),
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.turn.is_none() && self.queue.is_empty() && self.held.is_empty() && self.after.is_none()
    }

    /// Its directory, as JSON.
    pub(super) fn cwd(&self) -> Option<String> {
        strict::members(Some(&self.params)).get("cwd").map(|raw| raw.get().to_owned())
    }

    /// Keeps an update until the editor knows the session.
    pub(super) fn keep_early(&mut self, line: &[u8]) -> bool {
        let fits = self.early.len() < EARLY;
        if fits {
            self.early.push(line.to_vec());
        }
        fits
    }
}

/// Updates of sessions that have no answer yet.
#[derive(Debug, Default)]
pub(super) struct Early {
    lines: Vec<(String, Vec<u8>)>,
    bytes: usize,
}

impl Early {
    /// Keeps one, if there is room.
    pub(super) fn keep(&mut self, session: &str, line: &[u8]) -> bool {
        let fits = self.lines.len() < EARLY && self.bytes + line.len() <= EARLY_BYTES;
        if fits {
            self.bytes += line.len();
            self.lines.push((session.to_owned(), line.to_vec()));
        }
        fits
    }

    fn take(&mut self, session: &str) -> Vec<Vec<u8>> {
        let (of_it, others) = std::mem::take(&mut self.lines).into_iter().partition(|(id, _)| id == session);
        self.lines = others;
        self.bytes = self.lines.iter().map(|(_, line)| line.len()).sum();
        let of_it: Vec<(String, Vec<u8>)> = of_it;
        of_it.into_iter().map(|(_, line)| line).collect()
    }
}

impl AcpOverAcp {
    /// Whether a session without a name may be on its way.
    pub(super) fn is_opening(&self) -> bool {
        self.asked.values().any(|asked| matches!(asked, Asked::Open(_) | Asked::LoginToOpen(_)))
    }

    pub(super) fn open(&mut self, near: Id, method: &str, params: Raw<'_>, out: &mut Actions) {
        // Quirk 58 (Gemini 0.61): announced, and refused for its own sessions.
        if method == more::SESSION_LOAD && !self.serves.load {
            let error = RpcError::new(
                codes::METHOD_NOT_FOUND,
                format!("{} cannot load sessions (agentCapabilities.loadSession is false)", self.set.profile.title),
            );
            return out.near(jsonrpc::error(&near, &error));
        }
        let params = strict::params(method, params);
        let named = text(crate::wire::acp_client::SessionParams::read(Some(&params)).session_id).map(Arc::<str>::from);
        if matches!(method, more::SESSION_LOAD | more::SESSION_RESUME)
            && let Some(id) = &named
        {
            let is_it = |asked: &Asked| matches!(asked, Asked::Pass(passed) if passed.change == Change::Closed && passed.session.as_ref() == Some(id));
            let closes = self.asked.values().any(is_it);
            if let Some(session) = self.sessions.get_mut(id) {
                let opens = matches!(session.state, State::Opening | State::Loading | State::Returning);
                if opens || closes || !session.is_settled() {
                    let error = RpcError::new(
                        codes::INVALID_REQUEST,
                        format!("{method}: the session {id} is open and busy; wait for its answer, or cancel"),
                    );
                    return out.near(jsonrpc::error(&near, &error));
                }
                session.calls.end(id, out);
                session.calls = Calls::default();
                session.before = Some(session.state);
                session.state = State::Loading;
            } else {
                self.sessions.insert(id.clone(), Session::new(State::Loading, params.clone()));
            }
        }
        let opening = Opening { near, method: method.into(), params, session: named };
        self.send_opening(opening, out);
    }

    fn send_opening(&mut self, opening: Opening, out: &mut Actions) {
        let (method, params) = (opening.method.clone(), opening.params.clone());
        self.ask_agent(&method, &params, Asked::Open(opening), out);
    }

    /// The agent answered what opens a session.
    pub(super) fn opened(&mut self, opening: Opening, outcome: Result<&RawValue, &RawValue>, out: &mut Actions) {
        let result = match outcome {
            Ok(result) => result,
            Err(error) => {
                let mended = errors::mend(&self.set.profile, error);
                if mended.is_login && self.login_without_a_person() {
                    return self.login_to_open(opening, out);
                }
                return self.not_opened(opening, &mended.error, out);
            }
        };
        let opened = Opened::read(Some(result));
        let keeps_name = matches!(&*opening.method, more::SESSION_LOAD | more::SESSION_RESUME);
        let id = match (&opening.session, keeps_name) {
            (Some(id), true) => Some(id.clone()),
            _ => text(opened.session_id).filter(|id| !id.is_empty()).map(Arc::from),
        };
        let Some(id) = id else {
            let error = RpcError::new(
                codes::INTERNAL_ERROR,
                format!("{} opened a session and gave it no id", self.set.profile.title),
            );
            return self.not_opened(opening, &errors::raw(&error), out);
        };
        // What came before a session was loaded is none of its history.
        let early = if keeps_name { Vec::new() } else { self.early.take(&id) };
        if !self.is_opening() {
            self.early = Early::default();
        }
        let is_there = self.sessions.get(&id).is_some_and(|session| session.state != State::Loading);
        if is_there && !keeps_name {
            // The agent goes on with a session that is open here.
            return out.near(jsonrpc::response(&opening.near, result));
        }
        let session =
            self.sessions.entry(id.clone()).or_insert_with(|| Session::new(State::Opening, opening.params.clone()));
        (session.state, session.before, session.params) = (State::Opening, None, opening.params);
        session.modes = Modes::read(&opened);
        session.early = early;
        session.after = Some(After::Answer { near: opening.near, result: result.to_owned() });
        out.push(Action::Remember { agent_session: id.to_string() });
        self.ask_for_mode(&id, out);
    }

    fn not_opened(&mut self, opening: Opening, error: &RawValue, out: &mut Actions) {
        self.not_loaded(&opening, out);
        if !self.is_opening() {
            self.early = Early::default();
        }
        out.near(errors::answer(&opening.near, error));
        if let Some(id) = &opening.session {
            self.next_prompt(id, out);
        }
        self.leave_if_empty(out);
    }

    /// A session that was open before goes on as it was; another one is not there.
    fn not_loaded(&mut self, opening: &Opening, out: &mut Actions) {
        let Some(id) = &opening.session else { return };
        let Some(session) = self.sessions.get_mut(id).filter(|session| session.state == State::Loading) else { return };
        let held = std::mem::take(&mut session.held);
        match session.before.take() {
            Some(before) => session.state = before,
            None => {
                let queued = self.sessions.remove(id).map(|session| session.queue).unwrap_or_default();
                for queued in queued {
                    out.near(super::front::unknown_session(&queued.near, id));
                }
            }
        }
        for line in held {
            self.near_line(&line, out);
        }
    }

    /// The opening of a session whose process died meanwhile.
    pub(super) fn opening_failed(&mut self, opening: Opening, error: &RpcError, out: &mut Actions) {
        self.not_loaded(&opening, out);
        out.near(jsonrpc::error(&opening.near, error));
    }

    /// The mode is as it should be: the session begins, or goes on.
    pub(super) fn begin(&mut self, id: &Arc<str>, out: &mut Actions) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(after) = session.after.take() else { return };
        session.state = State::Live;
        let early = std::mem::take(&mut session.early);
        let held = std::mem::take(&mut session.held);
        if let After::Answer { near, result } = after {
            // Calls of a history that was read are over.
            session.calls.end(id, out);
            let result = session.modes.correct(&result);
            out.near(jsonrpc::response(&near, &result));
        }
        for line in early {
            self.far_line(&line, out);
        }
        for line in held {
            self.near_line(&line, out);
        }
        self.next_prompt(id, out);
    }

    /// What came between the opening and the mode is told all the same, though the process has ended; what it asked is not.
    pub(super) fn say_early(&mut self, id: &Arc<str>, out: &mut Actions) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.state = State::Live;
        for line in std::mem::take(&mut session.early) {
            if let Ok(jsonrpc::Message::Notification { .. }) = jsonrpc::Message::parse(&line) {
                self.far_line(&line, out);
            }
        }
        if let Some(session) = self.sessions.get_mut(id) {
            session.calls.end(id, out);
        }
    }

    fn login_without_a_person(&self) -> bool {
        let own = self.set.profile.acp.authenticate.as_deref();
        !self.tried_login && own.is_some_and(|own| self.logins.iter().any(|id| id == own))
    }

    fn login_to_open(&mut self, opening: Opening, out: &mut Actions) {
        self.tried_login = true;
        let method = self.set.profile.acp.authenticate.clone().unwrap_or_default();
        let params = json!({ "methodId": method });
        self.ask_agent(methods::AUTHENTICATE, &params, Asked::LoginToOpen(opening), out);
    }

    /// Whatever came of the login, the session is tried again: its own error says most.
    pub(super) fn logged_in_to_open(&mut self, opening: Opening, out: &mut Actions) {
        self.send_opening(opening, out);
    }

    /// A session whose process died is taken up again as soon as there is one.
    pub(super) fn take_up(&mut self, id: &Arc<str>, out: &mut Actions) {
        if self.stage < super::Stage::Ready || self.spoilt {
            return self.come_up(out);
        }
        let Some(session) = self.sessions.get_mut(id).filter(|session| session.state == State::Lost) else { return };
        let method = match (self.serves.resume, self.serves.load) {
            (true, _) => more::SESSION_RESUME,
            (false, true) => more::SESSION_LOAD,
            (false, false) => {
                let error = RpcError::new(
                    codes::RESOURCE_NOT_FOUND,
                    format!(
                        "the process of {} that had this session has ended, and {0} cannot take a session up again; open a new one",
                        self.set.profile.title
                    ),
                );
                return self.not_taken_up(id, &errors::raw(&error), out);
            }
        };
        session.state = State::Returning;
        let name = json!(&**id).to_string();
        let mut all = strict::members(Some(&session.params));
        let named = strict::raw(name);
        all.insert("sessionId".into(), &named);
        let whole = strict::write(all.iter().map(|(name, value)| (name.as_str(), value.get())));
        let params = strict::params(method, Some(&whole));
        self.ask_agent(method, &params, Asked::Reopen(id.clone()), out);
        out.push(Action::SetTimer(Timer::Start, super::life::START));
    }

    pub(super) fn taken_up(&mut self, id: &Arc<str>, outcome: Result<&RawValue, &RawValue>, out: &mut Actions) {
        if !self.asked.values().any(|asked| matches!(asked, Asked::Reopen(_))) {
            out.push(Action::ClearTimer(Timer::Start));
        }
        match outcome {
            Ok(result) => {
                // It may come late, when what waited for it has been answered.
                let Some(session) = self.sessions.get_mut(id).filter(|session| session.state.is_away()) else { return };
                let chosen = session.modes.chosen.take();
                session.modes = Modes::read(&Opened::read(Some(result)));
                session.modes.chosen = chosen;
                // What it says from now on is no history.
                session.state = State::Opening;
                session.after = Some(After::GoOn);
                self.ask_for_mode(id, out);
            }
            Err(error) => {
                let error = errors::mend(&self.set.profile, error).error;
                self.not_taken_up(id, &error, out);
            }
        }
    }

    /// What waits for the session fails; the next request tries again.
    pub(super) fn not_taken_up(&mut self, id: &Arc<str>, error: &RawValue, out: &mut Actions) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.state = State::Lost;
        let turn = session.turn.take().map(|turn| turn.near);
        let queued: Vec<Id> = turn.into_iter().chain(session.queue.drain(..).map(|queued| queued.near)).collect();
        for line in std::mem::take(&mut session.held) {
            if let Ok(jsonrpc::Message::Request { id, .. }) = jsonrpc::Message::parse(&line) {
                out.near(errors::answer(&id, error));
            }
        }
        for near in queued {
            out.near(errors::answer(&near, error));
        }
    }

    /// A request that was passed on has succeeded.
    pub(super) fn changed(&mut self, session: Option<&Arc<str>>, change: Change, out: &mut Actions) {
        let Some(id) = session else { return };
        match change {
            Change::Nothing => {}
            Change::Mode(mode) => {
                if let Some(session) = self.sessions.get_mut(id) {
                    session.modes.choose(mode);
                }
            }
            Change::Option(option, value) => {
                if let Some(session) = self.sessions.get_mut(id) {
                    session.modes.choose_option(&option, value);
                }
            }
            Change::Closed => self.closed(id, out),
        }
    }

    /// The session is closed: whatever still waits in it is over.
    fn closed(&mut self, id: &Arc<str>, out: &mut Actions) {
        self.refuse_questions(Some(id), out);
        let Some(session) = self.sessions.get_mut(id) else { return };
        let queued: Vec<Queued> = session.queue.drain(..).collect();
        if session.turn.as_ref().is_some_and(Turn::is_answered) {
            self.finish(id, out);
        }
        let Some(mut session) = self.sessions.remove(id) else { return };
        self.asked.retain(|_, asked| !matches!(asked, Asked::Prompt(other) if other == id));
        session.calls.end(id, out);
        let turn = session.turn.take().map(|turn| turn.near);
        for near in turn.into_iter().chain(queued.into_iter().map(|queued| queued.near)) {
            out.near(jsonrpc::response(&near, &crate::wire::acp::PromptResult { stop_reason: "cancelled" }));
        }
        let error = RpcError::new(codes::INVALID_REQUEST, "the session was closed");
        if let Some(After::Answer { near, .. }) = session.after.take() {
            out.near(jsonrpc::error(&near, &error));
        }
        for line in session.held {
            if let Ok(jsonrpc::Message::Request { id, .. }) = jsonrpc::Message::parse(&line) {
                out.near(jsonrpc::error(&id, &error));
            }
        }
    }

    /// A process that serves one session ends with it.
    pub(super) fn leave_if_empty(&mut self, out: &mut Actions) {
        let waits = self.is_opening() || !self.held.is_empty();
        if self.set.own && self.sessions.is_empty() && !waits && !self.leaving {
            self.leave(out);
        }
    }
}
