//! The turn's calls as the host sees them.
//!
//! Keeps: a call is shown once, when its input is known, and gets its result once (rule 11, quirk 7); no result stands inside
//! of a message that is being streamed.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::ClaudeOverAcp;
use super::calls::Status;
use super::render::{self, ToolUse};
use crate::mappings::ToolUseAt;
use crate::translate::Actions;
use crate::wire::stream_json_agent as say;

impl ClaudeOverAcp {
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
        let parent = tracked.call.parent.clone();
        if let Some(parent) = &parent
            && parent != id
            && turn.calls.iter().any(|t| t.call.id == *parent)
        {
            // Whose call it is must have been shown.
            self.show_call(parent, out);
        }
        let Some(turn) = &mut self.turn else { return };
        let parent = parent.and_then(|parent| turn.shown(&parent));
        let tracked = turn.tracked(id);
        let context = render::Context { cwd: &cwd, mcp_servers: &servers };
        tracked.uses = render::tool_uses(&tracked.call, &context);
        tracked.parent = parent.clone();
        // Kimi tells its plan twice: by the call, and then as such.
        let todos = tracked.uses.iter().find(|one| one.name == "TodoWrite").and_then(|one| one.input.get("todos"));
        let todos = todos.cloned();
        let (uses, asked) = (tracked.uses.clone(), tracked.asked);
        if todos.is_some() {
            turn.plan = todos;
        }
        for one in &uses {
            match &parent {
                Some(parent) => self.call_of_subagent(one, parent, out),
                None => self.call(one, out),
            }
            self.subagent_hook("SubagentStart", one, out);
        }
        if !asked && !self.set.profile.acp.asks_in_progress {
            self.never_asked(&uses, out);
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
        let (uses, hooked, asked, parent) =
            (tracked.uses.clone(), tracked.hooked, tracked.asked, tracked.parent.clone());
        if !asked {
            self.never_asked(&uses, out);
        }
        if !hooked {
            self.hooks_of_running_call(id, &uses, out);
        }
        self.results(&uses, &results, parent.as_deref(), out);
        self.hooks_after_call(&uses, &results, out);
    }

    pub(super) fn results(
        &mut self,
        uses: &[ToolUse],
        results: &[render::ToolResult],
        parent: Option<&str>,
        out: &mut Actions,
    ) {
        if parent.is_none() {
            // None may stand inside of a message that is being streamed.
            self.interrupt_message(out);
        }
        for (one, result) in uses.iter().zip(results) {
            self.end_lane(&one.id, out);
            self.subagent_hook("SubagentStop", one, out);
            let uuid = self.uuid();
            out.near(say::tool_result(&say::ToolResultLine {
                tool_use_id: &one.id,
                content: &result.content,
                is_error: result.is_error,
                // Claude has none of what its subagents do.
                structured: result.structured.as_ref().filter(|_| parent.is_none()),
                parent,
                session_id: &self.set.session_id,
                uuid: &uuid,
            }));
        }
    }

    /// The result of calls that diglot itself has shown.
    pub(super) fn give_result(&mut self, uses: &[ToolUse], content: String, out: &mut Actions) {
        let result = render::ToolResult { content, is_error: false, structured: None };
        self.results(uses, &vec![result; uses.len()], None, out);
    }

    /// Every call gets its result (rule 11).
    pub(super) fn close_calls(&mut self, why: &str, out: &mut Actions) {
        let Some(turn) = &self.turn else { return };
        let open: Vec<String> = turn.calls.iter().filter(|t| !t.closed).map(|t| t.call.id.clone()).collect();
        for id in open {
            self.show_call(&id, out);
            let Some(turn) = &mut self.turn else { return };
            let (interrupted, preempted) = (turn.interrupted, turn.preempted);
            let tracked = turn.tracked(&id);
            if tracked.closed {
                continue;
            }
            tracked.closed = true;
            let said = match (&tracked.refusal, interrupted) {
                (Some(refusal), _) => refusal.clone(),
                (None, true) if preempted => "The call was cut short: another message did not wait.".to_owned(),
                (None, true) => "The user interrupted the call.".to_owned(),
                (None, false) => format!("The call did not report a result: {why}."),
            };
            let (uses, parent) = (tracked.uses.clone(), tracked.parent.clone());
            self.results(&uses, &vec![refused(&said); uses.len()], parent.as_deref(), out);
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
        self.end_block(out);
        let answer = self.turn.as_ref().map(|t| t.answer.clone());
        self.call(&call, out);
        if let (Some(turn), Some(answer)) = (&mut self.turn, answer) {
            turn.answer = answer;
        }
        self.give_result(&[call], "Todos have been modified successfully.".to_owned(), out);
    }
}

/// The result of a call that did not run, or of which nobody knows.
fn refused(why: &str) -> render::ToolResult {
    render::ToolResult { content: why.to_owned(), is_error: true, structured: None }
}
