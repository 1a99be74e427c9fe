//! Golden files: conversations with the translation that is expected (`golden/README.md` describes the format).
//!
//! Owns reading, running and writing them. Keeps: a run depends on the file alone; what comes out is compared as text,
//! line by line and in order.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use diglot::translate::{FarExit, FileContent, StartFailure, Stop, Timer};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::conversation::{Conversation, Done, Input, Output, Setting};
use super::files::Run;
use super::judge::Rpc;

/// The first line of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    /// What the conversation shows, in one sentence.
    pub(crate) about: String,
    /// Where its lines come from: program, version and recording; `report N`; or `written`.
    pub(crate) source: String,
    /// What the editor declares; without an `initialize` of its own the file begins after one with these.
    #[serde(default)]
    client: Option<Value>,
    /// The agent's profile.
    #[serde(default)]
    profile: Option<String>,
    /// Files that can be read: text, or `{"unreadable": why}`.
    #[serde(default)]
    files: HashMap<PathBuf, Value>,
    /// `late`: files are read by `{"in":"read"}`, not at once.
    #[serde(default)]
    reads: Option<String>,
    /// The conversation ends while something is still open.
    #[serde(default)]
    open: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Step<'a> {
    #[serde(rename = "in")]
    input: String,
    session: u32,
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

fn timer_name(timer: Timer) -> &'static str {
    match timer {
        Timer::Start => "start",
        Timer::Cancel => "cancel",
        Timer::Settle => "settle",
        Timer::Control => "control",
        Timer::Commands | Timer::Barrier | Timer::Hook(_) => "of a host's session",
    }
}

fn timer_of(name: &str) -> Result<Timer, String> {
    [Timer::Start, Timer::Cancel, Timer::Settle, Timer::Control]
        .into_iter()
        .find(|t| timer_name(*t) == name)
        .ok_or_else(|| format!("there is no timer {name:?}"))
}

impl Header {
    pub(crate) fn read(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|e| format!("the first line is no header: {e}"))
    }

    fn setting(&self) -> Result<Setting, String> {
        let mut setting = Setting { reads_at_once: self.reads.as_deref() != Some("late"), ..Setting::default() };
        if let Some(profile) = &self.profile {
            setting.profile.clone_from(profile);
        }
        for (path, value) in &self.files {
            let content = match value {
                Value::String(text) => FileContent::Text(text.clone()),
                other => match other.get("unreadable").and_then(Value::as_str) {
                    // The reasons are fixed words in the program; a test makes its own.
                    Some(why) => FileContent::Unreadable(String::leak(why.to_owned())),
                    None => return Err(format!("files: {} is neither a text nor unreadable", path.display())),
                },
            };
            setting.files.insert(path.clone(), content);
        }
        Ok(setting)
    }
}

/// Says where the line is, as `Step::read` cannot.
fn read_step(line: &str) -> Result<Input, String> {
    let step: Step<'_> = serde_json::from_str(line).map_err(|e| format!("{e}: {line}"))?;
    let session = step.session;
    let bytes = || match (&step.line, &step.raw) {
        (Some(raw), None) => Ok(raw.get().as_bytes().to_vec()),
        (None, Some(raw)) => Ok(raw.as_bytes().to_vec()),
        _ => Err(format!("needs `line` or `raw`: {line}")),
    };
    Ok(match &*step.input {
        "near" => Input::Near(bytes()?),
        "near_closed" => Input::NearClosed,
        "far" => Input::Far(session, bytes()?),
        "far_closed" => {
            Input::FarClosed(session, FarExit { code: step.code, signal: step.signal, stderr: step.stderr })
        }
        "far_failed" => Input::FarFailed(
            session,
            match &*step.kind {
                "bad_directory" => StartFailure::BadDirectory(step.message),
                "no_program" => StartFailure::NoProgram(step.message),
                "other" => StartFailure::Other(step.message),
                other => return Err(format!("there is no kind {other:?} of failure")),
            },
        ),
        "timer" => Input::Timer(session, timer_of(&step.timer)?),
        "read" => Input::Read(session),
        other => return Err(format!("there is no input {other:?}: {line}")),
    })
}

/// An input as a golden line.
pub(crate) fn write_input(input: &Input) -> String {
    let bytes = |kind: &str, session: u32, bytes: &[u8]| {
        let mut head = json!({ "in": kind });
        if session != 0 {
            head["session"] = json!(session);
        }
        let head = head.to_string();
        let head = head.trim_end_matches('}');
        match serde_json::from_slice::<&RawValue>(bytes) {
            Ok(raw) if raw.get().starts_with('{') && !raw.get().contains('\n') => {
                format!("{head},\"line\":{raw}}}")
            }
            _ => format!("{head},\"raw\":{}}}", json!(String::from_utf8_lossy(bytes))),
        }
    };
    let with = |mut value: Value, session: u32| {
        if session != 0 {
            value["session"] = json!(session);
        }
        value.to_string()
    };
    match input {
        Input::Near(line) => bytes("near", 0, line),
        Input::NearClosed => json!({ "in": "near_closed" }).to_string(),
        Input::Far(session, line) => bytes("far", *session, line),
        Input::FarClosed(session, exit) => with(
            json!({ "in": "far_closed", "code": exit.code, "signal": exit.signal, "stderr": exit.stderr }),
            *session,
        ),
        Input::FarFailed(session, why) => {
            let kind = match why {
                StartFailure::BadDirectory(_) => "bad_directory",
                StartFailure::NoProgram(_) => "no_program",
                StartFailure::Other(_) => "other",
            };
            with(json!({ "in": "far_failed", "kind": kind, "message": why.message() }), *session)
        }
        Input::Timer(session, timer) => with(json!({ "in": "timer", "timer": timer_name(*timer) }), *session),
        Input::Read(session) => with(json!({ "in": "read" }), *session),
    }
}

/// An output as a golden line.
pub(crate) fn write_output(output: &Output) -> String {
    let session = output.session.filter(|s| *s != 0).map(|s| format!(",\"session\":{s}")).unwrap_or_default();
    let line = |kind: &str, bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).replace(
            &format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION")),
            // A release changes no conversation.
            "\"version\":\"VERSION\"",
        );
        format!("{{\"out\":\"{kind}\"{session},\"line\":{text}}}")
    };
    let ms = |after: &Duration| after.as_millis();
    match &output.what {
        Done::Near(bytes) => line("near", bytes),
        Done::Far(bytes) => line("far", bytes),
        Done::Start(spec) => {
            let roots = match &*spec.roots {
                [] => String::new(),
                roots => format!(",\"roots\":{}", json!(roots)),
            };
            let file = match &spec.file {
                None => String::new(),
                Some((flag, text)) => format!(",\"file\":{}", json!({ "flag": flag, "text": text })),
            };
            format!(
                "{{\"out\":\"start\"{session},\"args\":{},\"cwd\":{}{roots}{file}}}",
                json!(spec.args),
                json!(spec.cwd.to_string_lossy())
            )
        }
        Done::Stop(how) => {
            let how = match how {
                Stop::Gently => "gently",
                Stop::Interrupt => "interrupt",
                Stop::Kill => "kill",
            };
            format!("{{\"out\":\"stop\"{session},\"how\":\"{how}\"}}")
        }
        Done::Set(timer, after) => {
            format!("{{\"out\":\"timer\"{session},\"timer\":\"{}\",\"ms\":{}}}", timer_name(*timer), ms(after))
        }
        Done::Clear(timer) => format!("{{\"out\":\"clear\"{session},\"timer\":\"{}\"}}", timer_name(*timer)),
        Done::End => format!("{{\"out\":\"end\"{session}}}"),
    }
}

/// The `initialize` with which a file begins that has none of its own.
pub(crate) fn initialize(client: Option<&Value>) -> Vec<u8> {
    let client = client.cloned().unwrap_or_else(|| json!({}));
    json!({
        "jsonrpc": "2.0", "id": "initialize", "method": "initialize",
        "params": { "protocolVersion": 1, "clientCapabilities": client },
    })
    .to_string()
    .into_bytes()
}

/// What comes in, and with what it is held; begins with an `initialize`.
///
/// # Errors
/// When a line cannot be read.
pub(crate) fn inputs(text: &str) -> Result<(Setting, Vec<Input>), String> {
    let mut lines = text.lines().filter(|l| !l.trim().is_empty());
    let header = Header::read(lines.next().ok_or("the file is empty")?)?;
    let mut inputs = vec![Input::Near(initialize(header.client.as_ref()))];
    for line in lines.filter(|l| l.starts_with("{\"in\":")) {
        inputs.push(read_step(line)?);
    }
    Ok((header.setting()?, inputs))
}

/// Runs a file.
///
/// # Errors
/// When the file itself is wrong: a line that cannot be read, or an input that cannot happen at its place.
pub(crate) fn run(text: &str) -> Result<Run, String> {
    let mut lines = text.lines().filter(|l| !l.trim().is_empty());
    let first = lines.next().ok_or("the file is empty")?;
    let header = Header::read(first)?;
    let inputs: Vec<&str> = lines.filter(|l| !l.starts_with("{\"out\":")).collect();
    let mut conversation = Conversation::new(header.setting()?);
    let own = inputs.first().is_some_and(|l| match read_step(l) {
        Ok(Input::Near(line)) => !matches!(Rpc::read(&line), Rpc::Request { method, .. } if method != "initialize"),
        _ => false,
    });
    if !own {
        conversation.feed(&Input::Near(initialize(header.client.as_ref()))).map_err(|e| e.0)?;
    }
    let mut now = format!("{first}\n");
    for line in inputs {
        now.push_str(line);
        now.push('\n');
        // A remark for the reader.
        if line.starts_with("{\"note\":") {
            continue;
        }
        let input = read_step(line)?;
        let outputs = conversation.feed(&input).map_err(|e| format!("{}: {line}", e.0))?;
        for output in &outputs {
            // Writing into a string cannot fail.
            let _ = writeln!(now, "{}", write_output(output));
        }
    }
    let mut problems = conversation.judge.violations();
    if !header.open {
        problems.extend(conversation.judge.unsettled());
        if !conversation.is_settled() {
            problems.push("a session is not settled at the end".to_owned());
        }
    }
    Ok(Run { text: now, problems })
}
