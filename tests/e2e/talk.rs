//! Conversations that go well: text, questions, sessions side by side, noise, dialects.

use serde_json::{Value, json};

use super::editor::{Setup, is_question, is_update};

#[test]
fn text_and_thoughts_arrive_to_the_byte() {
    let mut editor = Setup::fake("text").start();
    let session = editor.open();
    for prompt in ["go", "  zwei\n\n\tTabs,  \"quotes\" \\ and 🦀 \u{1f469}\u{200d}\u{1f4bb} \u{7f} \u{85}\r\n end  "]
    {
        let turn = editor.prompt(&session, prompt);
        assert_eq!(turn.text(), format!("You said: {prompt}"));
        assert_eq!(turn.thoughts(), "A short thought.");
        assert_eq!(turn.stop(), "end_turn");
    }
    assert_eq!(editor.leave(), [] as [Value; 0]);
}

#[test]
fn an_allowed_call_runs_and_a_refused_one_does_not() {
    let mut editor = Setup::fake("ask").start();
    let session = editor.open();
    for (kind, text, status) in [
        ("reject_once", "It was refused: ", "failed"),
        ("allow_once", "It ran.", "completed"),
        ("allow_always", "It ran.", "completed"),
    ] {
        let prompt = editor.send_prompt(&session, "go");
        let question = editor.question(&session);
        assert!(!editor.path("asked.txt").exists(), "it ran before it was allowed");
        editor.choose(&question, kind);
        let turn = editor.answer_to(prompt);
        assert!(turn.text().starts_with(text), "{kind}: {}", turn.text());
        assert_eq!((turn.calls(), turn.stop()), (vec![status], "end_turn"), "{kind}");
        assert_eq!(editor.path("asked.txt").exists(), kind != "reject_once", "{kind}");
        _ = std::fs::remove_file(editor.path("asked.txt"));
    }
    // What was allowed always is not asked again.
    let turn = editor.prompt(&session, "again");
    assert_eq!((turn.text().as_str(), turn.lines.iter().any(is_question)), ("It ran.", false));
    editor.leave();
}

#[test]
fn an_answer_that_allows_nothing_refuses() {
    let mut editor = Setup::fake("ask").start();
    let session = editor.open();
    let answers = [
        json!({"result": {"outcome": {"outcome": "selected", "optionId": "no such option"}}}),
        json!({"result": {"outcome": {"outcome": "cancelled"}}}),
        json!({"result": {"outcome": "allow"}}),
        json!({"error": {"code": -32601, "message": "no dialogs here"}}),
    ];
    for answer in answers {
        let prompt = editor.send_prompt(&session, "go");
        let mut line = editor.question(&session);
        let id = line["id"].take();
        line = answer.clone();
        line["jsonrpc"] = "2.0".into();
        line["id"] = id;
        editor.say(&line);
        let turn = editor.answer_to(prompt);
        assert_eq!((turn.calls(), turn.stop()), (vec!["failed"], "end_turn"), "{answer}");
        assert!(!editor.path("asked.txt").exists(), "{answer}");
    }
    editor.leave();
}

#[test]
fn a_cancel_withdraws_a_question_that_nobody_answers() {
    let mut editor = Setup::fake("ask").start();
    let session = editor.open();
    let prompt = editor.send_prompt(&session, "go");
    let question = editor.question(&session);
    editor.cancel(&session);
    let turn = editor.answer_to(prompt);
    assert_eq!((turn.calls(), turn.stop()), (vec!["failed"], "cancelled"));
    let withdrawn = turn.lines.iter().find(|line| line["method"] == "$/cancel_request").unwrap();
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    // An answer that comes too late allows nothing.
    editor.choose(&question, "allow_once");
    let prompt = editor.send_prompt(&session, "again");
    let question = editor.question(&session);
    assert!(!editor.path("asked.txt").exists());
    editor.choose(&question, "allow_once");
    assert_eq!(editor.answer_to(prompt).text(), "It ran.");
    editor.leave();
}

#[test]
fn questions_are_answered_in_any_order() {
    let mut editor = Setup::fake("ask_many").start();
    let session = editor.open();
    let prompt = editor.send_prompt(&session, "go");
    let questions: Vec<Value> = (0..3).map(|_| editor.question(&session)).collect();
    for (at, kind) in [(2, "allow_once"), (0, "reject_once"), (1, "allow_once")] {
        editor.choose(&questions[at], kind);
    }
    let turn = editor.answer_to(prompt);
    assert_eq!(turn.calls(), ["failed", "completed", "completed"]);
    assert_eq!((turn.text().as_str(), turn.stop()), ("All three are through.", "end_turn"));
    editor.leave();
}

#[test]
fn a_prompt_that_comes_during_a_turn_waits_for_it() {
    let mut editor = Setup::fake("ask").start();
    let session = editor.open();
    let first = editor.send_prompt(&session, "one");
    let question = editor.question(&session);
    let second = editor.send_prompt(&session, "two");
    editor.choose(&question, "allow_once");
    let turn = editor.answer_to(first);
    assert_eq!((turn.text().as_str(), turn.stop()), ("It ran.", "end_turn"));
    let question = editor.question(&session);
    editor.choose(&question, "reject_once");
    assert!(editor.answer_to(second).text().starts_with("It was refused"));
    editor.leave();
}

#[test]
fn a_question_in_one_session_holds_up_no_other() {
    let steps = [
        json!({"do": "turn"}),
        json!({"do": "if", "prompt": "ask", "then": [
            {"do": "tool", "name": "Bash", "input": {"command": "true"}},
            {"do": "ask", "allow": [{"do": "run"}, {"do": "text", "text": "Allowed."}]},
        ], "else": [{"do": "text", "text": "Heard: $prompt"}]}),
    ];
    let mut editor = Setup::script(&steps).start();
    let (asking, talking) = (editor.open(), editor.open());
    assert_ne!(asking, talking);
    let waiting = editor.send_prompt(&asking, "ask");
    let question = editor.question(&asking);
    for prompt in ["one", "two"] {
        let turn = editor.prompt(&talking, prompt);
        assert_eq!((turn.text(), turn.stop()), (format!("Heard: {prompt}"), "end_turn"));
        assert!(turn.lines.iter().all(|line| line["params"]["sessionId"] == *talking));
    }
    editor.choose(&question, "allow_once");
    let turn = editor.answer_to(waiting);
    assert_eq!((turn.text().as_str(), turn.calls()), ("Allowed.", vec!["completed"]));
    editor.leave();
}

#[test]
fn wave_is_understood() {
    let mut editor = Setup::fake("wave").flags(["--agent", "wave"]).start();
    let session = editor.open();
    for (kind, text, status) in [("allow_once", "It ran.", "completed"), ("reject_once", "You refused.", "failed")] {
        let prompt = editor.send_prompt(&session, "go");
        let before = editor.until(is_question);
        let question = &before[before.len() - 1];
        assert!(before.iter().any(|line| is_update(line, "agent_thought_chunk")), "{before:?}");
        editor.choose(question, kind);
        let turn = editor.answer_to(prompt);
        assert_eq!((turn.text().as_str(), turn.calls(), turn.stop()), (text, vec![status], "end_turn"));
    }
    editor.leave();
}

#[test]
fn what_an_agent_prints_besides_is_not_its_answer() {
    let mut editor = Setup::fake("noise").start();
    let session = editor.open();
    let turn = editor.prompt(&session, "go");
    assert_eq!((turn.text().as_str(), turn.stop()), ("one two", "end_turn"));
    editor.leave();
}

#[test]
fn an_error_of_the_api_is_told_once() {
    let mut editor = Setup::fake("api_error").start();
    let session = editor.open();
    let turn = editor.prompt(&session, "go");
    assert_eq!((turn.text().as_str(), &turn.error()["data"]["reason"]), ("", &json!("rate_limit")));
    assert_eq!(turn.error()["data"]["status"], 429);
    editor.leave();
}

#[test]
fn a_turn_that_nobody_asked_for_answers_no_prompt() {
    let mut editor = Setup::fake("background_turn").start();
    let session = editor.open();
    let first = editor.prompt(&session, "one");
    assert_eq!((first.text().as_str(), first.stop()), ("It runs in the background.", "end_turn"));
    // What follows belongs to no prompt, and the next one is answered with its own.
    let second = editor.send_prompt(&session, "two");
    let text = editor.answer_to(second).text();
    assert!(text.ends_with("It runs in the background."), "{text}");
    editor.leave();
}

#[test]
fn what_is_no_message_of_an_editor_is_answered_and_harms_nothing() {
    let mut editor = Setup::fake("text").start();
    let session = editor.open();
    for (line, id, code) in [
        (json!({"jsonrpc": "2.0", "id": "a", "method": "no/such/method"}), json!("a"), -32601),
        (
            json!({"jsonrpc": "2.0", "id": "b", "method": "session/prompt", "params": {"sessionId": "nobody"}}),
            json!("b"),
            -32002,
        ),
        (
            json!({"jsonrpc": "2.0", "id": "c", "method": "session/prompt", "params": {"sessionId": session, "prompt": "text"}}),
            json!("c"),
            -32602,
        ),
        (json!({"id": "d", "method": "session/prompt"}), json!("d"), -32600),
    ] {
        editor.say(&line);
        let answer = editor.hear().unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{answer}");
    }
    assert_eq!(editor.prompt(&session, "still here").text(), "You said: still here");
    editor.leave();
}
