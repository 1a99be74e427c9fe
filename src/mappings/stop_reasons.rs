//! How the agent's end of a turn becomes a stop reason or an error.
//!
//! Owns `mappings/stop_reasons.toml`. Rules are tried in order and the last one matches everything, so each turn has exactly
//! one end. A stop reason is always one of ACP's five: a client fails the whole response for any other word.

use serde::Deserialize;

use super::{MappingError, Source};

/// What is known of a turn when its `result` has come.
#[derive(Debug, Clone, Copy, Default)]
pub struct StopFacts<'a> {
    /// `result.subtype`.
    pub subtype: &'a str,
    /// `result.terminal_reason`; absent for local commands.
    pub terminal_reason: Option<&'a str>,
    /// `result.stop_reason`: the model's.
    pub stop_reason: Option<&'a str>,
    /// `result.is_error`.
    pub is_error: bool,
    /// `error` of the turn's last assistant message: the kind of an API error.
    pub error: Option<&'a str>,
}

/// How a prompt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop<'a> {
    /// It is answered with this stop reason.
    Reason(&'a str),
    /// It fails; [`Errors`](super::Errors) has the code and the words for this reason.
    Error {
        /// The reason.
        reason: &'a str,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StopWord {
    EndTurn,
    MaxTokens,
    MaxTurnRequests,
    Refusal,
    Cancelled,
}

impl StopWord {
    fn as_str(self) -> &'static str {
        match self {
            Self::EndTurn => "end_turn",
            Self::MaxTokens => "max_tokens",
            Self::MaxTurnRequests => "max_turn_requests",
            Self::Refusal => "refusal",
            Self::Cancelled => "cancelled",
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRules {
    #[serde(default)]
    rule: Vec<Rule>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    error: Option<String>,
    subtype: Option<String>,
    terminal_reason: Option<String>,
    stop_reason: Option<String>,
    is_error: Option<bool>,
    stop: Option<StopWord>,
    #[serde(default)]
    fail: bool,
    reason: Option<String>,
}

/// The rules, in the order they are tried.
#[derive(Debug, Clone)]
pub struct StopReasons {
    rules: Vec<Rule>,
}

impl StopReasons {
    pub(super) fn read(layers: &[Source<'_>]) -> Result<Self, MappingError> {
        let mut rules = Vec::new();
        for source in layers {
            let raw: RawRules = source.read()?;
            for (index, rule) in raw.rule.iter().enumerate() {
                if rule.stop.is_some() == rule.fail {
                    let expected = "either `stop` with a stop reason or `fail = true`";
                    return Err(source.wrong(format!("rule[{index}]"), "both or neither", expected));
                }
            }
            // The user's rules are tried first.
            rules.splice(0..0, raw.rule);
        }
        Ok(Self { rules })
    }

    /// How a turn with these facts ends.
    #[must_use]
    pub fn stop<'a>(&'a self, facts: StopFacts<'a>) -> Stop<'a> {
        for rule in &self.rules {
            if !rule.matches(facts) {
                continue;
            }
            return match rule.stop {
                Some(word) => Stop::Reason(word.as_str()),
                None => Stop::Error {
                    reason: rule.reason.as_deref().or(facts.error).or(facts.terminal_reason).unwrap_or(facts.subtype),
                },
            };
        }
        Stop::Reason(StopWord::EndTurn.as_str())
    }
}

impl Rule {
    fn matches(&self, facts: StopFacts<'_>) -> bool {
        let same =
            |wanted: &Option<String>, found: Option<&str>| wanted.as_deref().is_none_or(|wanted| Some(wanted) == found);
        same(&self.error, facts.error)
            && same(&self.subtype, Some(facts.subtype))
            && same(&self.terminal_reason, facts.terminal_reason)
            && same(&self.stop_reason, facts.stop_reason)
            && self.is_error.is_none_or(|wanted| wanted == facts.is_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings::Mappings;

    type Row = (&'static str, Option<&'static str>, Option<&'static str>, bool, Option<&'static str>);

    fn stop((subtype, terminal_reason, stop_reason, is_error, error): Row) -> Stop<'static> {
        Mappings::builtin().stop_reasons.stop(StopFacts { subtype, terminal_reason, stop_reason, is_error, error })
    }

    #[test]
    fn every_end_that_was_recorded_has_its_meaning() {
        use Stop::{Error, Reason};
        let rows: [(Row, Stop<'static>); 22] = [
            (("success", Some("completed"), Some("end_turn"), false, None), Reason("end_turn")),
            (("success", Some("completed"), Some("pause_turn"), false, None), Reason("end_turn")),
            (("success", Some("completed"), Some("stop_sequence"), false, None), Reason("end_turn")),
            (("success", Some("completed"), Some("tool_use"), false, None), Reason("end_turn")),
            (("success", Some("hook_stopped"), Some("tool_use"), false, None), Reason("end_turn")),
            (("success", None, None, false, None), Reason("end_turn")),
            (("success", Some("aborted_streaming"), None, false, None), Reason("cancelled")),
            (("success", Some("aborted_tools"), Some("tool_use"), false, None), Reason("cancelled")),
            (("error_during_execution", Some("aborted_streaming"), None, true, None), Reason("cancelled")),
            (("error_during_execution", Some("aborted_tools"), Some("tool_use"), true, None), Reason("cancelled")),
            (("error_max_turns", Some("max_turns"), Some("tool_use"), true, None), Reason("max_turn_requests")),
            (("success", Some("api_error"), Some("refusal"), true, Some("invalid_request")), Reason("refusal")),
            (
                ("success", Some("api_error"), Some("stop_sequence"), true, Some("max_output_tokens")),
                Reason("max_tokens"),
            ),
            (
                ("success", Some("api_error"), Some("stop_sequence"), true, Some("rate_limit")),
                Error { reason: "rate_limit" },
            ),
            (
                ("success", Some("api_error"), Some("stop_sequence"), true, Some("authentication_failed")),
                Error { reason: "authentication_failed" },
            ),
            (("success", Some("api_error"), Some("stop_sequence"), true, None), Error { reason: "api_error" }),
            (
                ("success", Some("prompt_too_long"), Some("stop_sequence"), true, Some("invalid_request")),
                Error { reason: "prompt_too_long" },
            ),
            (
                ("success", Some("blocking_limit"), Some("stop_sequence"), true, Some("invalid_request")),
                Error { reason: "prompt_too_long" },
            ),
            (
                ("success", Some("image_error"), Some("stop_sequence"), true, Some("invalid_request")),
                Error { reason: "image_error" },
            ),
            (
                ("error_max_budget_usd", Some("budget_exhausted"), None, true, None),
                Error { reason: "budget_exhausted" },
            ),
            (("error_during_execution", None, None, true, None), Error { reason: "error_during_execution" }),
            (("success", Some("max_turns"), None, true, None), Reason("max_turn_requests")),
        ];
        for (row, expected) in rows {
            assert_eq!(stop(row), expected, "{row:?}");
        }
    }

    #[test]
    fn an_unknown_end_is_an_error_only_when_it_says_so() {
        assert_eq!(stop(("success", Some("brand_new"), None, false, None)), Stop::Reason("end_turn"));
        assert_eq!(stop(("success", Some("brand_new"), None, true, None)), Stop::Error { reason: "brand_new" });
        assert_eq!(stop(("brand_new", None, None, true, None)), Stop::Error { reason: "brand_new" });
    }

    #[test]
    fn a_users_rule_is_tried_first() {
        let text = "[[rule]]\nterminal_reason = \"hook_stopped\"\nstop = \"refusal\"\n";
        let mappings = Mappings::with_overrides([("stop_reasons.toml", text)]).expect("a valid table");
        let facts = StopFacts { subtype: "success", terminal_reason: Some("hook_stopped"), ..StopFacts::default() };
        assert_eq!(mappings.stop_reasons.stop(facts), Stop::Reason("refusal"));
    }

    #[test]
    fn a_rule_that_says_nothing_or_two_things_or_an_unknown_stop_is_refused() {
        for text in [
            "[[rule]]\nsubtype = \"x\"\n",
            "[[rule]]\nstop = \"refusal\"\nfail = true\n",
            "[[rule]]\nstop = \"done\"\n",
        ] {
            let error = Mappings::with_overrides([("stop_reasons.toml", text)]).expect_err("refused").to_string();
            assert!(error.contains("stop_reasons.toml"), "{error}");
        }
    }

    #[test]
    fn every_reason_the_rules_name_has_words() {
        let mappings = Mappings::builtin();
        for reason in mappings.stop_reasons.rules.iter().filter_map(|rule| rule.reason.as_deref()) {
            assert!(mappings.errors.names(reason), "errors.toml has no row for {reason}");
        }
    }
}
