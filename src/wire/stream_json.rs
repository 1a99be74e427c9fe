//! Claude Code's stream-json: what is read from it, and the lines written to it.
//!
//! Reading looks at the tag first and parses only what is needed; every member is lenient, since the protocol grows
//! with each release (stream-json.md, section 3: treat every unknown type and subtype as ignorable). Writing is the
//! only way a line reaches claude's stdin, and only the types here can be written: a peer's line is never passed on
//! raw, because a malformed line ends claude and `bash_command` runs without a permission check (section 2.2).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::shape::{Misses, Shape};
use super::text::{Raw, text};

mod write;
pub use write::*;

/// The envelope of any line: the tag, what tells lines apart, and the bodies still raw.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Line<'a> {
    /// `type`.
    #[serde(borrow, rename = "type")]
    pub kind: Raw<'a>,
    /// `subtype` of `system` and `result`.
    #[serde(borrow)]
    pub subtype: Raw<'a>,
    /// The call of the subagent that a line belongs to; for `tool_progress` the call itself.
    #[serde(borrow)]
    pub parent_tool_use_id: Raw<'a>,
    /// Claude's session id of the moment; changes on `/clear`.
    #[serde(borrow)]
    pub session_id: Raw<'a>,
    /// Body of `stream_event`.
    #[serde(borrow)]
    pub event: Raw<'a>,
    /// Body of `assistant` and `user`.
    #[serde(borrow)]
    pub message: Raw<'a>,
    /// Of control lines.
    #[serde(borrow)]
    pub request_id: Raw<'a>,
    /// Body of `control_request`.
    #[serde(borrow)]
    pub request: Raw<'a>,
    /// Body of `control_response`.
    #[serde(borrow)]
    pub response: Raw<'a>,
}

impl<'a> Line<'a> {
    /// Reads the envelope; fails on what is not a JSON object.
    ///
    /// # Errors
    /// serde_json's.
    pub fn parse(line: &'a [u8]) -> Result<Self, serde_json::Error> {
        if !is_object(line) {
            return Err(serde::de::Error::custom("a line must be a JSON object"));
        }
        serde_json::from_slice(line).or_else(|error| Self::of_members(line).ok_or(error))
    }

    /// Of a member that comes twice, which serde refuses, the last counts.
    fn of_members(line: &'a [u8]) -> Option<Self> {
        let members = members(line);
        let member = |name: &str| members.get(name).copied().filter(|raw| raw.get() != "null");
        (!members.is_empty()).then(|| Self {
            kind: member("type"),
            subtype: member("subtype"),
            parent_tool_use_id: member("parent_tool_use_id"),
            session_id: member("session_id"),
            event: member("event"),
            message: member("message"),
            request_id: member("request_id"),
            request: member("request"),
            response: member("response"),
        })
    }

    /// The `type`, or an empty string.
    #[must_use]
    pub fn kind(&self) -> Cow<'a, str> {
        text(self.kind).unwrap_or_default()
    }

    /// The `subtype`, or an empty string.
    #[must_use]
    pub fn subtype(&self) -> Cow<'a, str> {
        text(self.subtype).unwrap_or_default()
    }
}

/// A string that is borrowed wherever it holds no escape.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Str<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// A `content_block_delta` read in one pass: the line that comes for every token. What does not fit this shape to the
/// letter is no error: [`Line`] reads it member by member.
#[derive(Debug, Deserialize)]
pub struct DeltaLine<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    /// The subagent's call.
    #[serde(borrow)]
    pub parent_tool_use_id: Option<Str<'a>>,
    /// The event.
    #[serde(borrow)]
    pub event: DeltaEvent<'a>,
    #[serde(borrow)]
    uuid: Option<Str<'a>>,
}

/// The event of a [`DeltaLine`].
#[derive(Debug, Deserialize)]
pub struct DeltaEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    /// The block's index in its message.
    pub index: u32,
    /// What is new.
    #[serde(borrow)]
    pub delta: StrictDelta<'a>,
}

/// The delta of a [`DeltaLine`].
#[derive(Debug, Deserialize)]
pub struct StrictDelta<'a> {
    /// As in [`Delta`].
    #[serde(borrow, rename = "type")]
    pub kind: Str<'a>,
    /// As in [`Delta`].
    #[serde(borrow)]
    pub text: Option<Str<'a>>,
    /// As in [`Delta`].
    #[serde(borrow)]
    pub thinking: Option<Str<'a>>,
    /// As in [`Delta`].
    #[serde(borrow)]
    pub partial_json: Option<Str<'a>>,
}

impl<'a> DeltaLine<'a> {
    /// Reads a line of just this shape; `None` for every other line.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        // Made once: making it costs more than the look.
        static TAG: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"content_block_delta\""));
        // Most other lines are told by one fast look.
        TAG.find(line)?;
        // As a text it is checked once and not string by string.
        let line: Self = serde_json::from_str(std::str::from_utf8(line).ok()?).ok()?;
        (line.kind.0 == "stream_event" && line.event.kind.0 == "content_block_delta").then_some(line)
    }
}

/// Reads the deltas of a stream: a line that differs from the one before in its text and `uuid` only is not read again
/// ([`Shape`]).
#[derive(Debug, Default)]
pub struct Deltas {
    known: Option<Box<KnownDelta>>,
    misses: Misses,
}

/// A delta that was read, without its text.
#[derive(Debug)]
struct KnownDelta {
    shape: Shape<2>,
    parent: Option<Box<str>>,
    index: u32,
    kind: Box<str>,
    member: Member,
}

/// The member of a delta that holds what is new.
#[derive(Debug, Clone, Copy)]
enum Member {
    Text,
    Thinking,
    PartialJson,
}

impl Deltas {
    /// What [`DeltaLine::parse`] reads.
    #[must_use]
    pub fn read<'a>(&'a mut self, line: &'a [u8]) -> Option<DeltaLine<'a>> {
        let Some([new, uuid]) = self.known.as_ref().and_then(|known| known.shape.strings(line)) else {
            let read = DeltaLine::parse(line)?;
            if self.misses.miss() {
                self.learn(line, &read);
            }
            return Some(read);
        };
        self.misses.hit();
        let known = self.known.as_ref()?;
        let borrowed = |text: &'a str| Str(Cow::Borrowed(text));
        let mut delta = StrictDelta { kind: borrowed(&known.kind), text: None, thinking: None, partial_json: None };
        *match known.member {
            Member::Text => &mut delta.text,
            Member::Thinking => &mut delta.thinking,
            Member::PartialJson => &mut delta.partial_json,
        } = Some(new);
        Some(DeltaLine {
            kind: borrowed("stream_event"),
            parent_tool_use_id: known.parent.as_deref().map(borrowed),
            event: DeltaEvent { kind: borrowed("content_block_delta"), index: known.index, delta },
            uuid: Some(uuid),
        })
    }

    fn learn(&mut self, line: &[u8], read: &DeltaLine<'_>) {
        let delta = &read.event.delta;
        let (new, member) = match (&delta.text, &delta.thinking, &delta.partial_json) {
            (Some(text), None, None) => (text, Member::Text),
            (None, Some(text), None) => (text, Member::Thinking),
            (None, None, Some(text)) => (text, Member::PartialJson),
            _ => return,
        };
        let shape = read.uuid.as_ref().and_then(|uuid| Shape::of(line, [new, uuid]));
        let Some(shape) = shape else { return };
        self.known = Some(Box::new(KnownDelta {
            shape,
            parent: read.parent_tool_use_id.as_ref().map(|id| (&*id.0).into()),
            index: read.event.index,
            kind: (&*delta.kind.0).into(),
            member,
        }));
    }
}

/// The members of an object, unread; of those that come twice the last.
pub(crate) fn members(line: &[u8]) -> HashMap<String, &RawValue> {
    serde_json::from_slice(line).unwrap_or_default()
}

/// Whether a text is a JSON object, if it is JSON.
pub(crate) fn is_object(json: &[u8]) -> bool {
    json.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{')
}

/// Types whose members are read one by one: what is absent, `null` or of another shape is `None`.
macro_rules! lenient {
    (@name $field:ident $rename:literal) => { $rename };
    (@name $field:ident) => { stringify!($field) };
    ($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident $(= $rename:literal)?,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default, serde::Deserialize)]
        #[serde(default)]
        pub struct $name<'a> {
            $($(#[$fdoc])* #[serde(borrow $(, rename = $rename)?)] pub $field: $crate::text::Raw<'a>,)*
        }
        impl<'a> $name<'a> {
            /// Reads the members it knows; anything but an object is empty.
            #[must_use]
            pub fn read(raw: $crate::text::Raw<'a>) -> Self {
                raw.map(|r| Self::of_line(r.get().as_bytes())).unwrap_or_default()
            }
            /// Reads the members it knows from a whole line.
            #[must_use]
            pub fn of_line(line: &'a [u8]) -> Self {
                // serde would also read an array into a struct, by position.
                if !$crate::stream_json::is_object(line) {
                    return Self::default();
                }
                serde_json::from_slice(line).unwrap_or_else(|_| Self::of_members(line))
            }
            /// Of a member that comes twice, which serde refuses, the last counts, as in JavaScript.
            fn of_members(line: &'a [u8]) -> Self {
                let members = $crate::stream_json::members(line);
                let member = |name: &str| members.get(name).copied().filter(|raw| raw.get() != "null");
                Self { $($field: member($crate::stream_json::lenient!(@name $field $($rename)?)),)* }
            }
        }
    };
}

pub(crate) use lenient;

lenient! {
    /// `stream_event.event`: an event of the Anthropic Messages stream.
    StreamEvent {
        /// `message_start` `content_block_start` `content_block_delta` `content_block_stop` `message_delta` `message_stop`.
        kind = "type",
        /// The block's index in its message.
        index,
        /// Of `content_block_delta` and `message_delta`.
        delta,
        /// Of `content_block_start`.
        content_block,
        /// Of `message_start`.
        message,
        /// Of `message_delta`.
        usage,
        /// Of `message_stop`, when an attempt was given up.
        abandoned_blocks,
    }
}

lenient! {
    /// `content_block_delta.delta`.
    Delta {
        /// `text_delta` `thinking_delta` `input_json_delta` `signature_delta` `citations_delta`.
        kind = "type",
        /// Of `text_delta`.
        text,
        /// Of `thinking_delta`.
        thinking,
        /// Of `input_json_delta`.
        partial_json,
    }
}

lenient! {
    /// A content block of `assistant`, `user` or `content_block_start`.
    Block {
        /// `text` `thinking` `redacted_thinking` `tool_use` `tool_result` …
        kind = "type",
        /// Of `text`.
        text,
        /// Of `thinking`.
        thinking,
        /// Of `tool_use`.
        id,
        /// Of `tool_use`.
        name,
        /// Of `tool_use`.
        input,
        /// Of `tool_result`.
        tool_use_id,
        /// Of `tool_result`: a string or blocks.
        content,
        /// Of `tool_result`; missing means false.
        is_error,
        /// Of `image`.
        source,
    }
}

lenient! {
    /// `message` of an `assistant` or `user` line.
    ApiMessage {
        /// Shared by all blocks of one API message.
        id,
        /// `user`, `assistant`.
        role,
        /// `<synthetic>` for what claude wrote itself.
        model,
        /// A string or blocks.
        content,
        /// Not final while streaming.
        usage,
    }
}

lenient! {
    /// The members of an `assistant` line besides its message.
    AssistantExtra {
        /// Set when the text is an API failure: `rate_limit`, `authentication_failed` …
        error,
        /// True for the text of an API failure.
        is_api_error_message,
        /// HTTP status of that failure.
        api_error_status,
        /// True for the partial text of an interrupted stream.
        aborted,
    }
}

lenient! {
    /// The members of a `user` line besides its message.
    UserExtra {
        /// Object on success, string on error (section 0, point 7).
        tool_use_result,
        /// `[{id, permission_decision?, non_execution_kind?}]`.
        tool_result_meta,
        /// An echo of our own line, or a local command's record.
        is_replay = "isReplay",
        /// A prompt that claude made itself.
        is_synthetic = "isSynthetic",
        /// Wave: `tool_result` as a message of its own carries these at the top.
        tool_use_id,
        /// Wave.
        content,
        /// Wave.
        is_error,
    }
}

lenient! {
    /// A `result` line.
    ResultLine {
        /// `success`, `error_during_execution`, `error_max_turns` …
        subtype,
        /// An API failure is `success` with `is_error` (section 0, point 2).
        is_error,
        /// The last text, or the failure's text.
        result,
        /// Instead of `result` unless the subtype is `success`.
        errors,
        /// The API's.
        stop_reason,
        /// Why the turn ended.
        terminal_reason,
        /// HTTP status.
        api_error_status,
        /// The prompts that this result ends.
        user_message_uuids,
        /// `{kind}`: `task-notification` for a turn that nobody asked for.
        origin,
        /// Cumulative.
        total_cost_usd,
        /// Of this turn.
        usage,
        /// Cumulative, per model.
        model_usage = "modelUsage",
        /// Claude's session id.
        session_id,
    }
}

lenient! {
    /// Token counts as the API gives them.
    Usage {
        /// Not cached.
        input_tokens,
        /// Generated.
        output_tokens,
        /// Written to the cache.
        cache_creation_input_tokens,
        /// Read from the cache.
        cache_read_input_tokens,
    }
}

lenient! {
    /// A `system` line, all subtypes in one.
    SystemLine {
        /// Which one.
        subtype,
        /// Of `init`, `status`.
        permission_mode = "permissionMode",
        /// Of `init`.
        mcp_servers,
        /// Of `status`: `requesting`, `compacting`, null.
        status,
        /// Claude's session id.
        session_id,
        /// Of `task_*`, `permission_denied`.
        tool_use_id,
        /// Of `task_*`.
        task_id,
        /// Of `task_started`.
        is_backgrounded,
        /// Of `task_updated`.
        patch,
        /// Of `task_notification`.
        summary,
        /// Of `commands_changed`.
        commands,
        /// Of `permission_denied`.
        message,
        /// Of `permission_denied`.
        tool_name,
        /// Of `session_title_changed`.
        title,
        /// Of `background_tasks_changed`.
        tasks,
    }
}

lenient! {
    /// `task_updated.patch`.
    TaskPatch {
        /// `completed`, `failed`, `killed` …
        status,
        /// What went wrong.
        error,
        /// Whether it moved to the background.
        is_backgrounded,
    }
}

lenient! {
    /// `control_request.request` from claude.
    ControlRequest {
        /// `can_use_tool`, `hook_callback` …
        subtype,
        /// Of `can_use_tool`.
        tool_name,
        /// Of `can_use_tool`.
        input,
        /// Of `can_use_tool`.
        tool_use_id,
        /// What an "always" may grant.
        permission_suggestions,
        /// The path that needs the permission.
        blocked_path,
        /// Why claude asks.
        decision_reason,
        /// True: no "always" can satisfy the gate that asked.
        suppress_always_allow_rule,
        /// True: a policy asks, no rule may silence it.
        server_policy_ask_only,
        /// An `ask` rule matched: an allow rule would not silence it.
        matched_ask_rule,
        /// True: the refusal is the default.
        default_to_no,
        /// The subagent that asks.
        agent_id,
        /// For a person.
        description,
    }
}

lenient! {
    /// `control_response.response`.
    ControlResponse {
        /// `success` or `error`.
        subtype,
        /// Ours.
        request_id,
        /// Body of a success; may be absent.
        response,
        /// Text of an error.
        error,
    }
}

lenient! {
    /// The body of claude's answer to `initialize`.
    InitializeResult {
        /// `[{name, description, argumentHint}]`.
        commands,
        /// The mode that claude's own settings give.
        current_permission_mode,
    }
}

lenient! {
    /// An MCP server as `system/init` has it.
    McpServer {
        /// As it was given.
        name,
        /// `connected`, `failed`, `pending` …
        status,
    }
}

lenient! {
    /// A slash command.
    Command {
        /// Without the slash.
        name,
        /// For a person.
        description,
        /// What to type after it.
        argument_hint = "argumentHint",
    }
}

lenient! {
    /// `command_lifecycle`: the life of a user message that carries a `uuid`.
    Lifecycle {
        /// The message's uuid.
        command_uuid,
        /// `queued` `started` `completed` `cancelled` `discarded` `refused`.
        state,
    }
}

lenient! {
    /// Any other top-level line that names a call or a conversation.
    Misc {
        /// Of `conversation_reset`.
        new_conversation_id,
        /// Of Wave's top-level `session_state_changed`.
        state,
        /// Of `tool_progress`.
        parent_tool_use_id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let line =
            Line::parse(br#"{"duration_api_ms":5,"stop_reason":"end_turn","type":"result","subtype":"success"}"#)
                .unwrap_or_default();
        assert_eq!((&*line.kind(), &*line.subtype()), ("result", "success"));
    }

    #[test]
    fn a_member_of_the_wrong_type_does_not_lose_the_line() {
        let line = Line::parse(br#"{"type":"assistant","parent_tool_use_id":7,"message":"x"}"#).unwrap_or_default();
        assert_eq!(line.kind(), "assistant");
        assert_eq!(text(line.parent_tool_use_id), None);
        assert!(ApiMessage::read(line.message).content.is_none());
    }

    #[test]
    fn a_delta_is_read_in_one_pass_and_an_odd_one_member_by_member() {
        let line = br#"{"uuid":"u","parent_tool_use_id":null,"event":{"delta":{"text":"a\n","type":"text_delta"},"index":1,"type":"content_block_delta"},"type":"stream_event"}"#;
        let delta = DeltaLine::parse(line).unwrap_or_else(|| panic!("not read"));
        assert_eq!(delta.event.delta.text.map(|t| t.0.into_owned()).as_deref(), Some("a\n"));
        // Half of a surrogate pair, an index of another type, another message that only quotes the word.
        for odd in [
            &br#"{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ud83d"}}}"#[..],
            br#"{"type":"stream_event","event":{"type":"content_block_delta","index":"0","delta":{"type":"text_delta","text":"x"}}}"#,
            br#"{"type":"assistant","message":{"content":"content_block_delta"}}"#,
        ] {
            assert!(DeltaLine::parse(odd).is_none());
        }
    }

    #[test]
    fn a_delta_like_the_one_before_is_read_as_one_that_is_not() {
        let delta = |index: u32, kind: &str, member: &str, text: &str, uuid: &str| {
            format!(
                r#"{{"type":"stream_event","event":{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}","{member}":"{text}"}}}},"parent_tool_use_id":null,"uuid":"{uuid}"}}"#
            )
        };
        let mut deltas = Deltas::default();
        for line in [
            delta(0, "text_delta", "text", "a", "1"),
            delta(0, "text_delta", "text", "b", "2"),
            delta(0, "text_delta", "text", r"\n", "3"),
            delta(0, "text_delta", "text", "c", r"\n"),
            delta(0, "text_delta", "text", r"\ud83d", "4"),
            delta(1, "thinking_delta", "thinking", "d", "5"),
            delta(1, "thinking_delta", "thinking", "e", "6"),
            delta(1, "thinking_delta", "thinking", "f", "7").replace("null", r#""call""#),
            delta(2, "input_json_delta", "partial_json", "{", "8"),
            delta(2, "input_json_delta", "partial_json", "}", "9"),
            delta(2, "signature_delta", "signature", "x", "10"),
            delta(0, "text_delta", "text", "g", "11").replace("stream_event", "stream"),
        ] {
            let (fast, whole) = (deltas.read(line.as_bytes()), DeltaLine::parse(line.as_bytes()));
            assert_eq!(format!("{fast:?}"), format!("{whole:?}"), "{line}");
        }
        let next = delta(2, "input_json_delta", "partial_json", "more", "12");
        let known = deltas.known.as_ref().and_then(|known| known.shape.strings(next.as_bytes()));
        assert!(known.is_some(), "the last shape is the one that is known");
    }

    #[test]
    fn of_a_member_that_comes_twice_the_last_counts_and_the_others_are_not_lost() {
        let raw = br#"{"role":"user","content":"a","content":"b","id":"x","id":null}"#;
        let message = ApiMessage::of_line(raw);
        assert_eq!(text(message.content).as_deref(), Some("b"));
        assert_eq!(text(message.role).as_deref(), Some("user"));
        assert!(message.id.is_none());
        let line = Line::parse(br#"{"type":"user","type":"assistant","message":{}}"#).unwrap_or_default();
        assert_eq!((line.kind().as_ref(), line.message.is_some()), ("assistant", true));
        assert!(Line::parse(br#"{"type":"user","type":"#).is_err());
    }

    #[test]
    fn only_an_object_is_a_line() {
        assert!(Line::parse(b"[1]").is_err());
        assert!(Line::parse(b"3").is_err());
        assert!(Line::parse(b"{\"type\":").is_err());
    }
}
