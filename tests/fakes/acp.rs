//! What all fakes have: the wire, the steps of a prompt, and the things that an agent does to the world.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use serde_json::{Value, json};

/// Something that the client said.
#[derive(Debug, Clone)]
pub(crate) enum Incoming {
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    Answer {
        id: Value,
        outcome: Result<Value, Value>,
    },
    /// It has closed our stdin.
    Eof,
}

pub(crate) struct Wire {
    out: File,
    lines: Receiver<Incoming>,
    asked: u64,
    /// What the client said it serves.
    pub(crate) client: Value,
}

impl Wire {
    /// The wire is descriptor 3: stdout belongs to the test runner.
    pub(crate) fn open() -> Self {
        let out = OpenOptions::new().append(true).open("/dev/fd/3").unwrap();
        let (sender, lines) = sync_channel(64);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let Ok(line) = line else { break };
                // Bad JSON and batches are ignored without a word (quirk 64).
                let Ok(Value::Object(line)) = serde_json::from_str::<Value>(&line) else { continue };
                let get = |name: &str| line.get(name).cloned();
                let method = get("method").and_then(|m| m.as_str().map(ToOwned::to_owned));
                let params = get("params").unwrap_or_default();
                let incoming = match (method, get("id")) {
                    (Some(method), Some(id)) => Incoming::Request { id, method, params },
                    (Some(method), None) => Incoming::Notification { method, params },
                    (None, Some(id)) => {
                        let outcome = get("error").map_or_else(|| Ok(get("result").unwrap_or_default()), Err);
                        Incoming::Answer { id, outcome }
                    }
                    (None, None) => continue,
                };
                if sender.send(incoming).is_err() {
                    return;
                }
            }
        });
        Self { out, lines, asked: 0, client: Value::Null }
    }

    pub(crate) fn next(&mut self) -> Incoming {
        self.lines.recv().unwrap_or(Incoming::Eof)
    }

    fn send(&mut self, line: &Value) {
        // A client that is gone reads nothing.
        let _ = self.out.write_all(format!("{line}\n").as_bytes());
    }

    pub(crate) fn note(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    pub(crate) fn update(&mut self, session: &str, update: Value) {
        self.note("session/update", json!({"sessionId": session, "update": update}));
    }

    pub(crate) fn result(&mut self, id: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    pub(crate) fn error(&mut self, id: &Value, code: i64, message: &str, data: Value) {
        let mut error = json!({"code": code, "message": message});
        if !data.is_null() {
            error["data"] = data;
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }

    pub(crate) fn unknown(&mut self, id: &Value, method: &str) {
        self.error(id, -32601, "Method not found", json!({"method": method}));
    }

    /// Asks the client. Ids begin with 0, as those of every agent do.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = json!(self.asked);
        self.asked += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub(crate) fn serves(&self, pointer: &str) -> bool {
        self.client.pointer(pointer) == Some(&Value::Bool(true))
    }
}

/// The steps of a prompt: the lines of its last text.
pub(crate) fn steps(params: &Value) -> Vec<(String, String)> {
    let text = params["prompt"].as_array().into_iter().flatten().rev().find_map(|block| block["text"].as_str());
    let line = |line: &str| {
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        (word.to_owned(), rest.to_owned())
    };
    text.unwrap_or_default().lines().filter(|l| !l.trim().is_empty()).map(line).collect()
}

/// Its own shell: what the command put out on both, and its exit code.
pub(crate) fn shell(command: &str) -> (String, i32) {
    let command = format!("{{ {command}\n}} 2>&1");
    let output = Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).output().unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code().unwrap_or(-1))
}

/// A process that nobody ends but whoever ends everything.
#[expect(clippy::zombie_processes, reason = "that nobody waits for it is the point")]
pub(crate) fn child() {
    Command::new("sleep").arg("300").stdin(Stdio::null()).spawn().unwrap();
}

/// Where a fake keeps its sessions between its processes.
fn kept(session: &str) -> PathBuf {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap()).join(".fake-sessions");
    std::fs::create_dir_all(&home).unwrap();
    home.join(session)
}

/// Keeps what was said in a session.
pub(crate) fn keep(session: &str, said: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(kept(session)).unwrap();
    writeln!(file, "{said}").unwrap();
}

/// What was said in a session; `None`: there is no such one.
pub(crate) fn recall(session: &str) -> Option<Vec<String>> {
    Some(std::fs::read_to_string(kept(session)).ok()?.lines().map(ToOwned::to_owned).collect())
}

/// A new session's id, of this process and no other.
pub(crate) fn new_session(count: usize) -> String {
    format!("01a22900-0000-7000-8000-{:08x}{count:04x}", std::process::id())
}

/// The option that was chosen; `None`: cancelled, an error, nonsense.
pub(crate) fn chosen(outcome: &Result<Value, Value>) -> Option<String> {
    let outcome = outcome.as_ref().ok()?.get("outcome")?;
    (outcome["outcome"] == "selected").then(|| outcome["optionId"].as_str().map(ToOwned::to_owned))?
}
