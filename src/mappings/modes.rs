//! The permission modes of the agent, as an editor offers them.
//!
//! Owns `mappings/modes.toml`. A mode's id is the same word on both wires; one that the table lacks passes through under
//! its own id, because which modes exist is the agent's business.

use serde::Deserialize;

use super::{MappingError, Source};

/// One permission mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mode {
    /// The word on both wires.
    pub id: String,
    /// What the editor shows.
    pub name: String,
    /// One sentence on what the mode does.
    pub description: Option<String>,
    also: Vec<String>,
    offer: Offer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum Offer {
    #[default]
    Always,
    Launched,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModes {
    #[serde(default)]
    mode: Vec<RawMode>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMode {
    id: String,
    name: String,
    description: Option<String>,
    #[serde(default)]
    also: Vec<String>,
    #[serde(default)]
    offer: Offer,
}

/// The table of modes, in the order an editor shows them.
#[derive(Debug, Clone)]
pub struct Modes {
    modes: Vec<Mode>,
}

impl Modes {
    pub(super) fn read(layers: &[Source<'_>]) -> Result<Self, MappingError> {
        let mut modes: Vec<Mode> = Vec::new();
        for source in layers {
            let raw: RawModes = source.read()?;
            for RawMode { id, name, description, also, offer } in raw.mode {
                if id.is_empty() {
                    return Err(source.wrong("mode.id", "", "the agent's word for the mode"));
                }
                let mode = Mode { id, name, description, also, offer };
                match modes.iter_mut().find(|known| known.id == mode.id) {
                    Some(known) => *known = mode,
                    None => modes.push(mode),
                }
            }
        }
        Ok(Self { modes })
    }

    /// The mode of this id, or of this other word for it.
    #[must_use]
    pub fn get(&self, word: &str) -> Option<&Mode> {
        self.modes
            .iter()
            .find(|mode| mode.id == word)
            .or_else(|| self.modes.iter().find(|mode| mode.also.iter().any(|other| other == word)))
    }

    /// The id for a word the agent said: `manual` is `default`, an unknown word is itself.
    #[must_use]
    pub fn id<'w>(&'w self, word: &'w str) -> &'w str {
        self.get(word).map_or(word, |mode| mode.id.as_str())
    }

    /// The modes to offer, in order. `bypass_launched` says that the agent was started with a flag that allows
    /// `bypassPermissions`; `current` is the mode the session is in, which is always among them (an editor must be able to
    /// show it), under its own id if the table lacks it.
    #[must_use]
    pub fn offered(&self, current: &str, bypass_launched: bool) -> Vec<Mode> {
        let current = self.id(current);
        let mut offered: Vec<Mode> = self
            .modes
            .iter()
            .filter(|mode| mode.offer == Offer::Always || bypass_launched || mode.id == current)
            .cloned()
            .collect();
        if !current.is_empty() && !offered.iter().any(|mode| mode.id == current) {
            offered.push(Mode {
                id: current.to_owned(),
                name: current.to_owned(),
                description: None,
                also: Vec::new(),
                offer: Offer::Launched,
            });
        }
        offered
    }
}

#[cfg(test)]
mod tests {
    use crate::mappings::Mappings;

    fn ids(current: &str, bypass: bool) -> Vec<String> {
        Mappings::builtin().modes.offered(current, bypass).into_iter().map(|mode| mode.id).collect()
    }

    #[test]
    fn bypass_is_offered_only_when_launched_with_its_flag() {
        assert_eq!(ids("default", false), ["default", "acceptEdits", "plan", "auto", "dontAsk"]);
        assert_eq!(ids("default", true), ["default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions"]);
    }

    #[test]
    fn the_current_mode_is_always_among_the_offered() {
        assert!(ids("bypassPermissions", false).contains(&"bypassPermissions".to_owned()));
        let offered = Mappings::builtin().modes.offered("careful", false);
        let last = offered.last().expect("not empty");
        assert_eq!((last.id.as_str(), last.name.as_str(), &last.description), ("careful", "careful", &None));
    }

    #[test]
    fn another_word_for_a_mode_leads_to_its_id_and_an_unknown_one_to_itself() {
        let modes = &Mappings::builtin().modes;
        assert_eq!(modes.id("manual"), "default");
        assert_eq!(modes.id("plan"), "plan");
        assert_eq!(modes.id("careful"), "careful");
        assert_eq!(ids("manual", false).len(), 5);
    }

    #[test]
    fn every_mode_says_what_it_does() {
        for mode in Mappings::builtin().modes.offered("default", true) {
            assert!(!mode.name.is_empty() && mode.description.is_some(), "{}", mode.id);
        }
    }

    #[test]
    fn a_users_mode_is_renamed_in_place() {
        let text = "[[mode]]\nid = \"plan\"\nname = \"Entwurf\"\n\n[[mode]]\nid = \"careful\"\nname = \"Careful\"\n";
        let mappings = Mappings::with_overrides([("modes.toml", text)]).expect("a valid table");
        let names: Vec<_> = mappings.modes.offered("default", false).into_iter().map(|mode| mode.name).collect();
        assert_eq!(names, ["Ask first", "Accept edits", "Entwurf", "Auto", "Don't ask", "Careful"]);
    }
}
