use super::*;
use serde_json::{json, value::to_raw_value};

fn call(id: &str, said: &[Value]) -> Call {
    let mut call = Call::new(id);
    for update in said {
        call.merge(&to_raw_value(update).unwrap_or_else(|e| panic!("{e}")));
    }
    call
}

/// The uses and the results of a call in the session `/w` with the MCP server `probe`.
fn rendered(id: &str, said: &[Value]) -> (Vec<ToolUse>, Vec<ToolResult>) {
    let servers = ["probe".to_owned()];
    let context = Context { cwd: Path::new("/w"), mcp_servers: &servers };
    let call = call(id, said);
    let uses = tool_uses(&call, &context);
    let results = results(&call, &uses);
    assert_eq!(uses.len(), results.len());
    (uses, results)
}

/// `NAME {input}` and the result's text, with `!` before a failure's.
fn short(said: &[Value]) -> (String, String) {
    let (uses, results) = rendered("c", said);
    assert_eq!(uses.len(), 1, "{uses:?}");
    let mark = if results[0].is_error { "!" } else { "" };
    (format!("{} {}", uses[0].name, sorted(&uses[0].input)), format!("{mark}{}", results[0].content))
}

/// The JSON with its keys in order, however the map keeps them.
fn sorted(input: &Map<String, Value>) -> String {
    let input: std::collections::BTreeMap<_, _> = input.iter().collect();
    serde_json::to_string(&input).unwrap_or_else(|e| panic!("{e}"))
}

fn pair(tool_use: &str, result: &str) -> (String, String) {
    (tool_use.to_owned(), result.to_owned())
}

fn texts(text: &str) -> Value {
    json!([{"type":"content","content":{"type":"text","text":text}}])
}

#[test]
fn gemini_shell_shows_no_output() {
    let said = [
        json!({"status":"pending","title":"echo cp > t","content":texts("[current working directory /w] (run it)"),"kind":"execute"}),
        json!({"sessionUpdate":"tool_call_update","status":"completed","title":"echo cp > t","content":[],"kind":"execute"}),
    ];
    assert_eq!(short(&said), pair(r#"Bash {"command":"echo cp > t"}"#, ""));
    let failed = [json!({"sessionUpdate":"tool_call_update","status":"failed","kind":"execute",
        "content":texts("params must have required property 'command'")})];
    assert_eq!(short(&failed), pair(r#"Bash {"command":""}"#, "!params must have required property 'command'"));
}

#[test]
fn gemini_reads_searches_and_lists() {
    let said = |id, title, kind, path: &str| {
        let locations = if path.is_empty() { json!([]) } else { json!([{"path":path}]) };
        let (uses, _) = rendered(
            id,
            &[json!({"sessionUpdate":"tool_call","status":"in_progress","title":title,"content":[],
            "locations":locations,"kind":kind})],
        );
        format!("{} {}", uses[0].name, sorted(&uses[0].input))
    };
    assert_eq!(said("read_file__fc_1_0", "t_a.txt", "read", "/w/t_a.txt"), r#"Read {"file_path":"/w/t_a.txt"}"#);
    assert_eq!(said("grep_search__fc_1_0", "'alpha'", "search", ""), r#"Grep {"pattern":"alpha"}"#);
    assert_eq!(said("list_directory__fc_1_1", ".", "search", ""), r#"Glob {"path":"/w","pattern":"*"}"#);
    assert_eq!(
        said("update_topic__fc_1_0", "Update topic to: \"T\"", "think", ""),
        r#"update_topic {"description":"Update topic to: \"T\""}"#
    );
}

#[test]
fn gemini_changes_are_reduced_and_told() {
    let diff = json!([{"type":"diff","path":"/w/a","oldText":"alpha\nbeta\ngamma\n","newText":"alpha\nBETA\ngamma\n"}]);
    let said = [
        json!({"status":"pending","title":"a: beta => BETA","content":diff,"kind":"edit"}),
        json!({"sessionUpdate":"tool_call_update","status":"completed","content":diff,"kind":"edit"}),
    ];
    let (uses, results) = rendered("replace__fc_1_0", &said);
    assert_eq!(uses[0].name, "Edit");
    assert_eq!(results[0].content, "The file /w/a has been updated successfully.");
    let structured = results[0].structured.clone().unwrap_or_default();
    assert_eq!(structured["structuredPatch"][0]["lines"], json!([" alpha", "-beta", "+BETA", " gamma"]));
    let new = json!([{"type":"diff","path":"/w/n","oldText":"","newText":"one\ntwo\n"}]);
    let said = [json!({"sessionUpdate":"tool_call_update","status":"completed","content":new,"kind":"edit"})];
    assert_eq!(
        short(&said),
        pair(r#"Write {"content":"one\ntwo\n","file_path":"/w/n"}"#, "File created successfully at: /w/n")
    );
}

#[test]
fn a_place_that_is_there_twice_gets_more_lines() {
    let block = "x\nx\nx\nx\nsame\nx\nx\nx\nx\n";
    let old = format!("{block}middle\n{block}");
    let new = format!("{block}middle\n{}", block.replace("same", "other"));
    let (from, to) = changed_part(&old, &new);
    assert_eq!(old.matches(from).count(), 1);
    assert!(from.len() < old.len());
    assert_eq!(old.replacen(from, to, 1), new);
    assert_eq!(changed_part("a\n", "a\nb\n"), ("a\n", "a\nb\n"));
    assert_eq!(changed_part("b", "a\nb"), ("b", "a\nb"));
    // Nothing around it can be replaced, so the whole is.
    assert_eq!(changed_part("a\na\n", "a\na\na\n"), ("a\na\n", "a\na\na\n"));
}

#[test]
fn grok_says_output_in_bytes_and_the_exit_code_beside_it() {
    let mut said = vec![
        json!({"sessionUpdate":"tool_call","title":"run_terminal_command","rawInput":{"command":"echo bad; exit 3","description":"run it"},
            "_meta":{"x.ai/tool":{"name":"run_terminal_command","kind":"execute"}}}),
        json!({"sessionUpdate":"tool_call_update","kind":"execute","title":"Execute `echo bad; exit 3`","content":texts("run it"),
            "rawInput":{"variant":"Bash","command":"echo bad; exit 3","description":"run it","is_background":false}}),
        json!({"sessionUpdate":"tool_call_update","status":"completed","rawOutput":{"type":"Bash","output":[98,97,100,10],
            "output_for_prompt":"exit: 3\nbad\n","exit_code":3}}),
    ];
    let expected = pair(r#"Bash {"command":"echo bad; exit 3","description":"run it"}"#, "!Exit code 3\nbad\n");
    assert_eq!(short(&said), expected);
    said[2]["content"] = texts("bad\n");
    assert_eq!(short(&said), expected);
    said[2] =
        json!({"sessionUpdate":"tool_call_update","status":"failed","content":texts("User rejected the execution")});
    assert_eq!(short(&said).1, "!User rejected the execution");
}

#[test]
fn grok_and_the_others_name_an_mcp_tool_in_their_own_ways() {
    let expected = r#"mcp__probe__echo {"text":"hey"}"#;
    let grok = [
        json!({"sessionUpdate":"tool_call","title":"use_tool","rawInput":{"tool_name":"probe__echo","tool_input":{"text":"hey"}},
            "_meta":{"x.ai/tool":{"name":"use_tool"}}}),
        json!({"sessionUpdate":"tool_call_update","status":"completed",
            "rawOutput":{"type":"MCP","tool_name":"echo","server_name":"probe","output":{"OkayOutput":"echo:hey PROBE=1"}}}),
    ];
    assert_eq!(short(&grok), pair(expected, "echo:hey PROBE=1"));
    let gemini = [
        json!({"status":"pending","title":"echo (probe MCP Server)","content":texts("{\"text\":\"hey\"}"),"kind":"other"}),
        json!({"sessionUpdate":"tool_call_update","status":"completed","title":"echo (probe MCP Server)",
            "content":texts("echo:hey PROBE=1"),"kind":"other"}),
    ];
    assert_eq!(short(&gemini), pair(expected, "echo:hey PROBE=1"));
    let with_input = |update: Value| short(&[update]).0;
    let codebuddy =
        json!({"sessionUpdate":"tool_call","title":"mcp__probe__echo","kind":"other","rawInput":{"text":"hey"}});
    let opencode = json!({"sessionUpdate":"tool_call","title":"probe_echo","kind":"other","rawInput":{"text":"hey"}});
    let copilot = json!({"sessionUpdate":"tool_call","title":"probe-echo","kind":"other","rawInput":{"text":"hey"}});
    let codex = json!({"sessionUpdate":"tool_call","kind":"execute","title":"mcp.probe.echo",
        "rawInput":{"server":"probe","tool":"echo","arguments":{"text":"hey"}},"_meta":{"is_mcp_tool_call":true}});
    for update in [codebuddy, opencode, copilot, codex] {
        assert_eq!(with_input(update), expected);
    }
    // No server of the session.
    let other = json!({"sessionUpdate":"tool_call","title":"prober_echo","kind":"other","rawInput":{"text":"hey"}});
    assert_eq!(with_input(other), r#"prober_echo {"text":"hey"}"#);
}

#[test]
fn codebuddy_says_the_exit_code_in_its_text() {
    let said = |code: i64| {
        [
            json!({"sessionUpdate":"tool_call","title":"Bash","kind":"other","status":"in_progress","rawInput":{},
            "_meta":{"codebuddy.ai/toolName":"Bash"}}),
            json!({"sessionUpdate":"tool_call","status":"pending","rawInput":{"command":"x","description":"run it"},"title":"`x`",
            "kind":"execute","content":texts("run it")}),
            json!({"sessionUpdate":"tool_call_update","status":"completed",
            "rawOutput":{"type":"text","text":format!("Exited with code {code}. Final output:\n\nbad\n")}}),
        ]
    };
    assert_eq!(short(&said(3)), pair(r#"Bash {"command":"x","description":"run it"}"#, "!Exit code 3\nbad\n"));
    assert_eq!(short(&said(0)).1, "bad\n");
    let edit = [
        json!({"sessionUpdate":"tool_call","status":"pending","kind":"edit","title":"Edit `/w/a`",
        "rawInput":{"file_path":"/w/a","old_string":"beta","new_string":"BETA"},
        "content":[{"type":"diff","path":"/w/a","oldText":"beta","newText":"BETA"}]}),
        json!({"sessionUpdate":"tool_call_update","status":"completed","content":texts("Successfully edited file: /w/a")}),
    ];
    assert_eq!(
        short(&edit),
        pair(r#"Edit {"file_path":"/w/a","new_string":"BETA","old_string":"beta"}"#, "Successfully edited file: /w/a")
    );
}

#[test]
fn opencode_asks_with_a_patch_and_says_the_exit_code_in_its_metadata() {
    let shell = [
        json!({"sessionUpdate":"tool_call","title":"bash","kind":"execute","status":"pending","rawInput":{"cwd":"/w"}}),
        json!({"title":"echo bad; exit 3","kind":"execute","status":"pending","rawInput":{"command":"echo bad; exit 3"}}),
        json!({"sessionUpdate":"tool_call_update","status":"completed","title":"echo bad; exit 3","content":texts("bad\n"),
            "rawOutput":{"output":"bad\n","metadata":{"output":"bad\n","exit":3}}}),
    ];
    assert_eq!(short(&shell), pair(r#"Bash {"command":"echo bad; exit 3"}"#, "!Exit code 3\nbad\n"));
    let edit = [
        json!({"sessionUpdate":"tool_call","title":"edit","kind":"edit","status":"pending","locations":[],"rawInput":{}}),
        json!({"title":"/w/a","kind":"edit","status":"pending","locations":[{"path":"/w/a"}],
            "rawInput":{"filepath":"/w/a","diff":"Index: /w/a\n===\n--- /w/a\n+++ /w/a\n@@ -1,3 +1,3 @@\n alpha\n-beta\n+BETA\n gamma\n"}}),
    ];
    assert_eq!(
        short(&edit).0,
        r#"Edit {"file_path":"/w/a","new_string":"alpha\nBETA\ngamma\n","old_string":"alpha\nbeta\ngamma\n"}"#
    );
}

#[test]
fn kimi_asks_with_arguments_only_in_text() {
    let said = [
        json!({"sessionUpdate":"tool_call","title":"Bash","kind":"execute","status":"pending","content":texts("")}),
        json!({"sessionUpdate":"tool_call_update","status":"in_progress","content":texts("{\"command\":\"ls\"}")}),
        json!({"title":"Bash","content":texts("Requesting approval to Running: ls")}),
    ];
    let (uses, _) = rendered("0:call_00012_0", &said);
    assert_eq!(uses[0].input, map(&[("command", "ls")]));
    assert_eq!(uses[0].id, tool_use_id("0:call_00012_0"));
    assert!(uses[0].id.starts_with("toolu_") && uses[0].id.len() == 30, "{}", uses[0].id);
    assert_ne!(tool_use_id("0:call_00012_0"), tool_use_id("1:call_00012_0"));
    // It calls its search a reading.
    let grep = [json!({"sessionUpdate":"tool_call","title":"Grep","kind":"read","rawInput":{"pattern":"a+"}})];
    assert_eq!(short(&grep).0, r#"Grep {"pattern":"a+"}"#);
}

#[test]
fn qwen_names_its_tools_in_meta_and_writes_over() {
    let said = [
        json!({"sessionUpdate":"tool_call","status":"pending","title":"WriteFile","content":[],"kind":"edit","rawInput":{},
            "_meta":{"toolName":"write_file","phase":"preparing"}}),
        json!({"status":"pending","title":"Writing to n","kind":"edit","rawInput":{"file_path":"/w/n","content":"three\n"},
            "content":[{"type":"diff","path":"/w/n","oldText":"one\ntwo\n","newText":"three\n"}]}),
        json!({"sessionUpdate":"tool_call_update","status":"completed",
            "content":[{"type":"diff","path":"/w/n","oldText":"one\ntwo\n","newText":"three\n"}]}),
    ];
    let (uses, results) = rendered("c", &said);
    assert_eq!(
        (uses[0].name.as_str(), &uses[0].input),
        ("Write", &map(&[("file_path", "/w/n"), ("content", "three\n")]))
    );
    assert_eq!(results[0].content, "The file /w/n has been updated successfully.");
    let structured = results[0].structured.clone().unwrap_or_default();
    assert_eq!((&structured["type"], &structured["originalFile"]), (&json!("update"), &json!("one\ntwo\n")));
    let shell =
        [json!({"sessionUpdate":"tool_call_update","kind":"execute","status":"failed","rawInput":{"command":"x"},
        "content":texts("Output: bad"),"rawOutput":{"type":"shell_result","exitCode":3}})];
    assert_eq!(short(&shell).1, "!Exit code 3\nOutput: bad");
}

#[test]
fn copilot_shows_what_it_read_only_in_its_own_shape() {
    let said = [
        json!({"sessionUpdate":"tool_call","title":"Viewing /w/a","kind":"read","status":"pending","rawInput":{"path":"/w/a"}}),
        json!({"sessionUpdate":"tool_call_update","status":"completed",
            "rawOutput":{"content":"alpha\n","detailedContent":"diff --git"}}),
    ];
    assert_eq!(short(&said), pair(r#"Read {"file_path":"/w/a"}"#, "alpha\n"));
    let shell = [
        json!({"sessionUpdate":"tool_call","title":"run it","kind":"execute","status":"pending","rawInput":{"command":"exit 3"}}),
        json!({"sessionUpdate":"tool_call_update","status":"completed","content":texts("bad"),
            "rawOutput":{"content":"bad","contents":[{"type":"shell_exit","exitCode":3}]}}),
    ];
    assert_eq!(short(&shell), pair(r#"Bash {"command":"exit 3","description":"run it"}"#, "!Exit code 3\nbad"));
    let rejected = [
        shell[0].clone(),
        json!({"sessionUpdate":"tool_call_update","status":"failed",
        "rawOutput":{"message":"The user rejected this tool call.","code":"rejected"}}),
    ];
    assert_eq!(short(&rejected).1, "!The user rejected this tool call.");
}

#[test]
fn codex_shows_output_in_a_terminal_that_nobody_made() {
    let said = [
        json!({"sessionUpdate":"tool_call","kind":"execute","title":"echo bad; exit 3","status":"in_progress",
            "content":[{"type":"terminal","terminalId":"c"}],"rawInput":{"command":"echo bad; exit 3","cwd":"/w"}}),
        json!({"sessionUpdate":"tool_call_update","name":"exec_command","status":"failed","_meta":{
            "terminal_output_delta":{"data":"bad\n","terminal_id":"c"},"terminal_exit":{"exit_code":3,"signal":null}}}),
    ];
    assert_eq!(short(&said), pair(r#"Bash {"command":"echo bad; exit 3"}"#, "!Exit code 3\nbad\n"));
    let read = [
        json!({"sessionUpdate":"tool_call","name":"exec_command","kind":"read","title":"Read file '/w/a'","status":"in_progress",
            "locations":[{"path":"/w/a"}]}),
        json!({"sessionUpdate":"tool_call_update","status":"completed","rawOutput":{"exit_code":0},
            "_meta":{"terminal_output_delta":{"data":"alpha\n"}}}),
    ];
    assert_eq!(short(&read), pair(r#"Read {"file_path":"/w/a"}"#, "alpha\n"));
    let search = [
        json!({"sessionUpdate":"tool_call","name":"exec_command","kind":"search","title":"Search for 'alpha'","status":"completed",
        "rawOutput":{"exit_code":0}}),
    ];
    assert_eq!(short(&search), pair(r#"Grep {"pattern":"alpha"}"#, ""));
    let files = [
        json!({"sessionUpdate":"tool_call","name":"exec_command","kind":"read","title":"List files","status":"completed"}),
    ];
    assert_eq!(short(&files).0, r#"Glob {"path":"/w","pattern":"*"}"#);
    let several = [
        json!({"sessionUpdate":"tool_call","kind":"edit","title":"Editing files","status":"completed","content":[
        {"type":"diff","oldText":null,"newText":"x\n","path":"/w/a"},{"type":"diff","oldText":"y\n","newText":"z\n","path":"/w/b"}]}),
    ];
    let (uses, results) = rendered("call_1", &several);
    assert_eq!(
        uses.iter().map(|u| (&*u.id, &*u.name)).collect::<Vec<_>>(),
        [("call_1", "Write"), ("call_1_1", "Edit")]
    );
    assert_eq!(results[1].content, "The file /w/b has been updated successfully.");
}

#[test]
fn vibe_and_cline_put_output_where_they_like() {
    let vibe = [
        json!({"sessionUpdate":"tool_call","title":"bash: x","kind":"execute","status":"in_progress","rawInput":{"command":"x"},
            "_meta":{"tool_name":"bash"}}),
        json!({}),
        json!({"sessionUpdate":"tool_call_update","kind":"execute","status":"completed",
            "rawOutput":{"stdout":"out\n","stderr":"err\n","output":"","truncated":false}}),
    ];
    assert_eq!(short(&vibe), pair(r#"Bash {"command":"x"}"#, "out\nerr\n"));
    let cline = |output: Value, status: &str| {
        short(&[
            json!({"sessionUpdate":"tool_call","title":"run_commands: a","kind":"execute","rawInput":{"commands":["a","b c"]}}),
            json!({"sessionUpdate":"tool_call_update","status":status,"rawOutput":output}),
        ])
    };
    let ran = cline(json!([{"query":"a","result":"out\n","success":true}]), "completed");
    assert_eq!(ran.1, "out\n");
    assert!(ran.0.starts_with(r#"Bash {"command":"a\nb c""#), "{}", ran.0);
    assert_eq!(cline(json!("{\"error\":\"User rejected\"}"), "failed").1, "!User rejected");
}

#[test]
fn a_command_is_a_command_whatever_it_is_called() {
    for kind in ["read", "search", "delete", "other"] {
        let said = [
            json!({"sessionUpdate":"tool_call","title":"Read file","kind":kind,"rawInput":{"command":"rm -rf x","path":"/w"}}),
        ];
        assert_eq!(short(&said).0, r#"Bash {"command":"rm -rf x","description":"Read file"}"#, "{kind}");
    }
    let argv = |command: Value| {
        short(&[json!({"sessionUpdate":"tool_call","kind":"execute","rawInput":{"command":command}})]).0
    };
    assert_eq!(argv(json!(["bash", "-lc", "a && b"])), r#"Bash {"command":"a && b"}"#);
    assert_eq!(argv(json!(["echo", "it's", "a;b"])), r#"Bash {"command":"echo 'it'\\''s' 'a;b'"}"#);
    let args = short(&[json!({"kind":"execute","rawInput":{"command":"git","args":["push","-f"]}})]).0;
    assert_eq!(args, r#"Bash {"command":"git push -f"}"#);
    // A change does not become a reading by its name.
    let named = short(&[json!({"kind":"edit","name":"read_file","rawInput":{"file_path":"/w/a","content":"x"}})]).0;
    assert!(named.starts_with("Write "), "{named}");
}

#[test]
fn deletions_moves_pages_plans_and_helpers() {
    let said = |update: Value| short(&[update]).0;
    assert_eq!(
        said(json!({"kind":"delete","title":"Delete it","locations":[{"path":"/w/a b"}]})),
        r#"Bash {"command":"rm -- '/w/a b'","description":"Delete it"}"#
    );
    assert_eq!(
        said(json!({"kind":"move","title":"Move it","rawInput":{"source":"/w/a","destination":"/w/b"}})),
        r#"Bash {"command":"mv -- /w/a /w/b","description":"Move it"}"#
    );
    assert_eq!(
        said(json!({"kind":"fetch","title":"Get","rawInput":{"url":"https://example.com/x","prompt":"what"}})),
        r#"WebFetch {"prompt":"what","url":"https://example.com/x"}"#
    );
    assert_eq!(said(json!({"kind":"fetch","title":"Search","rawInput":{"query":"q"}})), r#"WebSearch {"query":"q"}"#);
    assert_eq!(
        said(json!({"kind":"switch_mode","title":"Ready?","content":texts("# Plan")})),
        r##"ExitPlanMode {"plan":"# Plan"}"##
    );
    assert_eq!(
        said(json!({"kind":"other","name":"ExitPlanMode","rawInput":{},"_meta":{"codebuddy.ai/planContent":"do"}})),
        r#"ExitPlanMode {"plan":"do"}"#
    );
    assert_eq!(
        said(
            json!({"kind":"think","title":"look","rawInput":{"description":"d","prompt":"p","subagent_type":"explore"}})
        ),
        r#"Task {"description":"d","prompt":"p","subagent_type":"explore"}"#
    );
    assert_eq!(
        said(json!({"kind":"other","title":"Guardian: review it!","rawInput":[1]})),
        r#"Guardian_review_it_ {"input":[1]}"#
    );
}

#[test]
fn a_patch_text_is_a_change_of_each_file() {
    let patch =
        "*** Begin Patch\n*** Add File: n.txt\n+one\n*** Update File: a.txt\n@@\n alpha\n-beta\n+BETA\n*** End Patch\n";
    let (uses, _) = rendered("c", &[json!({"kind":"edit","title":"apply_patch","rawInput":{"input":patch}})]);
    let all: Vec<_> = uses.iter().map(|u| (&*u.name, Value::Object(u.input.clone()))).collect();
    assert_eq!(
        all,
        [
            ("Write", json!({"file_path":"/w/n.txt","content":"one\n"})),
            ("Edit", json!({"file_path":"/w/a.txt","old_string":"alpha\nbeta\n","new_string":"alpha\nBETA\n"})),
        ]
    );
}

#[test]
fn nothing_is_larger_than_a_line_may_be() {
    let huge = "\"\n\u{1}".repeat(150_000);
    let said = [json!({"sessionUpdate":"tool_call_update","status":"completed","kind":"execute",
        "rawInput":{"command":format!("echo '{huge}")},"content":texts(&huge)})];
    let (uses, results) = rendered("c", &said);
    assert!(uses[0].cut);
    let command = uses[0].input["command"].as_str().unwrap_or_default();
    assert!(command.lines().last().is_some_and(|line| line.ends_with("more bytes left out]")));
    let line = json!({"content":results[0].content,"tool_use_result":results[0].structured}).to_string();
    assert!(line.len() < 800_000, "{}", line.len());
    assert!(results[0].content.ends_with("more bytes left out]"));
    let diff = json!([{"type":"diff","path":"/w/a","oldText":"o\n".repeat(150_000),"newText":"n\n".repeat(150_000)}]);
    let (uses, results) = rendered("c", &[json!({"status":"completed","kind":"edit","content":diff})]);
    assert!(Value::Object(uses[0].input.clone()).to_string().len() <= 400_000);
    assert!(json!(results[0].structured).to_string().len() <= 400_000);
}

#[test]
fn a_call_that_never_ended_has_failed() {
    let said = [json!({"sessionUpdate":"tool_call","kind":"execute","title":"x","status":"pending"})];
    assert_eq!(short(&said).1, "!The tool did not finish.");
    assert_eq!(result(&call("c", &said), &[]).content, "");
}

#[test]
fn cline_reads_several_files_and_says_its_tools_in_titles() {
    let files = |files: Value| {
        let said =
            [json!({"kind":"read","title":"read_files: {\"files\":[{\"path\":\"/w/a\"}]}","rawInput":{"files":files}})];
        rendered("c", &said).0.iter().map(|u| sorted(&u.input)).collect::<Vec<_>>()
    };
    assert_eq!(files(json!([{"path":"/w/a"}])), [r#"{"file_path":"/w/a"}"#]);
    assert_eq!(files(json!([{"path":"/w/a"},{"path":"/w/b"}])), [r#"{"file_path":"/w/a"}"#, r#"{"file_path":"/w/b"}"#]);
    let patch = "*** Begin Patch\n*** Add File: /w/n\n+one\n*** End Patch\n";
    let said = json!({"kind":"other","title":"apply_patch: {\"input\":\"***","rawInput":{"input":patch}});
    assert_eq!(short(&[said]).0, r#"Write {"content":"one\n","file_path":"/w/n"}"#);
    let copilot = json!({"kind":"read","title":"Searching for \"alpha\"","rawInput":{"pattern":"alpha"}});
    assert_eq!(short(&[copilot]).0, r#"Grep {"pattern":"alpha"}"#);
    assert_eq!(short(&[json!({"kind":"execute","title":"Terminal","rawInput":{}})]).0, r#"Bash {"command":""}"#);
}
