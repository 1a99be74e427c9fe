//! What the golden files show: the set of words that stand in the right place of some message.
//!
//! Keeps: a word counts only where it is that word (`text` as the type of a content block of the prompt, not as text), so
//! each section of the ledgers has its own reading here. Messages are found in a golden line wherever they stand in it, as
//! objects or as texts, so that the lines' own form may change.

use std::collections::{BTreeMap, BTreeSet};

use diglot::mappings::ledger::Way;
use serde_json::{Map, Value};

/// The pairs of section and word that were shown.
pub(crate) struct Shown {
    way: Way,
    words: BTreeSet<(String, String)>,
}

/// Who said a line of stream-json.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// The host.
    Host,
    /// Claude, or diglot in its place.
    Claude,
    /// The golden line does not say.
    Unknown,
}

type Object = Map<String, Value>;

/// The stream-json types that make an object a message.
const TYPES: [&str; 18] = [
    "user",
    "assistant",
    "system",
    "stream_event",
    "result",
    "control_request",
    "control_response",
    "control_cancel_request",
    "command_lifecycle",
    "tool_progress",
    "conversation_reset",
    "prompt_suggestion",
    "keep_alive",
    "auth_status",
    "rate_limit_event",
    "tool_use_summary",
    "tool_result",
    "session_state_changed",
];

/// What a golden file says of the host's command line, and the flag that said it.
const SETTINGS: [(&str, &str); 15] = [
    ("resume", "--resume"),
    ("fork", "--fork-session"),
    ("add_dirs", "--add-dir"),
    ("partial", "--include-partial-messages"),
    ("replay", "--replay-user-messages"),
    ("mode", "--permission-mode"),
    ("model", "--model"),
    ("effort", "--effort"),
    ("may_bypass", "--allow-dangerously-skip-permissions"),
    ("system_prompt", "--system-prompt"),
    ("append_system_prompt", "--append-system-prompt"),
    ("mcp_servers", "--mcp-config"),
    ("max_turns", "--max-turns"),
    ("json_schema", "--json-schema"),
    ("forget", "--no-session-persistence"),
];

/// What claude asks; every other control request is ours.
const ASKED_BY_CLAUDE: [&str; 4] = ["can_use_tool", "hook_callback", "elicitation", "request_user_dialog"];

impl Shown {
    /// Nothing was shown yet.
    pub(crate) fn new(way: Way) -> Self {
        Self { way, words: BTreeSet::new() }
    }

    /// Whether a message shows this word of this section.
    pub(crate) fn has(&self, section: &str, word: &str) -> bool {
        self.words.contains(&(section.to_owned(), word.to_owned()))
    }

    /// Takes in a golden file. Answers find their requests within it.
    pub(crate) fn file(&mut self, text: &str) {
        let mut asked: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in text.lines() {
            let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
            let is = |direction: &str, what: &str| value.get(direction).and_then(Value::as_str) == Some(what);
            if is("out", "exit") {
                self.add("exit_code", &value.get("code").map(ToString::to_string).unwrap_or_default());
            }
            // What goes through the relay is neither protocol.
            if is("in", "relay") || is("out", "relay") {
                continue;
            }
            if let Some(setting) = value.get("setting").and_then(Value::as_object) {
                self.setting(setting);
            }
            // Who says the stream-json of a line.
            let (host, claude) = match self.way {
                Way::Forward => (is("out", "far"), is("in", "far")),
                Way::Reverse => (is("in", "host"), is("out", "host")),
            };
            let said = match (host, claude) {
                (true, _) => Said::Host,
                (_, true) => Said::Claude,
                _ => Said::Unknown,
            };
            self.find(&value, said, &mut asked);
        }
    }

    /// What a host's command line asked for.
    fn setting(&mut self, setting: &Object) {
        for (member, flag) in SETTINGS {
            if setting.contains_key(member) {
                self.add("flag", flag);
            }
        }
        self.add("mode", text(setting, "mode"));
    }

    fn find(&mut self, value: &Value, said: Said, asked: &mut BTreeMap<String, Vec<String>>) {
        match value {
            Value::Object(object) if object.contains_key("jsonrpc") => self.acp(object, asked),
            Value::Object(object) if TYPES.contains(&text(object, "type")) => self.stream_json(object, said),
            Value::Object(object) => object.values().for_each(|value| self.find(value, said, asked)),
            Value::Array(items) => items.iter().for_each(|value| self.find(value, said, asked)),
            Value::String(string) if string.starts_with('{') => {
                if let Ok(value @ Value::Object(_)) = serde_json::from_str(string) {
                    self.find(&value, said, asked);
                }
            }
            // The arguments a process is started with, or that a host gives.
            Value::String(string) if string.starts_with("--") => {
                self.add("flag", string.split('=').next().unwrap_or_default());
            }
            Value::String(string) if string == "-p" => self.add("flag", "--print"),
            _ => {}
        }
    }

    fn add(&mut self, section: &str, word: &str) {
        if !word.is_empty() {
            self.words.insert((section.to_owned(), word.to_owned()));
        }
    }

    fn keys(&mut self, section: &str, prefix: &str, object: &Object) {
        for key in object.keys() {
            self.add(section, &format!("{prefix}{key}"));
        }
    }

    // ACP

    fn acp(&mut self, message: &Object, asked: &mut BTreeMap<String, Vec<String>>) {
        self.meta(&Value::Object(message.clone()));
        let id = message.get("id").map(ToString::to_string).unwrap_or_default();
        let method = text(message, "method");
        if !method.is_empty() {
            asked.entry(id).or_default().push(method.to_owned());
            for section in [
                "client_request",
                "client_notification",
                "agent_request",
                "agent_notification",
                "either_way",
                "extension",
            ] {
                self.add(section, method);
            }
            if let Some(params) = object(message, "params") {
                if method == "elicitation/create" {
                    self.add("elicitation_mode", text(params, "mode"));
                }
                self.keys("field", &format!("{method}."), params);
                self.params(params);
            }
            return;
        }
        if let Some(error) = object(message, "error") {
            self.add("error_code", &error.get("code").map(ToString::to_string).unwrap_or_default());
            self.keys("part", "error.", error);
        }
        if let Some(result) = object(message, "result") {
            // `@session/new` stands for the id of that request.
            let named = text(message, "id").strip_prefix('@').map(ToOwned::to_owned);
            for method in asked.get(&id).cloned().unwrap_or_default().into_iter().chain(named) {
                self.keys("field", &format!("{method}."), result);
            }
            self.add("stop_reason", text(result, "stopReason"));
            self.add("elicitation_action", text(result, "action"));
            for option in objects(result, "configOptions") {
                self.add("config_option", text(option, "type"));
                self.add("config_category", text(option, "category"));
            }
            if let Some(outcome) = object(result, "outcome") {
                self.add("permission_outcome", text(outcome, "outcome"));
            }
            if let Some(capabilities) = object(result, "agentCapabilities") {
                self.paths("agent_capability", "", capabilities);
            }
            if let Some(modes) = object(result, "modes") {
                self.keys("part", "modes.", modes);
                for mode in objects(modes, "availableModes") {
                    self.keys("part", "mode.", mode);
                    self.add("mode", text(mode, "id"));
                }
            }
        }
    }

    fn params(&mut self, params: &Object) {
        if let Some(capabilities) = object(params, "clientCapabilities") {
            self.paths("client_capability", "", capabilities);
        }
        if let Some(system) = object(params, "systemPrompt") {
            self.add("system_prompt", text(system, "mode"));
        }
        for server in objects(params, "mcpServers") {
            let kind = text(server, "type");
            self.add("mcp_server", if kind.is_empty() { "stdio" } else { kind });
            self.keys("part", "mcp_server.", server);
        }
        for block in objects(params, "prompt") {
            self.block(block);
        }
        for option in objects(params, "options") {
            self.add("permission_kind", text(option, "kind"));
            self.keys("part", "option.", option);
        }
        if let Some(call) = object(params, "toolCall") {
            self.call(call);
        }
        if let Some(update) = object(params, "update") {
            self.update(update);
        }
    }

    fn update(&mut self, update: &Object) {
        let kind = text(update, "sessionUpdate");
        self.add("update", kind);
        // What is said of one of these holds for its siblings.
        let fields = match kind {
            "agent_thought_chunk" => "agent_message_chunk",
            "tool_call_update" => "tool_call",
            kind => kind,
        };
        self.keys("field", &format!("{fields}."), update);
        match kind {
            "tool_call" | "tool_call_update" => self.call(update),
            "notice" => self.add("notice_severity", text(update, "severity")),
            "compaction_update" => self.add("compaction_status", text(update, "status")),
            _ => {}
        }
        if let Some(block) = object(update, "content") {
            self.block(block);
        }
        for entry in objects(update, "entries") {
            self.add("plan_priority", text(entry, "priority"));
            self.add("plan_status", text(entry, "status"));
            self.keys("part", "entry.", entry);
        }
        for command in objects(update, "availableCommands") {
            self.keys("part", "command.", command);
            if let Some(input) = object(command, "input") {
                self.keys("part", "command.", input);
            }
        }
        if let Some(cost) = object(update, "cost") {
            self.keys("part", "cost.", cost);
        }
        self.add("mode", text(update, "currentModeId"));
    }

    fn call(&mut self, call: &Object) {
        self.add("tool_kind", text(call, "kind"));
        self.add("tool_status", text(call, "status"));
        for location in objects(call, "locations") {
            self.keys("part", "location.", location);
        }
        for content in objects(call, "content") {
            let kind = text(content, "type");
            self.add("tool_content", kind);
            if kind == "diff" {
                self.keys("part", "diff.", content);
            }
            if let Some(block) = object(content, "content") {
                self.block(block);
            }
        }
    }

    fn block(&mut self, block: &Object) {
        let kind = text(block, "type");
        self.add("content", kind);
        self.keys("part", &format!("{kind}."), block);
        if let Some(resource) = object(block, "resource") {
            self.keys("part", "resource.", resource);
            self.keys("resource", "", resource);
        }
        if let Some(annotations) = object(block, "annotations") {
            self.keys("part", "annotations.", annotations);
        }
    }

    /// The dotted paths of an object, of capabilities or of `_meta`.
    fn paths(&mut self, section: &str, prefix: &str, object: &Object) {
        for (key, value) in object {
            let path = format!("{prefix}{key}");
            if let Value::Object(below) = value {
                self.paths(section, &format!("{path}."), below);
            }
            self.add(section, &path);
        }
    }

    /// The keys of every `_meta`, and the dotted ones below them.
    fn meta(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|value| self.meta(value)),
            Value::Object(members) => {
                for (key, value) in members {
                    if let (true, Value::Object(meta)) = (key == "_meta", value) {
                        self.paths("meta", "", meta);
                    }
                    self.meta(value);
                }
            }
            _ => {}
        }
    }

    // stream-json

    fn stream_json(&mut self, message: &Object, said: Said) {
        let kind = text(message, "type");
        let body = object(message, "message");
        let blocks = || body.map(|body| objects(body, "content")).unwrap_or_default();
        match kind {
            // Where nothing else tells: claude's own `user` lines carry its session id, those of hosts need not.
            "user" if said == Said::Host || said == Said::Unknown && text(message, "session_id").is_empty() => {
                self.add("stdin", kind);
                self.keys("user_field", "", message);
                self.add("user_field", "message.content");
                for block in blocks() {
                    self.add("user_block", text(block, "type"));
                }
                return;
            }
            "control_request" => return self.control_request(message, said),
            "control_response" => return self.control_response(message, said),
            _ if said == Said::Host => return self.add("stdin", kind),
            _ => {}
        }
        self.add("stdout", kind);
        match kind {
            "user" => {
                self.keys("user_out_field", "", message);
                for block in blocks() {
                    self.claude_block(block);
                }
            }
            "assistant" => {
                self.keys("assistant_field", "", message);
                self.add("error_kind", text(message, "error"));
                for block in blocks() {
                    self.claude_block(block);
                }
            }
            "stream_event" => {
                if let Some(event) = object(message, "event") {
                    self.add("stream_event", text(event, "type"));
                    if let Some(delta) = object(event, "delta") {
                        self.add("delta", text(delta, "type"));
                        self.add("model_stop", text(delta, "stop_reason"));
                    }
                    if let Some(block) = object(event, "content_block") {
                        self.claude_block(block);
                    }
                }
            }
            "result" => {
                self.keys("result_field", "", message);
                self.add("result_subtype", text(message, "subtype"));
                self.add("terminal_reason", text(message, "terminal_reason"));
                self.add("model_stop", text(message, "stop_reason"));
            }
            "system" => {
                self.add("system", text(message, "subtype"));
                if text(message, "subtype") == "init" {
                    self.keys("init_line", "", message);
                }
                self.add("status", text(message, "status"));
                self.add("task_type", text(message, "task_type"));
                self.add("mode", text(message, "permissionMode"));
                if text(message, "subtype").starts_with("task_") {
                    self.add("task_status", text(message, "status"));
                    if let Some(patch) = object(message, "patch") {
                        self.add("task_status", text(patch, "status"));
                    }
                }
            }
            "command_lifecycle" => self.add("lifecycle", text(message, "state")),
            "tool_result" | "session_state_changed" => {
                self.add("wave", kind);
                self.add("wave", text(message, "state"));
            }
            _ => {}
        }
    }

    fn claude_block(&mut self, block: &Object) {
        self.add("content_block", text(block, "type"));
        for inner in objects(block, "content") {
            self.add("content_block", text(inner, "type"));
        }
    }

    fn control_request(&mut self, message: &Object, said: Said) {
        let Some(request) = object(message, "request") else {
            return;
        };
        let subtype = text(request, "subtype");
        if said == Said::Claude || said == Said::Unknown && ASKED_BY_CLAUDE.contains(&subtype) {
            self.add("stdout", "control_request");
            self.add("request_from_claude", subtype);
            match subtype {
                "can_use_tool" => self.keys("question", "", request),
                "hook_callback" => {
                    let input = object(request, "input");
                    self.add("hook_event", input.map(|input| text(input, "hook_event_name")).unwrap_or_default());
                }
                _ => {}
            }
            self.suggestions(request, "permission_suggestions");
        } else {
            self.add("stdin", "control_request");
            self.add("request_to_claude", subtype);
            self.add("mode", text(request, "mode"));
            if subtype == "initialize" {
                self.keys("init_request", "", request);
            }
        }
    }

    fn control_response(&mut self, message: &Object, said: Said) {
        let Some(envelope) = object(message, "response") else {
            return;
        };
        let empty = Object::new();
        let body = object(envelope, "response").unwrap_or(&empty);
        let behavior = text(body, "behavior");
        let by_claude = behavior.is_empty() && text(envelope, "subtype") == "success";
        if said == Said::Claude || said == Said::Unknown && by_claude {
            self.add("stdout", "control_response");
            self.keys("init_answer", "", body);
            self.add("mode", text(body, "current_permission_mode"));
        } else {
            self.add("stdin", "control_response");
            if !behavior.is_empty() {
                self.add("answer", behavior);
                self.keys("answer", "", body);
            } else {
                self.keys("hook_answer", "", body);
            }
            if let Some(hook) = object(body, "hookSpecificOutput") {
                self.keys("hook_answer", "", hook);
            }
            self.suggestions(body, "updatedPermissions");
        }
    }

    fn suggestions(&mut self, holder: &Object, key: &str) {
        for update in objects(holder, key) {
            self.add("suggestion", text(update, "type"));
            self.add("suggestion_place", text(update, "destination"));
            self.add("suggestion_behavior", text(update, "behavior"));
            self.add("mode", text(update, "mode"));
        }
    }
}

fn text<'v>(object: &'v Object, key: &str) -> &'v str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn object<'v>(object: &'v Object, key: &str) -> Option<&'v Object> {
    object.get(key).and_then(Value::as_object)
}

fn objects<'v>(object: &'v Object, key: &str) -> Vec<&'v Object> {
    let items = object.get(key).and_then(Value::as_array);
    items.map(|items| items.iter().filter_map(Value::as_object).collect()).unwrap_or_default()
}

#[test]
fn a_word_is_shown_only_in_its_place() {
    let mut shown = Shown::new(Way::Forward);
    shown.file(concat!(
        r#"{"near":{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"prompt":[{"type":"text","text":"image"}]}}}"#,
        "\n",
        r#"{"far":"{\"type\":\"user\",\"session_id\":\"\",\"uuid\":\"u\",\"message\":{\"content\":[{\"type\":\"image\"}]}}"}"#,
        "\n",
        r#"{"far":{"type":"result","subtype":"success","terminal_reason":"completed"}}"#,
        "\n",
        r#"{"near":{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}}"#,
        "\n",
        r#"{"start":["-p","--resume","x"]}"#,
    ));
    for (section, word) in [
        ("client_request", "session/prompt"),
        ("content", "text"),
        ("part", "text.text"),
        ("field", "session/prompt.prompt"),
        ("field", "session/prompt.stopReason"),
        ("stop_reason", "end_turn"),
        ("stdin", "user"),
        ("user_field", "uuid"),
        ("user_block", "image"),
        ("result_subtype", "success"),
        ("terminal_reason", "completed"),
        ("flag", "--print"),
        ("flag", "--resume"),
    ] {
        assert!(shown.has(section, word), "{section}: {word}");
    }
    for (section, word) in [("content", "image"), ("stdout", "user"), ("user_block", "text"), ("update", "end_turn")] {
        assert!(!shown.has(section, word), "{section}: {word}");
    }
}

#[test]
fn in_the_other_direction_the_host_is_the_near_side() {
    let mut shown = Shown::new(Way::Reverse);
    shown.file(concat!(
        r#"{"about":"x","setting":{"max_turns":3,"mode":"plan"},"args":["--verbose=true"]}"#,
        "\n",
        r#"{"in":"host","line":{"type":"user","session_id":"s","message":{"content":[{"type":"image"}]}}}"#,
        "\n",
        r#"{"in":"host","line":{"type":"control_request","request":{"subtype":"mcp_message"}}}"#,
        "\n",
        r#"{"out":"host","line":{"type":"control_request","request":{"subtype":"hook_callback","input":{"hook_event_name":"Stop"}}}}"#,
        "\n",
        r#"{"in":"host","line":{"type":"control_response","response":{"subtype":"success","response":{"decision":"block"}}}}"#,
        "\n",
        r#"{"out":"host","line":{"type":"user","session_id":"","message":{"content":[{"type":"tool_result"}]}}}"#,
        "\n",
        r#"{"in":"agent","line":{"jsonrpc":"2.0","id":"@session/new","result":{"sessionId":"s"}}}"#,
        "\n",
        r#"{"in":"relay","line":{"jsonrpc":"2.0","id":1,"method":"session/list"}}"#,
        "\n",
        r#"{"out":"exit","code":1}"#,
    ));
    for (section, word) in [
        ("flag", "--max-turns"),
        ("flag", "--verbose"),
        ("mode", "plan"),
        ("field", "session/new.sessionId"),
        ("exit_code", "1"),
        ("stdin", "user"),
        ("user_block", "image"),
        ("request_to_claude", "mcp_message"),
        ("request_from_claude", "hook_callback"),
        ("hook_event", "Stop"),
        ("hook_answer", "decision"),
        ("content_block", "tool_result"),
        ("stdout", "user"),
    ] {
        assert!(shown.has(section, word), "{section}: {word}");
    }
    for (section, word) in
        [("request_from_claude", "mcp_message"), ("stdout", "control_response"), ("client_request", "session/list")]
    {
        assert!(!shown.has(section, word), "{section}: {word}");
    }
}
