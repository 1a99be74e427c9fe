//! The built program over real pipes: these tests are the editor, the scripted agent (or a test) is the agent.
//!
//! Nothing here sleeps: a test waits for a line, for the end of a stream, for a file or for the end of a process, each with
//! a deadline. Every line that the program writes passes the judges of `support`.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failure here is the failure of the test")]

mod bytes;
mod editor;
mod ends;
mod family;
mod pass;
mod puppet;
mod record;
#[path = "../support/mod.rs"]
mod support;
mod talk;
