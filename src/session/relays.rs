//! MCP servers that an agent reaches through diglot's relay: those that live in the host, and those over HTTP that the agent
//! itself cannot reach.
//!
//! Owns the relay while the conversation runs. Keeps: a connection belongs to one server from its beginning to its end; an
//! address and its headers stay in this process, so no command line and no other program shows them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::registry::Mail;
use crate::peer::http::HttpError;
use crate::peer::mcp_http::{Remote, Transport};
use crate::peer::relay::{Conn, Relay, RelayEvent};
use crate::wire::acp_client::McpServer;

/// Messages that may wait for a server over HTTP, and from all of them for their clients.
const CARRIED: usize = 256;

/// The servers over HTTP that agents reach through the relay, by their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Proxied(Arc<Mutex<HashMap<String, Remote>>>);

impl Proxied {
    /// Adds one.
    pub(super) fn add(&self, server: &McpServer) -> Result<(), HttpError> {
        if let McpServer::Remote { name, .. } = server {
            let remote = remote(server)?;
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), remote);
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Option<Remote> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// A server over HTTP as it is reached.
pub(super) fn remote(server: &McpServer) -> Result<Remote, HttpError> {
    match server {
        McpServer::Remote { r#type, url, headers, .. } => {
            let transport = if *r#type == "sse" { Transport::Sse } else { Transport::Http };
            Remote::new(transport, url, headers.iter().map(|header| (&*header.name, &*header.value)))
        }
        McpServer::Stdio { name, .. } => Err(HttpError::NoAddress(name.clone())),
    }
}

/// A connection of an agent's client.
enum Client {
    /// With a server that lives in the host.
    Host(Arc<str>),
    /// With a server over HTTP.
    Http(mpsc::Sender<Bytes>),
}

/// Carries lines between the relay's connections and whom they are for, until the session is over.
pub(super) async fn pump(
    mut relay: Relay,
    proxied: Proxied,
    mut lines: mpsc::Receiver<(u64, Vec<u8>)>,
    mailbox: mpsc::Sender<Mail>,
) {
    let mut open: HashMap<u64, (Conn, Client)> = HashMap::new();
    let (said, mut heard) = mpsc::channel::<(u64, Option<Bytes>)>(CARRIED);
    // Dropped with this, it ends them all.
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        let mail = tokio::select! {
            Some((number, line)) = lines.recv() => {
                if let Some((conn, _)) = open.get(&number) {
                    relay.send(*conn, &line);
                }
                continue;
            }
            Some((number, line)) = heard.recv() => {
                match (open.get(&number), line) {
                    (Some((conn, _)), Some(line)) => {
                        relay.send(*conn, &line);
                    }
                    // The server cannot be spoken to any more: the client sees the end.
                    (Some((conn, _)), None) => relay.close(*conn),
                    (None, _) => {}
                }
                continue;
            }
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            event = relay.next() => match event {
                RelayEvent::Opened { conn, server } => {
                    let client = match proxied.find(&server) {
                        Some(remote) => {
                            let (to, from) = mpsc::channel(CARRIED);
                            tasks.spawn(carry(conn.number(), remote, from, said.clone()));
                            Client::Http(to)
                        }
                        None => Client::Host(server.into()),
                    };
                    open.insert(conn.number(), (conn, client));
                    continue;
                }
                RelayEvent::Line { conn, line } => match open.get(&conn.number()) {
                    Some((_, Client::Host(server))) => {
                        Mail::Relay { conn: conn.number(), server: server.clone(), line: Some(line) }
                    }
                    Some((_, Client::Http(lines))) => {
                        if lines.try_send(line).is_err() {
                            tracing::warn!("an MCP server over HTTP takes nothing more; its client is sent away");
                            relay.close(conn);
                        }
                        continue;
                    }
                    None => continue,
                },
                RelayEvent::Closed { conn } => match open.remove(&conn.number()) {
                    Some((_, Client::Host(server))) => Mail::Relay { conn: conn.number(), server, line: None },
                    // Its lines end with it, and the server is told good-bye.
                    Some((_, Client::Http(_))) | None => continue,
                },
            },
        };
        if mailbox.send(mail).await.is_err() {
            return;
        }
    }
}

/// One client's conversation with a server over HTTP.
async fn carry(number: u64, remote: Remote, from: mpsc::Receiver<Bytes>, said: mpsc::Sender<(u64, Option<Bytes>)>) {
    let (out, mut lines) = mpsc::channel(CARRIED);
    let pass = async {
        while let Some(line) = lines.recv().await {
            if said.send((number, Some(line))).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(remote.carry(from, out), pass);
    // Nobody listens when all is over.
    let _ = said.send((number, None)).await;
}
