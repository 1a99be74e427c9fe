//! `diglot claude` as a process between a scripted host and an agent that the test chooses.
//!
//! Owns a user with a home of his own, the pipes, and the looking for what is left. Keeps: nothing waits for a time; a limit
//! only ends a test that would hang for ever.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Only ends a test that would hang for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// A user with a home and a project.
pub(crate) struct User {
    home: tempfile::TempDir,
}

impl User {
    /// One whose configuration file says this; `{home}` is his home.
    pub(crate) fn new(config: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".config/diglot");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.toml"), config.replace("{home}", home.path().to_str().unwrap())).unwrap();
        std::fs::create_dir(home.path().join("work")).unwrap();
        Self { home }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// A path in the project.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.home.path().join("work").join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diglot"));
        command
            .arg("claude")
            .args(args)
            .current_dir(self.home.path().join("work"))
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", std::env::var_os("PATH").unwrap());
        command
    }

    /// Waits until no process works in the project any more.
    pub(crate) fn gone(&self) {
        let work = self.at("").canonicalize().unwrap();
        let limit = Instant::now() + PATIENCE;
        loop {
            let entries = std::fs::read_dir("/proc").map(Iterator::collect::<Vec<_>>).unwrap_or_default();
            let works = |pid: &Path| std::fs::read_link(pid.join("cwd")).is_ok_and(|cwd| cwd.starts_with(&work));
            let lives = entries.into_iter().flatten().filter(|entry| works(&entry.path())).count();
            if lives == 0 {
                return;
            }
            assert!(Instant::now() < limit, "{lives} processes are left");
            std::thread::yield_now();
        }
    }
}

/// A host on pipes.
pub(crate) struct Host {
    pub(crate) child: Child,
    lines: Receiver<Value>,
}

impl Host {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let Ok(line) = line else { return };
                let line = serde_json::from_str(&line).unwrap_or_else(|_| json!({"type": "NOT JSON", "line": line}));
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    pub(crate) fn say(&mut self, line: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn prompt(&mut self, text: &str) {
        let message = json!({"role": "user", "content": text});
        self.say(&json!({"type": "user", "message": message, "parent_tool_use_id": null, "session_id": ""}));
    }

    pub(crate) fn ask(&mut self, id: &str, request: Value) {
        self.say(&json!({"type": "control_request", "request_id": id, "request": request}));
    }

    pub(crate) fn answer(&mut self, asked: &Value, response: Value) {
        let id = &asked["request_id"];
        let response = json!({"subtype": "success", "request_id": id, "response": response});
        self.say(&json!({"type": "control_response", "response": response}));
    }

    /// Reads until a line is wanted: what came before it, and it.
    pub(crate) fn until(&self, wanted: impl Fn(&Value) -> bool) -> (Vec<Value>, Value) {
        let mut before = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if wanted(&line) => return (before, line),
                Ok(line) => before.push(line),
                Err(error) => panic!("{error} after {before:#?}"),
            }
        }
    }

    pub(crate) fn result(&self) -> (Vec<Value>, Value) {
        self.until(|line| line["type"] == "result")
    }

    /// A turn in which every question gets this answer: what was asked, all lines, the result.
    pub(crate) fn turn(&mut self, prompt: &str, answer: impl Fn(&Value) -> Value) -> Turn {
        self.prompt(prompt);
        let (mut asked, mut lines) = (Vec::new(), Vec::new());
        loop {
            let (before, line) = self.until(|line| line["type"] == "result" || line["type"] == "control_request");
            lines.extend(before);
            if line["type"] == "result" {
                return Turn { asked, lines, result: line };
            }
            let reply = answer(&line["request"]);
            self.answer(&line, reply);
            asked.push(line["request"].clone());
            lines.push(line);
        }
    }

    /// Closes stdin and waits; what was still said, stderr, the exit code.
    pub(crate) fn end(mut self) -> (Vec<Value>, String, ExitStatus) {
        drop(self.child.stdin.take());
        let status = wait(&mut self.child);
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (self.lines.iter().collect(), stderr, status)
    }
}

/// What came of a turn.
pub(crate) struct Turn {
    pub(crate) asked: Vec<Value>,
    pub(crate) lines: Vec<Value>,
    pub(crate) result: Value,
}

impl Turn {
    /// All blocks of a kind in messages of this type.
    pub(crate) fn blocks<'a>(&'a self, of: &'a str, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        let messages = self.lines.iter().filter(move |line| line["type"] == of);
        let blocks = messages.flat_map(|line| line["message"]["content"].as_array().into_iter().flatten());
        blocks.filter(move |block| block["type"] == kind)
    }

    /// The calls: name, input, result.
    pub(crate) fn calls(&self) -> Vec<(String, Value, String)> {
        let result = |id: &Value| {
            let results: Vec<&Value> = self.blocks("user", "tool_result").filter(|r| r["tool_use_id"] == *id).collect();
            assert_eq!(results.len(), 1, "{id} has not one result: {:#?}", self.lines);
            results[0]["content"].as_str().unwrap_or_default().to_owned()
        };
        let calls = self.blocks("assistant", "tool_use");
        calls.map(|c| (c["name"].as_str().unwrap().to_owned(), c["input"].clone(), result(&c["id"]))).collect()
    }

    pub(crate) fn text(&self) -> &str {
        self.result["result"].as_str().unwrap_or_else(|| panic!("no text: {}", self.result))
    }

    pub(crate) fn is_error(&self) -> bool {
        self.result["is_error"] == true
    }
}

pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let limit = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < limit, "it did not end");
        std::thread::yield_now();
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap().success());
}
