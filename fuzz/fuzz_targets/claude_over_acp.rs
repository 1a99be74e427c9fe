//! Any sequence of lines and events between a host and an agent: no panic, and no rule broken.
//!
//! Each line of the input is one event; its first byte says which: `h` the host writes the rest, `a` the agent writes the
//! rest, `c` the agent's process ends, `x` it could not be started, `t` a timer runs out, `i` SIGINT, `m` an MCP client
//! writes the rest, `e` the host closes stdin, `d` the oldest work for the agent is done (`dx`: it fails; of a file that is
//! read the rest is the text), `k` the oldest command ends with this output. In the rest, `"@ask 1"` and `"@session/prompt"` stand for what waits.
//! The first byte of all chooses the agent's profile, and what diglot serves it.

#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

use diglot::translate::client::{ClientDone, ClientFailure, ClientWork, CommandExit, Output};
use diglot::translate::{FarExit, StartFailure};
use libfuzzer_sys::fuzz_target;
use support::reverse::{Conversation, Done, Input, Setting};

/// What the session has to do, and the commands that run.
#[derive(Default)]
struct Session {
    works: Vec<(u64, ClientWork)>,
    commands: Vec<u64>,
}

impl Session {
    fn take(&mut self, done: Vec<Done>) {
        for done in done {
            match done {
                Done::Client(_, ClientWork::Kill { .. } | ClientWork::KillAll) => {}
                Done::Client(effect, work) => self.works.push((effect, work)),
                _ => {}
            }
        }
    }

    fn works(&mut self, text: &str) -> Option<Input> {
        if self.works.is_empty() {
            return None;
        }
        let (effect, work) = self.works.remove(0);
        let done = match work {
            _ if text.starts_with('x') => ClientDone::Failed(ClientFailure::NotAllowed(text.to_owned())),
            ClientWork::Find { path, .. } => ClientDone::Found(path),
            ClientWork::Read { .. } => ClientDone::Text(text.replace("\\n", "\n")),
            ClientWork::Write { .. } => ClientDone::Written,
            ClientWork::Run { terminal, .. } => {
                self.commands.push(terminal);
                ClientDone::Runs
            }
            _ => ClientDone::Output(Output { text: text.to_owned(), ..Output::default() }),
        };
        Some(Input::Client(effect, done))
    }

    fn ends(&mut self, text: &str) -> Option<Input> {
        let terminal = (!self.commands.is_empty()).then(|| self.commands.remove(0))?;
        let exit = Some(CommandExit { code: Some(0), signal: None });
        Some(Input::CommandEnded(terminal, Output { text: text.to_owned(), truncated: false, exit }))
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((first, data)) = data.split_first() else { return };
    let profile = ["io", "gemini", "kimi", "codebuddy", "grok"][usize::from(first % 5)].to_owned();
    let (files, terminals) = (first & 16 != 0, first & 32 != 0);
    let setting = Setting { profile, partial: first & 8 != 0, files, terminals, ..Setting::default() };
    let mut session = Session::default();
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
            b'd' | b'k' => match if *kind == b'd' { session.works(&text) } else { session.ends(&text) } {
                Some(input) => input,
                None => continue,
            },
            _ => continue,
        };
        // What cannot happen now does not happen.
        session.take(conversation.feed(&input).unwrap_or_default());
        let broken = conversation.judge.violations();
        assert!(broken.is_empty(), "{broken:?}");
    }
});
