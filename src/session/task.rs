//! One session: its translator, its far process, its timers.
//!
//! Owns the loop that turns what happens into events and actions into deeds. Keeps: the loop never waits for one peer
//! while another has something to say: what the editor or the agent cannot take yet is kept here, and while too much is
//! kept the agent is not read (design, section 3, rules 5 and 10). Events of a process end with its exit; then come
//! those of the next one.

use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::acp::{Launch, why};
use super::files;
use super::near::{Gone, NearQueue, Out, Place};
use super::registry::Mail;
use crate::peer::child::{Child, ChildControl, ChildExit, ChildInput, ChildOutput, ChildSpec, SpawnError};
use crate::trace::{Dir, Trace, Wire};
use crate::translate::client::ClientWork;
use crate::translate::{Action, Actions, Event, FarExit, FarSpec, FileContent, StartFailure, Stop, Timer, Translator};
use crate::wire::acp_client::McpServer;
use crate::wire::frame::{Frame, write_line};

/// Lines kept for the editor or the agent before the agent is no longer read.
const KEPT: usize = 64;

/// Bytes kept for the editor before the agent is no longer read: pieces of text are joined, so their number says little.
const KEPT_BYTES: usize = 64 * 1024;

/// Lines kept for the editor before even the editor is no longer heard: it asks and does not listen.
const FLOOD: usize = 4096;

/// Lines of the agent taken in one go, and after how many bytes no more are; what they say is written in one batch.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 64 * 1024;

/// A stream that brings more than one batch in this time is read this often and no more: each look at it costs three
/// system calls, which is far more than the translation. A stream of up to 2,000 pieces a second is not held at all.
const PACE: Duration = Duration::from_millis(1);

/// So many batches that follow each other by less than half of [`PACE`] are such a stream, and so many lines in one batch
/// after a hold say that it goes on. (The clock's ticks make a hold up to twice as long.)
const DENSE: usize = 4;

/// An agent whose stdin was closed gets this long to end by itself. Claude takes 0.3 s (stream-json.md, section 12).
const GRACE: Duration = Duration::from_secs(1);

/// What an agent has said before its end is there at once.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A process that has not begun to run by then never does: its program lies on a file system that hangs.
const SPAWN_LIMIT: Duration = Duration::from_secs(30);

/// An agent that closed its stdout or its stdin and lives on is of no use.
const MUTE: Duration = Duration::from_secs(2);

/// A session that runs as a task of its own.
pub(super) struct SessionTask<T> {
    pub(super) translator: T,
    pub(super) session_id: Arc<str>,
    pub(super) mailbox: mpsc::Receiver<Mail>,
    /// Turns true when the editor is gone, however full the mailbox is.
    pub(super) closed: watch::Receiver<bool>,
    pub(super) near: NearQueue,
    pub(super) launch: Arc<Launch>,
    pub(super) trace: Trace,
    /// What only a host's session has around it.
    pub(super) outside: Option<Outside>,
}

/// What a host's session has around it.
pub(super) struct Outside {
    /// Keeps the agent's session id.
    pub(super) remember: Box<dyn FnMut(String) + Send>,
    /// Asks the permission tool.
    pub(super) ask: Box<dyn FnMut(u64, String, serde_json::Value) + Send>,
    /// Does something for the agent.
    pub(super) client: Box<dyn FnMut(u64, ClientWork) + Send>,
    /// An MCP server over HTTP is to be reached through the relay.
    pub(super) proxy: Box<dyn FnMut(McpServer) + Send>,
    /// A line for a connection of the MCP relay.
    pub(super) relay: Box<dyn FnMut(u64, Vec<u8>) + Send>,
}

/// The far process that runs now.
struct Far {
    output: ChildOutput,
    /// `None` once its stdin is to be closed.
    input: Option<ChildInput>,
    control: ChildControl,
    exit: ChildExit,
    /// Its stdout has ended.
    silent: bool,
    /// Its stdin is closed after what is kept.
    closing: bool,
    /// What it was given to read at its start, until it has.
    file: Option<files::Private>,
}

#[derive(Default)]
struct State {
    actions: Actions,
    to_near: VecDeque<Out>,
    to_far: VecDeque<Vec<u8>>,
    far: Option<Far>,
    timers: Vec<(TimerKind, Instant)>,
    reads: JoinSet<(u64, FileContent)>,
    roots: Vec<PathBuf>,
    near_gone: bool,
    ended: bool,
    code: Option<u8>,
    /// When the agent was read last.
    last_batch: Option<Instant>,
    /// How many batches in a row came straight after the one before.
    soon: usize,
    /// Whether the agent was not read for a while before its last batch.
    held: bool,
    /// The agent is not read until then.
    hold: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimerKind {
    /// The translator's.
    Of(Timer),
    /// The agent is terminated.
    Terminate,
}

/// What the loop woke up for.
enum Woke {
    Mail(Option<Mail>),
    NearReady,
    NearGone,
    FarReady(bool),
    Frame(Option<Frame>),
    Exit(crate::peer::child::ExitReport),
    Timer,
    Read(u64, FileContent),
}

impl<T: Translator> SessionTask<T> {
    /// Runs until the session is over; gives the exit code that its translator chose.
    pub(super) async fn run(mut self) -> Option<u8> {
        let mut s = State::default();
        self.handle(Event::Begin, &mut s).await;
        let mut timer = pin!(sleep_until(Instant::now() + Duration::from_secs(3600)));
        let mut armed = None;
        while !(s.ended && s.to_near.is_empty()) {
            let next = s.timers.iter().map(|(_, at)| *at).chain(s.hold).min();
            if next != armed {
                armed = next;
                if let Some(at) = next {
                    timer.as_mut().reset(at);
                }
            }
            let woke = self.wait(&mut s, timer.as_mut(), armed.is_some()).await;
            self.act(woke, &mut s).await;
        }
        s.code
    }

    async fn wait(&mut self, s: &mut State, timer: Pin<&mut tokio::time::Sleep>, armed: bool) -> Woke {
        let State { to_near, to_far, far, reads, near_gone, hold, .. } = s;
        // Its end is heard also while something keeps its stdout open.
        let (output, input, exit) = match far {
            Some(far) => ((!far.silent).then_some(&mut far.output), far.input.as_ref(), Some(&mut far.exit)),
            None => (None, None, None),
        };
        let listen = hold.is_none() && !is_full(to_near) && to_far.len() < KEPT;
        tokio::select! {
            biased;
            () = closed(&mut self.closed), if !*near_gone => Woke::NearGone,
            // A host that has closed stdin is still served what its relays ask.
            mail = self.mailbox.recv(), if (!*near_gone || self.outside.is_some()) && to_near.len() < FLOOD => {
                Woke::Mail(mail)
            }
            place = place(&self.near, to_near.front()), if !to_near.is_empty() => match place {
                Ok(place) => {
                    if let Some(out) = to_near.pop_front() {
                        place.fill(out);
                    }
                    Woke::NearReady
                }
                Err(Gone) => Woke::NearGone,
            },
            ready = ready(input), if !to_far.is_empty() && input.is_some() => Woke::FarReady(ready),
            () = timer, if armed => Woke::Timer,
            Some(Ok((effect, content))) = reads.join_next(), if !reads.is_empty() => Woke::Read(effect, content),
            frame = next_frame(output), if listen => Woke::Frame(frame),
            report = end(exit) => Woke::Exit(report),
        }
    }

    async fn act(&mut self, woke: Woke, s: &mut State) {
        match woke {
            Woke::Mail(Some(mail)) => self.mail(mail, s).await,
            Woke::Mail(None) | Woke::NearGone => self.near_gone(s).await,
            Woke::NearReady => self.send_near(s),
            Woke::FarReady(true) => send_far(s),
            // It reads no more; how it ends is told by its exit, which is brought about if it does not come.
            Woke::FarReady(false) => {
                s.to_far.clear();
                set_timer(s, TimerKind::Terminate, MUTE);
            }
            Woke::Frame(Some(frame)) => self.frames(frame, s).await,
            Woke::Frame(None) => {
                if let Some(far) = &mut s.far {
                    far.silent = true;
                    set_timer(s, TimerKind::Terminate, MUTE);
                }
            }
            Woke::Exit(report) => {
                self.last_words(s).await;
                s.far = None;
                s.to_far.clear();
                s.timers.retain(|(kind, _)| *kind != TimerKind::Terminate);
                self.trace.event("exit", || {
                    json!({"session": &*self.session_id, "code": report.code, "signal": report.signal, "stderr": report.stderr_tail})
                });
                let exit = FarExit { code: report.code, signal: report.signal, stderr: report.stderr_tail };
                self.handle(Event::FarClosed(&exit), s).await;
            }
            Woke::Timer => self.timers(s).await,
            Woke::Read(effect, content) => self.handle(Event::FileRead { effect, content }, s).await,
        }
    }

    /// Lines that are there already are taken together: what they say is joined and written at once.
    async fn frames(&mut self, first: Frame, s: &mut State) {
        let time = Instant::now();
        let soon = s.last_batch.replace(time).is_some_and(|last| time.duration_since(last) < PACE / 2);
        let mut next = Some(first);
        let (mut taken, mut bytes) = (0, 0);
        while let Some(frame) = next.take() {
            taken += 1;
            match frame {
                Frame::Line(line) => {
                    bytes += line.len();
                    self.trace.line(Wire::Far, Dir::In, Some(&self.session_id), &line);
                    self.translator.handle(Event::Far(&line), &mut s.actions);
                }
                Frame::Noise(noise) => {
                    self.trace.noise(Wire::Far, Dir::In, Some(&self.session_id), &noise.bytes, why(noise.why));
                }
            }
            if taken < BATCH
                && bytes < BATCH_BYTES
                && s.to_near.len() + s.actions.as_slice().len() < KEPT
                && let Some(far) = &mut s.far
            {
                match now(far.output.next_frame()) {
                    Some(Some(frame)) => next = Some(frame),
                    Some(None) => {
                        far.silent = true;
                        set_timer(s, TimerKind::Terminate, MUTE);
                    }
                    None => {}
                }
            }
        }
        // After a hold, lines that came meanwhile say that it goes on as it was.
        s.soon = if soon { s.soon.saturating_add(1) } else { 0 };
        let dense = if s.held { taken >= DENSE } else { s.soon >= DENSE };
        s.held = dense;
        s.hold = dense.then(|| time + PACE);
        if dense && let Some(far) = &mut s.far {
            far.output.rest();
        }
        self.perform(s).await;
    }

    async fn handle(&mut self, event: Event<'_>, s: &mut State) {
        self.translator.handle(event, &mut s.actions);
        self.perform(s).await;
    }

    /// What is still in the pipe of a process that has ended comes before its end. Only a process that could not be killed
    /// can keep the pipe open.
    async fn last_words(&mut self, s: &mut State) {
        let deadline = Instant::now() + LAST_WORDS;
        while let Some(far) = s.far.as_mut().filter(|far| !far.silent) {
            match timeout_at(deadline, far.output.next_frame()).await {
                Ok(Some(frame)) => self.frames(frame, s).await,
                Ok(None) | Err(_) => return,
            }
        }
    }

    async fn mail(&mut self, mail: Mail, s: &mut State) {
        match mail {
            Mail::Near(line) => self.handle(Event::Near(&line), s).await,
            Mail::Interrupted => self.handle(Event::Interrupted, s).await,
            Mail::ToolCalled { effect, answer } => self.handle(Event::ToolCalled { effect, answer }, s).await,
            Mail::Client { effect, done } => self.handle(Event::Client { effect, done }, s).await,
            Mail::CommandEnded { terminal, output } => self.handle(Event::CommandEnded { terminal, output }, s).await,
            Mail::Relay { conn, server, line } => {
                self.handle(Event::Relay { conn, server: &server, line: line.as_deref() }, s).await;
            }
        }
    }

    async fn near_gone(&mut self, s: &mut State) {
        // What the editor said before it went is heard first: each request gets its answer.
        if self.outside.is_none() {
            self.mailbox.close();
        }
        while let Ok(mail) = self.mailbox.try_recv() {
            self.mail(mail, s).await;
        }
        if !s.near_gone {
            s.near_gone = true;
            self.handle(Event::NearClosed, s).await;
        } else {
            s.to_near.clear();
        }
    }

    async fn timers(&mut self, s: &mut State) {
        let now = Instant::now();
        s.hold = s.hold.filter(|at| *at > now);
        while let Some(at) = s.timers.iter().position(|(_, at)| *at <= now) {
            match s.timers.swap_remove(at).0 {
                TimerKind::Of(timer) => self.handle(Event::Timer(timer), s).await,
                TimerKind::Terminate => {
                    if let Some(far) = &s.far {
                        far.control.terminate();
                    }
                }
            }
        }
    }

    /// Does what the translator said, in order.
    async fn perform(&mut self, s: &mut State) {
        // A start may fail, and the translator has something to say about it.
        let mut failure = None;
        loop {
            let mut actions = std::mem::take(&mut s.actions);
            for action in actions.drain() {
                match action {
                    Action::Near(line) => s.to_near.push_back(Out::Line(line)),
                    Action::NearLong(line) => s.to_near.push_back(Out::Long(line)),
                    Action::Chunk(chunk) => {
                        let next = Out::Chunk(chunk);
                        if let Some(next) = match s.to_near.back_mut() {
                            Some(last) => last.join(next),
                            None => Some(next),
                        } {
                            s.to_near.push_back(next);
                        }
                    }
                    Action::Far(line) => {
                        if s.far.as_ref().is_some_and(|f| f.input.is_some() && !f.closing) {
                            self.trace.line(Wire::Far, Dir::Out, Some(&self.session_id), &line);
                            let mut bytes = Vec::with_capacity(line.len() + 1);
                            write_line(&mut bytes, &line);
                            s.to_far.push_back(bytes);
                        }
                    }
                    Action::StartFar(spec) => failure = self.start(spec, s).await.err(),
                    Action::StopFar(stop) => stop_far(stop, s),
                    Action::ReadFile { effect, path } => {
                        let roots = s.roots.clone();
                        // A question waits for it, so there is an answer in any case.
                        s.reads.spawn(async move {
                            let read = tokio::task::spawn_blocking(move || files::read(&path, &roots));
                            (effect, read.await.unwrap_or(FileContent::Unreadable("it cannot be read")))
                        });
                    }
                    Action::ForgetFile => {
                        if let Some(far) = &mut s.far {
                            far.file = None;
                        }
                    }
                    Action::SetTimer(timer, after) => set_timer(s, TimerKind::Of(timer), after),
                    Action::ClearTimer(timer) => s.timers.retain(|(kind, _)| *kind != TimerKind::Of(timer)),
                    Action::Note(note) => self.trace.note(Some(&self.session_id), format_args!("{note}")),
                    Action::Relay { conn, line } => {
                        if let Some(outside) = &mut self.outside {
                            (outside.relay)(conn, line);
                        }
                    }
                    Action::AskTool { effect, tool, arguments } => {
                        if let Some(outside) = &mut self.outside {
                            (outside.ask)(effect, tool, arguments);
                        }
                    }
                    Action::Proxy(server) => {
                        if let Some(outside) = &mut self.outside {
                            (outside.proxy)(server);
                        }
                    }
                    Action::Client { effect, work } => {
                        if let Some(outside) = &mut self.outside {
                            (outside.client)(effect, work);
                        }
                    }
                    Action::Remember { agent_session } => {
                        if let Some(outside) = &mut self.outside {
                            (outside.remember)(agent_session);
                        }
                    }
                    Action::Warn(text) => {
                        // There is nobody left to tell when stderr is closed.
                        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{text}\n"));
                    }
                    Action::End => s.ended = true,
                    Action::Exit(code) => {
                        s.ended = true;
                        s.code = Some(code);
                    }
                }
            }
            // Their room serves again.
            s.actions = actions;
            match failure.take() {
                Some(why) => self.translator.handle(Event::FarFailed(&why), &mut s.actions),
                None => break,
            }
        }
        if self.near.is_closed() {
            s.to_near.clear();
        }
        self.send_near(s);
        send_far(s);
    }

    async fn start(&mut self, spec: FarSpec, s: &mut State) -> Result<(), StartFailure> {
        let mut child = ChildSpec::new(self.launch.program.clone(), spec.cwd.clone());
        child.args = self.launch.args.iter().cloned().chain(spec.args.into_iter().map(Into::into)).collect();
        child.env = self.launch.env.clone();
        child.env_remove = self.launch.env_remove.clone();
        child.guards = self.launch.guards.clone();
        self.trace.event("started", || {
            let argv: Vec<_> =
                std::iter::once(&child.program).chain(&child.args).map(|a| a.to_string_lossy()).collect();
            json!({"session": &*self.session_id, "argv": argv, "cwd": child.cwd.to_string_lossy()})
        });
        let file = match spec.file {
            None => None,
            Some((flag, text)) => {
                let file = files::Private::create(&text)
                    .map_err(|e| StartFailure::Other(format!("cannot write a temporary file for the agent: {e}")))?;
                child.args.extend([flag.into(), file.path().into()]);
                Some(file)
            }
        };
        s.roots = std::iter::once(spec.cwd).chain(spec.roots).collect();
        let spawned = timeout(SPAWN_LIMIT, Child::spawn(&child)).await.map_err(|_| {
            StartFailure::Other(format!("the program did not begin to run within {} s", SPAWN_LIMIT.as_secs()))
        })?;
        let started = spawned.map_err(|e| {
            let message = e.to_string();
            match e {
                SpawnError::CwdMissing { .. } | SpawnError::CwdNotADirectory { .. } => {
                    StartFailure::BadDirectory(message)
                }
                SpawnError::NotFound { .. } | SpawnError::NoInterpreter { .. } | SpawnError::NotExecutable { .. } => {
                    StartFailure::NoProgram(format!("{message} ({})", self.launch.hint))
                }
                SpawnError::Guard { .. } | SpawnError::Other { .. } => StartFailure::Other(message),
            }
        })?;
        let Child { output, input, control, exit } = started;
        s.far = Some(Far { output, input: Some(input), control, exit, silent: false, closing: false, file });
        Ok(())
    }

    /// Hands over what the editor's queue has room for.
    fn send_near(&self, s: &mut State) {
        while let Some(out) = s.to_near.front() {
            let Some(place) = self.near.place_now(out) else { return };
            if let Some(out) = s.to_near.pop_front() {
                place.fill(out);
            }
        }
    }
}

/// Hands over what the agent's stdin has room for, and closes it when that was asked for and all is handed over.
fn send_far(s: &mut State) {
    let Some(far) = &mut s.far else { return };
    while let (Some(input), Some(line)) = (&far.input, s.to_far.pop_front()) {
        match input.try_send(line) {
            Ok(()) => {}
            Err(crate::peer::sink::TrySendError::Full(line)) => {
                s.to_far.push_front(line);
                return;
            }
            Err(crate::peer::sink::TrySendError::Closed(_)) => s.to_far.clear(),
        }
    }
    if far.closing {
        far.input = None;
    }
}

fn stop_far(stop: Stop, s: &mut State) {
    let Some(far) = &mut s.far else { return };
    match stop {
        Stop::Interrupt => far.control.interrupt(),
        Stop::Kill => far.control.kill(),
        Stop::Gently => {
            far.closing = true;
            send_far(s);
            set_timer(s, TimerKind::Terminate, GRACE);
        }
    }
}

fn set_timer(s: &mut State, kind: TimerKind, after: Duration) {
    s.timers.retain(|(k, _)| *k != kind);
    s.timers.push((kind, Instant::now() + after));
}

/// Whether so much waits for the editor that the agent must wait too.
fn is_full(to_near: &VecDeque<Out>) -> bool {
    // At most so many are looked at, once for each time that the session wakes up.
    to_near.len() >= KEPT || to_near.iter().map(Out::size).sum::<usize>() >= KEPT_BYTES
}

/// A place for what is kept longest.
async fn place<'q>(near: &'q NearQueue, out: Option<&Out>) -> Result<Place<'q>, Gone> {
    match out {
        Some(out) => near.place(out).await,
        None => std::future::pending().await,
    }
}

/// Polls a future once: what is there now.
fn now<F: Future>(future: F) -> Option<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Waits until the editor is gone.
async fn closed(closed: &mut watch::Receiver<bool>) {
    // A connection that is dropped is gone too.
    let _ = closed.wait_for(|closed| *closed).await;
}

async fn ready(input: Option<&ChildInput>) -> bool {
    match input {
        Some(input) => input.ready().await.is_ok(),
        None => std::future::pending().await,
    }
}

async fn next_frame(output: Option<&mut ChildOutput>) -> Option<Frame> {
    match output {
        Some(output) => output.next_frame().await,
        None => std::future::pending().await,
    }
}

async fn end(exit: Option<&mut ChildExit>) -> crate::peer::child::ExitReport {
    match exit {
        Some(exit) => exit.wait().await,
        None => std::future::pending().await,
    }
}
