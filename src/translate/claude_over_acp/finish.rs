//! How a turn ended, and the `result` that says so.
//!
//! Keeps: every ending is told in the words of the real one (`subtype`, `terminal_reason`), with `errors` where it is one
//! (rules 6 and 12).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::ClaudeOverAcp;
use super::answer::tell;
use super::stream::RESULT_LIMIT;
use super::turn::Turn;
use crate::translate::Actions;
use crate::wire::jsonrpc::{ErrorObject, to_line};
use crate::wire::long::Text;
use crate::wire::stream_json_agent::{self as say, Usage};

/// What the model reads, and hosts look for, when a turn was interrupted.
pub(super) const INTERRUPTED: &str = "[Request interrupted by user]";

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
    /// Nothing was asked of it: a hook stopped the prompt, or it was empty. What the result says.
    Blocked(String),
    /// A hook ended the turn.
    HookStopped,
    /// A host's schema could not be met.
    NoSchema(String),
}

impl ClaudeOverAcp {
    /// What the turn comes to.
    pub(super) fn verdict(&mut self, turn: &Turn, finish: Finish, out: &mut Actions) -> Verdict {
        let tools = turn.calls_since_message;
        let aborted = if tools { "aborted_tools" } else { "aborted_streaming" };
        if turn.preempted {
            let text = if tools { Arc::default() } else { turn.answer.text() };
            let stop_reason = tools.then_some("tool_use");
            return Verdict { terminal_reason: Some(aborted), ..Verdict::success(text, stop_reason) };
        }
        if turn.interrupted {
            let uuid = self.uuid();
            let said = if tools { "[Request interrupted by user for tool use]" } else { INTERRUPTED };
            out.near(say::user_text(said, &self.set.session_id, &uuid));
            return Verdict::failed("error_during_execution", said.to_owned(), aborted);
        }
        match finish {
            Finish::Stop(_) if turn.hook_ended => Verdict {
                terminal_reason: Some("stop_hook_prevented"),
                ..Verdict::success(turn.answer.text(), Some("end_turn"))
            },
            Finish::Stop(reason) => self.stopped(turn, &reason),
            Finish::Blocked(said) => Verdict::without_query(said),
            Finish::HookStopped => Verdict {
                terminal_reason: Some("hook_stopped"),
                ..Verdict::success(Arc::default(), tools.then_some("tool_use"))
            },
            Finish::MaxTurns(most) => {
                let said = format!("Reached maximum number of turns ({most})");
                Verdict::failed("error_max_turns", said, "max_turns")
            }
            Finish::Budget => {
                let most = self.set.options.max_budget_usd.unwrap_or_default();
                Verdict::failed("error_max_budget_usd", format!("Reached maximum budget (${most})"), "budget_exhausted")
            }
            Finish::NoSchema(why) => {
                Verdict::failed("error_max_structured_output_retries", why, "structured_output_retry_exhausted")
            }
            Finish::Died(how) => Verdict::failed("error_during_execution", how, "model_error"),
            Finish::Error(error) => {
                let login = self.needs_login(&error);
                let said = match &login {
                    Some(how) => format!("{} · {how}", error.message),
                    None => format!("API Error: {}", describe(&error)),
                };
                self.say_whole(&said, login.map(|_| "authentication_failed"), out);
                // Gemini's are HTTP's.
                let status = u64::try_from(error.code).ok().filter(|code| (400..600).contains(code));
                Verdict {
                    is_error: true,
                    api_error_status: status,
                    terminal_reason: Some("api_error"),
                    ..Verdict::success(whole(said), Some("stop_sequence"))
                }
            }
        }
    }

    fn stopped(&self, turn: &Turn, reason: &str) -> Verdict {
        let text = turn.answer.text();
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
            "cancelled" => Verdict::failed(
                "error_during_execution",
                "the agent cancelled the turn by itself".into(),
                "aborted_streaming",
            ),
            // A failure of the model's that the agent keeps to itself (quirk 36).
            _ if !turn.spoke && self.agent.turns_are_silent() => Verdict::failed(
                "error_during_execution",
                format!(
                    "{} ended the turn without a word; its model may have failed: look at its own log",
                    self.set.profile.title
                ),
                "model_error",
            ),
            _ => Verdict::success(text, Some("end_turn")),
        }
    }

    /// Writes the `result`.
    pub(super) fn tell_result(&mut self, turn: &Turn, verdict: Verdict, now: u64, out: &mut Actions) {
        let duration = now.saturating_sub(turn.started_ms);
        let usage = turn.usage.unwrap_or_default();
        let model = self.agent.model();
        let mut rounds = if verdict.asked { turn.rounds.max(1) } else { 0 };
        if let (Some(most), false) = (self.set.options.max_turns, verdict.is_error) {
            // A host fails a run that had more (rule 12).
            rounds = rounds.min(most.max(1));
        }
        self.spent.add(&model, usage, self.cost_usd);
        // 0: the agent does not tell.
        let size = self.context.map_or(0, |(_, size)| size);
        let uuid = self.uuid();
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
            "modelUsage": self.spent.by_model(size),
            "permission_denials": turn.denials,
            "stop_reason": verdict.stop_reason,
            "terminal_reason": verdict.terminal_reason,
            "user_message_uuids": [turn.uuid],
            "uuid": uuid,
        });
        if let (None, Some(members)) = (verdict.terminal_reason, line.as_object_mut()) {
            members.remove("terminal_reason");
        }
        if let Some(status) = verdict.api_error_status {
            line["api_error_status"] = status.into();
        }
        let with = |member: &str, said: Value| {
            let mut line = line.clone();
            line[member] = said;
            if let Some(structured) = &turn.structured {
                line["structured_output"] = structured.clone();
            }
            to_line(&line)
        };
        if let Some(errors) = verdict.errors {
            return out.near(with("errors", json!(errors)));
        }
        let used = verdict.result.fitting(RESULT_LIMIT);
        let with = |result: &str| with("result", result.into());
        tell(&verdict.result, used, &uuid, with, out);
    }
}

fn whole(text: String) -> Arc<Text> {
    Arc::new(text.into())
}

/// The end of a turn as `result` says it.
pub(super) struct Verdict {
    pub(super) is_error: bool,
    subtype: &'static str,
    result: Arc<Text>,
    errors: Option<[String; 1]>,
    stop_reason: Option<&'static str>,
    /// None: nothing was asked of the agent.
    terminal_reason: Option<&'static str>,
    /// The status of the model's API, where the agent tells it.
    api_error_status: Option<u64>,
    /// The agent was asked something.
    asked: bool,
}

impl Verdict {
    fn success(result: Arc<Text>, stop_reason: Option<&'static str>) -> Self {
        Self {
            is_error: false,
            subtype: "success",
            result,
            errors: None,
            stop_reason,
            terminal_reason: Some("completed"),
            api_error_status: None,
            asked: true,
        }
    }

    /// The agent was not asked.
    pub(super) fn without_query(result: String) -> Self {
        Self { terminal_reason: None, asked: false, ..Self::success(whole(result), None) }
    }

    fn failed(subtype: &'static str, why: String, terminal_reason: &'static str) -> Self {
        Self {
            is_error: true,
            subtype,
            // Without `errors` a host loses the message and dies of it (rule 6).
            errors: Some([why]),
            terminal_reason: Some(terminal_reason),
            ..Self::success(Arc::default(), None)
        }
    }
}

/// What the session has used so far, model by model: `result` tells the sum of all turns.
#[derive(Debug, Default)]
pub(super) struct Spent {
    models: BTreeMap<String, (Usage, f64)>,
    /// The cost that was given to a model.
    counted: f64,
}

impl Spent {
    fn add(&mut self, model: &str, usage: Usage, cost: f64) {
        let more = cost - self.counted;
        if usage == Usage::default() && more <= 0.0 {
            return;
        }
        self.counted = cost;
        let (sum, spent) = self.models.entry(model.to_owned()).or_default();
        *sum += usage;
        *spent += more;
    }

    fn by_model(&self, size: u64) -> Value {
        let one = |(model, (usage, cost)): (&String, &(Usage, f64))| {
            let used = json!({
                "inputTokens": usage.input_tokens,
                "outputTokens": usage.output_tokens,
                "cacheReadInputTokens": usage.cache_read_input_tokens,
                "cacheCreationInputTokens": usage.cache_creation_input_tokens,
                "webSearchRequests": 0,
                "costUSD": cost,
                "contextWindow": size,
            });
            (model.clone(), used)
        };
        Value::Object(self.models.iter().map(one).collect())
    }
}

/// An agent's error with its code and what it adds.
pub(super) fn describe(error: &ErrorObject) -> String {
    match error.message.as_str() {
        "" => format!("error {}", error.code),
        message => format!("{message} ({})", error.code),
    }
}
