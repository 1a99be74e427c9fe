//! Linux: the process below a guard.
//!
//! Owns the pipes' making and, from the order on, the lifeline's near end. Invariant: no other process has that end, so that
//! the lifeline closes exactly when diglot ends or lets go.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep};

use super::resting::RestingPipe;
use super::{ChildSpec, ExitReport, SpawnError};
use crate::peer::guard::{Command, Guard, Order, Record, send_fds};

pub(super) type Stdout = RestingPipe;

/// How long an agent whose guard was killed has from SIGTERM to SIGKILL, and how often it is looked at: it is no child of
/// diglot, so nothing tells.
const UNGUARDED_GRACE: Duration = Duration::from_millis(1500);
const UNGUARDED_LOOK: Duration = Duration::from_millis(20);

pub(super) struct Started {
    pub(super) stdin: pipe::Sender,
    pub(super) stdout: RestingPipe,
    pub(super) stderr: pipe::Receiver,
    pub(super) control: Control,
    pub(super) exit: Exit,
}

/// The commanding side of the lifeline; the last one dropped closes it.
#[derive(Debug, Clone)]
pub(super) struct Control {
    lifeline: Arc<Lifeline>,
    agent: Pid,
}

#[derive(Debug)]
struct Lifeline(OwnedFd);

impl Drop for Lifeline {
    fn drop(&mut self) {
        // The listening side holds the same socket: closing this descriptor alone would say nothing.
        _ = rustix::net::shutdown(&self.0, Shutdown::Write);
    }
}

/// The listening side of the lifeline.
#[derive(Debug)]
pub(super) struct Exit {
    records: Records,
    guard: tokio::process::Child,
    agent: Pid,
    how: Option<Record>,
    /// Until when an agent without a guard may end by itself.
    lost: Option<Instant>,
}

#[derive(Debug)]
struct Records {
    stream: UnixStream,
    bytes: Vec<u8>,
}

impl Records {
    /// The next record; `None` when the guard has ended. May be dropped at any time.
    async fn next(&mut self) -> Option<Record> {
        loop {
            if let Some((record, rest)) = self.bytes.split_first_chunk() {
                let record = Record::from_bytes(*record);
                self.bytes = rest.to_vec();
                if record.is_some() {
                    return record;
                }
            } else if !matches!(self.stream.read_buf(&mut self.bytes).await, Ok(1..)) {
                return None;
            }
        }
    }
}

pub(super) async fn start(spec: &ChildSpec) -> Result<Started, SpawnError> {
    let other = |source| SpawnError::Other { program: PathBuf::from(&spec.program), source };
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| other(error.into()));
    let (stdin_theirs, stdin) = pipe()?;
    let (stdout, stdout_theirs) = pipe()?;
    let (stderr, stderr_theirs) = pipe()?;
    let order = Order {
        cwd: spec.cwd.clone().into(),
        program: spec.program.clone(),
        args: spec.args.clone(),
        env: spec.env.clone(),
        env_remove: spec.env_remove.clone(),
    };
    let order = order.bytes().map_err(other)?;

    let no_guard = |source| SpawnError::Guard { source };
    let theirs = [stdin_theirs, stdout_theirs, stderr_theirs];
    let guard = spec.guards.take().map_err(no_guard)?;
    let handed = match hand_over(guard, &theirs, &order).await {
        Ok(handed) => handed,
        // It was started ahead and has died since, before it knew what to start.
        Err(_) => hand_over(spec.guards.take().map_err(no_guard)?, &theirs, &order).await.map_err(no_guard)?,
    };
    drop((theirs, order));
    let (process, lifeline, mut records) = handed;
    let agent = match records.next().await {
        Some(Record::Started(pid)) => Pid::from_raw(pid),
        Some(Record::Failed(errno)) => {
            return Err(diagnose(spec, io::Error::from_raw_os_error(errno)));
        }
        Some(Record::NotEntered(errno)) => {
            return Err(not_entered(spec, io::Error::from_raw_os_error(errno)));
        }
        _ => None,
    };
    let Some(agent) = agent else {
        let source = io::Error::from(io::ErrorKind::UnexpectedEof);
        return Err(SpawnError::Guard { source });
    };
    Ok(Started {
        stdin: pipe::Sender::from_owned_fd(stdin).map_err(other)?,
        stdout: RestingPipe::new(stdout).map_err(other)?,
        stderr: pipe::Receiver::from_owned_fd(stderr).map_err(other)?,
        control: Control { lifeline: Arc::new(lifeline), agent },
        exit: Exit { records, guard: process, agent, how: None, lost: None },
    })
}

/// Tells a guard what to start. Fails if it has died, and then nothing is started.
async fn hand_over(
    guard: Guard,
    [stdin, stdout, stderr]: &[OwnedFd; 3],
    order: &[u8],
) -> io::Result<(tokio::process::Child, Lifeline, Records)> {
    let Guard { lifeline: near, process } = guard;
    send_fds(&near, [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])?;
    let lifeline = Lifeline(near.try_clone()?.into());
    let mut records = Records { stream: UnixStream::from_std(near)?, bytes: Vec::new() };
    records.stream.write_all(order).await?;
    Ok((process, lifeline, records))
}

impl Control {
    fn send(&self, command: Command) {
        // Fails when the guard has ended, and then there is nothing left to command.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if let Err(error) = rustix::net::send(&self.lifeline.0, &[command.byte()], flags) {
            tracing::debug!(%error, ?command, "the guard takes no command");
        }
    }

    pub(super) fn interrupt(&self) {
        self.send(Command::Interrupt);
    }

    pub(super) fn terminate(&self) {
        self.send(Command::Terminate);
    }

    pub(super) fn kill(&self) {
        self.send(Command::Kill);
    }

    pub(super) fn pid(&self) -> u32 {
        self.agent.as_raw_pid().cast_unsigned()
    }
}

impl Exit {
    /// Waits until the guard has ended, which it does after everything below it.
    pub(super) async fn wait(&mut self) -> ExitReport {
        while let Some(record) = self.records.next().await {
            self.how = Some(record);
        }
        let guard = self.guard.wait().await;
        let (code, signal) = match self.how {
            Some(Record::Exited(code)) => (Some(code), None),
            Some(Record::Killed(signal)) => (None, Some(signal)),
            _ => {
                tracing::warn!(status = ?guard, "the guard process ended before the agent");
                self.end_unguarded().await;
                (None, None)
            }
        };
        ExitReport { code, signal, stderr_tail: String::new() }
    }
}

impl Exit {
    /// Ends an agent whose guard was killed from outside. Its parent-death signal has reached it; what it started it must
    /// end itself now, so it is given the time.
    async fn end_unguarded(&mut self) {
        let until = *self.lost.get_or_insert_with(|| {
            for signal in [Signal::CONT, Signal::TERM] {
                // It may have ended already.
                _ = kill_process_group(self.agent, signal);
            }
            Instant::now() + UNGUARDED_GRACE
        });
        while Instant::now() < until && test_kill_process_group(self.agent).is_ok() {
            sleep(UNGUARDED_LOOK).await;
        }
        _ = kill_process_group(self.agent, Signal::KILL);
    }
}

/// Why the guard could not enter the agent's directory.
fn not_entered(spec: &ChildSpec, source: io::Error) -> SpawnError {
    // It may be gone since it was looked at.
    super::check_cwd(&spec.cwd).err().unwrap_or_else(|| SpawnError::Other {
        program: PathBuf::from(&spec.program),
        source: io::Error::new(
            source.kind(),
            format!("the working directory {} cannot be entered", spec.cwd.display()),
        ),
    })
}

/// What an error of `execvp` means here.
fn diagnose(spec: &ChildSpec, error: io::Error) -> SpawnError {
    let program = PathBuf::from(&spec.program);
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let file = candidates(spec).find(|path| path.is_file());
    match errno {
        Some(Errno::NOENT) => match file {
            Some(program) => SpawnError::NoInterpreter { program },
            None => SpawnError::NotFound { program },
        },
        Some(Errno::NOTDIR) => SpawnError::NotFound { program },
        // A directory of PATH that may not be read gives this too.
        Some(Errno::ACCESS) => match candidates(spec).find(|path| path.exists()) {
            Some(program) => SpawnError::NotExecutable { program },
            None => SpawnError::NotFound { program },
        },
        Some(Errno::NOEXEC | Errno::ISDIR) => SpawnError::NotExecutable { program: file.unwrap_or(program) },
        _ => SpawnError::Other { program, source: error },
    }
}

/// Where the child's `execvp` looks for the program.
fn candidates(spec: &ChildSpec) -> impl Iterator<Item = PathBuf> {
    let direct = spec.program.as_encoded_bytes().contains(&b'/');
    let path = match spec.env.iter().rev().find(|(name, _)| name == "PATH") {
        Some((_, value)) => Some(value.clone()),
        None if spec.env_remove.iter().any(|name| name == "PATH") => None,
        None => std::env::var_os("PATH"),
    };
    let listed: Vec<PathBuf> = match path {
        _ if direct => vec![PathBuf::new()],
        Some(path) => std::env::split_paths(&path).collect(),
        None => vec!["/bin".into(), "/usr/bin".into()],
    };
    listed.into_iter().map(|directory| spec.cwd.join(directory).join(&spec.program))
}
