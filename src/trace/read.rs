//! Reads the lines of a trace file.
//!
//! Owns the reading side of the format that the parent module writes. Invariant: an unknown member is
//! ignored and an unknown kind of line is [`Entry::Other`], so that an older diglot reads a newer trace.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Dir, Wire};

/// One line of a trace file.
#[derive(Debug)]
pub enum Entry<'a> {
    /// The first line of a run.
    Header {
        /// The version of the format; 1.
        trace: u32,
        /// The agent's name, when it was known.
        agent: Option<String>,
    },
    /// A line of a wire.
    Line {
        /// When, in milliseconds since the header.
        t_ms: f64,
        /// Which wire.
        wire: Wire,
        /// Which way.
        dir: Dir,
        /// The session it belongs to, where the recorder knew.
        session: Option<String>,
        /// The JSON text.
        line: &'a RawValue,
    },
    /// Bytes that were no line of the protocol.
    Noise {
        /// When, in milliseconds since the header.
        t_ms: f64,
        /// Which wire.
        wire: Wire,
        /// Which way.
        dir: Dir,
        /// The bytes, as text.
        text: String,
        /// Why they are noise.
        why: String,
    },
    /// Something that diglot skipped, dropped or decided.
    Note {
        /// When, in milliseconds since the header.
        t_ms: f64,
        /// The session it belongs to, if any.
        session: Option<String>,
        /// What happened.
        note: String,
    },
    /// An event of diglot's own life.
    Event {
        /// When, in milliseconds since the header.
        t_ms: f64,
        /// The event's name.
        name: String,
    },
    /// A line of a kind that this version does not know.
    Other,
}

#[derive(Deserialize)]
struct Fields<'a> {
    trace: Option<u32>,
    agent: Option<String>,
    #[serde(default)]
    t_ms: f64,
    wire: Option<String>,
    dir: Option<String>,
    session: Option<String>,
    #[serde(borrow)]
    line: Option<&'a RawValue>,
    noise: Option<String>,
    why: Option<String>,
    note: Option<String>,
    event: Option<String>,
}

/// Reads one line.
///
/// # Errors
/// When the line is no JSON object with members of the right types.
pub fn entry(line: &str) -> Result<Entry<'_>, serde_json::Error> {
    let fields: Fields<'_> = serde_json::from_str(line)?;
    if let Some(trace) = fields.trace {
        return Ok(Entry::Header { trace, agent: fields.agent });
    }
    let t_ms = fields.t_ms;
    let wire = match fields.wire.as_deref() {
        Some("near") => Some(Wire::Near),
        Some("far") => Some(Wire::Far),
        _ => None,
    };
    let dir = match fields.dir.as_deref() {
        Some("in") => Some(Dir::In),
        Some("out") => Some(Dir::Out),
        _ => None,
    };
    if let (Some(wire), Some(dir)) = (wire, dir) {
        if let Some(line) = fields.line {
            return Ok(Entry::Line { t_ms, wire, dir, session: fields.session, line });
        }
        if let Some(text) = fields.noise {
            return Ok(Entry::Noise { t_ms, wire, dir, text, why: fields.why.unwrap_or_default() });
        }
    }
    if let Some(note) = fields.note {
        return Ok(Entry::Note { t_ms, session: fields.session, note });
    }
    Ok(fields.event.map_or(Entry::Other, |name| Entry::Event { t_ms, name }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_its_json_text() {
        let read = entry(r#"{"t_ms":1.5,"wire":"far","dir":"out","session":"s","line":{"a": 1.0}}"#).unwrap();
        let Entry::Line { t_ms, wire, dir, session, line } = read else { panic!("{read:?}") };
        assert_eq!((t_ms, wire, dir, session.as_deref()), (1.5, Wire::Far, Dir::Out, Some("s")));
        assert_eq!(line.get(), r#"{"a": 1.0}"#);
    }

    #[test]
    fn what_is_unknown_is_no_error() {
        assert!(matches!(entry(r#"{"t_ms":1,"weather":"fine"}"#), Ok(Entry::Other)));
        assert!(matches!(entry(r#"{"t_ms":1,"wire":"sideways","dir":"in","line":1}"#), Ok(Entry::Other)));
        assert!(entry("[]").is_err());
    }
}
