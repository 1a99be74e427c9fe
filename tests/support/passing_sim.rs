//! Simulated peers: an editor and an agent that speaks ACP itself, which do what real ones do and worse, at random moments.
//!
//! Owns the two models and which of the things that can happen happens next. Keeps: a conversation depends on its seed alone;
//! at its end everything that can still be answered has been, so that what is open then is diglot's fault.

use std::collections::BTreeMap;

use diglot::translate::{FarExit, StartFailure, Stop};
use serde_json::{Value, json};

use super::passing::{Conversation, Done, Input};
use super::sim::Rng;

#[derive(Debug, Default)]
struct Editor {
    initialized: bool,
    next_id: u64,
    sessions: Vec<String>,
    /// Questions that are open: id → the request.
    questions: BTreeMap<u64, Value>,
    /// Questions that are over.
    old: Vec<u64>,
    gone: bool,
    /// It never answers.
    silent: bool,
}

#[derive(Debug, Default)]
struct Process {
    /// Requests of diglot's that wait: id, method, session.
    inbox: Vec<(u64, String, String)>,
    sessions: Vec<String>,
    cancelled: Vec<String>,
    next_id: u64,
    questions: Vec<u64>,
    made: u64,
    calls: u64,
    /// It was told to end.
    ends: bool,
    /// It was killed.
    killed: bool,
    /// It has said something.
    heard: bool,
    /// It does not answer a prompt that is cancelled.
    stubborn: bool,
}

/// A simulated conversation.
pub(crate) struct Simulation {
    rng: Rng,
    profile: String,
    conversation: Conversation,
    editor: Editor,
    processes: BTreeMap<u32, Process>,
    /// Sessions that there are, in whatever process.
    known: Vec<String>,
    loads: bool,
    resumes: bool,
    said: u64,
    pub(crate) inputs: Vec<Input>,
    pub(crate) problems: Vec<String>,
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

impl Simulation {
    /// Holds the conversation of a seed.
    pub(crate) fn run(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let profiles = ["io", "io", "kimi", "codebuddy", "grok", "opencode", "gemini", "qwen", "vibe", "codex-acp"];
        let profile = rng.pick(&profiles).map_or("io", |name| name).to_owned();
        let mut conversation = Conversation::new(&profile).unwrap_or_else(|e| panic!("{e}"));
        conversation.judge.by_form = true;
        let mut sim = Self {
            editor: Editor { silent: rng.chance(5), ..Editor::default() },
            processes: BTreeMap::new(),
            known: Vec::new(),
            loads: rng.chance(60),
            resumes: rng.chance(40),
            said: 0,
            inputs: Vec::new(),
            problems: Vec::new(),
            conversation,
            profile,
            rng,
        };
        for _ in 0..10 + sim.rng.below(150) {
            sim.step();
        }
        sim.settle();
        sim
    }

    /// The first line of the golden file that a conversation would be.
    pub(crate) fn header(&self, seed: u64) -> String {
        json!({ "about": format!("Simulation {seed}."), "source": "written", "profile": self.profile }).to_string()
    }

    fn feed(&mut self, input: Input) {
        self.inputs.push(input.clone());
        match self.conversation.feed(&input) {
            Ok(done) => done.into_iter().for_each(|done| self.take(&done)),
            // What cannot happen now does not happen.
            Err(_) => {
                self.inputs.pop();
            }
        }
    }

    fn take(&mut self, done: &Done) {
        match done {
            Done::Editor(line) => {
                let line: Value = serde_json::from_slice(line).unwrap_or_default();
                match (line["method"].as_str(), line["id"].as_u64()) {
                    (Some("$/cancel_request"), _) => {
                        if let Some(id) = line["params"]["requestId"].as_u64() {
                            self.editor.questions.remove(&id);
                            self.editor.old.push(id);
                        }
                    }
                    (Some(_), Some(id)) => {
                        self.editor.questions.insert(id, line);
                    }
                    (None, _) => {
                        if let Some(id) = line["result"]["sessionId"].as_str() {
                            self.editor.sessions.push(id.to_owned());
                        }
                    }
                    _ => {}
                }
            }
            Done::Agent(number, line) => {
                let line: Value = serde_json::from_slice(line).unwrap_or_default();
                let process = self.processes.entry(*number).or_default();
                let session = line["params"]["sessionId"].as_str().unwrap_or_default().to_owned();
                match (line["method"].as_str(), line["id"].as_u64()) {
                    (Some(method), Some(id)) => process.inbox.push((id, method.to_owned(), session)),
                    (Some("session/cancel"), None) => process.cancelled.push(session),
                    (None, Some(id)) => process.questions.retain(|open| *open != id),
                    _ => {}
                }
            }
            Done::Start(number, _) => {
                self.processes.insert(*number, Process { stubborn: self.rng.chance(10), ..Process::default() });
            }
            Done::Stop(number, how) => {
                if let Some(process) = self.processes.get_mut(number) {
                    process.ends = true;
                    process.killed = *how == Stop::Kill;
                }
            }
            Done::End(number) => {
                self.processes.remove(number);
            }
            Done::Set(..) | Done::Clear(..) => {}
        }
    }

    fn step(&mut self) {
        let killed = self.processes.iter().find(|(_, process)| process.killed).map(|(number, _)| *number);
        if let Some(number) = killed {
            return self.dies(number);
        }
        let agents = self.conversation.running();
        match self.rng.below(100) {
            0..=39 => self.editor_acts(),
            40..=92 => match self.rng.pick(&agents).copied() {
                Some(number) => self.agent_acts(number),
                None => self.editor_acts(),
            },
            _ => {
                let timers = self.conversation.timers();
                if let Some((number, timer)) = self.rng.pick(&timers).copied() {
                    self.feed(Input::Timer(number, timer));
                }
            }
        }
    }

    fn ask(&mut self, method: &str, params: Value) {
        self.editor.next_id += 1;
        let id = match self.rng.below(20) {
            0 => json!(format!("e{}", self.editor.next_id)),
            _ => json!(self.editor.next_id),
        };
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.feed(Input::Editor(bytes(&line)));
    }

    fn editor_acts(&mut self) {
        if self.editor.gone {
            return;
        }
        if !self.editor.initialized && self.rng.chance(90) {
            self.editor.initialized = true;
            let can = self.rng.chance(50);
            let caps = json!({ "fs": { "readTextFile": can, "writeTextFile": can }, "terminal": can });
            return self.ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": caps }));
        }
        let session = self.rng.pick(&self.editor.sessions).cloned().unwrap_or_else(|| "none".into());
        let cwd = if self.rng.chance(50) { "/w" } else { "/x" };
        match self.rng.below(100) {
            0..=9 => self.ask("session/new", json!({ "cwd": cwd, "mcpServers": [] })),
            10..=12 => {
                let id = self.rng.pick(&self.known).cloned().unwrap_or_else(|| "old".into());
                self.ask("session/load", json!({ "sessionId": id, "cwd": cwd, "mcpServers": [] }));
            }
            13..=39 => {
                let text = if self.rng.chance(5) { "" } else { "do it" };
                self.ask(
                    "session/prompt",
                    json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] }),
                );
            }
            40..=47 => {
                let line = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": session } });
                self.feed(Input::Editor(bytes(&line)));
            }
            48..=50 => self.ask("session/set_mode", json!({ "sessionId": session, "modeId": "plan" })),
            51..=52 => self.ask("session/close", json!({ "sessionId": session })),
            53..=54 => self.ask("session/list", json!({})),
            55..=57 => {
                let id = self.rng.below(self.editor.next_id + 2);
                let line = json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": id } });
                self.feed(Input::Editor(bytes(&line)));
            }
            58 => self.feed(Input::Editor(b"[1]".to_vec())),
            59 if self.rng.chance(10) => self.leave(),
            60..=62 => {
                if let Some(id) = self.rng.pick(&self.editor.old).copied() {
                    self.answer(id, &Value::Null);
                }
            }
            _ if self.editor.silent => {}
            _ => {
                let open: Vec<u64> = self.editor.questions.keys().copied().collect();
                if let Some(id) = self.rng.pick(&open).copied() {
                    let question = self.editor.questions.remove(&id).unwrap_or_default();
                    self.answer(id, &question);
                }
            }
        }
    }

    /// Answers a question in one of the ways that editors have.
    fn answer(&mut self, id: u64, question: &Value) {
        self.editor.old.push(id);
        let options: Vec<Value> = question["params"]["options"].as_array().cloned().unwrap_or_default();
        let option = self.rng.pick(&options).map_or(json!("yes"), |option| option["optionId"].clone());
        let selected = |id: &Value| json!({ "outcome": { "outcome": "selected", "optionId": id } });
        let result = match question["method"].as_str() {
            Some("terminal/create") => json!({ "terminalId": format!("t{id}") }),
            Some("fs/read_text_file") => json!({ "content": "x" }),
            Some("session/request_permission") | None => match self.rng.below(10) {
                0 => selected(&json!("nothing of the kind")),
                1 => json!({ "outcome": { "outcome": "cancelled" } }),
                2 => json!({ "outcome": "selected" }),
                _ => selected(&option),
            },
            Some(_) => json!({}),
        };
        let line = if self.rng.chance(8) {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32603, "message": "no" } })
        } else {
            json!({ "jsonrpc": "2.0", "id": id, "result": result })
        };
        self.feed(Input::Editor(bytes(&line)));
    }

    fn leave(&mut self) {
        self.editor.gone = true;
        self.feed(Input::EditorClosed);
    }

    fn agent_acts(&mut self, number: u32) {
        match self.rng.below(100) {
            0..=1 => self.dies(number),
            2..=39 => self.agent_answers(number, false),
            40..=59 => self.agent_speaks(number),
            60..=84 => self.agent_calls(number),
            _ => self.agent_asks(number),
        }
    }

    fn dies(&mut self, number: u32) {
        let exit = FarExit { code: None, signal: Some(9), stderr: "gone".into() };
        let process = self.processes.insert(number, Process::default()).unwrap_or_default();
        let input = match process.inbox.first() {
            Some((_, method, _)) if method == "initialize" && !process.heard && self.rng.chance(30) => {
                Input::AgentFailed(number, StartFailure::NoProgram("there is no such program".into()))
            }
            _ => Input::AgentClosed(number, exit),
        };
        self.feed(input);
    }

    fn agent_says(&mut self, number: u32, line: &Value) {
        if let Some(process) = self.processes.get_mut(&number) {
            process.heard = true;
        }
        self.feed(Input::Agent(number, bytes(line)));
    }

    /// Answers one of the requests that wait; `well` at the end of a conversation.
    fn agent_answers(&mut self, number: u32, well: bool) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        if process.inbox.is_empty() {
            return;
        }
        let at = if well { 0 } else { usize::try_from(self.rng.below(process.inbox.len() as u64)).unwrap_or(0) };
        let (id, method, session) = process.inbox[at].clone();
        let is_cancelled = process.cancelled.contains(&session);
        if method == "session/prompt" && !well && (process.stubborn && is_cancelled || self.rng.chance(60)) {
            return;
        }
        process.inbox.remove(at);
        let asking = |mode: &str| {
            json!({ "currentModeId": mode, "availableModes": [{ "id": "default", "name": "D" }, { "id": "ask", "name": "A" },
                { "id": "read-only", "name": "R" }, { "id": "auto", "name": "X" }] })
        };
        let mut result = match &*method {
            "initialize" => {
                let sessions = if self.resumes { json!({ "resume": {} }) } else { json!({}) };
                json!({ "protocolVersion": 1, "agentCapabilities": { "loadSession": self.loads, "sessionCapabilities": sessions } })
            }
            "session/new" => {
                process.made += 1;
                let id = format!("p{number}-{}-{}", process.made, self.known.len());
                process.sessions.push(id.clone());
                self.known.push(id.clone());
                json!({ "sessionId": id, "modes": asking("auto") })
            }
            "session/load" | "session/resume" => {
                process.sessions.push(session.clone());
                json!({ "modes": asking("auto") })
            }
            "session/prompt" => {
                process.cancelled.retain(|other| *other != session);
                let reasons = ["end_turn", "end_turn", "cancelled", "refusal", "max_tokens", "strange"];
                json!({ "stopReason": if is_cancelled { "cancelled" } else { self.rng.pick(&reasons).copied().unwrap_or("end_turn") } })
            }
            "session/list" => json!({ "sessions": [] }),
            _ => json!({}),
        };
        let line = if !well && self.rng.chance(12) {
            let code = [-32603, -32000, 401, 500, -32601];
            let code = self.rng.pick(&code).copied().unwrap_or(-32603);
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": "no" } })
        } else {
            json!({ "jsonrpc": "2.0", "id": id, "result": result.take() })
        };
        self.agent_says(number, &line);
    }

    fn session_of(&mut self, number: u32) -> Option<String> {
        let process = self.processes.get(&number)?;
        if self.rng.chance(3) {
            return Some("a session that nobody knows".into());
        }
        self.rng.pick(&process.sessions).cloned()
    }

    fn update(&mut self, number: u32, session: &str, update: &Value) {
        let params = json!({ "sessionId": session, "update": update });
        self.agent_says(number, &json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
    }

    fn agent_speaks(&mut self, number: u32) {
        let Some(session) = self.session_of(number) else { return };
        self.said += 1;
        let text = if self.rng.chance(4) { String::new() } else { format!("w{} ", self.said) };
        let update = match self.rng.below(14) {
            0 => json!({ "sessionUpdate": "plan", "entries": [{ "content": "a", "status": "done" }] }),
            1 => {
                json!({ "sessionUpdate": "available_commands_update", "availableCommands": [{ "name": "a", "description": null }] })
            }
            2 => json!({ "sessionUpdate": "usage_update", "used": self.said }),
            3 => json!({ "sessionUpdate": "user_message_chunk", "content": { "type": "text", "text": "do it" } }),
            4 => json!({ "sessionUpdate": "agent_thought_chunk", "content": { "type": "text", "text": text } }),
            5 => json!({ "sessionUpdate": "current_mode_update", "currentModeId": "auto" }),
            _ => json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } }),
        };
        self.update(number, &session, &update);
    }

    /// A call of the session: a new one or one of the last.
    fn call_id(&mut self, number: u32) -> String {
        let Some(process) = self.processes.get_mut(&number) else { return "c".into() };
        if self.rng.chance(30) {
            process.calls += 1;
        }
        format!("c{number}-{}", process.calls.saturating_sub(self.rng.below(3)))
    }

    fn agent_calls(&mut self, number: u32) {
        let Some(session) = self.session_of(number) else { return };
        let id = self.call_id(number);
        let mut update = json!({ "toolCallId": id });
        update["sessionUpdate"] = json!(if self.rng.chance(40) { "tool_call" } else { "tool_call_update" });
        for (name, values) in [
            (
                "status",
                vec![
                    json!("pending"),
                    json!("in_progress"),
                    json!("completed"),
                    json!("failed"),
                    json!("odd"),
                    json!(null),
                ],
            ),
            ("title", vec![json!("run"), json!(""), json!(null), json!(7)]),
            ("kind", vec![json!("execute"), json!("odd"), json!(null)]),
            ("rawInput", vec![json!({}), json!({ "a": 1 }), json!("x")]),
            ("rawOutput", vec![json!("out"), json!({ "exit_code": 3 }), json!([104, 105])]),
            (
                "content",
                vec![
                    json!([]),
                    json!([{ "type": "content", "content": { "type": "text", "text": "{\"a\":" } }]),
                    json!([{ "type": "content", "content": { "type": "text", "text": "1}" } }]),
                    json!([{ "type": "terminal", "terminalId": "t" }, { "type": "odd" }]),
                    json!([{ "type": "diff", "path": "/w/a", "newText": "x" }]),
                ],
            ),
            (
                "_meta",
                vec![json!({ "terminal_output": { "terminal_id": "t", "data": "x" } }), json!({ "toolName": "bash" })],
            ),
        ] {
            if self.rng.chance(45) {
                update[name] = self.rng.pick(&values).cloned().unwrap_or_default();
            }
        }
        self.update(number, &session, &update);
    }

    fn agent_asks(&mut self, number: u32) {
        let Some(session) = self.session_of(number) else { return };
        let call = self.call_id(number);
        let Some(process) = self.processes.get_mut(&number) else { return };
        if self.rng.chance(15) {
            if let Some(id) = self.rng.pick(&process.questions).copied() {
                let line = json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": id } });
                self.agent_says(number, &line);
            }
            return;
        }
        let id = process.next_id;
        process.next_id += 1;
        process.questions.push(id);
        let (method, params) = match self.rng.below(12) {
            0 => ("fs/read_text_file", json!({ "sessionId": session, "path": "/w/a" })),
            1 => ("terminal/create", json!({ "sessionId": session, "command": "ls -l" })),
            2 => ("terminal/wait_for_exit", json!({ "sessionId": session, "terminalId": "t1" })),
            3 => ("_own/question", json!({ "sessionId": session })),
            4 => ("odd/request", json!({ "sessionId": session })),
            _ => {
                let options = json!([{ "optionId": "yes", "name": "Yes", "kind": "allow_once" },
                    { "optionId": "always", "name": "Always", "kind": "allow_always" }, { "optionId": "no", "name": "No", "kind": "reject_once" }]);
                let options = if self.rng.chance(4) { json!([]) } else { options };
                (
                    "session/request_permission",
                    json!({ "sessionId": session, "toolCall": { "toolCallId": call }, "options": options }),
                )
            }
        };
        self.agent_says(number, &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    /// Everything that can still be answered is.
    fn settle(&mut self) {
        self.editor.silent = false;
        if self.rng.chance(40) && !self.editor.gone {
            self.leave();
        }
        for _ in 0..400 {
            let before = self.inputs.len();
            for number in self.conversation.running() {
                if self.processes.get(&number).is_some_and(|process| process.ends) {
                    self.dies(number);
                    continue;
                }
                self.agent_answers(number, true);
            }
            let open: Vec<u64> = self.editor.questions.keys().copied().collect();
            for id in open {
                let question = self.editor.questions.remove(&id).unwrap_or_default();
                if !self.editor.gone {
                    self.answer(id, &question);
                }
            }
            if self.inputs.len() == before {
                for (number, timer) in self.conversation.timers() {
                    self.feed(Input::Timer(number, timer));
                }
            }
            if self.inputs.len() == before {
                break;
            }
        }
        self.problems = self.conversation.judge.violations();
        self.problems.extend(self.conversation.judge.unsettled());
        if self.editor.gone && !self.conversation.is_over() {
            self.problems.push("it lives on when the editor is gone and the agents have ended".into());
        }
    }
}
