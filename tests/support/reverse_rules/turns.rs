//! The rules of what a turn shows to the host: messages, calls and their results, stream events, the result.

use serde_json::Value;

use super::{Judge, Streamed, text};

impl Judge {
    pub(super) fn assistant(&mut self, value: &Value) -> Result<(), String> {
        let partial = self.setting.partial;
        let message = &value["message"];
        let id = text(message, "/id").to_owned();
        let whole = !id.is_empty()
            && message["type"] == "message"
            && message["role"] == "assistant"
            && message["model"].is_string()
            && message.get("stop_reason").is_some_and(Value::is_null)
            && message.get("stop_sequence").is_some_and(Value::is_null)
            && message["usage"].is_object()
            && value.get("parent_tool_use_id").is_some();
        if !whole {
            return Err("an assistant line that hosts cannot read".into());
        }
        let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let [block] = blocks else { return Err("not one block".into()) };
        if let Some(parent) = value["parent_tool_use_id"].as_str() {
            return self.of_subagent(parent, block, id);
        }
        let synthetic = message["model"] == "<synthetic>";
        let again = self.messages.contains(&id);
        self.messages.insert(id.clone());
        let turn = self.turn()?;
        if again && turn.message.as_ref() != Some(&id) {
            return Err("a message goes on after another".into());
        }
        turn.message = Some(id);
        let (kind, content) = block_of(block)?;
        if partial && !synthetic {
            let Some(streamed) = turn.block.as_mut().filter(|b| !b.whole) else {
                return Err("a block without its events".into());
            };
            streamed.whole = true;
            let same = match &*kind {
                // Members may come in any order.
                "tool_use" => serde_json::from_str::<Value>(&streamed.text).ok() == Some(block["input"].clone()),
                _ => streamed.text == content,
            };
            if streamed.kind != kind || !same {
                return Err(format!("the block is not what was streamed: {:?}", streamed.text));
            }
        }
        if kind == "tool_use" {
            let id = text(block, "/id").to_owned();
            if id.is_empty() || turn.calls.insert(id.clone(), false).is_some() {
                return Err("a call twice".into());
            }
            self.shown_calls.insert(id);
        }
        Ok(())
    }

    /// A line of a subagent: of a call that was shown; a message of its own, and not streamed.
    fn of_subagent(&mut self, parent: &str, block: &Value, id: String) -> Result<(), String> {
        if !self.messages.insert(id) {
            return Err("a message twice".into());
        }
        let (kind, _) = block_of(block)?;
        let call = text(block, "/id").to_owned();
        let turn = self.turn()?;
        // It may go on in the background when its call has its result.
        if !turn.calls.contains_key(parent) {
            return Err("a subagent of no call".into());
        }
        if kind == "tool_use" {
            if call.is_empty() || turn.calls.insert(call.clone(), false).is_some() {
                return Err("a call twice".into());
            }
            turn.of_subagents.insert(call.clone());
            self.shown_calls.insert(call);
        }
        Ok(())
    }

    pub(super) fn user(&mut self, value: &Value) -> Result<(), String> {
        if value["isReplay"] == true {
            self.turn()?;
            return if self.setting.replay { Ok(()) } else { Err("an echo that nobody wants".into()) };
        }
        let message = &value["message"];
        if message["role"] != "user" {
            return Err("a user line without its role".into());
        }
        for block in message["content"].as_array().ok_or("a user line without content")? {
            if block["type"] != "tool_result" {
                self.turn()?;
                continue;
            }
            if block.get("content").is_none_or(Value::is_null) || !block["is_error"].is_boolean() {
                return Err("a result without its members".into());
            }
            let turn = self.turn()?;
            let call = text(block, "/tool_use_id");
            if value["parent_tool_use_id"].is_string() != turn.of_subagents.contains(call) {
                return Err("a result that is another's".into());
            }
            if turn.streaming && value["parent_tool_use_id"].is_null() {
                return Err("a result inside of a message".into());
            }
            match turn.calls.get_mut(call) {
                None => return Err("a result of no call".into()),
                Some(closed) if *closed => return Err("a second result".into()),
                Some(closed) => *closed = true,
            }
        }
        Ok(())
    }

    pub(super) fn stream_event(&mut self, value: &Value) -> Result<(), String> {
        if !self.setting.partial {
            return Err("a stream event that nobody wants".into());
        }
        let event = &value["event"];
        let turn = self.turn()?;
        let index = event["index"].as_u64();
        match (text(event, "/type"), turn.streaming) {
            ("message_start", false) if turn.block.is_none() => {
                turn.streaming = true;
                turn.next_index = 0;
                Ok(())
            }
            ("content_block_start", true) if turn.block.is_none() && index == Some(turn.next_index) => {
                turn.block = Some(Streamed {
                    index: turn.next_index,
                    kind: text(event, "/content_block/type").to_owned(),
                    text: String::new(),
                    whole: false,
                });
                turn.next_index += 1;
                Ok(())
            }
            ("content_block_delta", true) => {
                let block = turn.block.as_mut().filter(|b| Some(b.index) == index && !b.whole);
                let block = block.ok_or("a piece of no open block")?;
                let (kind, piece) = match text(event, "/delta/type") {
                    "text_delta" => ("text", text(event, "/delta/text")),
                    "thinking_delta" => ("thinking", text(event, "/delta/thinking")),
                    "input_json_delta" => ("tool_use", text(event, "/delta/partial_json")),
                    other => return Err(format!("a piece {other:?}")),
                };
                if kind != block.kind {
                    return Err("a piece of another kind".into());
                }
                block.text.push_str(piece);
                Ok(())
            }
            ("content_block_stop", true) => match turn.block.take() {
                Some(block) if Some(block.index) == index && block.whole => Ok(()),
                other => Err(format!("the end of {other:?}")),
            },
            ("message_delta", true) if turn.block.is_none() => Ok(()),
            ("message_stop", true) if turn.block.is_none() => {
                turn.streaming = false;
                Ok(())
            }
            (other, _) => Err(format!("{other} at the wrong place")),
        }
    }

    pub(super) fn result(&mut self, value: &Value) -> Result<(), String> {
        let members = value["is_error"].is_boolean()
            && value["duration_ms"].is_u64()
            && value["duration_api_ms"].is_u64()
            && value["num_turns"].is_u64()
            && value["total_cost_usd"].is_number()
            && value["usage"].is_object()
            && value["modelUsage"].is_object()
            && value["permission_denials"].is_array()
            && value.get("stop_reason").is_some()
            && (value["terminal_reason"].is_string() || value["num_turns"] == 0);
        if !members {
            return Err("a result without its members".into());
        }
        let failed = value["is_error"] == true;
        match text(value, "/subtype") {
            "success" if value["result"].is_string() => {}
            "" | "success" => return Err("a success without its text".into()),
            _ if !failed => return Err("an error that is none".into()),
            _ => {
                let errors = value["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
                if errors.is_empty() || !errors.iter().all(|e| e.as_str().is_some_and(|e| !e.is_empty())) {
                    return Err("an error without errors".into());
                }
            }
        }
        if let (Some(most), false) = (self.setting.max_turns, failed)
            && value["num_turns"].as_u64() > Some(most)
        {
            return Err("more turns than allowed".into());
        }
        for denial in value["permission_denials"].as_array().into_iter().flatten() {
            if !self.shown_calls.contains(text(denial, "/tool_use_id")) || !denial["tool_input"].is_object() {
                return Err("the refusal of a call that was not shown".into());
            }
        }
        // A turn that SIGINT ends has ended in order.
        let by_user = text(value, "/errors/0").starts_with("[Request interrupted");
        self.last_failed = failed && !(self.signalled && by_user);
        let Some(turn) = self.turn.take() else {
            // A start that failed: all prompts, or none, get this one.
            if !failed || self.gave_up {
                return Err("a result outside of a turn".into());
            }
            self.gave_up = true;
            return Ok(());
        };
        self.results += 1;
        if self.results > self.prompts {
            return Err("more results than prompts".into());
        }
        if turn.streaming || turn.block.is_some() {
            return Err("a message is still open".into());
        }
        let open: Vec<_> = turn.calls.iter().filter(|(_, closed)| !**closed).map(|(id, _)| id).collect();
        if !open.is_empty() {
            return Err(format!("calls without a result: {open:?}"));
        }
        let asks: Vec<_> = self.asks.iter().filter(|(_, a)| a.subtype == "can_use_tool").map(|(id, _)| id).collect();
        if !asks.is_empty() {
            return Err(format!("questions are still open: {asks:?}"));
        }
        Ok(())
    }
}

/// A content block's kind, and what it holds.
fn block_of(block: &Value) -> Result<(String, String), String> {
    let kind = text(block, "/type").to_owned();
    let content = match &*kind {
        "text" => block["text"].as_str().map(str::to_owned),
        "thinking" if block["signature"].is_string() => block["thinking"].as_str().map(str::to_owned),
        "tool_use" if block["input"].is_object() && !text(block, "/name").is_empty() => {
            Some(block["input"].to_string())
        }
        _ => None,
    };
    let content = content.ok_or("a block that hosts cannot read")?;
    if content.is_empty() {
        return Err("an empty block".into());
    }
    Ok((kind, content))
}
