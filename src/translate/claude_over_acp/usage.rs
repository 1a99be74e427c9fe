//! Tokens, wherever an agent tells of them (quirk 41).

use serde_json::Value;

use super::ClaudeOverAcp;
use super::subagent::parent_of;
use crate::wire::acp_client::{Prompted, Usage as AcpUsage};
use crate::wire::stream_json_agent::Usage;
use crate::wire::text::{Raw, uint};

impl ClaudeOverAcp {
    /// Tokens in the answer to a prompt (quirk 41: four places).
    pub(super) fn count(&mut self, result: &Prompted<'_>) {
        let usage = usage(result.usage).or_else(|| meta_usage(result.meta));
        if let (Some(usage), Some(turn)) = (usage, &mut self.turn) {
            turn.usage = Some(usage);
        }
    }

    /// Tokens in a chunk's `_meta` (quirk 31): one model call's, so they add up.
    pub(super) fn harvest(&mut self, meta: Raw<'_>) {
        // A subagent's are not the answer's.
        if let Some(more) = meta_usage(meta).filter(|_| parent_of(meta).is_none()) {
            self.count_message(more);
        }
    }
}

/// ACP's counts.
fn usage(raw: Raw<'_>) -> Option<Usage> {
    let counts = AcpUsage::read(raw);
    let input = uint(counts.input_tokens)?;
    let cached = uint(counts.cached_read_tokens).unwrap_or_default();
    let written = uint(counts.cached_write_tokens).unwrap_or_default();
    Some(Usage {
        input_tokens: input.saturating_sub(cached + written),
        output_tokens: uint(counts.output_tokens).unwrap_or_default(),
        cache_read_input_tokens: cached,
        cache_creation_input_tokens: written,
    })
}

/// Counts in `_meta`: Qwen's and Grok's `usage`, Gemini's `quota`.
fn meta_usage(meta: Raw<'_>) -> Option<Usage> {
    let meta: Value = serde_json::from_str(meta?.get()).ok()?;
    if let Some(own) = meta.get("usage") {
        let raw = serde_json::value::to_raw_value(own).ok()?;
        return usage(Some(&raw));
    }
    let quota = meta.pointer("/quota/token_count")?;
    let number = |name: &str| quota.get(name).and_then(Value::as_u64).unwrap_or_default();
    Some(Usage { input_tokens: number("input_tokens"), output_tokens: number("output_tokens"), ..Usage::default() })
}
