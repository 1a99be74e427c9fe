//! The ledgers: every word of a protocol, and what becomes of it in either direction.
//!
//! Owns `mappings/acp.toml` and `mappings/stream_json.toml`. A row is a promise about the code, held against word lists, golden
//! files and the sources by `tests/ledger.rs`; at run time only `diglot mappings` reads it. Keeps: every word has a row for
//! each direction; rows keep the file's order.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};

use super::{MappingError, Source};

/// What becomes of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Said in the other protocol, or said because of it.
    Translated,
    /// Answered by diglot itself; the other side hears nothing.
    Answered,
    /// Carried in `_meta`, because the other protocol has no word for it.
    Meta,
    /// Read, because it decides something; nothing of it is shown.
    Used,
    /// Written by diglot of its own accord.
    Sent,
    /// Could be written by diglot, and never is.
    Unused,
    /// Arrives, and is let go.
    Dropped,
    /// Its work comes later.
    Later,
}

impl Fate {
    /// All fates, in the order they are counted.
    pub const ALL: [Self; 8] = [
        Self::Translated,
        Self::Answered,
        Self::Meta,
        Self::Used,
        Self::Sent,
        Self::Unused,
        Self::Dropped,
        Self::Later,
    ];

    /// The word in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Translated => "translated",
            Self::Answered => "answered",
            Self::Meta => "meta",
            Self::Used => "used",
            Self::Sent => "sent",
            Self::Unused => "unused",
            Self::Dropped => "dropped",
            Self::Later => "later",
        }
    }

    /// Whether the row must give a reason (`why`) rather than a way (`how`).
    #[must_use]
    pub fn needs_reason(self) -> bool {
        matches!(self, Self::Unused | Self::Dropped)
    }
}

/// Which later work a row waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Load, list, resume, fork, close, delete, titles.
    Sessions,
    /// Models, effort and other options; system prompts.
    Options,
    /// Forms, and the agent's questions to the user.
    Elicitation,
    /// The output of a command while it runs.
    LiveOutput,
    /// Subagents as sessions of their own.
    Subagents,
    /// Retries, limits, compaction, and what else deserves a notice.
    Notices,
    /// Signing in and out.
    Login,
    /// Speaking into a running turn.
    Steering,
    /// Files and terminals of an ACP client.
    Files,
}

impl Work {
    /// All kinds of later work.
    pub const ALL: [Self; 9] = [
        Self::Sessions,
        Self::Options,
        Self::Elicitation,
        Self::LiveOutput,
        Self::Subagents,
        Self::Notices,
        Self::Login,
        Self::Steering,
        Self::Files,
    ];

    /// The word in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Options => "options",
            Self::Elicitation => "elicitation",
            Self::LiveOutput => "live_output",
            Self::Subagents => "subagents",
            Self::Notices => "notices",
            Self::Login => "login",
            Self::Steering => "steering",
            Self::Files => "files",
        }
    }
}

/// Who says the words of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The editor, in ACP.
    Client,
    /// The host, in stream-json.
    Host,
    /// The agent.
    Agent,
    /// Either.
    Both,
}

impl Side {
    /// The word in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Host => "host",
            Self::Agent => "agent",
            Self::Both => "both",
        }
    }
}

/// Which side is which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// An editor over Claude: `diglot acp`.
    Forward,
    /// A host over an ACP agent: `diglot claude`.
    Reverse,
}

impl Way {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Forward, Self::Reverse];

    /// The word in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
        }
    }
}

/// What becomes of a word in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Direction {
    /// The fate.
    pub fate: Fate,
    /// How, why, or what later work will do: one sentence.
    pub note: String,
    /// The later work, exactly when the fate is [`Fate::Later`].
    pub work: Option<Work>,
    /// What stands for the word in the sources, where it is not the word itself.
    pub code: Option<String>,
    /// Golden files that show it, where the test cannot find them by the word.
    pub golden: Vec<String>,
}

/// One word of a protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The word as it stands on the wire.
    pub word: String,
    /// What becomes of it in `diglot acp`.
    pub forward: Direction,
    /// What becomes of it in `diglot claude`.
    pub reverse: Direction,
}

impl Row {
    /// What becomes of it that way.
    #[must_use]
    pub fn direction(&self, way: Way) -> &Direction {
        match way {
            Way::Forward => &self.forward,
            Way::Reverse => &self.reverse,
        }
    }
}

/// Words of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The section's key in the file.
    pub name: String,
    /// What the words are.
    pub title: String,
    /// Who says them.
    pub side: Side,
    /// The rows, in the file's order.
    pub rows: Vec<Row>,
}

/// The ledger of one protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// The protocol's name.
    pub protocol: String,
    /// The version whose words these are.
    pub version: String,
    /// The sections, in the file's order.
    pub sections: Vec<Section>,
}

impl Ledger {
    /// Reads a ledger; `file` is the name errors call it by.
    ///
    /// # Errors
    /// [`MappingError`] naming section, word and what is missing.
    pub fn read(file: &str, text: &str) -> Result<Self, MappingError> {
        let source = Source::toml(file, text);
        let raw: RawLedger = source.read()?;
        let sections = raw
            .section
            .0
            .into_iter()
            .map(|(name, section)| section.check(source, name))
            .collect::<Result<_, MappingError>>()?;
        Ok(Self { protocol: raw.protocol, version: raw.version, sections })
    }

    /// The ledgers compiled into the program: ACP, then stream-json.
    ///
    /// # Panics
    /// Never in a program that passed its tests: one of them reads these ledgers.
    #[must_use]
    pub fn builtin() -> &'static [Self] {
        static BUILTIN: OnceLock<Vec<Ledger>> = OnceLock::new();
        BUILTIN.get_or_init(|| {
            [
                ("acp.toml", include_str!("../../mappings/acp.toml")),
                ("stream_json.toml", include_str!("../../mappings/stream_json.toml")),
            ]
            .into_iter()
            .map(|(file, text)| match Self::read(file, text) {
                Ok(ledger) => ledger,
                Err(error) => unreachable!("the built-in ledgers are read by a test: {error}"),
            })
            .collect()
        })
    }

    /// All rows with their sections.
    pub fn rows(&self) -> impl Iterator<Item = (&Section, &Row)> {
        self.sections.iter().flat_map(|section| section.rows.iter().map(move |row| (section, row)))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLedger {
    protocol: String,
    version: String,
    section: Ordered<RawSection>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSection {
    title: String,
    side: Side,
    words: Ordered<RawForward>,
    reverse: BTreeMap<String, RawReverse>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawForward {
    forward: Fate,
    how: Option<String>,
    why: Option<String>,
    work: Option<Work>,
    code: Option<String>,
    #[serde(default)]
    golden: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReverse {
    reverse: Fate,
    how: Option<String>,
    why: Option<String>,
    work: Option<Work>,
    code: Option<String>,
    #[serde(default)]
    golden: Vec<String>,
}

impl RawSection {
    fn check(self, source: Source<'_>, name: String) -> Result<Section, MappingError> {
        let Self { title, side, words, mut reverse } = self;
        let mut rows = Vec::with_capacity(words.0.len());
        for (word, row) in words.0 {
            let key = format!("section.{name}.reverse.{word}");
            let back = reverse.remove(&word).ok_or_else(|| source.wrong(&key, "no row", "what becomes of it there"))?;
            let back = back.check(source, &key)?;
            let forward = row.check(source, &format!("section.{name}.words.{word}"))?;
            rows.push(Row { word, forward, reverse: back });
        }
        if let Some(word) = reverse.keys().next() {
            let key = format!("section.{name}.reverse.{word}");
            return Err(source.wrong(&key, "a word of this table only", "a row in `words` too"));
        }
        Ok(Section { name, title, side, rows })
    }
}

impl RawForward {
    fn check(self, source: Source<'_>, key: &str) -> Result<Direction, MappingError> {
        let Self { forward: fate, how, why, work, code, golden } = self;
        let note = note(source, key, fate, how, why, work)?;
        Ok(Direction { fate, note, work, code, golden })
    }
}

impl RawReverse {
    fn check(self, source: Source<'_>, key: &str) -> Result<Direction, MappingError> {
        let Self { reverse: fate, how, why, work, code, golden } = self;
        let note = note(source, key, fate, how, why, work)?;
        Ok(Direction { fate, note, work, code, golden })
    }
}

/// The row's sentence, if it is of the kind that its fate needs.
fn note(
    source: Source<'_>,
    key: &str,
    fate: Fate,
    how: Option<String>,
    why: Option<String>,
    work: Option<Work>,
) -> Result<String, MappingError> {
    if (fate == Fate::Later) != work.is_some() {
        return Err(source.wrong(key, fate.as_str(), "`work` exactly on rows whose fate is `later`"));
    }
    let note = match (how, why) {
        (None, Some(why)) if fate.needs_reason() => why,
        (Some(how), None) if !fate.needs_reason() => how,
        _ => {
            let expected = "`why` for unused and dropped, `how` for every other fate, and not both";
            return Err(source.wrong(key, fate.as_str(), expected));
        }
    };
    if note.trim().is_empty() {
        return Err(source.wrong(key, "", "one sentence"));
    }
    Ok(note)
}

/// A table in the file's order.
#[derive(Debug)]
struct Ordered<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Ordered<T>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a table")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered<T>, A::Error> {
                // The reader hands tables out sorted by key; where each key stands in the file brings the order back.
                let mut entries: Vec<(toml::Spanned<String>, T)> = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                entries.sort_by_key(|(word, _)| word.span().start);
                Ok(Ordered(entries.into_iter().map(|(word, value)| (word.into_inner(), value)).collect()))
            }
        }
        deserializer.deserialize_map(Entries(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ledger of these rows, forward; each word of them has a plain row for the other direction.
    fn read(words: &str) -> Result<Ledger, MappingError> {
        let word = |line: &str| {
            line.split(" = ").next().map(|word| format!("{word} = {{ reverse = \"used\", how = \"h\" }}\n"))
        };
        both(words, &words.lines().filter_map(word).collect::<String>())
    }

    fn both(words: &str, reverse: &str) -> Result<Ledger, MappingError> {
        let text = format!(
            "protocol = \"p\"\nversion = \"1\"\n[section.zeta]\ntitle = \"Z\"\nside = \"agent\"\n[section.zeta.words]\n{words}\n\
             [section.zeta.reverse]\n{reverse}\n\
             [section.alpha]\ntitle = \"A\"\nside = \"both\"\n[section.alpha.words]\n[section.alpha.reverse]\n"
        );
        Ledger::read("p.toml", &text)
    }

    #[test]
    fn the_builtin_ledgers_are_readable() {
        for (file, text) in [
            ("acp.toml", include_str!("../../mappings/acp.toml")),
            ("stream_json.toml", include_str!("../../mappings/stream_json.toml")),
        ] {
            Ledger::read(file, text).expect("a built-in ledger");
        }
        assert_eq!(Ledger::builtin().len(), 2);
    }

    #[test]
    fn sections_and_rows_keep_the_order_of_the_file() {
        let ledger = read(
            "\"b/x\" = { forward = \"used\", how = \"h\" }\n-32000 = { forward = \"sent\", how = \"h\" }\n\
             a = { forward = \"used\", how = \"h\" }",
        )
        .expect("a valid ledger");
        let names: Vec<_> = ledger.sections.iter().map(|section| section.name.as_str()).collect();
        assert_eq!(names, ["zeta", "alpha"]);
        let words: Vec<_> = ledger.rows().map(|(_, row)| row.word.as_str()).collect();
        assert_eq!(words, ["b/x", "-32000", "a"]);
    }

    #[test]
    fn a_row_gives_a_reason_or_a_way_as_its_fate_needs() {
        for row in [
            "a = { forward = \"dropped\", how = \"h\" }",
            "a = { forward = \"translated\", why = \"w\" }",
            "a = { forward = \"used\" }",
            "a = { forward = \"used\", how = \" \" }",
            "a = { forward = \"used\", how = \"h\", why = \"w\" }",
            "a = { forward = \"later\", how = \"h\" }",
            "a = { forward = \"used\", how = \"h\", work = \"login\" }",
        ] {
            let error = read(row).expect_err("refused").to_string();
            assert!(error.contains("section.zeta.words.a"), "{row}: {error}");
        }
        let error = read("a = { forward = \"lost\", how = \"h\" }").expect_err("refused").to_string();
        assert!(error.contains("translated") && error.contains("line 7"), "{error}");
    }

    #[test]
    fn a_row_of_the_other_direction_has_a_note_of_its_own() {
        let forward = "a = { forward = \"used\", how = \"h\" }";
        let ledger = both(
            forward,
            "a = { reverse = \"later\", work = \"sessions\", how = \"r\", code = \"c\", golden = [\"g\"] }",
        );
        let row = ledger.expect("a valid ledger").sections[0].rows[0].clone();
        let expected = Direction {
            fate: Fate::Later,
            note: "r".into(),
            work: Some(Work::Sessions),
            code: Some("c".into()),
            golden: vec!["g".into()],
        };
        assert_eq!(row.direction(Way::Reverse), &expected);
        assert_eq!(row.direction(Way::Forward).fate, Fate::Used);
        let error = both(forward, "a = { reverse = \"dropped\", how = \"h\" }").expect_err("refused").to_string();
        assert!(error.contains("section.zeta.reverse.a"), "{error}");
    }

    #[test]
    fn every_word_has_a_row_for_each_direction() {
        let row = |way: &str, word: &str| format!("{word} = {{ {way} = \"used\", how = \"h\" }}\n");
        for (forward, reverse) in [("a", "b"), ("ab", "a"), ("a", "ab")] {
            let rows =
                |way: &str, words: &str| words.chars().map(|word| row(way, &word.to_string())).collect::<String>();
            let error = both(&rows("forward", forward), &rows("reverse", reverse)).expect_err("refused").to_string();
            assert!(error.contains("section.zeta.reverse."), "{error}");
        }
    }
}
