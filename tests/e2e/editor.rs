//! A small editor: an ACP client that does one thing after the other.
//!
//! Owns the pipes to the program under test. Every line that comes passes the judges; what they find wrong fails the
//! test when the editor leaves. An editor that is dropped kills its diglot.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::process::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::family::{Family, ended, poll_until};
use super::support::judge::Judge;

/// Far more than anything takes: a test that waits longer hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long an orderly end may take.
const END: Duration = Duration::from_secs(15);

pub(crate) const DIGLOT: &str = env!("CARGO_BIN_EXE_diglot");

/// How a diglot is started.
pub(crate) struct Setup {
    dir: TempDir,
    flags: Vec<OsString>,
    agent: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    /// Diglot itself is started in the test's folder too.
    inside: bool,
}

impl Setup {
    /// With this command as its agent.
    pub(crate) fn command(words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let agent = words.into_iter().map(Into::into).collect();
        Self { dir: tempfile::tempdir().unwrap(), flags: Vec::new(), agent, env: Vec::new(), inside: false }
    }

    /// With the scripted agent and a script of `tests/fakes`.
    pub(crate) fn fake(name: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes").join(format!("{name}.ndjson"));
        Self::command([DIGLOT.into(), "demo-agent".into(), "--script".into(), script.into_os_string()])
    }

    /// With the scripted agent and these steps.
    pub(crate) fn script(steps: &[Value]) -> Self {
        let mut setup = Self::command(["", "", "", ""]);
        let script = setup.dir.path().join("script.ndjson");
        fs::write(&script, steps.iter().map(|step| format!("{step}\n")).collect::<String>()).unwrap();
        setup.agent = vec![DIGLOT.into(), "demo-agent".into(), "--script".into(), script.into()];
        setup
    }

    /// With more flags of `diglot acp`.
    pub(crate) fn flags(mut self, flags: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.flags.extend(flags.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// With the test's folder as the directory of diglot itself.
    pub(crate) fn in_its_folder(mut self) -> Self {
        self.inside = true;
        self
    }

    /// The folder that the session will have.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Starts diglot and says `initialize`.
    pub(crate) fn start(self) -> Editor {
        let family = Family::new();
        let (mark, value) = family.variable();
        let stderr = File::create(self.dir.path().join("diglot.stderr")).unwrap();
        let mut diglot = Command::new(DIGLOT);
        if self.inside {
            diglot.current_dir(self.dir.path());
        }
        let mut diglot = diglot
            .arg("acp")
            .args(&self.flags)
            .arg("--")
            .args(&self.agent)
            .env(mark, value)
            .env("HOME", self.dir.path())
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("DIGLOT_TRACE")
            .env("DIGLOT_DEMO_PACE", "0")
            .envs(self.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut editor = Editor {
            stdin: diglot.stdin.take(),
            stdout: diglot.stdout.take(),
            diglot,
            family,
            dir: self.dir,
            buffer: Vec::new(),
            taken: 0,
            last_id: 0,
            methods: HashMap::new(),
            calls: BTreeMap::new(),
            judge: Judge::default(),
            opened: 0,
        };
        let capabilities = json!({"fs": {"readTextFile": false, "writeTextFile": false}});
        let id = editor.ask("initialize", json!({"protocolVersion": 1, "clientCapabilities": capabilities}));
        assert_eq!(editor.answer_to(id).outcome.unwrap()["protocolVersion"], 1);
        editor
    }
}

pub(crate) struct Editor {
    pub(crate) family: Family,
    pub(crate) dir: TempDir,
    diglot: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    buffer: Vec<u8>,
    /// How much of the buffer was given out.
    taken: usize,
    last_id: u64,
    methods: HashMap<u64, (String, Value)>,
    /// (session, call) → whether it is open.
    calls: BTreeMap<(String, String), bool>,
    judge: Judge,
    opened: u32,
}

/// What came until a request was answered.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) lines: Vec<Value>,
    pub(crate) outcome: Result<Value, Value>,
}

impl Turn {
    /// The updates of this kind.
    pub(crate) fn updates(&self, kind: &str) -> impl Iterator<Item = &Value> {
        let updates = self.lines.iter().filter(|line| line["method"] == "session/update");
        updates.map(|line| &line["params"]["update"]).filter(move |update| update["sessionUpdate"] == kind)
    }

    /// The answer's text.
    pub(crate) fn text(&self) -> String {
        self.updates("agent_message_chunk").map(|chunk| chunk["content"]["text"].as_str().unwrap()).collect()
    }

    pub(crate) fn thoughts(&self) -> String {
        self.updates("agent_thought_chunk").map(|chunk| chunk["content"]["text"].as_str().unwrap()).collect()
    }

    /// The last status of each call, in the order of the calls' ids.
    pub(crate) fn calls(&self) -> Vec<&str> {
        let mut last = BTreeMap::new();
        for update in self.updates("tool_call").chain(self.updates("tool_call_update")) {
            if let Some(status) = update["status"].as_str() {
                last.insert(update["toolCallId"].as_str().unwrap(), status);
            }
        }
        last.into_values().collect()
    }

    /// The stop reason of a prompt that did not fail.
    pub(crate) fn stop(&self) -> &str {
        let result = self.outcome.as_ref().unwrap_or_else(|error| panic!("the prompt failed: {error}"));
        result["stopReason"].as_str().unwrap()
    }

    /// The error of a request that failed.
    pub(crate) fn error(&self) -> &Value {
        self.outcome.as_ref().expect_err("it did not fail")
    }
}

pub(crate) fn is_question(line: &Value) -> bool {
    line["method"] == "session/request_permission"
}

/// Whether this is an update of this kind.
pub(crate) fn is_update(line: &Value, kind: &str) -> bool {
    line["params"]["update"]["sessionUpdate"] == kind
}

impl Editor {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.diglot)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What diglot wrote to stderr.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.path("diglot.stderr")).unwrap_or_default()
    }

    pub(crate) fn say(&mut self, line: &Value) {
        let mut text = line.to_string();
        self.judge.near_in(text.as_bytes());
        text.push('\n');
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.methods.insert(id, (method.to_owned(), params.clone()));
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub(crate) fn tell(&mut self, method: &str, params: Value) {
        self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// The next line as it stands, without its end; `None` at the end of the stream.
    pub(crate) fn raw(&mut self) -> Option<Vec<u8>> {
        let until = Instant::now() + PATIENCE;
        let mut scanned = self.taken;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[scanned..]) {
                let line = self.buffer[self.taken..scanned + at].to_vec();
                self.taken = scanned + at + 1;
                return Some(line);
            }
            self.buffer.drain(..self.taken);
            self.taken = 0;
            scanned = self.buffer.len();
            let stdout = self.stdout.as_mut()?;
            if !poll_until(stdout, PollFlags::IN, until) {
                panic!("nothing comes any more; diglot's stderr: {}", self.stderr());
            }
            let mut piece = [0; 64 * 1024];
            let read = stdout.read(&mut piece).unwrap();
            self.buffer.extend_from_slice(&piece[..read]);
            if read == 0 {
                assert!(self.buffer.is_empty(), "the last line has no end");
                return None;
            }
        }
    }

    /// The next line, judged; `None` at the end of the stream.
    pub(crate) fn hear(&mut self) -> Option<Value> {
        let raw = self.raw()?;
        let line: Value = serde_json::from_slice(&raw).unwrap();
        if let Some(id) = line["result"]["sessionId"].as_str() {
            self.judge.session_made(self.opened, id);
            self.opened += 1;
        }
        self.judge.event();
        self.judge.near_out(&raw);
        let update = &line["params"]["update"];
        if let Some(call) = update["toolCallId"].as_str() {
            let key = (line["params"]["sessionId"].as_str().unwrap().to_owned(), call.to_owned());
            match update["status"].as_str() {
                Some("completed" | "failed") => self.calls.insert(key, false),
                _ => self.calls.insert(key, true),
            };
        }
        if line["method"].is_null()
            && let Some((method, params)) = line["id"].as_u64().and_then(|id| self.methods.get(&id))
            && method == "session/prompt"
        {
            let open = self.calls.iter().find(|((session, _), open)| **open && params["sessionId"] == **session);
            assert!(open.is_none(), "a prompt is answered while {open:?} is open");
        }
        Some(line)
    }

    /// Reads until such a line, which is the last of what it gives.
    pub(crate) fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut lines = Vec::new();
        loop {
            match self.hear() {
                Some(line) => lines.push(line),
                None => panic!("the stream ended after {lines:?}; diglot's stderr: {}", self.stderr()),
            }
            if wanted(&lines[lines.len() - 1]) {
                return lines;
            }
        }
    }

    /// Reads until the request is answered.
    pub(crate) fn answer_to(&mut self, id: u64) -> Turn {
        let mut lines = self.until(|line| line["method"].is_null() && line["id"] == id);
        let mut last = lines.pop().unwrap();
        let outcome = match last["error"].take() {
            Value::Null => Ok(last["result"].take()),
            error => Err(error),
        };
        Turn { lines, outcome }
    }

    pub(crate) fn ask_for_session(&mut self, cwd: &Path) -> u64 {
        self.ask("session/new", json!({"cwd": cwd, "mcpServers": []}))
    }

    /// A new session in the test's folder; gives its id.
    pub(crate) fn open(&mut self) -> String {
        let folder = self.dir.path().to_owned();
        let id = self.ask_for_session(&folder);
        let answer = self.answer_to(id).outcome.unwrap_or_else(|error| panic!("no session: {error}"));
        answer["sessionId"].as_str().unwrap().to_owned()
    }

    /// Sends a prompt and reads nothing.
    pub(crate) fn send_prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.ask("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    /// A prompt and all of its turn.
    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> Turn {
        let id = self.send_prompt(session, text);
        self.answer_to(id)
    }

    /// The next question of this session, and what came before it.
    pub(crate) fn question(&mut self, session: &str) -> Value {
        let of = |line: &Value| is_question(line) && line["params"]["sessionId"] == session;
        self.until(of).pop().unwrap()
    }

    /// Answers a question with its option of this kind.
    pub(crate) fn choose(&mut self, question: &Value, kind: &str) {
        let options = question["params"]["options"].as_array().unwrap();
        let option = options.iter().find(|option| option["kind"] == kind);
        let option = option.unwrap_or_else(|| panic!("no {kind} among {options:?}"))["optionId"].clone();
        let result = json!({"outcome": {"outcome": "selected", "optionId": option}});
        self.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}));
    }

    pub(crate) fn cancel(&mut self, session: &str) {
        self.tell("session/cancel", json!({"sessionId": session}));
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Kills diglot without warning.
    pub(crate) fn kill(&mut self) {
        self.diglot.kill().unwrap();
        self.diglot.wait().unwrap();
    }

    /// Waits for diglot's end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let stderr = self.stderr();
        assert!(ended(self.pid(), Instant::now() + END), "diglot does not end; its stderr: {stderr}");
        self.diglot.wait().unwrap()
    }

    /// Closes stdin and sees everything to its end: the stream, diglot, and all that it started. Gives what still came.
    pub(crate) fn leave(mut self) -> Vec<Value> {
        self.close_stdin();
        self.see_end()
    }

    /// As [`Self::leave`], when the agent has left a request without an answer.
    pub(crate) fn leave_unanswered(mut self) {
        self.close_stdin();
        while self.hear().is_some() {}
        assert!(self.wait().success());
        self.family.wait_gone(END, &[]);
        self.check();
    }

    /// As [`Self::leave`], when the end was brought about in another way.
    pub(crate) fn see_end(&mut self) -> Vec<Value> {
        let mut rest = Vec::new();
        while let Some(line) = self.hear() {
            rest.push(line);
        }
        let status = self.wait();
        assert!(status.success(), "diglot ended with {status}; its stderr: {}", self.stderr());
        self.family.wait_gone(END, &[]);
        self.check();
        let unsettled = self.judge.unsettled();
        assert!(unsettled.is_empty(), "{unsettled:#?}");
        rest
    }

    /// What the judges have found so far.
    pub(crate) fn check(&self) {
        let wrong = self.judge.violations();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        // Nothing to be done about one that has ended already.
        _ = self.diglot.kill();
        _ = self.diglot.wait();
    }
}
