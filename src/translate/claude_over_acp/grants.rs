//! Which act of the agent's is one that was already allowed.
//!
//! Owns the comparing of an act that diglot is to do with the calls that were shown and allowed. Keeps: what a question said
//! of an act must be so when it is done: the command, the file, and what the file is to hold, which is the content that was
//! shown, or what the edits that were shown make of what the file holds now. A call that does not say it covers nothing.

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::ClaudeOverAcp;
use super::command::{self, CommandLine};
use super::question::Question;
use super::render::ToolUse;
use super::served::Act;
use crate::translate::rules::by_letters;

/// Acts that were allowed in a turn and not yet done.
const GRANTS: usize = 256;

/// Bytes of all edits of one call that are kept to be compared; more of it is asked about again.
const EDITS: usize = 1024 * 1024;

/// An act that a question of the agent's was about, and that was allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Grant {
    File { path: PathBuf, change: Change },
    Command(String),
}

/// What becomes of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Hash of all that it is to hold.
    Whole(u64),
    /// Made one after the other.
    Edits(Vec<Edit>),
}

/// `Edit` as Claude knows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edit {
    old: String,
    new: String,
    all: bool,
}

/// An act that is to be done, as it is compared.
#[derive(Debug)]
pub(super) enum Deed<'a> {
    /// `now`: what the file holds; unknown, an edit covers nothing.
    File {
        path: PathBuf,
        content: &'a str,
        now: Option<&'a str>,
    },
    Command(String),
}

impl<'a> Deed<'a> {
    /// `None`: to read is none.
    pub(super) fn of(act: &'a Act, now: Option<&'a str>, cwd: &Path) -> Option<Self> {
        match act {
            Act::Read { .. } => None,
            Act::Write { path, content, .. } => Some(Self::File { path: by_letters(path), content, now }),
            Act::Run(command) => Some(Self::Command(CommandLine::of(command, cwd).whole())),
        }
    }
}

impl Grant {
    /// Whether just this was allowed.
    pub(super) fn covers(&self, deed: &Deed<'_>, keys: &RandomState) -> bool {
        match (self, deed) {
            (Self::File { path, change }, Deed::File { path: other, content, now }) => {
                path == other
                    && match change {
                        Change::Whole(hash) => *hash == keys.hash_one(*content),
                        Change::Edits(edits) => now.is_some_and(|now| makes(edits, now, content)),
                    }
            }
            (Self::Command(line), Deed::Command(other)) => line == other,
            _ => false,
        }
    }

    /// The acts that a call stands for, as it is shown to the host; several edits of one file are one.
    pub(super) fn of_uses(uses: &[ToolUse], cwd: &Path, keys: &RandomState) -> Vec<Self> {
        let mut grants: Vec<Self> = Vec::new();
        for one in uses {
            let Some(grant) = Self::of_use(one, cwd, keys) else { continue };
            let before = grants.iter_mut().find_map(|known| match (known, &grant) {
                (Self::File { path, change: Change::Edits(edits) }, Self::File { path: other, .. })
                    if path == other =>
                {
                    Some(edits)
                }
                _ => None,
            });
            match (before, grant) {
                (Some(before), Self::File { change: Change::Edits(edits), .. }) => before.extend(edits),
                (_, grant) => grants.push(grant),
            }
        }
        grants.retain(|grant| match grant {
            Self::File { change: Change::Edits(edits), .. } => {
                edits.iter().map(|e| e.old.len() + e.new.len()).sum::<usize>() <= EDITS
            }
            _ => true,
        });
        grants
    }

    fn of_use(one: &ToolUse, cwd: &Path, keys: &RandomState) -> Option<Self> {
        let member = |name: &str| one.input.get(name).and_then(Value::as_str);
        let path = || member("file_path").filter(|path| !path.is_empty()).map(|path| by_letters(&cwd.join(path)));
        match &*one.name {
            "Write" => Some(Self::File { path: path()?, change: Change::Whole(keys.hash_one(member("content")?)) }),
            "Edit" => {
                let edit = Edit {
                    old: member("old_string")?.to_owned(),
                    new: member("new_string")?.to_owned(),
                    all: one.input.get("replace_all") == Some(&Value::Bool(true)),
                };
                Some(Self::File { path: path()?, change: Change::Edits(vec![edit]) })
            }
            "Bash" => {
                let line = member("command").filter(|line| !line.is_empty())?;
                Some(Self::Command(command::here(&command::unwrapped(line), cwd).to_owned()))
            }
            _ => None,
        }
    }
}

/// What a text may become on the way.
const LARGEST: usize = 16 * 1024 * 1024;

/// How many places of an edit are looked at.
const PLACES: usize = 1000;

/// Whether edits make `then` of `now`. Like Claude's own, all but the last must say where they belong; where the last one
/// could belong to several places, what was shown is the same for all of them.
fn makes(edits: &[Edit], now: &str, then: &str) -> bool {
    let Some((last, before)) = edits.split_last() else { return false };
    let mut text = now.to_owned();
    for edit in before {
        match edited(edit, &text, LARGEST) {
            Some(next) => text = next,
            None => return false,
        }
    }
    if last.all || last.old.is_empty() {
        return edited(last, &text, then.len()).is_some_and(|text| text == then);
    }
    if text.len() - last.old.len().min(text.len()) + last.new.len() != then.len() {
        return false;
    }
    let alike = |(a, b): &(&u8, &u8)| a == b;
    let head = text.as_bytes().iter().zip(then.as_bytes()).take_while(alike).count();
    let tail = text.as_bytes().iter().rev().zip(then.as_bytes().iter().rev()).take_while(alike).count();
    let fits = |at: &usize| *at <= head && text.len() - at - last.old.len() <= tail;
    let mut places = text.match_indices(&last.old).map(|(at, _)| at).filter(fits).take(PLACES);
    places.any(|at| then.as_bytes()[at..].starts_with(last.new.as_bytes()))
}

/// `None`: the edit does not fit, does not say where, or makes more than `most` bytes.
fn edited(edit: &Edit, text: &str, most: usize) -> Option<String> {
    if edit.old.is_empty() {
        return text.is_empty().then(|| edit.new.clone());
    }
    let count = text.match_indices(&edit.old).count();
    let length = (text.len() - count * edit.old.len()).saturating_add(count.saturating_mul(edit.new.len()));
    let fits = count > 0 && (edit.all || count == 1) && length <= most;
    fits.then(|| text.replace(&edit.old, &edit.new))
}

impl ClaudeOverAcp {
    /// Whether an edit of this file was allowed, or is shown in a call that runs: then what the file holds must be known.
    pub(super) fn edit_is_known(&mut self, path: &Path) -> bool {
        let path = by_letters(path);
        let edits =
            |grant: &Grant| matches!(grant, Grant::File { path: one, change: Change::Edits(_) } if *one == path);
        self.served.grants.iter().any(edits) || self.open_grants().iter().any(|(_, grants)| grants.iter().any(edits))
    }

    /// The call of the agent's that an act belongs to: it runs and stands for just this.
    pub(super) fn call_of(&mut self, deed: &Deed<'_>) -> Option<String> {
        let open = self.open_grants();
        let of = |(call, grants): (String, Vec<Grant>)| {
            grants.iter().any(|g| g.covers(deed, &self.served.keys)).then_some(call)
        };
        open.into_iter().rev().find_map(of)
    }

    /// What the calls that run stand for.
    fn open_grants(&mut self) -> Vec<(String, Vec<Grant>)> {
        let Some(turn) = &self.turn else { return Vec::new() };
        let open: Vec<String> = turn.calls.iter().filter(|t| !t.closed).map(|t| t.call.id.clone()).collect();
        let of = |call: String| {
            let uses = self.uses_now(&call);
            let grants = Grant::of_uses(&uses, &self.set.cwd, &self.served.keys);
            (call, grants)
        };
        open.into_iter().map(of).collect()
    }

    /// What a question of the agent's was about is allowed: its act is covered, once.
    pub(super) fn cover_acts(&mut self, question: &Question) {
        if !(self.set.options.files || self.set.options.terminals) {
            return;
        }
        for grant in Grant::of_uses(&question.uses, &self.set.cwd, &self.served.keys) {
            if self.served.grants.len() < GRANTS && !self.served.grants.contains(&grant) {
                self.served.grants.push(grant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str) -> Edit {
        Edit { old: old.into(), new: new.into(), all: false }
    }

    fn all(old: &str, new: &str) -> Edit {
        Edit { all: true, ..edit(old, new) }
    }

    #[test]
    fn an_edit_makes_what_it_says_and_nothing_more() {
        assert!(makes(&[edit("b", "B")], "a b c", "a B c"));
        assert!(!makes(&[edit("b", "B")], "a b c", "a B C"));
        assert!(!makes(&[edit("b", "B")], "a b c", "x B c"));
        assert!(!makes(&[edit("x", "y")], "a b c", "a b c"));
        assert!(!makes(&[edit("long old text", "")], "short", ""));
        assert!(!makes(&[], "a", "a"));
    }

    #[test]
    fn an_edit_may_belong_to_any_place_that_it_fits() {
        assert!(makes(&[edit("b", "BB")], "b-b-b", "b-BB-b"));
        assert!(!makes(&[edit("b", "BB")], "b-b-b", "BB-BB-b"));
        assert!(makes(&[all("b", "BB")], "b-b", "BB-BB"));
        assert!(!makes(&[all("b", "BB")], "b-b", "BB-b"));
    }

    #[test]
    fn an_edit_that_would_make_too_much_is_not_made() {
        let text = "a".repeat(10_000);
        assert!(edited(&all("a", &"b".repeat(100_000)), &text, LARGEST).is_none());
        assert!(!makes(&[all("a", &"b".repeat(100_000))], &text, "short"));
    }

    #[test]
    fn edits_of_one_file_are_made_one_after_the_other() {
        assert!(makes(&[edit("a", "b"), edit("b c", "d")], "a c", "d"));
        assert!(!makes(&[edit("a", "b"), edit("x", "d")], "a c", "b c"));
        // Which of the two is meant is not said.
        assert!(!makes(&[edit("a", "b"), edit("c", "d")], "a a c", "b a d"));
    }

    #[test]
    fn an_edit_of_nothing_makes_a_new_file_only() {
        assert!(makes(&[edit("", "new")], "", "new"));
        assert!(!makes(&[edit("", "new")], "old", "newold"));
        assert!(!makes(&[edit("", "")], "old", "anything"));
    }
}
