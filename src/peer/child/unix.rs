//! Unix without Linux's subreaper and parent-death signal: the process in a group of its own.
//!
//! What puts itself into another group or session escapes here, and so does everything when diglot is killed with SIGKILL
//! and the agent does not end by its stdin's end.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::net::unix::pipe;

use super::resting::RestingPipe;
use super::{ChildSpec, ExitReport, SpawnError};

pub(super) type Stdout = RestingPipe;

/// From SIGTERM to SIGKILL.
const TERM_GRACE: Duration = Duration::from_millis(1500);

pub(super) struct Started {
    pub(super) stdin: pipe::Sender,
    pub(super) stdout: RestingPipe,
    pub(super) stderr: pipe::Receiver,
    pub(super) control: Control,
    pub(super) exit: Exit,
}

#[derive(Debug, Clone)]
pub(super) struct Control {
    group: Arc<Group>,
}

/// The agent's group; the last control dropped ends it.
#[derive(Debug)]
struct Group {
    pid: Pid,
    /// Whether the agent is known to have ended, after which its number may be another's.
    ended: Mutex<bool>,
}

impl Group {
    fn signal(&self, send: impl FnOnce(Pid) -> rustix::io::Result<()>) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !*ended {
            // It may have ended already.
            _ = send(self.pid);
        }
    }

    fn terminate(&self) {
        self.signal(|pid| kill_process_group(pid, Signal::CONT));
        self.signal(|pid| kill_process_group(pid, Signal::TERM));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.terminate();
    }
}

#[derive(Debug)]
pub(super) struct Exit {
    child: tokio::process::Child,
    group: Arc<Group>,
}

pub(super) async fn start(spec: &ChildSpec) -> Result<Started, SpawnError> {
    let other = |source| SpawnError::Other { program: PathBuf::from(&spec.program), source };
    let pipe = || io::pipe().map_err(other);
    let (stdin_theirs, stdin) = pipe()?;
    let (stdout, stdout_theirs) = pipe()?;
    let (stderr, stderr_theirs) = pipe()?;
    let mut command = tokio::process::Command::new(&spec.program);
    command
        .args(&spec.args)
        .current_dir(&spec.cwd)
        .process_group(0)
        .stdin(OwnedFd::from(stdin_theirs))
        .stdout(OwnedFd::from(stdout_theirs))
        .stderr(OwnedFd::from(stderr_theirs));
    for name in &spec.env_remove {
        command.env_remove(name);
    }
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    let child = command.spawn().map_err(|source| diagnose(spec, source))?;
    drop(command);
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let Some(pid) = pid else {
        return Err(other(io::Error::from(io::ErrorKind::UnexpectedEof)));
    };
    let group = Arc::new(Group { pid, ended: Mutex::new(false) });
    Ok(Started {
        stdin: pipe::Sender::from_owned_fd(stdin.into()).map_err(other)?,
        stdout: RestingPipe::new(stdout.into()).map_err(other)?,
        stderr: pipe::Receiver::from_owned_fd(stderr.into()).map_err(other)?,
        control: Control { group: Arc::clone(&group) },
        exit: Exit { child, group },
    })
}

impl Control {
    pub(super) fn interrupt(&self) {
        self.group.signal(|pid| kill_process(pid, Signal::INT));
    }

    pub(super) fn terminate(&self) {
        self.group.terminate();
        // Only a runtime can wait for the grace; without one SIGTERM has to do.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let group = Arc::clone(&self.group);
            runtime.spawn(async move {
                tokio::time::sleep(TERM_GRACE).await;
                group.signal(|pid| kill_process_group(pid, Signal::KILL));
            });
        }
    }

    pub(super) fn kill(&self) {
        self.group.signal(|pid| kill_process_group(pid, Signal::KILL));
    }

    pub(super) fn pid(&self) -> u32 {
        self.group.pid.as_raw_pid().cast_unsigned()
    }
}

impl Exit {
    pub(super) async fn wait(&mut self) -> ExitReport {
        use std::os::unix::process::ExitStatusExt as _;
        let status = self.child.wait().await;
        // The rest of the group, whose number is still taken as long as one of it lives.
        self.group.signal(|pid| kill_process_group(pid, Signal::KILL));
        *self.group.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        match status {
            Ok(status) => ExitReport { code: status.code(), signal: status.signal(), stderr_tail: String::new() },
            Err(_) => ExitReport::default(),
        }
    }
}

/// What an error of starting means here.
fn diagnose(spec: &ChildSpec, source: io::Error) -> SpawnError {
    let program = PathBuf::from(&spec.program);
    if let Err(error) = super::check_cwd(&spec.cwd) {
        return error;
    }
    match source.kind() {
        io::ErrorKind::NotFound if spec.cwd.join(&program).is_file() => SpawnError::NoInterpreter { program },
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => SpawnError::NotFound { program },
        io::ErrorKind::PermissionDenied => SpawnError::NotExecutable { program },
        _ => SpawnError::Other { program, source },
    }
}
