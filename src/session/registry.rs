//! The live sessions: session id → mailbox.
//!
//! Owns what the connection's router and its session tasks share. Keeps: no guard of the map lives across an await; a
//! session is found from the moment it is opened until its task ends.

use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;
use tokio::sync::mpsc;

use crate::translate::client::{ClientDone, Output};

/// Lines that may wait for a session. It takes them at once, so they wait only while its process is being started.
pub(super) const MAILBOX: usize = 256;

/// What comes to a session from outside of its process.
#[derive(Debug)]
pub(super) enum Mail {
    /// A line of the near side.
    Near(Bytes),
    /// The user interrupts.
    Interrupted,
    /// The permission tool answered, or could not.
    ToolCalled { effect: u64, answer: Result<String, String> },
    /// A work for the agent was done, or could not be.
    Client { effect: u64, done: ClientDone },
    /// A command of the agent's has ended.
    CommandEnded { terminal: u64, output: Output },
    /// Of the MCP relay; without a line the connection has ended.
    Relay { conn: u64, server: Arc<str>, line: Option<Bytes> },
}

/// The way to one session.
pub(super) type Mailbox = mpsc::Sender<Mail>;

/// One thread serves a connection: few shards do, and as many as usual would be asked of the system, from file to file.
const SHARDS: usize = 2;

/// All sessions of a connection. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Registry {
    by_number: Arc<DashMap<u32, Mailbox>>,
    by_id: Arc<DashMap<Arc<str>, u32>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            by_number: Arc::new(DashMap::with_shard_amount(SHARDS)),
            by_id: Arc::new(DashMap::with_shard_amount(SHARDS)),
        }
    }
}

impl Registry {
    /// Adds a session.
    pub(super) fn add(&self, number: u32, id: Arc<str>, mailbox: Mailbox) {
        self.by_number.insert(number, mailbox);
        self.by_id.insert(id, number);
    }

    /// Gives a mailbox the name of one more session.
    pub(super) fn name(&self, number: u32, id: Arc<str>) {
        self.by_id.insert(id, number);
    }

    /// Takes a mailbox out, with every session that has it.
    pub(super) fn remove(&self, number: u32, id: &str) {
        self.by_id.remove(id);
        self.by_id.retain(|_, of| *of != number);
        self.by_number.remove(&number);
    }

    /// The mailbox of the session with this id.
    pub(super) fn of_id(&self, id: &str) -> Option<Mailbox> {
        let number = *self.by_id.get(id)?;
        self.of_number(number)
    }

    /// The mailbox of the session with this number.
    pub(super) fn of_number(&self, number: u32) -> Option<Mailbox> {
        self.by_number.get(&number).map(|mailbox| mailbox.clone())
    }

    /// All mailboxes.
    pub(super) fn all(&self) -> Vec<Mailbox> {
        self.by_number.iter().map(|entry| entry.value().clone()).collect()
    }
}
