//! The built program between two processes over real pipes, held against the budgets of the design, section 10.
//!
//! Prints one row for each budget: what was measured, the budget, whether it is met. This program is the editor, and, started
//! again, the agent. `cargo bench --bench process -- quick` does less of everything; `sessions=N` sets how many sessions are
//! opened at once (1,000 otherwise).
#![cfg_attr(not(target_os = "linux"), expect(unused, reason = "it reads /proc"))]
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

const DIGLOT: &str = env!("CARGO_BIN_EXE_diglot");

/// Makes this program the agent: one that speaks Claude's protocol, or ACP when its value is `acp`.
const AGENT: &str = "DIGLOT_BENCH_AGENT";

#[path = "support/reverse.rs"]
mod reverse;

fn main() {
    match std::env::var(AGENT).as_deref() {
        Ok("acp") => return reverse::agent(),
        Ok(_) => return agent(),
        Err(_) => {}
    }
    // A filter that is meant for the other benches.
    if !cfg!(target_os = "linux") || std::env::args().any(|arg| arg == "--test" || arg == "--list") {
        return;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let quick = words.iter().any(|word| word == "quick");
    let sessions = words.iter().find_map(|word| word.strip_prefix("sessions=")?.parse().ok());
    println!("{:<52} {:>22}  {:<16}", "what", "measured", "budget");
    starts(if quick { 5 } else { 50 });
    stream(if quick { 2_000 } else { 20_000 }, 0, "as fast as they come");
    stream(if quick { 500 } else { 5_000 }, 1_000, "1,000 a second");
    stream(if quick { 100 } else { 1_000 }, 5_000, "200 a second");
    memory(if quick { 2_000 } else { 20_000 });
    many(sessions.unwrap_or(if quick { 50 } else { 1_000 }));
    reverse::measure(if quick { 5 } else { 50 }, if quick { 2_000 } else { 20_000 });
    let size = std::fs::metadata(DIGLOT).map_or(0, |meta| meta.len());
    row("binary", &megabytes(size), "6 MB", Some(size <= 6_000_000));
}

fn row(what: &str, measured: &str, budget: &str, met: Option<bool>) {
    let met = match met {
        Some(true) => "met",
        Some(false) => "NOT MET",
        None => "",
    };
    println!("{what:<52} {measured:>22}  {budget:<16} {met}");
}

fn megabytes(bytes: u64) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}

/// Start to `initialize` answered, and to the session being ready beyond what the agent itself takes.
fn starts(rounds: usize) {
    let mut initialize = Vec::new();
    let mut ready = Vec::new();
    let mut alone = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let mut editor = Editor::start();
        editor.initialize();
        initialize.push(start.elapsed());
        editor.open();
        ready.push(start.elapsed());
        drop(editor);
        let start = Instant::now();
        let mut agent = Direct::start();
        agent.initialize();
        alone.push(start.elapsed());
    }
    let [best, middle] = [0, 50].map(|percent| ms(percentile(&mut initialize, percent)));
    let measured = format!("{middle:.1} ms (best {best:.1})");
    row("start to `initialize` answered, median", &measured, "5 ms", Some(middle <= 5.0));
    let [best, middle] = [0, 50].map(|p| ms(percentile(&mut ready, p)) - ms(percentile(&mut alone, p)));
    let measured = format!("{middle:.1} ms (best {best:.1})");
    row("start to session ready, beyond the agent's own start", &measured, "10 ms", Some(middle <= 10.0));
}

/// CPU and latency of a stream: `pace` microseconds lie between two tokens.
fn stream(tokens: usize, pace: u64, how: &str) {
    let mut editor = Editor::start();
    editor.initialize();
    let session = editor.open();
    editor.prompt(&session, "1 0", |_| {});
    let before = cpu(editor.pid());
    let start = Instant::now();
    let mut delays = Vec::with_capacity(tokens);
    let mut pieces = 0;
    editor.prompt(&session, &format!("{tokens} {pace}"), |text| {
        let now = now();
        pieces += 1;
        delays.extend(text.split_ascii_whitespace().map(|sent| now.saturating_sub(sent.parse().unwrap_or(now))));
    });
    let wall = start.elapsed();
    assert_eq!(delays.len(), tokens, "not one token is lost");
    let each = (cpu(editor.pid()) - before).as_nanos() as f64 / 1e3 / tokens as f64;
    let what = format!("CPU for each of {tokens} tokens, {how}");
    if pace == 0 {
        row(&what, &format!("{each:.2} µs"), "3 µs", Some(each <= 3.0));
        let rate = tokens as f64 / wall.as_secs_f64();
        row("  tokens a second, and pieces they became", &format!("{rate:.0}, {pieces}"), "", None);
        return;
    }
    // Waking up costs far more than translating; what it costs a program that only copies stands beside it.
    row(&what, &format!("{each:.1} µs"), "", None);
    row("  the same for `cat` in diglot's place", &format!("{:.1} µs", relay(tokens, pace)), "", None);
    let mut direct = Direct::start();
    direct.initialize();
    let mut alone = direct.stream(tokens, pace);
    for (name, percent, budget) in [("p50", 50, 0.05), ("p95", 95, 0.2)] {
        let added = millis(percentile(&mut delays, percent)) - millis(percentile(&mut alone, percent));
        let what = format!("  latency added to a token, {name}");
        row(&what, &format!("{added:.3} ms"), &format!("{budget} ms"), Some(added <= budget));
    }
}

/// CPU in microseconds that `cat` needs for each line of a token's length at this pace.
fn relay(tokens: usize, pace: u64) -> f64 {
    let mut cat = Talk::start(&mut Command::new("cat"));
    let line = json!({"type": "x", "text": "x".repeat(300)});
    cat.say(&line);
    cat.hear();
    let before = cpu(cat.child.id());
    let start = Instant::now();
    for token in 1..=tokens as u64 {
        cat.say(&line);
        cat.hear();
        std::thread::sleep(Duration::from_micros(pace * token).saturating_sub(start.elapsed()));
    }
    (cpu(cat.child.id()) - before).as_nanos() as f64 / 1e3 / tokens as f64
}

/// Memory of a connection with one session.
fn memory(tokens: usize) {
    let mut editor = Editor::start();
    editor.initialize();
    let session = editor.open();
    let idle = resident(editor.pid());
    editor.prompt(&session, &format!("{tokens} 0"), |_| {});
    let after = resident(editor.pid());
    row("memory with an idle session (RSS)", &megabytes(idle), "6 MB", Some(idle <= 6_000_000));
    let what = format!("memory after {tokens} tokens (RSS)");
    row(&what, &megabytes(after), "6 MB", Some(after <= 6_000_000));
}

/// Memory of each of many sessions in one process.
fn many(sessions: usize) {
    let mut editor = Editor::start();
    editor.initialize();
    // The first one brings what all share.
    let first = editor.open();
    editor.prompt(&first, "100 0", |_| {});
    let before = resident(editor.pid());
    let opened: Vec<String> = (0..sessions).map(|_| editor.open()).collect();
    let idle = resident(editor.pid());
    for session in &opened {
        editor.prompt(session, "100 0", |_| {});
    }
    let after = resident(editor.pid());
    for (when, bytes) in [("opened", idle), ("after a turn", after)] {
        let each = bytes.saturating_sub(before) as f64 / sessions as f64;
        let what = format!("memory of each of {sessions} sessions, {when}");
        row(&what, &format!("{:.1} kB", each / 1e3), "50 kB", Some(each <= 50_000.0));
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

fn percentile<T: Copy + Ord>(values: &mut [T], percent: usize) -> T {
    values.sort_unstable();
    values[(values.len() - 1) * percent / 100]
}

/// Nanoseconds of a clock that all processes share.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// CPU time of all threads of a process so far.
fn cpu(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let nanos = tasks.flatten().filter_map(|task| {
        let times = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        times.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux says so");
    let kilobytes = line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    kilobytes.expect("a number") * 1024
}

/// A program and its pipes.
struct Talk {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: String,
}

impl Talk {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it can be started");
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        Self { child, stdin, stdout: BufReader::with_capacity(64 * 1024, stdout), line: String::new() }
    }

    fn say(&mut self, line: &Value) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("it reads");
    }

    fn hear(&mut self) -> Value {
        self.line.clear();
        let read = self.stdout.read_line(&mut self.line).expect("it can be read");
        assert!(read > 0, "the stream ended");
        serde_json::from_str(&self.line).expect("a line is JSON")
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.stdin = None;
        // Whatever its end, the figures stand.
        _ = self.child.wait();
    }
}

/// This program as an editor of diglot.
struct Editor {
    talk: Talk,
    folder: PathBuf,
    last: u64,
}

impl Editor {
    fn start() -> Self {
        let this = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(DIGLOT);
        // The bench's own words must not be taken for the agent's.
        command.arg("acp").arg("--").arg(this).env(AGENT, "1").env("HOME", "").env_remove("XDG_CONFIG_HOME");
        Self::of(&mut command)
    }

    fn of(command: &mut Command) -> Self {
        Self { talk: Talk::start(command), folder: std::env::temp_dir(), last: 0 }
    }

    fn pid(&self) -> u32 {
        self.talk.child.id()
    }

    fn ask(&mut self, method: &str, params: &Value, mut each: impl FnMut(&Value)) -> Value {
        self.last += 1;
        self.talk.say(&json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}));
        loop {
            let mut line = self.talk.hear();
            if line["id"] == self.last {
                assert!(line["error"].is_null(), "{line}");
                return line["result"].take();
            }
            each(&line);
        }
    }

    fn initialize(&mut self) {
        self.ask("initialize", &json!({"protocolVersion": 1}), |_| {});
    }

    fn open(&mut self) -> String {
        let params = json!({"cwd": self.folder, "mcpServers": []});
        let answer = self.ask("session/new", &params, |_| {});
        answer["sessionId"].as_str().expect("a session has an id").to_owned()
    }

    fn prompt(&mut self, session: &str, text: &str, mut each: impl FnMut(&str)) {
        let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]});
        self.ask("session/prompt", &params, |line| {
            let update = &line["params"]["update"];
            if update["sessionUpdate"] == "agent_message_chunk" {
                each(update["content"]["text"].as_str().unwrap_or_default());
            }
        });
    }
}

/// This program as the agent's own host: what the agent takes without diglot.
struct Direct(Talk);

impl Direct {
    fn start() -> Self {
        let this: &Path = &std::env::current_exe().expect("this program has a path");
        Self(Talk::start(Command::new(this).env(AGENT, "1")))
    }

    fn initialize(&mut self) {
        let request = json!({"subtype": "initialize"});
        self.0.say(&json!({"type": "control_request", "request_id": "1", "request": request}));
        self.0.hear();
    }

    fn stream(&mut self, tokens: usize, pace: u64) -> Vec<u64> {
        let content = json!([{"type": "text", "text": format!("{tokens} {pace}")}]);
        self.0.say(&json!({"type": "user", "uuid": "u", "message": {"role": "user", "content": content}}));
        let mut delays = Vec::with_capacity(tokens);
        loop {
            let line = self.0.hear();
            if line["type"] == "result" {
                return delays;
            }
            if let Some(sent) = line["event"]["delta"]["text"].as_str().and_then(|text| text.trim().parse().ok()) {
                delays.push(now().saturating_sub(sent));
            }
        }
    }
}

/// The agent: for a prompt "TOKENS PACE" it says so many tokens, each the time at which it was said.
fn agent() {
    let mut stdout = std::io::stdout();
    let mut say = |line: &str| {
        // Each line is one write, as with claude.
        let said = stdout.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdout.flush());
        said.is_ok()
    };
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let Ok(line) = serde_json::from_str::<Value>(&line) else { return };
        match line["type"].as_str() {
            Some("control_request") => {
                let body = json!({"commands": [], "current_permission_mode": "default"});
                let response = json!({"subtype": "success", "request_id": line["request_id"], "response": body});
                say(&json!({"type": "control_response", "response": response}).to_string());
            }
            Some("user") => {
                let prompt = line["message"]["content"][0]["text"].as_str().unwrap_or_default();
                let mut numbers = prompt.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
                let (tokens, pace) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(0));
                say(r#"{"type":"system","subtype":"init","session_id":"s","permissionMode":"default"}"#);
                say(&event(r#"{"type":"message_start","message":{"id":"msg_1","model":"m","usage":{}}}"#));
                let block = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
                say(&event(block));
                let start = Instant::now();
                for token in 0..tokens {
                    let at = Duration::from_micros(pace * token);
                    std::thread::sleep(at.saturating_sub(start.elapsed()));
                    let delta = format!(r#"{{"type":"text_delta","text":"{} "}}"#, now());
                    say(&event(&format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#)));
                }
                let result = json!({
                    "type": "result", "subtype": "success", "is_error": false, "result": "", "stop_reason": "end_turn",
                    "terminal_reason": "completed", "user_message_uuids": [line["uuid"]],
                });
                say(&result.to_string());
            }
            _ => {}
        }
    }
}

fn event(event: &str) -> String {
    let ids = r#""session_id":"ad1edb16-8b7e-43eb-ad20-1b580c259f48","uuid":"9167e7ce-f00d-49c5-b971-9f061cf725fa""#;
    format!(r#"{{"type":"stream_event","event":{event},"parent_tool_use_id":null,{ids}}}"#)
}
