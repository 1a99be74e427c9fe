//! Windows: the process by its handle.
//!
//! It is killed when diglot lets go of it; there is no softer way without a console. Its own children are not followed.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::Notify;

use super::{ChildSpec, ExitReport, SpawnError};

pub(super) type Stdout = ChildStdout;

pub(super) struct Started {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    pub(super) control: Control,
    pub(super) exit: Exit,
}

#[derive(Debug, Clone)]
pub(super) struct Control {
    kill: Arc<Notify>,
    pid: u32,
}

#[derive(Debug)]
pub(super) struct Exit {
    child: tokio::process::Child,
    kill: Arc<Notify>,
}

pub(super) async fn start(spec: &ChildSpec) -> Result<Started, SpawnError> {
    let Some(program) = find(spec) else {
        return Err(SpawnError::NotFound { program: PathBuf::from(&spec.program) });
    };
    let other = |source| SpawnError::Other { program: PathBuf::from(&spec.program), source };
    let mut command = tokio::process::Command::new(&program);
    command
        .args(&spec.args)
        .current_dir(&spec.cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    for name in &spec.env_remove {
        command.env_remove(name);
    }
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    let mut child = command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => SpawnError::NotFound { program: program.clone() },
        io::ErrorKind::PermissionDenied => SpawnError::NotExecutable { program: program.clone() },
        _ => other(source),
    })?;
    let missing = || other(io::Error::from(io::ErrorKind::UnexpectedEof));
    let stdin = child.stdin.take().ok_or_else(missing)?;
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;
    let kill = Arc::new(Notify::new());
    let pid = child.id().ok_or_else(missing)?;
    Ok(Started { stdin, stdout, stderr, control: Control { kill: Arc::clone(&kill), pid }, exit: Exit { child, kill } })
}

impl Control {
    pub(super) fn interrupt(&self) {
        tracing::debug!("a process cannot be interrupted on Windows");
    }

    pub(super) fn terminate(&self) {
        self.kill();
    }

    pub(super) fn kill(&self) {
        self.kill.notify_one();
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }
}

impl Exit {
    pub(super) async fn wait(&mut self) -> ExitReport {
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status,
                () = self.kill.notified() => {
                    // Fails for a process that has ended, which the next round finds.
                    _ = self.child.start_kill();
                }
            }
        };
        let code = status.ok().and_then(|status| status.code());
        ExitReport { code, signal: None, stderr_tail: String::new() }
    }
}

/// The program's file, by the child's `Path` and the endings that Windows takes for programs: shims of npm are
/// `claude.cmd`, which the system's own search leaves out.
fn find(spec: &ChildSpec) -> Option<PathBuf> {
    let program = Path::new(&spec.program);
    let set = spec.env.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case("PATH"));
    let path = set.map(|(_, value)| value.clone()).or_else(|| env::var_os("PATH"));
    let directories: Vec<PathBuf> = if program.components().count() > 1 {
        vec![spec.cwd.clone()]
    } else {
        path.iter().flat_map(env::split_paths).collect()
    };
    let endings = env::var("PATHEXT").unwrap_or_else(|_| ".COM;.EXE;.BAT;.CMD".to_owned());
    directories.iter().find_map(|directory| {
        let plain = directory.join(program);
        if program.extension().is_some() && plain.is_file() {
            return Some(plain);
        }
        endings.split(';').find_map(|ending| {
            let mut name = plain.clone().into_os_string();
            name.push(ending);
            Some(PathBuf::from(name)).filter(|path| path.is_file())
        })
    })
}
