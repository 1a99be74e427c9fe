//! Golden files: every conversation in `golden/` goes through the translators, and what comes out is compared with what
//! the file expects. `UPDATE_GOLDEN=1` writes what comes out into the files.

mod support;

use std::collections::BTreeSet;

use support::{convert, files, golden};

#[test]
fn every_conversation_is_translated_as_expected() {
    files::compare("forward", golden::run);
}

#[test]
fn every_file_says_what_it_shows_and_where_it_comes_from() {
    let mut about = BTreeSet::new();
    for path in files::all("forward") {
        let name = files::name(&path);
        let text = files::read(&path);
        let header =
            golden::Header::read(text.lines().next().unwrap_or_default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let source = &header.source;
        let known = source == "written" || source.starts_with("report ") || source.starts_with("claude 2.");
        assert!(known, "{name}: the source is {source:?}");
        assert!(about.insert(header.about.clone()), "{name}: {:?} is what another file shows", header.about);
    }
}

/// `GOLDEN_FROM=trace.ndjson GOLDEN_TO=golden/forward/x.ndjson GOLDEN_ABOUT=… GOLDEN_SOURCE=… cargo test --test golden --
/// --ignored`: makes a golden file of a trace of diglot, or of a recording of claude with another host.
#[test]
#[ignore = "makes a file; see golden/README.md"]
fn make_a_file_of_a_trace() {
    let var = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("set {name}"));
    let (from, to) = (var("GOLDEN_FROM"), var("GOLDEN_TO"));
    let file = std::fs::read_to_string(&from).unwrap_or_else(|e| panic!("{from}: {e}"));
    let is_trace = file.lines().any(|l| l.contains("\"wire\":"));
    let make = if is_trace { convert::trace } else { convert::recording };
    let steps = make(&file, &var("GOLDEN_ABOUT"), &var("GOLDEN_SOURCE"));
    let run = golden::run(&steps).unwrap_or_else(|e| panic!("{from}: {e}"));
    std::fs::write(&to, run.text).unwrap_or_else(|e| panic!("{to}: {e}"));
    assert!(run.problems.is_empty(), "{to}:\n  {}", run.problems.join("\n  "));
}
