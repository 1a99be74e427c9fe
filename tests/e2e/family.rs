//! The processes of one test: everything that descends from the diglot it started.
//!
//! They are found by a mark in their environment, so also what has left its parent and its session is found.

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::editor::PATIENCE;

const MARK: &str = "E2E_FAMILY";

pub(crate) struct Family {
    mark: String,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) pid: Pid,
    /// Its command line.
    pub(crate) words: Vec<String>,
}

impl Family {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { mark: format!("{}-{count}", std::process::id()) }
    }

    /// The variable that marks the family.
    pub(crate) fn variable(&self) -> (&'static str, &str) {
        (MARK, &self.mark)
    }

    /// Everyone who lives.
    pub(crate) fn members(&self) -> Vec<Member> {
        let wanted = format!("{MARK}={}", self.mark);
        let mut members = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()).and_then(Pid::from_raw) else {
                continue;
            };
            // It may have ended since; what waits to be reaped has an empty environment.
            let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
            if environment.split(|b| *b == 0).any(|variable| variable == wanted.as_bytes()) {
                let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let words = words.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
                members.push(Member { pid, words });
            }
        }
        members
    }

    /// The one that runs as this subcommand of diglot.
    pub(crate) fn of(&self, subcommand: &str) -> Pid {
        let members = self.members();
        let mut found = members.iter().filter(|m| m.words.get(1).is_some_and(|word| word == subcommand));
        match (found.next(), found.next()) {
            (Some(one), None) => one.pid,
            _ => panic!("not one `{subcommand}` but {members:?}"),
        }
    }

    /// Waits until nobody lives; those `but` excepts may.
    pub(crate) fn wait_gone(&self, limit: Duration, but: &[Pid]) {
        let until = Instant::now() + limit;
        loop {
            let left: Vec<Member> = self.members().into_iter().filter(|m| !but.contains(&m.pid)).collect();
            if left.is_empty() {
                return;
            }
            for member in &left {
                assert!(ended(member.pid, until), "{limit:?} later there are still {:?}", self.members());
            }
        }
    }
}

/// Waits for the end of a process; false when it lives on.
pub(crate) fn ended(pid: Pid, until: Instant) -> bool {
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => poll_until(&handle, PollFlags::IN, until),
        Err(_) => true,
    }
}

/// Waits until a descriptor is ready; false when the time is over.
pub(crate) fn poll_until(fd: &impl std::os::fd::AsFd, flags: PollFlags, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().try_into().unwrap(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(fd, flags)], Some(&left)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("poll: {error}"),
        }
    }
}

/// Waits for a file that holds a process id, and reads it.
pub(crate) fn pid_in(file: &Path) -> Pid {
    let until = Instant::now() + PATIENCE;
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).unwrap();
    let changes = inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::CREATE;
    inotify::add_watch(&watch, file.parent().unwrap(), changes).unwrap();
    while !file.exists() {
        assert!(poll_until(&watch, PollFlags::IN, until), "{} never came", file.display());
        let mut buffer = [const { MaybeUninit::uninit() }; 4096];
        let mut events = inotify::Reader::new(&watch, &mut buffer);
        while events.next().is_ok() {}
    }
    fs::read_to_string(file).unwrap().trim().parse().ok().and_then(Pid::from_raw).unwrap()
}

/// A writer that has found no room for so long is taken for one that is held up. If it is not, a test sees less and fails no
/// sooner.
pub(crate) const HELD_UP: Duration = Duration::from_millis(500);

/// Waits until a process finds no room any more in the pipe that is its stdout.
pub(crate) fn wait_held_up(pid: Pid) {
    let path = format!("/proc/{}/fd/1", pid.as_raw_nonzero());
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let stdout = fs::OpenOptions::new().write(true).custom_flags(nonblock).open(path).unwrap();
    while poll_until(&stdout, PollFlags::OUT, Instant::now() + HELD_UP) {
        std::thread::yield_now();
    }
}

pub(crate) fn send(pid: Pid, signal: Signal) {
    kill_process(pid, signal).unwrap();
}

/// The most memory that a process ever had, in bytes.
pub(crate) fn peak_memory(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
