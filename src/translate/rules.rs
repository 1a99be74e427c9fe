//! Permissions that are decided without asking.
//!
//! Owns Claude's rules (`Bash(git *)`, `Edit(src/**)`, `mcp__server__tool`) over rendered tools and what hosts change of them
//! during a session. Keeps: a rule that forbids wins over one that asks, and that over one that allows; what is not understood
//! is never allowed; a rule that is not understood is named to whoever gave it.

mod mode;
mod paths;
mod shell;

pub(crate) use paths::by_letters;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::mappings::permissions::PermissionUpdate;

pub use mode::PermissionMode;

/// Where rules are from that the session was started with.
pub const STARTUP: &str = "cliArg";

/// What is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The call runs.
    Allow,
    /// The host is asked, whatever else would allow it.
    Ask,
    /// The call does not run.
    Deny,
}

/// A decision and what made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What is decided.
    pub decision: Decision,
    /// The rule, or the mode, in words for a person.
    pub rule: String,
}

impl Verdict {
    /// One decision about a call that has several tool uses: any refusal refuses, any question asks, and it is allowed only
    /// when all of it is.
    #[must_use]
    pub fn of_all(verdicts: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        let verdicts: Vec<Option<Self>> = verdicts.into_iter().collect();
        let worst = |decision| verdicts.iter().flatten().find(|verdict| verdict.decision == decision).cloned();
        let all = verdicts.iter().all(Option::is_some);
        worst(Decision::Deny)
            .or_else(|| worst(Decision::Ask))
            .or_else(|| if all { worst(Decision::Allow) } else { None })
    }
}

/// A rule that is not understood, and is not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {} rule `{rule}` is not followed: {why}", self.behavior())]
pub struct Rejected {
    /// What the rule would decide.
    pub decision: Decision,
    /// The rule as it was given.
    pub rule: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl Rejected {
    fn behavior(&self) -> &'static str {
        match self.decision {
            Decision::Allow => "allow",
            Decision::Ask => "ask",
            Decision::Deny => "deny",
        }
    }
}

/// What a rule is limited to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Limit {
    /// Every call of the tool.
    None,
    /// One command.
    Command(String),
    /// A command and whatever follows it.
    Prefix(String),
    /// Commands with a `*`.
    Pattern(String),
    Path(String),
    Domain(String),
    /// A kind of helper agent or a skill.
    Named(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    decision: Decision,
    tool: String,
    content: Option<String>,
    limit: Limit,
    destination: String,
}

/// The rules of a session.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    home: Option<PathBuf>,
}

/// What else a host changes together with the rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// The mode the session goes on in.
    pub mode: Option<PermissionMode>,
    /// Directories that belong to the session from now on.
    pub add_directories: Vec<PathBuf>,
    /// Directories that no longer do.
    pub remove_directories: Vec<PathBuf>,
    /// Rules that are not understood.
    pub rejected: Vec<Rejected>,
}

impl Rules {
    /// Reads the rules that a session starts with; also those that are not understood and must be told. `home` is the home
    /// directory, for rules with `~/`.
    #[must_use]
    pub fn parse<S: AsRef<str>>(allow: &[S], ask: &[S], deny: &[S], home: Option<&Path>) -> (Self, Vec<Rejected>) {
        let mut rules = Self { rules: Vec::new(), home: home.map(Path::to_owned) };
        let mut rejected = Vec::new();
        for (decision, list) in [(Decision::Allow, allow), (Decision::Ask, ask), (Decision::Deny, deny)] {
            for rule in list {
                rejected.extend(rules.add(decision, rule.as_ref(), STARTUP).err());
            }
        }
        (rules, rejected)
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// When it is not understood; it is not followed then.
    pub fn add(&mut self, decision: Decision, rule: &str, destination: &str) -> Result<(), Rejected> {
        let rejected = |why| Rejected { decision, rule: rule.to_owned(), why };
        let text = rule.trim();
        let (tool, content) = match text.split_once('(') {
            None => (text, None),
            Some((tool, rest)) => {
                let content = rest.strip_suffix(')').ok_or_else(|| rejected("its parenthesis is not closed"))?;
                (tool.trim(), Some(unescape(content)))
            }
        };
        self.add_parts(decision, tool, content, destination).map_err(rejected)
    }

    fn add_parts(
        &mut self,
        decision: Decision,
        tool: &str,
        content: Option<String>,
        destination: &str,
    ) -> Result<(), &'static str> {
        let named = !tool.is_empty() && tool.chars().all(|c| c.is_ascii_alphanumeric() || "_-*.".contains(c));
        if !named {
            return Err("that is no tool's name");
        }
        // An allowance for tools that nobody has named yet is more than anybody means.
        let wild_end =
            tool.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")).is_some_and(|(s, _)| !s.contains('*'));
        if decision == Decision::Allow && tool.contains('*') && tool != "*" && !wild_end {
            return Err("`*` in a tool's name is only understood after `mcp__SERVER__`");
        }
        let content =
            content.map(|content| content.trim().to_owned()).filter(|content| !content.is_empty() && content != "*");
        let limit = match (&content, tool) {
            (None, _) => Limit::None,
            (Some(content), "Bash") => command_limit(content),
            (Some(content), "Edit" | "Write" | "MultiEdit" | "NotebookEdit" | "Read" | "Grep" | "Glob" | "LS") => {
                if content.starts_with('!') || content.contains('[') {
                    return Err("`!` and `[` are not understood in a path");
                }
                if content.starts_with("~") && self.home.is_none() {
                    return Err("there is no home directory");
                }
                if content.starts_with('~') && content != "~" && !content.starts_with("~/") {
                    return Err("the home of another user is not understood");
                }
                Limit::Path(content.clone())
            }
            (Some(content), "WebFetch") => match content.strip_prefix("domain:").map(str::trim) {
                Some(domain) if !domain.is_empty() => Limit::Domain(domain.to_ascii_lowercase()),
                _ => return Err("only `domain:NAME` is understood here"),
            },
            (Some(content), "Task" | "Agent" | "Skill") => Limit::Named(content.clone()),
            (Some(_), _) => return Err("this tool's rules have no parentheses"),
        };
        let rule = Rule { decision, tool: tool.to_owned(), content, limit, destination: destination.to_owned() };
        if !self.rules.contains(&rule) {
            self.rules.push(rule);
        }
        Ok(())
    }

    /// Whether there is no rule at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a rule forbids anything or wants it asked: the agent must then be in a mode in which it asks.
    #[must_use]
    pub fn restricts(&self) -> bool {
        self.rules.iter().any(|rule| rule.decision != Decision::Allow)
    }

    /// Whether every call of a tool is forbidden, whatever its input.
    #[must_use]
    pub fn forbids_tool(&self, name: &str) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.decision == Decision::Deny && rule.limit == Limit::None && names(&rule.tool, name))
    }

    /// Puts the whole tool in the place of a rule that was not understood, if it restricts: better too much than nothing.
    /// Says so.
    pub fn widen(&mut self, rejected: &Rejected) -> &'static str {
        let tool = rejected.rule.split('(').next().unwrap_or_default().trim();
        if rejected.decision == Decision::Allow || self.add(rejected.decision, tool, STARTUP).is_err() {
            return "";
        }
        "; it is taken as a rule for the whole tool"
    }

    /// What the rules decide about a rendered tool; `None`: nothing.
    #[must_use]
    pub fn decide(&self, name: &str, input: &Map<String, Value>, cwd: &Path) -> Option<Verdict> {
        let call = Call { name, input, cwd, home: self.home.as_deref() };
        for decision in [Decision::Deny, Decision::Ask] {
            let found = self.rules.iter().find(|rule| rule.decision == decision && call.touches(rule));
            if let Some(rule) = found {
                return Some(Verdict { decision, rule: rule.text() });
            }
        }
        let allowing: Vec<&Rule> =
            self.rules.iter().filter(|rule| rule.decision == Decision::Allow && names(&rule.tool, name)).collect();
        let rule = call.allowed_by(&allowing)?;
        Some(Verdict { decision: Decision::Allow, rule })
    }

    /// Changes the rules as a host's answer says, for this session: rules kept for longer are the host's to keep.
    pub fn apply(&mut self, updates: &[PermissionUpdate<'_>]) -> Applied {
        let mut applied = Applied::default();
        for update in updates {
            let decision = match update.behavior.as_ref() {
                "allow" => Some(Decision::Allow),
                "ask" => Some(Decision::Ask),
                "deny" => Some(Decision::Deny),
                _ => None,
            };
            let directories = || update.directories.iter().map(|path| PathBuf::from(path.as_ref()));
            match (update.kind.as_ref(), decision) {
                ("addRules", Some(decision)) => self.add_all(decision, update, &mut applied),
                ("replaceRules", Some(decision)) => {
                    self.rules.retain(|rule| rule.decision != decision || rule.destination != update.destination);
                    self.add_all(decision, update, &mut applied);
                }
                ("removeRules", Some(decision)) => self.rules.retain(|rule| {
                    let same = |other: &crate::mappings::permissions::PermissionRule<'_>| {
                        let content = other.rule_content.as_deref().map(str::trim);
                        rule.tool == other.tool_name
                            && rule.content.as_deref() == content.filter(|c| !c.is_empty() && *c != "*")
                    };
                    let here = rule.decision == decision && rule.destination == update.destination;
                    !(here && update.rules.iter().any(same))
                }),
                ("setMode", _) => applied.mode = PermissionMode::parse(&update.mode).or(applied.mode),
                ("addDirectories", _) => applied.add_directories.extend(directories()),
                ("removeDirectories", _) => applied.remove_directories.extend(directories()),
                _ => {}
            }
        }
        applied
    }

    fn add_all(&mut self, decision: Decision, update: &PermissionUpdate<'_>, applied: &mut Applied) {
        for rule in &update.rules {
            let content = rule.rule_content.as_deref().map(str::to_owned);
            let text =
                content.as_ref().map_or_else(|| rule.tool_name.to_string(), |c| format!("{}({c})", rule.tool_name));
            if let Err(why) = self.add_parts(decision, &rule.tool_name, content, &update.destination) {
                applied.rejected.push(Rejected { decision, rule: text, why });
            }
        }
    }
}

/// Reads the `updatedPermissions` of a host's answer; what is no update is left out.
#[must_use]
pub fn read_updates(updates: &Value) -> Vec<PermissionUpdate<'_>> {
    let list = updates.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|update| PermissionUpdate::deserialize(update).ok()).collect()
}

/// The rules of a list as it is written for `--allowedTools`: parted by commas or spaces outside of parentheses.
#[must_use]
pub fn split_list(list: &str) -> Vec<String> {
    let mut rules = vec![String::new()];
    let mut depth = 0usize;
    let mut escaped = false;
    for c in list.chars() {
        match c {
            '(' if !escaped => depth += 1,
            ')' if !escaped => depth = depth.saturating_sub(1),
            c if depth == 0 && (c == ',' || c.is_whitespace()) => {
                rules.push(String::new());
                continue;
            }
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        if let Some(rule) = rules.last_mut() {
            rule.push(c);
        }
    }
    rules.retain(|rule| !rule.is_empty());
    rules
}

impl Rule {
    fn text(&self) -> String {
        self.content.as_ref().map_or_else(|| self.tool.clone(), |content| format!("{}({content})", self.tool))
    }
}

/// `\(`, `\)` and `\\` of a rule's content; another backslash is one.
fn unescape(content: &str) -> String {
    let mut out = String::with_capacity(content.len());
    let mut chars = content.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = (c == '\\').then(|| chars.next_if(|c| matches!(c, '(' | ')' | '\\'))).flatten();
        out.push(escaped.unwrap_or(c));
    }
    out
}

fn command_limit(content: &str) -> Limit {
    if let Some(prefix) = content.strip_suffix(":*").or_else(|| content.strip_suffix(" *"))
        && !prefix.contains('*')
    {
        return match prefix.trim() {
            "" => Limit::None,
            prefix => Limit::Prefix(prefix.to_owned()),
        };
    }
    if content.contains('*') { Limit::Pattern(content.to_owned()) } else { Limit::Command(content.to_owned()) }
}

/// Whether a rule for `rule` is one for the tool `name`.
fn names(rule: &str, name: &str) -> bool {
    if rule == name {
        return true;
    }
    match rule {
        // Claude's rules for one are for all tools of that sort.
        "Edit" => matches!(name, "Write" | "MultiEdit" | "NotebookEdit"),
        "Read" => matches!(name, "Grep" | "Glob" | "LS" | "NotebookRead"),
        "Task" | "Agent" => matches!(name, "Task" | "Agent"),
        _ if rule.contains('*') => paths::wildcard(rule, name),
        _ => {
            let is_server =
                rule.strip_prefix("mcp__").is_some_and(|server| !server.is_empty() && !server.contains("__"));
            is_server && name.strip_prefix(rule).is_some_and(|rest| rest.starts_with("__"))
        }
    }
}

/// A call that is decided.
struct Call<'a> {
    name: &'a str,
    input: &'a Map<String, Value>,
    cwd: &'a Path,
    home: Option<&'a Path>,
}

impl Call<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.input.get(key)?.as_str()
    }

    /// Whether a rule that forbids or asks is about the call or about any part of it.
    fn touches(&self, rule: &Rule) -> bool {
        if !names(&rule.tool, self.name) {
            return false;
        }
        match &rule.limit {
            Limit::Command(_) | Limit::Prefix(_) | Limit::Pattern(_) => {
                let command = self.text("command").unwrap_or_default();
                shell::suspects(command).iter().any(|part| runs(&rule.limit, part))
            }
            // What cannot be told from the domain is not let through.
            Limit::Domain(domain) => self.hosts().is_none_or(|hosts| hosts.iter().any(|host| is_host(domain, host))),
            limit => self.meets(limit),
        }
    }

    /// The rules that allow the whole call, in words.
    fn allowed_by(&self, rules: &[&Rule]) -> Option<String> {
        let whole = rules.iter().find(|rule| match &rule.limit {
            Limit::Command(command) => self.text("command").is_some_and(|text| text.trim() == command),
            Limit::Prefix(_) | Limit::Pattern(_) => false,
            Limit::Domain(domain) => {
                self.hosts().is_some_and(|hosts| !hosts.is_empty() && hosts.iter().all(|host| is_host(domain, host)))
            }
            limit => self.meets(limit),
        });
        if let Some(rule) = whole {
            return Some(rule.text());
        }
        if self.name != "Bash" {
            return None;
        }
        let commands = shell::simple_commands(self.text("command")?)?;
        let mut texts: Vec<String> = Vec::new();
        for command in &commands {
            let text = rules.iter().find(|rule| runs(&rule.limit, command))?.text();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    /// Whether the call is within a limit that is no command's and no domain's.
    fn meets(&self, limit: &Limit) -> bool {
        match limit {
            Limit::None => true,
            Limit::Path(pattern) => {
                let path = ["file_path", "notebook_path", "path"].iter().find_map(|key| self.text(key));
                // A search without a path is one in the working directory.
                let path = paths::normal(path.unwrap_or_default(), self.cwd, self.home);
                paths::matches(pattern, &path, self.cwd, self.home)
            }
            Limit::Named(name) => {
                ["subagent_type", "skill", "command", "name"].iter().find_map(|key| self.text(key)) == Some(name)
            }
            Limit::Command(_) | Limit::Prefix(_) | Limit::Pattern(_) | Limit::Domain(_) => false,
        }
    }

    /// The hosts of the addresses that are fetched; `None` if an address is not understood.
    fn hosts(&self) -> Option<Vec<String>> {
        self.text("url")?.split_whitespace().map(host).collect()
    }
}

/// Whether a limit of commands covers one simple command.
fn runs(limit: &Limit, command: &str) -> bool {
    match limit {
        Limit::None => true,
        Limit::Command(exact) => command == exact,
        Limit::Prefix(prefix) => {
            command.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
        }
        Limit::Pattern(pattern) => {
            // `?` is no sign of command rules.
            let pattern = pattern.replace('?', "\\?");
            let bare = pattern.strip_suffix(" *").is_some_and(|start| paths::wildcard(start, command));
            bare || paths::wildcard(&pattern, command)
        }
        _ => false,
    }
}

/// The host of an address with `http` or `https`, in lower case and without a last dot.
fn host(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let host = authority.rsplit('@').next()?;
    let host = if host.starts_with('[') { host.split_inclusive(']').next()? } else { host.split(':').next()? };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    (!host.is_empty() && !host.contains('%')).then_some(host)
}

/// Whether a rule's domain is the host; `*.` stands for the names below.
fn is_host(domain: &str, host: &str) -> bool {
    domain == host || domain.contains('*') && paths::wildcard(domain, host)
}

#[cfg(test)]
mod tests;
