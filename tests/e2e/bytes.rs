//! Long lines, odd cuts, odd characters, and an editor that is slower than its agent.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::editor::{Setup, is_update};
use super::family::{peak_memory, send, wait_held_up};
use super::puppet::{Puppet, text_delta};

const MIB: usize = 1024 * 1024;

/// What diglot may need while an editor does not keep up.
const MEMORY: u64 = 30 * MIB as u64;

/// Text that shows where a piece is missing: its own offsets, eight digits and a space each.
fn numbered(from: usize, bytes: usize) -> String {
    let text: String = (from / 9..=(from + bytes) / 9).map(|n| format!("{n:08} ")).collect();
    text[from % 9..from % 9 + bytes].to_owned()
}

#[test]
fn a_long_line_passes_both_ways() {
    let text = numbered(0, MIB);
    let steps = [
        json!({"do": "turn"}),
        json!({"do": "tool", "name": "Bash", "input": {"command": "cat large"}}),
        json!({"do": "tool_result", "content": text}),
        json!({"do": "text", "pieces": [text, "$prompt"]}),
    ];
    let mut editor = Setup::script(&steps).start();
    let session = editor.open();
    let prompt = numbered(MIB, MIB);
    let turn = editor.prompt(&session, &prompt);
    assert_eq!((turn.calls(), turn.stop()), (vec!["completed"], "end_turn"));
    let said = turn.text();
    assert!(said.len() == 2 * MIB && said.starts_with(&text) && said.ends_with(&prompt), "{} bytes", said.len());
    editor.leave();
}

#[test]
fn a_line_that_comes_byte_by_byte_is_one_line() {
    let line = text_delta("ein Stück, ganz 🦀").to_string() + "\r\n";
    let mut steps = vec![json!({"do": "turn"}), json!({"do": "text", "text": "one "})];
    steps.extend(line.bytes().map(|byte| json!({"do": "raw", "hex": format!("{byte:02x}")})));
    steps.push(json!({"do": "text", "text": " two"}));
    let mut editor = Setup::script(&steps).start();
    let session = editor.open();
    assert_eq!(editor.prompt(&session, "go").text(), "one ein Stück, ganz 🦀 two");
    editor.leave();
}

#[test]
fn what_some_readers_take_for_the_end_of_a_line_is_written_as_an_escape() {
    let text = "a\u{2028}b\u{2029}c\u{85}d";
    let mut editor = Setup::script(&[json!({"do": "turn"}), json!({"do": "text", "pieces": [text]})]).start();
    let session = editor.open();
    let prompt = editor.send_prompt(&session, "go");
    let mut said = String::new();
    loop {
        let raw = String::from_utf8(editor.raw().unwrap()).unwrap();
        assert!(!raw.contains(['\u{2028}', '\u{2029}']), "{raw}");
        let line: Value = serde_json::from_str(&raw).unwrap();
        if line["id"] == prompt {
            break;
        }
        if is_update(&line, "agent_message_chunk") {
            said.push_str(line["params"]["update"]["content"]["text"].as_str().unwrap());
        }
    }
    assert_eq!(said, text);
}

#[test]
fn twenty_thousand_pieces_arrive_in_order() {
    let mut editor = Setup::fake("flood").start();
    let session = editor.open();
    let turn = editor.prompt(&session, "go");
    assert_eq!(turn.text(), "word ".repeat(20_000));
    editor.leave();
}

/// A block of text in pieces that say where they stand, in a message of its own.
const BLOCK: usize = 64;
const PIECE: usize = 4096;

/// Fifty megabytes in messages of 256 KiB.
fn flood() -> Vec<Value> {
    let pieces: Vec<String> = (0..BLOCK).map(|n| format!("{:PIECE$}", format!("$n/{n}:"))).collect();
    let steps = json!([{"do": "text", "pieces": pieces}, {"do": "message_end"}]);
    vec![json!({"do": "turn"}), json!({"do": "repeat", "times": 200, "steps": steps})]
}

/// Takes the places out of the text of [`flood`]; panics where it is not in order.
fn places(text: &str) -> usize {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    for (at, word) in words.iter().enumerate() {
        assert_eq!(*word, format!("{}/{}:", at / BLOCK, at % BLOCK), "after {:?}", words.get(at.wrapping_sub(1)));
    }
    words.len()
}

#[test]
fn a_flood_reaches_an_editor_that_reads_late_whole_and_in_order() {
    let mut editor = Setup::script(&flood()).start();
    let session = editor.open();
    let prompt = editor.send_prompt(&session, "go");
    // The first words are there, and then the editor does something else until the agent can say no more.
    let mut text = String::new();
    let mut take = |line: &Value| {
        if is_update(line, "agent_message_chunk") {
            text.push_str(line["params"]["update"]["content"]["text"].as_str().unwrap());
        }
    };
    editor.until(|line| is_update(line, "agent_message_chunk")).iter().for_each(&mut take);
    wait_held_up(editor.family.of("demo-agent"));
    loop {
        let line: Value = serde_json::from_slice(&editor.raw().unwrap()).unwrap();
        if line["id"] == prompt {
            assert_eq!(line["result"]["stopReason"], "end_turn", "{line}");
            break;
        }
        take(&line);
    }
    assert_eq!(places(&text), 200 * BLOCK);
    assert!(peak_memory(editor.pid()) < MEMORY, "{} bytes", peak_memory(editor.pid()));
}

/// More answers than a queue holds.
const QUESTIONS: usize = 300;

/// An agent speaks to an editor that does not read, in messages of so many pieces of so many bytes.
fn speak_to_nobody(pieces: usize, piece: usize) {
    let (mut puppet, setup) = Puppet::new();
    let mut editor = setup.start();
    let id = editor.ask_for_session(&editor.path(""));
    puppet.come_up();
    let session = editor.answer_to(id).outcome.unwrap()["sessionId"].as_str().unwrap().to_owned();
    let prompt = editor.send_prompt(&session, "go");
    puppet.begin();
    let say = |n: usize| match n % (pieces + 1) {
        0 => {
            super::puppet::event(json!({"type": "message_start", "message": {"id": format!("msg_{n}"), "model": "m"}}))
        }
        _ => text_delta(&(format!("{n}:") + &" ".repeat(piece))),
    };
    let count = puppet.say_until_held_up(4 * MIB / piece, say);
    // What the agent is told gets through all the same, also behind questions whose answers nobody reads.
    for _ in 0..QUESTIONS {
        editor.ask("no/such/method", json!({}));
    }
    editor.cancel(&session);
    let interrupt = puppet.hear();
    assert_eq!(interrupt["request"]["subtype"], "interrupt", "{interrupt}");
    let memory = peak_memory(editor.pid());
    assert!(memory < MEMORY, "{memory} bytes of memory after {count} pieces of {piece}");
    // Now the editor reads, and nothing is missing.
    puppet.queue_end(json!({"is_error": true, "terminal_reason": "aborted_streaming"}));
    let mut numbers = (0..count).filter(|n| n % (pieces + 1) != 0);
    let (mut refused, mut answered) = (0, false);
    while refused < QUESTIONS || !answered {
        // The agent goes on as it finds room; until then there is something to read.
        puppet.flush();
        let line: Value = serde_json::from_slice(&editor.raw().unwrap()).unwrap();
        if is_update(&line, "agent_message_chunk") {
            let text = line["params"]["update"]["content"]["text"].as_str().unwrap();
            for number in text.split_ascii_whitespace() {
                assert_eq!(Some(number.to_owned()), numbers.next().map(|n| format!("{n}:")));
            }
        } else if line["id"] == prompt {
            assert_eq!((&line["result"]["stopReason"], numbers.next()), (&json!("cancelled"), None), "{line}");
            answered = true;
        } else {
            assert_eq!(line["error"]["code"], -32601, "{line}");
            refused += 1;
        }
    }
    assert!(peak_memory(editor.pid()) < MEMORY, "{} bytes", peak_memory(editor.pid()));
    send(editor.pid(), Signal::TERM);
    editor.wait();
}

#[test]
fn an_agent_is_held_up_by_an_editor_that_does_not_read() {
    for (pieces, piece) in [(1_000_000, 1000), (50, 1000), (1, 100_000), (1, 100)] {
        speak_to_nobody(pieces, piece);
    }
}
