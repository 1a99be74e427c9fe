//! The tools of the agent, as an editor sees them: kind, title, which input field is the path, how the result is shown.
//!
//! Owns `mappings/tools.toml`. [`Tools::get`] knows an answer for every name: an unlisted tool has the row `default`, and a
//! tool of an MCP server (`mcp__SERVER__TOOL`) the row `mcp`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use super::template::{Template, one_line};
use super::{MappingError, Source};

/// ACP's tool kinds (schema 1.20, `ToolKind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// Reads files or data.
    Read,
    /// Changes files.
    Edit,
    /// Removes files.
    Delete,
    /// Moves or renames files.
    Move,
    /// Searches.
    Search,
    /// Runs commands or code.
    Execute,
    /// Thinks or plans.
    Think,
    /// Gets something from outside.
    Fetch,
    /// Changes the session's mode.
    SwitchMode,
    /// Anything else.
    #[default]
    Other,
}

impl ToolKind {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Edit => "edit",
            Self::Delete => "delete",
            Self::Move => "move",
            Self::Search => "search",
            Self::Execute => "execute",
            Self::Think => "think",
            Self::Fetch => "fetch",
            Self::SwitchMode => "switch_mode",
            Self::Other => "other",
        }
    }
}

/// How the content of a tool call is made from its input and its result. The rules are code; a row only names one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum ContentRule {
    /// Nothing: the title says it all.
    None,
    /// The result as text.
    #[default]
    Text,
    /// The result as the output of a command.
    Console,
    /// A file's text, without the line numbers the agent puts before each line for the model.
    File,
    /// A diff of `old` against `new` within `path`.
    DiffEdit,
    /// A diff of the whole file at `path` against `new`.
    DiffWrite,
    /// A diff of one notebook cell against `new`.
    DiffCell,
    /// The markdown of a plan that waits for approval.
    Plan,
    /// The complete list of entries, given in the input.
    Todo,
    /// One entry among those the session already has, given in input and result.
    Task,
    /// The report of a subagent.
    Report,
    /// A page or search results, as text.
    Fetch,
    /// Questions to the user.
    Questions,
}

/// One row as the file has it.
#[derive(Debug, Clone, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawRow {
    also: Vec<String>,
    kind: ToolKind,
    title: Titles,
    untitled: Option<String>,
    path: Option<String>,
    line: Option<String>,
    old: Option<String>,
    new: Option<String>,
    preview: Option<String>,
    content: ContentRule,
    card: Option<bool>,
}

/// One title, or several of which the first that can be filled in is taken.
#[derive(Debug, Clone, Default)]
struct Titles(Vec<String>);

impl<'de> Deserialize<'de> for Titles {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Titles;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a title or a list of titles")
            }
            fn visit_str<E: serde::de::Error>(self, title: &str) -> Result<Titles, E> {
                Ok(Titles(vec![title.to_owned()]))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut titles: A) -> Result<Titles, A::Error> {
                let mut all = Vec::new();
                while let Some(title) = titles.next_element()? {
                    all.push(title);
                }
                Ok(Titles(all))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTools {
    default: Option<RawRow>,
    mcp: Option<RawRow>,
    #[serde(default)]
    tool: BTreeMap<String, RawRow>,
}

#[derive(Debug, Clone)]
struct Facts {
    kind: ToolKind,
    titles: Vec<Template>,
    untitled: Option<String>,
    path: Option<String>,
    line: Option<String>,
    old: Option<String>,
    new: Option<String>,
    preview: Option<String>,
    content: ContentRule,
    card: bool,
}

/// The table of tools.
#[derive(Debug, Clone)]
pub struct Tools {
    rows: HashMap<String, Facts>,
    mcp: Facts,
    default: Facts,
}

/// The row of one tool name.
#[derive(Debug, Clone, Copy)]
pub struct ToolRow<'m> {
    facts: &'m Facts,
    name: &'m str,
    server: Option<&'m str>,
    tool: &'m str,
    listed: bool,
}

impl Tools {
    pub(super) fn read(layers: &[Source<'_>]) -> Result<Self, MappingError> {
        let mut rows = HashMap::new();
        let (mut mcp, mut default) = (Facts::check(RawRow::default())?, Facts::check(RawRow::default())?);
        for source in layers {
            let raw: RawTools = source.read()?;
            if let Some(row) = raw.mcp {
                mcp = Facts::new(*source, "mcp", row)?;
            }
            if let Some(row) = raw.default {
                default = Facts::new(*source, "default", row)?;
            }
            for (name, row) in raw.tool {
                let also = row.also.clone();
                let facts = Facts::new(*source, &format!("tool.{name}"), row)?;
                for other in also {
                    rows.insert(other, facts.clone());
                }
                rows.insert(name, facts);
            }
        }
        Ok(Self { rows, mcp, default })
    }

    /// The row for a tool of this name; never fails.
    #[must_use]
    pub fn get<'m>(&'m self, name: &'m str) -> ToolRow<'m> {
        if let Some(facts) = self.rows.get(name) {
            return ToolRow { facts, name, server: None, tool: name, listed: true };
        }
        match mcp_name(name) {
            Some((server, tool)) => ToolRow { facts: &self.mcp, name, server: Some(server), tool, listed: false },
            None => ToolRow { facts: &self.default, name, server: None, tool: name, listed: false },
        }
    }

    /// The names that have a row of their own, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.rows.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

/// Server and tool of `mcp__SERVER__TOOL`. A server name may hold single underscores, a tool name any.
fn mcp_name(name: &str) -> Option<(&str, &str)> {
    let (server, tool) = name.strip_prefix("mcp__")?.split_once("__")?;
    (!server.is_empty() && !tool.is_empty()).then_some((server, tool))
}

impl Facts {
    fn check(row: RawRow) -> Result<Self, MappingError> {
        Self::new(Source::toml(super::TOOLS, ""), "default", row)
    }

    fn new(source: Source<'_>, key: &str, row: RawRow) -> Result<Self, MappingError> {
        let titles = row
            .title
            .0
            .iter()
            .map(|title| source.template(&format!("{key}.title"), title, &[]))
            .collect::<Result<_, _>>()?;
        let needs = |field: &str, value: &Option<String>| match value {
            Some(_) => Ok(()),
            None => Err(source.wrong(
                format!("{key}.{field}"),
                "",
                format!("the input field that `content = \"{:?}\"` shows", row.content),
            )),
        };
        match row.content {
            ContentRule::DiffEdit => {
                needs("path", &row.path)?;
                needs("old", &row.old)?;
                needs("new", &row.new)?;
            }
            ContentRule::DiffWrite | ContentRule::DiffCell => {
                needs("path", &row.path)?;
                needs("new", &row.new)?;
            }
            _ => {}
        }
        Ok(Self {
            kind: row.kind,
            titles,
            untitled: row.untitled,
            path: row.path,
            line: row.line,
            old: row.old,
            new: row.new,
            preview: row.preview,
            content: row.content,
            card: row.card.unwrap_or(true),
        })
    }
}

impl<'m> ToolRow<'m> {
    /// The tool's name as the agent says it.
    #[must_use]
    pub fn name(&self) -> &'m str {
        self.name
    }

    /// ACP's kind for it.
    #[must_use]
    pub fn kind(&self) -> ToolKind {
        self.facts.kind
    }

    /// Whether the tool has a row of its own, so that its input is known.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// The MCP server the tool belongs to.
    #[must_use]
    pub fn server(&self) -> Option<&'m str> {
        self.server
    }

    /// The input field that holds the file's path.
    #[must_use]
    pub fn path(&self) -> Option<&'m str> {
        self.facts.path.as_deref()
    }

    /// The input field that holds the first line, counted from 1.
    #[must_use]
    pub fn line(&self) -> Option<&'m str> {
        self.facts.line.as_deref()
    }

    /// The input field with the text that is replaced.
    #[must_use]
    pub fn old(&self) -> Option<&'m str> {
        self.facts.old.as_deref()
    }

    /// The input field with the text that is put there.
    #[must_use]
    pub fn new_text(&self) -> Option<&'m str> {
        self.facts.new.as_deref()
    }

    /// The input field shown as text until there is a result.
    #[must_use]
    pub fn preview(&self) -> Option<&'m str> {
        self.facts.preview.as_deref()
    }

    /// How input and result become content.
    #[must_use]
    pub fn content(&self) -> ContentRule {
        self.facts.content
    }

    /// Whether the call is shown as a call of its own. If not, its effect is shown elsewhere (the plan), and it appears as a
    /// call only when it fails.
    #[must_use]
    pub fn card(&self) -> bool {
        self.facts.card
    }

    /// The title: the first one of the row whose placeholders `lookup` has a value for (the input's fields, as text), else
    /// the row's title for a call whose input is not known yet, else the tool's name. `{tool}` and `{server}` are known here:
    /// the tool's name (without its server's, if it belongs to one) and the server's. One line of at most
    /// [`MAX_CHARS`](super::template::MAX_CHARS) characters.
    pub fn title<'v>(&self, lookup: impl Fn(&str) -> Option<Cow<'v, str>>) -> String
    where
        'm: 'v,
    {
        let value = |field: &str| match field {
            "tool" => Some(Cow::Borrowed(self.tool)),
            // Without a server of its own, a tool may have an input field of this name.
            "server" if self.server.is_some() => self.server.map(Cow::Borrowed),
            field => lookup(field),
        };
        let filled = self.facts.titles.iter().find_map(|title| title.fill(value));
        let title = one_line(filled.as_deref().or(self.facts.untitled.as_deref()).unwrap_or(self.tool));
        if title.is_empty() { "Tool".to_owned() } else { title }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings::Mappings;
    use crate::mappings::template::MAX_CHARS;

    fn title(name: &str, input: &[(&str, &str)]) -> String {
        Mappings::builtin()
            .tools
            .get(name)
            .title(|field| input.iter().find(|(key, _)| *key == field).map(|(_, value)| Cow::Borrowed(*value)))
    }

    #[test]
    fn each_listed_tool_has_kind_title_and_rule() {
        let rows = [
            ("Bash", ToolKind::Execute, ContentRule::Console, "Terminal"),
            ("Read", ToolKind::Read, ContentRule::File, "Read file"),
            ("Write", ToolKind::Edit, ContentRule::DiffWrite, "Write file"),
            ("Edit", ToolKind::Edit, ContentRule::DiffEdit, "Edit file"),
            ("NotebookEdit", ToolKind::Edit, ContentRule::DiffCell, "Edit notebook"),
            ("Glob", ToolKind::Search, ContentRule::Text, "Find files"),
            ("Grep", ToolKind::Search, ContentRule::Text, "Search"),
            ("WebFetch", ToolKind::Fetch, ContentRule::Fetch, "Fetch page"),
            ("WebSearch", ToolKind::Fetch, ContentRule::Fetch, "Search the web"),
            ("Task", ToolKind::Think, ContentRule::Report, "Subagent"),
            ("Agent", ToolKind::Think, ContentRule::Report, "Subagent"),
            ("ExitPlanMode", ToolKind::SwitchMode, ContentRule::Plan, "Approve the plan"),
            ("EnterPlanMode", ToolKind::SwitchMode, ContentRule::None, "Enter plan mode"),
            ("AskUserQuestion", ToolKind::Other, ContentRule::Questions, "Question"),
            ("TodoWrite", ToolKind::Think, ContentRule::Todo, "Update the plan"),
        ];
        for (name, kind, content, untitled) in rows {
            let row = Mappings::builtin().tools.get(name);
            assert_eq!((row.kind(), row.content()), (kind, content), "{name}");
            assert_eq!(title(name, &[]), untitled, "{name}");
        }
    }

    #[test]
    fn every_tool_of_the_measured_claude_has_a_row() {
        // `tools` of system/init of 2.1.332, plus those that a flag or an environment variable adds.
        let tools = "Task AskUserQuestion Bash CronCreate CronDelete CronList Edit EnterPlanMode EnterWorktree ExitPlanMode \
             ExitWorktree ListAgents Monitor NotebookEdit Read ReportFindings ScheduleWakeup SendMessage Skill TaskStop \
             ToolSearch WebFetch WebSearch Workflow Write Glob Grep TodoWrite TaskCreate TaskGet TaskList TaskUpdate \
             TaskOutput KillShell BashOutput StructuredOutput Agent";
        let known = Mappings::builtin().tools.names();
        let missing: Vec<_> = tools.split_whitespace().filter(|name| !known.contains(name)).collect();
        assert!(missing.is_empty(), "no row for {missing:?}");
    }

    #[test]
    fn titles_are_filled_from_the_input() {
        assert_eq!(title("Bash", &[("command", "cargo test")]), "cargo test");
        assert_eq!(title("Read", &[("file_path", "src/main.rs")]), "Read src/main.rs");
        assert_eq!(title("Grep", &[("pattern", "fn main")]), "Search for fn main");
        assert_eq!(title("Grep", &[("pattern", "fn main"), ("path", "src")]), "Search for fn main in src");
        assert_eq!(title("Skill", &[("skill", "pdf")]), "Use skill pdf");
    }

    #[test]
    fn an_mcp_tool_names_tool_and_server() {
        assert_eq!(title("mcp__calc__add", &[]), "add (calc)");
        assert_eq!(title("mcp__my_server__get__it", &[]), "get__it (my_server)");
        assert_eq!(Mappings::builtin().tools.get("mcp__calc__add").server(), Some("calc"));
        assert_eq!(title("mcp__calc", &[]), "mcp__calc", "not of that form");
    }

    #[test]
    fn an_unknown_tool_is_titled_by_its_name() {
        let row = Mappings::builtin().tools.get("Frobnicate");
        assert_eq!((row.kind(), row.content()), (ToolKind::Other, ContentRule::Text));
        assert_eq!(title("Frobnicate", &[("command", "x")]), "Frobnicate");
    }

    #[test]
    fn a_title_is_one_bounded_line() {
        let long = format!("echo 'ü\n{}'", "ü ".repeat(100_000));
        let title = title("Bash", &[("command", &long)]);
        assert!(title.starts_with("echo 'ü ü ü"), "{title}");
        assert_eq!(title.chars().count(), MAX_CHARS);
        assert!(!title.contains('\n'));
    }

    #[test]
    fn a_command_of_white_space_falls_back() {
        assert_eq!(title("Bash", &[("command", " \n ")]), "Terminal");
        assert_eq!(title("\u{1b}", &[]), "Tool");
    }

    #[test]
    fn the_tables_that_diffs_need_name_their_fields() {
        let edit = Mappings::builtin().tools.get("Edit");
        assert_eq!(
            (edit.path(), edit.old(), edit.new_text()),
            (Some("file_path"), Some("old_string"), Some("new_string"))
        );
        let read = Mappings::builtin().tools.get("Read");
        assert_eq!((read.path(), read.line()), (Some("file_path"), Some("offset")));
        let source = Source::toml("tools.toml", "[tool.X]\npath = \"p\"\ncontent = \"diff_write\"\n");
        let error = Tools::read(&[source]).expect_err("refused").to_string();
        assert!(error.contains("tool.X.new"), "{error}");
    }

    #[test]
    fn what_becomes_the_plan_has_no_card() {
        for name in ["TodoWrite", "TaskCreate", "TaskUpdate", "TaskGet", "TaskList"] {
            assert!(!Mappings::builtin().tools.get(name).card(), "{name}");
        }
        assert!(Mappings::builtin().tools.get("Task").card());
    }
}
