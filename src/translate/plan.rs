//! The plan, as claude's to-do tools tell it.
//!
//! Owns the list behind ACP's `plan`, which always carries all entries (acp.md, section 5, rule 39). Keeps: a plan is
//! told only when it changed. The tools stand in stream-json.md, section 6: TodoWrite brings the whole list in its
//! input, TaskCreate, TaskUpdate, TaskGet and TaskList tell it piece by piece in their results.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::wire::acp::PlanEntry;
use crate::wire::text::{Raw, items, text};

/// The plan of one session.
#[derive(Debug, Default)]
pub struct Plan {
    entries: Vec<Entry>,
    told: Option<Vec<PlanEntry>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    id: Option<String>,
    content: String,
    status: &'static str,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item<'a> {
    #[serde(borrow)]
    id: Raw<'a>,
    #[serde(borrow)]
    subject: Raw<'a>,
    #[serde(borrow)]
    content: Raw<'a>,
    #[serde(borrow)]
    status: Raw<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow)]
    todos: Raw<'a>,
    #[serde(borrow)]
    task: Raw<'a>,
    #[serde(borrow)]
    tasks: Raw<'a>,
    #[serde(borrow)]
    task_id: Raw<'a>,
    #[serde(borrow)]
    status_change: Raw<'a>,
    #[serde(borrow)]
    to: Raw<'a>,
    #[serde(borrow)]
    subject: Raw<'a>,
}

fn object<'a, T: Deserialize<'a> + Default>(raw: Raw<'a>) -> T {
    raw.filter(|r| r.get().starts_with('{')).and_then(|r| serde_json::from_str(r.get()).ok()).unwrap_or_default()
}

fn status(raw: Raw<'_>) -> &'static str {
    match text(raw).as_deref() {
        Some("completed") => "completed",
        Some("in_progress") => "in_progress",
        _ => "pending",
    }
}

/// Ids of tasks are strings; a number says the same.
fn id(raw: Raw<'_>) -> Option<String> {
    text(raw).map(Into::into).or_else(|| raw.map(|r| r.get().to_owned()))
}

impl Plan {
    /// Takes what a plan tool said: its input and, once it has run, its result.
    pub fn apply(&mut self, tool: &str, input: Option<&RawValue>, result: Option<&RawValue>) {
        let input: Body<'_> = object(input);
        let result: Body<'_> = object(result);
        match tool {
            "TodoWrite" => {
                if let Some(todos) = items(input.todos) {
                    self.replace(&todos);
                }
            }
            "TaskCreate" | "TaskGet" => {
                let task: Item<'_> = object(result.task);
                if let Some(entry) = entry(&task) {
                    self.put(entry);
                }
            }
            "TaskList" => {
                if let Some(tasks) = items(result.tasks) {
                    self.replace(&tasks);
                }
            }
            "TaskUpdate" => {
                let Some(task) = id(result.task_id).or_else(|| id(input.task_id)) else { return };
                let change: Body<'_> = object(result.status_change);
                if text(change.to).as_deref() == Some("deleted") {
                    self.entries.retain(|e| e.id.as_ref() != Some(&task));
                } else if let Some(e) = self.entries.iter_mut().find(|e| e.id.as_ref() == Some(&task)) {
                    if change.to.is_some() {
                        e.status = status(change.to);
                    }
                    if let Some(subject) = text(input.subject) {
                        e.content = subject.into();
                    }
                }
            }
            _ => {}
        }
    }

    fn replace(&mut self, list: &[&RawValue]) {
        self.entries = list.iter().filter_map(|raw| entry(&object(Some(raw)))).collect();
    }

    fn put(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|e| e.id.is_some() && e.id == entry.id) {
            Some(e) => *e = entry,
            None => self.entries.push(entry),
        }
    }

    /// Forgets everything; an empty plan is told if there was one.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// All entries, if they changed since they were last asked for.
    pub fn changed(&mut self) -> Option<Vec<PlanEntry>> {
        let now: Vec<PlanEntry> = self
            .entries
            .iter()
            .map(|e| PlanEntry { content: e.content.clone(), priority: "medium", status: e.status })
            .collect();
        if self.told.as_ref() == Some(&now) || (self.told.is_none() && now.is_empty()) {
            return None;
        }
        self.told = Some(now.clone());
        Some(now)
    }
}

fn entry(item: &Item<'_>) -> Option<Entry> {
    let content = text(item.content).or_else(|| text(item.subject))?;
    Some(Entry { id: id(item.id), content: content.into(), status: status(item.status) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(s: &str) -> Box<RawValue> {
        RawValue::from_string(s.to_owned()).unwrap_or_else(|e| panic!("{s}: {e}"))
    }

    fn shown(plan: &mut Plan) -> Option<Vec<String>> {
        plan.changed().map(|list| list.iter().map(|e| format!("{} {}", e.status, e.content)).collect())
    }

    #[test]
    fn task_tools_build_one_list_and_say_nothing_twice() {
        let mut plan = Plan::default();
        plan.apply("TaskCreate", None, Some(&raw(r#"{"task":{"id":"1","subject":"Do a"}}"#)));
        assert_eq!(shown(&mut plan), Some(vec!["pending Do a".into()]));
        plan.apply("TaskCreate", None, Some(&raw(r#"{"task":{"id":"2","subject":"Do b"}}"#)));
        plan.apply(
            "TaskUpdate",
            None,
            Some(&raw(r#"{"taskId":"1","statusChange":{"from":"pending","to":"in_progress"}}"#)),
        );
        assert_eq!(shown(&mut plan), Some(vec!["in_progress Do a".into(), "pending Do b".into()]));
        plan.apply("TaskUpdate", None, Some(&raw(r#"{"taskId":"2","updatedFields":["owner"]}"#)));
        plan.apply("TaskGet", None, Some(&raw(r#"{"task":{"id":"1","subject":"Do a","status":"in_progress"}}"#)));
        assert_eq!(shown(&mut plan), None);
        plan.apply("TaskUpdate", None, Some(&raw(r#"{"taskId":"2","statusChange":{"to":"deleted"}}"#)));
        assert_eq!(shown(&mut plan), Some(vec!["in_progress Do a".into()]));
        plan.clear();
        assert_eq!(shown(&mut plan), Some(vec![]));
    }

    #[test]
    fn todo_write_replaces_the_list() {
        let mut plan = Plan::default();
        plan.apply(
            "TodoWrite",
            Some(&raw(r#"{"todos":[{"content":"x","status":"completed"},{"content":"y"}, 5]}"#)),
            None,
        );
        assert_eq!(shown(&mut plan), Some(vec!["completed x".into(), "pending y".into()]));
    }
}
