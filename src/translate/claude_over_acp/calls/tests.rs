use super::*;
use serde_json::json;

/// A call of which all these were said.
fn call(said: &[Value]) -> Call {
    let mut call = Call::new("c");
    for update in said {
        let raw = serde_json::value::to_raw_value(update).unwrap_or_else(|e| panic!("{e}"));
        call.merge(&raw);
    }
    call
}

fn texts(text: &str) -> Value {
    json!([{"type":"content","content":{"type":"text","text":text}}])
}

#[test]
fn codebuddy_sends_its_arguments_in_pieces_and_goes_back_to_pending() {
    let said = [
        json!({"sessionUpdate":"tool_call","title":"Bash","kind":"other","status":"in_progress","input":{},"rawInput":{},
            "_meta":{"codebuddy.ai/toolName":"Bash"}}),
        json!({"sessionUpdate":"tool_call_update","rawInput":{"command":"echo p"},"content":texts("{\"command\":\"echo p")}),
        json!({"sessionUpdate":"tool_call_update","rawInput":{"command":"echo persisted"},"content":texts("ersisted\"}")}),
    ];
    let mut now = call(&said);
    assert!(now.content.is_empty() && now.output.is_none(), "{now:?}");
    assert!(!now.input_is_partial());
    let more = [
        json!({"sessionUpdate":"tool_call","status":"pending","rawInput":{"command":"echo persisted","description":"run it"},
            "title":"`echo persisted`","kind":"execute","content":texts("run it")}),
        json!({"sessionUpdate":"tool_call_update","status":"completed",
            "rawOutput":{"type":"text","text":"Exited with code 0. Final output:\n\npersisted\n"}}),
    ];
    for update in &more {
        now.merge(&serde_json::value::to_raw_value(update).unwrap_or_else(|e| panic!("{e}")));
    }
    assert_eq!(now.name.as_deref(), Some("Bash"));
    assert_eq!(now.kind.as_deref(), Some("execute"));
    assert_eq!(now.first_title, "Bash");
    assert_eq!(now.status, Status::Completed);
    assert_eq!(now.output, None, "what the second announcement shows is no output");
}

#[test]
fn kimi_sends_its_arguments_again_and_again_and_asks_without_them() {
    let said = [
        json!({"sessionUpdate":"tool_call","title":"Bash","kind":"execute","status":"pending","content":texts("")}),
        json!({"sessionUpdate":"tool_call_update","status":"in_progress","content":texts("{\"command\":\"echo ba")}),
        json!({"sessionUpdate":"tool_call_update","status":"in_progress","content":texts("{\"command\":\"echo bad; exit 3\"}")}),
        json!({"title":"Bash","content":texts("Requesting approval to Running: echo bad; exit 3")}),
    ];
    let now = call(&said[..2]);
    assert!(!now.has_input() && now.input_is_partial());
    let now = call(&said);
    assert!(now.has_input());
    assert_eq!(now.raw_input, Some(json!({"command":"echo bad; exit 3"})));
    assert_eq!(now.output, None);
    // After the answer they come once more, with `rawInput`.
    let mut all = said.to_vec();
    all.push(json!({"sessionUpdate":"tool_call_update","title":"Running: echo bad; exit 3","status":"in_progress",
        "rawInput":{"command":"echo bad; exit 3"},"content":texts("{\"command\":\"echo bad; exit 3\"}")}));
    all.push(json!({"sessionUpdate":"tool_call_update","content":[{"type":"terminal","terminalId":"term_3"}]}));
    all.push(json!({"sessionUpdate":"tool_call_update","status":"failed","content":[{"type":"terminal","terminalId":"term_3"}]}));
    let now = call(&all);
    assert_eq!(now.status, Status::Failed);
    assert_eq!(now.output, Some(vec![Content::Terminal { id: "term_3".into() }]));
}

#[test]
fn geminis_question_is_the_first_word_of_a_call_and_its_text_the_arguments() {
    let now = call(&[json!({"status":"pending","title":"echo (probe MCP Server)",
        "content":texts("{\"text\":\"hey\"}"),"locations":[],"kind":"other"})]);
    assert_eq!(now.raw_input, Some(json!({"text":"hey"})));
    let now = call(&[
        json!({"sessionUpdate":"tool_call","status":"in_progress","title":"echo shell_ok","kind":"execute",
            "content":texts("[current working directory /w] (run it)")}),
        json!({"sessionUpdate":"tool_call_update","status":"completed","title":"echo shell_ok","content":[],"kind":"execute"}),
    ]);
    assert_eq!(now.output, Some(vec![]));
}

#[test]
fn json_that_a_tool_puts_out_is_output() {
    let now = call(&[
        json!({"sessionUpdate":"tool_call","title":"bash","kind":"execute","rawInput":{"command":"cat x.json"}}),
        json!({"sessionUpdate":"tool_call_update","status":"in_progress","content":texts("{\"a\":1}")}),
    ]);
    assert_eq!(now.output, Some(vec![Content::Text("{\"a\":1}".into())]));
    let now = call(&[json!({"sessionUpdate":"tool_call_update","status":"completed","content":texts("{\"a\":1}")})]);
    assert_eq!(now.output, Some(vec![Content::Text("{\"a\":1}".into())]));
}

#[test]
fn a_call_that_ended_stays_ended_and_nothing_known_is_lost() {
    let now = call(&[
        json!({"sessionUpdate":"tool_call","title":"x","kind":"edit","status":"in_progress","rawInput":{"a":1},
            "locations":[{"path":"/f","line":null}],"content":[{"type":"diff","path":"/f","oldText":null,"newText":"n"}]}),
        json!({"sessionUpdate":"tool_call","title":"x","kind":"other","status":"pending","rawInput":{},"locations":[]}),
        json!({"sessionUpdate":"tool_call_update","title":null,"kind":5,"status":"failed","rawInput":null,"content":texts("no")}),
        json!({"sessionUpdate":"tool_call_update","status":"in_progress","content":{}}),
    ]);
    assert_eq!(now.status, Status::Failed);
    assert_eq!(now.kind.as_deref(), Some("edit"));
    assert_eq!(now.title, "x");
    assert_eq!(now.raw_input, Some(json!({"a":1})));
    assert_eq!(now.locations, [("/f".to_owned(), None)]);
    assert_eq!(now.diffs().collect::<Vec<_>>(), [("/f", None, "n")]);
    assert_eq!(now.output, Some(vec![Content::Text("no".into())]));
}

#[test]
fn copilots_question_adds_to_the_arguments() {
    let now = call(&[
        json!({"sessionUpdate":"tool_call","title":"Editing /f","kind":"edit","status":"pending",
            "rawInput":{"path":"/f","old_str":"beta","new_str":"BETA"}}),
        json!({"title":"Edit file","kind":"edit","status":"pending","rawInput":{"fileName":"/f","diff":"--- a"}}),
    ]);
    assert_eq!(
        now.raw_input,
        Some(json!({"path":"/f","old_str":"beta","new_str":"BETA","fileName":"/f","diff":"--- a"}))
    );
}

#[test]
fn output_of_a_display_terminal_is_collected() {
    let now = call(&[
        json!({"sessionUpdate":"tool_call","kind":"execute","title":"echo bad; exit 3","status":"in_progress",
            "content":[{"type":"terminal","terminalId":"c"}],"_meta":{"terminal_info":{"cwd":"/w","terminal_id":"c"}}}),
        json!({"sessionUpdate":"tool_call_update","_meta":{"terminal_output":{"terminal_id":"c","data":"out\n"}}}),
        json!({"sessionUpdate":"tool_call_update","name":"exec_command","status":"failed","_meta":{
            "terminal_output_delta":{"data":"bad\n","terminal_id":"c"},"terminal_exit":{"exit_code":3,"signal":null}}}),
    ]);
    assert_eq!(now.terminal.text(), "out\nbad\n");
    assert_eq!(now.exit, Some(Exit { code: Some(3) }));
    assert_eq!(now.name.as_deref(), Some("exec_command"));
}

#[test]
fn endless_output_keeps_its_beginning_and_end() {
    let mut kept = Bounded::default();
    for _ in 0..200_000 {
        kept.push("0123456789é");
    }
    kept.push("THE END");
    let text = kept.text();
    assert!(text.len() <= HEAD + TAIL + 64, "{}", text.len());
    assert!(text.starts_with("0123456789é0") && text.ends_with("THE END"));
    let marker = format!("\n[{} bytes left out]\n", 200_000 * 12 + 7 - (text.len() - text_of_marker(&text)));
    assert!(text.contains(&marker), "{marker}");
}

fn text_of_marker(text: &str) -> usize {
    let from = text.find("\n[").unwrap_or_default();
    text[from + 1..].find("]\n").map_or(0, |to| to + 3)
}

#[test]
fn half_a_character_does_not_cost_the_message() {
    let raw = RawValue::from_string(
        r#"{"sessionUpdate":"tool_call_update","status":"completed","rawOutput":"a\ud83d b\\ud83d \ud83d\ude00"}"#
            .into(),
    )
    .unwrap_or_else(|e| panic!("{e}"));
    let mut now = Call::new("c");
    now.merge(&raw);
    assert_eq!(now.raw_output, Some(json!("a\u{fffd} b\\ud83d \u{1f600}")));
    assert_eq!(now.status, Status::Completed);
}

#[test]
fn the_last_piece_of_the_arguments_alone_is_no_output() {
    let now = call(&[
        json!({"sessionUpdate":"tool_call","title":"AskUserQuestion","kind":"other","status":"in_progress","rawInput":{}}),
        json!({"sessionUpdate":"tool_call_update","rawInput":{"questions":[{"multiSelect":false}]},"content":texts("false}]}")}),
    ]);
    assert_eq!(now.output, None);
}
