//! Only standard members toward the agent, and only words that the schema knows toward the editor.
//!
//! Owns quirks 51 (Gemini 0.61, Grok 1.0, CodeBuddy 2.163, Vibe 3.0: lists that the schema makes optional are required), 66
//! (agy-acp 0.2: an unknown member is refused) and 67 (CodeBuddy, codex-acp 2.6, Copilot 1.0, Vibe: nulls, words of their own in
//! the place of the schema's). Keeps: the value of a member that passes is the text it came as.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::wire::acp::methods;
use crate::wire::acp_client::methods as more;
use crate::wire::text::{Raw, items};

type Members<'a> = BTreeMap<String, &'a RawValue>;

/// The members of a JSON object, unread; nulls count as absent.
pub(super) fn members(raw: Raw<'_>) -> Members<'_> {
    let mut all: Members<'_> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    all.retain(|_, value| value.get() != "null");
    all
}

/// Writes an object of raw members.
pub(super) fn write<'a>(list: impl IntoIterator<Item = (&'a str, &'a str)>) -> Box<RawValue> {
    let mut text = String::from("{");
    for (name, value) in list {
        if text.len() > 1 {
            text.push(',');
        }
        // A name is a string, which always has a JSON form.
        text.push_str(&Value::from(name).to_string());
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    raw(text)
}

/// JSON text that was put together of JSON values.
pub(super) fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).unwrap_or_default()
}

/// The members of a method's parameters in the stable schema; `None` for other methods.
fn standard(method: &str) -> Option<&'static [&'static str]> {
    const OPENING: &[&str] = &["sessionId", "cwd", "additionalDirectories", "mcpServers", "_meta"];
    Some(match method {
        methods::AUTHENTICATE => &["methodId", "_meta"],
        methods::SESSION_NEW => &["cwd", "additionalDirectories", "mcpServers", "_meta"],
        more::SESSION_LOAD | more::SESSION_RESUME | more::SESSION_FORK => OPENING,
        methods::SESSION_PROMPT => &["sessionId", "messageId", "prompt", "_meta"],
        methods::SESSION_SET_MODE => &["sessionId", "modeId", "_meta"],
        more::SESSION_SET_MODEL => &["sessionId", "modelId", "_meta"],
        more::SESSION_SET_CONFIG_OPTION => &["sessionId", "configId", "type", "value", "_meta"],
        more::SESSION_CLOSE | "session/delete" => &["sessionId", "_meta"],
        "session/list" => &["cwd", "cursor", "additionalDirectories", "_meta"],
        "logout" => &["_meta"],
        _ => return None,
    })
}

/// The parameters as the agent gets them.
pub(super) fn params(method: &str, given: Raw<'_>) -> Box<RawValue> {
    let Some(known) = standard(method) else {
        return given.map_or_else(|| raw("{}".into()), ToOwned::to_owned);
    };
    let all = members(given);
    let mut list: Vec<(&str, String)> = Vec::new();
    for name in known {
        match (*name, all.get(*name)) {
            ("mcpServers", servers) => list.push((name, mcp_servers(servers.copied()))),
            (_, Some(value)) => list.push((name, value.get().to_owned())),
            (_, None) => {}
        }
    }
    write(list.iter().map(|(name, value)| (*name, value.as_str())))
}

/// The servers, each with the lists that agents insist on.
fn mcp_servers(raw: Raw<'_>) -> String {
    let list = items(raw).unwrap_or_default();
    let servers: Vec<String> = list.into_iter().map(mcp_server).collect();
    format!("[{}]", servers.join(","))
}

fn mcp_server(server: &RawValue) -> String {
    let mut all: BTreeMap<String, &str> =
        members(Some(server)).into_iter().map(|(name, value)| (name, value.get())).collect();
    if all.is_empty() {
        return server.get().to_owned();
    }
    let needed: &[&str] = match all.get("type") {
        Some(&("\"http\"" | "\"sse\"")) => &["headers"],
        Some(_) if !all.contains_key("command") => &[],
        _ => &["args", "env"],
    };
    for name in needed {
        all.entry((*name).to_owned()).or_insert("[]");
    }
    write(all.iter().map(|(name, value)| (name.as_str(), *value))).get().to_owned()
}

/// The schema's kinds of tools.
const KINDS: [&str; 10] =
    ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

/// Makes the members of a call fit the schema; says whether anything changed.
pub(super) fn mend_call(call: &mut Map<String, Value>) -> bool {
    let before = call.len();
    call.retain(|name, value| {
        !value.is_null()
            && match name.as_str() {
                "title" => value.is_string(),
                "content" | "locations" => value.is_array(),
                "status" => matches!(value.as_str(), Some("pending" | "in_progress" | "completed" | "failed")),
                _ => true,
            }
    });
    let mut changed = call.len() != before;
    if let Some(kind) = call.get_mut("kind")
        && !kind.as_str().is_some_and(|kind| KINDS.contains(&kind))
    {
        *kind = "other".into();
        changed = true;
    }
    if let Some(list) = call.get_mut("content").and_then(Value::as_array_mut) {
        let count = list.len();
        list.retain(is_shown);
        changed |= list.len() != count;
    }
    if let Some(list) = call.get_mut("locations").and_then(Value::as_array_mut) {
        let count = list.len();
        list.retain(|place| place.get("path").is_some_and(Value::is_string));
        changed |= list.len() != count;
    }
    changed
}

/// Whether a piece of a call's content has the members that it needs.
fn is_shown(piece: &Value) -> bool {
    let has = |name: &str| piece.get(name).is_some_and(Value::is_string);
    match piece.get("type").and_then(Value::as_str) {
        Some("content") => piece.get("content").and_then(|c| c.get("type")).is_some_and(Value::is_string),
        Some("diff") => has("path") && has("newText"),
        Some("terminal") => has("terminalId"),
        _ => false,
    }
}

/// Makes a plan's entries fit the schema; says whether anything changed. `None`: there are none, and nothing is said.
pub(super) fn mend_plan(update: &mut Map<String, Value>) -> Option<bool> {
    let entries = update.get_mut("entries").and_then(Value::as_array_mut)?;
    let count = entries.len();
    entries.retain(|entry| entry.get("content").is_some_and(Value::is_string));
    let mut changed = entries.len() != count;
    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
        let status = match entry.get("status").and_then(Value::as_str) {
            Some("pending" | "in_progress" | "completed") => None,
            Some("done") => Some("completed"),
            _ => Some("pending"),
        };
        if let Some(status) = status {
            entry.insert("status".into(), status.into());
            changed = true;
        }
        if !matches!(entry.get("priority").and_then(Value::as_str), Some("high" | "medium" | "low")) {
            entry.insert("priority".into(), "medium".into());
            changed = true;
        }
    }
    Some(changed)
}

/// Makes the commands fit the schema; says whether anything changed. `None`: there are none, and nothing is said.
pub(super) fn mend_commands(update: &mut Map<String, Value>) -> Option<bool> {
    let list = update.get_mut("availableCommands").and_then(Value::as_array_mut)?;
    let count = list.len();
    list.retain(|command| command.get("name").is_some_and(Value::is_string));
    let mut changed = list.len() != count;
    for command in list.iter_mut().filter_map(Value::as_object_mut) {
        if !command.get("description").is_some_and(Value::is_string) {
            command.insert("description".into(), "".into());
            changed = true;
        }
        if command.get("input").is_some_and(|input| !input.get("hint").is_some_and(Value::is_string)) {
            command.remove("input");
            changed = true;
        }
    }
    Some(changed)
}
