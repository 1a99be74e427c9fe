//! Claude's tasks: commands and subagents that it names by an id of their own, in the background or not.
//!
//! Keeps: a call in the background stays open until its task really ends, and ends once (design, section 3, rule 3;
//! stream-json.md, section 10).

use std::borrow::Cow;

use super::super::AcpOverClaude;
use super::{Change, cards};
use crate::translate::Actions;
use crate::wire::acp::{ToolCallContent, ToolStatus};
use crate::wire::stream_json::{SystemLine, TaskPatch};
use crate::wire::text::{Raw, boolean, items, text};

/// Why a call is closed whose task has ended.
pub(super) const TASK_ENDED: &str = "the task has ended";

impl AcpOverClaude {
    /// `task_started`: a command or a subagent runs; claude names the call.
    pub(in super::super) fn task_started(&mut self, line: &SystemLine<'_>, out: &mut Actions) {
        let Some(id) = text(line.tool_use_id) else { return };
        if let Some(tool) = self.tools.open.get_mut(&*id) {
            tool.task = true;
            tool.background |= boolean(line.is_backgrounded) == Some(true);
            if let Some(task) = text(line.task_id) {
                self.tools.tasks.insert(task.into_owned(), id.clone().into_owned());
            }
        }
        self.tool_runs(&id, out);
    }

    /// `task_updated`.
    pub(in super::super) fn task_updated(&mut self, line: &SystemLine<'_>, out: &mut Actions) {
        let Some(id) = text(line.task_id).and_then(|task| self.tools.tasks.get(&*task).cloned()) else { return };
        let patch = TaskPatch::read(line.patch);
        let Some(tool) = self.tools.open.get_mut(&id) else { return };
        tool.background |= boolean(patch.is_backgrounded) == Some(true);
        let Some(status) = ended(patch.status).filter(|_| tool.background) else { return };
        let error = text(patch.error).map(Cow::into_owned);
        if tool.task {
            // The notification follows and says what came out of it (stream-json.md, section 10, point 9).
            tool.over = Some((status, error));
        } else {
            self.task_ends(&id, status, error, out);
        }
    }

    /// `task_notification`: the end of a task, with a summary.
    pub(in super::super) fn task_notified(&mut self, line: &SystemLine<'_>, out: &mut Actions) {
        let task = text(line.task_id).and_then(|task| self.tools.tasks.remove(&*task));
        let Some(id) = task.or_else(|| text(line.tool_use_id).map(Into::into)) else { return };
        // A task in the foreground ends with its result, which follows.
        if self.tools.open.get(&id).is_some_and(|t| t.background)
            && let Some(status) = ended(line.status)
        {
            self.task_ends(&id, status, text(line.summary).map(Cow::into_owned), out);
        }
    }

    /// `background_tasks_changed`: a list of all that run; one that has ended and is not in it gets no notification.
    pub(in super::super) fn tasks_left(&mut self, line: &SystemLine<'_>, out: &mut Actions) {
        let Some(left) = items(line.tasks) else { return };
        let left: Vec<String> =
            left.into_iter().filter_map(|raw| text(SystemLine::read(Some(raw)).task_id).map(Into::into)).collect();
        let gone: Vec<String> =
            self.tools.tasks.iter().filter(|(task, _)| !left.contains(task)).map(|(_, id)| id.clone()).collect();
        for id in self.tools.order.clone().into_iter().filter(|id| gone.contains(id)) {
            if let Some((status, said)) = self.tools.open.get_mut(&id).and_then(|t| t.over.take()) {
                self.task_ends(&id, status, said, out);
            }
        }
    }

    fn task_ends(&mut self, id: &str, status: ToolStatus, said: Option<String>, out: &mut Actions) {
        if let Some(change) = self.task_ended(id, status, said, out) {
            self.finish_tool(id, change, TASK_ENDED, out);
        }
    }

    /// What is told of a call whose task has ended.
    pub(super) fn task_ended(
        &mut self,
        id: &str,
        status: ToolStatus,
        said: Option<String>,
        out: &mut Actions,
    ) -> Option<Change> {
        self.tool_runs(id, out);
        let tool = self.tools.open.get(id)?;
        let said = said.filter(|s| !s.trim().is_empty()).map(cards::bounded_owned);
        let mut change = Change { status: Some(status), ..Change::default() };
        if tool.terminal {
            change.exit = Some(said.as_deref().and_then(cards::exit_code_of_summary));
            change.output = said;
        } else {
            change.content = said.map(|s| vec![ToolCallContent::text(s)]);
        }
        Some(change)
    }
}

/// How a task ended, if it did.
fn ended(status: Raw<'_>) -> Option<ToolStatus> {
    match text(status).as_deref() {
        Some("completed") => Some(ToolStatus::Completed),
        Some("failed" | "killed" | "stopped") => Some(ToolStatus::Failed),
        _ => None,
    }
}
