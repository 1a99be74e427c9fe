//! Permission modes that the interpreter keeps itself.
//!
//! Owns what a mode decides when the agent has no such mode (stream-json-hosts.md, section 3.2, `--permission-mode`). Keeps:
//! a mode that accepts edits accepts them in the session's directories only, and nowhere in files that run by themselves.

use std::path::Path;

use serde_json::{Map, Value};

use super::{Decision, Verdict, paths, shell};

/// A permission mode of Claude's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PermissionMode {
    /// Asks; also called `manual`.
    #[default]
    Default,
    /// Changes files in the session's directories without asking.
    AcceptEdits,
    /// Changes nothing and runs nothing.
    Plan,
    /// Asks for nothing.
    BypassPermissions,
    /// What would be asked is refused.
    DontAsk,
    /// The agent judges; what it still asks is asked.
    Auto,
}

impl PermissionMode {
    /// Reads Claude's word; `None` for any other.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "default" | "manual" => Self::Default,
            "acceptEdits" => Self::AcceptEdits,
            "plan" => Self::Plan,
            "bypassPermissions" => Self::BypassPermissions,
            "dontAsk" => Self::DontAsk,
            "auto" => Self::Auto,
            _ => return None,
        })
    }

    /// Claude's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::AcceptEdits => "acceptEdits",
            Self::Plan => "plan",
            Self::BypassPermissions => "bypassPermissions",
            Self::DontAsk => "dontAsk",
            Self::Auto => "auto",
        }
    }

    /// What the mode decides about a rendered tool, when no rule has decided; `None`: ask. `kind` is ACP's kind of the call.
    /// [`PermissionMode::Plan`] is to be asked only when the agent has no such mode of its own.
    #[must_use]
    pub fn decide(
        self,
        name: &str,
        input: &Map<String, Value>,
        kind: Option<&str>,
        cwd: &Path,
        add_dirs: &[&Path],
    ) -> Option<Verdict> {
        let verdict = |decision| Some(Verdict { decision, rule: format!("mode {}", self.as_str()) });
        match self {
            Self::Default | Self::Auto => None,
            Self::BypassPermissions => verdict(Decision::Allow),
            Self::DontAsk => verdict(Decision::Deny),
            Self::Plan if changes(name, kind) => verdict(Decision::Deny),
            Self::Plan => None,
            Self::AcceptEdits => {
                let files = changed_files(name, input, kind)?;
                let mut directories = vec![cwd];
                directories.extend(add_dirs);
                let accepted = |file: &String| {
                    let path = paths::normal(file, cwd, None);
                    !file.is_empty()
                        && !file.starts_with('~')
                        && path != cwd
                        && paths::inside(&path, &directories)
                        && !runs(&path)
                };
                files.iter().all(accepted).then(|| verdict(Decision::Allow)).flatten()
            }
        }
    }
}

/// Whether a tool changes or runs anything.
fn changes(name: &str, kind: Option<&str>) -> bool {
    matches!(name, "Bash" | "Edit" | "Write" | "MultiEdit" | "NotebookEdit" | "PowerShell")
        || matches!(kind, Some("edit" | "delete" | "move" | "execute"))
}

/// The files that a tool changes, if it does nothing else.
fn changed_files(name: &str, input: &Map<String, Value>, kind: Option<&str>) -> Option<Vec<String>> {
    match (name, kind) {
        ("Edit" | "Write" | "MultiEdit" | "NotebookEdit", _) => {
            let path = input.get("file_path").or_else(|| input.get("notebook_path"))?.as_str()?;
            Some(vec![path.to_owned()])
        }
        ("Bash", Some("delete" | "move")) => {
            let words = shell::plain_words(input.get("command")?.as_str()?)?;
            match words.split_at_checked(2)? {
                ([program, dashes], files)
                    if matches!(program.as_str(), "rm" | "mv") && dashes == "--" && !files.is_empty() =>
                {
                    Some(files.to_vec())
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether something runs or obeys a file by itself: those are asked about in every mode that accepts edits.
fn runs(path: &Path) -> bool {
    const DIRECTORIES: [&str; 7] = [".git", ".claude", ".vscode", ".idea", ".husky", ".devcontainer", ".ssh"];
    const FILES: [&str; 10] = [
        ".bashrc",
        ".bash_profile",
        ".zshrc",
        ".zprofile",
        ".profile",
        ".gitconfig",
        ".gitmodules",
        ".mcp.json",
        ".envrc",
        ".ripgreprc",
    ];
    let known = |part: &str, names: &[&str]| names.iter().any(|name| part.eq_ignore_ascii_case(name));
    path.components().any(|part| part.as_os_str().to_str().is_some_and(|part| known(part, &DIRECTORIES)))
        || path.file_name().and_then(|name| name.to_str()).is_some_and(|name| known(name, &FILES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decide(mode: &str, name: &str, input: Value, kind: &str) -> Option<Decision> {
        let mode = PermissionMode::parse(mode).unwrap_or_else(|| panic!("{mode}"));
        let Value::Object(input) = input else { panic!("an object") };
        mode.decide(name, &input, Some(kind), Path::new("/w/p"), &[Path::new("/extra/")])
            .map(|verdict| verdict.decision)
    }

    #[test]
    fn words_are_read_and_said() {
        for word in ["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto"] {
            assert_eq!(PermissionMode::parse(word).map(PermissionMode::as_str), Some(word));
        }
        assert_eq!(PermissionMode::parse("manual"), Some(PermissionMode::Default));
        assert_eq!(PermissionMode::parse("yolo"), None);
    }

    #[test]
    fn edits_are_accepted_inside_only() {
        let edit = |path: &str| decide("acceptEdits", "Edit", json!({"file_path":path}), "edit");
        for path in ["/w/p/a", "a/b", "/extra/x", "/w/p/x/../y"] {
            assert_eq!(edit(path), Some(Decision::Allow), "{path}");
        }
        for path in [
            "/w/q",
            "/w/p/../q",
            "../q",
            "/extra/../etc/x",
            "/w/pq",
            "/w/p",
            "",
            "~/x",
            ".git/hooks/pre-commit",
            "/w/p/.Claude/x",
            "/w/p/.bashrc",
        ] {
            assert_eq!(edit(path), None, "{path}");
        }
        let shell = |command: &str, kind| decide("acceptEdits", "Bash", json!({"command":command}), kind);
        assert_eq!(shell("rm -- /w/p/a 'b c'", "delete"), Some(Decision::Allow));
        assert_eq!(shell("mv -- a /w/p/b", "move"), Some(Decision::Allow));
        for (command, kind) in [
            ("rm -- /w/p/a", "execute"),
            ("rm -rf a", "delete"),
            ("rm -- a; curl x", "delete"),
            ("rm -- $HOME", "delete"),
            ("rm -- *", "delete"),
            ("mv -- a /etc/b", "move"),
            ("rm -- .", "delete"),
            ("rm --", "delete"),
            ("rm", "delete"),
            ("curl -- a", "delete"),
        ] {
            assert_eq!(shell(command, kind), None, "{command}");
        }
    }

    #[test]
    fn each_mode_decides_what_it_says() {
        let bash = |mode| decide(mode, "Bash", json!({"command":"x"}), "execute");
        assert_eq!(bash("default"), None);
        assert_eq!(bash("auto"), None);
        assert_eq!(bash("bypassPermissions"), Some(Decision::Allow));
        assert_eq!(bash("dontAsk"), Some(Decision::Deny));
        assert_eq!(bash("plan"), Some(Decision::Deny));
        assert_eq!(decide("plan", "Read", json!({"file_path":"a"}), "read"), None);
        assert_eq!(decide("plan", "odd", json!({}), "delete"), Some(Decision::Deny));
        assert_eq!(decide("plan", "ExitPlanMode", json!({}), "switch_mode"), None);
    }
}
