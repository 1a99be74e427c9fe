//! What agents that speak ACP do in ways of their own, and what becomes of it.
//!
//! Owns `mappings/quirks.toml`. Keeps: the rows are numbered from 1 without a gap; what is not repaired says why. Read for
//! `diglot mappings --quirks` and for the tests only.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::{MappingError, Source};

/// What diglot does about a quirk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is made good.
    Repaired,
    /// What holds for every agent covers it.
    Rule,
    /// Nothing.
    Known,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Repaired, Self::Rule, Self::Known];

    /// As the file names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Repaired => "repaired",
            Self::Rule => "rule",
            Self::Known => "known",
        }
    }
}

/// One quirk.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Quirk {
    /// By which the sources name it.
    pub number: u32,
    /// In a few words.
    pub name: String,
    /// Agents, each with the version that was measured.
    pub agents: Vec<String>,
    /// What diglot does about it.
    pub state: State,
    /// Files below `src/translate`, without their ending, that hold it toward a host.
    #[serde(default)]
    pub host: Vec<String>,
    /// The same toward an editor.
    #[serde(default)]
    pub editor: Vec<String>,
    /// Files below `golden`, without their ending, that show it.
    #[serde(default)]
    pub golden: Vec<String>,
    /// What is done instead of a repair.
    #[serde(default)]
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    quirk: Vec<Quirk>,
}

/// The file's name and text.
const BUILTIN: Source<'static> = Source::toml("quirks.toml", include_str!("../../mappings/quirks.toml"));

/// Reads the file.
fn read(source: Source<'_>) -> Result<Vec<Quirk>, MappingError> {
    let file: File = source.read()?;
    for (at, quirk) in file.quirk.iter().enumerate() {
        let key = format!("quirk[{at}]");
        if usize::try_from(quirk.number) != Ok(at + 1) {
            return Err(source.wrong(format!("{key}.number"), &quirk.number.to_string(), format!("{}", at + 1)));
        }
        if quirk.agents.is_empty() || quirk.name.is_empty() {
            return Err(source.wrong(key, "", "a name and at least one agent"));
        }
        if quirk.state != State::Repaired && quirk.why.is_empty() {
            return Err(source.wrong(format!("{key}.why"), "", "what is done instead of a repair"));
        }
    }
    Ok(file.quirk)
}

/// The quirks, in the order of their numbers.
///
/// # Panics
/// Never in a program that passed its tests: one of them reads the file.
#[must_use]
pub fn builtin() -> &'static [Quirk] {
    static QUIRKS: OnceLock<Vec<Quirk>> = OnceLock::new();
    QUIRKS.get_or_init(|| match read(BUILTIN) {
        Ok(quirks) => quirks,
        Err(error) => unreachable!("the built-in quirks are read by a test: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        read(Source::toml("quirks.toml", text)).unwrap_err().to_string()
    }

    #[test]
    fn the_built_in_file_can_be_read() {
        assert_eq!(builtin().len(), 70);
    }

    #[test]
    fn a_gap_and_a_missing_reason_are_named() {
        let row = |number: u32, state: &str| {
            format!("[[quirk]]\nnumber = {number}\nname = \"n\"\nagents = [\"a 1\"]\nstate = \"{state}\"\n")
        };
        assert!(problem(&row(2, "repaired")).contains("quirk[0].number"));
        assert!(problem(&row(1, "known")).contains("quirk[0].why"));
        assert!(problem(&row(1, "perhaps")).contains("perhaps"));
    }
}
