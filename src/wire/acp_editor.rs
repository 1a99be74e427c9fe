//! The Agent Client Protocol, version 1, as an editor's requests are read when they are to be passed on.
//!
//! Owns the shapes only. Keeps: every member stays raw; what it holds is judged where it matters.

use super::stream_json::lenient;

lenient! {
    /// The parameters of any request or notification.
    Params {
        /// `initialize`.
        protocol_version = "protocolVersion",
        /// `initialize`.
        client_capabilities = "clientCapabilities",
        /// Whatever concerns a session.
        session_id = "sessionId",
        /// What opens a session.
        cwd,
        /// What opens a session.
        mcp_servers = "mcpServers",
        /// `session/prompt`.
        prompt,
        /// `session/set_mode`.
        mode_id = "modeId",
        /// `session/set_model`.
        model_id = "modelId",
        /// `session/set_config_option`.
        config_id = "configId",
        /// `session/set_config_option`.
        value,
        /// `$/cancel_request`.
        request_id = "requestId",
    }
}

lenient! {
    /// `clientCapabilities`.
    Capabilities {
        /// Files.
        fs,
        /// Terminals.
        terminal,
        /// Questions with forms (unstable).
        elicitation,
        /// What ACP has no word for.
        meta = "_meta",
    }
}

lenient! {
    /// `clientCapabilities.fs`.
    Fs {
        /// `fs/read_text_file`.
        read = "readTextFile",
        /// `fs/write_text_file`.
        write = "writeTextFile",
    }
}

lenient! {
    /// `_meta`, where diglot looks for something.
    Meta {
        /// Of the editor's capabilities: it shows terminals that are told in `_meta`.
        terminal_output,
        /// Of a piece of text: tokens.
        usage,
    }
}

lenient! {
    /// A block of a prompt.
    Block {
        /// `text`, `image`, `audio`, `resource_link`, `resource`.
        kind = "type",
        /// Of `text`.
        text,
        /// Of `image` and `audio`.
        data,
        /// Of `image` and `audio`.
        mime_type = "mimeType",
        /// Of `resource_link`, and of the resource in `resource`.
        uri,
        /// Of `resource_link`.
        name,
        /// Of `resource`.
        resource,
    }
}
