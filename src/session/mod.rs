//! Joins translators to peers.

pub mod acp;
