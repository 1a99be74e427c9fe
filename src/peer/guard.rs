//! The guard: the small process between diglot and an agent that lets no process of the agent outlive diglot.
//!
//! diglot starts its own program again as `__guard`; that starts it once more as `__guard-exec`, which becomes the agent:
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
mod link;
#[cfg(target_os = "linux")]
mod stages;
#[cfg(target_os = "linux")]
mod tree;

#[cfg(target_os = "linux")]
pub(crate) use link::{Command, Record, send_fds};
#[cfg(target_os = "linux")]
pub(crate) use stages::{GUARD, own_program};

/// Runs a stage of the guard if this process was started as one, and gives its exit code.
///
/// To be called first thing in `main`: before arguments are parsed, threads started or a runtime built.
#[must_use]
pub fn entry() -> Option<std::process::ExitCode> {
    #[cfg(target_os = "linux")]
    return stages::entry(std::env::args_os().skip(1));
    #[cfg(not(target_os = "linux"))]
    None
}
