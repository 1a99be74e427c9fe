//! The guard as diglot sees it: started, ready for its order.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::GUARD;

/// A guard that runs and waits for its order. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Guard {
    /// This end of the lifeline, non-blocking and close-on-exec, so that no other process has it.
    pub(crate) lifeline: UnixStream,
    pub(crate) process: tokio::process::Child,
}

impl Guard {
    /// Starts `program`, or this one, as a guard. Needs a tokio runtime with I/O.
    pub(super) fn start(program: Option<&Path>) -> io::Result<Self> {
        // Whoever started diglot may ignore SIGCHLD, and then a guard could wait for nothing. What is caught here is not
        // ignored there.
        _ = signal(SignalKind::child())?;
        let (lifeline, far) = UnixStream::pair()?;
        lifeline.set_nonblocking(true)?;
        let program = program.map_or_else(own_program, Path::to_owned);
        let process = tokio::process::Command::new(program)
            .arg0("diglot")
            .arg(GUARD)
            .stdin(OwnedFd::from(far))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { lifeline, process })
    }
}

/// Whether this process ignores one of the signals that end it: so below `nohup`, or as a shell's background job.
pub(super) fn ignores_an_end() -> bool {
    let ends = [Signal::HUP, Signal::INT, Signal::TERM].iter().fold(0, |ends, end| ends | 1 << (end.as_raw() - 1));
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Not known is no reason to say so.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & ends != 0)
}

/// The path by which this program is started again.
///
/// The path it was started from, or, if that is gone because an update replaced the file, the file itself as the kernel
/// still has it.
fn own_program() -> PathBuf {
    match std::env::current_exe() {
        Ok(path) if path.exists() => path,
        _ => PathBuf::from("/proc/self/exe"),
    }
}
