//! The rules of a conversation of a host with an agent that hold everywhere.
//!
//! Owns what was seen on both wires so far. Keeps: nothing of the code under test is used to read the lines; toward the host
//! the rules are those that every known host needs (init first, one result a prompt, every call its result, whole lines of
//! known types), toward the agent those of ACP, and nothing is granted that nobody granted.

mod agent;

mod turns;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use diglot::translate::Timer;
use serde_json::Value;

use super::reverse::{SESSION, Setting};

/// No line may be longer: hosts give up at 1 MiB.
const LINE: usize = 900_000;

/// A question of the agent's.
#[derive(Debug)]
struct Question {
    method: String,
    call: String,
    /// Option ids and kinds.
    options: Vec<(String, String)>,
    withdrawn: bool,
}

impl Question {
    /// Whether this may be the answer to it, of several questions under one id.
    fn is_meant_by(&self, outcome: &Result<Value, Value>) -> bool {
        let asks = self.method == "session/request_permission";
        match outcome {
            Ok(result) if result["outcome"].is_object() => {
                let chosen = result["outcome"]["optionId"].as_str();
                asks && chosen.is_none_or(|chosen| self.options.iter().any(|(id, _)| id == chosen))
            }
            Ok(_) => !asks,
            Err(_) => !asks || self.call.is_empty(),
        }
    }
}

/// A question to the host.
#[derive(Debug)]
struct Ask {
    subtype: String,
    /// Of `can_use_tool`.
    call: String,
}

/// A block as its events have it.
#[derive(Debug)]
struct Streamed {
    index: u64,
    kind: String,
    text: String,
    whole: bool,
}

#[derive(Debug, Default)]
struct Turn {
    /// Calls that were shown; true: they have their result.
    calls: BTreeMap<String, bool>,
    streaming: bool,
    block: Option<Streamed>,
    next_index: u64,
    message: Option<String>,
    /// Those of the calls that subagents made.
    of_subagents: BTreeSet<String>,
}

/// What was found wrong so far, and what was seen.
pub(crate) struct Judge {
    setting: Setting,
    violations: Vec<String>,
    /// Bodies of a form that was judged before pass.
    pub(crate) by_form: bool,
    // The host.
    host_open: bool,
    prompts: u64,
    results: u64,
    /// Prompts that the host or the user took back.
    may_be_dropped: u64,
    turn: Option<Turn>,
    state: Option<String>,
    last_failed: bool,
    gave_up: bool,
    signalled: bool,
    requests: BTreeMap<String, u64>,
    asks: HashMap<String, Ask>,
    asked: HashSet<String>,
    callbacks: BTreeSet<String>,
    sdk_servers: BTreeSet<String>,
    messages: HashSet<String>,
    uuids: HashSet<String>,
    shown_calls: BTreeSet<String>,
    // Grants.
    allowed: HashMap<String, u64>,
    denied: HashMap<String, u64>,
    granted: HashMap<String, u64>,
    /// Files written and commands run for the agent.
    acted: u64,
    anybody_grants: bool,
    /// Questions to the permission tool: the call of each.
    to_tool: HashMap<u64, String>,
    // The agent.
    deaf: bool,
    ids: HashSet<String>,
    waiting: HashMap<String, String>,
    session: Option<String>,
    /// By their ids; an agent may use one twice.
    questions: BTreeMap<String, Vec<Question>>,
    /// The prompt that is outstanding, or was last, was cancelled.
    cancelled: bool,
    /// A call whose question was answered with `cancelled`: a cancel must follow.
    owes_cancel: Option<String>,
    // The relay.
    clients: HashMap<(u64, String), u64>,
    exited: bool,
}

fn show(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().take(300).collect()
}

fn text<'a>(value: &'a Value, at: &str) -> &'a str {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

impl Judge {
    pub(crate) fn new(setting: &Setting) -> Self {
        let sdk = |(name, server): (&String, &Value)| (server["type"] == "sdk").then(|| name.clone());
        Self {
            setting: setting.clone(),
            violations: Vec::new(),
            by_form: false,
            host_open: true,
            prompts: 0,
            results: 0,
            may_be_dropped: 0,
            turn: None,
            state: None,
            last_failed: false,
            gave_up: false,
            signalled: false,
            requests: BTreeMap::new(),
            asks: HashMap::new(),
            asked: HashSet::new(),
            callbacks: BTreeSet::new(),
            sdk_servers: setting.mcp_servers.iter().filter_map(sdk).collect(),
            messages: HashSet::new(),
            uuids: HashSet::new(),
            shown_calls: BTreeSet::new(),
            allowed: HashMap::new(),
            denied: HashMap::new(),
            granted: HashMap::new(),
            acted: 0,
            anybody_grants: !setting.allow.is_empty() || !matches!(&*setting.mode, "default" | "dontAsk"),
            to_tool: HashMap::new(),
            deaf: false,
            ids: HashSet::new(),
            waiting: HashMap::new(),
            session: setting.resume.clone().filter(|_| !setting.fork),
            questions: BTreeMap::new(),
            cancelled: false,
            owes_cancel: None,
            clients: HashMap::new(),
            exited: false,
        }
    }

    /// A new event begins.
    pub(crate) fn event(&mut self) {
        if let Some(line) = self.owes_cancel.take() {
            self.violations.push(format!("toward the agent: `cancelled`, and nobody cancelled: {line}"));
        }
    }

    /// Something that the driver itself found wrong.
    pub(crate) fn broken(&mut self, what: String) {
        self.violations.push(what);
    }

    /// A turn is shown to the host.
    pub(crate) fn in_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// The host has hooks.
    pub(crate) fn has_hooks(&self) -> bool {
        !self.callbacks.is_empty()
    }

    /// What was found wrong.
    pub(crate) fn violations(&self) -> Vec<String> {
        let mut all = self.violations.clone();
        all.extend(self.owes_cancel.iter().map(|call| format!("`cancelled` for {call}, and nobody cancelled")));
        all
    }

    /// The end of a conversation that must have come to rest: what is still open.
    pub(crate) fn unsettled(&self) -> Vec<String> {
        let mut open = Vec::new();
        if self.turn.is_some() {
            open.push("a turn has no result".to_owned());
        }
        if !self.gave_up && self.results + self.may_be_dropped < self.prompts {
            open.push(format!("{} prompts, {} results", self.prompts, self.results));
        }
        open.extend(self.requests.keys().map(|id| format!("the host's request {id} was not answered")));
        open.extend(self.questions.keys().map(|id| format!("the agent's request {id} was not answered")));
        let asks = self.asks.iter().filter(|(_, ask)| ask.subtype != "mcp_message" && self.host_open && !self.exited);
        open.extend(asks.map(|(id, ask)| format!("the question {id} ({}) is open", ask.subtype)));
        if matches!(self.state.as_deref(), Some("running" | "requires_action")) && !self.gave_up {
            open.push("the last state is not idle".to_owned());
        }
        let clients = self.clients.iter().filter(|_| !self.exited);
        open.extend(clients.map(|((conn, id), _)| format!("the MCP client {conn} waits for {id}")));
        open
    }

    // ---- what the host says

    pub(crate) fn host_says(&mut self, line: &[u8]) {
        let Ok(value) = serde_json::from_slice::<Value>(line) else { return };
        match text(&value, "/type") {
            "user" if !value["message"].is_null() => {
                self.prompts += 1;
                // It comes while the process ends.
                self.may_be_dropped += u64::from(self.signalled);
            }
            "control_request" => {
                let id = text(&value, "/request_id").to_owned();
                *self.requests.entry(id).or_default() += 1;
                let request = &value["request"];
                match text(request, "/subtype") {
                    "initialize" => self.host_begins(request),
                    "set_permission_mode" => {
                        self.anybody_grants |= !matches!(text(request, "/mode"), "default" | "dontAsk");
                    }
                    "interrupt" if request["cancel_queued"] == true => self.may_be_dropped = self.prompts,
                    "cancel_async_message" => self.may_be_dropped += 1,
                    _ => {}
                }
            }
            "control_response" => self.host_answers(&value["response"]),
            _ => {}
        }
    }

    fn host_begins(&mut self, request: &Value) {
        let strings = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        };
        for matchers in request["hooks"].as_object().into_iter().flatten().map(|(_, m)| m) {
            for matcher in matchers.as_array().into_iter().flatten() {
                self.callbacks.extend(strings(&matcher["hookCallbackIds"]));
            }
        }
        self.sdk_servers.extend(strings(&request["sdkMcpServers"]));
        for (name, server) in request["mcpServers"].as_object().into_iter().flatten() {
            if server["type"] == "sdk" {
                self.sdk_servers.insert(name.clone());
            }
        }
        let allow =
            request.pointer("/settings/permissions/allow").or(request.pointer("/managedSettings/permissions/allow"));
        self.anybody_grants |= allow.is_some();
    }

    fn host_answers(&mut self, response: &Value) {
        let Some(ask) = self.asks.remove(text(response, "/request_id")) else { return };
        let body = &response["response"];
        match &*ask.subtype {
            "can_use_tool" => {
                let allows = response["subtype"] == "success"
                    && match body["behavior"].as_str() {
                        Some(behavior) => behavior == "allow",
                        None => body["allow"] == true,
                    };
                *if allows { &mut self.allowed } else { &mut self.denied }.entry(ask.call).or_default() += 1;
                self.anybody_grants |= allows && body["updatedPermissions"].as_array().is_some_and(|p| !p.is_empty());
            }
            // A hook may allow what it likes.
            "hook_callback" => {
                let says = body.to_string();
                self.anybody_grants |= says.contains("\"allow\"") || says.contains("\"approve\"");
            }
            _ => {}
        }
    }

    /// The permission tool is asked in the host's place.
    pub(crate) fn asks_tool(&mut self, effect: u64, arguments: &Value) {
        let call = text(arguments, "/tool_use_id").to_owned();
        if call.is_empty() || text(arguments, "/tool_name").is_empty() || !arguments["input"].is_object() {
            self.broken(format!("the permission tool is asked about nothing: {arguments}"));
        }
        if self.to_tool.insert(effect, call).is_some() {
            self.broken(format!("the permission tool is asked twice under the number {effect}"));
        }
    }

    /// It answers; `None`: it could not.
    pub(crate) fn tool_answers(&mut self, effect: u64, answer: Option<&str>) {
        let Some(call) = self.to_tool.remove(&effect) else { return };
        let answer: Value = answer.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        if answer["behavior"] == "allow" {
            *self.allowed.entry(call).or_default() += 1;
            self.anybody_grants |= answer["updatedPermissions"].as_array().is_some_and(|p| !p.is_empty());
        }
    }

    pub(crate) fn host_closed(&mut self) {
        self.host_open = false;
        self.asks.retain(|_, ask| ask.subtype == "mcp_message");
    }

    pub(crate) fn interrupted(&mut self) {
        self.signalled = true;
        self.may_be_dropped = self.prompts;
    }

    // ---- what the host reads

    pub(crate) fn host_reads(&mut self, line: &[u8]) {
        if let Err(problem) = self.host_line(line) {
            self.violations.push(format!("toward the host: {problem}: {}", show(line)));
        }
    }

    fn host_line(&mut self, line: &[u8]) -> Result<(), String> {
        if line.len() > LINE {
            return Err(format!("a line of {} bytes", line.len()));
        }
        if line.contains(&b'\n') {
            return Err("a line feed in a line".into());
        }
        let value: Value = serde_json::from_slice(line).map_err(|e| e.to_string())?;
        let kind = text(&value, "/type").to_owned();
        if matches!(&*kind, "system" | "assistant" | "user" | "result" | "stream_event") {
            if text(&value, "/session_id") != SESSION {
                return Err("another session's id".into());
            }
            let uuid = text(&value, "/uuid").to_owned();
            if uuid.is_empty() {
                return Err("no uuid".into());
            }
            // The host may use one twice.
            if value["isReplay"] != true && !self.uuids.insert(uuid) {
                return Err("a uuid twice".into());
            }
        }
        match &*kind {
            "system" => self.system(&value),
            "assistant" => self.assistant(&value),
            "user" => self.user(&value),
            "stream_event" => self.stream_event(&value),
            "result" => self.result(&value),
            "control_response" => {
                let id = text(&value, "/response/request_id");
                let Some(open) = self.requests.get_mut(id) else {
                    return Err("an answer to no request".into());
                };
                *open -= 1;
                if *open == 0 {
                    self.requests.remove(id);
                }
                match text(&value, "/response/subtype") {
                    "success" if value["response"]["response"].is_object() => Ok(()),
                    "error" if !text(&value, "/response/error").is_empty() => Ok(()),
                    _ => Err("no answer that a host can read".into()),
                }
            }
            "control_request" => self.asks(&value),
            "control_cancel_request" => match self.asks.remove(text(&value, "/request_id")) {
                Some(_) => Ok(()),
                None => Err("a question is withdrawn that is not open".into()),
            },
            _ => Err("a type that old hosts do not know".into()),
        }
    }

    fn system(&mut self, value: &Value) -> Result<(), String> {
        match text(value, "/subtype") {
            "init" => {
                if self.turn.is_some() {
                    return Err("init inside of a turn".into());
                }
                for name in ["cwd", "model", "permissionMode", "apiKeySource", "claude_code_version", "output_style"] {
                    if !value[name].is_string() {
                        return Err(format!("init without {name}"));
                    }
                }
                for name in ["tools", "mcp_servers", "slash_commands", "agents", "skills", "plugins"] {
                    if !value[name].is_array() {
                        return Err(format!("init without {name}"));
                    }
                }
                if self.setting.states != "none" && self.state.as_deref() != Some("running") {
                    return Err("a turn that is not said to run".into());
                }
                self.turn = Some(Turn::default());
            }
            "session_state_changed" => {
                let state = text(value, "/state").to_owned();
                match &*self.setting.states {
                    "none" => return Err("a state that the host does not want".into()),
                    "marked" if value["sdk_host_only"] != true => return Err("a state without its mark".into()),
                    "plain" if value.get("sdk_host_only").is_some() => return Err("a state with a mark".into()),
                    _ => {}
                }
                let fits = match &*state {
                    "idle" => self.turn.is_none() && self.state.as_deref() != Some("idle"),
                    "running" => true,
                    "requires_action" => self.turn.is_some(),
                    _ => false,
                };
                if !fits {
                    return Err(format!("{state} after {:?}", self.state));
                }
                self.state = Some(state);
            }
            "commands_changed" | "session_title_changed" if !self.setting.modern => {
                return Err("a line that only newer hosts know".into());
            }
            "" => return Err("no subtype".into()),
            _ => {}
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<&mut Turn, String> {
        self.turn.as_mut().ok_or_else(|| "outside of a turn".to_owned())
    }

    fn asks(&mut self, value: &Value) -> Result<(), String> {
        let id = text(value, "/request_id").to_owned();
        if !self.asked.insert(id.clone()) || id.is_empty() {
            return Err("an id twice".into());
        }
        if !self.host_open {
            return Err("a question to a host that cannot answer any more".into());
        }
        let request = &value["request"];
        let subtype = text(request, "/subtype").to_owned();
        let mut call = String::new();
        match &*subtype {
            "can_use_tool" => {
                if !self.setting.asks_host {
                    return Err("a question to a host that answers none".into());
                }
                if text(request, "/tool_name").is_empty() || !request["input"].is_object() {
                    return Err("a question without its members".into());
                }
                call = text(request, "/tool_use_id").to_owned();
                match self.turn()?.calls.get(&call) {
                    None => return Err("a question about a call that was not shown".into()),
                    Some(true) => return Err("a question about a call that has its result".into()),
                    Some(false) => {}
                }
            }
            "hook_callback" => {
                if !self.callbacks.contains(text(request, "/callback_id")) || !request["input"].is_object() {
                    return Err("a hook that nobody has".into());
                }
            }
            "mcp_message" => {
                if !self.sdk_servers.contains(text(request, "/server_name")) || !request["message"].is_object() {
                    return Err("a message for a server that nobody has".into());
                }
            }
            "elicitation" if self.setting.elicits => {
                if text(request, "/mcp_server_name").is_empty() || !request["message"].is_string() {
                    return Err("a question without its members".into());
                }
                self.turn()?;
            }
            _ => return Err("a question that hosts do not know".into()),
        }
        self.asks.insert(id, Ask { subtype, call });
        Ok(())
    }

    pub(crate) fn exits(&mut self, code: u8) {
        self.exited = true;
        if code != u8::from(self.last_failed) {
            self.violations.push(format!("exit code {code} after a last result with is_error {}", self.last_failed));
        }
        if self.turn.is_some() {
            self.violations.push("it exits in a turn".to_owned());
        }
        for id in self.requests.keys() {
            self.violations.push(format!("it exits with the host's request {id} unanswered"));
        }
        if !self.gave_up && self.results + self.may_be_dropped < self.prompts {
            self.violations.push(format!("it exits after {} prompts and {} results", self.prompts, self.results));
        }
    }

    pub(crate) fn time_ran_out(&mut self, _timer: Timer) {}
}
