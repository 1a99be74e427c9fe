//! The protocol's MUST and SHOULD that concern an agent and its messages (acp.md, section 5), one test for each; the
//! number in a test's comment is the rule's. What concerns processes and bytes on pipes is tested there.

mod support;

use diglot::translate::{FarExit, FileContent, StartFailure, Timer};
use serde_json::{Value, json};
use support::conversation::{Conversation, Done, Input, Setting};

/// A conversation of one session, seen from the editor.
struct Talk {
    conversation: Conversation,
    session: String,
    /// What diglot wrote to the agent in the last step.
    far: Vec<Value>,
}

impl Talk {
    fn start() -> Self {
        Self::with(Setting::default())
    }

    fn with(setting: Setting) -> Self {
        Self { conversation: Conversation::new(setting), session: String::new(), far: Vec::new() }
    }

    /// With `initialize` and an open session; the editor declares these capabilities.
    fn open(client: &Value) -> Self {
        let mut talk = Self::start();
        talk.initialize(client);
        talk.new_session();
        talk
    }

    fn initialize(&mut self, client: &Value) -> Vec<Value> {
        self.request(0, "initialize", &json!({ "protocolVersion": 1, "clientCapabilities": client }))
    }

    fn new_session(&mut self) -> Vec<Value> {
        self.request(1, "session/new", &json!({ "cwd": "/w", "mcpServers": [] }));
        let answer = self.far(&json!({ "type": "control_response", "response": { "subtype": "success",
            "request_id": "diglot-1", "response": { "commands": [], "current_permission_mode": "default" } } }));
        self.session = answer[0]["result"]["sessionId"].as_str().unwrap_or_default().to_owned();
        answer
    }

    fn feed(&mut self, input: &Input) -> Vec<Value> {
        self.far.clear();
        let outputs = self.conversation.feed(input).unwrap_or_else(|e| panic!("{e:?}"));
        let read = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or_else(|e| panic!("{e}"));
        let mut near = Vec::new();
        for output in outputs {
            match output.what {
                Done::Near(bytes) => near.push(read(&bytes)),
                Done::Far(bytes) => self.far.push(read(&bytes)),
                _ => {}
            }
        }
        near
    }

    fn line(&mut self, text: &str) -> Vec<Value> {
        self.feed(&Input::Near(text.as_bytes().to_vec()))
    }

    fn request(&mut self, id: u64, method: &str, params: &Value) -> Vec<Value> {
        self.line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string())
    }

    fn notify(&mut self, method: &str, params: &Value) -> Vec<Value> {
        self.line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string())
    }

    fn prompt(&mut self, id: u64) -> Vec<Value> {
        let params = json!({ "sessionId": self.session, "prompt": [{ "type": "text", "text": "go" }] });
        self.request(id, "session/prompt", &params)
    }

    fn cancel(&mut self) -> Vec<Value> {
        let params = json!({ "sessionId": self.session });
        self.notify("session/cancel", &params)
    }

    fn far(&mut self, line: &Value) -> Vec<Value> {
        self.feed(&Input::Far(0, line.to_string().into_bytes()))
    }

    fn says(&mut self, id: &str, block: &Value) -> Vec<Value> {
        self.far(&json!({ "type": "assistant", "parent_tool_use_id": null,
            "message": { "id": id, "role": "assistant", "content": [block] } }))
    }

    fn calls(&mut self, id: &str, name: &str, input: &Value) -> Vec<Value> {
        self.says("m", &json!({ "type": "tool_use", "id": id, "name": name, "input": input }))
    }

    fn asks(&mut self, request: &str, id: &str, name: &str, input: &Value) -> Vec<Value> {
        self.far(&json!({ "type": "control_request", "request_id": request, "request": {
            "subtype": "can_use_tool", "tool_name": name, "input": input, "tool_use_id": id } }))
    }

    fn has_result(&mut self, id: &str) -> Vec<Value> {
        self.far(&json!({ "type": "user", "parent_tool_use_id": null, "message": { "role": "user",
            "content": [{ "type": "tool_result", "tool_use_id": id, "content": "out", "is_error": false }] } }))
    }

    fn ends(&mut self) -> Vec<Value> {
        self.far(&json!({ "type": "result", "subtype": "success", "is_error": false, "result": "",
            "terminal_reason": "completed", "stop_reason": "end_turn" }))
    }

    fn aborts(&mut self) -> Vec<Value> {
        self.far(&json!({ "type": "result", "subtype": "error_during_execution", "is_error": true,
            "terminal_reason": "aborted_tools", "errors": [] }))
    }
}

/// Nothing of what was said broke the schema or a rule.
impl Drop for Talk {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.conversation.judge.violations(), Vec::<String>::new());
        }
    }
}

fn code(answer: &[Value]) -> i64 {
    assert_eq!(answer.len(), 1, "{answer:?}");
    answer[0]["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer:?}"))
}

fn updates<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().map(|l| &l["params"]["update"]).filter(|u| u["sessionUpdate"] == kind).collect()
}

// 4
#[test]
fn notifications_are_never_answered() {
    let mut talk = Talk::open(&json!({}));
    for method in ["no/such", "_vendor/thing", "$/progress", "initialize", "session/prompt", "session/new"] {
        assert_eq!(talk.notify(method, &json!({})), Vec::<Value>::new(), "{method}");
    }
}

// 5
#[test]
fn unknown_requests_are_answered_with_method_not_found() {
    let mut talk = Talk::open(&json!({}));
    for (i, method) in
        ["no/such", "_vendor/thing", "session/load", "fs/read_text_file", "proxy/initialize"].iter().enumerate()
    {
        assert_eq!(code(&talk.request(10 + i as u64, method, &json!({}))), -32601, "{method}");
    }
}

// 6
#[test]
fn an_answer_carries_the_id_with_its_type() {
    let mut talk = Talk::open(&json!({}));
    for id in ["0", "\"0\"", "null", "-7", "\"é\\n\""] {
        let answer = talk.line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"no/such"}}"#));
        let expected: Value = serde_json::from_str(id).unwrap_or_default();
        assert_eq!(answer[0]["id"], expected, "{id}");
    }
}

// 7
#[test]
fn what_is_no_message_is_answered_once_without_an_id() {
    let mut talk = Talk::open(&json!({}));
    for (line, expected) in [("{", -32700), ("nonsense", -32700), ("[{},{}]", -32600), ("3", -32600)] {
        let answer = talk.line(line);
        assert_eq!((code(&answer), &answer[0]["id"]), (expected, &Value::Null), "{line}");
    }
}

// 8
#[test]
fn missing_and_wrong_parameters_are_invalid() {
    let mut talk = Talk::open(&json!({}));
    let session = talk.session.clone();
    for (method, params) in [
        ("session/new", json!({})),
        ("session/new", json!({ "cwd": 1, "mcpServers": [] })),
        ("session/prompt", json!({ "sessionId": session })),
        ("session/prompt", json!({ "sessionId": session, "prompt": "x" })),
        ("session/prompt", json!({ "prompt": [] })),
        ("session/set_mode", json!({ "sessionId": session })),
        ("authenticate", json!({})),
        ("initialize", json!({})),
    ] {
        assert_eq!(code(&talk.request(10, method, &params)), -32602, "{method} {params}");
    }
}

// 13
#[test]
fn the_version_that_is_spoken_is_answered_to_every_number() {
    for version in [0, 1, 2, 99] {
        let mut talk = Talk::start();
        let answer = talk.request(0, "initialize", &json!({ "protocolVersion": version }));
        assert_eq!(answer[0]["result"]["protocolVersion"], 1, "{version}");
    }
}

// 15
#[test]
fn nothing_is_served_before_initialize() {
    let mut talk = Talk::start();
    for method in ["session/new", "session/prompt", "authenticate", "no/such"] {
        assert_eq!(code(&talk.request(0, method, &json!({}))), -32600, "{method}");
    }
}

// 16
#[test]
fn what_the_editor_did_not_declare_is_not_used() {
    for client in [
        json!({}),
        json!({ "session": { "notices": true } }),
        json!({ "session": null, "_meta": { "terminal_output": "yes" } }),
    ] {
        let mut talk = Talk::open(&client);
        talk.prompt(2);
        let lines = talk.calls("t", "Bash", &json!({ "command": "ls" }));
        assert!(!lines.iter().any(|l| l.to_string().contains("terminal")), "{lines:?}");
        talk.ends();
        talk.feed(&Input::FarClosed(0, FarExit::default()));
        talk.prompt(3);
        let lines = talk.far(&json!({ "type": "control_response", "response": { "subtype": "success", "request_id": "diglot-2", "response": {} } }));
        assert_eq!(updates(&lines, "notice"), Vec::<&Value>::new());
    }
}

// 17
#[test]
fn the_agent_says_who_it_is() {
    let mut talk = Talk::start();
    let info = talk.initialize(&json!({}))[0]["result"]["agentInfo"].clone();
    assert_eq!((&info["name"], &info["title"]), (&json!("diglot"), &json!("Claude Code")));
    assert!(info["version"].as_str().is_some_and(|v| !v.is_empty()));
}

// 18, 37
#[test]
fn text_and_links_are_taken_and_what_was_not_declared_is_refused() {
    let mut talk = Talk::open(&json!({}));
    let session = talk.session.clone();
    let audio =
        json!({ "sessionId": session, "prompt": [{ "type": "audio", "data": "eA==", "mimeType": "audio/wav" }] });
    assert_eq!(code(&talk.request(2, "session/prompt", &audio)), -32602);
    let link = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "see " },
        { "type": "resource_link", "uri": "file:///w/a.rs", "name": "a.rs" }] });
    talk.request(3, "session/prompt", &link);
    assert_eq!(talk.far[0]["message"]["content"], json!([{ "type": "text", "text": "see @/w/a.rs" }]));
}

// 20
#[test]
fn only_missing_credentials_ask_for_a_login() {
    for (kind, status, expected) in [
        ("authentication_failed", None, -32000),
        ("authentication_failed", Some(401), -32603),
        ("rate_limit", Some(429), -32603),
    ] {
        let mut talk = Talk::open(&json!({}));
        talk.prompt(2);
        talk.far(
            &json!({ "type": "assistant", "parent_tool_use_id": null, "error": kind, "is_api_error_message": true,
            "api_error_status": status, "message": { "id": "x", "role": "assistant", "model": "<synthetic>",
            "content": [{ "type": "text", "text": "no" }] } }),
        );
        let answer = talk.far(&json!({ "type": "result", "subtype": "success", "is_error": true, "result": "no",
            "terminal_reason": "api_error", "stop_reason": "stop_sequence", "api_error_status": status }));
        assert_eq!(code(&answer), expected, "{kind} {status:?}");
    }
}

// 22
#[test]
fn every_session_has_an_id_of_its_own() {
    let mut talk = Talk::open(&json!({}));
    let first = talk.session.clone();
    talk.request(2, "session/new", &json!({ "cwd": "/w", "mcpServers": [] }));
    let answer = talk.feed(&Input::Far(
        1,
        br#"{"type":"control_response","response":{"subtype":"success","request_id":"diglot-1","response":{}}}"#
            .to_vec(),
    ));
    assert_ne!(answer[0]["result"]["sessionId"], json!(first));
}

// 23, 24, 25
#[test]
fn places_are_absolute_and_lines_begin_at_one() {
    let mut talk = Talk::open(&json!({}));
    talk.prompt(2);
    let lines = talk.calls("t", "Read", &json!({ "file_path": "src/a.rs", "offset": 0 }));
    assert_eq!(updates(&lines, "tool_call")[0]["locations"], json!([{ "path": "/w/src/a.rs" }]));
    let lines = talk.calls("u", "Read", &json!({ "file_path": "/x/b.rs", "offset": 7 }));
    assert_eq!(updates(&lines, "tool_call")[0]["locations"], json!([{ "path": "/x/b.rs", "line": 7 }]));
}

// 32
#[test]
fn an_unknown_session_is_named_in_the_error() {
    let mut talk = Talk::open(&json!({}));
    let params = json!({ "sessionId": "gone", "prompt": [{ "type": "text", "text": "x" }] });
    let answer = talk.request(2, "session/prompt", &params);
    assert_eq!((code(&answer), &answer[0]["error"]["data"]), (-32002, &json!({ "sessionId": "gone" })));
}

// 34
#[test]
fn a_system_prompt_that_cannot_be_applied_is_an_error() {
    let mut talk = Talk::start();
    talk.initialize(&json!({}));
    let params = json!({ "cwd": "/w", "mcpServers": [], "systemPrompt": { "mode": "append", "content": [] } });
    assert_eq!(code(&talk.request(1, "session/new", &params)), -32602);
}

// 35, 36
#[test]
fn a_turn_is_answered_after_everything_it_said() {
    let mut talk = Talk::open(&json!({}));
    assert_eq!(talk.prompt(2), Vec::<Value>::new());
    assert_eq!(updates(&talk.says("m", &json!({ "type": "text", "text": "hi" })), "agent_message_chunk").len(), 1);
    let lines = talk.ends();
    assert_eq!(lines.last().map(|l| &l["result"]["stopReason"]), Some(&json!("end_turn")));
}

// 38
#[test]
fn each_message_has_its_id() {
    let mut talk = Talk::open(&json!({}));
    talk.prompt(2);
    for id in ["m1", "m1", "m2"] {
        let lines = talk.says(id, &json!({ "type": "text", "text": "x" }));
        assert_eq!(updates(&lines, "agent_message_chunk")[0]["messageId"], id);
    }
}

// 39
#[test]
fn a_plan_carries_all_entries() {
    let mut talk = Talk::open(&json!({}));
    talk.prompt(2);
    let create = |talk: &mut Talk, n: u32| {
        let id = format!("t{n}");
        talk.calls(&id, "TaskCreate", &json!({ "subject": n.to_string() }));
        talk.far(&json!({ "type": "user", "parent_tool_use_id": null, "tool_use_result": { "task": { "id": n.to_string(), "subject": n.to_string() } },
            "message": { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id, "content": "ok" }] } }))
    };
    for n in 1..4 {
        let lines = create(&mut talk, n);
        assert_eq!(updates(&lines, "plan")[0]["entries"].as_array().map(Vec::len), Some(n as usize));
    }
}

// 41
#[test]
fn a_mode_can_be_changed_during_a_turn_and_must_be_one_that_is_there() {
    let mut talk = Talk::open(&json!({}));
    talk.prompt(2);
    let set = json!({ "sessionId": talk.session, "modeId": "plan" });
    talk.request(3, "session/set_mode", &set);
    let answer = talk.far(&json!({ "type": "control_response", "response": { "subtype": "success", "request_id": "diglot-2", "response": {} } }));
    assert_eq!((&answer[0]["id"], &answer[0]["result"]), (&json!(3), &json!({})));
    let set = json!({ "sessionId": talk.session, "modeId": "nonsense" });
    talk.request(4, "session/set_mode", &set);
    let answer = talk.far(&json!({ "type": "control_response", "response": { "subtype": "error", "request_id": "diglot-3", "error": "unknown" } }));
    assert_eq!(code(&answer), -32602);
}

// 42
#[test]
fn a_second_prompt_waits_and_is_answered_for_itself() {
    let mut talk = Talk::open(&json!({}));
    talk.prompt(2);
    talk.prompt(3);
    assert!(talk.far.is_empty());
    assert_eq!(talk.ends()[0]["id"], 2);
    assert_eq!(talk.far[0]["type"], "user");
    assert_eq!(talk.ends()[0]["id"], 3);
}

// 43, 44, 45
#[test]
fn a_call_is_announced_asked_about_run_and_closed_in_this_order() {
    let mut talk = Talk::open(&json!({}));
    talk.prompt(2);
    let mut seen = Vec::new();
    let mut note = |lines: Vec<Value>| {
        for line in lines {
            let update = &line["params"]["update"];
            let word = update["sessionUpdate"].as_str().or(line["method"].as_str()).unwrap_or_default().to_owned();
            seen.push((word, update["status"].as_str().unwrap_or_default().to_owned()));
        }
    };
    note(talk.asks("q", "t", "Bash", &json!({ "command": "x" })));
    note(talk.line(r#"{"jsonrpc":"2.0","id":1,"result":{"outcome":{"outcome":"selected","optionId":"allow_once"}}}"#));
    note(talk.has_result("t"));
    let expected = [
        ("tool_call", "pending"),
        ("session/request_permission", ""),
        ("tool_call_update", "in_progress"),
        ("tool_call_update", "completed"),
    ];
    assert_eq!(seen, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
}

// 46
#[test]
fn an_answer_that_is_not_understood_allows_nothing() {
    for answer in [
        r#""result":{"outcome":{"outcome":"selected","optionId":"yes"}}"#,
        r#""result":{"outcome":{"outcome":"cancelled"}}"#,
        r#""result":{"outcome":{"outcome":"maybe","optionId":"allow_once"}}"#,
        r#""result":null"#,
        r#""error":{"code":-32800,"message":"cancelled"}"#,
    ] {
        let mut talk = Talk::open(&json!({}));
        talk.prompt(2);
        talk.asks("q", "t", "Bash", &json!({ "command": "x" }));
        talk.line(&format!(r#"{{"jsonrpc":"2.0","id":1,{answer}}}"#));
        assert_eq!(talk.far[0]["response"]["response"]["behavior"], "deny", "{answer}");
    }
}

// 47
#[test]
fn files_and_terminals_of_the_editor_are_not_used() {
    let mut talk = Talk::open(&json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true }));
    talk.prompt(2);
    let mut lines = talk.calls("t", "Write", &json!({ "file_path": "/w/a", "content": "x" }));
    lines.extend(talk.calls("u", "Bash", &json!({ "command": "ls" })));
    assert!(lines.iter().all(|l| l["method"] == "session/update"), "{lines:?}");
}

// 49
#[test]
fn a_cancelled_prompt_is_answered_as_cancelled_whatever_happens() {
    // The turn ends, the process dies, the process must be killed, the message never ran.
    for way in 0..4 {
        let mut talk = Talk::open(&json!({}));
        talk.prompt(2);
        talk.calls("t", "Bash", &json!({ "command": "x" }));
        talk.cancel();
        let lines = match way {
            0 => talk.aborts(),
            1 => talk.feed(&Input::FarClosed(0, FarExit { code: Some(1), ..FarExit::default() })),
            2 => {
                talk.feed(&Input::Timer(0, Timer::Cancel));
                talk.feed(&Input::Timer(0, Timer::Cancel));
                talk.feed(&Input::FarClosed(0, FarExit { signal: Some(9), ..FarExit::default() }))
            }
            _ => talk.far(&json!({ "type": "command_lifecycle", "state": "discarded",
                "command_uuid": "00000000-0000-4000-8000-000000000002" })),
        };
        assert_eq!(lines.last().map(|l| &l["result"]["stopReason"]), Some(&json!("cancelled")), "{way}");
        assert_eq!(updates(&lines, "tool_call_update")[0]["status"], "failed");
    }
}

// 51
#[test]
fn a_cancel_does_not_wait_for_answers_to_questions() {
    let mut talk = Talk::open(&json!({}));
    talk.prompt(2);
    talk.asks("q", "t", "Bash", &json!({ "command": "x" }));
    let lines = talk.cancel();
    assert_eq!((&lines[0]["method"], &lines[0]["params"]["requestId"]), (&json!("$/cancel_request"), &json!(1)));
    assert_eq!(talk.far[0]["response"]["response"]["behavior"], "deny");
    assert_eq!(talk.aborts().last().map(|l| &l["result"]["stopReason"]), Some(&json!("cancelled")));
    // The late answer is dropped.
    talk.line(r#"{"jsonrpc":"2.0","id":1,"result":{"outcome":{"outcome":"selected","optionId":"allow_once"}}}"#);
    assert!(talk.far.is_empty());
}

// 52
#[test]
fn a_cancel_of_nothing_does_nothing() {
    let mut talk = Talk::open(&json!({}));
    assert_eq!(talk.cancel(), Vec::<Value>::new());
    assert!(talk.far.is_empty());
    assert_eq!(talk.notify("session/cancel", &json!({ "sessionId": "nobody" })), Vec::<Value>::new());
}

// 53, 54
#[test]
fn a_request_that_is_withdrawn_is_still_answered() {
    let mut talk = Talk::open(&json!({}));
    talk.prompt(2);
    talk.prompt(3);
    assert_eq!(talk.notify("$/cancel_request", &json!({ "requestId": 3 }))[0]["result"]["stopReason"], "cancelled");
    talk.notify("$/cancel_request", &json!({ "requestId": 2 }));
    assert_eq!(talk.aborts().last().map(|l| &l["result"]["stopReason"]), Some(&json!("cancelled")));
    assert_eq!(talk.notify("$/cancel_request", &json!({ "requestId": 77 })), Vec::<Value>::new());
    talk.request(4, "session/new", &json!({ "cwd": "/w", "mcpServers": [] }));
    assert_eq!(code(&talk.notify("$/cancel_request", &json!({ "requestId": 4 }))), -32800);
}

#[test]
fn a_program_that_is_not_there_is_an_error_that_says_what_to_do() {
    let mut talk = Talk::start();
    talk.initialize(&json!({}));
    talk.request(1, "session/new", &json!({ "cwd": "/w", "mcpServers": [] }));
    let why = StartFailure::NoProgram("`claude` was not found on PATH".into());
    let answer = talk.feed(&Input::FarFailed(0, why));
    assert_eq!(code(&answer), -32603);
    assert_eq!(answer[0]["error"]["data"]["reason"], "agent_not_found");
    assert!(answer[0]["error"]["data"]["hint"].as_str().is_some_and(|h| h.contains("install")));
}

/// The design's budget: 5 kB for a one-line edit of a 200 kB file.
#[test]
fn a_small_change_of_a_large_file_is_a_small_message() {
    let old: String = (0..8000).map(|i| format!("line {i} of a large file\n")).collect();
    let new = old.replace("line 4000 of", "LINE 4000 of");
    let mut setting = Setting::default();
    setting.files.insert("/w/big.txt".into(), FileContent::Text(old.clone()));
    let mut talk = Talk::with(setting);
    talk.initialize(&json!({}));
    talk.new_session();
    talk.prompt(2);
    let input = json!({ "file_path": "/w/big.txt", "content": new });
    let mut lines = talk.calls("t", "Write", &input);
    lines.extend(talk.asks("q", "t", "Write", &input));
    lines.extend(talk.far(&json!({ "type": "user", "parent_tool_use_id": null,
        "tool_use_result": { "type": "update", "filePath": "/w/big.txt", "content": new, "originalFile": old },
        "message": { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t", "content": "ok" }] } })));
    let bytes: usize = lines.iter().map(|l| l.to_string().len()).sum();
    assert!(old.len() > 180_000 && bytes < 5_000, "{bytes} bytes for a file of {}", old.len());
    let diff = &updates(&lines, "tool_call_update")[0]["content"][0];
    assert!(diff["oldText"].as_str().is_some_and(|t| t.contains("line 4000") && !t.contains("line 3990")), "{diff}");
}

#[test]
fn long_output_is_bounded_and_says_so() {
    let mut talk = Talk::open(&json!({}));
    talk.prompt(2);
    talk.calls("t", "Bash", &json!({ "command": "yes" }));
    let lines = talk.far(&json!({ "type": "user", "parent_tool_use_id": null, "message": { "role": "user",
        "content": [{ "type": "tool_result", "tool_use_id": "t", "content": "é".repeat(400_000), "is_error": false }] } }));
    let update = updates(&lines, "tool_call_update")[1].to_string();
    assert!(update.len() < 300_000 && update.contains("more bytes are not shown"));
}
