//! Golden files out of what really happened: a trace of diglot, or a recording of a real claude with another host.
//!
//! Owns the renaming. Keeps: claude's lines stay as they are but for ids that diglot would have chosen, paths of the
//! machine, and members that only make them long.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

/// The uuid that the driver gives out as its `n`th.
fn uuid(n: usize) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path).and_then(Value::as_str)
}

/// The lines of a file that are JSON objects.
fn lines(file: &str) -> Vec<Value> {
    file.lines().filter_map(|l| serde_json::from_str(l).ok()).filter(Value::is_object).collect()
}

/// What the recordings' model server was told to do stands as ` D:BASE64;` in a prompt, and where a prompt is quoted.
fn without_directive(s: &str) -> String {
    let Some(at) = s.find(" D:") else { return s.to_owned() };
    let rest = &s[at + 3..];
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+/=;".contains(c)).unwrap_or(rest.len());
    if end < 20 { s.to_owned() } else { format!("{}{}", &s[..at], without_directive(&rest[end..])) }
}

/// Replaces whole words everywhere in a line.
fn rename(value: &Value, names: &[(String, String)]) -> Value {
    match value {
        Value::String(s) => {
            let mut s = without_directive(s);
            for (from, to) in names {
                s = s.replace(from, to);
            }
            Value::String(s)
        }
        Value::Array(list) => list.iter().map(|v| rename(v, names)).collect(),
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), rename(v, names))).collect::<Map<_, _>>().into(),
        other => other.clone(),
    }
}

/// A trace of diglot (`--trace FILE`) as a golden file without its expected lines.
pub(crate) fn trace(file: &str, about: &str, source: &str) -> String {
    let all = lines(file);
    let is = |line: &Value, wire: &str, dir: &str| line["wire"] == wire && line["dir"] == dir;
    // Ids in the order in which they were given out: a session's when it is made, a prompt's when it is sent.
    let mut names = Vec::new();
    let mut sessions: Vec<String> = Vec::new();
    for line in &all {
        let session = text(line, "/session");
        let made = is(line, "far", "out") && text(line, "/line/request/subtype") == Some("initialize");
        if let (true, Some(id)) = (made, session)
            && !sessions.iter().any(|s| s == id)
        {
            sessions.push(id.to_owned());
            names.push((id.to_owned(), uuid(names.len() + 1)));
        }
        if is(line, "far", "out")
            && let (Some("user"), Some(id)) = (text(line, "/line/type"), text(line, "/line/uuid"))
            && !names.iter().any(|(from, _)| from == id)
        {
            names.push((id.to_owned(), uuid(names.len() + 1)));
        }
    }
    let mut out = vec![json!({ "about": about, "source": source })];
    for line in &all {
        let mut body = rename(&line["line"], &names);
        // The sessions of a real connection are numbered from 1, the driver's from 0.
        if let (Some(id), None) = (body["id"].as_u64().filter(|id| *id >= 1 << 24), body.get("method")) {
            body["id"] = json!(id - (1 << 24));
        }
        if is(line, "near", "in") && body.is_object() {
            out.push(json!({ "in": "near", "line": body }));
        } else if is(line, "far", "in") && body.is_object() {
            let number = text(line, "/session").and_then(|id| sessions.iter().position(|s| s == id)).unwrap_or(0);
            let mut step = json!({ "in": "far", "line": shorter(&body) });
            if number > 0 {
                step["session"] = json!(number);
            }
            out.push(step);
        }
    }
    write(&out)
}

/// A recording of claude with another host as a golden file without its expected lines: what the host said becomes what
/// an editor would have said for it.
pub(crate) fn recording(file: &str, about: &str, source: &str) -> String {
    let all = lines(file);
    let mut names: Vec<(String, String)> = Vec::new();
    let meta = all.iter().find(|l| l["dir"] == "meta" && l.get("cwd").is_some());
    let cwd = meta.and_then(|m| text(m, "/cwd")).unwrap_or("/w").to_owned();
    // The conversation's own id, which diglot would have given.
    let own = all.iter().filter(|l| l["dir"] == "out").find_map(|l| text(l, "/line/session_id"));
    if let Some(id) = own {
        names.push((id.to_owned(), uuid(1)));
    }
    names.push((format!("/tmp{}", cwd.trim_start_matches("/w")), "/w".to_owned()));
    names.push((cwd.clone(), "/w".to_owned()));
    names.push(("/w/claude/home".to_owned(), "/home/u".to_owned()));
    names.push(("/w/claude".to_owned(), "/elsewhere".to_owned()));
    names.push((format!("-tmp{}", cwd.trim_start_matches("/w").replace(['/', '_'], "-")), "-w".to_owned()));
    names.push(("/tmp/claude-0".to_owned(), "/tmp/agent".to_owned()));
    let mut converter = Recording { names, ..Recording::default() };
    converter.out.push(json!({ "about": about, "source": source }));
    for line in &all {
        if line.get("stdin_closed").is_some() {
            break;
        }
        match line["dir"].as_str() {
            Some("in") => converter.host(&line["line"]),
            Some("out") => converter.claude(&line["line"]),
            _ => {}
        }
    }
    write(&converter.out)
}

#[derive(Default)]
struct Recording {
    names: Vec<(String, String)>,
    out: Vec<Value>,
    /// The host's request ids → ours; `None` for what an editor cannot ask.
    asked: HashMap<String, Option<String>>,
    asks: usize,
    uuids: usize,
    ids: usize,
    /// Claude's questions in order.
    questions: Vec<String>,
    sent: Vec<String>,
}

impl Recording {
    fn near(&mut self, value: Value) {
        self.out.push(json!({ "in": "near", "line": value }));
    }

    fn request(&mut self, method: &str, params: Value) {
        self.ids += 1;
        let id = self.ids;
        self.near(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    fn ours(&mut self, theirs: &str) {
        self.asks += 1;
        self.asked.insert(theirs.to_owned(), Some(format!("diglot-{}", self.asks)));
    }

    fn host(&mut self, line: &Value) {
        let request = text(line, "/request_id").unwrap_or_default().to_owned();
        match (text(line, "/type"), text(line, "/request/subtype")) {
            (Some("control_request"), Some("initialize")) if self.asks == 0 => {
                self.uuids = 1;
                self.request("session/new", json!({ "cwd": "/w", "mcpServers": [] }));
                self.ours(&request);
            }
            (Some("control_request"), Some("interrupt")) => {
                self.near(json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": uuid(1) } }));
                self.ours(&request);
            }
            (Some("control_request"), Some("set_permission_mode")) => {
                let mode = line["request"]["mode"].clone();
                self.request("session/set_mode", json!({ "sessionId": uuid(1), "modeId": mode }));
                self.ours(&request);
            }
            (Some("control_request"), _) => {
                self.asked.insert(request, None);
            }
            (Some("control_response"), _) => self.host_answers(&line["response"]),
            (Some("user"), _) => {
                self.uuids += 1;
                if let Some(id) = text(line, "/uuid") {
                    self.names.push((id.to_owned(), uuid(self.uuids)));
                }
                let prompt = match &line["message"]["content"] {
                    // What the recording's model server was told to do.
                    Value::String(s) if s.contains(" D:") => json!([{ "type": "text", "text": "go" }]),
                    Value::String(s) => json!([{ "type": "text", "text": s }]),
                    other => blocks(other),
                };
                self.request("session/prompt", json!({ "sessionId": uuid(1), "prompt": prompt }));
            }
            _ => {}
        }
    }

    fn host_answers(&mut self, response: &Value) {
        let theirs = text(response, "/request_id").unwrap_or_default();
        let Some(at) = self.questions.iter().position(|q| q == theirs) else { return };
        let id = at + 1;
        let decision = &response["response"];
        let result = match (text(decision, "/behavior"), decision.get("updatedPermissions")) {
            (Some("allow"), None) => json!({ "outcome": { "outcome": "selected", "optionId": "allow_once" } }),
            (Some("allow"), Some(_)) => json!({ "outcome": { "outcome": "selected", "optionId": "allow_always" } }),
            (Some("deny"), _) => {
                let reason = decision["message"].clone();
                json!({ "outcome": { "outcome": "selected", "optionId": "reject_once", "_meta": { "reason": reason } } })
            }
            _ => {
                self.near(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32603, "message": "no" } }));
                return;
            }
        };
        self.near(json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }

    fn claude(&mut self, line: &Value) {
        if let Some(theirs) = text(line, "/response/request_id") {
            match self.asked.get(theirs) {
                Some(Some(ours)) => {
                    let mut line = shorter(&rename(line, &self.names));
                    line["response"]["request_id"] = json!(ours);
                    self.out.push(json!({ "in": "far", "line": line }));
                }
                Some(None) => {}
                // An echo of the host's own answer.
                None => self.out.push(json!({ "in": "far", "line": shorter(&rename(line, &self.names)) })),
            }
            return;
        }
        if text(line, "/request/subtype") == Some("can_use_tool") {
            self.questions.push(text(line, "/request_id").unwrap_or_default().to_owned());
        }
        self.out.push(json!({ "in": "far", "line": shorter(&rename(line, &self.names)) }));
    }
}

/// Content that a host sent, as an editor's.
fn blocks(content: &Value) -> Value {
    content
        .as_array()
        .into_iter()
        .flatten()
        .map(|b| match text(b, "/type") {
            Some("image") => {
                json!({ "type": "image", "mimeType": b["source"]["media_type"], "data": b["source"]["data"] })
            }
            _ => json!({ "type": "text", "text": b.get("text").and_then(Value::as_str).unwrap_or("go") }),
        })
        .collect()
}

/// Without the members that only make a line long, and without what the recording has cut (`…`).
fn shorter(value: &Value) -> Value {
    const LONG: &[&str] = &[
        "account",
        "agents",
        "available_output_styles",
        "capabilities",
        "fast_mode_disabled_reason",
        "hooks",
        "mcp_servers",
        "memory_paths",
        "messaging_socket_path",
        "models",
        "pid",
        "plugins",
        "skills",
        "slash_commands",
        "terminal_slash_commands",
        "timestamp",
        "tools",
        "user_output_styles_dir",
        "iterations",
        "cache_creation",
        "server_tool_use",
        "model_usage_since_last_result",
        "subagent_stats",
        "output_file",
        "transcript_path",
    ];
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(k, v)| !LONG.contains(&k.as_str()) || (*k == "mcp_servers" && v.is_null()))
            .map(|(k, v)| (k.clone(), shorter(v)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(list) => {
            let kept = list.iter().filter(|v| !v.as_str().is_some_and(|s| s.starts_with('…') && s.ends_with("more")));
            // A few commands show what all of them show.
            let most = if list.iter().any(|v| v.get("argumentHint").is_some()) { 3 } else { usize::MAX };
            kept.take(most).map(shorter).collect()
        }
        Value::String(s) if s == "…" => json!("(cut)"),
        other => other.clone(),
    }
}

fn write(steps: &[Value]) -> String {
    steps.iter().map(|s| format!("{s}\n")).collect()
}
