//! The life of a call.
//!
//! Owns every open call. Keeps: a call is announced before anything refers to it, is `in_progress` before it is
//! `completed`, and is closed exactly once: with its result, with its turn, with its process; one that runs in the
//! background when it really ends (design, section 3, rule 3; reports 61 and 62).

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

use serde_json::value::RawValue;

use super::AcpOverClaude;
use super::cards::{self, Input, Output, ToolUseResult};
use crate::mappings::{ContentRule, Mappings};
use crate::translate::partial_json::PartialObject;
use crate::translate::{Action, Actions, FileContent, diff};
use crate::wire::acp::{
    ClaudeCodeMeta, ContentBlock, Location, SessionUpdate, TerminalExit, TerminalInfo, TerminalOutput, ToolCall,
    ToolCallContent, ToolMeta, ToolStatus,
};
use crate::wire::stream_json::{Block, SystemLine};
use crate::wire::text::{Raw, boolean, items, text};

use super::stream::BlockKind;
use super::turn::Cancel;

mod tasks;
use tasks::TASK_ENDED;

/// Inputs up to this size are sent as they are; so are larger ones unless a diff shows what they hold.
const RAW_INPUT_LIMIT: usize = 16 * 1024;

/// The preview goes with the question too, for editors that show the question alone, up to this size.
const QUESTION_PREVIEW_LIMIT: usize = 32 * 1024;

/// Ids of closed calls that are remembered: more than the calls of one message.
const CLOSED_KEPT: usize = 256;

/// Calls that may be open at once. What is said of more is noted and not shown, and what they ask for is refused, since
/// nobody could see what it is about.
const OPEN_LIMIT: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Tools {
    open: HashMap<String, Tool>,
    /// Announced ones, in order: they are closed in order.
    order: Vec<String>,
    /// The ids closed last: a call is announced once, whatever is said of it later.
    closed: VecDeque<String>,
    /// Background task → call.
    tasks: HashMap<String, String>,
    effects: u64,
}

#[derive(Debug)]
struct Tool {
    name: String,
    parent: Option<String>,
    input: Option<Box<RawValue>>,
    /// The input can be read by everybody: the lines that carry it can be, too.
    readable: bool,
    /// A diff shows all that the input holds.
    shows_input: bool,
    /// Members that are complete while the input streams.
    fields: Vec<(String, String)>,
    title: String,
    locations: Vec<Location>,
    preview: Vec<ToolCallContent<'static>>,
    announced: bool,
    status: ToolStatus,
    /// The file is being read for the preview.
    reading: Option<(u64, PathBuf)>,
    /// What the preview took for the old text.
    old: Option<FileContent>,
    /// It goes on after its result.
    background: bool,
    /// A task was started for it: the task's notification ends it.
    task: bool,
    /// How its task ended, until the notification tells the rest.
    over: Option<(ToolStatus, Option<String>)>,
    /// It was refused; what the user is told.
    refused: Option<String>,
    /// It is shown as a terminal of its own.
    terminal: bool,
}

impl Tools {
    /// Whether the preview is still being made.
    pub(super) fn is_preparing(&self, id: &str) -> bool {
        self.open.get(id).is_some_and(|t| t.reading.is_some())
    }

    /// Whether the call is known and not closed.
    pub(super) fn is_open(&self, id: &str) -> bool {
        self.open.contains_key(id)
    }

    /// A refusal is shown with the call's result.
    pub(super) fn refused(&mut self, id: &str, why: &str) {
        if let Some(tool) = self.open.get_mut(id) {
            tool.refused = Some(why.to_owned());
        }
    }

    /// The call as a question shows it.
    pub(super) fn card_for_question<'a>(&'a self, id: &'a str, maps: &Mappings) -> ToolCall<'a> {
        let mut call = ToolCall { tool_call_id: id.into(), status: Some(ToolStatus::Pending), ..ToolCall::default() };
        if let Some(tool) = self.open.get(id) {
            call.title = Some((&*tool.title).into());
            call.raw_input = tool.raw_input();
            call.meta = Some(tool.meta());
            if !tool.locations.is_empty() {
                call.locations = Some(tool.locations.clone());
            }
            call.content = tool.content_for_question(id, maps);
        }
        call
    }

    /// Whether the call was closed a while ago.
    pub(super) fn was_closed(&self, id: &str) -> bool {
        self.closed.iter().any(|c| c == id)
    }

    fn remove(&mut self, id: &str) -> Option<Tool> {
        self.order.retain(|o| o != id);
        if self.closed.len() >= CLOSED_KEPT {
            self.closed.pop_front();
        }
        self.closed.push_back(id.to_owned());
        self.open.remove(id)
    }

    /// Whether the call belongs to work that goes on after the turn.
    fn is_background(&self, id: &str) -> bool {
        let mut at = Some(id);
        // A chain of subagents is short; the bound is against a loop.
        for _ in 0..64 {
            match at.and_then(|id| self.open.get(id)) {
                Some(tool) if tool.background => return true,
                Some(tool) => at = tool.parent.as_deref(),
                None => return false,
            }
        }
        false
    }
}

fn size(content: &[ToolCallContent<'_>]) -> usize {
    content
        .iter()
        .map(|c| match c {
            ToolCallContent::Diff { old_text, new_text, .. } => {
                old_text.as_ref().map_or(0, |t| t.len()) + new_text.len()
            }
            ToolCallContent::Content { content: ContentBlock::Text { text } } => text.len(),
            ToolCallContent::Content { .. } | ToolCallContent::Terminal { .. } => 0,
        })
        .sum()
}

impl Tool {
    /// The input, unless it is large and shown as a diff.
    fn raw_input(&self) -> Option<&RawValue> {
        let fits = |raw: &&RawValue| !self.shows_input || raw.get().len() <= RAW_INPUT_LIMIT;
        self.input.as_deref().filter(|_| self.readable).filter(fits)
    }

    /// What a question shows, for editors that show the question alone; content replaces what the card holds, so a
    /// terminal stays the first of it.
    fn content_for_question(&self, id: &str, maps: &Mappings) -> Option<Vec<ToolCallContent<'static>>> {
        let mut content = Vec::new();
        if self.terminal {
            content.push(ToolCallContent::Terminal { terminal_id: id.to_owned().into() });
        }
        if self.preview.is_empty() && !maps.tools.get(&self.name).is_listed() {
            // Nothing else says what such a tool is to do.
            content.extend(self.input.as_deref().map(cards::whole_input));
        } else if self.terminal || size(&self.preview) <= QUESTION_PREVIEW_LIMIT {
            content.extend(self.preview.iter().cloned());
        }
        (content.len() > usize::from(self.terminal)).then_some(content)
    }

    fn meta(&self) -> ToolMeta<'_> {
        ToolMeta {
            claude_code: Some(ClaudeCodeMeta {
                tool_name: (&*self.name).into(),
                parent_tool_use_id: self.parent.as_deref().map(Into::into),
            }),
            ..ToolMeta::default()
        }
    }
}

/// What an update of a call carries.
#[derive(Debug, Default)]
struct Change {
    title: bool,
    locations: bool,
    input: bool,
    status: Option<ToolStatus>,
    content: Option<Vec<ToolCallContent<'static>>>,
    /// Output for a terminal card.
    output: Option<String>,
    exit: Option<Option<i64>>,
}

impl AcpOverClaude {
    fn cwd(&self) -> PathBuf {
        self.opening.as_ref().map(|o| o.cwd().to_owned()).unwrap_or_default()
    }

    /// `content_block_start` of a call: it has a name, and its input will stream.
    pub(super) fn tool_starts(&mut self, parent: Option<&str>, index: usize, block: &Block<'_>, out: &mut Actions) {
        let (Some(id), Some(name)) = (text(block.id), text(block.name)) else { return };
        let kind = BlockKind::Tool { id: id.clone().into_owned(), fields: PartialObject::default() };
        self.streams.of(parent).start_block(index, kind);
        self.meet(&id, &name, parent, out);
        if self.set.mappings.tools.get(&name).card() {
            self.announce(&id, out);
        }
        self.parent_runs(parent, out);
    }

    /// Makes the call known.
    fn meet(&mut self, id: &str, name: &str, parent: Option<&str>, out: &mut Actions) {
        if self.tools.open.contains_key(id) || self.tools.was_closed(id) {
            return;
        }
        if self.tools.open.len() >= OPEN_LIMIT {
            return out.note(format!("{OPEN_LIMIT} calls are open; {id} is not shown"));
        }
        let row = self.set.mappings.tools.get(name);
        let tool = Tool {
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            input: None,
            readable: false,
            shows_input: false,
            fields: Vec::new(),
            title: row.title(|_| None),
            locations: Vec::new(),
            preview: Vec::new(),
            announced: false,
            status: ToolStatus::Pending,
            reading: None,
            old: None,
            background: false,
            task: false,
            over: None,
            refused: None,
            terminal: self.set.client.terminal_output && row.content() == ContentRule::Console,
        };
        self.tools.open.insert(id.to_owned(), tool);
    }

    /// A subagent that does something runs.
    fn parent_runs(&mut self, parent: Option<&str>, out: &mut Actions) {
        if let Some(parent) = parent {
            self.tool_runs(parent, out);
        }
    }

    fn announce(&mut self, id: &str, out: &mut Actions) {
        let Some(tool) = self.tools.open.get_mut(id).filter(|t| !t.announced) else { return };
        tool.announced = true;
        let tool = &*tool;
        let row = self.set.mappings.tools.get(&tool.name);
        let mut call = ToolCall {
            tool_call_id: id.into(),
            title: Some((&*tool.title).into()),
            kind: Some(row.kind().as_str().into()),
            status: Some(tool.status),
            locations: (!tool.locations.is_empty()).then(|| tool.locations.clone()),
            raw_input: tool.raw_input(),
            meta: Some(tool.meta()),
            content: (!tool.preview.is_empty()).then(|| tool.preview.clone()),
        };
        if tool.terminal {
            call.content = Some(vec![ToolCallContent::Terminal { terminal_id: id.into() }]);
            if let Some(meta) = &mut call.meta {
                meta.terminal_info = Some(TerminalInfo { terminal_id: id.into() });
            }
        }
        out.update(&self.set.session_id, SessionUpdate::ToolCall(call));
        self.tools.order.push(id.to_owned());
    }

    /// Tells a change of an announced call.
    fn change(&self, id: &str, change: Change, out: &mut Actions) {
        let Some(tool) = self.tools.open.get(id).filter(|t| t.announced) else { return };
        let mut meta = tool.meta();
        meta.terminal_output = change.output.map(|data| TerminalOutput { terminal_id: id.into(), data: data.into() });
        meta.terminal_exit =
            change.exit.map(|exit_code| TerminalExit { terminal_id: id.into(), exit_code, signal: None });
        let call = ToolCall {
            tool_call_id: id.into(),
            title: change.title.then(|| (&*tool.title).into()),
            locations: change.locations.then(|| tool.locations.clone()),
            raw_input: if change.input { tool.raw_input() } else { None },
            status: change.status,
            content: change.content,
            meta: Some(meta),
            kind: None,
        };
        out.update(&self.set.session_id, SessionUpdate::ToolCallUpdate(call));
    }

    /// A piece of a call's input: title and place as soon as they are known.
    pub(super) fn tool_input(&mut self, parent: Option<&str>, index: usize, piece: &str, out: &mut Actions) {
        let Some((id, fields)) = self.streams.of(parent).tool(index) else { return };
        let complete = fields.feed(piece);
        if complete.is_empty() {
            return;
        }
        let id = id.to_owned();
        let cwd = self.cwd();
        let Some(tool) = self.tools.open.get_mut(&id).filter(|t| t.input.is_none()) else { return };
        tool.fields.extend(complete);
        let fields = std::mem::take(&mut tool.fields);
        let get = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| Cow::Borrowed(&**v));
        let change = tool.describe(&self.set.mappings, &get, &cwd);
        tool.fields = fields;
        if change.title || change.locations {
            self.change(&id, change, out);
        }
    }

    /// The whole input of a call.
    pub(super) fn tool_whole(&mut self, parent: Option<&str>, id: &str, name: &str, input: Raw<'_>, out: &mut Actions) {
        self.meet(id, name, parent, out);
        if self.tools.open.get(id).is_some_and(|t| t.input.is_none()) {
            self.take_input(id, input, out);
        }
        if self.set.mappings.tools.get(name).card() {
            self.announce(id, out);
        }
        self.parent_runs(parent, out);
    }

    /// The input of a call is known: title, place, preview.
    fn take_input(&mut self, id: &str, input: Raw<'_>, out: &mut Actions) {
        let maps = self.set.mappings.clone();
        let cwd = self.cwd();
        let Some(tool) = self.tools.open.get_mut(id) else { return };
        let name = tool.name.clone();
        let row = maps.tools.get(&name);
        tool.input = input.map(ToOwned::to_owned);
        tool.readable = input.is_some_and(cards::is_readable);
        tool.fields = Vec::new();
        let members = Input::read(input);
        let mut change = tool.describe(&maps, &|n| members.get(n), &cwd);
        change.input = true;
        let before = std::mem::replace(&mut tool.preview, cards::preview(&row, &members, &tool.title, &cwd));
        tool.shows_input =
            matches!(row.content(), ContentRule::DiffEdit | ContentRule::DiffCell) && !tool.preview.is_empty();
        tool.reading = None;
        if tool.preview != before && !tool.terminal {
            change.content = Some(tool.preview.clone());
        }
        if row.content() == ContentRule::DiffWrite
            && let Some(path) = row.path().and_then(|n| members.get(n))
            && row.new_text().is_some_and(|n| members.get(n).is_some())
        {
            self.tools.effects += 1;
            let path = cards::full_path(&path, &cwd);
            tool.shows_input = true;
            tool.reading = Some((self.tools.effects, path.clone()));
            out.push(Action::ReadFile { effect: self.tools.effects, path });
        }
        self.change(id, change, out);
    }

    /// A permission question names a call: it must be announced, whatever was seen of it before, and it shows the input
    /// that is asked about, which a hook may have changed since the call was made.
    pub(super) fn tool_asks(&mut self, id: &str, name: &str, input: Raw<'_>, out: &mut Actions) {
        self.tool_whole(None, id, name, input, out);
        self.announce(id, out);
        let known = self.tools.open.get(id).and_then(|t| t.input.as_deref());
        if input.is_none() || same_json(known, input) {
            return;
        }
        // Claude asks about a plan without repeating it; what is shown of it stays.
        let row = self.set.mappings.tools.get(name);
        let shows = |raw: Raw<'_>| row.preview().is_some_and(|n| Input::read(raw).get(n).is_some());
        if row.content() == ContentRule::Plan && shows(known) && !shows(input) {
            return;
        }
        self.take_input(id, input, out);
    }

    /// The file of a preview was read.
    pub(super) fn file_read(&mut self, effect: u64, content: FileContent, out: &mut Actions) {
        let waiting = self.tools.open.iter_mut().find(|(_, t)| t.reading.as_ref().is_some_and(|(e, _)| *e == effect));
        let Some((id, tool)) = waiting else { return };
        let Some((_, path)) = tool.reading.take() else { return };
        let id = id.clone();
        let row = self.set.mappings.tools.get(&tool.name);
        let members = Input::read(tool.input.as_deref());
        let new = row.new_text().and_then(|n| members.get(n)).unwrap_or_default();
        tool.preview = cards::write_preview(&path, &new, &content);
        tool.old = Some(content);
        if !tool.preview.is_empty() {
            let content = Some(tool.preview.clone());
            self.change(&id, Change { content, ..Change::default() }, out);
        }
        self.ask_ready(out);
    }

    /// The call runs.
    pub(super) fn tool_runs(&mut self, id: &str, out: &mut Actions) {
        let Some(tool) = self.tools.open.get_mut(id) else { return };
        if tool.status != ToolStatus::Pending {
            return;
        }
        tool.status = ToolStatus::InProgress;
        self.change(id, Change { status: Some(ToolStatus::InProgress), ..Change::default() }, out);
    }

    /// A `tool_result`.
    pub(super) fn tool_result(
        &mut self,
        block: &Block<'_>,
        tool_use_result: Raw<'_>,
        meta: Raw<'_>,
        out: &mut Actions,
    ) {
        let Some(id) = text(block.tool_use_id) else { return };
        let maps = self.set.mappings.clone();
        let Some(tool) = self.tools.open.get(&*id) else {
            out.note(format!("a result of no open call ({id})"));
            return;
        };
        let (name, background) = (tool.name.clone(), tool.background);
        let rule = maps.tools.get(&name).content();
        let failed = boolean(block.is_error) == Some(true);
        let result = ToolUseResult::read(tool_use_result);
        // The plan is the main conversation's; a subagent keeps a list of its own.
        if matches!(rule, ContentRule::Todo | ContentRule::Task) && !failed && tool.parent.is_none() {
            self.plan.apply(&name, tool.input.as_deref(), tool_use_result);
            self.tell_plan(out);
        }
        let task = text(result.background_task_id);
        if !failed && (background || task.is_some() || boolean(result.is_async) == Some(true)) {
            // What claude writes here is for the model; the call ends when its task does.
            if let Some(task) = task {
                self.tools.tasks.insert(task.into_owned(), id.clone().into_owned());
            }
            if let Some(tool) = self.tools.open.get_mut(&*id) {
                tool.background = true;
            }
            self.tool_runs(&id, out);
            return;
        }
        if failed {
            // Also one without a card: its failure would be seen nowhere.
            self.announce(&id, out);
        }
        let cancelled = self.turns.running().is_some_and(|t| t.cancel != Cancel::No);
        let Some(tool) = self.tools.open.get_mut(&*id) else { return };
        let never_ran = non_execution(meta, &id) || (failed && tool.refused.is_some());
        let mut output = Output::read(block.content);
        for kind in std::mem::take(&mut output.skipped) {
            out.note(format!("skipped a `{kind}` block in the result of {id}"));
        }
        output = match rule {
            ContentRule::Console if !failed => output.of_command(&result),
            ContentRule::Report if !failed => output.of_subagent(&result),
            _ => output,
        };
        let said = output.text();
        let bounded = |s: &str| cards::bounded(s).into_owned();
        let mut change = Change::default();
        if never_ran {
            change.status = Some(ToolStatus::Failed);
            let why = match tool.refused.take() {
                Some(why) => why,
                // What claude writes here is for the model.
                None if cancelled => "the user cancelled the turn".to_owned(),
                None => bounded(&said),
            };
            let said = format!("{}: {why}", if tool.status == ToolStatus::Pending { "Not run" } else { "Stopped" });
            // What was refused stays visible.
            let mut content = std::mem::take(&mut tool.preview);
            content.push(ToolCallContent::text(said.clone()));
            change.content = Some(content);
            change.output = Some(said);
            change.exit = Some(None);
        } else if failed {
            change.status = Some(ToolStatus::Failed);
            change.content = Some(match rule {
                ContentRule::Console => vec![cards::fenced("console", &said)],
                _ => vec![ToolCallContent::text(bounded(&said))],
            });
            change.exit = Some(cards::exit_code(&said));
            change.output = Some(bounded(cards::without_exit_code(&said)));
        } else {
            change.status = Some(ToolStatus::Completed);
            tool.outcome(rule, &result, &mut change);
            if change.content.is_none() && !tool.terminal {
                change.content = cards::show(output, rule, &result);
            }
            change.exit = Some(Some(0));
            change.output = Some(bounded(&said));
        }
        if tool.terminal {
            // The terminal is the card; its text is not told twice.
            change.content = None;
        } else {
            change.output = None;
            change.exit = None;
        }
        if !never_ran {
            self.tool_runs(&id, out);
        }
        self.finish_tool(&id, change, "the call has ended", out);
    }

    /// Closes a call; nothing more is said of it.
    fn finish_tool(&mut self, id: &str, change: Change, why: &str, out: &mut Actions) {
        self.finish_one(id, change, why, out);
        // What a subagent began does not outlive it. A list of work: how deep subagents go is claude's to say.
        let mut ended = vec![id.to_owned()];
        while let Some(parent) = ended.pop() {
            let is_child =
                |o: &&String| self.tools.open.get(*o).is_some_and(|t| t.parent.as_deref() == Some(parent.as_str()));
            let children: Vec<String> = self.tools.order.iter().filter(is_child).cloned().collect();
            for child in children {
                let why = "the subagent that made this call has ended";
                if let Some((change, why)) = self.unfinished(&child, ToolStatus::Failed, why, out) {
                    self.finish_one(&child, change, &why, out);
                    ended.push(child);
                }
            }
        }
    }

    fn finish_one(&mut self, id: &str, change: Change, why: &str, out: &mut Actions) {
        self.withdraw_questions_of(id, why, out);
        self.change(id, change, out);
        self.streams.forget_child(id);
        self.tools.remove(id);
        self.tools.tasks.retain(|_, call| call != id);
    }

    /// A call that exists only to show what a question is about ends with the question.
    pub(super) fn close_question_call(&mut self, id: &str, allowed: bool, out: &mut Actions) {
        if allowed {
            let change = Change { status: Some(ToolStatus::Completed), ..Change::default() };
            self.finish_tool(id, change, "the question was answered", out);
        } else {
            self.give_up(id, ToolStatus::Failed, "the call was not allowed", out);
        }
    }

    /// The message that made these calls broke off before their input was whole: the calls that will run are told anew.
    pub(super) fn calls_broke_off(&mut self, ids: &[String], out: &mut Actions) {
        for id in ids {
            self.give_up(id, ToolStatus::Failed, "the model's answer broke off here", out);
        }
    }

    /// Closes what is open: with the turn the calls that belong to it, with the process or the editor all.
    pub(super) fn close_tools(&mut self, status: ToolStatus, why: &str, out: &mut Actions) {
        let all = !self.far.is_up() || self.near_closed;
        let ids: Vec<String> =
            self.tools.order.iter().filter(|id| all || !self.tools.is_background(id)).cloned().collect();
        for id in ids {
            self.give_up(&id, status, why, out);
        }
        // Those without a card are forgotten with the rest.
        if all {
            self.tools.open.clear();
            self.tools.tasks.clear();
        } else {
            let order = &self.tools.order;
            self.tools.open.retain(|id, _| order.contains(id));
        }
    }

    /// Closes a call that has no result.
    fn give_up(&mut self, id: &str, status: ToolStatus, why: &str, out: &mut Actions) {
        if let Some((change, why)) = self.unfinished(id, status, why, out) {
            self.finish_tool(id, change, &why, out);
        }
    }

    /// What is told of a call that has no result, and why it is closed.
    fn unfinished(&mut self, id: &str, status: ToolStatus, why: &str, out: &mut Actions) -> Option<(Change, String)> {
        let tool = self.tools.open.get_mut(id)?;
        if let Some((status, said)) = tool.over.take() {
            return Some((self.task_ended(id, status, said, out)?, TASK_ENDED.to_owned()));
        }
        let why = tool.refused.take().unwrap_or_else(|| why.to_owned());
        let mut content = std::mem::take(&mut tool.preview);
        content.push(ToolCallContent::text(format!("Not finished: {why}")));
        let mut change = Change { status: Some(status), content: Some(content), ..Change::default() };
        if tool.terminal {
            change.content = None;
            change.output = Some(format!("Not finished: {why}"));
            change.exit = Some(None);
        }
        Some((change, why))
    }

    /// The plan, if it changed.
    pub(super) fn tell_plan(&mut self, out: &mut Actions) {
        if let Some(entries) = self.plan.changed() {
            out.update(&self.set.session_id, SessionUpdate::Plan { entries: &entries });
        }
    }

    /// `permission_denied`: claude refused by itself.
    pub(super) fn permission_denied(&mut self, line: &SystemLine<'_>) {
        if let (Some(id), Some(message)) = (text(line.tool_use_id), text(line.message)) {
            self.tools.refused(&id, &message);
        }
    }
}

impl Tool {
    /// Title and place, as far as the input is known; says which of them changed.
    fn describe<'v>(&mut self, maps: &Mappings, get: &dyn Fn(&str) -> Option<Cow<'v, str>>, cwd: &Path) -> Change {
        let row = maps.tools.get(&self.name);
        let title = row.title(|n| get(n).map(|v| cards::for_title(&row, n, v, cwd)));
        let locations: Vec<Location> = cards::location(&row, get, cwd).into_iter().collect();
        let change = Change { title: title != self.title, locations: locations != self.locations, ..Change::default() };
        self.title = title;
        self.locations = locations;
        change
    }

    /// What an edit really did: told where the preview did not show it, and where in the file.
    fn outcome(&mut self, rule: ContentRule, result: &ToolUseResult<'_>, change: &mut Change) {
        let pieces = match rule {
            ContentRule::DiffEdit | ContentRule::DiffCell => cards::edited(result, rule),
            ContentRule::DiffWrite => {
                let original = text(result.original_file);
                let shown = match (&self.old, &original) {
                    (Some(FileContent::Text(old)), Some(original)) => **old == **original,
                    (Some(FileContent::Missing), None) => true,
                    _ => false,
                };
                if shown && boolean(result.user_modified) != Some(true) {
                    return;
                }
                match (&original, text(result.content)) {
                    (Some(original), Some(new)) => diff::rewritten(Some(original), &new),
                    (None, Some(new)) if result.file_path.is_some() => diff::rewritten(None, &new),
                    _ => diff::of_patch(result.structured_patch),
                }
            }
            _ => return,
        };
        let Some(place) = self.locations.first() else { return };
        let path = place.path.clone();
        if pieces.is_empty() {
            return;
        }
        let locations: Vec<Location> =
            pieces.iter().map(|p| Location { path: path.clone(), line: Some(p.line) }).collect();
        if rule != ContentRule::DiffWrite {
            self.locations = locations;
            change.locations = true;
        }
        change.content = Some(cards::diffs(&path, pieces));
    }
}

/// Whether two members say the same, however they are written.
fn same_json(a: Raw<'_>, b: Raw<'_>) -> bool {
    let value = |raw: Raw<'_>| raw.and_then(|r| serde_json::from_str::<serde_json::Value>(r.get()).ok());
    // What cannot be read is equal to nothing but its own text.
    a.map(RawValue::get) == b.map(RawValue::get) || value(a).is_some_and(|a| Some(a) == value(b))
}

/// `tool_result_meta` says that the call never ran.
fn non_execution(meta: Raw<'_>, id: &str) -> bool {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Meta<'a> {
        #[serde(borrow)]
        id: Raw<'a>,
        #[serde(borrow)]
        non_execution_kind: Raw<'a>,
    }
    items(meta).unwrap_or_default().into_iter().filter(|raw| raw.get().starts_with('{')).any(|raw| {
        serde_json::from_str::<Meta<'_>>(raw.get())
            .is_ok_and(|m| m.non_execution_kind.is_some() && text(m.id).as_deref() == Some(id))
    })
}
