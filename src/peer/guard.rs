//! The guard: the small process between diglot and an agent that lets no process of the agent outlive diglot.
//!
//! diglot starts its own program again as `__guard`, which starts the agent that diglot names over their socket:
//!
//! ```text
//! diglot ──lifeline (socket)── guard ──── agent ──── its commands, in sessions of their own
//!    └──────── the agent's stdin, stdout, stderr ──────┘
//! ```
//!
//! The guard is the child subreaper of everything below it, so nothing escapes its sight by losing its parent, and it is in
//! a session of its own, so nothing that hits diglot's group hits it. The agent's pipes go past it. It acts on one-byte
//! commands over the lifeline, and when the lifeline closes, which is what the kernel does when diglot dies in whatever
//! way. When the guard itself is killed, the agent gets SIGTERM by its parent-death signal. It ends when not one of its
//! descendants is left.
//!
//! Invariants: it needs no signal handler, spins never, allocates little and starts no async runtime.

#[cfg(target_os = "linux")]
mod death;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod near;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod tree;

use std::path::PathBuf;
#[cfg(target_os = "linux")]
use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

#[cfg(target_os = "linux")]
pub(crate) use link::{Command, Order, Record, send_fds};
#[cfg(target_os = "linux")]
pub(crate) use near::Guard;
#[cfg(target_os = "linux")]
use process::GUARD;

/// Where guards come from. A clone gives the same ones. On other systems than Linux there are none.
#[derive(Debug, Clone, Default)]
pub struct Guards {
    #[cfg(target_os = "linux")]
    program: Option<PathBuf>,
    #[cfg(target_os = "linux")]
    ahead: Arc<Mutex<Option<Guard>>>,
}

impl Guards {
    /// Guards of this diglot program, when it is not the one that runs: so in tests.
    #[must_use]
    pub fn of_program(program: impl Into<PathBuf>) -> Self {
        #[cfg(target_os = "linux")]
        return Self { program: Some(program.into()), ahead: Arc::default() };
        #[cfg(not(target_os = "linux"))]
        {
            let _: PathBuf = program.into();
            Self {}
        }
    }

    /// Starts a guard now, for the agent that is started next: it comes up while diglot does other things. A guard that
    /// cannot be started is tried again, and its error told, when the agent is.
    ///
    /// Nothing is done if this process ignores a signal that it will catch: a caught signal is no longer ignored in whatever
    /// is started, so a guard that is started now would hand its agent an ignored SIGTERM, and later ones would not.
    ///
    /// Needs a tokio runtime with I/O, whose context is entered.
    pub fn start_ahead(&self) {
        #[cfg(target_os = "linux")]
        if !near::ignores_an_end()
            && let Ok(guard) = Guard::start(self.program.as_deref())
        {
            *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = Some(guard);
        }
    }

    /// The one that was started ahead, which may have died meanwhile, or a new one.
    #[cfg(target_os = "linux")]
    pub(crate) fn take(&self) -> io::Result<Guard> {
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).take();
        ahead.map_or_else(|| Guard::start(self.program.as_deref()), Ok)
    }
}

/// Runs the guard if this process was started as one, and gives its exit code.
///
/// To be called first thing in `main`: before arguments are parsed, threads started or a runtime built.
#[must_use]
pub fn entry() -> Option<std::process::ExitCode> {
    #[cfg(target_os = "linux")]
    return process::entry(std::env::args_os().skip(1));
    #[cfg(not(target_os = "linux"))]
    None
}
