//! `diglot acp --agent io`: an agent that speaks ACP itself, at the other end of real pipes.

use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::editor::{Editor, Setup, is_question, is_update};
use super::family::{pid_in, send};

/// With the agent of `tests/fakes/acp_agent.sh`, which is started in this test's folder.
fn start() -> Editor {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes/acp_agent.sh");
    let setup = Setup::command(["/bin/sh".into(), script.into_os_string()]).flags(["--agent", "io"]);
    setup.in_its_folder().start()
}

fn works(editor: &mut Editor, session: &str) {
    let turn = editor.prompt(session, "hello");
    assert_eq!((turn.text().as_str(), turn.stop()), ("You are welcome.", "end_turn"));
}

#[test]
fn what_is_said_passes_both_ways() {
    let mut editor = start();
    let (one, other) = (editor.open(), editor.open());
    assert_ne!(one, other);
    works(&mut editor, &one);
    works(&mut editor, &other);
    let id = editor.ask("session/list", json!({}));
    // The fake does not answer it; the end does.
    works(&mut editor, &one);
    editor.tell("$/cancel_request", json!({"requestId": id}));
    let pids = std::fs::read_to_string(editor.path("agent.pid")).unwrap();
    assert_eq!(pids.lines().count(), 1, "one process has both sessions");
    editor.leave_unanswered();
}

#[test]
fn a_refused_call_that_the_agent_forgets_has_failed() {
    let mut editor = start();
    let session = editor.open();
    let prompt = editor.send_prompt(&session, "ask");
    let before = editor.until(is_question);
    assert!(is_update(&before[0], "tool_call"), "the call is announced before it is asked about");
    editor.choose(&before[before.len() - 1], "reject_once");
    let turn = editor.answer_to(prompt);
    assert_eq!((turn.stop(), turn.calls()), ("end_turn", vec!["failed"]));
    assert!(!editor.path("file-0").exists());
    editor.leave();
}

#[test]
fn two_questions_are_answered_in_the_other_order() {
    let mut editor = start();
    let session = editor.open();
    let prompt = editor.send_prompt(&session, "ask twice");
    let (first, second) = (editor.question(&session), editor.question(&session));
    editor.choose(&second, "allow_once");
    editor.choose(&first, "reject_once");
    let turn = editor.answer_to(prompt);
    assert_eq!((turn.stop(), turn.calls()), ("end_turn", vec!["failed", "completed"]));
    assert!(!editor.path("file-0").exists() && editor.path("file-1").exists());
    editor.leave();
}

#[test]
fn a_cancel_answers_the_open_question_and_the_late_answer_counts_for_nothing() {
    let mut editor = start();
    let session = editor.open();
    let prompt = editor.send_prompt(&session, "ask");
    let question = editor.question(&session);
    editor.cancel(&session);
    editor.until(|line| line["method"] == "$/cancel_request");
    editor.choose(&question, "allow_once");
    let turn = editor.answer_to(prompt);
    assert_eq!((turn.stop(), turn.calls()), ("cancelled", vec!["failed"]));
    works(&mut editor, &session);
    assert!(!editor.path("file-0").exists());
    editor.leave();
}

#[test]
fn a_killed_agent_fails_its_prompt_once_and_comes_back() {
    let mut editor = start();
    let (session, other) = (editor.open(), editor.open());
    let prompt = editor.send_prompt(&session, "die");
    let waits = editor.send_prompt(&session, "hello");
    let turn = editor.answer_to(prompt);
    assert_eq!((turn.text().as_str(), turn.calls()), ("I begin.", vec!["failed"]));
    let error = turn.error();
    assert_eq!((&error["code"], &error["data"]["signal"]), (&json!(-32603), &json!(9)));
    assert!(error["message"].as_str().unwrap().contains("out of memory in the fake"), "{error}");
    // Its history comes again, and the editor has it.
    let turn = editor.answer_to(waits);
    assert_eq!((turn.text().as_str(), turn.stop()), ("You are welcome.", "end_turn"));
    works(&mut editor, &other);
    let pids = std::fs::read_to_string(editor.path("agent.pid")).unwrap();
    assert_eq!(pids.lines().count(), 2);
    editor.leave();
}

#[test]
fn an_agent_that_dies_between_two_turns_is_not_missed() {
    let mut editor = start();
    let session = editor.open();
    works(&mut editor, &session);
    let pid = pid_in(&editor.path("agent.pid"));
    send(pid, Signal::KILL);
    // Its death may be noticed before the next prompt or only by it.
    let turn = editor.prompt(&session, "hello");
    if let Ok(result) = &turn.outcome {
        assert_eq!(result["stopReason"], "end_turn");
    }
    works(&mut editor, &session);
    editor.leave();
}

#[test]
fn an_editor_that_leaves_in_the_middle_of_a_turn_takes_everything_with_it() {
    let mut editor = start();
    let session = editor.open();
    editor.send_prompt(&session, "hang");
    editor.until(|line| is_update(line, "agent_message_chunk"));
    let rest = editor.leave();
    let last = rest.last().unwrap();
    assert_eq!(last["result"]["stopReason"], "cancelled", "{last}");
}

#[test]
fn an_agent_that_ignores_its_end_is_gone_all_the_same() {
    let mut editor = start();
    let session = editor.open();
    editor.send_prompt(&session, "deaf");
    editor.until(|line: &Value| is_update(line, "agent_message_chunk"));
    editor.leave();
}

#[test]
fn a_killed_diglot_leaves_no_agent() {
    let mut editor = start();
    let session = editor.open();
    editor.send_prompt(&session, "deaf");
    editor.until(|line: &Value| is_update(line, "agent_message_chunk"));
    editor.kill();
    editor.family.wait_gone(std::time::Duration::from_secs(10), &[]);
}
