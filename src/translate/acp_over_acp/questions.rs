//! What the agent asks of the editor.
//!
//! Owns quirks 10 (Kimi 2.1, Qwen 0.24: questions in the form of a permission; they pass as they are, and nobody but the user
//! answers them), 11 (Grok 1.0, CodeBuddy 2.163: extension requests), 12 (Qwen: extension requests without the underscore), 13 to 16
//! (the options are the agent's; the user chooses among them by their names), 17 (Copilot, Grok: several at once; the id 0 is an
//! id), 18 (Gemini 0.61, Vibe 3.0: an open question holds the cancel up), 19 (codex-acp 2.6: a question is withdrawn, or answered
//! too late) and 27 (Gemini: a file that is not there). Keeps: every request of the agent's is answered once; nothing but an answer
//! that chooses one of the agent's own options grants anything.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::errors::{self, answer};
use super::{AcpOverAcp, strict, terminals};
use crate::translate::Actions;
use crate::translate::acp_agent::request_id;
use crate::translate::permission::is_unclear;
use crate::wire::acp::{CancelRequest, PermissionOutcome, methods};
use crate::wire::acp_client::{Outcome, SessionParams};
use crate::wire::jsonrpc::{self, ErrorObject, Id, RpcError, codes};
use crate::wire::text::{Raw, text};

/// Requests of the agent's that may be open at once.
const OPEN: usize = 256;

/// A request of the agent's that the editor has.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) far: Id,
    pub(super) session: Option<Arc<str>>,
    pub(super) kind: Kind,
}

/// What it asks for.
#[derive(Debug)]
pub(super) enum Kind {
    /// A permission for this call, by these options and their kinds.
    Permission {
        call: String,
        options: Vec<(String, String)>,
    },
    ReadFile,
    CreateTerminal,
    WaitForTerminal(String),
    ReleaseTerminal(String),
    Other,
    /// Diglot's own.
    Own,
}

#[derive(serde::Serialize)]
struct Chosen<'a> {
    outcome: Outcome<'a>,
}

impl AcpOverAcp {
    /// Keeps a request; gives the id that the editor gets.
    pub(super) fn next_question(&mut self, question: Question) -> Id {
        self.next_near += 1;
        let id = request_id(self.set.number, self.next_near);
        // An id of our own is a number.
        self.questions.insert(id.as_number().unwrap_or_default(), question);
        id
    }

    /// A request of the agent's.
    pub(super) fn agent_asks(&mut self, line: &[u8], id: Id, method: &str, params: Raw<'_>, out: &mut Actions) {
        let session = self.session_of(params);
        // The editor hears of the session first (quirk 43).
        if let Some(opening) = session.as_ref().and_then(|id| self.sessions.get_mut(id))
            && opening.state == super::open::State::Opening
            && opening.keep_early(line)
        {
            return;
        }
        if method == methods::REQUEST_PERMISSION {
            return self.permission_asked(id, session, params, out);
        }
        let serves = match method {
            "fs/read_text_file" => self.editor.reads,
            "fs/write_text_file" => self.editor.writes,
            "elicitation/create" => self.editor.elicits,
            other if other.starts_with("terminal/") => self.editor.terminals,
            other => other.starts_with('_'),
        };
        if !serves || self.near_gone {
            let error = RpcError::new(codes::METHOD_NOT_FOUND, format!("method not found: {method}"));
            return out.far(jsonrpc::error(&id, &error.with_data(json!({ "method": method }))));
        }
        if self.questions.len() >= OPEN {
            let error = RpcError::new(codes::INTERNAL_ERROR, format!("{OPEN} requests are open already"));
            return out.far(jsonrpc::error(&id, &error));
        }
        let terminal = || {
            let all = strict::members(params);
            all.get("terminalId").and_then(|raw| text(Some(raw))).unwrap_or_default().into_owned()
        };
        let kind = match method {
            "fs/read_text_file" => Kind::ReadFile,
            "terminal/create" => Kind::CreateTerminal,
            "terminal/wait_for_exit" => Kind::WaitForTerminal(terminal()),
            "terminal/release" => Kind::ReleaseTerminal(terminal()),
            _ => Kind::Other,
        };
        let creation = match (&kind, params) {
            (Kind::CreateTerminal, Some(raw)) => {
                let cwd = session.as_ref().and_then(|id| self.sessions.get(id)).and_then(super::open::Session::cwd);
                terminals::creation(raw, cwd.as_deref(), self.set.profile.acp.shell_lines)
            }
            _ => None,
        };
        let near = self.next_question(Question { far: id, session, kind });
        out.near(match (creation, params) {
            (Some(creation), _) => jsonrpc::request(&near, method, &creation),
            (None, Some(params)) => jsonrpc::request(&near, method, params),
            (None, None) => jsonrpc::request(&near, method, &json!({})),
        });
    }

    fn permission_asked(&mut self, id: Id, session: Option<Arc<str>>, params: Raw<'_>, out: &mut Actions) {
        let read = SessionParams::read(params);
        let call = read.tool_call.and_then(|raw| serde_json::from_str::<Map<String, Value>>(raw.get()).ok());
        let (options, list) = options(read.options);
        let cancelled = |out: &mut Actions| out.far(jsonrpc::response(&id, &Chosen { outcome: Outcome::Cancelled }));
        let (Some(session), Some(call)) = (session, call) else {
            out.note("a question without a session or a call");
            return cancelled(out);
        };
        let ended = self
            .sessions
            .get(&session)
            .is_some_and(|session| session.turn.as_ref().is_some_and(|turn| turn.cancelled || turn.is_answered()));
        if ended || options.is_empty() || self.near_gone || self.questions.len() >= OPEN {
            out.note("a question that cannot be asked is answered `cancelled`");
            return cancelled(out);
        }
        if let Some(turn) = self.sessions.get_mut(&session).and_then(|session| session.turn.as_mut()) {
            turn.spoke = true;
        }
        let Some((call, said)) = self.call_asked(&session, call, out) else {
            out.note("a question about a call that has ended or has no id");
            return cancelled(out);
        };
        let said = strict::raw(Value::Object(said).to_string());
        let list = strict::raw(Value::Array(list).to_string());
        let mut all = strict::members(params);
        all.insert("toolCall".into(), &said);
        all.insert("options".into(), &list);
        let params = strict::write(all.iter().map(|(name, value)| (name.as_str(), value.get())));
        let kind = Kind::Permission { call, options };
        let near = self.next_question(Question { far: id, session: Some(session), kind });
        out.near(jsonrpc::request(&near, methods::REQUEST_PERMISSION, &params));
    }

    /// The editor answered a request.
    pub(super) fn editor_answered(
        &mut self,
        id: &Id,
        line: &[u8],
        outcome: Result<&RawValue, ErrorObject>,
        out: &mut Actions,
    ) {
        let Some(question) = id.as_number().and_then(|id| self.questions.remove(&id)) else {
            return out.note(format!("an answer to a question that is not open ({id})"));
        };
        match question.kind {
            Kind::Own => {}
            Kind::Permission { call, options } => {
                let session = question.session.unwrap_or_else(|| "".into());
                self.permission_answered(&question.far, &session, &call, &options, outcome, out);
            }
            kind => match outcome {
                Ok(result) => {
                    if let Some(session) = question.session.as_ref().and_then(|id| self.sessions.get_mut(id)) {
                        match kind {
                            Kind::CreateTerminal => {
                                let made = strict::members(Some(result));
                                if let Some(id) = made.get("terminalId").and_then(|raw| text(Some(raw))) {
                                    session.made_terminal(id.into_owned());
                                }
                            }
                            Kind::ReleaseTerminal(terminal) => {
                                session.terminals.remove(&terminal);
                            }
                            _ => {}
                        }
                    }
                    out.far(jsonrpc::response(&question.far, result));
                }
                // Gemini makes a new file only when it can read it.
                Err(error)
                    if matches!(kind, Kind::ReadFile)
                        && self.set.profile.acp.missing_file_is_empty
                        && is_missing(&error) =>
                {
                    out.far(jsonrpc::response(&question.far, &json!({ "content": "" })));
                }
                Err(error) => {
                    #[derive(Default, serde::Deserialize)]
                    #[serde(default)]
                    struct Answer<'a> {
                        #[serde(borrow)]
                        error: Raw<'a>,
                    }
                    let raw: Answer<'_> = serde_json::from_slice(line).unwrap_or_default();
                    let is_whole = |raw: &&RawValue| {
                        let all = strict::members(Some(raw));
                        all.contains_key("code") && all.contains_key("message")
                    };
                    out.far(match raw.error.filter(is_whole) {
                        Some(raw) => answer(&question.far, raw),
                        None => {
                            answer(&question.far, &errors::raw(&RpcError::new(codes::INTERNAL_ERROR, error.message)))
                        }
                    });
                }
            },
        }
    }

    /// Only one of the agent's own options grants; whatever else the editor says is a refusal.
    fn permission_answered(
        &mut self,
        far: &Id,
        session: &str,
        call: &str,
        options: &[(String, String)],
        outcome: Result<&RawValue, ErrorObject>,
        out: &mut Actions,
    ) {
        let chosen = match outcome {
            Ok(result) => match PermissionOutcome::read(result) {
                PermissionOutcome::Selected { option_id, .. } => {
                    options.iter().find(|(id, _)| *id == option_id).map(|(_, kind)| (kind.clone(), result))
                }
                PermissionOutcome::Cancelled => {
                    return out.far(jsonrpc::response(far, &Chosen { outcome: Outcome::Cancelled }));
                }
                PermissionOutcome::Unreadable(why) => {
                    out.note(format!("the answer to a question is none: {why}"));
                    None
                }
            },
            Err(error) => {
                out.note(format!("the editor failed to ask the user: {}", error.message));
                None
            }
        };
        if let Some((kind, result)) = chosen {
            // What stands beside the outcome goes with it: Qwen reads the answers to its questions there.
            out.far(jsonrpc::response(far, result));
            if kind.starts_with("allow")
                && let Some(state) = self.sessions.get_mut(session)
            {
                state.calls.runs(session, call, out);
            }
            return;
        }
        let refusal = options.iter().find(|(_, kind)| kind == "reject_once");
        let outcome = match refusal {
            Some((id, _)) => Outcome::Selected { option_id: id },
            None => Outcome::Cancelled,
        };
        out.far(jsonrpc::response(far, &Chosen { outcome }));
    }

    /// The agent withdraws a request: the editor is told, and the agent has its answer at once.
    pub(super) fn agent_withdraws(&mut self, params: Raw<'_>, out: &mut Actions) {
        let request = SessionParams::read(params).request_id.and_then(Id::from_raw);
        let is_it =
            |question: &Question| Some(&question.far) == request.as_ref() && !matches!(question.kind, Kind::Own);
        let near = self.questions.iter().find(|(_, question)| is_it(question)).map(|(near, _)| *near);
        let Some((near, question)) = near.and_then(|near| self.questions.remove_entry(&near)) else {
            return out.note("the agent withdraws what is not open");
        };
        let id = Id::number(near);
        out.near(jsonrpc::notification(methods::CANCEL_REQUEST, &CancelRequest { request_id: &id }));
        let error = RpcError::new(codes::REQUEST_CANCELLED, "the request was withdrawn");
        out.far(jsonrpc::error(&question.far, &error));
    }

    /// Answers what the agent has asked of the user in a session (in all of them): the answer will not come, or not matter.
    pub(super) fn refuse_questions(&mut self, session: Option<&Arc<str>>, out: &mut Actions) {
        let is_of_user = |question: &Question| {
            session.is_none_or(|id| question.session.as_ref() == Some(id))
                && (session.is_none() || matches!(question.kind, Kind::Permission { .. } | Kind::Other))
        };
        let open: Vec<u64> =
            self.questions.iter().filter(|(_, question)| is_of_user(question)).map(|(near, _)| *near).collect();
        for near in open {
            let Some(question) = self.questions.remove(&near) else { continue };
            if !self.near_gone {
                let id = Id::number(near);
                out.near(jsonrpc::notification(methods::CANCEL_REQUEST, &CancelRequest { request_id: &id }));
            }
            match question.kind {
                Kind::Permission { .. } => {
                    out.far(jsonrpc::response(&question.far, &Chosen { outcome: Outcome::Cancelled }));
                }
                Kind::Own => {}
                _ => {
                    let error = RpcError::new(codes::REQUEST_CANCELLED, "the turn was cancelled or the editor is gone");
                    out.far(jsonrpc::error(&question.far, &error));
                }
            }
        }
    }

    /// The agent has died: its questions are withdrawn, and nobody waits for an answer.
    pub(super) fn forget_questions(&mut self, out: &mut Actions) {
        let open = std::mem::take(&mut self.questions);
        for (near, question) in open {
            if matches!(question.kind, Kind::Own) {
                self.questions.insert(near, question);
            } else if !self.near_gone {
                let id = Id::number(near);
                out.near(jsonrpc::notification(methods::CANCEL_REQUEST, &CancelRequest { request_id: &id }));
            }
        }
        self.release_terminals(out);
    }
}

/// Whether an editor says that there is no such file: any other failure must not look like an empty one.
fn is_missing(error: &ErrorObject) -> bool {
    let said = error.message.to_ascii_lowercase();
    error.code == codes::RESOURCE_NOT_FOUND
        || ["not found", "no such file", "does not exist", "enoent"].iter().any(|words| said.contains(words))
}

/// The options that can be chosen: their ids and kinds, and all that they are.
fn options(raw: Raw<'_>) -> (Vec<(String, String)>, Vec<Value>) {
    let all: Vec<Value> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let mut ids = Vec::new();
    let mut list = Vec::new();
    for mut option in all {
        let string = |name: &str| option[name].as_str().map(str::to_owned);
        let Some(id) = string("optionId") else { continue };
        // What it would grant is not known.
        let Some(kind) =
            string("kind").filter(|k| matches!(&**k, "allow_once" | "allow_always" | "reject_once" | "reject_always"))
        else {
            continue;
        };
        if string("name").is_none() {
            option["name"] = json!(id);
        }
        ids.push((id, kind));
        list.push(option);
    }
    let all = ids.clone();
    let clear = |id: &str| !is_unclear(id, all.iter().map(|(id, kind)| (&**id, &**kind)));
    list.retain(|option| option["optionId"].as_str().is_some_and(clear));
    ids.retain(|(id, _)| clear(id));
    (ids, list)
}
