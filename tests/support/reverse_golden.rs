//! Golden files of a host's conversations with an agent (`golden/README.md` describes the format).
//!
//! Owns reading, running and writing them. Keeps: a run depends on the file alone; what comes out is compared as text, line
//! by line and in order.

use std::fmt::Write as _;

use diglot::translate::client::{ClientDone, ClientFailure, ClientWork, CommandExit, Output};
use diglot::translate::{FarExit, StartFailure, Stop, Timer};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::files::Run;
use super::reverse::{Conversation, Done, Input, Setting};

/// The first line of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    /// What the conversation shows, in one sentence.
    pub(crate) about: String,
    /// Where its lines come from: program, version and recording; `report N`; or `written`.
    pub(crate) source: String,
    #[serde(default)]
    setting: Setting,
    /// The conversation ends while something is still open.
    #[serde(default)]
    open: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Step<'a> {
    #[serde(rename = "in")]
    input: String,
    #[serde(borrow)]
    line: Option<&'a RawValue>,
    raw: Option<String>,
    code: Option<i32>,
    signal: Option<i32>,
    stderr: String,
    kind: String,
    message: String,
    timer: String,
    conn: u64,
    server: String,
    effect: u64,
    terminal: u64,
    found: Option<String>,
    text: Option<String>,
    missing: Option<String>,
    not_allowed: Option<String>,
    failed: Option<String>,
    output: Option<String>,
    truncated: bool,
}

fn timer_name(timer: Timer) -> String {
    match timer {
        Timer::Start => "start".into(),
        Timer::Cancel => "cancel".into(),
        Timer::Settle => "settle".into(),
        Timer::Control => "control".into(),
        Timer::Commands => "commands".into(),
        Timer::Barrier => "barrier".into(),
        Timer::Hook(number) => format!("hook {number}"),
    }
}

fn timer_of(name: &str) -> Result<Timer, String> {
    if let Some(number) = name.strip_prefix("hook ").and_then(|n| n.parse().ok()) {
        return Ok(Timer::Hook(number));
    }
    [Timer::Start, Timer::Cancel, Timer::Settle, Timer::Commands, Timer::Barrier]
        .into_iter()
        .find(|t| timer_name(*t) == name)
        .ok_or_else(|| format!("there is no timer {name:?}"))
}

impl Header {
    pub(crate) fn read(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|e| format!("the first line is no header: {e}"))
    }
}

fn read_step(line: &str) -> Result<Input, String> {
    let step: Step<'_> = serde_json::from_str(line).map_err(|e| format!("{e}: {line}"))?;
    let bytes = || match (&step.line, &step.raw) {
        (Some(raw), None) => Ok(raw.get().as_bytes().to_vec()),
        (None, Some(raw)) => Ok(raw.as_bytes().to_vec()),
        _ => Err(format!("needs `line` or `raw`: {line}")),
    };
    Ok(match &*step.input {
        "host" => Input::Host(bytes()?),
        "host_closed" => Input::HostClosed,
        "interrupted" => Input::Interrupted,
        "agent" => Input::Agent(bytes()?),
        "agent_closed" => Input::AgentClosed(FarExit { code: step.code, signal: step.signal, stderr: step.stderr }),
        "agent_failed" => Input::AgentFailed(match &*step.kind {
            "bad_directory" => StartFailure::BadDirectory(step.message),
            "no_program" => StartFailure::NoProgram(step.message),
            _ => StartFailure::Other(step.message),
        }),
        "timer" => Input::Timer(timer_of(&step.timer)?),
        "relay" => Input::Relay(step.conn, step.server.clone(), Some(bytes()?)),
        "relay_closed" => Input::Relay(step.conn, step.server, None),
        "tool" => Input::Tool(step.effect, step.text.ok_or_else(|| step.failed.unwrap_or_default())),
        "client" => Input::Client(step.effect, done_of(step)),
        "command_ended" => Input::CommandEnded(
            step.terminal,
            Output {
                text: step.output.unwrap_or_default(),
                truncated: step.truncated,
                exit: Some(CommandExit { code: step.code, signal: step.signal }),
            },
        ),
        other => return Err(format!("there is no input {other:?}: {line}")),
    })
}

/// What came of a work: the member that is there says which. One that says nothing is a work that is done.
fn done_of(step: Step<'_>) -> ClientDone {
    match step {
        Step { found: Some(path), .. } => ClientDone::Found(path.into()),
        Step { text: Some(text), .. } => ClientDone::Text(text),
        Step { missing: Some(what), .. } => ClientDone::Failed(ClientFailure::NotFound(what)),
        Step { not_allowed: Some(why), .. } => ClientDone::Failed(ClientFailure::NotAllowed(why)),
        Step { failed: Some(why), .. } => ClientDone::Failed(ClientFailure::Failed(why)),
        Step { output: Some(text), truncated, .. } => ClientDone::Output(Output { text, truncated, exit: None }),
        Step { kind, .. } if kind == "runs" => ClientDone::Runs,
        _ => ClientDone::Written,
    }
}

/// What came of a work, as a golden line.
fn write_done(effect: u64, done: &ClientDone) -> String {
    let (name, value) = match done {
        ClientDone::Found(path) => ("found", json!(path)),
        ClientDone::Text(text) => ("text", json!(text)),
        ClientDone::Written => ("kind", json!("written")),
        ClientDone::Runs => ("kind", json!("runs")),
        ClientDone::Output(output) => {
            let (text, truncated) = (&output.text, output.truncated);
            return json!({"in": "client", "effect": effect, "output": text, "truncated": truncated}).to_string();
        }
        ClientDone::Failed(ClientFailure::NotFound(what)) => ("missing", json!(what)),
        ClientDone::Failed(ClientFailure::NotAllowed(why)) => ("not_allowed", json!(why)),
        ClientDone::Failed(ClientFailure::Failed(why)) => ("failed", json!(why)),
    };
    json!({"in": "client", "effect": effect, name: value}).to_string()
}

/// A work as a golden line.
fn write_work(effect: u64, work: &ClientWork) -> String {
    let work = match work {
        ClientWork::Find { path, want, .. } => json!({"work": "find", "path": path, "want": format!("{want:?}")}),
        ClientWork::Read { path, skip, limit, .. } => {
            json!({"work": "read", "path": path, "skip": skip, "limit": limit})
        }
        ClientWork::Write { path, content, over: None, .. } => {
            json!({"work": "write", "path": path, "content": content})
        }
        ClientWork::Write { path, content, over, .. } => {
            json!({"work": "write", "path": path, "content": content, "over": over})
        }
        ClientWork::Run { terminal, command, .. } => json!({
            "work": "run", "terminal": terminal, "program": command.program, "args": command.args,
            "env": command.env, "cwd": command.cwd, "keep": command.keep,
        }),
        ClientWork::Output { terminal } => json!({"work": "output", "terminal": terminal}),
        ClientWork::Kill { terminal } => json!({"work": "kill", "terminal": terminal}),
        ClientWork::KillAll => json!({"work": "kill_all"}),
    };
    let effect = if effect == 0 { String::new() } else { format!("\"effect\":{effect},") };
    format!("{{\"out\":\"client\",{effect}{}", &work.to_string()[1..])
}

/// An input as a golden line.
pub(crate) fn write_input(input: &Input) -> String {
    let bytes = |head: serde_json::Value, bytes: &[u8]| {
        let head = head.to_string();
        let head = head.trim_end_matches('}');
        match serde_json::from_slice::<&RawValue>(bytes) {
            Ok(raw) if raw.get().starts_with('{') && !raw.get().contains('\n') => format!("{head},\"line\":{raw}}}"),
            _ => format!("{head},\"raw\":{}}}", json!(String::from_utf8_lossy(bytes))),
        }
    };
    match input {
        Input::Host(line) => bytes(json!({ "in": "host" }), line),
        Input::HostClosed => json!({ "in": "host_closed" }).to_string(),
        Input::Interrupted => json!({ "in": "interrupted" }).to_string(),
        Input::Agent(line) => bytes(json!({ "in": "agent" }), line),
        Input::AgentClosed(exit) => {
            json!({ "in": "agent_closed", "code": exit.code, "signal": exit.signal, "stderr": exit.stderr }).to_string()
        }
        Input::AgentFailed(why) => {
            let kind = match why {
                StartFailure::BadDirectory(_) => "bad_directory",
                StartFailure::NoProgram(_) => "no_program",
                StartFailure::Other(_) => "other",
            };
            json!({ "in": "agent_failed", "kind": kind, "message": why.message() }).to_string()
        }
        Input::Timer(timer) => json!({ "in": "timer", "timer": timer_name(*timer) }).to_string(),
        Input::Relay(conn, server, Some(line)) => bytes(json!({ "in": "relay", "conn": conn, "server": server }), line),
        Input::Tool(effect, Ok(text)) => json!({"in": "tool", "effect": effect, "text": text}).to_string(),
        Input::Tool(effect, Err(why)) => json!({"in": "tool", "effect": effect, "failed": why}).to_string(),
        Input::Client(effect, done) => write_done(*effect, done),
        Input::CommandEnded(terminal, output) => {
            let exit = output.exit.unwrap_or_default();
            json!({
                "in": "command_ended", "terminal": terminal, "output": output.text, "truncated": output.truncated,
                "code": exit.code, "signal": exit.signal,
            })
            .to_string()
        }
        Input::Relay(conn, server, None) => json!({ "in": "relay_closed", "conn": conn, "server": server }).to_string(),
    }
}

/// An output as a golden line.
pub(crate) fn write_output(done: &Done) -> String {
    let line = |kind: &str, bytes: &[u8]| {
        // A release changes no conversation.
        let text = String::from_utf8_lossy(bytes)
            .replace(&format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION")), "\"version\":\"VERSION\"");
        format!("{{\"out\":\"{kind}\",\"line\":{text}}}")
    };
    match done {
        Done::Host(bytes) => line("host", bytes),
        Done::Agent(bytes) => line("agent", bytes),
        Done::Start(spec) => {
            let roots = match &*spec.roots {
                [] => String::new(),
                roots => format!(",\"roots\":{}", json!(roots)),
            };
            format!("{{\"out\":\"start\",\"args\":{},\"cwd\":{}{roots}}}", json!(spec.args), json!(spec.cwd))
        }
        Done::Stop(how) => {
            let how = match how {
                Stop::Gently => "gently",
                Stop::Interrupt => "interrupt",
                Stop::Kill => "kill",
            };
            format!("{{\"out\":\"stop\",\"how\":\"{how}\"}}")
        }
        Done::Set(timer, after) => {
            format!("{{\"out\":\"timer\",\"timer\":\"{}\",\"ms\":{}}}", timer_name(*timer), after.as_millis())
        }
        Done::Clear(timer) => format!("{{\"out\":\"clear\",\"timer\":\"{}\"}}", timer_name(*timer)),
        Done::Relay(conn, bytes) => {
            format!("{{\"out\":\"relay\",\"conn\":{conn},\"line\":{}}}", String::from_utf8_lossy(bytes))
        }
        Done::Proxy(server) => format!("{{\"out\":\"proxy\",\"server\":{}}}", json!(server)),
        Done::Tool(effect, tool, arguments) => {
            format!("{{\"out\":\"tool\",\"effect\":{effect},\"tool\":{},\"arguments\":{arguments}}}", json!(tool))
        }
        Done::Client(effect, work) => write_work(*effect, work),
        Done::Remember(session) => format!("{{\"out\":\"remember\",\"session\":{}}}", json!(session)),
        Done::Warn(text) => format!("{{\"out\":\"warn\",\"text\":{}}}", json!(text)),
        Done::Exit(code) => format!("{{\"out\":\"exit\",\"code\":{code}}}"),
    }
}

/// Runs a file; `happened` gets every input with its names replaced.
///
/// # Errors
/// When the file itself is wrong: a line that cannot be read, or an input that cannot happen at its place.
pub(crate) fn run_into(text: &str, happened: &mut Vec<Input>) -> Result<Run, String> {
    let mut lines = text.lines().filter(|l| !l.trim().is_empty());
    let first = lines.next().ok_or("the file is empty")?;
    let header = Header::read(first)?;
    let (mut conversation, begun) = Conversation::new(&header.setting)?;
    let mut now = format!("{first}\n");
    // Writing into a string cannot fail.
    for done in &begun {
        let _ = writeln!(now, "{}", write_output(done));
    }
    for line in lines.filter(|l| !l.starts_with("{\"out\":")) {
        now.push_str(line);
        now.push('\n');
        // A remark for the reader.
        if line.starts_with("{\"note\":") {
            continue;
        }
        let resolved = conversation.resolve(line).map_err(|e| format!("{e}: {line}\n{now}"))?;
        let input = read_step(&resolved)?;
        let done = conversation.feed(&input).map_err(|e| format!("{e}: {line}\n{now}"))?;
        for done in &done {
            let _ = writeln!(now, "{}", write_output(done));
        }
        happened.push(input);
    }
    let mut problems = conversation.judge.violations();
    if !header.open {
        problems.extend(conversation.judge.unsettled());
    }
    Ok(Run { text: now, problems })
}

/// Runs a file.
///
/// # Errors
/// As [`run_into`].
pub(crate) fn run(text: &str) -> Result<Run, String> {
    run_into(text, &mut Vec::new())
}

/// What comes in, and with what it is held.
///
/// # Errors
/// As [`run_into`].
pub(crate) fn inputs(text: &str) -> Result<(Setting, Vec<Input>), String> {
    let header = Header::read(text.lines().next().unwrap_or_default())?;
    let mut happened = Vec::new();
    run_into(text, &mut happened)?;
    Ok((header.setting, happened))
}
