//! JSON-RPC 2.0 as ACP speaks it: the envelope of a line and the lines we write.
//!
//! Owns the difference between a request, a notification and a response, and the type of an id. Keeps: an id goes
//! back with the JSON type and digits it came with (`0`, `"0"` and `null` are three ids); bodies stay raw text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// The id of a request. Numbers keep their digits, so that `1.0` is answered as `1.0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Id {
    /// `null`: legal in ACP v1.
    Null,
    /// A JSON number, as it was written.
    Number(Box<str>),
    /// A JSON string, decoded.
    String(Box<str>),
}

impl Id {
    /// The id of a request that diglot itself sends.
    #[must_use]
    pub fn number(n: u64) -> Self {
        Self::Number(n.to_string().into_boxed_str())
    }

    /// The number of an id that diglot itself gave out; `None` for every other id.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        match self {
            Self::Number(text) => text.parse().ok(),
            Self::Null | Self::String(_) => None,
        }
    }

    /// Reads an id from its JSON text; `None` when it is neither a string, a number nor `null`.
    #[must_use]
    pub fn from_raw(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        match text.as_bytes().first()? {
            b'n' => Some(Self::Null),
            b'"' => serde_json::from_str::<String>(text).ok().map(|s| Self::String(s.into_boxed_str())),
            b'-' | b'0'..=b'9' => Some(Self::Number(text.into())),
            _ => None,
        }
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::String(s) => serializer.serialize_str(s),
            Self::Number(digits) => {
                // A number token that came off the wire is valid JSON, so this only re-reads it.
                let raw: &RawValue = serde_json::from_str(digits).map_err(serde::ser::Error::custom)?;
                raw.serialize(serializer)
            }
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Number(digits) => f.write_str(digits),
            Self::String(s) => write!(f, "{s:?}"),
        }
    }
}

/// One line of a JSON-RPC wire, its bodies still raw.
#[derive(Debug)]
pub enum Message<'a> {
    /// Wants exactly one response.
    Request {
        /// Goes back on the response.
        id: Id,
        /// The method's name.
        method: Cow<'a, str>,
        /// Absent when the line had none.
        params: Option<&'a RawValue>,
    },
    /// Is never answered.
    Notification {
        /// The method's name.
        method: Cow<'a, str>,
        /// Absent when the line had none.
        params: Option<&'a RawValue>,
    },
    /// Answers a request of ours.
    Response {
        /// The id we gave out.
        id: Id,
        /// `result`, or the error in its place.
        outcome: Result<&'a RawValue, ErrorObject>,
    },
}

/// The `error` member of a response, as far as diglot reads it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ErrorObject {
    /// JSON-RPC's or ACP's error code.
    #[serde(default)]
    pub code: i64,
    /// For a person.
    #[serde(default)]
    pub message: String,
}

/// Why a line is not a message. Carries what JSON-RPC wants answered to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not JSON at all: answered with -32700 and the id `null`.
    #[error("the line is not JSON: {0}")]
    NotJson(String),
    /// An array. ACP has no batches (acp.md, section 5, rule 7).
    #[error("batches are not part of ACP; send one request per line")]
    Batch,
    /// JSON, but not a JSON-RPC object.
    #[error("the line must be a JSON-RPC object; {0}")]
    NotAMessage(String),
    /// A JSON-RPC object whose members do not fit; the id is known.
    #[error("{problem}")]
    Invalid {
        /// The id to answer under, if there was a usable one.
        id: Option<Id>,
        /// What is wrong, and what is expected.
        problem: String,
    },
}

/// Tells an absent member from one that is `null`.
struct Member<'a>(&'a RawValue);

struct Envelope<'a> {
    jsonrpc: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
    method: Option<&'a RawValue>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Member<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(Member)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Envelope<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON-RPC object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut e = Envelope { jsonrpc: None, id: None, method: None, params: None, result: None, error: None };
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    let slot = match &*key {
                        "jsonrpc" => &mut e.jsonrpc,
                        "id" => &mut e.id,
                        "method" => &mut e.method,
                        "params" => &mut e.params,
                        "result" => &mut e.result,
                        "error" => &mut e.error,
                        _ => {
                            map.next_value::<de::IgnoredAny>()?;
                            continue;
                        }
                    };
                    // A repeated member: the last one counts, as in every common parser.
                    *slot = Some(map.next_value::<Member<'de>>()?.0);
                }
                Ok(e)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

fn non_null(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|r| r.get() != "null")
}

impl<'a> Message<'a> {
    /// Reads one line.
    ///
    /// # Errors
    /// [`Malformed`] says what JSON-RPC wants answered.
    pub fn parse(line: &'a [u8]) -> Result<Self, Malformed> {
        let first = line.iter().find(|b| !b.is_ascii_whitespace());
        if first != Some(&b'{') {
            return Err(match serde_json::from_slice::<&RawValue>(line) {
                Err(e) => Malformed::NotJson(e.to_string()),
                Ok(_) if first == Some(&b'[') => Malformed::Batch,
                Ok(raw) => Malformed::NotAMessage(format!("found {}", json_kind(raw))),
            });
        }
        let e: Envelope<'a> = serde_json::from_slice(line).map_err(|e| Malformed::NotJson(e.to_string()))?;
        let id = match e.id {
            None => None,
            Some(raw) => match Id::from_raw(raw) {
                Some(id) => Some(id),
                None => {
                    return Err(Malformed::Invalid {
                        id: None,
                        problem: format!("`id` must be a string, a number or null; found {}", json_kind(raw)),
                    });
                }
            },
        };
        let invalid = |problem: String| Malformed::Invalid { id: id.clone(), problem };
        let envelope = match e.jsonrpc.map(RawValue::get) {
            Some("\"2.0\"") => None,
            None => Some("`jsonrpc` is missing; every message needs `\"jsonrpc\":\"2.0\"`"),
            Some(_) => Some("`jsonrpc` must be the string \"2.0\""),
        };
        let Some(raw) = e.method else {
            let Some(id) = id else {
                return Err(invalid(envelope.unwrap_or(
                    "a message needs `method` (request, notification) or `id` with `result` or `error` (response)",
                ).to_owned()));
            };
            // Whatever has an id and no method is meant as an answer: whoever waits for it is told that it is none, and
            // nothing is answered to it. An error wins over a result beside it; `result: null` alone is a result.
            let no_answer = |problem: &str| Err(ErrorObject { code: 0, message: problem.to_owned() });
            let outcome = match (envelope, non_null(e.error), e.result) {
                (Some(problem), ..) => no_answer(problem),
                (None, Some(raw), _) => Err(serde_json::from_str(raw.get())
                    .unwrap_or_else(|_| ErrorObject { code: 0, message: raw.get().chars().take(200).collect() })),
                (None, None, Some(raw)) => Ok(raw),
                (None, None, None) => no_answer("the answer has neither `result` nor `error`"),
            };
            return Ok(Message::Response { id, outcome });
        };
        if let Some(problem) = envelope {
            return Err(invalid(problem.to_owned()));
        }
        let method: Cow<'a, str> =
            borrowed_str(raw).ok_or_else(|| invalid(format!("`method` must be a string; found {}", json_kind(raw))))?;
        Ok(match id {
            Some(id) => Message::Request { id, method, params: e.params },
            None => Message::Notification { method, params: e.params },
        })
    }
}

/// Reads a JSON string; borrows when it holds no escape.
#[must_use]
pub fn borrowed_str(raw: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Borrowed<'_>>(raw.get()).ok().map(|b| b.0)
}

/// Names the JSON type of a value, for messages: `an object`, `a string` …
#[must_use]
pub fn json_kind(raw: &RawValue) -> &'static str {
    match raw.get().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// An error answer: the code, what a person reads, and `data` for a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RpcError {
    /// One of [`codes`].
    pub code: i64,
    /// For a person: what is wrong, and what to do next.
    pub message: String,
    /// For a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<serde_json::Value>,
}

impl RpcError {
    /// An error without `data`.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Adds `data`.
    #[must_use]
    pub fn with_data(mut self, data: serde_json::Value) -> Self {
        self.data = Some(data);
        self
    }

    /// -32602 with a message that names the position, what was found and what is expected.
    #[must_use]
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(codes::INVALID_PARAMS, message)
    }
}

impl From<&Malformed> for RpcError {
    fn from(m: &Malformed) -> Self {
        let code = match m {
            Malformed::NotJson(_) => codes::PARSE_ERROR,
            Malformed::Batch | Malformed::NotAMessage(_) | Malformed::Invalid { .. } => codes::INVALID_REQUEST,
        };
        Self::new(code, m.to_string())
    }
}

/// JSON-RPC's and ACP's error codes (acp.md, section 2).
pub mod codes {
    /// The line is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// JSON, but not a request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// Unknown method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Parameters that do not fit.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Something failed on this side or beyond.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// The request was withdrawn.
    pub const REQUEST_CANCELLED: i64 = -32800;
    /// No credentials.
    pub const AUTH_REQUIRED: i64 = -32000;
    /// Unknown session or file.
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
}

/// Writes a value as one JSON line without the LF.
pub fn to_line<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut line = Vec::with_capacity(256);
    // Our own types serialise to objects with string keys and finite numbers, which cannot fail into a `Vec`.
    if serde_json::to_writer(&mut line, value).is_err() {
        line.clear();
    }
    line
}

#[derive(Serialize)]
struct Outgoing<'a, P: ?Sized, R: ?Sized> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a P>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RpcError>,
}

/// A request line.
#[must_use]
pub fn request<P: Serialize + ?Sized>(id: &Id, method: &str, params: &P) -> Vec<u8> {
    to_line(&Outgoing::<P, ()> {
        jsonrpc: "2.0",
        id: Some(id),
        method: Some(method),
        params: Some(params),
        result: None,
        error: None,
    })
}

/// A notification line.
#[must_use]
pub fn notification<P: Serialize + ?Sized>(method: &str, params: &P) -> Vec<u8> {
    to_line(&Outgoing::<P, ()> {
        jsonrpc: "2.0",
        id: None,
        method: Some(method),
        params: Some(params),
        result: None,
        error: None,
    })
}

/// A successful response line.
#[must_use]
pub fn response<R: Serialize + ?Sized>(id: &Id, result: &R) -> Vec<u8> {
    to_line(&Outgoing::<(), R> {
        jsonrpc: "2.0",
        id: Some(id),
        method: None,
        params: None,
        result: Some(result),
        error: None,
    })
}

/// An error response line.
#[must_use]
pub fn error(id: &Id, error: &RpcError) -> Vec<u8> {
    to_line(&Outgoing::<(), ()> {
        jsonrpc: "2.0",
        id: Some(id),
        method: None,
        params: None,
        result: None,
        error: Some(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(line: &str) -> Id {
        match Message::parse(line.as_bytes()) {
            Ok(Message::Request { id, .. }) => id,
            other => panic!("not a request: {other:?}"),
        }
    }

    #[test]
    fn ids_go_back_with_their_json_type() {
        for raw in ["0", "\"0\"", "null", "-7", "1.50", "18446744073709551616", "\"a\\u2028\\\"\""] {
            let id = id_of(&format!(r#"{{"jsonrpc":"2.0","id":{raw},"method":"x"}}"#));
            let answer: serde_json::Value = serde_json::from_slice(&response(&id, &())).unwrap_or_default();
            let text = String::from_utf8_lossy(&response(&id, &())).into_owned();
            if raw.starts_with('"') {
                assert_eq!(answer["id"], serde_json::from_str::<serde_json::Value>(raw).unwrap_or_default());
            } else {
                assert!(text.contains(&format!("\"id\":{raw},")), "{text}");
            }
        }
        assert_ne!(
            id_of(r#"{"jsonrpc":"2.0","id":0,"method":"x"}"#),
            id_of(r#"{"jsonrpc":"2.0","id":"0","method":"x"}"#)
        );
    }

    #[test]
    fn what_is_not_a_message_is_told_apart() {
        let code = |line: &str| match Message::parse(line.as_bytes()) {
            Err(m) => RpcError::from(&m).code,
            Ok(m) => panic!("{m:?}"),
        };
        assert_eq!(code("{not json"), codes::PARSE_ERROR);
        assert_eq!(code("nonsense"), codes::PARSE_ERROR);
        assert_eq!(code("[{}]"), codes::INVALID_REQUEST);
        assert_eq!(code("7"), codes::INVALID_REQUEST);
        assert_eq!(code(r#"{"id":1,"method":"x"}"#), codes::INVALID_REQUEST);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#), codes::INVALID_REQUEST);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":5}"#), codes::INVALID_REQUEST);
        assert_eq!(code(r#"{"jsonrpc":"2.0"}"#), codes::INVALID_REQUEST);
    }

    #[test]
    fn what_has_an_id_and_no_method_is_an_answer_even_if_a_broken_one() {
        for line in
            [r#"{"jsonrpc":"2.0","id":1}"#, r#"{"id":1,"result":{}}"#, r#"{"jsonrpc":"1.0","id":1,"result":{}}"#]
        {
            let message = Message::parse(line.as_bytes());
            assert!(matches!(message, Ok(Message::Response { outcome: Err(_), .. })), "{line}: {message:?}");
        }
    }

    #[test]
    fn a_null_result_is_a_result_and_an_error_wins() {
        let parse = |line: &'static str| Message::parse(line.as_bytes());
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","id":1,"result":null}"#),
            Ok(Message::Response { outcome: Ok(_), .. })
        ));
        assert!(matches!(
            parse(r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":-32800,"message":"x"}}"#),
            Ok(Message::Response { outcome: Err(ErrorObject { code: -32800, .. }), .. })
        ));
    }
}
