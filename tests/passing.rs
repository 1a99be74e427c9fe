//! Golden files of agents that speak ACP themselves: every conversation in `golden/acp/` goes through the translator, and what
//! comes out is compared with what the file expects. `UPDATE_GOLDEN=1` writes what comes out into the files.

mod support;

use std::collections::BTreeSet;

use support::files;
use support::passing_golden::{self as golden, Header};

#[test]
fn every_conversation_is_passed_on_as_expected() {
    files::compare("acp", golden::run);
}

#[test]
fn every_file_says_what_it_shows_and_where_it_comes_from() {
    let mut about = BTreeSet::new();
    for path in files::all("acp") {
        let name = files::name(&path);
        let text = files::read(&path);
        let header = Header::read(text.lines().next().unwrap_or_default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let source = &header.source;
        assert!(source == "written" || source.contains(", recording "), "{name}: the source is {source:?}");
        assert!(about.insert(header.about.clone()), "{name}: {:?} is what another file shows", header.about);
    }
}
