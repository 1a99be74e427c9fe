//! How a call looks: title, place and content, made from its input and its result by the row of `tools.toml`.
//!
//! Owns the rules that the table names. Keeps: what was written for the model (tags, "do not mention this") is not shown
//! to a person; output is bounded, and says so where it is cut.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::mappings::{ContentRule, ToolRow, is_hidden};
use crate::translate::FileContent;
use crate::translate::diff::{self, Piece};
use crate::wire::acp::{ContentBlock, Location, ToolCallContent};
use crate::wire::stream_json::Block;
use crate::wire::text::{Raw, cut, items, text, uint};

/// Output of a call that is shown; more is cut, since clients keep every byte (acp.md, section 6).
const OUTPUT_LIMIT: usize = 256 * 1024;

/// An input that a question shows as it is; more is cut.
const INPUT_LIMIT: usize = 32 * 1024;

/// Bytes of the reason of a question.
const REASON_LIMIT: usize = 2 * 1024;

/// How deep an input may be that is passed on; the line around it adds some more.
const DEPTH_LIMIT: usize = 100;

/// The members of a call's input.
#[derive(Debug, Default)]
pub(super) struct Input<'a>(HashMap<Cow<'a, str>, &'a RawValue>);

impl<'a> Input<'a> {
    pub(super) fn read(raw: Raw<'a>) -> Self {
        Self(raw.and_then(|r| serde_json::from_str(r.get()).ok()).unwrap_or_default())
    }

    /// A member as text: strings as they are, numbers and booleans as written.
    pub(super) fn get(&self, name: &str) -> Option<Cow<'a, str>> {
        let raw = self.0.get(name).copied();
        text(raw).or_else(|| {
            let token = raw?.get();
            (!token.starts_with(['{', '[', 'n'])).then_some(Cow::Borrowed(token))
        })
    }
}

/// What a title shows of a member: a path inside of the session's directory without the directory.
pub(super) fn for_title<'v>(row: &ToolRow<'_>, name: &str, value: Cow<'v, str>, cwd: &Path) -> Cow<'v, str> {
    if row.path() != Some(name) {
        return value;
    }
    match Path::new(&*value).strip_prefix(cwd) {
        Ok(rest) if !rest.as_os_str().is_empty() => Cow::Owned(rest.to_string_lossy().into_owned()),
        _ => value,
    }
}

/// An absolute path (acp.md, section 5, rule 23).
pub(super) fn full_path(path: &str, cwd: &Path) -> PathBuf {
    // `join` keeps a path that is absolute already.
    cwd.join(path)
}

/// The place of a call, if its tool has one.
pub(super) fn location<'v>(
    row: &ToolRow<'_>,
    get: &dyn Fn(&str) -> Option<Cow<'v, str>>,
    cwd: &Path,
) -> Option<Location> {
    let path = get(row.path()?)?;
    let line = row.line().and_then(get).and_then(|l| l.parse().ok()).filter(|l| *l > 0);
    Some(Location { path: full_path(&path, cwd).to_string_lossy().into_owned(), line })
}

/// The content before there is a result. A file that is written anew needs [`write_preview`].
///
/// A title is one short line. Where it is not exactly the command, the whole command stands in the content: what is
/// approved must be seen.
pub(super) fn preview(row: &ToolRow<'_>, input: &Input<'_>, title: &str, cwd: &Path) -> Vec<ToolCallContent<'static>> {
    let field = |name: Option<&str>| name.and_then(|n| input.get(n));
    match row.content() {
        ContentRule::DiffEdit => match (field(row.path()), field(row.old()), field(row.new_text())) {
            (Some(path), Some(old), Some(new)) => vec![ToolCallContent::Diff {
                path: full_path(&path, cwd).to_string_lossy().into_owned().into(),
                old_text: Some(old.into_owned().into()),
                new_text: new.into_owned().into(),
            }],
            _ => Vec::new(),
        },
        ContentRule::DiffCell => field(row.new_text()).map(|new| vec![fenced("", &new)]).unwrap_or_default(),
        ContentRule::DiffWrite => Vec::new(),
        ContentRule::Console => {
            let command = input.get(COMMAND).filter(|c| **c != *title && row.preview() != Some(COMMAND));
            let command = command.map(|c| fenced("sh", &visible(&c)));
            command.into_iter().chain(shown(field(row.preview()))).collect()
        }
        _ => shown(field(row.preview())).into_iter().collect(),
    }
}

/// The input field of the tools that run commands.
const COMMAND: &str = "command";

fn shown(field: Option<Cow<'_, str>>) -> Option<ToolCallContent<'static>> {
    field.filter(|t| !t.trim().is_empty()).map(|t| ToolCallContent::text(bounded(&t).into_owned()))
}

/// Characters that are not seen, but change what is, as escapes.
fn visible(s: &str) -> Cow<'_, str> {
    let hides = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t');
    if !s.contains(hides) {
        return Cow::Borrowed(s);
    }
    let mut out = String::with_capacity(s.len() + 16);
    for c in s.chars() {
        if hides(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// A whole input, for a person to read.
pub(super) fn whole_input(input: &RawValue) -> ToolCallContent<'static> {
    let pretty = serde_json::from_str::<serde_json::Value>(input.get())
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| input.get().to_owned());
    let pretty = visible(&pretty);
    let kept = cut(&pretty, INPUT_LIMIT);
    match pretty.len() - kept.len() {
        0 => fenced("json", kept),
        rest => fenced("json", &format!("{kept}\n… {rest} more bytes are not shown")),
    }
}

/// Why a question is asked, in the agent's words.
pub(super) fn asked_because(reason: &str) -> ToolCallContent<'static> {
    let reason = visible(reason);
    let kept = cut(&reason, REASON_LIMIT);
    let cut_off = if kept.len() < reason.len() { " …" } else { "" };
    ToolCallContent::text(format!("Asked because: {kept}{cut_off}"))
}

/// Whether every JSON reader can read a value as part of a line: some stop at a depth of 128, and at half a character.
pub(super) fn is_readable(raw: &RawValue) -> bool {
    fn depth(value: &serde_json::Value) -> usize {
        use serde_json::Value;
        match value {
            Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
            Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
            _ => 0,
        }
    }
    serde_json::from_str(raw.get()).is_ok_and(|value| depth(&value) <= DEPTH_LIMIT)
}

/// The diff of a file that is written anew against what it holds now.
pub(super) fn write_preview(path: &Path, new: &str, now: &FileContent) -> Vec<ToolCallContent<'static>> {
    let pieces = match now {
        FileContent::Missing => diff::rewritten(None, new),
        FileContent::Text(old) => diff::rewritten(Some(old), new),
        // A diff without the old text would say that the file is new.
        FileContent::Unreadable(why) => {
            return vec![
                ToolCallContent::text(format!("Writes this file anew (its present content is not shown: {why}):")),
                fenced("", new),
            ];
        }
    };
    diffs(&path.to_string_lossy(), pieces)
}

pub(super) fn diffs(path: &str, pieces: Vec<Piece>) -> Vec<ToolCallContent<'static>> {
    pieces
        .into_iter()
        .map(|piece| ToolCallContent::Diff {
            path: path.to_owned().into(),
            old_text: piece.old.map(Into::into),
            new_text: piece.new.into(),
        })
        .collect()
}

/// The members of a `tool_use_result` that are shown.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ToolUseResult<'a> {
    #[serde(borrow)]
    pub(super) harness_note_count: Raw<'a>,
    #[serde(borrow)]
    pub(super) harness_tail_count: Raw<'a>,
    #[serde(borrow)]
    pub(super) stdout: Raw<'a>,
    #[serde(borrow)]
    pub(super) stderr: Raw<'a>,
    #[serde(borrow)]
    pub(super) structured_patch: Raw<'a>,
    #[serde(borrow)]
    pub(super) original_file: Raw<'a>,
    #[serde(borrow)]
    pub(super) user_modified: Raw<'a>,
    #[serde(borrow)]
    pub(super) file_path: Raw<'a>,
    #[serde(borrow)]
    pub(super) content: Raw<'a>,
    #[serde(borrow)]
    pub(super) file: Raw<'a>,
    #[serde(borrow)]
    pub(super) background_task_id: Raw<'a>,
    #[serde(borrow)]
    pub(super) is_async: Raw<'a>,
    #[serde(borrow, rename = "original_file")]
    pub(super) notebook_before: Raw<'a>,
    #[serde(borrow, rename = "updated_file")]
    pub(super) notebook_after: Raw<'a>,
}

impl<'a> ToolUseResult<'a> {
    pub(super) fn read(raw: Raw<'a>) -> Self {
        raw.filter(|r| r.get().starts_with('{')).and_then(|r| serde_json::from_str(r.get()).ok()).unwrap_or_default()
    }
}

/// The content of a `tool_result`, in its order.
#[derive(Default)]
pub(super) struct Output {
    parts: Vec<ToolCallContent<'static>>,
    /// Kinds of blocks that ACP has no word for.
    pub(super) skipped: Vec<String>,
}

impl Output {
    pub(super) fn read(content: Raw<'_>) -> Self {
        let mut out = Self::default();
        if let Some(whole) = text(content) {
            out.parts.push(ToolCallContent::text(for_people(&whole)));
            return out;
        }
        for raw in items(content).unwrap_or_default() {
            out.take(raw);
        }
        out
    }

    fn take(&mut self, raw: &RawValue) {
        let block = Block::read(Some(raw));
        let part = match text(block.kind).as_deref() {
            Some("text") => Some(ToolCallContent::text(for_people(&text(block.text).unwrap_or_default()))),
            Some("image") => image(block.source),
            _ => None,
        };
        match part {
            Some(part) => self.parts.push(part),
            None => self.skipped.push(text(block.kind).unwrap_or_default().into_owned()),
        }
    }

    /// What a command wrote, where the result says it apart from what is for the model.
    pub(super) fn of_command(self, result: &ToolUseResult<'_>) -> Self {
        let (Some(stdout), stderr) = (text(result.stdout), text(result.stderr).unwrap_or_default()) else {
            return self;
        };
        let between = if stdout.is_empty() || stderr.is_empty() || stdout.ends_with('\n') { "" } else { "\n" };
        Self { parts: vec![ToolCallContent::text(format!("{stdout}{between}{stderr}"))], skipped: self.skipped }
    }

    /// What a subagent reports, where the result says it apart from the notes around it that are for the model.
    pub(super) fn of_subagent(self, result: &ToolUseResult<'_>) -> Self {
        let Some(blocks) = items(result.content) else { return self };
        let count = |raw: Raw<'_>| uint(raw).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let (before, after) = (count(result.harness_note_count), count(result.harness_tail_count));
        let end = blocks.len().saturating_sub(after);
        let mut report = Self::default();
        for raw in blocks.get(before..end).unwrap_or_default() {
            report.take(raw);
        }
        if report.parts.is_empty() { self } else { report }
    }

    /// The text, joined.
    pub(super) fn text(&self) -> String {
        let mut all = String::new();
        for part in &self.parts {
            if let ToolCallContent::Content { content: ContentBlock::Text { text } } = part {
                if !all.is_empty() {
                    all.push('\n');
                }
                all.push_str(text);
            }
        }
        all
    }

    /// What is not text.
    fn images(self) -> impl Iterator<Item = ToolCallContent<'static>> {
        self.parts.into_iter().filter(|p| !is_text(p))
    }
}

fn is_text(part: &ToolCallContent<'_>) -> bool {
    matches!(part, ToolCallContent::Content { content: ContentBlock::Text { .. } })
}

/// Output as content, by the rule of its tool; `None` leaves what is shown.
pub(super) fn show(
    output: Output,
    rule: ContentRule,
    result: &ToolUseResult<'_>,
) -> Option<Vec<ToolCallContent<'static>>> {
    let whole = output.text();
    let mut content = match rule {
        ContentRule::None | ContentRule::Plan | ContentRule::Todo | ContentRule::Task => return None,
        ContentRule::DiffEdit | ContentRule::DiffWrite | ContentRule::DiffCell => return None,
        _ if whole.trim().is_empty() => Vec::new(),
        ContentRule::Console => vec![fenced("console", &whole)],
        ContentRule::File => {
            #[derive(Default, Deserialize)]
            #[serde(default)]
            struct File<'a> {
                #[serde(borrow)]
                content: Raw<'a>,
            }
            let file: File<'_> = result.file.and_then(|r| serde_json::from_str(r.get()).ok()).unwrap_or_default();
            // Without the numbers that claude puts before each line for the model.
            vec![fenced("", &text(file.content).unwrap_or(Cow::Borrowed(&whole)))]
        }
        // Search results end with what the model must do with them.
        ContentRule::Fetch => {
            vec![ToolCallContent::text(
                bounded(whole.split("\n\nREMINDER: ").next().unwrap_or(&whole).trim_end()).into_owned(),
            )]
        }
        _ if whole.len() > OUTPUT_LIMIT => vec![ToolCallContent::text(bounded(&whole).into_owned())],
        _ => return Some(output.parts),
    };
    content.extend(output.images());
    Some(content)
}

fn image(source: Raw<'_>) -> Option<ToolCallContent<'static>> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Source<'a> {
        #[serde(borrow)]
        data: Raw<'a>,
        #[serde(borrow)]
        media_type: Raw<'a>,
    }
    let source: Source<'_> = serde_json::from_str(source?.get()).ok()?;
    Some(ToolCallContent::Content {
        content: ContentBlock::Image {
            data: text(source.data)?.into_owned().into(),
            mime_type: text(source.media_type)?.into_owned().into(),
        },
    })
}

/// Takes off what is there for the model only (incumbent.md, section 0, point 10).
fn for_people(s: &str) -> String {
    let mut s = s.trim_end();
    if s == "(Bash completed with no output)" {
        return String::new();
    }
    if let Some(inner) = s.strip_prefix("<tool_use_error>").and_then(|r| r.strip_suffix("</tool_use_error>")) {
        s = inner;
    }
    let mut out = s.to_owned();
    // The reminders are whole elements that begin a line; the same words within a line are a file's or a command's.
    let mut from = 0;
    while let Some(start) = out[from..].find(REMINDER).map(|at| from + at) {
        let begins_line = start == 0 || out.as_bytes()[start - 1] == b'\n';
        match out[start..].find(REMINDER_END) {
            Some(length) if begins_line => out.replace_range(start..start + length + REMINDER_END.len(), ""),
            _ => {
                from = start + REMINDER.len();
                continue;
            }
        }
        from = start;
    }
    out.truncate(out.trim_end().len());
    out
}

const REMINDER: &str = "<system-reminder>";
const REMINDER_END: &str = "</system-reminder>";

/// A fenced block that its content cannot close.
pub(super) fn fenced(language: &str, content: &str) -> ToolCallContent<'static> {
    let content = bounded(content);
    let longest = content.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if content.ends_with('\n') { "" } else { "\n" };
    ToolCallContent::text(format!("{fence}{language}\n{content}{end}{fence}"))
}

/// Cuts output that is too long, and says so.
pub(super) fn bounded(s: &str) -> Cow<'_, str> {
    if s.len() <= OUTPUT_LIMIT {
        return Cow::Borrowed(s);
    }
    let kept = cut(s, OUTPUT_LIMIT);
    Cow::Owned(format!("{kept}\n… {} more bytes are not shown", s.len() - kept.len()))
}

/// [`bounded`], of a text of one's own.
pub(super) fn bounded_owned(s: String) -> String {
    if s.len() <= OUTPUT_LIMIT { s } else { bounded(&s).into_owned() }
}

/// The exit code that a failed command tells: `Exit code 3` or `Error: Exit code 3` in its first line.
pub(super) fn exit_code(output: &str) -> Option<i64> {
    let line = output.lines().next()?;
    line.strip_prefix("Error: ").unwrap_or(line).strip_prefix("Exit code ")?.trim().parse().ok()
}

/// The output of a failed command without the line that tells its exit code.
pub(super) fn without_exit_code(output: &str) -> &str {
    match exit_code(output) {
        Some(_) => output.split_once('\n').map_or("", |(_, rest)| rest),
        None => output,
    }
}

/// The exit code that the end of a background command tells: `Background command "x" completed (exit code 0)`.
pub(super) fn exit_code_of_summary(summary: &str) -> Option<i64> {
    summary.trim_end().strip_suffix(')')?.rsplit_once("(exit code ")?.1.parse().ok()
}

/// The pieces of what an edit really did, where that is more than its preview showed.
pub(super) fn edited(result: &ToolUseResult<'_>, rule: ContentRule) -> Vec<Piece> {
    match rule {
        ContentRule::DiffCell => match (text(result.notebook_before), text(result.notebook_after)) {
            (Some(before), Some(after)) => diff::rewritten(Some(&before), &after),
            _ => Vec::new(),
        },
        _ => diff::of_patch(result.structured_patch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_the_model_is_not_shown() {
        assert_eq!(for_people("<tool_use_error>Error: no such file</tool_use_error>"), "Error: no such file");
        assert_eq!(for_people("a\n<system-reminder>do not tell</system-reminder>\nb\n"), "a\n\nb");
        for quoted in ["a <system-reminder>x</system-reminder>", "<system-reminder>no end", "x\n<system-reminder>"] {
            assert_eq!(for_people(quoted), quoted);
        }
    }

    #[test]
    fn a_fence_is_longer_than_any_in_its_content() {
        let ToolCallContent::Content { content: ContentBlock::Text { text } } = fenced("console", "a ```` b") else {
            panic!("no text")
        };
        assert_eq!(text, "`````console\na ```` b\n`````");
    }

    #[test]
    fn long_output_says_that_it_is_cut() {
        let long = "é".repeat(OUTPUT_LIMIT);
        let shown = bounded(&long);
        assert!(shown.len() < OUTPUT_LIMIT + 100 && shown.ends_with("more bytes are not shown"));
    }

    #[test]
    fn exit_codes_are_read_from_the_first_line() {
        assert_eq!(exit_code("Exit code 3\noops"), Some(3));
        assert_eq!(exit_code("Error: Exit code 127"), Some(127));
        assert_eq!(exit_code("3"), None);
    }
}
