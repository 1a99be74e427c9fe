//! Processes, pipes and diglot's own stdio: where bytes meet the operating system, and the only place for tokio's I/O.
//!
//! What differs by system sits in here behind one interface: [`child`] has a Linux, a Unix and a Windows side.

pub mod child;
pub mod guard;
pub mod http;
pub mod mcp_http;
pub mod reader;
pub mod relay;
pub mod scratch;
pub mod sink;
pub mod stdio;
