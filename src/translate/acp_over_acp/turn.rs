//! Prompts: the queue, the end, the cancel.
//!
//! Owns quirks 44 (seven agents do five different things with a prompt during a prompt: one is sent at a time), 45 (CodeBuddy
//! 2.163: 500 ms after a cancel a prompt is swallowed; Kimi 2.1, Vibe 3.0: refused until the answer), 8 and 9 (`cancelled`
//! without a cancel: Grok, CodeBuddy, Qwen and codex-acp after a refusal, CodeBuddy also a turn later), 36 (Kimi, pi, Cline: a
//! model's failure is an end without a word), 57 (OpenCode, CodeBuddy, Grok: so is the end of a command of their own), 37
//! (CodeBuddy: `refusal` with an error in `_meta`), 40 (hidden retries for minutes: no limit on a turn, a limit on a cancel), 42
//! (Kimi, Vibe, Cline: updates after the answer) and 7 (calls that nobody ends). Keeps: a prompt is answered once, after
//! everything that belongs to it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::open::State;
use super::{AcpOverAcp, Asked, errors, strict};
use crate::translate::{Action, Actions, Stop, Timer};
use crate::wire::acp::{PromptResult, methods};
use crate::wire::acp_client::OfSession;
use crate::wire::jsonrpc::{self, Id, RpcError, codes};

/// Prompts that may wait in a session.
const QUEUE: usize = 64;

/// How long an agent may take to end a turn that was cancelled: OpenCode takes 0.8 s, an agent between two tries of its model
/// never does.
const CANCEL: Duration = Duration::from_secs(10);

/// A prompt that waits.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) near: Id,
    params: Box<RawValue>,
    is_command: bool,
}

/// The prompt that runs.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) near: Id,
    /// The id of its request.
    far: u64,
    is_command: bool,
    /// The editor cancelled it.
    pub(super) cancelled: bool,
    /// The agent said or did something.
    pub(super) spoke: bool,
    /// What the agent answered; the editor gets it after the agent's last words.
    outcome: Option<Result<Box<RawValue>, Box<RawValue>>>,
    /// What the chunks say of tokens.
    pub(super) usage: Option<Value>,
}

impl Turn {
    /// Whether the agent has answered it.
    pub(super) fn is_answered(&self) -> bool {
        self.outcome.is_some()
    }
}

fn cancelled(near: &Id) -> Vec<u8> {
    jsonrpc::response(near, &PromptResult { stop_reason: "cancelled" })
}

impl AcpOverAcp {
    pub(super) fn queue_prompt(
        &mut self,
        id: &Arc<str>,
        near: Id,
        params: Box<RawValue>,
        is_command: bool,
        out: &mut Actions,
    ) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        if session.queue.len() >= QUEUE {
            let error = RpcError::new(
                codes::INTERNAL_ERROR,
                format!("{QUEUE} prompts already wait in this session; wait for an answer, or cancel"),
            );
            return out.near(jsonrpc::error(&near, &error));
        }
        session.queue.push_back(Queued { near, params, is_command });
        self.next_prompt(id, out);
    }

    /// Sends the next prompt of a session if its turn has come.
    pub(super) fn next_prompt(&mut self, id: &Arc<str>, out: &mut Actions) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        if session.turn.is_some() || session.queue.is_empty() {
            return;
        }
        match session.state {
            State::Lost => return self.take_up(id, out),
            State::Live if !self.barrier && !self.spoilt => {}
            _ => return,
        }
        let Some(queued) = session.queue.pop_front() else { return };
        session.calls.next_turn();
        let far = self.next_far + 1;
        session.turn = Some(Turn {
            near: queued.near,
            far,
            is_command: queued.is_command,
            cancelled: false,
            spoke: false,
            outcome: None,
            usage: None,
        });
        self.ask_agent(methods::SESSION_PROMPT, &queued.params, Asked::Prompt(id.clone()), out);
    }

    fn next_prompts(&mut self, out: &mut Actions) {
        let all: Vec<Arc<str>> = self.sessions.keys().cloned().collect();
        for id in all {
            self.next_prompt(&id, out);
        }
    }

    pub(super) fn prompt_answered(
        &mut self,
        id: &Arc<str>,
        number: u64,
        outcome: Result<&RawValue, &RawValue>,
        out: &mut Actions,
    ) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(turn) = session.turn.as_mut().filter(|turn| turn.far == number) else { return };
        turn.outcome = Some(outcome.map(ToOwned::to_owned).map_err(ToOwned::to_owned));
        let settle = self.set.profile.acp.settle_ms;
        if settle > 0 && !self.near_gone {
            out.push(Action::SetTimer(Timer::Settle, Duration::from_millis(settle)));
        } else {
            self.finish(id, out);
        }
    }

    /// The agents' last words have come.
    pub(super) fn settled(&mut self, out: &mut Actions) {
        self.settle_all(out);
        self.next_prompts(out);
    }

    /// Ends every turn that the agent has answered.
    pub(super) fn settle_all(&mut self, out: &mut Actions) {
        let answered = |turn: &Turn| turn.is_answered();
        let done: Vec<Arc<str>> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.turn.as_ref().is_some_and(answered))
            .map(|(id, _)| id.clone())
            .collect();
        for id in done {
            self.finish(&id, out);
        }
    }

    /// The turn is over: what it left open is closed, and the editor gets its answer.
    pub(super) fn finish(&mut self, id: &Arc<str>, out: &mut Actions) {
        self.refuse_questions(Some(id), out);
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.calls.end(id, out);
        let Some(mut turn) = session.turn.take() else { return };
        let Some(outcome) = turn.outcome.take() else { return };
        let line = match outcome {
            // An agent that is cancelled may well fail of it.
            _ if turn.cancelled => match outcome {
                Ok(result) => self.answer(&turn, &result),
                Err(_) => cancelled(&turn.near),
            },
            Ok(result) => self.answer(&turn, &result),
            Err(error) => {
                let mended = errors::mend(&self.set.profile, &error);
                // Quirk 39.
                self.spoilt |= mended.is_login && self.set.profile.acp.login_error_stays;
                errors::answer(&turn.near, &mended.error)
            }
        };
        out.near(line);
        // Counted from the answer: when the agent heard of the cancel is not known.
        if turn.cancelled && self.barrier && !self.near_gone {
            let barrier = self.set.profile.acp.cancel_barrier_ms;
            out.push(Action::SetTimer(Timer::Barrier, Duration::from_millis(barrier)));
        }
        if !self.sessions.values().any(|session| session.turn.as_ref().is_some_and(|turn| turn.cancelled)) {
            out.push(Action::ClearTimer(Timer::Cancel));
        }
        self.end_spoilt(out);
        self.next_prompt(id, out);
    }

    /// The answer to a prompt that the agent answered with a result.
    fn answer(&self, turn: &Turn, result: &RawValue) -> Vec<u8> {
        let title = &self.set.profile.title;
        let fail = |text: String| jsonrpc::error(&turn.near, &RpcError::new(codes::INTERNAL_ERROR, text));
        let mut all: Map<String, Value> = serde_json::from_str(result.get()).unwrap_or_default();
        let said = all.get("stopReason").and_then(Value::as_str).unwrap_or_default().to_owned();
        let reason = match &*said {
            _ if turn.cancelled => "cancelled",
            // Nobody cancelled: the turn ended by a refusal of the user's, or it is the echo of another one.
            "cancelled" => "end_turn",
            "end_turn" | "max_tokens" | "max_turn_requests" | "refusal" => &*said,
            _ => "end_turn",
        };
        let meta = all.get("_meta");
        if reason == "refusal"
            && let Some(error) = meta.and_then(|meta| meta["codebuddy.ai/errorMessage"].as_str())
        {
            return fail(error.to_owned());
        }
        if reason == "end_turn" && !turn.spoke && !turn.is_command {
            return fail(format!(
                "{title} ended the turn without a word: its model has probably failed. Its own log says why"
            ));
        }
        let is_standard = all.keys().all(|name| matches!(name.as_str(), "stopReason" | "usage" | "_meta"));
        let has_usage = all.get("usage").is_some_and(Value::is_object);
        if said == reason && is_standard && (has_usage || turn.usage.is_none()) {
            return jsonrpc::response(&turn.near, result);
        }
        all.retain(|name, value| matches!(name.as_str(), "usage" | "_meta") && value.is_object());
        all.insert("stopReason".into(), reason.into());
        if let Some(usage) = turn.usage.clone().filter(|_| !has_usage) {
            all.insert("usage".into(), usage);
        }
        jsonrpc::response(&turn.near, &strict::raw(Value::Object(all).to_string()))
    }

    /// The process that ran the turn has died.
    pub(super) fn turn_failed(&mut self, id: &Arc<str>, error: &RawValue, out: &mut Actions) {
        let Some(turn) = self.sessions.get_mut(id).and_then(|session| session.turn.take()) else { return };
        out.near(if turn.cancelled { cancelled(&turn.near) } else { errors::answer(&turn.near, error) });
    }

    /// `session/cancel`: everything that waits and the turn that runs.
    pub(super) fn cancel(&mut self, id: &Arc<str>, out: &mut Actions) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        for queued in session.queue.drain(..) {
            out.near(cancelled(&queued.near));
        }
        self.cancel_running(id, out);
    }

    fn cancel_running(&mut self, id: &Arc<str>, out: &mut Actions) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(turn) = session.turn.as_mut().filter(|turn| !turn.cancelled && !turn.is_answered()) else {
            return out.note("a cancel while no turn runs");
        };
        turn.cancelled = true;
        // Quirk 18: an open question would hold the cancel up.
        self.refuse_questions(Some(id), out);
        self.kill_terminals(id, out);
        out.far(jsonrpc::notification(methods::SESSION_CANCEL, &OfSession { session_id: id }));
        out.push(Action::SetTimer(Timer::Cancel, CANCEL));
        self.barrier = self.set.profile.acp.cancel_barrier_ms > 0;
    }

    pub(super) fn barrier_over(&mut self, out: &mut Actions) {
        self.barrier = false;
        self.next_prompts(out);
    }

    /// `$/cancel_request` for a prompt; false when it is none.
    pub(super) fn withdraw_prompt(&mut self, near: &Id, out: &mut Actions) -> bool {
        for (id, session) in &mut self.sessions {
            if let Some(at) = session.queue.iter().position(|queued| queued.near == *near) {
                session.queue.remove(at);
                out.near(cancelled(near));
                return true;
            }
            if session.turn.as_ref().is_some_and(|turn| turn.near == *near) {
                let id = id.clone();
                self.cancel_running(&id, out);
                return true;
            }
        }
        false
    }

    /// The agent does not end what was cancelled: the editor is told, and the process is of no use any more.
    pub(super) fn cancel_timed_out(&mut self, out: &mut Actions) {
        let stuck = |turn: &Turn| turn.cancelled && !turn.is_answered();
        let all: Vec<Arc<str>> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.turn.as_ref().is_some_and(stuck))
            .map(|(id, _)| id.clone())
            .collect();
        for id in all {
            self.refuse_questions(Some(&id), out);
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            session.calls.end(&id, out);
            if let Some(turn) = session.turn.take() {
                self.asked.remove(&turn.far);
                out.near(cancelled(&turn.near));
            }
            self.spoilt = true;
        }
        self.end_spoilt(out);
    }

    /// Kills a process that is of no use any more, once no other session works in it.
    pub(super) fn end_spoilt(&mut self, out: &mut Actions) {
        if self.spoilt && !self.leaving && self.sessions.values().all(|session| session.turn.is_none()) {
            out.push(Action::StopFar(Stop::Kill));
        }
    }
}
