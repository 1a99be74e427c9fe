//! Lines that differ from the one before in a few strings only.
//!
//! Owns the fast way for the line that comes for every token: all of it but the text is what it was, so comparing it is
//! enough, and only the text is read. Keeps: a line is of a shape only if reading it whole gives the same members, with
//! other strings in the places of those.

use std::borrow::Cow;

use super::stream_json::Str;

/// What stays the same around `N` strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape<const N: usize> {
    /// From the beginning, and from the end of each string but the last, to the quote that opens the next.
    before: [Box<[u8]>; N],
    /// From the quote that closes the last string.
    after: Box<[u8]>,
}

impl<const N: usize> Shape<N> {
    /// The shape of a line of JSON in which these strings were found, in this order; `None` when one is not a part of the line
    /// as it stands there: it holds an escape.
    #[must_use]
    pub fn of(line: &[u8], strings: [&Str<'_>; N]) -> Option<Self> {
        let mut before = [const { Vec::new() }; N];
        let mut from = 0;
        for (before, string) in before.iter_mut().zip(strings) {
            let Cow::Borrowed(string) = string.0 else { return None };
            // Where a part of the line is in memory says where it is in the line.
            let start = string.as_ptr().addr().checked_sub(line.as_ptr().addr())?;
            let end = start.checked_add(string.len())?;
            let in_quotes = start > from && line.get(start - 1) == Some(&b'"') && line.get(end) == Some(&b'"');
            if !in_quotes || line[start..end] != *string.as_bytes() {
                return None;
            }
            *before = line[from..start].to_vec();
            from = end;
        }
        let after = line.get(from..)?.into();
        Some(Self { before: before.map(Vec::into_boxed_slice), after })
    }

    /// The strings of a line of this shape.
    #[must_use]
    pub fn strings<'a>(&self, line: &'a [u8]) -> Option<[Str<'a>; N]> {
        // Most lines of another shape end otherwise, or are too short for it.
        let mut rest = line.strip_suffix(&*self.after)?;
        let last = N.checked_sub(1)?;
        let mut strings = [const { Str(Cow::Borrowed("")) }; N];
        for (at, (string, before)) in strings.iter_mut().zip(&self.before).enumerate() {
            rest = rest.strip_prefix(&**before)?;
            let (end, has_escapes) = plain(rest);
            // Before the last one there is the quote that closes it, and what stands behind the last one is known.
            if !has_escapes && (at == last) == (end == rest.len()) {
                *string = Str(Cow::Borrowed(std::str::from_utf8(&rest[..end]).ok()?));
                rest = &rest[end..];
                continue;
            }
            // An escape: rare in ids, usual in code. JSON's own reader knows them all.
            if at != last {
                return None;
            }
            let start = line.len() - self.after.len() - rest.len() - 1;
            *string = serde_json::from_slice(&line[start..=line.len() - self.after.len()]).ok()?;
        }
        Some(strings)
    }
}

/// Up to where a string goes whose first byte this is, if it holds no escape, and whether it does.
fn plain(bytes: &[u8]) -> (usize, bool) {
    let end = bytes.iter().position(|&b| b == b'"' || b == b'\\' || b < b' ');
    end.map_or((bytes.len(), false), |end| (end, bytes[end] != b'"'))
}

/// Of so many lines that are not of the shape one is tried, however long it goes on.
const RARELY: u32 = 256;

/// When a shape is worth to be kept: not for each of two that take turns.
#[derive(Debug, Default, Clone)]
pub(crate) struct Misses(u32);

impl Misses {
    /// A line was of the shape.
    pub(crate) fn hit(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }

    /// A line was not; whether its shape should be kept.
    pub(crate) fn miss(&mut self) -> bool {
        // In the end one in so many is tried.
        self.0 = if self.0 == 2 * RARELY { RARELY + 1 } else { self.0 + 1 };
        self.0.is_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        text: Str<'a>,
        #[serde(borrow)]
        id: Str<'a>,
    }

    fn shape() -> Shape<2> {
        let line = r#"{"id":"1","n":0,"text":"a","z":[]}"#;
        let read: Line<'_> = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}"));
        Shape::of(line.as_bytes(), [&read.id, &read.text]).unwrap_or_else(|| panic!("no shape"))
    }

    fn strings(line: &str) -> Option<[String; 2]> {
        shape().strings(line.as_bytes()).map(|strings| strings.map(|s| s.0.into_owned()))
    }

    #[test]
    fn strings_of_a_line_of_the_shape_are_those_that_reading_it_gives() {
        for text in ["", "b", "a longer text, ü", r"an \u00fc\n", r#"a \"quote\""#, r"\\", r"back\\\\"] {
            let line = format!(r#"{{"id":"two","n":0,"text":"{text}","z":[]}}"#);
            let read: Line<'_> = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(strings(&line), Some([read.id.0.into_owned(), read.text.0.into_owned()]), "{line}");
        }
    }

    #[test]
    fn a_line_that_only_looks_like_it_is_not_of_the_shape() {
        for line in [
            r#"{"id":"1","n":1,"text":"a","z":[]}"#,
            r#"{"id":"1","n":0,"text":"a","z":[],"z":[]}"#,
            r#"{"id":"1","n":0,"text":"a","id":"2","z":[]}"#,
            r#"{"id":"1","n":0,"text":"a\","z":[]}"#,
            r#"{"id":"1","n":0,"text":"\ud83d","z":[]}"#,
            "{\"id\":\"1\",\"n\":0,\"text\":\"a\nb\",\"z\":[]}",
            r#"{"id":"\u0031","n":0,"text":"a","z":[]}"#,
            r#"{"id":"1,"n":0,"text":"a","z":[]}"#,
            r#"{"id":"1","n":0,"text":","z":[]}"#,
            r#"{"id":"","z":[]}"#,
            r#"","z":[]}"#,
            "",
        ] {
            assert_eq!(strings(line), None, "{line}");
        }
        assert!(shape().strings(b"{\"id\":\"1\",\"n\":0,\"text\":\"\xff\",\"z\":[]}").is_none());
    }

    #[test]
    fn a_text_with_an_escape_teaches_no_shape() {
        let line = r#"{"id":"1","text":"\n"}"#;
        let read: Line<'_> = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}"));
        assert!(Shape::of(line.as_bytes(), [&read.id, &read.text]).is_none());
        // Nor do strings of another line.
        assert!(Shape::of(b"{}", [&read.id, &read.id]).is_none());
    }

    /// How many of so many lines were of the shape that was kept, and how often another one was kept.
    fn kept(lines: impl Iterator<Item = u32>) -> (usize, usize) {
        let (mut misses, mut known, mut hits, mut changes) = (Misses::default(), None, 0, 0);
        for line in lines {
            if known == Some(line) {
                misses.hit();
                hits += 1;
            } else if misses.miss() {
                (known, changes) = (Some(line), changes + 1);
            }
        }
        (hits, changes)
    }

    #[test]
    fn of_shapes_that_take_turns_one_is_kept() {
        let (hits, changes) = kept((0..1000).map(|at| at % 2));
        assert!(hits > 490 && changes < 5, "{hits} {changes}");
        // None of these comes again.
        let (hits, changes) = kept(0..10_000);
        assert!(hits == 0 && changes < 60, "{hits} {changes}");
        // But a stream that begins after them is found.
        let (hits, _) = kept((0..10_000).chain(std::iter::repeat_n(0, 1000)));
        assert!(hits > 700, "{hits}");
    }
}
