//! Joins translators to peers: the connection to the editor, its sessions, their processes, and the end of it all.
//!
//! | file | what it does |
//! |---|---|
//! | `acp` | a connection of an editor: reads its lines, finds their session, ends in order |
//! | `near` | the one ordered, bounded queue to the editor |
//! | `registry` | the live sessions: id → mailbox |
//! | `task` | one session: its translator, its process, its timers |
//! | `files` | what may be read for a preview |

pub mod acp;
mod files;
mod near;
mod registry;
mod task;
