//! The relay between an agent's MCP client and a host's servers, through the real `diglot mcp-relay`.
#![cfg(unix)]

use std::process::{ExitStatus, Stdio};

use diglot::peer::relay::{Conn, Relay, RelayEvent, TOKEN};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be started").block_on(test)
}

/// An agent's MCP client, which started the pipe.
struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Client {
    fn start(args: &[String], token: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_diglot"));
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        command.env_remove(TOKEN);
        command.envs(token.map(|token| (TOKEN, token)));
        let mut child = command.spawn().expect("the program was built");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, stdin, stdout }
    }

    async fn say(&mut self, text: &[u8]) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin.write_all(text).await.expect("the pipe reads");
    }

    async fn hear(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).await.expect("the pipe writes");
        line
    }

    /// Waits for the end, and gives what was said until then.
    async fn end(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).await.expect("the pipe writes");
        (self.child.wait().await.expect("it can be waited for"), rest)
    }
}

async fn opened(relay: &mut Relay, name: &str) -> Conn {
    match relay.next().await {
        RelayEvent::Opened { conn, server } if server == name => conn,
        other => panic!("{other:?}"),
    }
}

async fn line(relay: &mut Relay, from: Conn) -> String {
    match relay.next().await {
        RelayEvent::Line { conn, line } if conn == from => String::from_utf8_lossy(&line).into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_pass_both_ways_and_each_client_has_its_own_connection() {
    run(async {
        let mut relay = Relay::open().unwrap();
        let mut first = Client::start(&relay.pipe_args("calc"), Some(relay.token()));
        let one = opened(&mut relay, "calc").await;
        let mut second = Client::start(&relay.pipe_args("--odd name"), Some(relay.token()));
        let two = opened(&mut relay, "--odd name").await;
        assert_ne!(one, two);
        first.say(b"{\"id\":1}\nno message\n{\"id\":2}\n").await;
        assert_eq!(line(&mut relay, one).await, "{\"id\":1}");
        assert_eq!(line(&mut relay, one).await, "{\"id\":2}");
        second.say(b"{\"id\":").await;
        second.say(b"3}\n").await;
        assert_eq!(line(&mut relay, two).await, "{\"id\":3}");
        assert!(relay.send(two, b"{\"to\":2}"));
        assert!(relay.send(one, b"{\"to\":1}\n"));
        assert_eq!((first.hear().await, second.hear().await), ("{\"to\":1}\n".into(), "{\"to\":2}\n".into()));
    });
}

#[test]
fn the_end_of_a_client_is_reported_after_its_last_words() {
    run(async {
        let mut relay = Relay::open().unwrap();
        let mut client = Client::start(&relay.pipe_args("calc"), Some(relay.token()));
        let conn = opened(&mut relay, "calc").await;
        client.say(b"{\"id\":1}\n").await;
        client.stdin = None;
        assert_eq!(line(&mut relay, conn).await, "{\"id\":1}");
        assert_eq!(relay.next().await, RelayEvent::Closed { conn });
        assert!(!relay.send(conn, b"{\"late\":1}"));
        let (status, rest) = client.end().await;
        assert_eq!((status.code(), rest.as_str()), (Some(0), ""));
    });
}

#[test]
fn a_client_that_is_sent_away_gets_what_was_queued() {
    run(async {
        let mut relay = Relay::open().unwrap();
        let client = Client::start(&relay.pipe_args("calc"), Some(relay.token()));
        let conn = opened(&mut relay, "calc").await;
        assert!(relay.send(conn, b"{\"last\":1}"));
        relay.close(conn);
        assert_eq!(relay.next().await, RelayEvent::Closed { conn });
        let (status, rest) = client.end().await;
        assert_eq!((status.code(), rest.as_str()), (Some(0), "{\"last\":1}\n"));
    });
}

#[test]
fn the_folder_and_the_clients_go_with_the_relay() {
    use std::os::unix::fs::PermissionsExt as _;
    run(async {
        let mut relay = Relay::open().unwrap();
        let client = Client::start(&relay.pipe_args("calc"), Some(relay.token()));
        opened(&mut relay, "calc").await;
        let folder = relay.path().parent().unwrap().to_owned();
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        drop(relay);
        assert!(!folder.exists());
        assert_eq!(client.end().await.0.code(), Some(0));
    });
}

#[test]
fn without_the_token_there_is_no_connection() {
    run(async {
        let mut relay = Relay::open().unwrap();
        let mut wrong = Client::start(&relay.pipe_args("calc"), Some("guessed"));
        // It may be closed before this is written.
        let _ = wrong.stdin.as_mut().unwrap().write_all(b"{\"id\":1}\n").await;
        let (status, rest) = wrong.end().await;
        assert_eq!((status.code(), rest.as_str()), (Some(0), ""));
        let none = Client::start(&relay.pipe_args("calc"), None);
        assert_eq!(none.end().await.0.code(), Some(64));
        // The first that the relay tells of is the right one.
        let _right = Client::start(&relay.pipe_args("right"), Some(relay.token()));
        opened(&mut relay, "right").await;
    });
}

#[test]
fn a_relay_that_is_gone_is_an_error() {
    run(async {
        let relay = Relay::open().unwrap();
        let args = relay.pipe_args("calc");
        drop(relay);
        assert_eq!(Client::start(&args, Some("t")).end().await.0.code(), Some(70));
    });
}

#[test]
fn long_lines_pass_whole_in_both_directions() {
    run(async {
        let mut relay = Relay::open().unwrap();
        let mut client = Client::start(&relay.pipe_args("calc"), Some(relay.token()));
        let conn = opened(&mut relay, "calc").await;
        let long = format!("{{\"text\":\"{}\"}}", "x".repeat(2 * 1024 * 1024));
        let mut said = long.clone().into_bytes();
        said.push(b'\n');
        let (_, heard) = tokio::join!(client.say(&said), line(&mut relay, conn));
        assert!(heard == long);
        assert!(relay.send(conn, long.as_bytes()));
        assert!(client.hear().await.trim_end() == long);
    });
}

#[test]
fn a_client_that_does_not_read_is_sent_away() {
    run(async {
        let mut relay = Relay::open().unwrap();
        let _client = Client::start(&relay.pipe_args("calc"), Some(relay.token()));
        let conn = opened(&mut relay, "calc").await;
        let line = format!("{{\"text\":\"{}\"}}", "x".repeat(64 * 1024));
        // The queue holds 256 messages; nothing is taken from it here, because nothing is awaited.
        let taken = (0..300).take_while(|_| relay.send(conn, line.as_bytes())).count();
        assert_eq!(taken, 256);
        assert_eq!(relay.next().await, RelayEvent::Closed { conn });
        assert!(!relay.send(conn, b"{}"));
    });
}
