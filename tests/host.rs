//! `diglot claude` as a process, between a scripted host and the scripted agent behind `diglot acp`: claude's command line, its
//! exit codes, and what is left of it.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a failure here is the failure of the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Only ends a test that would hang for ever.
const PATIENCE: Duration = Duration::from_secs(60);

const DIGLOT: &str = env!("CARGO_BIN_EXE_diglot");

/// A user with a home of his own, whose agent plays a script.
struct User {
    home: tempfile::TempDir,
}

impl User {
    fn new(script: Option<&str>) -> Self {
        let home = tempfile::tempdir().unwrap();
        if let Some(script) = script {
            let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes").join(script);
            let config = home.path().join(".config/diglot");
            std::fs::create_dir_all(&config).unwrap();
            let text = format!("[agents.demo]\nargs = [\"--script\", {:?}]\n", fake.to_str().unwrap());
            std::fs::write(config.join("config.toml"), text).unwrap();
        }
        std::fs::create_dir(home.path().join("work")).unwrap();
        Self { home }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(DIGLOT);
        command.arg("claude").args(args);
        self.surround(&mut command);
        command
    }

    fn surround(&self, command: &mut Command) {
        command
            .current_dir(self.home.path().join("work"))
            .env_clear()
            .env("HOME", self.home.path())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("XDG_RUNTIME_DIR", self.home.path())
            .env("DIGLOT_AGENT", "demo")
            .env("DIGLOT_DEMO_PACE", "0");
    }

    fn run(&self, args: &[&str], stdin: &str) -> Output {
        let mut child =
            self.command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}

/// A host on pipes.
struct Host {
    child: Child,
    lines: Receiver<Value>,
}

impl Host {
    fn start(user: &User, args: &[&str]) -> Self {
        let all: Vec<&str> = ["--output-format", "stream-json", "--verbose", "--input-format", "stream-json"]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        let mut child = user
            .command(&all)
            .env("CLAUDE_CODE_SDK_READS_SESSION_STATE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
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

    fn say(&mut self, line: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn prompt(&mut self, text: &str) {
        self.say(&json!({"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": null, "session_id": ""}));
    }

    fn ask(&mut self, id: &str, request: Value) {
        self.say(&json!({"type": "control_request", "request_id": id, "request": request}));
    }

    fn answer(&mut self, asked: &Value, response: Value) {
        let id = &asked["request_id"];
        self.say(&json!({"type": "control_response", "response": {"subtype": "success", "request_id": id, "response": response}}));
    }

    fn until(&self, wanted: impl Fn(&Value) -> bool) -> (Vec<Value>, Value) {
        let mut before = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if wanted(&line) => return (before, line),
                Ok(line) => before.push(line),
                Err(error) => panic!("{error} after {before:#?}"),
            }
        }
    }

    fn result(&self) -> (Vec<Value>, Value) {
        self.until(|line| line["type"] == "result")
    }

    /// Closes stdin and waits; what was still said, stderr, the exit code.
    fn end(mut self) -> (Vec<Value>, String, ExitStatus) {
        drop(self.child.stdin.take());
        let status = wait(&mut self.child);
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (self.lines.iter().collect(), stderr, status)
    }
}

fn wait(child: &mut Child) -> ExitStatus {
    let limit = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < limit, "it did not end");
        std::thread::yield_now();
    }
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap().success());
}

#[test]
fn the_version_is_told_without_a_home_an_agent_or_a_configuration() {
    let output = Command::new(DIGLOT).args(["claude", "-v"]).env_clear().output().unwrap();
    assert!(text(&output.stdout).ends_with(" (Claude Code)\n") && output.status.success());
    assert!(text(&output.stdout).starts_with("2.1."));
}

#[test]
fn a_link_named_claude_is_claude() {
    let user = User::new(None);
    let link = user.home.path().join("claude-demo");
    std::os::unix::fs::symlink(DIGLOT, &link).unwrap();
    let mut command = Command::new(&link);
    user.surround(&mut command);
    let output = command.env_remove("DIGLOT_AGENT").args(["-p", "hello"]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!output.stdout.is_empty());
}

#[test]
fn a_prompt_comes_from_the_command_line_from_stdin_or_from_both() {
    let user = User::new(Some("text.ndjson"));
    for (args, stdin) in
        [(vec!["-p", "one"], ""), (vec!["-p"], "two"), (vec!["-p", "-"], "three"), (vec!["-p", "four"], "five")]
    {
        let output = user.run(&args, stdin);
        assert!(output.status.success() && !output.stdout.is_empty(), "{args:?} {stdin}: {}", text(&output.stderr));
    }
    let output = user.run(&["-p"], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("Input must be provided either through stdin or as a prompt argument"));
}

#[test]
fn the_output_has_the_form_that_was_asked_for() {
    let user = User::new(Some("text.ndjson"));
    let one = user.run(&["-p", "hi", "--output-format", "json"], "");
    let one: Value = serde_json::from_slice(&one.stdout).unwrap();
    assert_eq!((&one["type"], &one["subtype"], &one["is_error"]), (&json!("result"), &json!("success"), &json!(false)));
    let all = user.run(&["-p", "hi", "--output-format=json", "--verbose"], "");
    let all: Vec<Value> = serde_json::from_slice(&all.stdout).unwrap();
    assert_eq!((&all[0]["subtype"], &all[all.len() - 1]["type"]), (&json!("init"), &json!("result")));
    let lines = user.run(&["-p", "hi", "--output-format", "stream-json"], "");
    let lines = text(&lines.stdout);
    let kinds: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone()).collect();
    assert_eq!(kinds.first(), Some(&json!("system")));
    assert_eq!(kinds.last(), Some(&json!("result")));
}

#[test]
fn what_nobody_can_be_asked_about_does_not_happen() {
    let user = User::new(None);
    let output = user.run(&["-p", "hi", "--output-format", "json"], "");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["permission_denials"][0]["tool_name"], "Write");
    assert!(!user.home.path().join("work/greet.sh").exists());
    // The same with a mode that the user chose.
    let output = user.run(&["-p", "hi", "--permission-mode", "acceptEdits", "--output-format", "json"], "");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["permission_denials"][0]["tool_name"], "Bash");
    assert!(user.home.path().join("work/greet.sh").exists());
}

/// An MCP server in a shell: its tool allows files and refuses everything else.
const POLICY: &str = r#"
n=0
while read -r line; do
  case "$line" in
    *'"method":"initialize"'*) printf '%s\n' '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}' ;;
    *'"tools/call"'*)
      n=$((n + 1))
      case "$line" in
        *'"tool_name":"Write"'*) answer='{\"behavior\":\"allow\"}' ;;
        *) answer='{\"behavior\":\"deny\",\"message\":\"not by policy\"}' ;;
      esac
      printf '%s\n' "{\"jsonrpc\":\"2.0\",\"id\":$n,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"$answer\"}]}}" ;;
  esac
done
"#;

fn asked_of_a_tool(user: &User, server: &str) -> Vec<Value> {
    let config = json!({"mcpServers": {"policy": {"command": "sh", "args": ["-c", server]}}}).to_string();
    let args = ["-p", "hi", "--mcp-config", &config, "--permission-prompt-tool", "mcp__policy__approve"];
    let output = user.run(&[&args[..], &["--output-format", "json", "--verbose"]].concat(), "");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

#[test]
fn a_permission_tool_decides_in_the_hosts_place() {
    let user = User::new(None);
    let lines = asked_of_a_tool(&user, POLICY);
    assert!(user.home.path().join("work/greet.sh").exists(), "it allows the file");
    assert!(lines.iter().any(|line| line["message"]["content"][0]["content"] == "not by policy"), "{lines:#?}");
    assert_eq!(lines[lines.len() - 1]["permission_denials"][0]["tool_name"], "Bash");
    gone(&user);
}

#[test]
fn a_permission_tool_that_is_not_there_approves_nothing() {
    for server in ["exit 3", "exec >&-; sleep 300", "echo no JSON; exit 0"] {
        let user = User::new(None);
        let lines = asked_of_a_tool(&user, server);
        assert_eq!(lines[lines.len() - 1]["permission_denials"][0]["tool_name"], "Write", "{server}");
        assert!(!user.home.path().join("work/greet.sh").exists(), "{server}");
        gone(&user);
    }
}

#[test]
fn a_host_is_asked_and_its_answers_count() {
    let user = User::new(None);
    let mut host = Host::start(&user, &["--permission-prompt-tool", "stdio"]);
    host.ask("i", json!({"subtype": "initialize"}));
    let (_, answer) = host.until(|line| line["type"] == "control_response");
    assert!(answer["response"]["response"]["models"].is_array());
    host.prompt("go");
    let mut seen = Vec::new();
    let result = loop {
        let (before, line) = host.until(|line| line["type"] == "result" || line["type"] == "control_request");
        seen.extend(before);
        if line["type"] == "result" {
            break line;
        }
        let request = &line["request"];
        let shown = seen.iter().any(|l| l["message"]["content"][0]["id"] == request["tool_use_id"]);
        assert!(shown, "the call is shown before it is asked about");
        let reply = match request["tool_name"].as_str().unwrap() {
            "Write" => json!({"behavior": "allow", "updatedInput": request["input"]}),
            _ => json!({"behavior": "deny", "message": "not today"}),
        };
        host.answer(&line, reply);
    };
    assert!(user.home.path().join("work/greet.sh").exists());
    assert_eq!(result["permission_denials"][0]["tool_name"], "Bash");
    let denied = seen.iter().any(|l| l["message"]["content"][0]["content"] == "not today");
    assert!(denied, "the model is told the host's own words");
    let (rest, _, status) = host.end();
    assert_eq!(rest.last().unwrap()["state"], "idle");
    assert!(status.success());
}

#[test]
fn the_end_of_stdin_cancels_nothing() {
    let user = User::new(Some("text.ndjson"));
    let mut host = Host::start(&user, &[]);
    host.prompt("one");
    host.prompt("two");
    let (lines, _, status) = host.end();
    assert_eq!(lines.iter().filter(|line| line["type"] == "result").count(), 2, "{lines:#?}");
    assert!(status.success());
}

#[test]
fn a_host_that_says_nothing_and_leaves_costs_nothing() {
    let user = User::new(None);
    let (lines, stderr, status) = Host::start(&user, &[]).end();
    assert!(lines.is_empty() && stderr.is_empty() && status.success(), "{lines:?} {stderr}");
}

#[test]
fn an_agent_that_is_not_there_is_told_on_every_way() {
    let user = User::new(None);
    let mut host = Host::start(&user, &["--diglot-agent", "grok"]);
    host.ask("i", json!({"subtype": "initialize"}));
    let (_, answer) = host.until(|line| line["type"] == "control_response");
    assert!(answer["response"]["error"].as_str().unwrap().contains("grok was not found"));
    let (lines, stderr, status) = host.end();
    assert!(lines[0]["errors"][0].as_str().unwrap().contains("grok was not found"));
    assert!(stderr.contains("grok was not found"));
    assert_eq!(status.code(), Some(1));
}

#[test]
fn no_agent_is_chosen_by_chance() {
    let user = User::new(None);
    let output = user.command(&["-p", "hi"]).env_remove("DIGLOT_AGENT").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--diglot-agent"));
}

#[test]
fn a_session_has_one_id_and_an_unknown_one_is_not_resumed() {
    let user = User::new(Some("text.ndjson"));
    let id = "5b1c2a54-0000-4000-8000-0123456789ab";
    let output = user.run(&["-p", "hi", "--session-id", id, "--output-format", "json"], "");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["session_id"], id);
    let again = user.run(&["-p", "hi", "--session-id", id], "");
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("is already in use"), "{}", text(&again.stderr));
    let other = "5b1c2a54-0000-4000-8000-00000000abcd";
    let unknown = user.run(&["-p", "hi", "--resume", other, "--output-format", "stream-json"], "");
    assert_eq!(unknown.status.code(), Some(1));
    let line: Value = serde_json::from_slice(&unknown.stdout).unwrap();
    assert!(line["errors"][0].as_str().unwrap().contains(&format!("No conversation found with session ID: {other}")));
}

#[test]
fn sigint_interrupts_the_turn_and_ends_well() {
    let user = User::new(Some("long_command.ndjson"));
    let mut host = Host::start(&user, &["--dangerously-skip-permissions"]);
    host.prompt("go");
    host.until(|line| line["message"]["content"][0]["type"] == "tool_use");
    signal(host.child.id(), "INT");
    let (_, result) = host.result();
    assert_eq!((&result["subtype"], &result["is_error"]), (&json!("error_during_execution"), &json!(true)));
    assert!(result["errors"][0].as_str().unwrap().starts_with("[Request interrupted by user"));
}

#[test]
fn sigterm_ends_at_once_with_143_and_leaves_nothing() {
    let user = User::new(Some("long_command.ndjson"));
    let mut host = Host::start(&user, &["--dangerously-skip-permissions"]);
    host.prompt("go");
    host.until(|line| line["message"]["content"][0]["type"] == "tool_use");
    signal(host.child.id(), "TERM");
    assert_eq!(wait(&mut host.child).code(), Some(143));
    gone(&user);
}

#[test]
fn sighup_ends_at_once_with_129_and_leaves_nothing() {
    let user = User::new(Some("long_command.ndjson"));
    let mut host = Host::start(&user, &["--dangerously-skip-permissions"]);
    host.prompt("go");
    host.until(|line| line["message"]["content"][0]["type"] == "tool_use");
    signal(host.child.id(), "HUP");
    assert_eq!(wait(&mut host.child).code(), Some(129));
    gone(&user);
}

#[test]
fn killed_in_the_middle_of_a_command_it_leaves_nothing() {
    let user = User::new(Some("long_command.ndjson"));
    let mut host = Host::start(&user, &["--dangerously-skip-permissions"]);
    host.prompt("go");
    host.until(|line| line["message"]["content"][0]["type"] == "tool_use");
    signal(host.child.id(), "KILL");
    wait(&mut host.child);
    gone(&user);
    // The folder of its socket goes with the next one's start, and that one's with its end.
    let folders = || std::fs::read_dir(user.home.path().join("diglot")).unwrap().count();
    assert_eq!(folders(), 2, "a folder and its lock");
    let mut next = Host::start(&user, &["--dangerously-skip-permissions"]);
    next.ask("1", json!({"subtype": "initialize"}));
    next.until(|line| line["type"] == "control_response");
    assert_eq!(folders(), 2, "the next one's alone");
    next.end();
    assert_eq!(folders(), 0);
}

#[test]
fn an_agent_that_dies_in_a_turn_fails_the_turn_once() {
    let user = User::new(Some("exit_midturn.ndjson"));
    let mut host = Host::start(&user, &["--dangerously-skip-permissions"]);
    host.prompt("go");
    let (_, result) = host.result();
    assert_eq!(result["is_error"], true, "{result}");
    let (rest, _, _) = host.end();
    assert!(!rest.iter().any(|line| line["type"] == "result"), "{rest:?}");
}

/// Waits until no process works in the user's folder any more.
fn gone(user: &User) {
    let work: PathBuf = user.home.path().join("work").canonicalize().unwrap();
    let limit = Instant::now() + PATIENCE;
    loop {
        let lives = std::fs::read_dir("/proc").map_or(0, |entries| {
            entries
                .flatten()
                .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&work)))
                .count()
        });
        if lives == 0 {
            return;
        }
        assert!(Instant::now() < limit, "{lives} processes are left");
        std::thread::yield_now();
    }
}
