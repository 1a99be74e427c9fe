//! The protocols as bytes and messages. No I/O, no decisions.

pub mod acp;
pub mod jsonrpc;
pub mod stream_json;
pub mod text;
