//! `diglot claude` over real pipes with agents that behave as grok, codebuddy and io do.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a failure here is the failure of the test")]

#[path = "fakes/mod.rs"]
mod fakes;
#[path = "support/program.rs"]
mod program;

use std::process::Command;

use serde_json::{Value, json};

use fakes::mcp::{Answers, Server};
use program::{Host, Turn, User, signal, wait};

const AGENTS: [&str; 3] = ["grok", "codebuddy", "io"];

/// Not a test: the agent, when this binary is started as one.
#[test]
#[ignore = "is the agent that the other tests start"]
fn fake_agent() {
    fakes::serve();
}

/// A user who has this agent; `env` is TOML for its environment.
fn user(agent: &str, env: &str) -> User {
    let user = User::new(&format!("[agents.{agent}]\ncommand = \"{{home}}/{agent}\"\nenv = {{ {env} }}\n"));
    fakes::command(agent, "fake_agent", &user.home().join(agent));
    user
}

fn host_with(user: &User, agent: &str, more: &[&str]) -> Host {
    host_of(user, agent, more, |_| {})
}

fn host_of(user: &User, agent: &str, more: &[&str], set: impl FnOnce(&mut Command)) -> Host {
    let mut args = vec!["--diglot-agent", agent, "--output-format", "stream-json", "--verbose"];
    args.extend(["--input-format", "stream-json", "--permission-prompt-tool", "stdio", "--include-partial-messages"]);
    args.extend(more);
    let mut command = user.command(&args);
    set(&mut command);
    let mut host = Host::start(command);
    host.ask("i", json!({"subtype": "initialize"}));
    host.until(|line| line["type"] == "control_response");
    host
}

fn host(user: &User, agent: &str) -> Host {
    host_with(user, agent, &[])
}

fn allow(request: &Value) -> Value {
    json!({"behavior": "allow", "updatedInput": request["input"]})
}

fn deny(_: &Value) -> Value {
    json!({"behavior": "deny", "message": "not today"})
}

/// Waits for the streamed text.
fn says(host: &Host, text: &str) {
    host.until(|line| line["event"]["delta"]["text"].as_str().is_some_and(|t| t.contains(text)));
}

/// Ends a conversation: nothing is said after the last result, and nothing is left.
fn over(user: &User, host: Host) {
    let (rest, stderr, status) = host.end();
    assert!(rest.iter().all(|line| line["type"] == "system"), "{rest:#?}");
    assert!(status.success(), "{status}: {stderr}");
    user.gone();
}

fn well(turn: &Turn) -> &Turn {
    assert!(!turn.is_error(), "{:#?}\n{}", turn.lines, turn.result);
    turn
}

#[test]
fn text_and_thoughts_arrive_whole() {
    for agent in AGENTS {
        let user = user(agent, "");
        let mut host = host(&user, agent);
        let turn = host.turn("think let me see\nsay hello big world", allow);
        assert_eq!(well(&turn).text(), "hello big world", "{agent}");
        assert!(turn.asked.is_empty() && turn.calls().is_empty());
        let again = host.turn("say again", allow);
        assert_eq!(well(&again).text(), "again", "{agent}");
        over(&user, host);
    }
}

#[test]
fn a_command_that_is_allowed_runs_and_is_shown_once_with_its_output() {
    for agent in AGENTS {
        let user = user(agent, "");
        let mut host = host(&user, agent);
        let turn = host.turn("say I run it\nrun echo out; touch made\nsay done", allow);
        assert_eq!(well(&turn).text(), "done", "{agent}");
        assert!(user.at("made").exists(), "{agent}");
        let calls = turn.calls();
        assert_eq!(calls.len(), 1, "{agent}: {calls:?}");
        let (name, input, result) = &calls[0];
        assert_eq!((name.as_str(), &input["command"]), ("Bash", &json!("echo out; touch made")), "{agent}");
        assert_eq!(result.trim(), "out", "{agent}");
        assert_eq!(turn.asked.len(), 1);
        assert_eq!((&turn.asked[0]["tool_name"], &turn.asked[0]["input"]), (&json!("Bash"), input), "{agent}");
        over(&user, host);
    }
}

#[test]
fn a_command_that_fails_is_an_error_with_its_code() {
    for agent in AGENTS {
        let user = user(agent, "");
        let mut host = host(&user, agent);
        let turn = host.turn("run echo out; exit 3\nsay done", allow);
        let result = &turn.calls()[0].2;
        assert!(result.contains("out"), "{agent}: {result}");
        // io says it by the status alone.
        assert!(result.starts_with("Exit code 3") || agent == "io", "{agent}: {result}");
        over(&user, host);
    }
}

#[test]
fn a_refusal_reaches_the_model_and_the_turn_is_no_failure() {
    for agent in AGENTS {
        let user = user(agent, "");
        let mut host = host(&user, agent);
        let turn = host.turn("say I write it\nwrite made.txt hello\nsay done", deny);
        assert!(!well(&turn).result["permission_denials"].as_array().unwrap().is_empty(), "{agent}");
        assert!(!user.at("made.txt").exists(), "{agent}");
        let (name, input, result) = &turn.calls()[0];
        assert_eq!((name.as_str(), &input["content"]), ("Write", &json!("hello")), "{agent}");
        assert_eq!(result, "not today", "{agent}");
        // CodeBuddy says once more that the turn was cancelled, and it was not.
        let next = host.turn("say fine", allow);
        assert_eq!(well(&next).text(), "fine", "{agent}");
        assert_eq!(next.result["permission_denials"], json!([]));
        over(&user, host);
    }
}

#[test]
fn an_interrupt_ends_the_turn_and_the_next_one_runs() {
    for agent in AGENTS {
        let user = user(agent, "");
        let mut host = host(&user, agent);
        host.prompt("say begin\nhang\nsay never");
        says(&host, "begin");
        host.ask("stop", json!({"subtype": "interrupt"}));
        let (_, result) = host.result();
        assert_eq!(result["subtype"], "error_during_execution", "{agent}: {result}");
        // CodeBuddy would swallow it for 500 ms.
        let next = host.turn("say again", allow);
        assert_eq!(well(&next).text(), "again", "{agent}");
        over(&user, host);
    }
}

#[test]
fn an_interrupt_withdraws_the_question() {
    for agent in AGENTS {
        let user = user(agent, "");
        let mut host = host(&user, agent);
        host.prompt("run touch made\nsay done");
        let (_, asked) = host.until(|line| line["request"]["subtype"] == "can_use_tool");
        host.ask("stop", json!({"subtype": "interrupt"}));
        let (before, result) = host.result();
        let withdrawn =
            |line: &Value| line["type"] == "control_cancel_request" && line["request_id"] == asked["request_id"];
        assert!(before.iter().any(withdrawn), "{agent}: {before:#?}");
        assert_eq!(result["subtype"], "error_during_execution", "{agent}");
        // Too late.
        host.answer(&asked, json!({"behavior": "allow", "updatedInput": {}}));
        assert_eq!(well(&host.turn("say again", allow)).text(), "again", "{agent}");
        assert!(!user.at("made").exists(), "{agent}");
        over(&user, host);
    }
}

#[test]
fn prompts_that_come_together_are_answered_one_after_the_other() {
    for agent in AGENTS {
        let user = user(agent, "");
        let mut host = host(&user, agent);
        for text in ["say one", "say two", "say three"] {
            host.prompt(text);
        }
        for text in ["one", "two", "three"] {
            let (_, result) = host.result();
            assert_eq!(result["result"], text, "{agent}");
        }
        over(&user, host);
    }
}

#[test]
fn an_agent_that_dies_fails_its_turn_and_comes_back_with_the_session() {
    for agent in AGENTS {
        let user = user(agent, "");
        let mut host = host(&user, agent);
        assert_eq!(well(&host.turn("say before", allow)).text(), "before");
        let turn = host.turn("say begin\ndie", allow);
        assert!(turn.is_error(), "{agent}: {}", turn.result);
        assert!(turn.result["errors"][0].as_str().unwrap().contains("exited with status 3"), "{}", turn.result);
        // What it replays of the session is not shown again.
        let next = host.turn("say after", allow);
        assert_eq!(well(&next).text(), "after", "{agent}");
        over(&user, host);
    }
}

#[test]
fn a_session_goes_on_in_another_process() {
    for agent in AGENTS {
        let user = user(agent, "");
        let mut first = host(&user, agent);
        let turn = first.turn("say one", allow);
        let id = turn.result["session_id"].as_str().unwrap().to_owned();
        over(&user, first);
        let mut second = host_with(&user, agent, &["--resume", &id]);
        let turn = second.turn("say two", allow);
        assert_eq!(well(&turn).text(), "two", "{agent}");
        assert_eq!(turn.result["session_id"], id.as_str());
        assert!(turn.lines.iter().all(|line| !line.to_string().contains("(begin)")), "{agent}: the replay is shown");
        over(&user, second);
    }
}

#[test]
fn a_failing_model_is_a_failed_turn() {
    for (agent, said) in [("grok", "Internal error"), ("codebuddy", ""), ("io", "")] {
        let user = user(agent, "");
        let mut host = host(&user, agent);
        let turn = host.turn("fail", allow);
        assert!(turn.is_error(), "{agent}: {}", turn.result);
        assert!(turn.result.to_string().contains(said), "{agent}: {}", turn.result);
        assert_eq!(well(&host.turn("say again", allow)).text(), "again", "{agent}");
        over(&user, host);
    }
}

#[test]
fn no_process_outlives_a_host_that_leaves_or_is_killed() {
    for agent in AGENTS {
        for how in ["leaves", "TERM", "KILL"] {
            let user = user(agent, "");
            let mut host = host(&user, agent);
            host.prompt("child\nsay begin");
            says(&host, "begin");
            host.result();
            match how {
                "leaves" => {
                    // Grok takes 2 s, CodeBuddy stays for ever.
                    let (_, _, status) = host.end();
                    assert!(status.success(), "{agent}: {status}");
                }
                name => {
                    signal(host.child.id(), name);
                    wait(&mut host.child);
                }
            }
            user.gone();
        }
    }
}

#[test]
fn two_hosts_have_two_agents() {
    // A second session in one process would hang both (CodeBuddy).
    for agent in AGENTS {
        let user = user(agent, "");
        let (mut one, mut two) = (host(&user, agent), host(&user, agent));
        one.prompt("say begin\nhang");
        says(&one, "begin");
        assert_eq!(well(&two.turn("say two", allow)).text(), "two", "{agent}");
        one.ask("stop", json!({"subtype": "interrupt"}));
        one.result();
        assert_eq!(well(&one.turn("say one", allow)).text(), "one", "{agent}");
        let (_, _, _) = one.end();
        over(&user, two);
    }
}

#[test]
fn a_question_is_answered_by_the_host() {
    for agent in ["grok", "codebuddy"] {
        let user = user(agent, "");
        let mut host = host(&user, agent);
        let turn = host.turn("question", |request| {
            assert_eq!(
                (&request["tool_name"], &request["requires_user_interaction"]),
                (&json!("AskUserQuestion"), &json!(true))
            );
            let mut input = request["input"].clone();
            assert_eq!(input["questions"][0]["options"][1]["label"], "B");
            input["answers"] = json!({"Pick one?": "B"});
            json!({"behavior": "allow", "updatedInput": input})
        });
        assert!(well(&turn).text().contains("you said") && turn.text().contains('B'), "{agent}: {}", turn.text());
        assert_eq!((turn.asked.len(), turn.calls().len()), (1, 1), "{agent}: the call is shown once");
        let refused = host.turn("question", deny);
        assert!(well(&refused).text().contains("you said"), "{agent}");
        assert!(!refused.text().contains('B') && !refused.text().contains("\"A\""), "{agent}: {}", refused.text());
        over(&user, host);
    }
}

#[test]
fn a_plan_is_approved_or_sent_back_with_the_hosts_words() {
    let user = user("grok", "");
    let mut host = host(&user, "grok");
    let turn = host.turn("plan first this, then that", |request| {
        assert_eq!(request["tool_name"], "ExitPlanMode");
        assert_eq!(request["input"]["plan"], "first this, then that");
        allow(request)
    });
    assert_eq!(well(&turn).text(), "the plan was approved");
    let turn = host.turn("plan nothing", deny);
    assert_eq!(well(&turn).text(), "the plan was rejected: not today");
    over(&user, host);
}

#[test]
fn grok_is_logged_in_with_the_method_that_needs_no_person() {
    let user = user("grok", "FAKE_LOGIN = \"1\"");
    let mut host = host(&user, "grok");
    assert_eq!(well(&host.turn("say hello", allow)).text(), "hello");
    over(&user, host);
}

#[test]
fn what_only_prints_is_not_asked_about_by_grok_and_is_shown_all_the_same() {
    let user = user("grok", "");
    let mut host = host(&user, "grok");
    let turn = host.turn("run echo harmless\nsay done", deny);
    assert!(turn.asked.is_empty());
    assert_eq!(well(&turn).calls()[0].2.trim(), "harmless");
    over(&user, host);
}

#[test]
fn another_sessions_text_is_not_this_ones() {
    let user = user("grok", "");
    let mut host = host(&user, "grok");
    let turn = host.turn("foreign\nsay mine", allow);
    assert_eq!(well(&turn).text(), "mine");
    assert!(!turn.lines.iter().any(|line| line.to_string().contains("of a subagent")));
    let resent = host.turn("resend", allow);
    assert!(well(&resent).text().ends_with("tok0 tok1 tok2"), "{}", resent.text());
    over(&user, host);
}

#[test]
fn a_tool_that_there_is_none_of_leaves_no_open_call() {
    let user = user("codebuddy", "");
    let mut host = host(&user, "codebuddy");
    let turn = host.turn("unknown", allow);
    assert!(turn.is_error(), "{}", turn.result);
    assert_eq!(turn.calls().len(), 1, "it is shown, and ended");
    assert_eq!(well(&host.turn("say again", allow)).text(), "again");
    over(&user, host);
}

#[test]
fn io_says_how_a_call_ended_what_it_plans_and_why_it_stops() {
    let user = user("io", "");
    let mut host = host(&user, "io");
    for (status, said) in [("completed", "a\nb"), ("failed", "no such directory"), ("policy", "refused by policy")] {
        let turn = host.turn(&format!("update {status}\nsay done"), allow);
        assert_eq!(well(&turn).calls()[0].2, said, "{status}");
    }
    let turn = host.turn("todo one,two\nsay done", allow);
    let (name, input, _) = &well(&turn).calls()[0];
    assert_eq!((name.as_str(), &input["todos"][1]["content"]), ("TodoWrite", &json!("two")));
    for (reason, subtype, is_error) in
        [("max_tokens", "success", false), ("refusal", "success", true), ("max_turn_requests", "error_max_turns", true)]
    {
        let turn = host.turn(&format!("say so far\nstop {reason}"), allow);
        assert_eq!((&turn.result["subtype"], turn.is_error()), (&json!(subtype), is_error), "{reason}");
    }
    // The exit code is that of the last turn.
    assert_eq!(well(&host.turn("say well", allow)).text(), "well");
    over(&user, host);
}

#[test]
fn for_this_session_is_kept_by_diglot_and_never_asked_of_the_agent() {
    for agent in AGENTS {
        let user = user(agent, "");
        let mut host = host(&user, agent);
        let always = |request: &Value| json!({"behavior": "allow", "updatedInput": request["input"], "updatedPermissions": request["permission_suggestions"]});
        let turn = host.turn("run touch made", always);
        assert_eq!(turn.asked.len(), 1, "{agent}");
        let again = host.turn("run touch made", deny);
        assert!(again.asked.is_empty() && !again.is_error(), "{agent}: {:?}", again.asked);
        // Another command is another question.
        let other = host.turn("run touch other", deny);
        assert_eq!(other.asked.len(), 1, "{agent}");
        assert!(!user.at("other").exists());
        over(&user, host);
    }
}

// ---- long answers

#[test]
fn a_long_answer_is_told_whole_by_its_deltas_its_block_and_the_result() {
    let said = (0..12_000).map(|at| format!("{at}\\\"€")).collect::<Vec<_>>().join(" ");
    // A trace has whole lines.
    for trace in [false, true] {
        let user = user("io", "");
        let file = user.at("trace.ndjson");
        let args = ["--diglot-trace", file.to_str().unwrap()];
        let mut host = host_with(&user, "io", if trace { &args } else { &[] });
        let turn = host.turn(&format!("say {said}"), allow);
        let deltas = turn.lines.iter().filter_map(|line| line["event"]["delta"]["text"].as_str()).collect::<String>();
        let blocks: Vec<_> = turn.blocks("assistant", "text").map(|block| &block["text"]).collect();
        assert!(deltas.trim_end() == said);
        assert!(blocks.len() == 1 && *blocks[0] == deltas);
        assert!(well(&turn).text() == deltas);
        // Nothing of it is in the next answer.
        assert_eq!(well(&host.turn("say short", allow)).text().trim(), "short");
        over(&user, host);
    }
}

#[test]
fn a_value_at_the_end_of_a_long_answer_is_the_structured_output_and_the_line_stays_short() {
    let user = user("io", "");
    let schema = r#"{"type":"object","required":["n"],"properties":{"n":{"type":"integer"},"list":{"type":"array"}}}"#;
    let mut host = host_with(&user, "io", &["--json-schema", schema]);
    let value = json!({"n": 7, "list": vec!["x".repeat(1000); 390]});
    let turn = host.turn(&format!("say {} {value}", "\\\"word".repeat(100_000)), allow);
    assert_eq!(well(&turn).result["structured_output"], value);
    // What the Python SDK takes by default.
    assert!(turn.result.to_string().len() < 1024 * 1024, "{}", turn.result.to_string().len());
    over(&user, host);
}

// ---- MCP servers over HTTP, for an agent that has no such transport

/// What a user's program gives as `--mcp-config`.
fn mcp_config(servers: Value) -> String {
    json!({"mcpServers": servers}).to_string()
}

#[test]
fn an_agent_without_the_transport_reaches_servers_over_http() {
    for (answers, path) in
        [(Answers::Json, "/mcp"), (Answers::Events, "/mcp"), (Answers::Broken, "/mcp"), (Answers::Json, "/sse")]
    {
        let server = Server::start(answers);
        let user = user("io", "");
        let config = mcp_config(json!({"calc": server.config(path)}));
        let mut host = host_with(&user, "io", &["--mcp-config", &config]);
        let turn = host.turn("mcp", allow);
        assert_eq!(well(&turn).text(), "42", "{answers:?} {path}");
        let init = turn.lines.iter().find(|line| line["subtype"] == "init").unwrap();
        assert_eq!(init["mcp_servers"][0]["status"], "connected");
        // Another client is another conversation.
        assert_eq!(well(&host.turn("mcp", allow)).text(), "42");
        over(&user, host);
        let seen = server.seen();
        if path == "/mcp" {
            assert_eq!(seen[..2], ["POST initialize", "POST notifications/initialized"], "{seen:?}");
            assert!(seen.contains(&"DELETE".to_owned()), "the session is ended: {seen:?}");
        }
    }
}

#[cfg(feature = "https")]
#[test]
fn an_agent_without_the_transport_reaches_servers_over_https() {
    let (tls, certificate) = fakes::mcp::tls();
    for (answers, path) in
        [(Answers::Json, "/mcp"), (Answers::Events, "/mcp"), (Answers::Broken, "/mcp"), (Answers::Json, "/sse")]
    {
        let server = Server::start_over(answers, Some(tls.clone()));
        let user = user("io", "");
        let authorities = user.at("authorities.pem");
        std::fs::write(&authorities, &certificate).unwrap();
        let config = mcp_config(json!({"calc": server.config(path)}));
        let args = ["--mcp-config", &config];
        let mut host = host_of(&user, "io", &args, |command| _ = command.env("SSL_CERT_FILE", &authorities));
        assert_eq!(well(&host.turn("mcp", allow)).text(), "42", "{answers:?} {path}");
        assert_eq!(well(&host.turn("mcp", allow)).text(), "42");
        over(&user, host);
        assert!(path == "/sse" || server.seen().contains(&"DELETE".to_owned()), "{:?}", server.seen());
    }
}

#[cfg(feature = "https")]
#[test]
fn a_server_whose_certificate_nobody_vouches_for_is_not_spoken_to() {
    let (tls, _) = fakes::mcp::tls();
    let (_, other) = fakes::mcp::tls();
    let server = Server::start_over(Answers::Json, Some(tls));
    let user = user("io", "");
    for (authorities, said) in [(other.as_str(), "certificate"), ("", "SSL_CERT_FILE")] {
        let file = user.at("authorities.pem");
        std::fs::write(&file, authorities).unwrap();
        let config = mcp_config(json!({"calc": server.config("/mcp")}));
        let args = ["--mcp-config", &config];
        let mut host = host_of(&user, "io", &args, |command| _ = command.env("SSL_CERT_FILE", &file));
        let turn = host.turn("mcp", allow);
        assert!(well(&turn).text().contains(said), "{}", turn.text());
        over(&user, host);
    }
    assert_eq!(server.seen(), [""; 0], "nothing was said to it");
}

#[test]
fn what_is_secret_about_a_server_is_on_no_command_line() {
    let server = Server::start(Answers::Json);
    let user = user("io", "");
    let file = user.at("mcp.json");
    std::fs::write(&file, mcp_config(json!({"calc": server.config("/mcp")}))).unwrap();
    let trace = user.home().join("trace.ndjson");
    let mut host =
        host_with(&user, "io", &["--mcp-config", file.to_str().unwrap(), "--diglot-trace", trace.to_str().unwrap()]);
    assert_eq!(well(&host.turn("mcp", allow)).text(), "42");
    over(&user, host);
    // All that the agent was told stands in the trace, its command lines among it.
    let told = std::fs::read_to_string(trace).unwrap();
    assert!(told.contains("mcp-relay") && !told.contains(fakes::mcp::KEY.1), "{told}");
}

#[test]
fn a_server_that_cannot_be_reached_says_why() {
    let user = user("io", "");
    let server = Server::start(Answers::Json);
    let mut wrong = server.config("/mcp");
    wrong["headers"] = json!({});
    let gone = json!({"type": "http", "url": "http://127.0.0.1:1/mcp"});
    let not_sse = server.config("/mcp")["url"].clone();
    let not_sse = json!({"type": "sse", "url": not_sse, "headers": server.config("/mcp")["headers"]});
    for (config, said) in
        [(wrong, "wants another authorization (401)"), (gone, "cannot be reached"), (not_sse, "is it of type http?")]
    {
        let config = mcp_config(json!({"calc": config}));
        let mut host = host_with(&user, "io", &["--mcp-config", &config]);
        let turn = host.turn("mcp", allow);
        assert!(well(&turn).text().contains(said), "{}", turn.text());
        over(&user, host);
    }
}

#[test]
fn a_permission_tool_over_http_decides() {
    for (answers, path) in [(Answers::Json, "/mcp"), (Answers::Events, "/mcp"), (Answers::Json, "/sse")] {
        let server = Server::start(answers);
        let user = user("io", "");
        let config = mcp_config(json!({"policy": server.config(path)}));
        let args = ["--mcp-config", &config, "--permission-prompt-tool", "mcp__policy__approve"];
        let mut host = host_with(&user, "io", &args);
        let turn = host.turn("run touch made", |_| panic!("the host is asked"));
        assert_eq!(well(&turn).calls()[0].2, "not by policy", "{answers:?} {path}");
        assert!(!user.at("made").exists());
        server.will_answer(json!({"behavior": "allow"}));
        let turn = host.turn("run touch made", |_| panic!("the host is asked"));
        assert!(!well(&turn).is_error() && user.at("made").exists(), "{answers:?} {path}");
        // It is none of the agent's servers.
        assert_eq!(well(&host.turn("mcp\nsay none", allow)).text().trim(), "none");
        over(&user, host);
    }
}

#[test]
fn a_permission_tool_over_http_that_is_not_there_approves_nothing() {
    let user = user("io", "");
    for url in ["http://127.0.0.1:1/mcp", "ftp://nowhere"] {
        let config = mcp_config(json!({"policy": {"type": "http", "url": url}}));
        let args = ["--mcp-config", &config, "--permission-prompt-tool", "mcp__policy__approve"];
        let mut host = host_with(&user, "io", &args);
        let turn = host.turn("run touch made", |_| panic!("the host is asked"));
        assert!(well(&turn).calls()[0].2.contains("MCP server"), "{:?}", turn.calls());
        assert!(!user.at("made").exists());
        over(&user, host);
    }
}

// ---- Files and terminals of diglot's

/// Both serve themselves of the client where it lets them.
const SERVED: [&str; 2] = ["grok", "codebuddy"];

fn serving(user: &User, agent: &str) -> Host {
    host_with(user, agent, &["--diglot-files", "--diglot-terminals"])
}

#[test]
fn a_file_that_was_allowed_is_written_by_diglot_without_another_question() {
    for agent in SERVED {
        let user = user(agent, "");
        let mut host = serving(&user, agent);
        let turn = host.turn("write made.txt hello\nsay done", allow);
        assert_eq!(well(&turn).asked.len(), 1, "{agent}: {:?}", turn.asked);
        assert_eq!(std::fs::read_to_string(user.at("made.txt")).unwrap(), "hello", "{agent}");
        let refused = host.turn("write other.txt hello\nsay done", deny);
        assert!(!user.at("other.txt").exists() && !refused.is_error(), "{agent}");
        over(&user, host);
    }
}

#[test]
fn a_file_outside_is_not_written_though_its_call_was_allowed() {
    for agent in SERVED {
        let user = user(agent, "");
        std::os::unix::fs::symlink(user.home(), user.at("way")).unwrap();
        let mut host = serving(&user, agent);
        for path in ["../outside.txt", "way/outside.txt"] {
            let turn = host.turn(&format!("write {path} hello\nsay done"), allow);
            assert!(turn.lines.iter().any(|l| l.to_string().contains("outside")), "{agent}");
            assert!(!user.home().join("outside.txt").exists(), "{agent} {path}");
        }
        over(&user, host);
    }
}

#[test]
fn a_command_in_diglots_terminal_is_asked_about_once_and_its_output_is_the_result() {
    for agent in SERVED {
        let user = user(agent, "");
        let mut host = serving(&user, agent);
        let turn = host.turn("run echo out; echo err >&2; exit 3\nsay done", allow);
        assert_eq!(well(&turn).asked.len(), 1, "{agent}: {:?}", turn.asked);
        let (name, _, result) = &turn.calls()[0];
        assert_eq!((name.as_str(), result.trim()), ("Bash", "Exit code 3\nout\nerr"), "{agent}");
        over(&user, host);
    }
}

#[test]
fn a_command_that_the_agent_does_not_ask_about_is_asked_about_by_diglot() {
    // Grok asks nobody about what only prints; in a terminal of diglot's it is a command like any other.
    let user = user("grok", "");
    let mut host = serving(&user, "grok");
    let turn = host.turn("run echo harmless\nsay done", deny);
    assert_eq!(turn.asked.len(), 1);
    assert_eq!(turn.asked[0]["input"]["command"], "echo harmless");
    let turn = host.turn("run echo harmless\nsay done", allow);
    assert_eq!(well(&turn).calls()[0].2.trim(), "harmless");
    over(&user, host);
}

#[test]
fn an_interrupt_kills_the_commands_that_the_agent_leaves_running() {
    for agent in SERVED {
        let user = user(agent, "");
        let mut host = serving(&user, agent);
        host.prompt("run touch begun; sleep 300");
        let (_, asked) = host.until(|line| line["request"]["subtype"] == "can_use_tool");
        host.answer(&asked, allow(&asked["request"]));
        while !user.at("begun").exists() {
            std::thread::yield_now();
        }
        host.ask("stop", json!({"subtype": "interrupt"}));
        let (_, result) = host.result();
        assert_eq!(result["subtype"], "error_during_execution", "{agent}");
        let sleeps = || {
            let entries = std::fs::read_dir("/proc").map(Iterator::collect::<Vec<_>>).unwrap_or_default();
            let work = user.at("").canonicalize().unwrap();
            entries.into_iter().flatten().any(|entry| {
                let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                line.starts_with(b"sleep") && std::fs::read_link(entry.path().join("cwd")).is_ok_and(|c| c == work)
            })
        };
        // The agent lives on; what it started is ended by diglot.
        while sleeps() {
            std::thread::yield_now();
        }
        assert_eq!(well(&host.turn("say again", allow)).text(), "again", "{agent}");
        over(&user, host);
    }
}

#[test]
fn without_the_switch_nothing_is_offered() {
    for agent in SERVED {
        let user = user(agent, "");
        let mut host = host(&user, agent);
        // The agent's own shell and disk.
        let turn = host.turn("run echo out; touch made\nwrite made.txt hello\nsay done", allow);
        assert_eq!(well(&turn).asked.len(), 2, "{agent}");
        assert!(user.at("made.txt").exists());
        over(&user, host);
    }
}
