//! Why something failed, as a JSON-RPC error: code, message, what to do next.
//!
//! Owns `mappings/errors.toml`. Every reason has an answer, because the last rule matches everything. The code -32000, on
//! which editors offer a login, is given only where there are no credentials at all.

use serde::Deserialize;

use super::template::one_line_of;
use super::{MappingError, Source};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawErrors {
    #[serde(default)]
    error: Vec<RawError>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawError {
    reason: Option<String>,
    status: Option<RawStatus>,
    code: i32,
    message: String,
    hint: String,
}

/// A number, or one of the words.
#[derive(Debug, Clone)]
enum RawStatus {
    Number(i64),
    Word(String),
}

impl<'de> Deserialize<'de> for RawStatus {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = RawStatus;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an HTTP status, \"4xx\", \"5xx\" or \"none\"")
            }
            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<RawStatus, E> {
                Ok(RawStatus::Number(number))
            }
            // JSON, which the build makes of TOML, tells positive numbers so.
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<RawStatus, E> {
                Ok(RawStatus::Number(i64::try_from(number).unwrap_or(i64::MAX)))
            }
            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<RawStatus, E> {
                Ok(RawStatus::Word(word.to_owned()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Any,
    None,
    Exactly(u16),
    /// The hundred: 4 or 5.
    Class(u16),
}

impl Status {
    fn matches(self, found: Option<u16>) -> bool {
        match self {
            Self::Any => true,
            Self::None => found.is_none(),
            Self::Exactly(wanted) => found == Some(wanted),
            Self::Class(hundred) => found.is_some_and(|status| status / 100 == hundred),
        }
    }
}

#[derive(Debug, Clone)]
struct Rule {
    reason: Option<String>,
    status: Status,
    code: i32,
    message: String,
    hint: String,
}

/// The rules, in the order they are tried.
#[derive(Debug, Clone)]
pub struct Errors {
    rules: Vec<Rule>,
}

/// How much of what the agent said a message repeats, in characters.
pub const SAID_CHARS: usize = 2000;

/// What to say about one failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorRow<'a> {
    /// The JSON-RPC code.
    pub code: i32,
    /// The reason, for `data.reason`.
    pub reason: &'a str,
    /// How the message begins: lower case, no full stop.
    pub message: &'a str,
    /// What to do next, for `data.hint`.
    pub hint: &'a str,
}

impl ErrorRow<'_> {
    /// The message with what the agent said behind it, as one line: `the model's API failed: 500 …`. What was said is cut
    /// to [`SAID_CHARS`] characters: it often ends in an address where more can be read.
    #[must_use]
    pub fn message_with(&self, said: &str) -> String {
        let said = one_line_of(said, SAID_CHARS);
        if said.is_empty() { self.message.to_owned() } else { format!("{}: {said}", self.message) }
    }
}

impl Errors {
    pub(super) fn read(layers: &[Source<'_>]) -> Result<Self, MappingError> {
        let mut rules = Vec::new();
        for source in layers {
            let raw: RawErrors = source.read()?;
            let checked = raw
                .error
                .into_iter()
                .enumerate()
                .map(|(index, error)| {
                    let status = status(error.status.as_ref()).map_err(|found| {
                        let expected = "an HTTP status, \"4xx\", \"5xx\" or \"none\"";
                        source.wrong(format!("error[{index}].status"), &found, expected)
                    })?;
                    let RawError { reason, code, message, hint, .. } = error;
                    Ok(Rule { reason, status, code, message, hint })
                })
                .collect::<Result<Vec<_>, MappingError>>()?;
            // The user's rules are tried first.
            rules.splice(0..0, checked);
        }
        Ok(Self { rules })
    }

    /// What to say about a failure with this reason and, if the model's API answered, its HTTP status.
    #[must_use]
    pub fn get<'a>(&'a self, reason: &'a str, status: Option<u16>) -> ErrorRow<'a> {
        self.rules
            .iter()
            .find(|rule| rule.reason.as_deref().is_none_or(|wanted| wanted == reason) && rule.status.matches(status))
            .map_or(
                ErrorRow { code: -32603, reason, message: "the agent reports an error", hint: "send the prompt again" },
                |rule| ErrorRow { code: rule.code, reason, message: &rule.message, hint: &rule.hint },
            )
    }

    /// Whether some rule is about this reason by name.
    #[must_use]
    pub fn names(&self, reason: &str) -> bool {
        self.rules.iter().any(|rule| rule.reason.as_deref() == Some(reason))
    }
}

fn status(raw: Option<&RawStatus>) -> Result<Status, String> {
    match raw {
        None => Ok(Status::Any),
        Some(RawStatus::Word(word)) => match word.as_str() {
            "none" => Ok(Status::None),
            "4xx" => Ok(Status::Class(4)),
            "5xx" => Ok(Status::Class(5)),
            other => Err(other.to_owned()),
        },
        Some(RawStatus::Number(number)) => match u16::try_from(*number) {
            Ok(status @ 100..=599) => Ok(Status::Exactly(status)),
            _ => Err(number.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::mappings::Mappings;

    fn code(reason: &str, status: Option<u16>) -> i32 {
        Mappings::builtin().errors.get(reason, status).code
    }

    #[test]
    fn only_missing_credentials_ask_for_a_login() {
        assert_eq!(code("authentication_failed", None), -32000);
        for (reason, status) in [
            ("authentication_failed", Some(401)),
            ("authentication_failed", Some(403)),
            ("billing_error", Some(400)),
            ("rate_limit", Some(429)),
            ("server_error", Some(500)),
            ("server_error", Some(529)),
            ("server_error", None),
            ("invalid_request", Some(413)),
            ("unknown", Some(400)),
            ("agent_died", None),
        ] {
            assert_eq!(code(reason, status), -32603, "{reason} {status:?}");
        }
    }

    #[test]
    fn every_error_kind_of_the_agent_has_words_of_its_own() {
        // SDKAssistantMessageError of 2.1.332; `unknown` has the last rule, `max_output_tokens` is a stop reason.
        let kinds = "authentication_failed oauth_org_not_allowed account_on_hold verification_required billing_error rate_limit \
             overloaded invalid_request model_not_found server_error cloud_credential_error";
        for kind in kinds.split_whitespace() {
            assert!(Mappings::builtin().errors.names(kind), "{kind}");
        }
    }

    #[test]
    fn the_status_tells_failures_of_one_kind_apart() {
        let errors = &Mappings::builtin().errors;
        assert!(errors.get("server_error", None).message.contains("reached"));
        assert!(errors.get("server_error", Some(529)).message.contains("overloaded"));
        assert!(errors.get("server_error", Some(500)).message.contains("failed"));
    }

    #[test]
    fn an_unknown_reason_keeps_its_name() {
        let row = Mappings::builtin().errors.get("brand_new", Some(418));
        assert_eq!((row.code, row.reason), (-32603, "brand_new"));
        assert_eq!(row.message_with(" API\nError "), "the agent reports an error: API Error");
        assert_eq!(row.message_with(""), "the agent reports an error");
    }

    #[test]
    fn messages_are_lower_case_and_say_what_to_do_next() {
        for rule in &Mappings::builtin().errors.rules {
            assert!(rule.message.starts_with(char::is_lowercase), "{}", rule.message);
            assert!(!rule.message.ends_with('.') && !rule.hint.is_empty(), "{}", rule.message);
        }
    }

    #[test]
    fn a_users_rule_is_tried_first_and_a_status_class_matches() {
        let text = "[[error]]\nstatus = \"4xx\"\ncode = -32001\nmessage = \"no\"\nhint = \"ask the gateway\"\n";
        let mappings = Mappings::with_overrides([("errors.toml", text)]).expect("a valid table");
        assert_eq!(mappings.errors.get("rate_limit", Some(429)).code, -32001);
        assert_eq!(mappings.errors.get("rate_limit", Some(529)).code, -32603);
    }

    #[test]
    fn a_wrong_status_is_refused_with_what_is_expected() {
        for status in ["\"3xx\"", "42", "true"] {
            let text = format!("[[error]]\nstatus = {status}\ncode = 1\nmessage = \"m\"\nhint = \"h\"\n");
            let error = Mappings::with_overrides([("errors.toml", text.as_str())]).expect_err("refused").to_string();
            assert!(error.contains("errors.toml") && error.contains("4xx"), "{error}");
        }
    }
}
