//! `--trace FILE`: both wires, and no secret.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::editor::Setup;

#[test]
fn a_trace_records_both_wires_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace-%p.ndjson");
    let (key, shape, token) = ("correct-horse-battery", "sk-ant-api03-0123456789abcdef0123", "mcp-token-4711-4711");
    let steps = [
        json!({"do": "turn"}),
        json!({"do": "raw", "text": format!("warning: key {key} is old\n")}),
        json!({"do": "tool", "name": "Bash", "input": {"command": format!("curl -H 'Authorization: Bearer {shape}'")}}),
        json!({"do": "ask", "deny": [{"do": "text", "text": "Refused."}]}),
        json!({"do": "text", "pieces": [format!("The key is {key}.")]}),
    ];
    let mut editor = Setup::script(&steps)
        .flags([std::ffi::OsStr::new("--trace"), file.as_os_str()])
        .env("ANTHROPIC_API_KEY", key)
        .start();
    let server = json!({"name": "s", "command": "/bin/true", "args": [], "env": [{"name": "TOKEN", "value": token}]});
    let id = editor.ask("session/new", json!({"cwd": editor.path(""), "mcpServers": [server]}));
    let session = editor.answer_to(id).outcome.unwrap()["sessionId"].as_str().unwrap().to_owned();
    let prompt = editor.send_prompt(&session, &format!("Use {key} and {shape}."));
    let question = editor.question(&session);
    editor.choose(&question, "reject_once");
    // The conversation itself is not masked.
    assert!(editor.answer_to(prompt).text().ends_with(&format!("The key is {key}.")));
    let pid = editor.pid().as_raw_nonzero();
    editor.leave();

    let file = folder.path().join(format!("trace-{pid}.ndjson"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&file).unwrap();
    for secret in [key, shape, token] {
        assert!(!text.contains(secret), "{secret} is in the trace");
    }
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&records[0]["trace"], &records[0]["pid"]), (&json!(1), &json!(pid)));
    let has = |wire: &str, dir: &str, path: &str, value: &str| {
        let found = records.iter().any(|record| {
            record["wire"] == wire && record["dir"] == dir && record["line"].pointer(path) == Some(&json!(value))
        });
        assert!(found, "{wire} {dir}: no line has {value} at {path}");
    };
    has("near", "in", "/method", "initialize");
    has("near", "in", "/method", "session/prompt");
    has("near", "out", "/method", "session/request_permission");
    has("near", "out", "/result/stopReason", "end_turn");
    has("far", "out", "/request/subtype", "initialize");
    has("far", "out", "/type", "user");
    has("far", "out", "/response/response/behavior", "deny");
    has("far", "in", "/request/subtype", "can_use_tool");
    has("far", "in", "/type", "result");
    let noise: Vec<&Value> = records.iter().filter(|record| record["noise"].is_string()).collect();
    assert_eq!((noise.len(), &noise[0]["noise"]), (1, &json!("warning: key *** is old")));
    let events: Vec<&str> = records.iter().filter_map(|record| record["event"].as_str()).collect();
    assert_eq!(events, ["started", "started", "exit", "exit"], "diglot's start, the agent's, and their ends");
    let times: Vec<f64> = records.iter().filter_map(|record| record["t_ms"].as_f64()).collect();
    assert!(times.is_sorted(), "{times:?}");
}
