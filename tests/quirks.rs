//! `mappings/quirks.toml` against the sources and the golden files: what a row says is held somewhere is held there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use diglot::mappings::quirks::{self, Quirk, State};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn source(name: &str) -> PathBuf {
    root().join("src/translate").join(format!("{name}.rs"))
}

/// The numbers that a text names as quirks: `quirk 7`, `quirks 11 and 12`, `rows 1 to 6`, `quirks 8 (…), 9 (…)`.
fn named(text: &str, words: &[&str]) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for word in words {
        for (at, _) in text.match_indices(word) {
            let mut rest = &text[at + word.len()..];
            let mut range = None;
            loop {
                // What stands in brackets behind a number is about it.
                let trimmed = rest.trim_start_matches([' ', '\n']);
                if let Some(inside) = trimmed.strip_prefix('(') {
                    let Some(end) = inside.find(')') else { break };
                    rest = &inside[end + 1..];
                    continue;
                }
                let digits: String = trimmed.chars().take_while(char::is_ascii_digit).collect();
                if let Ok(number) = digits.parse::<u32>() {
                    found.extend(range.take().unwrap_or(number)..=number);
                    rest = &trimmed[digits.len()..];
                    if let Some(more) = rest.strip_prefix(" to ") {
                        (range, rest) = (Some(number), more);
                    }
                    continue;
                }
                match [",", "and "].iter().find_map(|between| trimmed.strip_prefix(between)) {
                    Some(more) => rest = more,
                    None => break,
                }
            }
        }
    }
    found
}

/// A file's comments as one text.
fn comments(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let lines = text.lines().map(str::trim_start).filter_map(|line| {
        line.strip_prefix("//!").or_else(|| line.strip_prefix("///")).or_else(|| line.strip_prefix("//"))
    });
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

fn files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("src/translate").join(folder)];
    while let Some(path) = folders.pop() {
        for entry in std::fs::read_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())) {
            let path = entry.expect("a folder of ours can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "tests.rs") {
                let name = path.strip_prefix(root().join("src/translate")).expect("below it").with_extension("");
                found.push(name.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn there_are_seventy_and_each_says_what_becomes_of_it() {
    let all = quirks::builtin();
    assert_eq!(all.len(), 70);
    for quirk in all {
        let is_held = !quirk.host.is_empty() || !quirk.editor.is_empty();
        assert!(quirk.state != State::Repaired || is_held, "{}: repaired, and nowhere", quirk.number);
        let versions = quirk.agents.iter().filter(|agent| agent.contains(|c: char| c.is_ascii_digit())).count();
        let in_general = ["all", "most", "agents on node"];
        let general =
            quirk.agents.iter().filter(|agent| in_general.contains(&agent.as_str()) || *agent == "many").count();
        assert_eq!(versions + general, quirk.agents.len(), "{}: an agent without its version", quirk.number);
    }
}

#[test]
fn a_repair_toward_editors_is_shown_by_a_golden_file() {
    for quirk in quirks::builtin() {
        for name in &quirk.golden {
            assert!(root().join("golden").join(format!("{name}.ndjson")).is_file(), "{}: {name}", quirk.number);
        }
        let shows = |direction: &str| quirk.golden.iter().any(|name| name.starts_with(direction));
        let repaired = quirk.state == State::Repaired;
        assert!(!repaired || quirk.editor.is_empty() || shows("acp/"), "{}: no golden file", quirk.number);
        assert!(!repaired || !quirk.golden.is_empty(), "{}: nothing shows it", quirk.number);
    }
}

#[test]
fn every_file_that_a_row_names_names_the_row_in_its_header_toward_editors() {
    for quirk in quirks::builtin() {
        for name in quirk.host.iter().chain(&quirk.editor) {
            assert!(source(name).is_file(), "{}: there is no {name}", quirk.number);
        }
        for name in &quirk.editor {
            let text = comments(&source(name));
            let numbers = named(&text, &["quirk ", "quirks ", "Quirk ", "Quirks "]);
            assert!(numbers.contains(&quirk.number), "{name} does not name {}: {numbers:?}", quirk.number);
        }
    }
}

#[test]
fn every_row_that_a_file_names_names_the_file() {
    let lists = |quirk: &Quirk, file: &String| quirk.host.contains(file) || quirk.editor.contains(file);
    let mut missing = Vec::new();
    for (folder, words) in [
        ("acp_over_acp", &["quirk ", "quirks ", "Quirk ", "Quirks "][..]),
        ("claude_over_acp", &["quirk ", "quirks ", "Quirk ", "Quirks ", "section 6, rows "][..]),
    ] {
        for file in files(folder) {
            for number in named(&comments(&source(&file)), words) {
                let row = quirks::builtin().iter().find(|quirk| quirk.number == number);
                if !row.is_some_and(|quirk| lists(quirk, &file)) {
                    missing.push(format!("row {number} does not name {file}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn numbers_are_read_in_every_way_that_comments_have() {
    let read = |text: &str| named(text, &["quirk ", "quirks "]).into_iter().collect::<Vec<_>>();
    assert_eq!(read("keeps quirk 7."), [7]);
    assert_eq!(read("quirks 11 and 12), and so on"), [11, 12]);
    assert_eq!(read("Owns quirks 44 (seven of 10), 8 and 9 (`x`: A 2.1), 13 to 16 (the)"), [8, 9, 13, 14, 15, 16, 44]);
    assert!(read("no quirk at all 5").is_empty());
}
