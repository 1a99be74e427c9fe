//! Simulated peers: a host and an agent that do what real ones do, at random moments.
//!
//! Owns the two models and which of the things that can happen happens next. Keeps: a conversation depends on its seed
//! alone; the agent answers what it is asked in its own time, or dies; what it said inside of a turn is known.

use std::collections::{BTreeMap, VecDeque};

use diglot::translate::{FarExit, StartFailure, Stop, Timer};
use serde_json::{Value, json};

use super::reverse::{Conversation, Done, Input, Setting};
use super::sim::Rng;

const SESSION: &str = "s1";

/// The events of which a host may want to be told.
const HOOKS: [&str; 9] = [
    "PreToolUse",
    "PostToolUse",
    "UserPromptSubmit",
    "Stop",
    "PermissionRequest",
    "SessionStart",
    "PreCompact",
    "SubagentStart",
    "SubagentStop",
];

#[derive(Debug, Default)]
struct Host {
    begun: bool,
    prompts: u64,
    controls: u64,
    /// Open questions: id → the request.
    asks: BTreeMap<String, Value>,
    /// Questions that are over.
    old: Vec<String>,
    /// It never answers.
    silent: bool,
}

#[derive(Debug, Default)]
struct Agent {
    inbox: VecDeque<Value>,
    prompt: Option<Value>,
    cancelled: bool,
    /// It does not stop for a cancel.
    stubborn: bool,
    calls: Vec<String>,
    next_call: u64,
    next_id: u64,
    questions: Vec<u64>,
    /// Its stdin is closed, or it was killed.
    stopping: Option<Stop>,
    /// What it can do.
    resumes: bool,
    loads: bool,
}

/// A simulated conversation.
pub(crate) struct Simulation {
    rng: Rng,
    conversation: Conversation,
    setting: Setting,
    host: Host,
    agent: Agent,
    clients: u64,
    said: String,
    shown: String,
    pub(crate) inputs: Vec<Input>,
    pub(crate) problems: Vec<String>,
}

fn line(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

impl Simulation {
    /// Holds the conversation of a seed.
    pub(crate) fn run(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let setting = Self::setting(&mut rng);
        let (conversation, begun) = Conversation::new(&setting).unwrap_or_else(|e| panic!("the setting: {e}"));
        let mut sim = Self {
            conversation,
            host: Host { silent: rng.chance(5), ..Host::default() },
            agent: Agent::default(),
            clients: 0,
            said: String::new(),
            shown: String::new(),
            inputs: Vec::new(),
            problems: Vec::new(),
            setting,
            rng,
        };
        sim.conversation.judge.by_form = true;
        sim.agent.resumes = sim.rng.chance(40);
        sim.agent.loads = sim.rng.chance(40);
        for done in begun {
            sim.take(done);
        }
        let steps = 10 + sim.rng.below(120);
        for _ in 0..steps {
            if sim.conversation.exited {
                break;
            }
            sim.step();
        }
        sim.settle();
        sim
    }

    fn setting(rng: &mut Rng) -> Setting {
        let word = |rng: &mut Rng, words: &[&str]| rng.pick(words).map_or_else(String::new, |w| (*w).to_owned());
        let mut setting = Setting {
            profile: word(rng, &["io", "io", "io", "kimi", "codebuddy", "grok", "opencode", "gemini"]),
            resume: rng.chance(15).then(|| SESSION.to_owned()),
            partial: rng.chance(50),
            replay: rng.chance(20),
            asks_host: rng.chance(85),
            mode: "default".to_owned(),
            states: word(rng, &["none", "marked", "plain"]),
            modern: rng.chance(70),
            forget: rng.chance(10),
            may_bypass: rng.chance(50),
            elicits: rng.chance(30),
            effort: rng.chance(15).then(|| word(rng, &["low", "max", "disabled"])),
            ..Setting::default()
        };
        if rng.chance(25) {
            setting.mode = word(rng, &["acceptEdits", "plan", "bypassPermissions", "dontAsk"]);
        }
        if rng.chance(15) {
            setting.allow.push("Bash(ls:*)".to_owned());
        }
        if rng.chance(15) {
            setting.deny.push("Bash(rm:*)".to_owned());
        }
        if rng.chance(15) {
            setting.max_turns = Some(1 + rng.below(3));
        }
        if rng.chance(10) {
            setting.max_budget_usd = Some(0.5);
        }
        if rng.chance(10) {
            setting.json_schema = Some(json!({ "type": "object", "required": ["a"] }));
        }
        if rng.chance(15) {
            setting.mcp_servers.insert("calc".to_owned(), json!({ "type": "sdk", "name": "calc" }));
        }
        if rng.chance(10) {
            setting.mcp_servers.insert("files".to_owned(), json!({ "command": "/bin/files" }));
        }
        setting
    }

    /// The first line of this conversation as a golden file.
    pub(crate) fn header(&self, seed: u64) -> String {
        let s = &self.setting;
        json!({ "about": format!("simulated conversation {seed}"), "source": "written", "setting": {
            "profile": s.profile, "resume": s.resume, "partial": s.partial, "replay": s.replay, "asks_host": s.asks_host,
            "mode": s.mode, "allow": s.allow, "deny": s.deny, "mcp_servers": s.mcp_servers, "max_turns": s.max_turns,
            "max_budget_usd": s.max_budget_usd, "json_schema": s.json_schema, "states": s.states, "modern": s.modern,
            "forget": s.forget, "may_bypass": s.may_bypass, "elicits": s.elicits, "effort": s.effort } })
        .to_string()
    }

    fn feed(&mut self, input: Input) {
        match self.conversation.feed(&input) {
            Ok(done) => {
                self.inputs.push(input);
                for done in done {
                    self.take(done);
                }
            }
            Err(e) => self.problems.push(format!("the simulation did something impossible: {e}")),
        }
    }

    fn take(&mut self, done: Done) {
        match done {
            Done::Host(bytes) => {
                let Ok(value) = serde_json::from_slice::<Value>(&bytes) else { return };
                let id = value["request_id"].as_str().unwrap_or_default().to_owned();
                match value["type"].as_str() {
                    Some("control_request") => {
                        self.host.asks.insert(id, value["request"].clone());
                    }
                    Some("control_cancel_request") => {
                        self.host.asks.remove(&id);
                        self.host.old.push(id);
                    }
                    // What subagents say is no part of the answer.
                    Some("assistant")
                        if value["message"]["model"] != "<synthetic>" && value["parent_tool_use_id"].is_null() =>
                    {
                        let text = value.pointer("/message/content/0/text").and_then(Value::as_str);
                        self.shown.push_str(text.unwrap_or_default());
                    }
                    _ => {}
                }
            }
            Done::Agent(bytes) => {
                if let Ok(value) = serde_json::from_slice(&bytes) {
                    self.agent.inbox.push_back(value);
                }
            }
            Done::Start(_) => {
                let (resumes, loads) = (self.agent.resumes, self.agent.loads);
                let next = (self.agent.next_call, self.agent.next_id);
                self.agent = Agent { resumes, loads, next_call: next.0, next_id: next.1, ..Agent::default() };
                self.agent.stubborn = self.rng.chance(8);
            }
            Done::Stop(how) => self.agent.stopping = Some(how),
            _ => {}
        }
    }

    // ---- the host

    fn host_says(&mut self, value: &Value) {
        self.feed(Input::Host(line(value)));
    }

    fn control(&mut self, request: &Value) {
        self.host.controls += 1;
        let id = format!("h{}", self.host.controls);
        self.host_says(&json!({ "type": "control_request", "request_id": id, "request": request }));
    }

    fn begin(&mut self) {
        self.host.begun = true;
        let mut request = json!({ "subtype": "initialize" });
        if self.rng.chance(35) {
            let mut hooks = json!({});
            for (at, event) in HOOKS.into_iter().enumerate() {
                if self.rng.chance(40) {
                    hooks[event] =
                        json!([{ "matcher": null, "hookCallbackIds": [format!("hook_{at}")], "timeout": 5 }]);
                }
            }
            request["hooks"] = hooks;
        }
        if self.rng.chance(15) {
            request["sdkMcpServers"] = json!(["calc"]);
        }
        if self.rng.chance(20) {
            request["forwardSubagentText"] = json!(true);
        }
        if self.rng.chance(10) {
            request["disallowedTools"] = json!(["WebFetch"]);
        }
        self.control(&request);
    }

    fn prompt(&mut self) {
        self.host.prompts += 1;
        let uuid = format!("99999999-9999-4999-8999-{:012}", self.host.prompts);
        let content = match self.rng.below(8) {
            0 => json!(""),
            1 => {
                json!([{ "type": "text", "text": "go" }, { "type": "image", "source": { "type": "base64", "data": "AA" } }])
            }
            _ => json!("go"),
        };
        let mut value = json!({ "type": "user", "message": { "role": "user", "content": content }, "session_id": "",
            "parent_tool_use_id": null, "uuid": uuid });
        match self.rng.below(20) {
            0..=1 => value["priority"] = json!("now"),
            2..=3 => value["priority"] = json!("later"),
            4 => value["priority"] = json!("next"),
            _ => {}
        }
        if self.rng.chance(8) {
            value["shouldQuery"] = json!(false);
        }
        self.host_says(&value);
    }

    fn answers(&mut self, any: bool) {
        let ids: Vec<String> = self.host.asks.keys().cloned().collect();
        let late = self.host.old.last().cloned().filter(|_| !any && self.rng.chance(10));
        let Some(id) = late.or_else(|| self.rng.pick(&ids).cloned()) else { return };
        let request = self.host.asks.remove(&id).unwrap_or_default();
        let body = match request["subtype"].as_str() {
            Some("mcp_message") => {
                json!({ "mcp_response": { "jsonrpc": "2.0", "id": request["message"]["id"], "result": {} } })
            }
            Some("elicitation") => match self.rng.below(4) {
                0 => json!({ "action": "accept", "content": { "colour": "r" } }),
                1 => json!({ "action": "cancel" }),
                2 => json!({}),
                _ => json!({ "action": "decline" }),
            },
            Some("hook_callback") => match self.rng.below(9) {
                0 => {
                    json!({ "hookSpecificOutput": { "permissionDecision": "deny", "permissionDecisionReason": "no" } })
                }
                1 => json!({ "hookSpecificOutput": { "permissionDecision": "allow" } }),
                2 => json!({ "hookSpecificOutput": { "permissionDecision": "ask" } }),
                3 => json!({ "decision": "block", "reason": "more" }),
                4 => json!({ "continue": false, "stopReason": "enough" }),
                5 => json!("nonsense"),
                6 => json!({ "hookSpecificOutput": { "additionalContext": "by the way" } }),
                _ => json!({}),
            },
            _ => match self.rng.below(10) {
                0 => json!({ "behavior": "deny", "message": "no" }),
                1 => json!({ "behavior": "deny", "message": "no", "interrupt": true }),
                2 => json!({ "allow": false, "reason": "no" }),
                3 => json!({ "behavior": "allow", "updatedInput": { "command": "other" } }),
                4 => json!({ "behavior": "maybe" }),
                5 => json!({ "behavior": "allow", "updatedPermissions": [{ "type": "setMode", "mode": "acceptEdits",
                    "destination": "session" }] }),
                6 => json!({ "behavior": "allow", "updatedInput": { "answers": { "Pick?": "A" } } }),
                _ => json!({ "behavior": "allow", "updatedInput": request["input"] }),
            },
        };
        let response = match self.rng.below(12) {
            0 => json!({ "subtype": "error", "request_id": id, "error": "the host failed" }),
            _ => json!({ "subtype": "success", "request_id": id, "response": body }),
        };
        self.host.old.push(id);
        self.host_says(&json!({ "type": "control_response", "response": response }));
    }

    fn host_does(&mut self) {
        match self.rng.below(40) {
            0..=7 if self.host.begun || self.rng.chance(30) => self.prompt(),
            0..=7 => self.begin(),
            8 => self.control(&json!({ "subtype": "interrupt", "cancel_queued": self.host.prompts.is_multiple_of(2) })),
            9 => self.control(&json!({ "subtype": "interrupt" })),
            10 => {
                let modes = ["default", "plan", "acceptEdits", "bypassPermissions", "nonsense"];
                let mode = *self.rng.pick(&modes).unwrap_or(&"default");
                self.control(&json!({ "subtype": "set_permission_mode", "mode": mode }));
            }
            11 => {
                let model = *self.rng.pick(&["big", "small", "nothing", "default"]).unwrap_or(&"big");
                self.control(&json!({ "subtype": "set_model", "model": model }));
            }
            12 => {
                let subtypes = ["mcp_status", "get_context_usage", "no_such_thing", "rewind_files", "initialize"];
                let subtype = *self.rng.pick(&subtypes).unwrap_or(&"mcp_status");
                self.control(&json!({ "subtype": subtype }));
            }
            13 => {
                let uuid = format!("99999999-9999-4999-8999-{:012}", self.host.prompts);
                self.control(&json!({ "subtype": "cancel_async_message", "message_uuid": uuid }));
            }
            17 => {
                let tokens = *self.rng.pick(&[0_u64, 2000, 40_000]).unwrap_or(&0);
                self.control(&json!({ "subtype": "set_max_thinking_tokens", "max_thinking_tokens": tokens }));
            }
            18 => self.control(&json!({ "subtype": "apply_flag_settings", "settings": { "effortLevel": "high",
                "permissions": { "deny": ["WebFetch"] } } })),
            14 => self.feed(Input::Host(b"not json".to_vec())),
            15 => self.host_says(&json!({ "type": "keep_alive" })),
            16 if self.rng.chance(25) => self.feed(Input::HostClosed),
            _ if !self.host.silent => self.answers(false),
            _ => {}
        }
    }

    // ---- the agent

    fn agent_says(&mut self, mut value: Value) {
        value["jsonrpc"] = json!("2.0");
        self.feed(Input::Agent(line(&value)));
    }

    fn update(&mut self, session: &str, update: Value) {
        self.agent_says(json!({ "method": "session/update", "params": { "sessionId": session, "update": update } }));
    }

    fn answer(&mut self, id: &Value, result: Value) {
        self.agent_says(json!({ "id": id, "result": result }));
    }

    fn dies(&mut self) {
        let exit = match self.agent.stopping {
            Some(Stop::Kill) => FarExit { signal: Some(9), ..FarExit::default() },
            Some(_) => FarExit { code: Some(0), ..FarExit::default() },
            None => FarExit { code: Some(1), stderr: "boom".to_owned(), ..FarExit::default() },
        };
        self.feed(Input::AgentClosed(exit));
    }

    /// The agent reads one line.
    fn agent_reads(&mut self, well: bool) {
        let Some(request) = self.agent.inbox.pop_front() else { return };
        let id = request["id"].clone();
        let Some(method) = request["method"].as_str().map(str::to_owned) else {
            // An answer to a question.
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

    fn text(&mut self) {
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

    fn call(&mut self) {
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

    fn asks(&mut self) {
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

    fn own_request(&mut self) {
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

    fn ends(&mut self) {
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

    fn agent_does(&mut self) {
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

    // ---- the rest

    fn client_does(&mut self) {
        let calc = self.setting.mcp_servers.contains_key("calc");
        if !calc {
            return;
        }
        self.clients += 1;
        let conn = 1 + self.rng.below(2);
        let value = match self.rng.below(4) {
            0 => None,
            1 => Some(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })),
            _ => Some(json!({ "jsonrpc": "2.0", "id": self.clients, "method": "tools/list" })),
        };
        self.feed(Input::Relay(conn, "calc".to_owned(), value.map(|v| line(&v))));
    }

    fn time_passes(&mut self, long: bool) {
        let timers: Vec<Timer> = self.conversation.timers().to_vec();
        let Some(timer) = self.rng.pick(&timers).copied() else { return };
        let soon = matches!(timer, Timer::Settle | Timer::Commands | Timer::Barrier);
        if soon || long || self.rng.chance(4) {
            self.feed(Input::Timer(timer));
        }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..=24 if self.conversation.host_open => self.host_does(),
            25..=34 => self.time_passes(false),
            35..=37 => self.client_does(),
            38 if self.rng.chance(20) => self.feed(Input::Interrupted),
            _ if self.conversation.runs => self.agent_does(),
            _ => {}
        }
    }

    /// Everybody comes to rest, and then the host leaves.
    fn settle(&mut self) {
        for left in [false, true] {
            for round in 0..400 {
                if self.conversation.exited {
                    break;
                }
                let before = self.inputs.len();
                if self.conversation.host_open && !self.host.asks.is_empty() {
                    self.answers(true);
                } else if self.conversation.runs && self.agent.stopping.is_some() {
                    self.dies();
                } else if self.conversation.runs && !self.agent.inbox.is_empty() {
                    // The reading of an answer is nothing that happens.
                    self.agent_reads(true);
                    continue;
                } else if self.conversation.runs
                    && self.agent.prompt.is_some()
                    && !(self.agent.cancelled && self.agent.stubborn)
                {
                    self.agent.questions.clear();
                    self.ends();
                } else {
                    self.time_passes(true);
                }
                if self.inputs.len() == before && round > 0 {
                    break;
                }
            }
            if self.conversation.exited {
                break;
            }
            if left {
                self.problems.push("it lives on when the host is gone and nothing is left to do".to_owned());
            } else if self.conversation.host_open {
                self.problems.extend(self.conversation.judge.unsettled());
                self.feed(Input::HostClosed);
            }
        }
        self.problems.extend(self.conversation.judge.violations());
        self.problems.extend(self.conversation.judge.unsettled());
        self.problems.dedup();
        let stops = self.setting.max_turns.is_some() || self.setting.max_budget_usd.is_some();
        // Hooks that refuse stop a turn, and what comes then is not shown.
        if !stops && !self.conversation.judge.has_hooks() && self.said != self.shown {
            self.problems.push(format!("text: shown {:?}, said {:?}", self.shown, self.said));
        }
    }
}
