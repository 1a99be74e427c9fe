//! Terminals: those that exist only for display, and those that the editor has made.
//!
//! Owns quirks 22 (codex-acp 2.6, pi 0.0.34: a terminal that nobody made, its output in `_meta`), 23 (Kimi 2.1, CodeBuddy 2.163:
//! output only in the editor's terminal, which the editor shows itself), 24 (Grok 1.0, CodeBuddy: a shell's line where a program's
//! name belongs) and 25 (Grok, CodeBuddy: a cancel leaves the command running). Keeps: an editor is never shown a terminal that
//! it neither made nor can show.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::questions::{Kind, Question};
use super::{AcpOverAcp, open};
use crate::translate::Actions;
use crate::translate::claude_over_acp::calls::Bounded;
use crate::wire::jsonrpc::{self, Id};

/// Terminals that are known as the editor's after their release.
const MADE: usize = 256;

/// The output of a call's display terminal.
#[derive(Debug, Default)]
pub(super) struct Displays {
    output: Bounded,
    /// The editor cannot show it: it becomes text.
    is_text: bool,
}

impl Displays {
    /// Takes in what `said` has of a terminal that the editor did not make.
    pub(super) fn take(&mut self, said: &mut Map<String, Value>, made: &VecDeque<String>, editor_shows: bool) -> bool {
        let mut changed = false;
        if let Some(meta) = said.get_mut("_meta").and_then(Value::as_object_mut) {
            if editor_shows {
                // The name that editors know.
                if let Some(delta) = meta.remove("terminal_output_delta") {
                    meta.insert("terminal_output".into(), delta);
                    changed = true;
                }
            } else {
                for name in ["terminal_output", "terminal_output_delta"] {
                    if let Some(data) = meta.get(name).and_then(|output| output["data"].as_str()) {
                        self.output.push(data);
                    }
                }
            }
        }
        if editor_shows {
            return changed;
        }
        if let Some(list) = said.get_mut("content").and_then(Value::as_array_mut) {
            let count = list.len();
            let is_made =
                |piece: &Value| piece["terminalId"].as_str().is_some_and(|id| made.iter().any(|made| made == id));
            list.retain(|piece| piece["type"] != "terminal" || is_made(piece));
            if list.len() != count {
                self.is_text = true;
                changed = true;
                if list.is_empty() {
                    said.remove("content");
                }
            }
        }
        changed
    }

    /// Shows the output as text, at the end of the call.
    pub(super) fn show(&mut self, said: &mut Map<String, Value>, before: Option<&Value>) -> bool {
        if !self.is_text || self.output.is_empty() {
            return false;
        }
        let text = self.output.text();
        let fence = "`".repeat(longest_run(&text).max(2) + 1);
        let end = if text.ends_with('\n') { "" } else { "\n" };
        let text = format!("{fence}\n{text}{end}{fence}");
        let piece = json!({ "type": "content", "content": { "type": "text", "text": text } });
        let shown = said.get("content").or(before).and_then(Value::as_array);
        let mut list: Vec<Value> = shown.cloned().unwrap_or_default();
        list.push(piece);
        said.insert("content".into(), Value::Array(list));
        true
    }
}

/// The longest run of backticks.
fn longest_run(text: &str) -> usize {
    let (mut longest, mut run) = (0, 0);
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// The parameters of `terminal/create` as an editor can run them.
pub(super) fn creation(params: &RawValue, cwd: Option<&str>, lines: bool) -> Option<Value> {
    let mut all: Map<String, Value> = serde_json::from_str(params.get()).ok()?;
    let command = all.get("command")?.as_str()?.to_owned();
    let no_arguments = all.get("args").and_then(Value::as_array).is_none_or(Vec::is_empty);
    let is_line = command.contains(|c: char| c.is_whitespace() || "|&;<>()$`\"'*?~=".contains(c));
    if lines && no_arguments && is_line && !cfg!(windows) {
        all.insert("command".into(), "/bin/sh".into());
        all.insert("args".into(), json!(["-c", command]));
    }
    if let Some(cwd) = cwd.filter(|_| !all.get("cwd").is_some_and(Value::is_string)) {
        all.insert("cwd".into(), serde_json::from_str(cwd).unwrap_or_default());
    }
    all.retain(|_, value| !value.is_null());
    Some(Value::Object(all))
}

impl open::Session {
    /// The editor made a terminal.
    pub(super) fn made_terminal(&mut self, id: String) {
        if self.made.len() == MADE {
            self.made.pop_front();
        }
        self.made.push_back(id.clone());
        self.terminals.insert(id);
    }
}

impl AcpOverAcp {
    /// A request of diglot's own about a terminal; whatever the editor answers, nobody waits for it.
    fn tell_terminal(&mut self, method: &str, session: &str, terminal: &str, out: &mut Actions) {
        let id = self.next_question(Question { far: Id::Null, session: Some(session.into()), kind: Kind::Own });
        let params = json!({ "sessionId": session, "terminalId": terminal });
        out.near(jsonrpc::request(&id, method, &params));
    }

    /// The user cancelled: commands in the editor's terminals end.
    pub(super) fn kill_terminals(&mut self, session: &Arc<str>, out: &mut Actions) {
        if self.near_gone {
            return;
        }
        let running: BTreeSet<String> = self
            .questions
            .values()
            .filter_map(|question| match &question.kind {
                Kind::WaitForTerminal(id) if question.session.as_ref() == Some(session) => Some(id.clone()),
                _ => None,
            })
            .collect();
        for terminal in running {
            self.tell_terminal("terminal/kill", session, &terminal, out);
        }
    }

    /// The agent has died: its terminals are of no use.
    pub(super) fn release_terminals(&mut self, out: &mut Actions) {
        let mut all: Vec<(Arc<str>, String)> = Vec::new();
        for (id, session) in &mut self.sessions {
            all.extend(std::mem::take(&mut session.terminals).into_iter().map(|terminal| (id.clone(), terminal)));
        }
        if self.near_gone {
            return;
        }
        for (session, terminal) in all {
            self.tell_terminal("terminal/release", &session, &terminal, out);
        }
    }
}
