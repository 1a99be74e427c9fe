//! How a conversation looks in a terminal.
//!
//! Owns the rendering of session updates. Invariants: it only appends, so that a pipe and a terminal get the same text;
//! every character of the agent's text is shown, in order; what an agent says cannot command the terminal.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::style::{Style, clean, one_line};
use crate::translate::diff::hunks;

/// How many lines of a tool's output are shown.
const OUTPUT_LINES: usize = 12;

/// How many lines of a diff are shown.
const DIFF_LINES: usize = 60;

/// What was printed last; decides about line ends between two things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Nothing,
    Message,
    Thought,
    Plan,
    Block,
}

/// A tool call, as far as it is known.
#[derive(Debug, Default)]
struct Card {
    title: String,
    status: String,
    content: Vec<Value>,
    shown_status: String,
    /// The changed lines of the diffs that were shown; what stands around them may differ from one update to the next.
    shown_diffs: Vec<Vec<String>>,
}

/// Renders a conversation piece by piece.
#[derive(Debug)]
pub(super) struct View {
    style: Style,
    root: PathBuf,
    last: Last,
    /// Whether the last character printed was a line end.
    at_start: bool,
    cards: HashMap<String, Card>,
    /// The calls in the order in which they were announced.
    order: Vec<String>,
}

impl View {
    /// A view of a session that works in the folder `root`; its paths are shown relative to it.
    pub(super) fn new(style: Style, root: &Path) -> Self {
        Self {
            style,
            root: root.to_owned(),
            last: Last::Nothing,
            at_start: true,
            cards: HashMap::new(),
            order: Vec::new(),
        }
    }

    /// Appends what a prompt looks like.
    pub(super) fn prompt(&mut self, text: &str, out: &mut String) {
        self.begin(Last::Block, out);
        let text = clean(text);
        out.push_str(&self.style.bold(&format!("> {text}")));
        out.push('\n');
        self.at_start = true;
    }

    /// Appends what a `session/update` looks like.
    pub(super) fn update(&mut self, update: &Value, out: &mut String) {
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => self.chunk(Last::Message, &update["content"], out),
            "agent_thought_chunk" => self.chunk(Last::Thought, &update["content"], out),
            "user_message_chunk" => {
                if let Some(text) = update["content"]["text"].as_str() {
                    self.prompt(text, out);
                }
            }
            "plan" => self.plan(&update["entries"], out),
            "tool_call" | "tool_call_update" => self.tool(update, out),
            "current_mode_update" => {
                let mode = update["currentModeId"].as_str().unwrap_or_default();
                self.aside(&format!("mode: {mode}"), out);
            }
            "notice" => {
                let (title, text) = (update["title"].as_str(), update["description"].as_str());
                let text = [title, text].into_iter().flatten().collect::<Vec<_>>().join(": ");
                self.aside(&text, out);
            }
            // Told to editors for their menus and gauges; nothing to see in a conversation.
            "available_commands_update" | "config_option_update" | "usage_update" | "session_info_update" => {}
            other => self.aside(&format!("({other})"), out),
        }
    }

    /// Appends a line of our own, such as the end of a turn.
    pub(super) fn aside(&mut self, text: &str, out: &mut String) {
        self.begin(Last::Block, out);
        let line = one_line(text, 400);
        out.push_str(&self.style.dim(&line));
        out.push('\n');
    }

    /// Appends what a permission question looks like, with its numbered options.
    pub(super) fn question(&mut self, params: &Value, out: &mut String) {
        let call = &params["toolCall"];
        self.take(call);
        let id = call["toolCallId"].as_str().unwrap_or_default().to_owned();
        self.begin(Last::Block, out);
        let title = self.title(&id);
        out.push_str(&self.style.yellow(&format!("? {title}")));
        out.push('\n');
        self.diffs(&id, out);
        for (index, option) in params["options"].as_array().into_iter().flatten().enumerate() {
            let name = one_line(option["name"].as_str().unwrap_or("?"), 200);
            out.push_str(&format!("    {}  {name}\n", index + 1));
        }
        self.at_start = true;
    }

    /// Appends the answer that was given to a question.
    pub(super) fn answered(&mut self, text: &str, out: &mut String) {
        let line = format!("  -> {}", one_line(text, 200));
        out.push_str(&self.style.yellow(&line));
        out.push('\n');
        self.at_start = true;
        self.last = Last::Block;
    }

    /// Ends a line that streaming text left open.
    pub(super) fn end_line(&mut self, out: &mut String) {
        if !self.at_start {
            out.push('\n');
            self.at_start = true;
        }
    }

    /// Starts something of a kind: on a new line, with an empty line where the kind changes.
    fn begin(&mut self, kind: Last, out: &mut String) {
        self.end_line(out);
        if self.last != Last::Nothing && self.last != kind {
            out.push('\n');
        }
        self.last = kind;
    }

    fn chunk(&mut self, kind: Last, content: &Value, out: &mut String) {
        let text = match content["type"].as_str() {
            Some("text") | None => clean(content["text"].as_str().unwrap_or_default()).into_owned(),
            Some(other) => format!("[{other}]"),
        };
        if text.is_empty() {
            return;
        }
        if self.last != kind {
            self.flush_cards(out);
            self.begin(kind, out);
            if kind == Last::Thought {
                out.push_str(&self.style.dim("(thinking) "));
            }
        }
        if kind == Last::Thought {
            out.push_str(&self.style.dim(&text));
        } else {
            out.push_str(&text);
        }
        self.at_start = text.ends_with('\n');
    }

    fn plan(&mut self, entries: &Value, out: &mut String) {
        self.flush_cards(out);
        self.begin(Last::Plan, out);
        out.push_str(&self.style.bold("Plan"));
        out.push('\n');
        for entry in entries.as_array().into_iter().flatten() {
            let text = one_line(entry["content"].as_str().unwrap_or_default(), 200);
            let line = match entry["status"].as_str() {
                Some("completed") => self.style.green(&format!("  [x] {text}")).into_owned(),
                Some("in_progress") => self.style.bold(&format!("  [>] {text}")).into_owned(),
                _ => format!("  [ ] {text}"),
            };
            out.push_str(&line);
            out.push('\n');
        }
    }

    fn tool(&mut self, update: &Value, out: &mut String) {
        let Some(id) = self.take(update) else {
            return;
        };
        let card = &self.cards[&id];
        // A call is announced before its input is known; its card waits for a better title.
        if card.status == "pending" || card.status == card.shown_status {
            return;
        }
        self.card(&id, out);
    }

    /// Takes over what an update says about a call; returns the call's id.
    fn take(&mut self, update: &Value) -> Option<String> {
        let id = update["toolCallId"].as_str()?.to_owned();
        if !self.cards.contains_key(&id) {
            self.order.push(id.clone());
            self.cards.insert(id.clone(), Card { status: "pending".into(), ..Card::default() });
        }
        let card = self.cards.get_mut(&id)?;
        if let Some(title) = update["title"].as_str() {
            title.clone_into(&mut card.title);
        }
        if let Some(status) = update["status"].as_str() {
            status.clone_into(&mut card.status);
        }
        if let Some(content) = update["content"].as_array() {
            card.content.clone_from(content);
        }
        Some(id)
    }

    /// Shows the calls that were announced and not shown yet.
    fn flush_cards(&mut self, out: &mut String) {
        let waiting: Vec<String> = self
            .order
            .iter()
            .filter(|id| self.cards.get(*id).is_some_and(|card| card.shown_status.is_empty()))
            .cloned()
            .collect();
        for id in waiting {
            self.card(&id, out);
        }
    }

    /// A call's title, with paths relative to the session's folder.
    fn title(&self, id: &str) -> String {
        let title = self.cards.get(id).map_or("", |card| card.title.as_str());
        let root = format!("{}/", self.root.display());
        one_line(&title.replace(&root, ""), 160)
    }

    fn card(&mut self, id: &str, out: &mut String) {
        self.begin(Last::Block, out);
        let title = self.title(id);
        let Some(card) = self.cards.get_mut(id) else {
            return;
        };
        card.shown_status.clone_from(&card.status);
        let status = card.status.clone();
        let line = match status.as_str() {
            "pending" => self.style.dim(&format!("  o {title}")).into_owned(),
            "in_progress" => self.style.cyan(&format!("  * {title}")).into_owned(),
            "completed" => self.style.green(&format!("  + {title}")).into_owned(),
            "failed" => self.style.red(&format!("  x {title}  (failed)")).into_owned(),
            other => format!("  - {title}  ({})", one_line(other, 40)),
        };
        out.push_str(&line);
        out.push('\n');
        if matches!(status.as_str(), "completed" | "failed") {
            self.diffs(id, out);
            self.output(id, out);
        }
        self.at_start = true;
    }

    /// Shows the diffs of a call that were not shown yet.
    fn diffs(&mut self, id: &str, out: &mut String) {
        let Some(card) = self.cards.get_mut(id) else {
            return;
        };
        let diffs: Vec<Value> = card.content.iter().filter(|item| item["type"] == "diff").cloned().collect();
        for diff in diffs {
            let changed = changed_lines(&diff);
            if card.shown_diffs.contains(&changed) {
                continue;
            }
            card.shown_diffs.push(changed);
            let path = Path::new(diff["path"].as_str().unwrap_or_default());
            let path = path.strip_prefix(&self.root).unwrap_or(path).display().to_string();
            let (old, new) = (diff["oldText"].as_str(), diff["newText"].as_str().unwrap_or_default());
            render_diff(self.style, &path, old, new, out);
        }
    }

    /// Shows the text of a finished call.
    fn output(&self, id: &str, out: &mut String) {
        let Some(card) = self.cards.get(id) else {
            return;
        };
        let texts = card.content.iter().filter_map(|item| item["content"]["text"].as_str());
        let text = texts.collect::<Vec<_>>().join("\n");
        let text = clean(&text);
        let lines: Vec<&str> = text.trim_end().lines().filter(|line| !line.starts_with("```")).collect();
        for line in lines.iter().take(OUTPUT_LINES) {
            out.push_str(&self.style.dim(&format!("    {line}")));
            out.push('\n');
        }
        if lines.len() > OUTPUT_LINES {
            let more = format!("    ... {} more lines", lines.len() - OUTPUT_LINES);
            out.push_str(&self.style.dim(&more));
            out.push('\n');
        }
    }
}

/// The path and the changed lines of a diff; all that is new where there are too many lines to compare.
fn changed_lines(diff: &Value) -> Vec<String> {
    let (old, new) = (diff["oldText"].as_str().unwrap_or_default(), diff["newText"].as_str().unwrap_or_default());
    let groups = hunks(old, new);
    let whole = groups.is_empty().then(|| new.to_owned());
    let changed = groups.into_iter().flat_map(|hunk| hunk.lines).filter(|line| line.starts_with(['+', '-']));
    std::iter::once(diff["path"].to_string()).chain(whole).chain(changed).collect()
}

fn render_diff(style: Style, path: &str, old: Option<&str>, new: &str, out: &mut String) {
    let what = if old.is_none() { "new file" } else { "changed" };
    out.push_str(&style.bold(&format!("    {} ({what})", one_line(path, 200))));
    out.push('\n');
    let old = old.unwrap_or_default();
    let groups = hunks(old, new);
    if groups.is_empty() && old != new {
        out.push_str(&style.dim("    ... too many lines to compare"));
        out.push('\n');
    }
    let mut left = DIFF_LINES;
    for group in groups {
        let place = format!("    @@ line {} @@", group.new_start);
        out.push_str(&style.cyan(&place));
        out.push('\n');
        for line in group.lines {
            if left == 0 {
                out.push_str(&style.dim("    ... more changes"));
                out.push('\n');
                return;
            }
            left -= 1;
            let line = clean(&line);
            let line = match line.split_at_checked(1) {
                Some(("-", text)) => style.red(&format!("    - {text}")).into_owned(),
                Some(("+", text)) => style.green(&format!("    + {text}")).into_owned(),
                Some((_, text)) => format!("      {text}"),
                None => String::new(),
            };
            out.push_str(&line);
            out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(style: Style, updates: &[Value]) -> String {
        let mut view = View::new(style, Path::new("/w"));
        let mut out = String::new();
        for update in updates {
            match update.get("options") {
                Some(_) => view.question(update, &mut out),
                None => view.update(update, &mut out),
            }
        }
        view.end_line(&mut out);
        out
    }

    fn text(kind: &str, text: &str) -> Value {
        json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}})
    }

    fn conversation() -> Vec<Value> {
        let diff =
            json!([{"type": "diff", "path": "/w/a.txt", "oldText": "one\ntwo\nthree\n", "newText": "one\n2\nthree\n"}]);
        vec![
            text("agent_thought_chunk", "Let me "),
            text("agent_thought_chunk", "think."),
            text("agent_message_chunk", "Two\n"),
            text("agent_message_chunk", "lines."),
            json!({"sessionUpdate": "available_commands_update", "availableCommands": []}),
            json!({"sessionUpdate": "plan", "entries": [
                {"content": "first", "priority": "medium", "status": "completed"},
                {"content": "second", "priority": "medium", "status": "in_progress"},
                {"content": "third", "priority": "medium", "status": "pending"},
            ]}),
            json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Edit", "kind": "edit", "status": "pending"}),
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "title": "Edit /w/a.txt", "content": diff}),
            json!({"toolCall": {"toolCallId": "1"}, "options": [
                {"optionId": "a", "name": "Allow once", "kind": "allow_once"},
                {"optionId": "r", "name": "Reject", "kind": "reject_once"},
            ]}),
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "in_progress"}),
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed", "content": [
                {"type": "diff", "path": "/w/a.txt", "oldText": "zero\none\ntwo\n", "newText": "zero\none\n2\n"},
            ]}),
            json!({"sessionUpdate": "tool_call", "toolCallId": "2", "title": "cat b", "kind": "execute", "status": "in_progress"}),
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "2", "status": "failed", "content": [
                {"type": "content", "content": {"type": "text", "text": "```console\nExit code 1\nno such file\n```"}},
            ]}),
            text("agent_message_chunk", "Done."),
        ]
    }

    #[test]
    fn a_conversation_without_colour() {
        let expected = "\
(thinking) Let me think.

Two
lines.

Plan
  [x] first
  [>] second
  [ ] third

? Edit a.txt
    a.txt (changed)
    @@ line 1 @@
      one
    - two
    + 2
      three
    1  Allow once
    2  Reject
  * Edit a.txt
  + Edit a.txt
  * cat b
  x cat b  (failed)
    Exit code 1
    no such file

Done.
";
        let rendered = render(Style::new(false), &conversation());
        assert!(rendered == expected, "{rendered}");
    }

    #[test]
    fn colour_changes_nothing_but_the_colour() {
        let coloured = render(Style::new(true), &conversation());
        assert!(coloured.contains("\u{1b}[31m    - two\u{1b}[0m"), "{coloured}");
        let mut plain = coloured.clone();
        for code in ["0", "1", "2", "31", "32", "33", "36"] {
            plain = plain.replace(&format!("\u{1b}[{code}m"), "");
        }
        assert_eq!(plain, render(Style::new(false), &conversation()));
    }

    #[test]
    fn an_announced_call_is_shown_before_what_follows_it() {
        let rendered = render(
            Style::new(false),
            &[
                json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Read", "status": "pending"}),
                json!({"sessionUpdate": "tool_call_update", "toolCallId": "1", "title": "Read /w/x"}),
                text("agent_message_chunk", "then"),
            ],
        );
        assert_eq!(rendered, "  o Read x\n\nthen\n");
    }

    #[test]
    fn long_output_and_long_diffs_are_cut_and_say_so() {
        let long: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let rendered = render(
            Style::new(false),
            &[
                json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "t", "status": "completed", "content": [
                    {"type": "diff", "path": "/elsewhere/x", "oldText": null, "newText": long},
                    {"type": "content", "content": {"type": "text", "text": long}},
                ]}),
            ],
        );
        assert!(rendered.contains("/elsewhere/x (new file)"), "{rendered}");
        assert!(rendered.contains("... more changes") && rendered.contains("... 88 more lines"), "{rendered}");
    }

    #[test]
    fn an_agents_text_cannot_command_the_terminal() {
        let rendered = render(
            Style::new(false),
            &[
                text("agent_message_chunk", "a\u{1b}]0;title\u{7}b"),
                json!({"sessionUpdate": "tool_call", "toolCallId": "1", "title": "\u{1b}[2J", "status": "failed"}),
                json!({"sessionUpdate": "\u{1b}[2J"}),
            ],
        );
        assert!(!rendered.contains('\u{1b}'), "{rendered:?}");
    }
}
