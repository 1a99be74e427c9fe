//! A question of the agent's, and the words of its end.
//!
//! Keeps: options are chosen by their kind, never by their id, and never one that grants for longer (quirks 13 to 16); each kind
//! of question is answered in its own form (quirks 10 and 11).

use serde_json::{Map, Value, json};

use super::choices::{ChoiceOf, as_list, by};
use super::elicit;
use super::render::ToolUse;
use super::served::Act;
use crate::translate::Actions;
use crate::wire::acp_client::Outcome;
use crate::wire::jsonrpc::{self, Id, RpcError, codes};

#[derive(Debug)]
pub(super) struct Question {
    pub(super) number: u64,
    /// The agent's id of it.
    pub(super) id: Id,
    /// The call.
    pub(super) call: String,
    /// What is decided: the call as the question has it, which may be more than was shown.
    pub(super) uses: Vec<ToolUse>,
    /// Which of them is being decided.
    pub(super) at: usize,
    pub(super) options: Vec<Choice>,
    /// The answers are no permissions (quirk 10).
    pub(super) choice: Option<ChoiceOf>,
    /// What diglot itself is to do when it is allowed; then no option is chosen.
    pub(super) act: Option<Act>,
    /// A hook wants the host to be asked, whatever the rules say.
    pub(super) hook_asks: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) kind: String,
}

/// How a question of the agent's ends.
pub(super) enum End<'a> {
    /// By one of its options.
    Option(&'a str),
    /// By answers, by their question's text.
    Answers(&'a Map<String, Value>),
    /// By a refusal.
    Refused(&'a str),
    /// With its turn.
    Cancelled,
}

impl Question {
    /// Answers the agent, in the words that this kind of question wants.
    pub(super) fn end(&self, end: &End<'_>, out: &mut Actions) {
        let line = match (&self.choice, end) {
            _ if self.act.is_some() => {
                let (code, why) = match end {
                    End::Refused(why) => (codes::INTERNAL_ERROR, *why),
                    _ => (codes::REQUEST_CANCELLED, "the turn is cancelled"),
                };
                jsonrpc::error(&self.id, &RpcError::new(code, why))
            }
            (Some(ChoiceOf::Grok { .. }), End::Answers(answers)) => {
                let lists: Map<String, Value> = answers.iter().map(|(q, a)| (q.clone(), as_list(a))).collect();
                jsonrpc::response(&self.id, &json!({"outcome": "accepted", "answers": lists}))
            }
            (Some(ChoiceOf::GrokPlan { .. }), End::Answers(_)) => {
                jsonrpc::response(&self.id, &json!({"outcome": "approved"}))
            }
            (Some(ChoiceOf::GrokPlan { .. }), End::Refused(why)) => {
                jsonrpc::response(&self.id, &json!({"outcome": "rejected", "feedback": why}))
            }
            (Some(ChoiceOf::Grok { .. } | ChoiceOf::GrokPlan { .. }), _) => {
                jsonrpc::response(&self.id, &json!({"outcome": "cancelled"}))
            }
            (Some(ChoiceOf::CodeBuddy { questions }), End::Answers(answers)) => {
                jsonrpc::response(&self.id, &json!({"outcome": "submitted", "answers": by(questions, "id", answers)}))
            }
            (Some(ChoiceOf::Form { .. }), End::Answers(content)) => elicit::answer(&self.id, "accept", Some(content)),
            (Some(ChoiceOf::Form { .. } | ChoiceOf::Elicitation), End::Refused(_)) => {
                elicit::answer(&self.id, "decline", None)
            }
            (Some(ChoiceOf::Form { .. } | ChoiceOf::Elicitation), _) => elicit::answer(&self.id, "cancel", None),
            (Some(ChoiceOf::CodeBuddy { .. }), _) => jsonrpc::response(&self.id, &json!({"outcome": "declined"})),
            (Some(ChoiceOf::Meta { questions }), End::Answers(answers)) => match self.of_kind("allow_once") {
                Some(submit) => {
                    let outcome = json!({"outcome": "selected", "optionId": submit});
                    jsonrpc::response(&self.id, &json!({"outcome": outcome, "answers": by(questions, "", answers)}))
                }
                None => self.permission(&Outcome::Cancelled),
            },
            (_, End::Option(id)) => self.permission(&Outcome::Selected { option_id: id }),
            // `cancelled` would end the turn (report 5); it is the last resort.
            (_, End::Refused(_)) => match self.of_kind("reject_once").or_else(|| self.of_kind("reject_always")) {
                Some(id) => self.permission(&Outcome::Selected { option_id: id }),
                None => self.permission(&Outcome::Cancelled),
            },
            (_, End::Cancelled | End::Answers(_)) => self.permission(&Outcome::Cancelled),
        };
        out.far(line);
    }

    fn permission(&self, outcome: &Outcome<'_>) -> Vec<u8> {
        #[derive(serde::Serialize)]
        struct Answer<'a> {
            outcome: &'a Outcome<'a>,
        }
        jsonrpc::response(&self.id, &Answer { outcome })
    }

    fn of_kind(&self, kind: &str) -> Option<&str> {
        self.options.iter().find(|o| o.kind == kind).map(|o| o.id.as_str())
    }
}
