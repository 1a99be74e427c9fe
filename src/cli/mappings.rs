//! `diglot mappings`: what becomes of each word of the protocols.
//!
//! Owns the three forms in which the ledgers are printed. Keeps: all of them say the same, end with the counts, and show
//! every row that the filter lets through.

use std::io::{self, Write};

use serde::Serialize;

use crate::mappings::ledger::{Direction, Fate, Ledger, Row, Section, Work};

/// Arguments of `diglot mappings`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct MappingsArgs {
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print Markdown
    #[arg(long)]
    pub markdown: bool,
    /// Only words, sections and protocols that contain this, or rows with this fate or later work
    pub filter: Option<String>,
    /// Whether the table is coloured; the caller knows whether anybody looks.
    #[arg(skip)]
    pub colour: bool,
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

/// The rows of a section that are printed.
type Rows<'l> = (&'l Section, Vec<&'l Row>);

/// Names with how many rows each has.
type Counts = Vec<(&'static str, usize)>;

/// The rows that are printed, with their section and ledger.
struct Selection<'l> {
    ledgers: Vec<(&'l Ledger, Vec<Rows<'l>>)>,
}

/// Prints the ledgers.
///
/// # Errors
/// [`MappingsError::NoMatch`] if the filter lets nothing through, [`MappingsError::Write`] if `out` fails.
pub fn run(args: MappingsArgs, out: &mut dyn Write) -> Result<(), MappingsError> {
    let selection = Selection::new(Ledger::builtin(), args.filter.as_deref());
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
    fn new(ledgers: &'l [Ledger], filter: Option<&str>) -> Self {
        let filter = filter.map(str::to_lowercase);
        let passes = |ledger: &Ledger, section: &Section, row: &Row| {
            let Some(filter) = &filter else { return true };
            let contains = |text: &str| text.to_lowercase().contains(filter);
            let is = |direction: &Direction| {
                direction.fate.as_str() == filter || direction.work.is_some_and(|work| work.as_str() == filter)
            };
            contains(&ledger.protocol)
                || contains(&section.name)
                || contains(&row.word)
                || is(&row.forward)
                || row.reverse.as_ref().is_some_and(is)
        };
        let ledgers = ledgers
            .iter()
            .map(|ledger| {
                let sections = ledger.sections.iter().map(|section| {
                    let rows = section.rows.iter().filter(|row| passes(ledger, section, row)).collect();
                    (section, rows)
                });
                (ledger, sections.filter(|(_, rows): &(_, Vec<_>)| !rows.is_empty()).collect())
            })
            .filter(|(_, sections): &(_, Vec<_>)| !sections.is_empty())
            .collect();
        Self { ledgers }
    }

    fn rows(&self) -> impl Iterator<Item = &'l Row> {
        self.ledgers.iter().flat_map(|(_, sections)| sections.iter().flat_map(|(_, rows)| rows.iter().copied()))
    }

    /// How many rows have each fate, and how many wait for each later work; those with none left out.
    fn counts(&self) -> (Counts, Counts) {
        let fates = Fate::ALL.map(|fate| (fate.as_str(), self.rows().filter(|row| row.forward.fate == fate).count()));
        let works =
            Work::ALL.map(|work| (work.as_str(), self.rows().filter(|row| row.forward.work == Some(work)).count()));
        let some = |counts: [(&'static str, usize); 8]| counts.into_iter().filter(|(_, count)| *count > 0).collect();
        (some(fates), some(works))
    }

    fn summary(&self) -> String {
        let (fates, works) = self.counts();
        let list = |counts: &[(&str, usize)]| {
            counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
        };
        let mut summary = format!("{} words: {}", self.rows().count(), list(&fates));
        if !works.is_empty() {
            summary.push_str(&format!("; later: {}", list(&works)));
        }
        summary
    }

    fn table(&self, out: &mut dyn Write, colour: bool) -> io::Result<()> {
        let paint = |code: &str, text: &str| match colour {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        };
        let fates = self.rows().map(|row| fate(&row.forward).len()).max().unwrap_or(0);
        for (ledger, sections) in &self.ledgers {
            writeln!(out, "{}", paint("1", &format!("{} {}", ledger.protocol, ledger.version)))?;
            for (section, rows) in sections {
                writeln!(out, "\n  {} ({})", paint("1", &section.title), section.side.as_str())?;
                let words = rows.iter().map(|row| row.word.chars().count()).max().unwrap_or(0);
                for row in rows {
                    let fate = format!("{:fates$}", fate(&row.forward));
                    let fate = paint(shade(row.forward.fate), &fate);
                    writeln!(out, "  {:words$}  {fate}  {}", row.word, row.forward.note)?;
                    if let Some(reverse) = &row.reverse {
                        let fate = format!("{:fates$}", self::fate(reverse));
                        writeln!(
                            out,
                            "  {:>words$}  {}  {}",
                            "reverse",
                            paint(shade(reverse.fate), &fate),
                            reverse.note
                        )?;
                    }
                }
            }
            writeln!(out)?;
        }
        writeln!(out, "{}", self.summary())
    }

    fn markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        let cell = |text: &str| text.replace('|', "\\|");
        for (ledger, sections) in &self.ledgers {
            writeln!(out, "## {} {}\n", ledger.protocol, ledger.version)?;
            for (section, rows) in sections {
                writeln!(
                    out,
                    "### {} ({})\n\n| word | forward | how or why |\n|---|---|---|",
                    section.title,
                    section.side.as_str()
                )?;
                for row in rows {
                    let (word, note) = (cell(&row.word), cell(&row.forward.note));
                    writeln!(out, "| `{word}` | {} | {note} |", fate(&row.forward))?;
                    if let Some(reverse) = &row.reverse {
                        writeln!(out, "| | reverse: {} | {} |", fate(reverse), cell(&reverse.note))?;
                    }
                }
                writeln!(out)?;
            }
        }
        writeln!(out, "{}", self.summary())
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let (fates, works) = self.counts();
        let ledgers = self
            .ledgers
            .iter()
            .map(|(ledger, sections)| JsonLedger {
                protocol: &ledger.protocol,
                version: &ledger.version,
                sections: sections
                    .iter()
                    .map(|(section, rows)| JsonSection {
                        name: &section.name,
                        title: &section.title,
                        side: section.side.as_str(),
                        rows: rows
                            .iter()
                            .map(|row| JsonRow {
                                word: &row.word,
                                forward: JsonDirection::new(&row.forward),
                                reverse: row.reverse.as_ref().map(JsonDirection::new),
                            })
                            .collect(),
                    })
                    .collect(),
            })
            .collect();
        let counts = fates.into_iter().collect();
        let later = works.into_iter().collect();
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
    counts: std::collections::BTreeMap<&'static str, usize>,
    later: std::collections::BTreeMap<&'static str, usize>,
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
    forward: JsonDirection<'l>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reverse: Option<JsonDirection<'l>>,
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
        let last = table.lines().last().unwrap_or_default();
        assert!(
            last.starts_with(&format!("{rows} words: ")) && last.contains(" translated") && last.contains("; later: "),
            "{last}"
        );
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
            login.contains("logout") && login.lines().last().is_some_and(|line| line.contains("later: ")),
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
        let counted: u64 =
            value["counts"].as_object().expect("counts").values().filter_map(|count| count.as_u64()).sum();
        assert_eq!(usize::try_from(counted), Ok(rows));
        assert_eq!(value["ledgers"][0]["sections"][0]["rows"][0]["word"], "initialize");
        assert_eq!(value["ledgers"][0]["sections"][0]["rows"][1]["forward"]["work"], "login");
    }

    #[test]
    fn markdown_has_one_table_a_section() {
        let markdown = print(MappingsArgs { markdown: true, ..filtered("stop_reason") });
        assert!(markdown.starts_with("## ACP "), "{markdown}");
        assert!(markdown.contains("| `end_turn` | translated | mappings/stop_reasons.toml |"), "{markdown}");
    }
}
