//! Golden files of the reverse direction: every conversation in `golden/reverse/` goes through the translator, and what comes out is compared with what
//! the file expects. `UPDATE_GOLDEN=1` writes what comes out into the files.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use similar::{ChangeTag, TextDiff};
use support::reverse_golden as golden;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join("reverse")
}

fn files() -> Vec<PathBuf> {
    let list = std::fs::read_dir(folder()).unwrap_or_else(|e| panic!("golden/reverse: {e}"));
    let mut files: Vec<PathBuf> = list
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "ndjson"))
        .collect();
    files.sort();
    files
}

fn name(path: &Path) -> String {
    path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The changed lines with a little around them, each cut to what a terminal can show.
fn difference(expected: &str, now: &str) -> String {
    let mut text = String::new();
    for group in TextDiff::from_lines(expected, now).grouped_ops(2) {
        text.push_str("  …\n");
        for op in group {
            for change in TextDiff::from_lines(expected, now).iter_changes(&op) {
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

#[test]
fn every_conversation_is_translated_as_expected() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let only = std::env::var("GOLDEN").unwrap_or_default();
    let mut failures = Vec::new();
    let files = files();
    assert!(!files.is_empty(), "there are no golden files");
    for path in files {
        let name = name(&path);
        if !name.contains(&only) {
            continue;
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        match golden::run(&expected) {
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

#[test]
fn every_file_says_what_it_shows_and_where_it_comes_from() {
    let mut about = BTreeSet::new();
    for path in files() {
        let name = name(&path);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        let header =
            golden::Header::read(text.lines().next().unwrap_or_default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let source = &header.source;
        let known = source == "written" || source.starts_with("report ") || source.contains(", recording ");
        assert!(known, "{name}: the source is {source:?}");
        assert!(about.insert(header.about.clone()), "{name}: {:?} is what another file shows", header.about);
    }
}
