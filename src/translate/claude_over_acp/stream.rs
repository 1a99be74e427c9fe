//! Text, thoughts and calls as messages of the Messages API.
//!
//! Owns the message that is being written. Keeps: the pieces of a block, joined, are the agent's bytes; a block is
//! written once whole (`assistant`) and, if the host wants partial messages, before that piece by piece (`stream_event`),
//! in the order of the real one: start, deltas, the whole block, stop (stream-json-hosts.md, section 1.5). No line comes
//! near the 1 MiB at which hosts give up (rule 4): a block that grows too large is followed by another. Owns quirk 33 (pieces
//! of every size, with and without an id; OpenCode's thoughts with another one).

use std::sync::Arc;

use super::ClaudeOverAcp;
use super::answer::tell;
use super::render::ToolUse;
use crate::translate::{Action, Actions, Chunk, ChunkForm, ChunkKind};
use crate::wire::long::Text;
use crate::wire::stream_json_agent::{
    self as say, Assistant, Block, Delta, EmptyMessage, MessageDelta, StreamEvent, Usage,
};
use crate::wire::text::{fitting, length};

/// Bytes of a block, as JSON writes them, before the next one begins.
const BLOCK_LIMIT: usize = 512 * 1024;

/// Bytes of the answer that `result` repeats.
pub(super) const RESULT_LIMIT: usize = 400 * 1024;

/// The message that is being written.
#[derive(Debug, Default)]
pub(super) struct Stream {
    message: Option<Message>,
    /// A result came into the last message, and its text goes on.
    goes_on: bool,
}

#[derive(Debug)]
struct Message {
    id: Arc<str>,
    /// The agent's `messageId`.
    agent_id: Option<String>,
    next_index: u32,
    open: Option<OpenBlock>,
    has_calls: bool,
    /// It holds more than thoughts.
    has_text: bool,
    /// Its tokens, where the agent tells them of each of its calls of the model.
    usage: Option<Usage>,
}

#[derive(Debug)]
struct OpenBlock {
    kind: ChunkKind,
    index: u32,
    text: Text,
    /// What the text takes as JSON.
    written: usize,
}

impl Stream {
    /// Calls of one message are being shown; their results have not begun.
    pub(super) fn is_in_calls(&self) -> bool {
        self.message.as_ref().is_some_and(|m| m.has_calls)
    }
}

impl ClaudeOverAcp {
    /// A piece of text or thoughts.
    pub(super) fn say(&mut self, kind: ChunkKind, agent_id: Option<&str>, text: &str, out: &mut Actions) {
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(fitting(rest, BLOCK_LIMIT));
            self.say_piece(kind, agent_id, piece, out);
            rest = after;
        }
    }

    fn say_piece(&mut self, kind: ChunkKind, agent_id: Option<&str>, piece: &str, out: &mut Actions) {
        let cost = length(piece);
        // Another message begins: the agent says so, or calls were made since. OpenCode gives the thoughts before a message
        // an id of their own.
        let other = self.stream.message.as_ref().is_some_and(|m| {
            let is_thought_on = kind == ChunkKind::Message && !m.has_text;
            let differs = agent_id.is_some() && m.agent_id.is_some() && m.agent_id.as_deref() != agent_id;
            m.has_calls || (differs && !is_thought_on)
        });
        if other {
            self.end_message("end_turn", out);
        }
        let full = self
            .stream
            .message
            .as_ref()
            .and_then(|m| m.open.as_ref())
            .is_some_and(|b| b.kind != kind || b.written + cost > BLOCK_LIMIT);
        if full {
            self.end_block(out);
        }
        self.begin_message(agent_id, out);
        let partial = self.set.options.partial;
        let session_id = self.session.clone();
        let uuid = partial.then(|| self.set.ids.uuid());
        self.begin_block(kind, out);
        let Some(message) = &mut self.stream.message else { return };
        let Some(block) = &mut message.open else { return };
        block.text.push(piece);
        block.written += cost;
        if let Some(uuid) = uuid {
            out.push(Action::Chunk(Chunk {
                session_id,
                kind,
                message_id: Some(message.id.clone()),
                text: piece.to_owned(),
                form: ChunkForm::StreamEvent { index: block.index, uuid },
            }));
        }
        if let Some(turn) = &mut self.turn {
            turn.spoke = true;
        }
    }

    /// Opens a message if none is open.
    fn begin_message(&mut self, agent_id: Option<&str>, out: &mut Actions) {
        if let Some(message) = &mut self.stream.message {
            if message.agent_id.as_deref() != agent_id && agent_id.is_some() {
                message.agent_id = agent_id.map(ToOwned::to_owned);
            }
            return;
        }
        let id: Arc<str> = format!("msg_{}", self.uuid().replace('-', "")).into();
        let goes_on = std::mem::take(&mut self.stream.goes_on);
        if let Some(turn) = &mut self.turn {
            turn.message_begins(goes_on);
        }
        let model = self.agent.model();
        self.event(
            &StreamEvent::MessageStart {
                message: EmptyMessage {
                    id: &id,
                    r#type: "message",
                    role: "assistant",
                    model: &model,
                    content: [],
                    stop_reason: None,
                    stop_sequence: None,
                    usage: Usage::default(),
                },
            },
            out,
        );
        self.stream.message = Some(Message {
            id,
            agent_id: agent_id.map(ToOwned::to_owned),
            next_index: 0,
            open: None,
            has_calls: false,
            has_text: false,
            usage: None,
        });
    }

    /// Opens a block of this kind if none is open.
    fn begin_block(&mut self, kind: ChunkKind, out: &mut Actions) {
        let Some(message) = &mut self.stream.message else { return };
        if message.open.is_some() {
            return;
        }
        let index = message.next_index;
        message.next_index += 1;
        message.has_text |= kind == ChunkKind::Message;
        message.open = Some(OpenBlock { kind, index, text: Text::default(), written: 0 });
        let content_block = match kind {
            ChunkKind::Message => Block::Text { text: "" },
            ChunkKind::Thought => Block::Thinking { thinking: "", signature: "" },
        };
        self.event(&StreamEvent::ContentBlockStart { index, content_block }, out);
    }

    /// Ends the open block: it is written whole.
    pub(super) fn end_block(&mut self, out: &mut Actions) {
        let kept = self.answer_kept();
        let Some(message) = &mut self.stream.message else { return };
        let Some(block) = message.open.take() else { return };
        let (id, text) = (message.id.clone(), Arc::new(block.text));
        if let (ChunkKind::Message, Some(turn)) = (block.kind, &mut self.turn) {
            turn.answer.add(&text, kept);
        }
        let uuid = self.uuid();
        let line = |text: &str| {
            let content = match block.kind {
                ChunkKind::Message => Block::Text { text },
                ChunkKind::Thought => Block::Thinking { thinking: text, signature: "" },
            };
            self.whole(&id, &uuid, content)
        };
        tell(&text, text.len(), &uuid, line, out);
        self.event(&StreamEvent::ContentBlockStop { index: block.index }, out);
    }

    /// A call: a block of the message that led to it.
    pub(super) fn call(&mut self, call: &ToolUse, out: &mut Actions) {
        self.end_block(out);
        self.begin_message(None, out);
        let Some(message) = &mut self.stream.message else { return };
        let (id, index) = (message.id.clone(), message.next_index);
        message.next_index += 1;
        message.has_calls = true;
        if self.set.options.partial {
            let empty = serde_json::Map::new();
            let content_block = Block::ToolUse { id: &call.id, name: &call.name, input: &empty };
            self.event(&StreamEvent::ContentBlockStart { index, content_block }, out);
            // A map of JSON values can always be written as JSON.
            let input = serde_json::to_string(&call.input).unwrap_or_default();
            let delta = Delta::InputJsonDelta { partial_json: &input };
            self.event(&StreamEvent::ContentBlockDelta { index, delta }, out);
        }
        let uuid = self.uuid();
        out.near(self.whole(&id, &uuid, Block::ToolUse { id: &call.id, name: &call.name, input: &call.input }));
        self.event(&StreamEvent::ContentBlockStop { index }, out);
        self.stream.goes_on = false;
        if let Some(turn) = &mut self.turn {
            turn.spoke = true;
            turn.calls_since_message = true;
            turn.fresh = true;
            turn.answer.clear();
        }
    }

    /// Ends the message.
    pub(super) fn end_message(&mut self, stop_reason: &'static str, out: &mut Actions) {
        self.end_block(out);
        let Some(message) = self.stream.message.take() else { return };
        let stop_reason = if message.has_calls { "tool_use" } else { stop_reason };
        let delta = MessageDelta { stop_reason, stop_sequence: None };
        let usage = self.tokens_of(message.usage);
        self.event(&StreamEvent::MessageDelta { delta, usage }, out);
        self.event(&StreamEvent::MessageStop, out);
    }

    /// A result comes: it stands behind the open message, and what is left of that is another one.
    pub(super) fn interrupt_message(&mut self, out: &mut Actions) {
        if let Some(message) = &self.stream.message {
            self.stream.goes_on = !message.has_calls;
            self.end_message("end_turn", out);
        }
    }

    fn whole(&self, message_id: &str, uuid: &str, block: Block<'_>) -> Vec<u8> {
        let model = self.agent.model();
        let text = !matches!(block, Block::ToolUse { .. });
        let aborted = text && self.turn.as_ref().is_some_and(|t| t.interrupted);
        say::assistant(&Assistant {
            message_id,
            model: &model,
            block,
            usage: self.tokens_of(self.stream.message.as_ref().and_then(|m| m.usage)),
            session_id: &self.set.session_id,
            uuid,
            error: None,
            aborted,
            parent: None,
        })
    }

    /// The tokens of a message: its own, or, of an agent that tells only those of the turn, the turn's, while it is the only
    /// one. A sum over several is no message's: whoever takes the last one for what is in the context would be misled.
    fn tokens_of(&self, own: Option<Usage>) -> Usage {
        let of_turn = || self.turn.as_ref().filter(|t| !t.counts_messages && t.rounds <= 1).and_then(|t| t.usage);
        own.or_else(of_turn).unwrap_or_default()
    }

    /// The agent tells the tokens of a call of the model: they are the open message's, and the turn's.
    pub(super) fn count_message(&mut self, more: Usage) {
        let Some(turn) = &mut self.turn else { return };
        turn.counts_messages = true;
        *turn.usage.get_or_insert_default() += more;
        if let Some(message) = &mut self.stream.message {
            *message.usage.get_or_insert_default() += more;
        }
    }

    /// A message of diglot's own: one block of text.
    pub(super) fn say_whole(&mut self, text: &str, error: Option<&'static str>, out: &mut Actions) {
        self.end_message("end_turn", out);
        let (id, uuid) = (format!("msg_{}", self.uuid().replace('-', "")), self.uuid());
        out.near(say::assistant(&Assistant {
            message_id: &id,
            model: "<synthetic>",
            block: Block::Text { text },
            usage: Usage::default(),
            session_id: &self.set.session_id,
            uuid: &uuid,
            error,
            aborted: false,
            parent: None,
        }));
    }

    fn event(&mut self, event: &StreamEvent<'_>, out: &mut Actions) {
        if self.set.options.partial {
            let uuid = self.uuid();
            out.near(say::stream_event(&self.set.session_id, &uuid, event));
        }
    }
}
