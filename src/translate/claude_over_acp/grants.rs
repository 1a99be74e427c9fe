//! Which act of the agent's is one that was already allowed.
//!
//! Owns the comparing of an act that diglot is to do with the call that a question was about. Keeps: what was said of an act
//! when it was allowed must be so when it is done: the file, all that it is to hold, the command.

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::command;
use super::render::ToolUse;

/// An act that a question of the agent's was about, and that was allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Grant {
    File {
        path: PathBuf,
        /// Of all that it is to hold, where that was said.
        content: Option<u64>,
    },
    Command(String),
}

impl Grant {
    /// Whether this covers an act; what was not said covers all.
    pub(super) fn covers(&self, act: &Self) -> bool {
        match (self, act) {
            (Self::File { path, content }, Self::File { path: other, content: all }) => {
                path == other && (content.is_none() || content == all)
            }
            (this, other) => this == other,
        }
    }
}

/// The act that a rendered call stands for.
pub(super) fn grant_of_use(one: &ToolUse, cwd: &Path, keys: &RandomState) -> Option<Grant> {
    let member = |name: &str| one.input.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    match &*one.name {
        "Write" | "Edit" => {
            let path = member("file_path")?;
            let content = one.input.get("content").and_then(Value::as_str).map(|content| keys.hash_one(content));
            Some(Grant::File { path: normal(&cwd.join(path)), content })
        }
        "Bash" => Some(Grant::Command(command::unwrapped(member("command")?))),
        _ => None,
    }
}

/// Without `.`, `..` and doubled separators, by its letters.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}
