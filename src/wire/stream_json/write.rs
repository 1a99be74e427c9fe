//! The lines that diglot writes to Claude's stdin.
//!
//! Keeps: only the types here can be written (stream-json.md, section 2.2).

use serde::Serialize;
use serde_json::value::RawValue;

use crate::jsonrpc::to_line;

/// A content block of a user message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum UserBlock {
    /// Plain text.
    Text {
        /// What the user wrote, or what stands for a mention.
        text: String,
    },
    /// An image.
    Image {
        /// Where its bytes are.
        source: Source,
    },
    /// A PDF or a text document.
    Document {
        /// Where its bytes are.
        source: Source,
        /// Shown to the model.
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<String>,
    },
}

/// Where the bytes of an image or document are.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Source {
    /// In the line.
    Base64 {
        /// MIME type.
        media_type: String,
        /// The bytes.
        data: String,
    },
    /// At an address that the API fetches.
    Url {
        /// https.
        url: String,
    },
}

/// A `user` line: one prompt. The uuid makes claude report the message's life and name it in `result`.
#[must_use]
pub fn user(uuid: &str, content: &[UserBlock]) -> Vec<u8> {
    #[derive(Serialize)]
    struct Message<'a> {
        role: &'static str,
        content: &'a [UserBlock],
    }
    #[derive(Serialize)]
    struct User<'a> {
        r#type: &'static str,
        message: Message<'a>,
        parent_tool_use_id: Option<()>,
        session_id: &'static str,
        uuid: &'a str,
    }
    to_line(&User {
        r#type: "user",
        message: Message { role: "user", content },
        parent_tool_use_id: None,
        session_id: "",
        uuid,
    })
}

/// What diglot asks of claude.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub enum Ask<'a> {
    /// Opens the conversation.
    Initialize,
    /// Stops the running turn.
    Interrupt {
        /// Also drops what still waits in claude's own queue; otherwise it runs next (section 7.2).
        cancel_queued: bool,
    },
    /// Changes the permission mode.
    SetPermissionMode {
        /// Claude's own name of it.
        mode: &'a str,
    },
}

/// A `control_request` line.
#[must_use]
pub fn control_request(request_id: &str, request: &Ask<'_>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Control<'a> {
        r#type: &'static str,
        request_id: &'a str,
        request: &'a Ask<'a>,
    }
    to_line(&Control { r#type: "control_request", request_id, request })
}

/// The answer to `can_use_tool`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "behavior", rename_all = "snake_case")]
pub enum Decision<'a> {
    /// Run it with the input it asked for.
    Allow {
        /// The input as claude gave it.
        #[serde(rename = "updatedInput", skip_serializing_if = "Option::is_none")]
        updated_input: Option<&'a RawValue>,
        /// The suggestions that the user granted for longer.
        #[serde(rename = "updatedPermissions", skip_serializing_if = "<[_]>::is_empty")]
        updated_permissions: &'a [Box<RawValue>],
        /// `user_temporary` or `user_permanent`.
        #[serde(rename = "decisionClassification")]
        classification: &'static str,
    },
    /// Do not run it.
    Deny {
        /// The true reason; claude shows it to the model.
        message: &'a str,
        /// Also stops the turn.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        interrupt: bool,
        /// Only when a person refused.
        #[serde(rename = "decisionClassification", skip_serializing_if = "Option::is_none")]
        classification: Option<&'static str>,
    },
}

/// A successful `control_response` line.
#[must_use]
pub fn control_response<T: Serialize>(request_id: &str, response: &T) -> Vec<u8> {
    #[derive(Serialize)]
    struct Body<'a, T> {
        subtype: &'static str,
        request_id: &'a str,
        response: &'a T,
    }
    #[derive(Serialize)]
    struct Control<'a, T> {
        r#type: &'static str,
        response: Body<'a, T>,
    }
    to_line(&Control { r#type: "control_response", response: Body { subtype: "success", request_id, response } })
}

/// The answer to a request of claude's that diglot cannot carry, in the protocol's own words (section 4.2, end).
#[must_use]
pub fn unsupported(request_id: &str, subtype: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Body<'a> {
        subtype: &'static str,
        request_id: &'a str,
        error: String,
        error_code: &'static str,
    }
    #[derive(Serialize)]
    struct Control<'a> {
        r#type: &'static str,
        response: Body<'a>,
    }
    to_line(&Control {
        r#type: "control_response",
        response: Body {
            subtype: "error",
            request_id,
            error: format!("Unsupported control request subtype: {subtype}"),
            error_code: "unsupported_request",
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_lines_have_claudes_shape() {
        let line = String::from_utf8(user("u1", &[UserBlock::Text { text: "hi".into() }])).unwrap_or_default();
        assert_eq!(
            line,
            r#"{"type":"user","message":{"role":"user","content":[{"type":"text","text":"hi"}]},"parent_tool_use_id":null,"session_id":"","uuid":"u1"}"#
        );
        let line =
            String::from_utf8(control_request("r1", &Ask::SetPermissionMode { mode: "plan" })).unwrap_or_default();
        assert_eq!(
            line,
            r#"{"type":"control_request","request_id":"r1","request":{"subtype":"set_permission_mode","mode":"plan"}}"#
        );
        let deny = Decision::Deny { message: "no", interrupt: false, classification: None };
        let line = String::from_utf8(control_response("r2", &deny)).unwrap_or_default();
        assert_eq!(
            line,
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"r2","response":{"behavior":"deny","message":"no"}}}"#
        );
    }
}
