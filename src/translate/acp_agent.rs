//! What every ACP agent says before and between its sessions: one value per connection.
//!
//! Owns `initialize`, `authenticate`, the answers to malformed lines and unknown methods, and the way of a line to its
//! session. Keeps: every request is either answered here or handed to exactly one session.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::wire::acp::{
    AgentCapabilities, AgentInfo, ClientCapabilities, Empty, InitializeResult, McpCapabilities, PROTOCOL_VERSION,
    PromptCapabilities, SessionCapabilities, methods,
};
use crate::wire::jsonrpc::{self, Id, Message, RpcError, codes, json_kind};
use crate::wire::text::{Raw, text, uint};

/// Ids of requests toward the editor: the session's number above, a count below, so that an answer finds its session
/// without a table. 2^24 questions a session and 2^29 sessions stay below 2^53, which JavaScript can represent.
pub(crate) const COUNT_BITS: u32 = 24;

/// The id of a session's `count`th request toward the editor.
#[must_use]
pub fn request_id(session: u32, count: u32) -> Id {
    Id::number(u64::from(session) << COUNT_BITS | u64::from(count & ((1 << COUNT_BITS) - 1)))
}

/// Where a line goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// It is answered at once.
    Reply(Vec<u8>),
    /// It opens a session (`session/new`).
    Open(Id),
    /// It belongs to the session with this id; a request carries the id to answer under if there is no such session.
    Session {
        /// The ACP session id.
        session_id: String,
        /// Of a request.
        request: Option<Id>,
    },
    /// It answers a request of the session with this number.
    Answer(u32),
    /// It withdraws a request, which may be any session's.
    Withdraw(Id),
    /// It needs nothing; the text is for the trace.
    Skip(String),
}

/// The connection's part of an ACP agent.
#[derive(Debug, Default)]
pub struct AcpAgent {
    /// The agent's name for people, from its profile.
    title: String,
    client: Option<ClientCapabilities>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct InitializeParams<'a> {
    #[serde(borrow)]
    protocol_version: Raw<'a>,
    #[serde(borrow)]
    client_capabilities: Raw<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SessionParams<'a> {
    #[serde(borrow)]
    session_id: Raw<'a>,
    #[serde(borrow)]
    request_id: Raw<'a>,
    #[serde(borrow)]
    method_id: Raw<'a>,
}

/// Reads `params` that must be an object.
pub(crate) fn object<'a, T: Deserialize<'a>>(method: &str, params: Raw<'a>) -> Result<T, RpcError> {
    let Some(raw) = params else {
        return Err(RpcError::invalid_params(format!("{method} needs `params`, an object; there are none")));
    };
    if !raw.get().starts_with('{') {
        return Err(RpcError::invalid_params(format!(
            "{method}: `params` must be an object; found {}",
            json_kind(raw)
        )));
    }
    serde_json::from_str(raw.get()).map_err(|e| RpcError::invalid_params(format!("{method}: {e}")))
}

impl AcpAgent {
    /// An agent with this name for people.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), client: None }
    }

    /// What the editor said of itself; empty before `initialize`.
    #[must_use]
    pub fn client(&self) -> ClientCapabilities {
        self.client.clone().unwrap_or_default()
    }

    /// Says where a line of the editor goes.
    pub fn route(&mut self, line: &[u8]) -> Route {
        match Message::parse(line) {
            Ok(Message::Request { id, method, params }) => self.request(id, &method, params),
            Ok(Message::Notification { method, params }) => self.notification(&method, params),
            Ok(Message::Response { id, .. }) => match id.as_number() {
                Some(n) => Route::Answer(u32::try_from(n >> COUNT_BITS).unwrap_or(u32::MAX)),
                None => Route::Skip(format!("an answer to the unknown request {id}")),
            },
            Err(malformed) => {
                let id = match &malformed {
                    jsonrpc::Malformed::Invalid { id: Some(id), .. } => id.clone(),
                    _ => Id::Null,
                };
                Route::Reply(jsonrpc::error(&id, &RpcError::from(&malformed)))
            }
        }
    }

    fn request(&mut self, id: Id, method: &str, params: Raw<'_>) -> Route {
        let answer = match method {
            methods::INITIALIZE => self.initialize(params).map(|result| jsonrpc::response(&id, &result)),
            _ if self.client.is_none() => Err(RpcError::new(
                codes::INVALID_REQUEST,
                format!("`{method}` came before `initialize`; send `initialize` first"),
            )),
            methods::SESSION_NEW => return Route::Open(id),
            methods::SESSION_PROMPT | methods::SESSION_SET_MODE => match session_id(method, params) {
                Ok(session_id) => return Route::Session { session_id, request: Some(id) },
                Err(e) => Err(e),
            },
            // A request is always answered, also one that should have been a notification.
            methods::SESSION_CANCEL => {
                Err(RpcError::new(codes::INVALID_REQUEST, "`session/cancel` is a notification; send it without `id`"))
            }
            methods::AUTHENTICATE => Err(authenticate(params)),
            _ => Err(RpcError::new(codes::METHOD_NOT_FOUND, format!("method not found: {method}"))
                .with_data(json!({ "method": method }))),
        };
        Route::Reply(answer.unwrap_or_else(|e| jsonrpc::error(&id, &e)))
    }

    fn notification(&mut self, method: &str, params: Raw<'_>) -> Route {
        match method {
            methods::SESSION_CANCEL => match session_id(method, params) {
                Ok(session_id) => Route::Session { session_id, request: None },
                Err(e) => Route::Skip(e.message),
            },
            methods::CANCEL_REQUEST => {
                let p: SessionParams<'_> = object(method, params).unwrap_or_default();
                match p.request_id.and_then(Id::from_raw).or_else(|| null_id(params)) {
                    Some(id) => Route::Withdraw(id),
                    None => Route::Skip("`$/cancel_request` without a usable `requestId`".into()),
                }
            }
            _ => Route::Skip(format!("unknown notification `{method}`")),
        }
    }

    /// Version 1 is asked for and answered; any other number is answered with the version we have, and the client
    /// decides (acp.md, section 5, rules 13 and 14). What is no version is refused.
    fn initialize(&mut self, params: Raw<'_>) -> Result<InitializeResult, RpcError> {
        let p: InitializeParams<'_> = object(methods::INITIALIZE, params)?;
        let expected = "expected an integer such as 1";
        match p.protocol_version {
            None => {
                return Err(RpcError::invalid_params(format!("initialize: `protocolVersion` is missing; {expected}")));
            }
            Some(raw) if uint(Some(raw)).is_none_or(|v| v > u64::from(u16::MAX)) => {
                return Err(RpcError::invalid_params(format!(
                    "initialize: `protocolVersion` is {} ({}); {expected}",
                    crate::wire::text::cut(raw.get(), 40),
                    json_kind(raw)
                )));
            }
            Some(_) => {}
        }
        self.client = Some(ClientCapabilities::read(p.client_capabilities));
        Ok(InitializeResult {
            protocol_version: PROTOCOL_VERSION,
            agent_capabilities: AgentCapabilities {
                load_session: false,
                prompt_capabilities: PromptCapabilities { image: true, audio: false, embedded_context: true },
                mcp_capabilities: McpCapabilities { http: true, sse: true },
                session_capabilities: SessionCapabilities { additional_directories: Empty {} },
            },
            auth_methods: [],
            agent_info: AgentInfo { name: "diglot", title: self.title.clone(), version: env!("CARGO_PKG_VERSION") },
        })
    }
}

fn authenticate(params: Raw<'_>) -> RpcError {
    let p: SessionParams<'_> = object(methods::AUTHENTICATE, params).unwrap_or_default();
    let method = text(p.method_id).unwrap_or_default();
    RpcError::invalid_params(format!(
        "there is no authentication method `{method}`; log in with the agent's own command, such as `claude auth login`"
    ))
}

/// `requestId: null` is an id too, but reads as an absent member.
pub(crate) fn null_id(params: Raw<'_>) -> Option<Id> {
    let map: std::collections::HashMap<&str, &RawValue> = serde_json::from_str(params?.get()).ok()?;
    (map.get("requestId")?.get() == "null").then_some(Id::Null)
}

pub(crate) fn session_id(method: &str, params: Raw<'_>) -> Result<String, RpcError> {
    let p: SessionParams<'_> = object(method, params)?;
    match p.session_id {
        Some(raw) => text(Some(raw)).map(Into::into).ok_or_else(|| {
            RpcError::invalid_params(format!("{method}: `sessionId` must be a string; found {}", json_kind(raw)))
        }),
        None => Err(RpcError::invalid_params(format!("{method}: `sessionId` is missing"))),
    }
}

/// The answer to a request for a session that is not there (acp.md, section 5, rule 32).
#[must_use]
pub fn unknown_session(id: &Id, session_id: &str) -> Vec<u8> {
    jsonrpc::error(
        id,
        &RpcError::new(
            codes::RESOURCE_NOT_FOUND,
            format!("there is no session `{session_id}` on this connection; open one with `session/new`"),
        )
        .with_data(json!({ "sessionId": session_id })),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(agent: &mut AcpAgent, line: &str) -> serde_json::Value {
        match agent.route(line.as_bytes()) {
            Route::Reply(line) => serde_json::from_slice(&line).unwrap_or_default(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_number_is_answered_with_the_version_we_have() {
        for version in ["0", "1", "2", "99", "1.0"] {
            let answer = reply(
                &mut AcpAgent::default(),
                &format!(
                    r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":{version}}}}}"#
                ),
            );
            assert_eq!(answer["result"]["protocolVersion"], 1, "{version}");
        }
    }

    #[test]
    fn what_is_no_version_is_refused_and_named() {
        for params in
            [r#"{"protocolVersion":"1"}"#, "{}", r#"{"protocolVersion":-1}"#, r#"{"protocolVersion":70000}"#, "[]"]
        {
            let answer = reply(
                &mut AcpAgent::default(),
                &format!(r#"{{"jsonrpc":"2.0","id":"a","method":"initialize","params":{params}}}"#),
            );
            assert_eq!(answer["error"]["code"], codes::INVALID_PARAMS, "{params}");
            assert_eq!(answer["id"], "a");
        }
    }

    #[test]
    fn nothing_works_before_initialize() {
        let answer = reply(&mut AcpAgent::default(), r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}"#);
        assert_eq!(answer["error"]["code"], codes::INVALID_REQUEST);
    }

    #[test]
    fn an_answer_finds_its_session_by_its_id() {
        let mut agent = AcpAgent::default();
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, request_id(7, 3));
        assert_eq!(agent.route(line.as_bytes()), Route::Answer(7));
        assert_eq!(
            agent.route(br#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":null}}"#),
            Route::Withdraw(Id::Null)
        );
    }
}
