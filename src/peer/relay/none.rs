//! The relay where there are no Unix sockets: it cannot be opened.

use std::convert::Infallible;
use std::io;
use std::path::Path;

use super::{Conn, RelayEvent};

/// A relay that does not exist.
#[derive(Debug)]
pub struct Relay(Infallible);

#[expect(clippy::unused_async, reason = "the interface is that of the systems that have a relay")]
impl Relay {
    /// Fails.
    ///
    /// # Errors
    /// Always: there is no relay on this system.
    pub fn open() -> io::Result<Self> {
        Err(unsupported())
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self.0 {}
    }

    /// The token.
    #[must_use]
    pub fn token(&self) -> &str {
        match self.0 {}
    }

    /// The arguments for diglot's program.
    #[must_use]
    pub fn pipe_args(&self, _server: &str) -> Vec<String> {
        match self.0 {}
    }

    /// The next event.
    pub async fn next(&mut self) -> RelayEvent {
        match self.0 {}
    }

    /// Queues a message.
    pub fn send(&self, _conn: Conn, _line: &[u8]) -> bool {
        match self.0 {}
    }

    /// Ends a connection.
    pub fn close(&self, _conn: Conn) {
        match self.0 {}
    }
}

/// Fails.
///
/// # Errors
/// Always: there is no relay on this system.
#[expect(clippy::unused_async, reason = "the interface is that of the systems that have a relay")]
pub async fn pipe(_socket: &Path, _server: &str, _token: &str) -> io::Result<()> {
    Err(unsupported())
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a host's own MCP servers cannot be reached on this system yet")
}
