//! Tool calls of an ACP agent as Claude's tools.
//!
//! Owns the table of stream-json-hosts.md, section 4: hosts, their rules and their views know Claude's tools only. Keeps: the
//! name and the input say what the agent says that it does, whatever may run a command is `Bash` with that command, and no
//! input is larger than a line may be.

pub(super) mod bounds;
mod names;
mod outcome;
pub(super) mod todos;

use std::path::Path;

use serde_json::{Map, Value};

use super::calls::{Call, Content};
use super::choices::as_claude_asks;
use crate::translate::diff;
use names::Sort;

pub(crate) use outcome::output_text;
pub use outcome::{ToolResult, result, results};

/// Lines around a change that are shown, before more are added until the place is certain.
const CONTEXT: usize = 3;

/// What the tools are rendered in.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The session's working directory; absolute.
    pub cwd: &'a Path,
    /// The names of the MCP servers that the session was given.
    pub mcp_servers: &'a [String],
}

/// One `tool_use` block.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolUse {
    /// The agent's id if the API could have made it, else one made from it; the same whenever it is asked for.
    pub id: String,
    /// Claude's name of the tool, or `mcp__SERVER__TOOL`, or the agent's own name as a tool's name.
    pub name: String,
    /// Its input.
    pub input: Map<String, Value>,
    /// Whether the input was cut to fit a line: what is missing was not seen by whoever decides about it.
    pub cut: bool,
}

/// The `tool_use` blocks of a call; never empty. A call that changes several files or places has several.
#[must_use]
pub fn tool_uses(call: &Call, context: &Context<'_>) -> Vec<ToolUse> {
    let forms = forms(call, context);
    let several = forms.len() > 1;
    forms
        .into_iter()
        .enumerate()
        .map(|(at, (name, mut input))| {
            let cut = bounds::input(&mut input);
            let id =
                if at == 0 || !several { tool_use_id(&call.id) } else { tool_use_id(&format!("{}_{at}", call.id)) };
            ToolUse { id, name, input, cut }
        })
        .collect()
}

/// The id of a `tool_use` for an agent's id.
#[must_use]
pub fn tool_use_id(id: &str) -> String {
    let fits =
        !id.is_empty() && id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if fits {
        return id.to_owned();
    }
    // FNV-1a over the bytes, twice with different beginnings: stable across runs and builds.
    let hash = |basis: u64| id.bytes().fold(basis, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let (a, b) = (hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142));
    format!("toolu_{a:016x}{:08x}", b >> 32)
}

type Form = (String, Map<String, Value>);

fn forms(call: &Call, context: &Context<'_>) -> Vec<Form> {
    if let Some((server, tool)) = names::mcp(call, context) {
        let name = format!("mcp__{}__{}", names::clean(server), names::clean(tool));
        return vec![(name, mcp_input(call))];
    }
    let input = Input::of(call);
    let one = match names::sort(call) {
        Sort::Shell => shell(call, &input),
        Sort::Read => {
            // Cline reads several files at once.
            let many = input.files();
            if many.len() > 1 {
                return many.iter().map(|path| read(&input, path, context)).collect();
            }
            let titled = || quoted(&call.title).filter(|text| text.contains(['/', '.']) && !text.contains([' ', '{']));
            let path =
                input.path().or_else(|| many.into_iter().next()).or_else(|| first_location(call)).or_else(titled);
            match path {
                // Copilot calls a search a reading.
                _ if input.path().is_none() && input.text(&["pattern"]).is_some() => search(call, &input, false),
                Some(path) => read(&input, &path, context),
                None => list(&input, context),
            }
        }
        Sort::List => list(&input, context),
        Sort::Edit | Sort::Write => return changes(call, &input, context),
        Sort::Delete => delete(call, &input),
        Sort::Move => rename(call, &input),
        Sort::Grep => search(call, &input, false),
        Sort::Glob => search(call, &input, true),
        Sort::Fetch | Sort::WebSearch => fetch(call, &input),
        Sort::Agent => agent(call, &input),
        Sort::Plan => plan(call, &input),
        Sort::Todos => match todos::input(call.raw_input.as_ref()) {
            Some(list) => ("TodoWrite".into(), list),
            None => other(call, &input),
        },
        Sort::Questions => match input.get("questions").filter(|q| q.is_array()) {
            Some(questions) => {
                ("AskUserQuestion".into(), Map::from_iter([("questions".to_owned(), as_claude_asks(questions))]))
            }
            None => other(call, &input),
        },
        Sort::Other => other(call, &input),
    };
    vec![one]
}

/// The arguments of a call.
struct Input<'a>(Option<&'a Value>);

impl<'a> Input<'a> {
    fn of(call: &'a Call) -> Self {
        Self(call.raw_input.as_ref())
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0?.get(key).filter(|value| !value.is_null())
    }

    /// The first of these members that is a text with something in it.
    fn text(&self, keys: &[&str]) -> Option<&'a str> {
        keys.iter().find_map(|key| self.get(key)?.as_str().filter(|text| !text.is_empty()))
    }

    /// The first of these members that is a text.
    fn any_text(&self, keys: &[&str]) -> Option<&'a str> {
        keys.iter().find_map(|key| self.get(key)?.as_str())
    }

    fn path(&self) -> Option<String> {
        const KEYS: [&str; 10] = [
            "file_path",
            "filePath",
            "filepath",
            "path",
            "target_file",
            "absolute_path",
            "fileName",
            "filename",
            "file",
            "notebook_path",
        ];
        self.text(&KEYS).map(str::to_owned)
    }

    /// The paths of a list of files.
    fn files(&self) -> Vec<String> {
        let list = ["files", "paths", "file_paths"].iter().find_map(|key| self.get(key)?.as_array());
        let path = |item: &Value| item.as_str().or_else(|| item.get("path")?.as_str()).map(str::to_owned);
        list.into_iter().flatten().filter_map(path).collect()
    }

    fn directory(&self) -> Option<&'a str> {
        self.text(&["path", "dir_path", "directory", "target_directory", "dir", "filePath", "file_path", "cwd"])
    }
}

fn map(members: &[(&str, &str)]) -> Map<String, Value> {
    members.iter().map(|(key, text)| ((*key).to_owned(), Value::from(*text))).collect()
}

fn first_location(call: &Call) -> Option<String> {
    call.locations.first().map(|(path, _)| path.clone())
}

/// The first text in quotes of one kind.
fn quoted(title: &str) -> Option<String> {
    let (at, quote) = title.char_indices().find(|(_, c)| matches!(c, '\'' | '"' | '`'))?;
    let rest = &title[at + 1..];
    rest.find(quote).map(|end| rest[..end].to_owned()).filter(|text| !text.is_empty())
}

/// A path as Claude has it: absolute.
fn absolute(path: &str, context: &Context<'_>) -> String {
    let path = path.strip_prefix("file://").unwrap_or(path);
    let has_drive = path.as_bytes().get(1) == Some(&b':');
    if path.starts_with(['/', '~', '\\']) || has_drive || path.is_empty() {
        return path.to_owned();
    }
    context.cwd.join(path.strip_prefix("./").unwrap_or(path)).to_string_lossy().into_owned()
}

/// A word for a POSIX shell.
fn shell_word(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./:=,@%+".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn shell_words(words: &[Value]) -> String {
    let words: Vec<String> = words.iter().map(|word| shell_word(word.as_str().unwrap_or(&word.to_string()))).collect();
    words.join(" ")
}

fn command(input: &Input<'_>) -> Option<String> {
    let main = ["command", "cmd"].iter().find_map(|key| input.get(key).filter(|v| v.is_string() || v.is_array()));
    let args = input.get("args").and_then(Value::as_array).filter(|args| !args.is_empty());
    match main {
        Some(Value::String(line)) if !line.is_empty() => Some(match args {
            // A program and its arguments.
            Some(args) => format!("{} {}", shell_word(line), shell_words(args)),
            None => line.clone(),
        }),
        Some(Value::Array(words)) if !words.is_empty() => {
            let texts: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            // `bash -lc LINE`: the line is what runs.
            if let (Some((shell, args)), true) = (texts.split_first(), texts.len() == words.len())
                && let Some(line) = super::command::one_script(shell, args)
            {
                return Some(line.to_owned());
            }
            Some(shell_words(words))
        }
        _ => {
            // Cline: several lines, run one after the other.
            let lines: Vec<&str> = input.get("commands")?.as_array()?.iter().filter_map(Value::as_str).collect();
            (!lines.is_empty()).then(|| lines.join("\n"))
        }
    }
}

/// The command in a title, for agents that say it nowhere else.
fn command_of_title(title: &str) -> &str {
    let title = title.trim();
    let title = title.strip_prefix("Execute ").or_else(|| title.strip_prefix("Running: ")).unwrap_or(title);
    title.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')).unwrap_or(title)
}

fn shell(call: &Call, input: &Input<'_>) -> Form {
    let titled = Some(command_of_title(&call.title)).filter(|title| names::by_name(title).is_none());
    let command = command(input).unwrap_or_else(|| titled.unwrap_or_default().to_owned());
    let title = Some(call.title.trim());
    let says_more =
        title.filter(|title| !title.is_empty() && !title.contains(command.trim()) && *title != call.first_title);
    // Copilot's title is the description and its only title.
    let only = title.filter(|title| title.contains(' ') && !title.contains(command.trim()));
    let description = input.text(&["description"]).or(says_more).or(only);
    let mut out = map(&[("command", &command)]);
    if let Some(description) = description {
        out.insert("description".into(), description.into());
    }
    if let Some(timeout) = input.get("timeout").filter(|timeout| timeout.is_u64()) {
        out.insert("timeout".into(), timeout.clone());
    }
    if ["is_background", "run_in_background", "background"].iter().any(|key| input.get(key) == Some(&Value::Bool(true)))
    {
        out.insert("run_in_background".into(), true.into());
    }
    ("Bash".into(), out)
}

fn read(input: &Input<'_>, path: &str, context: &Context<'_>) -> Form {
    let mut out = map(&[("file_path", &absolute(path, context))]);
    for (name, keys) in [("offset", ["offset", "start_line"]), ("limit", ["limit", "max_lines"])] {
        if let Some(n) = keys.iter().find_map(|key| input.get(key)?.as_u64()) {
            out.insert(name.into(), n.into());
        }
    }
    ("Read".into(), out)
}

fn list(input: &Input<'_>, context: &Context<'_>) -> Form {
    let path = input.directory().map_or_else(|| context.cwd.to_string_lossy().into_owned(), |p| absolute(p, context));
    ("Glob".into(), map(&[("pattern", "*"), ("path", &path)]))
}

fn delete(call: &Call, input: &Input<'_>) -> Form {
    let many = input.get("paths").and_then(Value::as_array).map(|paths| shell_words(paths));
    let paths = many
        .or_else(|| input.path().map(|path| shell_word(&path)))
        .unwrap_or_else(|| call.locations.iter().map(|(path, _)| shell_word(path)).collect::<Vec<_>>().join(" "));
    described(call, if paths.is_empty() { String::new() } else { format!("rm -- {paths}") })
}

fn rename(call: &Call, input: &Input<'_>) -> Form {
    let place = |at: usize| call.locations.get(at).map(|(path, _)| path.as_str());
    let from = input.text(&["source", "from", "old_path", "oldPath", "source_path", "src"]).or_else(|| place(0));
    let to = input.text(&["destination", "to", "new_path", "newPath", "destination_path", "dest"]).or_else(|| place(1));
    described(
        call,
        match (from, to) {
            (Some(from), Some(to)) => format!("mv -- {} {}", shell_word(from), shell_word(to)),
            _ => String::new(),
        },
    )
}

fn described(call: &Call, command: String) -> Form {
    let title = call.title.trim();
    let command = if command.is_empty() { title.to_owned() } else { command };
    let mut out = map(&[("command", &command)]);
    if !title.is_empty() && title != command {
        out.insert("description".into(), title.into());
    }
    ("Bash".into(), out)
}

fn search(call: &Call, input: &Input<'_>, files: bool) -> Form {
    let pattern = input
        .text(&["pattern", "query", "regex", "search", "search_term", "glob_pattern", "glob", "q"])
        .map(str::to_owned)
        .or_else(|| quoted(&call.title))
        .unwrap_or_else(|| call.title.clone());
    // A pattern that no regular expression begins with is one for names.
    let for_names = files || (names::name(call).is_none() && (pattern.starts_with('*') || pattern.contains("**/")));
    let mut out = map(&[("pattern", &pattern)]);
    if let Some(path) = input.text(&["path", "dir_path", "directory", "target_directory", "dir"]) {
        out.insert("path".into(), path.into());
    }
    if for_names {
        return ("Glob".into(), out);
    }
    if let Some(glob) = input.text(&["glob", "include", "file_pattern"]).filter(|glob| *glob != pattern) {
        out.insert("glob".into(), glob.into());
    }
    ("Grep".into(), out)
}

fn fetch(call: &Call, input: &Input<'_>) -> Form {
    let is_url = |word: &&str| word.starts_with("http://") || word.starts_with("https://");
    let many = input.get("urls").and_then(Value::as_array);
    let prompt = input.text(&["prompt", "question", "instructions"]);
    let url = input.text(&["url", "uri"]).map(str::to_owned).or_else(|| {
        let mut urls: Vec<&str> = many.into_iter().flatten().filter_map(Value::as_str).collect();
        if urls.is_empty() {
            urls = prompt.unwrap_or(&call.title).split_whitespace().filter(is_url).collect();
        }
        (!urls.is_empty()).then(|| urls.join(" "))
    });
    match (url, input.text(&["query", "q", "search_query", "search_term"])) {
        (None, Some(query)) => ("WebSearch".into(), map(&[("query", query)])),
        (None, None) if names::sort(call) == Sort::WebSearch => ("WebSearch".into(), map(&[("query", &call.title)])),
        (url, _) => {
            let url = url.unwrap_or_else(|| call.title.clone());
            ("WebFetch".into(), map(&[("url", &url), ("prompt", prompt.unwrap_or(&call.title))]))
        }
    }
}

fn agent(call: &Call, input: &Input<'_>) -> Form {
    let prompt = input.text(&["prompt", "task", "instructions", "message", "description"]).unwrap_or(&call.title);
    let description = input.text(&["description", "title", "name"]).unwrap_or(&call.title);
    let kind =
        input.text(&["subagent_type", "subagentType", "agent_type", "agent", "subagent"]).unwrap_or("general-purpose");
    ("Task".into(), map(&[("description", description), ("prompt", prompt), ("subagent_type", kind)]))
}

fn plan(call: &Call, input: &Input<'_>) -> Form {
    let name = names::name(call).unwrap_or_default();
    if name.to_ascii_lowercase().contains("enter") {
        return ("EnterPlanMode".into(), Map::new());
    }
    let shown = || call.content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n");
    let plan =
        input.text(&["plan", "planContent", "plan_content"]).or(call.plan.as_deref()).map_or_else(shown, str::to_owned);
    ("ExitPlanMode".into(), map(&[("plan", &plan)]))
}

fn whole_input(call: &Call) -> Map<String, Value> {
    match &call.raw_input {
        Some(Value::Object(map)) => map.clone(),
        Some(Value::Null) | None => Map::new(),
        Some(value) => [("input".to_owned(), value.clone())].into_iter().collect(),
    }
}

fn mcp_input(call: &Call) -> Map<String, Value> {
    let mut all = whole_input(call);
    // Grok and codex put the tool's arguments into their own.
    let (inner, named) =
        if all.contains_key("tool_input") { ("tool_input", "tool_name") } else { ("arguments", "tool") };
    if all.contains_key(named)
        && let Some(Value::Object(inner)) = all.remove(inner)
    {
        return inner;
    }
    all
}

fn other(call: &Call, input: &Input<'_>) -> Form {
    // A helper agent, whatever it is called.
    if call.kind.as_deref() == Some("think") && input.text(&["subagent_type", "subagentType"]).is_some() {
        return agent(call, input);
    }
    let title = if call.first_title.is_empty() { &call.title } else { &call.first_title };
    let mut members = whole_input(call);
    if members.is_empty() && !call.title.is_empty() {
        members.insert("description".into(), call.title.clone().into());
    }
    (names::clean(names::name(call).unwrap_or(title)), members)
}

/// A change of files.
fn changes(call: &Call, input: &Input<'_>, context: &Context<'_>) -> Vec<Form> {
    let old = input.any_text(&["old_string", "oldString", "old_str", "old_text", "oldText"]);
    let new = input.any_text(&["new_string", "newString", "new_str", "new_text", "newText"]);
    let content = input.any_text(&["content", "file_text", "contents", "text"]);
    let diffs: Vec<_> = call.diffs().collect();
    let path = || input.path().or_else(|| first_location(call)).map(|path| absolute(&path, context));

    if let [] | [_] = diffs[..] {
        let path = diffs.first().map(|(path, ..)| absolute(path, context)).or_else(path);
        if let (Some(old), Some(new), Some(path)) = (old, new, &path)
            && !old.is_empty()
        {
            let mut out = edit(path, old, new);
            if ["replace_all", "replaceAll", "allow_multiple"]
                .iter()
                .any(|key| input.get(key) == Some(&Value::Bool(true)))
            {
                out.1.insert("replace_all".into(), true.into());
            }
            return vec![out];
        }
        if let (Some(content), Some(path)) = (content, &path)
            && diffs.first().is_none_or(|(_, _, new)| *new == content)
        {
            return vec![write(path, content)];
        }
    }
    if !diffs.is_empty() {
        let one = |(path, old, new): (&str, Option<&str>, &str)| {
            let path = absolute(path, context);
            match old.filter(|old| !old.is_empty()) {
                None => write(&path, new),
                Some(old) => {
                    let (old, new) = changed_part(old, new);
                    edit(&path, old, new)
                }
            }
        };
        return diffs.into_iter().map(one).collect();
    }
    let patch = input.text(&["diff", "patch", "patch_text", "patchText", "input"]).or(input.0.and_then(Value::as_str));
    let pieces: Vec<Form> = patch
        .map(pieces_of_patch)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|piece| {
            let path = piece.path.map(|path| absolute(&path, context)).or_else(path)?;
            Some(match piece.old {
                None => write(&path, &piece.new),
                Some(old) => edit(&path, &old, &piece.new),
            })
        })
        .collect();
    if !pieces.is_empty() {
        return pieces;
    }
    // Nothing says what changes: all that is known, in Claude's shape.
    let mut members = whole_input(call);
    members.insert("file_path".into(), path().unwrap_or_else(|| call.title.clone()).into());
    if names::sort(call) == Sort::Write {
        members.entry("content").or_insert_with(|| "".into());
        return vec![("Write".into(), members)];
    }
    members.entry("old_string").or_insert_with(|| "".into());
    members.entry("new_string").or_insert_with(|| "".into());
    vec![("Edit".into(), members)]
}

fn edit(path: &str, old: &str, new: &str) -> Form {
    ("Edit".into(), map(&[("file_path", path), ("old_string", old), ("new_string", new)]))
}

fn write(path: &str, content: &str) -> Form {
    ("Write".into(), map(&[("file_path", path), ("content", content)]))
}

/// The lines that change, with as many lines around them as make the place certain. Replacing the one by the other in the
/// old text gives the new text.
fn changed_part<'a>(old: &'a str, new: &'a str) -> (&'a str, &'a str) {
    let before: Vec<&str> = old.split_inclusive('\n').collect();
    let after: Vec<&str> = new.split_inclusive('\n').collect();
    let head = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let tail = before[head..].iter().rev().zip(after[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    if head == before.len() && head == after.len() {
        return (old, new);
    }
    let width = |lines: &[&str]| lines.iter().map(|line| line.len()).sum::<usize>();
    let mut context = CONTEXT;
    loop {
        let (lead, trail) = (head.saturating_sub(context), tail.saturating_sub(context));
        let start = width(&before[..lead]);
        let end = width(&before[before.len() - trail..]);
        let part = &old[start..old.len() - end];
        let everything = lead == 0 && trail == 0;
        let once = !part.is_empty() && old.find(part) == Some(start) && old.rfind(part) == Some(start);
        if everything || once {
            return (part, &new[start..new.len() - end]);
        }
        context *= 2;
    }
}

/// One place of a patch.
struct PatchPiece {
    path: Option<String>,
    old: Option<String>,
    new: String,
}

/// The places of a unified diff (OpenCode, Copilot) or of an `apply_patch` text (Cline). Empty for anything else.
fn pieces_of_patch(patch: &str) -> Vec<PatchPiece> {
    let mut pieces: Vec<PatchPiece> = Vec::new();
    let mut path: Option<String> = None;
    let mut creates = false;
    let mut open = false;
    for line in patch.split_inclusive('\n') {
        let bare = line.trim_end_matches(['\n', '\r']);
        if let Some(file) = bare.strip_prefix("*** Update File: ").or_else(|| bare.strip_prefix("*** Add File: ")) {
            creates = bare.starts_with("*** Add");
            path = Some(file.to_owned());
            open = creates;
            if creates {
                pieces.push(PatchPiece { path: path.clone(), old: None, new: String::new() });
            }
        } else if bare.starts_with("*** ") || bare.starts_with("diff --git ") || bare.starts_with("Index: ") {
            open = false;
        } else if !open && bare.starts_with("--- ") {
            creates = bare.contains("/dev/null");
        } else if !open && bare.starts_with("+++ ") {
            // The call says the path; here it has prefixes.
        } else if bare.starts_with("@@") {
            open = true;
            let old = (!creates).then(String::new);
            pieces.push(PatchPiece { path: path.clone(), old, new: String::new() });
        } else if open && let Some(piece) = pieces.last_mut() {
            let (mark, text) = line.split_at(line.chars().next().map_or(0, char::len_utf8));
            if mark == " " || mark == "-" {
                piece.old.get_or_insert_default().push_str(text);
            }
            if mark == " " || mark == "+" {
                piece.new.push_str(text);
            }
        }
    }
    pieces.retain(|piece| piece.old.as_deref().is_some_and(|old| !old.is_empty()) || !piece.new.is_empty());
    for piece in &mut pieces {
        // Lines that are only added have nothing to replace.
        piece.old = piece.old.take().filter(|old| !old.is_empty() || !creates);
    }
    pieces
}

/// Where a text changes, as hunks of a unified diff; empty when it is too large to be compared.
fn structured_patch(old: &str, new: &str) -> Vec<Value> {
    diff::hunks(old, new)
        .into_iter()
        .map(|hunk| {
            serde_json::json!({
                "oldStart": hunk.old_start, "oldLines": hunk.old_lines,
                "newStart": hunk.new_start, "newLines": hunk.new_lines, "lines": hunk.lines,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
