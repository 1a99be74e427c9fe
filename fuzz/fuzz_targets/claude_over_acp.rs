//! Any sequence of lines and events between a host and an agent: no panic, and no rule broken.
//!
//! Each line of the input is one event; its first byte says which: `h` the host writes the rest, `a` the agent writes the
//! rest, `c` the agent's process ends, `x` it could not be started, `t` a timer runs out, `i` SIGINT, `m` an MCP client
//! writes the rest, `e` the host closes stdin. In the rest, `"@ask 1"` and `"@session/prompt"` stand for what waits.
//! The first byte of all chooses the agent's profile.

#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

use diglot::translate::{FarExit, StartFailure};
use libfuzzer_sys::fuzz_target;
use support::reverse::{Conversation, Input, Setting};

fuzz_target!(|data: &[u8]| {
    let Some((first, data)) = data.split_first() else { return };
    let profile = ["io", "gemini", "kimi", "codebuddy", "grok"][usize::from(first % 5)].to_owned();
    let setting = Setting { profile, partial: first & 8 != 0, ..Setting::default() };
    // The setting is right for every profile of its own.
    let Ok((mut conversation, _)) = Conversation::new(&setting) else { return };
    conversation.judge.by_form = true;
    for line in data.split(|b| *b == b'\n').take(400) {
        let Some((kind, rest)) = line.split_first() else { continue };
        let text = String::from_utf8_lossy(rest).into_owned();
        let rest = conversation.resolve(&text).map_or_else(|_| rest.to_vec(), String::into_bytes);
        let exit = || FarExit { code: Some(i32::from(rest.len() > 2)), signal: None, stderr: text.clone() };
        let input = match kind {
            b'h' => Input::Host(rest),
            b'a' => Input::Agent(rest),
            b'c' => Input::AgentClosed(exit()),
            b'x' => Input::AgentFailed(StartFailure::Other(format!("it does not start: {text}"))),
            b't' => match conversation.timers().first() {
                Some(timer) => Input::Timer(*timer),
                None => continue,
            },
            b'i' => Input::Interrupted,
            b'm' => Input::Relay(1, "calc".to_owned(), Some(rest)),
            b'e' => Input::HostClosed,
            _ => continue,
        };
        // What cannot happen now does not happen.
        let _ = conversation.feed(&input);
        let broken = conversation.judge.violations();
        assert!(broken.is_empty(), "{broken:?}");
    }
});
