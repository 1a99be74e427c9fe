//! `diglot try` through the real chain: this program as editor, as interpreter and as agent.

#![expect(clippy::unwrap_used, reason = "a failure here is the failure of the test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn fake(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes").join(format!("{name}.ndjson"))
}

fn try_it(args: &[&str], script: Option<&str>) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_diglot"));
    command.arg("try").args(args);
    if let Some(script) = script {
        command.arg("--cwd").arg(folder.path()).arg("go").arg("--");
        command.args([env!("CARGO_BIN_EXE_diglot"), "demo-agent", "--script"]).arg(fake(script));
    }
    let output: Output = command
        .env("HOME", "")
        .env_remove("XDG_CONFIG_HOME")
        .env("DIGLOT_DEMO_PACE", "0")
        .env("COLUMNS", "140")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_demo_shows_a_thought_a_plan_a_question_a_diff_and_a_failure() {
    let (code, shown, said) = try_it(&["--yes"], None);
    assert_eq!(code, Some(0), "{shown}\n{said}");
    for part in [
        "(thinking) I was asked",
        "  [>] ",
        "? Write greet.sh",
        "+ echo \"Hello, $name.\"",
        "Hello, world.",
        "- name=world",
        "+ name=${1:-friend}",
        "cat farewell.sh  (failed)",
        "three questions",
        "[end_turn]",
    ] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
}

#[test]
fn the_demo_takes_a_no_and_so_it_does_when_nobody_can_be_asked() {
    for flags in [&["--no"][..], &[]] {
        let (code, shown, said) = try_it(flags, None);
        assert_eq!(code, Some(0), "{shown}\n{said}");
        assert!(shown.contains("You refused the file"), "{shown}");
        assert!(!shown.contains("Hello, world."), "{shown}");
    }
}

#[test]
fn an_agent_that_dies_gives_75_and_its_last_words() {
    let (code, shown, said) = try_it(&["--yes"], Some("exit_midturn"));
    assert_eq!(code, Some(75), "{shown}\n{said}");
    assert!(shown.contains("Half of what I wanted to") && said.contains("the fake gives up"), "{shown}\n{said}");
}

#[test]
fn an_agent_that_dies_at_its_start_is_quoted() {
    let (code, shown, said) = try_it(&["--yes"], Some("dies_at_start"));
    assert_eq!(code, Some(75), "{shown}\n{said}");
    assert!(said.contains("session/new failed") && said.contains("Invalid API key"), "{said}");
}

#[test]
fn several_questions_are_answered_in_one_turn() {
    let (code, shown, said) = try_it(&["--yes"], Some("ask_many"));
    assert_eq!(code, Some(0), "{shown}\n{said}");
    for part in ["result of a", "result of b", "result of c", "All three are through."] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
}

#[test]
fn wave_looks_like_any_other_agent() {
    let (code, shown, said) = try_it(&["--agent", "wave", "--yes"], Some("wave"));
    assert_eq!(code, Some(0), "{shown}\n{said}");
    for part in ["(thinking) A thought.", "? echo from wave", "  + echo from wave\n    from wave", "It ran."] {
        assert!(shown.contains(part), "{part} is missing in\n{shown}");
    }
}

#[test]
fn noise_of_the_agent_is_not_shown_as_its_words() {
    let (code, shown, said) = try_it(&["--yes"], Some("noise"));
    assert_eq!(code, Some(0), "{shown}\n{said}");
    assert!(shown.contains("one two") || (shown.contains("one ") && shown.contains("two")), "{shown}");
    assert!(!shown.contains("npm warn") && !shown.contains("Welcome"), "{shown}");
}

#[cfg(unix)]
#[test]
fn wire_shows_both_wires_of_the_whole_conversation() {
    let (code, shown, said) = try_it(&["--yes", "--wire"], None);
    assert_eq!(code, Some(0), "{shown}\n{said}");
    for part in [
        "-> #1 initialize",
        "| -> control_request initialize",
        "-> #3 session/prompt",
        "| <- stream_event",
        "| <- control_request can_use_tool Write",
        "session/request_permission",
        "| -> control_response success allow",
        "| <- result success end_turn",
        "<- #3 ok end_turn",
    ] {
        let part = part.replace("stream_event", "text_delta");
        assert!(shown.contains(&part), "{part} is missing in\n{shown}");
    }
}
