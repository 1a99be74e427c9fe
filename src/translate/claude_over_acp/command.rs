//! Command lines of an agent's terminals.
//!
//! Owns the reading of `terminal/create` and the line that is decided about. Keeps: what is decided about is what runs. One
//! of the system's shells that is only there to run one line is left out of it (`bash -lc 'LINE'` is LINE); a directory
//! that is not the session's is in it, and so is what an agent adds to the environment, but for what says how output looks
//! and that nobody is at the keyboard.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::translate::client::Command;
use crate::wire::jsonrpc::RpcError;

/// A command as a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// What a shell would be given.
    pub(super) line: String,
    /// Where it runs, if that is not the session's directory.
    elsewhere: Option<PathBuf>,
    /// What it finds in its environment that can change what it does.
    env: Vec<(String, String)>,
}

/// Variables that change how output looks or name the agent's session, with any plain value (recordings of grok 1.0.41 and
/// kimi 2.1).
const LOOKS: [&str; 15] = [
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "LINES",
    "GIT_TERMINAL_PROMPT",
    "NPM_CONFIG_PROGRESS",
    "PIP_PROGRESS_BAR",
    "CARGO_TERM_COLOR",
    "CARGO_TERM_PROGRESS_WHEN",
    "CARGO_TERM_PROGRESS_WIDTH",
    "GROK_SESSION_ID",
];

/// Variables that change no more than looks with just this value.
const LOOKS_AS: [(&str, &str); 7] = [
    // Nobody is at the keyboard.
    ("CI", "true"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("SHELL", "/bin/bash"),
    ("SHELL", "/bin/sh"),
    ("MAVEN_OPTS", "-Dstyle.color=always"),
    ("GRADLE_OPTS", "-Dorg.gradle.console=rich"),
];

impl CommandLine {
    pub(super) fn of(command: &Command, cwd: &Path) -> Self {
        let words = std::iter::once(&command.program).chain(&command.args).map(|word| quoted(word));
        let args: Vec<&str> = command.args.iter().map(String::as_str).collect();
        let line = match one_script(&command.program, &args) {
            Some(script) => unwrapped(script),
            None => words.collect::<Vec<_>>().join(" "),
        };
        let line = if command.cwd == cwd { here(&line, cwd).to_owned() } else { line };
        let looks = |(name, value): &(String, String)| {
            let known = LOOKS.contains(&name.as_str()) && is_plain(value) && value.len() <= 64;
            // A line that names it may do with it whatever it likes.
            (known || LOOKS_AS.contains(&(name.as_str(), value.as_str()))) && !line.contains(name.as_str())
        };
        let tells = |pair: &&(String, String)| !looks(pair);
        let env = command.env.iter().filter(tells).cloned().collect();
        Self { line, elsewhere: (command.cwd != cwd).then(|| command.cwd.clone()), env }
    }

    /// The line with the directory in which it runs and what it finds in its environment.
    pub(super) fn whole(&self) -> String {
        let cwd = self.elsewhere.iter().map(|cwd| format!("cd {} && ", quoted(&cwd.to_string_lossy())));
        let env = self.env.iter().map(|(name, value)| format!("export {}={} && ", quoted(name), quoted(value)));
        cwd.chain(env).chain(std::iter::once(self.line.clone())).collect()
    }
}

/// Reads `terminal/create`.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(params: &Map<String, Value>, cwd: &Path, most: usize) -> Result<Command, RpcError> {
    let wrong = |what: &str| RpcError::invalid_params(format!("terminal/create: {what}"));
    let text = |name: &str| params.get(name).and_then(Value::as_str);
    let line = text("command").filter(|line| !line.trim().is_empty()).ok_or_else(|| wrong("`command` is missing"))?;
    let list = |name: &str| params.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let args: Option<Vec<String>> = list("args").iter().map(|arg| Some(arg.as_str()?.to_owned())).collect();
    let args = args.ok_or_else(|| wrong("`args` must be strings"))?;
    let pair = |pair: &Value| Some((pair.get("name")?.as_str()?.to_owned(), pair.get("value")?.as_str()?.to_owned()));
    let env: Option<Vec<(String, String)>> = list("env").iter().map(pair).collect();
    let env = env.ok_or_else(|| wrong("`env` must be names and values"))?;
    let usable = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
    let nul = args.iter().chain([&line.to_owned()]).chain(env.iter().map(|(_, value)| value)).any(|t| t.contains('\0'));
    if nul || !env.iter().all(|(name, _)| usable(name)) {
        return Err(wrong("a text that no command can have"));
    }
    let cwd = match text("cwd").filter(|cwd| !cwd.is_empty()).map(PathBuf::from) {
        Some(cwd) if cwd.is_absolute() => cwd,
        Some(_) => return Err(wrong("`cwd` must be an absolute path")),
        None => cwd.to_owned(),
    };
    let limit = params.get("outputByteLimit").and_then(Value::as_u64);
    let keep = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(most).min(most);
    let (program, args) = match args.is_empty() && !is_plain(line) {
        // A whole line, as Grok and CodeBuddy send it (quirk 24).
        true if cfg!(windows) => ("cmd".to_owned(), vec!["/C".to_owned(), line.to_owned()]),
        true => ("sh".to_owned(), vec!["-c".to_owned(), line.to_owned()]),
        false => (line.to_owned(), args),
    };
    Ok(Command { program, args, env, cwd, keep })
}

/// Whether a text is a program's name or path and nothing for a shell.
fn is_plain(line: &str) -> bool {
    line.chars().all(|c| c.is_alphanumeric() || "_-./+:@%,\\".contains(c))
}

/// A line without a way to where it runs anyhow: Kimi goes there first.
pub(super) fn here<'l>(line: &'l str, cwd: &Path) -> &'l str {
    let cwd = cwd.to_string_lossy();
    let quotes = format!("'{}'", cwd.replace('\'', "'\\''"));
    let way = [quoted(&cwd), quotes.into()];
    way.iter().find_map(|way| line.strip_prefix(&format!("cd {way} && "))).unwrap_or(line)
}

/// The script of a shell that is given one and nothing else.
pub(super) fn one_script<'a>(program: &str, args: &[&'a str]) -> Option<&'a str> {
    // A program of the same name anywhere else may be anything.
    const SYSTEM: [&str; 4] = ["/bin/", "/usr/bin/", "/usr/local/bin/", "/opt/homebrew/bin/"];
    let name = SYSTEM.iter().find_map(|place| program.strip_prefix(place)).unwrap_or(program);
    match (name, args) {
        ("sh" | "bash" | "zsh" | "dash", [flag, script]) if matches!(*flag, "-c" | "-lc" | "-l -c") => Some(script),
        ("cmd" | "cmd.exe", [flag, script]) if cfg!(windows) && flag.eq_ignore_ascii_case("/c") => Some(script),
        _ => None,
    }
}

/// A line without a shell around it that only runs one line.
pub(super) fn unwrapped(line: &str) -> String {
    let Some(words) = words(line) else { return line.to_owned() };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.split_first().and_then(|(program, args)| one_script(program, args)) {
        Some(script) => unwrapped(script),
        None => line.to_owned(),
    }
}

/// The words of a line that needs no shell but for its quotes; `None` for any other.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        '"' => break,
                        '$' | '`' => return None,
                        '\\' => match rest.next()? {
                            c @ ('"' | '\\' | '$' | '`') => word.push(c),
                            // A shell takes both away.
                            '\n' => return None,
                            c => word.extend(['\\', c]),
                        },
                        c => word.push(c),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(rest.next().filter(|c| *c != '\n')?),
            '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?' | '[' | '{' | '~' | '#' | '!' => {
                return None;
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> Cow<'_, str> {
    if !word.is_empty() && is_plain(word) && !word.contains('\\') {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn command(params: Value) -> Result<Command, RpcError> {
        read(params.as_object().unwrap(), Path::new("/w"), 1000)
    }

    fn line(params: Value) -> String {
        CommandLine::of(&command(params).unwrap(), Path::new("/w")).whole()
    }

    #[test]
    #[cfg(not(windows))]
    fn a_line_without_arguments_is_for_a_shell_and_a_program_is_not() {
        let ls = command(json!({"command": "ls"})).unwrap();
        assert_eq!((ls.program.as_str(), ls.args.len(), ls.cwd.as_path()), ("ls", 0, Path::new("/w")));
        let both = command(json!({"command": "echo a; echo b", "args": []})).unwrap();
        assert_eq!((both.program.as_str(), both.args), ("sh", vec!["-c".to_owned(), "echo a; echo b".to_owned()]));
        let spaced = command(json!({"command": "/opt/my tool", "args": ["x"]})).unwrap();
        assert_eq!((spaced.program.as_str(), spaced.args), ("/opt/my tool", vec!["x".to_owned()]));
    }

    #[test]
    fn what_is_decided_about_is_what_runs() {
        assert_eq!(line(json!({"command": "echo hi > x"})), "echo hi > x");
        assert_eq!(line(json!({"command": "/bin/bash -lc 'echo hi > x'"})), "echo hi > x");
        assert_eq!(line(json!({"command": "/bin/sh", "args": ["-lc", "rm -rf x"]})), "rm -rf x");
        assert_eq!(line(json!({"command": "bash -lc 'echo '\\''a'\\'''"})), "echo 'a'");
        // More than one line for the shell is no wrapper.
        assert_eq!(line(json!({"command": "bash -c 'ls' ; rm x"})), "bash -c 'ls' ; rm x");
        assert_eq!(line(json!({"command": "bash -c \"ls $(rm x)\""})), "bash -c \"ls $(rm x)\"");
        assert_eq!(line(json!({"command": "bash", "args": ["-c", "ls", "x"]})), "bash -c ls x");
        assert_eq!(line(json!({"command": "git", "args": ["commit", "-m", "it's"]})), "git commit -m 'it'\\''s'");
        assert_eq!(line(json!({"command": "ls", "cwd": "/w/sub dir"})), "cd '/w/sub dir' && ls");
        assert_eq!(line(json!({"command": "/bin/bash", "args": ["-c", "cd '/w' && ls; pwd"]})), "ls; pwd");
        assert_eq!(line(json!({"command": "cd /w/sub && ls"})), "cd /w/sub && ls");
        assert_eq!(line(json!({"command": "cd /w && ls", "cwd": "/w/sub"})), "cd /w/sub && cd /w && ls");
        assert_eq!(line(json!({"command": "bash -c \"rm 'a\\\nb'\""})), "bash -c \"rm 'a\\\nb'\"");
        // A shell of the agent's own making is no wrapper.
        assert_eq!(line(json!({"command": "/w/bash", "args": ["-c", "ls"]})), "/w/bash -c ls");
        assert_eq!(line(json!({"command": "./bash -c ls"})), "./bash -c ls");
    }

    #[test]
    fn a_directory_with_an_apostrophe_hides_nothing() {
        let cwd = Path::new("/u/Bob's app");
        let of = |line: &str| {
            let command = read(json!({"command": line}).as_object().unwrap(), cwd, 1000).unwrap();
            CommandLine::of(&command, cwd).whole()
        };
        let evil = "cd '/u/Bob's app' && ls '; touch x; #'";
        assert_eq!(of(evil), evil);
        assert_eq!(of("cd '/u/Bob'\\''s app' && ls"), "ls");
    }

    #[test]
    fn what_changes_a_command_from_its_environment_is_told() {
        let env = json!([{"name": "TERM", "value": "dumb"}, {"name": "PAGER", "value": "cat"}]);
        assert_eq!(line(json!({"command": "git log", "env": env})), "git log");
        let env = json!([{"name": "COLUMNS", "value": "rm -rf x"}, {"name": "CI", "value": "true"}]);
        assert_eq!(line(json!({"command": "make", "env": env})), "export COLUMNS='rm -rf x' && make");
        let env = json!([{"name": "LINES", "value": "evil"}]);
        assert_eq!(line(json!({"command": "eval $LINES", "env": env})), "export LINES=evil && eval $LINES");
        let env = json!([{"name": "PAGER", "value": "rm -rf x"}, {"name": "LD_PRELOAD", "value": "/w/x.so"}]);
        assert_eq!(
            line(json!({"command": "git log", "env": env, "cwd": "/w/sub"})),
            "cd /w/sub && export PAGER='rm -rf x' && export LD_PRELOAD=/w/x.so && git log"
        );
    }

    #[test]
    fn what_no_command_can_have_is_refused() {
        for params in [
            json!({}),
            json!({"command": " "}),
            json!({"command": "ls", "args": [1]}),
            json!({"command": "ls", "env": [{"name": "A"}]}),
            json!({"command": "ls", "env": [{"name": "A=B", "value": ""}]}),
            json!({"command": "l\u{0}s"}),
            json!({"command": "ls", "cwd": "sub"}),
        ] {
            assert!(command(params.clone()).is_err(), "{params}");
        }
        assert_eq!(command(json!({"command": "ls", "outputByteLimit": 5})).unwrap().keep, 5);
        assert_eq!(command(json!({"command": "ls", "outputByteLimit": 5_000_000})).unwrap().keep, 1000);
    }
}
