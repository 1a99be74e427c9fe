//! The host's hooks: around calls, prompts and turns.
//!
//! Owns which hooks there are and which run. Keeps: a hook that fails, does not answer in time or is unknown has no opinion,
//! and the work goes on (report 77); a hook can only hold up a call that the agent asks about: that it came too late for
//! another one is said once, and a denial then stops the turn.

use std::time::Duration;

use regex_lite::Regex;
use serde_json::{Map, Value, json};

use super::ClaudeOverAcp;
use super::finish::Finish;
use super::host::About;
use super::permission::{Allowed, Why};
use super::render::{ToolResult, ToolUse};
use super::stream::RESULT_LIMIT;
use super::turn::Turn;
use crate::translate::{Action, Actions, Timer};
use crate::wire::acp_client::PromptBlock;
use crate::wire::stream_json_agent::{self as say, HookOutput, HostAnswer};
use crate::wire::text::{Raw, boolean, read, text};

/// How long a hook may take when the host does not say.
const LIMIT: Duration = Duration::from_secs(60);

/// How often stop hooks may send a turn on: as often as the real one lets them.
const STOPS: u32 = 9;

#[derive(Debug, Default)]
pub(super) struct Hooks {
    known: Vec<Hook>,
    runs: Vec<Run>,
    count: u32,
    /// What they want the agent to know, until it is told something.
    context: Vec<String>,
    /// `SessionStart` is running: what it says belongs to the first prompt.
    pub(super) starting: bool,
    /// It was said that calls which are not asked about cannot be held up.
    told: bool,
}

impl Hooks {
    /// What the agent is to know with its next prompt.
    pub(super) fn take_context(&mut self) -> impl Iterator<Item = String> {
        std::mem::take(&mut self.context).into_iter()
    }

    fn add_context(&mut self, name: &str, said: &[String]) {
        self.context.extend(said.iter().map(|said| format!("{name} hook additional context: {said}")));
    }
}

#[derive(Debug)]
struct Hook {
    event: String,
    matcher: Matcher,
    callbacks: Vec<String>,
    limit: Duration,
    /// `onFailure: block`: one that fails denies.
    blocks: bool,
}

#[derive(Debug)]
enum Matcher {
    All,
    Names(Vec<String>),
    Pattern(Regex),
}

impl Matcher {
    fn new(text: &str) -> Self {
        if text.is_empty() || text == "*" {
            return Self::All;
        }
        if text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '|' | '-')) {
            return Self::Names(text.split('|').map(ToOwned::to_owned).collect());
        }
        // One that cannot be read must not let anything past its hook.
        Regex::new(text).map_or(Self::All, Self::Pattern)
    }

    fn fits(&self, name: Option<&str>) -> bool {
        match (self, name) {
            (Self::All, _) | (_, None) => true,
            (Self::Names(names), Some(name)) => names.iter().any(|n| n == name),
            (Self::Pattern(pattern), Some(name)) => pattern.is_match(name),
        }
    }
}

/// Hooks that were asked together.
#[derive(Debug)]
struct Run {
    number: u32,
    /// The host's requests that wait.
    waiting: Vec<String>,
    then: Then,
    verdict: Verdict,
    /// What fails denies.
    blocks: bool,
    /// The event, and the tool.
    name: String,
    /// The input of the call, if it is about one.
    input: Option<Value>,
}

/// What goes on after them.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Then {
    /// A permission question is decided.
    Question(u64),
    /// `PermissionRequest`: the host is asked in the usual way if they do not decide.
    Request(u64),
    /// A call that nobody asked about is running.
    Running { turn: String, call: String },
    /// The prompt goes out.
    Prompt,
    /// The turn ends.
    Stop,
    /// The first prompt goes out.
    Start,
    /// A call has ended in this turn.
    After { turn: String },
    /// Nothing.
    Nothing,
}

/// What they said together; the strictest counts.
#[derive(Debug, Default)]
struct Verdict {
    denied: Option<String>,
    /// The turn is to end.
    stops: bool,
    asks: Option<String>,
    allowed: bool,
    context: Vec<String>,
}

impl ClaudeOverAcp {
    /// `initialize.hooks`.
    pub(super) fn read_hooks(&mut self, raw: Raw<'_>, out: &mut Actions) {
        let hooks: Map<String, Value> = read(raw).unwrap_or_default();
        let mut silent = Vec::new();
        for (event, matchers) in hooks {
            for matcher in matchers.as_array().into_iter().flatten() {
                let ids = matcher.get("hookCallbackIds").and_then(Value::as_array);
                let callbacks: Vec<String> =
                    ids.into_iter().flatten().filter_map(|i| i.as_str().map(ToOwned::to_owned)).collect();
                let pattern = matcher.get("matcher").and_then(Value::as_str).unwrap_or_default();
                let seconds = matcher.get("timeout").and_then(Value::as_f64).filter(|s| s.is_finite() && *s > 0.0);
                let limit = seconds.map_or(LIMIT, |s| Duration::from_secs_f64(s.min(86_400.0)));
                let blocks = matcher.get("onFailure").and_then(Value::as_str) == Some("block");
                let matcher = Matcher::new(pattern);
                if matches!(matcher, Matcher::All) && !matches!(pattern, "" | "*") {
                    out.push(Action::Warn(format!(
                        "Warning: the hook matcher {pattern:?} cannot be read; it is taken for every tool"
                    )));
                }
                self.hooks.known.push(Hook { event: event.clone(), matcher, callbacks, limit, blocks });
            }
            if !KNOWN.contains(&event.as_str()) {
                silent.push(event);
            }
        }
        if !silent.is_empty() {
            out.push(Action::Warn(format!(
                "Warning: hooks of {} never run: {} does not tell of such events",
                silent.join(", "),
                self.set.profile.title
            )));
        }
    }

    /// Asks the hooks of an event; false: there are none.
    fn run_hooks(&mut self, event: &str, one: Option<&ToolUse>, more: Value, then: Then, out: &mut Actions) -> bool {
        if self.host.closed {
            return false;
        }
        let name = one.map(|o| o.name.as_str());
        let fitting = self.hooks.known.iter().filter(|h| h.event == event && h.matcher.fits(name));
        let mut blocks = false;
        let calls: Vec<(String, Duration)> = fitting
            .flat_map(|h| {
                blocks |= h.blocks;
                h.callbacks.iter().map(|c| (c.clone(), h.limit))
            })
            .collect();
        if calls.is_empty() {
            return false;
        }
        self.hooks.count += 1;
        let number = self.hooks.count;
        let mut input = json!({
            "session_id": self.set.session_id,
            "transcript_path": "",
            "cwd": self.set.cwd,
            "permission_mode": super::word(self.told_mode()),
            "hook_event_name": event,
        });
        if let Some(one) = one {
            input["tool_name"] = one.name.as_str().into();
            input["tool_input"] = Value::Object(one.input.clone());
            input["tool_use_id"] = one.id.as_str().into();
        }
        if let Value::Object(more) = more {
            for (name, value) in more {
                input[name] = value;
            }
        }
        let limit = calls.iter().map(|(_, limit)| *limit).max().unwrap_or(LIMIT);
        let mut waiting = Vec::with_capacity(calls.len());
        for (callback, _) in calls {
            let request = json!({
                "subtype": "hook_callback", "callback_id": callback, "input": input,
                "tool_use_id": one.map(|o| o.id.as_str()),
            });
            waiting.push(self.ask_host(About::Hook(number), &request, out));
        }
        let shown = one.map(|o| Value::Object(o.input.clone()));
        let name = one.map_or_else(|| event.to_owned(), |o| format!("{event}:{}", o.name));
        self.hooks.runs.push(Run { number, waiting, then, verdict: Verdict::default(), blocks, name, input: shown });
        out.push(Action::SetTimer(Timer::Hook(number), limit));
        true
    }

    /// The host answered one of them.
    pub(super) fn hook_answered(
        &mut self,
        number: u32,
        id: &str,
        answer: Result<HostAnswer<'_>, String>,
        out: &mut Actions,
    ) {
        let Some(run) = self.hooks.runs.iter_mut().find(|r| r.number == number) else { return };
        run.waiting.retain(|w| w != id);
        match answer {
            Ok(answer) => run.verdict.add(&answer, run.input.as_ref()),
            Err(why) if run.blocks => run.verdict.denied = Some(format!("a hook failed: {why}")),
            Err(why) => out.note(format!("a hook has no opinion: {why}")),
        }
        if run.waiting.is_empty() {
            self.hooks_done(number, out);
        }
    }

    pub(super) fn hook_timed_out(&mut self, number: u32, out: &mut Actions) {
        let Some(run) = self.hooks.runs.iter_mut().find(|r| r.number == number) else { return };
        for id in std::mem::take(&mut run.waiting) {
            self.asks.retain(|a| a.id != id);
            out.near(say::withdraw(&id));
        }
        out.note("hooks did not answer in time");
        // Nobody said that the call is harmless.
        if let Some(run) = self.hooks.runs.iter_mut().find(|r| r.number == number)
            && (run.blocks || matches!(run.then, Then::Question(_)))
        {
            run.verdict.denied.get_or_insert_with(|| "a hook did not answer in time".to_owned());
        }
        self.hooks_done(number, out);
    }

    fn hooks_done(&mut self, number: u32, out: &mut Actions) {
        let Some(at) = self.hooks.runs.iter().position(|r| r.number == number) else { return };
        let Run { then, mut verdict, name, .. } = self.hooks.runs.remove(at);
        out.push(Action::ClearTimer(Timer::Hook(number)));
        if !matches!(then, Then::Prompt | Then::Stop) {
            self.hooks.add_context(&name, &std::mem::take(&mut verdict.context));
        }
        let stops = verdict.stops;
        match then {
            Then::Question(question) => match (verdict.denied, verdict.asks) {
                (Some(why), _) => {
                    self.refuse(question, &why, &Why::Hook, out);
                    self.stopped_by_hook(stops, out);
                }
                (None, Some(reason)) => {
                    self.hook_wants_question(question, reason);
                    self.decide_by_rules(question, None, out);
                }
                (None, None) if verdict.allowed => self.hook_allows(question, Allowed::ByHook, out),
                (None, None) => self.decide_by_rules(question, None, out),
            },
            Then::Request(question) => match verdict.denied {
                Some(why) => {
                    self.refuse(question, &why, &Why::Hook, out);
                    self.stopped_by_hook(stops, out);
                }
                None if verdict.allowed => self.hook_allows(question, Allowed::ByRequestHook, out),
                None => self.ask_can_use_tool(question, out),
            },
            Then::Running { turn, call } => {
                // One that comes after its turn concerns nobody.
                let of_this = self.turn.as_ref().is_some_and(|t| t.uuid == turn);
                if let Some(why) = verdict.denied.filter(|_| of_this) {
                    if let Some(turn) = &mut self.turn {
                        turn.tracked(&call).refusal = Some(why.clone());
                        turn.refused = true;
                    }
                    let how = if stops { Finish::HookStopped } else { Finish::Stop("cancelled".into()) };
                    self.stop_turn(how, out);
                }
            }
            Then::Start => {
                self.hooks.starting = false;
                self.next_turn(out);
            }
            Then::After { turn } => {
                if let Some(why) = verdict.denied.filter(|_| !stops) {
                    // The call has run: the agent can only be told.
                    self.hooks.context.push(format!("{name} hook blocking error: {why}"));
                }
                self.stopped_by_hook(stops && self.turn.as_ref().is_some_and(|t| t.uuid == turn), out);
            }
            Then::Prompt => match verdict.denied {
                Some(why) => {
                    let prompt = self.turn.as_ref().map(Turn::prompt).unwrap_or_default();
                    let said =
                        format!("UserPromptSubmit operation blocked by hook:\n{why}\n\nOriginal prompt: {prompt}");
                    let outcome = json!({"kind": "blocked_by_hook", "prompt_kept": false, "reason": why});
                    let members = super::open::members([
                        ("content", said.as_str().into()),
                        ("level", "warning".into()),
                        ("prevent_continuation", true.into()),
                        ("prompt_submit_outcome", outcome),
                    ]);
                    self.system("informational", members, out);
                    if let Some(turn) = &mut self.turn {
                        turn.finish = Some(Finish::Blocked(said));
                    }
                    self.end_turn(out);
                }
                None => {
                    if let Some(turn) = &mut self.turn
                        && !verdict.context.is_empty()
                    {
                        turn.blocks.push(PromptBlock::Text { text: verdict.context.join("\n") });
                    }
                    self.send_prompt(out);
                }
            },
            Then::Stop if stops => {
                if let Some(turn) = &mut self.turn {
                    turn.hook_ended = true;
                }
                self.end_turn(out);
            }
            Then::Stop => {
                let context = (!verdict.context.is_empty()).then(|| verdict.context.join("\n"));
                if let Some(why) = &verdict.denied {
                    let uuid = self.uuid();
                    out.near(say::user_text(&format!("Stop hook feedback:\n{why}"), &self.set.session_id, &uuid));
                }
                // What a hook adds is for the agent, so it has another say.
                let Some(more) = verdict.denied.or(context) else { return self.end_turn(out) };
                if let Some(turn) = &mut self.turn {
                    turn.finish = None;
                    turn.stop_hooks += 1;
                    turn.blocks = vec![PromptBlock::Text { text: more }];
                }
                self.send_prompt(out);
            }
            Then::Nothing => {}
        }
    }

    /// A hook wants no more of this turn.
    fn stopped_by_hook(&mut self, stops: bool, out: &mut Actions) {
        if stops {
            self.stop_turn(Finish::HookStopped, out);
        }
    }

    /// `PreToolUse` of a call that is asked about.
    pub(super) fn call_hooks(&mut self, question: u64, one: &ToolUse, out: &mut Actions) -> bool {
        let name = Some(one.name.as_str());
        let blocks = |h: &Hook| h.blocks && h.event == "PreToolUse" && h.matcher.fits(name);
        if self.host.closed && self.hooks.known.iter().any(blocks) {
            self.refuse(question, "a hook that has to be asked is gone with the host", &Why::Hook, out);
            return true;
        }
        self.run_hooks("PreToolUse", Some(one), json!({}), Then::Question(question), out)
    }

    /// `PermissionRequest`, where the host would be asked.
    pub(super) fn permission_request_hooks(&mut self, question: u64, one: &ToolUse, out: &mut Actions) -> bool {
        self.run_hooks("PermissionRequest", Some(one), json!({}), Then::Request(question), out)
    }

    /// `PreToolUse` of a call that the agent never asks about: it may come too late.
    pub(super) fn hooks_of_running_call(&mut self, call: &str, uses: &[ToolUse], out: &mut Actions) {
        let Some(turn) = &mut self.turn else { return };
        turn.tracked(call).hooked = true;
        let then = Then::Running { turn: turn.uuid.clone(), call: call.to_owned() };
        for one in uses {
            let ran = self.run_hooks("PreToolUse", Some(one), json!({}), then.clone(), out);
            if ran && !self.hooks.told {
                self.hooks.told = true;
                out.push(Action::Warn(format!(
                    "{} runs some calls without asking; a PreToolUse hook can stop the turn then, but not the call before it began",
                    self.set.profile.title
                )));
            }
        }
    }

    /// `PostToolUse`, or `PostToolUseFailure`.
    pub(super) fn hooks_after_call(&mut self, uses: &[ToolUse], results: &[ToolResult], out: &mut Actions) {
        let Some(turn) = self.turn.as_ref().map(|t| t.uuid.clone()) else { return };
        for (one, result) in uses.iter().zip(results) {
            let then = Then::After { turn: turn.clone() };
            let response = result.structured.clone().unwrap_or_else(|| result.content.as_str().into());
            if result.is_error {
                let more = json!({"error": result.content});
                self.run_hooks("PostToolUseFailure", Some(one), more, then, out);
            } else {
                self.run_hooks("PostToolUse", Some(one), json!({"tool_response": response}), then, out);
            }
        }
    }

    /// `SubagentStart` and `SubagentStop`: a call that is a subagent begins or ends.
    pub(super) fn subagent_hook(&mut self, event: &str, one: &ToolUse, out: &mut Actions) {
        if one.name != "Task" {
            return;
        }
        let kind = one.input.get("subagent_type").and_then(Value::as_str).unwrap_or("general-purpose");
        self.run_hooks(event, None, json!({"agent_id": one.id, "agent_type": kind}), Then::Nothing, out);
    }

    /// `PreCompact` and `PostCompact`.
    pub(super) fn compaction_hook(&mut self, event: &str, more: Value, out: &mut Actions) {
        self.run_hooks(event, None, more, Then::Nothing, out);
    }

    /// `UserPromptSubmit`, and then the prompt.
    pub(super) fn prompt_hooks(&mut self, out: &mut Actions) {
        let more = json!({"prompt": self.turn.as_ref().map(Turn::prompt).unwrap_or_default()});
        if !self.run_hooks("UserPromptSubmit", None, more, Then::Prompt, out) {
            self.send_prompt(out);
        }
    }

    /// `Stop`: true: the turn waits for them.
    pub(super) fn stop_hooks(&mut self, out: &mut Actions) -> bool {
        let Some(turn) = &self.turn else { return false };
        if turn.interrupted || !matches!(&turn.finish, Some(Finish::Stop(why)) if why == "end_turn") {
            return false;
        }
        if turn.stop_hooks >= STOPS {
            let said = format!("Stop hooks sent the turn on {STOPS} times; it ends now.");
            let members = super::open::members([("content", said.into()), ("level", "warning".into())]);
            self.system("informational", members, out);
            return false;
        }
        if !self.hooks.known.iter().any(|hook| hook.event == "Stop") {
            return false;
        }
        let text = turn.answer.text();
        let said = text.start(text.fitting(RESULT_LIMIT));
        let more = json!({"stop_hook_active": turn.stop_hooks > 0, "last_assistant_message": said});
        self.run_hooks("Stop", None, more, Then::Stop, out)
    }

    /// `SessionStart`.
    pub(super) fn session_start_hooks(&mut self, out: &mut Actions) {
        let source = if self.set.open == super::Open::New { "startup" } else { "resume" };
        self.hooks.starting = self.run_hooks("SessionStart", None, json!({"source": source}), Then::Start, out);
    }

    /// Nobody waits for them any more.
    pub(super) fn forget_hook_runs(&mut self, out: &mut Actions) {
        self.hooks.starting = false;
        for run in std::mem::take(&mut self.hooks.runs) {
            out.push(Action::ClearTimer(Timer::Hook(run.number)));
        }
    }
}

/// The events that an ACP agent tells of.
const KNOWN: [&str; 11] = [
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "UserPromptSubmit",
    "Stop",
    "SessionStart",
    "PermissionRequest",
    "PreCompact",
    "PostCompact",
    "SubagentStart",
    "SubagentStop",
];

impl Verdict {
    fn add(&mut self, answer: &HostAnswer<'_>, shown: Option<&Value>) {
        let hook = HookOutput::read(answer.hook_specific_output);
        let reason = || {
            text(hook.permission_decision_reason)
                .or_else(|| text(answer.reason))
                .or_else(|| text(answer.stop_reason))
                .unwrap_or("a hook of the host's denied it".into())
                .into_owned()
        };
        let decision = text(hook.permission_decision).or_else(|| text(answer.decision));
        let request: Option<Value> = read(hook.decision);
        let behavior = request.as_ref().and_then(|r| r.get("behavior")).and_then(Value::as_str);
        match (decision.as_deref(), behavior) {
            (Some("deny" | "block"), _) => self.denied = Some(reason()),
            (_, Some("deny")) => {
                let said = request.as_ref().and_then(|r| r.get("message")).and_then(Value::as_str);
                self.denied = Some(said.map_or_else(reason, ToOwned::to_owned));
            }
            (Some("ask"), _) => {
                self.asks = Some(text(hook.permission_decision_reason).unwrap_or_default().into_owned())
            }
            (Some("allow" | "approve"), _) | (_, Some("allow")) => self.allowed = true,
            _ => {}
        }
        // Another input cannot be passed on: it is no approval of this one.
        let updated: Option<Value> = read(hook.updated_input);
        let updated = updated.or_else(|| request.as_ref()?.get("updatedInput").cloned());
        if let (Some(updated), Some(shown)) = (&updated, shown)
            && updated != shown
        {
            self.denied = Some("a hook changed the input, which cannot be passed on to this agent".into());
        }
        if boolean(answer.proceed) == Some(false) {
            self.stops = true;
            self.denied = Some(reason());
        }
        if let Some(context) = text(hook.additional_context).filter(|c| !c.is_empty()) {
            self.context.push(context.into_owned());
        }
    }
}
