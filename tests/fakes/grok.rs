//! Grok Build 1.0.41, `grok agent --no-leader stdio`.
//!
//! Its oddities: setup notifications on both sides of the answer to `session/new`; a call without kind and status first;
//! a refusal ends the turn with `cancelled`; the plan and the questions are requests of its own; commands run in the
//! client's terminal as a shell line in `command`; prompts during a prompt are queued; late updates after the answer;
//! 2 s from the end of stdin to its own.
//!
//! Steps of its own: `resend` (a cut stream, retried from the beginning), `foreign` (text of another session). With
//! `FAKE_LOGIN` set a session needs `authenticate` first, as in version 0.2.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use super::acp::{self, Incoming, Wire};

/// From the end of stdin to its own end.
const EOF_DELAY: Duration = Duration::from_millis(2150);

struct Grok {
    wire: Wire,
    initialized: bool,
    logged_in: bool,
    sessions: usize,
    queue: VecDeque<(Value, Value)>,
    /// Texts to be said at the next step of the turn that runs.
    interjected: Vec<String>,
    calls: u64,
}

/// How a wait ended.
enum Waited {
    Answer(Result<Value, Value>),
    Cancelled,
}

/// How a turn ends.
enum End {
    Done,
    Aborted,
    /// A refusal.
    Rejected(&'static str),
    Failed,
}

pub(crate) fn serve() {
    let mut grok = Grok {
        wire: Wire::open(),
        initialized: false,
        logged_in: std::env::var_os("FAKE_LOGIN").is_none(),
        sessions: 0,
        queue: VecDeque::new(),
        interjected: Vec::new(),
        calls: 0,
    };
    loop {
        if let Some((id, params)) = grok.queue.pop_front() {
            grok.turn(&id, &params);
            continue;
        }
        let incoming = grok.wire.next();
        grok.take(incoming);
    }
}

impl Grok {
    /// Everything but what a turn waits for.
    fn take(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Eof => {
                std::thread::sleep(EOF_DELAY);
                std::process::exit(0);
            }
            Incoming::Request { id, method, params } => self.request(id, &method, params),
            Incoming::Notification { .. } | Incoming::Answer { .. } => {}
        }
    }

    fn request(&mut self, id: Value, method: &str, params: Value) {
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        if !self.initialized && method != "initialize" {
            return self.wire.error(&id, -32602, "initialize must be called before new_session", Value::Null);
        }
        match method {
            "initialize" => {
                self.initialized = true;
                self.wire.client = params["clientCapabilities"].clone();
                self.wire.result(&id, initialized());
                self.wire.note("_x.ai/models/update", json!({"models": []}));
                self.wire.note("_x.ai/mcp/servers_updated", json!({"mcpServers": []}));
            }
            "authenticate" => {
                self.logged_in = params["methodId"] == "xai.api_key";
                self.wire.result(&id, json!({}));
            }
            "session/new" if !self.logged_in => {
                self.wire.error(&id, -32000, "Authentication required", Value::Null);
            }
            "session/new" => self.open(&id),
            "session/load" | "session/resume" => match acp::recall(&session) {
                Some(said) => {
                    for line in said.iter().filter(|_| method == "session/load") {
                        let (kind, text) = line.split_once(' ').unwrap_or(("agent", line));
                        let block = json!({"type": "text", "text": text});
                        let update = json!({"sessionUpdate": format!("{kind}_message_chunk"), "content": block});
                        self.wire.update(&session, update);
                    }
                    self.wire.result(&id, opened(None));
                }
                None => {
                    let data = json!({"code": "FS_NOT_FOUND"});
                    self.wire.error(&id, -32603, "Path not found.", data);
                }
            },
            // Any word is a mode; for a session that is not there no answer ever comes.
            "session/set_mode" if acp::recall(&session).is_some() => self.wire.result(&id, json!({})),
            "session/set_mode" => {}
            "session/set_model" | "session/set_config_option" => {
                let model = params.get("modelId").or_else(|| params.get("value")).cloned().unwrap_or_default();
                if !matches!(model.as_str(), Some("mock-model" | "mock-model-2")) {
                    return self.wire.error(&id, -32602, "unknown model id", Value::Null);
                }
                self.wire.result(&id, json!({"_meta": {"model": {"Ok": model}}}));
                let options = json!([config_option(model.as_str().unwrap_or_default())]);
                let update = json!({"sessionUpdate": "config_option_update", "configOptions": options});
                self.wire.update(&session, update);
            }
            "session/prompt" if acp::recall(&session).is_none() => {
                self.wire.error(&id, -32602, "unknown session id", Value::Null);
            }
            "session/prompt" => {
                let blocks = params["prompt"].as_array().cloned().unwrap_or_default();
                if blocks.iter().any(|block| block["type"] == "audio") {
                    return self.wire.error(&id, -32602, "unsupported content block", Value::Null);
                }
                self.queue.push_back((id, params));
            }
            "session/close" => self.wire.result(&id, json!({"_meta": {"x.ai/closeOutcome": "closed"}})),
            "_x.ai/interject" => {
                self.interjected.push(params["text"].as_str().unwrap_or_default().to_owned());
                self.wire.result(&id, json!({"result": {"status": "queued"}}));
            }
            // `session/cancel` too: it is a notification and nothing else.
            other => self.wire.unknown(&id, other),
        }
    }

    fn open(&mut self, id: &Value) {
        self.sessions += 1;
        let session = acp::new_session(self.sessions);
        acp::keep(&session, "user (begin)");
        let setup = |phase: &str, id: Value| json!({"method": "session/new", "phase": phase, "sessionId": id});
        for phase in ["auth", "resolve_workspace", "folder_trust", "mcp_merge"] {
            self.wire.note("_x.ai/session/setup", setup(phase, Value::Null));
        }
        for phase in ["persistence_init", "spawn_session_actor"] {
            self.wire.note("_x.ai/session/setup", setup(phase, json!(session)));
        }
        self.wire.result(id, opened(Some(&session)));
        for phase in ["git_discovery", "finalize_response", "tool_overrides", "response_ready"] {
            self.wire.note("_x.ai/session/setup", setup(phase, json!(session)));
        }
        let ready = json!({"sessionId": session, "mcpToolCount": 0, "elapsedMs": 0});
        self.wire.note("_x.ai/mcp_initialized", ready);
        self.commands(&session);
        self.commands(&session);
    }

    fn commands(&mut self, session: &str) {
        let commands = json!([
            {"name": "compact", "description": "Compress conversation history", "input": {"hint": "what to preserve"}},
            {"name": "context", "description": "Show context window usage", "input": null},
        ]);
        let update = json!({"sessionUpdate": "available_commands_update", "availableCommands": commands});
        self.wire.update(session, update);
    }

    fn own(&mut self, session: &str, update: Value) {
        self.wire.note("_x.ai/session_notification", json!({"sessionId": session, "update": update}));
    }

    fn say(&mut self, session: &str, kind: &str, text: &str) {
        for word in text.split_inclusive(' ') {
            let update = json!({"sessionUpdate": kind, "content": {"type": "text", "text": word}});
            let meta = json!({"totalTokens": 19, "updateType": "AgentMessageChunk", "chunkId": 1});
            self.wire.note("session/update", json!({"sessionId": session, "update": update, "_meta": meta}));
        }
        acp::keep(session, &format!("agent {text}"));
    }

    fn turn(&mut self, id: &Value, params: &Value) {
        let session = params["sessionId"].as_str().unwrap_or_default().to_owned();
        let prompt = format!("prompt-{id}");
        let working = json!({"upserted": [{"sessionId": session, "activity": "working"}], "removed": []});
        self.wire.note("_x.ai/sessions/changed", working);
        let entry = json!({"id": prompt, "version": 0, "kind": "prompt", "text": "…", "position": 0});
        self.wire.note("_x.ai/queue/changed", json!({"sessionId": session, "entries": [entry]}));
        let running = json!({"sessionId": session, "entries": [], "runningPromptId": prompt});
        self.wire.note("_x.ai/queue/changed", running);
        self.wire.update(&session, json!({"sessionUpdate": "session_info_update", "title": "a title"}));
        let mut end = End::Done;
        for (word, rest) in acp::steps(params) {
            for text in std::mem::take(&mut self.interjected) {
                self.say(&session, "agent_message_chunk", &format!("[heard: {text}]"));
            }
            match self.step(&session, &word, &rest) {
                End::Done => {}
                other => {
                    end = other;
                    break;
                }
            }
            self.own(&session, json!({"sessionUpdate": "response_completed", "usage": {"input_tokens": 10}}));
        }
        self.commands(&session);
        let (reason, category) = match &end {
            End::Done => ("end_turn", None),
            End::Aborted => ("cancelled", Some("MidTurnAbort")),
            End::Rejected(_) => ("cancelled", Some("PermissionRejected")),
            End::Failed => {
                let data = json!({"message": "mock error 401", "http_status": 401});
                return self.wire.error(id, -32603, "Internal error", data);
            }
        };
        let usage = json!({
            "inputTokens": 24, "outputTokens": 14, "totalTokens": 38, "cachedReadTokens": 4, "modelCalls": 2, "numTurns": 2,
        });
        let mut done = json!({"promptId": prompt, "sessionId": session, "stopReason": reason, "agentResult": null});
        let mut meta = json!({"sessionId": session, "promptId": prompt, "totalTokens": 19, "modelId": "mock-model"});
        match category {
            Some(category) => {
                done["cancellationCategory"] = category.into();
                meta["cancellationCategory"] = category.into();
                if let End::Rejected(tool) = end {
                    meta["cancellationContext"] = json!({"tool_name": tool, "reason": "rejected"});
                }
            }
            None => {
                meta["inputTokens"] = 12.into();
                meta["outputTokens"] = 7.into();
                meta["usage"] = usage;
            }
        }
        let completed = json!({"sessionUpdate": "turn_completed", "prompt_id": prompt, "stop_reason": reason});
        self.own(&session, completed);
        self.wire.note("_x.ai/session/prompt_complete", done);
        self.wire.result(id, json!({"stopReason": reason, "_meta": meta}));
        self.own(&session, json!({"sessionUpdate": "last_turn_summary", "summary": "…", "prompt_id": prompt}));
        // After the answer, as a rule.
        self.wire.update(&session, json!({"sessionUpdate": "session_info_update", "title": "a late title"}));
    }

    fn step(&mut self, session: &str, word: &str, rest: &str) -> End {
        match word {
            "say" => self.say(session, "agent_message_chunk", rest),
            "think" => self.say(session, "agent_thought_chunk", rest),
            "run" => return self.run(session, rest),
            "write" => return self.write(session, rest),
            "question" => return self.question(session),
            "plan" => return self.plan(session, rest),
            "hang" => return self.hang(session),
            "resend" => {
                self.say(session, "agent_message_chunk", "tok0 tok1 ");
                let update =
                    json!({"sessionUpdate": "retry_state", "type": "retrying", "attempt": 1, "max_retries": 15});
                self.own(session, update);
                self.say(session, "agent_message_chunk", "tok0 tok1 tok2");
            }
            "foreign" => {
                let other = "01a22900-0000-7000-8000-ffffffffffff";
                let block = json!({"type": "text", "text": "of a subagent"});
                self.wire.update(other, json!({"sessionUpdate": "agent_message_chunk", "content": block}));
            }
            "child" => acp::child(),
            "fail" => return End::Failed,
            "die" => std::process::exit(3),
            other => self.say(session, "agent_message_chunk", &format!("what is {other}?")),
        }
        End::Done
    }

    /// Waits for an answer. A cancel is obeyed at once, in every state.
    fn wait(&mut self, id: Option<&Value>, session: &str) -> Waited {
        loop {
            match self.wire.next() {
                Incoming::Answer { id: own, outcome } if Some(&own) == id => return Waited::Answer(outcome),
                Incoming::Notification { method, params } if method == "session/cancel" => {
                    if params["sessionId"] == session {
                        return Waited::Cancelled;
                    }
                }
                other => self.take(other),
            }
        }
    }

    fn ask(&mut self, method: &str, params: Value, session: &str) -> Waited {
        let id = self.wire.ask(method, params);
        self.wait(Some(&id), session)
    }

    fn hang(&mut self, session: &str) -> End {
        match self.wait(None, session) {
            Waited::Cancelled | Waited::Answer(_) => End::Aborted,
        }
    }

    /// Announces a call: without kind and status first, with them next.
    fn call(&mut self, session: &str, tool: &str, kind: &str, title: &str, raw: &Value, variant: &str) -> Value {
        self.calls += 1;
        let id = format!("call_{:05}_0", self.calls);
        let meta = json!({"x.ai/tool": {"version": 1, "name": tool, "kind": kind, "namespace": "grok_build"}});
        self.own(session, json!({"sessionUpdate": "tool_call_delta_chunk", "tool_call_id": id, "name": tool}));
        self.wire.update(
            session,
            json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": tool, "rawInput": raw, "_meta": meta}),
        );
        let mut full = raw.clone();
        full["variant"] = variant.into();
        json!({"toolCallId": id, "kind": kind, "title": title, "locations": [], "rawInput": full, "_meta": meta})
    }

    fn changed(&mut self, session: &str, call: &Value, more: Value) {
        let mut update = call.clone();
        update["sessionUpdate"] = "tool_call_update".into();
        if let (Some(update), Value::Object(more)) = (update.as_object_mut(), more) {
            update.extend(more);
        }
        self.wire.update(session, update);
    }

    /// Asks for a permission; false: refused, and the turn is over.
    fn permitted(&mut self, session: &str, call: &Value, options: Value) -> Result<(), End> {
        let id = call["toolCallId"].clone();
        let pending = json!({"sessionUpdate": "pending_interaction", "tool_call_id": id, "kind": "permission"});
        self.own(session, pending);
        let params = json!({"sessionId": session, "toolCall": call, "options": options});
        let waited = self.ask("session/request_permission", params, session);
        self.own(session, json!({"sessionUpdate": "interaction_resolved", "tool_call_id": id}));
        let ended = match waited {
            Waited::Cancelled => End::Aborted,
            Waited::Answer(outcome) => match acp::chosen(&outcome).as_deref() {
                Some("always-allow" | "allow-once" | "allow-edits-session") => return Ok(()),
                // Any refusal, a cancelled outcome, an unknown option, an error.
                _ => End::Rejected("tool"),
            },
        };
        let text = json!([{"type": "content", "content": {"type": "text", "text": "rejected"}}]);
        self.changed(session, &json!({"toolCallId": id}), json!({"status": "failed", "content": text}));
        Err(ended)
    }

    fn run(&mut self, session: &str, command: &str) -> End {
        let raw = json!({"command": command, "description": "run it"});
        let title = format!("Execute `{command}`");
        let call = self.call(session, "run_terminal_command", "execute", &title, &raw, "Bash");
        let text = json!([{"type": "content", "content": {"type": "text", "text": "run it"}}]);
        self.changed(session, &call, json!({"content": text}));
        // What only prints needs nobody's leave.
        let harmless = command.starts_with("echo ") && !command.contains(['>', ';', '&', '|']);
        if !harmless && let Err(ended) = self.permitted(session, &call, shell_options()) {
            return ended;
        }
        let ran =
            if self.wire.serves("/terminal") { self.in_terminal(session, command) } else { Ok(acp::shell(command)) };
        let (output, code) = match ran {
            Ok(ran) => ran,
            Err(ended) => return ended,
        };
        let bytes: Vec<u8> = output.bytes().collect();
        let raw = json!({
            "type": "Bash", "output": bytes, "output_for_prompt": format!("exit: {code}\n{output}"), "exit_code": code,
            "command": command, "truncated": false, "signal": null, "timed_out": false,
        });
        let text = json!([{"type": "content", "content": {"type": "text", "text": output}}]);
        let id = json!({"toolCallId": call["toolCallId"]});
        self.changed(session, &id, json!({"status": "completed", "content": text, "rawOutput": raw}));
        End::Done
    }

    /// In the client's terminal: a shell line, no arguments.
    fn in_terminal(&mut self, session: &str, command: &str) -> Result<(String, i32), End> {
        let line = format!("/bin/bash -lc '{}'", command.replace('\'', "'\\''"));
        let env = json!([{"name": "CI", "value": "true"}, {"name": "TERM", "value": "xterm-256color"}]);
        let params = json!({"sessionId": session, "command": line, "env": env, "outputByteLimit": 20000});
        let terminal = match self.ask("terminal/create", params, session) {
            Waited::Answer(Ok(made)) => made["terminalId"].clone(),
            Waited::Answer(Err(error)) => return Ok((format!("terminal: {}", error["message"]), -1)),
            Waited::Cancelled => return Err(End::Aborted),
        };
        let of = json!({"sessionId": session, "terminalId": terminal});
        // It is not killed on a cancel: that is the client's business.
        let Waited::Answer(Ok(exit)) = self.ask("terminal/wait_for_exit", of.clone(), session) else {
            return Err(End::Aborted);
        };
        let output = match self.ask("terminal/output", of.clone(), session) {
            Waited::Answer(Ok(output)) => output["output"].as_str().unwrap_or_default().to_owned(),
            _ => return Err(End::Aborted),
        };
        self.wire.ask("terminal/release", of);
        Ok((output, exit["exitCode"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(-1)))
    }

    fn write(&mut self, session: &str, rest: &str) -> End {
        let (path, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let path = std::env::current_dir().unwrap().join(path);
        let raw = json!({"file_path": path, "content": text});
        let title = format!("Write `{}`", path.display());
        let call = self.call(session, "write", "edit", &title, &raw, "Write");
        let diff = json!([{"type": "diff", "path": path, "oldText": null, "newText": text}]);
        self.changed(session, &call, json!({"content": diff}));
        let options = json!([
            {"optionId": "allow-edits-session", "name": "Yes, allow all edits during this session", "kind": "allow_always"},
            {"optionId": "allow-once", "name": "Yes, proceed", "kind": "allow_once"},
            {"optionId": "reject-once", "name": "No", "kind": "reject_once"},
        ]);
        if let Err(ended) = self.permitted(session, &call, options) {
            return ended;
        }
        let mut failed = None;
        if self.wire.serves("/fs/writeTextFile") {
            let params = json!({"sessionId": session, "path": path, "content": text});
            match self.ask("fs/write_text_file", params, session) {
                Waited::Answer(Ok(_)) => {}
                Waited::Answer(Err(error)) => failed = Some(error["message"].clone()),
                Waited::Cancelled => return End::Aborted,
            }
        } else {
            std::fs::write(&path, text).unwrap();
        }
        let id = json!({"toolCallId": call["toolCallId"]});
        let status = if failed.is_some() { "failed" } else { "completed" };
        self.changed(session, &id, json!({"status": status, "rawOutput": {"type": "Write", "error": failed}}));
        End::Done
    }

    fn question(&mut self, session: &str) -> End {
        let options = json!([{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]);
        let questions = json!([{"question": "Pick one?", "options": options, "multiSelect": false}]);
        let raw = json!({"questions": questions});
        let call = self.call(session, "ask_user_question", "other", "Ask: Pick one?", &raw, "AskUserQuestion");
        self.changed(session, &call, json!({}));
        let id = call["toolCallId"].clone();
        let params = json!({"sessionId": session, "toolCallId": id, "questions": questions, "mode": "default"});
        let answer = match self.ask("_x.ai/ask_user_question", params, session) {
            Waited::Cancelled => return End::Aborted,
            Waited::Answer(Ok(answer)) if answer["outcome"] == "accepted" => answer["answers"]["Pick one?"].to_string(),
            Waited::Answer(Ok(answer)) => answer["outcome"].to_string(),
            Waited::Answer(Err(_)) => "an error".to_owned(),
        };
        let text = json!([{"type": "content", "content": {"type": "text", "text": answer}}]);
        self.changed(session, &json!({"toolCallId": id}), json!({"status": "completed", "content": text}));
        self.say(session, "agent_message_chunk", &format!("you said {answer}"));
        End::Done
    }

    fn plan(&mut self, session: &str, plan: &str) -> End {
        let call = self.call(session, "exit_plan_mode", "other", "Exit plan mode", &json!({}), "ExitPlanMode");
        self.changed(session, &call, json!({}));
        let id = call["toolCallId"].clone();
        let params = json!({"sessionId": session, "toolCallId": id, "planContent": plan});
        let said = match self.ask("_x.ai/exit_plan_mode", params, session) {
            Waited::Cancelled => return End::Aborted,
            Waited::Answer(Ok(answer)) if answer["outcome"] == "approved" => "approved".to_owned(),
            Waited::Answer(Ok(answer)) => format!("rejected: {}", answer["feedback"].as_str().unwrap_or_default()),
            Waited::Answer(Err(_)) => "an error".to_owned(),
        };
        self.changed(session, &json!({"toolCallId": id}), json!({"status": "completed"}));
        self.say(session, "agent_message_chunk", &format!("the plan was {said}"));
        End::Done
    }
}

fn initialized() -> Value {
    json!({
        "protocolVersion": 1,
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": {"image": false, "audio": false, "embeddedContext": true},
            "mcpCapabilities": {"http": true, "sse": true},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
            "auth": {},
            "_meta": {"x.ai/fs_notify": true},
        },
        "authMethods": [
            {"id": "xai.api_key", "name": "xai.api_key", "description": "XAI_API_KEY"},
            {"id": "grok.com", "name": "Grok", "description": "Sign in with Grok"},
        ],
        "_meta": {"grokShell": true, "defaultAuthMethodId": "xai.api_key", "agentVersion": "1.0.41"},
    })
}

fn config_option(current: &str) -> Value {
    json!({
        "id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": current,
        "options": [{"value": "mock-model", "name": "mock-model"}, {"value": "mock-model-2", "name": "mock-model-2"}],
    })
}

fn opened(session: Option<&str>) -> Value {
    let models =
        json!([{"modelId": "mock-model", "name": "mock-model"}, {"modelId": "mock-model-2", "name": "mock-model-2"}]);
    let mut opened = json!({
        "models": {"currentModelId": "mock-model", "availableModels": models},
        "configOptions": [config_option("mock-model")],
        "_meta": {"isGitRepo": false, "feedbackEnabled": true},
    });
    if let Some(session) = session {
        opened["sessionId"] = session.into();
    }
    opened
}

fn shell_options() -> Value {
    json!([
        {"optionId": "always-allow", "name": "Yes, and don't ask again for bash commands", "kind": "allow_always"},
        {"optionId": "allow-once", "name": "Yes, proceed", "kind": "allow_once"},
        {"optionId": "reject-once", "name": "No, and tell Grok what to do differently", "kind": "reject_once"},
        {"optionId": "reject-always", "name": "No, and never ask again", "kind": "reject_always"},
    ])
}
