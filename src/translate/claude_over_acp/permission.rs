//! Who decides about a call: hooks, rules, the mode, the host.
//!
//! Owns the agent's open questions. Keeps: diglot never grants by itself: a call is allowed by the host, by a rule or by the
//! mode that the user chose, and by nothing else (design, section 3, rule 4); a refusal carries its true reason; options are
//! chosen by their kind, never by their id, and never one that grants for longer (quirks 13 to 16): what the host grants for
//! longer, diglot keeps itself.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::ClaudeOverAcp;
use super::choices::{ChoiceOf, choice_of};
use super::host::{About, HostAsk, NOBODY, parsed};
use super::question::{Choice, End, Question};
use super::render::{self, ToolUse};
use super::turn::Turn;
use crate::translate::permission::is_unclear;
use crate::translate::rules::{Decision, PermissionMode, Rejected, STARTUP, read_updates};
use crate::translate::{Action, Actions};
use crate::wire::acp_client::{PermissionOption, SessionParams, Update};
use crate::wire::jsonrpc::{self, Id, RpcError};
use crate::wire::stream_json_agent::{self as say, HostAnswer};
use crate::wire::text::{Raw, boolean, items, read, text};

#[derive(Debug, Default)]
pub(super) struct Questions {
    pub(super) open: Vec<Question>,
    pub(super) count: u64,
    /// It was said that calls which are not asked about cannot be denied.
    told: bool,
}

/// Refusals that a result lists.
const DENIALS: usize = 50;

/// Bytes of a member of their inputs.
const BRIEF: usize = 2048;

/// Which hook allowed a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowed {
    /// `PreToolUse`: rules that deny or ask are stronger.
    ByHook,
    /// `PermissionRequest`: only rules that deny are.
    ByRequestHook,
}

/// What a decision comes from.
pub(super) enum Why {
    Rule,
    Hook,
    Host,
    Nobody,
}

impl ClaudeOverAcp {
    /// `session/request_permission`.
    pub(super) fn permission_asked(&mut self, id: Id, params: Raw<'_>, out: &mut Actions) {
        let params = SessionParams::read(params);
        let all: Vec<Choice> = items(params.options)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|raw| {
                let option = PermissionOption::read(Some(raw));
                let string = |raw| text(raw).unwrap_or_default().into_owned();
                let id = text(option.option_id)?.into_owned();
                Some(Choice { id, name: string(option.name), kind: string(option.kind) })
            })
            .collect();
        let clear = |choice: &&Choice| !is_unclear(&choice.id, all.iter().map(|c| (&*c.id, &*c.kind)));
        let options: Vec<Choice> = all.iter().filter(clear).cloned().collect();
        let call = params.tool_call.map(|raw| (raw, Update::read(Some(raw))));
        let Some((raw, call)) = call.and_then(|(raw, u)| Some((raw, text(u.tool_call_id)?.into_owned()))) else {
            let error = RpcError::invalid_params("session/request_permission: `toolCall.toolCallId` is missing");
            out.far(jsonrpc::error(&id, &error));
            return;
        };
        self.questions.count += 1;
        let number = self.questions.count;
        let choice = choice_of(raw, &options, params.meta);
        self.questions.open.push(Question {
            number,
            id,
            call: call.clone(),
            uses: Vec::new(),
            at: 0,
            options,
            choice,
            form: None,
            act: None,
            hook_asks: None,
        });
        match &self.turn {
            None => {
                return self.refuse(number, "the call was made outside of a turn; nobody was asked", &Why::Nobody, out);
            }
            Some(turn) if turn.interrupted || turn.stopping.is_some() => return self.answer_cancelled(number, out),
            Some(_) => {}
        }
        let is_choice = self.questions.open.last().is_some_and(|q| q.choice.is_some());
        if is_choice {
            return self.ask_choice(number, out);
        }
        if self.turn.as_mut().is_some_and(|t| t.tracked(&call).closed) {
            return self.refuse(number, "the call had already ended; nobody was asked", &Why::Nobody, out);
        }
        self.call_changed(raw, &call, true, out);
        // Its call can be one more than `--max-turns` allows; then it was cancelled.
        if self.question(number).is_none() {
            return;
        }
        let uses = self.uses_now(&call);
        if let Some(question) = self.questions.open.iter_mut().find(|q| q.number == number) {
            question.uses = uses;
        }
        self.decide(number, out);
    }

    pub(super) fn question(&self, number: u64) -> Option<&Question> {
        self.questions.open.iter().find(|q| q.number == number)
    }

    /// The rendition that is being decided.
    fn asked_use(&self, number: u64) -> Option<ToolUse> {
        let question = self.question(number)?;
        question.uses.get(question.at).cloned()
    }

    /// Whether a rule takes a tool away altogether.
    pub(super) fn denies(&self, tool: &str) -> bool {
        let verdict = self.rules.decide(tool, &Map::new(), &self.set.cwd);
        verdict.is_some_and(|verdict| verdict.decision == Decision::Deny)
    }

    /// Calls that run without a question: a rule that denies one comes to nothing, which is said once.
    pub(super) fn never_asked(&mut self, uses: &[ToolUse], out: &mut Actions) {
        if self.questions.told {
            return;
        }
        let denied = uses.iter().find_map(|one| {
            let verdict = self.rules.decide(&one.name, &one.input, &self.set.cwd)?;
            (verdict.decision == Decision::Deny).then(|| format!("{} (rule {})", one.name, verdict.rule))
        });
        if let Some(denied) = denied {
            self.questions.told = true;
            let title = &self.set.profile.title;
            out.push(Action::Warn(format!("Warning: {title} does not ask before {denied}: it cannot be denied")));
        }
    }

    /// A call as it is known now, under the ids that the host has seen.
    pub(super) fn uses_now(&mut self, call: &str) -> Vec<ToolUse> {
        let servers = self.server_names();
        let context = render::Context { cwd: &self.set.cwd, mcp_servers: &servers };
        let Some(turn) = &mut self.turn else { return Vec::new() };
        let tracked = turn.tracked(call);
        let mut uses = render::tool_uses(&tracked.call, &context);
        for (now, shown) in uses.iter_mut().zip(&tracked.uses) {
            now.id.clone_from(&shown.id);
        }
        uses
    }

    /// Begins to decide: hooks first (report 77).
    pub(super) fn decide(&mut self, number: u64, out: &mut Actions) {
        let Some(one) = self.asked_use(number) else {
            return self.refuse(number, "the call could not be shown", &Why::Nobody, out);
        };
        let call = self.question(number).map(|q| q.call.clone()).unwrap_or_default();
        if let Some(turn) = &mut self.turn {
            turn.tracked(&call).hooked = true;
        }
        if !self.call_hooks(number, &one, out) {
            self.decide_by_rules(number, None, out);
        }
    }

    /// What the hooks leave to the rules, the mode and the host. `allowed`: a hook allows it; a deny rule still wins.
    pub(super) fn decide_by_rules(&mut self, number: u64, allowed: Option<Allowed>, out: &mut Actions) {
        let Some(one) = self.asked_use(number) else {
            return self.refuse(number, "the call could not be shown", &Why::Nobody, out);
        };
        let call = self.question(number).map(|q| q.call.clone()).unwrap_or_default();
        let kind = self.turn.as_mut().and_then(|t| t.tracked(&call).call.kind.clone());
        let hook_asks = self.question(number).is_some_and(|q| q.hook_asks.is_some());
        let by_rule = self.rules.decide(&one.name, &one.input, &self.set.cwd);
        match by_rule.as_ref().map(|v| (v.decision, &v.rule)) {
            Some((Decision::Deny, rule)) => {
                let said = format!("Permission to use {} has been denied by the rule {rule}.", one.name);
                return self.refuse(number, &said, &Why::Rule, out);
            }
            // It stands for the user's own answer.
            _ if allowed == Some(Allowed::ByRequestHook) => return self.allow(number, out),
            Some((Decision::Ask, _)) => return self.ask_about(number, out),
            // What was cut off may be what a rule is against.
            _ if hook_asks || (one.cut && self.rules.restricts()) => return self.ask_about(number, out),
            _ if allowed == Some(Allowed::ByHook) => return self.allow(number, out),
            // What was cut off was not seen by the rule.
            Some((Decision::Allow, _)) if !one.cut => return self.allow(number, out),
            Some((Decision::Allow, _)) | None => {}
        }
        let plans = self.agent_plans();
        let mode = if self.mode == PermissionMode::Plan && plans { PermissionMode::Default } else { self.mode };
        let dirs: Vec<&std::path::Path> = self.set.add_dirs.iter().map(std::path::PathBuf::as_path).collect();
        let by_mode = mode.decide(&one.name, &one.input, kind.as_deref(), &self.set.cwd, &dirs);
        match by_mode.as_ref().map(|v| (v.decision, &v.rule)) {
            Some((Decision::Allow, _)) => self.allow(number, out),
            Some((Decision::Deny, rule)) => {
                let said = format!("Permission to use {} has been denied: {rule}.", one.name);
                self.refuse(number, &said, &Why::Rule, out);
            }
            _ => self.ask_about(number, out),
        }
    }

    /// Asks the host, if it answers.
    fn ask_about(&mut self, number: u64, out: &mut Actions) {
        let Some(one) = self.asked_use(number) else { return };
        if let Some(tool) = self.set.options.permission_tool.clone() {
            return self.ask_tool(number, tool, &one, out);
        }
        if self.host.closed {
            return self.refuse(number, NOBODY, &Why::Nobody, out);
        }
        if self.permission_request_hooks(number, &one, out) {
            return;
        }
        self.ask_can_use_tool(number, out);
    }

    /// Asks the host's permission tool.
    fn ask_tool(&mut self, number: u64, tool: String, one: &ToolUse, out: &mut Actions) {
        let arguments = json!({"tool_name": one.name, "input": one.input, "tool_use_id": one.id});
        self.asks.push(HostAsk { id: tool_ask(number), about: About::ByTool(number) });
        out.push(Action::AskTool { effect: number, tool, arguments });
    }

    /// It answered, in JSON as text.
    pub(super) fn permission_tool_answered(&mut self, effect: u64, answer: Result<String, String>, out: &mut Actions) {
        let Some(at) = self.asks.iter().position(|a| a.about == About::ByTool(effect)) else {
            out.note("an answer of the permission tool's to no open question");
            return;
        };
        self.asks.remove(at);
        let raw = answer.and_then(|text| {
            RawValue::from_string(text)
                .map_err(|_| "the permission tool's answer is no JSON; nobody approved".to_owned())
        });
        match &raw {
            Ok(raw) => self.permission_answered(effect, Ok(HostAnswer::read(Some(raw))), out),
            Err(why) => self.permission_answered(effect, Err(why.clone()), out),
        }
    }

    /// `can_use_tool`.
    pub(super) fn ask_can_use_tool(&mut self, number: u64, out: &mut Actions) {
        let Some(one) = self.asked_use(number) else { return };
        if self.host.closed {
            return self.refuse(number, NOBODY, &Why::Nobody, out);
        }
        let call = self.question(number).map(|q| q.call.clone()).unwrap_or_default();
        if self.turn.as_mut().is_some_and(|t| t.tracked(&call).closed) {
            // The agent did not wait for the answer.
            return self.refuse(number, "the call had already ended; nobody was asked", &Why::Nobody, out);
        }
        if !self.set.options.asks_host {
            let said = format!(
                "{} needs a permission, and nobody can be asked for it: the host gave no permission prompt. Allow it with a rule \
                 (--allowedTools) or a permission mode.",
                one.name
            );
            let decision = json!({"tool_name": one.name, "tool_use_id": one.id, "message": said});
            if let Value::Object(decision) = decision {
                self.system("permission_denied", decision, out);
            }
            return self.refuse(number, &said, &Why::Nobody, out);
        }
        let Some(question) = self.question(number) else { return };
        let longer = question.options.iter().any(|o| o.kind == "allow_always");
        let reason = question.hook_asks.clone();
        let mut request = json!({
            "subtype": "can_use_tool",
            "tool_name": one.name,
            "display_name": one.name,
            "input": one.input,
            "tool_use_id": one.id,
            "permission_suggestions": if longer { suggestions(&one) } else { json!([]) },
        });
        if let Some(description) = one.input.get("description") {
            request["description"] = description.clone();
        }
        let reason = match one.cut {
            true => Some("the input is longer than can be shown; what is left out was not seen".to_owned()),
            false => reason,
        };
        if let Some(reason) = reason.filter(|r| !r.is_empty()) {
            request["decision_reason"] = reason.into();
        }
        self.state("requires_action", out);
        self.ask_host(About::Permission(number), &request, out);
    }

    /// The host answered.
    pub(super) fn permission_answered(
        &mut self,
        number: u64,
        answer: Result<HostAnswer<'_>, String>,
        out: &mut Actions,
    ) {
        if self.question(number).is_none() {
            return;
        }
        if !self.asks.iter().any(|a| matches!(a.about, About::Permission(_))) && !self.host.closed {
            self.state("running", out);
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => return self.refuse(number, &why, &Why::Nobody, out),
        };
        if self.question(number).is_some_and(|q| matches!(q.choice, Some(ChoiceOf::Elicitation))) {
            return self.elicitation_answered(number, &answer, out);
        }
        if self.question(number).is_some_and(|q| q.form.is_some()) {
            return self.form_answered(number, &answer, out);
        }
        let allows = match (text(answer.behavior).as_deref(), boolean(answer.allow)) {
            (Some("allow"), _) | (None, Some(true)) => true,
            (Some("deny"), _) | (None, Some(false)) => false,
            _ => {
                return self.refuse(
                    number,
                    "the host's answer could not be read; nobody approved the call",
                    &Why::Nobody,
                    out,
                );
            }
        };
        if self.question(number).is_some_and(|q| q.choice.is_some()) {
            return self.choice_answered(number, allows, &answer, out);
        }
        if !allows {
            let said = text(answer.message).or_else(|| text(answer.reason)).filter(|m| !m.is_empty());
            let said = said.unwrap_or("The user doesn't want to take this action right now.".into());
            if boolean(answer.interrupt) == Some(true) {
                // The agent is told `cancelled`, with its turn.
                if let Some(question) = self.questions.open.iter().position(|q| q.number == number) {
                    let question = &self.questions.open[question];
                    refused(&mut self.turn, question, &said);
                }
                self.interrupt(false, out);
                return;
            }
            return self.refuse(number, &said, &Why::Host, out);
        }
        let Some(one) = self.asked_use(number) else { return };
        let changed = parsed(answer.updated_input.or(answer.input))
            .is_some_and(|new| new != Value::Object(one.input.clone()) && new != json!({}));
        if changed {
            let said = "The call was approved with another input, which cannot be passed on to this agent; it was not run. \
                        Make the call again with the wanted input.";
            return self.refuse(number, said, &Why::Host, out);
        }
        if let Some(updates) = read::<Value>(answer.updated_permissions) {
            self.grant(&updates, out);
        }
        self.allow(number, out);
    }

    /// What the host grants for longer: for this session (quirks 14 and 15).
    fn grant(&mut self, updates: &Value, out: &mut Actions) {
        let applied = self.rules.apply(&read_updates(updates));
        self.set.add_dirs.extend(applied.add_directories);
        self.set.add_dirs.retain(|dir| !applied.remove_directories.contains(dir));
        for rejected in applied.rejected {
            out.push(Action::Warn(format!("Warning: {rejected}")));
        }
        let wanted = applied.mode.filter(|mode| *mode != self.told_mode());
        if let Some(mode) = wanted.filter(|mode| self.may_be(*mode)) {
            let before = std::mem::replace(&mut self.mode, mode);
            self.agent.own_mode = None;
            self.agent.mode_before_plan = None;
            self.tell_mode(out);
            self.set_agent_mode(None, before, out);
        } else if wanted.is_some() {
            out.push(Action::Warn(
                "Warning: bypassPermissions is not set: the session was not launched with --dangerously-skip-permissions"
                    .into(),
            ));
        }
    }

    /// The call may run, or its next rendition is decided.
    fn allow(&mut self, number: u64, out: &mut Actions) {
        let Some(at) = self.questions.open.iter().position(|q| q.number == number) else { return };
        let question = &mut self.questions.open[at];
        if question.at + 1 < question.uses.len() {
            question.at += 1;
            question.hook_asks = None;
            return self.decide(number, out);
        }
        let once = question.options.iter().find(|o| o.kind == "allow_once").map(|o| o.id.clone());
        let Some(once) = once else {
            let said = "the agent offers no way to allow this call only once; it was not approved";
            return self.refuse(number, said, &Why::Nobody, out);
        };
        let question = self.questions.open.remove(at);
        if let Some(act) = question.act {
            return self.act_allowed(question.id, question.call, act, out);
        }
        self.cover_acts(&question);
        question.end(&End::Option(&once), out);
    }

    /// The call may not run.
    pub(super) fn refuse(&mut self, number: u64, why: &str, by: &Why, out: &mut Actions) {
        let Some(at) = self.questions.open.iter().position(|q| q.number == number) else { return };
        let question = self.questions.open.remove(at);
        refused(&mut self.turn, &question, why);
        if !matches!(by, Why::Host) {
            out.note(format!("a call was refused: {why}"));
        }
        question.end(&End::Refused(why), out);
        if question.act.is_some() {
            self.act_refused(&question.call, why, out);
        }
    }

    pub(super) fn answer_cancelled(&mut self, number: u64, out: &mut Actions) {
        if let Some(at) = self.questions.open.iter().position(|q| q.number == number) {
            let question = self.questions.open.remove(at);
            question.end(&End::Cancelled, out);
        }
    }

    /// The turn is cancelled: every question is answered so (quirk 18), and the host's are withdrawn.
    pub(super) fn cancel_questions(&mut self, out: &mut Actions) {
        self.forget_host_asks_of_turn(out);
        for question in std::mem::take(&mut self.questions.open) {
            question.end(&End::Cancelled, out);
        }
    }

    /// The turn is over: what is still open is refused.
    pub(super) fn refuse_questions(&mut self, why: &str, out: &mut Actions) {
        if self.questions.open.is_empty() {
            return;
        }
        self.forget_host_asks_of_turn(out);
        let open: Vec<u64> = self.questions.open.iter().map(|q| q.number).collect();
        for number in open {
            self.refuse(number, why, &Why::Nobody, out);
        }
    }

    /// The process that asked is gone.
    pub(super) fn questions_void(&mut self, out: &mut Actions) {
        self.forget_client(out);
        self.forget_host_asks_of_turn(out);
        self.questions.open.clear();
    }

    /// The agent withdraws a question (quirk 19).
    pub(super) fn question_withdrawn(&mut self, id: &Id, out: &mut Actions) {
        let Some(at) = self.questions.open.iter().position(|q| q.id == *id) else { return };
        let question = self.questions.open.remove(at);
        let about = About::Permission(question.number);
        if let Some(at) = self.asks.iter().position(|a| a.about == about) {
            let ask = self.asks.remove(at);
            out.near(say::withdraw(&ask.id));
        }
        // Every request is answered, a withdrawn one too.
        question.end(&End::Cancelled, out);
    }

    /// Withdraws what the host was asked for the turn.
    pub(super) fn forget_host_asks_of_turn(&mut self, out: &mut Actions) {
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.asks).into_iter().partition(|a| !matches!(a.about, About::Mcp { .. }));
        self.asks = kept;
        for ask in gone {
            if !self.host.closed && !matches!(ask.about, About::ByTool(_)) {
                out.near(say::withdraw(&ask.id));
            }
        }
        self.forget_hook_runs(out);
    }

    /// A hook wants the host to be asked.
    pub(super) fn hook_wants_question(&mut self, number: u64, reason: String) {
        if let Some(question) = self.questions.open.iter_mut().find(|q| q.number == number) {
            question.hook_asks = Some(reason);
        }
    }

    /// A hook allows the call.
    pub(super) fn hook_allows(&mut self, number: u64, allowed: Allowed, out: &mut Actions) {
        self.decide_by_rules(number, Some(allowed), out);
    }

    /// More rules, of flags, settings or `initialize`; false: one that denies was not understood.
    pub(super) fn add_rules(&mut self, allow: &[String], ask: &[String], deny: &[String], out: &mut Actions) -> bool {
        let of = |decision, rules| <[String]>::iter(rules).map(move |rule| (decision, rule));
        let both = of(Decision::Allow, allow).chain(of(Decision::Ask, ask)).chain(of(Decision::Deny, deny));
        let unknown: Vec<Rejected> = both.filter_map(|(d, rule)| self.rules.add(d, rule, STARTUP).err()).collect();
        for rejected in &unknown {
            let widened = self.rules.widen(rejected);
            out.push(Action::Warn(format!("Warning: {rejected}{widened}")));
        }
        !unknown.iter().any(|rejected| rejected.decision != Decision::Allow)
    }
}

/// Keeps why a call did not run, and lists it for the result.
fn refused(turn: &mut Option<Turn>, question: &Question, why: &str) {
    let Some(turn) = turn else { return };
    if matches!(question.choice, Some(ChoiceOf::Elicitation)) {
        // No call is meant.
        return;
    }
    turn.refused = true;
    let tracked = turn.tracked(&question.call);
    tracked.refusal = Some(why.to_owned());
    let denials: Vec<Value> = tracked
        .uses
        .iter()
        .map(|u| json!({"tool_name": u.name, "tool_use_id": u.id, "tool_input": brief(&u.input)}))
        .collect();
    turn.denials.extend(denials);
    // The line that carries them has a limit.
    turn.denials.truncate(DENIALS);
}

/// The name of a question to the permission tool among those to the host.
fn tool_ask(number: u64) -> String {
    format!("tool-{number}")
}

/// What an "always" of the host's would grant: this tool, for this session.
fn suggestions(one: &ToolUse) -> Value {
    // As a rule, a star would stand for more than this command.
    let command = one.input.get("command").and_then(Value::as_str).unwrap_or_default();
    if one.cut || command.contains('*') {
        return json!([]);
    }
    let rule = match (one.name.as_str(), one.input.get("command").and_then(Value::as_str)) {
        ("Bash", Some(command)) => json!({"toolName": "Bash", "ruleContent": command}),
        (name, _) => json!({"toolName": name}),
    };
    json!([{"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}])
}

/// An input as a list of refusals has it: short.
fn brief(input: &Map<String, Value>) -> Map<String, Value> {
    let short = |value: &Value| match value {
        Value::String(text) if text.len() > BRIEF => {
            format!("{} … ({} bytes)", crate::wire::text::cut(text, BRIEF), text.len()).into()
        }
        Value::Array(_) | Value::Object(_) if value.to_string().len() > BRIEF => Value::Null,
        other => other.clone(),
    };
    input.iter().map(|(name, value)| (name.clone(), short(value))).collect()
}
