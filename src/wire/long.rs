//! A line with one long text in it.
//!
//! Owns the writing of an answer that is told once more as a whole: the text is not copied into a line and not into a batch,
//! it is escaped part by part while it is written. Keeps: what is written is the line that [`LongLine::to_line`] gives.

use std::fmt;
use std::sync::Arc;

use memchr::memmem;
use memmap2::MmapMut;

use super::frame::{write_json, write_line};
use super::jsonrpc::to_line;
use super::text::{escaped, fitting, length};

/// From how many bytes on a text is worth it.
pub const LONG: usize = 16 * 1024;

/// Bytes of the first part of a text, and of what is escaped at once.
const PIECE: usize = 16 * 1024;

/// Bytes of each other part.
const PART: usize = 256 * 1024;

/// A text that grows without being moved. What is long of it lies outside of the heap: an allocator keeps much of what it was
/// given back, the system keeps nothing.
#[derive(Debug, Default)]
pub struct Text {
    parts: Vec<Part>,
    len: usize,
}

#[derive(Debug)]
enum Part {
    Heap(Vec<u8>),
    /// So many bytes of it are used.
    Map(MmapMut, usize),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Map(map, len) => &map[..*len],
        }
    }

    /// How many bytes it still takes.
    fn room(&self) -> usize {
        match self {
            Self::Heap(bytes) => PIECE.saturating_sub(bytes.len()),
            Self::Map(map, len) => map.len() - len,
        }
    }

    /// Appends what there is room for.
    fn push(&mut self, more: &[u8]) {
        match self {
            Self::Heap(bytes) => bytes.extend_from_slice(more),
            Self::Map(map, len) => {
                map[*len..*len + more.len()].copy_from_slice(more);
                *len += more.len();
            }
        }
    }
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
        let mut rest = piece;
        while !rest.is_empty() {
            let now = start(rest, self.parts.last().map_or(0, Part::room));
            match self.parts.last_mut() {
                Some(last) if !now.is_empty() => last.push(now.as_bytes()),
                None => self.parts.push(Part::Heap(Vec::new())),
                // Without memory of its own, a part is as the first one is.
                Some(_) => self.parts.push(match MmapMut::map_anon(PART) {
                    Ok(map) => Part::Map(map, 0),
                    Err(_) => Part::Heap(Vec::with_capacity(PIECE)),
                }),
            }
            rest = &rest[now.len()..];
        }
        self.len += piece.len();
    }

    /// Appends the first `most` bytes of another text, or as many of them as end with a character.
    pub fn append(&mut self, other: &Self, most: usize) {
        other.pieces(most).for_each(|piece| self.push(piece));
    }

    /// Its first `used` bytes, or as many of them as end with a character, in pieces of at most [`PIECE`].
    fn pieces(&self, used: usize) -> impl Iterator<Item = &str> {
        let mut left = used;
        self.parts
            .iter()
            .flat_map(|part| {
                // Parts are cut between characters.
                let mut rest = std::str::from_utf8(part.bytes()).unwrap_or_default();
                std::iter::from_fn(move || {
                    let piece = start(rest, PIECE);
                    rest = &rest[piece.len()..];
                    (!piece.is_empty()).then_some(piece)
                })
            })
            .map_while(move |piece| {
                let now = start(piece, left);
                // A character that is cut is the end, whatever comes after it.
                left = if now.len() < piece.len() { 0 } else { left - now.len() };
                (!now.is_empty()).then_some(now)
            })
    }

    /// How many bytes of it take at most `room` as JSON; at least one character's.
    #[must_use]
    pub fn fitting(&self, room: usize) -> usize {
        if self.len <= room / 6 {
            return self.len;
        }
        let (mut used, mut room) = (0, room);
        for piece in self.pieces(self.len) {
            let takes = length(piece);
            if takes > room {
                // A piece in which nothing fits: the one before it was the last.
                let first = piece.chars().next().map_or(0, escaped);
                return if used > 0 && first > room { used } else { used + fitting(piece, room) };
            }
            (used, room) = (used + piece.len(), room - takes);
        }
        used
    }

    /// Its first `used` bytes, or as many of them as end with a character.
    #[must_use]
    pub fn start(&self, used: usize) -> String {
        self.pieces(used).collect()
    }
}

/// The first `most` bytes of a text, or as many of them as end with a character.
fn start(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
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
        self.pieces(self.len).try_for_each(|piece| f.write_str(piece))
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        // Parts are filled as soon as they can be, but what fits depends on the pieces that came.
        let bytes = |text: &Self| text.parts.iter().flat_map(|part| part.bytes().to_vec()).collect::<Vec<u8>>();
        self.len == other.len && bytes(self) == bytes(other)
    }
}

impl Eq for Text {}

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
        self.text.pieces(self.used).for_each(|piece| line.extend_from_slice(inner(&to_line(piece))));
        line.extend_from_slice(&self.tail);
        line
    }

    /// The line as [`write_line`] writes it, in parts of which none is long; with the LF.
    pub fn parts(&self) -> impl Iterator<Item = Vec<u8>> {
        let part = |json: &[u8], write: fn(&mut Vec<u8>, &[u8])| {
            let mut part = Vec::new();
            write(&mut part, json);
            part
        };
        let pieces = self.text.pieces(self.used).map(move |piece| part(inner(&to_line(piece)), write_json));
        std::iter::once(part(&self.head, write_json)).chain(pieces).chain(std::iter::once(part(&self.tail, write_line)))
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
        long.parts().flatten().collect()
    }

    #[test]
    fn a_text_in_parts_is_the_pieces_it_was_made_of() {
        let mut parts = Text::default();
        let mut whole = String::new();
        for at in 0..300_000 {
            let piece = if at % 7 == 0 { "€" } else { "ab" };
            parts.push(piece);
            whole.push_str(piece);
        }
        parts.push(&whole.clone());
        whole.push_str(&whole.clone());
        assert_eq!((parts.to_string() == whole, parts.len()), (true, whole.len()));
        let (last, full) = parts.parts.split_last().unwrap_or_else(|| panic!("it has parts"));
        assert!(full.iter().all(|part| part.room() < 4) && last.room() < PART, "no part is wasted");
        assert_eq!(
            full.iter().filter(|part| matches!(part, Part::Heap(_))).count(),
            1,
            "only what is short is in the heap"
        );
        let mut twice = Text::from("x".to_owned());
        twice.append(&parts, parts.len());
        assert_eq!(twice.to_string(), format!("x{whole}"));
        assert!(Text::default().is_empty());
    }

    #[test]
    fn a_text_in_parts_is_cut_where_one_that_is_not_would_be() {
        for one in ["a", "€\n", "\u{1}"] {
            let whole = one.repeat(2 * PART);
            let parts = text(&whole);
            for room in [1, 5, PIECE - 1, PIECE, PIECE + 1, 2 * PART, 50 * PART] {
                assert_eq!(parts.fitting(room), fitting(&whole, room), "{one:?} {room}");
            }
            let end = PART + 4;
            assert!(parts.start(end) == whole[..end]);
            for most in PIECE - 4..PIECE + 4 {
                assert!(parts.start(most) == start(&whole, most), "{one:?} {most}");
            }
        }
    }

    #[test]
    fn a_long_line_is_written_in_parts_as_it_would_be_at_once() {
        let line = |text: &str| to_line(&serde_json::json!({"a": 1, "text": text, "z": "m"}));
        for said in ["", "short", "ü\u{2028}\n\"\\", &"1€\n\"".repeat(100_000)] {
            let long = LongLine::new(&line("marker"), "marker", text(said), said.len()).unwrap_or_else(|| panic!());
            assert!(long.to_line() == line(said), "{said:.20}");
            let mut whole = Vec::new();
            write_line(&mut whole, &line(said));
            assert!(written(&long) == whole, "{said:.20}");
            assert!(long.parts().all(|part| part.len() <= 6 * PIECE), "no part is long");
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
