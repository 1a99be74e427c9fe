//! diglot: a two-way interpreter between the protocols of coding agents.
//!
//! The layers point one way: `wire ← mappings ← translate ← session → peer`, and `cli` above all of them.
//! `wire`, `mappings` and `translate` do no I/O, read no clock and know no async runtime, so that a
//! conversation is a pure function of its events.

#![deny(unsafe_code)]

pub mod agents;
pub mod cli;
pub mod config;
pub mod mappings;
pub mod peer;
pub mod session;
pub mod trace;
pub mod translate;

pub use diglot_wire as wire;
