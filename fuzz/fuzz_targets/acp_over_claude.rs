//! Any sequence of lines and events: no panic, and no rule broken.
//!
//! Each line of the input is one event; its first byte says which: `n` the editor writes the rest, `f` and `g` the first
//! and the second session's process writes the rest, `c` `d` the process ends, `x` it could not be started, `t` a timer
//! runs out, `r` a file was read, `e` the editor leaves. `cargo run --bin seeds` makes such inputs of the golden files.

#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

use diglot::translate::{FarExit, StartFailure};
use libfuzzer_sys::fuzz_target;
use support::conversation::{Conversation, Input, Setting};
use support::golden::initialize;

fuzz_target!(|data: &[u8]| {
    let mut conversation = Conversation::new(Setting { reads_at_once: false, ..Setting::default() });
    conversation.judge.by_form = true;
    // It is what every conversation begins with; the target is what comes then.
    let _ = conversation.feed(&Input::Near(initialize(None)));
    for line in data.split(|b| *b == b'\n').take(400) {
        let Some((kind, rest)) = line.split_first() else { continue };
        let exit = || FarExit {
            code: Some(i32::from(rest.len() > 2)),
            signal: None,
            stderr: String::from_utf8_lossy(rest).into_owned(),
        };
        let input = match kind {
            b'n' => Input::Near(rest.to_vec()),
            b'f' => Input::Far(0, rest.to_vec()),
            b'g' => Input::Far(1, rest.to_vec()),
            b'c' => Input::FarClosed(0, exit()),
            b'd' => Input::FarClosed(1, exit()),
            b'x' => Input::FarFailed(0, StartFailure::Other(String::from_utf8_lossy(rest).into_owned())),
            b't' => match conversation.timers(0).first() {
                Some(timer) => Input::Timer(0, *timer),
                None => continue,
            },
            b'r' => Input::Read(0),
            b'e' => Input::NearClosed,
            _ => continue,
        };
        // What cannot happen now does not happen.
        let _ = conversation.feed(&input);
        let broken = conversation.judge.violations();
        assert!(broken.is_empty(), "{broken:?}");
    }
});
