//! A host's connection: `diglot claude`.
//!
//! Owns stdin, stdout in the format that was asked for, the signals and the exit code. Keeps: the end of stdin is passed on
//! and ends nothing by itself (rule 16 of the hosts); SIGTERM ends all at once with 143, SIGHUP with 129, SIGINT interrupts
//! the turn (rule 17); when this returns, everything is written and no process is left.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use uuid::Uuid;

use super::acp::{Launch, why};
use super::asker;
use super::near;
use super::printer::{Format, Printer};
use super::registry::{MAILBOX, Mail};
use super::relays::{Proxied, pump, remote};
use super::store::{SessionRecord, SessionStore};
use super::task::{Outside, SessionTask};
use super::terminals;
use crate::peer::child::ChildSpec;
use crate::peer::http::HTTPS;
use crate::peer::relay::{Relay, TOKEN};
use crate::peer::stdio;
use crate::trace::{Dir, Trace, Wire};
use crate::translate::claude_over_acp::{ClaudeOverAcp, RelayCommand, Settings};
use crate::translate::client::{ClientDone, ClientFailure};
use crate::translate::{Clock, IdSource};
use crate::wire::acp_client::McpServer;
use crate::wire::frame::Frame;
use crate::wire::jsonrpc::to_line;

/// A host that has gone may still hold our stdout, but not for ever.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

/// Lines that may wait for the relay's clients.
const RELAYED: usize = 256;

/// The exit code after SIGTERM.
#[cfg(unix)]
const TERMINATED: u8 = 143;

/// The exit code after SIGHUP.
#[cfg(unix)]
const HUNG_UP: u8 = 129;

/// What comes on stdin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Messages and control lines.
    Stream,
    /// Nothing: this is the one prompt.
    Prompt(String),
}

/// What `diglot claude` serves.
pub struct HostOptions {
    /// The conversation.
    pub settings: Settings,
    /// How the agent is started.
    pub launch: Launch,
    /// The MCP server that answers permission questions.
    pub asker: Option<McpServer>,
    /// What comes on stdin.
    pub input: Input,
    /// What stdout gets.
    pub format: Format,
    /// Where the agent's session is kept.
    pub store: Option<SessionStore>,
    /// Where both wires are recorded.
    pub trace: Trace,
}

/// Ids and time as they are.
#[derive(Debug)]
pub struct Real {
    start: std::time::Instant,
    /// Where the next id comes from. Ids of lines need to differ and no more, and there is one for every token.
    state: u64,
}

impl Default for Real {
    fn default() -> Self {
        let seed = Uuid::new_v4().as_u64_pair();
        Self { start: std::time::Instant::now(), state: seed.0 ^ seed.1.rotate_left(32) }
    }
}

impl Real {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl IdSource for Real {
    fn uuid(&mut self) -> Uuid {
        let (high, low) = (self.next(), self.next());
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_ne_bytes());
        bytes[8..].copy_from_slice(&low.to_ne_bytes());
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }
}

impl Clock for Real {
    fn now_ms(&mut self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Serves the host until the conversation is over; gives the exit code.
///
/// Needs a tokio runtime with I/O and time.
pub async fn run(options: HostOptions) -> u8 {
    let HostOptions { mut settings, launch, asker, input, format, store, trace } = options;
    let printer = (format != Format::StreamJson).then(|| Printer::new(format));
    let (near, mut writer) = near::spawn_printing(stdio::Stdout::open(), trace.clone(), printer);
    let (mailbox, receiver) = mpsc::channel(MAILBOX);
    let closed = watch::Sender::new(false);
    let session_id: Arc<str> = settings.session_id.as_str().into();
    let agent = settings.profile.name.clone();
    let cwd = settings.cwd.clone();
    let id = settings.session_id.clone();
    let remember = move |agent_session: String| {
        let Some(store) = &store else { return };
        let kept = SessionRecord::new(&id, &agent, &agent_session, &cwd).and_then(|record| store.remember(&record));
        if let Err(error) = kept {
            tracing::warn!(%error, "the session cannot be resumed later");
        }
    };
    // Only a host that speaks back can have MCP servers of its own; others the agent may not reach by itself.
    let by_http = settings.options.mcp_servers.iter().any(|server| matches!(server, McpServer::Remote { .. }));
    let relay = if input == Input::Stream || by_http { open_relay(&mut settings) } else { None };
    let proxied = Proxied::default();
    let (to_clients, lines) = mpsc::channel(RELAYED);
    let pump = relay.map(|relay| tokio::spawn(pump(relay, proxied.clone(), lines, mailbox.clone())));
    let relayed = move |conn, line| {
        if to_clients.try_send((conn, line)).is_err() {
            tracing::warn!("an MCP client does not read; a message for it is lost");
        }
    };
    let (to_asker, questions) = mpsc::channel(asker::QUESTIONS);
    let asking = asker.map(|server| {
        // One that cannot be reached says so when it is asked.
        let way = asker_way(&server, &settings, &launch);
        tokio::spawn(asker::serve(way, questions, mailbox.clone()))
    });
    let ask_mailbox = mailbox.clone();
    let ask = move |effect, tool, arguments| {
        if to_asker.try_send(asker::Question { effect, tool, arguments }).is_err() {
            let answer = Err("too many permission questions wait, or nobody answers them".to_owned());
            // What cannot be said now is said by the end of the turn.
            let _ = ask_mailbox.try_send(Mail::ToolCalled { effect, answer });
        }
    };
    let (to_client, works) = mpsc::channel(terminals::WORKS);
    let serves = settings.options.files || settings.options.terminals;
    let client = serves.then(|| tokio::spawn(terminals::serve(works, mailbox.clone(), launch.guards.clone())));
    let client_mailbox = mailbox.clone();
    let work = move |effect, work| {
        if to_client.try_send((effect, work)).is_err() {
            let done = ClientDone::Failed(ClientFailure::Failed("too much is asked for at once".into()));
            // What cannot be said now is said by the end of the turn.
            let _ = client_mailbox.try_send(Mail::Client { effect, done });
        }
    };
    let proxy = move |server: McpServer| {
        if let Err(error) = proxied.add(&server) {
            // Its client is told that there is no such server.
            let name = server.name();
            let _ = writeln!(std::io::stderr(), "Warning: MCP server {name} is left out: {error}");
        }
    };
    let task = SessionTask {
        translator: ClaudeOverAcp::new(settings),
        session_id: session_id.clone(),
        mailbox: receiver,
        closed: closed.subscribe(),
        near: near.clone(),
        launch: Arc::new(launch),
        trace: trace.clone(),
        outside: Some(Outside {
            remember: Box::new(remember),
            ask: Box::new(ask),
            client: Box::new(work),
            proxy: Box::new(proxy),
            relay: Box::new(relayed),
        }),
    };
    drop(near);
    let mut session = tokio::spawn(task.run());
    let mut signals = Signals::new();
    let mut frames = match input {
        Input::Stream => Some(stdio::frames()),
        Input::Prompt(prompt) => {
            let line = to_line(&serde_json::json!({
                "type": "user",
                "message": {"role": "user", "content": prompt},
                "parent_tool_use_id": null,
                "session_id": "",
            }));
            // The session has just begun, and its mailbox is empty.
            let _ = mailbox.send(Mail::Near(line.into())).await;
            closed.send_replace(true);
            None
        }
    };
    let mut written = false;
    let code = loop {
        let frame = async {
            match &mut frames {
                Some(frames) => frames.next_frame().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            frame = frame => match frame {
                Some(Frame::Line(line)) => {
                    trace.line(Wire::Near, Dir::In, Some(&session_id), &line);
                    tokio::select! {
                        sent = deliver(&mailbox, line) => if !sent { frames = None },
                        signal = signals.next() => if let Signal::End(code) = signal { break code },
                    }
                }
                Some(Frame::Noise(noise)) => {
                    trace.noise(Wire::Near, Dir::In, Some(&session_id), &noise.bytes, why(noise.why));
                    tracing::warn!("a line of the host's is left out: {}", noise.why);
                }
                None => {
                    frames = None;
                    closed.send_replace(true);
                }
            },
            signal = signals.next() => match signal {
                Signal::End(code) => break code,
                Signal::Interrupt => {
                    let _ = mailbox.try_send(Mail::Interrupted);
                }
            },
            // The host no longer reads: there is nobody to work for.
            _ = &mut writer, if !written => {
                written = true;
                if !session.is_finished() {
                    break 1;
                }
            }
            ended = &mut session => break match ended {
                Ok(code) => code.unwrap_or(0),
                Err(error) => {
                    tracing::error!(%error, "the session failed");
                    1
                }
            },
        }
    };
    // Dropping a session drops its process, and with it the guard's lifeline.
    session.abort();
    if let Some(asking) = asking {
        asking.abort();
        let _ = asking.await;
    }
    if let Some(client) = client {
        // Its commands go with it.
        client.abort();
        let _ = client.await;
    }
    if let Some(pump) = pump {
        // Its folder goes with it.
        pump.abort();
        let _ = pump.await;
    }
    if !written && timeout(FLUSH_LIMIT, &mut writer).await.is_err() {
        tracing::warn!("the host did not read everything that was said");
    }
    code
}

/// How the MCP server that answers permission questions is reached.
fn asker_way(server: &McpServer, settings: &Settings, launch: &Launch) -> Result<asker::Way, String> {
    match server {
        McpServer::Stdio { command, args, env, .. } => {
            let mut spec = ChildSpec::new(command, settings.cwd.clone());
            spec.args = args.iter().map(Into::into).collect();
            spec.env = env.iter().map(|pair| ((&pair.name).into(), (&pair.value).into())).collect();
            spec.guards.clone_from(&launch.guards);
            Ok(asker::Way::Program(spec))
        }
        McpServer::Remote { .. } => remote(server).map(asker::Way::Http).map_err(|error| error.to_string()),
    }
}

/// Opens the relay and says how it is started.
fn open_relay(settings: &mut Settings) -> Option<Relay> {
    let program = std::env::current_exe().ok()?.to_string_lossy().into_owned();
    match Relay::open() {
        Ok(relay) => {
            settings.relay = Some(RelayCommand {
                program,
                args: vec!["mcp-relay".into(), format!("--socket={}", relay.path().display())],
                env: vec![(TOKEN.to_owned(), relay.token().to_owned())],
                https: HTTPS,
            });
            Some(relay)
        }
        Err(error) => {
            tracing::debug!(%error, "no relay");
            None
        }
    }
}

async fn deliver(mailbox: &mpsc::Sender<Mail>, line: Bytes) -> bool {
    mailbox.send(Mail::Near(line)).await.is_ok()
}

/// What a signal means.
enum Signal {
    /// Stop the turn, end well.
    Interrupt,
    /// End now, with this code.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no such signal"))]
    End(u8),
}

struct Signals {
    #[cfg(unix)]
    signals: Vec<(Option<u8>, tokio::signal::unix::Signal)>,
}

impl Signals {
    #[cfg(unix)]
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let kinds = [
            (None, SignalKind::interrupt()),
            (Some(TERMINATED), SignalKind::terminate()),
            (Some(HUNG_UP), SignalKind::hangup()),
        ];
        Self { signals: kinds.into_iter().filter_map(|(code, kind)| Some((code, signal(kind).ok()?))).collect() }
    }

    #[cfg(not(unix))]
    fn new() -> Self {
        Self {}
    }

    #[cfg(unix)]
    async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| {
            for (code, signal) in &mut self.signals {
                if signal.poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(code.map_or(Signal::Interrupt, Signal::End));
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    #[cfg(not(unix))]
    async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}
