//! io, `io acp`: no program to measure, so this is its documentation.
//!
//! Its ways: exactly three options, no refusal for ever; "for this session" covers that act on that target only; a question
//! whose answer is cancelled, unknown or an error is a denial, and the agent is told whether the user refused or nobody was
//! there; a cancel takes effect between the steps of a turn, not inside one; the client's files and terminals are not used;
//! several sessions; what cannot be used in a prompt is said, not dropped.
//!
//! Steps of its own: `update STATUS` (a call that asks nobody and ends so: `completed`, `failed`, `policy`), `todo A,B` (a
//! plan), `stop REASON` (the turn ends for another reason), `mcp` (calls the tool of each MCP server that it was given; it
//! can start programs only).

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::acp::{self, Incoming, Wire};
use super::mcp;

struct Io {
    wire: Wire,
    sessions: usize,
    /// MCP servers of the session that was opened last.
    servers: Value,
    queue: VecDeque<(Value, Value)>,
    /// The session whose turn is cancelled at its next step.
    cancelled: Option<String>,
    /// Acts that are allowed for the session: tool and target.
    granted: Vec<(String, String, String)>,
    calls: u64,
    runs: bool,
    left: bool,
}

pub(crate) fn serve() {
    let mut io = Io {
        wire: Wire::open(),
        sessions: 0,
        servers: Value::Null,
        queue: VecDeque::new(),
        cancelled: None,
        granted: Vec::new(),
        calls: 0,
        runs: false,
        left: false,
    };
    while !io.left || !io.queue.is_empty() {
        if let Some((id, params)) = io.queue.pop_front() {
            io.runs = true;
            io.turn(&id, &params);
            io.runs = false;
            continue;
        }
        let incoming = io.wire.next();
        io.take(incoming);
    }
    std::process::exit(0);
}

impl Io {
    fn take(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Eof => self.left = true,
            Incoming::Request { id, method, params } => self.request(id, &method, params),
            Incoming::Notification { method, params } if method == "session/cancel" => {
                // One that comes when nothing runs changes nothing.
                self.cancelled = params["sessionId"].as_str().map(ToOwned::to_owned).filter(|_| self.runs);
            }
            Incoming::Notification { .. } | Incoming::Answer { .. } => {}
        }
    }

    fn request(&mut self, id: Value, method: &str, params: Value) {
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        match method {
            "initialize" => {
                let prompt = json!({"image": true, "audio": false, "embeddedContext": true});
                let capabilities = json!({"loadSession": true, "promptCapabilities": prompt});
                let info = json!({"name": "io", "version": "0"});
                let result = json!({
                    "protocolVersion": 1, "agentCapabilities": capabilities, "agentInfo": info, "authMethods": [],
                });
                self.wire.result(&id, result);
            }
            "session/new" => {
                self.sessions += 1;
                self.servers = params["mcpServers"].clone();
                let session = acp::new_session(self.sessions);
                acp::keep(&session, "user (begin)");
                self.wire.result(&id, json!({"sessionId": session}));
            }
            "session/load" | "session/prompt" if acp::recall(&session).is_none() => {
                self.wire.error(&id, -32602, &format!("unknown session: {session}"), Value::Null);
            }
            "session/load" => {
                for line in acp::recall(&session).unwrap_or_default() {
                    let (kind, text) = line.split_once(' ').unwrap_or(("agent", &line));
                    let block = json!({"type": "text", "text": text});
                    let update = json!({"sessionUpdate": format!("{kind}_message_chunk"), "content": block});
                    self.wire.update(&session, update);
                }
                self.wire.result(&id, json!({}));
            }
            "session/prompt" => self.queue.push_back((id, params)),
            other => self.wire.unknown(&id, other),
        }
    }

    fn say(&mut self, session: &str, kind: &str, text: &str) {
        for word in text.split_inclusive(' ') {
            let block = json!({"type": "text", "text": word});
            self.wire.update(session, json!({"sessionUpdate": kind, "content": block}));
        }
        if kind == "agent_message_chunk" {
            acp::keep(session, &format!("agent {text}"));
        }
    }

    fn turn(&mut self, id: &Value, params: &Value) {
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        for block in params["prompt"].as_array().into_iter().flatten() {
            if block["type"] == "audio" {
                self.say(&session, "agent_message_chunk", "(a sound that cannot be used)\n");
            }
        }
        let mut reason = "end_turn".to_owned();
        for (word, rest) in acp::steps(params) {
            if self.cancelled.as_deref() == Some(&session) {
                break;
            }
            match self.step(&session, &word, &rest) {
                Ok(()) => {}
                Err(other) => {
                    reason = other;
                    break;
                }
            }
        }
        // Between the steps and at their end, not inside of one.
        if self.cancelled.take().as_deref() == Some(&session) {
            reason = "cancelled".to_owned();
        }
        self.wire.result(id, json!({"stopReason": reason}));
    }

    fn step(&mut self, session: &str, word: &str, rest: &str) -> Result<(), String> {
        match word {
            "say" => self.say(session, "agent_message_chunk", rest),
            "think" => self.say(session, "agent_thought_chunk", rest),
            "run" => self.run(session, rest),
            "write" => {
                let (path, text) = rest.split_once(' ').unwrap_or((rest, ""));
                let path = std::env::current_dir().unwrap().join(path);
                let raw = json!({"file_path": path, "content": text});
                let target = path.display().to_string();
                self.call(session, "write", "edit", &target, &raw, || match std::fs::write(&path, text) {
                    Ok(()) => (true, "written".to_owned()),
                    Err(error) => (false, error.to_string()),
                });
            }
            "update" => {
                let id = self.announced(session, "list", "read", "list", &json!({"path": "."}), "in_progress");
                let (status, text) = match rest {
                    "policy" => ("failed", "refused by policy"),
                    "failed" => ("failed", "no such directory"),
                    _ => ("completed", "a\nb"),
                };
                self.ended(session, &id, status, text);
            }
            "todo" => {
                let entry = |text: &str| json!({"content": text, "priority": "medium", "status": "pending"});
                let entries: Vec<Value> = rest.split(',').map(entry).collect();
                self.wire.update(session, json!({"sessionUpdate": "plan", "entries": entries}));
            }
            "mcp" => {
                let servers = self.servers.as_array().cloned().unwrap_or_default();
                let said: Vec<String> = servers.iter().map(mcp::call).collect();
                self.say(session, "agent_message_chunk", &said.join(" "));
            }
            // The next thing that the client says, a cancel for one, ends this step.
            "hang" => {
                let incoming = self.wire.next();
                self.take(incoming);
            }
            "stop" => return Err(rest.to_owned()),
            "child" => acp::child(),
            "fail" => return Err("refusal".to_owned()),
            "die" => std::process::exit(3),
            other => self.say(session, "agent_message_chunk", &format!("what is {other}?")),
        }
        Ok(())
    }

    fn run(&mut self, session: &str, command: &str) {
        let raw = json!({"command": command});
        self.call(session, "shell", "execute", command, &raw, || {
            let (output, code) = acp::shell(command);
            (code == 0, output)
        });
    }

    fn announced(&mut self, session: &str, tool: &str, kind: &str, title: &str, raw: &Value, status: &str) -> String {
        self.calls += 1;
        let id = format!("{tool}-{}", self.calls);
        let update = json!({
            "sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": kind, "status": status, "rawInput": raw,
        });
        self.wire.update(session, update);
        id
    }

    fn ended(&mut self, session: &str, id: &str, status: &str, text: &str) {
        let content = json!([{"type": "content", "content": {"type": "text", "text": text}}]);
        let update =
            json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, "content": content});
        self.wire.update(session, update);
    }

    fn call(
        &mut self,
        session: &str,
        tool: &str,
        kind: &str,
        target: &str,
        raw: &Value,
        act: impl FnOnce() -> (bool, String),
    ) {
        let id = self.announced(session, tool, kind, target, raw, "pending");
        let this = (session.to_owned(), tool.to_owned(), target.to_owned());
        let allowed = self.granted.contains(&this) || {
            let call = json!({"toolCallId": id, "title": target, "kind": kind, "rawInput": raw});
            let options = json!([
                {"optionId": "once", "name": "Allow once", "kind": "allow_once"},
                {"optionId": "session", "name": "Allow for this session", "kind": "allow_always"},
                {"optionId": "deny", "name": "Deny", "kind": "reject_once"},
            ]);
            let params = json!({"sessionId": session, "toolCall": call, "options": options});
            let question = self.wire.ask("session/request_permission", params);
            let answer = self.answer(&question);
            match answer.as_ref().and_then(acp::chosen).as_deref() {
                Some("once") => true,
                Some("session") => {
                    self.granted.push(this);
                    true
                }
                Some("deny") => {
                    self.ended(session, &id, "failed", "the user refused");
                    return;
                }
                _ => {
                    self.ended(session, &id, "failed", "the question could not be routed");
                    return;
                }
            }
        };
        if allowed {
            let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress"});
            self.wire.update(session, update);
            let (well, text) = act();
            self.ended(session, &id, if well { "completed" } else { "failed" }, &text);
        }
    }

    /// Waits without a limit; when the client is gone there is none.
    fn answer(&mut self, question: &Value) -> Option<Result<Value, Value>> {
        while !self.left {
            match self.wire.next() {
                Incoming::Answer { id, outcome } if id == *question => return Some(outcome),
                other => self.take(other),
            }
        }
        None
    }
}
