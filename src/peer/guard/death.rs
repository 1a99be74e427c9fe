//! The parent-death signal: what ends the agent when its guard is killed. The only unsafe code of diglot.
//!
//! The kernel forgets the wish at a fork and keeps it over an exec, so it has to be said between the two.
#![expect(
    unsafe_code,
    reason = "what runs between fork and exec is unsafe to name, and there is no other place for this"
)]

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// The process that `command` starts gets SIGTERM when the thread that starts it ends, and does not begin without it.
pub(super) fn with_parent(command: &mut Command) {
    let parent = Some(getpid());
    let wish = move || {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // A parent that died before that line sends no signal.
        if getppid() == parent { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: it may run in the child of a process of many threads, where only what is async-signal-safe is allowed: it makes
    // two system calls, takes no lock and allocates nothing (an `io::Error` of an errno is a number).
    unsafe { command.pre_exec(wish) };
}
