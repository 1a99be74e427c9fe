//! What the agent tells of itself beside its answer: that it makes room in its context, and notices.
//!
//! Keeps: a compaction that was begun is ended toward the host, whatever becomes of it.

use serde_json::{Value, json};

use super::ClaudeOverAcp;
use super::open::members;
use crate::translate::Actions;
use crate::wire::acp_client::Update;
use crate::wire::text::text;

impl ClaudeOverAcp {
    /// `compaction_update`.
    pub(super) fn compaction(&mut self, update: &Update<'_>, out: &mut Actions) {
        let by_hand = self.turn.as_ref().is_some_and(|t| t.command == "/compact");
        let trigger = if by_hand { "manual" } else { "auto" };
        match text(update.status).as_deref() {
            Some("in_progress") if self.compacting.is_none() => {
                let tokens = self.context.map_or(0, |(used, _)| used);
                self.compacting = Some(tokens);
                self.compaction_hook("PreCompact", json!({"trigger": trigger, "custom_instructions": null}), out);
                self.system("status", members([("status", "compacting".into())]), out);
            }
            Some("completed") => {
                let tokens = self.compacting.take().or(self.context.map(|(used, _)| used)).unwrap_or_default();
                let done = [("status", Value::Null), ("compact_result", "success".into())];
                self.system("status", members(done), out);
                let metadata = json!({"trigger": trigger, "pre_tokens": tokens});
                self.system("compact_boundary", members([("compact_metadata", metadata)]), out);
                let summary = text(update.summary).unwrap_or_default();
                self.compaction_hook("PostCompact", json!({"trigger": trigger, "compact_summary": summary}), out);
            }
            Some(word @ ("failed" | "cancelled")) => {
                let why = text(update.error).map_or_else(|| word.to_owned(), Into::into);
                self.compaction_failed(&why, out);
            }
            _ => {}
        }
    }

    /// A compaction comes to nothing.
    pub(super) fn compaction_failed(&mut self, why: &str, out: &mut Actions) {
        if self.compacting.take().is_some() {
            let failed = [("status", Value::Null), ("compact_result", "failed".into()), ("compact_error", why.into())];
            self.system("status", members(failed), out);
        }
    }

    /// `notice`.
    pub(super) fn notice(&mut self, update: &Update<'_>, out: &mut Actions) {
        let level = match text(update.severity).as_deref() {
            Some("warning" | "error") => "warning",
            _ => "info",
        };
        let title = text(update.title).unwrap_or_default();
        let said = match text(update.description).filter(|d| !d.is_empty()) {
            Some(description) => format!("{title}\n{description}"),
            None => title.into_owned(),
        };
        if !said.trim().is_empty() {
            self.system("informational", members([("content", said.into()), ("level", level.into())]), out);
        }
    }
}
