//! The simulated agent.

use diglot::translate::{FarExit, StartFailure, Stop};
use serde_json::{Value, json};

use super::super::reverse::Input;
use super::{SESSION, Simulation, line};

impl Simulation {
    pub(super) fn agent_says(&mut self, mut value: Value) {
        value["jsonrpc"] = json!("2.0");
        self.feed(Input::Agent(line(&value)));
    }

    pub(super) fn update(&mut self, session: &str, update: Value) {
        self.agent_says(json!({ "method": "session/update", "params": { "sessionId": session, "update": update } }));
    }

    pub(super) fn answer(&mut self, id: &Value, result: Value) {
        self.agent_says(json!({ "id": id, "result": result }));
    }

    pub(super) fn dies(&mut self) {
        let exit = match self.agent.stopping {
            Some(Stop::Kill) => FarExit { signal: Some(9), ..FarExit::default() },
            Some(_) => FarExit { code: Some(0), ..FarExit::default() },
            None => FarExit { code: Some(1), stderr: "boom".to_owned(), ..FarExit::default() },
        };
        self.feed(Input::AgentClosed(exit));
    }

    /// The agent reads one line.
    pub(super) fn agent_reads(&mut self, well: bool) {
        let Some(request) = self.agent.inbox.pop_front() else { return };
        let id = request["id"].clone();
        let Some(method) = request["method"].as_str().map(str::to_owned) else {
            // An answer to a question.
            if let Some(terminal) = request.pointer("/result/terminalId").and_then(Value::as_str) {
                self.agent.terminals.push(terminal.to_owned());
            }
            if let Some(id) = id.as_u64() {
                self.agent.questions.retain(|q| *q != id);
            }
            return;
        };
        let fails = !well && self.rng.chance(6);
        if fails && method != "session/cancel" && method != "session/prompt" {
            let code = *self.rng.pick(&[-32000_i64, -32602, -32603]).unwrap_or(&-32603);
            self.agent_says(json!({ "id": id, "error": { "code": code, "message": "no" } }));
            return;
        }
        match &*method {
            "initialize" => {
                let mut session = json!({});
                if self.agent.resumes {
                    session["resume"] = json!({});
                }
                if self.rng.chance(30) {
                    session["close"] = json!({});
                }
                let caps = json!({ "loadSession": self.agent.loads, "sessionCapabilities": session });
                self.answer(&id, json!({ "protocolVersion": 1, "agentCapabilities": caps, "authMethods": [] }));
            }
            "session/new" | "session/load" | "session/resume" => {
                if self.rng.chance(20) {
                    self.update(
                        SESSION,
                        json!({ "sessionUpdate": "available_commands_update",
                        "availableCommands": [{ "name": "x", "description": "y" }] }),
                    );
                }
                if method == "session/load" && !self.conversation.exited {
                    self.update(
                        SESSION,
                        json!({ "sessionUpdate": "agent_message_chunk",
                        "content": { "type": "text", "text": "old" } }),
                    );
                }
                let mut result = match &*method {
                    "session/new" => json!({ "sessionId": SESSION }),
                    _ => json!({}),
                };
                if self.rng.chance(40) {
                    result["models"] = json!({ "availableModels": [{ "modelId": "big", "name": "Big" },
                        { "modelId": "small", "name": "Small" }], "currentModelId": "big" });
                }
                if self.rng.chance(40) {
                    result["modes"] = json!({ "availableModes": [{ "id": "default", "name": "Default" },
                        { "id": "plan", "name": "Plan" }], "currentModeId": "plan" });
                }
                if self.rng.chance(25) {
                    result["configOptions"] = json!([{ "id": "effort", "category": "thought_level", "type": "select",
                        "name": "Effort", "currentValue": "low", "options": [{ "value": "low", "name": "Low" },
                        { "value": "high", "name": "High" }] }]);
                }
                self.answer(&id, result);
            }
            "session/prompt" => {
                self.agent.prompt = Some(id);
                self.agent.cancelled = false;
            }
            "session/cancel" => self.agent.cancelled = true,
            "session/set_config_option" => self.answer(&id, json!({ "configOptions": [] })),
            _ => self.answer(&id, json!({})),
        }
    }

    pub(super) fn text(&mut self) {
        let texts = ["Hello", " world", "{\"a\": 1}", "\u{1f600}\n", "", "x"];
        let text = (*self.rng.pick(&texts).unwrap_or(&"x")).to_owned();
        let mut update = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } });
        if self.rng.chance(20) {
            update["messageId"] = json!(format!("m{}", self.rng.below(3)));
        }
        if self.conversation.judge.in_turn() {
            self.said.push_str(&text);
        }
        self.update(SESSION, update);
    }

    pub(super) fn call(&mut self) {
        self.agent.next_call += 1;
        let id = format!("call_{}", self.agent.next_call);
        self.agent.calls.push(id.clone());
        let command = *self.rng.pick(&["ls", "rm a", "make"]).unwrap_or(&"ls");
        let status = *self.rng.pick(&["pending", "in_progress"]).unwrap_or(&"pending");
        let update = match self.rng.below(3) {
            0 => json!({ "kind": "edit", "title": "Edit", "rawInput": { "file_path": "/w/a", "old_string": "a",
                "new_string": "b" }, "content": [{ "type": "diff", "path": "/w/a", "oldText": "a\n", "newText": "b\n" },
                { "type": "diff", "path": "/w/b", "oldText": null, "newText": "b\n" }] }),
            _ => json!({ "kind": "execute", "title": command, "rawInput": { "command": command } }),
        };
        let mut update = update;
        if let Some(parent) = self.rng.pick(&self.agent.calls).cloned()
            && self.rng.chance(15)
        {
            // Its own id is among them: an agent that is wrong about it.
            update["_meta"] = json!({ "parentToolCallId": parent });
        }
        update["sessionUpdate"] = json!("tool_call");
        update["toolCallId"] = json!(id);
        update["status"] = json!(status);
        // Gemini mentions a call first when it asks about it.
        if self.rng.chance(80) {
            self.update(SESSION, update);
        }
    }

    pub(super) fn asks(&mut self) {
        let Some(call) = self.rng.pick(&self.agent.calls).cloned() else { return };
        self.agent.next_id += 1;
        let id = self.agent.next_id;
        self.agent.questions.push(id);
        let kinds: &[&str] = match self.rng.below(6) {
            0 => &["allow_once"],
            1 => &["allow_always", "reject_once"],
            2 => &["allow_always", "allow_once", "reject_always"],
            _ => &["allow_once", "reject_once"],
        };
        let options: Vec<Value> = kinds.iter().map(|k| json!({ "optionId": k, "name": k, "kind": k })).collect();
        self.agent_says(json!({ "id": id, "method": "session/request_permission", "params": { "sessionId": SESSION,
            "toolCall": { "toolCallId": call, "title": "ls", "kind": "execute" }, "options": options } }));
    }

    pub(super) fn own_request(&mut self) {
        self.agent.next_id += 1;
        let id = self.agent.next_id;
        let questions = json!([{ "question": "Pick?", "options": [{ "label": "A" }] }]);
        let schema = json!({ "type": "object", "required": ["colour"], "properties": { "colour": { "type": "string",
            "oneOf": [{ "const": "r", "title": "Red" }, { "const": "b", "title": "Blue" }] } } });
        let (method, params) = match self.rng.below(8) {
            5 => ("elicitation/create", json!({ "mode": "form", "message": "Pick?", "requestedSchema": schema })),
            6 => (
                "elicitation/create",
                json!({ "mode": "form", "message": "Name?", "requestedSchema": { "type": "object",
                "properties": { "name": { "type": "string" } }, "required": ["name"] } }),
            ),
            7 => ("elicitation/create", json!({ "mode": "url", "message": "Go", "url": "https://example.com" })),
            0 => ("_x.ai/ask_user_question", json!({ "toolCallId": format!("q{id}"), "questions": questions })),
            1 => ("_x.ai/exit_plan_mode", json!({ "toolCallId": format!("q{id}"), "planContent": "# Plan" })),
            2 => ("fs/read_text_file", json!({ "path": "/w/a" })),
            3 => ("session/request_permission", json!({ "options": [] })),
            _ => ("craft/something", json!({})),
        };
        self.agent_says(json!({ "id": id, "method": method, "params": params }));
    }

    pub(super) fn ends(&mut self) {
        // A question that is open holds an agent up, mostly.
        if !self.agent.questions.is_empty() && self.rng.chance(90) && !self.agent.cancelled {
            return;
        }
        let Some(id) = self.agent.prompt.take() else { return };
        self.agent.calls.clear();
        self.agent.questions.clear();
        if self.rng.chance(6) {
            self.agent_says(json!({ "id": id, "error": { "code": 500, "message": "overloaded" } }));
            return;
        }
        let reason = match (self.agent.cancelled, self.rng.below(10)) {
            (true, 0..=7) => "cancelled",
            (_, 0) => "max_tokens",
            (_, 1) => "refusal",
            (_, 2) => "cancelled",
            _ => "end_turn",
        };
        self.answer(&id, json!({ "stopReason": reason, "usage": { "inputTokens": 3, "outputTokens": 4 } }));
    }

    pub(super) fn agent_does(&mut self) {
        if self.agent.stopping.is_some() {
            if self.rng.chance(70) {
                self.dies();
            } else {
                self.text();
            }
            return;
        }
        if self.rng.below(250) == 0 {
            if self.inputs.is_empty() && self.rng.chance(50) {
                self.feed(Input::AgentFailed(StartFailure::NoProgram("io was not found".to_owned())));
            } else {
                self.dies();
            }
            return;
        }
        if !self.agent.inbox.is_empty() && self.rng.chance(70) {
            return self.agent_reads(false);
        }
        match self.rng.below(40) {
            0 => return self.feed(Input::Agent(b"npm warn".to_vec())),
            1 => return self.feed(Input::Agent(b"{\"id\":3,\"level\":\"info\"}".to_vec())),
            2 => {
                return self.update(
                    "other",
                    json!({ "sessionUpdate": "agent_message_chunk",
                "content": { "type": "text", "text": "not ours" } }),
                );
            }
            3 => {
                return self.update(
                    SESSION,
                    json!({ "sessionUpdate": "available_commands_update",
                "availableCommands": [{ "name": format!("c{}", self.agent.next_call), "description": "y" }] }),
                );
            }
            6 => {
                let mode = *self.rng.pick(&["default", "plan", "yolo", "odd"]).unwrap_or(&"odd");
                return self.update(SESSION, json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode }));
            }
            7 => {
                let words = ["in_progress", "completed", "failed", "cancelled"];
                let status = *self.rng.pick(&words).unwrap_or(&"completed");
                return self.update(
                    SESSION,
                    json!({ "sessionUpdate": "compaction_update", "compactionId": "c", "status": status }),
                );
            }
            8 => {
                return self.update(SESSION, json!({ "sessionUpdate": "notice", "severity": "info", "title": "slow" }));
            }
            4 if self.rng.chance(30) => return self.text(),
            5 if self.rng.chance(30) => return self.own_request(),
            9..=14 if self.setting.files || self.setting.terminals => return self.wants_client(),
            _ => {}
        }
        if self.agent.prompt.is_none() {
            return;
        }
        if self.agent.cancelled {
            if !self.agent.stubborn && self.rng.chance(60) {
                self.ends();
            }
            return;
        }
        match self.rng.below(20) {
            0..=5 => self.text(),
            6 => self.update(
                SESSION,
                json!({ "sessionUpdate": "agent_thought_chunk",
                "content": { "type": "text", "text": "hm" } }),
            ),
            7..=9 => self.call(),
            10..=11 => self.asks(),
            12..=14 => {
                if let Some(call) = self.rng.pick(&self.agent.calls).cloned() {
                    let status =
                        *self.rng.pick(&["in_progress", "completed", "failed", "pending"]).unwrap_or(&"completed");
                    self.update(
                        SESSION,
                        json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "status": status,
                        "content": [{ "type": "content", "content": { "type": "text", "text": "out" } }] }),
                    );
                }
            }
            18 => {
                // What a subagent says; of a call that nobody knows it is the answer's.
                if let Some(parent) = self.rng.pick(&self.agent.calls).cloned() {
                    self.update(
                        SESSION,
                        json!({ "sessionUpdate": "tool_call", "toolCallId": parent, "kind": "think", "title": "Task" }),
                    );
                    self.update(
                        SESSION,
                        json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "sub" },
                        "_meta": { "parentToolCallId": parent } }),
                    );
                }
            }
            15 => {
                let id = self.rng.pick(&self.agent.questions).copied();
                if let Some(id) = id {
                    self.agent.questions.retain(|q| *q != id);
                    self.agent_says(json!({ "method": "$/cancel_request", "params": { "requestId": id } }));
                }
            }
            16 => self.update(
                SESSION,
                json!({ "sessionUpdate": "plan", "entries": [{ "content": "one",
                "priority": "low", "status": "pending" }] }),
            ),
            17 => self.update(
                SESSION,
                json!({ "sessionUpdate": "usage_update", "used": 5, "size": 100,
                "cost": { "amount": self.agent.next_call as f64 * 0.05, "currency": "USD" } }),
            ),
            _ => self.ends(),
        }
    }
}
