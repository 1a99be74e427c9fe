//! An agent whose strings the test pulls: its stdin and stdout are FIFOs of the test.
//!
//! For what a script cannot see: how much an agent can say to somebody who does not listen, and what reaches it meanwhile.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use serde_json::{Value, json};

use super::editor::{PATIENCE, Setup};
use super::family::{HELD_UP, poll_until};

pub(crate) struct Puppet {
    says: File,
    hears: File,
    heard: Vec<u8>,
    /// What did not fit yet.
    rest: Vec<u8>,
    pub(crate) prompt: Value,
}

fn fifo(path: &Path) -> File {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Open at both ends, it neither waits for its other end nor loses it.
    open(path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).unwrap().into()
}

impl Puppet {
    /// The puppet and what starts it.
    pub(crate) fn new() -> (Self, Setup) {
        let relay = "cat <\"$E2E_SAYS\" & exec cat >\"$E2E_HEARS\"";
        let setup = Setup::command(["sh", "-c", relay]);
        let at = |name: &str| -> PathBuf { setup.folder().join(name) };
        let (says, hears) = (at("says"), at("hears"));
        let puppet =
            Self { says: fifo(&says), hears: fifo(&hears), heard: Vec::new(), rest: Vec::new(), prompt: Value::Null };
        let setup = setup.env("E2E_SAYS", says.to_str().unwrap()).env("E2E_HEARS", hears.to_str().unwrap());
        (puppet, setup)
    }

    /// The next line that reaches it.
    pub(crate) fn hear(&mut self) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.heard.iter().position(|b| *b == b'\n') {
                let line = self.heard.drain(..=at).collect::<Vec<u8>>();
                return serde_json::from_slice(&line).unwrap();
            }
            assert!(poll_until(&self.hears, PollFlags::IN, until), "nothing reaches the agent");
            let mut piece = [0; 4096];
            let read = self.hears.read(&mut piece).unwrap();
            self.heard.extend_from_slice(&piece[..read]);
        }
    }

    /// Says a line, and waits until it is taken.
    pub(crate) fn say(&mut self, line: &Value) {
        self.queue(line);
        let until = Instant::now() + PATIENCE;
        while !self.rest.is_empty() {
            assert!(poll_until(&self.says, PollFlags::OUT, until), "nobody takes what the agent says");
            self.flush();
        }
    }

    /// Puts a line behind what did not fit yet.
    pub(crate) fn queue(&mut self, line: &Value) {
        self.rest.extend_from_slice(line.to_string().as_bytes());
        self.rest.push(b'\n');
    }

    /// Writes what fits; whether all of it did.
    pub(crate) fn flush(&mut self) -> bool {
        while !self.rest.is_empty() {
            match self.says.write(&self.rest) {
                Ok(written) => drop(self.rest.drain(..written)),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
                Err(error) => panic!("{error}"),
            }
        }
        true
    }

    /// Says such lines until nobody takes them any more; gives how many, the one under way included. Fails after `most`.
    pub(crate) fn say_until_held_up(&mut self, most: usize, line: impl Fn(usize) -> Value) -> usize {
        let mut count = 0;
        loop {
            if self.flush() {
                assert!(count < most, "the agent said {count} lines to nobody and is not held up");
                self.queue(&line(count));
                count += 1;
            } else if !poll_until(&self.says, PollFlags::OUT, Instant::now() + HELD_UP) {
                return count;
            }
        }
    }

    /// Answers `initialize`.
    pub(crate) fn come_up(&mut self) {
        let request = self.hear();
        assert_eq!(request["request"]["subtype"], "initialize");
        let body = json!({"commands": [], "current_permission_mode": "default"});
        let response = json!({"subtype": "success", "request_id": request["request_id"], "response": body});
        self.say(&json!({"type": "control_response", "response": response}));
    }

    /// Takes the prompt and begins a message with a block of text.
    pub(crate) fn begin(&mut self) {
        self.prompt = self.hear();
        assert_eq!(self.prompt["type"], "user");
        self.say(&json!({"type": "system", "subtype": "init", "permissionMode": "default"}));
        self.message("msg_1");
    }

    pub(crate) fn message(&mut self, id: &str) {
        self.say(&event(json!({"type": "message_start", "message": {"id": id, "model": "m"}})));
        let block = json!({"type": "text", "text": ""});
        self.say(&event(json!({"type": "content_block_start", "index": 0, "content_block": block})));
    }

    /// Puts the end of the turn behind what did not fit yet.
    pub(crate) fn queue_end(&mut self, change: Value) {
        let mut line = json!({
            "type": "result", "subtype": "success", "is_error": false, "result": "", "stop_reason": "end_turn",
            "terminal_reason": "completed", "user_message_uuids": [self.prompt["uuid"]],
        });
        for (name, value) in change.as_object().unwrap() {
            line[name] = value.clone();
        }
        self.queue(&line);
    }
}

pub(crate) fn event(event: Value) -> Value {
    json!({"type": "stream_event", "event": event, "parent_tool_use_id": null, "session_id": "s", "uuid": "u"})
}

pub(crate) fn text_delta(text: &str) -> Value {
    event(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}))
}
