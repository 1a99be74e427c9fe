//! Joins translators to peers: the connection to the editor, its sessions, their processes, and the end of it all.
//!
//! | file | what it does |
//! |---|---|
//! | `acp` | a connection of an editor: reads its lines, finds their session, ends in order |
//! | `host` | a host's connection: the same for `diglot claude` |
//! | `pass` | a connection of an editor to an agent that speaks ACP itself |
//! | `near` | the one ordered, bounded queue to the editor |
//! | `registry` | the live sessions: id → mailbox |
//! | `task` | one session: its translator, its process, its timers |
//! | `asker` | the MCP server that answers a host's permission questions |
//! | `relays` | MCP servers that an agent reaches through diglot |
//! | `files` | what may be read for a preview |
//! | `client_files` | the files that an agent reads and writes through diglot |
//! | `terminals` | the commands that an agent runs through diglot |
//! | `store` | which session of an agent is which session of a host |
//! | `printer` | what stdout gets in each output format |

pub mod acp;
mod asker;
mod client_files;
mod files;
pub mod host;
mod near;
pub mod pass;
pub mod printer;
mod registry;
mod relays;
pub mod store;
mod task;
mod terminals;
