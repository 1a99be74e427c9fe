//! The scripted agent: a program that speaks Claude's stream-json and plays a [`Script`].
//!
//! Owns its command line, its threads and its way out. One thread reads stdin, one waits for signals, one
//! waits for each running command; all of them only put inputs into one bounded queue, and the main
//! thread alone decides and writes. Invariants: what it writes follows claude's order; it folds nothing
//! (a prompt that comes in the middle of a turn is the next turn); unless its script says otherwise, no
//! command that it started outlives it.

mod control;
mod play;
mod say;
mod tools;

use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use uuid::Uuid;

use super::script::{DEMO, Script};

/// How many inputs may wait for the main thread; then the reader waits, and the pipe fills.
const INPUTS: usize = 256;

/// The version that this agent says it has: the one whose behaviour it follows.
const CLAUDE_VERSION: &str = "2.1.332";

/// Something that the main thread has to deal with.
enum Input {
    Line(Vec<u8>),
    Closed,
    /// A command ended: which, and what it printed.
    CommandEnded(u32, std::io::Result<std::process::Output>),
    /// SIGINT.
    Interrupt,
}

/// Why the playing of steps ends early.
enum Stop {
    /// The turn was interrupted.
    Interrupted,
    /// The process ends with this code.
    Exit(u8),
    /// Nobody reads stdout any more.
    Deaf,
}

type Flow<T = ()> = Result<T, Stop>;

/// The part of claude's command line that means something here.
#[derive(Debug, Default)]
struct Flags {
    script: Option<PathBuf>,
    session_id: Option<String>,
    resume: Option<String>,
    fork: bool,
    partial: bool,
    replay: bool,
    prompts: bool,
    mode: Option<String>,
    model: Option<String>,
    version: bool,
    /// Not an agent at all: lead a new session and become this program.
    lead_session: Vec<OsString>,
}

impl Flags {
    /// Reads `--name value` and `--name=value`; whatever else claude's command line knows is ignored.
    fn read(args: Vec<OsString>) -> Self {
        let mut flags = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let text = arg.to_string_lossy().into_owned();
            let (name, inline) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (text.as_str(), None),
            };
            let mut value = || {
                let next = || args.next().map(|value| value.to_string_lossy().into_owned());
                inline.clone().or_else(next)
            };
            match name {
                "--lead-session" => {
                    flags.lead_session = args.collect();
                    break;
                }
                "--script" => flags.script = value().map(Into::into),
                "--session-id" => flags.session_id = value(),
                "--resume" | "-r" => flags.resume = value(),
                "--fork-session" => flags.fork = true,
                "--include-partial-messages" => flags.partial = true,
                "--replay-user-messages" => flags.replay = true,
                "--permission-prompt-tool" => flags.prompts = value().as_deref() == Some("stdio"),
                "--permission-mode" => flags.mode = value(),
                "--model" => flags.model = value(),
                "--version" | "-v" => flags.version = true,
                _ => {}
            }
        }
        flags
    }

    /// The session's id, by claude's rules.
    fn session(&self) -> Result<String, String> {
        if let Some(id) = &self.session_id
            && Uuid::try_parse(id).is_err()
        {
            return Err("Error: Invalid session ID. Must be a valid UUID.".into());
        }
        match (&self.session_id, &self.resume) {
            (Some(_), Some(_)) if !self.fork => {
                Err("Error: --session-id with --continue or --resume also needs --fork-session.".into())
            }
            (Some(id), _) => Ok(id.clone()),
            (None, Some(id)) if !self.fork => Ok(id.clone()),
            _ => Ok(Uuid::new_v4().to_string()),
        }
    }
}

/// Runs the agent until its input ends or its script says so.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let flags = Flags::read(args);
    if !flags.lead_session.is_empty() {
        return tools::lead_session(&flags.lead_session);
    }
    if flags.version {
        let _ = writeln!(std::io::stdout(), "{CLAUDE_VERSION} (diglot demo agent)");
        return ExitCode::SUCCESS;
    }
    let script = match &flags.script {
        Some(path) => Script::load(path),
        None => Script::parse(DEMO),
    };
    let (script, session) = match (script, flags.session()) {
        (Ok(script), Ok(session)) => (script, session),
        (Err(error), _) => return refuse(&error.to_string()),
        (_, Err(message)) => return refuse(&message),
    };
    let (sender, inbox) = sync_channel(INPUTS);
    let children = Children::default();
    read_stdin(sender.clone());
    watch_signals(sender.clone(), children.clone());
    let code = Agent::new(script, flags, session, sender, inbox, children).live();
    // Other threads still read and wait; returning from main ends them.
    ExitCode::from(code)
}

fn refuse(message: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{message}");
    ExitCode::from(1)
}

fn read_stdin(sender: SyncSender<Input>) {
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = stdin.read_until(b'\n', &mut line);
            let end = !matches!(read, Ok(length) if length > 0);
            let input = if end { Input::Closed } else { Input::Line(line) };
            if sender.send(input).is_err() || end {
                return;
            }
        }
    });
}

/// The commands that run, and what SIGTERM does to them.
#[derive(Clone, Default)]
struct Children {
    pids: Arc<Mutex<Vec<u32>>>,
    ignore_sigterm: Arc<AtomicBool>,
    /// The agent ends: what its commands come to is told to nobody.
    leaving: Arc<AtomicBool>,
}

impl Children {
    fn add(&self, pid: u32) {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
    }

    fn remove(&self, pid: u32) {
        let mut pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        pids.retain(|&other| other != pid);
    }

    fn kill_all(&self) {
        let pids = std::mem::take(&mut *self.pids.lock().unwrap_or_else(PoisonError::into_inner));
        for pid in pids {
            tools::kill_session(pid);
        }
    }
}

#[cfg(unix)]
fn watch_signals(sender: SyncSender<Input>, children: Children) {
    use tokio::signal::unix::{SignalKind, signal};

    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let terminate = signal(SignalKind::terminate());
            let interrupt = signal(SignalKind::interrupt());
            let (Ok(mut terminate), Ok(mut interrupt)) = (terminate, interrupt) else {
                return;
            };
            loop {
                tokio::select! {
                    _ = terminate.recv() => {
                        if !children.ignore_sigterm.load(Ordering::Relaxed) {
                            children.leaving.store(true, Ordering::SeqCst);
                            children.kill_all();
                            std::process::exit(143);
                        }
                    }
                    _ = interrupt.recv() => {
                        if sender.send(Input::Interrupt).is_err() {
                            return;
                        }
                    }
                }
            }
        });
    });
}

#[cfg(not(unix))]
fn watch_signals(_: SyncSender<Input>, _: Children) {}

/// A user message that waits for its turn.
struct Prompt {
    uuid: Option<String>,
    text: String,
    /// The line, for the echo of `--replay-user-messages`.
    message: Value,
}

/// A tool call of this turn.
struct Call {
    id: String,
    name: String,
    input: Value,
    parent: Option<String>,
    /// Whether its result is still owed.
    open: bool,
    /// What `tool_result_meta` says about the decision.
    decision: Value,
}

/// A `can_use_tool` that was asked.
struct Question {
    request: String,
    call: String,
    answer: Option<Answer>,
    /// Whether a step has dealt with the answer.
    settled: bool,
}

enum Answer {
    Allow { input: Option<Value>, permissions: Vec<Value> },
    Deny { message: String, interrupt: bool },
    Failed(String),
}

/// The API message whose blocks are being said.
struct Message {
    id: String,
    blocks: usize,
}

/// A block that has begun and not ended; only its text is needed when it is cut.
struct Partial {
    kind: &'static str,
    text: String,
}

/// The agent, as the main thread has it.
struct Agent {
    script: Rc<Script>,
    flags: Flags,
    sender: SyncSender<Input>,
    inbox: Receiver<Input>,
    children: Children,
    session: String,
    cwd: PathBuf,
    mode: String,
    model: String,
    states: bool,
    pace: std::time::Duration,

    queue: VecDeque<Prompt>,
    /// The uuids of all user messages; a repeated one is dropped.
    seen: HashSet<String>,
    /// Whether the steps before the first turn are being done; they read nothing.
    starting: bool,
    input_ended: bool,
    exit_after_turn: bool,
    failed_last: bool,
    rules: Vec<(String, Option<String>)>,
    messages: usize,
    results: usize,
    output_tokens: u64,

    turn: usize,
    in_turn: bool,
    prompt: Prompt,
    first_frame: bool,
    message: Option<Message>,
    partial: Option<Partial>,
    calls: Vec<Call>,
    current: Option<String>,
    questions: Vec<Question>,
    /// Indexes of questions in the order in which their answers came.
    answered: VecDeque<usize>,
    denials: Vec<Value>,
    todos: Value,
    last_text: String,
    last_answer: String,
    last_request: String,
    result_sent: bool,
    turn_tokens: u64,
    turn_messages: usize,
    round: u32,
    expecting: Option<Value>,
    ended: VecDeque<(u32, std::io::Result<std::process::Output>)>,
}

impl Agent {
    fn new(
        script: Script,
        flags: Flags,
        session: String,
        sender: SyncSender<Input>,
        inbox: Receiver<Input>,
        children: Children,
    ) -> Self {
        let on = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != OsStr::new("0"));
        let asked = || on("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS") || on("CLAUDE_CODE_SDK_READS_SESSION_STATE");
        let wave = script.profile.dialect == crate::mappings::Dialect::Wave;
        let states = script.profile.states.unwrap_or_else(|| wave || asked());
        let percent = std::env::var("DIGLOT_DEMO_PACE").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
        Self {
            mode: flags.mode.clone().unwrap_or_else(|| script.profile.mode.clone()),
            model: flags.model.clone().unwrap_or_else(|| script.profile.model.clone()),
            pace: std::time::Duration::from_millis(script.profile.pace_ms.saturating_mul(percent) / 100),
            cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            script: Rc::new(script),
            flags,
            sender,
            inbox,
            children,
            session,
            states,
            queue: VecDeque::new(),
            seen: HashSet::new(),
            starting: true,
            input_ended: false,
            exit_after_turn: false,
            failed_last: false,
            rules: Vec::new(),
            messages: 0,
            results: 0,
            output_tokens: 0,
            turn: 0,
            in_turn: false,
            prompt: Prompt { uuid: None, text: String::new(), message: Value::Null },
            first_frame: true,
            message: None,
            partial: None,
            calls: Vec::new(),
            current: None,
            questions: Vec::new(),
            answered: VecDeque::new(),
            denials: Vec::new(),
            todos: json!([]),
            last_text: String::new(),
            last_answer: String::new(),
            last_request: String::new(),
            result_sent: false,
            turn_tokens: 0,
            turn_messages: 0,
            round: 0,
            expecting: None,
            ended: VecDeque::new(),
        }
    }

    fn live(mut self) -> u8 {
        let code = match self.turns() {
            Ok(code) | Err(Stop::Exit(code)) => return code,
            Err(Stop::Deaf) => 1,
            Err(Stop::Interrupted) => 0,
        };
        self.children.kill_all();
        code
    }

    /// Plays turn after turn until the input ends.
    fn turns(&mut self) -> Flow<u8> {
        let script = Rc::clone(&self.script);
        self.steps(&script.start)?;
        self.starting = false;
        loop {
            if let Some(prompt) = self.queue.pop_front() {
                self.play_turn(prompt)?;
                if self.exit_after_turn {
                    self.children.kill_all();
                    return Ok(0);
                }
            } else if self.input_ended {
                self.children.kill_all();
                return Ok(u8::from(self.failed_last));
            } else {
                self.take_one(None)?;
            }
        }
    }

    fn wave(&self) -> bool {
        self.script.profile.dialect == crate::mappings::Dialect::Wave
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(args: &[&str]) -> Flags {
        Flags::read(args.iter().map(Into::into).collect())
    }

    #[test]
    fn flags_are_read_in_both_spellings_and_unknown_ones_ignored() {
        let read = flags(&[
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--permission-prompt-tool=stdio",
            "--include-partial-messages",
            "--permission-mode=plan",
            "--model",
            "m",
            "--frobnicate",
        ]);
        assert!(read.prompts && read.partial && !read.replay);
        assert_eq!((read.mode.as_deref(), read.model.as_deref()), (Some("plan"), Some("m")));
    }

    #[test]
    fn the_session_id_follows_claudes_rules() {
        let id = "10fc729a-f339-4cd2-abc8-90e388d6bdf4";
        assert_eq!(flags(&["--session-id", id]).session().as_deref(), Ok(id));
        assert_eq!(flags(&["--resume", id]).session().as_deref(), Ok(id));
        assert!(flags(&["--session-id", "x"]).session().is_err());
        assert!(flags(&["--session-id", id, "--resume", id]).session().is_err());
        let fork = flags(&["--resume", "other", "--fork-session", "--session-id", id]);
        assert_eq!(fork.session().as_deref(), Ok(id));
        assert_ne!(flags(&["--resume", id, "--fork-session"]).session().as_deref(), Ok(id));
    }
}
