//! A host's session in the middle of a turn, its agent played by the bench.

use std::sync::Arc;

use diglot::mappings::Mappings;
use diglot::translate::claude_over_acp::{ClaudeOverAcp, Open, Options, Settings};
use diglot::translate::{Action, Actions, Clock, Event, IdSource, Translator as _};
use diglot::wire::frame::write_line;
use serde_json::json;
use uuid::Uuid;

#[derive(Default)]
struct Counter(u64);

impl IdSource for Counter {
    fn uuid(&mut self) -> Uuid {
        self.0 += 1;
        Uuid::from_u64_pair(0x4000, self.0)
    }
}

impl Clock for Counter {
    fn now_ms(&mut self) -> u64 {
        0
    }
}

pub(crate) struct Host {
    translator: ClaudeOverAcp,
    actions: Actions,
    near: Vec<u8>,
}

impl Host {
    /// A turn that streams.
    pub(crate) fn new() -> Self {
        let profile = Mappings::builtin().agents.get("gemini").expect("a built-in profile").clone();
        let translator = ClaudeOverAcp::new(Settings {
            profile: Arc::new(profile),
            session_id: "5b1c2a54-0000-4000-8000-0123456789ab".into(),
            open: Open::New,
            cwd: "/w".into(),
            add_dirs: Vec::new(),
            options: Options { partial: true, ..Options::default() },
            relay: None,
            pid: 1,
            ids: Box::new(Counter::default()),
            clock: Box::new(Counter::default()),
        });
        let mut host = Self { translator, actions: Actions::default(), near: Vec::new() };
        host.translator.handle(Event::Begin, &mut host.actions);
        let prompt = json!({"type": "user", "message": {"role": "user", "content": "go"}}).to_string();
        host.translator.handle(Event::Near(prompt.as_bytes()), &mut host.actions);
        let modes = json!({"currentModeId": "default", "availableModes": [{"id": "default", "name": "Default"}]});
        for (id, result) in [
            (1, json!({"protocolVersion": 1, "agentCapabilities": {}})),
            (2, json!({"sessionId": "s", "modes": modes})),
        ] {
            host.hear(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string().as_bytes());
        }
        let first = host.hear(&chunk("first"));
        assert!(String::from_utf8_lossy(&first).contains("content_block_delta"), "the turn does not stream");
        host
    }

    /// What the host reads for a line of the agent's.
    pub(crate) fn hear(&mut self, line: &[u8]) -> Vec<u8> {
        self.translator.handle(Event::Far(line), &mut self.actions);
        for action in self.actions.drain() {
            match action {
                Action::Near(line) => write_line(&mut self.near, &line),
                Action::NearLong(line) => write_line(&mut self.near, &line.to_line()),
                Action::Chunk(chunk) => write_line(&mut self.near, &chunk.to_line()),
                _ => {}
            }
        }
        std::mem::take(&mut self.near)
    }
}

/// A piece of the agent's answer.
pub(crate) fn chunk(text: &str) -> Vec<u8> {
    let content = json!({"type": "text", "text": text});
    let update = json!({"sessionUpdate": "agent_message_chunk", "content": content});
    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}})
        .to_string()
        .into_bytes()
}
