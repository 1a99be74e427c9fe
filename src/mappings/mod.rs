//! How each word of one protocol is said in the other, as data.
//!
//! The tables stand in `mappings/*.toml`, are compiled in (as JSON, see `src/build/tables.rs`), and are read once, when first asked for. A user may give files of
//! the same names: a row there replaces the built-in row of the same name, a rule there is tried before the built-in ones,
//! and everything else stays. This module owns reading and checking them and says what is wrong by file, line, key and what
//! was expected; what it hands out has been checked, so nothing that uses a table can fail.
//!
//! Tables hold facts (names, kinds, labels, which field is the path). What needs a condition is code in `translate`.
//! The ledgers, which say what becomes of each word, and the quirks of agents are read by [`ledger`] and [`quirks`] for
//! `diglot mappings` and for the tests only.

pub mod agents;
pub mod errors;
pub mod ledger;
pub mod modes;
pub mod permissions;
pub mod quirks;
pub mod stop_reasons;
pub mod template;
pub mod tools;

use std::sync::OnceLock;

use serde::de::DeserializeOwned;

pub use agents::{AcpWays, AgentProfile, Agents, Dialect, Flags, Program, Protocol, ToolUseAt};
pub use errors::{ErrorRow, Errors};
pub use modes::{Mode, Modes};
pub use permissions::{OptionKind, PermissionRule, PermissionUpdate, Permissions, PlanOption};
pub use stop_reasons::{Stop, StopFacts, StopReasons};
pub use template::is_hidden;
pub use tools::{ContentRule, ToolKind, ToolRow, Tools};

const TOOLS: &str = "tools.toml";
const MODES: &str = "modes.toml";
const STOP_REASONS: &str = "stop_reasons.toml";
const ERRORS: &str = "errors.toml";
const PERMISSIONS: &str = "permissions.toml";
/// Agent profiles are one file each, below this folder.
const AGENTS: &str = "agents/";

/// The tables a translator reads.
#[derive(Debug, Clone)]
pub struct Mappings {
    /// Tool names of the agent: kind, title, where the path is, how the result is shown.
    pub tools: Tools,
    /// Permission modes: name, description, which are offered.
    pub modes: Modes,
    /// How a turn of the agent ended, as a stop reason or an error.
    pub stop_reasons: StopReasons,
    /// Error reasons: code, message, what to do next.
    pub errors: Errors,
    /// What the answers to a permission question are called.
    pub permissions: Permissions,
    /// One profile per agent.
    pub agents: Agents,
}

/// What is wrong with a mapping file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MappingError {
    /// The file is not TOML, or has a key or a value that the table does not know; `problem` holds line, key and what was
    /// expected.
    #[error("mapping file {file}: {problem}")]
    Syntax {
        /// The file's name, as given.
        file: String,
        /// The reader's own words, several lines.
        problem: String,
    },
    /// A value has the right type but cannot be used.
    #[error("mapping file {file}: `{key}` is `{found}`, expected {expected}")]
    Value {
        /// The file's name, as given.
        file: String,
        /// The key's path, dotted.
        key: String,
        /// What stands there.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// No table has this name.
    #[error(
        "mapping file {file}: there is no such table; name it tools.toml, modes.toml, stop_reasons.toml, errors.toml, \
         permissions.toml or agents/NAME.toml"
    )]
    UnknownFile {
        /// The file's name, as given.
        file: String,
    },
}

/// The text of a table and the name errors call it by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'t> {
    pub(crate) file: &'t str,
    pub(crate) text: &'t str,
    /// The build made JSON of it (`src/build/tables.rs`).
    compiled: bool,
}

impl<'t> Source<'t> {
    /// As a person writes it.
    pub(crate) const fn toml(file: &'t str, text: &'t str) -> Self {
        Self { file, text, compiled: false }
    }

    /// As the build left it.
    pub(crate) fn compiled(file: &'t str, text: &'t str) -> Self {
        Self { file, text, compiled: true }
    }

    pub(crate) fn read<T: DeserializeOwned>(self) -> Result<T, MappingError> {
        let syntax = |problem: String| MappingError::Syntax {
            file: self.file.to_owned(),
            problem: problem.trim_end().to_owned(),
        };
        if self.compiled {
            return serde_json::from_str(self.text).map_err(|error| syntax(error.to_string()));
        }
        toml::from_str(self.text).map_err(|error| syntax(error.to_string()))
    }

    pub(crate) fn wrong(self, key: impl Into<String>, found: &str, expected: impl Into<String>) -> MappingError {
        MappingError::Value {
            file: self.file.to_owned(),
            key: key.into(),
            found: found.to_owned(),
            expected: expected.into(),
        }
    }

    /// Reads a template and holds its placeholders against the names that will have a value; an empty `known` allows any.
    pub(crate) fn template(self, key: &str, text: &str, known: &[&str]) -> Result<template::Template, MappingError> {
        let template = template::Template::parse(text).map_err(|expected| self.wrong(key, text, expected))?;
        if let Some(field) = template.fields().find(|field| !known.is_empty() && !known.contains(field)) {
            let names: Vec<_> = known.iter().map(|name| format!("{{{name}}}")).collect();
            return Err(self.wrong(key, &format!("{{{field}}}"), names.join(", ")));
        }
        Ok(template)
    }
}

/// The text of a table as the build left it.
macro_rules! compiled {
    ($name:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/mappings/", $name, ".json"))
    };
}
use compiled;

/// The built-in tables and, after them, those of the same name that the user gave.
fn layers<'t>(file: &'static str, text: &'static str, given: &[Source<'t>]) -> Vec<Source<'t>> {
    let mut layers = vec![Source::compiled(file, text)];
    layers.extend(given.iter().filter(|source| source.file == file));
    layers
}

impl Mappings {
    /// The tables compiled into the program.
    ///
    /// # Panics
    /// Never in a program that passed its tests: one of them reads these tables.
    #[must_use]
    pub fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Mappings> = OnceLock::new();
        BUILTIN.get_or_init(|| match Self::with_overrides(std::iter::empty::<(&str, &str)>()) {
            Ok(mappings) => mappings,
            Err(error) => unreachable!("the built-in tables are read by a test: {error}"),
        })
    }

    /// The built-in tables with the user's files over them: pairs of file name (relative to the user's mapping folder, with
    /// `/` between parts) and text. Of two files with the same name the later one wins.
    ///
    /// # Errors
    /// [`MappingError`] for the first file that cannot be used; nothing of it is applied then.
    pub fn with_overrides<N, T>(files: impl IntoIterator<Item = (N, T)>) -> Result<Self, MappingError>
    where
        N: AsRef<str>,
        T: AsRef<str>,
    {
        let files: Vec<(N, T)> = files.into_iter().collect();
        Self::layered(&given(&files)?)
    }

    /// The profiles alone, for whoever needs no other table: reading those is most of the work. A user's files are checked all
    /// the same.
    ///
    /// # Errors
    /// As [`Mappings::with_overrides`].
    pub fn agents_with_overrides<N, T>(files: impl IntoIterator<Item = (N, T)>) -> Result<Agents, MappingError>
    where
        N: AsRef<str>,
        T: AsRef<str>,
    {
        let files: Vec<(N, T)> = files.into_iter().collect();
        let given = given(&files)?;
        if given.iter().all(|source| agent_name(source.file).is_some()) {
            return Agents::read(&given);
        }
        Ok(Self::layered(&given)?.agents)
    }

    fn layered(given: &[Source<'_>]) -> Result<Self, MappingError> {
        Ok(Self {
            tools: Tools::read(&layers(TOOLS, compiled!("tools"), given))?,
            modes: Modes::read(&layers(MODES, compiled!("modes"), given))?,
            stop_reasons: StopReasons::read(&layers(STOP_REASONS, compiled!("stop_reasons"), given))?,
            errors: Errors::read(&layers(ERRORS, compiled!("errors"), given))?,
            permissions: Permissions::read(&layers(PERMISSIONS, compiled!("permissions"), given))?,
            agents: Agents::read(given)?,
        })
    }
}

/// The files that a user gave, each of which has to be a table's.
fn given<N: AsRef<str>, T: AsRef<str>>(files: &[(N, T)]) -> Result<Vec<Source<'_>>, MappingError> {
    files
        .iter()
        .map(|(name, text)| {
            let file = name.as_ref();
            let known = [TOOLS, MODES, STOP_REASONS, ERRORS, PERMISSIONS].contains(&file) || agent_name(file).is_some();
            match known {
                true => Ok(Source::toml(file, text.as_ref())),
                false => Err(MappingError::UnknownFile { file: file.to_owned() }),
            }
        })
        .collect()
}

/// `NAME` of `agents/NAME.toml`.
fn agent_name(file: &str) -> Option<&str> {
    let name = file.strip_prefix(AGENTS)?.strip_suffix(".toml")?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_alone_are_those_of_all_tables_and_every_file_is_checked() {
        let profile = ("agents/own.toml", "title = \"O\"\nprotocol = \"acp\"\ncommand = \"own\"\nhint = \"h\"\n");
        let alone = Mappings::agents_with_overrides([profile]).expect("a valid profile");
        let all = Mappings::with_overrides([profile]).expect("a valid profile").agents;
        assert!(alone.get("own").is_some());
        assert_eq!(format!("{alone:?}"), format!("{all:?}"));
        for (file, text) in [("tools.toml", "nonsense = 1"), ("agents/own.toml", "protocol = 1"), ("other.toml", "")] {
            assert_eq!(
                Mappings::agents_with_overrides([(file, text)]).err(),
                Mappings::with_overrides([(file, text)]).err(),
                "{file}"
            );
            assert!(Mappings::agents_with_overrides([(file, text)]).is_err(), "{file}");
        }
    }

    fn with(file: &str, text: &str) -> Result<Mappings, MappingError> {
        Mappings::with_overrides([(file, text)])
    }

    #[test]
    fn the_builtin_tables_are_readable() {
        Mappings::with_overrides(std::iter::empty::<(&str, &str)>()).expect("built-in tables");
        assert!(std::ptr::eq(Mappings::builtin(), Mappings::builtin()), "read once");
    }

    #[test]
    fn a_users_row_replaces_the_builtin_row_and_leaves_the_others() {
        let mappings =
            with("tools.toml", "[tool.Bash]\nkind = \"other\"\ntitle = \"Shell: {command}\"\n").expect("a valid table");
        let bash = mappings.tools.get("Bash");
        assert_eq!(bash.kind(), ToolKind::Other);
        assert_eq!(bash.title(|_| Some("ls".into())), "Shell: ls");
        assert_eq!(mappings.tools.get("Read").kind(), ToolKind::Read);
    }

    #[test]
    fn a_wrong_value_is_named_with_file_line_key_and_what_was_expected() {
        let error = with("tools.toml", "[tool.Bash]\nkind = \"run\"\n").expect_err("refused").to_string();
        for part in ["tools.toml", "line 2", "kind", "`run`", "`execute`"] {
            assert!(error.contains(part), "{part} is missing in: {error}");
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_the_keys_there_are() {
        let error =
            with("modes.toml", "[[mode]]\nid = \"x\"\nname = \"X\"\nlabel = \"?\"\n").expect_err("refused").to_string();
        for part in ["modes.toml", "line 4", "`label`", "`description`"] {
            assert!(error.contains(part), "{part} is missing in: {error}");
        }
    }

    #[test]
    fn an_unknown_placeholder_is_named_with_those_there_are() {
        let error = with("permissions.toml", "[phrase]\ndirectories = \"Allow {dir}\"\n").expect_err("refused");
        assert_eq!(
            error,
            MappingError::Value {
                file: "permissions.toml".into(),
                key: "phrase.directories".into(),
                found: "{dir}".into(),
                expected: "{directories}, {scope}".into(),
            }
        );
    }

    #[test]
    fn a_file_that_is_no_table_is_refused_with_the_names_there_are() {
        for file in ["tool.toml", "agents/a/b.toml", "agents/.toml", "acp.toml"] {
            let error = with(file, "").expect_err("refused");
            assert_eq!(error, MappingError::UnknownFile { file: file.into() });
            assert!(error.to_string().contains("stop_reasons.toml"), "{error}");
        }
    }
}
