//! What a call has put out, where an editor looks for it.
//!
//! Owns quirks 21 (Copilot 1.0, Cline 3.0, Grok 1.0, CodeBuddy 2.163: only in `rawOutput`), 29 (Gemini, Grok, OpenCode, Copilot,
//! CodeBuddy: a command that failed is `completed`) and 68 (Grok, Cline: bytes as numbers, JSON in a string). Keeps: content that
//! was shown is not replaced by less.

use serde_json::{Map, Value, json};

use super::calls::Call;
use crate::translate::claude_over_acp::render::output_text;

/// How much of an output becomes content; all of it stays in `rawOutput`.
const LIMIT: usize = 256 * 1024;

/// Completes the last update of a call.
pub(super) fn complete(call: &Call, said: &mut Map<String, Value>) -> bool {
    let mut changed = false;
    let shows = said.get("content").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if !shows
        && !call.shows_for_good
        && let Some(output) = said.get("rawOutput")
    {
        let mut text = output_text(output);
        if text.len() > LIMIT {
            let mut at = LIMIT;
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            text.truncate(at);
            text.push_str("\n[cut; the whole is in rawOutput]");
        }
        if !text.is_empty() {
            said.insert("content".into(), json!([{ "type": "content", "content": { "type": "text", "text": text } }]));
            changed = true;
        }
    }
    let is_command = call.kind.as_deref() == Some("execute");
    if is_command
        && said.get("status").is_some_and(|status| status == "completed")
        && exit_code(said).is_some_and(|c| c != 0)
    {
        said.insert("status".into(), "failed".into());
        changed = true;
    }
    changed
}

/// A command's exit code, wherever the agent says it.
fn exit_code(said: &Map<String, Value>) -> Option<i64> {
    let of = |value: &Value| ["exit_code", "exitCode", "exit"].iter().find_map(|key| value.get(key)?.as_i64());
    let output = said.get("rawOutput");
    let in_text = || {
        let text = output?.get("text")?.as_str()?.strip_prefix("Exited with code ")?;
        text.split_once('.')?.0.parse().ok()
    };
    said.get("_meta")
        .and_then(|meta| meta.get("terminal_exit"))
        .and_then(of)
        .or_else(|| output.and_then(of))
        .or_else(|| output?.get("metadata").and_then(of))
        .or_else(|| output?.get("contents")?.as_array()?.iter().find_map(of))
        .or_else(in_text)
}
