//! `diglot mappings --quirks`: what agents that speak ACP do in ways of their own, and what becomes of it.
//!
//! Owns the three forms in which the quirks are printed. Keeps: all of them say the same and end with the counts.

use std::io::{self, Write};

use serde::Serialize;

use super::mappings::{MappingsArgs, MappingsError};
use crate::mappings::quirks::{self, Quirk, State};

/// Prints the quirks.
///
/// # Errors
/// [`MappingsError::NoMatch`] if the filter lets nothing through, [`MappingsError::Write`] if `out` fails.
pub(super) fn run(args: &MappingsArgs, out: &mut dyn Write) -> Result<(), MappingsError> {
    let filter = args.filter.as_deref().unwrap_or_default().to_lowercase();
    let list: Vec<&Quirk> = quirks::builtin().iter().filter(|quirk| passes(quirk, &filter)).collect();
    if list.is_empty() {
        return Err(MappingsError::NoMatch(filter));
    }
    if args.json {
        json(&list, out)?;
    } else if args.markdown {
        markdown(&list, out)?;
    } else {
        table(&list, args.colour, out)?;
    }
    out.flush()?;
    Ok(())
}

/// By number, state, or a part of the name or an agent.
fn passes(quirk: &Quirk, filter: &str) -> bool {
    filter.is_empty()
        || quirk.number.to_string() == filter
        || quirk.state.as_str() == filter
        || quirk.name.to_lowercase().contains(filter)
        || quirk.agents.iter().any(|agent| agent.to_lowercase().contains(filter))
}

fn summary(list: &[&Quirk]) -> String {
    let count = |state: State| list.iter().filter(|quirk| quirk.state == state).count();
    let counts = State::ALL.map(|state| format!("{} {}", count(state), state.as_str()));
    format!("{} quirks: {}", list.len(), counts.join(", "))
}

/// The files that hold it, once each.
fn places(quirk: &Quirk) -> String {
    quirk.editor.iter().chain(&quirk.host).map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn table(list: &[&Quirk], colour: bool, out: &mut dyn Write) -> io::Result<()> {
    let paint = |code: &str, text: &str| match colour {
        true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        false => text.to_owned(),
    };
    for quirk in list {
        let shade = match quirk.state {
            State::Repaired => "32",
            State::Rule => "36",
            State::Known => "33",
        };
        let state = paint(shade, &format!("{:8}", quirk.state.as_str()));
        writeln!(out, "{:>3}  {state}  {}", quirk.number, quirk.name)?;
        writeln!(out, "               {}", paint("2", &quirk.agents.join(", ")))?;
        if !quirk.why.is_empty() {
            writeln!(out, "               {}", quirk.why)?;
        }
        let places = places(quirk);
        if !places.is_empty() {
            writeln!(out, "               {}", paint("2", &places))?;
        }
    }
    writeln!(out, "\n{}", summary(list))
}

fn markdown(list: &[&Quirk], out: &mut dyn Write) -> io::Result<()> {
    let cell = |text: &str| text.replace('|', "\\|");
    writeln!(out, "| # | quirk | agents | state | where | why |\n|---|---|---|---|---|---|")?;
    for quirk in list {
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            quirk.number,
            cell(&quirk.name),
            cell(&quirk.agents.join(", ")),
            quirk.state.as_str(),
            cell(&places(quirk)),
            cell(&quirk.why)
        )?;
    }
    writeln!(out, "\n{}", summary(list))
}

#[derive(Serialize)]
struct Json<'q> {
    quirks: &'q [&'q Quirk],
}

fn json(list: &[&Quirk], out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Json { quirks: list })?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(args: &MappingsArgs) -> String {
        let mut out = Vec::new();
        run(args, &mut out).expect("something matches");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn every_form_has_every_quirk() {
        let table = print(&MappingsArgs::default());
        assert!(table.contains("70 quirks:"), "{table}");
        let markdown = print(&MappingsArgs { markdown: true, ..MappingsArgs::default() });
        assert_eq!(markdown.lines().filter(|line| line.starts_with("| ")).count(), 71);
        let json = print(&MappingsArgs { json: true, ..MappingsArgs::default() });
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["quirks"].as_array().map(Vec::len), Some(70));
    }

    #[test]
    fn a_filter_takes_an_agent_a_state_or_a_number() {
        let with = |filter: &str| MappingsArgs { filter: Some(filter.into()), ..MappingsArgs::default() };
        assert!(print(&with("kimi-cli")).contains("1 quirks:"));
        assert!(print(&with("44")).contains("a prompt during a prompt"));
        assert!(!print(&with("known")).contains("repaired  "));
        assert!(run(&with("no such thing"), &mut Vec::new()).is_err());
    }
}
