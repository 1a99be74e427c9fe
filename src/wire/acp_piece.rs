//! A piece of an agent's text, read in one pass.
//!
//! Owns the line that comes for every token. Keeps: it reads less than the lenient types of [`super::acp_client`] and nothing
//! else than they do. What does not fit this shape to the letter is no error: those read it member by member. A line that
//! differs from the one before in its text only is not read again ([`Shape`]).

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};

use super::shape::{Misses, Shape};
use super::stream_json::Str;
use super::text::{Object, Raw};

/// An `agent_message_chunk` or `agent_thought_chunk` with text, in a `session/update`.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Which session.
    pub session_id: Str<'a>,
    /// Whether it is a thought.
    pub is_thought: bool,
    /// Which message it belongs to.
    pub message_id: Option<Str<'a>>,
    /// The text.
    pub text: Str<'a>,
}

/// Reads the pieces of a stream.
#[derive(Debug, Default)]
pub struct Pieces {
    known: Option<Box<Known>>,
    misses: Misses,
}

/// A piece that was read, without its text.
#[derive(Debug)]
struct Known {
    shape: Shape<1>,
    session_id: Box<str>,
    is_thought: bool,
    message_id: Option<Box<str>>,
}

impl Pieces {
    /// What [`Piece::of_line`] reads.
    #[must_use]
    pub fn read<'a>(&'a mut self, line: &'a [u8]) -> Option<Piece<'a>> {
        let Some([text]) = self.known.as_ref().and_then(|known| known.shape.strings(line)) else {
            return self.read_whole(line);
        };
        self.misses.hit();
        let known = self.known.as_ref()?;
        Some(Piece {
            session_id: Str((&*known.session_id).into()),
            is_thought: known.is_thought,
            message_id: known.message_id.as_deref().map(|id| Str(id.into())),
            text,
        })
    }

    fn read_whole<'a>(&mut self, line: &'a [u8]) -> Option<Piece<'a>> {
        let piece = Piece::of_line(line)?;
        if self.misses.miss()
            && let Some(shape) = Shape::of(line, [&piece.text])
        {
            self.known = Some(Box::new(Known {
                shape,
                session_id: (&*piece.session_id.0).into(),
                is_thought: piece.is_thought,
                message_id: piece.message_id.as_ref().map(|id| (&*id.0).into()),
            }));
        }
        Some(piece)
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    jsonrpc: Str<'a>,
    // Somebody who names an id or an answer means something else, be it `null`.
    #[serde(default, deserialize_with = "there")]
    id: bool,
    #[serde(default, deserialize_with = "there")]
    result: bool,
    #[serde(default, deserialize_with = "there")]
    error: bool,
    #[serde(borrow)]
    method: Str<'a>,
    #[serde(borrow)]
    params: Object<Params<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    session_id: Str<'a>,
    #[serde(borrow)]
    update: Object<Update<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update<'a> {
    #[serde(borrow)]
    session_update: Str<'a>,
    #[serde(borrow)]
    message_id: Option<Str<'a>>,
    #[serde(borrow)]
    content: Object<Block<'a>>,
    #[serde(borrow, rename = "_meta")]
    meta: Raw<'a>,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    text: Str<'a>,
}

fn there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

impl<'a> Piece<'a> {
    /// Reads a line of just this shape; `None` for every other line, also for one with a `_meta` in its update.
    #[must_use]
    pub fn of_line(line: &'a [u8]) -> Option<Self> {
        // Made once: making it costs more than the look.
        static TAG: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("_chunk\""));
        // Most other lines are told by one fast look.
        TAG.find(line)?;
        // As a text it is checked once and not string by string.
        let Object(line): Object<Line<'a>> = serde_json::from_str(std::str::from_utf8(line).ok()?).ok()?;
        let Object(Params { session_id, update: Object(update) }) = line.params;
        let Object(block) = update.content;
        let is_thought = match &*update.session_update.0 {
            "agent_message_chunk" => false,
            "agent_thought_chunk" => true,
            _ => return None,
        };
        let is_notification = line.jsonrpc.0 == "2.0" && !line.id && !line.result && !line.error;
        let plain = is_notification && line.method.0 == "session/update" && block.kind.0 == "text";
        (plain && update.meta.is_none()).then_some(Self {
            session_id,
            is_thought,
            message_id: update.message_id,
            text: block.text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(update: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{update}}}}}"#)
    }

    #[test]
    fn a_piece_of_text_is_read_in_one_pass() {
        let said =
            line(r#"{"sessionUpdate":"agent_thought_chunk","messageId":"m","content":{"text":"a\n","type":"text"}}"#);
        let piece = Piece::of_line(said.as_bytes());
        let known = Piece {
            session_id: Str("s".into()),
            is_thought: true,
            message_id: Some(Str("m".into())),
            text: Str("a\n".into()),
        };
        assert_eq!(piece, Some(known));
        let said = line(r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""},"more":[1]}"#);
        assert!(Piece::of_line(said.as_bytes()).is_some_and(|p| !p.is_thought && p.message_id.is_none()));
    }

    #[test]
    fn a_line_like_the_one_before_is_read_as_one_that_is_not() {
        let chunk = |id: &str, kind: &str, text: &str| {
            line(&format!(
                r#"{{"sessionUpdate":"agent_{kind}_chunk","messageId":"{id}","content":{{"type":"text","text":"{text}"}}}}"#
            ))
        };
        let mut pieces = Pieces::default();
        for said in [
            chunk("m", "message", "a"),
            chunk("m", "message", "b"),
            chunk("m", "message", r"\n"),
            chunk("m", "thought", "c"),
            chunk("n", "thought", "d"),
            chunk("n", "thought", r"\ud83d"),
            chunk("n", "thought", "e").replace("}}}}", r#"},"_meta":{}}}}"#),
            chunk("n", "thought", "f").replace(r#""s""#, r#""t""#),
            chunk("n", "thought", "g").replace("2.0", "1.0"),
            chunk("n", "thought", "h"),
            chunk("m", "message", "i"),
            "agent_message_chunk".to_owned(),
        ] {
            assert_eq!(pieces.read(said.as_bytes()), Piece::of_line(said.as_bytes()), "{said}");
        }
        let known = |pieces: &Pieces, line: &str| {
            pieces.known.as_ref().is_some_and(|known| known.shape.strings(line.as_bytes()).is_some())
        };
        assert!(known(&pieces, &chunk("n", "thought", "another")), "a shape is known, and used");
        assert!(!known(&pieces, &chunk("m", "message", "another")));
    }

    #[test]
    fn what_is_not_just_that_is_read_member_by_member() {
        for update in [
            r#"{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"x"}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"image","text":"x"}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\ud83d"}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":null}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","content":["text","x"]}"#,
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"},"_meta":{"a":1}}"#,
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"},"messageId":5}"#,
            r#"["agent_message_chunk",null,{"type":"text","text":"x"}]"#,
        ] {
            assert_eq!(Piece::of_line(line(update).as_bytes()), None, "{update}");
        }
        let update = r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}"#;
        for other in [
            line(update).replace("session/update", "_x/update"),
            line(update).replace(r#""method""#, r#""id":1,"method""#),
            line(update).replace(r#""method""#, r#""id":null,"method""#),
            line(update).replace(r#""jsonrpc":"2.0","#, ""),
            line(update).replace(r#""2.0""#, r#""1.0""#),
            line(update).replace(r#""method""#, r#""error":{},"method""#),
            line(update).replace(r#""params":{"sessionId":"s","update":"#, r#""params":["s","#).replace("}}}}", "}}]}"),
            format!("[{}]", line(update)),
        ] {
            assert_eq!(Piece::of_line(other.as_bytes()), None, "{other}");
        }
    }
}
