//! Holds the ledgers against the word lists, the golden files and the sources, both ways.
//!
//! | promise | test |
//! |---|---|
//! | every word has a row, every row is a word (and a row of each direction: the loader sees to that) | `words_and_rows_are_the_same` |
//! | the word lists miss no method of the schema | `every_method_of_the_schema_is_a_word` |
//! | a `translated` row is shown by a golden file of its direction | `every_translated_word_is_shown_by_a_golden_file` |
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
use diglot::mappings::ledger::{Fate, Ledger, Row, Section, Way, Work};

use evidence::Shown;
use sources::Sources;

/// How many `translated` rows of a direction may lack a golden file. 0 is the rule; a number is work that is not done, and
/// may only become smaller.
fn may_lack_golden(way: Way) -> usize {
    match way {
        Way::Forward => 0,
        Way::Reverse => UNSHOWN_REVERSE,
    }
}

const UNSHOWN_REVERSE: usize = 0;

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
    for way in Way::ALL {
        let folder = format!("golden/{}", way.as_str());
        let golden = files(&folder, "ndjson");
        if golden.is_empty() {
            // A checkout without golden files (a published crate) has nothing to hold the rows against.
            continue;
        }
        let mut shown = Shown::new(way);
        for path in &golden {
            shown.file(&read(path));
        }
        let mut unshown = Vec::new();
        for (_, section, row) in rows() {
            let direction = row.direction(way);
            for file in &direction.golden {
                assert!(
                    root("golden").join(file).is_file(),
                    "{} names golden/{file}, which is not there",
                    name(section, row)
                );
            }
            if direction.fate == Fate::Translated && direction.golden.is_empty() && !shown.has(&section.name, &row.word)
            {
                unshown.push(name(section, row));
            }
        }
        let list = unshown.join("\n");
        let most = may_lack_golden(way);
        assert!(
            unshown.len() <= most,
            "{} translated rows that no file of {folder} shows, {most} may be (record a conversation that does, or name its file \
             in the row):\n{list}",
            unshown.len(),
        );
        if !unshown.is_empty() {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{folder}: {} translated rows are not shown yet (at most {most}):\n{list}", unshown.len())
                .expect("standard output");
        }
    }
}

#[test]
fn every_handled_word_is_in_the_sources() {
    let sources = Sources::read();
    if sources.is_empty() {
        return;
    }
    let handled = [Fate::Translated, Fate::Answered, Fate::Meta, Fate::Used, Fate::Sent];
    let mut missing = Vec::new();
    for way in Way::ALL {
        for (_, section, row) in rows() {
            let direction = row.direction(way);
            // What is refused with the protocol's own error needs no code of its own: every unknown word is.
            let needs_code =
                handled.contains(&direction.fate) && (direction.fate != Fate::Answered || direction.code.is_some());
            if needs_code && !sources.mentions(way, direction.code.as_deref().unwrap_or(&row.word)) {
                missing.push(format!("{} {} ({})", way.as_str(), name(section, row), direction.fate.as_str()));
            }
        }
    }
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
    let mut known: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for (_, _, row) in rows() {
        let word = row.word.as_str();
        known.entry(word).or_default().push(row);
        // `fs.readTextFile`: the code sees the last part.
        if let Some((_, last)) = word.rsplit_once('.') {
            known.entry(last).or_default().push(row);
        }
    }
    let tools: BTreeSet<_> = Mappings::builtin().tools.names().into_iter().collect();
    let other: BTreeSet<String> = words("other").into_iter().map(|(_, word)| word).collect();
    let mut wrong = Vec::new();
    for (file, word) in sources.words() {
        let ways = sources::ways(&file);
        // The table of flags has those without effect too: how many words each takes must be known.
        let flags = file == "src/cli/claude/args/flags.rs";
        let absent = |fate: Fate| fate == Fate::Unused || fate == Fate::Later && !flags;
        let family = |(row, _): (&&str, _)| row.strip_suffix('*').is_some_and(|start| word.starts_with(start));
        match known.get(word.as_str()) {
            Some(rows)
                if !ways.is_empty()
                    && rows.iter().all(|row| ways.iter().all(|way| absent(row.direction(*way).fate))) =>
            {
                wrong.push(format!("{file}: {word:?} is in the code, and its rows say that it is not"));
            }
            Some(_) => {}
            None if tools.contains(word.as_str()) || other.contains(&word) || known.iter().any(family) => {}
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
fn rows_are_counted() {
    let mut out = std::io::stdout().lock();
    for (ledger, way) in Ledger::builtin().iter().flat_map(|ledger| Way::ALL.map(|way| (ledger, way))) {
        let count = |fate: Fate| ledger.rows().filter(|(_, row)| row.direction(way).fate == fate).count();
        let waiting = |work: Work| ledger.rows().filter(|(_, row)| row.direction(way).work == Some(work)).count();
        let fates: Vec<_> = Fate::ALL.iter().map(|fate| format!("{} {}", count(*fate), fate.as_str())).collect();
        let works: Vec<_> = Work::ALL.iter().map(|work| format!("{} {}", waiting(*work), work.as_str())).collect();
        let total: usize = Fate::ALL.iter().map(|fate| count(*fate)).sum();
        let (protocol, way) = (&ledger.protocol, way.as_str());
        writeln!(out, "{protocol} {way}: {total} words: {}; later: {}", fates.join(", "), works.join(", "))
            .expect("standard output");
        assert_eq!(total, ledger.rows().count(), "a fate is missing in Fate::ALL");
        let later: usize = Work::ALL.iter().map(|work| waiting(*work)).sum();
        assert_eq!(later, count(Fate::Later), "a work is missing in Work::ALL");
    }
}
