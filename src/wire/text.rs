//! JSON strings as text, and the lenient reading of single members.
//!
//! Owns one promise: text is exact. A string that holds half of a surrogate pair (a stream may be cut there) is
//! completed with the next piece instead of being lost or replaced too early.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::jsonrpc::borrowed_str;

/// A member that may be absent or `null`, unread.
pub type Raw<'a> = Option<&'a RawValue>;

/// A JSON object and nothing else: serde would also read an array into a struct, by position.
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfMap<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OfMap<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_map(OfMap(PhantomData)).map(Self)
    }
}

/// The first half of a surrogate pair that ended one piece of a stream and waits for its second half.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carry(Option<u16>);

/// A piece of streamed text as it was read.
#[derive(Debug)]
pub enum Fragment<'a> {
    /// Decoded.
    Text(Cow<'a, str>),
    /// Still a JSON string, perhaps with half of a surrogate pair.
    Token(Raw<'a>),
}

impl<'a> Fragment<'a> {
    /// The text, completed with what the piece before left in `carry`; `None` when it is no string.
    #[must_use]
    pub fn complete(self, carry: &mut Carry) -> Option<Cow<'a, str>> {
        match self {
            Self::Token(raw) => piece(raw, carry),
            // A whole piece holds no second half: one that waits stands alone before it.
            Self::Text(text) if carry.0.is_some() && !text.is_empty() => {
                *carry = Carry::default();
                Some(Cow::Owned(format!("{}{text}", char::REPLACEMENT_CHARACTER)))
            }
            Self::Text(text) => Some(text),
        }
    }
}

/// The text of a JSON string; `None` for every other kind of value. A lone surrogate becomes U+FFFD.
#[must_use]
pub fn text(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    let raw = raw?;
    borrowed_str(raw).or_else(|| {
        let mut carry = Carry::default();
        let mut s = unescape(raw.get(), &mut carry)?;
        if carry.0.is_some() {
            s.push(char::REPLACEMENT_CHARACTER);
        }
        Some(Cow::Owned(s))
    })
}

/// The text of one piece of a stream, completed with what the piece before left in `carry`.
#[must_use]
pub fn piece<'a>(raw: Raw<'a>, carry: &mut Carry) -> Option<Cow<'a, str>> {
    let raw = raw?;
    if carry.0.is_none()
        && let Some(s) = borrowed_str(raw)
    {
        return Some(s);
    }
    unescape(raw.get(), carry).map(Cow::Owned)
}

/// A number that fits, whatever its JSON spelling (`12`, `12.0`).
#[must_use]
pub fn uint(raw: Raw<'_>) -> Option<u64> {
    let text = raw?.get();
    text.parse().ok().or_else(|| {
        let f: f64 = text.parse().ok()?;
        // Exact for every count that claude can mean; beyond 2^53 a count is nonsense anyway.
        ((0.0..=9_007_199_254_740_992.0).contains(&f) && f.fract() == 0.0).then_some(f as u64)
    })
}

/// A signed number.
#[must_use]
pub fn int(raw: Raw<'_>) -> Option<i64> {
    raw?.get().parse().ok()
}

/// A floating point number.
#[must_use]
pub fn float(raw: Raw<'_>) -> Option<f64> {
    raw?.get().parse().ok().filter(|f: &f64| f.is_finite())
}

/// A boolean; anything else is `None`.
#[must_use]
pub fn boolean(raw: Raw<'_>) -> Option<bool> {
    match raw?.get() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// Reads a member as an owned type; what does not fit is `None`.
#[must_use]
pub fn read<T: DeserializeOwned>(raw: Raw<'_>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// The items of an array, unread; `None` when it is no array.
#[must_use]
pub fn items(raw: Raw<'_>) -> Option<Vec<&RawValue>> {
    serde_json::from_str(raw?.get()).ok()
}

/// The strings of an array; other items are skipped.
#[must_use]
pub fn strings(raw: Raw<'_>) -> Vec<String> {
    items(raw).unwrap_or_default().into_iter().filter_map(|item| text(Some(item)).map(Cow::into_owned)).collect()
}

/// Decodes a JSON string token by hand: what serde_json refuses because of a lone surrogate.
fn unescape(token: &str, carry: &mut Carry) -> Option<String> {
    let body = token.strip_prefix('"')?.strip_suffix('"')?;
    let mut out = String::with_capacity(body.len() + 4);
    let mut rest = body;
    loop {
        let Some(at) = rest.find('\\') else {
            flush(&mut out, carry, !rest.is_empty());
            out.push_str(rest);
            return Some(out);
        };
        let (plain, escape) = rest.split_at(at);
        flush(&mut out, carry, !plain.is_empty());
        out.push_str(plain);
        let mut chars = escape.chars();
        chars.next();
        let c = chars.next()?;
        rest = chars.as_str();
        if c != 'u' {
            flush(&mut out, carry, true);
            out.push(match c {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                other => other,
            });
            continue;
        }
        let unit = u16::from_str_radix(rest.get(..4)?, 16).ok()?;
        rest = rest.get(4..)?;
        match (carry.0.take(), unit) {
            (Some(high), 0xdc00..=0xdfff) => out.extend(char::decode_utf16([high, unit]).flatten()),
            (before, 0xd800..=0xdbff) => {
                if before.is_some() {
                    out.push(char::REPLACEMENT_CHARACTER);
                }
                carry.0 = Some(unit);
            }
            (before, unit) => {
                if before.is_some() {
                    out.push(char::REPLACEMENT_CHARACTER);
                }
                out.push(char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
    }
}

/// A waiting half that is followed by anything but its other half stands alone.
fn flush(out: &mut String, carry: &mut Carry, something_follows: bool) {
    if something_follows && carry.0.take().is_some() {
        out.push(char::REPLACEMENT_CHARACTER);
    }
}

/// Cuts a string to at most `max` bytes at a character boundary.
#[must_use]
pub fn cut(s: &str, max: usize) -> &str {
    if s.len() <= max {
        return s;
    }
    let mut end = max;
    while !s.is_char_boundary(end) {
        end -= 1;
    }
    &s[..end]
}

/// How many bytes a character takes in a JSON string, as diglot writes it.
#[must_use]
pub fn escaped(c: char) -> usize {
    match c {
        '\u{2028}' | '\u{2029}' => 6,
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

/// How many bytes a text takes in JSON, without its quotes.
#[must_use]
pub fn length(text: &str) -> usize {
    // Most texts hold nothing that is escaped. U+2028 and U+2029 begin with E2. Without a way out of it the loop is one over
    // many bytes at once.
    let is_plain = |b: u8| (b >= b' ') & (b != b'"') & (b != b'\\') & (b != 0xe2);
    if text.bytes().fold(true, |plain, b| plain & is_plain(b)) {
        return text.len();
    }
    text.chars().map(escaped).sum()
}

/// How many bytes of a text, at the end of a character, take at most `room` as JSON; at least one character's.
#[must_use]
pub fn fitting(text: &str, room: usize) -> usize {
    // Nothing takes more than six bytes for one.
    if text.len() <= room / 6 {
        return text.len();
    }
    let mut sum = 0;
    for (at, c) in text.char_indices() {
        sum += escaped(c);
        if sum > room && at > 0 {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(s: &str) -> Box<RawValue> {
        RawValue::from_string(s.to_owned()).unwrap_or_else(|e| panic!("{s}: {e}"))
    }

    #[test]
    fn a_pair_cut_between_two_pieces_is_whole_again() {
        let mut carry = Carry::default();
        let (a, b) = (raw(r#""x\ud83d""#), raw(r#""\ude00y\n\"""#));
        assert_eq!(piece(Some(&a), &mut carry).as_deref(), Some("x"));
        assert_eq!(piece(Some(&b), &mut carry).as_deref(), Some("\u{1f600}y\n\""));
        assert_eq!(carry, Carry::default());
    }

    #[test]
    fn a_lone_surrogate_is_replaced_and_nothing_else_is_lost() {
        assert_eq!(text(Some(&raw(r#""a\ud83db""#))).as_deref(), Some("a\u{fffd}b"));
        assert_eq!(text(Some(&raw(r#""a\ude00""#))).as_deref(), Some("a\u{fffd}"));
        assert_eq!(text(Some(&raw(r#""a\ud83d""#))).as_deref(), Some("a\u{fffd}"));
        assert_eq!(text(Some(&raw(r#""\ud83d\ud83d\ude00""#))).as_deref(), Some("\u{fffd}\u{1f600}"));
    }

    #[test]
    fn members_of_another_type_are_absent() {
        assert_eq!(text(Some(&raw("5"))), None);
        assert_eq!(uint(Some(&raw("5.0"))), Some(5));
        assert_eq!(uint(Some(&raw("-5"))), None);
        assert_eq!(boolean(Some(&raw("\"true\""))), None);
        assert_eq!(strings(Some(&raw(r#"["a",1,"b"]"#))), ["a", "b"]);
    }

    #[test]
    fn cutting_keeps_characters_whole() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
    }

    #[test]
    fn a_text_is_cut_by_what_it_takes_as_json() {
        assert_eq!(fitting("abcdef", 3), 3);
        assert_eq!(fitting("\u{1}\u{1}\u{1}", 12), 2);
        assert_eq!(fitting("ää", 3), 2);
        assert_eq!(fitting("\u{1}", 1), 1);
        assert_eq!(fitting("short", 1000), 5);
        assert_eq!(length("a\"\n\u{2028}"), 11);
        assert_eq!(length("plain, ü"), 9);
    }
}
