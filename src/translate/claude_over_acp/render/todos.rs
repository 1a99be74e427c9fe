//! An agent's list of what is to be done, as Claude's `TodoWrite`.

use serde_json::{Map, Value, json};

/// The entries of a list in any of the agents' forms: Claude's own, Kimi's (`title`, `done`), ACP's plan. `None`: it is no such
/// list.
pub(in crate::translate::claude_over_acp) fn todos(entries: &Value) -> Option<Value> {
    let todos = entries.as_array()?.iter().map(|entry| {
        let text = ["content", "title", "text"].iter().find_map(|key| entry.get(key)?.as_str())?;
        let status = match entry.get("status").and_then(Value::as_str) {
            Some("in_progress") => "in_progress",
            Some("completed" | "done") => "completed",
            _ => "pending",
        };
        Some(json!({"content": text, "status": status, "activeForm": text}))
    });
    todos.collect::<Option<Vec<_>>>().map(Value::Array)
}

/// The input of `TodoWrite` for a call's arguments.
pub(super) fn input(arguments: Option<&Value>) -> Option<Map<String, Value>> {
    let list = ["todos", "items", "plan"].iter().find_map(|key| arguments?.get(key))?;
    Some(Map::from_iter([("todos".to_owned(), todos(list)?)]))
}
