//! The named pipe through which `diglot acp` tells its trace, for `--wire`.
//!
//! Invariant: nobody waits for the other end: the reader is open before the writer starts, and a writer is kept open until
//! the one that matters has ended, so that the pipe ends exactly behind what was written.

#[cfg(unix)]
use std::io::Write;
use std::path::{Path, PathBuf};

#[cfg(unix)]
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;

use super::super::CliError;
use super::Wire;
use super::client::Event;

/// Where the named pipe of `--wire` lies in its folder.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join("trace")
}

/// Keeps the pipe open until it is dropped.
pub(super) struct Keeper {
    #[cfg(unix)]
    _writer: tokio::net::unix::pipe::Sender,
}

#[cfg(unix)]
pub(super) fn open(wire: &mut Wire, events: mpsc::Sender<Event>) -> Result<Keeper, CliError> {
    use tokio::net::unix::pipe::OpenOptions;

    let path = self::path(&wire.folder.path);
    let fault = |error: std::io::Error| CliError::Fault(format!("cannot make the pipe {}: {error}", path.display()));
    make_pipe(&path).map_err(fault)?;
    let reader = OpenOptions::new().open_receiver(&path).map_err(fault)?;
    let writer = OpenOptions::new().open_sender(&path).map_err(fault)?;
    let mut copy = match wire.copy.take() {
        Some(path) => Some(crate::trace::open_file(&path)?),
        None => None,
    };
    tokio::spawn(async move {
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(file) = &mut copy {
                // A full disk must not end the conversation.
                let _ = writeln!(file, "{line}");
            }
            if events.send(Event::Trace(line)).await.is_err() {
                return;
            }
        }
        let _ = events.send(Event::TraceEnded).await;
    });
    Ok(Keeper { _writer: writer })
}

#[cfg(not(unix))]
pub(super) fn open(_: &mut Wire, _: mpsc::Sender<Event>) -> Result<Keeper, CliError> {
    Err(CliError::Usage("--wire needs named pipes, which this system does not have; use --trace FILE".into()))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn make_pipe(path: &Path) -> std::io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    Ok(mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn make_pipe(path: &Path) -> std::io::Result<()> {
    let status = std::process::Command::new("mkfifo").arg("-m").arg("600").arg(path).status()?;
    if status.success() { Ok(()) } else { Err(std::io::Error::other("mkfifo failed")) }
}
