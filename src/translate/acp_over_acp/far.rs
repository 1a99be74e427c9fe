//! What the agent says.
//!
//! Owns the reading of its lines and the finding of the request that an answer belongs to. Keeps: a line that is no message
//! harms nothing (quirk 64, codex-acp and agy-acp: errors under the id `null`), and an answer is used once.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::{AcpOverAcp, Asked, errors};
use crate::translate::Actions;
use crate::wire::acp::methods;
use crate::wire::jsonrpc::{self, Id, Message};
use crate::wire::text::Raw;

/// What an answer holds, unread.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Raw<'a>,
}

impl AcpOverAcp {
    pub(super) fn far_line(&mut self, line: &[u8], out: &mut Actions) {
        let mut pieces = std::mem::take(&mut self.pieces);
        let is_piece = pieces.read(line).map(|piece| self.said(line, &piece, out)).is_some();
        self.pieces = pieces;
        if is_piece {
            return;
        }
        match Message::parse(line) {
            Ok(Message::Notification { method, params }) => match &*method {
                methods::SESSION_UPDATE => self.updated(line, params, out),
                methods::CANCEL_REQUEST => self.agent_withdraws(params, out),
                // Extensions have a name that says so; the editor knows them or ignores them.
                other if other.starts_with('_') || other == "elicitation/complete" => out.near(line.to_vec()),
                // Quirk 12.
                other => out.note(format!("the agent's notification {other} is none of the protocol's")),
            },
            Ok(Message::Request { id, method, params }) => self.agent_asks(line, id, &method, params, out),
            Ok(Message::Response { id, .. }) => self.agent_answered(&id, line, out),
            Err(malformed) => out.note(format!("a line of the agent's is no message: {malformed}")),
        }
    }

    fn agent_answered(&mut self, id: &Id, line: &[u8], out: &mut Actions) {
        // The last of several members counts, as in the envelope's own reading.
        let answer: Answer<'_> = serde_json::from_slice(line).unwrap_or_default();
        let outcome = match (answer.error.filter(|raw| raw.get() != "null"), answer.result) {
            (Some(error), _) => Err(error),
            (None, Some(result)) => Ok(result),
            // A line of a log with an `id`, say: the answer is still to come.
            (None, None) => return out.note(format!("a line with the id {id} is no answer")),
        };
        let Some((number, asked)) = id.as_number().and_then(|n| self.asked.remove_entry(&n)) else {
            return out.note(format!("an answer of the agent's to no request ({id})"));
        };
        match asked {
            Asked::Initialize => self.agent_initialized(outcome, out),
            Asked::Login => self.is_up(out),
            Asked::Open(opening) => self.opened(opening, outcome, out),
            Asked::LoginToOpen(opening) => self.logged_in_to_open(opening, out),
            Asked::Reopen(session) => self.taken_up(&session, outcome, out),
            Asked::AskingMode(session) => self.mode_answered(&session, outcome.is_ok(), out),
            Asked::Prompt(session) => self.prompt_answered(&session, number, outcome, out),
            Asked::Pass(passed) => match outcome {
                Ok(result) => {
                    // What a change ends, ends before its answer.
                    self.changed(passed.session.as_ref(), passed.change, out);
                    // Some answer with `null` what the schema answers with an object.
                    match result.get() {
                        "null" => out.near(jsonrpc::response(&passed.near, &json!({}))),
                        _ => out.near(jsonrpc::response(&passed.near, result)),
                    }
                    self.end_spoilt(out);
                    self.leave_if_empty(out);
                }
                Err(error) => {
                    out.near(errors::answer(&passed.near, &errors::mend(&self.set.profile, error).error));
                    self.leave_if_empty(out);
                }
            },
        }
    }
}
