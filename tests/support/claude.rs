//! The simulated claude: a process that keeps its protocol's order and otherwise does what it likes.
//!
//! Owns the plan of a turn, line by line, and what each line should make the editor show. Keeps the rules of
//! stream-json.md, section 10: blocks in order, each whole after its pieces; a call before its question and its result;
//! one result for every call before the turn's result; questions withdrawn before an interrupt is answered.

use std::collections::{HashMap, VecDeque};

use diglot::translate::FarExit;
use serde_json::{Value, json};

use super::sim::Rng;

/// Text that the editor should show, or has shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) thoughts: String,
}

/// A line of claude, and what it adds to what the editor shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    pub(crate) value: Value,
    pub(crate) said: Said,
}

/// What the process does.
pub(crate) enum Act {
    Say(Vec<Line>),
    Noise(&'static str),
    Exit(FarExit),
    NoStart(String),
    Nothing,
}

/// A step of a turn.
#[derive(Debug, Clone)]
enum Step {
    Say(Line),
    /// Asks about a call; does not wait.
    Ask {
        request: String,
        tool: String,
        value: Value,
    },
    /// Waits for the answer about a call and tells its result.
    Resolve {
        tool: String,
        result: Line,
    },
    /// The end.
    Result(Line),
}

#[derive(Debug, Default)]
struct Turn {
    /// The prompts it works on.
    uuids: Vec<String>,
    steps: VecDeque<Step>,
    /// Calls of the main conversation without a result.
    open: Vec<String>,
    /// A block of text that streams: what has come of it.
    partial: Option<(String, String)>,
    unasked: bool,
}

/// The process.
pub(crate) struct Claude {
    pub(crate) inbox: VecDeque<Value>,
    pub(crate) stdin_closed: bool,
    pub(crate) sigint: bool,
    pub(crate) killed: bool,
    /// It does nothing any more.
    pub(crate) hangs: bool,
    session: String,
    fate: Fate,
    up: bool,
    /// Whether it tells the uuids of prompts.
    tells_uuids: bool,
    turn: Option<Turn>,
    waiting: VecDeque<(String, bool)>,
    /// Open questions → the call.
    asked: HashMap<String, String>,
    /// Answers: call → allowed.
    decided: HashMap<String, bool>,
    /// Work in the background: task, call, lines to come.
    background: Vec<(String, String, VecDeque<Step>)>,
    count: u64,
    last_failed: bool,
}

/// What becomes of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Lives,
    /// The program is not there.
    NoStart,
    /// Dies with this on stderr.
    Dies(String),
    /// Says that there is no such conversation, and exits.
    Unknown,
}

impl Claude {
    /// A process with these arguments.
    pub(crate) fn start(rng: &mut Rng, args: &[String], store: &HashMap<String, bool>) -> Self {
        let after = |flag: &str| args.iter().position(|a| a == flag).and_then(|at| args.get(at + 1)).cloned();
        let (session, fate) = match (after("--resume"), after("--session-id")) {
            (Some(id), _) if store.get(&id) == Some(&true) => (id, Fate::Lives),
            (Some(id), _) => (id, Fate::Unknown),
            (None, Some(id)) if store.get(&id) == Some(&true) => {
                (id.clone(), Fate::Dies(format!("Error: Session ID {id} is already in use.")))
            }
            (None, id) => (id.unwrap_or_default(), Fate::Lives),
        };
        let fate = match (fate, rng.below(40)) {
            (Fate::Lives, 0) => Fate::NoStart,
            (Fate::Lives, 1) => Fate::Dies("Error: bad settings".to_owned()),
            (fate, _) => fate,
        };
        Self {
            inbox: VecDeque::new(),
            stdin_closed: false,
            sigint: false,
            killed: false,
            hangs: fate == Fate::Lives && rng.chance(3),
            session,
            fate,
            up: false,
            tells_uuids: rng.chance(90),
            turn: None,
            waiting: VecDeque::new(),
            asked: HashMap::new(),
            decided: HashMap::new(),
            background: Vec::new(),
            count: rng.below(1000) * 1000,
            last_failed: false,
        }
    }

    /// Whether it would still do something by itself.
    pub(crate) fn has_work(&self) -> bool {
        let blocked = self
            .turn
            .as_ref()
            .is_some_and(|t| matches!(t.steps.front(), Some(Step::Resolve { tool, .. }) if self.is_asked(tool)));
        let turn = self.turn.is_some() && !blocked;
        let background = self
            .background
            .iter()
            .any(|(_, _, steps)| !matches!(steps.front(), Some(Step::Resolve { tool, .. }) if self.is_asked(tool)));
        self.killed
            || (!self.hangs
                && (self.fate != Fate::Lives
                    || !self.inbox.is_empty()
                    || turn
                    || background
                    || self.sigint
                    || (!self.waiting.is_empty() && self.turn.is_none())
                    || self.stdin_closed))
            || (self.hangs && self.sigint && self.killed)
    }

    fn is_asked(&self, tool: &str) -> bool {
        self.asked.values().any(|t| t == tool)
    }

    fn id(&mut self, prefix: &str) -> String {
        self.count += 1;
        format!("{prefix}{}", self.count)
    }

    fn say(value: Value) -> Line {
        Line { value, said: Said::default() }
    }

    /// Does the next thing.
    pub(crate) fn act(&mut self, rng: &mut Rng, store: &mut HashMap<String, bool>) -> Act {
        if self.killed {
            return self.exit(None, Some(9), "");
        }
        if self.hangs {
            return Act::Nothing;
        }
        match self.fate.clone() {
            Fate::NoStart => return Act::NoStart("`claude` was not found".to_owned()),
            Fate::Dies(stderr) => return self.exit(Some(1), None, &stderr),
            Fate::Unknown => {
                let said = format!("No conversation found with session ID: {}", self.session);
                self.fate = Fate::Dies(format!("{said}\n"));
                return Act::Say(vec![Self::say(json!({
                    "type": "result", "subtype": "error_during_execution", "is_error": true, "errors": [said],
                }))]);
            }
            Fate::Lives => {}
        }
        match rng.below(400) {
            0 => {
                self.hangs = true;
                return Act::Nothing;
            }
            1 | 2 => {
                // A sudden end may lose what was not written yet.
                if self.turn.is_some() && rng.chance(50) {
                    store.insert(self.session.clone(), true);
                }
                return self.exit(None, Some(11), "Segmentation fault");
            }
            3..10 => return Act::Noise(rng.pick(NOISE).copied().unwrap_or_default()),
            10..20 if self.up => return Act::Say(self.remark(rng)),
            _ => {}
        }
        if self.sigint && self.turn.is_some() {
            let mut lines = Vec::new();
            self.abort(rng, &mut lines);
            return Act::Say(lines);
        }
        if self.sigint {
            store.insert(self.session.clone(), true);
            return self.exit(Some(0), None, "");
        }
        if !self.inbox.is_empty() && rng.chance(60) {
            return self.read(rng, store);
        }
        let background: Vec<usize> = (0..self.background.len()).collect();
        if let (Some(at), true) = (rng.pick(&background).copied(), rng.chance(40)) {
            let lines = self.work_in_background(at);
            if !lines.is_empty() {
                return Act::Say(lines);
            }
        }
        if self.turn.is_some() {
            return Act::Say(self.go_on(rng, store));
        }
        if let Some((uuid, command)) = self.waiting.pop_front() {
            return Act::Say(self.begin(rng, store, Some(uuid), command));
        }
        if !self.inbox.is_empty() {
            return self.read(rng, store);
        }
        if self.stdin_closed {
            return self.exit(Some(i32::from(self.last_failed)), None, "");
        }
        Act::Nothing
    }

    fn exit(&self, code: Option<i32>, signal: Option<i32>, stderr: &str) -> Act {
        Act::Exit(FarExit { code, signal, stderr: stderr.to_owned() })
    }

    /// Something that may come at any time.
    fn remark(&mut self, rng: &mut Rng) -> Vec<Line> {
        let values = [
            json!({ "type": "keep_alive" }),
            json!({ "type": "rate_limit_event", "rate_limit_info": { "status": "allowed" } }),
            json!({ "type": "system", "subtype": "notification", "key": "k", "text": "t" }),
            json!({ "type": "system", "subtype": "status", "status": null, "permissionMode": "acceptEdits" }),
            json!({ "type": "system", "subtype": "session_title_changed", "title": "T" }),
            json!({ "type": "system", "subtype": "commands_changed", "commands": [{ "name": "x", "description": "" }] }),
            json!({ "type": "control_request", "request_id": self.id("hook"), "request": { "subtype": "hook_callback" } }),
            json!({ "type": "brand_new", "x": 1 }),
        ];
        rng.pick(&values).cloned().map(Self::say).into_iter().collect()
    }

    /// Reads a line of its stdin.
    fn read(&mut self, rng: &mut Rng, store: &mut HashMap<String, bool>) -> Act {
        let Some(value) = self.inbox.pop_front() else { return Act::Nothing };
        let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        match (&*text("/type"), &*text("/request/subtype")) {
            ("control_request", "initialize") => {
                if rng.chance(1) {
                    return Act::Say(vec![Self::say(json!({ "type": "control_response", "response": {
                        "subtype": "error", "request_id": text("/request_id"), "error": "no" } }))]);
                }
                self.up = true;
                Act::Say(vec![Self::say(json!({ "type": "control_response", "response": {
                    "subtype": "success", "request_id": text("/request_id"),
                    "response": { "commands": [{ "name": "compact", "description": "d" }], "current_permission_mode": "default" },
                } }))])
            }
            ("control_request", "interrupt") => {
                let mut lines = Vec::new();
                let asked: Vec<String> = self.asked.keys().cloned().collect();
                for request in asked {
                    lines.push(Self::say(json!({ "type": "control_cancel_request", "request_id": request })));
                    let tool = self.asked.remove(&request).unwrap_or_default();
                    self.decided.insert(tool, false);
                }
                lines.push(Self::say(json!({ "type": "control_response", "response": {
                    "subtype": "success", "request_id": text("/request_id"), "response": { "still_queued": [] } } })));
                if self.turn.is_some() {
                    self.abort(rng, &mut lines);
                } else if let Some((uuid, _)) = self.waiting.pop_front() {
                    // Aborted when it starts.
                    lines.push(self.life(&uuid, "started"));
                    self.turn = Some(Turn { uuids: vec![uuid], ..Turn::default() });
                    self.abort(rng, &mut lines);
                }
                Act::Say(lines)
            }
            ("control_request", "set_permission_mode") => {
                let mode = text("/request/mode");
                if mode == "nonsense" {
                    return Act::Say(vec![Self::say(json!({ "type": "control_response", "response": {
                        "subtype": "error", "request_id": text("/request_id"), "error": "Unknown permission mode" } }))]);
                }
                Act::Say(vec![
                    Self::say(json!({ "type": "control_response", "response": {
                        "subtype": "success", "request_id": text("/request_id"), "response": { "mode": mode } } })),
                    Self::say(json!({ "type": "system", "subtype": "status", "status": null, "permissionMode": mode })),
                ])
            }
            ("user", _) => {
                let first = text("/message/content/0/text");
                let uuid = text("/uuid");
                self.waiting.push_back((uuid.clone(), first.starts_with('/')));
                Act::Say(vec![self.life(&uuid, "queued")])
            }
            ("control_response", _) => {
                let allowed = text("/response/response/behavior") == "allow";
                if let Some(tool) = self.asked.remove(&text("/response/request_id")) {
                    self.decided.insert(tool, allowed);
                }
                let interrupts = value.pointer("/response/response/interrupt") == Some(&Value::Bool(true));
                if interrupts && self.turn.as_ref().is_some_and(|t| !t.unasked) && rng.chance(50) {
                    let mut lines = Vec::new();
                    self.abort(rng, &mut lines);
                    return Act::Say(lines);
                }
                let _ = store;
                Act::Nothing
            }
            _ => Act::Nothing,
        }
    }

    fn life(&self, uuid: &str, state: &str) -> Line {
        if self.tells_uuids {
            Self::say(json!({ "type": "command_lifecycle", "command_uuid": uuid, "state": state }))
        } else {
            Self::say(json!({ "type": "keep_alive" }))
        }
    }

    /// The turn is cut short: what is open is closed in the order of stream-json.md, section 7.2.
    fn abort(&mut self, rng: &mut Rng, lines: &mut Vec<Line>) {
        let Some(turn) = self.turn.take() else { return };
        // What it asked in this turn is void.
        let asked: Vec<String> =
            self.asked.iter().filter(|(_, tool)| turn.open.contains(tool)).map(|(r, _)| r.clone()).collect();
        for request in asked {
            self.asked.remove(&request);
            lines.push(Self::say(json!({ "type": "control_cancel_request", "request_id": request })));
        }
        let tools = !turn.open.is_empty();
        if let (Some((id, text)), true) = (turn.partial, rng.chance(80)) {
            lines.push(Self::say(json!({ "type": "assistant", "aborted": true, "parent_tool_use_id": null,
                "message": { "id": id, "role": "assistant", "content": [{ "type": "text", "text": text }] } })));
        }
        for tool in &turn.open {
            lines.push(Self::say(json!({ "type": "user", "parent_tool_use_id": null,
                "message": { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": tool, "content": "The user doesn't want to proceed", "is_error": true }] },
                "tool_result_meta": [{ "id": tool, "non_execution_kind": "user-rejected" }] })));
        }
        lines.push(Self::say(json!({ "type": "user", "parent_tool_use_id": null,
            "message": { "role": "user", "content": [{ "type": "text", "text": "[Request interrupted by user]" }] } })));
        let mut result = json!({ "type": "result", "subtype": "error_during_execution", "is_error": true,
            "terminal_reason": if tools { "aborted_tools" } else { "aborted_streaming" }, "errors": ["x"] });
        if self.tells_uuids && !turn.uuids.is_empty() {
            result["user_message_uuids"] = json!(turn.uuids);
        }
        lines.push(Self::say(result));
        for uuid in &turn.uuids {
            lines.push(self.life(uuid, "cancelled"));
        }
        self.last_failed = true;
    }

    fn assistant(id: &str, block: &Value, parent: Option<&str>, said: Said) -> Step {
        Step::Say(Line {
            value: json!({ "type": "assistant", "parent_tool_use_id": parent,
                "message": { "id": id, "role": "assistant", "model": "claude-opus-5-5", "content": [block],
                    "usage": { "input_tokens": 10, "output_tokens": 1 } } }),
            said,
        })
    }

    fn event(event: Value) -> Value {
        json!({ "type": "stream_event", "parent_tool_use_id": null, "event": event })
    }

    /// Plans a turn and says how it begins.
    fn begin(
        &mut self,
        rng: &mut Rng,
        store: &mut HashMap<String, bool>,
        uuid: Option<String>,
        command: bool,
    ) -> Vec<Line> {
        let mut lines = Vec::new();
        if let Some(uuid) = &uuid {
            lines.push(self.life(uuid, "started"));
            if rng.chance(80) {
                store.insert(self.session.clone(), true);
            }
        }
        lines.push(Self::say(json!({ "type": "system", "subtype": "init", "session_id": self.session,
            "permissionMode": "default", "model": "claude-opus-5-5" })));
        let mut turn = Turn { unasked: uuid.is_none(), uuids: uuid.into_iter().collect(), ..Turn::default() };
        let mut last = String::new();
        if command {
            let text = "Total cost".to_owned();
            if rng.chance(50) {
                let said = Said { text: text.clone(), ..Said::default() };
                turn.steps.push_back(Step::Say(Line {
                    value: json!({ "type": "assistant", "parent_tool_use_id": null, "local_command_source": "cost",
                        "message": { "id": self.id("local"), "role": "assistant", "model": "<synthetic>", "content": [{ "type": "text", "text": text }] } }),
                    said,
                }));
            } else {
                turn.steps.push_back(Step::Say(Line {
                    value: json!({ "type": "user", "isReplay": true, "parent_tool_use_id": null,
                        "message": { "role": "user", "content": format!("<local-command-stdout>{text}</local-command-stdout>") } }),
                    said: Said { text, ..Said::default() },
                }));
            }
            turn.steps.push_back(Step::Result(Self::say(
                json!({ "type": "result", "subtype": "success", "is_error": false, "result": "" }),
            )));
            self.turn = Some(turn);
            return lines;
        }
        for _ in 0..=rng.below(3) {
            self.message(rng, &mut turn.steps, &mut last);
        }
        turn.steps.push_back(Step::Result(self.end(rng, &mut turn.steps.clone(), &last)));
        self.turn = Some(turn);
        lines
    }

    /// How a turn ends.
    fn end(&mut self, rng: &mut Rng, _steps: &mut VecDeque<Step>, last: &str) -> Line {
        let usage = json!({ "claude-opus-5-5": { "contextWindow": 200_000 } });
        match rng.below(12) {
            0 => Self::say(json!({ "type": "result", "subtype": "error_max_turns", "is_error": true,
                "terminal_reason": "max_turns", "stop_reason": "tool_use", "errors": ["x"] })),
            1 => Self::say(json!({ "type": "result", "subtype": "error_max_budget_usd", "is_error": true,
                "terminal_reason": "budget_exhausted", "errors": ["x"] })),
            _ => Self::say(json!({ "type": "result", "subtype": "success", "is_error": false, "result": last,
                "terminal_reason": "completed", "stop_reason": "end_turn", "modelUsage": usage, "total_cost_usd": 0.1 })),
        }
    }

    /// One API message: thoughts, text, calls.
    fn message(&mut self, rng: &mut Rng, steps: &mut VecDeque<Step>, last: &mut String) {
        let mut streams = rng.chance(70);
        let mut id = self.id("msg_");
        if streams {
            steps.push_back(Step::Say(Self::say(Self::event(
                json!({ "type": "message_start", "message": { "id": id, "model": "claude-opus-5-5", "usage": { "input_tokens": 5 } } }),
            ))));
        }
        let mut index = 0;
        if rng.chance(30) {
            self.block(rng, steps, &mut id, &mut streams, index, true);
            index += 1;
        }
        if rng.chance(80) {
            *last = self.block(rng, steps, &mut id, &mut streams, index, false);
            index += 1;
        }
        let calls = if rng.chance(50) { 1 + rng.below(3) } else { 0 };
        let mut resolve = Vec::new();
        for _ in 0..calls {
            resolve.extend(self.call(rng, steps, &id, streams.then_some(index), None));
            index += 1;
        }
        if streams {
            steps.push_back(Step::Say(Self::say(Self::event(
                json!({ "type": "message_delta", "usage": { "output_tokens": 3 } }),
            ))));
            steps.push_back(Step::Say(Self::say(Self::event(json!({ "type": "message_stop" })))));
        }
        // Results come in any order.
        while !resolve.is_empty() {
            let at = usize::try_from(rng.below(resolve.len() as u64)).unwrap_or(0);
            steps.extend(resolve.remove(at));
        }
    }

    /// A block of text; returns it. A streamed one may break off and be told again, as another message.
    fn block(
        &mut self,
        rng: &mut Rng,
        steps: &mut VecDeque<Step>,
        message: &mut String,
        streams: &mut bool,
        index: u64,
        thought: bool,
    ) -> String {
        let id = &*message.clone();
        let words = 1 + rng.below(4);
        let mut pieces: Vec<String> = (0..words).map(|_| format!("{} ", self.id("w"))).collect();
        if rng.chance(20) {
            // The same text again and again.
            pieces = vec!["same ".to_owned(); 2];
        }
        let whole = pieces.concat();
        let said = |text: &str| match thought {
            true => Said { thoughts: text.to_owned(), ..Said::default() },
            false => Said { text: text.to_owned(), ..Said::default() },
        };
        let (kind, field) = if thought { ("thinking", "thinking") } else { ("text", "text") };
        let block = |text: &str| json!({ "type": kind, (field): text });
        if !*streams {
            steps.push_back(Self::assistant(id, &block(&whole), None, said(&whole)));
            return whole;
        }
        let delta = |piece: &str| {
            Self::event(json!({ "type": "content_block_delta", "index": index,
                "delta": { "type": format!("{kind}_delta"), (field): piece } }))
        };
        steps.push_back(Step::Say(Self::say(Self::event(
            json!({ "type": "content_block_start", "index": index, "content_block": block("") }),
        ))));
        let breaks = index == 0 && rng.chance(15);
        let shown = if breaks { 1 } else { pieces.len() };
        for piece in &pieces[..shown] {
            steps.push_back(Step::Say(Line { value: delta(piece), said: said(piece) }));
        }
        if !breaks {
            // Now and then the pieces did not say everything.
            steps.push_back(Self::assistant(id, &block(&whole), None, Said::default()));
            steps.push_back(Step::Say(Self::say(Self::event(json!({ "type": "content_block_stop", "index": index })))));
            return whole;
        }
        steps.push_back(Step::Say(Self::say(Self::event(
            json!({ "type": "message_stop", "abandoned_blocks": { "api_message_id": id, "from_block_index": 0 } }),
        ))));
        let again = self.id("msg_");
        message.clone_from(&again);
        let before = pieces[0].clone();
        let way = rng.below(3);
        *streams = way == 2;
        match way {
            0 => {
                // Told again whole, and it is the same.
                steps.push_back(Self::assistant(&again, &block(&whole), None, said(&whole[before.len()..])));
                whole
            }
            1 => {
                let other = format!("other {}", self.id("w"));
                steps.push_back(Self::assistant(&again, &block(&other), None, said(&other)));
                other
            }
            _ => {
                // Streams again from the start.
                steps.push_back(Step::Say(Self::say(Self::event(
                    json!({ "type": "message_start", "message": { "id": again } }),
                ))));
                let mut told = 0;
                for (at, piece) in whole.as_bytes().chunks(5).enumerate() {
                    let piece = String::from_utf8_lossy(piece).into_owned();
                    let end = at * 5 + piece.len();
                    let new = &whole[before.len().max(told).min(end)..end];
                    let new = if end > before.len() { new } else { "" };
                    told = end;
                    let value = Self::event(json!({ "type": "content_block_delta", "index": 0,
                        "delta": { "type": format!("{kind}_delta"), (field): piece } }));
                    steps.push_back(Step::Say(Line { value, said: said(new) }));
                }
                steps.push_back(Self::assistant(&again, &block(&whole), None, Said::default()));
                whole
            }
        }
    }

    /// A call: its announcement, its question, and what ends it.
    fn call(
        &mut self,
        rng: &mut Rng,
        steps: &mut VecDeque<Step>,
        message: &str,
        index: Option<u64>,
        parent: Option<&str>,
    ) -> Vec<Vec<Step>> {
        let tool = self.id("toolu_");
        let kinds = [
            ("Bash", json!({ "command": "ls -l", "description": "list" })),
            ("Read", json!({ "file_path": "/w/a.rs" })),
            ("Write", json!({ "file_path": "/w/a.txt", "content": "new\n" })),
            ("Write", json!({ "file_path": "/w/b.txt", "content": "new\n" })),
            ("Edit", json!({ "file_path": "/w/a.rs", "old_string": "a", "new_string": "b" })),
            ("TodoWrite", json!({ "todos": [{ "content": "x", "status": "pending", "activeForm": "x" }] })),
            ("mcp__s__t", json!({})),
            ("Task", json!({ "description": "sub", "prompt": "p" })),
        ];
        let (name, input) = rng.pick(&kinds).cloned().unwrap_or(("Bash", json!({})));
        if let (Some(index), None) = (index, parent) {
            steps.push_back(Step::Say(Self::say(Self::event(json!({ "type": "content_block_start", "index": index,
                "content_block": { "type": "tool_use", "id": tool, "name": name, "input": {} } })))));
            let text = input.to_string();
            for piece in text.as_bytes().chunks(21) {
                let piece = String::from_utf8_lossy(piece).into_owned();
                steps.push_back(Step::Say(Self::say(Self::event(
                    json!({ "type": "content_block_delta", "index": index,
                    "delta": { "type": "input_json_delta", "partial_json": piece } }),
                ))));
            }
        }
        let use_block = json!({ "type": "tool_use", "id": tool, "name": name, "input": input });
        steps.push_back(Self::assistant(message, &use_block, parent, Said::default()));
        let asks = rng.chance(50);
        if asks {
            let request = self.id("req_");
            let input = if rng.chance(10) { json!({ "command": "changed" }) } else { input };
            let value = json!({ "type": "control_request", "request_id": request, "request": {
                "subtype": "can_use_tool", "tool_name": name, "input": input, "tool_use_id": tool,
                "permission_suggestions": [{ "type": "setMode", "mode": "acceptEdits", "destination": "session" }] } });
            steps.push_back(Step::Ask { request, tool: tool.clone(), value });
        }
        let background = parent.is_none() && name == "Task" && rng.chance(50)
            || parent.is_none() && name == "Bash" && rng.chance(20);
        let failed = rng.chance(20);
        let mut result = json!({ "type": "user", "parent_tool_use_id": parent,
            "message": { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": tool, "content": "out", "is_error": failed }] } });
        let mut all = Vec::new();
        if name == "Task" && !background {
            // A subagent in the foreground: its calls come before its result.
            let mut inner = VecDeque::new();
            let sub = self.id("msg_");
            let ends = self.call_of_subagent(rng, &mut inner, &sub, &tool);
            let mut sequence: Vec<Step> = inner.into();
            sequence.extend(ends);
            sequence.push(Step::Resolve { tool, result: Self::say(result) });
            all.push(sequence);
            return all;
        }
        if background && !failed {
            let task = self.id("task_");
            result["tool_use_result"] = if name == "Task" {
                json!({ "isAsync": true, "status": "async_launched" })
            } else {
                json!({ "backgroundTaskId": task })
            };
            let started = Step::Say(Self::say(json!({ "type": "system", "subtype": "task_started", "task_id": task,
                "tool_use_id": tool, "is_backgrounded": true })));
            let launch = Step::Resolve { tool: tool.clone(), result: Self::say(result) };
            all.push(if rng.chance(50) { vec![launch, started] } else { vec![launch] });
            let mut work = VecDeque::new();
            if name == "Task" {
                let sub = self.id("msg_");
                let ends = self.call_of_subagent(rng, &mut work, &sub, &tool);
                work.extend(ends);
            }
            let end = if rng.chance(80) { "completed" } else { "failed" };
            if rng.chance(70) {
                work.push_back(Step::Say(Self::say(
                    json!({ "type": "system", "subtype": "task_updated", "task_id": task, "patch": { "status": end } }),
                )));
            }
            work.push_back(Step::Say(Self::say(
                json!({ "type": "system", "subtype": "task_notification", "task_id": task,
                "tool_use_id": tool, "status": end, "summary": "report" }),
            )));
            work.push_back(Step::Say(Self::say(
                json!({ "type": "system", "subtype": "background_tasks_changed", "tasks": [] }),
            )));
            // It begins when the call was launched; see `go_on`.
            self.background.push((format!("waits:{tool}"), tool, work));
            return all;
        }
        all.push(vec![Step::Resolve { tool, result: Self::say(result) }]);
        all
    }

    fn call_of_subagent(
        &mut self,
        rng: &mut Rng,
        steps: &mut VecDeque<Step>,
        message: &str,
        parent: &str,
    ) -> Vec<Step> {
        let text = json!({ "type": "text", "text": "words of a subagent" });
        steps.push_back(Self::assistant(message, &text, Some(parent), Said::default()));
        let tool = self.id("toolu_");
        let block = json!({ "type": "tool_use", "id": tool, "name": "Bash", "input": { "command": "sub" } });
        steps.push_back(Self::assistant(message, &block, Some(parent), Said::default()));
        if rng.chance(60) {
            let request = self.id("req_");
            let value = json!({ "type": "control_request", "request_id": request, "request": {
                "subtype": "can_use_tool", "tool_name": "Bash", "input": { "command": "sub" }, "tool_use_id": tool, "agent_id": "a" } });
            steps.push_back(Step::Ask { request, tool: tool.clone(), value });
        }
        let result = json!({ "type": "user", "parent_tool_use_id": parent,
            "message": { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": tool, "content": "out", "is_error": false }] } });
        vec![Step::Resolve { tool, result: Self::say(result) }]
    }

    fn resolved(&mut self, tool: &str, mut result: Line) -> Line {
        if self.decided.remove(tool) == Some(false) {
            result.value["message"]["content"][0]["is_error"] = json!(true);
            if let Some(map) = result.value.as_object_mut() {
                map.remove("tool_use_result");
            }
            result.value["tool_result_meta"] = json!([{ "id": tool, "non_execution_kind": "user-rejected" }]);
            // What was refused runs nowhere.
            self.background.retain(|(_, call, _)| call != tool);
        } else {
            for (state, call, _) in &mut self.background {
                if call == tool {
                    "runs".clone_into(state);
                }
            }
        }
        result
    }

    /// The next step of the turn.
    fn go_on(&mut self, rng: &mut Rng, store: &mut HashMap<String, bool>) -> Vec<Line> {
        let Some(turn) = &mut self.turn else { return Vec::new() };
        // Results of calls may overtake one another.
        let ready = turn.steps.iter().take(4).position(|step| match step {
            Step::Resolve { tool, .. } => !self.asked.values().any(|t| t == tool),
            _ => false,
        });
        let all_resolve = |n: usize| turn.steps.iter().take(n + 1).all(|s| matches!(s, Step::Resolve { .. }));
        let at = match (turn.steps.front(), ready) {
            (Some(Step::Resolve { .. }), Some(at)) if all_resolve(at) => at,
            (Some(Step::Resolve { .. }), _) => return Vec::new(),
            _ => 0,
        };
        let Some(step) = turn.steps.remove(at) else { return Vec::new() };
        match step {
            Step::Say(line) => {
                let kind = line.value.pointer("/event/type").and_then(Value::as_str).unwrap_or_default().to_owned();
                let text = line.value.pointer("/event/delta/text").and_then(Value::as_str).unwrap_or_default();
                match &*kind {
                    "message_start" => {
                        let id = line.value.pointer("/event/message/id").and_then(Value::as_str).unwrap_or_default();
                        turn.partial = Some((id.to_owned(), String::new()));
                    }
                    "content_block_delta" => {
                        if let Some((_, so_far)) = &mut turn.partial {
                            so_far.push_str(text);
                        }
                    }
                    _ => {}
                }
                if line.value["type"] == "assistant" {
                    if let Some((_, so_far)) = &mut turn.partial {
                        so_far.clear();
                    }
                    let block = &line.value["message"]["content"][0];
                    if block["type"] == "tool_use" && line.value["parent_tool_use_id"].is_null() {
                        turn.open.push(block["id"].as_str().unwrap_or_default().to_owned());
                    }
                }
                vec![line]
            }
            Step::Ask { request, tool, value } => {
                self.asked.insert(request, tool);
                vec![Self::say(value)]
            }
            Step::Resolve { tool, result } => {
                turn.open.retain(|t| *t != tool);
                vec![self.resolved(&tool, result)]
            }
            Step::Result(mut line) => {
                let turn = self.turn.take().unwrap_or_default();
                if self.tells_uuids && !turn.uuids.is_empty() {
                    line.value["user_message_uuids"] = json!(turn.uuids);
                }
                if turn.unasked {
                    line.value["origin"] = json!({ "kind": "task-notification" });
                }
                self.last_failed = line.value["is_error"] == json!(true);
                if line.value.get("terminal_reason").is_some() {
                    store.insert(self.session.clone(), true);
                }
                let mut lines = vec![line];
                for uuid in &turn.uuids {
                    lines.push(self.life(uuid, "completed"));
                }
                let _ = rng;
                lines
            }
        }
    }

    /// The next step of some background work; when it is over claude begins a turn that nobody asked for.
    fn work_in_background(&mut self, at: usize) -> Vec<Line> {
        let Some((state, _, steps)) = self.background.get_mut(at) else { return Vec::new() };
        if state.starts_with("waits:") {
            return Vec::new();
        }
        if let Some(Step::Resolve { tool, .. }) = steps.front()
            && self.asked.values().any(|t| t == tool)
        {
            return Vec::new();
        }
        match steps.pop_front() {
            None => {
                self.background.remove(at);
                if self.turn.is_some() || self.stdin_closed {
                    return Vec::new();
                }
                let id = self.id("msg_");
                let text = format!("{} is done. ", self.id("task"));
                let said = Said { text: text.clone(), ..Said::default() };
                let mut turn = Turn { unasked: true, ..Turn::default() };
                let block = json!({ "type": "text", "text": text });
                turn.steps.push_back(Self::assistant(&id, &block, None, said));
                turn.steps.push_back(Step::Result(Self::say(
                    json!({ "type": "result", "subtype": "success", "is_error": false,
                    "result": text, "terminal_reason": "completed" }),
                )));
                self.turn = Some(turn);
                vec![Self::say(
                    json!({ "type": "system", "subtype": "init", "session_id": self.session, "permissionMode": "default" }),
                )]
            }
            Some(Step::Say(line)) => vec![line],
            Some(Step::Ask { request, tool, value }) => {
                self.asked.insert(request, tool);
                vec![Self::say(value)]
            }
            Some(Step::Resolve { tool, result }) => vec![self.resolved(&tool, result)],
            Some(Step::Result(line)) => vec![line],
        }
    }
}

const NOISE: &[&str] = &[
    "not json",
    "[1]",
    "{\"type\":\"assistant\"",
    "{\"type\":\"assistant\",\"message\":5}",
    "{\"type\":\"user\",\"message\":{\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"nobody\"}]}}",
    "{\"type\":\"stream_event\",\"event\":{\"type\":\"content_block_stop\",\"index\":99}}",
    "{\"type\":\"control_response\",\"response\":{\"request_id\":\"nobody\",\"subtype\":\"success\"}}",
    "{\"type\":\"control_cancel_request\",\"request_id\":\"nobody\"}",
    "{\"type\":\"system\",\"subtype\":\"task_notification\",\"task_id\":\"nobody\",\"status\":\"completed\"}",
    "{\"type\":\"command_lifecycle\",\"command_uuid\":\"nobody\",\"state\":\"completed\"}",
];
