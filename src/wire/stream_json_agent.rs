//! stream-json from the agent's side: the lines that a host reads from `claude`, and what is read of the host's.
//!
//! Owns the shapes only. Keeps: every member that a known host demands is always written (stream-json-hosts.md, sections
//! 0 and 1.4), and only message types that old hosts know (rule 13).

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::jsonrpc::to_line;
use super::stream_json::lenient;

lenient! {
    /// A `user` line of a host.
    HostUser {
        /// `{role, content}`.
        message,
        /// The message's id; may be absent.
        uuid,
        /// `now`, `next`, `later`.
        priority,
        /// False: no answer is wanted.
        should_query = "shouldQuery",
    }
}

lenient! {
    /// `message` of a `user` line.
    HostMessage {
        /// A string, or blocks.
        content,
    }
}

lenient! {
    /// A content block of a host.
    HostBlock {
        /// `text`, `image`, `document`.
        kind = "type",
        /// Of `text`.
        text,
        /// Of `image` and `document`.
        source,
        /// Of `document`.
        title,
    }
}

lenient! {
    /// `source` of an image or document.
    HostSource {
        /// `base64`, `text`, `url`.
        kind = "type",
        /// MIME type.
        media_type,
        /// base64, or text.
        data,
        /// An address.
        url,
    }
}

lenient! {
    /// `control_request.request` of a host.
    HostRequest {
        /// Which request.
        subtype,
        /// Of `set_permission_mode`.
        mode,
        /// Of `set_model`.
        model,
        /// Of `interrupt`.
        cancel_queued,
        /// Of `set_max_thinking_tokens`: a number, or null.
        max_thinking_tokens,
        /// Of `mcp_message`.
        server_name,
        /// Of `mcp_message`.
        message,
        /// Of `mcp_set_servers`.
        servers,
        /// Of `cancel_async_message`.
        message_uuid,
        /// Of `initialize`: a string, or an array of strings.
        system_prompt = "systemPrompt",
        /// Of `initialize`.
        append_system_prompt = "appendSystemPrompt",
        /// Of `initialize`: event → `[{matcher, hookCallbackIds, timeout}]`.
        hooks,
        /// Of `initialize`: names.
        sdk_mcp_servers = "sdkMcpServers",
        /// Of `initialize`: name → `{initializeResult, toolsListResult}`.
        sdk_mcp_server_manifests = "sdkMcpServerManifests",
        /// Of `initialize`: servers as `--mcp-config` has them.
        mcp_servers = "mcpServers",
        /// Of `initialize`.
        json_schema = "jsonSchema",
        /// Of `initialize`: a boolean.
        forward_subagent_text = "forwardSubagentText",
        /// Of `initialize` and `apply_flag_settings`.
        settings,
        /// Of `initialize`.
        managed_settings = "managedSettings",
        /// Of `initialize`.
        disallowed_tools = "disallowedTools",
    }
}

lenient! {
    /// `response` of a host's successful `control_response`, whatever it answers.
    HostAnswer {
        /// Of `can_use_tool`: `allow` or `deny`.
        behavior,
        /// Of `can_use_tool`.
        updated_input = "updatedInput",
        /// Of `can_use_tool`.
        updated_permissions = "updatedPermissions",
        /// Of `can_use_tool`.
        message,
        /// Of `can_use_tool`.
        interrupt,
        /// Of `can_use_tool`, as old Python SDKs answer: a boolean.
        allow,
        /// The same: the changed input.
        input,
        /// The same: why not. Of hooks: why.
        reason,
        /// Of `mcp_message`.
        mcp_response,
        /// Of `elicitation`: `accept`, `decline`, `cancel`.
        action,
        /// Of `elicitation`.
        content,
        /// Of hooks: false stops.
        proceed = "continue",
        /// Of hooks.
        stop_reason = "stopReason",
        /// Of hooks: `block`, `approve`.
        decision,
        /// Of hooks.
        system_message = "systemMessage",
        /// Of hooks.
        hook_specific_output = "hookSpecificOutput",
    }
}

lenient! {
    /// `hookSpecificOutput`.
    HookOutput {
        /// `allow`, `deny`, `ask`.
        permission_decision = "permissionDecision",
        /// Why.
        permission_decision_reason = "permissionDecisionReason",
        /// Another input.
        updated_input = "updatedInput",
        /// Text for the model.
        additional_context = "additionalContext",
        /// Of `PermissionRequest`: `{behavior, …}`.
        decision,
    }
}

/// Tokens as the Messages API counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Read by the model, beside the cached.
    pub input_tokens: u64,
    /// Written by the model.
    pub output_tokens: u64,
    /// Read from a cache.
    pub cache_read_input_tokens: u64,
    /// Written into a cache.
    pub cache_creation_input_tokens: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.input_tokens += more.input_tokens;
        self.output_tokens += more.output_tokens;
        self.cache_read_input_tokens += more.cache_read_input_tokens;
        self.cache_creation_input_tokens += more.cache_creation_input_tokens;
    }
}

/// A content block of an `assistant` line: only these three are known to every host (rule 10).
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block<'a> {
    /// Text of the answer.
    Text {
        /// The text.
        text: &'a str,
    },
    /// The model's thoughts.
    Thinking {
        /// The text.
        thinking: &'a str,
        /// Hosts demand one; an ACP agent has none.
        signature: &'static str,
    },
    /// A call.
    ToolUse {
        /// The call's id.
        id: &'a str,
        /// Claude's name of the tool, where it has one.
        name: &'a str,
        /// The input.
        input: &'a serde_json::Map<String, Value>,
    },
}

/// An `assistant` line.
#[derive(Debug)]
pub struct Assistant<'a> {
    /// The same for all blocks of one message.
    pub message_id: &'a str,
    /// The agent's model.
    pub model: &'a str,
    /// One block a line.
    pub block: Block<'a>,
    /// So far.
    pub usage: Usage,
    /// The host's session id.
    pub session_id: &'a str,
    /// This line's.
    pub uuid: &'a str,
    /// Why there is no answer: `authentication_failed` …
    pub error: Option<&'static str>,
    /// It was cut short.
    pub aborted: bool,
    /// The call of the subagent that speaks.
    pub parent: Option<&'a str>,
}

/// The `assistant` line.
#[must_use]
pub fn assistant(a: &Assistant<'_>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Message<'a> {
        id: &'a str,
        r#type: &'static str,
        role: &'static str,
        model: &'a str,
        content: [&'a Block<'a>; 1],
        stop_reason: Option<()>,
        stop_sequence: Option<()>,
        usage: Usage,
    }
    #[derive(Serialize)]
    struct Line<'a> {
        r#type: &'static str,
        message: Message<'a>,
        parent_tool_use_id: Option<&'a str>,
        session_id: &'a str,
        uuid: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'static str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        aborted: bool,
    }
    to_line(&Line {
        r#type: "assistant",
        message: Message {
            id: a.message_id,
            r#type: "message",
            role: "assistant",
            model: a.model,
            content: [&a.block],
            stop_reason: None,
            stop_sequence: None,
            usage: a.usage,
        },
        parent_tool_use_id: a.parent,
        session_id: a.session_id,
        uuid: a.uuid,
        error: a.error,
        aborted: a.aborted,
    })
}

/// A `stream_event` line.
#[must_use]
pub fn stream_event(session_id: &str, uuid: &str, event: &StreamEvent<'_>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Line<'a> {
        r#type: &'static str,
        event: &'a StreamEvent<'a>,
        session_id: &'a str,
        parent_tool_use_id: Option<()>,
        uuid: &'a str,
    }
    to_line(&Line { r#type: "stream_event", event, session_id, parent_tool_use_id: None, uuid })
}

/// An event of the Messages stream.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StreamEvent<'a> {
    /// A message begins.
    MessageStart {
        /// It, still empty.
        message: EmptyMessage<'a>,
    },
    /// A block begins.
    ContentBlockStart {
        /// Its place in the message.
        index: u32,
        /// It, still empty.
        content_block: Block<'a>,
    },
    /// A piece of a block.
    ContentBlockDelta {
        /// The block.
        index: u32,
        /// The piece.
        delta: Delta<'a>,
    },
    /// A block ends.
    ContentBlockStop {
        /// Which.
        index: u32,
    },
    /// What is known at the message's end.
    MessageDelta {
        /// Why it ended.
        delta: MessageDelta,
        /// All tokens.
        usage: Usage,
    },
    /// A message ends.
    MessageStop,
}

/// A message at its start.
#[derive(Debug, Serialize)]
pub struct EmptyMessage<'a> {
    /// Its id.
    pub id: &'a str,
    /// `message`.
    pub r#type: &'static str,
    /// `assistant`.
    pub role: &'static str,
    /// The agent's model.
    pub model: &'a str,
    /// Nothing yet.
    pub content: [(); 0],
    /// Not yet.
    pub stop_reason: Option<()>,
    /// Never.
    pub stop_sequence: Option<()>,
    /// None yet.
    pub usage: Usage,
}

/// `delta` of `message_delta`.
#[derive(Debug, Serialize)]
pub struct MessageDelta {
    /// `tool_use`, `end_turn` …
    pub stop_reason: &'static str,
    /// Never.
    pub stop_sequence: Option<()>,
}

/// A piece of a block.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Delta<'a> {
    /// Text of the answer.
    TextDelta {
        /// The text.
        text: &'a str,
    },
    /// Text of the thoughts.
    ThinkingDelta {
        /// The text.
        thinking: &'a str,
    },
    /// The input of a call, as JSON text.
    InputJsonDelta {
        /// The JSON.
        partial_json: &'a str,
    },
}

/// The result of a call: a `user` line.
#[derive(Debug)]
pub struct ToolResultLine<'a> {
    /// The call.
    pub tool_use_id: &'a str,
    /// What it returned, as the model reads it.
    pub content: &'a str,
    /// It failed.
    pub is_error: bool,
    /// What it returned, for hosts.
    pub structured: Option<&'a Value>,
    /// The call of the subagent whose call it was.
    pub parent: Option<&'a str>,
    /// The host's session id.
    pub session_id: &'a str,
    /// This line's.
    pub uuid: &'a str,
}

/// The result of a call: a `user` line.
#[must_use]
pub fn tool_result(result: &ToolResultLine<'_>) -> Vec<u8> {
    let ToolResultLine { tool_use_id, content, is_error, structured, parent, session_id, uuid } = *result;
    #[derive(Serialize)]
    struct Block<'a> {
        tool_use_id: &'a str,
        r#type: &'static str,
        content: &'a str,
        is_error: bool,
    }
    #[derive(Serialize)]
    struct Message<'a> {
        role: &'static str,
        content: [Block<'a>; 1],
    }
    #[derive(Serialize)]
    struct Line<'a> {
        r#type: &'static str,
        message: Message<'a>,
        parent_tool_use_id: Option<&'a str>,
        session_id: &'a str,
        uuid: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_use_result: Option<&'a Value>,
    }
    to_line(&Line {
        r#type: "user",
        message: Message { role: "user", content: [Block { tool_use_id, r#type: "tool_result", content, is_error }] },
        parent_tool_use_id: parent,
        session_id,
        uuid,
        tool_use_result: structured,
    })
}

/// A `user` line that shows text the user's side put into the conversation, such as `[Request interrupted by user]`.
#[must_use]
pub fn user_text(text: &str, session_id: &str, uuid: &str) -> Vec<u8> {
    to_line(&serde_json::json!({
        "type": "user",
        "message": {"role": "user", "content": [{"type": "text", "text": text}]},
        "parent_tool_use_id": null,
        "session_id": session_id,
        "uuid": uuid,
    }))
}

/// A host's own message, echoed (`--replay-user-messages`).
#[must_use]
pub fn replay(message: &RawValue, session_id: &str, uuid: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Line<'a> {
        r#type: &'static str,
        message: &'a RawValue,
        session_id: &'a str,
        parent_tool_use_id: Option<()>,
        uuid: &'a str,
        #[serde(rename = "isReplay")]
        is_replay: bool,
    }
    to_line(&Line { r#type: "user", message, session_id, parent_tool_use_id: None, uuid, is_replay: true })
}

/// A `system` line: `subtype` and what belongs to it.
#[must_use]
pub fn system(subtype: &str, mut members: serde_json::Map<String, Value>, session_id: &str, uuid: &str) -> Vec<u8> {
    members.insert("type".into(), "system".into());
    members.insert("subtype".into(), subtype.into());
    members.insert("session_id".into(), session_id.into());
    members.insert("uuid".into(), uuid.into());
    to_line(&members)
}

/// A `control_request` line to the host.
#[must_use]
pub fn ask_host(request_id: &str, request: &Value) -> Vec<u8> {
    #[derive(Serialize)]
    struct Line<'a> {
        r#type: &'static str,
        request_id: &'a str,
        request: &'a Value,
    }
    to_line(&Line { r#type: "control_request", request_id, request })
}

/// Withdraws a `control_request`.
#[must_use]
pub fn withdraw(request_id: &str) -> Vec<u8> {
    to_line(&serde_json::json!({"type": "control_cancel_request", "request_id": request_id}))
}

/// An error as the answer to a host's `control_request`, with a word for programs.
#[must_use]
pub fn refuse_host_as(request_id: &str, error: &str, code: &str) -> Vec<u8> {
    to_line(&serde_json::json!({
        "type": "control_response",
        "response": {"subtype": "error", "request_id": request_id, "error": error, "error_code": code},
    }))
}

/// An error as the answer to a host's `control_request`.
#[must_use]
pub fn refuse_host(request_id: &str, error: &str) -> Vec<u8> {
    to_line(&serde_json::json!({
        "type": "control_response",
        "response": {"subtype": "error", "request_id": request_id, "error": error},
    }))
}
