//! The way from an agent's MCP client to a server that lives in the host.
//!
//! A host may have MCP servers inside of itself, which an agent cannot start. For each of them the agent is told to start
//! `diglot mcp-relay`, a mere pipe between its stdio and the [`Relay`]'s socket; what comes in here is handed to the session.
//! This file owns the socket and its connections. Invariants: only this user reaches the socket (it lies in a folder of
//! mode 0700), and of his processes only those that know the token; every queue is bounded; the folder goes with the relay.
//!
//! On a connection: first one line `{"server":"NAME","token":"…"}`, then JSON-RPC messages both ways, one line each.
//! There is no relay where there are no Unix sockets; [`Relay::open`] says so.

use bytes::Bytes;

#[cfg(not(unix))]
mod none;
#[cfg(unix)]
mod unix;

#[cfg(not(unix))]
pub use none::{Relay, pipe};
#[cfg(unix)]
pub use unix::{Relay, pipe};

/// The variable that brings the token to `diglot mcp-relay`: an argument could be seen by every user.
pub const TOKEN: &str = "DIGLOT_RELAY_TOKEN";

/// A connection; never used for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Conn(u64);

impl Conn {
    /// Its number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What happens on the connections. Each begins with `Opened` and ends with `Closed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayEvent {
    /// An agent's client wants to speak with that server.
    Opened {
        /// The connection.
        conn: Conn,
        /// The server's name, as the client gives it: it may not exist.
        server: String,
    },
    /// A message of the client.
    Line {
        /// The connection.
        conn: Conn,
        /// One JSON object, without LF.
        line: Bytes,
    },
    /// The client is gone, or was sent away.
    Closed {
        /// The connection.
        conn: Conn,
    },
}

/// The arguments for diglot's program that make it a pipe to `server` at `socket`.
#[must_use]
pub fn pipe_args(socket: &str, server: &str) -> Vec<String> {
    // With `=`, because a server's name may look like a flag.
    vec!["mcp-relay".into(), format!("--socket={socket}"), format!("--server={server}")]
}
