//! What stdout gets: the messages of a conversation in the form that was asked for.
//!
//! Owns the step from stream-json lines to the output formats `text`, `json` and `stream-json`. Invariants: whatever the
//! format, control lines are seen by stream-json hosts only; no more than the last result is kept, because an array is
//! written while it grows; nothing is written that was not asked for.
//!
//! The forms are those of claude 2.1.332: text is the last result's text and a line feed; json is the last result on one
//! line, or with `--verbose` one array of all messages; stream-json is every line as it is.

use crate::wire::stream_json::Line;
use crate::wire::text;
use serde::Deserialize;

/// The form of what stdout gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text of the last result.
    Text,
    /// The last result.
    Json,
    /// An array of all messages.
    JsonArray,
    /// All lines.
    StreamJson,
}

/// Turns lines into what is to be written. The pieces it gives are to be written in their order, as they are.
#[derive(Debug)]
pub struct Printer {
    format: Format,
    /// The last result, in the formats that need no more.
    result: Option<Vec<u8>>,
    /// Whether an array is begun.
    begun: bool,
}

/// What the text format shows of a result.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResultText<'a> {
    #[serde(borrow)]
    result: text::Raw<'a>,
    #[serde(borrow)]
    errors: text::Raw<'a>,
    #[serde(borrow)]
    subtype: text::Raw<'a>,
}

impl Printer {
    /// A printer of that form.
    #[must_use]
    pub fn new(format: Format) -> Self {
        Self { format, result: None, begun: false }
    }

    /// Takes a line, one JSON object with or without its LF, and gives what is to be written now, if anything.
    pub fn line(&mut self, line: impl Into<Vec<u8>>) -> Option<Vec<u8>> {
        let mut line: Vec<u8> = line.into();
        while line.last() == Some(&b'\n') {
            line.pop();
        }
        if self.format == Format::StreamJson {
            line.push(b'\n');
            return Some(line);
        }
        let kind = Line::parse(&line).ok()?.kind().into_owned();
        match self.format {
            Format::JsonArray if !kind.starts_with("control_") && kind != "keep_alive" => {
                line.insert(0, if self.begun { b',' } else { b'[' });
                self.begun = true;
                Some(line)
            }
            Format::Text | Format::Json if kind == "result" => {
                self.result = Some(line);
                None
            }
            _ => None,
        }
    }

    /// What is to be written at the end, if anything: nothing is where nothing was said.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        let mut end = match self.format {
            Format::StreamJson => return None,
            Format::JsonArray => std::mem::take(&mut self.begun).then(|| b"]".to_vec())?,
            Format::Json => self.result.take()?,
            Format::Text => words(&self.result.take()?).into_bytes(),
        };
        if end.last() != Some(&b'\n') {
            end.push(b'\n');
        }
        Some(end)
    }
}

/// What a result says in words: its text, else what went wrong.
fn words(line: &[u8]) -> String {
    // A line that is kept was an object.
    let result: ResultText<'_> = serde_json::from_slice(line).unwrap_or_default();
    if let Some(text) = text::text(result.result) {
        return text.into_owned();
    }
    let errors = text::strings(result.errors);
    if errors.is_empty() {
        match text::text(result.subtype).as_deref() {
            Some("error_max_turns") => "Error: Reached maximum number of turns".to_owned(),
            Some("error_max_budget_usd") => "Error: Exceeded the budget".to_owned(),
            _ => "Execution error".to_owned(),
        }
    } else {
        format!("Error: {}", errors.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s"}"#;
    const ASK: &str = r#"{"type":"control_request","request_id":"1","request":{"subtype":"can_use_tool"}}"#;
    const SAID: &str = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"one"}]}}"#;
    const FIRST: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"one"}"#;
    const LAST: &str = r#"{"type":"result","subtype":"success","is_error":false,"result":"tw\u2028o\nlines"}"#;

    fn print(format: Format, lines: &[&str]) -> String {
        let mut printer = Printer::new(format);
        let mut out = Vec::new();
        for line in lines {
            out.extend(printer.line(*line).unwrap_or_default());
        }
        out.extend(printer.finish().unwrap_or_default());
        assert_eq!(printer.finish(), None);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn stream_json_is_every_line_as_it_is_at_once() {
        let mut printer = Printer::new(Format::StreamJson);
        assert_eq!(printer.line(ASK), Some(format!("{ASK}\n").into_bytes()));
        assert_eq!(printer.line(format!("{LAST}\n")), Some(format!("{LAST}\n").into_bytes()));
        assert_eq!(printer.finish(), None);
    }

    #[test]
    fn text_is_the_text_of_the_last_result() {
        assert_eq!(print(Format::Text, &[INIT, SAID, FIRST, ASK, SAID, LAST, SAID]), "tw\u{2028}o\nlines\n");
        assert_eq!(print(Format::Text, &[r#"{"type":"result","result":"ends\n"}"#]), "ends\n");
        assert_eq!(print(Format::Text, &[r#"{"type":"result","result":""}"#]), "\n");
    }

    #[test]
    fn text_says_what_went_wrong() {
        let failed = r#"{"type":"result","subtype":"success","is_error":true,"result":"API Error: 500"}"#;
        assert_eq!(print(Format::Text, &[failed]), "API Error: 500\n");
        let turns = r#"{"type":"result","subtype":"error_max_turns","is_error":true,"errors":["Reached maximum number of turns (1)"]}"#;
        assert_eq!(print(Format::Text, &[FIRST, turns]), "Error: Reached maximum number of turns (1)\n");
        assert_eq!(
            print(Format::Text, &[r#"{"type":"result","subtype":"error_during_execution"}"#]),
            "Execution error\n"
        );
        assert_eq!(print(Format::Text, &[r#"{"type":"result","result":7,"errors":"no list"}"#]), "Execution error\n");
    }

    #[test]
    fn json_is_the_last_result_on_one_line() {
        assert_eq!(print(Format::Json, &[INIT, FIRST, SAID, LAST, ASK]), format!("{LAST}\n"));
    }

    #[test]
    fn a_json_array_has_every_message_and_no_control_line() {
        let answer = r#"{"type":"control_response","response":{"subtype":"success"}}"#;
        let alive = r#"{"type":"keep_alive"}"#;
        let cancel = r#"{"type":"control_cancel_request","request_id":"1"}"#;
        let text = print(Format::JsonArray, &[answer, INIT, ASK, alive, SAID, cancel, FIRST]);
        assert_eq!(text, format!("[{INIT},{SAID},{FIRST}]\n"));
        assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap().is_array());
    }

    #[test]
    fn an_array_is_written_while_it_grows() {
        let mut printer = Printer::new(Format::JsonArray);
        assert_eq!(printer.line(INIT), Some(format!("[{INIT}").into_bytes()));
        assert_eq!(printer.line(SAID), Some(format!(",{SAID}").into_bytes()));
        assert_eq!(printer.finish(), Some(b"]\n".to_vec()));
    }

    #[test]
    fn where_nothing_was_said_nothing_is_written() {
        for format in [Format::Text, Format::Json, Format::JsonArray, Format::StreamJson] {
            assert_eq!(print(format, &[]), "");
            if format != Format::StreamJson {
                assert_eq!(print(format, &[ASK, "no json", "[]"]), "");
            }
        }
    }
}
