//! A line with one long text in it.
//!
//! Owns the writing of an answer that is told once more as a whole: the text is not copied into a line and not into a batch,
//! it is escaped part by part while it is written. Keeps: what is written is the line that [`LongLine::to_line`] gives.

use std::fmt;
use std::sync::Arc;

use memchr::memmem;

use super::frame::{write_json, write_line};
use super::jsonrpc::to_line;
use super::text::{escaped, fitting, length};

/// From how many bytes on a text is worth it.
pub const LONG: usize = 16 * 1024;

/// Bytes of a part.
const PART: usize = 16 * 1024;

/// A text that grows without being moved, and takes no room that an allocator would keep when it is gone: parts of
/// [`PART`] bytes, cut between characters.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Text {
    parts: Vec<String>,
    len: usize,
}

impl Text {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a piece.
    pub fn push(&mut self, piece: &str) {
        self.len += piece.len();
        let mut rest = piece;
        while !rest.is_empty() {
            let room = self.parts.last().map_or(0, |last| PART.saturating_sub(last.len()));
            let end = if rest.len() <= room {
                rest.len()
            } else {
                (0..=room).rev().find(|&at| rest.is_char_boundary(at)).unwrap_or(0)
            };
            let (now, later) = rest.split_at(end);
            match self.parts.last_mut() {
                Some(last) if !now.is_empty() => last.push_str(now),
                // The first one may stay short; those that follow it will be filled.
                None => self.parts.push(String::new()),
                Some(_) => self.parts.push(String::with_capacity(PART)),
            }
            rest = later;
        }
    }

    /// Appends another text.
    pub fn append(&mut self, other: &Self) {
        other.parts.iter().for_each(|part| self.push(part));
    }

    /// How many bytes of it take at most `room` as JSON; at least one character's.
    #[must_use]
    pub fn fitting(&self, room: usize) -> usize {
        if self.len <= room / 6 {
            return self.len;
        }
        let (mut used, mut room) = (0, room);
        for part in &self.parts {
            let takes = length(part);
            if takes > room {
                // A part in which nothing fits: the one before it was the last.
                let first = part.chars().next().map_or(0, escaped);
                return if used > 0 && first > room { used } else { used + fitting(part, room) };
            }
            (used, room) = (used + part.len(), room - takes);
        }
        used
    }

    /// Its first `used` bytes, or as many of them as end with a character.
    #[must_use]
    pub fn start(&self, used: usize) -> String {
        let mut text = String::with_capacity(used.min(self.len));
        for part in &self.parts {
            text.push_str(start(part, used - text.len()));
            if text.len() == used {
                break;
            }
        }
        text
    }
}

/// The first `most` bytes of a part, or as many of them as end with a character.
fn start(part: &str, most: usize) -> &str {
    let end = (0..=most.min(part.len())).rev().find(|&at| part.is_char_boundary(at));
    &part[..end.unwrap_or(0)]
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        let mut this = Self::default();
        this.push(&text);
        this
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| f.write_str(part))
    }
}

/// A line, and the text that stands in one place of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongLine {
    /// Up to the text's quote, and with it.
    head: Vec<u8>,
    text: Arc<Text>,
    /// So much of the text is meant, in bytes.
    used: usize,
    /// From the quote that closes the text.
    tail: Vec<u8>,
}

/// How far the writing of a [`LongLine`] has come.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written {
    parts: usize,
    bytes: usize,
}

impl LongLine {
    /// A line of JSON in which `marker` is a whole string and stands once: there the first `used` bytes of the text are meant.
    /// `None` when the line has no such place.
    #[must_use]
    pub fn new(line: &[u8], marker: &str, text: Arc<Text>, used: usize) -> Option<Self> {
        let start = memmem::find(line, format!("\"{marker}\"").as_bytes())? + 1;
        let (head, rest) = line.split_at(start);
        Some(Self { head: head.to_vec(), text, used, tail: rest[marker.len()..].to_vec() })
    }

    /// Its length if nothing of it has to be escaped, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.head.len() + self.used + self.tail.len()
    }

    /// The whole line, without LF.
    #[must_use]
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = self.head.clone();
        line.extend_from_slice(inner(&to_line(&self.text.start(self.used))));
        line.extend_from_slice(&self.tail);
        line
    }

    /// Appends the next part to `out`: first what stands before the text, last the rest of the line and an LF. Returns how far
    /// that is; `None`: that was all.
    pub fn write_part(&self, at: Written, out: &mut Vec<u8>) -> Option<Written> {
        if at.parts == 0 {
            write_json(out, &self.head);
        }
        let left = self.used - at.bytes;
        if let Some(part) = self.text.parts.get(at.parts).map(|part| start(part, left)).filter(|part| !part.is_empty())
        {
            write_json(out, inner(&to_line(part)));
            return Some(Written { parts: at.parts + 1, bytes: at.bytes + part.len() });
        }
        write_line(out, &self.tail);
        None
    }
}

/// A JSON string without its quotes.
fn inner(json: &[u8]) -> &[u8] {
    json.get(1..json.len().saturating_sub(1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Arc<Text> {
        Arc::new(text.to_owned().into())
    }

    fn written(long: &LongLine) -> Vec<u8> {
        let (mut out, mut at) = (Vec::new(), Some(Written::default()));
        while let Some(from) = at {
            at = long.write_part(from, &mut out);
        }
        out
    }

    #[test]
    fn a_text_in_parts_is_the_pieces_it_was_made_of() {
        let mut parts = Text::default();
        let mut whole = String::new();
        for at in 0..20_000 {
            let piece = if at % 7 == 0 { "€" } else { "ab" };
            parts.push(piece);
            whole.push_str(piece);
        }
        parts.push(&whole.clone());
        whole.push_str(&whole.clone());
        assert_eq!((parts.to_string() == whole, parts.len()), (true, whole.len()));
        assert!(parts.parts.iter().all(|part| part.len() <= PART));
        assert!(parts.parts.iter().rev().skip(1).all(|part| part.len() > PART - 4), "no part is wasted");
        let mut twice = (*text("x")).clone();
        twice.append(&parts);
        assert_eq!(twice.to_string(), format!("x{whole}"));
        assert!(Text::default().is_empty());
    }

    #[test]
    fn a_text_in_parts_is_cut_where_one_that_is_not_would_be() {
        for one in ["a", "€\n", "\u{1}"] {
            let whole = one.repeat(3 * PART);
            let parts = text(&whole);
            for room in [1, 5, PART - 1, PART, PART + 1, 2 * PART, 50 * PART] {
                assert_eq!(parts.fitting(room), fitting(&whole, room), "{one:?} {room}");
            }
            assert_eq!(parts.start(PART + 3), whole[..PART + 3].to_owned().as_str());
        }
    }

    #[test]
    fn a_long_line_is_written_in_parts_as_it_would_be_at_once() {
        let line = |text: &str| to_line(&serde_json::json!({"a": 1, "text": text, "z": "m"}));
        for said in ["", "short", "ü\u{2028}\n\"\\", &"1€\n\"".repeat(10_000)] {
            let long = LongLine::new(&line("marker"), "marker", text(said), said.len()).unwrap_or_else(|| panic!());
            assert!(long.to_line() == line(said), "{said:.20}");
            let mut whole = Vec::new();
            write_line(&mut whole, &line(said));
            assert!(written(&long) == whole, "{said:.20}");
        }
    }

    #[test]
    fn only_the_part_that_is_meant_is_written() {
        let long = |line: &[u8], used| LongLine::new(line, "m", text("aä"), used);
        let one = long(br#"{"x":"m"}"#, 1).unwrap_or_else(|| panic!());
        assert_eq!(one.to_line(), br#"{"x":"a"}"#);
        assert_eq!(written(&one), b"{\"x\":\"a\"}\n");
        let middle = long(br#"{"x":"m"}"#, 2).unwrap_or_else(|| panic!());
        assert_eq!(middle.to_line(), br#"{"x":"a"}"#, "no character is cut");
        assert!(long(br#"{"x":"mm"}"#, 1).is_none(), "without the marker");
    }
}
