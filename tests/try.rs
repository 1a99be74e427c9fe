//! `diglot try` as a process, against a program that stands in for `diglot acp`: what it shows, what it answers, and how
//! it ends.

#![expect(clippy::unwrap_used, reason = "a failure here is the failure of the test")]
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// A conversation from the adapter's side: read a line, or write one.
enum Turn {
    Reads,
    Writes(String),
    Does(&'static str),
}
use Turn::{Does, Reads, Writes};

struct Tried {
    output: Output,
    /// The lines that the client sent.
    sent: Vec<Value>,
    /// The adapter's arguments.
    args: String,
}

impl Tried {
    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    fn code(&self) -> Option<i32> {
        self.output.status.code()
    }
}

fn line(value: Value) -> Turn {
    Writes(value.to_string())
}

fn update(update: Value) -> Turn {
    line(json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}))
}

fn text(text: &str) -> Turn {
    update(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}))
}

/// `initialize`, `session/new` and the prompt, up to the prompt's answer.
fn conversation(middle: Vec<Turn>) -> Vec<Turn> {
    let mut turns = vec![
        Reads,
        line(json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1}})),
        Reads,
        line(json!({"jsonrpc": "2.0", "id": 2, "result": {"sessionId": "s"}})),
        Reads,
    ];
    turns.extend(middle);
    turns
}

fn ends(reason: &str) -> Turn {
    line(json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": reason}}))
}

/// Runs `diglot try` with these arguments against an adapter that plays these turns.
fn try_it(args: &[&str], turns: &[Turn]) -> Tried {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let arguments = dir.path().join("args");
    let mut script = format!("#!/bin/sh\nprintf '%s ' \"$@\" > '{}'\n", arguments.display());
    for turn in turns {
        script.push_str(&match turn {
            Reads => format!("IFS= read -r line || exit 9\nprintf '%s\\n' \"$line\" >> '{}'\n", log.display()),
            Writes(line) => format!("printf '%s\\n' '{}'\n", line.replace('\'', "'\\''")),
            Does(command) => format!("{command}\n"),
        });
    }
    let adapter = dir.path().join("adapter");
    std::fs::write(&adapter, script).unwrap();
    std::fs::set_permissions(&adapter, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = diglot(args, &adapter);
    let sent = std::fs::read_to_string(&log).unwrap_or_default();
    Tried {
        output,
        sent: sent.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
        args: std::fs::read_to_string(arguments).unwrap_or_default(),
    }
}

fn diglot(args: &[&str], adapter: &PathBuf) -> Output {
    let home = tempfile::tempdir().unwrap();
    // A program that was written just now cannot be started while another thread's child still holds it open for writing.
    loop {
        let output = Command::new(env!("CARGO_BIN_EXE_diglot"))
            .arg("try")
            .args(args)
            .env("DIGLOT_TRY_ADAPTER", adapter)
            .env("HOME", home.path())
            .env_remove("XDG_CONFIG_HOME")
            .env("COLUMNS", "100")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        if !String::from_utf8_lossy(&output.stderr).contains("Text file busy") {
            return output;
        }
    }
}

#[test]
fn a_conversation_is_shown_as_it_comes_and_ends_well() {
    let tried = try_it(
        &["say", "hello"],
        &conversation(vec![
            update(json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "Hm."}})),
            text("Hel"),
            text("lo!"),
            ends("end_turn"),
            text(" And after the end."),
        ]),
    );
    assert_eq!(tried.code(), Some(0), "{}", tried.complaint());
    let shown = tried.shown();
    assert!(shown.starts_with("Demo in /"), "{shown}");
    let said = &shown[shown.find('\n').unwrap()..];
    assert_eq!(said, "\n> say hello\n\n(thinking) Hm.\n\nHello!\n\n[end_turn]\n\n And after the end.\n");
    assert_eq!(tried.sent[0]["method"], "initialize");
    assert_eq!(tried.sent[1]["params"]["mcpServers"], json!([]));
    assert_eq!(tried.sent[2]["params"]["prompt"], json!([{"type": "text", "text": "say hello"}]));
    assert_eq!(tried.args, "acp --agent demo ");
}

#[test]
fn the_demo_works_in_a_fresh_folder_that_is_gone_afterwards() {
    let tried = try_it(&[], &conversation(vec![ends("end_turn")]));
    let folder = PathBuf::from(tried.sent[1]["params"]["cwd"].as_str().unwrap());
    assert!(folder.is_absolute() && !folder.exists(), "{}", folder.display());
    assert!(tried.sent[2]["params"]["prompt"][0]["text"].as_str().unwrap().starts_with("Show me"));
}

#[test]
fn another_agent_works_where_it_is_told_and_is_told_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let args = ["--agent", "claude", "--cwd", path, "--trace", "/tmp/t", "go", "--", "my-claude", "--yes"];
    let tried = try_it(&args, &conversation(vec![ends("end_turn")]));
    assert_eq!(tried.code(), Some(0), "{}", tried.complaint());
    assert_eq!(tried.args, "acp --agent claude --trace /tmp/t -- my-claude --yes ");
    assert_eq!(tried.sent[1]["params"]["cwd"], path);

    let tried = try_it(&["--agent", "claude"], &[]);
    assert_eq!(tried.code(), Some(64));
    assert!(tried.complaint().contains("say what Claude Code shall do"), "{}", tried.complaint());
}

fn permission(options: Value) -> Turn {
    let call = json!({"toolCallId": "t", "title": "rm -rf /", "kind": "execute"});
    let params = json!({"sessionId": "s", "toolCall": call, "options": options});
    line(json!({"jsonrpc": "2.0", "id": "q-1", "method": "session/request_permission", "params": params}))
}

fn usual_options() -> Value {
    json!([
        {"optionId": "al", "name": "Always", "kind": "allow_always"},
        {"optionId": "ao", "name": "Once", "kind": "allow_once"},
        {"optionId": "ro", "name": "No", "kind": "reject_once"},
    ])
}

#[test]
fn a_question_is_answered_as_the_flags_say_and_otherwise_refused() {
    for (flags, outcome, shown) in [
        (&["--yes"][..], json!({"outcome": "selected", "optionId": "ao"}), "-> Once"),
        (&["--no"], json!({"outcome": "selected", "optionId": "ro"}), "-> refused (--no)"),
        (&[], json!({"outcome": "cancelled"}), "standard input is no terminal"),
    ] {
        let tried = try_it(flags, &conversation(vec![permission(usual_options()), Reads, ends("end_turn")]));
        let answer = tried.sent.last().unwrap();
        assert_eq!((&answer["id"], &answer["result"]["outcome"]), (&json!("q-1"), &outcome), "{flags:?}");
        assert!(tried.shown().contains("? rm -rf /") && tried.shown().contains(shown), "{}", tried.shown());
    }
}

#[test]
fn requests_it_cannot_do_are_refused_and_noise_is_no_harm() {
    let tried = try_it(
        &[],
        &conversation(vec![
            Writes("Debugger attached.".into()),
            line(json!({"jsonrpc": "2.0", "method": "_vendor/news", "params": {}})),
            line(json!({"jsonrpc": "2.0", "id": 77, "result": {}})),
            line(json!({"jsonrpc": "2.0", "id": 0, "method": "fs/read_text_file", "params": {"path": "/etc/passwd"}})),
            Reads,
            update(json!({"sessionUpdate": "invented_later"})),
            ends("end_turn"),
        ]),
    );
    assert_eq!(tried.code(), Some(0), "{}", tried.complaint());
    let answer = tried.sent.last().unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(0), &json!(-32601)));
    assert!(tried.shown().contains("Debugger attached"), "{}", tried.shown());
}

#[test]
fn the_exit_code_says_how_it_ended() {
    let refused = |data: Value| {
        line(json!({"jsonrpc": "2.0", "id": 3, "error": {"code": -32603, "message": "it broke", "data": data}}))
    };
    for (code, complaint, middle) in [
        (0, "", vec![ends("end_turn")]),
        (1, "ended early: max_tokens", vec![ends("max_tokens")]),
        (130, "", vec![ends("cancelled")]),
        (75, "the prompt failed: it broke; restart", vec![refused(json!({"reason": "agent_died", "hint": "restart"}))]),
        (75, "it broke", vec![refused(json!({"reason": "agent_not_started"}))]),
        (69, "it broke", vec![refused(json!({"reason": "agent_not_found"}))]),
        (1, "it broke", vec![refused(Value::Null)]),
        (75, "ended before it had answered", vec![Does("exit 1")]),
        (75, "ended before it had answered", vec![Does("kill -9 $$")]),
        (69, "", vec![Does("exit 69")]),
        (70, "no stop reason", vec![line(json!({"jsonrpc": "2.0", "id": 3, "result": {}}))]),
    ] {
        let tried = try_it(&[], &conversation(middle));
        assert_eq!(tried.code(), Some(code), "{complaint}: {}", tried.complaint());
        assert!(tried.complaint().contains(complaint), "{complaint}: {}", tried.complaint());
        assert_eq!(tried.complaint().is_empty(), complaint.is_empty(), "{}", tried.complaint());
    }
    let version = line(json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 2}}));
    let tried = try_it(&[], &[Reads, version]);
    assert_eq!(tried.code(), Some(70));
}

#[test]
fn an_agent_that_is_not_there_is_named_with_the_way_out() {
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_diglot"))
            .arg("try")
            .args(args)
            .env("PATH", "/nonexistent")
            .env("HOME", "")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("CLAUDE_CODE_EXECUTABLE")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["--agent", "claude", "hello"]);
    assert_eq!(code, Some(69));
    assert!(said.contains("no program `claude`") && said.contains("npm install"), "{said}");
    let (code, said) = run(&["--agent", "clod", "hello"]);
    assert_eq!(code, Some(69));
    assert!(said.contains("no agent `clod`"), "{said}");
    let (code, said) = run(&["hello", "--", "/no/such/agent"]);
    assert_eq!(code, Some(69));
    assert!(said.contains("/no/such/agent"), "{said}");
}

#[test]
fn wire_shows_the_rows_of_the_trace_and_keeps_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.ndjson");
    let record =
        r#"{"t_ms":1.5,"wire":"far","dir":"out","line":{"type":"user","message":{"role":"user","content":"hi"}}}"#;
    let tried = try_it(
        &["--wire", "--yes", "--trace", copy.to_str().unwrap()],
        &conversation(vec![
            Does("while [ $# -gt 1 ] && [ \"$1\" != --trace ]; do shift; done"),
            Does(Box::leak(format!("printf '%s\\n' '{record}' > \"$2\"").into_boxed_str())),
            text("not shown"),
            ends("end_turn"),
        ]),
    );
    assert_eq!(tried.code(), Some(0), "{}", tried.complaint());
    let shown = tried.shown();
    assert!(shown.contains("editor -> diglot") && shown.contains("| -> user \"hi\""), "{shown}");
    assert!(!shown.contains("not shown"), "{shown}");
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), format!("{record}\n"));
}

#[test]
fn nothing_is_coloured_where_nobody_sees_it() {
    let tried = try_it(&[], &conversation(vec![text("plain"), ends("end_turn")]));
    assert!(!tried.shown().contains('\u{1b}'));
}

#[test]
fn help_shows_examples_and_wrong_usage_has_its_code() {
    let run = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_diglot")).args(args).output().unwrap();
    for command in ["acp", "try"] {
        let output = run(&[command, "--help"]);
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && help.contains("Examples:"), "{help}");
    }
    let output = run(&["--version"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), concat!("diglot ", env!("CARGO_PKG_VERSION")));
    for wrong in [&["dance"][..], &["try", "--dance"], &["acp", "--log", "loud"], &["try", "--cwd", "/no/such/folder"]]
    {
        let output = run(wrong);
        assert_eq!(output.status.code(), Some(64), "{wrong:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
    let output = run(&["demo-agent", "--version"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("demo agent"));
}
