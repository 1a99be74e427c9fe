//! Folders of golden files: which there are, whether they come out as they stand, and what is different.
//!
//! Owns `UPDATE_GOLDEN` and `GOLDEN`. Keeps: what a file expects changes only where the change is asked for.

use std::path::{Path, PathBuf};

use similar::{ChangeTag, TextDiff};

/// What running a file gave.
pub(crate) struct Run {
    /// The file as it would be now.
    pub(crate) text: String,
    /// What broke a rule.
    pub(crate) problems: Vec<String>,
}

/// The files of `golden/FOLDER`, in order.
pub(crate) fn all(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(folder);
    let list = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = list
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "ndjson"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "there are no golden files in {}", folder.display());
    files
}

/// A file's name without its ending.
pub(crate) fn name(path: &Path) -> String {
    path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A file's text.
pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The changed lines with a little around them, each cut to what a terminal can show.
pub(crate) fn difference(expected: &str, now: &str) -> String {
    let diff = TextDiff::from_lines(expected, now);
    let mut text = String::new();
    for group in diff.grouped_ops(2) {
        text.push_str("  …\n");
        for op in group {
            for change in diff.iter_changes(&op) {
                let mark = match change.tag() {
                    ChangeTag::Delete => '-',
                    ChangeTag::Insert => '+',
                    ChangeTag::Equal => ' ',
                };
                let line: String = change.value().trim_end().chars().take(600).collect();
                text.push_str(&format!("{mark} {line}\n"));
            }
        }
    }
    text
}

/// Runs every file of a folder and compares, or with `UPDATE_GOLDEN` writes.
pub(crate) fn compare(folder: &str, run: impl Fn(&str) -> Result<Run, String>) {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let only = std::env::var("GOLDEN").unwrap_or_default();
    let mut failures = Vec::new();
    for path in all(folder) {
        let name = name(&path);
        if !name.contains(&only) {
            continue;
        }
        let expected = read(&path);
        match run(&expected) {
            Err(e) => failures.push(format!("{name}: the file is wrong: {e}")),
            Ok(run) => {
                if !run.problems.is_empty() {
                    failures.push(format!("{name}: breaks the rules:\n  {}", run.problems.join("\n  ")));
                }
                if run.text != expected {
                    if update {
                        std::fs::write(&path, &run.text).unwrap_or_else(|e| panic!("{name}: {e}"));
                    } else {
                        failures.push(format!("{name}:\n{}", difference(&expected, &run.text)));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} golden files fail\n{}", failures.len(), failures.join("\n"));
}
