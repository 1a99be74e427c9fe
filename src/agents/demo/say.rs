//! What the scripted agent writes: the envelopes of its messages and the streaming of blocks.
//!
//! Invariants: every line carries `session_id` and `uuid` unless it is a control message; with partial
//! messages, the complete `assistant` line of a block comes before the block's stop.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{Agent, Flow, Message, Partial, Stop};

/// The context window that every result reports.
pub(super) const CONTEXT_WINDOW: u64 = 200_000;

impl Agent {
    /// Writes a line as it stands.
    pub(super) fn write(&mut self, line: &Value) -> Flow {
        let mut text = line.to_string();
        text.push('\n');
        self.write_bytes(text.as_bytes())
    }

    pub(super) fn write_bytes(&mut self, bytes: &[u8]) -> Flow {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|_| Stop::Deaf)
    }

    /// Writes a message, with `session_id` and `uuid`.
    pub(super) fn say(&mut self, mut line: Value) -> Flow {
        if let Value::Object(members) = &mut line {
            members.insert("session_id".into(), self.session.clone().into());
            members.entry("uuid").or_insert_with(|| Uuid::new_v4().to_string().into());
        }
        self.write(&line)
    }

    pub(super) fn respond(&mut self, request: &Value, response: Option<Value>) -> Flow {
        let mut body = json!({"subtype": "success", "request_id": request});
        if let Some(response) = response {
            body["response"] = response;
        }
        self.write(&json!({"type": "control_response", "response": body}))
    }

    pub(super) fn respond_error(&mut self, request: &Value, error: &str, code: Option<&str>) -> Flow {
        let mut body = json!({"subtype": "error", "request_id": request, "error": error});
        if let Some(code) = code {
            body["error_code"] = code.into();
        }
        self.write(&json!({"type": "control_response", "response": body}))
    }

    pub(super) fn lifecycle(&mut self, uuid: Option<&str>, state: &str) -> Flow {
        match uuid {
            Some(uuid) if !self.wave() => {
                self.say(json!({"type": "command_lifecycle", "command_uuid": uuid, "state": state}))
            }
            _ => Ok(()),
        }
    }

    /// Announces a state of the session, in claude's words; Wave says it in its own.
    pub(super) fn state(&mut self, state: &str) -> Flow {
        if !self.states {
            return Ok(());
        }
        if self.wave() {
            let state = if state == "running" { "busy" } else { state };
            self.say(json!({"type": "session_state_changed", "state": state}))
        } else {
            self.say(json!({"type": "system", "subtype": "session_state_changed", "state": state}))
        }
    }

    pub(super) fn init(&mut self) -> Flow {
        if self.wave() {
            let line = json!({"type": "system", "subtype": "status", "status": null, "permissionMode": self.mode});
            return self.say(line);
        }
        let names: Vec<Value> = self.script.profile.commands.iter().map(|command| command["name"].clone()).collect();
        let mut line = json!({
            "type": "system", "subtype": "init",
            "cwd": self.cwd, "original_cwd": self.cwd, "additional_directories": [],
            "tools": ["Bash", "Edit", "Read", "TodoWrite", "Write"],
            "mcp_servers": [], "model": self.model, "permissionMode": self.mode,
            "slash_commands": names, "terminal_slash_commands": [], "apiKeySource": "none",
            "claude_code_version": super::CLAUDE_VERSION, "output_style": "default",
            "agents": [], "skills": [], "plugins": [],
            "capabilities": ["interrupt_receipt_v1", "msg_lifecycle_v1"],
            "fast_mode_state": "off",
        });
        self.add_user_uuids(&mut line, false);
        self.say(line)
    }

    /// Adds `user_message_uuids` (and `user_message_uuid`) where this turn's prompt has a uuid.
    fn add_user_uuids(&self, line: &mut Value, single: bool) {
        if let Some(uuid) = self.prompt.uuid.as_ref().filter(|_| !self.wave()) {
            line["user_message_uuids"] = json!([uuid]);
            if single {
                line["user_message_uuid"] = uuid.as_str().into();
            }
        }
    }

    fn first_frame_uuids(&mut self, line: &mut Value) {
        if self.first_frame {
            self.first_frame = false;
            self.add_user_uuids(line, true);
        }
    }

    fn usage(&self, output: u64) -> Value {
        let input = 12 + self.prompt.text.split_whitespace().count();
        json!({
            "input_tokens": input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
            "output_tokens": output,
        })
    }

    fn streams(&self) -> bool {
        self.flags.partial && !self.wave()
    }

    fn stream(&mut self, event: Value) -> Flow {
        let id = self.message.as_ref().map(|message| message.id.clone());
        let mut line = json!({
            "type": "stream_event", "event": event, "parent_tool_use_id": null, "api_message_id": id,
        });
        // Claude names the prompt on the turn's first frame of each kind; the first stream frame is always a start.
        if line["event"]["type"] == "message_start" && self.turn_messages == 1 {
            self.add_user_uuids(&mut line, true);
        }
        self.say(line)
    }

    /// The open API message, begun if there is none; returns its id.
    fn open_message(&mut self) -> Flow<String> {
        if let Some(message) = &self.message {
            return Ok(message.id.clone());
        }
        self.messages += 1;
        self.turn_messages += 1;
        let id = format!("msg_{}_{}", &self.session[..self.session.len().min(8)], self.messages);
        if self.streams() {
            let mut status = json!({"type": "system", "subtype": "status", "status": "requesting"});
            self.add_user_uuids(&mut status, false);
            self.say(status)?;
        }
        self.message = Some(Message { id: id.clone(), blocks: 0 });
        if self.streams() {
            let message = json!({
                "id": id, "type": "message", "role": "assistant", "model": self.model, "content": [],
                "stop_reason": null, "stop_sequence": null, "usage": self.usage(1),
            });
            self.stream(json!({"type": "message_start", "message": message}))?;
        }
        Ok(id)
    }

    /// Ends the open API message, if there is one.
    pub(super) fn close_message(&mut self, stop_reason: &str) -> Flow {
        if self.message.is_none() {
            return Ok(());
        }
        if self.streams() {
            let usage = json!({"output_tokens": self.turn_tokens});
            let delta = json!({"stop_reason": stop_reason, "stop_sequence": null});
            self.stream(json!({"type": "message_delta", "delta": delta, "usage": usage}))?;
            self.stream(json!({"type": "message_stop"}))?;
        }
        self.message = None;
        Ok(())
    }

    /// Writes one `assistant` line with one block.
    fn assistant(&mut self, id: &str, block: Value, parent: Option<&str>, aborted: bool) -> Flow {
        let mut line = json!({
            "type": "assistant", "parent_tool_use_id": parent, "timestamp": timestamp(),
            "message": {
                "id": id, "type": "message", "role": "assistant", "model": self.model, "content": [block],
                "stop_reason": null, "stop_sequence": null, "usage": self.usage(1),
            },
        });
        if aborted {
            line["aborted"] = true.into();
        }
        self.first_frame_uuids(&mut line);
        self.say(line)
    }

    /// Says a text or thinking block in pieces; an interruption between two of them leaves it cut.
    pub(super) fn say_block<'p>(&mut self, kind: &'static str, pieces: impl Iterator<Item = &'p str>) -> Flow {
        let id = self.open_message()?;
        let index = self.next_block();
        self.partial = Some(Partial { kind, text: String::new() });
        if self.streams() {
            let block = match kind {
                "thinking" => json!({"type": kind, "thinking": "", "signature": ""}),
                _ => json!({"type": kind, "text": ""}),
            };
            self.stream(json!({"type": "content_block_start", "index": index, "content_block": block}))?;
        }
        for piece in pieces {
            self.turn_tokens += 1;
            if self.streams() {
                let delta = match kind {
                    "thinking" => json!({"type": "thinking_delta", "thinking": piece}),
                    _ => json!({"type": "text_delta", "text": piece}),
                };
                if kind == "thinking" {
                    let tokens = self.turn_tokens;
                    self.say(json!({
                        "type": "system", "subtype": "thinking_tokens",
                        "estimated_tokens": tokens, "estimated_tokens_delta": 1,
                    }))?;
                }
                self.stream(json!({"type": "content_block_delta", "index": index, "delta": delta}))?;
            } else if self.wave() {
                self.assistant(&id, block(kind, piece), None, false)?;
            }
            if let Some(partial) = &mut self.partial {
                partial.text.push_str(piece);
            }
            self.breathe()?;
        }
        let text = self.partial.take().map(|partial| partial.text).unwrap_or_default();
        if !self.wave() {
            self.assistant(&id, block(kind, &text), None, false)?;
        }
        if self.streams() {
            self.stream(json!({"type": "content_block_stop", "index": index}))?;
        }
        if kind == "text" {
            self.last_text = text;
        }
        Ok(())
    }

    /// Says a tool call.
    pub(super) fn say_call(&mut self, id: &str, name: &str, input: &Value, parent: Option<&str>) -> Flow {
        if parent.is_some() {
            // A subagent's messages are its own, and claude does not stream them.
            let message = format!("msg_child_{id}");
            let block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
            return self.assistant(&message, block, parent, false);
        }
        let message = self.open_message()?;
        let index = self.next_block();
        self.turn_tokens += 1;
        if self.streams() {
            let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
            self.stream(json!({"type": "content_block_start", "index": index, "content_block": block}))?;
            for piece in chunks(&input.to_string(), 24) {
                let delta = json!({"type": "input_json_delta", "partial_json": piece});
                self.stream(json!({"type": "content_block_delta", "index": index, "delta": delta}))?;
                self.breathe()?;
            }
        }
        let block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
        self.assistant(&message, block, None, false)?;
        if self.streams() {
            self.stream(json!({"type": "content_block_stop", "index": index}))?;
        }
        Ok(())
    }

    fn next_block(&mut self) -> usize {
        self.message.as_mut().map_or(0, |message| {
            message.blocks += 1;
            message.blocks - 1
        })
    }

    /// Gives the result of a tool call that still owes one; otherwise does nothing.
    pub(super) fn say_result(
        &mut self,
        call: &str,
        content: Value,
        error: bool,
        value: Value,
        meta: Option<Value>,
    ) -> Flow {
        let Some(at) = self.calls.iter().position(|other| other.id == call && other.open) else {
            return Ok(());
        };
        self.close_message("tool_use")?;
        let call = &mut self.calls[at];
        call.open = false;
        if self.script.profile.dialect == crate::mappings::Dialect::Wave {
            let line = json!({
                "type": "tool_result", "tool_use_id": call.id, "content": content, "is_error": error,
            });
            return self.say(line);
        }
        let block = json!({"type": "tool_result", "tool_use_id": call.id, "content": content, "is_error": error});
        let meta = meta.or_else(|| {
            let decided = !call.decision.is_null();
            decided.then(|| json!({"permission_decision": call.decision}))
        });
        let mut line = json!({
            "type": "user", "parent_tool_use_id": call.parent, "timestamp": timestamp(),
            "message": {"role": "user", "content": [block]},
        });
        // Claude gives neither of these inside a subagent.
        if call.parent.is_none() {
            line["tool_use_result"] = value;
            if let Some(Value::Object(mut meta)) = meta {
                meta.insert("id".into(), call.id.clone().into());
                line["tool_result_meta"] = json!([meta]);
            }
        }
        self.say(line)
    }

    /// Says what is left when a turn is cut: the cut block, the open calls, the marker, the stream's end.
    /// Returns claude's `terminal_reason`.
    pub(super) fn say_interruption(&mut self) -> Flow<&'static str> {
        let cut = self.partial.take();
        let index = self.message.as_ref().map_or(0, |message| message.blocks.saturating_sub(1));
        if let (Some(partial), Some(message)) = (&cut, &self.message)
            && !partial.text.is_empty()
            && !self.wave()
        {
            let id = message.id.clone();
            let block = block(partial.kind, &partial.text);
            self.assistant(&id, block, None, true)?;
        }
        let streaming = self.message.take();
        let open: Vec<String> = self.calls.iter().filter(|call| call.open).map(|call| call.id.clone()).collect();
        for call in &open {
            let content = "The user stopped this tool call. It may not have run. Stop and wait for instructions.";
            let meta = json!({"non_execution_kind": "user-rejected"});
            self.say_result(call, content.into(), true, "User rejected tool use".into(), Some(meta))?;
        }
        let (marker, reason) = if open.is_empty() {
            ("[Request interrupted by user]", "aborted_streaming")
        } else {
            ("[Request interrupted by user for tool use]", "aborted_tools")
        };
        if !self.wave() {
            self.say(json!({
                "type": "user", "parent_tool_use_id": null, "timestamp": timestamp(),
                "message": {"role": "user", "content": [{"type": "text", "text": marker}]},
            }))?;
        }
        if let Some(message) = streaming.filter(|_| self.streams()) {
            let id = message.id.clone();
            self.message = Some(message);
            if cut.is_some() {
                self.stream(json!({"type": "content_block_stop", "index": index}))?;
            }
            let delta = json!({"stop_reason": null, "stop_sequence": null});
            let usage = json!({"output_tokens": self.turn_tokens});
            self.stream(json!({"type": "message_delta", "delta": delta, "usage": usage}))?;
            self.message = None;
            let abandoned = json!({"api_message_id": id, "from_block_index": index + 1});
            self.say(json!({
                "type": "stream_event", "event": {"type": "message_stop"}, "parent_tool_use_id": null,
                "api_message_id": id, "abandoned_blocks": abandoned,
            }))?;
        }
        Ok(reason)
    }

    /// Writes the turn's `result`: `success`, or what `interrupted` says, changed by `set`.
    pub(super) fn say_turn_result(&mut self, interrupted: Option<&str>, set: &Map<String, Value>) -> Flow {
        self.output_tokens += self.turn_tokens;
        let cost = |tokens: u64| tokens as f64 * 0.000_025;
        let totals = self.usage(self.output_tokens);
        let model_usage = json!({
            "inputTokens": totals["input_tokens"], "outputTokens": self.output_tokens,
            "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0, "webSearchRequests": 0,
            "costUSD": cost(self.output_tokens), "contextWindow": CONTEXT_WINDOW, "maxOutputTokens": 32_000,
        });
        let mut line = json!({
            "type": "result", "subtype": "success", "is_error": false,
            "duration_ms": 1, "duration_api_ms": 1, "num_turns": self.turn_messages.max(1),
            "result": self.last_text, "stop_reason": "end_turn", "terminal_reason": "completed",
            "total_cost_usd": cost(self.output_tokens), "usage": self.usage(self.turn_tokens),
            "modelUsage": {(self.model.clone()): model_usage},
            "permission_denials": self.denials, "queued_turn_count": 0, "result_index": self.results,
        });
        self.add_user_uuids(&mut line, true);
        if let Some(reason) = interrupted {
            line["subtype"] = "error_during_execution".into();
            line["is_error"] = true.into();
            line["terminal_reason"] = reason.into();
            line["stop_reason"] = if reason == "aborted_tools" { "tool_use".into() } else { Value::Null };
            line["errors"] = json!(["the turn was interrupted"]);
            remove(&mut line, "result");
        }
        if self.wave() {
            let keep = ["type", "subtype", "is_error", "duration_ms", "total_cost_usd", "stop_reason", "result"];
            if let Value::Object(members) = &mut line {
                members.retain(|name, _| keep.contains(&name.as_str()));
            }
        }
        for (name, value) in set {
            if value.is_null() {
                remove(&mut line, name);
            } else {
                line[name] = value.clone();
            }
        }
        self.results += 1;
        self.result_sent = true;
        self.failed_last = line["is_error"] == true;
        self.say(line)
    }
}

fn block(kind: &str, text: &str) -> Value {
    match kind {
        "thinking" => json!({"type": kind, "thinking": text, "signature": "c2lnbmVk"}),
        _ => json!({"type": kind, "text": text}),
    }
}

fn remove(line: &mut Value, name: &str) {
    if let Value::Object(members) = line {
        members.remove(name);
    }
}

/// The words of a text, each with the white space behind it: joined they are the text.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(char::is_whitespace)
}

/// Pieces of at most `size` bytes, cut between characters.
fn chunks(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = size.min(rest.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

/// Now, as claude writes it: `2026-11-29T23:56:35.059Z`.
fn timestamp() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (now.as_secs() / 86_400, now.as_secs() % 86_400);
    // The civil date of a day number, by the usual method of counting from 1 March of the year 0.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, era * 400 + year) } else { (month - 9, era * 400 + year + 1) };
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", now.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_joined_are_the_text() {
        let text = "  a b\n\nc äöü €uro ";
        assert_eq!(words(text).collect::<String>(), text);
        for size in 1..9 {
            assert_eq!(chunks(text, size).collect::<String>(), text);
        }
    }

    #[test]
    fn a_timestamp_has_the_shape_that_claude_writes() {
        let now = timestamp();
        assert_eq!(now.len(), 24, "{now}");
        assert!(now.starts_with("20") && now.ends_with('Z'), "{now}");
    }
}
