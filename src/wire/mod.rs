//! The protocols as bytes and messages. No I/O, no clock, no decisions.

pub mod frame;
