//! The judges of a conversation: every line that diglot writes to the editor passes the schema, and the whole passes the
//! rules that hold everywhere.
//!
//! Owns the reading of lines for the rules. Keeps: nothing of the code under test is used to read them.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::rules::Rules;
use super::schema::{self, Body};

/// What was found wrong so far.
#[derive(Default)]
pub(crate) struct Judge {
    rules: Rules,
    violations: Vec<String>,
    /// Bodies of a form that was judged before pass.
    pub(crate) by_form: bool,
}

/// A JSON-RPC line, read independently of the code under test.
#[derive(Debug)]
pub(crate) enum Rpc {
    Request {
        id: String,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    Response {
        id: String,
        outcome: Result<Value, Value>,
    },
    /// No message; an error under this id is owed.
    Garbage {
        id: String,
    },
}

type Members<'a> = BTreeMap<String, &'a RawValue>;

/// The id as a text that keeps its JSON type: `"1"`, `1`, `1.0` and `null` differ.
fn id_key(raw: &RawValue) -> Option<String> {
    match raw.get().as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(raw.get()).ok().map(|s| format!("{s:?}")),
        b'n' | b'-' | b'0'..=b'9' => Some(raw.get().to_owned()),
        _ => None,
    }
}

impl Rpc {
    pub(crate) fn read(line: &[u8]) -> Self {
        let null = || Self::Garbage { id: "null".to_owned() };
        let Ok(members) = serde_json::from_slice::<Members<'_>>(line) else { return null() };
        let value = |name: &str| members.get(name).map(|r| serde_json::from_str(r.get()).unwrap_or(Value::Null));
        let id = match members.get("id") {
            None => None,
            Some(raw) => match id_key(raw) {
                Some(id) => Some(id),
                None => return null(),
            },
        };
        // With an id and without a method it is meant as an answer, and an answer is never answered.
        if let (Some(id), false) = (&id, members.contains_key("method")) {
            let whole = members.get("jsonrpc").map(|r| r.get()) == Some("\"2.0\"");
            let outcome = match (whole, value("error").filter(|e| !e.is_null()), value("result")) {
                (true, None, Some(result)) => Ok(result),
                (_, error, _) => Err(error.unwrap_or(Value::Null)),
            };
            return Self::Response { id: id.clone(), outcome };
        }
        let garbage = || Self::Garbage { id: id.clone().unwrap_or_else(|| "null".to_owned()) };
        if members.get("jsonrpc").map(|r| r.get()) != Some("\"2.0\"") {
            return garbage();
        }
        match (value("method"), id.clone()) {
            (Some(Value::String(method)), Some(id)) => {
                Self::Request { id, method, params: value("params").unwrap_or(Value::Null) }
            }
            (Some(Value::String(method)), None) => {
                Self::Notification { method, params: value("params").unwrap_or(Value::Null) }
            }
            (Some(_), _) => garbage(),
            (None, None) => null(),
            (None, Some(id)) => match (value("error").filter(|e| !e.is_null()), value("result")) {
                (Some(error), _) => Self::Response { id, outcome: Err(error) },
                (None, Some(result)) => Self::Response { id, outcome: Ok(result) },
                (None, None) => null(),
            },
        }
    }
}

impl Judge {
    /// A new event begins.
    pub(crate) fn event(&mut self) {
        self.rules.event();
    }

    /// What was found wrong.
    pub(crate) fn violations(&self) -> Vec<String> {
        let mut all = self.violations.clone();
        all.extend(self.rules.violations().iter().cloned());
        all
    }

    /// Something that the driver itself found wrong.
    pub(crate) fn broken(&mut self, what: String) {
        self.violations.push(what);
    }

    /// The end of a conversation that must have come to rest: what is still open.
    pub(crate) fn unsettled(&self) -> Vec<String> {
        self.rules.unsettled()
    }

    pub(crate) fn near_in(&mut self, line: &[u8]) {
        self.rules.near_in(&Rpc::read(line));
    }

    pub(crate) fn near_closed(&mut self) {
        self.rules.near_closed();
    }

    pub(crate) fn session_made(&mut self, number: u32, id: &str) {
        self.rules.session_made(number, id);
    }

    pub(crate) fn far_started(&mut self, number: u32) {
        self.rules.far_started(number);
    }

    pub(crate) fn far_in(&mut self, number: u32, line: &[u8]) {
        if let Ok(raw) = serde_json::from_slice::<&RawValue>(line) {
            self.rules.far_in(number, &as_deep_as_can_be(raw, 2));
        }
    }

    pub(crate) fn far_ends(&mut self, number: u32) {
        self.rules.far_ends(number);
    }

    pub(crate) fn far_closed(&mut self, number: u32) {
        self.rules.far_closed(number);
    }

    pub(crate) fn far_out(&mut self, number: u32, line: &[u8]) {
        match one_line(line) {
            Ok(value) => self.rules.far_out(number, &value),
            Err(e) => self.violations.push(format!("toward the agent: {e}: {}", show(line))),
        }
    }

    /// Judges a line that diglot writes to the editor.
    pub(crate) fn near_out(&mut self, line: &[u8]) {
        if let Err(e) = one_line(line) {
            self.violations.push(format!("toward the editor: {e}: {}", show(line)));
            return;
        }
        let message = Rpc::read(line);
        let judge = if self.by_form { schema::problem_of_form } else { schema::problem };
        let problem = match &message {
            Rpc::Request { method, params, .. } | Rpc::Notification { method, params } => {
                judge(method, Body::Params, params)
            }
            Rpc::Response { outcome: Err(error), .. } => judge("", Body::Error, error),
            Rpc::Response { id, outcome: Ok(result) } => {
                // Where several wait under one id, it must be right for one of them.
                let methods = self.rules.methods_of(id);
                let problems: Option<Vec<_>> = methods.iter().map(|m| judge(m, Body::Result, result)).collect();
                problems.map(|p| match p.is_empty() {
                    true => format!("a result under {id}, which no request waits for"),
                    false => p.join("; "),
                })
            }
            Rpc::Garbage { .. } => Some("no JSON-RPC message".to_owned()),
        };
        if let Some(problem) = problem {
            self.violations.push(format!("{problem}: {}", show(line)));
        }
        self.rules.near_out(&message);
    }
}

/// The value; where it is nested too deeply to be read, the members of its first levels.
fn as_deep_as_can_be(raw: &RawValue, levels: u32) -> Value {
    if let Ok(value) = serde_json::from_str(raw.get()) {
        return value;
    }
    let members: Members<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
    if levels == 0 {
        return Value::Null;
    }
    members
        .into_iter()
        .map(|(name, raw)| (name, as_deep_as_can_be(raw, levels - 1)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn one_line(line: &[u8]) -> Result<Value, String> {
    if line.contains(&b'\n') {
        return Err("a line with a line feed in it".into());
    }
    match serde_json::from_slice(line) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("no object".into()),
        Err(e) => Err(e.to_string()),
    }
}

fn show(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.chars().take(400).collect()
}
