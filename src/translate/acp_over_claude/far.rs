//! What claude says, line by line.
//!
//! Owns the dispatch of its messages. Keeps: an unknown type, subtype or block is noted and skipped, never fatal
//! (design, section 3, rule 7; report 59); a request of claude's is always answered.

use crate::mappings::Dialect;
use crate::translate::{Action, Actions, Chunk, ChunkKind};
use crate::wire::acp::{AvailableCommand, CommandInput, SessionUpdate};
use crate::wire::stream_json::{
    self, ApiMessage, AssistantExtra, Block, Command, ControlRequest, ControlResponse, Delta, DeltaLine, Lifecycle,
    Line, Misc, ResultLine, Str, StreamEvent, SystemLine, UserExtra,
};
use crate::wire::text::{Raw, boolean, items, piece, text, uint};

use super::AcpOverClaude;
use super::stream::{BlockKind, Whole};
use super::turn::Failure;

impl AcpOverClaude {
    pub(super) fn far_line(&mut self, bytes: &[u8], out: &mut Actions) {
        if let Some(line) = DeltaLine::parse(bytes) {
            return self.delta_line(line, out);
        }
        let line = match Line::parse(bytes) {
            Ok(line) => line,
            Err(e) => return out.note(format!("a line of the agent that is no message: {e}")),
        };
        let kind = line.kind();
        match &*kind {
            "stream_event" => self.stream_event(&line, out),
            "assistant" => self.assistant(&line, bytes, out),
            "user" => self.user(&line, bytes, out),
            "result" => self.result(&ResultLine::of_line(bytes), out),
            "system" => self.system(&SystemLine::of_line(bytes), out),
            "control_request" => self.control_request(&line, out),
            "control_response" => self.control_response(&ControlResponse::read(line.response), out),
            "control_cancel_request" => {
                if let Some(id) = text(line.request_id) {
                    self.withdraw_question(&id, out);
                }
            }
            "command_lifecycle" => {
                let life = Lifecycle::of_line(bytes);
                if let (Some(uuid), Some(state)) = (text(life.command_uuid), text(life.state)) {
                    self.lifecycle(&uuid, &state, out);
                }
            }
            // Its own ids are made up; the call is the parent (stream-json.md, 3.2).
            "tool_progress" => {
                if let Some(id) = text(Misc::of_line(bytes).parent_tool_use_id) {
                    self.tool_runs(&id, out);
                }
            }
            "conversation_reset" => {
                if let Some(id) = text(Misc::of_line(bytes).new_conversation_id) {
                    self.claude_session = id.into_owned();
                }
                self.plan.clear();
                self.tell_plan(out);
            }
            // Wave's results and states are messages of their own (named-systems.md).
            "tool_result" if self.set.profile.dialect == Dialect::Wave => {
                self.tool_result(&Block::of_line(bytes), None, None, out);
            }
            "session_state_changed" if self.set.profile.dialect == Dialect::Wave => {
                if text(Misc::of_line(bytes).state).as_deref() == Some("busy") {
                    self.turns.begin();
                }
            }
            "keep_alive" => {}
            other => out.note(format!("skipped a `{other}` message")),
        }
    }

    fn stream_event(&mut self, line: &Line<'_>, out: &mut Actions) {
        let parent = text(line.parent_tool_use_id);
        let event = StreamEvent::read(line.event);
        let kind = text(event.kind).unwrap_or_default();
        match &*kind {
            "content_block_delta" => self.delta(parent.as_deref(), &event, out),
            "message_start" => {
                self.turns.begin();
                let message = ApiMessage::read(event.message);
                self.streams.of(parent.as_deref()).begin(text(message.id).as_deref());
                if parent.is_none() {
                    if let Some(model) = text(message.model) {
                        self.model = Some(model.into_owned());
                    }
                    self.tokens(message.usage, false);
                }
            }
            "content_block_start" => {
                let Some(index) = index(event.index) else { return };
                let block = Block::read(event.content_block);
                let parent = parent.as_deref();
                match text(block.kind).as_deref() {
                    Some("text") => self.streams.of(parent).start_block(index, BlockKind::Text),
                    Some("thinking") => self.streams.of(parent).start_block(index, BlockKind::Thought),
                    Some("tool_use") => self.tool_starts(parent, index, &block, out),
                    _ => self.streams.of(parent).start_block(index, BlockKind::Other),
                }
            }
            "message_delta" if parent.is_none() => self.tokens(event.usage, true),
            _ => {}
        }
    }

    /// A delta of the usual shape.
    fn delta_line(&mut self, line: DeltaLine<'_>, out: &mut Actions) {
        let parent = line.parent_tool_use_id.as_ref().map(|p| &*p.0);
        let Ok(index) = usize::try_from(line.event.index) else { return };
        let delta = line.event.delta;
        match &*delta.kind.0 {
            "text_delta" => self.piece(parent, index, ChunkKind::Message, Piece::Whole(delta.text), out),
            "thinking_delta" => self.piece(parent, index, ChunkKind::Thought, Piece::Whole(delta.thinking), out),
            "input_json_delta" => {
                if let Some(json) = delta.partial_json {
                    self.tool_input(parent, index, &json.0, out);
                }
            }
            // Signatures are for the API; citations have no place in ACP.
            _ => {}
        }
    }

    /// A delta of an unusual shape.
    fn delta(&mut self, parent: Option<&str>, event: &StreamEvent<'_>, out: &mut Actions) {
        let Some(index) = index(event.index) else { return };
        let delta = Delta::read(event.delta);
        match text(delta.kind).as_deref() {
            Some("text_delta") => self.piece(parent, index, ChunkKind::Message, Piece::Raw(delta.text), out),
            Some("thinking_delta") => self.piece(parent, index, ChunkKind::Thought, Piece::Raw(delta.thinking), out),
            Some("input_json_delta") => {
                if let Some(json) = text(delta.partial_json) {
                    self.tool_input(parent, index, &json, out);
                }
            }
            _ => {}
        }
    }

    fn piece(&mut self, parent: Option<&str>, index: usize, kind: ChunkKind, new: Piece<'_>, out: &mut Actions) {
        let stream = self.streams.of(parent);
        let message_id = stream.message_id();
        let make = match kind {
            ChunkKind::Message => || BlockKind::Text,
            ChunkKind::Thought => || BlockKind::Thought,
        };
        let Some(block) = stream.block(index, make) else { return };
        let text = match new {
            // The half of a pair that waits stands alone now.
            Piece::Whole(Some(Str(text))) => block.carry.complete(text),
            Piece::Raw(raw) => match piece(raw, &mut block.carry) {
                Some(text) => text,
                None => return,
            },
            Piece::Whole(None) => return,
        };
        if text.is_empty() {
            return;
        }
        block.show(&text);
        if parent.is_some() {
            return out.note("text of a subagent");
        }
        self.chunk(kind, message_id, text.into_owned(), out);
    }

    fn chunk(&mut self, kind: ChunkKind, message_id: Option<std::sync::Arc<str>>, text: String, out: &mut Actions) {
        if let Some(turn) = self.turns.running_mut() {
            turn.spoke = true;
        }
        let session_id = self.set.session_id.clone();
        out.push(Action::Chunk(Chunk { session_id, kind, message_id, text }));
    }

    /// Text of the answer that belongs to no API message.
    pub(super) fn say(&mut self, text: &str, out: &mut Actions) {
        if !text.is_empty() {
            self.chunk(ChunkKind::Message, None, text.to_owned(), out);
        }
    }

    /// One finished block: what its deltas did not show yet.
    fn assistant(&mut self, line: &Line<'_>, bytes: &[u8], out: &mut Actions) {
        self.turns.begin();
        let parent = text(line.parent_tool_use_id);
        let parent = parent.as_deref();
        let message = ApiMessage::read(line.message);
        let id = text(message.id);
        let extra = AssistantExtra::of_line(bytes);
        let model = text(message.model);
        if parent.is_none() && model.as_deref() != Some("<synthetic>") {
            if let Some(model) = model {
                self.model = Some(model.into_owned());
            }
            // A message that did not stream tells its usage here.
            if self.streams.of(None).message_id().as_deref() != id.as_deref() {
                self.tokens(message.usage, false);
            }
        }
        let failure = text(extra.error)
            .map(Into::into)
            .or_else(|| (boolean(extra.is_api_error_message) == Some(true)).then(|| "unknown".to_owned()));
        for raw in blocks(message.content) {
            let block = Block::read(Some(raw));
            match text(block.kind).as_deref() {
                Some("text") => {
                    let full = text(block.text).unwrap_or_default();
                    match (&failure, parent) {
                        (Some(kind), None) => self.failed(kind, &extra, &full, out),
                        _ => self.whole(parent, id.as_deref(), &full, ChunkKind::Message, out),
                    }
                }
                Some("thinking") => {
                    let full = text(block.thinking).unwrap_or_default();
                    self.whole(parent, id.as_deref(), &full, ChunkKind::Thought, out);
                }
                Some("tool_use") => {
                    if let (Some(tool), Some(name)) = (text(block.id), text(block.name)) {
                        self.streams.of(parent).whole_tool(id.as_deref(), &tool);
                        self.tool_whole(parent, &tool, &name, block.input, out);
                    }
                }
                Some(other) => out.note(format!("skipped a `{other}` block")),
                None => {}
            }
        }
        // `content` may be a plain string.
        if let Some(full) = text(message.content) {
            self.whole(parent, id.as_deref(), &full, ChunkKind::Message, out);
        }
    }

    fn whole(&mut self, parent: Option<&str>, id: Option<&str>, full: &str, kind: ChunkKind, out: &mut Actions) {
        let (message_id, rest) = self.streams.of(parent).whole_text(id, full, kind == ChunkKind::Thought);
        if parent.is_some() {
            // Shown as the call that the subagent is; its words come later (issue 2, "comes later").
            return out.note("text of a subagent");
        }
        match rest {
            Whole::Rest(at) if at < full.len() => self.chunk(kind, message_id, full[at..].to_owned(), out),
            Whole::Rest(_) => {}
            Whole::Other => out.note("a whole block that differs from what its deltas said"),
        }
    }

    /// The text of an API failure is shown once, in the prompt's answer.
    fn failed(&mut self, kind: &str, extra: &AssistantExtra<'_>, full: &str, out: &mut Actions) {
        match self.turns.running_mut() {
            Some(turn) => {
                let status = uint(extra.api_error_status).and_then(|s| u16::try_from(s).ok());
                turn.failure = Some(Failure { kind: kind.to_owned(), status, text: full.to_owned() });
            }
            // A turn that nobody asked for has no answer to carry it.
            None => self.say(full, out),
        }
    }

    fn user(&mut self, line: &Line<'_>, bytes: &[u8], out: &mut Actions) {
        let extra = UserExtra::of_line(bytes);
        let message = ApiMessage::read(line.message);
        let mut results = 0;
        for raw in blocks(message.content) {
            let block = Block::read(Some(raw));
            if text(block.kind).as_deref() == Some("tool_result") {
                results += 1;
                self.tool_result(&block, extra.tool_use_result, extra.tool_result_meta, out);
            }
        }
        if results > 0 || boolean(extra.is_replay) != Some(true) {
            return;
        }
        // The output of a local command may come only here (stream-json.md, 3.2; transcript slash_compact).
        let output = text(message.content).and_then(|t| {
            Some(t.strip_prefix("<local-command-stdout>")?.strip_suffix("</local-command-stdout>")?.trim().to_owned())
        });
        if let Some(output) = output
            && self.turns.running().is_some_and(|t| t.is_command && !t.spoke)
        {
            self.say(&output, out);
        }
    }

    fn system(&mut self, line: &SystemLine<'_>, out: &mut Actions) {
        let subtype = text(line.subtype).unwrap_or_default();
        match &*subtype {
            "init" => {
                self.turns.begin();
                if let Some(id) = text(line.session_id) {
                    self.claude_session = id.into_owned();
                }
                self.mode_told(line.permission_mode, out);
            }
            "status" => self.mode_told(line.permission_mode, out),
            "commands_changed" => self.tell_commands(line.commands, out),
            "task_started" => self.task_started(line, out),
            "task_updated" => self.task_updated(line, out),
            "task_notification" => self.task_notified(line, out),
            "permission_denied" => self.permission_denied(line),
            "session_title_changed" => {
                if let Some(title) = text(line.title) {
                    out.update(&self.set.session_id, SessionUpdate::SessionInfoUpdate { title: &title });
                }
            }
            other => out.note(format!("skipped `system` `{other}`")),
        }
    }

    fn mode_told(&mut self, mode: Raw<'_>, out: &mut Actions) {
        if let Some(mode) = text(mode)
            && self.far.is_up()
        {
            self.mode_is(&mode, out);
        }
    }

    /// The slash commands, if they changed.
    pub(super) fn tell_commands(&mut self, commands: Raw<'_>, out: &mut Actions) {
        let Some(list) = items(commands) else { return };
        let commands: Vec<AvailableCommand> = list
            .into_iter()
            .filter_map(|raw| {
                let c = Command::read(Some(raw));
                let name = text(c.name)?;
                Some(AvailableCommand {
                    name: name.trim_start_matches('/').to_owned(),
                    description: text(c.description).unwrap_or_default().into_owned(),
                    input: text(c.argument_hint).filter(|h| !h.is_empty()).map(|h| CommandInput { hint: h.into() }),
                })
            })
            .collect();
        if commands != self.commands {
            out.update(&self.set.session_id, SessionUpdate::AvailableCommandsUpdate { available_commands: &commands });
            self.commands = commands;
        }
    }

    fn control_request(&mut self, line: &Line<'_>, out: &mut Actions) {
        let Some(id) = text(line.request_id) else {
            return out.note("a control_request without request_id");
        };
        let request = ControlRequest::read(line.request);
        let subtype = text(request.subtype).unwrap_or_default();
        if subtype == "can_use_tool" {
            self.can_use_tool(&id, &request, out);
        } else {
            out.note(format!("answered `{subtype}` as unsupported"));
            out.far(stream_json::unsupported(&id, &subtype));
        }
    }
}

/// A piece of text as it was read.
enum Piece<'a> {
    Whole(Option<Str<'a>>),
    Raw(Raw<'a>),
}

fn index(raw: Raw<'_>) -> Option<usize> {
    usize::try_from(uint(raw)?).ok()
}

/// The blocks of a message; a string has none.
fn blocks(content: Raw<'_>) -> Vec<&serde_json::value::RawValue> {
    items(content).unwrap_or_default()
}
