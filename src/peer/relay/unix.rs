//! The relay over a Unix socket.
//!
//! Owns the socket, the task that accepts, and one task per connection. Invariant: a connection is in the
//! map from before its `Opened` until its `Closed`, and what is sent to one that is not there is dropped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{Conn, RelayEvent, pipe_args};
use crate::peer::reader::FrameReader;
use crate::peer::scratch::Scratch;
use crate::peer::sink::LineSink;
use crate::peer::stdio::{Stdin, Stdout};
use crate::wire::frame::{Frame, write_line};

/// What a socket's path may have at most: 104 with the NUL on macOS, 108 on Linux.
const PATH: usize = 103;
/// The socket in its folder.
const SOCKET: &str = "/mcp";
/// Events that may wait for the session.
const EVENTS: usize = 64;
/// Messages that may wait for one client.
const LINES: usize = 256;
/// Connections at once.
const CONNECTIONS: usize = 64;
/// One thread serves them: few shards do, and as many as usual would be asked of the system, from file to file.
const SHARDS: usize = 2;
/// How long a connection may take to say who it is.
const HELLO: Duration = Duration::from_secs(10);
/// How long to wait before accepting again, when the system has nothing left to accept with.
const AGAIN: Duration = Duration::from_millis(100);
/// How long a pipe waits for the last answers when its client has ended.
const LAST: Duration = Duration::from_secs(2);

/// A listener for the clients of an agent. Dropped, it ends all connections and removes its folder.
#[derive(Debug)]
pub struct Relay {
    socket: PathBuf,
    /// Where the socket lies.
    _folder: Scratch,
    token: String,
    events: mpsc::Receiver<RelayEvent>,
    clients: Clients,
    accept: JoinHandle<()>,
}

type Clients = Arc<DashMap<Conn, Client>>;

/// The way to a client.
#[derive(Debug)]
struct Client {
    sink: LineSink,
    /// Dropped to end the connection.
    _open: oneshot::Sender<()>,
}

/// The first line of a connection.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    server: String,
    token: String,
}

impl Hello {
    fn line(server: &str, token: &str) -> Vec<u8> {
        let hello = Self { server: server.to_owned(), token: token.to_owned() };
        let mut line = Vec::new();
        // Two strings can always be written.
        write_line(&mut line, &serde_json::to_vec(&hello).unwrap_or_default());
        line
    }
}

impl Relay {
    /// Opens a relay with a socket and a token of its own. Needs a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// What the system said.
    pub fn open() -> io::Result<Self> {
        let folder = Scratch::create(PATH - SOCKET.len())?;
        let socket = folder.path().join(&SOCKET[1..]);
        let listener = UnixListener::bind(&socket)?;
        let token = Uuid::new_v4().simple().to_string();
        let (sender, events) = mpsc::channel(EVENTS);
        let clients = Clients::new(DashMap::with_shard_amount(SHARDS));
        let accept = tokio::spawn(accept(listener, token.clone(), sender, Arc::clone(&clients)));
        Ok(Self { socket, _folder: folder, token, events, clients, accept })
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.socket
    }

    /// What a client has to know; for the variable [`TOKEN`](super::TOKEN) of its environment.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The arguments for diglot's program that make it a pipe to `server`.
    #[must_use]
    pub fn pipe_args(&self, server: &str) -> Vec<String> {
        pipe_args(&self.socket.to_string_lossy(), server)
    }

    /// The next event; waits for ever where nothing happens. May be dropped at any time, as `select!` does, without losing
    /// one. While nobody calls it, clients are held up.
    pub async fn next(&mut self) -> RelayEvent {
        match self.events.recv().await {
            Some(event) => event,
            // The task that accepts has a sender as long as this lives.
            None => std::future::pending().await,
        }
    }

    /// Queues one JSON object, with or without LF, for a client, and says whether it will be written. One that is gone gets
    /// nothing; one that has not read for 256 messages is sent away.
    pub fn send(&self, conn: Conn, line: &[u8]) -> bool {
        let mut out = Vec::new();
        write_line(&mut out, line.trim_ascii_end());
        let sent = self.clients.get(&conn).map(|client| client.sink.try_send(out));
        match sent {
            None => false,
            Some(Ok(())) => true,
            Some(Err(error)) => {
                tracing::warn!(%error, "an MCP client of the agent does not read; its connection is closed");
                self.close(conn);
                false
            }
        }
    }

    /// Ends a connection after what is queued for it; `Closed` follows.
    pub fn close(&self, conn: Conn) {
        self.clients.remove(&conn);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accept.abort();
        self.clients.clear();
    }
}

async fn accept(listener: UnixListener, token: String, events: mpsc::Sender<RelayEvent>, clients: Clients) {
    let token: Arc<str> = token.into();
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut number = 0;
    loop {
        // Nobody closes the semaphore.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "an MCP client of the agent cannot be accepted");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        number += 1;
        let (conn, token) = (Conn(number), Arc::clone(&token));
        let (events, clients) = (events.clone(), Arc::clone(&clients));
        tokio::spawn(async move {
            let (reader, writer) = stream.into_split();
            serve(conn, FrameReader::new(reader), writer, &token, &events, &clients).await;
            drop(place);
        });
    }
}

/// Serves one connection until either side ends it.
async fn serve(
    conn: Conn,
    mut reader: FrameReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    token: &str,
    events: &mpsc::Sender<RelayEvent>,
    clients: &Clients,
) {
    let hello = tokio::select! {
        hello = tokio::time::timeout(HELLO, reader.next_frame()) => hello.ok().flatten(),
        () = events.closed() => return,
    };
    let hello = match hello {
        Some(Frame::Line(line)) => serde_json::from_slice::<Hello>(&line).ok(),
        _ => None,
    };
    let Some(hello) = hello.filter(|hello| hello.token == token) else {
        tracing::warn!("a connection to the relay without the right token is closed");
        return;
    };
    let (open, mut closed) = oneshot::channel();
    clients.insert(conn, Client { sink: LineSink::spawn(writer, LINES), _open: open });
    let mut event = Some(RelayEvent::Opened { conn, server: hello.server });
    loop {
        if let Some(event) = event.take()
            && events.send(event).await.is_err()
        {
            // The relay is gone.
            break;
        }
        let frame = tokio::select! {
            biased;
            _ = &mut closed => break,
            frame = reader.next_frame() => frame,
        };
        match frame {
            Some(Frame::Line(line)) => event = Some(RelayEvent::Line { conn, line }),
            Some(Frame::Noise(noise)) => tracing::debug!(why = %noise.why, "a line of an MCP client is no message"),
            None => break,
        }
    }
    clients.remove(&conn);
    // The relay may be gone, and then nobody asks.
    _ = events.send(RelayEvent::Closed { conn }).await;
}

/// Carries bytes between this process's stdio and a server of the relay at `socket`, until either side ends.
///
/// # Errors
/// When the relay cannot be reached. That it, or the client, goes away later is an end like any other.
pub async fn pipe(socket: &Path, server: &str, token: &str) -> io::Result<()> {
    let (mut from, mut to) = UnixStream::connect(socket).await?.into_split();
    to.write_all(&Hello::line(server, token)).await?;
    let (mut stdin, mut stdout) = (Stdin::open(), Stdout::open());
    let back = async {
        let ended = tokio::io::copy(&mut from, &mut stdout).await;
        // Nobody is left who could be told.
        _ = stdout.flush().await;
        ended
    };
    tokio::pin!(back);
    tokio::select! {
        ended = &mut back => log_end(ended),
        ended = tokio::io::copy(&mut stdin, &mut to) => {
            log_end(ended);
            // The relay sees the end, and closes its side after its last words.
            _ = to.shutdown().await;
            if let Ok(ended) = tokio::time::timeout(LAST, back).await {
                log_end(ended);
            }
        }
    }
    Ok(())
}

fn log_end(ended: io::Result<u64>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a side of the pipe is gone");
    }
}
