//! Finds and signals everything below the guard, by what `/proc` says of parents.
//!
//! Groups and sessions say nothing here: agents put their commands into sessions of their own. As the guard is the child
//! subreaper, the parents lead from every descendant to the guard, whatever has died in between.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;

use rustix::process::{Pid, Signal, getpid, kill_process};

/// The ids of all living descendants of this process.
pub(super) fn descendants() -> io::Result<Vec<Pid>> {
    let mut children: HashMap<i32, Vec<(i32, bool)>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // It may have ended meanwhile.
        let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else {
            continue;
        };
        if let Some((parent, alive)) = parent_of(&stat) {
            children.entry(parent).or_default().push((pid, alive));
        }
    }
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut todo = vec![getpid().as_raw_pid()];
    while let Some(parent) = todo.pop() {
        for (pid, alive) in children.get(&parent).into_iter().flatten() {
            if seen.insert(*pid) {
                todo.push(*pid);
                found.extend(Pid::from_raw(*pid).filter(|_| *alive));
            }
        }
    }
    Ok(found)
}

/// Sends `signals` to every descendant, one after the other. A process that forks meanwhile may leave one that is not hit:
/// repeat until no child is left.
pub(super) fn signal_all(signals: &[Signal]) -> io::Result<()> {
    for pid in descendants()? {
        for signal in signals {
            // It may have ended meanwhile, or belong to another user.
            _ = kill_process(pid, *signal);
        }
    }
    Ok(())
}

/// Parent and whether it lives, out of `/proc/PID/stat`: `pid (name) state parent …`, where the name may hold anything.
fn parent_of(stat: &[u8]) -> Option<(i32, bool)> {
    let after_name = stat.get(memchr::memrchr(b')', stat)? + 1..)?;
    let mut fields = after_name.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let state = fields.next()?;
    let parent = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    Some((parent, !matches!(state, b"Z" | b"X")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_confuse_the_parent() {
        assert_eq!(parent_of(b"12 (a) S 1 (b)) R 34 12 12 0"), Some((34, true)));
        assert_eq!(parent_of(b"12 (sh) Z 34 12"), Some((34, false)));
        assert_eq!(parent_of(b"12 (sh"), None);
        assert_eq!(parent_of(b""), None);
    }
}
