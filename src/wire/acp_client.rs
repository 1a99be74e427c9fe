//! The Agent Client Protocol, version 1, from the client's side: what is read from an agent and what is asked of it.
//!
//! Owns the shapes only. Keeps: every member is read leniently (quirk 67: agents send nulls, unknown enums and members of
//! their own); only standard members are written (quirk 66), and those that agents insist on are always there (quirk 51:
//! `mcpServers`, `env`, `args`, `headers`).

use super::stream_json::lenient;
use serde::Serialize;

/// The names of methods beside those of [`super::acp::methods`].
pub mod methods {
    #![allow(missing_docs, reason = "each constant is the method's own name")]
    pub const SESSION_LOAD: &str = "session/load";
    pub const SESSION_RESUME: &str = "session/resume";
    pub const SESSION_FORK: &str = "session/fork";
    pub const SESSION_CLOSE: &str = "session/close";
    pub const SESSION_SET_MODEL: &str = "session/set_model";
    pub const SESSION_SET_CONFIG_OPTION: &str = "session/set_config_option";
    pub const ELICITATION_CREATE: &str = "elicitation/create";
    pub const ELICITATION_COMPLETE: &str = "elicitation/complete";
    pub const FS_READ_TEXT_FILE: &str = "fs/read_text_file";
    pub const FS_WRITE_TEXT_FILE: &str = "fs/write_text_file";
    pub const TERMINAL_CREATE: &str = "terminal/create";
    pub const TERMINAL_OUTPUT: &str = "terminal/output";
    pub const TERMINAL_WAIT_FOR_EXIT: &str = "terminal/wait_for_exit";
    pub const TERMINAL_KILL: &str = "terminal/kill";
    pub const TERMINAL_RELEASE: &str = "terminal/release";
}

lenient! {
    /// The result of `initialize`.
    Initialized {
        /// The version the agent chose.
        protocol_version = "protocolVersion",
        /// What it can do.
        agent_capabilities = "agentCapabilities",
        /// How to log in.
        auth_methods = "authMethods",
        /// `{name, title, version}`.
        agent_info = "agentInfo",
    }
}

lenient! {
    /// `agentCapabilities`.
    AgentCapabilities {
        /// `session/load`.
        load_session = "loadSession",
        /// What a prompt may hold.
        prompt_capabilities = "promptCapabilities",
        /// MCP transports.
        mcp_capabilities = "mcpCapabilities",
        /// `{resume, fork, close, list, additionalDirectories …}`, each present when it is served.
        session_capabilities = "sessionCapabilities",
    }
}

lenient! {
    /// `promptCapabilities`.
    PromptCapabilities {
        /// Images.
        image,
        /// Sound.
        audio,
        /// Embedded resources.
        embedded_context = "embeddedContext",
    }
}

lenient! {
    /// `mcpCapabilities`.
    McpCapabilities {
        /// Streamable HTTP.
        http,
        /// Server-sent events.
        sse,
    }
}

lenient! {
    /// `sessionCapabilities`.
    SessionCapabilities {
        /// `session/resume`.
        resume,
        /// `session/fork`.
        fork,
        /// `session/close`.
        close,
        /// `additionalDirectories`.
        additional_directories = "additionalDirectories",
        /// `systemPrompt` (unstable).
        system_prompt = "systemPrompt",
    }
}

lenient! {
    /// The result of `session/new`, `session/load` and `session/resume`.
    Opened {
        /// The agent's id of the session; `session/new` and `session/fork` only.
        session_id = "sessionId",
        /// `{currentModeId, availableModes}`.
        modes,
        /// `{currentModelId, availableModels}` (before configuration options).
        models,
        /// `[{id, name, category, currentValue, options}]`.
        config_options = "configOptions",
    }
}

lenient! {
    /// `modes`.
    Modes {
        /// The one in force.
        current_mode_id = "currentModeId",
        /// All of them.
        available_modes = "availableModes",
    }
}

lenient! {
    /// `models`.
    Models {
        /// The one in force.
        current_model_id = "currentModelId",
        /// All of them.
        available_models = "availableModels",
    }
}

lenient! {
    /// A mode, a model, a value of a configuration option, a command: whatever has an id, a name and a description.
    Named {
        /// Of a mode.
        id,
        /// Of a model.
        model_id = "modelId",
        /// Of an option's value.
        value,
        /// For a person; of a command its name.
        name,
        /// For a person.
        description,
        /// Of a command: `{hint}`.
        input,
        /// Of a group of values.
        options,
    }
}

lenient! {
    /// A configuration option.
    ConfigOption {
        /// Its id.
        id,
        /// `mode`, `model`, `thought_level` …
        category,
        /// What it is set to.
        current_value = "currentValue",
        /// The values, or groups of them.
        options,
    }
}

lenient! {
    /// The result of `session/prompt`.
    Prompted {
        /// One of ACP's five.
        stop_reason = "stopReason",
        /// Tokens (unstable; several agents send it).
        usage,
        /// What ACP has no word for.
        meta = "_meta",
    }
}

lenient! {
    /// The parameters of anything that concerns a session.
    SessionParams {
        /// Which session.
        session_id = "sessionId",
        /// Of `session/update`.
        update,
        /// Of `session/request_permission`.
        tool_call = "toolCall",
        /// Of `session/request_permission`.
        options,
        /// Of `$/cancel_request`.
        request_id = "requestId",
        /// What ACP has no word for.
        meta = "_meta",
    }
}

lenient! {
    /// `update` of `session/update`.
    Update {
        /// Which kind.
        kind = "sessionUpdate",
        /// Of chunks: a block. Of calls: an array.
        content,
        /// Of chunks.
        message_id = "messageId",
        /// Of calls.
        tool_call_id = "toolCallId",
        /// Of `plan`.
        entries,
        /// Of `available_commands_update`.
        available_commands = "availableCommands",
        /// Of `current_mode_update`.
        current_mode_id = "currentModeId",
        /// Of `config_option_update`.
        config_options = "configOptions",
        /// Of `session_info_update` and `notice`.
        title,
        /// Of `notice`.
        description,
        /// Of `notice`: `info`, `warning`, `error`.
        severity,
        /// Of `compaction_update`: `in_progress`, `completed`, `failed`, `cancelled`.
        status,
        /// Of `compaction_update`.
        summary,
        /// Of `compaction_update`: why it failed.
        error,
        /// Of `usage_update`: tokens in the context.
        used,
        /// Of `usage_update`: tokens that fit.
        size,
        /// Of `usage_update`: `{amount, currency}`.
        cost,
        /// What ACP has no word for.
        meta = "_meta",
    }
}

lenient! {
    /// A content block.
    Block {
        /// `text`, `image`, `audio`, `resource_link`, `resource`.
        kind = "type",
        /// Of `text`.
        text,
        /// Of `resource_link`.
        uri,
        /// Of `resource_link`.
        name,
        /// Of `resource`.
        resource,
    }
}

lenient! {
    /// An answer that can be chosen.
    PermissionOption {
        /// Comes back when it is chosen.
        option_id = "optionId",
        /// For a person.
        name,
        /// `allow_once`, `allow_always`, `reject_once`, `reject_always`.
        kind,
    }
}

lenient! {
    /// Tokens as ACP counts them; several agents put the same words into `_meta`.
    Usage {
        /// Read by the model.
        input_tokens = "inputTokens",
        /// Written by the model.
        output_tokens = "outputTokens",
        /// Of those read: from a cache.
        cached_read_tokens = "cachedReadTokens",
        /// Of those read: into a cache.
        cached_write_tokens = "cachedWriteTokens",
    }
}

lenient! {
    /// `cost`.
    Cost {
        /// How much.
        amount,
        /// ISO 4217.
        currency,
    }
}

/// `initialize`'s parameters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialize {
    /// Always 1 (quirk 49: 2 selects a draft).
    pub protocol_version: u16,
    /// What diglot serves: neither files nor terminals, unless the user switched them on (rendition table, row `fs/*`).
    pub client_capabilities: ClientCapabilities,
    /// Who asks.
    pub client_info: ClientInfo,
}

/// `clientCapabilities`.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientCapabilities {
    /// Files.
    pub fs: Fs,
    /// Terminals.
    pub terminal: bool,
    /// What a session may tell.
    pub session: SessionTells,
    /// What the user can be asked; absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elicitation: Option<Elicitation>,
}

/// An object without members: the announcement of something.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct Served {}

/// `clientCapabilities.session`.
#[derive(Debug, Default, Serialize)]
pub struct SessionTells {
    /// `compaction_update`.
    pub compaction: Served,
    /// `notice`.
    pub notices: Served,
}

/// `clientCapabilities.elicitation`.
#[derive(Debug, Default, Serialize)]
pub struct Elicitation {
    /// Forms.
    pub form: Served,
    /// Addresses to be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<Served>,
}

/// `clientCapabilities.fs`.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fs {
    /// `fs/read_text_file`.
    pub read_text_file: bool,
    /// `fs/write_text_file`.
    pub write_text_file: bool,
}

/// `clientInfo`.
#[derive(Debug, Serialize)]
pub struct ClientInfo {
    /// For programs.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// diglot's.
    pub version: &'static str,
}

/// An MCP server that the agent is to start or reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum McpServer {
    /// A program; its protocol on stdin and stdout.
    Stdio {
        /// As the host calls it.
        name: String,
        /// The program.
        command: String,
        /// Always written, even empty.
        args: Vec<String>,
        /// Always written, even empty.
        env: Vec<NameValue>,
    },
    /// An address.
    Remote {
        /// `http` or `sse`.
        r#type: &'static str,
        /// As the host calls it.
        name: String,
        /// The address.
        url: String,
        /// Always written, even empty.
        headers: Vec<NameValue>,
    },
}

impl McpServer {
    /// As the host calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Stdio { name, .. } | Self::Remote { name, .. } => name,
        }
    }
}

/// A variable or a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NameValue {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The parameters of `session/new`, and with an id of `session/load`, `session/resume` and `session/fork`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenSession<'a> {
    /// The agent's id of a session that there is already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<&'a str>,
    /// Absolute.
    pub cwd: &'a str,
    /// Always written, even empty.
    pub mcp_servers: &'a [McpServer],
    /// Only where the agent serves it.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub additional_directories: &'a [String],
    /// Only where the agent serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<SystemPrompt<'a>>,
}

/// `systemPrompt` (unstable).
#[derive(Debug, Serialize)]
pub struct SystemPrompt<'a> {
    /// `append` or `override`.
    pub mode: &'static str,
    /// Text blocks; never none.
    pub content: &'a [PromptBlock],
}

/// `session/prompt`'s parameters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Prompt<'a> {
    /// Which session.
    pub session_id: &'a str,
    /// The blocks.
    pub prompt: &'a [PromptBlock],
}

/// A block of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PromptBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    #[serde(rename_all = "camelCase")]
    Image {
        /// base64.
        data: String,
        /// MIME type.
        mime_type: String,
    },
    /// A document that travels with the prompt.
    Resource {
        /// The document.
        resource: Resource,
    },
}

/// An embedded resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Resource {
    /// Bytes.
    #[serde(rename_all = "camelCase")]
    Blob {
        /// base64.
        blob: String,
        /// MIME type.
        mime_type: String,
        /// Made up when the host gave none.
        uri: String,
    },
    /// Text.
    #[serde(rename_all = "camelCase")]
    Text {
        /// The text.
        text: String,
        /// MIME type.
        mime_type: String,
        /// Made up when the host gave none.
        uri: String,
    },
}

/// `{sessionId}`: `session/cancel`, `session/close`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OfSession<'a> {
    /// Which session.
    pub session_id: &'a str,
}

/// `session/set_mode`'s parameters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetMode<'a> {
    /// Which session.
    pub session_id: &'a str,
    /// Which mode.
    pub mode_id: &'a str,
}

/// `session/set_model`'s parameters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetModel<'a> {
    /// Which session.
    pub session_id: &'a str,
    /// Which model.
    pub model_id: &'a str,
}

/// `session/set_config_option`'s parameters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetConfigOption<'a> {
    /// Which session.
    pub session_id: &'a str,
    /// Which option.
    pub config_id: &'a str,
    /// Which value.
    pub value: &'a str,
}

/// `outcome`.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome<'a> {
    /// One of the agent's options.
    #[serde(rename_all = "camelCase")]
    Selected {
        /// Its id.
        option_id: &'a str,
    },
    /// The turn was cancelled.
    Cancelled,
}
