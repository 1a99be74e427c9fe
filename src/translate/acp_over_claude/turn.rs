//! The queue of prompts, and the end of a turn.
//!
//! Owns "one prompt, one turn, one response". Claude folds and joins messages that are sent while a turn runs, and
//! starts turns that nobody asked for (stream-json.md, section 0, point 1), so a prompt is sent only when the one
//! before it has ended, and it ends by the uuid that its `result` names, never by counting results.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::json;

use super::{AcpOverClaude, Asked};
use crate::mappings::{Stop as Ended, StopFacts};
use crate::translate::content::PromptContent;
use crate::translate::{Action, Actions, Stop, Timer};
use crate::wire::acp::{Cost, PromptResult, SessionUpdate, ToolStatus};
use crate::wire::jsonrpc::{self, Id, RpcError, codes};
use crate::wire::stream_json::{self, Ask, ResultLine, Usage};
use crate::wire::text::{Raw, boolean, float, strings, text, uint};

/// Prompts that may wait at once; more are refused, since a queue without a bound is none.
const QUEUE_LIMIT: usize = 64;

/// An interrupt takes effect within 0.2 s (stream-json.md, section 7.2); after this time claude hangs.
const INTERRUPT_LIMIT: Duration = Duration::from_secs(5);

/// After SIGINT claude ends the turn and exits by itself.
const SIGINT_LIMIT: Duration = Duration::from_secs(3);

/// When claude says that a message is over, its `result` is there already or never comes.
const SETTLE_LIMIT: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct Turns {
    queue: VecDeque<Prompt>,
    current: Option<Turn>,
    /// This agent's results name their prompts.
    results_name: bool,
}

#[derive(Debug)]
struct Prompt {
    id: Id,
    content: PromptContent,
    /// Under which it was sent to a process that died before it took it.
    uuid: Option<String>,
}

/// The prompt that claude works on.
#[derive(Debug)]
pub(super) struct Turn {
    id: Id,
    uuid: String,
    /// The prompt is a slash command, whose output may come as a message of its own.
    pub(super) is_command: bool,
    /// Claude was heard since the prompt was sent.
    begun: bool,
    /// The prompt, until claude has taken it: a process that dies before is followed by one that gets it.
    untaken: Option<PromptContent>,
    pub(super) cancel: Cancel,
    /// Text was shown.
    pub(super) spoke: bool,
    /// The failure that claude told as text: shown once, in the response.
    pub(super) failure: Option<Failure>,
    /// The lifecycle named it: where results name prompts, one that names none ends another turn.
    named: bool,
    /// What the lifecycle said last, when it said that the message is over.
    over: Option<String>,
}

/// How far a cancel has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cancel {
    No,
    /// `interrupt` was sent.
    Asked,
    /// SIGINT was sent.
    Signalled,
    /// It was killed.
    Killed,
}

/// An API failure, as claude's synthetic message tells it.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) kind: String,
    pub(super) status: Option<u16>,
    pub(super) text: String,
}

/// How a turn ends.
#[derive(Debug)]
pub(super) enum Ending {
    Stop(String),
    Failed(RpcError),
    Cancelled,
}

impl Turns {
    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none() && self.queue.is_empty()
    }

    pub(super) fn running(&self) -> Option<&Turn> {
        self.current.as_ref()
    }

    pub(super) fn running_mut(&mut self) -> Option<&mut Turn> {
        self.current.as_mut()
    }

    /// Claude was heard.
    pub(super) fn begin(&mut self) {
        if let Some(turn) = &mut self.current {
            turn.begun = true;
            turn.untaken = None;
        }
    }

    /// Puts a prompt that the dead process did not take back to the front, once. It keeps its uuid, under which claude
    /// drops what it has already.
    pub(super) fn take_back(&mut self) {
        let Some(turn) = self.current.take_if(|t| t.untaken.is_some() && t.cancel == Cancel::No) else { return };
        if let Some(content) = turn.untaken {
            self.queue.push_front(Prompt { id: turn.id, content, uuid: Some(turn.uuid) });
        }
    }

    pub(super) fn fail_all(&mut self, error: &RpcError, out: &mut Actions) {
        for prompt in self.queue.drain(..) {
            out.near(jsonrpc::error(&prompt.id, error));
        }
    }

    pub(super) fn cancel_queued(&mut self, out: &mut Actions) {
        for prompt in self.queue.drain(..) {
            out.near(cancelled(&prompt.id));
        }
    }
}

fn cancelled(id: &Id) -> Vec<u8> {
    jsonrpc::response(id, &PromptResult { stop_reason: "cancelled" })
}

impl AcpOverClaude {
    /// `session/prompt`, its content read.
    pub(super) fn prompt(&mut self, id: Id, content: PromptContent, out: &mut Actions) {
        if self.turns.queue.len() >= QUEUE_LIMIT {
            let error = RpcError::new(
                codes::INTERNAL_ERROR,
                format!("{QUEUE_LIMIT} prompts already wait in this session; wait for an answer, or cancel"),
            )
            .with_data(json!({ "reason": "queue_full" }));
            out.near(jsonrpc::error(&id, &error));
            return;
        }
        self.turns.queue.push_back(Prompt { id, content, uuid: None });
        self.pump(out);
    }

    /// Sends the next prompt if none runs.
    pub(super) fn pump(&mut self, out: &mut Actions) {
        if self.turns.current.is_some() || self.turns.queue.is_empty() || self.near_closed {
            return;
        }
        if self.far.is_down() {
            self.come_back(out);
            return;
        }
        if !self.far.is_up() {
            return;
        }
        let Some(prompt) = self.turns.queue.pop_front() else { return };
        let again = prompt.uuid.is_some();
        let uuid = prompt.uuid.unwrap_or_else(|| self.set.ids.uuid().to_string());
        out.far(stream_json::user(&uuid, &prompt.content.blocks));
        self.far.prompted();
        self.turns.current = Some(Turn {
            id: prompt.id,
            uuid,
            is_command: prompt.content.is_command,
            begun: false,
            untaken: (!again).then_some(prompt.content),
            cancel: Cancel::No,
            spoke: false,
            failure: None,
            named: false,
            over: None,
        });
        self.tell_untold(out);
    }

    /// `session/cancel`: everything that waits and the turn that runs.
    pub(super) fn cancel(&mut self, out: &mut Actions) {
        self.turns.cancel_queued(out);
        self.cancel_running(out);
    }

    fn cancel_running(&mut self, out: &mut Actions) {
        let Some(turn) = &mut self.turns.current else {
            out.note("session/cancel while no turn runs");
            return;
        };
        if turn.cancel != Cancel::No {
            return;
        }
        turn.cancel = Cancel::Asked;
        self.refuse_all_questions("the user cancelled the turn", true, out);
        let request = self.ask_id();
        out.far(stream_json::control_request(&request, &Ask::Interrupt { cancel_queued: true }));
        self.asks.insert(request, Asked::Interrupt);
        out.push(Action::SetTimer(Timer::Cancel, INTERRUPT_LIMIT));
    }

    /// `$/cancel_request` for a prompt.
    pub(super) fn withdraw_prompt(&mut self, id: &Id, out: &mut Actions) -> bool {
        if let Some(at) = self.turns.queue.iter().position(|p| p.id == *id) {
            self.turns.queue.remove(at);
            out.near(cancelled(id));
            return true;
        }
        if self.turns.current.as_ref().is_some_and(|t| t.id == *id) {
            self.cancel_running(out);
            return true;
        }
        false
    }

    /// Claude did not stop: SIGINT, then the end of the process.
    pub(super) fn cancel_timed_out(&mut self, out: &mut Actions) {
        let Some(turn) = &mut self.turns.current else { return };
        match turn.cancel {
            Cancel::Asked => {
                turn.cancel = Cancel::Signalled;
                out.push(Action::StopFar(Stop::Interrupt));
                out.push(Action::SetTimer(Timer::Cancel, SIGINT_LIMIT));
            }
            Cancel::Signalled => {
                turn.cancel = Cancel::Killed;
                self.kill(out);
            }
            Cancel::No | Cancel::Killed => {}
        }
    }

    /// `command_lifecycle`.
    pub(super) fn lifecycle(&mut self, uuid: &str, state: &str, out: &mut Actions) {
        let Some(turn) = &mut self.turns.current else { return };
        if turn.uuid != uuid {
            return;
        }
        turn.untaken = None;
        turn.named = true;
        match state {
            "started" => turn.begun = true,
            "completed" | "cancelled" | "discarded" | "refused" => {
                if turn.cancel != Cancel::No && state != "completed" {
                    // The result of a turn that ran comes before this line, so there is none: claude dropped the prompt.
                    self.close_tools(ToolStatus::Failed, "the user cancelled the turn", out);
                    return self.finish_turn(Ending::Cancelled, out);
                }
                turn.over = Some(state.to_owned());
                out.push(Action::SetTimer(Timer::Settle, SETTLE_LIMIT));
            }
            _ => {}
        }
    }

    /// The message is over and no result came.
    pub(super) fn settle_timed_out(&mut self, out: &mut Actions) {
        let Some(over) = self.turns.current.as_mut().and_then(|t| t.over.take()) else { return };
        let ending = match &*over {
            "completed" => Ending::Stop("end_turn".to_owned()),
            "cancelled" => Ending::Cancelled,
            other => Ending::Failed(self.error("turn_setup_failed", None, &format!("the message was {other}"))),
        };
        self.close_tools(ToolStatus::Failed, "the turn ended without a result of this call", out);
        self.finish_turn(ending, out);
    }

    /// A `result` line.
    pub(super) fn result(&mut self, result: &ResultLine<'_>, out: &mut Actions) {
        let uuids = strings(result.user_message_uuids);
        let terminal = text(result.terminal_reason);
        let subtype = text(result.subtype).unwrap_or_default();
        let is_error = boolean(result.is_error) == Some(true);
        let errors = strings(result.errors);
        if !self.far.is_up() {
            self.complaint(&errors);
            return;
        }
        // A local command has no terminal reason, and leaves nothing to come back to.
        if terminal.is_some() {
            self.far.keep();
        }
        // The last line of its turn, whoever asked for it (stream-json.md, section 10, point 3).
        self.streams.turn_over(|parent| self.tools.is_open(parent));
        let aborted =
            terminal.as_deref().is_some_and(|t| t.starts_with("aborted_")) || subtype == "error_during_execution";
        self.turns.results_name |= !uuids.is_empty();
        let ours = match &self.turns.current {
            None => false,
            Some(turn) if !uuids.is_empty() => uuids.contains(&turn.uuid),
            // No uuids: an agent that does not tell them. The late end of a turn that was stopped before is not ours
            // while nothing was heard of ours.
            Some(turn) => {
                let another = is_unasked(result.origin) || (turn.named && self.turns.results_name);
                !another && (turn.begun || turn.cancel != Cancel::No || !aborted)
            }
        };
        self.close_tools(ToolStatus::Failed, "the turn ended without a result of this call", out);
        if !ours {
            out.note("a result that ends no prompt of this session");
            // What was said and what failed was that turn, not the one that waits.
            if let Some(failure) = self.turns.running_mut().and_then(|t| t.failure.take()) {
                self.say(&failure.text, out);
            }
            if let Some(turn) = self.turns.running_mut() {
                turn.spoke = false;
            }
            self.usage(result, out);
            self.tell_plan(out);
            return;
        }
        self.usage(result, out);
        let Some(turn) = &mut self.turns.current else { return };
        if turn.cancel != Cancel::No {
            self.finish_turn(Ending::Cancelled, out);
            return;
        }
        let (failure, spoke) = (turn.failure.take(), turn.spoke);
        let stop_reason = text(result.stop_reason);
        let facts = StopFacts {
            subtype: &subtype,
            terminal_reason: terminal.as_deref(),
            stop_reason: stop_reason.as_deref(),
            is_error,
            error: failure.as_ref().map(|f| &*f.kind),
        };
        let ended = match self.set.mappings.stop_reasons.stop(facts) {
            Ended::Reason(reason) => Ok(reason.to_owned()),
            Ended::Error { reason } => Err(reason.to_owned()),
        };
        let ending = match ended {
            Ok(reason) => {
                // What was held back as a failure turned out to be none, or the reason does not carry its text.
                if let Some(failure) = failure {
                    self.say(&failure.text, out);
                } else if !spoke && !is_error {
                    // What claude says without a message, such as why a hook refused the prompt.
                    self.say(&text(result.result).unwrap_or_default(), out);
                }
                Ending::Stop(reason)
            }
            Err(reason) => {
                let status = uint(result.api_error_status)
                    .and_then(|s| u16::try_from(s).ok())
                    .or(failure.as_ref().and_then(|f| f.status));
                let said = failure
                    .map(|f| f.text)
                    .or_else(|| text(result.result).map(Into::into))
                    .filter(|t: &String| !t.is_empty())
                    .unwrap_or_else(|| errors.join("; "));
                Ending::Failed(self.error(&reason, status, &said))
            }
        };
        self.finish_turn(ending, out);
    }

    /// Answers the prompt that runs, and sends the next one. Calls are closed before.
    pub(super) fn finish_turn(&mut self, ending: Ending, out: &mut Actions) {
        let Some(turn) = self.turns.current.take() else { return };
        out.push(Action::ClearTimer(Timer::Cancel));
        out.push(Action::ClearTimer(Timer::Settle));
        self.tell_plan(out);
        self.streams.turn_over(|parent| self.tools.is_open(parent));
        let line = match ending {
            // However a cancelled turn ends, it is answered as cancelled (acp.md, section 5, rule 49).
            _ if turn.cancel != Cancel::No => cancelled(&turn.id),
            Ending::Cancelled => cancelled(&turn.id),
            Ending::Stop(reason) => jsonrpc::response(&turn.id, &PromptResult { stop_reason: &reason }),
            Ending::Failed(error) => jsonrpc::error(&turn.id, &error),
        };
        out.near(line);
        if self.far.is_up() {
            if turn.cancel == Cancel::Signalled {
                self.leave(out);
            }
            self.pump(out);
        }
    }

    /// `usage_update`: told once the size of the context is known, which only a result says.
    fn usage(&mut self, result: &ResultLine<'_>, out: &mut Actions) {
        let Some(size) = context_window(result.model_usage, self.model.as_deref()) else { return };
        // Nothing is what agents behind `diglot claude` say that do not know it.
        let cost =
            float(result.total_cost_usd).filter(|amount| *amount > 0.0).map(|amount| Cost { amount, currency: "USD" });
        let used = self.context_used;
        if used == 0 {
            // Nothing was told of it.
            return;
        }
        out.update(&self.set.session_id, SessionUpdate::UsageUpdate { used, size, cost });
    }

    /// Token counts of an API call.
    pub(super) fn tokens(&mut self, raw: Raw<'_>, continues: bool) {
        let usage = Usage::read(raw);
        let input = [usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens]
            .into_iter()
            .filter_map(uint)
            .fold(0u64, u64::saturating_add);
        let output = uint(usage.output_tokens).unwrap_or(0);
        // The end of a message repeats only the output.
        match (continues, input) {
            (true, 0) => self.context_used = self.streams.input_tokens.saturating_add(output),
            _ => {
                self.streams.input_tokens = input;
                self.context_used = input.saturating_add(output);
            }
        }
    }
}

/// A turn that claude began by itself, whatever woke it: a background task that has ended, a channel, a timer.
fn is_unasked(origin: Raw<'_>) -> bool {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Origin<'a> {
        #[serde(borrow)]
        kind: Raw<'a>,
    }
    origin
        .filter(|raw| raw.get().starts_with('{'))
        .and_then(|raw| serde_json::from_str::<Origin<'_>>(raw.get()).ok())
        .and_then(|origin| text(origin.kind))
        .is_some_and(|kind| kind != "human")
}

/// The context window of the model that answered; without one, the largest.
fn context_window(model_usage: Raw<'_>, model: Option<&str>) -> Option<u64> {
    #[derive(Default, serde::Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Model {
        context_window: u64,
    }
    let all: std::collections::HashMap<String, Model> = serde_json::from_str(model_usage?.get()).ok()?;
    model
        .and_then(|m| all.get(m))
        .map(|m| m.context_window)
        .or_else(|| all.values().map(|m| m.context_window).max())
        .filter(|size| *size > 0)
}
