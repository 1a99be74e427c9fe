//! Command lines as hosts really give them, and the rules that they rest on.

use super::*;

const UUID: &str = "74621b04-d2db-4a10-b43a-45450504d43f";

fn try_parse(words: &[&str]) -> Result<ClaudeArgs, UsageError> {
    parse(words.iter().map(OsString::from))
}

fn args(words: &[&str]) -> ClaudeArgs {
    try_parse(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

fn command(words: &[&str]) -> Command {
    args(words).command
}

fn failure(words: &[&str]) -> String {
    try_parse(words).expect_err("it should not be understood").to_string()
}

/// What every SDK begins with.
const SDK: [&str; 5] = ["--output-format", "stream-json", "--verbose", "--input-format", "stream-json"];

fn sdk(more: &[&str]) -> ClaudeArgs {
    let all: Vec<&str> = SDK.iter().chain(more).copied().collect();
    let args = args(&all);
    assert_eq!((args.input_format, args.output_format), (InputFormat::StreamJson, OutputFormat::StreamJson));
    assert!(args.verbose && !args.print && args.headless(true));
    args
}

fn quiet(args: &ClaudeArgs) {
    assert_eq!(args.warnings, [""; 0]);
    assert_eq!(args.command, Command::Run);
}

#[test]
fn the_typescript_sdk_with_every_option() {
    let mcp = r#"{"mcpServers":{"s":{"command":"c","args":["a"]}}}"#;
    let got = sdk(&[
        "--max-thinking-tokens=2000",
        "--effort=high",
        "--max-turns=3",
        "--max-budget-usd=1.5",
        "--model=sonnet",
        "--betas=context-1m-2025-08-07",
        r#"--json-schema={"type":"object"}"#,
        "--permission-prompt-tool=stdio",
        "--allowedTools=Bash(git *),Edit,Skill(pdf)",
        "--disallowedTools=WebFetch",
        "--tools=Bash,Read",
        "--mcp-config",
        mcp,
        "--setting-sources=user,project",
        "--strict-mcp-config",
        "--permission-mode=plan",
        "--fallback-model=haiku",
        "--include-hook-events",
        "--include-partial-messages",
        "--add-dir=/a",
        "--add-dir=/b",
        "--plugin-dir=/plug",
        "--no-session-persistence",
        "--replay-user-messages",
        "--foo",
        "bar",
        "--settings",
        r#"{"permissions":{"allow":["x"]}}"#,
    ]);
    assert_eq!((got.max_thinking_tokens, got.max_turns, got.max_budget_usd), (Some(2000), Some(3), Some(1.5)));
    assert_eq!((got.effort.as_deref(), got.model.as_deref()), (Some("high"), Some("sonnet")));
    assert_eq!(got.json_schema.as_deref(), Some(r#"{"type":"object"}"#));
    assert_eq!(got.permission_prompt_tool.as_deref(), Some("stdio"));
    assert_eq!(got.allowed_tools, ["Bash(git *)", "Edit", "Skill(pdf)"]);
    assert_eq!(got.disallowed_tools, ["WebFetch"]);
    assert_eq!(got.tools, Some(vec!["Bash".into(), "Read".into()]));
    assert_eq!(got.mcp_config, [mcp]);
    assert_eq!(got.setting_sources, Some(vec!["user".into(), "project".into()]));
    assert_eq!(got.mode(), Some("plan"));
    assert_eq!(got.fallback_model.as_deref(), Some("haiku"));
    assert_eq!(got.add_dir, ["/a", "/b"]);
    assert_eq!(got.settings.as_deref(), Some(r#"{"permissions":{"allow":["x"]}}"#));
    assert!(got.strict_mcp_config && got.include_hook_events && got.include_partial_messages);
    assert!(got.no_session_persistence && got.replay_user_messages);
    assert_eq!(got.prompt, None);
    for flag in ["--betas", "--tools", "--fallback-model", "--plugin-dir", "--foo"] {
        assert_eq!(got.warnings.iter().filter(|warning| warning.starts_with(flag)).count(), 1, "{flag}");
    }
    assert_eq!(got.warnings.len(), 5, "{:?}", got.warnings);
}

#[test]
fn the_typescript_sdk_in_its_other_ways() {
    let got = sdk(&["--permission-mode=bypassPermissions", "--allow-dangerously-skip-permissions"]);
    assert_eq!(got.mode(), Some("bypassPermissions"));
    assert!(got.allow_dangerously_skip_permissions && !got.dangerously_skip_permissions);
    quiet(&got);

    let got = sdk(&["--await-initialize", "--initialize-fields=settings,disallowedTools"]);
    assert!(got.await_initialize);
    assert_eq!(got.initialize_fields, ["settings", "disallowedTools"]);
    quiet(&got);

    let got = sdk(&["--resume=abc-def", "--fork-session", "--resume-session-at=uuid-1"]);
    assert_eq!(got.resume, Some(Some("abc-def".into())));
    assert!(got.fork_session);
    assert!(matches!(got.command, Command::Refused(why) if why.starts_with("--resume-session-at")));

    let got = sdk(&["--debug-file=/d.txt", "--allowedTools=mcp__calc__add", "--mcp-config", "{}"]);
    assert!(got.debug);
    assert_eq!((got.debug_file.as_deref(), got.allowed_tools), (Some("/d.txt"), vec!["mcp__calc__add".to_owned()]));

    let got = sdk(&["--max-turns=1", "--permission-prompt-tool=stdio", "--setting-sources="]);
    assert_eq!((got.max_turns, &got.setting_sources), (Some(1), &Some(vec![])));
    quiet(&got);

    quiet(&sdk(&["--thinking=adaptive", "--thinking-display=", "--managed-settings-in-initialize", "--workload=ci"]));
}

#[test]
fn old_typescript_sdks_name_a_script_and_give_empty_values() {
    let got = args(&["/w/old/cli.mjs", "--output-format", "stream-json", "--verbose", "--print", "ping"]);
    assert_eq!((got.print, got.prompt.as_deref()), (true, Some("ping")));
    let got = args(&["C:\\sdk\\cli.js", "--output-format", "stream-json"]);
    assert_eq!(got.prompt, None);
    let got = sdk(&["--system-prompt", "", "--setting-sources", "", "--permission-mode", "default"]);
    assert_eq!((&got.system_prompt, &got.setting_sources, got.mode()), (&None, &Some(vec![]), Some("default")));
    quiet(&got);
    assert_eq!(args(&["/Users/My Name/sdk/cli.js", "--print", "ping"]).prompt.as_deref(), Some("ping"));
    // A prompt that ends like a script is one all the same.
    assert_eq!(args(&["/review src/a.js", "-p"]).prompt.as_deref(), Some("/review src/a.js"));
    assert_eq!(args(&["fix src/a.js", "-p"]).prompt.as_deref(), Some("fix src/a.js"));
    assert_eq!(args(&["a.js", "-p"]).prompt.as_deref(), Some("a.js"));
}

#[test]
fn the_python_sdks() {
    let mcp = r#"{"mcpServers": {"calc": {"type": "sdk", "name": "calc"}}}"#;
    let got = args(&[
        "--output-format",
        "stream-json",
        "--verbose",
        "--system-prompt",
        "",
        "--tools",
        "Bash,Read",
        "--allowedTools",
        "Bash(git *),Edit,Skill(pdf)",
        "--max-turns",
        "3",
        "--max-budget-usd",
        "0.5",
        "--resume=abc",
        "--mcp-config",
        mcp,
        "--setting-sources=user",
        "--input-format",
        "stream-json",
    ]);
    assert_eq!(got.system_prompt, None);
    assert_eq!(got.allowed_tools, ["Bash(git *)", "Edit", "Skill(pdf)"]);
    assert_eq!((got.max_turns, got.max_budget_usd), (Some(3), Some(0.5)));
    assert_eq!((got.resume, got.mcp_config), (Some(Some("abc".into())), vec![mcp.to_owned()]));
    assert_eq!(got.input_format, InputFormat::StreamJson);

    let got = args(&["--output-format", "stream-json", "--verbose", "--print", "--", "-ping --model x"]);
    assert_eq!((got.print, got.prompt.as_deref(), got.model.as_deref()), (true, Some("-ping --model x"), None));
    quiet(&got);
}

#[test]
fn claude_agent_acp() {
    let id = format!("--session-id={UUID}");
    let got = sdk(&[
        "--permission-prompt-tool=stdio",
        "--disallowedTools=AskUserQuestion",
        "--tools=default",
        "--setting-sources=user,project,local",
        "--permission-mode=auto",
        "--allow-dangerously-skip-permissions",
        "--include-partial-messages",
        &id,
        "--replay-user-messages",
        "",
    ]);
    assert_eq!((got.session_id.as_deref(), got.mode()), (Some(UUID), Some("auto")));
    assert_eq!((&got.prompt, &got.disallowed_tools[..]), (&None, &["AskUserQuestion".to_owned()][..]));
    assert!(got.replay_user_messages && got.include_partial_messages);
    quiet(&got);
    assert_eq!(command(&["auth", "status", "--json"]), Command::AuthStatus { json: true });
}

#[test]
fn hosts_with_flags_of_their_own() {
    // vibe-kanban
    let got = args(&[
        "-p",
        "--permission-prompt-tool=stdio",
        "--permission-mode=bypassPermissions",
        "--verbose",
        "--output-format=stream-json",
        "--input-format=stream-json",
        "--include-partial-messages",
        "--replay-user-messages",
        "--resume",
        UUID,
    ]);
    assert_eq!((got.print, got.resume.as_ref()), (true, Some(&Some(UUID.into()))));
    quiet(&got);
    let got = args(&["-p", "--verbose", "--output-format=stream-json", "--max-turns", "1", "--", "/"]);
    assert_eq!((got.prompt.as_deref(), got.max_turns), (Some("/"), Some(1)));
    // opcode, Crystal, cui
    let got = args(&["-p", "do it", "--model", "m", "--output-format", "stream-json", "--verbose", "-c"]);
    assert_eq!((got.prompt.as_deref(), got.continue_), (Some("do it"), true));
    let tool = "mcp__crystal-permissions__approve_permission";
    let got = args(&[
        "--verbose",
        "--output-format",
        "stream-json",
        "--dangerously-skip-permissions",
        "--resume",
        "id",
        "-p",
        "do it",
        "--mcp-config",
        "/m.json",
        "--permission-prompt-tool",
        tool,
        "--allowedTools",
        tool,
    ]);
    assert_eq!((got.prompt.as_deref(), got.permission_prompt_tool.as_deref()), (Some("do it"), Some(tool)));
    assert_eq!((&got.mcp_config[..], got.mode()), (&["/m.json".to_owned()][..], Some("bypassPermissions")));
    quiet(&got);
    // cc-connect leaves --verbose out
    let got = args(&[
        "--output-format",
        "stream-json",
        "--input-format",
        "stream-json",
        "--permission-prompt-tool",
        "stdio",
        "--replay-user-messages",
        "--append-system-prompt-file",
        "/f",
        "--plugin-dir",
        "/d",
        "--effort",
        "high",
        "--max-context-tokens",
        "100000",
        "--model",
        "m",
    ]);
    assert_eq!((got.append_system_prompt_file.as_deref(), got.model.as_deref()), (Some("/f"), Some("m")));
    assert_eq!((got.warnings.len(), got.prompt, got.verbose), (2, None, false));
    // goose
    let got = sdk(&["--mcp-config", "/f", "--strict-mcp-config", "--include-partial-messages", "--system-prompt", "S"]);
    assert_eq!((got.strict_mcp_config, got.system_prompt.as_deref()), (true, Some("S")));
    // Cline: the messages come on stdin
    let got = args(&[
        "--system-prompt-file",
        "/s",
        "--verbose",
        "--output-format",
        "stream-json",
        "--disallowedTools",
        "Task,Bash",
        "--max-turns",
        "1",
        "-p",
    ]);
    assert_eq!(
        (got.prompt.is_none(), got.input_format, &got.disallowed_tools[..]),
        (true, InputFormat::Text, &["Task".to_owned(), "Bash".into()][..])
    );
    // OpenClaw
    let got = args(&["-p", "hi", "--output-format", "json", "--session-id", UUID, "--append-system-prompt", "S"]);
    assert_eq!((got.output_format, got.append_system_prompt.as_deref()), (OutputFormat::Json, Some("S")));
    assert_eq!(got.format(), Format::Json);
    assert_eq!(args(&["-p", "--output-format", "json", "--verbose"]).format(), Format::JsonArray);
    // Paperclip
    let got = args(&["--print", "-", "--output-format", "stream-json", "--verbose", "--chrome", "--add-dir", "/x"]);
    assert!(got.prompt_on_stdin && got.prompt.is_none());
    assert_eq!((got.add_dir, got.warnings.len()), (vec!["/x".to_owned()], 1));
    // ralphy, ralphex
    let prompt = "## Rules\n- Keep changes focused.\n\n## Task\nsay pong";
    let got = args(&["--dangerously-skip-permissions", "--verbose", "--output-format", "stream-json", "-p", prompt]);
    assert_eq!(got.prompt.as_deref(), Some(prompt));
    let got = args(&["--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose", "--print"]);
    assert!(got.print && got.prompt.is_none() && !got.prompt_on_stdin);
    // AI SDK provider
    let got =
        sdk(&["--model", "sonnet", "--json-schema", "{\"a\":1}", "--setting-sources=", "--permission-mode", "default"]);
    assert_eq!(got.json_schema.as_deref(), Some("{\"a\":1}"));
    // claude-code-remote
    let got =
        args(&["--print", "--disallowed-tools", "AskUserQuestion", "--settings", "/s.json", "--mcp-config", "/m"]);
    assert_eq!((got.settings.as_deref(), got.disallowed_tools.len()), (Some("/s.json"), 1));
    // Rust crates
    let got = args(&[
        "--print",
        "--verbose",
        "--output-format",
        "stream-json",
        "--input-format",
        "stream-json",
        "--session-id",
        UUID,
    ]);
    assert_eq!(got.session_id.as_deref(), Some(UUID));
    let got = args(&["--output-format", "stream-json", "--verbose"]);
    assert!(!got.print && got.headless(false) && !got.headless(true));
}

#[test]
fn the_version_is_told_whatever_else_is_said() {
    for words in [&["-v"][..], &["--version"], &["--agent-name", "x", "-v"], &["-p", "-v", "--max-turns"]] {
        assert_eq!(command(words), Command::Version, "{words:?}");
    }
    assert_eq!(args(&["--system-prompt", "-v"]).system_prompt.as_deref(), Some("-v"));
    assert_eq!(command(&["--", "-v"]), Command::Run);
}

#[test]
fn commands_are_commands_only_as_the_first_word_of_a_run_with_a_terminal() {
    assert_eq!(command(&["--agent-name", "wave", "mcp", "list"]), Command::McpList);
    assert_eq!(command(&["mcp", "get", "github"]), Command::McpGet("github".into()));
    assert_eq!(command(&["agents", "--json"]), Command::Agents { json: true });
    assert_eq!(command(&["agents"]), Command::Agents { json: false });
    assert_eq!(command(&["doctor"]), Command::Doctor);
    assert_eq!(command(&["plugins", "list", "--json"]), Command::PluginList { json: true });
    assert_eq!(command(&["auth", "status", "--text"]), Command::AuthStatus { json: false });
    assert_eq!(command(&["mcp", "--help"]), Command::Help);
    for words in [
        &["mcp", "add", "x", "--", "y"][..],
        &["mcp", "get"],
        &["auth", "login"],
        &["update"],
        &["install", "latest"],
        &["setup-token"],
        &["config", "set", "a", "b"],
        &["plugin", "install", "x"],
    ] {
        let Command::Refused(why) = command(words) else { panic!("{words:?} is not refused") };
        assert!(why.contains(words[0]), "{why}");
    }
    for words in [&["-p", "doctor"][..], &["doctor", "-p"], &["update", "--print"], &["--", "doctor"]] {
        let got = args(words);
        assert_eq!(got.command, Command::Run);
        assert!(got.prompt.is_some(), "{words:?}");
    }
    assert_eq!(args(&["update the docs"]).prompt.as_deref(), Some("update the docs"));
    assert_eq!(args(&["say", "doctor"]).prompt.as_deref(), Some("say"));
}

#[test]
fn many_values_end_at_the_next_flag() {
    let got = args(&[
        "--allowed-tools",
        "Bash(git *)",
        "Edit, Read",
        "-p",
        "hi",
        "--add-dir",
        "/a",
        "/b",
        "--mcp-config",
        "a",
        "b",
    ]);
    assert_eq!(got.allowed_tools, ["Bash(git *)", "Edit", "Read"]);
    assert_eq!((got.add_dir, got.mcp_config), (vec!["/a".to_owned(), "/b".into()], vec!["a".to_owned(), "b".into()]));
    assert_eq!(got.prompt.as_deref(), Some("hi"));
    let got = args(&["--add-dir=/a", "prompt", "--disallowedTools", "X", "--", "no tool"]);
    assert_eq!((got.add_dir, got.prompt.as_deref()), (vec!["/a".to_owned()], Some("prompt")));
    assert_eq!(got.disallowed_tools, ["X"]);
}

#[test]
fn rules_are_separated_outside_of_parentheses_only() {
    assert_eq!(split_rules("Bash(git *),Edit"), ["Bash(git *)", "Edit"]);
    assert_eq!(split_rules(" Bash(a, b (c) d)  Edit(/x y)\tRead,, "), ["Bash(a, b (c) d)", "Edit(/x y)", "Read"]);
    assert_eq!(split_rules("a) b"), ["a)", "b"]);
    assert_eq!(split_rules(""), [""; 0]);
}

#[test]
fn short_flags_stand_together() {
    let got = args(&["-pc", "hello"]);
    assert!(got.print && got.continue_);
    assert_eq!(got.prompt.as_deref(), Some("hello"));
    let got = args(&["-prabc", "hello"]);
    assert_eq!((got.print, got.resume), (true, Some(Some("abc".into()))));
    let got = args(&["-pé", "-€"]);
    assert!(got.print);
    assert_eq!(got.warnings.len(), 2);
    quiet(&args(&["-d2e", "-p"]));
}

#[test]
fn a_value_may_be_optional() {
    assert_eq!(args(&["--resume"]).resume, Some(None));
    assert_eq!(args(&["-r", "-p", "x"]).resume, Some(None));
    assert_eq!(args(&["--resume=", "-p"]).resume, Some(None));
    let got = args(&["-r", "id", "go on"]);
    assert_eq!((got.resume, got.prompt.as_deref()), (Some(Some("id".into())), Some("go on")));
    assert!(args(&["--debug", "--verbose"]).verbose);
}

#[test]
fn a_switch_can_be_switched_off() {
    let got = args(&["--verbose=false", "--print=true"]);
    assert_eq!((got.verbose, got.print), (false, true));
}

#[test]
fn a_flag_of_a_later_claude_costs_no_prompt_and_makes_none_up() {
    for (words, prompt) in [
        (&["-p", "--later", "say hello to me"][..], Some("say hello to me")),
        (&["-p", "--later", "value"], None),
        (&["-p", "--later", "a value", "the prompt"], Some("the prompt")),
        (&["-p", "--later", "value", "the prompt"], Some("the prompt")),
        (&["-p", "--later", "-", "--verbose"], None),
        (&["-p", "--later=a b", "prompt"], Some("prompt")),
        (&["-p", "--later", "one", "--newer", "two words", "--newest", "three"], Some("two words")),
        (&["-p", "--later", "value", "--", "prompt"], Some("prompt")),
    ] {
        let got = args(words);
        assert_eq!(got.prompt.as_deref(), prompt, "{words:?}");
        assert!(got.warnings.iter().any(|warning| warning.starts_with("--later ")), "{:?}", got.warnings);
    }
    assert!(args(&["-p", "--later", "-"]).prompt_on_stdin);
    let secret = args(&["-p", "--key", "s3cret", "--token=t0ken"]);
    assert!(!secret.warnings.iter().any(|warning| warning.contains("s3cret") || warning.contains("t0ken")));
}

#[test]
fn what_ends_the_real_one_ends_this_one_in_the_same_words() {
    for (words, text) in [
        (&["-p", "x", "--model"][..], "error: option '--model' argument missing"),
        (
            &["--output-format", "xml"],
            "error: option '--output-format' argument 'xml' is invalid. Allowed choices are text, json, stream-json.",
        ),
        (&["--max-turns", "abc"], "error: option '--max-turns' argument 'abc' is invalid. must be a number"),
        (
            &["--max-budget-usd", "-3"],
            "error: option '--max-budget-usd' argument '-3' is invalid. --max-budget-usd must be a number greater than 0",
        ),
        (&["--session-id", "nope"], "Error: Invalid session ID. Must be a valid UUID."),
        (&["--session-id", "74621b04d2db4a10b43a45450504d43f"], "Error: Invalid session ID. Must be a valid UUID."),
        (
            &["--input-format", "stream-json", "-p"],
            "Error: --input-format=stream-json requires output-format=stream-json.",
        ),
        (
            &["--continue", "--session-id", UUID],
            "Error: --session-id with --continue or --resume also needs --fork-session.",
        ),
    ] {
        assert_eq!(failure(words), text);
    }
    assert_eq!(args(&["-c", "--fork-session", "--session-id", UUID]).session_id.as_deref(), Some(UUID));
}

#[test]
fn what_cannot_be_done_is_refused_with_the_rest_understood() {
    for words in [&["--from-pr"][..], &["--teleport", "x"], &["--cloud"], &["--restricted"], &["--bg"]] {
        let all: Vec<&str> = words.iter().chain(&["--output-format", "stream-json", "-p"]).copied().collect();
        let got = args(&all);
        assert!(matches!(&got.command, Command::Refused(why) if why.contains(words[0])), "{:?}", got.command);
        assert_eq!((got.output_format, got.print), (OutputFormat::StreamJson, true));
    }
}

#[test]
fn modes_and_levels_that_are_unknown_have_no_effect() {
    assert_eq!(args(&["--permission-mode", "manual"]).mode(), Some("default"));
    let got = args(&["--permission-mode", "delegate", "--effort=extreme", "--thinking=maybe"]);
    assert_eq!((got.mode(), got.effort.as_deref(), got.thinking.as_deref(), got.warnings.len()), (None, None, None, 3));
    let got = args(&["--dangerously-skip-permissions", "--permission-mode", "plan", "--permission-prompts", "none"]);
    assert_eq!((got.mode(), got.permission_prompts_none), (Some("bypassPermissions"), true));
}

#[test]
fn which_agent_works_is_not_which_subagent() {
    let got = args(&["--diglot-agent", "gemini", "--diglot-trace=/t", "-p", "--agent", "reviewer", "hi"]);
    assert_eq!((got.agent_name.as_deref(), got.diglot_trace.as_deref()), (Some("gemini"), Some("/t")));
    assert_eq!((got.prompt.as_deref(), got.warnings.len()), (Some("hi"), 1));
}

#[test]
fn the_same_warning_comes_once() {
    assert_eq!(args(&["--plugin-dir", "/a", "--plugin-dir", "/b", "-p"]).warnings.len(), 1);
}
