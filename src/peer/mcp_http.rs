//! An MCP server over HTTP, as lines: for an agent, or for diglot, that speaks MCP over stdio.
//!
//! Owns one client's conversation with a server: streamable HTTP (a POST for each message, JSON or events as its answer, a
//! session id, a stream of the server's own, DELETE at the end) or the older SSE (one stream, messages by POST). Keeps: each
//! request gets its answer or an error that says why; what follows `initialize` waits for it, and a notification is
//! delivered before what comes after it; requests do not wait for each other; the number of open ones is bounded.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::http::{Answer, Connections, Endpoint, HttpError};
use crate::wire::frame::MAX_LINE;
use crate::wire::jsonrpc::{self, Id, Message, RpcError};
use crate::wire::sse::{SseDecoder, SseEvent};

/// Requests that may wait for the server.
const OPEN: usize = 64;

/// How long a notification, the handshake or the first word of a stream may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the server is given to hear of the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Before a stream that broke off is taken up again, if the server does not say.
const AGAIN: Duration = Duration::from_secs(1);

/// How often a stream is taken up again without a word on it.
const TRIES: u32 = 3;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// The way that a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP.
    Http,
    /// The older way with one stream.
    Sse,
}

/// A server and how it is reached.
#[derive(Debug, Clone)]
pub struct Remote {
    transport: Transport,
    endpoint: Endpoint,
}

impl Remote {
    /// Reads what a configuration says.
    ///
    /// # Errors
    /// When it cannot be reached that way.
    pub fn new<'h>(
        transport: Transport,
        url: &str,
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
    ) -> Result<Self, HttpError> {
        Ok(Self { transport, endpoint: Endpoint::new(url, headers)? })
    }

    /// Carries a client's lines to the server and what it says back, one JSON object a line, until the client is gone or
    /// the server cannot be spoken to any more. Needs a tokio runtime with I/O and time.
    pub async fn carry(self, lines: mpsc::Receiver<Bytes>, out: mpsc::Sender<Bytes>) {
        match self.transport {
            Transport::Http => streamable(self.endpoint, lines, out).await,
            Transport::Sse => stream(self.endpoint, lines, out).await,
        }
    }
}

/// What the conversation's parts share.
#[derive(Debug)]
struct Talk {
    to: Endpoint,
    connections: Connections,
    out: mpsc::Sender<Bytes>,
    /// The session's id and the version that were agreed.
    agreed: Mutex<(Option<String>, Option<String>)>,
}

/// What a message of the client's is.
enum Said {
    Request { id: Id, initialize: bool },
    Notification { initialized: bool },
    Nonsense,
}

fn said(line: &[u8]) -> Said {
    match Message::parse(line) {
        Ok(Message::Request { id, method, .. }) => Said::Request { id, initialize: method == "initialize" },
        Ok(Message::Notification { method, .. }) => {
            Said::Notification { initialized: method == "notifications/initialized" }
        }
        Ok(Message::Response { .. }) => Said::Notification { initialized: false },
        Err(_) => Said::Nonsense,
    }
}

/// Streamable HTTP.
async fn streamable(to: Endpoint, mut lines: mpsc::Receiver<Bytes>, out: mpsc::Sender<Bytes>) {
    let agreed = Mutex::default();
    let talk = Arc::new(Talk { to, connections: Connections::default(), out, agreed });
    let mut tasks = JoinSet::new();
    loop {
        let line = tokio::select! {
            line = lines.recv(), if tasks.len() <= OPEN => line,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            () = talk.out.closed() => break,
        };
        let Some(line) = line else { break };
        match said(&line) {
            Said::Request { id, initialize: true } => {
                let asked = timeout(PATIENCE, talk.post(line, Some(&id))).await;
                let error = match asked {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => error,
                    Err(_) => format!("{} did not answer `initialize`", talk.to.origin()),
                };
                talk.refuse(&id, &error).await;
            }
            Said::Request { id, .. } => {
                let talk = Arc::clone(&talk);
                tasks.spawn(async move {
                    if let Err(error) = talk.post(line, Some(&id)).await {
                        talk.refuse(&id, &error).await;
                    }
                });
            }
            Said::Notification { initialized } => {
                match timeout(PATIENCE, talk.post(line, None)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::warn!(%error, "an MCP server does not take a notification"),
                    Err(_) => tracing::warn!("an MCP server takes no notification"),
                }
                if initialized {
                    let talk = Arc::clone(&talk);
                    tasks.spawn(async move { talk.listen().await });
                }
            }
            Said::Nonsense => tracing::debug!("a line of an MCP client is no message"),
        }
    }
    tasks.shutdown().await;
    if talk.agreed().0.is_some() {
        // Whether the server ends sessions so is its own business.
        _ = timeout(FAREWELL, talk.send(Method::DELETE, None, None)).await;
    }
}

impl Talk {
    fn agreed(&self) -> (Option<String>, Option<String>) {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn send(&self, method: Method, body: Option<Bytes>, after: Option<&str>) -> Result<Answer, HttpError> {
        let accept = if method == Method::GET { "text/event-stream" } else { "application/json, text/event-stream" };
        let mut headers = vec![(ACCEPT, accept.to_owned())];
        let (session, version) = self.agreed();
        headers.extend(body.is_some().then(|| (CONTENT_TYPE, "application/json".to_owned())));
        headers.extend(session.map(|id| (SESSION, id)));
        headers.extend(version.map(|version| (VERSION, version)));
        headers.extend(after.map(|id| (LAST_EVENT, id.to_owned())));
        self.connections.send(method, &self.to, &headers, body.unwrap_or_default()).await
    }

    async fn refuse(&self, id: &Id, why: &str) {
        let error = RpcError::new(-32603, format!("the MCP server cannot be asked: {why}"));
        // A client that is gone waits for nothing.
        _ = self.out.send(jsonrpc::error(id, &error).into()).await;
    }

    /// Delivers a message. `Ok`: its answer, if it has one, was passed on.
    async fn post(&self, line: Bytes, id: Option<&Id>) -> Result<(), String> {
        let mut answer = self.send(Method::POST, Some(line), None).await.map_err(|error| error.to_string())?;
        let origin = self.to.origin();
        match answer.status {
            200..=299 => {}
            404 if self.agreed().0.is_some() => {
                return Err(format!("{origin} has ended the session; start the conversation again"));
            }
            401 | 403 => {
                return Err(format!(
                    "{origin} wants another authorization ({}); set it in `headers` of --mcp-config",
                    answer.status
                ));
            }
            status => {
                // Its own error, if it says one.
                let body = answer.all(64 * 1024).await.unwrap_or_default();
                if let (Some(id), Ok(Message::Response { id: own, .. })) = (id, Message::parse(&body))
                    && own == *id
                {
                    return self.pass(&body).await.map(|_| ());
                }
                return Err(format!("{origin} answered with the status {status}"));
            }
        }
        if let Some(session) = answer.header(SESSION.as_str()).map(ToOwned::to_owned) {
            self.agreed.lock().unwrap_or_else(PoisonError::into_inner).0.get_or_insert(session);
        }
        if answer.is_events() {
            return self.events(answer, id).await;
        }
        let body = answer.all(MAX_LINE).await.map_err(|error| error.to_string())?;
        let passed = self.pass(&body).await?;
        match id {
            Some(id) if !passed.contains(id) => Err(format!("{origin} gave no answer")),
            _ => Ok(()),
        }
    }

    /// The stream that answers a request. One that breaks off is taken up again where it was.
    async fn events(&self, mut answer: Answer, id: Option<&Id>) -> Result<(), String> {
        let mut decoder = SseDecoder::new(MAX_LINE);
        let mut tries = 0;
        loop {
            let (ended, heard) = self.read(&mut answer, &mut decoder, id).await?;
            if ended || id.is_none() {
                return Ok(());
            }
            tries = if heard { 0 } else { tries + 1 };
            let origin = self.to.origin();
            let Some(last) = decoder.last_id().map(ToOwned::to_owned).filter(|_| tries < TRIES) else {
                return Err(format!("the stream of {origin} ended before the answer"));
            };
            sleep(decoder.retry_ms().map_or(AGAIN, Duration::from_millis).min(PATIENCE)).await;
            let next = self.send(Method::GET, None, Some(&last)).await.map_err(|error| error.to_string())?;
            if next.status != 200 || !next.is_events() {
                return Err(format!("the stream of {origin} ended before the answer"));
            }
            answer = next;
        }
    }

    /// Passes a stream's messages on, to its end or to the answer; whether that came, and whether anything did.
    async fn read(
        &self,
        answer: &mut Answer,
        decoder: &mut SseDecoder,
        id: Option<&Id>,
    ) -> Result<(bool, bool), String> {
        let mut heard = false;
        loop {
            let piece = match answer.piece().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok((false, heard)),
                Err(error) => {
                    tracing::debug!(%error, "a stream of an MCP server broke off");
                    return Ok((false, heard));
                }
            };
            for event in decoder.push(&piece).map_err(|error| error.to_string())? {
                heard = true;
                let passed = self.pass(event.data.as_bytes()).await?;
                if id.is_some_and(|id| passed.contains(id)) {
                    return Ok((true, heard));
                }
            }
        }
    }

    /// What the server says of its own accord.
    async fn listen(&self) {
        let mut decoder = SseDecoder::new(MAX_LINE);
        let mut tries = 0;
        while tries < TRIES {
            let last = decoder.last_id().map(ToOwned::to_owned);
            match self.send(Method::GET, None, last.as_deref()).await {
                Ok(mut answer) if answer.status == 200 && answer.is_events() => {
                    match self.read(&mut answer, &mut decoder, None).await {
                        Ok((_, true)) => tries = 0,
                        Ok((_, false)) => tries += 1,
                        Err(_) => return,
                    }
                }
                // It has no such stream.
                Ok(_) => return,
                Err(error) => {
                    tracing::debug!(%error, "an MCP server's stream");
                    tries += 1;
                }
            }
            sleep(decoder.retry_ms().map_or(AGAIN, Duration::from_millis).min(PATIENCE)).await;
        }
    }

    /// Passes on what a body or an event holds: a message, or several. Gives the ids of the answers among them.
    async fn pass(&self, body: &[u8]) -> Result<Vec<Id>, String> {
        let mut answered = Vec::new();
        for line in messages(body) {
            if let Ok(Message::Response { id, outcome }) = Message::parse(&line) {
                if let Ok(result) = outcome {
                    self.read_version(result);
                }
                answered.push(id);
            }
            self.out.send(line).await.map_err(|_| "the client is gone".to_owned())?;
        }
        Ok(answered)
    }

    /// The version that the server chose goes with all that follows.
    fn read_version(&self, result: &RawValue) {
        let mut agreed = self.agreed.lock().unwrap_or_else(PoisonError::into_inner);
        if agreed.1.is_none() {
            let result: serde_json::Value = serde_json::from_str(result.get()).unwrap_or_default();
            agreed.1 = result.get("protocolVersion").and_then(|version| version.as_str()).map(ToOwned::to_owned);
        }
    }
}

/// The messages in a body, each on a line of its own.
fn messages(body: &[u8]) -> Vec<Bytes> {
    let list: Vec<&RawValue> = match body.trim_ascii_start().first() {
        Some(b'[') => serde_json::from_slice(body).unwrap_or_default(),
        Some(b'{') => serde_json::from_slice(body).map(|one| vec![one]).unwrap_or_default(),
        // Nothing, or a keep-alive.
        _ => Vec::new(),
    };
    // Line feeds stand between JSON's parts only: in its strings they are escaped.
    let line = |raw: &RawValue| raw.get().replace(['\n', '\r'], " ").into();
    list.into_iter().map(line).collect()
}

/// The older way: one stream, and messages by POST to the address that it names first.
async fn stream(to: Endpoint, mut lines: mpsc::Receiver<Bytes>, out: mpsc::Sender<Bytes>) {
    let agreed = Mutex::default();
    let mut talk = Talk { to, connections: Connections::default(), out, agreed };
    let opened = timeout(PATIENCE, open(&talk))
        .await
        .unwrap_or_else(|_| Err(format!("{} did not say where messages go", talk.to.origin())));
    let (mut answer, mut decoder, early) = match opened {
        Ok((answer, decoder, endpoint, early)) => {
            talk.to = endpoint;
            (answer, decoder, early)
        }
        Err(why) => {
            // Whoever asks is told; the first who does is the handshake.
            while let Some(line) = lines.recv().await {
                if let Said::Request { id, .. } = said(&line) {
                    return talk.refuse(&id, &why).await;
                }
            }
            return;
        }
    };
    let mut waiting: Vec<Id> = Vec::new();
    let mut events = early;
    loop {
        for event in std::mem::take(&mut events) {
            match talk.pass(event.data.as_bytes()).await {
                Ok(answered) => waiting.retain(|id| !answered.contains(id)),
                Err(_) => return,
            }
        }
        let why = tokio::select! {
            piece = answer.piece() => match piece {
                Ok(Some(piece)) => match decoder.push(&piece) {
                    Ok(more) => {
                        events = more;
                        continue;
                    }
                    Err(error) => error.to_string(),
                },
                Ok(None) => "it ended".to_owned(),
                Err(error) => error.to_string(),
            },
            line = lines.recv(), if waiting.len() <= OPEN => {
                let Some(line) = line else { return };
                let id = match said(&line) {
                    Said::Request { id, .. } => Some(id),
                    Said::Notification { .. } => None,
                    Said::Nonsense => continue,
                };
                waiting.extend(id.clone());
                let posted = timeout(PATIENCE, talk.send(Method::POST, Some(line), None)).await;
                let why = match posted {
                    Ok(Ok(mut answer)) if (200..300).contains(&answer.status) => {
                        // Nothing of interest, but it frees the connection.
                        _ = answer.all(64 * 1024).await;
                        continue;
                    }
                    Ok(Ok(answer)) => format!("{} answered with the status {}", talk.to.origin(), answer.status),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("{} takes no message", talk.to.origin()),
                };
                if let Some(id) = id {
                    waiting.retain(|own| *own != id);
                    talk.refuse(&id, &why).await;
                }
                continue;
            }
        };
        for id in &waiting {
            talk.refuse(id, &format!("the stream of {} is gone: {why}", talk.to.origin())).await;
        }
        return;
    }
}

/// Opens the stream of the older way: where messages go, and what came with that.
async fn open(talk: &Talk) -> Result<(Answer, SseDecoder, Endpoint, Vec<SseEvent>), String> {
    let mut answer = talk.send(Method::GET, None, None).await.map_err(|error| error.to_string())?;
    if answer.status != 200 || !answer.is_events() {
        return Err(format!(
            "{} answered with the status {} and no stream of events; is it of type http?",
            talk.to.origin(),
            answer.status
        ));
    }
    let mut decoder = SseDecoder::new(MAX_LINE);
    while let Some(piece) = answer.piece().await.map_err(|error| error.to_string())? {
        let mut events = decoder.push(&piece).map_err(|error| error.to_string())?.into_iter();
        let found = events.by_ref().find(|event| event.kind == "endpoint");
        if let Some(found) = found {
            let endpoint = talk.to.within(found.data.trim()).map_err(|error| error.to_string())?;
            return Ok((answer, decoder, endpoint, events.collect()));
        }
    }
    Err(format!("{} did not say where messages go", talk.to.origin()))
}
