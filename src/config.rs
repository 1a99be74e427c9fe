//! The user's configuration.
//!
//! Owns the names of the keys and the order in which sources win: a flag (the caller's business), then
//! the environment, then the project's file, then the user's file. Invariant: nothing in a project's file
//! can make diglot start a program or write a file, because a project may come from anywhere; such keys
//! are reported in [`Config::warnings`] and have no effect.
//!
//! | key | variable | in a project's file | meaning |
//! |---|---|---|---|
//! | `agent` | `DIGLOT_AGENT` | yes | the agent that is used when none is named |
//! | `log` | `DIGLOT_LOG` | yes | what is logged: `off`, `error`, `warn`, `info`, `debug`, `trace`, or `target=level,…` |
//! | `trace` | `DIGLOT_TRACE` | no | where to record both wires |
//! | `files` | `DIGLOT_FILES` | no | whether an agent behind `diglot claude` may read and write files through diglot |
//! | `terminals` | `DIGLOT_TERMINALS` | no | whether it may run commands through diglot |
//! | `[agents.NAME]` `command`, `args`, `env`, `protocol` | – | no | how to start the agent of that name, and what it speaks |
//!
//! The user's file is `diglot/config.toml` in `$XDG_CONFIG_HOME`, else in `~/.config`; the project's file
//! is `.diglot.toml` in the working directory. Neither has to exist. The user's own mapping tables lie in the folder
//! `mappings` beside his file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::mappings::Protocol;

/// The file of a project, in its root.
pub const PROJECT_FILE: &str = ".diglot.toml";

/// What the user configured; every field is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The agent that is used when none is named.
    pub agent: Option<String>,
    /// Where to record both wires.
    pub trace: Option<PathBuf>,
    /// What is logged.
    pub log: Option<String>,
    /// An agent may read and write files through diglot.
    pub files: bool,
    /// An agent may run commands through diglot.
    pub terminals: bool,
    /// The user's own agents, and his changes to known ones, by name.
    pub agents: BTreeMap<String, AgentConfig>,
    /// What was ignored, and why; to be logged.
    pub warnings: Vec<String>,
}

/// How an agent is started, as far as the user says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentConfig {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub command: Option<String>,
    /// Its arguments, before those that diglot adds.
    pub args: Vec<String>,
    /// Variables added to its environment.
    pub env: BTreeMap<String, String>,
    /// What it speaks; needed for an agent without a profile that an editor runs. Without it `diglot acp` takes it for
    /// Claude's stream-json, and `diglot claude` for ACP.
    pub protocol: Option<Protocol>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is there but cannot be read.
    #[error("cannot read {path}: {source}; make it readable or remove it")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{path} is not valid TOML: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and why, in the words of the TOML reader.
        message: String,
    },
    /// A key has a value of the wrong type.
    #[error("{path}: `{key}` must be {expected}, but it is {found}")]
    Type {
        /// The file.
        path: PathBuf,
        /// The key, with dots.
        key: String,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A key that diglot does not know.
    #[error("{path}: there is no key `{key}`; the keys here are {known}")]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key, with dots.
        key: String,
        /// The keys that exist in its place.
        known: &'static str,
    },
}

/// A way to look up an environment variable; tests give their own.
pub type Env<'e> = &'e dyn Fn(&str) -> Option<OsString>;

impl Config {
    /// Reads the user's file, the project's file in `cwd` and the environment.
    ///
    /// # Errors
    /// When the user's file cannot be read or understood. A project's file never stops diglot: what is
    /// wrong with it becomes a warning.
    pub fn load(cwd: &Path, env: Env<'_>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        if let Some(path) = user_file(env)
            && let Some(table) = read(&path)?
        {
            config.take_user(&path, table)?;
        }
        let project = cwd.join(PROJECT_FILE);
        match read(&project) {
            Ok(Some(table)) => config.take_project(&project, table),
            Ok(None) => {}
            Err(error) => config.warnings.push(error.to_string()),
        }
        config.take_env(env);
        Ok(config)
    }

    fn take_user(&mut self, path: &Path, table: Table) -> Result<(), ConfigError> {
        for (key, value) in table {
            match key.as_str() {
                "agent" => self.agent = Some(string(path, &key, value)?),
                "trace" => self.trace = Some(string(path, &key, value)?.into()),
                "log" => self.log = Some(string(path, &key, value)?),
                "files" => self.files = boolean(path, &key, &value)?,
                "terminals" => self.terminals = boolean(path, &key, &value)?,
                "agents" => {
                    for (name, value) in self::table(path, &key, value)? {
                        let agent = agent(path, &format!("agents.{name}"), value)?;
                        self.agents.insert(name, agent);
                    }
                }
                _ => {
                    return Err(ConfigError::UnknownKey {
                        path: path.to_owned(),
                        key,
                        known: "agent, log, trace, files, terminals, agents",
                    });
                }
            }
        }
        Ok(())
    }

    fn take_project(&mut self, path: &Path, table: Table) {
        for (key, value) in table {
            let taken = match key.as_str() {
                "agent" => string(path, &key, value).map(|agent| self.agent = Some(agent)),
                "log" => string(path, &key, value).map(|log| self.log = Some(log)),
                "trace" | "agents" | "files" | "terminals" => {
                    self.warnings.push(format!(
                        "{}: `{key}` is ignored, because a project must not make diglot start programs or write files; \
                         set it in your own configuration",
                        path.display()
                    ));
                    Ok(())
                }
                _ => Err(ConfigError::UnknownKey { path: path.to_owned(), key, known: "agent, log" }),
            };
            if let Err(error) = taken {
                self.warnings.push(error.to_string());
            }
        }
    }

    fn take_env(&mut self, env: Env<'_>) {
        let text =
            |name: &str| env(name).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned());
        if let Some(agent) = text("DIGLOT_AGENT") {
            self.agent = Some(agent);
        }
        if let Some(log) = text("DIGLOT_LOG") {
            self.log = Some(log);
        }
        if let Some(trace) = env("DIGLOT_TRACE").filter(|value| !value.is_empty()) {
            self.trace = Some(trace.into());
        }
        let switch = |name: &str| text(name).map(|value| !matches!(&*value, "0" | "false" | "no" | "off"));
        self.files = switch("DIGLOT_FILES").unwrap_or(self.files);
        self.terminals = switch("DIGLOT_TERMINALS").unwrap_or(self.terminals);
    }
}

/// The user's mapping tables: the files of the folder `mappings` beside his configuration file, and of its folder `agents`,
/// by their names there (`tools.toml`, `agents/mine.toml`), each with its text.
///
/// # Errors
/// When such a file is there and cannot be read.
pub fn mapping_files(env: Env<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    let mut files = Vec::new();
    let Some(folder) = user_file(env).map(|file| file.with_file_name("mappings")) else {
        return Ok(files);
    };
    for (folder, prefix) in [(folder.clone(), ""), (folder.join("agents"), "agents/")] {
        // No folder, no files.
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "toml")
                && let Some(name) = path.file_name().and_then(|name| name.to_str())
            {
                let text = std::fs::read_to_string(&path)
                    .map_err(|source| ConfigError::Read { path: path.clone(), source })?;
                files.push((format!("{prefix}{name}"), text));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Where the user's file would be; `None` without a home.
pub fn user_file(env: Env<'_>) -> Option<PathBuf> {
    // The XDG rules: a relative path in this variable is to be ignored.
    let xdg = env("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || {
        ["HOME", "USERPROFILE"]
            .into_iter()
            .filter_map(env)
            .find(|home| !home.is_empty())
            .map(|home| PathBuf::from(home).join(".config"))
    };
    Some(xdg.or_else(home)?.join("diglot").join("config.toml"))
}

fn read(path: &Path) -> Result<Option<Table>, ConfigError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(source) if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(source) => {
            return Err(ConfigError::Read { path: path.to_owned(), source });
        }
    };
    match text.parse() {
        Ok(table) => Ok(Some(table)),
        Err(error) => {
            Err(ConfigError::Syntax { path: path.to_owned(), message: error.to_string().trim_end().to_owned() })
        }
    }
}

fn agent(path: &Path, key: &str, value: Value) -> Result<AgentConfig, ConfigError> {
    let mut agent = AgentConfig::default();
    for (member, value) in table(path, key, value)? {
        let key = format!("{key}.{member}");
        match member.as_str() {
            "command" => agent.command = Some(string(path, &key, value)?),
            "args" => {
                let Value::Array(items) = value else {
                    return Err(wrong(path, key, "an array of strings", &value));
                };
                for (index, item) in items.into_iter().enumerate() {
                    agent.args.push(string(path, &format!("{key}[{index}]"), item)?);
                }
            }
            "env" => {
                for (name, value) in table(path, &key, value)? {
                    let value = string(path, &format!("{key}.{name}"), value)?;
                    agent.env.insert(name, value);
                }
            }
            "protocol" => {
                const EXPECTED: &str = "\"acp\" or \"stream-json\"";
                agent.protocol = match &value {
                    Value::String(word) if word == "acp" => Some(Protocol::Acp),
                    Value::String(word) if word == "stream-json" => Some(Protocol::StreamJson),
                    Value::String(_) => {
                        let (path, found) = (path.to_owned(), "another word");
                        return Err(ConfigError::Type { path, key, expected: EXPECTED, found });
                    }
                    other => return Err(wrong(path, key, EXPECTED, other)),
                };
            }
            _ => {
                let known = "command, args, env, protocol";
                return Err(ConfigError::UnknownKey { path: path.to_owned(), key, known });
            }
        }
    }
    Ok(agent)
}

fn string(path: &Path, key: &str, value: Value) -> Result<String, ConfigError> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(wrong(path, key.to_owned(), "a string", &other)),
    }
}

fn boolean(path: &Path, key: &str, value: &Value) -> Result<bool, ConfigError> {
    value.as_bool().ok_or_else(|| wrong(path, key.to_owned(), "true or false", value))
}

fn table(path: &Path, key: &str, value: Value) -> Result<Table, ConfigError> {
    match value {
        Value::Table(table) => Ok(table),
        other => Err(wrong(path, key.to_owned(), "a table", &other)),
    }
}

fn wrong(path: &Path, key: String, expected: &'static str, value: &Value) -> ConfigError {
    let found = match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Boolean(_) => "a boolean",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "an array",
        Value::Table(_) => "a table",
    };
    ConfigError::Type { path: path.to_owned(), key, expected, found }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        vars: BTreeMap<&'static str, OsString>,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let home = dir.path().join("home");
            std::fs::create_dir_all(home.join(".config/diglot")).unwrap();
            std::fs::create_dir_all(dir.path().join("project")).unwrap();
            Self { vars: [("HOME", home.into_os_string())].into(), dir }
        }

        fn user(self, text: &str) -> Self {
            std::fs::write(self.dir.path().join("home/.config/diglot/config.toml"), text).unwrap();
            self
        }

        fn project(self, text: &str) -> Self {
            std::fs::write(self.dir.path().join("project").join(PROJECT_FILE), text).unwrap();
            self
        }

        fn load(&self) -> Result<Config, ConfigError> {
            Config::load(&self.dir.path().join("project"), &|name| self.vars.get(name).cloned())
        }
    }

    #[test]
    fn without_files_home_or_variables_there_is_a_configuration() {
        assert_eq!(Config::load(Path::new("/nonexistent"), &|_| None).unwrap(), Config::default());
        let empty_home = |name: &str| (name == "HOME").then(OsString::new);
        assert_eq!(user_file(&empty_home), None);
        assert_eq!(Config::load(Path::new("/nonexistent"), &empty_home).unwrap(), Config::default());
    }

    #[test]
    fn the_environment_beats_the_project_and_the_project_beats_the_user() {
        let mut place =
            Place::new().user("agent = 'u'\nlog = 'info'\ntrace = '/u.ndjson'").project("agent = 'p'\nlog = 'debug'");
        let config = place.load().unwrap();
        assert_eq!((config.agent.as_deref(), config.log.as_deref()), (Some("p"), Some("debug")));
        assert_eq!(config.trace.as_deref(), Some(Path::new("/u.ndjson")));
        place.vars.insert("DIGLOT_AGENT", "e".into());
        place.vars.insert("DIGLOT_LOG", "".into());
        place.vars.insert("DIGLOT_TRACE", "/e.ndjson".into());
        let config = place.load().unwrap();
        assert_eq!((config.agent.as_deref(), config.log.as_deref()), (Some("e"), Some("debug")));
        assert_eq!(config.trace.as_deref(), Some(Path::new("/e.ndjson")));
    }

    #[test]
    fn a_project_can_name_no_command_and_no_file_to_write() {
        let place = Place::new()
            .user("[agents.claude]\ncommand = '/mine'")
            .project("trace = '/etc/passwd'\n[agents.claude]\ncommand = '/evil'\n[agents.new]\ncommand = '/evil'");
        let config = place.load().unwrap();
        assert_eq!(config.trace, None);
        assert_eq!(config.agents.len(), 1);
        assert_eq!(config.agents["claude"].command.as_deref(), Some("/mine"));
        assert_eq!(config.warnings.len(), 2, "{:?}", config.warnings);
        assert!(config.warnings.iter().any(|warning| warning.contains("`agents` is ignored")));
    }

    #[test]
    fn a_broken_project_file_is_a_warning() {
        for broken in ["agent = 1", "agent = ", "colour = 'red'"] {
            let config = Place::new().project(broken).load().unwrap();
            assert_eq!(config.agent, None);
            assert_eq!(config.warnings.len(), 1, "{broken}");
        }
    }

    #[test]
    fn an_agent_has_a_command_arguments_and_variables() {
        let config = Place::new()
            .user("[agents.wave]\ncommand = 'wave-code'\nargs = ['--fast']\nenv = { A = 'b' }")
            .load()
            .unwrap();
        let wave = &config.agents["wave"];
        assert_eq!(wave.command.as_deref(), Some("wave-code"));
        assert_eq!(wave.args, ["--fast"]);
        assert_eq!(wave.env["A"], "b");
    }

    #[test]
    fn an_error_names_the_file_the_key_and_what_was_expected() {
        for (text, parts) in [
            ("agent = 1", &["config.toml", "`agent`", "a string", "an integer"][..]),
            ("agents = []", &["`agents`", "a table", "an array"]),
            ("[agents.x]\nargs = 'a'", &["`agents.x.args`", "an array of strings", "a string"]),
            ("[agents.x]\nargs = ['a', 2]", &["`agents.x.args[1]`", "a string", "an integer"]),
            ("[agents.x]\nenv = { A = true }", &["`agents.x.env.A`", "a boolean"]),
            ("[agents.x]\ncmd = 'a'", &["no key `agents.x.cmd`", "command, args, env, protocol"]),
            ("[agents.x]\nprotocol = 'http'", &["`agents.x.protocol`", "\"acp\" or \"stream-json\""]),
            ("[agents.x]\nprotocol = 1", &["`agents.x.protocol`", "an integer"]),
            ("agnet = 'x'", &["no key `agnet`", "agent, log, trace, files, terminals, agents"]),
            ("agent = ", &["config.toml", "TOML"]),
        ] {
            let message = Place::new().user(text).load().unwrap_err().to_string();
            for part in parts {
                assert!(message.contains(part), "{text}: {message} lacks {part}");
            }
        }
    }

    #[test]
    fn mapping_files_are_found_beside_the_configuration() {
        let place = Place::new();
        let env = |name: &str| place.vars.get(name).cloned();
        assert_eq!(mapping_files(&env).unwrap(), []);
        let folder = place.dir.path().join("home/.config/diglot/mappings");
        std::fs::create_dir_all(folder.join("agents")).unwrap();
        for (name, text) in [("tools.toml", "t"), ("notes.txt", "n"), ("agents/mine.toml", "m")] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let files = mapping_files(&env).unwrap();
        assert_eq!(files, [("agents/mine.toml".into(), "m".into()), ("tools.toml".into(), "t".into())]);
        assert_eq!(mapping_files(&|_| None).unwrap(), []);
    }

    #[test]
    fn a_relative_xdg_path_is_ignored() {
        let env = |name: &str| match name {
            "XDG_CONFIG_HOME" => Some(OsString::from("relative")),
            "HOME" => Some(OsString::from("/h")),
            _ => None,
        };
        assert_eq!(user_file(&env), Some(PathBuf::from("/h/.config/diglot/config.toml")));
    }
}
