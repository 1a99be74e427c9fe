//! The schema judge: every ACP line that diglot writes, as an agent or as a client, held against the protocol's own types (schema 1.20, version 1).
//!
//! Owns the table "which method has which shape". Keeps: a line passes only if the JSON schema made from the crate
//! `agent-client-protocol-schema` accepts it, the crate's types can read it, and nothing of it is lost in them: typed
//! peers drop what they do not know without a word, so a misspelt member would otherwise never be seen.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use agent_client_protocol_schema::v1;
use jsonschema::Validator;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Body {
    /// `params` of a request or notification.
    Params,
    /// `result` of a response.
    Result,
    /// `error` of a response.
    Error,
}

struct Shape {
    validator: Validator,
    /// Reads the value as the crate's type and writes it again.
    again: fn(&Value) -> Result<Value, String>,
}

fn again<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Value, String> {
    let typed: T = serde_json::from_value(value.clone()).map_err(|e| e.to_string())?;
    serde_json::to_value(typed).map_err(|e| e.to_string())
}

fn shape<T: JsonSchema + DeserializeOwned + Serialize>() -> Shape {
    let schema = schemars::schema_for!(T).to_value();
    let validator = jsonschema::validator_for(&schema).unwrap_or_else(|e| panic!("the crate's own schema: {e}"));
    Shape { validator, again: again::<T> }
}

type Table = HashMap<(&'static str, Body), Shape>;

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        HashMap::from([
            // What the agent answers.
            (("initialize", Body::Result), shape::<v1::InitializeResponse>()),
            (("authenticate", Body::Result), shape::<v1::AuthenticateResponse>()),
            (("session/new", Body::Result), shape::<v1::NewSessionResponse>()),
            (("session/load", Body::Result), shape::<v1::LoadSessionResponse>()),
            (("session/set_mode", Body::Result), shape::<v1::SetSessionModeResponse>()),
            (("session/prompt", Body::Result), shape::<v1::PromptResponse>()),
            (("", Body::Error), shape::<v1::Error>()),
            // What the agent says and asks.
            (("session/update", Body::Params), shape::<v1::SessionNotification>()),
            (("session/request_permission", Body::Params), shape::<v1::RequestPermissionRequest>()),
            (("$/cancel_request", Body::Params), shape::<v1::CancelRequestNotification>()),
            // What a client asks, says and answers.
            (("client initialize", Body::Params), shape::<v1::InitializeRequest>()),
            (("client authenticate", Body::Params), shape::<v1::AuthenticateRequest>()),
            (("client session/new", Body::Params), shape::<v1::NewSessionRequest>()),
            (("client session/load", Body::Params), shape::<v1::LoadSessionRequest>()),
            (("client session/resume", Body::Params), shape::<v1::ResumeSessionRequest>()),
            // Not stable yet, and the same as the one before.
            (("client session/fork", Body::Params), shape::<v1::ResumeSessionRequest>()),
            (("client session/close", Body::Params), shape::<v1::CloseSessionRequest>()),
            (("client session/prompt", Body::Params), shape::<v1::PromptRequest>()),
            (("client session/cancel", Body::Params), shape::<v1::CancelNotification>()),
            (("client session/set_mode", Body::Params), shape::<v1::SetSessionModeRequest>()),
            (("client session/set_config_option", Body::Params), shape::<v1::SetSessionConfigOptionRequest>()),
            (("client session/request_permission", Body::Result), shape::<v1::RequestPermissionResponse>()),
        ])
    })
}

/// What is wrong with a body; `None` when nothing is.
pub(crate) fn problem(method: &str, body: Body, value: &Value) -> Option<String> {
    let method = if body == Body::Error { "" } else { method };
    let Some(shape) = table().iter().find(|((m, b), _)| *m == method && *b == body).map(|(_, s)| s) else {
        return Some(format!("{method} ({body:?}) is no word that diglot may write"));
    };
    if let Err(e) = shape.validator.validate(value) {
        return Some(format!("{method} ({body:?}): the JSON schema refuses it at {}: {e}", e.instance_path()));
    }
    match (shape.again)(value) {
        Err(e) => Some(format!("{method} ({body:?}): the types cannot read it: {e}")),
        Ok(again) => lost(value, &again, &mut String::new()).map(|at| format!("{method} ({body:?}): lost at {at}")),
    }
}

/// What is wrong with a body that another program wrote and diglot passes on: only what the schema refuses. What has no schema
/// here passes.
pub(crate) fn unreadable(method: &str, body: Body, value: &Value) -> Option<String> {
    let method = if body == Body::Error { "" } else { method };
    let (_, shape) = table().iter().find(|((m, b), _)| *m == method && *b == body)?;
    if let Err(e) = shape.validator.validate(value) {
        return Some(format!("{method} ({body:?}): the JSON schema refuses it at {}: {e}", e.instance_path()));
    }
    (shape.again)(value).err().map(|e| format!("{method} ({body:?}): the types cannot read it: {e}"))
}

/// The same, once for each form.
pub(crate) fn unreadable_form(method: &str, body: Body, value: &Value) -> Option<String> {
    of_form(unreadable, method, body, value)
}

/// As [`problem`], but what has no schema here passes.
pub(crate) fn strictly(method: &str, body: Body, value: &Value) -> Option<String> {
    let known = table().keys().any(|(m, b)| *m == method && *b == body);
    if known { problem(method, body, value) } else { None }
}

/// The same for a conversation among thousands: bodies of one form are judged once. Two have the same form when they
/// have the same members of the same types, and the same words wherever the protocol has a list of words.
pub(crate) fn problem_of_form(method: &str, body: Body, value: &Value) -> Option<String> {
    of_form(problem, method, body, value)
}

type Judge = fn(&str, Body, &Value) -> Option<String>;

fn of_form(judge: Judge, method: &str, body: Body, value: &Value) -> Option<String> {
    thread_local! {
        static SEEN: RefCell<HashSet<u64>> = RefCell::default();
    }
    let mut hasher = DefaultHasher::new();
    (judge as usize, method, body).hash(&mut hasher);
    form("", value, &mut hasher);
    let form = hasher.finish();
    if SEEN.with_borrow(|seen| seen.contains(&form)) {
        return None;
    }
    let problem = judge(method, body, value);
    if problem.is_none() {
        SEEN.with_borrow_mut(|seen| seen.insert(form));
    }
    problem
}

fn form(key: &str, value: &Value, hasher: &mut DefaultHasher) {
    const WORDS: &[&str] =
        &["sessionUpdate", "type", "kind", "status", "stopReason", "priority", "severity", "currency"];
    match value {
        Value::Null => 0u8.hash(hasher),
        Value::Bool(_) => 1u8.hash(hasher),
        Value::Number(n) => (2u8, n.is_u64(), n.is_i64(), n.as_u64() == Some(0)).hash(hasher),
        Value::String(s) => (3u8, s.is_empty(), if WORDS.contains(&key) { &**s } else { "" }).hash(hasher),
        Value::Array(list) => {
            (4u8, list.len()).hash(hasher);
            for item in list {
                form(key, item, hasher);
            }
        }
        Value::Object(map) => {
            (5u8, map.len()).hash(hasher);
            for (key, value) in map {
                key.hash(hasher);
                form(key, value, hasher);
            }
        }
    }
}

/// The place of the first member that a typed peer does not see.
fn lost(ours: &Value, theirs: &Value, at: &mut String) -> Option<String> {
    let len = at.len();
    let found = match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => a.iter().find_map(|(key, value)| {
            at.push('/');
            at.push_str(key);
            let found = match b.get(key) {
                Some(other) => lost(value, other, at),
                // Said out loud what is meant anyway: typed peers write it shorter.
                None if is_default(key, value) => None,
                None => Some(at.clone()),
            };
            at.truncate(len);
            found
        }),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| {
                at.push_str(&format!("/{i}"));
                let found = lost(a, b, at);
                at.truncate(len);
                found
            })
        }
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
        _ if ours == theirs => None,
        _ => Some(format!("{at}: {ours} became {theirs}")),
    };
    at.truncate(len);
    found
}

fn is_default(key: &str, value: &Value) -> bool {
    match key {
        "kind" => value == "other",
        "status" => value == "pending",
        "content" | "locations" | "mcpServers" => value.as_array().is_some_and(Vec::is_empty),
        _ => value.is_null(),
    }
}
