//! What is known of one tool call of an ACP agent.
//!
//! Owns the merging of everything that an agent says of a call: `tool_call`, `tool_call_update` and the `toolCall` of a
//! permission question, in whatever order and however often they come (acp-agents.md, section 6, rows 1 to 6). Keeps: what
//! was known is never lost to an emptier message, a call that has ended stays ended, and the arguments that some agents
//! stream as content text are input and never shown as output.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Output of display terminals kept from its start, in bytes.
const HEAD: usize = 384 * 1024;

/// Output of display terminals kept from its end, in bytes.
const TAIL: usize = 128 * 1024;

/// Streamed arguments longer than this are no longer collected; `rawInput` has to bring them.
const ARGUMENTS: usize = 2 * 1024 * 1024;

/// How far a call is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// Announced, or waiting for permission.
    #[default]
    Pending,
    /// Running.
    InProgress,
    /// Ended well.
    Completed,
    /// Ended badly.
    Failed,
}

impl Status {
    /// Whether nothing more happens.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "pending" => Self::Pending,
            "in_progress" => Self::InProgress,
            "completed" => Self::Completed,
            "failed" => Self::Failed,
            _ => return None,
        })
    }
}

/// One piece of what a call shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text, also that of an embedded text resource.
    Text(String),
    /// An image.
    Image {
        /// Its MIME type.
        mime: String,
        /// Base64.
        data: String,
    },
    /// A link, or an embedded resource that is no text.
    Link {
        /// Where it points.
        uri: String,
        /// What it is called; may be empty.
        name: String,
    },
    /// A change of a file. Agents send the whole file or only the part that changes; both look the same.
    Diff {
        /// The file.
        path: String,
        /// What was there. Absent or empty for a new file, and with some agents also for one that is written over.
        old: Option<String>,
        /// What is there then.
        new: String,
    },
    /// A terminal: the client's, or one that exists only for display (its output is in `_meta`).
    Terminal {
        /// Its id.
        id: String,
    },
}

/// How a display terminal ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    /// The exit code; absent when a signal ended it or it never ran.
    pub code: Option<i64>,
}

/// Text that keeps its beginning and its end and says how much is missing between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounded {
    head: String,
    tail: String,
    dropped: usize,
}

impl Bounded {
    /// Adds text at the end.
    pub fn push(&mut self, text: &str) {
        let rest = if self.tail.is_empty() && self.dropped == 0 {
            let taken = crate::wire::text::cut(text, HEAD.saturating_sub(self.head.len()));
            self.head.push_str(taken);
            &text[taken.len()..]
        } else {
            text
        };
        self.tail.push_str(rest);
        // Trimmed only when it has doubled, so that many small pieces do not move it each time.
        if self.tail.len() > 2 * TAIL {
            self.trim();
        }
    }

    fn trim(&mut self) {
        if self.tail.len() > TAIL {
            let mut from = self.tail.len() - TAIL;
            while !self.tail.is_char_boundary(from) {
                from += 1;
            }
            self.dropped += from;
            self.tail.drain(..from);
        }
    }

    /// Whether nothing was added yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// The text; with a marker where something is missing.
    #[must_use]
    pub fn text(&self) -> String {
        let mut all = self.clone();
        all.trim();
        if all.dropped == 0 {
            return all.head + &all.tail;
        }
        format!("{}\n[{} bytes left out]\n{}", all.head, all.dropped, all.tail)
    }
}

/// The arguments that an agent streams as content text, as far as they came.
#[derive(Debug, Clone, Default)]
enum Arguments {
    /// None yet.
    #[default]
    None,
    /// The beginning of an object.
    Partial(String),
    /// All of it.
    Whole(String),
    /// Too long to be collected; more may come.
    TooLong,
}

/// One tool call.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// The agent's id.
    pub id: String,
    /// The last title that says something; may be empty.
    pub title: String,
    /// The first title. Several agents announce a call with its tool's name and give it a pretty title later.
    pub first_title: String,
    /// ACP's kind, as its word.
    pub kind: Option<String>,
    /// The tool's name: ACP's `name`, or one of the places in `_meta` where agents put it.
    pub name: Option<String>,
    /// How far it is.
    pub status: Status,
    /// Its arguments, as complete as they are known.
    pub raw_input: Option<Value>,
    /// What it returned, in the agent's own shape.
    pub raw_output: Option<Value>,
    /// What it shows: the last list that was sent, without texts that are only its arguments. A diff stays until another
    /// one comes.
    pub content: Vec<Content>,
    /// What it has put out: the last list sent by an update while it ran or at its end. `None`: nothing yet (what a
    /// `tool_call` or a question shows describes the call and is not its output).
    pub output: Option<Vec<Content>>,
    /// The files it is about, with the line (counted as the agent does).
    pub locations: Vec<(String, Option<u64>)>,
    /// Output of a display terminal.
    pub terminal: Bounded,
    /// How that terminal ended.
    pub exit: Option<Exit>,
    /// The agent's own account of the result, from `_meta` (CodeBuddy).
    pub raw_response: Option<Value>,
    /// The plan to be approved, where an agent puts it in `_meta` (CodeBuddy).
    pub plan: Option<String>,
    /// The call of the subagent that made this one.
    pub parent: Option<String>,
    /// Whether the agent marks it as a call of an MCP tool.
    pub mcp: bool,
    arguments: Arguments,
}

impl Call {
    /// A call of which only the id is known.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }

    /// Whether its arguments are known in full or in part.
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.raw_input.as_ref().is_some_and(|input| !is_empty(input))
    }

    /// Whether its arguments are being streamed right now and are not complete.
    #[must_use]
    pub fn input_is_partial(&self) -> bool {
        matches!(self.arguments, Arguments::Partial(_) | Arguments::TooLong)
    }

    /// The file changes it shows.
    pub fn diffs(&self) -> impl Iterator<Item = (&str, Option<&str>, &str)> {
        self.content.iter().filter_map(|content| match content {
            Content::Diff { path, old, new } => Some((path.as_str(), old.as_deref(), new.as_str())),
            _ => None,
        })
    }

    /// Takes in a `tool_call`, a `tool_call_update` or the `toolCall` of a permission question (which has no
    /// `sessionUpdate`). A member that is null or of another type counts as absent.
    pub fn merge(&mut self, update: &RawValue) {
        let Value::Object(mut update) = value(update.get()) else { return };
        let word = text(&update, "sessionUpdate").unwrap_or_default();
        let is_update = word == "tool_call_update";
        let is_question = word.is_empty();

        if let Some(title) = text(&update, "title").filter(|title| !title.trim().is_empty()) {
            if self.first_title.is_empty() {
                self.first_title = title.to_owned();
            }
            self.title = title.to_owned();
        }
        if let Some(kind) = text(&update, "kind").filter(|kind| !kind.is_empty()) {
            // `other` says nothing that a kind known before does not say better.
            if kind != "other" || self.kind.is_none() {
                self.kind = Some(kind.to_owned());
            }
        }
        let meta = match update.remove("_meta") {
            Some(Value::Object(meta)) => meta,
            _ => Map::new(),
        };
        if let Some(name) = text(&update, "name").or_else(|| tool_name(&meta)).filter(|name| !name.is_empty()) {
            self.name = Some(name.to_owned());
        }
        if let Some(status) = text(&update, "status").and_then(Status::read)
            && (!self.status.is_final() && status >= self.status)
        {
            self.status = status;
        }
        if let Some(Value::Array(list)) = update.remove("locations") {
            let locations: Vec<_> = list.iter().filter_map(location).collect();
            if !locations.is_empty() {
                self.locations = locations;
            }
        }
        let had_input = self.has_input();
        if let Some(input) = update.remove("rawInput") {
            self.take_input(input, is_question);
        }
        if let Some(output) = update.remove("rawOutput").filter(|output| !output.is_null()) {
            self.raw_output = Some(output);
        }
        self.take_meta(meta);
        if let Some(Value::Array(list)) = update.remove("content") {
            let list: Vec<Content> = list.iter().filter_map(content).collect();
            self.take_content(list, had_input, is_update);
        }
    }

    fn take_input(&mut self, input: Value, is_question: bool) {
        if input.is_null() || (is_empty(&input) && self.has_input()) {
            return;
        }
        match (&mut self.raw_input, input) {
            // A question often carries another view of the arguments (Copilot's and OpenCode's `diff`): it adds to them.
            (Some(Value::Object(known)), Value::Object(more)) if is_question => known.extend(more),
            (known, input) => *known = Some(input),
        }
    }

    fn take_meta(&mut self, mut meta: Map<String, Value>) {
        for key in ["terminal_output", "terminal_output_delta"] {
            if let Some(data) = meta.get(key).and_then(|output| output.get("data")).and_then(Value::as_str) {
                self.terminal.push(data);
            }
        }
        if let Some(exit) = meta.get("terminal_exit").filter(|exit| exit.is_object()) {
            self.exit = Some(Exit { code: exit.get("exit_code").and_then(Value::as_i64) });
        }
        if let Some(parent) = parent_call(&meta) {
            self.parent = Some(parent.to_owned());
        }
        if meta.get("is_mcp_tool_call") == Some(&Value::Bool(true)) {
            self.mcp = true;
        }
        if let Some(response) = meta.remove("codebuddy.ai/rawResponse").filter(Value::is_object) {
            self.raw_response = Some(response);
        }
        if let Some(plan) = text(&meta, "codebuddy.ai/planContent") {
            self.plan = Some(plan.to_owned());
        }
    }

    fn take_content(&mut self, list: Vec<Content>, had_input: bool, is_update: bool) {
        let only_text = !list.is_empty() && list.iter().all(|content| matches!(content, Content::Text(_)));
        if only_text {
            let all: String = list.iter().filter_map(Content::as_text).collect();
            if self.take_arguments(&all, had_input) {
                return;
            }
        }
        let list: Vec<Content> =
            list.into_iter().filter(|content| !matches!(content, Content::Text(text) if text.is_empty())).collect();
        if self.status.is_final() || (is_update && !self.only_describes(&list)) {
            self.output = Some(list.clone());
        }
        let has_diff = list.iter().any(|content| matches!(content, Content::Diff { .. }));
        if has_diff {
            self.content = list;
        } else {
            self.content.retain(|content| matches!(content, Content::Diff { .. }));
            self.content.extend(list);
        }
    }

    /// Whether content says only what the arguments say already (Grok shows a command's description).
    fn only_describes(&self, list: &[Content]) -> bool {
        let description = self.raw_input.as_ref().and_then(|input| input.get("description")).and_then(Value::as_str);
        match list {
            [Content::Text(text)] => Some(text.as_str()) == description || *text == self.title,
            _ => false,
        }
    }

    /// Whether a text is (a piece of) the call's arguments; takes it in if so.
    fn take_arguments(&mut self, text: &str, had_input: bool) -> bool {
        if self.status.is_final() || text.is_empty() {
            return false;
        }
        let has_input = self.has_input();
        let whole = match &mut self.arguments {
            Arguments::TooLong => return true,
            Arguments::Whole(known) => return known == text,
            Arguments::Partial(known) => {
                // The text so far and more (Kimi), or only the next piece (CodeBuddy).
                if text.starts_with(known.as_str()) {
                    text.to_owned()
                } else {
                    let mut known = std::mem::take(known);
                    known.push_str(text);
                    known
                }
            }
            // Only the last piece was sent, together with what all of them say (CodeBuddy, which leaves some out).
            Arguments::None if !had_input && has_input && text.ends_with('}') && !text.starts_with('{') => {
                self.arguments = Arguments::Whole(text.to_owned());
                return true;
            }
            Arguments::None => {
                if !text.trim_start().starts_with('{') || had_input && !self.is_input(text) {
                    return false;
                }
                match serde_json::from_str::<Map<String, Value>>(text) {
                    Ok(_) => {}
                    Err(e) if e.is_eof() => {}
                    Err(_) => return false,
                }
                text.to_owned()
            }
        };
        if whole.len() > ARGUMENTS {
            self.arguments = Arguments::TooLong;
            return true;
        }
        // An object that is not closed cannot be read; trying it with each piece would cost the square of its length.
        let object = whole.trim_end().ends_with('}').then(|| value(&whole)).filter(Value::is_object);
        self.arguments = match object {
            Some(object) => {
                if !self.has_input() {
                    self.raw_input = Some(object);
                }
                Arguments::Whole(whole)
            }
            None => Arguments::Partial(whole),
        };
        true
    }

    fn is_input(&self, text: &str) -> bool {
        self.raw_input.as_ref() == Some(&value(text))
    }
}

impl Content {
    /// Its text, if it is text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Whether arguments say nothing.
fn is_empty(input: &Value) -> bool {
    match input {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key)?.as_str()
}

/// The tool's name in `_meta`, wherever the agents put it (acp-agents.md, section 3).
fn tool_name(meta: &Map<String, Value>) -> Option<&str> {
    let inner = |key: &str, name: &str| meta.get(key)?.get(name)?.as_str();
    text(meta, "toolName")
        .or_else(|| text(meta, "codebuddy.ai/toolName"))
        .or_else(|| text(meta, "tool_name"))
        .or_else(|| inner("x.ai/tool", "name"))
        .or_else(|| inner("claudeCode", "toolName"))
}

/// The call of the subagent that something is from: Qwen's and Claude's place for it.
pub(super) fn parent_call(meta: &Map<String, Value>) -> Option<&str> {
    let claude = || meta.get("claudeCode")?.get("parentToolUseId")?.as_str();
    text(meta, "parentToolCallId").or_else(claude).filter(|parent| !parent.is_empty())
}

fn location(raw: &Value) -> Option<(String, Option<u64>)> {
    let path = raw.get("path")?.as_str().filter(|path| !path.is_empty())?;
    Some((path.to_owned(), raw.get("line").and_then(Value::as_u64)))
}

/// One item of `content`; `None` for what has nothing to show.
fn content(raw: &Value) -> Option<Content> {
    let map = raw.as_object()?;
    match text(map, "type")? {
        "content" => block(map.get("content")?),
        "diff" => Some(Content::Diff {
            path: text(map, "path")?.to_owned(),
            old: text(map, "oldText").map(str::to_owned),
            new: text(map, "newText").unwrap_or_default().to_owned(),
        }),
        "terminal" => Some(Content::Terminal { id: text(map, "terminalId")?.to_owned() }),
        // A content block without its wrapper.
        _ => block(raw),
    }
}

fn block(raw: &Value) -> Option<Content> {
    let map = raw.as_object()?;
    match text(map, "type")? {
        "text" => Some(Content::Text(text(map, "text")?.to_owned())),
        "image" => Some(Content::Image {
            mime: text(map, "mimeType").unwrap_or("image/png").to_owned(),
            data: text(map, "data").unwrap_or_default().to_owned(),
        }),
        "audio" => Some(Content::Text("[audio]".to_owned())),
        "resource_link" => Some(Content::Link {
            uri: text(map, "uri")?.to_owned(),
            name: text(map, "title").or_else(|| text(map, "name")).unwrap_or_default().to_owned(),
        }),
        "resource" => {
            let resource = map.get("resource")?.as_object()?;
            match text(resource, "text") {
                Some(inner) => Some(Content::Text(inner.to_owned())),
                None => Some(Content::Link { uri: text(resource, "uri")?.to_owned(), name: String::new() }),
            }
        }
        _ => None,
    }
}

/// Reads JSON as a value; `Null` when it is none. Halves of surrogate pairs, which agents leave where they cut a text, are
/// replaced instead of losing the whole message.
pub(super) fn value(json: &str) -> Value {
    serde_json::from_str(json).or_else(|_| serde_json::from_str(&whole_pairs(json))).unwrap_or_default()
}

/// The JSON with every escape of half a surrogate pair replaced by that of U+FFFD.
fn whole_pairs(json: &str) -> String {
    let unit = |at: usize| {
        let escape = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(escape, 16).ok()
    };
    let mut out = String::with_capacity(json.len());
    let mut at = 0;
    while let Some(step) = json[at..].find('\\') {
        out.push_str(&json[at..at + step]);
        at += step;
        let length = match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                out.push_str("\\ufffd");
                at += 6;
                continue;
            }
            Some(_) => 6,
            // A backslash and what it escapes; the latter may be no ASCII in text that is no JSON at all.
            None => 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
        out.push_str(&json[at..at + length]);
        at += length;
    }
    out.push_str(&json[at..]);
    out
}

#[cfg(test)]
mod tests;
