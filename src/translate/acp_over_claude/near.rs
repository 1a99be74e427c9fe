//! What the editor says to a session.
//!
//! Owns the reading of its requests. Keeps: every request that reaches a session is answered here or remembered by
//! what will answer it.

use std::time::Duration;

use serde::Deserialize;

use super::open::Opening;
use super::{AcpOverClaude, Asked};
use crate::translate::acp_agent::object;
use crate::translate::content::read_prompt;
use crate::translate::{Action, Actions, Timer};
use crate::wire::acp::{Empty, methods};
use crate::wire::jsonrpc::{self, Id, Message, RpcError, codes, json_kind};
use crate::wire::stream_json::{self, Ask, ControlResponse};
use crate::wire::text::{Raw, text};

/// Claude answers within 0.1 s (stream-json.md, section 12), also in the middle of a turn.
const CONTROL_LIMIT: Duration = Duration::from_secs(30);

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    prompt: Raw<'a>,
    #[serde(borrow)]
    mode_id: Raw<'a>,
    #[serde(borrow)]
    request_id: Raw<'a>,
}

impl AcpOverClaude {
    pub(super) fn near_line(&mut self, line: &[u8], out: &mut Actions) {
        match Message::parse(line) {
            Ok(Message::Request { id, method, params }) => self.near_request(id, &method, params, out),
            Ok(Message::Notification { method, params }) => match &*method {
                methods::SESSION_CANCEL => self.cancel(out),
                methods::CANCEL_REQUEST => {
                    let p: Params<'_> = object(&method, params).unwrap_or_default();
                    self.withdraw(&p.request_id.and_then(Id::from_raw).unwrap_or(Id::Null), out);
                }
                other => out.note(format!("unknown notification `{other}`")),
            },
            Ok(Message::Response { id, outcome }) => self.answered(&id, outcome, out),
            Err(malformed) => out.note(malformed.to_string()),
        }
    }

    fn near_request(&mut self, id: Id, method: &str, params: Raw<'_>, out: &mut Actions) {
        match method {
            methods::SESSION_NEW => {
                let opening = Opening::read(params).and_then(|o| o.check(&self.set.profile));
                self.open(id, opening, out);
            }
            methods::SESSION_PROMPT => {
                let content = object(method, params).and_then(|p: Params<'_>| read_prompt(p.prompt));
                match content {
                    Ok(content) => self.prompt(id, content, out),
                    Err(e) => out.near(jsonrpc::error(&id, &e)),
                }
            }
            methods::SESSION_SET_MODE => match object(method, params).and_then(|p: Params<'_>| mode_id(p.mode_id)) {
                Ok(mode) => self.set_mode(id, mode, out),
                Err(e) => out.near(jsonrpc::error(&id, &e)),
            },
            other => {
                let error = RpcError::new(codes::METHOD_NOT_FOUND, format!("method not found: {other}"));
                out.near(jsonrpc::error(&id, &error));
            }
        }
    }

    /// `$/cancel_request`: for a prompt it is a cancel of that prompt; unknown ids are ignored.
    fn withdraw(&mut self, id: &Id, out: &mut Actions) {
        if !self.withdraw_prompt(id, out) && !self.withdraw_open(id, out) && !self.withdraw_set_mode(id, out) {
            out.note(format!("nothing to withdraw under {id}"));
        }
    }

    /// Claude itself says which modes there are; its refusal is the answer.
    fn set_mode(&mut self, id: Id, mode: String, out: &mut Actions) {
        if !self.far.listens() {
            // The next process is started in it, and would not start in one that is not there.
            let offered = self.offered_modes(self.mode.as_deref().unwrap_or("default"));
            if !offered.iter().any(|m| m.id == self.set.mappings.modes.id(&mode)) {
                let error = RpcError::invalid_params(format!("session/set_mode: there is no mode {mode:?} here"));
                out.near(jsonrpc::error(&id, &error));
                return;
            }
            out.near(jsonrpc::response(&id, &Empty {}));
            self.chosen_mode = Some(mode.clone());
            self.mode = Some(mode);
            return;
        }
        let request = self.ask_id();
        out.far(stream_json::control_request(&request, &Ask::SetPermissionMode { mode: &mode }));
        self.asks.insert(request, Asked::SetMode { near: id, mode });
        out.push(Action::SetTimer(Timer::Control, CONTROL_LIMIT));
    }

    /// `$/cancel_request` for a change of mode. It may still come to pass; then claude says so.
    fn withdraw_set_mode(&mut self, id: &Id, out: &mut Actions) -> bool {
        let waits = |asked: &Asked| matches!(asked, Asked::SetMode { near, .. } if near == id);
        let Some(request) = self.asks.iter().find(|(_, asked)| waits(asked)).map(|(request, _)| request.clone()) else {
            return false;
        };
        self.asks.remove(&request);
        let error = RpcError::new(codes::REQUEST_CANCELLED, "session/set_mode was withdrawn");
        out.near(jsonrpc::error(id, &error));
        true
    }

    /// `control_response`.
    pub(super) fn control_response(&mut self, response: &ControlResponse<'_>, out: &mut Actions) {
        let Some(asked) = text(response.request_id).and_then(|id| self.asks.remove(&*id)) else {
            out.note("a control_response to no open request");
            return;
        };
        match asked {
            Asked::Initialize => self.initialized(response, out),
            Asked::Interrupt => {}
            Asked::KeepMode { instead } => {
                if text(response.subtype).as_deref() != Some("success") {
                    self.chosen_mode = None;
                    if let Some(mode) = instead {
                        self.mode_is(&mode, out);
                    }
                }
            }
            Asked::SetMode { near, mode } => {
                if !self.asks.values().any(|asked| matches!(asked, Asked::SetMode { .. })) {
                    out.push(Action::ClearTimer(Timer::Control));
                }
                if text(response.subtype).as_deref() == Some("success") {
                    out.near(jsonrpc::response(&near, &Empty {}));
                    self.chosen_mode = Some(mode.clone());
                    self.mode = Some(mode);
                } else {
                    let said = text(response.error).unwrap_or_default();
                    let error = RpcError::invalid_params(format!("session/set_mode: {mode:?} cannot be set: {said}"));
                    out.near(jsonrpc::error(&near, &error));
                }
            }
        }
    }

    pub(super) fn timer(&mut self, timer: Timer, out: &mut Actions) {
        match timer {
            Timer::Start => self.start_timed_out(out),
            Timer::Cancel => self.cancel_timed_out(out),
            Timer::Settle => self.settle_timed_out(out),
            // Only a host's session sets these.
            Timer::Commands | Timer::Barrier | Timer::Hook(_) => {}
            Timer::Control => {
                let said = format!("no answer within {} s", CONTROL_LIMIT.as_secs());
                self.fail_asks(&self.error("agent_silent", None, &said), out);
            }
        }
    }
}

fn mode_id(raw: Raw<'_>) -> Result<String, RpcError> {
    let problem = match raw {
        None => "is missing".to_owned(),
        Some(found) => match text(raw) {
            Some(mode) => return Ok(mode.into_owned()),
            None => format!("must be a string; found {}", json_kind(found)),
        },
    };
    Err(RpcError::invalid_params(format!("session/set_mode: `modeId` {problem}")))
}
