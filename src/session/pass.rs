//! A connection of an editor to an agent that speaks ACP itself: `diglot acp --agent grok`.
//!
//! Owns stdin, the way of each line to its process, and the end. Keeps: the router only parses, answers what needs no process
//! and hands on; a session is found from the moment the agent has named it; when the editor goes, every process is told, and
//! nothing that diglot started is left.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::acp::{AcpOptions, END_LIMIT, Ends, FLOOD, FLUSH_LIMIT, Launch, hand_over, why};
use super::near::{self, NearQueue, Out};
use super::registry::{MAILBOX, Mail, Mailbox, Registry};
use super::task::SessionTask;
use crate::peer::stdio;
use crate::trace::{Dir, Wire};
use crate::translate::acp_over_acp::front::{Front, Otherwise, Route, unknown_session};
use crate::translate::acp_over_acp::{AcpOverAcp, Settings};
use crate::translate::{Action, Actions, Event, Translator};
use crate::wire::frame::{Frame, Noise};
use crate::wire::jsonrpc::{self, Id, Malformed, RpcError};

/// A process whose sessions the registry learns of.
struct Registered {
    link: AcpOverAcp,
    number: u32,
    registry: Registry,
}

impl Translator for Registered {
    fn handle(&mut self, event: Event<'_>, out: &mut Actions) {
        let before = out.as_slice().len();
        self.link.handle(event, out);
        for action in &out.as_slice()[before..] {
            if let Action::Remember { agent_session } = action {
                self.registry.name(self.number, agent_session.as_str().into());
            }
        }
    }
}

struct Connection {
    options: AcpOptions,
    launch: Arc<Launch>,
    front: Front,
    registry: Registry,
    near: NearQueue,
    /// What needs no process and waits for the editor to read.
    replies: mpsc::Sender<Out>,
    links: JoinSet<()>,
    /// Tells every process that the editor is gone.
    closed: watch::Sender<bool>,
    started: u32,
    cwd: PathBuf,
    /// A session lives in the front.
    front_is_taken: bool,
}

/// Serves the editor on stdin and stdout until it goes.
///
/// Needs a tokio runtime with I/O and time. Returns when every process has ended and what was said is written.
pub async fn run(options: AcpOptions) {
    let mut input = stdio::frames();
    let (near, mut writer) = near::spawn(stdio::Stdout::open(), options.trace.clone());
    let (replies, waiting) = mpsc::channel(FLOOD);
    tokio::spawn(hand_over(waiting, near.clone()));
    let mut connection = Connection {
        launch: Arc::new(options.launch.clone()),
        front: Front::default(),
        registry: Registry::default(),
        near,
        replies,
        links: JoinSet::new(),
        closed: watch::Sender::new(false),
        started: 0,
        cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        front_is_taken: false,
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
            // Processes that have ended with their session.
            Some(_) = connection.links.join_next(), if !connection.links.is_empty() => {}
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
        let route = self.front.route(&line);
        let session = match &route {
            Route::Session { session_id, .. } | Route::Open { session_id: Some(session_id), .. } => Some(&**session_id),
            _ => None,
        };
        self.options.trace.line(Wire::Near, Dir::In, session, &line);
        match route {
            Route::Reply(reply) => self.reply(reply).await,
            Route::Front => {
                let front = self.of_front();
                self.deliver(&front, line).await;
            }
            Route::Open { session_id, cwd } => {
                let mailbox = self.place(session_id.as_deref(), cwd);
                self.deliver(&mailbox, line).await;
            }
            Route::Session { session_id, otherwise } => match (self.registry.of_id(&session_id), otherwise) {
                (Some(mailbox), _) => self.deliver(&mailbox, line).await,
                (None, Otherwise::Front) => {
                    let front = self.of_front();
                    self.deliver(&front, line).await;
                }
                (None, Otherwise::Refuse(id)) => self.reply(unknown_session(&id, &session_id)).await,
                (None, Otherwise::Nothing) => self.note("a notification for an unknown session"),
            },
            Route::Answer(number) => match self.registry.of_number(number) {
                Some(mailbox) => self.deliver(&mailbox, line).await,
                None => self.note("an answer to a question of no process"),
            },
            Route::All => {
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
        let reply = match self.front.route(&noise.bytes) {
            // Only what is here whole can be judged by what it says.
            Route::Reply(reply) if noise.total_len == noise.bytes.len() => reply,
            _ => jsonrpc::error(&Id::Null, &RpcError::from(&Malformed::NotJson(noise.why.to_string()))),
        };
        self.reply(reply).await;
    }

    fn note(&self, note: &str) {
        self.options.trace.note(None, format_args!("{note}"));
    }

    async fn deliver(&self, mailbox: &Mailbox, line: Bytes) {
        // A process that has just ended has answered everything it was asked.
        if mailbox.send(Mail::Near(line)).await.is_err() {
            self.note("a line for a process that has just ended");
        }
    }

    async fn reply(&self, line: Vec<u8>) {
        // Without a reader there is nobody to tell; the loop ends by the writer.
        let _ = self.replies.send(Out::Line(line)).await;
    }

    /// The process of what needs no session.
    fn of_front(&mut self) -> Mailbox {
        match self.registry.of_number(0) {
            Some(mailbox) => mailbox,
            None => self.add(0, self.cwd.clone(), false),
        }
    }

    /// The process in which a session is opened.
    fn place(&mut self, session: Option<&str>, cwd: PathBuf) -> Mailbox {
        if let Some(mailbox) = session.and_then(|id| self.registry.of_id(id)) {
            return mailbox;
        }
        let alone = self.options.profile.acp.process_per_session;
        if !alone || (!self.front_is_taken && cwd == self.cwd) {
            self.front_is_taken = true;
            return self.of_front();
        }
        self.started += 1;
        self.add(self.started, cwd, true)
    }

    fn add(&mut self, number: u32, cwd: PathBuf, own: bool) -> Mailbox {
        let (mailbox, receiver) = mpsc::channel(MAILBOX);
        let label: Arc<str> = format!("process {number}").into();
        self.registry.add(number, label.clone(), mailbox.clone());
        let link = AcpOverAcp::new(Settings {
            profile: self.options.profile.clone(),
            number,
            cwd,
            initialize: if own { self.front.initialize() } else { None },
            login: if own { self.front.login() } else { None },
            own,
        });
        let task = SessionTask {
            translator: Registered { link, number, registry: self.registry.clone() },
            session_id: label.clone(),
            mailbox: receiver,
            closed: self.closed.subscribe(),
            near: self.near.clone(),
            launch: self.launch.clone(),
            trace: self.options.trace.clone(),
            outside: None,
        };
        let registry = self.registry.clone();
        self.links.spawn(async move {
            task.run().await;
            registry.remove(number, &label);
        });
        mailbox
    }

    /// Tells every process that the editor is gone and waits for them.
    async fn end(mut self) {
        self.closed.send_replace(true);
        let all = async { while self.links.join_next().await.is_some() {} };
        if timeout(END_LIMIT, all).await.is_err() {
            // Dropping a link drops its process, and with it the guard's lifeline: it ends in any case.
            tracing::warn!("a process did not end in time; it is killed");
        }
    }
}
