//! The agents that diglot can start.
//!
//! Owns the choice of an agent: the name, the user's changes to its profile, and the file of its program. Invariant:
//! choosing one touches neither the disk nor the network; whether the program exists is asked only by [`locate`], when it
//! is needed.

pub mod demo;
pub mod script;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::config::{Config, Env};
use crate::mappings::{AcpWays, AgentProfile, Agents, Program, Protocol};

/// The agent of `diglot acp` when none is named, and the one whose ways an agent without a profile follows.
pub const DEFAULT: &str = "claude";

/// The built-in demo agent's name.
pub const DEMO: &str = "demo";

/// Why an agent cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nobody knows an agent of this name.
    #[error(
        "there is no agent `{name}`; known are {known}; name one of them, add [agents.{name}] to your configuration, or \
         give the command after --"
    )]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The known names, separated by commas.
        known: String,
    },
    /// The program is neither a file nor in `PATH`.
    #[error("agent `{name}`: there is no program `{program}`; {hint}")]
    NotFound {
        /// The agent's name.
        name: String,
        /// The program that was looked for.
        program: String,
        /// What to do next.
        hint: String,
    },
    /// The user says another protocol than the profile, whose every row is about its own.
    #[error(
        "agent `{name}` speaks another protocol than [agents.{name}] says; remove `protocol` there, or choose another name"
    )]
    Protocol {
        /// The agent's name.
        name: String,
    },
    /// The path of the running diglot is not known, so an agent inside it cannot be started.
    #[error("the path of diglot itself is not known: {0}; start it by its full path")]
    NoSelf(std::io::Error),
}

/// The profile of `agent` (else of the configured one, else of [`DEFAULT`]), as the user changed it.
///
/// The program is, in this order: the `command` that was given, the one that the profile's variable names, the one of
/// `[agents.NAME]`, the profile's own. Arguments that come with the first or the third of these stand before the profile's.
/// An agent of the configuration that has no profile follows [`DEFAULT`]'s, or is plain ACP if the configuration says so.
///
/// # Errors
/// When nobody knows the name, and when the configuration says another protocol than the profile.
pub fn resolve(
    agent: Option<&str>,
    command: &[String],
    config: &Config,
    agents: &Agents,
    env: Env<'_>,
) -> Result<AgentProfile, AgentError> {
    let name = agent.or(config.agent.as_deref()).unwrap_or(DEFAULT);
    let own = config.agents.get(name);
    let unknown = || AgentError::Unknown { name: name.to_owned(), known: names(config, agents).join(", ") };
    let mut profile = match agents.get(name) {
        Some(profile) => profile.clone(),
        None if own.is_some_and(|own| own.command.is_some()) => {
            let mut profile = agents.get(DEFAULT).ok_or_else(unknown)?.clone();
            profile.name = name.to_owned();
            profile.title = name.to_owned();
            profile.command_env = None;
            profile.hint = format!("correct `command` in [agents.{name}] of your configuration");
            if own.and_then(|own| own.protocol) == Some(Protocol::Acp) {
                speaks_acp(&mut profile);
            }
            profile
        }
        None => return Err(unknown()),
    };
    if let Some(said) = own.and_then(|own| own.protocol)
        && said != profile.protocol
    {
        return Err(AgentError::Protocol { name: name.to_owned() });
    }
    let variable = profile.command_env.take().and_then(|name| env(&name)).and_then(|path| path.into_string().ok());
    if let Some(own) = own {
        profile.env.extend(own.env.clone());
        profile.unset.retain(|name| !own.env.contains_key(name));
    }
    if let Some((program, args)) = command.split_first() {
        profile.program = Program::Command(program.clone());
        profile.args.splice(0..0, args.iter().cloned());
        profile.hint = "check the spelling, or give the program's full path".into();
        return Ok(profile);
    }
    if let Some(own) = own {
        if let Some(command) = &own.command {
            profile.program = Program::Command(command.clone());
        }
        profile.args.splice(0..0, own.args.iter().cloned());
    }
    if let Some(program) = variable.filter(|program| !program.is_empty()) {
        profile.program = Program::Command(program);
    }
    Ok(profile)
}

/// Makes of a profile that of an agent which speaks ACP and which nobody has measured.
pub fn speaks_acp(profile: &mut AgentProfile) {
    profile.protocol = Protocol::Acp;
    profile.args = Vec::new();
    profile.env = BTreeMap::new();
    profile.unset = Vec::new();
    profile.acp = AcpWays::default();
}

/// The names that [`resolve`] knows, in alphabetical order.
#[must_use]
pub fn names<'n>(config: &'n Config, agents: &'n Agents) -> Vec<&'n str> {
    let profiles = agents.iter().map(|profile| profile.name.as_str());
    let mut names: Vec<&str> = profiles.chain(config.agents.keys().map(String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// How a profile's program is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// An absolute path, or a name to be looked for in `PATH`.
    pub program: OsString,
    /// The hidden subcommand of an agent inside diglot; else nothing. The profile's arguments follow.
    pub args: Vec<String>,
}

/// How this profile's program is started. A relative path counts from diglot's own working directory, not from the
/// session's.
///
/// # Errors
/// When it is diglot itself, and its path is not known.
pub fn start(profile: &AgentProfile) -> Result<Start, AgentError> {
    match &profile.program {
        Program::Builtin(subcommand) => {
            let program = std::env::current_exe().map_err(AgentError::NoSelf)?;
            Ok(Start { program: program.into(), args: vec![subcommand.clone()] })
        }
        Program::Command(program) => {
            let path = Path::new(program);
            let program = match std::path::absolute(path) {
                Ok(absolute) if path.components().count() > 1 => absolute.into(),
                _ => program.into(),
            };
            Ok(Start { program, args: Vec::new() })
        }
    }
}

/// The file of a profile's program: itself when it is a path, else the first executable of its name in `PATH`.
///
/// # Errors
/// When there is none.
pub fn locate(profile: &AgentProfile, env: Env<'_>) -> Result<PathBuf, AgentError> {
    let program = start(profile)?.program;
    let path = Path::new(&program);
    let found = if path.components().count() > 1 {
        is_program(path).then(|| path.to_owned())
    } else {
        in_path(&program, env("PATH").as_deref())
    };
    found.ok_or_else(|| AgentError::NotFound {
        name: profile.name.clone(),
        program: program.to_string_lossy().into_owned(),
        hint: profile.hint.clone(),
    })
}

fn in_path(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    std::env::split_paths(path?).find_map(|folder| {
        let file = folder.join(program);
        if is_program(&file) {
            return Some(file);
        }
        // Windows names its programs by extension; `cmd` are the shims that npm makes.
        let extensions: &[&str] = if cfg!(windows) { &["exe", "cmd", "bat"] } else { &[] };
        extensions.iter().map(|extension| file.with_extension(extension)).find(|file| is_program(file))
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

/// The real environment.
#[must_use]
pub fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AgentConfig;
    use crate::mappings::{Dialect, Mappings};

    fn none(_: &str) -> Option<OsString> {
        None
    }

    fn claude_executable(name: &str) -> Option<OsString> {
        (name == "CLAUDE_CODE_EXECUTABLE").then(|| "/x/claude".into())
    }

    fn config(name: &str, command: Option<&str>) -> Config {
        let agent = AgentConfig {
            protocol: None,
            command: command.map(Into::into),
            args: vec!["--mine".into()],
            env: [("A".into(), "b".into())].into(),
        };
        Config { agents: [(name.into(), agent)].into(), ..Config::default() }
    }

    fn choose(
        agent: Option<&str>,
        command: &[&str],
        config: &Config,
        env: Env<'_>,
    ) -> Result<AgentProfile, AgentError> {
        let command: Vec<String> = command.iter().map(|&word| word.into()).collect();
        resolve(agent, &command, config, &Mappings::builtin().agents, env)
    }

    #[test]
    fn claude_is_the_default_and_its_variable_beats_the_configuration() {
        let plain = choose(None, &[], &Config::default(), &none).unwrap();
        assert_eq!((plain.name.as_str(), plain.program), ("claude", Program::Command("claude".into())));
        let own = choose(None, &[], &config("claude", Some("/mine")), &claude_executable).unwrap();
        assert_eq!(own.program, Program::Command("/x/claude".into()));
        let own = choose(None, &[], &config("claude", Some("/mine")), &none).unwrap();
        assert_eq!(own.program, Program::Command("/mine".into()));
        assert_eq!(own.args[..2], ["--mine", "-p"]);
        assert_eq!(own.env["A"], "b");
        assert_eq!(own.env["CLAUDE_CODE_ENABLE_TODO_TOOLS"], "1");
        let wave = choose(Some("wave"), &[], &Config::default(), &claude_executable).unwrap();
        assert_eq!(wave.program, Program::Command("wave-code".into()));
    }

    #[test]
    fn a_command_replaces_the_program_and_the_name_keeps_the_profile() {
        let wave = choose(Some("wave"), &["my-wave", "-x"], &Config::default(), &none).unwrap();
        assert_eq!((wave.program, wave.dialect), (Program::Command("my-wave".into()), Dialect::Wave));
        assert_eq!(wave.args[..2], ["-x", "--output-format"]);
        let claude = choose(None, &["mine"], &Config::default(), &claude_executable).unwrap();
        assert_eq!(claude.program, Program::Command("mine".into()));
    }

    #[test]
    fn an_agent_that_only_the_user_knows_follows_claudes_profile() {
        let mine = choose(Some("mine"), &[], &config("mine", Some("/m")), &claude_executable).unwrap();
        assert_eq!((mine.title.as_str(), mine.program), ("mine", Program::Command("/m".into())));
        assert_eq!(mine.flags.session_id.as_deref(), Some("--session-id"));
        assert!(mine.hint.contains("[agents.mine]"), "{}", mine.hint);
        assert!(matches!(choose(Some("mine"), &[], &config("mine", None), &none), Err(AgentError::Unknown { .. })));
    }

    #[test]
    fn an_agent_that_only_the_user_knows_speaks_what_he_says_and_a_known_one_its_own() {
        let with = |name: &str, protocol| {
            let mut config = config(name, Some("/m"));
            if let Some(own) = config.agents.get_mut(name) {
                own.protocol = Some(protocol);
            }
            choose(Some(name), &[], &config, &none)
        };
        let mine = with("mine", Protocol::Acp).unwrap();
        assert_eq!((mine.protocol, mine.program), (Protocol::Acp, Program::Command("/m".into())));
        // Nothing of claude's is left in it.
        assert_eq!((mine.args, mine.env.len()), (vec!["--mine".to_owned()], 1));
        assert_eq!(with("mine", Protocol::StreamJson).unwrap().protocol, Protocol::StreamJson);
        assert_eq!(with("gemini", Protocol::Acp).unwrap().protocol, Protocol::Acp);
        assert!(matches!(with("gemini", Protocol::StreamJson), Err(AgentError::Protocol { .. })));
    }

    #[test]
    fn the_demo_agent_is_this_program() {
        let demo = choose(Some(DEMO), &[], &Config::default(), &none).unwrap();
        let start = start(&demo).unwrap();
        assert_eq!(start.program, std::env::current_exe().unwrap());
        assert_eq!(start.args, ["demo-agent"]);
        assert!(locate(&demo, &none).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn a_relative_path_counts_from_where_diglot_runs_and_a_name_stays_a_name() {
        let program =
            |command: &str| start(&choose(None, &[command], &Config::default(), &none).unwrap()).unwrap().program;
        assert_eq!(program("./x/y"), std::env::current_dir().unwrap().join("x/y"));
        assert_eq!(program("/x/y"), "/x/y");
        assert_eq!(program("y"), "y");
    }

    #[test]
    fn an_unknown_agent_is_refused_with_the_known_ones() {
        let text = choose(Some("cloude"), &[], &config("mine", Some("/m")), &none).unwrap_err().to_string();
        assert!(
            text.contains("`cloude`")
                && ["claude, ", "demo, ", "mine, ", "wave"].iter().all(|name| text.contains(name)),
            "{text}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_program_is_found_in_path_only_when_it_can_be_run() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent-x");
        std::fs::write(&file, "").unwrap();
        let env = |name: &str| (name == "PATH").then(|| dir.path().as_os_str().to_owned());
        let profile = choose(None, &["agent-x"], &Config::default(), &env).unwrap();
        assert!(matches!(locate(&profile, &env), Err(AgentError::NotFound { .. })));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(locate(&profile, &env).unwrap(), file);
        let error = locate(&choose(None, &[], &Config::default(), &env).unwrap(), &env).unwrap_err();
        assert!(error.to_string().contains("CLAUDE_CODE_EXECUTABLE"), "{error}");
    }
}
