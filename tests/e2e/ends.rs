//! Everything that ends before its time: agents, guards, editors, and diglot itself.

use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use super::editor::{Editor, Setup, is_question, is_update};
use super::family::{pid_in, send};

/// Of what diglot started, nothing may live so long after its violent end.
const DEATH: Duration = Duration::from_secs(3);

/// Where a test waits for processes without a rule about the time.
const SOME_TIME: Duration = Duration::from_secs(30);

/// Starts a prompt whose command runs; gives the session, the prompt and the command.
fn running(editor: &mut Editor, script: &str) -> (String, u64, Pid) {
    let session = editor.open();
    let prompt = editor.send_prompt(&session, "go");
    if script == "long_command" {
        let question = editor.question(&session);
        editor.choose(&question, "allow_once");
    } else {
        editor.until(|line| is_update(line, "tool_call"));
    }
    let command = pid_in(&editor.path("command.pid"));
    (session, prompt, command)
}

#[test]
fn a_crash_fails_the_prompt_once_and_the_next_one_works() {
    let mut editor = Setup::fake("crash").start();
    let session = editor.open();
    let turn = editor.prompt(&session, "one");
    assert_eq!((turn.text().as_str(), turn.calls()), ("I begin.", vec!["failed"]));
    let error = turn.error();
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32603), &json!("agent_died")));
    assert_eq!((&error["data"]["signal"], &error["data"]["exitCode"]), (&json!(9), &Value::Null));
    assert!(error["data"]["stderr"].as_str().unwrap().contains("out of memory in the fake"), "{error}");
    // The script says this only when it is resumed.
    let turn = editor.prompt(&session, "two");
    assert_eq!((turn.text().as_str(), turn.stop()), ("I am back and you said: two", "end_turn"));
    editor.leave();
}

#[test]
fn an_exit_in_the_middle_of_a_turn_is_told_with_its_code_and_last_words() {
    let mut editor = Setup::fake("exit_midturn").start();
    let session = editor.open();
    for _ in 0..2 {
        let turn = editor.prompt(&session, "go");
        assert_eq!(turn.text(), "Half of what I wanted to");
        let error = turn.error();
        assert_eq!((&error["code"], &error["data"]["exitCode"]), (&json!(-32603), &json!(3)));
        assert!(error["message"].as_str().unwrap().contains("the fake gives up"), "{error}");
    }
    editor.leave();
}

#[test]
fn an_agent_that_dies_at_its_start_is_quoted() {
    let mut editor = Setup::fake("dies_at_start").start();
    for _ in 0..2 {
        let id = editor.ask_for_session(&editor.path(""));
        let answer = editor.answer_to(id);
        let error = answer.error();
        assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32603), &json!("agent_not_started")));
        assert_eq!((&error["data"]["exitCode"], &error["data"]["stderr"]), (&json!(1), &json!("Invalid API key")));
        assert!(error["message"].as_str().unwrap().contains("Invalid API key"), "{error}");
    }
    editor.leave();
}

#[test]
fn what_cannot_be_started_is_named() {
    let mut editor = Setup::command(["/no/such/agent"]).start();
    let id = editor.ask_for_session(&editor.path(""));
    let answer = editor.answer_to(id);
    let error = answer.error();
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32603), &json!("agent_not_found")));
    assert!(error["message"].as_str().unwrap().contains("/no/such/agent"), "{error}");
    editor.leave();

    let mut editor = Setup::fake("text").start();
    std::fs::write(editor.path("a file"), "").unwrap();
    for (name, words) in [("nowhere", "does not exist"), ("a file", "is not a directory")] {
        let id = editor.ask_for_session(&editor.path(name));
        let answer = editor.answer_to(id);
        let error = answer.error();
        assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32602), &json!("bad_directory")));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(words) && message.contains(name), "{error}");
    }
    let session = editor.open();
    assert_eq!(editor.prompt(&session, "go").stop(), "end_turn");
    editor.leave();
}

#[test]
fn a_session_is_withdrawn_while_its_agent_starts() {
    let mut editor = Setup::fake("slow_start").start();
    let id = editor.ask_for_session(&editor.path(""));
    editor.tell("$/cancel_request", json!({"requestId": id}));
    assert_eq!(editor.answer_to(id).error()["code"], -32800);
    editor.family.wait_gone(SOME_TIME, &[editor.pid()]);
    editor.leave();
}

#[test]
fn an_agent_that_goes_on_after_an_interrupt_is_signalled_and_the_next_prompt_comes_back() {
    let mut editor = Setup::fake("hang_on_interrupt").start();
    let session = editor.open();
    let prompt = editor.send_prompt(&session, "go");
    editor.until(|line| is_update(line, "tool_call"));
    let agent = editor.family.of("demo-agent");
    editor.cancel(&session);
    let turn = editor.answer_to(prompt);
    assert_eq!((turn.calls(), turn.stop()), (vec!["failed"], "cancelled"));
    let prompt = editor.send_prompt(&session, "again");
    editor.until(|line| is_update(line, "tool_call"));
    assert_ne!(editor.family.of("demo-agent"), agent, "SIGINT ends claude after the turn");
    editor.close_stdin();
    assert_eq!(editor.answer_to(prompt).stop(), "cancelled");
    editor.see_end();
}

#[test]
fn an_agent_that_takes_no_signal_is_killed_and_the_next_prompt_comes_back() {
    let steps = [
        json!({"do": "agent", "interrupt": "silent"}),
        json!({"do": "turn"}),
        json!({"do": "if", "resumed": true, "then": [{"do": "text", "text": "I am back."}], "else": [
            {"do": "sigterm", "ignore": true},
            {"do": "text", "text": "I stop listening."},
            {"do": "tool", "name": "Bash", "input": {"command": "true"}},
            {"do": "hang", "deaf": true},
        ]}),
    ];
    let mut editor = Setup::script(&steps).start();
    let session = editor.open();
    let prompt = editor.send_prompt(&session, "go");
    editor.until(|line| is_update(line, "tool_call"));
    editor.cancel(&session);
    let turn = editor.answer_to(prompt);
    assert_eq!((turn.calls(), turn.stop()), (vec!["failed"], "cancelled"));
    assert_eq!(editor.prompt(&session, "again").text(), "I am back.");
    editor.leave();
}

#[test]
fn a_killed_agent_is_reported_once() {
    let mut editor = Setup::fake("long_command").start();
    let (session, prompt, _) = running(&mut editor, "long_command");
    send(editor.family.of("demo-agent"), Signal::KILL);
    let turn = editor.answer_to(prompt);
    assert_eq!(turn.calls(), ["failed"]);
    assert_eq!((&turn.error()["data"]["reason"], &turn.error()["data"]["signal"]), (&json!("agent_died"), &json!(9)));
    editor.family.wait_gone(SOME_TIME, &[editor.pid()]);
    let prompt = editor.send_prompt(&session, "again");
    let before = editor.until(is_question);
    assert!(before.iter().all(|line| line["error"].is_null()), "{before:?}");
    editor.choose(&before[before.len() - 1], "reject_once");
    assert_eq!(editor.answer_to(prompt).stop(), "end_turn");
    editor.leave();
}

#[test]
fn a_killed_guard_takes_its_agent_with_it() {
    let mut editor = Setup::fake("long_command").start();
    let (session, prompt, command) = running(&mut editor, "long_command");
    send(editor.family.of("__guard"), Signal::KILL);
    let turn = editor.answer_to(prompt);
    assert_eq!((turn.calls(), &turn.error()["data"]["reason"]), (vec!["failed"], &json!("agent_died")));
    editor.family.wait_gone(SOME_TIME, &[editor.pid()]);
    let prompt = editor.send_prompt(&session, "again");
    let question = editor.question(&session);
    std::fs::remove_file(editor.path("command.pid")).unwrap();
    editor.choose(&question, "allow_once");
    assert_ne!(pid_in(&editor.path("command.pid")), command);
    editor.cancel(&session);
    assert_eq!(editor.answer_to(prompt).stop(), "cancelled");
    editor.leave();
}

/// Kills diglot while a command runs; `prepare` comes before it.
fn killed(script: &str, prepare: impl FnOnce(&Editor)) {
    let mut editor = Setup::fake(script).start();
    running(&mut editor, script);
    prepare(&editor);
    assert!(editor.family.members().len() >= 4, "diglot, guard, agent, command: {:?}", editor.family.members());
    editor.kill();
    editor.family.wait_gone(DEATH, &[]);
    editor.check();
}

#[test]
fn nothing_outlives_a_killed_diglot() {
    killed("long_command", |_| {});
}

#[test]
fn nothing_outlives_a_killed_diglot_when_the_agent_is_stopped() {
    killed("long_command", |editor| send(editor.family.of("demo-agent"), Signal::STOP));
}

#[test]
fn nothing_outlives_a_killed_diglot_when_agent_and_command_ignore_all_they_can() {
    killed("stubborn_command", |_| {});
}

#[test]
fn nothing_outlives_a_killed_diglot_when_a_stubborn_agent_is_stopped() {
    killed("stubborn_command", |editor| send(editor.family.of("demo-agent"), Signal::STOP));
}

#[test]
fn nothing_outlives_a_diglot_that_is_killed_with_several_sessions() {
    let mut editor = Setup::fake("long_command").start();
    running(&mut editor, "long_command");
    std::fs::remove_file(editor.path("command.pid")).unwrap();
    running(&mut editor, "long_command");
    editor.kill();
    editor.family.wait_gone(DEATH, &[]);
}

#[test]
fn an_editor_that_closes_its_end_is_answered_and_nothing_is_left() {
    for script in ["long_command", "stubborn_command"] {
        let mut editor = Setup::fake(script).start();
        let (_, prompt, _) = running(&mut editor, script);
        editor.close_stdin();
        let turn = editor.answer_to(prompt);
        assert_eq!((turn.calls(), turn.stop()), (vec!["failed"], "cancelled"), "{script}");
        assert_eq!(editor.see_end(), [] as [Value; 0], "{script}");
    }
}

#[test]
fn an_editor_that_leaves_with_a_question_open_allows_nothing() {
    let mut editor = Setup::fake("ask").start();
    let session = editor.open();
    let prompt = editor.send_prompt(&session, "go");
    editor.question(&session);
    editor.close_stdin();
    assert_eq!(editor.answer_to(prompt).stop(), "cancelled");
    editor.see_end();
    assert!(!editor.path("asked.txt").exists());
}

#[test]
fn an_editor_that_leaves_while_an_agent_starts_leaves_nothing_behind() {
    let mut editor = Setup::fake("slow_start").start();
    let id = editor.ask_for_session(&editor.path(""));
    editor.close_stdin();
    assert_eq!(editor.answer_to(id).error()["code"], -32800);
    editor.see_end();
}

#[test]
fn an_editor_that_no_longer_reads_ends_diglot() {
    let steps = [json!({"do": "turn"}), json!({"do": "text", "pieces": ["word "], "times": 1_000_000})];
    let mut editor = Setup::script(&steps).start();
    let session = editor.open();
    editor.send_prompt(&session, "go");
    editor.until(|line| is_update(line, "agent_message_chunk"));
    editor.close_stdout();
    editor.wait();
    editor.family.wait_gone(SOME_TIME, &[]);
    editor.check();
}

#[test]
fn signals_end_diglot_in_order() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut editor = Setup::fake("long_command").start();
        let (_, prompt, _) = running(&mut editor, "long_command");
        send(editor.pid(), signal);
        let turn = editor.answer_to(prompt);
        assert_eq!((turn.calls(), turn.stop()), (vec!["failed"], "cancelled"), "{signal:?}");
        editor.see_end();
    }
}
