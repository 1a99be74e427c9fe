//! The MCP server that answers permission questions (`--permission-prompt-tool mcp__SERVER__TOOL`).
//!
//! Owns that server's process, started with the first question below a guard like every other, or the conversation with it
//! over HTTP. Keeps: a question whose
//! server does not start, breaks off or answers with nonsense is answered with the reason, and that is no approval; how long
//! a person takes to answer is nobody's business here.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::registry::Mail;
use crate::peer::child::{Child, ChildSpec};
use crate::peer::mcp_http::Remote;
use crate::wire::frame::{Frame, write_line};
use crate::wire::jsonrpc::{self, Id, Message, RpcError};

/// A server that has not shaken hands by then never does.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Questions that may wait for it.
pub(super) const QUESTIONS: usize = 64;

/// A permission question.
#[derive(Debug)]
pub(super) struct Question {
    /// Comes back with the answer.
    pub(super) effect: u64,
    /// The tool's name on its server.
    pub(super) tool: String,
    /// `{tool_name, input, tool_use_id}`.
    pub(super) arguments: Value,
}

/// How the server is reached.
#[derive(Debug)]
pub(super) enum Way {
    /// As a program, on its stdin and stdout.
    Program(ChildSpec),
    /// Over HTTP.
    Http(Remote),
}

/// Serves questions until nobody asks any more.
pub(super) async fn serve(
    way: Result<Way, String>,
    mut questions: mpsc::Receiver<Question>,
    mailbox: mpsc::Sender<Mail>,
) {
    let mut waiting: VecDeque<Question> = VecDeque::new();
    loop {
        let Some(question) = questions.recv().await else { return };
        waiting.push_back(question);
        let link = match &way {
            Ok(Way::Program(spec)) => {
                Child::spawn(spec).await.map(|child| Link::Program(Box::new(child))).map_err(|error| error.to_string())
            }
            Ok(Way::Http(remote)) => Ok(Link::http(remote.clone())),
            Err(why) => Err(why.clone()),
        };
        let why = match link {
            Ok(link) => match Server::new(link).run(&mut waiting, &mut questions, &mailbox).await {
                Ok(()) => return,
                Err(why) => why,
            },
            Err(why) => why,
        };
        let said = format!("the MCP server that answers permission questions is not there: {why}");
        for question in waiting.drain(..) {
            if tell(&mailbox, question.effect, Err(said.clone())).await.is_err() {
                return;
            }
        }
    }
}

async fn tell(mailbox: &mpsc::Sender<Mail>, effect: u64, answer: Result<String, String>) -> Result<(), ()> {
    mailbox.send(Mail::ToolCalled { effect, answer }).await.map_err(|_| ())
}

/// The connection to the server.
enum Link {
    Program(Box<Child>),
    Http {
        to: mpsc::Sender<Bytes>,
        from: mpsc::Receiver<Bytes>,
        /// Ends with this.
        _task: JoinSet<()>,
    },
}

impl Link {
    fn http(remote: Remote) -> Self {
        let (to, lines) = mpsc::channel(QUESTIONS);
        let (out, from) = mpsc::channel(QUESTIONS);
        let mut task = JoinSet::new();
        task.spawn(remote.carry(lines, out));
        Self::Http { to, from, _task: task }
    }

    async fn send(&self, line: &[u8]) -> Result<(), ()> {
        match self {
            Self::Program(child) => {
                let mut bytes = Vec::with_capacity(line.len() + 1);
                write_line(&mut bytes, line);
                child.input.send(bytes).await.map_err(|_| ())
            }
            Self::Http { to, .. } => to.send(line.to_vec().into()).await.map_err(|_| ()),
        }
    }

    /// The next line; `None` when no more can come. May be dropped at any time.
    async fn next(&mut self) -> Option<Bytes> {
        match self {
            Self::Program(child) => loop {
                match child.output.next_frame().await? {
                    Frame::Line(line) => return Some(line),
                    Frame::Noise(_) => {}
                }
            },
            Self::Http { from, .. } => from.recv().await,
        }
    }

    /// Why no more can come.
    async fn end(&mut self) -> String {
        match self {
            Self::Program(child) => {
                // One that has closed its stdout and lives on is of no use either.
                let exit = tokio::time::timeout(Duration::from_secs(2), child.exit.wait()).await;
                exit.map_or_else(|_| "it closed its stdout".to_owned(), |exit| exit.to_string())
            }
            Self::Http { .. } => "the connection ended".to_owned(),
        }
    }
}

struct Server {
    link: Link,
    ready: bool,
    /// The request's id → the question's effect.
    asked: HashMap<u64, u64>,
    count: u64,
}

impl Server {
    fn new(link: Link) -> Self {
        Self { link, ready: false, asked: HashMap::new(), count: 0 }
    }

    /// `Ok`: nobody asks any more. However it ends, every question is answered.
    async fn run(
        &mut self,
        waiting: &mut VecDeque<Question>,
        questions: &mut mpsc::Receiver<Question>,
        mailbox: &mpsc::Sender<Mail>,
    ) -> Result<(), String> {
        let ended = self.talk(waiting, questions, mailbox).await;
        if let Err(how) = &ended {
            for (_, effect) in self.asked.drain() {
                let why = format!("the MCP server that answers permission questions ended: {how}");
                if tell(mailbox, effect, Err(why)).await.is_err() {
                    return Ok(());
                }
            }
        }
        ended
    }

    async fn talk(
        &mut self,
        waiting: &mut VecDeque<Question>,
        questions: &mut mpsc::Receiver<Question>,
        mailbox: &mpsc::Sender<Mail>,
    ) -> Result<(), String> {
        let hello = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "diglot", "version": env!("CARGO_PKG_VERSION")},
        });
        self.send(&jsonrpc::request(&Id::number(0), "initialize", &hello)).await?;
        let limit = Instant::now() + START_LIMIT;
        loop {
            tokio::select! {
                question = questions.recv() => match question {
                    Some(question) if self.ready => self.ask(question).await?,
                    Some(question) if waiting.len() < QUESTIONS => waiting.push_back(question),
                    Some(question) => {
                        let why = Err("too many permission questions wait".to_owned());
                        if tell(mailbox, question.effect, why).await.is_err() {
                            return Ok(());
                        }
                    }
                    None => return Ok(()),
                },
                () = sleep_until(limit), if !self.ready => {
                    return Err(format!("no handshake within {} s", START_LIMIT.as_secs()));
                }
                line = self.link.next() => match line {
                    Some(line) => {
                        if let Some((effect, answer)) = self.heard(&line, waiting).await? && tell(mailbox, effect, answer).await.is_err() {
                            return Ok(());
                        }
                    }
                    None => return Err(self.link.end().await),
                },
            }
        }
    }

    async fn send(&self, line: &[u8]) -> Result<(), String> {
        self.link.send(line).await.map_err(|()| "it no longer reads".to_owned())
    }

    async fn ask(&mut self, question: Question) -> Result<(), String> {
        self.count += 1;
        self.asked.insert(self.count, question.effect);
        let id = question.arguments.get("tool_use_id").cloned().unwrap_or_default();
        let params = json!({
            "name": question.tool, "arguments": question.arguments, "_meta": {"claudecode/toolUseId": id},
        });
        self.send(&jsonrpc::request(&Id::number(self.count), "tools/call", &params)).await
    }

    /// A line of the server's; gives a question's answer.
    async fn heard(
        &mut self,
        line: &[u8],
        waiting: &mut VecDeque<Question>,
    ) -> Result<Option<(u64, Result<String, String>)>, String> {
        match Message::parse(line) {
            Ok(Message::Response { id, outcome }) if id.as_number() == Some(0) => {
                outcome.map_err(|error| error.message)?;
                self.ready = true;
                self.send(&jsonrpc::notification("notifications/initialized", &json!({}))).await?;
                while let Some(question) = waiting.pop_front() {
                    self.ask(question).await?;
                }
                Ok(None)
            }
            Ok(Message::Response { id, outcome }) => {
                let effect = id.as_number().and_then(|id| self.asked.remove(&id));
                let answer = match outcome {
                    Ok(result) => {
                        // A result is JSON: it was just read.
                        let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
                        let text = result.pointer("/content/0/text").and_then(Value::as_str);
                        text.map(ToOwned::to_owned).ok_or_else(|| "the permission tool gave no text".to_owned())
                    }
                    Err(error) => Err(error.message),
                };
                Ok(effect.map(|effect| (effect, answer)))
            }
            Ok(Message::Request { id, method, .. }) => {
                let reply = match &*method {
                    "ping" => jsonrpc::response(&id, &json!({})),
                    _ => jsonrpc::error(&id, &RpcError::new(-32601, format!("method not found: {method}"))),
                };
                self.send(&reply).await?;
                Ok(None)
            }
            Ok(Message::Notification { .. }) | Err(_) => Ok(None),
        }
    }
}
