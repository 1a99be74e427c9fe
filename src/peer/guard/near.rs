//! The guard as diglot sees it: started, ready for its order.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::GUARD;

/// A guard that runs and waits for its order. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Guard {
    /// This end of the lifeline, non-blocking. It exists once and close-on-exec, so that it closes exactly when diglot ends
    /// or lets go.
    pub(crate) lifeline: UnixStream,
    pub(crate) process: tokio::process::Child,
}

impl Guard {
    /// Starts `program`, or this one, as a guard. Needs a tokio runtime with I/O.
    pub(super) fn start(program: Option<&Path>) -> io::Result<Self> {
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
