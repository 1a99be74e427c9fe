//! Both wires beside each other: one line a message, the near wire on the left, the far wire on the right.
//!
//! Owns the short forms of messages. Invariant: every line of a trace is shown, also the unknown and the broken, with two
//! exceptions that are counted: the pieces of a stream that follow each other on one wire, and claude's running count of
//! thinking tokens.

use serde_json::Value;

use super::super::style::{Style, one_line};
use crate::trace::read::{Entry, entry};
use crate::trace::{Dir, Wire};

/// Renders the lines of a trace as rows.
#[derive(Debug)]
pub(super) struct Rows {
    style: Style,
    /// The width of one column.
    column: usize,
    /// The row before: where it stands and what kind of piece it is.
    run: Option<(Place, String)>,
    /// How many rows like it followed and were not shown.
    hidden: usize,
    /// How many counts of thinking tokens were not shown.
    counts: usize,
}

/// Where a row stands.
type Place = Option<(Wire, Dir)>;

impl Rows {
    /// Rows for a terminal that is `width` characters wide.
    pub(super) fn new(style: Style, width: usize) -> Self {
        Self { style, column: (width.max(40) - TIME - 3) / 2, run: None, hidden: 0, counts: 0 }
    }

    /// The head of the table.
    pub(super) fn head(&self) -> String {
        let left = format!("{:TIME$}{:<width$}", "ms", "editor -> diglot", width = self.column);
        format!("{}\n", self.style.bold(&format!("{left} | diglot -> agent")))
    }

    /// What one line of a trace file looks like; nothing, when it only continues what is shown.
    pub(super) fn row(&mut self, line: &str) -> String {
        let (t_ms, place, short, stream) = match entry(line) {
            Ok(Entry::Line { t_ms, wire, dir, line, .. }) => {
                let message = serde_json::from_str(line.get()).unwrap_or_default();
                let (short, stream) = short(wire, &message);
                (t_ms, Some((wire, dir)), short, stream)
            }
            Ok(Entry::Noise { t_ms, wire, dir, text, why }) => {
                (t_ms, Some((wire, dir)), format!("noise ({why}) {text}"), false)
            }
            Ok(Entry::Note { t_ms, note, .. }) => (t_ms, None, note, true),
            Ok(Entry::Event { t_ms, name }) => (t_ms, None, format!("{name} {}", facts(line)), false),
            Ok(Entry::Header { agent, .. }) => {
                let agent = agent.map_or_else(String::new, |agent| format!(", agent {agent}"));
                (0.0, None, format!("trace begins{agent}"), false)
            }
            Ok(Entry::Other) => (0.0, None, line.to_owned(), false),
            Err(error) => (0.0, None, format!("not a line of a trace: {error}"), false),
        };
        if short.contains("thinking_tokens") {
            self.counts += 1;
            return String::new();
        }
        // A note repeats itself word by word, a piece of a stream only in its first words.
        let kind = match place {
            Some(_) => short.split('"').next().unwrap_or_default().to_owned(),
            None => short.clone(),
        };
        if stream && self.run.as_ref() == Some(&(place, kind.clone())) {
            self.hidden += 1;
            return String::new();
        }
        let mut out = self.end_run();
        self.run = stream.then_some((place, kind));
        out.push_str(&self.place(t_ms, place, &short, stream));
        out
    }

    /// What is left to say at the end.
    pub(super) fn finish(&mut self) -> String {
        let mut out = self.end_run();
        if self.counts > 0 {
            out.push_str(&self.style.dim(&format!("({} lines about thinking tokens are not shown)", self.counts)));
            out.push('\n');
        }
        out
    }

    fn end_run(&mut self) -> String {
        let hidden = std::mem::take(&mut self.hidden);
        match self.run.take() {
            Some((place, _)) if hidden > 0 => self.place(f64::NAN, place, &format!("... and {hidden} more"), true),
            _ => String::new(),
        }
    }

    fn place(&self, t_ms: f64, place: Place, short: &str, stream: bool) -> String {
        let time = if t_ms.is_nan() { String::new() } else { format!("{t_ms:.1}") };
        match place {
            Some((wire, dir)) => self.cells(&time, wire, dir, short, stream),
            None => {
                let line = format!("{time:TIME$}-- {}", one_line(short, self.column * 2));
                format!("{}\n", self.style.dim(line.trim_end()))
            }
        }
    }

    fn cells(&self, time: &str, wire: Wire, dir: Dir, short: &str, stream: bool) -> String {
        // Toward the agent is to the right, toward the editor to the left.
        let right = matches!((wire, dir), (Wire::Near, Dir::In) | (Wire::Far, Dir::Out));
        let arrow = if right { "->" } else { "<-" };
        let cell = one_line(&format!("{arrow} {short}"), self.column);
        let paint = |text: &str| -> String {
            match (stream, right) {
                (true, _) => self.style.dim(text).into_owned(),
                (false, true) => self.style.cyan(text).into_owned(),
                (false, false) => text.to_owned(),
            }
        };
        let time = self.style.dim(&format!("{time:TIME$}")).into_owned();
        match wire {
            Wire::Near => {
                let gap = " ".repeat(self.column.saturating_sub(cell.chars().count()));
                format!("{time}{}{gap} |\n", paint(&cell))
            }
            Wire::Far => format!("{time}{:width$} | {}\n", "", paint(&cell), width = self.column),
        }
    }
}

/// The width of the time's column.
const TIME: usize = 9;

/// The id of a permission question that diglot asks the editor in this line of a trace, as JSON text.
pub(super) fn question(line: &str) -> Option<String> {
    let Ok(Entry::Line { wire: Wire::Near, dir: Dir::Out, line, .. }) = entry(line) else {
        return None;
    };
    let message: Value = serde_json::from_str(line.get()).ok()?;
    (message["method"] == "session/request_permission").then(|| message["id"].to_string())
}

/// A message in a few words, and whether it is one of many pieces of a stream.
fn short(wire: Wire, message: &Value) -> (String, bool) {
    if message.get("jsonrpc").is_some() {
        return rpc(message);
    }
    match wire {
        Wire::Near => (message.to_string(), false),
        Wire::Far => stream_json(message),
    }
}

/// The facts of an event, as JSON.
fn facts(line: &str) -> String {
    let Ok(Value::Object(mut members)) = serde_json::from_str(line) else {
        return String::new();
    };
    members.remove("t_ms");
    members.remove("event");
    if members.is_empty() { String::new() } else { Value::Object(members).to_string() }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn quoted(value: &Value) -> String {
    format!("{:?}", text(value))
}

fn rpc(message: &Value) -> (String, bool) {
    let id = message.get("id").map(|id| format!("#{id} ")).unwrap_or_default();
    if let Some(method) = message["method"].as_str() {
        let params = &message["params"];
        let (detail, stream) = match method {
            "session/update" => update(&params["update"]),
            "session/prompt" => {
                let blocks = params["prompt"].as_array().into_iter().flatten();
                let parts: Vec<String> = blocks
                    .map(|block| match block["type"].as_str() {
                        Some("text") => quoted(&block["text"]),
                        other => format!("[{}]", other.unwrap_or("?")),
                    })
                    .collect();
                (parts.join(" "), false)
            }
            "session/request_permission" => (quoted(&params["toolCall"]["title"]), false),
            "session/new" | "session/load" => (text(&params["cwd"]).to_owned(), false),
            _ => (String::new(), false),
        };
        let name = method.strip_prefix("session/update").map_or(method, |_| "update");
        return (format!("{id}{name} {detail}"), stream);
    }
    if let Some(error) = message.get("error") {
        return (format!("{id}error {} {}", error["code"], text(&error["message"])), false);
    }
    let result = &message["result"];
    let detail = [
        result["stopReason"].as_str(),
        result["outcome"]["optionId"].as_str().or(result["outcome"]["outcome"].as_str()),
        result["sessionId"].as_str(),
        result["agentInfo"]["name"].as_str(),
    ];
    (format!("{id}ok {}", detail.into_iter().flatten().collect::<Vec<_>>().join(" ")), false)
}

fn update(update: &Value) -> (String, bool) {
    let kind = text(&update["sessionUpdate"]);
    match kind {
        "agent_message_chunk" | "agent_thought_chunk" | "user_message_chunk" => {
            (format!("{} {}", kind.trim_end_matches("_chunk"), quoted(&update["content"]["text"])), true)
        }
        "tool_call" | "tool_call_update" => {
            let parts = [update["status"].as_str(), update["title"].as_str()];
            let content = update["content"].as_array().into_iter().flatten();
            let content: Vec<&str> = content.filter_map(|item| item["type"].as_str()).collect();
            let parts = parts.into_iter().flatten().chain(content).collect::<Vec<_>>().join(" ");
            (format!("{kind} {} {parts}", text(&update["toolCallId"])), false)
        }
        "plan" => (format!("plan, {} entries", update["entries"].as_array().map_or(0, Vec::len)), false),
        "current_mode_update" => (format!("{kind} {}", text(&update["currentModeId"])), false),
        "usage_update" => (format!("usage {} of {}", update["used"], update["size"]), true),
        _ => (kind.to_owned(), false),
    }
}

fn stream_json(message: &Value) -> (String, bool) {
    let kind = text(&message["type"]);
    match kind {
        "user" | "assistant" => {
            let content = &message["message"]["content"];
            let parts = match content.as_array() {
                Some(blocks) => blocks.iter().map(block).collect::<Vec<_>>().join(" "),
                None => quoted(content),
            };
            (format!("{kind} {parts}"), false)
        }
        "stream_event" => {
            let event = &message["event"];
            let delta = &event["delta"];
            let piece = ["text", "thinking", "partial_json"].iter().find_map(|name| delta[*name].as_str());
            let name = delta["type"].as_str().or(event["type"].as_str()).unwrap_or_default();
            let start = event["content_block"]["type"].as_str().unwrap_or_default();
            (format!("{name} {start}{}", piece.map(|piece| format!("{piece:?}")).unwrap_or_default()), true)
        }
        "system" => {
            let subtype = text(&message["subtype"]);
            let detail = ["permissionMode", "status", "state", "model", "content"].iter();
            let detail: Vec<&str> = detail.filter_map(|name| message[*name].as_str()).collect();
            (format!("system/{subtype} {}", detail.join(" ")), subtype == "thinking_tokens")
        }
        "control_request" => {
            let request = &message["request"];
            let detail = ["tool_name", "mode", "model"].iter().find_map(|name| request[*name].as_str());
            (format!("control_request {} {}", text(&request["subtype"]), detail.unwrap_or_default()), false)
        }
        "control_response" => {
            let response = &message["response"];
            let detail = response["response"]["behavior"].as_str().or(response["error"].as_str()).unwrap_or_default();
            (format!("control_response {} {detail}", text(&response["subtype"])), false)
        }
        "result" => {
            let words = ["subtype", "stop_reason", "terminal_reason"].iter();
            let words: Vec<&str> = words.filter_map(|name| message[*name].as_str()).collect();
            (format!("result {}", words.join(" ")), false)
        }
        "command_lifecycle" => (format!("{kind} {}", text(&message["state"])), true),
        "tool_result" => (format!("{kind} {}", quoted(&message["content"])), false),
        "session_state_changed" => (format!("{kind} {}", text(&message["state"])), false),
        _ => (message.to_string(), false),
    }
}

fn block(block: &Value) -> String {
    match text(&block["type"]) {
        "text" => quoted(&block["text"]),
        "thinking" => format!("thinking {}", quoted(&block["thinking"])),
        "tool_use" => format!("tool_use {} {}", text(&block["name"]), block["input"]),
        "tool_result" => {
            let failed = if block["is_error"] == true { "failed " } else { "" };
            format!("tool_result {failed}{}", quoted(&block["content"]))
        }
        other => format!("[{other}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_trace_is_shown_within_the_terminals_width() {
        let trace = r#"{"trace":1,"diglot":"0.1.0","agent":"demo"}
{"t_ms":0.1,"event":"started","cwd":"/w"}
{"t_ms":1.0,"wire":"near","dir":"in","line":{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"hello"},{"type":"image"}]}}}
{"t_ms":1.2,"wire":"far","dir":"out","line":{"type":"user","message":{"role":"user","content":[{"type":"text","text":"hello"}]}}}
{"t_ms":2.0,"wire":"far","dir":"in","line":{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi "}}}}
{"t_ms":2.0,"wire":"far","dir":"in","line":{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"there "}}}}
{"t_ms":2.0,"wire":"far","dir":"in","line":{"type":"system","subtype":"thinking_tokens","estimated_tokens":1}}
{"t_ms":2.0,"wire":"far","dir":"in","line":{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"you"}}}}
{"t_ms":2.1,"wire":"near","dir":"out","line":{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hi "}}}}}
{"t_ms":3.0,"wire":"far","dir":"in","line":{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"Bash"}}}
{"t_ms":3.1,"wire":"near","dir":"out","line":{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"toolCall":{"title":"ls -l"}}}}
{"t_ms":4.0,"wire":"near","dir":"in","line":{"jsonrpc":"2.0","id":0,"result":{"outcome":{"outcome":"selected","optionId":"allow"}}}}
{"t_ms":4.1,"wire":"far","dir":"out","line":{"type":"control_response","response":{"subtype":"success","response":{"behavior":"allow"}}}}
{"t_ms":4.5,"wire":"far","dir":"in","noise":"warning: x","why":"not_json"}
{"t_ms":5.0,"note":"dropped a late answer"}
{"t_ms":6.0,"wire":"far","dir":"in","line":{"type":"result","subtype":"success","stop_reason":"end_turn"}}
{"t_ms":6.1,"wire":"near","dir":"out","line":{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}}
{"t_ms":6.2,"wire":"near","dir":"out","line":{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"the agent died, and this message is much too long for a column of this width"}}}
{"t_ms":7.0,"wire":"far","dir":"in","line":{"type":"brand_new","x":1}}
nonsense"#;
        let mut rows = Rows::new(Style::new(false), 90);
        let mut rendered = rows.head();
        rendered.extend(trace.lines().map(|line| rows.row(line)));
        rendered.push_str(&rows.finish());
        let rendered: String = rendered.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        let expected = r#"ms       editor -> diglot                        | diglot -> agent
0.0      -- trace begins, agent demo
0.1      -- started {"cwd":"/w"}
1.0      -> #2 session/prompt "hello" [image]    |
1.2                                              | -> user "hello"
2.0                                              | <- text_delta "Hi "
                                                 | <- ... and 2 more
2.1      <- update agent_message "Hi "           |
3.0                                              | <- control_request can_use_tool Bash
3.1      <- #0 session/request_permission "ls -… |
4.0      -> #0 ok allow                          |
4.1                                              | -> control_response success allow
4.5                                              | <- noise (not_json) warning: x
5.0      -- dropped a late answer
6.0                                              | <- result success end_turn
6.1      <- #2 ok end_turn                       |
6.2      <- #3 error -32603 the agent died, and… |
7.0                                              | <- {"type":"brand_new","x":1}
0.0      -- not a line of a trace: expected ident at line 1 column 2
(1 lines about thinking tokens are not shown)
"#;
        assert!(rendered == expected, "{rendered}");
    }

    #[test]
    fn a_question_is_recognised_by_its_id() {
        let line = r#"{"t_ms":1,"wire":"near","dir":"out","line":{"jsonrpc":"2.0","id":"x","method":"session/request_permission"}}"#;
        assert_eq!(question(line).as_deref(), Some("\"x\""));
        assert_eq!(question(&line.replace("out", "in")), None);
    }
}
