//! Permission questions: `can_use_tool` ⇄ `session/request_permission`.
//!
//! Owns every open question. Keeps: diglot never grants: only a chosen option of ours that allows, allows; everything
//! else is a refusal, and claude is told the true reason. Any number may be open and answered in any order; nothing
//! waits for an answer. A question is asked after its call was announced with its full input (report 26).

use serde_json::value::RawValue;

use super::AcpOverClaude;
use super::cards;
use super::turn::Cancel;
use crate::translate::Actions;
use crate::translate::acp_agent::request_id;
use crate::translate::permission::{Grant, Offer, offers};
use crate::wire::acp::{CancelRequest, PermissionOption, PermissionOutcome, RequestPermission, methods};
use crate::wire::jsonrpc::{self, ErrorObject, Id};
use crate::wire::stream_json::{self, ControlRequest, Decision};
use crate::wire::text::text;

/// What the model reads when the user refuses without a reason.
const REFUSED: &str = "The user refused this call. Do not try it again in another way; ask what to do instead.";

#[derive(Debug, Default)]
pub(super) struct Questions {
    open: Vec<Question>,
    count: u32,
}

#[derive(Debug)]
struct Question {
    /// Claude's `request_id`.
    claude: String,
    /// The call it is about.
    tool: String,
    /// The question names no call: this one is its own.
    own_call: bool,
    input: Option<Box<RawValue>>,
    /// Why claude asks, in its own words.
    reason: Option<String>,
    offers: Vec<Offer>,
    /// The id it was asked under; `None` while the call's preview is still being made.
    near: Option<Id>,
}

impl Questions {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl AcpOverClaude {
    /// `can_use_tool`.
    pub(super) fn can_use_tool(&mut self, claude: &str, request: &ControlRequest<'_>, out: &mut Actions) {
        if self.questions.open.iter().any(|q| q.claude == claude) {
            out.note("a permission question was asked twice");
            return;
        }
        let name = text(request.tool_name).unwrap_or_default();
        // A question without a call gets one of its own, so that the editor can show what it is about.
        let named = text(request.tool_use_id);
        let own_call = named.is_none();
        let tool = named.map_or_else(|| format!("question-{claude}"), Into::into);
        if self.tools.was_closed(&tool) {
            return self.deny(claude, &tool, "the call has ended", false, out);
        }
        self.tool_asks(&tool, &name, request.input, out);
        let refusal = if !self.tools.is_open(&tool) {
            Some(("too many calls are open; nobody could be asked", false))
        } else if self.near_closed {
            Some(("the editor's connection ended; nobody could be asked", false))
        } else if self.turns.running().is_some_and(|t| t.cancel != Cancel::No) {
            Some(("the user cancelled the turn", true))
        } else if name == "AskUserQuestion" {
            let why =
                "This editor cannot show questions with choices. Ask the question as plain text and end the turn.";
            Some((why, false))
        } else {
            None
        };
        if let Some((why, interrupt)) = refusal {
            self.deny(claude, &tool, why, interrupt, out);
            if own_call {
                self.close_question_call(&tool, false, out);
            }
            return;
        }
        let question = Question {
            claude: claude.to_owned(),
            offers: offers(&name, request, &self.set.mappings.permissions),
            input: request.input.map(ToOwned::to_owned),
            reason: text(request.decision_reason).filter(|r| !r.trim().is_empty()).map(Into::into),
            near: None,
            own_call,
            tool,
        };
        self.questions.open.push(question);
        self.ask_ready(out);
    }

    /// Asks every question whose call can be shown.
    pub(super) fn ask_ready(&mut self, out: &mut Actions) {
        for at in 0..self.questions.open.len() {
            let question = &self.questions.open[at];
            if question.near.is_some() || self.tools.is_preparing(&question.tool) {
                continue;
            }
            self.questions.count += 1;
            let id = request_id(self.set.number, self.questions.count);
            let options: Vec<PermissionOption> = question.offers.iter().map(|o| o.option.clone()).collect();
            let mut tool_call = self.tools.card_for_question(&question.tool, &self.set.mappings);
            if let Some(reason) = &question.reason {
                tool_call.content.get_or_insert_default().push(cards::asked_because(reason));
            }
            let params = RequestPermission { session_id: &self.set.session_id, tool_call, options: &options };
            out.near(jsonrpc::request(&id, methods::REQUEST_PERMISSION, &params));
            self.questions.open[at].near = Some(id);
        }
    }

    /// The editor's answer.
    pub(super) fn answered(&mut self, id: &Id, outcome: Result<&RawValue, ErrorObject>, out: &mut Actions) {
        let Some(at) = self.questions.open.iter().position(|q| q.near.as_ref() == Some(id)) else {
            out.note(format!("an answer to no open question ({id})"));
            return;
        };
        let question = self.questions.open.remove(at);
        let cancelled = self.turns.running().is_some_and(|t| t.cancel != Cancel::No);
        let refusal = match outcome.map(PermissionOutcome::read) {
            Ok(PermissionOutcome::Selected { option_id, reason }) => {
                match question.offers.iter().find(|o| o.option.option_id == option_id) {
                    Some(offer) => match &offer.grant {
                        Grant::Once => return self.allow(&question, &[], "user_temporary", out),
                        Grant::More(updates) => return self.allow(&question, updates, "user_permanent", out),
                        Grant::Nothing => {
                            let why = reason.as_deref().unwrap_or(REFUSED);
                            self.refuse(&question.claude, &question.tool, why, false, Some("user_reject"), out);
                            return self.refused_call(&question, out);
                        }
                    },
                    None => format!(
                        "the editor answered with {option_id:?}, which is none of the options; the call was not approved"
                    ),
                }
            }
            Ok(PermissionOutcome::Cancelled) => "the question was closed without an answer".to_owned(),
            Ok(PermissionOutcome::Unreadable(why)) => {
                format!("the editor's answer could not be read ({why}); the call was not approved")
            }
            Err(error) => format!("the editor could not ask the user ({}); nobody approved the call", error.message),
        };
        self.deny(&question.claude, &question.tool, &refusal, cancelled, out);
        self.refused_call(&question, out);
    }

    fn refused_call(&mut self, question: &Question, out: &mut Actions) {
        if question.own_call {
            self.close_question_call(&question.tool, false, out);
        }
    }

    fn allow(
        &mut self,
        question: &Question,
        updates: &[Box<RawValue>],
        classification: &'static str,
        out: &mut Actions,
    ) {
        let decision =
            Decision::Allow { updated_input: question.input.as_deref(), updated_permissions: updates, classification };
        out.far(stream_json::control_response(&question.claude, &decision));
        self.tool_runs(&question.tool, out);
        if question.own_call {
            self.close_question_call(&question.tool, true, out);
        }
    }

    /// A question for which there was no room while the session opened.
    pub(super) fn refuse_early(&mut self, claude: &str, out: &mut Actions) {
        let message = "too much was said before the session was open; nobody could be asked";
        out.far(stream_json::control_response(
            claude,
            &Decision::Deny { message, interrupt: false, classification: None },
        ));
    }

    fn deny(&mut self, claude: &str, tool: &str, message: &str, interrupt: bool, out: &mut Actions) {
        self.refuse(claude, tool, message, interrupt, None, out);
    }

    fn refuse(
        &mut self,
        claude: &str,
        tool: &str,
        message: &str,
        interrupt: bool,
        classification: Option<&'static str>,
        out: &mut Actions,
    ) {
        out.far(stream_json::control_response(claude, &Decision::Deny { message, interrupt, classification }));
        let shown = if message == REFUSED { "refused by the user" } else { message };
        self.tools.refused(tool, shown);
    }

    /// `control_cancel_request`: claude does not want the answer any more.
    pub(super) fn withdraw_question(&mut self, claude: &str, out: &mut Actions) {
        if let Some(at) = self.questions.open.iter().position(|q| q.claude == claude) {
            let question = self.questions.open.remove(at);
            self.take_back(&question, out);
        }
    }

    /// Tells the editor that a question is void.
    fn take_back(&self, question: &Question, out: &mut Actions) {
        if let (Some(id), false) = (&question.near, self.near_closed) {
            out.near(jsonrpc::notification(methods::CANCEL_REQUEST, &CancelRequest { request_id: id }));
        }
    }

    /// The process that asked is gone.
    pub(super) fn withdraw_all_questions(&mut self, out: &mut Actions) {
        for question in std::mem::take(&mut self.questions.open) {
            self.take_back(&question, out);
        }
    }

    /// The question of a call that is closed.
    pub(super) fn withdraw_questions_of(&mut self, tool: &str, why: &str, out: &mut Actions) {
        while let Some(at) = self.questions.open.iter().position(|q| q.tool == tool) {
            let question = self.questions.open.remove(at);
            self.take_back(&question, out);
            self.deny(&question.claude, tool, why, false, out);
        }
    }

    pub(super) fn refuse_all_questions(&mut self, why: &str, interrupt: bool, out: &mut Actions) {
        for question in std::mem::take(&mut self.questions.open) {
            self.take_back(&question, out);
            self.deny(&question.claude, &question.tool, why, interrupt, out);
        }
    }
}
