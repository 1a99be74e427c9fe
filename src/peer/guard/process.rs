//! What runs in the guard's process, `diglot __guard`.
//!
//! The main thread starts the agent and then reaps, blocking, whatever ends below it (an orphan that ends must not stay a
//! zombie for the life of the agent); one more thread waits on the lifeline and does the ending. The main thread must be the
//! one that starts the agent, because a parent-death signal goes by the parent's thread.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command as Process, ExitCode};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, kill_process_group, pidfd_open, pidfd_send_signal,
    set_child_subreaper, setsid,
};

use super::death;
use super::link::{Command, Order, Record, receive_fds};
use super::tree;

/// The argument that makes this program a guard.
pub(crate) const GUARD: &str = "__guard";

/// From SIGTERM to SIGKILL. Claude ends its commands itself on SIGTERM and needs up to a second for it; with the rest of
/// the way everything is over within 2.5 s.
const TERM_GRACE: Duration = Duration::from_millis(1500);
/// How long what an agent left behind may take to end by itself, and then again after SIGTERM.
const LEFT_GRACE: Duration = Duration::from_millis(500);
/// Between two rounds of SIGKILL.
const KILL_EVERY: Duration = Duration::from_millis(20);
/// After this long in SIGKILL, what still lives is stuck in the kernel or belongs to another user.
const GIVE_UP: Duration = Duration::from_secs(3);

/// Exit code of a guard that could not do its work; diglot learns how the agent ended from the lifeline, not from here.
const EXIT_FAILED: u8 = 70;

pub(super) fn entry(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if args.next()? != GUARD {
        return None;
    }
    Some(guard().unwrap_or_else(|error| {
        // Whoever calls this by hand is told; otherwise stderr leads nowhere.
        _ = writeln!(io::stderr(), "diglot starts this command itself, it is of no use otherwise: {error}");
        ExitCode::from(EXIT_FAILED)
    }))
}

fn guard() -> io::Result<ExitCode> {
    // Fails only for a group leader, which a child of diglot is not.
    _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    let mut lifeline = UnixStream::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?);
    let stdio = receive_fds(&lifeline)?;
    let order = Order::receive(&mut lifeline)?;
    let agent = match start(order, stdio) {
        Ok(agent) => agent,
        Err(record) => {
            tell(&lifeline, record);
            return Ok(ExitCode::from(EXIT_FAILED));
        }
    };
    tell(&lifeline, Record::Started(agent.as_raw_pid()));
    let (gone, announce_gone) = io::pipe()?;
    let watch = Watch {
        lifeline: lifeline.try_clone()?,
        // Opened before anything is reaped, so it is this agent's; without it (an old kernel) the number must do.
        handle: pidfd_open(agent, PidfdFlags::empty()).ok(),
        agent,
        gone: Some(gone),
        phase: Phase::Running,
    };
    std::thread::Builder::new().stack_size(128 * 1024).spawn(move || watch.run())?;

    let mut announce_gone = Some(announce_gone);
    // Until no child is left, so that no descendant is.
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == agent => {
                if let Some(code) = status.exit_status() {
                    tell(&lifeline, Record::Exited(code));
                } else if let Some(signal) = status.terminating_signal() {
                    tell(&lifeline, Record::Killed(signal));
                }
                drop(announce_gone.take());
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Starts the agent; returns when it runs, or with what diglot is to be told.
///
/// Not one of the agent's pipes stays open here, as their ends would not be seen.
fn start(order: Order, [stdin, stdout, stderr]: [OwnedFd; 3]) -> Result<Pid, Record> {
    let errno = |error: io::Error| error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
    // Here and not in the agent's process, where it could not be told from a program that does not exist.
    std::env::set_current_dir(order.cwd).map_err(|error| Record::NotEntered(errno(error)))?;
    let mut command = Process::new(order.program);
    command.args(order.args).process_group(0).stdin(stdin).stdout(stdout).stderr(stderr);
    for name in order.env_remove {
        command.env_remove(name);
    }
    command.envs(order.env);
    death::with_parent(&mut command);
    let agent = command.spawn().map_err(|error| Record::Failed(errno(error)))?;
    Ok(Pid::from_child(&agent))
}

/// Tells diglot, if it still listens. Never waits: the few bytes fit into the socket's buffer.
fn tell(mut lifeline: &UnixStream, record: Record) {
    _ = lifeline.write_all(&record.bytes());
}

/// How far the ending is.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Running,
    /// The agent ended by itself; what it left may do so too, until then.
    Lingering(Instant),
    /// SIGTERM is out; SIGKILL follows then.
    Ending(Instant),
    /// SIGKILL goes out again then, until the second.
    Killing(Instant, Instant),
}

/// The thread that waits on the lifeline.
struct Watch {
    lifeline: UnixStream,
    agent: Pid,
    handle: Option<OwnedFd>,
    /// Ends when the agent has been reaped; `None` afterwards.
    gone: Option<io::PipeReader>,
    phase: Phase,
}

impl Watch {
    fn run(mut self) {
        let mut connected = true;
        loop {
            let (told, gone) = self.await_event(connected);
            if told {
                connected = self.obey();
            }
            if gone {
                self.gone = None;
                self.left_alone();
            }
            if self.deadline().is_some_and(|at| at <= Instant::now()) {
                self.next_step();
            }
        }
    }

    /// Waits for diglot, the agent's end or the deadline: whether each of the first two has come.
    fn await_event(&self, connected: bool) -> (bool, bool) {
        // What has ended is left out: a poll on it would return at once, always.
        let mut fds = Vec::with_capacity(2);
        if connected {
            fds.push(PollFd::new(&self.lifeline, PollFlags::IN));
        }
        if let Some(gone) = &self.gone {
            fds.push(PollFd::new(gone, PollFlags::IN));
        }
        let timeout = self.deadline().map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
        });
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // Interrupted, as when a stopped guard is continued: look again.
            return (false, false);
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        (connected && ready.next() == Some(true), ready.next() == Some(true))
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running => None,
            Phase::Lingering(at) | Phase::Ending(at) | Phase::Killing(at, _) => Some(at),
        }
    }

    /// Reads commands; false when diglot is gone.
    fn obey(&mut self) -> bool {
        let mut bytes = [0; 16];
        let read = self.lifeline.read(&mut bytes).unwrap_or(0);
        if read == 0 {
            self.terminate();
            return false;
        }
        for command in bytes[..read].iter().filter_map(|byte| Command::from_byte(*byte)) {
            match command {
                Command::Interrupt => self.signal_agent(Signal::INT),
                Command::Terminate => self.terminate(),
                Command::Kill => self.kill(),
            }
        }
        true
    }

    fn signal_agent(&self, signal: Signal) {
        // The agent may have ended already.
        match &self.handle {
            _ if self.gone.is_none() => {}
            Some(handle) => _ = pidfd_send_signal(handle, signal),
            None => _ = kill_process(self.agent, signal),
        }
    }

    fn terminate(&mut self) {
        match self.phase {
            Phase::Running => {
                // Woken first, since a stopped process acts on no SIGTERM.
                for signal in [Signal::CONT, Signal::TERM] {
                    _ = kill_process_group(self.agent, signal);
                }
                self.phase = Phase::Ending(Instant::now() + TERM_GRACE);
            }
            Phase::Lingering(_) => self.terminate_rest(LEFT_GRACE),
            Phase::Ending(_) | Phase::Killing(..) => {}
        }
    }

    fn terminate_rest(&mut self, grace: Duration) {
        _ = tree::signal_all(&[Signal::CONT, Signal::TERM]);
        self.phase = Phase::Ending(Instant::now() + grace);
    }

    fn kill(&mut self) {
        let now = Instant::now();
        let give_up = match self.phase {
            Phase::Killing(_, give_up) => give_up,
            _ => now + GIVE_UP,
        };
        if give_up <= now {
            std::process::exit(EXIT_FAILED.into());
        }
        if tree::signal_all(&[Signal::KILL]).is_err() {
            // Without /proc, what is in the agent's group is all that is known.
            _ = kill_process_group(self.agent, Signal::KILL);
        }
        self.phase = Phase::Killing(now + KILL_EVERY, give_up);
    }

    /// The agent has ended; its descendants follow.
    fn left_alone(&mut self) {
        match self.phase {
            Phase::Running => self.phase = Phase::Lingering(Instant::now() + LEFT_GRACE),
            Phase::Ending(at) => {
                self.terminate_rest(LEFT_GRACE);
                if let Phase::Ending(later) = &mut self.phase {
                    *later = at.min(*later);
                }
            }
            Phase::Lingering(_) | Phase::Killing(..) => {}
        }
    }

    fn next_step(&mut self) {
        match self.phase {
            Phase::Running => {}
            Phase::Lingering(_) => self.terminate_rest(LEFT_GRACE),
            Phase::Ending(_) | Phase::Killing(..) => self.kill(),
        }
    }
}
