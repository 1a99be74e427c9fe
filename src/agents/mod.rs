//! The agents that diglot can start.
//!
//! Owns the names of the agents and how each is started. Invariant: resolving a name touches neither the
//! disk nor the network; whether the program exists is asked only by [`AgentCommand::locate`], when it is
//! needed.

pub mod demo;
pub mod script;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::config::{Config, Env};

/// The agent of `diglot acp` when none is named.
pub const DEFAULT: &str = "claude";

/// The built-in demo agent's name.
pub const DEMO: &str = "demo";

/// Where an agent's stream-json differs from Claude Code's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// As Claude Code speaks it.
    #[default]
    Claude,
    /// Wave: `tool_result` and `session_state_changed` are messages of their own, and a working agent is
    /// `busy`.
    Wave,
}

/// A program to start, and how it speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCommand {
    /// The agent's name, for messages and the trace.
    pub name: String,
    /// The program: a path, or a name to be looked for in `PATH`.
    pub program: OsString,
    /// The arguments that come before those the protocol needs.
    pub args: Vec<OsString>,
    /// Variables added to the environment.
    pub env: Vec<(OsString, OsString)>,
    /// How it speaks.
    pub dialect: Dialect,
    /// What to do when the program is not there.
    hint: &'static str,
}

/// Why an agent cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nobody knows an agent of this name.
    #[error(
        "there is no agent `{name}`; known are {known}; name one of them, add [agents.{name}] to your configuration, \
         or give the command after --"
    )]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The known names, separated by commas.
        known: String,
    },
    /// The program is neither a file nor in `PATH`.
    #[error("agent `{name}`: no program `{program}`; {hint}")]
    NotFound {
        /// The agent's name.
        name: String,
        /// The program that was looked for.
        program: String,
        /// What to do next.
        hint: &'static str,
    },
    /// The path of the running diglot is not known, so the demo agent cannot be started.
    #[error("the path of diglot itself is not known: {0}; start it by its full path")]
    NoSelf(std::io::Error),
}

struct Known {
    name: &'static str,
    program: &'static str,
    dialect: Dialect,
    hint: &'static str,
}

/// The agents that need no configuration, beside the built-in one.
const KNOWN: &[Known] = &[
    Known {
        name: "claude",
        program: "claude",
        dialect: Dialect::Claude,
        hint: "install Claude Code (npm install -g @anthropic-ai/claude-code), put it into PATH, or set \
               CLAUDE_CODE_EXECUTABLE to its path",
    },
    Known {
        name: "wave",
        program: "wave-code",
        dialect: Dialect::Wave,
        hint: "put wave-code into PATH or set the command in [agents.wave] of your configuration",
    },
];

const HINT: &str = "check the spelling, or give the program's full path";

/// How to start the agent `agent` (else the configured one, else [`DEFAULT`]). A `command` that is not
/// empty replaces the agent's own program and arguments; the name still says how it speaks.
///
/// # Errors
/// When nobody knows the name, or the path of diglot itself is needed and not known.
pub fn resolve(
    agent: Option<&str>,
    command: &[OsString],
    config: &Config,
    env: Env<'_>,
) -> Result<AgentCommand, AgentError> {
    let name = agent.or(config.agent.as_deref()).unwrap_or(DEFAULT);
    let known = KNOWN.iter().find(|known| known.name == name);
    let own = config.agents.get(name);
    let dialect = known.map_or_else(Dialect::default, |known| known.dialect);
    let mut resolved = AgentCommand {
        name: name.to_owned(),
        program: OsString::new(),
        args: Vec::new(),
        env: Vec::new(),
        dialect,
        hint: known.map_or(HINT, |known| known.hint),
    };
    if let Some(own) = own {
        resolved.args = own.args.iter().map(Into::into).collect();
        resolved.env = own.env.iter().map(|(name, value)| (name.into(), value.into())).collect();
    }
    if let Some((program, args)) = command.split_first() {
        resolved.program = program.clone();
        resolved.args = args.to_vec();
        resolved.hint = HINT;
        return Ok(resolved);
    }
    let executable = || env("CLAUDE_CODE_EXECUTABLE").filter(|path| name == "claude" && !path.is_empty());
    if let Some(program) = executable() {
        resolved.program = program;
    } else if let Some(program) = own.and_then(|own| own.command.as_ref()) {
        resolved.program = program.into();
    } else if name == DEMO {
        resolved.program = std::env::current_exe().map_err(AgentError::NoSelf)?.into();
        resolved.args.insert(0, "demo-agent".into());
    } else if let Some(known) = known {
        resolved.program = known.program.into();
    } else {
        return Err(AgentError::Unknown { name: name.to_owned(), known: names(config).join(", ") });
    }
    Ok(resolved)
}

/// The names that [`resolve`] knows, in alphabetical order.
pub fn names(config: &Config) -> Vec<&str> {
    let built_in = KNOWN.iter().map(|known| known.name).chain([DEMO]);
    let mut names: Vec<&str> = built_in.chain(config.agents.keys().map(String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl AgentCommand {
    /// The program's file: itself when it is a path, else the first executable of its name in `PATH`.
    ///
    /// # Errors
    /// When there is none.
    pub fn locate(&self, env: Env<'_>) -> Result<PathBuf, AgentError> {
        let program = Path::new(&self.program);
        let found = if program.components().count() > 1 {
            is_program(program).then(|| program.to_owned())
        } else {
            in_path(&self.program, env("PATH").as_deref())
        };
        found.ok_or_else(|| AgentError::NotFound {
            name: self.name.clone(),
            program: self.program.to_string_lossy().into_owned(),
            hint: self.hint,
        })
    }
}

fn in_path(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    let mut folders = std::env::split_paths(path?);
    folders.find_map(|folder| {
        let file = folder.join(program);
        if is_program(&file) {
            return Some(file);
        }
        // Windows names its programs by extension; `cmd` are the shims that npm makes.
        let extensions: &[&str] = if cfg!(windows) { &["exe", "cmd", "bat"] } else { &[] };
        let mut files = extensions.iter().map(|extension| file.with_extension(extension));
        files.find(|file| is_program(file))
    })
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AgentConfig;

    fn none(_: &str) -> Option<OsString> {
        None
    }

    fn config(name: &str, command: Option<&str>) -> Config {
        let agent = AgentConfig {
            command: command.map(Into::into),
            args: vec!["--mine".into()],
            env: [("A".into(), "b".into())].into(),
        };
        Config { agents: [(name.into(), agent)].into(), ..Config::default() }
    }

    #[test]
    fn claude_is_the_default_and_its_variable_beats_the_configuration() {
        let plain = resolve(None, &[], &Config::default(), &none).unwrap();
        assert_eq!((plain.name.as_str(), plain.program.to_str()), ("claude", Some("claude")));
        let env = |name: &str| (name == "CLAUDE_CODE_EXECUTABLE").then(|| "/x/claude".into());
        let own = resolve(None, &[], &config("claude", Some("/mine")), &env).unwrap();
        assert_eq!(own.program, "/x/claude");
        assert_eq!(own.args, ["--mine"]);
        assert_eq!(own.env, [("A".into(), "b".into())]);
        let wave = resolve(Some("wave"), &[], &Config::default(), &env).unwrap();
        assert_eq!(wave.program, "wave-code");
    }

    #[test]
    fn a_command_replaces_the_program_and_the_name_keeps_the_dialect() {
        let wave = resolve(Some("wave"), &["my-wave".into(), "-x".into()], &Config::default(), &none).unwrap();
        assert_eq!((wave.program.to_str(), wave.dialect), (Some("my-wave"), Dialect::Wave));
        assert_eq!(wave.args, ["-x"]);
    }

    #[test]
    fn the_demo_agent_is_this_program() {
        let demo = resolve(Some("demo"), &[], &Config::default(), &none).unwrap();
        assert_eq!(demo.program, std::env::current_exe().unwrap());
        assert_eq!(demo.args, ["demo-agent"]);
        assert!(demo.locate(&none).is_ok());
    }

    #[test]
    fn an_unknown_agent_is_refused_with_the_known_ones() {
        let error = resolve(Some("cloude"), &[], &config("mine", Some("/m")), &none).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("`cloude`") && text.contains("claude, demo, mine, wave"), "{text}");
    }

    #[cfg(unix)]
    #[test]
    fn a_program_is_found_in_path_only_when_it_can_be_run() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent-x");
        std::fs::write(&file, "").unwrap();
        let env = |name: &str| (name == "PATH").then(|| dir.path().as_os_str().to_owned());
        let command = resolve(None, &["agent-x".into()], &Config::default(), &env).unwrap();
        assert!(matches!(command.locate(&env), Err(AgentError::NotFound { .. })));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(command.locate(&env).unwrap(), file);
        let error = resolve(None, &[], &Config::default(), &env).unwrap().locate(&env).unwrap_err();
        assert!(error.to_string().contains("CLAUDE_CODE_EXECUTABLE"), "{error}");
    }
}
