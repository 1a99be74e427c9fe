//! Structured output: `--json-schema` and `initialize.jsonSchema`.
//!
//! Keeps: the answer is taken only if it meets the schema; if it does not, the agent is told what is wrong and may mend it a
//! few times, in the same turn of the host; else the turn fails as Claude's does.

use serde_json::Value;

use super::ClaudeOverAcp;
use super::finish::Finish;
use super::stream::RESULT_LIMIT;
use crate::translate::Actions;
use crate::wire::acp_client::PromptBlock;

/// How often the agent may mend its answer.
const MENDS: u32 = 3;

/// Bytes of an answer in which a value is looked for.
const ANSWER_LIMIT: usize = 8 * 1024 * 1024;

impl ClaudeOverAcp {
    /// How many bytes of an answer are kept until its end: those that `result` repeats, or those in which a value may stand.
    pub(super) fn answer_kept(&self) -> usize {
        if self.host.json_schema.is_some() { ANSWER_LIMIT } else { RESULT_LIMIT }
    }

    /// What the agent is told before its first prompt.
    pub(super) fn schema_instruction(&self) -> Option<String> {
        self.host.json_schema.as_ref().map(|schema| {
            format!(
                "When your work is done, end your answer with one JSON value that meets this JSON schema, in a fenced block marked \
                 json, and write nothing after it.\n\n{schema}"
            )
        })
    }

    /// Checks the answer; true: the agent was asked to mend it, and the turn goes on.
    pub(super) fn mend_structured_output(&mut self, out: &mut Actions) -> bool {
        let Some(schema) = self.host.json_schema.clone() else { return false };
        let Some(turn) = &mut self.turn else { return false };
        if turn.interrupted
            || turn.structured.is_some()
            || !matches!(&turn.finish, Some(Finish::Stop(why)) if why == "end_turn")
        {
            return false;
        }
        let value = match turn.answer.whole() {
            Some(text) => value_in(&text),
            None => Err(format!("the answer is longer than {ANSWER_LIMIT} bytes")),
        };
        let problem = match value {
            Err(problem) => problem,
            Ok(value) => match problem(&schema, &value) {
                None => {
                    turn.structured = Some(value);
                    return false;
                }
                Some(problem) => problem,
            },
        };
        if turn.mended >= MENDS {
            turn.finish = Some(Finish::NoSchema(format!(
                "Failed to provide valid structured output after {} attempts: {problem}",
                MENDS + 1
            )));
            return false;
        }
        turn.mended += 1;
        turn.finish = None;
        turn.blocks = vec![PromptBlock::Text {
            text: format!(
                "Your answer does not meet the JSON schema: {problem}. Answer again with only one JSON value that meets this \
                 schema, in a fenced block marked json.\n\n{schema}"
            ),
        }];
        self.send_prompt(out);
        true
    }
}

/// Under this name the schema is known to the validator; it is shown to nobody.
const SCHEMA_URL: &str = "diglot:///schema";

/// What is wrong with a value; `None`: nothing. A schema that refers to another document is not valid here: nothing is loaded
/// from files or the network on behalf of a host's schema.
fn problem(schema: &Value, value: &Value) -> Option<String> {
    let mut compiler = boon::Compiler::new();
    compiler.use_loader(Box::new(NoLoader));
    let mut schemas = boon::Schemas::new();
    let compiled = match compiler.add_resource(SCHEMA_URL, schema.clone()) {
        Ok(()) => compiler.compile(SCHEMA_URL, &mut schemas),
        Err(error) => Err(error),
    };
    match compiled {
        Ok(index) => schemas.validate(value, index).err().map(|error| first_cause(&error)),
        Err(error) => Some(format!("the schema itself is not valid: {error:#}")),
    }
}

/// The first thing that is wrong, and where in the value.
fn first_cause(error: &boon::ValidationError<'_, '_>) -> String {
    match error.causes.first() {
        Some(cause) => first_cause(cause),
        None => format!("{} at {:?}", error.kind, error.instance_location.to_string()),
    }
}

/// Loads nothing.
struct NoLoader;

impl boon::UrlLoader for NoLoader {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("{url} is another document, which is not loaded; put it below `$defs`").into())
    }
}

/// The value that an answer ends with, or what is wrong. The line that carries it has the answer's text beside it, and a host
/// reads no line that is longer than it expects.
fn value_in(text: &str) -> Result<Value, String> {
    let value = last_json(text).ok_or("no JSON was found in it")?;
    match value.to_string().len() {
        length if length > RESULT_LIMIT => {
            Err(format!("the JSON value is {length} bytes long, and no more than {RESULT_LIMIT} can be handed on"))
        }
        _ => Ok(value),
    }
}

/// The last JSON object or array of a text.
fn last_json(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text.trim()) {
        return Some(value);
    }
    // From each opening brace, the outermost first; the last value that parses counts.
    let mut found = None;
    let mut at = 0;
    while let Some(offset) = text[at..].find(['{', '[']) {
        let start = at + offset;
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                at = start + values.byte_offset();
                found = Some(value);
            }
            _ => at = start + 1,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_last_value_counts_wherever_it_stands() {
        assert_eq!(last_json("{\"a\":1}"), Some(json!({"a": 1})));
        assert_eq!(
            last_json("first {\"a\":1}, then\n```json\n{\"a\": [1, {\"b\": 2}]}\n```"),
            Some(json!({"a": [1, {"b": 2}]}))
        );
        assert_eq!(last_json("[x] and {nothing}"), None);
    }

    #[test]
    fn a_value_longer_than_can_be_handed_on_is_refused_whole() {
        let items = vec!["x".repeat(1000); 500];
        let told = value_in(&json!(items).to_string());
        assert!(told.as_ref().is_err_and(|told| told.contains("bytes long")), "{told:?}");
        assert_eq!(value_in(&format!("{} {{\"a\":1}}", "words ".repeat(100_000))), Ok(json!({"a": 1})));
    }

    #[test]
    fn a_value_that_does_not_meet_the_schema_is_told_what_is_wrong() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "number"}}});
        assert_eq!(problem(&schema, &json!({"a": 1})), None);
        assert!(problem(&schema, &json!({})).is_some_and(|p| p.contains('a')));
        assert!(problem(&json!({"type": 7}), &json!({})).is_some_and(|p| p.contains("schema")));
        let deep = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$id": "answer",
            "properties": {"list": {"items": {"$ref": "#/definitions/word"}}},
            "definitions": {"word": {"type": "string", "pattern": "^[a-z]+$"}},
        });
        assert_eq!(problem(&deep, &json!({"list": ["a", "b"]})), None);
        assert!(problem(&deep, &json!({"list": ["a", 7]})).is_some_and(|p| p.contains("/list/1")));
    }

    #[test]
    fn a_schema_loads_no_other_document() {
        for place in ["file:///etc/hostname", "https://example.com/schema.json"] {
            let told = problem(&json!({"$ref": place}), &json!({}));
            assert!(told.as_ref().is_some_and(|p| p.contains("not loaded")), "{told:?}");
        }
    }
}
