//! What went wrong, in ACP's own words.
//!
//! Owns quirks 38 (Gemini 0.61 gives HTTP statuses as codes and JSON as a message; Vibe 3.0, codex-acp 2.6 and others have codes
//! of their own) and 39 (Vibe 3.0: after a login that failed the process fails for ever). Keeps: an editor sees from the code
//! whether a login is what is missing, and from the text how to log in.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::strict;
use crate::mappings::AgentProfile;
use crate::wire::jsonrpc::{Id, RpcError, codes, to_line};

/// An error as the editor gets it.
pub(super) struct Mended {
    pub(super) error: Box<RawValue>,
    /// A login is missing.
    pub(super) is_login: bool,
}

/// The JSON of an error of our own.
pub(super) fn raw(error: &RpcError) -> Box<RawValue> {
    strict::raw(String::from_utf8(to_line(error)).unwrap_or_default())
}

/// A response line with this error.
pub(super) fn answer(id: &Id, error: &RawValue) -> Vec<u8> {
    #[derive(serde::Serialize)]
    struct Line<'a> {
        jsonrpc: &'static str,
        id: &'a Id,
        error: &'a RawValue,
    }
    to_line(&Line { jsonrpc: "2.0", id, error })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Given {
    code: Value,
    message: Value,
    data: Value,
}

/// The agent's error, mended where it is not ACP's.
pub(super) fn mend(profile: &AgentProfile, error: &RawValue) -> Mended {
    let given: Given = serde_json::from_str(error.get()).unwrap_or_default();
    let code = given.code.as_i64();
    let said = given.message.as_str().unwrap_or_default();
    let status = code.filter(|code| (100..600).contains(code));
    let is_login = code == Some(codes::AUTH_REQUIRED) || matches!(status, Some(401 | 403));
    let inner = inner_message(said);
    let hint = profile.acp.login.as_deref().filter(|login| is_login && !said.contains(login));
    let fits = code.is_some() && status.is_none() && given.message.is_string() && inner.is_none() && hint.is_none();
    if fits {
        return Mended { error: error.to_owned(), is_login };
    }
    let text = inner.unwrap_or_else(|| match said {
        "" => format!("{} failed and did not say why", profile.title),
        said => said.to_owned(),
    });
    let text = hint.map_or_else(|| text.clone(), |hint| format!("{text} (to log in: {hint})"));
    let code = match (status, code) {
        (Some(401 | 403), _) => codes::AUTH_REQUIRED,
        (Some(_), _) | (None, None) => codes::INTERNAL_ERROR,
        (None, Some(code)) => code,
    };
    let mut mended = RpcError::new(code, text);
    mended.data = match (status, given.data) {
        (None, Value::Null) => None,
        (None, data) => Some(data),
        (Some(status), Value::Null) => Some(json!({ "status": status })),
        (Some(status), data) => Some(json!({ "status": status, "data": data })),
    };
    Mended { error: raw(&mended), is_login }
}

/// The message inside of a message that is JSON itself: `{"error":{"message":"…"}}`.
fn inner_message(said: &str) -> Option<String> {
    let said = said.trim();
    if !said.starts_with('{') {
        return None;
    }
    let value: Value = serde_json::from_str(said).ok()?;
    let error = value.get("error").unwrap_or(&value);
    let message = error.get("message").or(Some(error))?.as_str()?.trim();
    (!message.is_empty()).then(|| message.to_owned())
}
