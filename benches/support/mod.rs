//! What the benches share: a session without pipes or processes, and the lines that claude says.

#![allow(dead_code, reason = "each bench uses a part of it")]

pub(crate) mod host;

use std::sync::Arc;

use diglot::mappings::{AgentProfile, Mappings};
use diglot::translate::acp_over_claude::{AcpOverClaude, Settings};
use diglot::translate::{Action, Actions, Event, IdSource, Translator as _};
use diglot::wire::acp::ClientCapabilities;
use diglot::wire::frame::write_line;
use serde_json::{Value, json};
use uuid::Uuid;

/// Ids that cost nothing and never come twice.
#[derive(Default)]
struct Counter(u64);

impl IdSource for Counter {
    fn uuid(&mut self) -> Uuid {
        self.0 += 1;
        Uuid::from_u64_pair(0x4000, self.0)
    }
}

/// A session of a connection, with its claude played by the bench.
pub(crate) struct Session {
    translator: AcpOverClaude,
    actions: Actions,
    /// What was written to the editor since the last look, with line ends.
    pub(crate) near: Vec<u8>,
    /// What was written to claude since the last look, with line ends.
    pub(crate) far: Vec<u8>,
}

/// The tables and claude's profile, as every session of a connection shares them.
#[derive(Clone)]
pub(crate) struct Shared {
    mappings: Arc<Mappings>,
    profile: Arc<AgentProfile>,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let mappings = Mappings::builtin().clone();
        let profile = mappings.agents.get("claude").expect("a built-in profile").clone();
        Self { mappings: Arc::new(mappings), profile: Arc::new(profile) }
    }

    /// A session whose claude is up.
    pub(crate) fn session(&self, number: u32) -> Session {
        let translator = AcpOverClaude::new(Settings {
            mappings: self.mappings.clone(),
            profile: self.profile.clone(),
            client: ClientCapabilities::default(),
            number,
            session_id: format!("10fc729a-f339-4cd2-abc8-{number:012}").into(),
            ids: Box::new(Counter::default()),
        });
        let mut session = Session { translator, actions: Actions::default(), near: Vec::new(), far: Vec::new() };
        let params = json!({"cwd": "/home/user/project", "mcpServers": []});
        session.near(&json!({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": params}));
        let body = json!({"commands": [], "current_permission_mode": "default"});
        let response = json!({"subtype": "success", "request_id": "diglot-1", "response": body});
        session.far(&json!({"type": "control_response", "response": response}));
        session
    }

    /// A session in the middle of a text.
    pub(crate) fn streaming(&self) -> Session {
        let mut session = self.session(1);
        session.prompt(2, "Explain it.");
        session.begin_message("msg_1");
        session.take();
        session
    }
}

impl Session {
    /// A line of the editor.
    pub(crate) fn near(&mut self, line: &Value) {
        self.near_bytes(line.to_string().as_bytes());
    }

    /// A line of the editor, as it stands.
    pub(crate) fn near_bytes(&mut self, line: &[u8]) {
        self.translator.handle(Event::Near(line), &mut self.actions);
        self.write();
    }

    /// A line of claude.
    pub(crate) fn far(&mut self, line: &Value) {
        self.far_bytes(line.to_string().as_bytes());
    }

    /// A line of claude, as it stands: translated, and what comes of it written.
    pub(crate) fn far_bytes(&mut self, line: &[u8]) {
        self.hear(line);
        self.write();
    }

    /// A line of claude whose translation waits for what follows, as in a batch.
    pub(crate) fn hear(&mut self, line: &[u8]) {
        self.translator.handle(Event::Far(line), &mut self.actions);
    }

    /// Writes what there is to write, as the session layer does.
    pub(crate) fn write(&mut self) {
        for action in self.actions.drain() {
            match action {
                Action::Near(line) => write_line(&mut self.near, &line),
                Action::Chunk(chunk) => write_line(&mut self.near, &chunk.to_line()),
                Action::Far(line) => write_line(&mut self.far, &line),
                _ => {}
            }
        }
    }

    /// Forgets what was written; gives how much it was, near and far.
    pub(crate) fn take(&mut self) -> (usize, usize) {
        let lengths = (self.near.len(), self.far.len());
        self.near.clear();
        self.far.clear();
        lengths
    }

    pub(crate) fn prompt(&mut self, id: u64, text: &str) {
        let params = json!({"sessionId": "s", "prompt": [{"type": "text", "text": text}]});
        self.near(&json!({"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params}));
        self.far(&json!({"type": "system", "subtype": "init", "session_id": "s", "permissionMode": "default"}));
    }

    pub(crate) fn begin_message(&mut self, id: &str) {
        let message = json!({"id": id, "role": "assistant", "model": "m", "usage": {"input_tokens": 10}});
        self.far(&event(&json!({"type": "message_start", "message": message})));
        let block = json!({"type": "text", "text": ""});
        self.far(&event(&json!({"type": "content_block_start", "index": 0, "content_block": block})));
    }
}

/// A `stream_event` with the members that claude gives it.
pub(crate) fn event(event: &Value) -> Value {
    json!({
        "type": "stream_event", "event": event, "session_id": "ad1edb16-8b7e-43eb-ad20-1b580c259f48",
        "parent_tool_use_id": null, "uuid": "9167e7ce-f00d-49c5-b971-9f061cf725fa",
    })
}

/// A token of an answer.
pub(crate) fn text_delta(text: &str) -> Vec<u8> {
    let delta = json!({"type": "text_delta", "text": text});
    event(&json!({"type": "content_block_delta", "index": 0, "delta": delta})).to_string().into_bytes()
}

/// A finished call of a tool.
pub(crate) fn tool_use(id: &str, name: &str, input: &Value) -> Value {
    let block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
    json!({
        "type": "assistant", "session_id": "s", "uuid": "u", "parent_tool_use_id": null,
        "message": {"id": "msg_t", "role": "assistant", "model": "m", "content": [block], "usage": {}},
    })
}

/// The result of a call.
pub(crate) fn tool_result(id: &str, content: &str, value: &Value) -> Value {
    let block = json!({"type": "tool_result", "tool_use_id": id, "content": content, "is_error": false});
    json!({
        "type": "user", "session_id": "s", "uuid": "u", "parent_tool_use_id": null,
        "message": {"role": "user", "content": [block]}, "tool_use_result": value,
    })
}

/// The question whether a call is allowed.
pub(crate) fn can_use_tool(request: &str, id: &str, name: &str, input: &Value) -> Value {
    let suggestion = json!({
        "type": "addRules", "behavior": "allow", "destination": "localSettings",
        "rules": [{"toolName": name, "ruleContent": "cargo test"}],
    });
    let request_body = json!({
        "subtype": "can_use_tool", "tool_name": name, "tool_use_id": id, "input": input,
        "permission_suggestions": [suggestion],
    });
    json!({"type": "control_request", "request_id": request, "request": request_body})
}

/// The end of a turn that answers the session's first prompt.
pub(crate) fn result(uuid: &str) -> Value {
    json!({
        "type": "result", "subtype": "success", "is_error": false, "result": "done", "stop_reason": "end_turn",
        "terminal_reason": "completed", "user_message_uuids": [uuid], "total_cost_usd": 0.1, "usage": {},
        "modelUsage": {"m": {"contextWindow": 200_000}},
    })
}
