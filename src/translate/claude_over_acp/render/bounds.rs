//! How large a line toward a host gets.
//!
//! Owns the cutting: hosts give up on lines of a mebibyte (stream-json-hosts.md, rule 4), so lengths are counted as the text
//! has in JSON, and a text that was cut says how much is missing. Keeps: a cut shell command ends in a line of its own that
//! no rule about commands can mistake for the rest of it.

use serde_json::{Map, Value};

use crate::wire::text::{escaped, length};

/// What a tool's input may have, as JSON.
pub(crate) const INPUT: usize = 400_000;

/// What a result's text may have, as JSON.
pub(crate) const CONTENT: usize = 400_000;

/// What a result's structured form may have, as JSON.
pub(crate) const STRUCTURED: usize = 300_000;

/// Room for the marker.
const MARKER: usize = 64;

/// Cuts a text to `max` bytes of JSON, the marker included; whether anything was cut.
pub(crate) fn cut(text: &mut String, max: usize) -> bool {
    if text.len() <= max / 6 || length(text) <= max {
        return false;
    }
    let mut room = max.saturating_sub(MARKER);
    let end = text.char_indices().find_map(|(at, c)| match room.checked_sub(escaped(c)) {
        Some(left) => {
            room = left;
            None
        }
        None => Some(at),
    });
    let end = end.unwrap_or(text.len());
    let missing = text.len() - end;
    text.truncate(end);
    text.push_str(&format!("\n[{missing} more bytes left out]"));
    true
}

/// Cuts the texts of an input until it fits; whether anything was cut.
pub(crate) fn input(input: &mut Map<String, Value>) -> bool {
    let size = |input: &Map<String, Value>| serde_json::to_vec(input).map_or(0, |json| json.len());
    if size(input) <= INPUT {
        return false;
    }
    let mut limit = INPUT / 2;
    while limit >= 256 {
        for value in input.values_mut() {
            shorten(value, limit);
        }
        if size(input) <= INPUT {
            return true;
        }
        limit /= 2;
    }
    // Only an enormous number of small members is left: their beginning says as much as any other part.
    input.retain(|_, value| matches!(value, Value::String(_)));
    while size(input) > INPUT {
        let Some(key) = input.keys().next_back().cloned() else { break };
        input.remove(&key);
    }
    true
}

fn shorten(value: &mut Value, limit: usize) {
    match value {
        Value::String(text) => {
            cut(text, limit);
        }
        Value::Array(list) => list.iter_mut().for_each(|value| shorten(value, limit)),
        Value::Object(map) => map.values_mut().for_each(|value| shorten(value, limit)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_is_cut_by_what_it_has_in_json() {
        let mut text = "\u{1}".repeat(10_000);
        assert!(cut(&mut text, 6_064));
        assert_eq!(text, format!("{}\n[9000 more bytes left out]", "\u{1}".repeat(1_000)));
        let mut text = "é\"".repeat(100);
        assert!(!cut(&mut text, 400));
        assert_eq!(text.len(), 300);
    }

    #[test]
    fn an_input_fits_whatever_is_in_it() {
        let long = "x\n".repeat(250_000);
        for value in
            [json!({"a":long,"b":long}), json!({"a":[long, {"b":long}]}), json!({"a":vec![1; 250_000],"b":"kept"})]
        {
            let Value::Object(mut map) = value else { panic!("an object") };
            assert!(input(&mut map));
            assert!(serde_json::to_vec(&map).is_ok_and(|json| json.len() <= INPUT));
            assert!(!map.is_empty());
        }
    }
}
