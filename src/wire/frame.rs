//! Lines of bytes: the framing that every wire of diglot shares.
//!
//! A frame is what stands between two LFs. This file owns the rules for cutting them out of a stream and for writing
//! them. It keeps these invariants:
//! * the frames depend on the bytes only, never on how the stream was cut into reads;
//! * a line that is no message is a [`Noise`] at its own place in the order, never an error and never lost;
//! * never more than the limit (plus one read) is buffered, and after an over-long line the reader is in step again at
//!   the next LF;
//! * what is written holds exactly one LF, at its end, and nothing else that a line reader takes for a line's end.

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memchr3};
use serde::de::IgnoredAny;

/// The longest line that is read as a message, in bytes without the LF, unless told otherwise: 64 MiB.
///
/// Agents send whole files and images on one line, so this is generous; it is there against a peer that never sends an LF.
pub const MAX_LINE: usize = 64 * 1024 * 1024;

/// How many bytes of a bad line a [`Noise`] keeps at most.
pub const NOISE_HEAD: usize = 4096;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// One line of a wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Valid UTF-8 that begins with `{` and ends with `}` (white space aside), without LF, CR and BOM.
    ///
    /// Whether what stands between the braces is JSON is found by the one parse that the message layer does anyway; when
    /// that fails, [`Noise::new`] with [`NoiseReason::NotJson`] says so.
    Line(Bytes),
    /// A line that is no message.
    Noise(Noise),
}

/// A line that is no message: kept for the trace, never forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noise {
    /// The line's beginning, at most [`NOISE_HEAD`] bytes, as they came.
    pub bytes: Bytes,
    /// What is wrong with it.
    pub why: NoiseReason,
    /// Length in bytes of the whole line, without its LF.
    pub total_len: usize,
}

/// Why a line is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoiseReason {
    /// Longer than the limit.
    #[error("the line is longer than {limit} bytes")]
    TooLong {
        /// The limit that it passed, in bytes without the LF.
        limit: usize,
    },
    /// Not UTF-8.
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// Not JSON.
    #[error("the line is not JSON")]
    NotJson,
    /// JSON, but not an object.
    #[error("the line is JSON but not an object")]
    NotObject,
}

impl Noise {
    /// The noise that `line` is, for the reason `why`. Copies the head, so that a long line is not kept alive by it.
    #[must_use]
    pub fn new(line: &[u8], why: NoiseReason) -> Self {
        Self { bytes: Bytes::copy_from_slice(&line[..line.len().min(NOISE_HEAD)]), why, total_len: line.len() }
    }
}

/// Cuts a stream into [`Frame`]s.
///
/// The caller appends what it reads to a buffer and calls [`decode`](Self::decode) until it gives `None`; at the end of
/// the stream it calls [`finish`](Self::finish) until that gives `None`.
#[derive(Debug)]
pub struct FrameDecoder {
    limit: usize,
    /// How much of the buffer is known to hold no LF.
    scanned: usize,
    /// Whether a line has been seen: a BOM is one only before the first.
    started: bool,
    /// The over-long line being skipped.
    skipping: Option<Skipped>,
}

#[derive(Debug)]
struct Skipped {
    head: Vec<u8>,
    total_len: usize,
}

impl Skipped {
    fn take(&mut self, bytes: &[u8]) {
        let room = NOISE_HEAD - self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.total_len += bytes.len();
    }
}

impl Default for FrameDecoder {
    fn default() -> Self {
        Self::new(MAX_LINE)
    }
}

impl FrameDecoder {
    /// A decoder for lines of at most `limit` bytes, the LF not counted.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, scanned: 0, started: false, skipping: None }
    }

    /// Takes the next frame off the front of `buf`, or `None` when more bytes are needed.
    ///
    /// Between two calls bytes may only be appended to `buf`.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Option<Frame> {
        loop {
            let seen = self.scanned.min(buf.len());
            let Some(at) = memchr(b'\n', &buf[seen..]) else {
                self.scanned = buf.len();
                if self.skipping.is_some() || buf.len() > self.limit {
                    let skipped = self.skipping.get_or_insert_with(|| Skipped { head: Vec::new(), total_len: 0 });
                    skipped.take(buf);
                    buf.clear();
                    self.scanned = 0;
                }
                return None;
            };
            self.scanned = 0;
            let mut line = buf.split_to(seen + at + 1);
            line.truncate(seen + at);
            if let Some(frame) = self.line(line) {
                return Some(frame);
            }
        }
    }

    /// Like [`decode`](Self::decode), for when the stream has ended: a last line without LF is still a line.
    pub fn finish(&mut self, buf: &mut BytesMut) -> Option<Frame> {
        if let Some(frame) = self.decode(buf) {
            return Some(frame);
        }
        self.scanned = 0;
        if buf.is_empty() && self.skipping.is_none() {
            return None;
        }
        let line = buf.split();
        self.line(line)
    }

    /// Judges one whole line; `None` for a blank one.
    fn line(&mut self, raw: BytesMut) -> Option<Frame> {
        let first = !std::mem::replace(&mut self.started, true);
        let too_long = NoiseReason::TooLong { limit: self.limit };
        if let Some(mut skipped) = self.skipping.take() {
            skipped.take(&raw);
            let Skipped { head, total_len } = skipped;
            return Some(Frame::Noise(Noise { bytes: head.into(), why: too_long, total_len }));
        }
        if raw.len() > self.limit {
            return Some(Frame::Noise(Noise::new(&raw, too_long)));
        }
        let mut line = raw.freeze();
        if first && line.starts_with(BOM) {
            line = line.slice(BOM.len()..);
        }
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        match judge(&line)? {
            Ok(()) => Some(Frame::Line(line)),
            Err(why) => Some(Frame::Noise(Noise::new(&line, why))),
        }
    }
}

/// Whether `line` may be a message; `None` for a blank line.
fn judge(line: &[u8]) -> Option<Result<(), NoiseReason>> {
    let text = line.trim_ascii();
    let (Some(first), Some(last)) = (text.first(), text.last()) else {
        return None;
    };
    if std::str::from_utf8(text).is_err() {
        return Some(Err(NoiseReason::NotUtf8));
    }
    Some(match (first, last) {
        (b'{', b'}') => Ok(()),
        (b'{', _) => Err(NoiseReason::NotJson),
        _ if serde_json::from_slice::<IgnoredAny>(text).is_ok() => Err(NoiseReason::NotObject),
        _ => Err(NoiseReason::NotJson),
    })
}

/// Appends the JSON text `json` and one LF to `out`.
///
/// U+2028 and U+2029 are written as escapes, because Node's `readline` ends a line there; in valid JSON they occur only
/// within strings, where the escape means the same. A raw CR or LF, in valid JSON only white space between tokens, becomes
/// a space.
pub fn write_line(out: &mut Vec<u8>, json: &[u8]) {
    out.reserve(json.len() + 1);
    write_json(out, json);
    out.push(b'\n');
}

/// A part of a line, as [`write_line`] writes it; it does not end within a character.
pub(crate) fn write_json(out: &mut Vec<u8>, json: &[u8]) {
    let mut rest = json;
    while let Some(at) = memchr3(0xE2, b'\n', b'\r', rest) {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain);
        let used = match tail {
            [0xE2, 0x80, 0xA8, ..] => {
                out.extend_from_slice(b"\\u2028");
                3
            }
            [0xE2, 0x80, 0xA9, ..] => {
                out.extend_from_slice(b"\\u2029");
                3
            }
            [0xE2, ..] => {
                out.push(0xE2);
                1
            }
            _ => {
                out.push(b' ');
                1
            }
        };
        rest = &tail[used..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(limit: usize, input: &[u8]) -> Vec<Frame> {
        let mut decoder = FrameDecoder::new(limit);
        let mut buf = BytesMut::from(input);
        std::iter::from_fn(|| decoder.finish(&mut buf)).collect()
    }

    fn line(text: &str) -> Frame {
        Frame::Line(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn noise(head: &[u8], why: NoiseReason) -> Frame {
        Frame::Noise(Noise::new(head, why))
    }

    #[test]
    fn a_bom_carriage_returns_and_blank_lines_are_skipped() {
        let input = b"\xEF\xBB\xBF{\"a\":1}\r\n\r\n  \t \n\n{\"b\":2}\n";
        assert_eq!(frames(100, input), [line("{\"a\":1}"), line("{\"b\":2}")]);
        assert_eq!(frames(100, b"\xEF\xBB\xBF\r\n"), []);
    }

    #[test]
    fn a_bom_later_than_at_the_start_is_noise() {
        let input = b"{}\n\xEF\xBB\xBF{}\n";
        assert_eq!(frames(100, input), [line("{}"), noise(b"\xEF\xBB\xBF{}", NoiseReason::NotJson)]);
    }

    #[test]
    fn a_last_line_without_an_end_is_still_a_line() {
        assert_eq!(frames(100, b"{}\n{\"a\":1}"), [line("{}"), line("{\"a\":1}")]);
    }

    #[test]
    fn bad_lines_keep_their_place_and_say_why() {
        let input = b"{\"a\":1}\nWarning: old node\n[1,2]\n\"text\"\n{\"cut\":\n\xFF{}\n{\"b\":2}\n";
        assert_eq!(
            frames(100, input),
            [
                line("{\"a\":1}"),
                noise(b"Warning: old node", NoiseReason::NotJson),
                noise(b"[1,2]", NoiseReason::NotObject),
                noise(b"\"text\"", NoiseReason::NotObject),
                noise(b"{\"cut\":", NoiseReason::NotJson),
                noise(b"\xFF{}", NoiseReason::NotUtf8),
                line("{\"b\":2}"),
            ]
        );
    }

    #[test]
    fn a_line_of_exactly_the_limit_passes_and_one_byte_more_does_not() {
        let exact = b"{\"a\":\"12\"}";
        assert_eq!(frames(exact.len(), &[&exact[..], b"\n{}\n"].concat()), [line("{\"a\":\"12\"}"), line("{}")]);
        let limit = exact.len() - 1;
        assert_eq!(
            frames(limit, &[&exact[..], b"\n{}\n"].concat()),
            [noise(exact, NoiseReason::TooLong { limit }), line("{}")]
        );
    }

    #[test]
    fn an_over_long_line_never_fills_the_buffer_and_counts_all_its_bytes() {
        let mut decoder = FrameDecoder::new(64);
        let mut buf = BytesMut::new();
        for _ in 0..10_000 {
            buf.extend_from_slice(&[b'x'; 50]);
            assert_eq!(decoder.decode(&mut buf), None);
            assert!(buf.len() <= 64, "{} bytes buffered", buf.len());
        }
        buf.extend_from_slice(b"\n{}\n");
        let Some(Frame::Noise(got)) = decoder.decode(&mut buf) else { panic!("expected noise") };
        assert_eq!(got.total_len, 500_000);
        assert_eq!(got.bytes.len(), NOISE_HEAD);
        assert_eq!(got.why, NoiseReason::TooLong { limit: 64 });
        assert_eq!(decoder.decode(&mut buf), Some(line("{}")));
    }

    #[test]
    fn an_over_long_last_line_is_noise_once() {
        let mut decoder = FrameDecoder::new(4);
        let mut buf = BytesMut::from(&b"123456"[..]);
        assert_eq!(decoder.decode(&mut buf), None);
        assert!(matches!(decoder.finish(&mut buf), Some(Frame::Noise(Noise { total_len: 6, .. }))));
        assert_eq!(decoder.finish(&mut buf), None);
    }

    fn written(json: &str) -> String {
        let mut out = Vec::new();
        write_line(&mut out, json.as_bytes());
        String::from_utf8(out).expect("write_line keeps UTF-8 valid")
    }

    #[test]
    fn separators_that_end_a_line_for_node_are_escaped() {
        assert_eq!(written("{\"a\":\"x\u{2028}y\u{2029}\"}"), "{\"a\":\"x\\u2028y\\u2029\"}\n");
        assert_eq!(written("{\"a\":\"… • ─ ⠀ 漢\"}"), "{\"a\":\"… • ─ ⠀ 漢\"}\n");
    }

    #[test]
    fn a_written_line_has_one_end() {
        assert_eq!(written("{\r\n\"a\":1}"), "{  \"a\":1}\n");
    }
}
