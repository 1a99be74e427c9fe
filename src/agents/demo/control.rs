//! What the scripted agent reads: user messages, control requests, answers, and the end of the input.
//!
//! Invariants: every control request is answered, unless the script says otherwise; a line that claude
//! would die of ends this process the same way; an answer that comes late or twice has no effect.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::Instant;

use serde_json::{Value, json};

use super::super::script::{Initialize, Interrupt, contains};
use super::{Agent, Answer, Flow, Input, Prompt, Stop};

const MODES: &[&str] = &["acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan"];

impl Agent {
    /// Deals with all that has come, without waiting.
    pub(super) fn take_waiting(&mut self) -> Flow {
        if self.starting && self.expecting.is_none() {
            return Ok(());
        }
        loop {
            match self.inbox.try_recv() {
                Ok(input) => self.take(input)?,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Waits for one input and deals with it; false when the time was over first.
    pub(super) fn take_one(&mut self, deadline: Option<Instant>) -> Flow<bool> {
        let input = match deadline {
            // This agent holds a sender itself, so the channel cannot be closed.
            None => self.inbox.recv().map_err(|_| Stop::Exit(1))?,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                match self.inbox.recv_timeout(left) {
                    Ok(input) => input,
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(false),
                }
            }
        };
        self.take(input)?;
        Ok(true)
    }

    fn take(&mut self, input: Input) -> Flow {
        match input {
            Input::Line(line) => self.take_line(&line),
            Input::Closed => {
                self.input_ended = true;
                for index in 0..self.questions.len() {
                    self.answer(index, Answer::Failed("Tool permission stream closed".into()))?;
                }
                Ok(())
            }
            Input::CommandEnded(pid, output) => {
                self.children.remove(pid);
                self.ended.push_back((pid, output));
                Ok(())
            }
            Input::Interrupt if self.in_turn => {
                self.exit_after_turn = true;
                Err(Stop::Interrupted)
            }
            Input::Interrupt => {
                self.children.kill_all();
                Err(Stop::Exit(0))
            }
        }
    }

    fn take_line(&mut self, line: &[u8]) -> Flow {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            return Ok(());
        }
        let Ok(line) = serde_json::from_str::<Value>(text) else {
            let length = text.chars().count();
            return die(&format!("Error parsing streaming input line (type=unknown, {length} chars): SyntaxError"));
        };
        if !line.is_object() {
            return Ok(());
        }
        if self.expecting.as_ref().is_some_and(|pattern| contains(&line, pattern)) {
            self.expecting = None;
            if let Some(request) = line["request_id"].as_str() {
                request.clone_into(&mut self.last_request);
            }
        }
        match line["type"].as_str() {
            Some("user") => self.take_user(line),
            Some("control_request") => self.take_request(&line),
            Some("control_response") => self.take_response(&line),
            // Claude would run this without any question. No host may ever let one through.
            Some("bash_command") => die("bash_command reached the agent"),
            _ => Ok(()),
        }
    }

    fn take_user(&mut self, line: Value) -> Flow {
        let role = line["message"]["role"].as_str().unwrap_or("undefined");
        if role != "user" {
            return die(&format!("Error: Expected message role 'user', got '{role}'"));
        }
        let uuid = line["uuid"].as_str().map(str::to_owned);
        if let Some(uuid) = &uuid
            && !self.seen.insert(uuid.clone())
        {
            if self.flags.replay {
                let mut echo = line;
                echo["isReplay"] = true.into();
                return self.say(echo);
            }
            return Ok(());
        }
        let text = match &line["message"]["content"] {
            Value::String(text) => text.clone(),
            Value::Array(blocks) => {
                let texts = blocks.iter().filter_map(|block| block["text"].as_str());
                texts.collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        };
        if !self.in_turn && self.queue.is_empty() {
            self.state("running")?;
        }
        self.lifecycle(uuid.as_deref(), "queued")?;
        let message = line["message"].clone();
        let mut echo = json!({"type": "user", "message": message});
        if let Some(uuid) = &uuid {
            echo["uuid"] = uuid.as_str().into();
        }
        self.queue.push_back(Prompt { uuid, text, message: echo });
        Ok(())
    }

    fn take_response(&mut self, line: &Value) -> Flow {
        let response = &line["response"];
        let request = response["request_id"].as_str().unwrap_or_default();
        let open = self.questions.iter().position(|question| question.request == request && question.answer.is_none());
        if self.flags.replay && !self.wave() {
            self.write(line)?;
        }
        let Some(index) = open else {
            return Ok(());
        };
        let body = &response["response"];
        let answer = if response["subtype"] == "error" {
            Answer::Failed(format!("Error: {}", response["error"].as_str().unwrap_or_default()))
        } else {
            match (body["behavior"].as_str(), body["message"].as_str()) {
                (Some("allow"), _) => Answer::Allow {
                    input: Some(body["updatedInput"].clone()).filter(Value::is_object),
                    permissions: body["updatedPermissions"].as_array().cloned().unwrap_or_default(),
                },
                (Some("deny"), Some(message)) => {
                    Answer::Deny { message: message.to_owned(), interrupt: body["interrupt"] == true }
                }
                _ => Answer::Failed("Error: the answer is neither an allow nor a deny with a message".into()),
            }
        };
        self.answer(index, answer)
    }

    fn take_request(&mut self, line: &Value) -> Flow {
        let (id, request) = (&line["request_id"], &line["request"]);
        if !request.is_object() {
            return die("Error: Missing request on control_request");
        }
        match request["subtype"].as_str().unwrap_or_default() {
            "initialize" => self.take_initialize(id),
            "interrupt" => self.take_interrupt(id, request["cancel_queued"] == true),
            "set_permission_mode" => self.take_mode(id, request["mode"].as_str().unwrap_or_default()),
            "set_model" => {
                let model = request["model"].as_str().filter(|&model| model != "default");
                self.model = model.unwrap_or(&self.script.profile.model).to_owned();
                let model = self.model.clone();
                self.respond(id, Some(json!({"model": model})))
            }
            "set_max_thinking_tokens" | "apply_flag_settings" => self.respond(id, None),
            "mcp_status" => self.respond(id, Some(json!({"mcpServers": []}))),
            "mcp_set_servers" => self.respond(id, Some(json!({"added": [], "removed": [], "errors": {}}))),
            "get_status" => {
                let rows = json!([{"label": "Session ID", "value": self.session}]);
                self.respond(id, Some(json!({"sections": [{"title": "Session", "rows": rows}]})))
            }
            "get_context_usage" => {
                let used = self.output_tokens;
                let body = json!({
                    "totalTokens": used, "maxTokens": super::say::CONTEXT_WINDOW, "percentage": 0, "categories": [],
                    "model": self.model,
                });
                self.respond(id, Some(body))
            }
            "generate_session_title" => self.respond(id, Some(json!({"title": null}))),
            "cancel_async_message" => self.take_withdrawal(id, request["message_uuid"].as_str().unwrap_or_default()),
            "end_session" => {
                self.respond(id, None)?;
                self.children.kill_all();
                Err(Stop::Exit(0))
            }
            other => {
                let error = format!("Unsupported control request subtype: {other}");
                self.respond_error(id, &error, Some("unsupported_request"))
            }
        }
    }

    fn take_initialize(&mut self, id: &Value) -> Flow {
        match self.script.profile.initialize {
            Initialize::Silent => return Ok(()),
            Initialize::Error => return self.respond_error(id, "the script refuses to initialize", None),
            Initialize::Answer => {}
        }
        let model = |value: &str, name: &str| {
            json!({
                "value": value, "resolvedModel": self.model, "displayName": name,
                "description": "follows a script", "supportsEffort": false,
            })
        };
        let body = json!({
            "commands": self.script.profile.commands, "agents": [], "output_style": "default",
            "available_output_styles": ["default"],
            "models": [model("default", "Default (script)"), model(&self.model, "Script")],
            "account": {"tokenSource": "none", "apiKeySource": "none"},
            "pid": std::process::id(), "claude_code_version": super::CLAUDE_VERSION,
            "current_permission_mode": self.mode, "session_state": if self.in_turn { "running" } else { "idle" },
            "capabilities": [],
        });
        let open: Vec<&str> = self
            .questions
            .iter()
            .filter(|question| question.answer.is_none())
            .map(|question| question.request.as_str())
            .collect();
        // Claude gives the whole requests here; the ids are enough to see that none was forgotten.
        let line = json!({
            "type": "control_response",
            "response": {"subtype": "success", "request_id": id, "response": body},
            "pending_permission_requests": open, "pending_user_dialog_requests": [],
        });
        self.write(&line)
    }

    fn take_interrupt(&mut self, id: &Value, cancel_queued: bool) -> Flow {
        let waiting: Vec<String> = self.queue.iter().filter_map(|prompt| prompt.uuid.clone()).collect();
        let body = if cancel_queued {
            json!({"still_queued": [], "cancelled": waiting})
        } else {
            json!({"still_queued": waiting})
        };
        match self.script.profile.interrupt {
            Interrupt::Silent if self.in_turn => return Ok(()),
            Interrupt::Ignore if self.in_turn => return self.respond(id, Some(body)),
            _ => {}
        }
        if self.in_turn {
            for index in 0..self.questions.len() {
                if self.questions[index].answer.is_none() {
                    self.questions[index].answer = Some(Answer::Failed(String::new()));
                    let (request, call) = (self.questions[index].request.clone(), self.questions[index].call.clone());
                    self.note_denial(&call);
                    self.write(&json!({"type": "control_cancel_request", "request_id": request}))?;
                }
            }
        }
        self.respond(id, Some(body))?;
        if cancel_queued {
            self.queue.clear();
            for uuid in &waiting {
                self.lifecycle(Some(uuid), "cancelled")?;
            }
        }
        if self.in_turn { Err(Stop::Interrupted) } else { Ok(()) }
    }

    fn take_mode(&mut self, id: &Value, mode: &str) -> Flow {
        let mode = if mode == "manual" { "default" } else { mode };
        if !MODES.contains(&mode) {
            return self.respond_error(id, &format!("unknown permission mode: {mode}"), None);
        }
        self.respond(id, Some(json!({"mode": mode})))?;
        self.set_mode(mode)
    }

    fn take_withdrawal(&mut self, id: &Value, uuid: &str) -> Flow {
        let waiting = self.queue.iter().position(|prompt| prompt.uuid.as_deref() == Some(uuid));
        if let Some(at) = waiting {
            self.queue.remove(at);
            self.lifecycle(Some(uuid), "cancelled")?;
        }
        self.respond(id, Some(json!({"cancelled": waiting.is_some(), "message_uuid": uuid})))
    }
}

/// Claude's end on a line that it cannot take.
fn die(message: &str) -> Flow {
    let _ = writeln!(std::io::stderr(), "{message}");
    Err(Stop::Exit(1))
}
