//! What a call has come to, as Claude's tool results.
//!
//! Owns the finding of the output, which every agent puts somewhere else (acp-agents.md, section 6, rows 20 to 22 and 29), and
//! the shape of `tool_use_result`. Keeps: one result for each `tool_use`, with text that is always there and fits a line.

use serde_json::{Map, Value, json};

use super::super::calls::{Call, Content, Status, value};
use super::{ToolUse, bounds, structured_patch};

/// One `tool_result` block and what goes beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// Its text; may be empty, is never left out.
    pub content: String,
    /// Whether the call failed.
    pub is_error: bool,
    /// `tool_use_result`: an object in the shape of Claude's own tools, a text for a failure (as Claude has it), `None` for
    /// tools that it does not have.
    pub structured: Option<Value>,
}

/// The result of the first of `uses`; that of the call, for all but changes of several places.
#[must_use]
pub fn result(call: &Call, uses: &[ToolUse]) -> ToolResult {
    let first = results(call, uses).into_iter().next();
    // Only an empty `uses` has no result.
    first.unwrap_or(ToolResult { content: String::new(), is_error: call.status != Status::Completed, structured: None })
}

/// The results, one for each of `uses` and in their order. A call that has not ended counts as failed.
#[must_use]
pub fn results(call: &Call, uses: &[ToolUse]) -> Vec<ToolResult> {
    uses.iter().enumerate().map(|(at, tool_use)| one(call, tool_use, at == 0)).collect()
}

fn one(call: &Call, tool_use: &ToolUse, first: bool) -> ToolResult {
    let is_shell = tool_use.name == "Bash";
    let is_change = matches!(tool_use.name.as_str(), "Edit" | "Write");
    let mut text = shown(call);
    if text.is_empty() && !(is_change && call.status == Status::Completed) {
        text = call.raw_output.as_ref().map(output_text).unwrap_or_default();
    }
    let mut code = exit_code(call);
    if is_shell && let Some((said, rest)) = exited_with(&text) {
        code = code.or(Some(said));
        text = rest.to_owned();
    }
    let failed = code.filter(|code| *code != 0 && (is_shell || call.status == Status::Failed));
    let is_error = call.status != Status::Completed || is_shell && failed.is_some();
    if is_error {
        if let (true, Some(code)) = (is_shell, failed) {
            let line = format!("Exit code {code}");
            if !text.starts_with(&line) {
                text = if text.is_empty() { line } else { format!("{line}\n{text}") };
            }
        } else if text.is_empty() {
            text = if call.status.is_final() { "The tool failed." } else { "The tool did not finish." }.to_owned();
        }
    } else if is_change && (text.is_empty() || !first) {
        let path = tool_use.input.get("file_path").and_then(Value::as_str).unwrap_or_default();
        text = if tool_use.name == "Write" && !writes_over(call, path) {
            format!("File created successfully at: {path}")
        } else {
            format!("The file {path} has been updated successfully.")
        };
    }
    bounds::cut(&mut text, bounds::CONTENT);
    let structured = if is_error {
        let mut text = format!("Error: {text}");
        bounds::cut(&mut text, 4_000);
        Some(Value::from(text))
    } else {
        structured(call, tool_use, &text)
    };
    ToolResult { content: text, is_error, structured }
}

/// Texts of a call's output, or what its display terminal showed.
fn shown(call: &Call) -> String {
    let mut parts: Vec<String> = Vec::new();
    for content in call.output.iter().flatten() {
        match content {
            Content::Text(text) => parts.push(unfenced(text).to_owned()),
            Content::Image { mime, .. } => parts.push(format!("[image: {mime}]")),
            Content::Link { uri, name } if name.is_empty() => parts.push(uri.clone()),
            Content::Link { uri, name } => parts.push(format!("[{name}]({uri})")),
            Content::Diff { .. } | Content::Terminal { .. } => {}
        }
    }
    if !call.terminal.is_empty() {
        parts.push(call.terminal.text());
    }
    parts.join("\n")
}

/// The output inside of the fence that the adapters of Claude put around a command's output.
fn unfenced(text: &str) -> &str {
    let inside = || {
        let fence = text.len() - text.trim_start_matches('`').len();
        let (marks, rest) = text.split_at(fence);
        let body = rest.strip_prefix("console\n")?.trim_end().strip_suffix(marks)?;
        (fence >= 3 && !body.contains(marks)).then_some(body.strip_suffix('\n').unwrap_or(body))
    };
    inside().unwrap_or(text)
}

/// Whether the file that is written was there before, as far as anything says so.
fn writes_over(call: &Call, path: &str) -> bool {
    let said = call.raw_output.as_ref().and_then(|output| {
        let exists = |value: &Value| ["fileExisted", "exists"].iter().find_map(|key| value.get(key)?.as_bool());
        exists(output).or_else(|| output.get("metadata").and_then(exists))
    });
    said.unwrap_or_else(|| old_of(call, path).is_some())
}

/// What a file held before, as far as a diff says so.
fn old_of<'a>(call: &'a Call, path: &str) -> Option<&'a str> {
    let same = |other: &str| other == path || path.ends_with(&format!("/{other}"));
    call.diffs().find(|(other, ..)| same(other)).and_then(|(_, old, _)| old).filter(|old| !old.is_empty())
}

/// The exit code, wherever the agent says it.
fn exit_code(call: &Call) -> Option<i64> {
    let of = |value: &Value| ["exit_code", "exitCode", "exit"].iter().find_map(|key| value.get(key)?.as_i64());
    let output = call.raw_output.as_ref();
    call.exit
        .and_then(|exit| exit.code)
        .or_else(|| output.and_then(of))
        .or_else(|| output?.get("metadata").and_then(of))
        // Copilot.
        .or_else(|| output?.get("contents")?.as_array()?.iter().find_map(of))
        .or_else(|| call.raw_response.as_ref().and_then(of))
}

/// CodeBuddy's and fast-agent's way to say the exit code in the text; the text without it.
fn exited_with(text: &str) -> Option<(i64, &str)> {
    if let Some(rest) = text.strip_prefix("Exited with code ") {
        let (code, rest) = rest.split_once('.')?;
        let rest = rest.trim_start_matches(" Final output:").trim_start_matches('\n');
        return Some((code.parse().ok()?, rest));
    }
    let (before, code) = text.trim_end().strip_suffix(']')?.rsplit_once("[Exit code: ")?;
    Some((code.parse().ok()?, before.trim_end_matches('\n')))
}

/// The text in an agent's own shape of output (row 21 of the quirks).
pub(crate) fn output_text(output: &Value) -> String {
    readable(output).unwrap_or_else(|| match output {
        // Nothing but an exit code or the like.
        Value::Object(map)
            if map.values().all(|value| !value.is_string() && !value.is_object() && !value.is_array()) =>
        {
            String::new()
        }
        Value::Array(list) if list.is_empty() => String::new(),
        Value::String(_) | Value::Null => String::new(),
        other => other.to_string(),
    })
}

/// Members that hold text for a reader, the best first.
const READABLE: [&str; 15] = [
    "text",
    "output",
    "content",
    "stdout",
    "formatted_output",
    "output_for_prompt",
    "tool_output_for_prompt",
    "result",
    "OkayOutput",
    "raw_output",
    "message",
    "error",
    "reason",
    "contents",
    "detailedContent",
];

fn readable(output: &Value) -> Option<String> {
    match output {
        Value::String(text) => {
            // Cline: {"error": "…"} as a string.
            let inner = text.starts_with('{').then(|| value(text));
            let inner = inner.as_ref().and_then(|inner| inner.get("error")).and_then(readable);
            Some(inner.unwrap_or_else(|| text.clone())).filter(|text| !text.is_empty())
        }
        Value::Array(list) => {
            if !list.is_empty() && list.iter().all(|item| item.as_u64().is_some_and(|byte| byte < 256)) {
                // Grok: bytes. Each is below 256.
                let bytes: Vec<u8> = list.iter().filter_map(|item| u8::try_from(item.as_u64()?).ok()).collect();
                return Some(String::from_utf8_lossy(&bytes).into_owned());
            }
            let parts: Vec<String> = list.iter().filter_map(readable).collect();
            (!parts.is_empty()).then(|| parts.join("\n"))
        }
        Value::Object(map) => {
            let text = |key: &str| map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            if let (Some(out), Some(err)) = (text("stdout"), text("stderr")) {
                let gap = if out.ends_with('\n') { "" } else { "\n" };
                return Some(format!("{out}{gap}{err}"));
            }
            let known = READABLE.iter().find_map(|key| map.get(*key).and_then(readable));
            known.or_else(|| text("stderr").map(str::to_owned)).or_else(|| {
                // {"type": "ReadFile", "FileContent": {"content": "…"}}
                map.values().filter(|value| value.is_object()).find_map(readable)
            })
        }
        _ => None,
    }
}

/// `tool_use_result` of a call that went well, in the shapes of 2.1.332.
fn structured(call: &Call, tool_use: &ToolUse, text: &str) -> Option<Value> {
    let member = |key: &str| tool_use.input.get(key).and_then(Value::as_str);
    let (mut shape, large): (Map<String, Value>, &[&str]) = match tool_use.name.as_str() {
        "Bash" => {
            let own = |key: &str| call.raw_output.as_ref().and_then(|output| output.get(key)?.as_str());
            let (stdout, stderr) = match (own("stdout"), own("stderr")) {
                (Some(stdout), stderr) => (stdout, stderr.unwrap_or_default()),
                _ => (text, ""),
            };
            let shape = json!({
                "stdout": stdout.trim_end_matches('\n'), "stderr": stderr.trim_end_matches('\n'),
                "interrupted": false, "isImage": false, "noOutputExpected": false,
            });
            (object(shape), &["stdout", "stderr"])
        }
        "Read" => {
            let lines = text.lines().count();
            let start = tool_use.input.get("offset").and_then(Value::as_u64).unwrap_or(1).max(1);
            let shape = json!({"type": "text", "file": {
                "filePath": member("file_path"), "content": text, "numLines": lines, "startLine": start, "totalLines": lines,
            }});
            // A text that does not fit beside itself is in the result already.
            return (crate::wire::text::length(text) <= bounds::STRUCTURED).then_some(shape);
        }
        "Edit" => {
            let (path, old, new) = (member("file_path")?, member("old_string")?, member("new_string")?);
            let replace_all = tool_use.input.get("replace_all") == Some(&Value::Bool(true));
            // A diff that holds more than the place has the file, or at least more of it.
            let file = call
                .diffs()
                .find(|(_, before, _)| before.is_some_and(|before| before.len() > old.len() && before.contains(old)))
                .and_then(|(_, before, after)| Some((before?, after)));
            let patch =
                file.map_or_else(|| structured_patch(old, new), |(before, after)| structured_patch(before, after));
            let shape = json!({
                "filePath": path, "oldString": old, "newString": new, "originalFile": file.map(|(before, _)| before),
                "structuredPatch": patch, "userModified": false, "replaceAll": replace_all,
            });
            (object(shape), &["originalFile", "structuredPatch"])
        }
        "Write" => {
            let (path, content) = (member("file_path")?, member("content")?);
            let old = old_of(call, path);
            let shape = json!({
                "type": if writes_over(call, path) { "update" } else { "create" }, "filePath": path, "content": content,
                "structuredPatch": old.map(|old| structured_patch(old, content)).unwrap_or_default(),
                "originalFile": old, "userModified": false,
            });
            (object(shape), &["originalFile", "structuredPatch"])
        }
        _ => return None,
    };
    let fits =
        |shape: &Map<String, Value>| serde_json::to_vec(shape).is_ok_and(|json| json.len() <= bounds::STRUCTURED);
    for key in large {
        if fits(&shape) {
            break;
        }
        match shape.get_mut(*key) {
            Some(Value::Array(list)) => list.clear(),
            Some(Value::String(text)) if *key != "originalFile" => {
                bounds::cut(text, bounds::STRUCTURED / 2 - 500);
            }
            Some(member) => *member = Value::Null,
            None => {}
        }
    }
    fits(&shape).then_some(Value::Object(shape))
}

fn object(shape: Value) -> Map<String, Value> {
    match shape {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
