//! CodeBuddy Code 2.163.0, `codebuddy --acp --acp-transport stdio`.
//!
//! Its oddities: an update for a session whose id is still to come; two `tool_call`s for one call, the second one back at
//! `pending`; arguments as content text, piece by piece; a refusal sends no update and ends the turn with `cancelled`, and
//! the next turn says so again; a prompt within 500 ms after a cancel is not run; a prompt during a prompt is acknowledged
//! and its answer lost; one live session per process; a failure of the model's is a `refusal`; an unknown session loads; the
//! session's directory is ignored; it does not end with stdin, and `authenticate` never answers.
//!
//! Steps of its own: `unknown` (a tool that there is none of).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::acp::{self, Incoming, Wire};

/// A prompt so soon after a cancel is answered `cancelled`.
const BARRIER: Duration = Duration::from_millis(500);

struct CodeBuddy {
    wire: Wire,
    sessions: usize,
    /// The one session that answers.
    live: Option<String>,
    /// A prompt to another one came: nothing is answered any more.
    wedged: Vec<Value>,
    stale: bool,
    cancelled: Option<Instant>,
    running: Option<String>,
    calls: u64,
    messages: u64,
}

enum Waited {
    Answer(Result<Value, Value>),
    Cancelled,
}

enum End {
    Done,
    Cancelled,
    Denied,
    Refusal(&'static str),
}

pub(crate) fn serve() {
    let mut agent = CodeBuddy {
        wire: Wire::open(),
        sessions: 0,
        live: None,
        wedged: Vec::new(),
        stale: false,
        cancelled: None,
        running: None,
        calls: 0,
        messages: 0,
    };
    loop {
        let incoming = agent.wire.next();
        agent.take(incoming);
    }
}

impl CodeBuddy {
    fn take(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Eof => {
                for id in std::mem::take(&mut self.wedged) {
                    let meta = json!({
                        "codebuddy.ai/errorMessage": "ACP render loop closed before the queued prompt could run",
                        "codebuddy.ai/outcome": "REFUSED_OR_BLOCKED",
                    });
                    self.wire.result(&id, json!({"stopReason": "refusal", "_meta": meta}));
                }
                // It lives on.
                loop {
                    std::thread::park();
                }
            }
            Incoming::Request { id, method, params } => self.request(id, &method, &params),
            Incoming::Notification { method, .. } if method == "session/cancel" => {
                self.cancelled = Some(Instant::now())
            }
            Incoming::Notification { .. } | Incoming::Answer { .. } => {}
        }
    }

    fn request(&mut self, id: Value, method: &str, params: &Value) {
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        match method {
            "initialize" => {
                self.wire.client = params["clientCapabilities"].clone();
                self.wire.result(&id, initialized());
            }
            // It opens a browser and waits.
            "authenticate" => {}
            "session/new" => {
                self.sessions += 1;
                let session = acp::new_session(self.sessions);
                acp::keep(&session, "user (begin)");
                let options = json!({"sessionUpdate": "config_option_update", "configOptions": config_options()});
                self.wire.update(&session, options);
                let mut opened = opened();
                opened["sessionId"] = session.as_str().into();
                self.wire.result(&id, opened);
                self.live = Some(session.clone());
                self.commands(&session);
            }
            // A session that was never there is an empty one.
            "session/load" | "session/resume" => {
                for line in acp::recall(&session).unwrap_or_default().iter().filter(|_| method == "session/load") {
                    let (kind, text) = line.split_once(' ').unwrap_or(("agent", line));
                    let update = json!({
                        "sessionUpdate": format!("{kind}_message_chunk"), "content": {"type": "text", "text": text},
                        "messageId": "m-old",
                    });
                    self.wire.update(&session, update);
                }
                acp::keep(&session, "user (begin)");
                self.wire.result(&id, opened());
                self.live = Some(session);
            }
            "session/set_mode" => {
                let mode = params["modeId"].clone();
                self.wire.update(&session, json!({"sessionUpdate": "current_mode_update", "currentModeId": mode}));
                self.wire.result(&id, json!({}));
            }
            "session/set_model" => self.wire.result(&id, json!({"modelId": params["modelId"]})),
            "session/set_config_option" => self.wire.result(&id, json!({"configOptions": config_options()})),
            "session/prompt" => self.prompted(id, &session, params),
            other => self.wire.unknown(&id, other),
        }
    }

    fn commands(&mut self, session: &str) {
        let commands = json!([
            {"name": "background", "description": "…", "input": {"hint": "[prompt]"}},
            {"name": "context", "description": "Calculate context token distribution", "input": {"hint": "[all]"}},
        ]);
        let update = json!({"sessionUpdate": "available_commands_update", "availableCommands": commands});
        self.wire.update(session, update);
        let info = json!({"sessionId": session, "action": "workspace_info", "params": {"isGitWorkspace": false}});
        self.wire.note("_codebuddy.ai/command", info);
    }

    fn prompted(&mut self, id: Value, session: &str, params: &Value) {
        if !params["prompt"].is_array() {
            let data = json!({"prompt": {"_errors": ["Invalid input: expected array, received string"]}});
            return self.wire.error(&id, -32602, "Invalid params", data);
        }
        if self.running.is_some() {
            // The text goes to the model behind the running turn, and what it answers is never sent.
            let meta = json!({"codebuddy.ai/outcome": "SUCCESS"});
            return self.wire.result(&id, json!({"stopReason": "end_turn", "_meta": meta}));
        }
        if acp::recall(session).is_none() {
            let data = json!({"details": format!("Session not found: {session}")});
            return self.wire.error(&id, -32603, "Internal error", data);
        }
        if !self.wedged.is_empty() || self.live.as_deref() != Some(session) {
            self.phase(session, "preparing");
            self.phase(session, "model_requesting");
            self.phase(session, "idle");
            self.wedged.push(id);
            return;
        }
        if self.cancelled.is_some_and(|at| at.elapsed() < BARRIER) {
            return self.wire.result(&id, json!({"stopReason": "cancelled"}));
        }
        self.running = Some(session.to_owned());
        self.turn(&id, session, params);
        self.running = None;
    }

    fn phase(&mut self, session: &str, phase: &str) {
        let meta = json!({"codebuddy.ai/agentPhase": {"phase": phase, "startedAt": 1}, "codebuddy.ai/requestId": "r"});
        self.wire.update(session, json!({"sessionUpdate": "session_info_update", "_meta": meta}));
    }

    fn say(&mut self, session: &str, kind: &str, text: &str) {
        self.messages += 1;
        for word in text.split_inclusive(' ') {
            let update = json!({
                "sessionUpdate": kind, "content": {"type": "text", "text": word},
                "messageId": format!("m-{}", self.messages), "_meta": {"codebuddy.ai/requestId": "r"},
            });
            self.wire.update(session, update);
        }
        acp::keep(session, &format!("agent {text}"));
    }

    fn turn(&mut self, id: &Value, session: &str, params: &Value) {
        self.phase(session, "idle");
        let progress = json!({"sessionUpdate": "session_info_update", "_meta": {"codebuddy.ai/progress": null}});
        self.wire.update(session, progress);
        self.phase(session, "preparing");
        self.phase(session, "preparing");
        let used = json!({"sessionUpdate": "usage_update", "used": 43621, "size": 176_000, "_meta": {}});
        self.wire.update(session, used);
        let mut end = End::Done;
        for (word, rest) in acp::steps(params) {
            self.phase(session, "model_requesting");
            self.phase(session, "model_streaming");
            match self.step(session, &word, &rest) {
                End::Done => self.phase(session, "model_done"),
                other => {
                    end = other;
                    break;
                }
            }
        }
        self.phase(session, "idle");
        self.phase(session, "idle");
        self.wire.update(session, json!({"sessionUpdate": "session_info_update", "title": "a title"}));
        let mut meta = json!({"codebuddy.ai/requestId": "r", "codebuddy.ai/finishReason": "stop"});
        let stale = std::mem::take(&mut self.stale);
        let reason = match end {
            End::Done => {
                meta["codebuddy.ai/outcome"] = "SUCCESS".into();
                // The echo of the turn before.
                if stale { "cancelled" } else { "end_turn" }
            }
            End::Cancelled => {
                meta["codebuddy.ai/outcome"] = "CANCELLED".into();
                "cancelled"
            }
            End::Denied => {
                self.stale = true;
                meta["codebuddy.ai/finishReason"] = "tool_calls".into();
                meta["codebuddy.ai/errorMessage"] = "Permission denied for tool(s): unknown".into();
                "cancelled"
            }
            End::Refusal(why) => {
                meta["codebuddy.ai/errorMessage"] = why.into();
                meta["codebuddy.ai/outcome"] = "REFUSED_OR_BLOCKED".into();
                "refusal"
            }
        };
        self.wire.result(id, json!({"stopReason": reason, "userMessageId": "u", "_meta": meta}));
    }

    fn step(&mut self, session: &str, word: &str, rest: &str) -> End {
        match word {
            "say" => self.say(session, "agent_message_chunk", rest),
            "think" => self.say(session, "agent_thought_chunk", rest),
            "run" => return self.run(session, rest),
            "write" => return self.write(session, rest),
            "question" => return self.question(session),
            "hang" => {
                return match self.wait(None) {
                    Waited::Cancelled | Waited::Answer(_) => End::Cancelled,
                };
            }
            "child" => acp::child(),
            "fail" => return End::Refusal("{\"code\":-32603,\"message\":\"mock error 401\"}"),
            "unknown" => {
                let call = self.announced(session, "Nothing", &json!({}));
                self.phase(session, "model_done");
                drop(call);
                return End::Refusal("the tool Nothing does not exist");
            }
            "die" => std::process::exit(3),
            other => self.say(session, "agent_message_chunk", &format!("what is {other}?")),
        }
        End::Done
    }

    fn wait(&mut self, id: Option<&Value>) -> Waited {
        loop {
            match self.wire.next() {
                Incoming::Answer { id: own, outcome } if Some(&own) == id => return Waited::Answer(outcome),
                Incoming::Notification { method, .. } if method == "session/cancel" => {
                    self.cancelled = Some(Instant::now());
                    return Waited::Cancelled;
                }
                other => self.take(other),
            }
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Waited {
        let id = self.wire.ask(method, params);
        self.wait(Some(&id))
    }

    /// The first `tool_call`, at the first byte of its arguments, and the arguments as they come.
    fn announced(&mut self, session: &str, tool: &str, input: &Value) -> String {
        self.calls += 1;
        let id = format!("call_{:05}_0", self.calls);
        let meta = json!({"codebuddy.ai/toolName": tool});
        let first = json!({
            "sessionUpdate": "tool_call", "toolCallId": id, "title": tool, "kind": "other", "status": "in_progress",
            "input": {}, "rawInput": {}, "_meta": meta,
        });
        self.wire.update(session, first);
        let text = input.to_string();
        let mut half = text.len() / 2;
        while !text.is_char_boundary(half) {
            half += 1;
        }
        for (piece, raw) in [(&text[..half], json!({})), (&text[half..], input.clone())] {
            let content = json!([{"type": "content", "content": {"type": "text", "text": piece}}]);
            let update = json!({
                "sessionUpdate": "tool_call_update", "toolCallId": id, "rawInput": raw, "content": content, "_meta": meta,
            });
            self.wire.update(session, update);
        }
        id
    }

    /// The second `tool_call`, and the question.
    fn permitted(&mut self, session: &str, tool: &str, second: Value) -> Result<(), End> {
        let (id, input) = (second["toolCallId"].clone(), second["rawInput"].clone());
        self.phase(session, "model_done");
        let request = json!({
            "interruptionId": format!("ir-{}", id.as_str().unwrap_or_default()), "toolCallId": id, "toolName": tool,
            "toolInput": input, "options": ["allow", "allowAll", "deny"], "queuePosition": 1, "queueTotal": 1,
        });
        let meta = json!({"codebuddy.ai/interruptionRequest": request});
        self.wire.update(session, json!({"sessionUpdate": "session_info_update", "_meta": meta}));
        self.phase(session, "waiting_for_permission");
        self.wire.update(session, second);
        let options = json!([
            {"optionId": "allow_always", "name": "Always Allow", "kind": "allow_always"},
            {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
            {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
        ]);
        // No title and no kind: they stand in the call.
        let call = json!({"toolCallId": id, "rawInput": input, "_meta": {"codebuddy.ai/toolName": tool}});
        let meta = json!({"codebuddy.ai/requestId": "r"});
        let params = json!({"sessionId": session, "toolCall": call, "options": options, "_meta": meta});
        match self.ask("session/request_permission", params) {
            Waited::Cancelled => {
                let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "failed"});
                self.wire.update(session, update);
                Err(End::Cancelled)
            }
            Waited::Answer(outcome) => match acp::chosen(&outcome).as_deref() {
                Some("allow" | "allow_always") => {
                    let meta = json!({"codebuddy.ai/permissionResolved": true, "codebuddy.ai/decision": "allow"});
                    self.wire.update(session, json!({"sessionUpdate": "session_info_update", "_meta": meta}));
                    self.phase(session, "tool_executing");
                    Ok(())
                }
                // Nothing is said of the call any more.
                _ => Err(End::Denied),
            },
        }
    }

    fn completed(&mut self, session: &str, call: &str, tool: &str, text: &str) {
        let update = json!({
            "sessionUpdate": "tool_call_update", "toolCallId": call, "status": "completed",
            "rawOutput": {"type": "text", "text": text}, "_meta": {"codebuddy.ai/toolName": tool},
        });
        self.wire.update(session, update);
    }

    fn run(&mut self, session: &str, command: &str) -> End {
        let input = json!({"command": command, "description": "run it"});
        let call = self.announced(session, "Bash", &input);
        let second = json!({
            "sessionUpdate": "tool_call", "toolCallId": call, "title": format!("`{command}`"), "kind": "execute",
            "status": "pending", "rawInput": input,
            "content": [{"type": "content", "content": {"type": "text", "text": "run it"}}],
            "_meta": {"codebuddy.ai/toolName": "Bash", "codebuddy.ai/toolArgumentsComplete": true},
        });
        if let Err(ended) = self.permitted(session, "Bash", second) {
            return ended;
        }
        let (output, code) = if self.wire.serves("/terminal") {
            let params = json!({"sessionId": session, "command": command, "outputByteLimit": 32000, "_meta": {}});
            let terminal = match self.ask("terminal/create", params) {
                Waited::Answer(Ok(made)) => made["terminalId"].clone(),
                Waited::Answer(Err(_)) => return End::Denied,
                Waited::Cancelled => return End::Cancelled,
            };
            let shown = json!({
                "sessionUpdate": "tool_call_update", "toolCallId": call, "status": "in_progress", "title": "run it",
                "content": [{"type": "terminal", "terminalId": terminal}],
            });
            self.wire.update(session, shown);
            let of = json!({"sessionId": session, "terminalId": terminal});
            let Waited::Answer(Ok(exit)) = self.ask("terminal/wait_for_exit", of.clone()) else {
                return End::Cancelled;
            };
            let Waited::Answer(Ok(output)) = self.ask("terminal/output", of.clone()) else { return End::Cancelled };
            let Waited::Answer(_) = self.ask("terminal/release", of) else { return End::Cancelled };
            (output["output"].as_str().unwrap_or_default().to_owned(), exit["exitCode"].to_string())
        } else {
            let (output, code) = acp::shell(command);
            (output, code.to_string())
        };
        self.completed(session, &call, "Bash", &format!("Exited with code {code}. Final output:\n\n{output}"));
        End::Done
    }

    fn write(&mut self, session: &str, rest: &str) -> End {
        let (path, text) = rest.split_once(' ').unwrap_or((rest, ""));
        // The process's directory, whatever the session's is.
        let path = std::env::current_dir().unwrap().join(path);
        let input = json!({"file_path": path, "content": text});
        let call = self.announced(session, "Write", &input);
        let second = json!({
            "sessionUpdate": "tool_call", "toolCallId": call, "title": "Write", "kind": "edit", "status": "pending",
            "rawInput": input, "content": [{"type": "diff", "path": path, "oldText": null, "newText": text}],
            "_meta": {"codebuddy.ai/toolName": "Write", "codebuddy.ai/toolArgumentsComplete": true},
        });
        if let Err(ended) = self.permitted(session, "Write", second) {
            return ended;
        }
        if self.wire.serves("/fs/writeTextFile") {
            let params = json!({"sessionId": session, "path": path, "content": text});
            match self.ask("fs/write_text_file", params) {
                Waited::Answer(Ok(_)) => {}
                Waited::Answer(Err(error)) => {
                    let said = format!("{}", error["message"]);
                    self.completed(session, &call, "Write", &said);
                    return End::Done;
                }
                Waited::Cancelled => return End::Cancelled,
            }
        } else {
            std::fs::write(&path, text).unwrap();
        }
        self.completed(session, &call, "Write", "written");
        End::Done
    }

    fn question(&mut self, session: &str) -> End {
        let options = json!([{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]);
        let questions =
            json!([{"id": "q_0", "question": "Pick one?", "header": "Pick", "options": options, "multiSelect": false}]);
        let call = self.announced(session, "AskUserQuestion", &json!({"questions": questions}));
        let params = json!({
            "sessionId": session, "toolCallId": call, "inputType": "question", "schema": {"questions": questions},
        });
        let answer = match self.ask("_codebuddy.ai/question", params) {
            Waited::Cancelled => return End::Cancelled,
            Waited::Answer(Ok(answer)) if answer["outcome"] == "submitted" => answer["answers"]["q_0"].to_string(),
            Waited::Answer(_) => "declined".to_owned(),
        };
        self.completed(session, &call, "AskUserQuestion", &answer);
        self.say(session, "agent_message_chunk", &format!("you said {answer}"));
        End::Done
    }
}

fn initialized() -> Value {
    json!({
        "protocolVersion": 1,
        "agentCapabilities": {
            "promptCapabilities": {"image": true, "embeddedContext": true},
            "mcpCapabilities": {"http": true, "sse": true},
            "loadSession": true, "delegateToolsSupport": true, "mainAgentSupport": false, "multitaskSupport": true,
            "metaPromptSupport": true,
        },
        "authMethods": [
            {"id": "iOA", "name": "Login with iOA", "description": null},
            {"id": "external", "name": "Login with Google/Github", "description": null},
        ],
    })
}

fn modes() -> Value {
    json!([
        {"id": "default", "name": "Always Ask"}, {"id": "acceptEdits", "name": "Accept Edits"},
        {"id": "plan", "name": "Plan"}, {"id": "bypassPermissions", "name": "Bypass Permissions"},
    ])
}

fn config_options() -> Value {
    let modes = modes();
    let modes: Vec<Value> = modes
        .as_array()
        .into_iter()
        .flatten()
        .map(|mode| json!({"value": mode["id"], "name": mode["name"], "description": "…"}))
        .collect();
    json!([
        {"type": "select", "id": "mode", "name": "Permission Mode", "category": "mode", "currentValue": "default", "options": modes},
        {"type": "select", "id": "model", "name": "Model", "category": "model", "currentValue": "default-model",
         "options": [{"value": "default-model", "name": "Auto", "description": null}]},
    ])
}

fn opened() -> Value {
    json!({
        "models": {
            "availableModels": [{"modelId": "default-model", "name": "Auto", "description": null, "_meta": {"credits": ""}}],
            "currentModelId": "default-model",
        },
        "modes": {"availableModes": modes(), "currentModeId": "default"},
        "configOptions": config_options(),
        "multitaskOn": false,
    })
}
