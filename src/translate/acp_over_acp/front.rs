//! Which process a line of the editor belongs to.
//!
//! Owns what holds before there is a session: malformed lines (quirk 64: batches never reach an agent), the order of
//! `initialize` (quirks 49 and 50), and the finding of a session. Keeps: every request is either answered here or handed to
//! exactly one process.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use crate::translate::acp_agent::{COUNT_BITS, null_id, object, session_id};
use crate::wire::acp::methods;
use crate::wire::acp_client::methods as more;
use crate::wire::acp_editor::Params;
use crate::wire::jsonrpc::{self, Id, Malformed, Message, RpcError, codes, json_kind};
use crate::wire::text::{Raw, cut, text, uint};

/// Where a line goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// It is answered at once.
    Reply(Vec<u8>),
    /// To the front.
    Front,
    /// It opens a session in this directory: one that there is, or a new one.
    Open {
        /// The session that there is.
        session_id: Option<String>,
        /// Absolute.
        cwd: PathBuf,
    },
    /// To the process of this session.
    Session {
        /// Its id.
        session_id: String,
        /// Where it goes when there is no such session.
        otherwise: Otherwise,
    },
    /// It answers a question of the process with this number.
    Answer(u32),
    /// To every process: it withdraws a request that may be in any.
    All,
    /// It needs nothing; the text is for the trace.
    Skip(String),
}

/// What becomes of a line for a session that no process has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Otherwise {
    /// A request that is answered with the error of an unknown session.
    Refuse(Id),
    /// A notification that has no effect.
    Nothing,
    /// The front knows what to do.
    Front,
}

/// The connection's part.
#[derive(Debug, Default)]
pub struct Front {
    initialize: Option<Arc<str>>,
    login: Option<Arc<str>>,
}

impl Front {
    /// The parameters of the editor's `initialize`.
    #[must_use]
    pub fn initialize(&self) -> Option<Arc<str>> {
        self.initialize.clone()
    }

    /// The parameters of the editor's last `authenticate`.
    #[must_use]
    pub fn login(&self) -> Option<Arc<str>> {
        self.login.clone()
    }

    /// Says where a line of the editor goes.
    pub fn route(&mut self, line: &[u8]) -> Route {
        match Message::parse(line) {
            Ok(Message::Request { id, method, params }) => {
                self.request(&id, &method, params).unwrap_or_else(|error| Route::Reply(jsonrpc::error(&id, &error)))
            }
            Ok(Message::Notification { method, params }) => notification(&method, params),
            Ok(Message::Response { id, .. }) => match id.as_number() {
                Some(n) => Route::Answer(u32::try_from(n >> COUNT_BITS).unwrap_or(u32::MAX)),
                None => Route::Skip(format!("an answer to the unknown request {id}")),
            },
            Err(malformed) => {
                let id = match &malformed {
                    Malformed::Invalid { id: Some(id), .. } => id.clone(),
                    _ => Id::Null,
                };
                Route::Reply(jsonrpc::error(&id, &RpcError::from(&malformed)))
            }
        }
    }

    fn request(&mut self, id: &Id, method: &str, params: Raw<'_>) -> Result<Route, RpcError> {
        if method == methods::INITIALIZE {
            check_version(params)?;
            self.initialize = params.map(|raw| raw.get().into());
            return Ok(Route::Front);
        }
        if self.initialize.is_none() {
            return Err(RpcError::new(
                codes::INVALID_REQUEST,
                format!("`{method}` came before `initialize`; send `initialize` first"),
            ));
        }
        Ok(match method {
            methods::SESSION_NEW => Route::Open { session_id: None, cwd: opening(method, params)? },
            more::SESSION_LOAD | more::SESSION_RESUME | more::SESSION_FORK => {
                Route::Open { session_id: Some(session_id(method, params)?), cwd: opening(method, params)? }
            }
            methods::SESSION_PROMPT
            | methods::SESSION_CANCEL
            | methods::SESSION_SET_MODE
            | more::SESSION_SET_MODEL
            | more::SESSION_SET_CONFIG_OPTION
            | more::SESSION_CLOSE => {
                Route::Session { session_id: session_id(method, params)?, otherwise: Otherwise::Refuse(id.clone()) }
            }
            methods::AUTHENTICATE => {
                let _: Params<'_> = object(method, params)?;
                self.login = params.map(|raw| raw.get().into());
                Route::Front
            }
            _ => match text(Params::read(params).session_id) {
                Some(id) => Route::Session { session_id: id.into_owned(), otherwise: Otherwise::Front },
                None => Route::Front,
            },
        })
    }
}

fn notification(method: &str, params: Raw<'_>) -> Route {
    let read = Params::read(params);
    match method {
        methods::CANCEL_REQUEST => match read.request_id.and_then(Id::from_raw).or_else(|| null_id(params)) {
            Some(_) => Route::All,
            None => Route::Skip("`$/cancel_request` without a usable `requestId`".into()),
        },
        methods::SESSION_CANCEL => match session_id(method, params) {
            Ok(session_id) => Route::Session { session_id, otherwise: Otherwise::Nothing },
            Err(error) => Route::Skip(error.message),
        },
        _ => match text(read.session_id) {
            Some(id) => Route::Session { session_id: id.into_owned(), otherwise: Otherwise::Front },
            None => Route::Front,
        },
    }
}

fn check_version(params: Raw<'_>) -> Result<(), RpcError> {
    let read: Params<'_> = object(methods::INITIALIZE, params)?;
    let expected = "expected an integer such as 1";
    match read.protocol_version {
        None => Err(RpcError::invalid_params(format!("initialize: `protocolVersion` is missing; {expected}"))),
        Some(raw) if uint(Some(raw)).is_none_or(|v| v > u64::from(u16::MAX)) => Err(RpcError::invalid_params(format!(
            "initialize: `protocolVersion` is {} ({}); {expected}",
            cut(raw.get(), 40),
            json_kind(raw)
        ))),
        Some(_) => Ok(()),
    }
}

/// The directory of a session that is opened.
fn opening(method: &str, params: Raw<'_>) -> Result<PathBuf, RpcError> {
    let read: Params<'_> = object(method, params)?;
    let wrong = |what: String| RpcError::invalid_params(format!("{method}: {what}"));
    if let Some(raw) = read.mcp_servers.filter(|raw| !raw.get().starts_with('[')) {
        return Err(wrong(format!("`mcpServers` must be an array; found {}", json_kind(raw))));
    }
    let Some(raw) = read.cwd else {
        return Err(wrong("`cwd` is missing; give the absolute path of a directory".into()));
    };
    let cwd = text(Some(raw)).ok_or_else(|| wrong(format!("`cwd` must be a string; found {}", json_kind(raw))))?;
    let path = PathBuf::from(&*cwd);
    if !path.is_absolute() {
        return Err(wrong(format!("`cwd` must be an absolute path; found {:?}", cut(&cwd, 200))));
    }
    Ok(path)
}

/// The answer to a request for a session that no process has.
#[must_use]
pub fn unknown_session(id: &Id, session_id: &str) -> Vec<u8> {
    let error = RpcError::new(
        codes::RESOURCE_NOT_FOUND,
        format!(
            "there is no session `{session_id}` on this connection; open one with `session/new`, or load it with `session/load`"
        ),
    );
    jsonrpc::error(id, &error.with_data(json!({ "sessionId": session_id })))
}
