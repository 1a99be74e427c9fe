//! The queue, the turn, its end and its `result`.
//!
//! Owns what waits and what runs. Keeps: one `session/prompt` is outstanding at most, and the next goes out only after its
//! answer (quirk 44); one prompt gives one `result`, and it is the turn's last line but `idle` (rules 12 and 15); whatever
//! is open at the end is closed before it (rule 11, quirk 7).

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::ClaudeOverAcp;
use super::agent::Asked;
use super::calls::Call;
use super::calls::Status;
use super::render::{self, ToolUse};
use super::stream::{RESULT_LIMIT, fitting};
use crate::mappings::ToolUseAt;
use crate::translate::{Action, Actions, Stop, Timer};
use crate::wire::acp::methods;
use crate::wire::acp_client::{OfSession, Prompt, PromptBlock};
use crate::wire::jsonrpc::ErrorObject;
use crate::wire::stream_json_agent::{self as say, Usage};
use std::time::Duration;

/// An agent that has not ended its turn so long after a cancel is killed and its session resumed (quirk 40).
const CANCEL_LIMIT: Duration = Duration::from_secs(10);

/// What the model reads, and hosts look for, when a turn was interrupted.
pub(super) const INTERRUPTED: &str = "[Request interrupted by user]";

/// A prompt that waits.
#[derive(Debug)]
pub(super) struct Queued {
    /// The host's id of it, or ours.
    pub(super) uuid: String,
    /// What it says to the agent.
    pub(super) blocks: Vec<PromptBlock>,
    /// As the host wrote it; `None`: it is diglot's own.
    pub(super) message: Option<Box<RawValue>>,
}

/// A call and how far the host has seen it.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) call: Call,
    /// What the host was shown; empty: nothing yet.
    pub(super) uses: Vec<ToolUse>,
    pub(super) closed: bool,
    /// What the model was told in place of a result.
    pub(super) refusal: Option<String>,
    /// A permission question about it was open, or is.
    pub(super) asked: bool,
    /// Its `PreToolUse` hooks have run, or do.
    pub(super) hooked: bool,
}

/// How the agent's work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finish {
    /// It said so.
    Stop(String),
    /// It answered with an error.
    Error(ErrorObject),
    /// Its process is gone.
    Died(String),
    /// More rounds than `--max-turns`.
    MaxTurns(u64),
    /// More money than `--max-budget-usd`.
    Budget,
    /// Nothing was asked of it: a hook stopped the prompt.
    Blocked,
    /// A host's schema could not be met.
    NoSchema(String),
}

/// The turn that runs.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) uuid: String,
    /// What the agent is asked; taken when it is sent.
    pub(super) blocks: Vec<PromptBlock>,
    /// `session/prompt` is outstanding.
    pub(super) prompting: bool,
    started_ms: u64,
    /// Model messages so far.
    rounds: u64,
    pub(super) calls_since_message: bool,
    /// What comes next is another model request's: after a prompt, and after calls.
    pub(super) fresh: bool,
    /// The host or the user interrupted it.
    pub(super) interrupted: bool,
    /// `session/cancel` was sent.
    cancelled: bool,
    /// Why diglot itself stops it.
    pub(super) stopping: Option<Finish>,
    pub(super) finish: Option<Finish>,
    pub(super) calls: Vec<Tracked>,
    pub(super) denials: Vec<Value>,
    /// The text since the last call.
    pub(super) text: String,
    /// The agent said or did something.
    pub(super) spoke: bool,
    pub(super) usage: Option<Usage>,
    /// A permission was refused in it.
    pub(super) refused: bool,
    /// How often a stop hook sent it on.
    pub(super) stop_hooks: u32,
    /// How often the model was asked to mend its structured output.
    pub(super) mended: u32,
    pub(super) structured: Option<Value>,
    /// The plan that was shown last.
    plan: Option<Value>,
}

impl Turn {
    fn new(queued: Queued, now: u64) -> Self {
        Self {
            uuid: queued.uuid,
            blocks: queued.blocks,
            prompting: false,
            started_ms: now,
            rounds: 0,
            calls_since_message: false,
            fresh: true,
            interrupted: false,
            cancelled: false,
            stopping: None,
            finish: None,
            calls: Vec::new(),
            denials: Vec::new(),
            text: String::new(),
            spoke: false,
            usage: None,
            refused: false,
            stop_hooks: 0,
            mended: 0,
            structured: None,
            plan: None,
        }
    }

    /// A piece of the answer, as `result` repeats it.
    pub(super) fn answer(&mut self, piece: &str) {
        if self.text.len() < RESULT_LIMIT {
            self.text.push_str(piece);
        }
    }

    /// A model message begins.
    pub(super) fn message_begins(&mut self) {
        // Another message of the same answer is no other round (quirks 33 and 34).
        if std::mem::take(&mut self.fresh) {
            self.rounds += 1;
        }
        self.calls_since_message = false;
        self.text.clear();
    }

    pub(super) fn tracked(&mut self, id: &str) -> &mut Tracked {
        let at = match self.calls.iter().position(|t| t.call.id == id) {
            Some(at) => at,
            None => {
                let call = Call::new(id);
                self.calls.push(Tracked {
                    call,
                    uses: Vec::new(),
                    closed: false,
                    refusal: None,
                    asked: false,
                    hooked: false,
                });
                self.calls.len() - 1
            }
        };
        &mut self.calls[at]
    }
}

impl ClaudeOverAcp {
    /// Starts the next turn if nothing is in the way.
    pub(super) fn next_turn(&mut self, out: &mut Actions) {
        // A mode or a model that was asked for is in force before the next prompt.
        if self.turn.is_some() || !self.agent.is_ready() || self.agent.barrier || self.agent.settings_wait() {
            return;
        }
        let Some(queued) = self.queue.pop_front() else {
            if self.host.closed && self.agent.is_ready() && self.host.initialize.is_none() {
                self.exit(out);
            }
            return;
        };
        let now = self.set.clock.now_ms();
        self.state("running", out);
        self.init_line(out);
        if self.set.options.replay
            && let Some(message) = &queued.message
        {
            out.near(say::replay(message, &self.set.session_id, &queued.uuid));
        }
        self.stray_text(out);
        self.turn = Some(Turn::new(queued, now));
        self.prompt_hooks(out);
    }

    /// Sends the prompt: the hooks have let it pass.
    pub(super) fn send_prompt(&mut self, out: &mut Actions) {
        let Some(turn) = &mut self.turn else { return };
        if turn.interrupted {
            turn.finish = Some(Finish::Stop("cancelled".into()));
            return self.settled(out);
        }
        let mut blocks = std::mem::take(&mut turn.blocks);
        // An empty prompt wedges Gemini (quirk 48): it is answered here.
        let says_nothing = |b: &PromptBlock| matches!(b, PromptBlock::Text { text } if text.trim().is_empty());
        if blocks.iter().all(says_nothing) {
            turn.finish = Some(Finish::Blocked);
            return self.settled(out);
        }
        blocks.retain(|b| !says_nothing(b));
        if let Some(preamble) = self.agent.preamble.take() {
            blocks.insert(0, PromptBlock::Text { text: preamble });
        }
        let Some(session_id) = self.agent.session_id.clone() else { return };
        if let Some(turn) = &mut self.turn {
            turn.prompting = true;
            turn.fresh = true;
        }
        let params = Prompt { session_id: &session_id, prompt: &blocks };
        self.ask_agent(methods::SESSION_PROMPT, &params, Asked::Prompt, out);
    }

    /// The agent answered the prompt.
    pub(super) fn prompted(&mut self, finish: Finish, out: &mut Actions) {
        out.push(Action::ClearTimer(Timer::Cancel));
        let Some(turn) = &mut self.turn else { return };
        turn.prompting = false;
        turn.finish = Some(turn.stopping.take().unwrap_or(finish));
        // What still comes belongs to this turn (quirk 42).
        match self.set.profile.acp.settle_ms {
            0 => self.settled(out),
            wait => out.push(Action::SetTimer(Timer::Settle, Duration::from_millis(wait))),
        }
    }

    /// Nothing more comes of the turn: stop hooks may send it on, else it ends.
    pub(super) fn settled(&mut self, out: &mut Actions) {
        out.push(Action::ClearTimer(Timer::Settle));
        let Some(turn) = &self.turn else { return };
        if turn.finish.is_none() || turn.prompting {
            return;
        }
        self.refuse_questions("the turn ended before an answer came", out);
        self.end_commands(out);
        self.close_calls("the agent said nothing of its end", out);
        self.end_message("end_turn", out);
        if self.mend_structured_output(out) || self.stop_hooks(out) {
            return;
        }
        self.end_turn(out);
    }

    /// Writes the `result`.
    pub(super) fn end_turn(&mut self, out: &mut Actions) {
        // It may have asked while a hook held the prompt or the end.
        self.refuse_questions("the turn ended before an answer came", out);
        self.close_calls("the turn ended", out);
        self.end_commands(out);
        self.end_message("end_turn", out);
        let now = self.set.clock.now_ms();
        let Some(turn) = self.turn.take() else { return };
        let finish = turn.finish.clone().unwrap_or(Finish::Stop("end_turn".into()));
        let verdict = self.verdict(&turn, finish, out);
        self.failed = verdict.is_error && !(turn.interrupted && self.signalled);
        let line = self.result_line(&turn, verdict, now);
        out.near(line);
        self.agent.turns += 1;
        self.state("idle", out);
        let wait = self.set.profile.acp.cancel_barrier_ms;
        if turn.cancelled && wait > 0 {
            self.agent.barrier = true;
            out.push(Action::SetTimer(Timer::Barrier, Duration::from_millis(wait)));
        }
        self.next_turn(out);
    }

    pub(super) fn barrier_over(&mut self, out: &mut Actions) {
        self.agent.barrier = false;
        self.next_turn(out);
    }

    /// What the turn comes to.
    fn verdict(&mut self, turn: &Turn, finish: Finish, out: &mut Actions) -> Verdict {
        if turn.interrupted {
            let uuid = self.uuid();
            let tools = turn.calls_since_message;
            let said = if tools { "[Request interrupted by user for tool use]" } else { INTERRUPTED };
            out.near(say::user_text(said, &self.set.session_id, &uuid));
            let reason = if tools { "aborted_tools" } else { "aborted_streaming" };
            return Verdict::failed("error_during_execution", said.to_owned(), reason);
        }
        match finish {
            Finish::Stop(reason) => self.stopped(turn, &reason),
            Finish::Blocked => Verdict::success(String::new(), None),
            Finish::MaxTurns(most) => {
                let said = format!("Reached maximum number of turns ({most})");
                Verdict::failed("error_max_turns", said, "max_turns")
            }
            Finish::Budget => {
                let most = self.set.options.max_budget_usd.unwrap_or_default();
                Verdict::failed("error_max_budget_usd", format!("Reached maximum budget (${most})"), "budget")
            }
            Finish::NoSchema(why) => {
                Verdict::failed("error_max_structured_output_retries", why, "structured_output_retries")
            }
            Finish::Died(how) => Verdict::failed("error_during_execution", how, "error"),
            Finish::Error(error) => {
                let login = self.needs_login(&error);
                let said = match &login {
                    Some(how) => format!("{} · {how}", error.message),
                    None => format!("API Error: {}", describe(&error)),
                };
                self.say_whole(&said, login.map(|_| "authentication_failed"), out);
                Verdict { is_error: true, ..Verdict::success(said, Some("stop_sequence")) }
            }
        }
    }

    fn stopped(&self, turn: &Turn, reason: &str) -> Verdict {
        let text = turn.text.clone();
        match reason {
            "max_tokens" => Verdict::success(text, Some("max_tokens")),
            "refusal" => Verdict { is_error: true, ..Verdict::success(text, Some("refusal")) },
            "max_turn_requests" => Verdict::failed(
                "error_max_turns",
                "the agent reached its own limit of model requests".into(),
                "max_turns",
            ),
            // Not asked for: the agent's way of ending a turn in which a call was refused (quirk 8), or the echo of an earlier
            // turn (quirk 9).
            "cancelled" if turn.refused || self.set.profile.acp.stale_cancelled || turn.spoke => {
                Verdict::success(text, Some("end_turn"))
            }
            "cancelled" => {
                Verdict::failed("error_during_execution", "the agent cancelled the turn by itself".into(), "error")
            }
            // A failure of the model's that the agent keeps to itself (quirk 36).
            _ if !turn.spoke && self.agent.turns_are_silent() => Verdict::failed(
                "error_during_execution",
                format!(
                    "{} ended the turn without a word; its model may have failed: look at its own log",
                    self.set.profile.title
                ),
                "error",
            ),
            _ => Verdict::success(text, Some("end_turn")),
        }
    }

    fn result_line(&mut self, turn: &Turn, verdict: Verdict, now: u64) -> Vec<u8> {
        let duration = now.saturating_sub(turn.started_ms);
        let usage = turn.usage.unwrap_or_default();
        let model = self.agent.model();
        let mut rounds = turn.rounds.max(1);
        if let (Some(most), false) = (self.set.options.max_turns, verdict.is_error) {
            // A host fails a run that had more (rule 12).
            rounds = rounds.min(most.max(1));
        }
        let mut line = json!({
            "type": "result",
            "subtype": verdict.subtype,
            "is_error": verdict.is_error,
            "duration_ms": duration,
            "duration_api_ms": duration,
            "num_turns": rounds,
            "session_id": self.set.session_id,
            "total_cost_usd": self.cost_usd,
            "usage": usage,
            "modelUsage": {},
            "permission_denials": turn.denials,
            "stop_reason": verdict.stop_reason,
            "terminal_reason": verdict.terminal_reason,
            "user_message_uuids": [turn.uuid],
            "uuid": self.uuid(),
        });
        if usage != Usage::default() {
            let size = self.context.map_or(200_000, |(_, size)| size);
            line["modelUsage"][&model] = json!({
                "inputTokens": usage.input_tokens,
                "outputTokens": usage.output_tokens,
                "cacheReadInputTokens": usage.cache_read_input_tokens,
                "cacheCreationInputTokens": usage.cache_creation_input_tokens,
                "webSearchRequests": 0,
                "costUSD": self.cost_usd,
                "contextWindow": size,
            });
        }
        match verdict.errors {
            Some(errors) => line["errors"] = json!(errors),
            None => line["result"] = json!(&verdict.result[..fitting(&verdict.result, RESULT_LIMIT)]),
        }
        if let Some(structured) = &turn.structured {
            line["structured_output"] = structured.clone();
        }
        crate::wire::jsonrpc::to_line(&line)
    }

    /// A member of a turn's calls changed.
    pub(super) fn call_changed(&mut self, update: &RawValue, id: &str, asks: bool, out: &mut Actions) {
        let at = self.set.profile.acp.tool_use_at;
        if self.turn.as_ref().is_some_and(|t| !t.calls.iter().any(|c| c.call.id == id)) && self.over_the_limit(out) {
            return;
        }
        let Some(turn) = &mut self.turn else {
            out.note("a call outside of a turn is not shown");
            return;
        };
        let tracked = turn.tracked(id);
        if tracked.closed {
            return;
        }
        tracked.call.merge(update);
        tracked.asked |= asks;
        self.fill_terminals(id);
        let Some(turn) = &mut self.turn else { return };
        let tracked = turn.tracked(id);
        let known = match (tracked.call.status, at) {
            (Status::Completed | Status::Failed, _) => true,
            (Status::InProgress, ToolUseAt::InProgress) => tracked.call.has_input(),
            _ => false,
        };
        if known || asks {
            self.show_call(id, out);
        }
        self.close_if_done(id, out);
    }

    /// Shows a call to the host, once.
    pub(super) fn show_call(&mut self, id: &str, out: &mut Actions) {
        let servers = self.server_names();
        let cwd = self.set.cwd.clone();
        let Some(turn) = &mut self.turn else { return };
        let tracked = turn.tracked(id);
        if !tracked.uses.is_empty() {
            return;
        }
        let context = render::Context { cwd: &cwd, mcp_servers: &servers };
        tracked.uses = render::tool_uses(&tracked.call, &context);
        let (uses, asked) = (tracked.uses.clone(), tracked.asked);
        for one in &uses {
            self.call(one, out);
        }
        if !asked && !self.set.profile.acp.asks_in_progress {
            self.hooks_of_running_call(id, &uses, out);
        }
    }

    /// Gives a call its result if it has ended.
    pub(super) fn close_if_done(&mut self, id: &str, out: &mut Actions) {
        let Some(turn) = &mut self.turn else { return };
        let tracked = turn.tracked(id);
        if tracked.closed || tracked.uses.is_empty() {
            return;
        }
        if !matches!(tracked.call.status, Status::Completed | Status::Failed) {
            return;
        }
        tracked.closed = true;
        let results = match &tracked.refusal {
            // What the model was really told counts, not how the agent words a refusal.
            Some(refusal) => vec![refused(refusal); tracked.uses.len()],
            None => render::results(&tracked.call, &tracked.uses),
        };
        let (uses, hooked) = (tracked.uses.clone(), tracked.hooked);
        if !hooked {
            self.hooks_of_running_call(id, &uses, out);
        }
        self.results(&uses, &results, out);
        self.hooks_after_call(&uses, &results, out);
    }

    fn results(&mut self, uses: &[ToolUse], results: &[render::ToolResult], out: &mut Actions) {
        self.end_message_of_calls(out);
        for (one, result) in uses.iter().zip(results) {
            let uuid = self.uuid();
            out.near(say::tool_result(
                &one.id,
                &result.content,
                result.is_error,
                result.structured.as_ref(),
                &self.set.session_id,
                &uuid,
            ));
        }
    }

    /// Every call gets its result (rule 11).
    pub(super) fn close_calls(&mut self, why: &str, out: &mut Actions) {
        let Some(turn) = &self.turn else { return };
        let open: Vec<String> = turn.calls.iter().filter(|t| !t.closed).map(|t| t.call.id.clone()).collect();
        for id in open {
            self.show_call(&id, out);
            let Some(turn) = &mut self.turn else { return };
            let interrupted = turn.interrupted;
            let tracked = turn.tracked(&id);
            if tracked.closed {
                continue;
            }
            tracked.closed = true;
            let said = match (&tracked.refusal, interrupted) {
                (Some(refusal), _) => refusal.clone(),
                (None, true) => "The user interrupted the call.".to_owned(),
                (None, false) => format!("The call did not report a result: {why}."),
            };
            let uses = tracked.uses.clone();
            self.results(&uses, &vec![refused(&said); uses.len()], out);
        }
    }

    /// A plan: shown as `TodoWrite`, when it changed.
    pub(super) fn plan(&mut self, todos: Value, out: &mut Actions) {
        let Some(turn) = &mut self.turn else { return };
        if turn.plan.as_ref() == Some(&todos) {
            return;
        }
        turn.plan = Some(todos.clone());
        let mut input = Map::new();
        input.insert("todos".into(), todos);
        let id = format!("toolu_{}", self.uuid().replace('-', ""));
        let call = ToolUse { id, name: "TodoWrite".into(), input, cut: false };
        // A plan is no answer: the text before it stays the result's.
        let text = self.turn.as_ref().map(|t| t.text.clone());
        self.call(&call, out);
        if let (Some(turn), Some(text)) = (&mut self.turn, text) {
            turn.text = text;
        }
        let content = "Todos have been modified successfully.".to_owned();
        let result = render::ToolResult { content, is_error: false, structured: None };
        self.results(&[call], &[result], out);
    }

    /// `--max-turns`: a model message more than it allows.
    ///
    /// True: what comes now would be the first of such a message, and the turn was stopped.
    pub(super) fn over_the_limit(&mut self, out: &mut Actions) -> bool {
        let (Some(most), Some(turn)) = (self.set.options.max_turns, &self.turn) else { return false };
        let begins = turn.fresh && !self.stream.is_in_calls();
        let over = begins && turn.rounds >= most;
        if over {
            self.stop_turn(Finish::MaxTurns(most), out);
        }
        over
    }

    /// `--max-budget-usd`.
    pub(super) fn limit_budget(&mut self, out: &mut Actions) {
        if let Some(most) = self.set.options.max_budget_usd
            && self.cost_usd > most
        {
            self.stop_turn(Finish::Budget, out);
        }
    }

    /// diglot itself ends the turn.
    pub(super) fn stop_turn(&mut self, why: Finish, out: &mut Actions) {
        let Some(turn) = &mut self.turn else { return };
        if turn.stopping.is_some() || turn.interrupted || turn.finish.is_some() {
            return;
        }
        if !turn.prompting {
            // A hook still holds the prompt: it is not sent.
            turn.finish = Some(why);
            self.forget_host_asks_of_turn(out);
            return self.settled(out);
        }
        turn.stopping = Some(why);
        self.cancel_agent(out);
    }

    /// The host interrupts. Says which prompts still wait.
    pub(super) fn interrupt(&mut self, cancel_queued: bool, out: &mut Actions) -> Vec<String> {
        if cancel_queued {
            self.queue.clear();
        }
        let waiting = self.queue.iter().map(|q| q.uuid.clone()).collect();
        if let Some(turn) = &mut self.turn
            && !turn.interrupted
        {
            turn.interrupted = true;
            let (prompting, finished) = (turn.prompting, turn.finish.is_some());
            self.forget_host_asks_of_turn(out);
            if prompting {
                self.cancel_agent(out);
            } else if finished {
                self.settled(out);
            } else {
                self.send_prompt(out);
            }
        }
        waiting
    }

    /// Tells the agent to stop: every question of its own is answered first, or two of them would wait for ever (quirk 18).
    fn cancel_agent(&mut self, out: &mut Actions) {
        self.cancel_questions(out);
        self.cancel_client(out);
        if let Some(turn) = &mut self.turn {
            turn.cancelled = true;
        }
        let Some(session_id) = self.agent.session_id.clone() else { return };
        let params = OfSession { session_id: &session_id };
        out.far(crate::wire::jsonrpc::notification(methods::SESSION_CANCEL, &params));
        out.push(Action::SetTimer(Timer::Cancel, CANCEL_LIMIT));
    }

    /// It did not stop: its process is killed and the session resumed by the next prompt.
    pub(super) fn cancel_timed_out(&mut self, out: &mut Actions) {
        if self.turn.as_ref().is_some_and(|t| t.prompting) {
            out.note("the agent did not stop after a cancel; it is killed");
            out.push(Action::StopFar(Stop::Kill));
        }
    }
}

/// The result of a call that did not run, or of which nobody knows.
fn refused(why: &str) -> render::ToolResult {
    render::ToolResult { content: why.to_owned(), is_error: true, structured: None }
}

/// The end of a turn as `result` says it.
struct Verdict {
    subtype: &'static str,
    is_error: bool,
    result: String,
    errors: Option<[String; 1]>,
    stop_reason: Option<&'static str>,
    terminal_reason: &'static str,
}

impl Verdict {
    fn success(result: String, stop_reason: Option<&'static str>) -> Self {
        Self { subtype: "success", is_error: false, result, errors: None, stop_reason, terminal_reason: "completed" }
    }

    fn failed(subtype: &'static str, why: String, terminal_reason: &'static str) -> Self {
        // Without `errors` a host loses the message and dies of it (rule 6).
        Self { subtype, is_error: true, result: String::new(), errors: Some([why]), stop_reason: None, terminal_reason }
    }
}

/// An agent's error with its code and what it adds.
pub(super) fn describe(error: &ErrorObject) -> String {
    match error.message.as_str() {
        "" => format!("error {}", error.code),
        message => format!("{message} ({})", error.code),
    }
}
