//! Updates that are no calls.
//!
//! Owns the way of text: a piece is looked at and passes as the bytes it came in. Owns quirks 31 (Qwen 0.24, fast-agent: empty
//! pieces that carry counts), 32 (Vibe 3.0: the prompt comes back in its own turn), 43 (updates of sessions that the editor does
//! not know yet), 56 (Gemini: see `modes`), and the commands that Grok 1.0 repeats with every call of its model. Text that is no
//! answer of the model's (quirk 30) cannot be told from one that is, and passes.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::open::State;
use super::{AcpOverAcp, Stage, strict};
use crate::translate::Actions;
use crate::wire::acp::methods;
use crate::wire::acp_client::{Block, SessionParams, Update};
use crate::wire::acp_editor::Meta;
use crate::wire::acp_piece::Piece;
use crate::wire::jsonrpc;
use crate::wire::text::{Raw, text, uint};

/// A `session/update` of ours.
pub(super) fn update_line(session: &str, update: Map<String, Value>) -> Vec<u8> {
    jsonrpc::notification(methods::SESSION_UPDATE, &json!({ "sessionId": session, "update": update }))
}

/// The line of an update that was changed; what stands beside it in the parameters stays.
pub(super) fn changed_line(params: Raw<'_>, update: &Map<String, Value>) -> Vec<u8> {
    let text = Value::Object(update.clone()).to_string();
    let mut all = strict::members(params);
    let update = strict::raw(text);
    all.insert("update".into(), &update);
    let params = strict::write(all.iter().map(|(name, value)| (name.as_str(), value.get())));
    jsonrpc::notification(methods::SESSION_UPDATE, &params)
}

impl AcpOverAcp {
    /// Whether the editor is told of an update now; one that comes before its session is open is kept.
    fn is_told(&mut self, id: &str, line: &[u8], out: &mut Actions) -> bool {
        let Some(session) = self.sessions.get_mut(id) else {
            let is_opening = self.stage == Stage::Ready && self.is_opening();
            if !(is_opening && self.early.keep(id, line)) {
                out.note("an update of a session that is not open");
            }
            return false;
        };
        match session.state {
            // The editor has it all already.
            State::Returning | State::Lost => false,
            State::Opening => {
                if !session.keep_early(line) {
                    out.note("too many updates before the session is open");
                }
                false
            }
            State::Loading | State::Live => true,
        }
    }

    /// A piece of text of the usual shape, without counts: most lines.
    pub(super) fn said(&mut self, line: &[u8], piece: &Piece<'_>, out: &mut Actions) {
        let id = &*piece.session_id.0;
        if !self.is_told(id, line, out) {
            return;
        }
        let said = &*piece.text.0;
        if said.is_empty() {
            return out.note("an empty piece of text");
        }
        self.pass_text(id, line, said, out);
    }

    fn pass_text(&mut self, id: &str, line: &[u8], said: &str, out: &mut Actions) {
        if said.starts_with("[MODE_UPDATE]") && self.says_only_the_mode(id, said) {
            return out.note("the agent tells as text that the mode was set");
        }
        if let Some(turn) = self.sessions.get_mut(id).and_then(|session| session.turn.as_mut()) {
            turn.spoke = true;
        }
        out.near(line.to_vec());
    }

    /// `session/update`.
    pub(super) fn updated(&mut self, line: &[u8], params: Raw<'_>, out: &mut Actions) {
        let read = SessionParams::read(params);
        let (Some(id), Some(raw)) = (text(read.session_id), read.update) else {
            return out.note("an update without a session or without an `update`");
        };
        let update = Update::read(Some(raw));
        let kind = text(update.kind).unwrap_or_default();
        if !self.is_told(&id, line, out) {
            return;
        }
        let Some(session) = self.sessions.get_mut(&*id) else { return };
        match &*kind {
            "agent_message_chunk" | "agent_thought_chunk" => self.piece(&id, line, &update, out),
            "user_message_chunk" => {
                if session.state == State::Live && session.turn.is_some() {
                    out.note("the agent repeats the prompt");
                } else {
                    out.near(line.to_vec());
                }
            }
            "tool_call" | "tool_call_update" => {
                if let Some(turn) = &mut session.turn {
                    turn.spoke = true;
                }
                self.call_said(&id, line, params, raw, &*kind == "tool_call", out);
            }
            "plan" => {
                if let Some(turn) = &mut session.turn {
                    turn.spoke = true;
                }
                mended(line, params, raw, strict::mend_plan, out);
            }
            "available_commands_update" => {
                if session.commands != raw.get() {
                    raw.get().clone_into(&mut session.commands);
                    mended(line, params, raw, strict::mend_commands, out);
                }
            }
            "current_mode_update" => match text(update.current_mode_id) {
                Some(mode) => {
                    session.modes.now(mode.into_owned());
                    out.near(line.to_vec());
                }
                None => out.note("a mode without a name"),
            },
            "usage_update" if uint(update.used).is_none() || uint(update.size).is_none() => {
                out.note("a usage_update without `used` or `size`");
            }
            // Whatever a newer protocol has: the editor knows it or ignores it.
            _ => out.near(line.to_vec()),
        }
    }

    /// A piece of an answer or a thought.
    fn piece(&mut self, id: &str, line: &[u8], update: &Update<'_>, out: &mut Actions) {
        let block = Block::read(update.content);
        if block.kind.is_none() {
            return out.note("a piece of text without content");
        }
        let said = block.text.map(RawValue::get).unwrap_or_default();
        if said == "\"\"" {
            return self.count(id, update, out);
        }
        let said = text(block.text);
        self.pass_text(id, line, said.as_deref().unwrap_or_default(), out);
    }

    /// Counts that come with an empty piece: for the answer, if the agent does not say them there.
    fn count(&mut self, id: &str, update: &Update<'_>, out: &mut Actions) {
        let usage = Meta::read(update.meta).usage.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
        let Some(usage) = usage.filter(|usage| usage["inputTokens"].is_u64() && usage["outputTokens"].is_u64()) else {
            return out.note("an empty piece of text");
        };
        let Some(turn) = self.sessions.get_mut(id).and_then(|session| session.turn.as_mut()) else { return };
        let mut sum = Map::new();
        for name in
            ["inputTokens", "outputTokens", "totalTokens", "thoughtTokens", "cachedReadTokens", "cachedWriteTokens"]
        {
            let of = |usage: &Value| usage[name].as_u64();
            let before = turn.usage.as_ref().and_then(of);
            if let Some(count) = of(&usage).or(before) {
                let both = if of(&usage).is_some() { count + before.unwrap_or(0) } else { count };
                sum.insert(name.into(), both.into());
            }
        }
        if !sum.contains_key("totalTokens") {
            let of = |name: &str| sum.get(name).and_then(Value::as_u64).unwrap_or(0);
            sum.insert("totalTokens".into(), (of("inputTokens") + of("outputTokens")).into());
        }
        turn.usage = Some(Value::Object(sum));
    }
}

/// Passes an update on, made to fit the schema where it does not.
fn mended(
    line: &[u8],
    params: Raw<'_>,
    update: &RawValue,
    mend: fn(&mut Map<String, Value>) -> Option<bool>,
    out: &mut Actions,
) {
    let Ok(mut update) = serde_json::from_str::<Map<String, Value>>(update.get()) else {
        return out.near(line.to_vec());
    };
    match mend(&mut update) {
        None => out.note("an update that says nothing"),
        Some(true) => out.near(changed_line(params, &update)),
        Some(false) => out.near(line.to_vec()),
    }
}
