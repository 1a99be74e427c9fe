//! Golden files of an editor's conversations with an agent that speaks ACP itself (`golden/README.md` describes the format).
//!
//! Owns reading, running and writing them. Keeps: a run depends on the file alone; what comes out is compared as text, line by
//! line and in order.

use std::fmt::Write as _;

use diglot::translate::{FarExit, StartFailure, Stop, Timer};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::files::Run;
use super::passing::{Conversation, Done, Input};

/// The first line of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    /// What the conversation shows, in one sentence.
    pub(crate) about: String,
    /// Where its lines come from: program, version and recording; or `written`.
    pub(crate) source: String,
    /// The agent's profile.
    pub(crate) profile: String,
    /// The conversation ends while something is still open.
    #[serde(default)]
    open: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Step<'a> {
    #[serde(rename = "in")]
    input: String,
    process: u32,
    #[serde(borrow)]
    line: Option<&'a RawValue>,
    raw: Option<String>,
    code: Option<i32>,
    signal: Option<i32>,
    stderr: String,
    kind: String,
    message: String,
    timer: String,
}

const TIMERS: [(Timer, &str); 5] = [
    (Timer::Start, "start"),
    (Timer::Cancel, "cancel"),
    (Timer::Settle, "settle"),
    (Timer::Control, "mode"),
    (Timer::Barrier, "barrier"),
];

fn timer_name(timer: Timer) -> &'static str {
    TIMERS.iter().find(|(known, _)| *known == timer).map_or("of another direction", |(_, name)| name)
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
    let process = step.process;
    Ok(match &*step.input {
        "editor" => Input::Editor(bytes()?),
        "editor_closed" => Input::EditorClosed,
        "agent" => Input::Agent(process, bytes()?),
        "agent_closed" => {
            Input::AgentClosed(process, FarExit { code: step.code, signal: step.signal, stderr: step.stderr })
        }
        "agent_failed" => Input::AgentFailed(
            process,
            match &*step.kind {
                "bad_directory" => StartFailure::BadDirectory(step.message),
                "no_program" => StartFailure::NoProgram(step.message),
                _ => StartFailure::Other(step.message),
            },
        ),
        "timer" => {
            let timer = TIMERS.iter().find(|(_, name)| *name == step.timer);
            Input::Timer(process, timer.ok_or_else(|| format!("there is no timer {:?}", step.timer))?.0)
        }
        other => return Err(format!("there is no input {other:?}: {line}")),
    })
}

fn of(process: u32) -> String {
    if process == 0 { String::new() } else { format!(",\"process\":{process}") }
}

/// An input as a golden line.
pub(crate) fn write_input(input: &Input) -> String {
    let bytes = |head: String, bytes: &[u8]| match serde_json::from_slice::<&RawValue>(bytes) {
        Ok(raw) if raw.get().starts_with('{') && !raw.get().contains('\n') => format!("{head},\"line\":{raw}}}"),
        _ => format!("{head},\"raw\":{}}}", json!(String::from_utf8_lossy(bytes))),
    };
    match input {
        Input::Editor(line) => bytes("{\"in\":\"editor\"".into(), line),
        Input::EditorClosed => "{\"in\":\"editor_closed\"}".into(),
        Input::Agent(process, line) => bytes(format!("{{\"in\":\"agent\"{}", of(*process)), line),
        Input::AgentClosed(process, exit) => format!(
            "{{\"in\":\"agent_closed\"{},\"code\":{},\"signal\":{},\"stderr\":{}}}",
            of(*process),
            json!(exit.code),
            json!(exit.signal),
            json!(exit.stderr)
        ),
        Input::AgentFailed(process, why) => {
            let kind = match why {
                StartFailure::BadDirectory(_) => "bad_directory",
                StartFailure::NoProgram(_) => "no_program",
                StartFailure::Other(_) => "other",
            };
            let of = of(*process);
            format!("{{\"in\":\"agent_failed\"{of},\"kind\":\"{kind}\",\"message\":{}}}", json!(why.message()))
        }
        Input::Timer(process, timer) => {
            format!("{{\"in\":\"timer\"{},\"timer\":\"{}\"}}", of(*process), timer_name(*timer))
        }
    }
}

/// An output as a golden line.
pub(crate) fn write_output(done: &Done) -> String {
    match done {
        Done::Editor(line) => format!("{{\"out\":\"editor\",\"line\":{}}}", String::from_utf8_lossy(line)),
        Done::Agent(process, line) => {
            format!("{{\"out\":\"agent\"{},\"line\":{}}}", of(*process), String::from_utf8_lossy(line))
        }
        Done::Start(process, spec) => {
            format!("{{\"out\":\"start\"{},\"args\":{},\"cwd\":{}}}", of(*process), json!(spec.args), json!(spec.cwd))
        }
        Done::Stop(process, how) => {
            let how = match how {
                Stop::Gently => "gently",
                Stop::Interrupt => "interrupt",
                Stop::Kill => "kill",
            };
            format!("{{\"out\":\"stop\"{},\"how\":\"{how}\"}}", of(*process))
        }
        Done::Set(process, timer, after) => {
            let (of, ms) = (of(*process), after.as_millis());
            format!("{{\"out\":\"timer\"{of},\"timer\":\"{}\",\"ms\":{ms}}}", timer_name(*timer))
        }
        Done::Clear(process, timer) => {
            format!("{{\"out\":\"clear\"{},\"timer\":\"{}\"}}", of(*process), timer_name(*timer))
        }
        Done::End(process) => format!("{{\"out\":\"end\"{}}}", of(*process)),
    }
}

/// With what an editor begins that says nothing of itself: a short file does not have to.
const BEGIN: [&str; 4] = [
    r#"{"in":"editor","line":{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}}"#,
    r#"{"in":"agent","line":{"jsonrpc":"2.0","id":"@initialize","result":{"protocolVersion":1,"agentInfo":{"name":"agent","version":"1"},"agentCapabilities":{"loadSession":true,"sessionCapabilities":{}},"authMethods":[]}}}"#,
    r#"{"in":"editor","line":{"jsonrpc":"2.0","id":"new","method":"session/new","params":{"cwd":"/w","mcpServers":[]}}}"#,
    r#"{"in":"agent","line":{"jsonrpc":"2.0","id":"@session/new","result":{"sessionId":"s"}}}"#,
];

/// Runs a file; `happened` gets every input with its names replaced.
///
/// # Errors
/// When the file itself is wrong: a line that cannot be read, or an input that cannot happen at its place.
pub(crate) fn run_into(text: &str, happened: &mut Vec<Input>) -> Result<Run, String> {
    let mut lines = text.lines().filter(|l| !l.trim().is_empty());
    let first = lines.next().ok_or("the file is empty")?;
    let header = Header::read(first)?;
    let mut conversation = Conversation::new(&header.profile)?;
    let inputs: Vec<&str> = lines.filter(|l| !l.starts_with("{\"out\":")).collect();
    // A file that begins in the middle begins in the session `s`.
    let begun = inputs.iter().any(|line| line.contains("\"method\":\"initialize\""));
    let mut now = format!("{first}\n");
    let begin: &[&str] = if begun { &[] } else { &BEGIN };
    for (at, line) in begin.iter().chain(&inputs).enumerate() {
        let is_shown = at >= begin.len();
        if is_shown {
            now.push_str(line);
            now.push('\n');
        }
        // A remark for the reader.
        if line.starts_with("{\"note\":") {
            continue;
        }
        let resolved = conversation.resolve(line).map_err(|e| format!("{e}: {line}\n{now}"))?;
        let input = read_step(&resolved)?;
        let done = conversation.feed(&input).map_err(|e| format!("{e}: {line}\n{now}"))?;
        for done in done.iter().filter(|_| is_shown) {
            // Writing into a string cannot fail.
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
