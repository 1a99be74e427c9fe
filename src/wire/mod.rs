//! The protocols as bytes and messages. No I/O, no clock, no decisions.

pub mod acp;
pub mod acp_client;
pub mod acp_editor;
pub mod acp_piece;
pub mod frame;
pub mod jsonrpc;
pub mod sse;
pub mod stream_json;
pub mod stream_json_agent;
pub mod text;
