//! Holds the ledgers against the word lists, the golden files and the sources, both ways.
//!
//! | promise | test |
//! |---|---|
//! | every word has a row, every row is a word | `words_and_rows_are_the_same` |
//! | the word lists miss no method of the schema | `every_method_of_the_schema_is_a_word` |
//! | a `translated` row is shown by a golden file | `every_translated_word_is_shown_by_a_golden_file` |
//! | a row whose word is handled has code that handles it | `every_handled_word_is_in_the_sources` |
//! | a word in the code has a row that says so | `every_word_in_the_sources_has_a_row` |
//! | an error reason in the code has words | `every_reason_in_the_sources_has_words` |

#[path = "ledger/evidence.rs"]
mod evidence;
#[path = "ledger/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use diglot::mappings::Mappings;
use diglot::mappings::ledger::{Fate, Ledger, Row, Section, Work};

use evidence::Shown;
use sources::Sources;

/// Below the repository's root.
fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// All files below a folder with this ending, sorted; empty if there is no such folder.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                walk(&path, ending, found);
            } else if path.extension().is_some_and(|found| found == ending) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(folder), ending, &mut found);
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The name of a ledger's word list, and of its file without ending.
fn stem(ledger: &Ledger) -> &'static str {
    match ledger.protocol.as_str() {
        "ACP" => "acp",
        "stream-json" => "stream_json",
        other => panic!("no word list is known for {other}"),
    }
}

/// A word list: `[section]` lines, one word a line, `#` comments. Pairs of section and word.
fn words(stem: &str) -> Vec<(String, String)> {
    let text = read(&root(&format!("tests/words/{stem}.txt")));
    let mut section = String::new();
    let mut words = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) => section = name.to_owned(),
            None => words.push((section.clone(), line.to_owned())),
        }
    }
    words
}

fn rows() -> impl Iterator<Item = (&'static Ledger, &'static Section, &'static Row)> {
    Ledger::builtin().iter().flat_map(|ledger| ledger.rows().map(move |(section, row)| (ledger, section, row)))
}

fn name(section: &Section, row: &Row) -> String {
    format!("{}: {}", section.name, row.word)
}

#[test]
fn words_and_rows_are_the_same() {
    for ledger in Ledger::builtin() {
        let stem = stem(ledger);
        let listed = words(stem);
        let wanted: BTreeSet<_> = listed.iter().cloned().collect();
        assert_eq!(wanted.len(), listed.len(), "tests/words/{stem}.txt names a word twice");
        let found: BTreeSet<_> = ledger.rows().map(|(section, row)| (section.name.clone(), row.word.clone())).collect();
        let without_row: Vec<_> = wanted.difference(&found).collect();
        assert!(without_row.is_empty(), "mappings/{stem}.toml has no row for {without_row:?}");
        let without_word: Vec<_> = found.difference(&wanted).collect();
        assert!(without_word.is_empty(), "tests/words/{stem}.txt has no word for the rows {without_word:?}");
    }
}

#[test]
fn every_method_of_the_schema_is_a_word() {
    use agent_client_protocol_schema::v1::{AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES, PROTOCOL_LEVEL_METHOD_NAMES};
    let known: BTreeSet<_> = words("acp").into_iter().collect();
    let sides = [
        (serde_json::to_value(AGENT_METHOD_NAMES), &["client_request", "client_notification"][..]),
        (serde_json::to_value(CLIENT_METHOD_NAMES), &["agent_request", "agent_notification"][..]),
        (serde_json::to_value(PROTOCOL_LEVEL_METHOD_NAMES), &["either_way"][..]),
    ];
    let mut count = 0;
    for (names, sections) in sides {
        let names = names.expect("names are strings");
        for method in names.as_object().expect("a struct of names").values().filter_map(|name| name.as_str()) {
            let listed = sections.iter().any(|section| known.contains(&((*section).to_owned(), method.to_owned())));
            assert!(listed, "tests/words/acp.txt lacks {method} in {sections:?}");
            count += 1;
        }
    }
    assert!(count >= 20, "the schema names {count} methods");
}

#[test]
fn every_translated_word_is_shown_by_a_golden_file() {
    let golden = files("golden/forward", "ndjson");
    if golden.is_empty() {
        // A checkout without golden files (a published crate) has nothing to hold the rows against.
        return;
    }
    let mut shown = Shown::default();
    for path in &golden {
        shown.file(&read(path));
    }
    let mut unshown = Vec::new();
    for (_, section, row) in rows() {
        for file in &row.golden {
            assert!(
                root("golden").join(file).is_file(),
                "{} names golden/{file}, which is not there",
                name(section, row)
            );
        }
        if row.forward.fate == Fate::Translated && row.golden.is_empty() && !shown.has(&section.name, &row.word) {
            unshown.push(name(section, row));
        }
    }
    assert!(
        unshown.is_empty(),
        "{} translated rows that no file of golden/forward shows (record a conversation that does, or name its file in the row):\n{}",
        unshown.len(),
        unshown.join("\n")
    );
}

#[test]
fn every_handled_word_is_in_the_sources() {
    let sources = Sources::read();
    if sources.is_empty() {
        return;
    }
    let handled = [Fate::Translated, Fate::Answered, Fate::Meta, Fate::Used, Fate::Sent];
    let missing: Vec<_> = rows()
        .filter(|(_, _, row)| handled.contains(&row.forward.fate))
        // What is refused with the protocol's own error needs no code of its own: every unknown word is.
        .filter(|(_, _, row)| row.forward.fate != Fate::Answered || row.code.is_some())
        .filter(|(_, _, row)| !sources.mentions(row.code.as_deref().unwrap_or(&row.word)))
        .map(|(_, section, row)| format!("{} ({})", name(section, row), row.forward.fate.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "{} rows whose word is handled, but neither src nor the tables know it (name in `code` what stands for it):\n{}",
        missing.len(),
        missing.join("\n")
    );
}

#[test]
fn every_word_in_the_sources_has_a_row() {
    let sources = Sources::read();
    let mut fates: BTreeMap<&str, Vec<Fate>> = BTreeMap::new();
    for (_, _, row) in rows() {
        let word = row.word.as_str();
        fates.entry(word).or_default().push(row.forward.fate);
        // `fs.readTextFile`: the code sees the last part.
        if let Some((_, last)) = word.rsplit_once('.') {
            fates.entry(last).or_default().push(row.forward.fate);
        }
    }
    let tools: BTreeSet<_> = Mappings::builtin().tools.names().into_iter().collect();
    let other: BTreeSet<String> = words("other").into_iter().map(|(_, word)| word).collect();
    let mut wrong = Vec::new();
    for (file, word) in sources.words() {
        let family = |(row, _): (&&str, _)| row.strip_suffix('*').is_some_and(|start| word.starts_with(start));
        match fates.get(word.as_str()) {
            Some(fates) if fates.iter().all(|fate| matches!(fate, Fate::Unused | Fate::Later)) => {
                wrong.push(format!("{file}: {word:?} is in the code, and its rows say that it is not"));
            }
            Some(_) => {}
            None if tools.contains(word.as_str()) || other.contains(&word) || fates.iter().any(family) => {}
            None => wrong.push(format!("{file}: {word:?} has no row")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} words in the sources (what is no word of a protocol goes into tests/words/other.txt):\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_reason_in_the_sources_has_words() {
    let errors = &Mappings::builtin().errors;
    let missing: Vec<_> = Sources::read().reasons().into_iter().filter(|(_, reason)| !errors.names(reason)).collect();
    assert!(missing.is_empty(), "mappings/errors.toml has no row for {missing:?}");
}

#[test]
fn later_rows_are_counted() {
    let mut out = std::io::stdout().lock();
    for ledger in Ledger::builtin() {
        let count = |fate: Fate| ledger.rows().filter(|(_, row)| row.forward.fate == fate).count();
        let fates: Vec<_> = Fate::ALL.iter().map(|fate| format!("{} {}", count(*fate), fate.as_str())).collect();
        let works: Vec<_> = Work::ALL
            .iter()
            .map(|work| {
                let count = ledger.rows().filter(|(_, row)| row.forward.work == Some(*work)).count();
                format!("{count} {}", work.as_str())
            })
            .collect();
        let total: usize = Fate::ALL.iter().map(|fate| count(*fate)).sum();
        writeln!(out, "{}: {total} words: {}; later: {}", ledger.protocol, fates.join(", "), works.join(", "))
            .expect("standard output");
        assert_eq!(total, ledger.rows().count(), "a fate is missing in Fate::ALL");
        let later: usize =
            Work::ALL.iter().map(|work| ledger.rows().filter(|(_, row)| row.forward.work == Some(*work)).count()).sum();
        assert_eq!(later, count(Fate::Later), "a work is missing in Work::ALL");
    }
}
