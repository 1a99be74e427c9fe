//! Any sequence of lines and events between an editor and an agent that speaks ACP itself: no panic. The rules are not asked:
//! what is passed on is only repaired where real agents break the protocol, so one that writes bytes breaks it further.
//!
//! Each line of the input is one event; its first byte says which: `n` the editor writes the rest, `a` the agent's process
//! writes the rest (`b`: the second process), `c` the agent's process ends (`d`: the second), `x` it could not be started,
//! `t` a timer runs out, `e` the editor is gone. In the rest, `"@ask 1"` and `"@session/prompt"` stand for what waits. The
//! first byte of all chooses the agent's profile.

#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

use diglot::translate::{FarExit, StartFailure};
use libfuzzer_sys::fuzz_target;
use support::passing::{Conversation, Input};

fuzz_target!(|data: &[u8]| {
    let Some((first, data)) = data.split_first() else { return };
    let profile = ["io", "gemini", "kimi", "codebuddy", "grok", "qwen", "pi"][usize::from(first % 7)];
    // These profiles are built in.
    let Ok(mut conversation) = Conversation::new(profile) else { return };
    for line in data.split(|b| *b == b'\n').take(400) {
        let Some((kind, rest)) = line.split_first() else { continue };
        let text = String::from_utf8_lossy(rest).into_owned();
        let rest = conversation.resolve(&text).map_or_else(|_| rest.to_vec(), String::into_bytes);
        let exit = || FarExit { code: Some(i32::from(rest.len() > 2)), signal: None, stderr: text.clone() };
        let input = match kind {
            b'n' => Input::Editor(rest),
            b'a' => Input::Agent(0, rest),
            b'b' => Input::Agent(1, rest),
            b'c' => Input::AgentClosed(0, exit()),
            b'd' => Input::AgentClosed(1, exit()),
            b'x' => Input::AgentFailed(0, StartFailure::Other(format!("it does not start: {text}"))),
            b't' => match conversation.timers().first() {
                Some((process, timer)) => Input::Timer(*process, *timer),
                None => continue,
            },
            b'e' => Input::EditorClosed,
            _ => continue,
        };
        // What cannot happen now does not happen.
        let _ = conversation.feed(&input);
    }
});
