//! The scripted agent as a process: what it writes for what it reads.

#![expect(clippy::unwrap_used, reason = "a failure here is the failure of the test")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// Only ends a test that would hang for ever.
const PATIENCE: Duration = Duration::from_secs(60);

struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    dir: tempfile::TempDir,
}

impl Agent {
    fn start(script: Option<&str>, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_diglot"));
        command.arg("demo-agent").args(["--permission-prompt-tool", "stdio"]).args(args);
        if let Some(script) = script {
            command.arg("--script").arg(fake(script));
        }
        let mut child = command
            .current_dir(&dir)
            .env("DIGLOT_DEMO_PACE", "0")
            .env_remove("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS")
            .env_remove("CLAUDE_CODE_SDK_READS_SESSION_STATE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.split(b'\n') {
                let Ok(line) = line else { return };
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, dir }
    }

    fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
    }

    fn prompt(&mut self, text: &str, uuid: &str) {
        let line = json!({"type": "user", "message": {"role": "user", "content": text}, "uuid": uuid});
        self.say(&line.to_string());
    }

    fn control(&mut self, id: &str, request: Value) {
        self.say(&json!({"type": "control_request", "request_id": id, "request": request}).to_string());
    }

    fn answer(&mut self, question: &Value, response: Value) {
        let body = json!({"subtype": "success", "request_id": question["request_id"], "response": response});
        self.say(&json!({"type": "control_response", "response": body}).to_string());
    }

    fn raw(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the agent says something")
    }

    fn next(&self) -> Value {
        let line = self.raw();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Everything up to the first line of this kind (a `type`, or a system `subtype`).
    fn until(&self, kind: &str) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let line = self.next();
            let found = line["type"] == kind || line["subtype"] == kind;
            seen.push(line);
            if found {
                return seen;
            }
        }
    }

    /// A whole turn, with the lifecycle's end.
    fn turn(&self) -> Vec<Value> {
        let mut seen = self.until("result");
        seen.extend(self.until("command_lifecycle"));
        seen
    }

    fn end(mut self) -> (ExitStatus, Vec<String>, String) {
        drop(self.stdin.take());
        let rest = self.lines.iter().collect();
        let output = self.child.wait_with_output().unwrap();
        (output.status, rest, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn fake(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes").join(format!("{name}.ndjson"))
}

/// `type` or `system/subtype`, with what tells lines of a type apart.
fn kinds(lines: &[Value]) -> Vec<String> {
    lines
        .iter()
        .map(|line| {
            let kind = line["type"].as_str().unwrap();
            let block = &line["message"]["content"][0]["type"];
            let detail = [&line["subtype"], &line["state"], &line["event"]["type"], &line["request"]["subtype"], block];
            match detail.into_iter().find_map(Value::as_str) {
                Some(detail) => format!("{kind} {detail}"),
                None => kind.to_owned(),
            }
        })
        .collect()
}

/// The text of all deltas of a kind.
fn streamed(lines: &[Value], kind: &str) -> String {
    lines.iter().filter_map(|line| line["event"]["delta"][kind].as_str()).collect()
}

#[test]
fn every_fake_in_the_folder_can_be_read() {
    let folder = fake("x").parent().unwrap().to_owned();
    let scripts = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let scripts: Vec<PathBuf> = scripts.filter(|path| path.extension().is_some_and(|e| e == "ndjson")).collect();
    assert!(scripts.len() > 10);
    for script in scripts {
        diglot::agents::script::Script::load(&script).unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    }
}

#[test]
fn initialize_is_answered_with_what_a_host_reads() {
    let mut agent = Agent::start(Some("text"), &["--permission-mode", "plan"]);
    agent.control("r1", json!({"subtype": "initialize"}));
    let line = agent.next();
    assert_eq!(line["response"]["request_id"], "r1");
    let body = &line["response"]["response"];
    assert_eq!(body["current_permission_mode"], "plan");
    for list in ["commands", "models", "agents"] {
        assert!(body[list].is_array(), "{list}");
    }
    assert!(body["pid"].is_u64() && body.get("session_id").is_none());
    assert!(line["pending_permission_requests"].is_array());
    let (status, rest, _) = agent.end();
    assert!(status.success() && rest.is_empty(), "{rest:?}");
}

#[test]
fn a_turn_without_partial_messages_has_claudes_order() {
    let id = "10fc729a-f339-4cd2-abc8-90e388d6bdf4";
    let mut agent = Agent::start(Some("text"), &["--session-id", id, "--replay-user-messages"]);
    agent.prompt("hello", "u1");
    let turn = agent.turn();
    assert_eq!(
        kinds(&turn),
        [
            "command_lifecycle queued",
            "command_lifecycle started",
            "system init",
            "user",
            "assistant thinking",
            "assistant text",
            "result success",
            "command_lifecycle completed",
        ]
    );
    assert!(turn.iter().all(|line| line["session_id"] == id && line["uuid"].is_string()));
    assert_eq!((&turn[3]["isReplay"], &turn[3]["uuid"]), (&json!(true), &json!("u1")));
    assert_eq!(turn[5]["message"]["content"][0]["text"], "You said: hello");
    assert_eq!(turn[6]["user_message_uuids"], json!(["u1"]));
    assert_eq!(turn[6]["result"], "You said: hello");
    let model = turn[6]["modelUsage"].as_object().unwrap().values().next().unwrap();
    assert!(model["contextWindow"].is_u64());
}

#[test]
fn the_whole_line_of_a_streamed_block_comes_before_its_stop() {
    let mut agent = Agent::start(Some("text"), &["--include-partial-messages"]);
    agent.prompt("a b", "u1");
    let turn = agent.turn();
    let text = kinds(&turn);
    let whole = text.iter().position(|kind| kind == "assistant text").unwrap();
    assert_eq!(text[whole - 1], "stream_event content_block_delta");
    assert_eq!(text[whole + 1], "stream_event content_block_stop");
    assert_eq!(text[whole + 2..whole + 4], ["stream_event message_delta", "stream_event message_stop"]);
    assert_eq!(streamed(&turn, "text"), "You said: a b");
    assert_eq!(streamed(&turn, "thinking"), "A short thought.");
    let start = turn.iter().find(|line| line["event"]["type"] == "message_start").unwrap();
    assert_eq!(start["user_message_uuid"], "u1");
}

#[test]
fn an_allowed_command_runs_and_a_refused_one_does_not() {
    let mut agent = Agent::start(Some("ask"), &[]);
    for (uuid, response, text, error, exists) in [
        ("u1", json!({"behavior": "deny", "message": "not now"}), "It was refused: not now", true, false),
        ("u2", json!({"behavior": "allow"}), "It ran.", false, true),
    ] {
        agent.prompt("go", uuid);
        let question = agent.until("control_request").pop().unwrap();
        assert_eq!(question["request"]["tool_name"], "Bash");
        assert!(question["request"]["permission_suggestions"].is_array());
        agent.answer(&question, response);
        let turn = agent.turn();
        let result = &turn[0];
        assert_eq!(result["message"]["content"][0]["is_error"], error);
        assert_eq!(turn[1]["message"]["content"][0]["text"], text);
        assert_eq!(turn.iter().filter(|line| line["type"] == "result").count(), 1);
        assert_eq!(agent.dir.path().join("asked.txt").exists(), exists);
    }
}

#[test]
fn a_changed_input_is_what_runs_and_an_always_is_remembered() {
    let mut agent = Agent::start(Some("ask"), &[]);
    agent.prompt("go", "u1");
    let question = agent.until("control_request").pop().unwrap();
    let always = question["request"]["permission_suggestions"].clone();
    let input = json!({"command": "echo changed"});
    agent.answer(&question, json!({"behavior": "allow", "updatedInput": input, "updatedPermissions": always}));
    let result = agent.turn().remove(0);
    assert_eq!(result["message"]["content"][0]["content"], "changed");
    assert_eq!(result["tool_result_meta"][0]["permission_decision"]["source"], "user_permanent");
    agent.prompt("again", "u2");
    let turn = agent.turn();
    assert!(turn.iter().all(|line| line["type"] != "control_request"), "the rule answers: {turn:?}");
}

#[test]
fn no_proper_answer_is_no_permission() {
    for answer in [
        json!({"subtype": "error", "error": "boom"}),
        json!({"subtype": "success", "response": {"behavior": "maybe"}}),
        json!({"subtype": "success", "response": {"behavior": "deny"}}),
    ] {
        let mut agent = Agent::start(Some("ask"), &[]);
        agent.prompt("go", "u1");
        let question = agent.until("control_request").pop().unwrap();
        let mut response = answer.clone();
        response["request_id"] = question["request_id"].clone();
        agent.say(&json!({"type": "control_response", "response": response}).to_string());
        let turn = agent.turn();
        assert_eq!(turn[1]["message"]["content"][0]["text"], "Nobody answered.", "{answer}");
        assert!(!agent.dir.path().join("asked.txt").exists());
    }
}

#[test]
fn the_end_of_the_input_answers_open_questions_and_lets_the_turn_end() {
    let mut agent = Agent::start(Some("ask"), &[]);
    agent.prompt("go", "u1");
    agent.until("control_request");
    let (status, rest, _) = agent.end();
    assert!(status.success());
    assert!(rest.iter().any(|line| line.contains("Nobody answered.")), "{rest:?}");
    assert!(rest.last().unwrap().contains("completed"), "{rest:?}");
}

#[test]
fn without_a_prompt_tool_a_question_is_refused_by_the_agent_itself() {
    let mut agent = Agent::start(Some("ask"), &["--permission-prompt-tool", "mcp__x__y"]);
    agent.prompt("go", "u1");
    let turn = agent.turn();
    assert!(kinds(&turn).contains(&"system permission_denied".to_owned()));
    assert_eq!(
        turn.iter().find(|line| line["type"] == "result").unwrap()["permission_denials"][0]["tool_name"],
        "Bash"
    );
}

#[test]
fn many_questions_are_open_at_once_and_answered_in_any_order() {
    let mut agent = Agent::start(Some("ask_many"), &[]);
    agent.prompt("go", "u1");
    let questions: Vec<Value> = (0..3).map(|_| agent.until("control_request").pop().unwrap()).collect();
    for index in [2, 0, 1] {
        agent.answer(&questions[index], json!({"behavior": "allow"}));
    }
    let turn = agent.turn();
    let results: Vec<&str> =
        turn.iter().filter_map(|line| line["message"]["content"][0]["tool_use_id"].as_str()).collect();
    assert_eq!(results, ["c", "a", "b"]);
}

#[test]
fn an_interrupt_in_a_text_cuts_it_in_claudes_order() {
    let script = tempfile::NamedTempFile::new().unwrap();
    let steps = "{\"do\":\"agent\",\"pace_ms\":1}\n{\"do\":\"turn\"}\n{\"do\":\"text\",\"pieces\":[\"x \"],\"times\":1000000}\n";
    std::fs::write(&script, steps).unwrap();
    let mut agent = Agent::start(None, &["--include-partial-messages", "--script", script.path().to_str().unwrap()]);
    agent.prompt("go", "u1");
    let mut before = Vec::new();
    while streamed(&before, "text").is_empty() {
        before.push(agent.next());
    }
    agent.prompt("next", "u2");
    agent.control("r1", json!({"subtype": "interrupt"}));
    let mut turn = before;
    turn.extend(agent.until("control_response"));
    assert_eq!(turn.last().unwrap()["response"]["response"]["still_queued"], json!(["u2"]));
    let cut = agent.turn();
    assert_eq!(
        kinds(&cut),
        [
            "assistant text",
            "user text",
            "stream_event content_block_stop",
            "stream_event message_delta",
            "stream_event message_stop",
            "result error_during_execution",
            "command_lifecycle cancelled",
        ]
    );
    assert_eq!(cut[0]["aborted"], true);
    assert_eq!(cut[0]["message"]["content"][0]["text"], streamed(&turn, "text"));
    assert_eq!(cut[5]["terminal_reason"], "aborted_streaming");
    assert!(cut[5].get("result").is_none() && cut[5]["errors"].is_array());
    // The queued prompt is the next turn.
    let next = agent.until("init");
    assert_eq!(next[0]["command_uuid"], "u2");
}

#[test]
fn an_interrupt_withdraws_open_questions_and_closes_open_calls() {
    let mut agent = Agent::start(Some("ask"), &[]);
    agent.prompt("go", "u1");
    let question = agent.until("control_request").pop().unwrap();
    agent.control("r1", json!({"subtype": "interrupt"}));
    let turn = agent.turn();
    assert_eq!(
        kinds(&turn),
        [
            "control_cancel_request",
            "control_response",
            "user tool_result",
            "user text",
            "result error_during_execution",
            "command_lifecycle cancelled",
        ]
    );
    assert_eq!(turn[0]["request_id"], question["request_id"]);
    assert_eq!(turn[2]["tool_result_meta"][0]["non_execution_kind"], "user-rejected");
    assert_eq!(turn[4]["terminal_reason"], "aborted_tools");
    // A late answer has no effect; the session lives on.
    agent.answer(&question, json!({"behavior": "allow"}));
    agent.control("r2", json!({"subtype": "interrupt"}));
    assert_eq!(agent.next()["response"]["response"]["still_queued"], json!([]));
    assert!(!agent.dir.path().join("asked.txt").exists());
    let (status, _, _) = agent.end();
    assert_eq!(status.code(), Some(1), "the last result was an error");
}

#[test]
fn a_refusal_that_interrupts_ends_the_turn() {
    let mut agent = Agent::start(Some("ask"), &[]);
    agent.prompt("go", "u1");
    let question = agent.until("control_request").pop().unwrap();
    agent.answer(&question, json!({"behavior": "deny", "message": "stop", "interrupt": true}));
    let turn = agent.turn();
    assert_eq!(kinds(&turn)[2], "result error_during_execution");
    assert_eq!(turn[2]["terminal_reason"], "aborted_tools");
}

#[test]
fn control_requests_are_answered_and_unknown_ones_refused() {
    let mut agent = Agent::start(Some("text"), &[]);
    agent.control("1", json!({"subtype": "set_permission_mode", "mode": "acceptEdits"}));
    assert_eq!(agent.next()["response"]["response"]["mode"], "acceptEdits");
    let status = agent.next();
    assert_eq!((&status["subtype"], &status["permissionMode"]), (&json!("status"), &json!("acceptEdits")));
    agent.control("2", json!({"subtype": "set_permission_mode", "mode": "anarchy"}));
    assert_eq!(agent.next()["response"]["subtype"], "error");
    agent.control("3", json!({"subtype": "can_use_tool"}));
    assert_eq!(agent.next()["response"]["error_code"], "unsupported_request");
    agent.say("{\"type\":\"keep_alive\"}");
    agent.say("[1]");
    agent.say("");
    agent.control("4", json!({"subtype": "end_session"}));
    assert_eq!(agent.next()["response"]["request_id"], "4");
    let (status, _, _) = agent.end();
    assert!(status.success());
}

#[test]
fn a_line_that_claude_dies_of_ends_it_too() {
    for (line, said) in [
        ("{oops", "Error parsing streaming input line (type=unknown, 5 chars): SyntaxError"),
        (r#"{"type":"user","message":{"role":"assistant"}}"#, "Expected message role 'user', got 'assistant'"),
        (r#"{"type":"control_request","request_id":"1"}"#, "Missing request on control_request"),
        (r#"{"type":"bash_command","command":"true"}"#, "bash_command reached the agent"),
    ] {
        let mut agent = Agent::start(Some("text"), &[]);
        agent.say(line);
        let (status, _, stderr) = agent.end();
        assert_eq!(status.code(), Some(1), "{line}");
        assert!(stderr.contains(said), "{stderr}");
    }
}

#[test]
fn a_repeated_uuid_is_one_message() {
    let mut agent = Agent::start(Some("text"), &[]);
    agent.prompt("one", "u1");
    agent.prompt("one", "u1");
    let (_, rest, _) = agent.end();
    assert_eq!(rest.iter().filter(|line| line.contains("\"type\":\"result\"")).count(), 1);
}

#[test]
fn wave_has_messages_of_its_own() {
    let mut agent = Agent::start(Some("wave"), &["--include-partial-messages"]);
    agent.prompt("go", "u1");
    let mut turn = agent.until("control_request");
    let question = turn.pop().unwrap();
    agent.answer(&question, json!({"behavior": "allow"}));
    turn.extend(agent.until("result"));
    turn.push(agent.next());
    let states: Vec<&str> = turn
        .iter()
        .filter(|line| line["type"] == "session_state_changed")
        .filter_map(|line| line["state"].as_str())
        .collect();
    assert_eq!(states, ["busy", "requires_action", "busy", "idle"]);
    let result = turn.iter().find(|line| line["type"] == "tool_result").unwrap();
    assert_eq!((&result["content"], &result["is_error"]), (&json!("from wave"), &json!(false)));
    let text: String = turn.iter().filter_map(|line| line["message"]["content"][0]["text"].as_str()).collect();
    assert_eq!(text, "I will run a command.It ran.");
    for kind in ["stream_event", "command_lifecycle", "user"] {
        assert!(turn.iter().all(|line| line["type"] != kind), "{kind} is claude's, not Wave's");
    }
}

#[test]
fn the_demo_does_what_it_says_in_its_folder() {
    let mut agent = Agent::start(None, &["--include-partial-messages"]);
    agent.prompt("go", "u1");
    for _ in 0..3 {
        let question = agent.until("control_request").pop().unwrap();
        agent.answer(&question, json!({"behavior": "allow"}));
    }
    let turn = agent.turn();
    assert!(turn.iter().any(|line| line["message"]["content"][0]["is_error"] == true), "something fails");
    let greeting = std::fs::read_to_string(agent.dir.path().join("greet.sh")).unwrap();
    assert!(greeting.contains("name=${1:-friend}"), "{greeting}");
}

#[test]
fn the_demo_takes_a_no() {
    let mut agent = Agent::start(None, &[]);
    agent.prompt("go", "u1");
    let question = agent.until("control_request").pop().unwrap();
    agent.answer(&question, json!({"behavior": "deny", "message": "no"}));
    let turn = agent.turn();
    let result = turn.iter().find(|line| line["type"] == "result").unwrap();
    assert!(result["result"].as_str().unwrap().starts_with("You refused"), "{result}");
    assert!(!agent.dir.path().join("greet.sh").exists());
}

#[test]
fn noise_stands_where_the_script_puts_it() {
    let mut agent = Agent::start(Some("noise"), &[]);
    assert_eq!((agent.raw().as_str(), agent.raw().as_str()), ("Welcome to the fake!", ""));
    agent.prompt("go", "u1");
    let (status, rest, _) = agent.end();
    assert!(status.success());
    let noise = rest.iter().filter(|line| serde_json::from_str::<Value>(line).is_err());
    assert_eq!(noise.count(), 4, "{rest:?}");
}

#[test]
fn it_dies_as_its_script_says() {
    // Whatever waits in its input, it has ended before it reads.
    let mut agent = Agent::start(Some("dies_at_start"), &[]);
    let early = json!({"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}});
    let _ = writeln!(agent.stdin.as_mut().unwrap(), "{early}");
    let (status, rest, stderr) = agent.end();
    assert_eq!((status.code(), rest.len(), stderr.as_str()), (Some(1), 0, "Invalid API key\n"));

    let mut agent = Agent::start(Some("exit_midturn"), &[]);
    agent.prompt("go", "u1");
    let (status, rest, stderr) = agent.end();
    assert_eq!(status.code(), Some(3));
    assert!(stderr.contains("gives up") && !rest.iter().any(|line| line.contains("\"result\"")));

    let agent = Agent::start(None, &["--script", "/nonexistent"]);
    let (status, _, stderr) = agent.end();
    assert_eq!(status.code(), Some(1));
    assert!(stderr.contains("/nonexistent"), "{stderr}");
}

#[test]
fn a_resumed_session_has_its_id_and_its_own_way() {
    let id = "10fc729a-f339-4cd2-abc8-90e388d6bdf4";
    let mut agent = Agent::start(Some("crash"), &["--resume", id]);
    agent.prompt("again", "u1");
    let turn = agent.turn();
    let result = turn.iter().find(|line| line["type"] == "result").unwrap();
    assert_eq!((&result["session_id"], &result["result"]), (&json!(id), &json!("I am back and you said: again")));
}

#[cfg(unix)]
mod processes {
    use super::*;
    use rustix::process::{Pid, Signal, getsid, kill_process, test_kill_process};
    use std::os::unix::process::ExitStatusExt;

    fn pid(file: &Path) -> Pid {
        let text = std::fs::read_to_string(file).unwrap();
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }

    /// Waits until a file is there; the agent writes it when its command runs.
    fn wait_for(file: &Path) {
        let start = std::time::Instant::now();
        while !file.exists() {
            assert!(start.elapsed() < PATIENCE, "{} never came", file.display());
            std::thread::yield_now();
        }
    }

    /// Whether a process is gone (or only waits to be reaped by somebody else).
    fn gone(pid: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        test_kill_process(pid).is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
    }

    fn wait_until_gone(pid: Pid) {
        let start = std::time::Instant::now();
        while !gone(pid) {
            assert!(start.elapsed() < PATIENCE, "{pid:?} lives");
            std::thread::yield_now();
        }
    }

    fn running(script: &str) -> (Agent, Pid) {
        let mut agent = Agent::start(Some(script), &[]);
        agent.prompt("go", "u1");
        if script == "long_command" {
            let question = agent.until("control_request").pop().unwrap();
            agent.answer(&question, json!({"behavior": "allow"}));
        }
        let file = agent.dir.path().join("command.pid");
        wait_for(&file);
        let command = pid(&file);
        (agent, command)
    }

    fn agent_pid(agent: &Agent) -> Pid {
        Pid::from_child(&agent.child)
    }

    #[test]
    fn a_command_leads_a_session_of_its_own_and_an_interrupt_ends_it() {
        let (mut agent, command) = running("long_command");
        assert_eq!(getsid(Some(command)).unwrap(), command);
        agent.control("r1", json!({"subtype": "interrupt"}));
        agent.turn();
        wait_until_gone(command);
        let background = pid(&agent.dir.path().join("background.pid"));
        assert!(!gone(background), "what runs beside the turn goes on");
        agent.end();
        wait_until_gone(background);
    }

    #[test]
    fn sigterm_ends_the_agent_and_its_commands() {
        let (agent, command) = running("long_command");
        kill_process(agent_pid(&agent), Signal::TERM).unwrap();
        let (status, _, _) = agent.end();
        assert_eq!(status.code(), Some(143));
        wait_until_gone(command);
    }

    #[test]
    fn killed_outright_it_leaves_its_command_behind() {
        let (agent, command) = running("stubborn_command");
        kill_process(agent_pid(&agent), Signal::TERM).unwrap();
        kill_process(agent_pid(&agent), Signal::KILL).unwrap();
        let (status, _, _) = agent.end();
        assert_eq!(status.signal(), Some(9), "SIGTERM was ignored");
        assert!(!gone(command), "this is what a supervisor has to clean up");
        rustix::process::kill_process_group(command, Signal::KILL).unwrap();
    }

    #[test]
    fn sigint_cuts_the_turn_and_ends_well() {
        let (agent, command) = running("long_command");
        kill_process(agent_pid(&agent), Signal::INT).unwrap();
        let (status, rest, _) = agent.end();
        assert_eq!(status.code(), Some(0));
        assert!(rest.iter().any(|line| line.contains("aborted_tools")), "{rest:?}");
        wait_until_gone(command);
    }
}
