//! Both wires beside each other: one line a message, the near wire on the left, the far wire on the right.
//!
//! Owns the short forms of messages. Invariant: every line of a trace gives one row, also the unknown and the broken.

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
}

impl Rows {
    /// Rows for a terminal that is `width` characters wide.
    pub(super) fn new(style: Style, width: usize) -> Self {
        Self { style, column: (width.max(40) - TIME - 3) / 2 }
    }

    /// The head of the table.
    pub(super) fn head(&self) -> String {
        let left = format!("{:TIME$}{:<width$}", "ms", "editor -> diglot", width = self.column);
        format!("{}\n", self.style.bold(&format!("{left} | diglot -> agent")))
    }

    /// The row of one line of a trace file.
    pub(super) fn row(&self, line: &str) -> String {
        match entry(line) {
            Ok(Entry::Line { t_ms, wire, dir, line, .. }) => {
                let message = serde_json::from_str(line.get()).unwrap_or_default();
                let (short, stream) = short(wire, &message);
                self.cells(t_ms, wire, dir, &short, stream)
            }
            Ok(Entry::Noise { t_ms, wire, dir, text, why }) => {
                self.cells(t_ms, wire, dir, &format!("noise ({why}) {text}"), false)
            }
            Ok(Entry::Note { t_ms, note, .. }) => self.across(t_ms, &note),
            Ok(Entry::Event { t_ms, name }) => self.across(t_ms, &name),
            Ok(Entry::Header { agent, .. }) => {
                let agent = agent.map_or_else(String::new, |agent| format!(", agent {agent}"));
                self.across(0.0, &format!("trace begins{agent}"))
            }
            Ok(Entry::Other) => self.across(0.0, line),
            Err(error) => self.across(0.0, &format!("not a line of a trace: {error}")),
        }
    }

    fn cells(&self, t_ms: f64, wire: Wire, dir: Dir, short: &str, stream: bool) -> String {
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
        let time = self.style.dim(&format!("{t_ms:<TIME$.1}")).into_owned();
        match wire {
            Wire::Near => {
                let gap = " ".repeat(self.column.saturating_sub(cell.chars().count()));
                format!("{time}{}{gap} |\n", paint(&cell))
            }
            Wire::Far => format!("{time}{:width$} | {}\n", "", paint(&cell), width = self.column),
        }
    }

    fn across(&self, t_ms: f64, text: &str) -> String {
        let line = format!("{t_ms:<TIME$.1}-- {}", one_line(text, self.column * 2));
        format!("{}\n", self.style.dim(&line))
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
    fn every_line_of_a_trace_gives_one_row_of_the_terminals_width() {
        let trace = r#"{"trace":1,"diglot":"0.1.0","agent":"demo"}
{"t_ms":0.1,"event":"started","argv":[]}
{"t_ms":1.0,"wire":"near","dir":"in","line":{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"hello"},{"type":"image"}]}}}
{"t_ms":1.2,"wire":"far","dir":"out","line":{"type":"user","message":{"role":"user","content":[{"type":"text","text":"hello"}]}}}
{"t_ms":2.0,"wire":"far","dir":"in","line":{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi "}}}}
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
        let rows = Rows::new(Style::new(false), 90);
        let rendered: String = std::iter::once(rows.head()).chain(trace.lines().map(|line| rows.row(line))).collect();
        let rendered: String = rendered.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        let expected = r#"ms       editor -> diglot                        | diglot -> agent
0.0      -- trace begins, agent demo
0.1      -- started
1.0      -> #2 session/prompt "hello" [image]    |
1.2                                              | -> user "hello"
2.0                                              | <- text_delta "Hi "
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
