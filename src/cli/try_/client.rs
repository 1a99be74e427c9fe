//! A small ACP client: starts the agent's side, talks to it, and shows what it says.
//!
//! Owns the conversation's order: `initialize`, `session/new`, then one prompt after the other. Invariants: every request
//! of the other side is answered once; nothing it sends is trusted to be well formed; when the person has had enough
//! (a second Ctrl-C), everything that was started ends.

use std::collections::{HashSet, VecDeque};
use std::io::{BufRead, Write};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

use super::super::CliError;
use super::ask::{self, Answer, Policy};
use super::view::View;
use super::wires::{self, Rows};
use super::{Plan, pipe};

/// How many things may wait to be shown; then the other side waits.
const EVENTS: usize = 256;

/// How long the other side gets to end after its input has ended.
const GRACE: Duration = Duration::from_secs(8);

/// The same, when the person does not want to wait; time enough to end an agent in order.
const HURRY: Duration = Duration::from_secs(3);

/// How the conversation ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// With this stop reason of the last prompt.
    Stopped(String),
    /// A request of ours was answered with an error.
    Refused { what: &'static str, message: String, reason: Option<String> },
    /// The other side ended, with this exit code if it was none of ours.
    Gone(Option<u8>),
    /// The other side's answer makes no sense.
    Nonsense(String),
    /// The person stopped it.
    Quit,
}

pub(super) enum Event {
    Line(Vec<u8>),
    LinesEnded,
    Trace(String),
    TraceEnded,
    Typed(String),
    TypingEnded,
    Interrupt,
}

/// What our open request is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Initialize,
    Session,
    Prompt,
    /// For the person's next prompt.
    Person,
}

struct Question {
    id: Value,
    params: Value,
}

struct Client {
    plan: Plan,
    view: View,
    rows: Option<Rows>,
    stdin: Option<ChildStdin>,
    waiting: Waiting,
    last_id: u64,
    session: Option<String>,
    questions: VecDeque<Question>,
    /// Whether the first question has been put to the person.
    asked: bool,
    /// Text that waits until the question on the screen is answered.
    held: String,
    /// Questions whose row has been printed, by the JSON text of their ids.
    rows_seen: HashSet<String>,
    trace_ended: bool,
    interrupted: bool,
    events: mpsc::Sender<Event>,
    typing: bool,
    outcome: Option<Outcome>,
}

/// Has the conversation.
pub(super) async fn converse(mut plan: Plan) -> Result<Outcome, CliError> {
    let (events, mut inbox) = mpsc::channel(EVENTS);
    let mut trace = None;
    if let Some(wire) = &mut plan.wire {
        trace = Some(pipe::open(wire, events.clone())?);
    }
    let mut child = start(&plan)?;
    let stdin = child.stdin.take();
    if let Some(stdout) = child.stdout.take() {
        tokio::spawn(read_lines(stdout, events.clone()));
    }
    tokio::spawn(watch_interrupts(events.clone()));

    let rows = plan.wire.as_ref().map(|wire| Rows::new(plan.style, wire.width));
    let mut client = Client {
        view: View::new(plan.style, &plan.cwd),
        trace_ended: rows.is_none(),
        rows,
        plan,
        stdin,
        waiting: Waiting::Initialize,
        last_id: 0,
        session: None,
        questions: VecDeque::new(),
        asked: false,
        held: String::new(),
        rows_seen: HashSet::new(),
        interrupted: false,
        events,
        typing: false,
        outcome: None,
    };
    client.begin().await;
    let mut deadline = None;
    while !matches!(client.outcome, Some(Outcome::Quit)) {
        let event = match deadline {
            None => inbox.recv().await,
            Some(deadline) => tokio::time::timeout_at(deadline, inbox.recv()).await.unwrap_or(None),
        };
        match event {
            Some(Event::LinesEnded) => {
                client.lines_ended();
                break;
            }
            Some(event) => client.take(event).await,
            // It has not ended in time. (The channel itself cannot close: the client holds a sender.)
            None => break,
        }
        if client.outcome.is_some() && deadline.is_none() {
            // Ends the other side, which still may have something to say.
            client.stdin = None;
            deadline = Some(tokio::time::Instant::now() + GRACE);
        }
    }
    client.stdin = None;
    let quit = matches!(client.outcome, Some(Outcome::Quit));
    let status = end(child, if quit { HURRY } else { GRACE }).await;
    if let Some(trace) = trace {
        // With the last writer gone, the pipe ends behind what was written.
        drop(trace);
        while !client.trace_ended && !quit {
            match inbox.recv().await {
                Some(event) => client.take(event).await,
                None => break,
            }
        }
    }
    client.release();
    Ok(match client.outcome {
        Some(Outcome::Gone(_)) | None => Outcome::Gone(status.and_then(|code| u8::try_from(code).ok())),
        Some(outcome) => outcome,
    })
}

fn start(plan: &Plan) -> Result<Child, CliError> {
    let mut command = Command::new(&plan.adapter);
    command.args(&plan.adapter_args).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    // Ctrl-C is ours to pass on: the terminal must not send it to the whole chain.
    #[cfg(unix)]
    command.process_group(0);
    command.spawn().map_err(|error| CliError::Fault(format!("cannot start {}: {error}", plan.adapter.display())))
}

/// Waits for the process to end, and kills it after `grace`. Gives its exit code.
async fn end(mut child: Child, grace: Duration) -> Option<i32> {
    if let Ok(status) = tokio::time::timeout(grace, child.wait()).await {
        return status.ok()?.code();
    }
    // It may have ended just now.
    let _ = child.start_kill();
    child.wait().await.ok()?.code()
}

async fn read_lines(stdout: impl tokio::io::AsyncRead + Unpin, events: mpsc::Sender<Event>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let event = match stdout.read_until(b'\n', &mut line).await {
            Ok(length) if length > 0 => Event::Line(line),
            _ => Event::LinesEnded,
        };
        let ended = matches!(event, Event::LinesEnded);
        if events.send(event).await.is_err() || ended {
            return;
        }
    }
}

async fn watch_interrupts(events: mpsc::Sender<Event>) {
    while tokio::signal::ctrl_c().await.is_ok() {
        if events.send(Event::Interrupt).await.is_err() {
            return;
        }
    }
}

impl Client {
    async fn begin(&mut self) {
        let mut text = String::new();
        match &self.rows {
            Some(rows) => text.push_str(&rows.head()),
            None => {
                let head = format!("{} in {}", self.plan.title, self.plan.cwd.display());
                self.view.aside(&head, &mut text);
            }
        }
        show(&text);
        let version = env!("CARGO_PKG_VERSION");
        let params = json!({
            "protocolVersion": 1, "clientCapabilities": {},
            "clientInfo": {"name": "diglot-try", "title": "diglot try", "version": version},
        });
        self.request(Waiting::Initialize, "initialize", params).await;
    }

    async fn take(&mut self, event: Event) {
        match event {
            Event::Line(line) => self.line(&line).await,
            Event::Trace(line) => {
                if let Some(rows) = &mut self.rows {
                    let row = rows.row(&line);
                    show(&row);
                }
                self.rows_seen.extend(wires::question(&line));
                self.ask_next().await;
            }
            Event::TraceEnded => {
                self.trace_ended = true;
                self.ask_next().await;
            }
            Event::Typed(text) => self.typed(&text).await,
            Event::TypingEnded => {
                self.plan.interactive = false;
                self.plan.policy = Policy::Nobody;
                self.asked = false;
                self.ask_next().await;
                if self.waiting == Waiting::Person {
                    self.outcome = Some(Outcome::Stopped("end_turn".into()));
                }
            }
            Event::Interrupt => self.interrupt().await,
            Event::LinesEnded => {}
        }
    }

    fn lines_ended(&mut self) {
        if self.outcome.is_none() {
            self.outcome = Some(Outcome::Gone(None));
        }
    }

    async fn send(&mut self, message: &Value) {
        if let Some(stdin) = &mut self.stdin {
            let line = format!("{message}\n");
            // If the other side is gone, the end of its output says so.
            let _ = stdin.write_all(line.as_bytes()).await;
            let _ = stdin.flush().await;
        }
    }

    async fn request(&mut self, waiting: Waiting, method: &str, params: Value) {
        self.waiting = waiting;
        self.last_id += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        self.send(&message).await;
    }

    async fn line(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        let Ok(Value::Object(message)) = serde_json::from_str::<Value>(text) else {
            self.aside(&format!("(no message: {text})"));
            return;
        };
        let message = Value::Object(message);
        let id = message.get("id").cloned();
        match (message["method"].as_str(), id) {
            (Some(method), Some(id)) => self.asked_for(method, id, message["params"].clone()).await,
            (Some(method), None) => self.told(method, &message["params"]).await,
            (None, Some(id)) if id == self.last_id => self.answered(&message).await,
            (None, _) => self.aside("(an answer to nothing)"),
        }
    }

    /// The other side asks something of us.
    async fn asked_for(&mut self, method: &str, id: Value, params: Value) {
        if method == "session/request_permission" {
            self.questions.push_back(Question { id, params });
            self.ask_next().await;
            return;
        }
        let error = json!({"code": -32601, "message": format!("diglot try does not do {method}")});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error})).await;
    }

    /// The other side tells us something.
    async fn told(&mut self, method: &str, params: &Value) {
        match method {
            "session/update" => {
                let mut text = String::new();
                self.view.update(&params["update"], &mut text);
                self.print(&text);
            }
            "$/cancel_request" => {
                let withdrawn = self.questions.iter().position(|question| question.id == params["requestId"]);
                if let Some(question) = withdrawn.and_then(|at| self.questions.remove(at)) {
                    let first = withdrawn == Some(0);
                    let error = json!({"code": -32800, "message": "the question was withdrawn"});
                    self.send(&json!({"jsonrpc": "2.0", "id": question.id, "error": error})).await;
                    if first && self.asked {
                        self.asked = false;
                        self.say_answer("withdrawn");
                        self.ask_next().await;
                    }
                }
            }
            _ => {}
        }
    }

    /// Our open request is answered.
    async fn answered(&mut self, message: &Value) {
        let what = match self.waiting {
            Waiting::Initialize => "initialize",
            Waiting::Session => "session/new",
            Waiting::Prompt => "the prompt",
            Waiting::Person => return self.aside("(a second answer)"),
        };
        if let Some(error) = message.get("error") {
            let said = error["message"].as_str().unwrap_or("no message");
            let hint = error["data"]["hint"].as_str();
            let message = [Some(said), hint].into_iter().flatten().collect::<Vec<_>>().join("; ");
            let reason = error["data"]["reason"].as_str().map(Into::into);
            self.outcome = Some(Outcome::Refused { what, message, reason });
            return;
        }
        let result = &message["result"];
        match self.waiting {
            Waiting::Initialize if result["protocolVersion"] == 1 => {
                let params = json!({"cwd": self.plan.cwd, "mcpServers": []});
                self.request(Waiting::Session, "session/new", params).await;
            }
            Waiting::Initialize => {
                let problem = format!("protocol version {} instead of 1", result["protocolVersion"]);
                self.outcome = Some(Outcome::Nonsense(problem));
            }
            Waiting::Session => match result["sessionId"].as_str() {
                Some(session) => {
                    self.session = Some(session.to_owned());
                    match self.plan.prompt.take() {
                        Some(prompt) => self.prompt(&prompt).await,
                        None => self.ask_for_prompt(),
                    }
                }
                None => self.outcome = Some(Outcome::Nonsense("session/new gave no session id".into())),
            },
            Waiting::Prompt | Waiting::Person => match result["stopReason"].as_str() {
                Some(reason) => self.turn_ended(reason),
                None => self.outcome = Some(Outcome::Nonsense("the prompt has no stop reason".into())),
            },
        }
    }

    async fn prompt(&mut self, text: &str) {
        self.interrupted = false;
        let mut shown = String::new();
        self.view.prompt(text, &mut shown);
        if !self.plan.interactive {
            self.print(&shown);
        }
        let block = json!({"type": "text", "text": text});
        let params = json!({"sessionId": self.session, "prompt": [block]});
        self.request(Waiting::Prompt, "session/prompt", params).await;
    }

    fn turn_ended(&mut self, reason: &str) {
        self.aside(&format!("[{reason}]"));
        if self.plan.interactive {
            self.ask_for_prompt();
        } else {
            self.outcome = Some(Outcome::Stopped(reason.to_owned()));
        }
    }

    fn ask_for_prompt(&mut self) {
        self.waiting = Waiting::Person;
        let mut text = String::new();
        self.view.end_line(&mut text);
        match self.plan.fallback {
            Some(fallback) => text.push_str(&format!("Say something (empty: \"{fallback}\"; Ctrl-D ends).\n> ")),
            None => text.push_str("> "),
        }
        show(&text);
        self.start_typing();
    }

    /// Puts the next question to whoever answers.
    async fn ask_next(&mut self) {
        while !self.asked {
            let Some(question) = self.questions.front() else {
                return;
            };
            if let Some(answer) = ask::without_person(self.plan.policy, &question.params["options"]) {
                let mut text = String::new();
                self.view.question(&question.params, &mut text);
                self.print(&text);
                self.give(answer).await;
                continue;
            }
            // The rows come by another way; the question belongs behind its own.
            if !self.trace_ended && !self.rows_seen.contains(&question.id.to_string()) {
                return;
            }
            self.asked = true;
            let count = question.params["options"].as_array().map_or(0, Vec::len);
            let mut text = std::mem::take(&mut self.held);
            self.view.question(&question.params, &mut text);
            text.push_str(&format!("  your choice [1-{count}]: "));
            show(&text);
            self.start_typing();
        }
    }

    /// Answers the first question.
    async fn give(&mut self, answer: Answer) {
        if let Some(question) = self.questions.pop_front() {
            self.asked = false;
            self.say_answer(&answer.said);
            let result = json!({"outcome": answer.outcome});
            self.send(&json!({"jsonrpc": "2.0", "id": question.id, "result": result})).await;
        }
    }

    async fn typed(&mut self, line: &str) {
        if self.waiting == Waiting::Person {
            self.plan.fallback = match (line.trim().is_empty(), self.plan.fallback) {
                (true, Some(fallback)) => {
                    self.prompt(fallback).await;
                    None
                }
                (true, None) => {
                    self.ask_for_prompt();
                    None
                }
                (false, _) => {
                    self.prompt(line).await;
                    None
                }
            };
        } else if self.asked
            && let Some(question) = self.questions.front()
        {
            match ask::typed(line, &question.params["options"]) {
                Some(answer) => {
                    self.give(answer).await;
                    self.ask_next().await;
                }
                None => show("  a number, please: "),
            }
        }
    }

    async fn interrupt(&mut self) {
        if self.interrupted || self.waiting != Waiting::Prompt {
            self.outcome = Some(Outcome::Quit);
            return;
        }
        self.interrupted = true;
        self.aside("cancelling; Ctrl-C again to quit");
        let params = json!({"sessionId": self.session});
        self.send(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params})).await;
        while !self.questions.is_empty() {
            self.give(ask::cancelled("cancelled")).await;
        }
    }

    /// Lines from the terminal come from now on. The thread may outlive the conversation; it holds nothing.
    fn start_typing(&mut self) {
        if std::mem::replace(&mut self.typing, true) {
            return;
        }
        let events = self.events.clone();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let Ok(line) = line else { break };
                if events.blocking_send(Event::Typed(line)).is_err() {
                    return;
                }
            }
            // Nobody is left to tell when this fails.
            let _ = events.blocking_send(Event::TypingEnded);
        });
    }

    fn aside(&mut self, text: &str) {
        let mut line = String::new();
        self.view.aside(text, &mut line);
        self.print(&line);
    }

    fn say_answer(&mut self, said: &str) {
        let mut text = String::new();
        self.view.answered(said, &mut text);
        text.push_str(&std::mem::take(&mut self.held));
        if self.rows.is_none() {
            show(&text);
        }
    }

    /// Shows a piece of the conversation, or holds it back while a question is on the screen.
    fn print(&mut self, text: &str) {
        if self.rows.is_some() {
            return;
        }
        if self.asked {
            self.held.push_str(text);
        } else {
            show(text);
        }
    }

    /// Shows what was held back, at the end.
    fn release(&mut self) {
        let mut text = std::mem::take(&mut self.held);
        self.view.end_line(&mut text);
        text.extend(self.rows.as_mut().map(Rows::finish));
        show(&text);
    }
}

fn show(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // When nobody reads any more, the conversation still has to be brought to its end.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
