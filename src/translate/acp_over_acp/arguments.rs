//! Arguments that an agent streams as a call's content.
//!
//! Owns quirk 6 (Kimi 2.1: the text so far each time; CodeBuddy 2.163: the next piece). Keeps: what is only the arguments is
//! never shown as output; when it is whole and the agent says no `rawInput`, it becomes that.

use serde_json::{Map, Value};

/// Longer arguments are not collected; they are not shown all the same.
const LIMIT: usize = 2 * 1024 * 1024;

/// The arguments as far as they came.
#[derive(Debug, Default)]
pub(super) enum Arguments {
    #[default]
    None,
    Partial(String),
    Whole(String),
    TooLong,
}

/// The text of a content that is only text.
fn only_text(content: &Value) -> Option<String> {
    let list = content.as_array().filter(|list| !list.is_empty())?;
    let mut all = String::new();
    for piece in list {
        if piece["type"] != "content" || piece["content"]["type"] != "text" {
            return None;
        }
        all.push_str(piece["content"]["text"].as_str()?);
    }
    Some(all)
}

fn is_empty(input: &Value) -> bool {
    match input {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

impl Arguments {
    /// Takes the content out of `said` if it is (a piece of) the call's arguments; gives true if it was. `input` is what was
    /// known of them before; `first` says that the call is told again from its beginning (which ends the stream).
    pub(super) fn take(&mut self, said: &mut Map<String, Value>, input: Option<&Value>, first: bool) -> bool {
        if first && matches!(self, Self::Partial(_) | Self::TooLong) {
            *self = Self::Whole(String::new());
        }
        let Some(text) = said.get("content").and_then(only_text) else { return false };
        let known = input.is_some_and(|input| !is_empty(input));
        let comes = said.get("rawInput").is_some_and(|input| !is_empty(input));
        let whole = match self {
            _ if text.is_empty() => {
                // Nothing is shown by it, and an empty card is not what it means.
                said.remove("content");
                return true;
            }
            Self::TooLong => {
                said.remove("content");
                return true;
            }
            Self::Whole(whole) => {
                let again = *whole == text;
                if again {
                    said.remove("content");
                }
                return again;
            }
            Self::Partial(so_far) if text.starts_with(so_far.as_str()) => text,
            Self::Partial(so_far) => std::mem::take(so_far) + &text,
            // Only the last piece was sent, together with what all of them say.
            Self::None if !known && comes && text.ends_with('}') && !text.starts_with('{') => text,
            Self::None => {
                let begins = text.trim_start().starts_with('{');
                let is_input = || serde_json::from_str::<Value>(&text).ok().as_ref() == input;
                if !begins || known && !is_input() {
                    return false;
                }
                match serde_json::from_str::<Map<String, Value>>(&text) {
                    Ok(_) => {}
                    Err(error) if error.is_eof() => {}
                    Err(_) => return false,
                }
                text
            }
        };
        said.remove("content");
        *self = if whole.len() > LIMIT {
            Self::TooLong
        } else if let Some(input) = read(&whole) {
            if !known && !comes {
                said.insert("rawInput".into(), input);
            }
            Self::Whole(whole)
        } else {
            Self::Partial(whole)
        };
        true
    }
}

/// The object, if it is whole. One that is not closed is not tried: each piece would cost the length of all.
fn read(text: &str) -> Option<Value> {
    text.trim_end().ends_with('}').then(|| serde_json::from_str(text).ok()).flatten().filter(Value::is_object)
}
