//! What the agent's subagents do, where the agent says which of its calls they are (Qwen, Claude).
//!
//! Owns what a subagent is saying. Keeps: it is no part of the answer: its calls and their results name the call that
//! started it, its text is told only to a host that wants it, and nothing of it is streamed, as with the real one.

use serde_json::{Map, Value};

use super::ClaudeOverAcp;
use super::calls::parent_call;
use super::render::ToolUse;
use crate::translate::{Actions, ChunkKind};
use crate::wire::stream_json_agent::{self as say, Assistant, Block, Usage};
use crate::wire::text::length;
use crate::wire::text::{Raw, read};

/// Bytes of a text, as JSON writes them, before the next one begins.
const LIMIT: usize = 512 * 1024;

/// What a subagent is saying.
#[derive(Debug)]
pub(super) struct Lane {
    /// The call that started it, as the host was shown that.
    parent: String,
    kind: ChunkKind,
    text: String,
    written: usize,
}

/// The call of the subagent that a chunk is from.
pub(super) fn parent_of(meta: Raw<'_>) -> Option<String> {
    let meta: Map<String, Value> = read(meta)?;
    parent_call(&meta).map(ToOwned::to_owned)
}

impl ClaudeOverAcp {
    /// A piece of what a subagent says.
    pub(super) fn subagent_said(&mut self, parent: &str, kind: ChunkKind, piece: &str, out: &mut Actions) {
        let Some(turn) = &mut self.turn else { return };
        turn.spoke = true;
        if !self.host.forwards_subagents && !self.set.options.forward_subagent_text {
            out.note("a subagent's text is not shown");
            return;
        }
        // Whose words they are must have been shown.
        self.show_call(parent, out);
        let Some(shown) = self.turn.as_ref().and_then(|t| t.shown(parent)) else { return };
        let cost = length(piece);
        let other = |l: &Lane| l.parent == shown && (l.kind != kind || l.written + cost > LIMIT);
        if self.lanes.iter().any(other) {
            self.end_lane(&shown, out);
        }
        match self.lanes.iter_mut().find(|l| l.parent == shown) {
            Some(lane) => {
                lane.text.push_str(piece);
                lane.written += cost;
            }
            None => self.lanes.push(Lane { parent: shown, kind, text: piece.to_owned(), written: cost }),
        }
    }

    /// A subagent has said something: it is written whole.
    pub(super) fn end_lane(&mut self, parent: &str, out: &mut Actions) {
        let Some(at) = self.lanes.iter().position(|l| l.parent == parent) else { return };
        let lane = self.lanes.remove(at);
        if lane.text.is_empty() {
            return;
        }
        let block = match lane.kind {
            ChunkKind::Message => Block::Text { text: &lane.text },
            ChunkKind::Thought => Block::Thinking { thinking: &lane.text, signature: "" },
        };
        self.subagent_line(parent, block, out);
    }

    /// The turn is over.
    pub(super) fn end_lanes(&mut self, out: &mut Actions) {
        while let Some(parent) = self.lanes.first().map(|l| l.parent.clone()) {
            self.end_lane(&parent, out);
        }
    }

    /// A call that a subagent makes.
    pub(super) fn call_of_subagent(&mut self, call: &ToolUse, parent: &str, out: &mut Actions) {
        self.end_lane(parent, out);
        self.subagent_line(parent, Block::ToolUse { id: &call.id, name: &call.name, input: &call.input }, out);
        if let Some(turn) = &mut self.turn {
            turn.spoke = true;
        }
    }

    fn subagent_line(&mut self, parent: &str, block: Block<'_>, out: &mut Actions) {
        let (id, uuid) = (format!("msg_{}", self.uuid().replace('-', "")), self.uuid());
        let model = self.agent.model();
        out.near(say::assistant(&Assistant {
            message_id: &id,
            model: &model,
            block,
            usage: Usage::default(),
            session_id: &self.set.session_id,
            uuid: &uuid,
            error: None,
            aborted: false,
            parent: Some(parent),
        }));
    }
}
