//! The Agent Client Protocol, version 1, as far as diglot writes it, and the requests it reads.
//!
//! Owns the shapes only. Keeps: nothing is written that the stable schema 1.20 does not have; what ACP has no word
//! for goes into `_meta`. Content that an editor sends is read in `translate::content`, where a wrong shape gets its
//! answer.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::jsonrpc;
use super::text::{Raw, boolean};

/// The version diglot speaks (acp.md, section 0.1).
pub const PROTOCOL_VERSION: u16 = 1;

/// The names of methods, both ways.
pub mod methods {
    #![allow(missing_docs, reason = "each constant is the method's own name")]
    pub const INITIALIZE: &str = "initialize";
    pub const AUTHENTICATE: &str = "authenticate";
    pub const SESSION_NEW: &str = "session/new";
    pub const SESSION_PROMPT: &str = "session/prompt";
    pub const SESSION_CANCEL: &str = "session/cancel";
    pub const SESSION_SET_MODE: &str = "session/set_mode";
    pub const SESSION_UPDATE: &str = "session/update";
    pub const REQUEST_PERMISSION: &str = "session/request_permission";
    pub const CANCEL_REQUEST: &str = "$/cancel_request";
}

/// What an editor says of itself in `initialize`. Malformed values count as unsupported (acp.md, section 1.6).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientCapabilities {
    /// `session.notices`: it shows `notice` updates.
    pub notices: bool,
    /// `_meta.terminal_output`: it shows the output of a command in a terminal of its own.
    pub terminal_output: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawCapabilities<'a> {
    #[serde(borrow)]
    session: Raw<'a>,
    #[serde(borrow, rename = "_meta")]
    meta: Raw<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawSession<'a> {
    #[serde(borrow)]
    notices: Raw<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawMeta<'a> {
    #[serde(borrow)]
    terminal_output: Raw<'a>,
}

fn part<'a, T: Deserialize<'a> + Default>(raw: Raw<'a>) -> T {
    raw.filter(|r| r.get().starts_with('{')).and_then(|r| serde_json::from_str(r.get()).ok()).unwrap_or_default()
}

impl ClientCapabilities {
    /// Reads `clientCapabilities`.
    #[must_use]
    pub fn read(raw: Raw<'_>) -> Self {
        let all: RawCapabilities<'_> = part(raw);
        let session: RawSession<'_> = part(all.session);
        let meta: RawMeta<'_> = part(all.meta);
        Self {
            notices: session.notices.is_some_and(|r| r.get().starts_with('{')),
            terminal_output: boolean(meta.terminal_output) == Some(true),
        }
    }
}

/// The result of `initialize`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// Always [`PROTOCOL_VERSION`].
    pub protocol_version: u16,
    /// What diglot serves.
    pub agent_capabilities: AgentCapabilities,
    /// None: claude logs in by its own command.
    pub auth_methods: [(); 0],
    /// Who answers.
    pub agent_info: AgentInfo,
}

/// Name and version.
#[derive(Debug, Serialize)]
pub struct AgentInfo {
    /// For programs.
    pub name: &'static str,
    /// For people.
    pub title: String,
    /// diglot's.
    pub version: &'static str,
}

/// What diglot serves; what is absent is unsupported.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCapabilities {
    /// `session/load`.
    pub load_session: bool,
    /// What a prompt may hold.
    pub prompt_capabilities: PromptCapabilities,
    /// MCP transports beside stdio.
    pub mcp_capabilities: McpCapabilities,
    /// Optional session methods and parameters.
    pub session_capabilities: SessionCapabilities,
}

/// What a prompt may hold beside text and resource links.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptCapabilities {
    /// Images.
    pub image: bool,
    /// Sound.
    pub audio: bool,
    /// Embedded resources.
    pub embedded_context: bool,
}

/// MCP transports beside stdio.
#[derive(Debug, Serialize)]
pub struct McpCapabilities {
    /// Streamable HTTP.
    pub http: bool,
    /// Server-sent events.
    pub sse: bool,
}

/// Optional session methods and parameters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionCapabilities {
    /// `additionalDirectories` in `session/new`.
    pub additional_directories: Empty,
}

/// `{}`.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Empty {}

/// The result of `session/new`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSessionResult<'a> {
    /// Also claude's session id.
    pub session_id: &'a str,
    /// The permission modes.
    pub modes: Modes<'a>,
}

/// `modes`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Modes<'a> {
    /// The one in force.
    pub current_mode_id: &'a str,
    /// Those that can be set.
    pub available_modes: Vec<Mode<'a>>,
}

/// One mode.
#[derive(Debug, Clone, Serialize)]
pub struct Mode<'a> {
    /// Claude's own name of it.
    pub id: Cow<'a, str>,
    /// For a person.
    pub name: Cow<'a, str>,
    /// For a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Cow<'a, str>>,
}

/// The result of `session/prompt`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptResult<'a> {
    /// One of ACP's five.
    pub stop_reason: &'a str,
}

/// `session/update`'s parameters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionNotification<'a> {
    /// Which session.
    pub session_id: &'a str,
    /// What happened.
    pub update: SessionUpdate<'a>,
}

impl SessionNotification<'_> {
    /// The line that says it.
    #[must_use]
    pub fn to_line(&self) -> Vec<u8> {
        jsonrpc::notification(methods::SESSION_UPDATE, self)
    }
}

/// `session/update`'s variants that diglot writes.
#[derive(Debug, Serialize)]
#[serde(tag = "sessionUpdate", rename_all = "snake_case")]
pub enum SessionUpdate<'a> {
    /// Text of the answer.
    AgentMessageChunk(ContentChunk<'a>),
    /// Text of the model's thoughts.
    AgentThoughtChunk(ContentChunk<'a>),
    /// A call, for the first time.
    ToolCall(ToolCall<'a>),
    /// A change of a call.
    ToolCallUpdate(ToolCall<'a>),
    /// The whole plan.
    Plan {
        /// All entries.
        entries: &'a [PlanEntry],
    },
    /// The slash commands.
    #[serde(rename_all = "camelCase")]
    AvailableCommandsUpdate {
        /// All of them.
        available_commands: &'a [AvailableCommand],
    },
    /// Another permission mode is in force.
    #[serde(rename_all = "camelCase")]
    CurrentModeUpdate {
        /// Its id.
        current_mode_id: &'a str,
    },
    /// How full the context is, and what it cost.
    UsageUpdate {
        /// Tokens in the context.
        used: u64,
        /// Tokens that fit.
        size: u64,
        /// Of the session so far.
        #[serde(skip_serializing_if = "Option::is_none")]
        cost: Option<Cost>,
    },
    /// The session got a title.
    SessionInfoUpdate {
        /// The title.
        title: &'a str,
    },
    /// Something the user should know; only for editors that declare `session.notices`.
    Notice {
        /// `info`, `warning`, `error`.
        severity: &'static str,
        /// One line.
        title: &'a str,
        /// More.
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
    },
}

/// `{content, messageId?}`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContentChunk<'a> {
    /// The piece.
    pub content: ContentBlock<'a>,
    /// The API message it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<&'a str>,
}

/// Content that diglot writes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock<'a> {
    /// Text, Markdown where it is shown.
    Text {
        /// The text.
        text: Cow<'a, str>,
    },
    /// An image.
    #[serde(rename_all = "camelCase")]
    Image {
        /// base64.
        data: Cow<'a, str>,
        /// MIME type.
        mime_type: Cow<'a, str>,
    },
    /// A link.
    ResourceLink {
        /// Where it points.
        uri: Cow<'a, str>,
        /// For a person.
        name: Cow<'a, str>,
    },
}

/// Money.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// How much.
    pub amount: f64,
    /// ISO 4217.
    pub currency: &'static str,
}

/// A plan entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanEntry {
    /// What is to be done.
    pub content: String,
    /// Claude has none: always `medium`.
    pub priority: &'static str,
    /// `pending`, `in_progress`, `completed`.
    pub status: &'static str,
}

/// A slash command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AvailableCommand {
    /// Without the slash.
    pub name: String,
    /// For a person.
    pub description: String,
    /// What to type after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<CommandInput>,
}

/// `{hint}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CommandInput {
    /// For a person.
    pub hint: String,
}

/// The life of a call as ACP names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// Announced; perhaps asked about.
    Pending,
    /// Running.
    InProgress,
    /// Done.
    Completed,
    /// Did not work, was refused or was cut off.
    Failed,
}

/// `tool_call` and `tool_call_update`: everything but the id is optional in an update.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall<'a> {
    /// Claude's id of the call.
    pub tool_call_id: Cow<'a, str>,
    /// One line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<Cow<'a, str>>,
    /// ACP's tool kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Cow<'a, str>>,
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ToolStatus>,
    /// Replaces what was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Vec<ToolCallContent<'a>>>,
    /// Replaces what was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locations: Option<Vec<Location>>,
    /// The call's input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_input: Option<&'a RawValue>,
    /// What ACP has no word for.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<ToolMeta<'a>>,
}

/// `_meta` of a call; editors know these names from the incumbent (acp.md, section 3).
#[derive(Debug, Clone, Default, Serialize)]
pub struct ToolMeta<'a> {
    /// Who calls.
    #[serde(rename = "claudeCode", skip_serializing_if = "Option::is_none")]
    pub claude_code: Option<ClaudeCodeMeta<'a>>,
    /// Announces a terminal of the call's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_info: Option<TerminalInfo<'a>>,
    /// Output for that terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_output: Option<TerminalOutput<'a>>,
    /// Its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_exit: Option<TerminalExit<'a>>,
}

/// `_meta.claudeCode`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaudeCodeMeta<'a> {
    /// Claude's name of the tool.
    pub tool_name: Cow<'a, str>,
    /// The call of the subagent that made this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_tool_use_id: Option<Cow<'a, str>>,
}

/// `_meta.terminal_info`.
#[derive(Debug, Clone, Serialize)]
pub struct TerminalInfo<'a> {
    /// The call's id.
    pub terminal_id: Cow<'a, str>,
}

/// `_meta.terminal_output`.
#[derive(Debug, Clone, Serialize)]
pub struct TerminalOutput<'a> {
    /// The call's id.
    pub terminal_id: Cow<'a, str>,
    /// What was written.
    pub data: Cow<'a, str>,
}

/// `_meta.terminal_exit`.
#[derive(Debug, Clone, Serialize)]
pub struct TerminalExit<'a> {
    /// The call's id.
    pub terminal_id: Cow<'a, str>,
    /// The command's exit code, where it is known.
    pub exit_code: Option<i64>,
    /// Never known.
    pub signal: Option<()>,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Location {
    /// Absolute.
    pub path: String,
    /// From 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

/// What a call shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolCallContent<'a> {
    /// Content.
    Content {
        /// The block.
        content: ContentBlock<'a>,
    },
    /// A change of a file.
    #[serde(rename_all = "camelCase")]
    Diff {
        /// Absolute.
        path: Cow<'a, str>,
        /// `None`: the file is new.
        old_text: Option<Cow<'a, str>>,
        /// What it becomes.
        new_text: Cow<'a, str>,
    },
    /// A terminal that `_meta.terminal_info` announced.
    #[serde(rename_all = "camelCase")]
    Terminal {
        /// The call's id.
        terminal_id: Cow<'a, str>,
    },
}

impl<'a> ToolCallContent<'a> {
    /// A text block.
    #[must_use]
    pub fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Content { content: ContentBlock::Text { text: text.into() } }
    }
}

/// `session/request_permission`'s parameters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestPermission<'a> {
    /// Which session.
    pub session_id: &'a str,
    /// The call, announced before.
    pub tool_call: ToolCall<'a>,
    /// The answers that are possible.
    pub options: &'a [PermissionOption],
}

/// One possible answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption {
    /// Comes back when it is chosen.
    pub option_id: String,
    /// Says exactly what it grants.
    pub name: String,
    /// ACP's kind.
    pub kind: OptionKind,
}

/// ACP's kinds of answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OptionKind {
    /// This call only.
    AllowOnce,
    /// This call and more.
    AllowAlways,
    /// Not this call.
    RejectOnce,
}

/// `$/cancel_request`'s parameters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelRequest<'a> {
    /// The request that is withdrawn.
    pub request_id: &'a super::jsonrpc::Id,
}

/// The result of `session/request_permission`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionOutcome {
    /// An option was chosen.
    Selected {
        /// Ours, or not.
        option_id: String,
        /// `_meta.reason` of the outcome: why the user refused.
        reason: Option<String>,
    },
    /// The turn was cancelled while the question was open.
    Cancelled,
    /// Anything else; the text says what was found.
    Unreadable(String),
}

impl PermissionOutcome {
    /// Reads a result.
    #[must_use]
    pub fn read(result: &RawValue) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Outcome {
            outcome: Option<String>,
            option_id: Option<String>,
            #[serde(rename = "_meta")]
            meta: Option<serde_json::Value>,
        }
        #[derive(Deserialize)]
        struct Result<'a> {
            #[serde(borrow)]
            outcome: &'a RawValue,
            #[serde(default, rename = "_meta")]
            meta: Option<serde_json::Value>,
        }
        // serde would also read an array into a struct, by position: a list of words is no approval.
        fn members<'a, T: Deserialize<'a>>(raw: &'a RawValue, what: &str) -> std::result::Result<T, String> {
            match raw.get().starts_with('{') {
                true => serde_json::from_str(raw.get()).map_err(|e| e.to_string()),
                false => Err(format!("{what} must be an object; found {}", super::jsonrpc::json_kind(raw))),
            }
        }
        let read = members::<Result<'_>>(result, "the result")
            .and_then(|r| members::<Outcome>(r.outcome, "`outcome`").map(|outcome| (outcome, r.meta)));
        match read {
            Ok((answer, meta)) => match (answer.outcome.as_deref(), answer.option_id) {
                (Some("selected"), Some(option_id)) => Self::Selected {
                    option_id,
                    reason: [answer.meta, meta].into_iter().flatten().find_map(|m| {
                        m.get("reason")
                            .and_then(|v| v.as_str())
                            .map(str::trim)
                            .filter(|s| !s.is_empty())
                            .map(str::to_owned)
                    }),
                },
                (Some("cancelled"), _) => Self::Cancelled,
                (Some("selected"), None) => Self::Unreadable("`optionId` is missing".into()),
                (Some(other), _) => Self::Unreadable(format!("unknown outcome {other:?}")),
                (None, _) => Self::Unreadable("`outcome.outcome` is missing".into()),
            },
            Err(why) => Self::Unreadable(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(s: &str) -> Box<RawValue> {
        RawValue::from_string(s.to_owned()).unwrap_or_else(|e| panic!("{s}: {e}"))
    }

    #[test]
    fn outcomes_are_read_and_anything_odd_is_not_an_approval() {
        let read = |s: &str| PermissionOutcome::read(&raw(s));
        assert_eq!(
            read(r#"{"outcome":{"outcome":"selected","optionId":"a","_meta":{"reason":" no "}}}"#),
            PermissionOutcome::Selected { option_id: "a".into(), reason: Some("no".into()) }
        );
        assert_eq!(read(r#"{"outcome":{"outcome":"cancelled"}}"#), PermissionOutcome::Cancelled);
        for odd in [
            "null",
            "{}",
            r#"{"outcome":"selected"}"#,
            r#"{"outcome":{"outcome":"selected"}}"#,
            r#"{"outcome":{"optionId":"a"}}"#,
            r#"{"outcome":["selected","a"]}"#,
            r#"[{"outcome":"selected","optionId":"a"}]"#,
        ] {
            assert!(matches!(read(odd), PermissionOutcome::Unreadable(_)), "{odd}");
        }
    }

    #[test]
    fn malformed_capabilities_count_as_unsupported() {
        let read = |s: &str| ClientCapabilities::read(Some(&raw(s)));
        assert!(read(r#"{"session":{"notices":{}},"_meta":{"terminal_output":true}}"#).notices);
        assert!(read(r#"{"session":{"notices":{}},"_meta":{"terminal_output":true}}"#).terminal_output);
        assert_eq!(read(r#"{"session":{"notices":true},"_meta":[true]}"#), ClientCapabilities::default());
        assert_eq!(read("[]"), ClientCapabilities::default());
    }
}
