//! A connection of an editor: `diglot acp`.
//!
//! Owns stdin, the way of each line to its session, and the end. Keeps: the router only parses, answers what needs no
//! session and hands on, so that a question open in one session never holds up another (report 2); when the editor goes,
//! every session is told, and nothing that diglot started is left (design, section 3, rules 5 and 11).

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

use super::near::{self, NearQueue, Out};
use super::registry::{MAILBOX, Mail, Mailbox, Registry};
use super::task::SessionTask;
use crate::mappings::{AgentProfile, Mappings};
use crate::peer::guard::Guards;
use crate::peer::stdio;
use crate::trace::{Dir, Trace, Wire};
use crate::translate::IdSource;
use crate::translate::acp_agent::{AcpAgent, Route, unknown_session};
use crate::translate::acp_over_claude::{AcpOverClaude, Settings};
use crate::wire::frame::{Frame, Noise, NoiseReason};
use crate::wire::jsonrpc::{self, Id, Malformed, RpcError};

/// Sessions get this long to end after the editor has gone: closing, terminating and killing an agent takes 2.5 s.
pub(super) const END_LIMIT: Duration = Duration::from_secs(6);

/// An editor that has closed our stdin may still read, but not for ever.
pub(super) const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// Answers that may wait for an editor that asks and does not read, before it is no longer heard.
pub(super) const FLOOD: usize = 4096;

/// What is started for a session.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Looked for on PATH unless it is a path.
    pub program: OsString,
    /// Given before the profile's own.
    pub args: Vec<OsString>,
    /// Variables that are set.
    pub env: Vec<(OsString, OsString)>,
    /// Variables that are taken away.
    pub env_remove: Vec<OsString>,
    /// What to do when the program is not found.
    pub hint: String,
    /// Where the agents' guards come from.
    pub guards: Guards,
}

/// What `diglot acp` serves.
#[derive(Debug, Clone)]
pub struct AcpOptions {
    /// The tables.
    pub mappings: Arc<Mappings>,
    /// The agent.
    pub profile: Arc<AgentProfile>,
    /// How it is started.
    pub launch: Launch,
    /// Where both wires are recorded.
    pub trace: Trace,
}

struct RandomIds;

impl IdSource for RandomIds {
    fn uuid(&mut self) -> Uuid {
        Uuid::new_v4()
    }
}

struct Connection {
    options: AcpOptions,
    launch: Arc<Launch>,
    agent: AcpAgent,
    registry: Registry,
    near: NearQueue,
    /// What needs no session and waits for the editor to read.
    replies: mpsc::Sender<Out>,
    sessions: JoinSet<()>,
    /// Tells every session that the editor is gone.
    closed: watch::Sender<bool>,
    opened: u32,
}

/// Serves the editor on stdin and stdout until it goes.
///
/// Needs a tokio runtime with I/O and time. Returns when every session has ended and what was said is written.
pub async fn run(options: AcpOptions) {
    let mut input = stdio::frames();
    let (near, mut writer) = near::spawn(stdio::Stdout::open(), options.trace.clone());
    let (replies, waiting) = mpsc::channel(FLOOD);
    tokio::spawn(hand_over(waiting, near.clone()));
    let mut connection = Connection {
        launch: Arc::new(options.launch.clone()),
        agent: AcpAgent::new(options.profile.title.clone()),
        registry: Registry::default(),
        near,
        replies,
        sessions: JoinSet::new(),
        closed: watch::Sender::new(false),
        opened: 0,
        options,
    };
    let mut ends = Ends::new();
    loop {
        tokio::select! {
            frame = input.next_frame() => match frame {
                Some(frame) => tokio::select! {
                    () = connection.frame(frame) => {}
                    // The editor may be one that asks and does not read: it can still be told to end.
                    () = ends.signal() => break,
                    _ = &mut writer => break,
                },
                None => break,
            },
            () = ends.signal() => break,
            // The editor no longer reads.
            _ = &mut writer => break,
            // Sessions that have ended by themselves.
            Some(_) = connection.sessions.join_next(), if !connection.sessions.is_empty() => {}
        }
    }
    connection.end().await;
    if !writer.is_finished() && timeout(FLUSH_LIMIT, &mut writer).await.is_err() {
        tracing::warn!("the editor did not read everything that was said");
    }
}

impl Connection {
    async fn frame(&mut self, frame: Frame) {
        match frame {
            Frame::Line(line) => self.line(line).await,
            Frame::Noise(noise) => self.noise(&noise).await,
        }
    }

    async fn line(&mut self, line: Bytes) {
        let route = self.agent.route(&line);
        let session = match &route {
            Route::Session { session_id, .. } => Some(&**session_id),
            _ => None,
        };
        self.options.trace.line(Wire::Near, Dir::In, session, &line);
        match route {
            Route::Reply(reply) => self.reply(reply).await,
            Route::Open(_) => self.open(line).await,
            Route::Session { session_id, request } => match self.registry.of_id(&session_id) {
                Some(mailbox) => self.deliver(&mailbox, line).await,
                None => match request {
                    Some(id) => self.reply(unknown_session(&id, &session_id)).await,
                    None => self.note(&format!("a notification for the unknown session {session_id}")),
                },
            },
            Route::Answer(number) => match self.registry.of_number(number) {
                Some(mailbox) => self.deliver(&mailbox, line).await,
                None => self.note("an answer to a question of no session"),
            },
            Route::Withdraw(_) => {
                for mailbox in self.registry.all() {
                    self.deliver(&mailbox, line.clone()).await;
                }
            }
            Route::Skip(why) => self.note(&why),
        }
    }

    /// What is no line of JSON-RPC is answered as JSON-RPC wants it.
    async fn noise(&mut self, noise: &Noise) {
        self.options.trace.noise(Wire::Near, Dir::In, None, &noise.bytes, why(noise.why));
        let reply = match self.agent.route(&noise.bytes) {
            // Only what is here whole can be judged by what it says.
            Route::Reply(reply) if noise.total_len == noise.bytes.len() => reply,
            _ => jsonrpc::error(&Id::Null, &RpcError::from(&Malformed::NotJson(noise.why.to_string()))),
        };
        self.reply(reply).await;
    }

    fn note(&self, note: &str) {
        self.options.trace.note(None, format_args!("{note}"));
    }

    /// A session takes its mail at once unless its editor asks thousands of things and reads no answer; then this waits.
    async fn deliver(&self, mailbox: &Mailbox, line: Bytes) {
        // A session that has just ended has answered everything it was asked.
        if mailbox.send(Mail::Near(line)).await.is_err() {
            self.note("a line for a session that has just ended");
        }
    }

    /// Waits only for an editor that asks thousands of things and reads no answer: one that does not read can still cancel.
    async fn reply(&self, line: Vec<u8>) {
        // Without a reader there is nobody to tell; the loop ends by the writer.
        let _ = self.replies.send(Out::Line(line)).await;
    }

    async fn open(&mut self, line: Bytes) {
        self.opened += 1;
        let number = self.opened;
        let session_id: Arc<str> = RandomIds.uuid().to_string().into();
        let (mailbox, receiver) = mpsc::channel(MAILBOX);
        self.registry.add(number, session_id.clone(), mailbox.clone());
        let task = SessionTask {
            translator: AcpOverClaude::new(Settings {
                mappings: self.options.mappings.clone(),
                profile: self.options.profile.clone(),
                client: self.agent.client(),
                number,
                session_id: session_id.clone(),
                ids: Box::new(RandomIds),
            }),
            session_id: session_id.clone(),
            mailbox: receiver,
            closed: self.closed.subscribe(),
            near: self.near.clone(),
            launch: self.launch.clone(),
            trace: self.options.trace.clone(),
            outside: None,
        };
        let registry = self.registry.clone();
        self.sessions.spawn(async move {
            task.run().await;
            registry.remove(number, &session_id);
        });
        self.deliver(&mailbox, line).await;
    }

    /// Tells every session that the editor is gone and waits for them.
    async fn end(mut self) {
        self.closed.send_replace(true);
        let all = async { while self.sessions.join_next().await.is_some() {} };
        if timeout(END_LIMIT, all).await.is_err() {
            // Dropping a session drops its process, and with it the guard's lifeline: it ends in any case.
            tracing::warn!("a session did not end in time; its agent is killed");
        }
    }
}

/// Hands the connection's own answers over as the editor reads them.
pub(super) async fn hand_over(mut replies: mpsc::Receiver<Out>, near: NearQueue) {
    while let Some(reply) = replies.recv().await {
        let Ok(place) = near.place(&reply).await else { return };
        place.fill(reply);
    }
}

/// Why a line is noise, as the trace says it.
pub(super) fn why(reason: NoiseReason) -> &'static str {
    match reason {
        NoiseReason::TooLong { .. } => "too_long",
        NoiseReason::NotUtf8 => "not_utf8",
        NoiseReason::NotJson => "not_json",
        NoiseReason::NotObject => "not_object",
    }
}

/// The signals that end diglot in order.
pub(super) struct Ends {
    #[cfg(unix)]
    signals: Vec<tokio::signal::unix::Signal>,
}

impl Ends {
    #[cfg(unix)]
    pub(super) fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        Self { signals: kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect() }
    }

    #[cfg(not(unix))]
    pub(super) fn new() -> Self {
        Self {}
    }

    #[cfg(unix)]
    pub(super) async fn signal(&mut self) {
        std::future::poll_fn(|cx| {
            if self.signals.iter_mut().any(|s| s.poll_recv(cx).is_ready()) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }

    #[cfg(not(unix))]
    pub(super) async fn signal(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
