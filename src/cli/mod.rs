//! The command line.

pub mod mappings;
