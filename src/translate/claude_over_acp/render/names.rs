//! What an agent's tool is in Claude's terms.
//!
//! Owns the recognition: by ACP's kind, by the names that the agents' tools have (acp-agents.md, section 3) and by the servers
//! that the session was given. Keeps: whatever may run a command is a command, whatever else it calls itself.

use serde_json::Value;

use super::super::calls::Call;
use super::Context;

/// What a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Shell,
    Read,
    List,
    Edit,
    Write,
    Delete,
    Move,
    Grep,
    Glob,
    Fetch,
    WebSearch,
    Agent,
    Plan,
    Todos,
    Questions,
    Other,
}

/// The sort of a tool that is known by its name.
pub(super) fn by_name(name: &str) -> Option<Sort> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    Some(match plain.as_str() {
        "bash" | "shell" | "runshellcommand" | "runterminalcommand" | "runterminalcmd" | "execute"
        | "executecommand" | "execcommand" | "runcommand" | "runcommands" | "localshell" | "powershell"
        | "terminal" => Sort::Shell,
        "read" | "readfile" | "view" | "viewfile" | "readtextfile" | "readmanyfiles" | "readfiles" | "cat"
        | "readmediafile" => Sort::Read,
        "ls" | "list" | "listdir" | "listdirectory" | "listfiles" => Sort::List,
        "write" | "writefile" | "create" | "createfile" | "writetextfile" | "writetofile" => Sort::Write,
        "edit"
        | "replace"
        | "searchreplace"
        | "strreplace"
        | "editfile"
        | "multiedit"
        | "applypatch"
        | "strreplaceeditor"
        | "strreplacebasededittool"
        | "replaceinfile" => Sort::Edit,
        "grep" | "grepsearch" | "searchfilecontent" | "ripgrep" | "rg" | "searchfiles" | "searchcodebase" => Sort::Grep,
        "glob" | "find" | "findfiles" | "globsearch" | "filesearch" => Sort::Glob,
        "webfetch" | "fetch" | "fetchurl" | "fetchwebcontent" => Sort::Fetch,
        "websearch" | "googlewebsearch" | "searchweb" => Sort::WebSearch,
        "task" | "agent" | "subagent" | "spawnagent" | "runsubagent" | "delegate" => Sort::Agent,
        "exitplanmode" | "enterplanmode" => Sort::Plan,
        "todowrite" | "todolist" | "writetodos" | "settodolist" => Sort::Todos,
        "askuserquestion" => Sort::Questions,
        _ => return None,
    })
}

/// Whether a text can be the name of a tool.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b))
}

/// The name of the agent's tool, as far as it is known.
pub(super) fn name(call: &Call) -> Option<&str> {
    if let Some(name) = &call.name {
        return Some(name);
    }
    if is_name(&call.first_title) && by_name(&call.first_title).is_some() {
        return Some(&call.first_title);
    }
    // Cline: "read_files: {…}".
    if let Some((name, _)) = call.first_title.split_once(": ")
        && is_name(name)
        && by_name(name).is_some()
    {
        return Some(name);
    }
    // Gemini's ids begin with the tool's name.
    let id = call.id.split_once("__fc_").map(|(name, _)| name).filter(|name| is_name(name));
    id.or_else(|| Some(call.first_title.as_str()).filter(|title| is_name(title) && !title.contains(['.', '/'])))
}

pub(super) fn sort(call: &Call) -> Sort {
    let named = name(call).and_then(by_name);
    let by_kind = match call.kind.as_deref().unwrap_or_default() {
        "execute" => Sort::Shell,
        "read" => Sort::Read,
        "edit" => Sort::Edit,
        "delete" => Sort::Delete,
        "move" => Sort::Move,
        "search" => Sort::Grep,
        "fetch" => Sort::Fetch,
        "switch_mode" => Sort::Plan,
        _ => Sort::Other,
    };
    let has_command = call.raw_input.as_ref().is_some_and(|input| {
        ["command", "commands", "cmd"].iter().any(|key| input.get(key).is_some_and(|v| v.is_string() || v.is_array()))
    });
    // A command is a command even where the agent says that it only reads (codex): rules must see it.
    if has_command && !matches!(named, Some(Sort::Edit | Sort::Write)) || by_kind == Sort::Shell {
        return Sort::Shell;
    }
    match (named, by_kind) {
        (None, kind) => kind,
        // A name that says less than the kind: codex calls everything `exec_command`.
        (Some(Sort::Shell), kind) if kind != Sort::Other => kind,
        // A change of files is none the less one for being called something harmless.
        (Some(Sort::Edit | Sort::Write), Sort::Edit) => named.unwrap_or(by_kind),
        (Some(_), Sort::Edit | Sort::Delete | Sort::Move) => by_kind,
        (Some(named), _) => named,
    }
}

/// The server and the tool, when the tool belongs to a server that the session was given.
pub(super) fn mcp<'a>(call: &'a Call, context: &'a Context<'_>) -> Option<(&'a str, &'a str)> {
    let input = call.raw_input.as_ref();
    let member = |key: &str| input.and_then(|input| input.get(key)).and_then(Value::as_str);
    // codex: {server, tool, arguments}.
    if let (Some(server), Some(tool)) = (member("server"), member("tool"))
        && (call.mcp || call.title.starts_with("mcp."))
        && let Some(server) = context.mcp_servers.iter().find(|known| *known == server)
    {
        return Some((server, tool));
    }
    let id = call.id.split_once("__fc_").map(|(name, _)| name);
    let candidates = [member("tool_name"), call.name.as_deref(), Some(&*call.title), Some(&*call.first_title), id];
    // A name with one separator may as well be a tool of the agent's own.
    let loose = matches!(call.kind.as_deref(), None | Some("other"));
    let mut servers: Vec<&String> = context.mcp_servers.iter().collect();
    servers.sort_by_key(|name| std::cmp::Reverse(name.len()));
    for server in servers {
        let plain = clean(server);
        for candidate in candidates.into_iter().flatten() {
            if let Some(tool) = tool_of(candidate, server, loose).or_else(|| tool_of(candidate, &plain, loose)) {
                return Some((server, tool));
            }
        }
    }
    None
}

/// The tool in `candidate` if that names a tool of `server` in one of the agents' ways.
fn tool_of<'a>(candidate: &'a str, server: &str, loose: bool) -> Option<&'a str> {
    let after = |prefix: &str, separator: &str| {
        candidate.strip_prefix(prefix)?.strip_prefix(server)?.strip_prefix(separator).filter(|tool| is_name(tool))
    };
    let exact =
        after("mcp__", "__").or_else(|| after("mcp.", ".")).or_else(|| after("mcp_", "_")).or_else(|| after("", "__"));
    if exact.is_some() {
        return exact;
    }
    // Gemini: "echo (probe MCP Server)".
    if let Some(tool) = candidate.strip_suffix(" MCP Server)").and_then(|rest| rest.strip_suffix(server))
        && let Some(tool) = tool.strip_suffix(" (").filter(|tool| is_name(tool))
    {
        return Some(tool);
    }
    if !loose || by_name(candidate).is_some() {
        return None;
    }
    ["_", "-", "/", "."].iter().find_map(|separator| after("", separator))
}

/// A text as a tool's name: at most 64 of `[A-Za-z0-9_-]`.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(64));
    for c in text.trim().chars() {
        let c = if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
        // Words of a title are parted by one underscore.
        if !(c == '_' && out.ends_with('_') && !text.contains("__")) {
            out.push(c);
        }
        if out.len() == 64 {
            break;
        }
    }
    if out.chars().all(|c| c == '_') { "Tool".to_owned() } else { out }
}
