//! Start, death and return of the far process.
//!
//! Owns the answer to `session/new` and what becomes of prompts when claude dies. Keeps: a death is reported once, with
//! its exit status and the tail of stderr; open calls and questions do not outlive their process; the next prompt
//! starts a new process that knows the conversation, or says that the history is lost. Never a fresh session under
//! an old name (report 44).

use std::time::Duration;

use serde_json::json;

use super::open::{Conversation, Opening};
use super::turn::Ending;
use super::{AcpOverClaude, Asked};
use crate::translate::{Action, Actions, Chunk, ChunkForm, ChunkKind, FarExit, StartFailure, Stop, Timer};
use crate::wire::acp::{Mode, Modes, NewSessionResult, SessionUpdate, ToolStatus};
use crate::wire::jsonrpc::{self, Id, RpcError, codes};
use crate::wire::stream_json::{self, Ask, ControlResponse, InitializeResult, McpServer};
use crate::wire::text::{Raw, items, text};

/// Claude answers `initialize` within a second; a start that takes this long never ends (incumbent.md, section 2).
const START_LIMIT: Duration = Duration::from_secs(60);

/// Warnings that are kept for the next turn.
const UNTOLD_LIMIT: usize = 16;

/// The far process.
#[derive(Debug, Default)]
pub(super) struct Far {
    state: State,
    kept: Kept,
    /// What claude said when it could not resume.
    complaint: Option<String>,
    /// The MCP servers that do not work were told.
    servers_told: bool,
    /// A start was refused because the id is in use, and what is kept under it was tried.
    in_use: bool,
}

/// What claude's store holds of the conversation under its present id.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Nothing was said yet.
    #[default]
    Nothing,
    /// A prompt was sent: it is written within 100 ms, unless claude is killed before (stream-json.md, section 11.4).
    Perhaps,
    /// A turn has ended.
    Surely,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// None runs.
    #[default]
    Down,
    /// Started for `session/new`, which waits for its answer.
    Opening(Id),
    /// Started again for a prompt that waits.
    Returning { fresh: bool },
    /// Answers.
    Up,
    /// Is being stopped by us.
    Stopping,
}

impl Far {
    pub(super) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    pub(super) fn is_down(&self) -> bool {
        self.state == State::Down
    }

    /// Whether a process runs that still reads what it is told.
    pub(super) fn listens(&self) -> bool {
        matches!(self.state, State::Up | State::Opening(_) | State::Returning { .. })
    }

    pub(super) fn is_opening(&self) -> bool {
        matches!(self.state, State::Opening(_))
    }

    /// A prompt is on its way: there may be something to come back to.
    pub(super) fn prompted(&mut self) {
        if self.kept == Kept::Nothing {
            self.kept = Kept::Perhaps;
        }
    }

    /// A turn has ended, so there is something to come back to.
    pub(super) fn keep(&mut self) {
        self.kept = Kept::Surely;
    }

    /// The conversation goes on under another id, of which the store may know nothing yet.
    pub(super) fn reset(&mut self) {
        self.kept = Kept::Perhaps;
    }
}

impl AcpOverClaude {
    /// `session/new`.
    pub(super) fn open(&mut self, id: Id, opening: Result<Opening, RpcError>, out: &mut Actions) {
        match opening {
            Err(e) => {
                out.near(jsonrpc::error(&id, &e));
                self.end(out);
            }
            Ok(opening) => {
                let spec = opening.spec(&self.set.profile, Conversation::New(&self.set.session_id), None);
                self.opening = Some(opening);
                self.far.state = State::Opening(id);
                self.start(spec, out);
            }
        }
    }

    fn start(&mut self, spec: crate::translate::FarSpec, out: &mut Actions) {
        self.far.servers_told = false;
        out.push(Action::StartFar(spec));
        let request = self.ask_id();
        out.far(stream_json::control_request(&request, &Ask::Initialize));
        self.asks.insert(request, Asked::Initialize);
        out.push(Action::SetTimer(Timer::Start, START_LIMIT));
    }

    /// Starts the process again for the prompts that wait.
    pub(super) fn come_back(&mut self, out: &mut Actions) {
        let Some(opening) = &self.opening else { return };
        let fresh = self.far.kept == Kept::Nothing;
        let conversation = match fresh {
            true => Conversation::New(&self.claude_session),
            false => Conversation::Resume(&self.claude_session),
        };
        let spec = opening.spec(&self.set.profile, conversation, self.chosen_mode.as_deref());
        self.far.state = State::Returning { fresh };
        self.far.complaint = None;
        out.note(if fresh { "starting the agent anew" } else { "starting the agent again to resume the conversation" });
        self.start(spec, out);
    }

    /// Claude's answer to `initialize`.
    pub(super) fn initialized(&mut self, response: &ControlResponse<'_>, out: &mut Actions) {
        out.push(Action::ClearTimer(Timer::Start));
        if text(response.subtype).as_deref() != Some("success") {
            let said = text(response.error).unwrap_or_default();
            let error = self.error("agent_garbled", None, &said);
            self.start_failed(&error, out);
            self.far.state = State::Stopping;
            out.push(Action::StopFar(Stop::Gently));
            return;
        }
        out.push(Action::ForgetFile);
        self.far.in_use = false;
        let result = InitializeResult::read(response.response);
        let mode = text(result.current_permission_mode).map(String::from);
        match std::mem::replace(&mut self.far.state, State::Up) {
            State::Opening(id) => {
                let mode = mode.unwrap_or_else(|| "default".to_owned());
                self.answer_new(&id, &mode, out);
                self.opened = true;
                self.mode = Some(mode);
                self.tell_commands(result.commands, out);
                self.tell_early(out);
            }
            State::Returning { fresh } => {
                match self.chosen_mode.clone().filter(|_| self.set.profile.flags.permission_mode.is_none()) {
                    // No flag says it: claude takes it before the prompt.
                    Some(chosen) if mode.as_ref() != Some(&chosen) => {
                        let request = self.ask_id();
                        out.far(stream_json::control_request(&request, &Ask::SetPermissionMode { mode: &chosen }));
                        self.asks.insert(request, Asked::KeepMode { instead: mode });
                    }
                    _ => {
                        if let Some(mode) = mode {
                            self.mode_is(&mode, out);
                        }
                    }
                }
                if !fresh && self.set.profile.flags.resume.is_none() {
                    self.warn("the agent was started again and does not remember this conversation", out);
                } else if !fresh {
                    self.notice(
                        "the agent was started again; what was allowed for the session must be allowed again",
                        out,
                    );
                }
            }
            // A second answer, or one after we gave up: the state stays what it was.
            other => self.far.state = other,
        }
        self.pump(out);
    }

    /// The modes that can be set when this one is in force.
    pub(super) fn offered_modes(&self, current: &str) -> Vec<crate::mappings::Mode> {
        let profile = &self.set.profile;
        let bypass = profile.flags.bypass.iter().any(|flag| profile.args.contains(flag));
        self.set.mappings.modes.offered(current, bypass)
    }

    /// The editor's MCP servers as `system/init` has them: one that does not work is told once a process.
    pub(super) fn mcp_servers_told(&mut self, servers: Raw<'_>, out: &mut Actions) {
        if std::mem::replace(&mut self.far.servers_told, true) {
            return;
        }
        for raw in items(servers).unwrap_or_default() {
            let server = McpServer::read(Some(raw));
            let (Some(name), Some(status)) = (text(server.name), text(server.status)) else { continue };
            if status == "failed" && self.opening.as_ref().is_some_and(|o| o.has_mcp_server(&name)) {
                self.warn(&format!("the MCP server `{name}` does not work"), out);
            }
        }
    }

    fn answer_new(&self, id: &Id, mode: &str, out: &mut Actions) {
        let modes = self.offered_modes(mode);
        out.near(jsonrpc::response(
            id,
            &NewSessionResult {
                session_id: &self.set.session_id,
                modes: Modes {
                    current_mode_id: self.set.mappings.modes.id(mode),
                    available_modes: modes
                        .iter()
                        .map(|m| Mode {
                            id: (&*m.id).into(),
                            name: (&*m.name).into(),
                            description: m.description.as_deref().map(Into::into),
                        })
                        .collect(),
                },
            },
        ));
    }

    /// Another permission mode is in force.
    pub(super) fn mode_is(&mut self, mode: &str, out: &mut Actions) {
        if self.mode.as_deref() == Some(mode) {
            return;
        }
        self.mode = Some(mode.to_owned());
        let id = self.set.mappings.modes.id(mode);
        out.update(&self.set.session_id, SessionUpdate::CurrentModeUpdate { current_mode_id: id });
    }

    /// Something the user should know, where the editor can show it.
    pub(super) fn notice(&self, title: &str, out: &mut Actions) {
        if self.set.client.notices {
            out.update(&self.set.session_id, SessionUpdate::Notice { severity: "warning", title, description: None });
        }
        out.note(title);
    }

    /// Something the user must know; an editor that shows no notices gets it as text of the turn that follows.
    fn warn(&mut self, title: &str, out: &mut Actions) {
        self.notice(title, out);
        if !self.set.client.notices && self.untold.len() < UNTOLD_LIMIT {
            self.untold.push(title.to_owned());
        }
        self.tell_untold(out);
    }

    /// Tells what could not be told before, once a turn runs.
    pub(super) fn tell_untold(&mut self, out: &mut Actions) {
        if self.turns.running().is_none() || self.untold.is_empty() {
            return;
        }
        let mut text = String::new();
        for title in self.untold.drain(..) {
            text.push_str(&title);
            text.push_str("\n\n");
        }
        // It is no answer: what claude says without a message is still told.
        let session_id = self.set.session_id.clone();
        let form = ChunkForm::Acp;
        out.push(Action::Chunk(Chunk { session_id, kind: ChunkKind::Message, message_id: None, text, form }));
    }

    pub(super) fn far_failed(&mut self, why: &StartFailure, out: &mut Actions) {
        out.push(Action::ClearTimer(Timer::Start));
        let error = match why {
            StartFailure::BadDirectory(message) => {
                let error = match self.far.is_opening() {
                    true => RpcError::invalid_params(format!("session/new: `cwd`: {message}")),
                    false => {
                        let said = format!("the session's directory cannot be used any more: {message}");
                        RpcError::new(codes::INTERNAL_ERROR, said)
                    }
                };
                error.with_data(json!({ "reason": "bad_directory" }))
            }
            StartFailure::NoProgram(message) => self.error("agent_not_found", None, message),
            StartFailure::Other(message) => self.error("agent_not_started", None, message),
        };
        self.fail_asks(&error, out);
        self.asks.clear();
        self.start_failed(&error, out);
        self.far.state = State::Down;
        if self.opening.is_none() || self.near_closed {
            self.end(out);
        }
    }

    /// The process did not come up: whoever waits for it is told.
    fn start_failed(&mut self, error: &RpcError, out: &mut Actions) {
        match std::mem::replace(&mut self.far.state, State::Down) {
            State::Opening(id) => {
                out.near(jsonrpc::error(&id, error));
                // An editor that knew the session's id before it was told may have sent prompts.
                self.turns.fail_all(error, out);
                self.opening = None;
            }
            State::Returning { .. } => self.turns.fail_all(error, out),
            other => self.far.state = other,
        }
    }

    /// Whoever waits for the process to do something is told that it will not.
    pub(super) fn fail_asks(&mut self, error: &RpcError, out: &mut Actions) {
        let mut waiting: Vec<(String, Id)> = Vec::new();
        self.asks.retain(|request, asked| match asked {
            Asked::SetMode { near, .. } => {
                waiting.push((request.clone(), near.clone()));
                false
            }
            Asked::Initialize | Asked::Interrupt | Asked::KeepMode { .. } => true,
        });
        // In the order in which they were asked.
        waiting.sort_by_key(|(request, _)| (request.len(), request.clone()));
        for (_, near) in waiting {
            out.near(jsonrpc::error(&near, error));
        }
    }

    pub(super) fn start_timed_out(&mut self, out: &mut Actions) {
        if !matches!(self.far.state, State::Opening(_) | State::Returning { .. }) {
            return;
        }
        let error =
            self.error("agent_silent", None, &format!("no answer to `initialize` within {} s", START_LIMIT.as_secs()));
        self.start_failed(&error, out);
        self.far.state = State::Stopping;
        out.push(Action::StopFar(Stop::Kill));
    }

    /// Withdraws `session/new` while claude starts.
    pub(super) fn withdraw_open(&mut self, id: &Id, out: &mut Actions) -> bool {
        if !matches!(&self.far.state, State::Opening(open) if open == id) {
            return false;
        }
        let error = RpcError::new(codes::REQUEST_CANCELLED, "session/new was withdrawn before the agent had started");
        self.start_failed(&error, out);
        out.push(Action::ClearTimer(Timer::Start));
        self.far.state = State::Stopping;
        out.push(Action::StopFar(Stop::Kill));
        true
    }

    /// Stops a claude that does not stop by itself; [`Self::far_closed`] does the rest.
    pub(super) fn kill(&mut self, out: &mut Actions) {
        self.far.state = State::Stopping;
        out.push(Action::StopFar(Stop::Kill));
    }

    /// SIGINT ends a turn and then the process, in its own time: the next prompt goes to a new one.
    pub(super) fn leave(&mut self, out: &mut Actions) {
        self.far.state = State::Stopping;
        out.push(Action::StopFar(Stop::Gently));
    }

    pub(super) fn far_closed(&mut self, exit: &FarExit, out: &mut Actions) {
        for timer in [Timer::Start, Timer::Cancel, Timer::Settle, Timer::Control] {
            out.push(Action::ClearTimer(timer));
        }
        out.note(format!("{} {}", self.set.profile.title, exit.how()));
        self.fail_asks(&self.death("agent_died", exit), out);
        self.asks.clear();
        // From here on no process runs: every call is closed, also one in the background.
        let state = std::mem::replace(&mut self.far.state, State::Down);
        self.withdraw_all_questions(out);
        self.close_tools(ToolStatus::Failed, &format!("{} {}", self.set.profile.title, exit.how()), out);
        self.streams.clear();
        match state {
            State::Opening(id) => {
                let error = self.death("agent_not_started", exit);
                out.near(jsonrpc::error(&id, &error));
                self.turns.fail_all(&error, out);
                self.opening = None;
            }
            State::Returning { fresh } => {
                let complaint = self.far.complaint.take();
                let unknown = |s: &str| s.contains("No conversation found");
                let lost = !fresh && (unknown(&exit.stderr) || complaint.as_deref().is_some_and(unknown));
                if lost && std::mem::take(&mut self.far.kept) == Kept::Perhaps && !self.near_closed {
                    // Killed before anything was written: there is nothing to resume, and nothing that was answered.
                    self.warn("nothing was kept of this conversation; it begins anew", out);
                    return self.come_back(out);
                }
                let taken = |s: &str| s.contains("already in use");
                let taken = fresh && (taken(&exit.stderr) || complaint.as_deref().is_some_and(taken));
                if taken && !std::mem::replace(&mut self.far.in_use, true) && !self.near_closed {
                    // Something is kept under this id after all.
                    self.far.kept = Kept::Perhaps;
                    return self.come_back(out);
                }
                self.far.in_use = false;
                let error = if lost {
                    // The next prompt begins anew; this one says so, since claude would not know what was said.
                    self.error("history_lost", None, complaint.as_deref().unwrap_or(&exit.stderr))
                } else {
                    self.death("agent_not_started", exit)
                };
                self.turns.fail_all(&error, out);
            }
            State::Down | State::Up | State::Stopping => {
                self.turns.take_back();
                let error = self.death("agent_died", exit);
                self.finish_turn(Ending::Failed(error), out);
            }
        }
        if self.near_closed || self.opening.is_none() {
            self.end(out);
        } else {
            self.pump(out);
        }
    }

    /// Claude reports an error before it has come up.
    pub(super) fn complaint(&mut self, errors: &[String]) {
        if matches!(self.far.state, State::Returning { .. } | State::Opening(_)) {
            self.far.complaint = Some(errors.join("; "));
        }
    }

    fn death(&self, reason: &str, exit: &FarExit) -> RpcError {
        let stderr = exit.stderr.trim();
        let mut said = format!("{} {}", self.set.profile.title, exit.how());
        if let Some(last) = stderr.lines().rev().find(|l| !l.trim().is_empty()) {
            said.push_str(": ");
            said.push_str(crate::wire::text::cut(last.trim(), 300));
        }
        let mut error = self.error(reason, None, &said);
        if let Some(data) = error.data.as_mut().and_then(|d| d.as_object_mut()) {
            data.insert("exitCode".into(), json!(exit.code));
            data.insert("signal".into(), json!(exit.signal));
            data.insert("stderr".into(), json!(stderr));
        }
        error
    }

    /// An error from the table of reasons.
    pub(super) fn error(&self, reason: &str, status: Option<u16>, said: &str) -> RpcError {
        let row = self.set.mappings.errors.get(reason, status);
        // How to get the program, the agent's own profile knows best.
        let hint = if reason == "agent_not_found" { &*self.set.profile.hint } else { row.hint };
        let mut data = json!({ "reason": row.reason, "hint": hint });
        if let (Some(status), Some(map)) = (status, data.as_object_mut()) {
            map.insert("status".into(), json!(status));
        }
        RpcError::new(i64::from(row.code), row.message_with(said)).with_data(data)
    }

    /// The editor is gone: nobody can be asked, and whoever waits is answered as well as it can be.
    pub(super) fn near_closed(&mut self, out: &mut Actions) {
        self.near_closed = true;
        self.refuse_all_questions("the editor's connection ended; nobody could be asked", false, out);
        self.turns.cancel_queued(out);
        let gone = RpcError::new(codes::REQUEST_CANCELLED, "the editor's connection ended");
        self.fail_asks(&gone, out);
        let running = self.turns.running().is_some();
        self.close_tools(ToolStatus::Failed, "the editor's connection ended", out);
        self.finish_turn(Ending::Cancelled, out);
        match &self.far.state {
            State::Down => self.end(out),
            State::Stopping => {}
            State::Up | State::Opening(_) | State::Returning { .. } => {
                if let State::Opening(id) = std::mem::replace(&mut self.far.state, State::Stopping) {
                    let error =
                        RpcError::new(codes::REQUEST_CANCELLED, "the connection ended before the agent had started");
                    out.near(jsonrpc::error(&id, &error));
                }
                if running {
                    let request = self.ask_id();
                    out.far(stream_json::control_request(&request, &Ask::Interrupt { cancel_queued: true }));
                }
                out.push(Action::StopFar(Stop::Gently));
            }
        }
    }

    pub(super) fn end(&mut self, out: &mut Actions) {
        if !self.ended {
            self.ended = true;
            out.push(Action::End);
        }
    }
}
