//! What claude says, line by line.
//!
//! Owns the dispatch of its messages. Keeps: an unknown type, subtype or block is noted and skipped, never fatal
//! (design, section 3, rule 7; report 59); a request of claude's is always answered.

use crate::mappings::Dialect;
use crate::translate::{Action, Actions, Chunk, ChunkForm, ChunkKind};
use crate::wire::acp::{AvailableCommand, CommandInput, SessionUpdate};
use crate::wire::stream_json::{
    self, ApiMessage, AssistantExtra, Block, Command, ControlRequest, ControlResponse, Delta, DeltaLine, Lifecycle,
    Line, Misc, ResultLine, Str, StreamEvent, SystemLine, UserExtra,
};
use crate::wire::text::{Fragment, Raw, boolean, items, text, uint};

use super::AcpOverClaude;
use super::stream::{BlockKind, Whole};
use super::turn::Failure;

/// Lines that may come before `session/new` is answered; claude says a few about hooks.
const EARLY_LIMIT: usize = 256;

impl AcpOverClaude {
    pub(super) fn far_line(&mut self, bytes: &[u8], out: &mut Actions) {
        if self.opened && !self.far.is_opening() {
            let mut deltas = std::mem::take(&mut self.deltas);
            let is_delta = deltas.read(bytes).map(|line| self.delta_line(line, out)).is_some();
            self.deltas = deltas;
            if is_delta {
                return;
            }
        }
        let line = match Line::parse(bytes) {
            Ok(line) => line,
            Err(e) => return out.note(format!("a line of the agent that is no message: {e}")),
        };
        let kind = line.kind();
        if !self.opened && !self.far.is_opening() {
            return out.note(format!("a `{kind}` message of a session that never opened"));
        }
        if self.far.is_opening() && waits_for_the_session(&kind, &line) {
            if kind == "control_cancel_request" && self.withdraw_held(&line) {
                return;
            }
            if kind == "control_request" && self.early.len() >= EARLY_LIMIT {
                let id = text(line.request_id).unwrap_or_default();
                return self.refuse_early(&id, out);
            }
            return self.hold(bytes, out);
        }
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
                // The next `init` tells the id that is kept; until then this one is nearest to it, and the old one would
                // bring back what was cleared.
                if self.session_is(Misc::of_line(bytes).new_conversation_id) {
                    self.far.reset();
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

    /// Keeps a line until `session/new` is answered: an editor knows nothing of the session before (report 22).
    fn hold(&mut self, bytes: &[u8], out: &mut Actions) {
        if self.early.len() < EARLY_LIMIT {
            self.early.push(bytes.to_vec());
        } else {
            out.note("too much was said before the session was open; a line is lost");
        }
    }

    /// A question that is held and not wanted any more is never asked.
    fn withdraw_held(&mut self, cancel: &Line<'_>) -> bool {
        let Some(id) = text(cancel.request_id) else { return false };
        let held = self.early.iter().rposition(|held| {
            Line::parse(held)
                .is_ok_and(|held| held.kind() == "control_request" && text(held.request_id).as_deref() == Some(&*id))
        });
        held.map(|at| self.early.remove(at)).is_some()
    }

    /// The session is open: what was said before is told now.
    pub(super) fn tell_early(&mut self, out: &mut Actions) {
        for line in std::mem::take(&mut self.early) {
            self.far_line(&line, out);
        }
    }

    fn stream_event(&mut self, line: &Line<'_>, out: &mut Actions) {
        let parent = text(line.parent_tool_use_id);
        let event = StreamEvent::read(line.event);
        let kind = text(event.kind).unwrap_or_default();
        match &*kind {
            "content_block_delta" => self.delta(parent.as_deref(), &event, out),
            "message_start" => {
                if parent.is_none() {
                    self.turns.begin();
                }
                let message = ApiMessage::read(event.message);
                let broken = self.streams.of(parent.as_deref()).begin(text(message.id).as_deref());
                self.calls_broke_off(&broken, out);
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
        let (text, kind) = match &*delta.kind.0 {
            "text_delta" => (delta.text, ChunkKind::Message),
            "thinking_delta" => (delta.thinking, ChunkKind::Thought),
            "input_json_delta" => {
                if let Some(json) = delta.partial_json {
                    self.tool_input(parent, index, &json.0, out);
                }
                return;
            }
            // Signatures are for the API; citations have no place in ACP.
            _ => return,
        };
        if let Some(Str(text)) = text {
            self.fragment(parent, index, kind, Fragment::Text(text), out);
        }
    }

    /// A delta of an unusual shape.
    fn delta(&mut self, parent: Option<&str>, event: &StreamEvent<'_>, out: &mut Actions) {
        let Some(index) = index(event.index) else { return };
        let delta = Delta::read(event.delta);
        let (raw, kind) = match text(delta.kind).as_deref() {
            Some("text_delta") => (delta.text, ChunkKind::Message),
            Some("thinking_delta") => (delta.thinking, ChunkKind::Thought),
            Some("input_json_delta") => {
                if let Some(json) = text(delta.partial_json) {
                    self.tool_input(parent, index, &json, out);
                }
                return;
            }
            _ => return,
        };
        self.fragment(parent, index, kind, Fragment::Token(raw), out);
    }

    fn fragment(&mut self, parent: Option<&str>, index: usize, kind: ChunkKind, new: Fragment<'_>, out: &mut Actions) {
        let piece = self.streams.of(parent).piece(index, kind == ChunkKind::Thought, new);
        if parent.is_some() {
            return out.note("text of a subagent");
        }
        if let Some(piece) = piece {
            self.chunk(kind, piece.id, piece.text, out);
        }
    }

    fn chunk(&mut self, kind: ChunkKind, message_id: Option<std::sync::Arc<str>>, text: String, out: &mut Actions) {
        if let Some(turn) = self.turns.running_mut() {
            turn.spoke = true;
        }
        let session_id = self.set.session_id.clone();
        out.push(Action::Chunk(Chunk { session_id, kind, message_id, text, form: ChunkForm::Acp }));
    }

    /// Text of the answer that belongs to no API message.
    pub(super) fn say(&mut self, text: &str, out: &mut Actions) {
        if !text.is_empty() {
            self.chunk(ChunkKind::Message, None, text.to_owned(), out);
        }
    }

    /// One finished block: what its deltas did not show yet.
    fn assistant(&mut self, line: &Line<'_>, bytes: &[u8], out: &mut Actions) {
        let parent = text(line.parent_tool_use_id);
        let parent = parent.as_deref();
        // A subagent may belong to work in the background.
        if parent.is_none() {
            self.turns.begin();
        }
        let message = ApiMessage::read(line.message);
        let id = text(message.id);
        let extra = AssistantExtra::of_line(bytes);
        let model = text(message.model);
        if parent.is_none() && model.as_deref() != Some("<synthetic>") {
            if let Some(model) = &model {
                self.model = Some(model.to_string());
            }
            // A message that did not stream tells its usage here.
            if !self.streams.of(None).is_at(id.as_deref()) {
                self.tokens(message.usage, false);
            }
        }
        let synthetic = parent.is_none() && model.as_deref() == Some("<synthetic>");
        if !synthetic {
            let broken = self.streams.of(parent).follow(id.as_deref());
            self.calls_broke_off(&broken, out);
        }
        let failure = text(extra.error)
            .map(Into::into)
            .or_else(|| (boolean(extra.is_api_error_message) == Some(true)).then(|| "unknown".to_owned()));
        // The turn goes on after a failure, so the answer will not tell it.
        if let (None, None, Some(turn)) = (&failure, parent, self.turns.running_mut())
            && let Some(failure) = turn.failure.take()
        {
            self.say(&failure.text, out);
        }
        for raw in blocks(message.content) {
            let block = Block::read(Some(raw));
            match text(block.kind).as_deref() {
                Some("text") => {
                    let full = text(block.text).unwrap_or_default();
                    match (&failure, parent) {
                        (Some(kind), None) => self.failed(kind, &extra, &full, out),
                        // Written by claude itself: no message of the model's, whichever streams now.
                        _ if synthetic => {
                            let id = id.as_deref().map(Into::into);
                            self.chunk(ChunkKind::Message, id, full.into_owned(), out);
                        }
                        _ => self.whole(parent, &full, ChunkKind::Message, out),
                    }
                }
                Some("thinking") => {
                    let full = text(block.thinking).unwrap_or_default();
                    self.whole(parent, &full, ChunkKind::Thought, out);
                }
                Some("tool_use") => {
                    if let (Some(tool), Some(name)) = (text(block.id), text(block.name)) {
                        self.streams.of(parent).whole_tool(&tool);
                        self.tool_whole(parent, &tool, &name, block.input, out);
                    }
                }
                Some(other) => out.note(format!("skipped a `{other}` block")),
                None => {}
            }
        }
        // `content` may be a plain string.
        if let Some(full) = text(message.content) {
            self.whole(parent, &full, ChunkKind::Message, out);
        }
    }

    fn whole(&mut self, parent: Option<&str>, full: &str, kind: ChunkKind, out: &mut Actions) {
        let rest = self.streams.of(parent).whole_text(full, kind == ChunkKind::Thought);
        if parent.is_some() {
            // Shown as the call that the subagent is; its words come later (issue 2, "comes later").
            return out.note("text of a subagent");
        }
        match rest {
            Whole::Rest(piece) => self.chunk(kind, piece.id, piece.text, out),
            Whole::Told => {}
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
                self.session_is(line.session_id);
                self.mode_told(line.permission_mode, out);
                self.mcp_servers_told(line.mcp_servers, out);
            }
            "status" => self.mode_told(line.permission_mode, out),
            "commands_changed" => self.tell_commands(line.commands, out),
            "task_started" => self.task_started(line, out),
            "task_updated" => self.task_updated(line, out),
            "task_notification" => self.task_notified(line, out),
            "background_tasks_changed" => self.tasks_left(line, out),
            "permission_denied" => self.permission_denied(line),
            "session_title_changed" => {
                if let Some(title) = text(line.title)
                    && self.title.as_deref() != Some(&*title)
                {
                    out.update(&self.set.session_id, SessionUpdate::SessionInfoUpdate { title: &title });
                    self.title = Some(title.into_owned());
                }
            }
            other => out.note(format!("skipped `system` `{other}`")),
        }
    }

    /// Claude's session id of the moment, which goes on the command line: only a UUID is one.
    fn session_is(&mut self, id: Raw<'_>) -> bool {
        let Some(id) = text(id).filter(|id| is_uuid(id)) else { return false };
        self.claude_session = id.into_owned();
        true
    }

    fn mode_told(&mut self, mode: Raw<'_>, out: &mut Actions) {
        if let Some(mode) = text(mode)
            && self.far.is_up()
        {
            // A process that comes back later is in the mode that claude went on to, not in one that was left.
            if self.chosen_mode.is_some() {
                self.chosen_mode = Some(mode.to_string());
            }
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

/// Whether a line is about the conversation, rather than about the start.
fn waits_for_the_session(kind: &str, line: &Line<'_>) -> bool {
    match kind {
        "control_response" | "result" | "keep_alive" => false,
        // A question needs the session; any other request is answered at once.
        "control_request" => text(ControlRequest::read(line.request).subtype).as_deref() == Some("can_use_tool"),
        _ => true,
    }
}

fn is_uuid(id: &str) -> bool {
    id.len() == 36
        && id.bytes().enumerate().all(|(at, b)| match at {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

fn index(raw: Raw<'_>) -> Option<usize> {
    usize::try_from(uint(raw)?).ok()
}

/// The blocks of a message; a string has none.
fn blocks(content: Raw<'_>) -> Vec<&serde_json::value::RawValue> {
    items(content).unwrap_or_default()
}
