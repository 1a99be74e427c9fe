//! `diglot mappings`: what becomes of each word of the protocols.
//!
//! Owns the three forms in which the ledgers are printed. Keeps: all of them say the same, end with the counts, and show
//! every row that the filter lets through, in the directions that were asked for.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::mappings::ledger::{Direction, Fate, Ledger, Row, Section, Way, Work};

/// Arguments of `diglot mappings`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct MappingsArgs {
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print Markdown
    #[arg(long)]
    pub markdown: bool,
    /// Only what `diglot acp` (forward) or `diglot claude` (reverse) does with each word; both if not given
    #[arg(long, value_name = "DIRECTION")]
    pub direction: Option<Asked>,
    /// Show the ways of their own that ACP agents have, and what becomes of them
    #[arg(long, conflicts_with = "direction")]
    pub quirks: bool,
    /// Only words, sections and protocols that contain this, or rows with this fate or later work
    pub filter: Option<String>,
    /// Whether the table is coloured; the caller knows whether anybody looks.
    #[arg(skip)]
    pub colour: bool,
}

/// A direction as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Asked {
    /// An editor over Claude
    Forward,
    /// A host of Claude over an ACP agent
    Reverse,
}

/// Why nothing could be printed.
#[derive(Debug, thiserror::Error)]
pub enum MappingsError {
    /// The filter lets nothing through.
    #[error(
        "nothing matches `{0}`; give a part of a word, section or protocol, a fate ({fates}) or a later work ({works}), \
         or nothing to see every row",
        fates = names(Fate::ALL.map(Fate::as_str)),
        works = names(Work::ALL.map(Work::as_str))
    )]
    NoMatch(String),
    /// The output is gone.
    #[error("cannot write the ledger; is the output closed? {0}")]
    Write(#[from] io::Error),
}

fn names<const N: usize>(words: [&str; N]) -> String {
    words.join(", ")
}

/// A row and the directions of it that are printed; never none.
#[derive(Debug, Clone)]
struct Printed<'l> {
    row: &'l Row,
    ways: Vec<Way>,
}

/// The rows of a section that are printed.
type Rows<'l> = (&'l Section, Vec<Printed<'l>>);

/// Names with how many rows each has.
type Counts = Vec<(&'static str, usize)>;

/// The rows that are printed, with their section and ledger.
struct Selection<'l> {
    /// The directions that were asked for.
    ways: Vec<Way>,
    ledgers: Vec<(&'l Ledger, Vec<Rows<'l>>)>,
}

/// Prints the ledgers.
///
/// # Errors
/// [`MappingsError::NoMatch`] if the filter lets nothing through, [`MappingsError::Write`] if `out` fails.
pub fn run(args: MappingsArgs, out: &mut dyn Write) -> Result<(), MappingsError> {
    if args.quirks {
        return super::quirks::run(&args, out);
    }
    let ways = match args.direction {
        Some(Asked::Forward) => vec![Way::Forward],
        Some(Asked::Reverse) => vec![Way::Reverse],
        None => Way::ALL.to_vec(),
    };
    let selection = Selection::new(Ledger::builtin(), ways, args.filter.as_deref());
    if let (true, Some(filter)) = (selection.rows().next().is_none(), args.filter) {
        return Err(MappingsError::NoMatch(filter));
    }
    if args.json {
        selection.json(out)?;
    } else if args.markdown {
        selection.markdown(out)?;
    } else {
        selection.table(out, args.colour)?;
    }
    out.flush()?;
    Ok(())
}

impl<'l> Selection<'l> {
    fn new(ledgers: &'l [Ledger], ways: Vec<Way>, filter: Option<&str>) -> Self {
        let filter = filter.map(str::to_lowercase);
        // A filter that names a word shows all that becomes of it; one that names a fate, the directions that have it.
        let passes = |ledger: &Ledger, section: &Section, row: &Row, way: Way| {
            let Some(filter) = &filter else { return true };
            let contains = |text: &str| text.to_lowercase().contains(filter);
            let direction = row.direction(way);
            contains(&ledger.protocol)
                || contains(&section.name)
                || contains(&row.word)
                || direction.fate.as_str() == filter
                || direction.work.is_some_and(|work| work.as_str() == filter)
        };
        let ledgers = ledgers
            .iter()
            .map(|ledger| {
                let sections = ledger.sections.iter().map(|section| {
                    let rows = section.rows.iter().map(|row| {
                        let ways = ways.iter().copied().filter(|way| passes(ledger, section, row, *way)).collect();
                        Printed { row, ways }
                    });
                    (section, rows.filter(|printed| !printed.ways.is_empty()).collect())
                });
                (ledger, sections.filter(|(_, rows): &(_, Vec<_>)| !rows.is_empty()).collect())
            })
            .filter(|(_, sections): &(_, Vec<_>)| !sections.is_empty())
            .collect();
        Self { ways, ledgers }
    }

    fn rows(&self) -> impl Iterator<Item = &Printed<'l>> {
        self.ledgers.iter().flat_map(|(_, sections)| sections.iter().flat_map(|(_, rows)| rows))
    }

    /// What is printed of one direction.
    fn directions(&self, way: Way) -> impl Iterator<Item = &'l Direction> {
        self.rows().filter(move |printed| printed.ways.contains(&way)).map(move |printed| printed.row.direction(way))
    }

    /// How many rows have each fate, and how many wait for each later work; those with none left out.
    fn counts(&self, way: Way) -> (Counts, Counts) {
        let count = |of: &dyn Fn(&Direction) -> bool| self.directions(way).filter(|direction| of(direction)).count();
        let fates = Fate::ALL.iter().map(|fate| (fate.as_str(), count(&|direction| direction.fate == *fate)));
        let works = Work::ALL.iter().map(|work| (work.as_str(), count(&|direction| direction.work == Some(*work))));
        let some = |counts: &mut dyn Iterator<Item = (&'static str, usize)>| counts.filter(|(_, n)| *n > 0).collect();
        (some(&mut fates.into_iter()), some(&mut works.into_iter()))
    }

    /// One line for each direction.
    fn summary(&self) -> Vec<String> {
        let list = |counts: &[(&str, usize)]| {
            counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
        };
        let line = |way: &Way| {
            let (fates, works) = self.counts(*way);
            let mut line = format!("{}: {} words: {}", way.as_str(), self.directions(*way).count(), list(&fates));
            if !works.is_empty() {
                line.push_str(&format!("; later: {}", list(&works)));
            }
            line
        };
        self.ways.iter().map(line).collect()
    }

    fn table(&self, out: &mut dyn Write, colour: bool) -> io::Result<()> {
        let paint = |code: &str, text: &str| match colour {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        };
        let all = self.rows().flat_map(|printed| printed.ways.iter().map(|way| printed.row.direction(*way)));
        let fates = all.map(|direction| fate(direction).len()).max().unwrap_or(0);
        for (ledger, sections) in &self.ledgers {
            writeln!(out, "{}", paint("1", &format!("{} {}", ledger.protocol, ledger.version)))?;
            for (section, rows) in sections {
                writeln!(out, "\n  {} ({})", paint("1", &section.title), section.side.as_str())?;
                let words = rows.iter().map(|printed| printed.row.word.chars().count()).max().unwrap_or(0);
                for Printed { row, ways } in rows {
                    for (at, way) in ways.iter().enumerate() {
                        let word = if at == 0 { &*row.word } else { "" };
                        // With one direction nobody asks which.
                        let label = if self.ways.len() > 1 { format!("{}  ", way.as_str()) } else { String::new() };
                        let direction = row.direction(*way);
                        let fate = paint(shade(direction.fate), &format!("{:fates$}", fate(direction)));
                        writeln!(out, "  {word:words$}  {}{fate}  {}", paint("2", &label), direction.note)?;
                    }
                }
            }
            writeln!(out)?;
        }
        self.summary().iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    fn markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        let cell = |text: &str| text.replace('|', "\\|");
        for (ledger, sections) in &self.ledgers {
            writeln!(out, "## {} {}\n", ledger.protocol, ledger.version)?;
            for (section, rows) in sections {
                writeln!(out, "### {} ({})\n", section.title, section.side.as_str())?;
                let head: String = self.ways.iter().map(|way| format!(" {} | how or why |", way.as_str())).collect();
                writeln!(out, "| word |{head}\n|---|{}", "---|---|".repeat(self.ways.len()))?;
                for Printed { row, ways } in rows {
                    write!(out, "| `{}` |", cell(&row.word))?;
                    for way in &self.ways {
                        let direction = row.direction(*way);
                        match ways.contains(way) {
                            true => write!(out, " {} | {} |", fate(direction), cell(&direction.note))?,
                            false => write!(out, " | |")?,
                        }
                    }
                    writeln!(out)?;
                }
                writeln!(out)?;
            }
        }
        self.summary().iter().try_for_each(|line| writeln!(out, "{line}  "))
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let section = |(section, rows): &Rows<'l>| JsonSection {
            name: &section.name,
            title: &section.title,
            side: section.side.as_str(),
            rows: rows.iter().map(JsonRow::new).collect(),
        };
        let ledgers = self
            .ledgers
            .iter()
            .map(|(ledger, sections)| JsonLedger {
                protocol: &ledger.protocol,
                version: &ledger.version,
                sections: sections.iter().map(section).collect(),
            })
            .collect();
        let (mut counts, mut later) = (BTreeMap::new(), BTreeMap::new());
        for way in &self.ways {
            let (fates, works) = self.counts(*way);
            counts.insert(way.as_str(), fates.into_iter().collect());
            later.insert(way.as_str(), works.into_iter().collect());
        }
        serde_json::to_writer_pretty(&mut *out, &Json { ledgers, counts, later })?;
        writeln!(out)
    }
}

/// `later: sessions` for what waits, the fate alone for the rest.
fn fate(direction: &Direction) -> String {
    match direction.work {
        Some(work) => format!("{}: {}", direction.fate.as_str(), work.as_str()),
        None => direction.fate.as_str().to_owned(),
    }
}

fn shade(fate: Fate) -> &'static str {
    match fate {
        Fate::Translated => "32",
        Fate::Answered | Fate::Meta | Fate::Used | Fate::Sent => "36",
        Fate::Later => "33",
        Fate::Unused | Fate::Dropped => "2",
    }
}

#[derive(Serialize)]
struct Json<'l> {
    ledgers: Vec<JsonLedger<'l>>,
    /// By direction, then by fate.
    counts: BTreeMap<&'static str, BTreeMap<&'static str, usize>>,
    /// By direction, then by work.
    later: BTreeMap<&'static str, BTreeMap<&'static str, usize>>,
}

#[derive(Serialize)]
struct JsonLedger<'l> {
    protocol: &'l str,
    version: &'l str,
    sections: Vec<JsonSection<'l>>,
}

#[derive(Serialize)]
struct JsonSection<'l> {
    name: &'l str,
    title: &'l str,
    side: &'static str,
    rows: Vec<JsonRow<'l>>,
}

#[derive(Serialize)]
struct JsonRow<'l> {
    word: &'l str,
    #[serde(skip_serializing_if = "Option::is_none")]
    forward: Option<JsonDirection<'l>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reverse: Option<JsonDirection<'l>>,
}

impl<'l> JsonRow<'l> {
    fn new(printed: &Printed<'l>) -> Self {
        let direction = |way| printed.ways.contains(&way).then(|| JsonDirection::new(printed.row.direction(way)));
        Self { word: &printed.row.word, forward: direction(Way::Forward), reverse: direction(Way::Reverse) }
    }
}

#[derive(Serialize)]
struct JsonDirection<'l> {
    fate: &'static str,
    note: &'l str,
    #[serde(skip_serializing_if = "Option::is_none")]
    work: Option<&'static str>,
}

impl<'l> JsonDirection<'l> {
    fn new(direction: &'l Direction) -> Self {
        Self { fate: direction.fate.as_str(), note: &direction.note, work: direction.work.map(Work::as_str) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(args: MappingsArgs) -> String {
        let mut out = Vec::new();
        run(args, &mut out).expect("something matches");
        String::from_utf8(out).expect("text")
    }

    fn filtered(filter: &str) -> MappingsArgs {
        MappingsArgs { filter: Some(filter.to_owned()), ..MappingsArgs::default() }
    }

    #[test]
    fn the_table_has_every_row_and_ends_with_the_counts() {
        let table = print(MappingsArgs::default());
        let rows: usize = Ledger::builtin().iter().map(|ledger| ledger.rows().count()).sum();
        for (_, row) in Ledger::builtin().iter().flat_map(Ledger::rows) {
            let line = table.lines().find(|line| line.starts_with(&format!("  {} ", row.word)));
            assert!(line.is_some(), "{}", row.word);
        }
        let counts: Vec<_> = table.lines().rev().take(2).collect();
        for (line, way) in counts.iter().zip(["reverse", "forward"]) {
            let begins = line.starts_with(&format!("{way}: {rows} words: "));
            assert!(begins && line.contains(" translated") && line.contains("; later: "), "{line}");
        }
        assert!(!table.contains('\u{1b}'));
    }

    #[test]
    fn notes_stand_in_one_column() {
        let table = print(filtered("permission_kind"));
        let column = |word: &str, note: &str| {
            let line = table.lines().find(|line| line.trim_start().starts_with(word)).unwrap_or_default();
            line.find(note).unwrap_or_else(|| panic!("{note} in {line:?}"))
        };
        assert_eq!(column("allow_once", "allow with the input"), column("allow_always", "allow with the updates"));
        assert_eq!(column("allow_once", "allow with the input"), column("reject_always", "claude suggests"));
    }

    #[test]
    fn each_direction_can_be_printed_alone() {
        let one = |direction| print(MappingsArgs { direction: Some(direction), ..filtered("session/load") });
        let (forward, reverse) = (one(Asked::Forward), one(Asked::Reverse));
        assert!(forward.contains("replays from claude's own files") && !forward.contains("--resume"), "{forward}");
        assert!(reverse.contains("--resume") && !reverse.contains("replays from claude's own files"), "{reverse}");
        assert_eq!(reverse.lines().filter(|line| line.starts_with("reverse: 1 words: ")).count(), 1, "{reverse}");
        assert!(!reverse.contains("forward"), "{reverse}");
        let both = print(filtered("session/load"));
        for part in ["replays from claude's own files", "--resume", "forward", "reverse"] {
            assert!(both.contains(part), "{both}");
        }
    }

    #[test]
    fn a_fate_shows_only_the_directions_that_have_it() {
        let table = print(filtered("login"));
        let rows: Vec<_> = table.lines().filter(|line| line.trim_start().starts_with("logout")).collect();
        assert!(rows.len() == 1 && rows[0].contains("forward  later: login"), "{table}");
    }

    #[test]
    fn colours_come_only_when_asked_for() {
        let table = print(MappingsArgs { colour: true, ..filtered("later") });
        assert!(table.contains("\u{1b}[33mlater: "), "{table}");
    }

    #[test]
    fn a_filter_matches_parts_of_words_and_whole_fates() {
        let table = print(filtered("Session/Load"));
        assert!(table.contains("session/load") && !table.contains("session/prompt"), "{table}");
        let meta = print(filtered("meta"));
        assert!(meta.contains("claudeCode.toolName"), "{meta}");
        let login = print(filtered("login"));
        assert!(
            login.contains("logout")
                && login.lines().any(|line| line.starts_with("forward: ") && line.contains("later: ")),
            "{login}"
        );
    }

    #[test]
    fn a_filter_that_matches_nothing_says_what_can_be_given() {
        let error = run(filtered("no such word"), &mut Vec::new()).expect_err("nothing matches").to_string();
        for part in ["`no such word`", "translated", "live_output"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn json_has_the_same_rows_and_counts() {
        let value: serde_json::Value =
            serde_json::from_str(&print(MappingsArgs { json: true, ..MappingsArgs::default() })).expect("JSON");
        let rows: usize = Ledger::builtin().iter().map(|ledger| ledger.rows().count()).sum();
        for way in Way::ALL.map(Way::as_str) {
            let counts = value["counts"][way].as_object().expect("counts");
            let counted: u64 = counts.values().filter_map(|count| count.as_u64()).sum();
            assert_eq!(usize::try_from(counted), Ok(rows));
        }
        assert_eq!(value["ledgers"][0]["sections"][0]["rows"][0]["word"], "initialize");
        assert_eq!(value["ledgers"][0]["sections"][0]["rows"][0]["reverse"]["fate"], "sent");
        assert_eq!(value["ledgers"][0]["sections"][0]["rows"][1]["forward"]["work"], "login");
    }

    #[test]
    fn markdown_has_one_table_a_section() {
        let markdown = print(MappingsArgs { markdown: true, ..filtered("stop_reason") });
        assert!(markdown.starts_with("## ACP "), "{markdown}");
        assert!(
            markdown.contains("| `end_turn` | translated | mappings/stop_reasons.toml | translated | "),
            "{markdown}"
        );
        let one = print(MappingsArgs { direction: Some(Asked::Reverse), markdown: true, ..filtered("stop_reason") });
        assert!(one.contains("| word | reverse | how or why |\n|---|---|---|\n"), "{one}");
    }
}
