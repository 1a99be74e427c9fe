//! What an agent has diglot do as its client, where the user switched that on: files, and commands in terminals.
//!
//! Owns the running commands and their output. Keeps: each command runs below a guard, in its own group, without stdin, and
//! ends with what it started; of its output only the last bytes are kept; every work is answered, a command's end comes
//! after all that was asked of it, and nothing here waits for anything but the session's mailbox.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client_files as files;
use super::registry::Mail;
use crate::peer::child::{Child, ChildSpec};
use crate::peer::guard::Guards;
use crate::translate::client::{ClientDone, ClientFailure, ClientWork, Command, CommandExit, Output, Want};

/// Works that may wait.
pub(super) const WORKS: usize = 256;

/// Questions for the output of one command that may wait.
const ASKS: usize = 64;

/// What a command has put out before its end is there at once; only a process that could not be killed keeps its pipe.
const LAST_WORDS: Duration = Duration::from_millis(200);

type Mailbox = mpsc::Sender<Mail>;

/// The way to a command.
#[derive(Debug)]
struct Terminal {
    asks: mpsc::Sender<u64>,
    kill: watch::Sender<bool>,
}

/// Does what is asked until nobody asks any more; then nothing runs any more.
pub(super) async fn serve(mut works: mpsc::Receiver<(u64, ClientWork)>, mailbox: Mailbox, guards: Guards) {
    let mut tasks = JoinSet::new();
    let mut terminals: HashMap<u64, Terminal> = HashMap::new();
    loop {
        let (effect, work) = tokio::select! {
            work = works.recv() => match work {
                Some(work) => work,
                None => return,
            },
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {
                terminals.retain(|_, terminal| !terminal.asks.is_closed());
                continue;
            }
        };
        match work {
            ClientWork::Find { path, want, roots } => {
                blocking(&mut tasks, &mailbox, effect, move || files::find(&path, want, &roots));
            }
            ClientWork::Read { path, skip, limit, roots } => {
                blocking(&mut tasks, &mailbox, effect, move || files::read(&path, skip, limit, &roots));
            }
            ClientWork::Write { path, content, over, roots } => {
                blocking(&mut tasks, &mailbox, effect, move || files::write(&path, &content, over.as_deref(), &roots));
            }
            ClientWork::Run { terminal, command, roots } => {
                let (asks, asked) = mpsc::channel(ASKS);
                let (kill, killed) = watch::channel(false);
                terminals.insert(terminal, Terminal { asks, kill });
                let (mailbox, guards) = (mailbox.clone(), guards.clone());
                tasks.spawn(async move {
                    let running = Running { terminal, effect, asked, killed, mailbox };
                    running.run(command, roots, guards).await;
                });
            }
            ClientWork::Output { terminal } => {
                let sent = terminals.get(&terminal).is_some_and(|t| t.asks.try_send(effect).is_ok());
                if !sent {
                    // It has ended, and its end is already told; or it is asked faster than it can answer.
                    let done = ClientDone::Failed(ClientFailure::Failed("the terminal does not answer".into()));
                    if mailbox.send(Mail::Client { effect, done }).await.is_err() {
                        return;
                    }
                }
            }
            ClientWork::Kill { terminal } => {
                if let Some(terminal) = terminals.get(&terminal) {
                    terminal.kill.send_replace(true);
                }
            }
            ClientWork::KillAll => {
                for terminal in terminals.values() {
                    terminal.kill.send_replace(true);
                }
            }
        }
    }
}

/// Does something that waits for a disk.
fn blocking(
    tasks: &mut JoinSet<()>,
    mailbox: &Mailbox,
    effect: u64,
    work: impl FnOnce() -> Result<ClientDone, ClientFailure> + Send + 'static,
) {
    let mailbox = mailbox.clone();
    tasks.spawn(async move {
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.unwrap_or_else(|_| Err(ClientFailure::Failed("reading or writing failed".into())));
        // A session that has ended waits for nothing.
        let _ = mailbox.send(Mail::Client { effect, done: done.unwrap_or_else(ClientDone::Failed) }).await;
    });
}

/// A command while it runs.
struct Running {
    terminal: u64,
    effect: u64,
    asked: mpsc::Receiver<u64>,
    killed: watch::Receiver<bool>,
    mailbox: Mailbox,
}

impl Running {
    async fn run(self, command: Command, roots: Vec<PathBuf>, guards: Guards) {
        let Self { terminal, effect, mut asked, mut killed, mailbox } = self;
        let keep = command.keep;
        let child = match start(command, roots, guards).await {
            Ok(child) => child,
            Err(failure) => return tell(&mailbox, effect, ClientDone::Failed(failure)).await,
        };
        tell(&mailbox, effect, ClientDone::Runs).await;
        let Child { output, input, control, mut exit } = child;
        // It has nobody at its keyboard.
        drop(input);
        let mut pipe = output.into_io();
        let mut tail = Tail::new(keep);
        let mut buffer = vec![0; 16 * 1024];
        let (mut open, mut dying) = (true, false);
        let report = loop {
            tokio::select! {
                report = exit.wait() => break report,
                read = pipe.read(&mut buffer), if open => match read {
                    Ok(read @ 1..) => tail.push(&buffer[..read]),
                    Ok(_) | Err(_) => open = false,
                },
                Some(effect) = asked.recv() => tell(&mailbox, effect, ClientDone::Output(tail.output(None))).await,
                () = told(&mut killed), if !dying => {
                    dying = true;
                    control.kill();
                }
            }
        };
        let rest = async {
            while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
                tail.push(&buffer[..read]);
            }
        };
        if open {
            // What cannot be had now never can.
            let _ = timeout(LAST_WORDS, rest).await;
        }
        if cfg!(windows) {
            tail.push(report.stderr_tail.as_bytes());
        }
        let output = tail.output(Some(CommandExit { code: report.code, signal: report.signal }));
        asked.close();
        while let Some(effect) = asked.recv().await {
            tell(&mailbox, effect, ClientDone::Output(output.clone())).await;
        }
        // A session that has ended waits for nothing.
        let _ = mailbox.send(Mail::CommandEnded { terminal, output }).await;
    }
}

/// Waits until it is to be killed.
async fn told(killed: &mut watch::Receiver<bool>) {
    // Whoever could say so is gone, and with him what would be killed.
    let _ = killed.wait_for(|killed| *killed).await;
}

async fn tell(mailbox: &Mailbox, effect: u64, done: ClientDone) {
    // A session that has ended waits for nothing.
    let _ = mailbox.send(Mail::Client { effect, done }).await;
}

async fn start(command: Command, roots: Vec<PathBuf>, guards: Guards) -> Result<Child, ClientFailure> {
    let Command { program, args, env, cwd, .. } = command;
    let at = cwd.clone();
    let inside = tokio::task::spawn_blocking(move || files::find(&at, Want::Directory, &roots)).await;
    inside.unwrap_or_else(|_| Err(ClientFailure::Failed("the directory cannot be looked at".into())))?;
    let (program, args) = match cfg!(windows) {
        true => (program, args),
        // Both of its outputs in the order in which they come: one pipe for both.
        false => {
            let script = "exec \"$0\" \"$@\" 2>&1".to_owned();
            ("sh".to_owned(), ["-c".to_owned(), script, program].into_iter().chain(args).collect())
        }
    };
    let mut spec = ChildSpec::new(program, cwd);
    spec.args = args.into_iter().map(Into::into).collect();
    spec.env = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    spec.guards = guards;
    Child::spawn(&spec).await.map_err(|error| ClientFailure::Failed(error.to_string()))
}

/// The last bytes of an output.
#[derive(Debug)]
struct Tail {
    bytes: Vec<u8>,
    keep: usize,
    dropped: bool,
}

impl Tail {
    fn new(keep: usize) -> Self {
        Self { bytes: Vec::new(), keep, dropped: false }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // Seldom, so that a long output costs its length once.
        if self.bytes.len() > self.keep.saturating_mul(2).max(64 * 1024) {
            self.bytes.drain(..self.bytes.len() - self.keep);
            self.dropped = true;
        }
    }

    /// What is shown of it: whole characters.
    fn output(&self, exit: Option<CommandExit>) -> Output {
        let mut end = self.bytes.len();
        if exit.is_none() {
            // The rest of the last character is still to come.
            end -= unfinished(&self.bytes);
        }
        let mut start = end.saturating_sub(self.keep);
        while start > 0 && start < end && self.bytes[start] & 0xc0 == 0x80 {
            start += 1;
        }
        // Bytes that were none of a character grow when they are replaced.
        let text = String::from_utf8_lossy(&self.bytes[start..end]);
        let mut from = text.len().saturating_sub(self.keep);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        Output { text: text[from..].to_owned(), truncated: self.dropped || start > 0 || from > 0, exit }
    }
}

/// How many bytes at the end begin a character that is not complete.
fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        if byte & 0xc0 != 0x80 {
            let long = match byte {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => 1,
            };
            return if back < long { back } else { 0 };
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(keep: usize, parts: &[&[u8]]) -> Tail {
        let mut tail = Tail::new(keep);
        for part in parts {
            tail.push(part);
        }
        tail
    }

    const ENDED: Option<CommandExit> = Some(CommandExit { code: Some(0), signal: None });

    #[test]
    fn the_last_bytes_are_kept_and_no_character_is_cut() {
        let output = tail(4, &["aäöü".as_bytes()]).output(ENDED);
        assert_eq!((output.text.as_str(), output.truncated), ("öü", true));
        let output = tail(3, &["aäöü".as_bytes()]).output(ENDED);
        assert_eq!((output.text.as_str(), output.truncated), ("ü", true));
        let output = tail(0, &[b"abc"]).output(ENDED);
        assert_eq!((output.text.as_str(), output.truncated), ("", true));
        let output = tail(7, &["aäöü".as_bytes()]).output(ENDED);
        assert_eq!((output.text.as_str(), output.truncated), ("aäöü", false));
    }

    #[test]
    fn a_character_that_is_not_complete_waits_for_its_rest() {
        let whole = "a😀".as_bytes();
        for cut in 1..whole.len() {
            let mut tail = tail(100, &[&whole[..cut]]);
            assert_eq!(tail.output(None).text, "a", "{cut}");
            tail.push(&whole[cut..]);
            assert_eq!(tail.output(None).text, "a😀");
        }
        assert_eq!(tail(100, &[b"a\xff"]).output(None).text, "a\u{fffd}");
        assert_eq!(tail(100, &[b"a\xe2\x82"]).output(ENDED).text, "a\u{fffd}");
    }

    #[test]
    fn an_endless_output_is_bounded_also_where_it_is_no_text() {
        let mut tail = Tail::new(1000);
        for _ in 0..10_000 {
            tail.push(&[0xff; 100]);
            assert!(tail.bytes.len() <= 64 * 1024 + 100);
        }
        let output = tail.output(None);
        assert!(output.text.len() <= 1000 && output.truncated);
    }
}
