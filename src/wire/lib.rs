//! The protocols as bytes and messages. No I/O, no clock, no decisions.
//!
//! A crate of its own, because every message of every token passes it: the rest of diglot is compiled to be small, this to be
//! fast (`[profile.release.package]` of the workspace).

#![forbid(unsafe_code)]

pub mod acp;
pub mod acp_client;
pub mod acp_editor;
pub mod acp_piece;
pub mod frame;
pub mod jsonrpc;
pub mod long;
pub mod shape;
pub mod sse;
pub mod stream_json;
pub mod stream_json_agent;
pub mod text;
