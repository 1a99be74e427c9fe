//! `diglot claude` between a host and an agent that speaks ACP, and `diglot acp` between an editor and the same agent.

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{AGENT, DIGLOT, Editor, Talk, cpu, megabytes, ms, now, percentile, resident, row};

/// Prints the rows of both.
pub(super) fn measure(rounds: usize, tokens: usize) {
    let home = std::env::temp_dir().join(format!("diglot-bench-{}", std::process::id()));
    let config = home.join("config/diglot");
    std::fs::create_dir_all(&config).expect("a folder can be made");
    let this = std::env::current_exe().expect("this program has a path");
    let agent = format!("[agents.bench]\nprotocol = \"acp\"\ncommand = {this:?}\nenv = {{ {AGENT} = \"acp\" }}\n");
    std::fs::write(config.join("config.toml"), agent).expect("a file can be written");
    let command = |words: &[&str]| {
        let mut command = Command::new(DIGLOT);
        command.args(words).env("HOME", &home).env("XDG_CONFIG_HOME", home.join("config"));
        command.env("XDG_STATE_HOME", home.join("state")).env("DIGLOT_AGENT", "bench").current_dir(&home);
        command
    };
    host(&command, rounds, tokens);
    editor(&command, tokens);
    // What is left of it is in the system's temporary folder.
    _ = std::fs::remove_dir_all(&home);
}

fn host(command: &dyn Fn(&[&str]) -> Command, rounds: usize, tokens: usize) {
    let words = ["claude", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"];
    let start = || {
        let begun = Instant::now();
        let mut talk = Talk::start(command(&words).arg("--include-partial-messages").arg("--no-session-persistence"));
        talk.say(&json!({"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}}));
        until(&mut talk, "control_response", |_| {});
        (talk, begun.elapsed())
    };
    // The answer tells what the agent offers, so the agent's own start is not diglot's; the rest is held to what an editor gets.
    let (mut times, mut alone): (Vec<Duration>, Vec<Duration>) = (0..rounds).map(|_| (start().1, open_alone())).unzip();
    let [best, middle] = [0, 50].map(|p| ms(percentile(&mut times, p)) - ms(percentile(&mut alone, p)));
    let measured = format!("{middle:.1} ms (best {best:.1})");
    row("host: `initialize` answered, beyond the agent's start", &measured, "5 ms", Some(middle <= 5.0));
    let (mut talk, _) = start();
    turn(&mut talk, "1 0", |_| {});
    let pid = talk.child.id();
    row("host: memory at rest (RSS)", &megabytes(resident(pid)), "6 MB", Some(resident(pid) <= 6_000_000));
    let before = cpu(pid);
    let mut seen = 0;
    turn(&mut talk, &format!("{tokens} 0"), |text| seen += text.split_ascii_whitespace().count());
    assert_eq!(seen, tokens, "not one token is lost");
    let each = (cpu(pid) - before).as_nanos() as f64 / 1e3 / tokens as f64;
    row(&format!("host: CPU for each of {tokens} tokens"), &format!("{each:.2} µs"), "3 µs", Some(each <= 3.0));
    let after = resident(pid);
    row(&format!("host: memory after {tokens} tokens (RSS)"), &megabytes(after), "6 MB", Some(after <= 6_000_000));
}

/// How long the agent takes by itself until its session is open and its commands are named.
fn open_alone() -> Duration {
    let begun = Instant::now();
    let this = std::env::current_exe().expect("this program has a path");
    let mut talk = Talk::start(Command::new(this).env(AGENT, "acp"));
    for (id, method) in [(1, "initialize"), (2, "session/new")] {
        talk.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}}));
        talk.hear();
    }
    talk.hear();
    begun.elapsed()
}

/// A turn of the host's; each piece of streamed text is handed on.
fn turn(talk: &mut Talk, prompt: &str, mut each: impl FnMut(&str)) {
    talk.say(&json!({"type": "user", "message": {"role": "user", "content": prompt}}));
    until(talk, "result", |line| {
        if let Some(text) = line["event"]["delta"]["text"].as_str() {
            each(text);
        }
    });
}

fn until(talk: &mut Talk, kind: &str, mut each: impl FnMut(&Value)) {
    loop {
        let line = talk.hear();
        if line["type"] == kind {
            assert_ne!(line["is_error"], true, "{line}");
            return;
        }
        each(&line);
    }
}

fn editor(command: &dyn Fn(&[&str]) -> Command, tokens: usize) {
    let mut editor = Editor::of(&mut command(&["acp"]));
    editor.initialize();
    let session = editor.open();
    editor.prompt(&session, "1 0", |_| {});
    let before = cpu(editor.pid());
    let mut seen = 0;
    editor.prompt(&session, &format!("{tokens} 0"), |text| seen += text.split_ascii_whitespace().count());
    assert_eq!(seen, tokens, "not one token is lost");
    let each = (cpu(editor.pid()) - before).as_nanos() as f64 / 1e3 / tokens as f64;
    let what = format!("passing ACP on: CPU for each of {tokens} tokens");
    row(&what, &format!("{each:.2} µs"), "3 µs", Some(each <= 3.0));
    let after = resident(editor.pid());
    row("passing ACP on: memory after them (RSS)", &megabytes(after), "6 MB", Some(after <= 6_000_000));
}

/// The agent: for a prompt "TOKENS PACE" it says so many tokens, as the other one does.
pub(super) fn agent() {
    let mut stdout = std::io::stdout();
    // Each line is one write. Who no longer reads has gone.
    let mut say = |line: &str| _ = stdout.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdout.flush());
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let Ok(line) = serde_json::from_str::<Value>(&line) else { return };
        let answer = match line["method"].as_str() {
            Some("initialize") => json!({"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}),
            Some("session/new") => json!({"sessionId": "ad1edb16-8b7e-43eb-ad20-1b580c259f48"}),
            Some("session/prompt") => {
                let session = &line["params"]["sessionId"];
                // A host's system prompt may stand before it.
                let blocks = line["params"]["prompt"].as_array().cloned().unwrap_or_default();
                let prompt = blocks.last().and_then(|block| block["text"].as_str()).unwrap_or_default();
                let mut numbers = prompt.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
                let (tokens, pace) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(0));
                let start = Instant::now();
                for token in 0..tokens {
                    std::thread::sleep(Duration::from_micros(pace * token).saturating_sub(start.elapsed()));
                    let content = format!(r#"{{"type":"text","text":"{} "}}"#, now());
                    let update = format!(r#"{{"sessionUpdate":"agent_message_chunk","content":{content}}}"#);
                    let params = format!(r#"{{"sessionId":{session},"update":{update}}}"#);
                    say(&format!(r#"{{"jsonrpc":"2.0","method":"session/update","params":{params}}}"#));
                }
                json!({"stopReason": "end_turn"})
            }
            _ => continue,
        };
        if line["id"].is_null() {
            continue;
        }
        say(&json!({"jsonrpc": "2.0", "id": line["id"], "result": answer}).to_string());
        if line["method"] == "session/new" {
            // As real agents do: a host's `initialize` names the commands.
            let update = json!({"sessionUpdate": "available_commands_update", "availableCommands": []});
            let params = json!({"sessionId": answer["sessionId"], "update": update});
            say(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}).to_string());
        }
    }
}
