//! Tool calls: announced, filled, ended.
//!
//! Owns quirks 1 (Gemini 0.61: first heard of in a question), 2 (Gemini: an update of a call that was never announced), 3
//! (CodeBuddy 2.163, Cline 3.0: announced twice, and back from `in_progress` to `pending`), 4 (Grok 1.0, CodeBuddy, OpenCode 1.18,
//! Qwen 0.24: without kind, status or a title worth the name), 5 (Vibe 3.0, CodeBuddy, Kimi 2.1: a question that says only the
//! call's id) and 7 (Gemini, CodeBuddy, Deep Agents: a call that nobody ends). Keeps: an editor sees each call announced once,
//! its status never goes back, and it ends before its turn or its process does.

use std::collections::VecDeque;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::arguments::Arguments;
use super::stream::{changed_line, update_line};
use super::terminals::Displays;
use super::{AcpOverAcp, output, strict};
use crate::translate::Actions;
use crate::wire::text::Raw;

/// Ids of ended calls that are remembered, for what agents still say of them.
const ENDED: usize = 256;

/// Calls that may be open in a session; of more the oldest are taken for ended.
const OPEN: usize = 1024;

/// One call as the editor knows it.
#[derive(Debug, Default)]
pub(super) struct Call {
    id: String,
    /// 0 pending, 1 in_progress, 2 ended.
    stage: u8,
    title: Option<String>,
    pub(super) kind: Option<String>,
    input: Option<Value>,
    content: Option<Value>,
    locations: Option<Value>,
    /// It shows what its output must not take away: a change of a file, a terminal.
    pub(super) shows_for_good: bool,
    arguments: Arguments,
    pub(super) displays: Displays,
}

/// The calls of a session.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: Vec<Call>,
    /// Calls that have ended, and in which turn.
    ended: VecDeque<(String, u64)>,
    turn: u64,
}

fn stage(status: Option<&Value>) -> Option<u8> {
    Some(match status?.as_str()? {
        "pending" => 0,
        "in_progress" => 1,
        _ => 2,
    })
}

/// The kind that a tool's name says.
fn guess_kind(name: &str) -> &'static str {
    let name = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if has(&["bash", "shell", "terminal", "command", "exec"]) {
        "execute"
    } else if has(&["fetch", "web", "http"]) {
        "fetch"
    } else if has(&["search", "grep", "glob", "find", "list"]) {
        "search"
    } else if has(&["edit", "write", "replace", "patch"]) {
        "edit"
    } else if has(&["read"]) {
        "read"
    } else {
        "other"
    }
}

/// The tool's name, from the places where agents put it.
fn tool_name(said: &Map<String, Value>) -> Option<&str> {
    let meta = said.get("_meta");
    said.get("name").and_then(Value::as_str).or_else(|| {
        let meta = meta?;
        meta["x.ai/tool"]["name"]
            .as_str()
            .or_else(|| meta["codebuddy.ai/toolName"].as_str())
            .or_else(|| meta["toolName"].as_str())
            .or_else(|| meta["tool_name"].as_str())
    })
}

impl Call {
    fn new(id: &str) -> Self {
        Self { id: id.to_owned(), ..Self::default() }
    }

    /// Takes in what was said of it.
    fn know(&mut self, said: &Map<String, Value>) {
        let string = |name: &str| said.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(title) = string("title") {
            self.title = Some(title.to_owned());
        }
        if let Some(kind) = string("kind").filter(|kind| *kind != "other" || self.kind.is_none()) {
            self.kind = Some(kind.to_owned());
        }
        if let Some(input) = said.get("rawInput").filter(|input| input.as_object().is_none_or(|map| !map.is_empty())) {
            self.input = Some(input.clone());
        }
        if let Some(content) = said.get("content").filter(|content| content.as_array().is_some_and(|l| !l.is_empty())) {
            let for_good = |piece: &Value| piece["type"] != "content";
            self.shows_for_good = content.as_array().is_some_and(|list| list.iter().any(for_good));
            self.content = Some(content.clone());
        }
        if let Some(places) = said.get("locations").filter(|places| places.as_array().is_some_and(|l| !l.is_empty())) {
            self.locations = Some(places.clone());
        }
        if let Some(stage) = stage(said.get("status")) {
            self.stage = self.stage.max(stage);
        }
    }

    /// Fills what an announcement needs.
    fn fill(&self, said: &mut Map<String, Value>) -> bool {
        let before = said.len();
        let name = tool_name(said).map(str::to_owned);
        let title = self.title.clone().or_else(|| name.clone());
        said.entry("title").or_insert_with(|| title.clone().unwrap_or_else(|| "Tool call".into()).into());
        let kind = self.kind.clone();
        said.entry("kind").or_insert_with(|| {
            kind.unwrap_or_else(|| guess_kind(name.or(title).as_deref().unwrap_or_default()).into()).into()
        });
        said.entry("status").or_insert_with(|| "pending".into());
        said.len() != before
    }
}

impl Calls {
    fn place(&mut self, id: &str) -> Option<&mut Call> {
        self.open.iter_mut().find(|call| call.id == id)
    }

    fn ended(&mut self, at: usize) {
        let call = self.open.remove(at);
        if self.ended.len() == ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((call.id, self.turn));
    }

    /// Another turn begins: an id that is announced again in it is another call.
    pub(super) fn next_turn(&mut self) {
        self.turn += 1;
    }

    /// Whether the call has ended, and is not announced again in another turn.
    fn is_over(&mut self, id: &str, announces: bool) -> bool {
        let Some(at) = self.ended.iter().position(|(ended, _)| ended == id) else { return false };
        let again = announces && self.ended[at].1 != self.turn;
        if again {
            self.ended.remove(at);
        }
        !again
    }

    /// Ends every call that is open.
    pub(super) fn end(&mut self, session: &str, out: &mut Actions) {
        while !self.open.is_empty() {
            let call = &mut self.open[0];
            let mut update = Map::new();
            update.insert("sessionUpdate".into(), "tool_call_update".into());
            update.insert("toolCallId".into(), call.id.clone().into());
            update.insert("status".into(), "failed".into());
            call.displays.show(&mut update, call.content.as_ref());
            out.near(update_line(session, update));
            self.ended(0);
        }
    }

    /// The user allowed the call: it runs, whether the agent says so or not.
    pub(super) fn runs(&mut self, session: &str, id: &str, out: &mut Actions) {
        if let Some(call) = self.place(id).filter(|call| call.stage == 0) {
            call.stage = 1;
            let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "in_progress" });
            if let Value::Object(update) = update {
                out.near(update_line(session, update));
            }
        }
    }
}

impl AcpOverAcp {
    /// `tool_call` and `tool_call_update`.
    pub(super) fn call_said(
        &mut self,
        session: &str,
        line: &[u8],
        params: Raw<'_>,
        update: &RawValue,
        is_new: bool,
        out: &mut Actions,
    ) {
        let shows_terminals = self.editor.shows_terminals;
        let Some(session_state) = self.sessions.get_mut(session) else { return };
        let Ok(mut said) = serde_json::from_str::<Map<String, Value>>(update.get()) else {
            // Half of a surrogate pair, say: it passes as it is.
            return out.near(line.to_vec());
        };
        let Some(id) = said.get("toolCallId").and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned)
        else {
            return out.note("a call without an id");
        };
        let terminals = &session_state.made;
        let calls = &mut session_state.calls;
        let mut changed = strict::mend_call(&mut said);
        if calls.is_over(&id, is_new) {
            // It has ended: what is said of it may still be worth showing, its status is not.
            changed |= said.remove("status").is_some();
            let says = said.keys().any(|name| !matches!(name.as_str(), "sessionUpdate" | "toolCallId" | "_meta"))
                || is_of_a_terminal(&said);
            if is_new || !says {
                return out.note("an update of a call that has ended");
            }
            return out.near(if changed { changed_line(params, &said) } else { line.to_vec() });
        }
        let is_known = calls.place(&id).is_some();
        if !is_known {
            if calls.open.len() >= OPEN {
                calls.ended(0);
            }
            calls.open.push(Call::new(&id));
        }
        let Some(call) = calls.place(&id) else { return };
        if said.get("title").is_some_and(|title| title == "") {
            said.remove("title");
            changed = true;
        }
        // A question may have announced it; its own announcement is an update then.
        if is_new && is_known {
            said.insert("sessionUpdate".into(), "tool_call_update".into());
            changed = true;
        }
        if stage(said.get("status")).is_some_and(|stage| stage < call.stage) {
            said.remove("status");
            changed = true;
        }
        let said_stage = stage(said.get("status"));
        let told = call.stage;
        let ends = said_stage == Some(2);
        if !ends {
            changed |= call.arguments.take(&mut said, call.input.as_ref(), is_new && is_known);
        }
        changed |= call.displays.take(&mut said, terminals, shows_terminals);
        call.know(&said);
        if ends {
            changed |= call.displays.show(&mut said, call.content.as_ref());
            changed |= output::complete(call, &mut said);
        }
        if !is_known && is_new {
            changed |= call.fill(&mut said);
            call.know(&said);
        } else if !is_known {
            let announcement = announcement(call, &said);
            out.near(update_line(session, announcement));
        }
        if ends {
            let at = calls.open.iter().position(|call| call.id == id);
            if let Some(at) = at {
                calls.ended(at);
            }
        }
        // Nothing may be left of it but what the editor knows.
        let is_news = |name: &String| match name.as_str() {
            "sessionUpdate" | "toolCallId" => false,
            "_meta" => is_of_a_terminal(&said),
            "status" => ends || told < said_stage.unwrap_or(told),
            _ => true,
        };
        if changed && is_known && !said.keys().any(is_news) {
            return;
        }
        out.near(if changed { changed_line(params, &said) } else { line.to_vec() });
    }

    /// The `toolCall` of a question, completed; announces the call if the editor does not know it. `None`: it has no id, or
    /// has ended.
    pub(super) fn call_asked(
        &mut self,
        session: &str,
        mut said: Map<String, Value>,
        out: &mut Actions,
    ) -> Option<(String, Map<String, Value>)> {
        let shows_terminals = self.editor.shows_terminals;
        let session_state = self.sessions.get_mut(session)?;
        let id = said.get("toolCallId").and_then(Value::as_str).filter(|id| !id.is_empty())?.to_owned();
        strict::mend_call(&mut said);
        let calls = &mut session_state.calls;
        if calls.is_over(&id, true) {
            return None;
        }
        let is_known = calls.place(&id).is_some();
        if !is_known {
            calls.open.push(Call::new(&id));
        }
        let call = calls.place(&id)?;
        call.arguments.take(&mut said, call.input.as_ref(), is_known);
        call.displays.take(&mut said, &session_state.made, shows_terminals);
        if said.get("title").is_some_and(|title| title == "") {
            said.remove("title");
        }
        // What a question shows describes the call; its output is still to come.
        let content = call.content.take();
        let for_good = call.shows_for_good;
        call.know(&said);
        if !is_known {
            out.near(update_line(session, announcement(call, &said)));
        } else if content.is_some() {
            call.content.clone_from(&content);
            call.shows_for_good |= for_good;
        }
        said.entry("title").or_insert_with(|| call.title.clone().unwrap_or_else(|| "Tool call".into()).into());
        for (name, known) in [
            ("kind", call.kind.clone().map(Value::from)),
            ("rawInput", call.input.clone()),
            ("content", content),
            ("locations", call.locations.clone()),
        ] {
            if let Some(known) = known.filter(|_| !said.contains_key(name)) {
                said.insert(name.into(), known);
            }
        }
        let status = if call.stage == 0 { "pending" } else { "in_progress" };
        said.insert("status".into(), status.into());
        Some((id, said))
    }
}

/// Whether `_meta` tells of a terminal that is only for display.
fn is_of_a_terminal(said: &Map<String, Value>) -> bool {
    let meta = said.get("_meta").and_then(Value::as_object);
    meta.is_some_and(|meta| meta.keys().any(|name| name.starts_with("terminal_")))
}

/// The announcement of a call that the agent did not announce.
fn announcement(call: &Call, said: &Map<String, Value>) -> Map<String, Value> {
    let mut new = said.clone();
    for name in ["status", "rawOutput", "content"] {
        new.remove(name);
    }
    if let Some(content) = said.get("content").filter(|_| stage(said.get("status")) != Some(2)) {
        new.insert("content".into(), content.clone());
    }
    new.insert("sessionUpdate".into(), "tool_call".into());
    call.fill(&mut new);
    new
}
