//! Which session of an agent is which session of a host.
//!
//! Hosts know sessions by UUIDs that they may choose themselves; agents by names of their own. This file owns what is kept
//! of that on disk: one small JSON file per session in the user's state directory, named by the host's UUID. Invariants:
//! a path is made of nothing but a checked UUID; a file is replaced as a whole or not at all, whatever dies in the middle;
//! any number of processes may work on it at once, and of two that want one new UUID one gets it; nobody else can read it.
//!
//! A reservation is an empty file that its process holds locked. So one whose process died is free again (where there are
//! locks of that kind, on Unix); elsewhere it stays taken.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A file of ours is far smaller; a larger one is not read.
const LIMIT: u64 = 64 * 1024;

/// A session that can be gone on with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The host's UUID, in lower case with hyphens.
    pub id: String,
    /// The name of the agent that has it.
    pub agent: String,
    /// What the agent calls it.
    pub acp_session_id: String,
    /// Its working directory, with every link resolved if that was possible.
    pub cwd: String,
    /// When it began, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it was last used, in milliseconds since 1970.
    pub updated_ms: u64,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// Why something cannot be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no home to keep anything in.
    #[error("there is no place to remember sessions in; set HOME or DIGLOT_STATE_DIR")]
    NoPlace,
    /// Not a UUID.
    #[error("Invalid session ID. Must be a valid UUID.")]
    NotUuid,
    /// The UUID is taken. The words are claude's; hosts look for them.
    #[error("Session ID {0} is already in use.")]
    InUse(String),
    /// The system refused.
    #[error("cannot {what} {path}: {source}; make it accessible, or set DIGLOT_STATE_DIR to another folder")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The sessions of this user. Cheap to clone; holds no file open.
#[derive(Clone, Debug)]
pub struct SessionStore {
    dir: PathBuf,
}

/// A UUID that no other process gets. Dropped without the session having been [remembered](SessionStore::remember), it is
/// free again.
#[derive(Debug)]
pub struct Reservation {
    path: PathBuf,
    file: File,
}

/// The directory for what diglot remembers: `$DIGLOT_STATE_DIR`, else `diglot` in `$XDG_STATE_HOME`, else
/// `~/.local/state/diglot`; `None` without a home.
pub fn state_dir(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(own) = env("DIGLOT_STATE_DIR").filter(|own| !own.is_empty()) {
        return Some(own.into());
    }
    // The XDG rules: a relative path in this variable is to be ignored.
    let xdg = env("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || {
        let home = ["HOME", "USERPROFILE"].into_iter().filter_map(env).find(|home| !home.is_empty())?;
        Some(PathBuf::from(home).join(".local").join("state"))
    };
    Some(xdg.or_else(home)?.join("diglot"))
}

/// A UUID as files and records spell it.
///
/// # Errors
/// [`StoreError::NotUuid`] for everything but 36 characters with hyphens.
pub fn checked(id: &str) -> Result<String, StoreError> {
    let uuid = Uuid::try_parse(id).ok().filter(|_| id.len() == 36).ok_or(StoreError::NotUuid)?;
    Ok(uuid.hyphenated().to_string())
}

impl SessionRecord {
    /// A session that begins now.
    ///
    /// # Errors
    /// [`StoreError::NotUuid`].
    pub fn new(id: &str, agent: &str, acp_session_id: &str, cwd: &Path) -> Result<Self, StoreError> {
        let now = now_ms();
        Ok(Self {
            id: checked(id)?,
            agent: agent.to_owned(),
            acp_session_id: acp_session_id.to_owned(),
            cwd: place(cwd),
            created_ms: now,
            updated_ms: now,
            title: None,
        })
    }
}

impl SessionStore {
    /// The store in the user's state directory. Touches no file.
    ///
    /// # Errors
    /// [`StoreError::NoPlace`] when there is no such directory.
    pub fn of_user(env: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, StoreError> {
        Ok(Self::at(&state_dir(env).ok_or(StoreError::NoPlace)?))
    }

    /// The store in the state directory `dir`. Touches no file.
    #[must_use]
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.join("sessions") }
    }

    /// The session with that UUID, if it is known and its file can be understood.
    ///
    /// # Errors
    /// [`StoreError::NotUuid`], or what the system said.
    pub fn find(&self, id: &str) -> Result<Option<SessionRecord>, StoreError> {
        let id = checked(id)?;
        let path = self.path(&id);
        read(&path, &id).map_err(|source| failed("read", &path, source))
    }

    /// The session of `agent` in the directory `cwd` that was used last.
    ///
    /// # Errors
    /// What the system said about the folder; files that cannot be read are passed over.
    pub fn newest(&self, cwd: &Path, agent: &str) -> Result<Option<SessionRecord>, StoreError> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed("read", &self.dir, source)),
        };
        let cwd = place(cwd);
        let mut newest: Option<SessionRecord> = None;
        for path in entries.flatten().map(|entry| entry.path()) {
            let Some(id) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".json")) else { continue };
            // What is being written just now has another name.
            if !checked(id).is_ok_and(|spelt| spelt == id) {
                continue;
            }
            match read(&path, id) {
                Ok(Some(record)) if record.cwd == cwd && record.agent == agent => {
                    if newest.as_ref().is_none_or(|newest| newest.updated_ms < record.updated_ms) {
                        newest = Some(record);
                    }
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, path = %path.display(), "a session's file cannot be read"),
            }
        }
        Ok(newest)
    }

    /// Keeps a session, in the place of what was known of it.
    ///
    /// # Errors
    /// [`StoreError::NotUuid`], or what the system said; then what was known is still known.
    pub fn remember(&self, record: &SessionRecord) -> Result<(), StoreError> {
        let id = checked(&record.id)?;
        self.make_dir()?;
        let path = self.path(&id);
        let temporary = self.dir.join(format!("{id}.{}.tmp", Uuid::new_v4()));
        let text = serde_json::to_vec(record).map_err(|error| failed("write", &path, error.into()))?;
        let written = write(&temporary, &text).and_then(|()| fs::rename(&temporary, &path));
        if let Err(source) = written {
            // It may never have been there.
            _ = fs::remove_file(&temporary);
            return Err(failed("write", &path, source));
        }
        self.sync_dir();
        Ok(())
    }

    /// Notes that a session was used now, and its title if there is a new one. Does nothing for a session that is not known.
    ///
    /// # Errors
    /// As [`find`](Self::find) and [`remember`](Self::remember).
    pub fn touch(&self, id: &str, title: Option<&str>) -> Result<(), StoreError> {
        let Some(mut record) = self.find(id)? else { return Ok(()) };
        // A clock may have been set back.
        record.updated_ms = now_ms().max(record.updated_ms);
        if let Some(title) = title {
            record.title = Some(title.to_owned());
        }
        self.remember(&record)
    }

    /// Forgets a session; one that is not known is forgotten already.
    ///
    /// # Errors
    /// [`StoreError::NotUuid`], or what the system said.
    pub fn forget(&self, id: &str) -> Result<(), StoreError> {
        let path = self.path(&checked(id)?);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failed("remove", &path, source)),
            _ => Ok(()),
        }
    }

    /// Takes a UUID for a new session, so that no other process gets it. Hold it until the session is remembered.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when it is a known session's or another process's; [`StoreError::NotUuid`], or what the system
    /// said.
    pub fn reserve(&self, id: &str) -> Result<Reservation, StoreError> {
        let path = self.path(&checked(id)?);
        self.make_dir()?;
        match lock::take(&path) {
            Ok(Some(file)) => Ok(Reservation { path, file }),
            // In the host's own spelling.
            Ok(None) => Err(StoreError::InUse(id.to_owned())),
            Err(source) => Err(failed("create", &path, source)),
        }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.json"))
    }

    fn make_dir(&self) -> Result<(), StoreError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.dir).map_err(|source| failed("create", &self.dir, source))
    }

    /// Makes a rename last. The session goes on without that, so a failure is only logged.
    fn sync_dir(&self) {
        #[cfg(unix)]
        if let Err(error) = File::open(&self.dir).and_then(|dir| dir.sync_all()) {
            tracing::debug!(%error, "the folder of the sessions cannot be synchronised");
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // What was remembered meanwhile is another file, and stays.
        if lock::is_at(&self.file, &self.path).unwrap_or(false)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "a reserved session id could not be given back");
        }
    }
}

/// Reads a session's file; `None` if there is none, or nothing in it that can be understood.
fn read(path: &Path, id: &str) -> io::Result<Option<SessionRecord>> {
    let mut text = Vec::new();
    match File::open(path).and_then(|file| file.take(LIMIT).read_to_end(&mut text)) {
        // Reserved.
        Ok(0) => return Ok(None),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    match serde_json::from_slice::<SessionRecord>(&text) {
        Ok(record) if record.id == id => Ok(Some(record)),
        Ok(_) => {
            tracing::warn!(path = %path.display(), "a session's file is about another session and is passed over");
            Ok(None)
        }
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "a session's file cannot be understood and is passed over");
            Ok(None)
        }
    }
}

fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Writes a new file to the disk.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = new_file().open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> StoreError {
    StoreError::Io { what, path: path.to_owned(), source }
}

/// A directory as it is compared: the same one has the same spelling.
fn place(cwd: &Path) -> String {
    fs::canonicalize(cwd).unwrap_or_else(|_| cwd.to_owned()).to_string_lossy().into_owned()
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(unix)]
mod lock {
    use super::{File, Path, fs, io, new_file};
    use rustix::fs::{FlockOperation, flock};
    use std::os::unix::fs::MetadataExt as _;

    /// An empty file at `path`, locked; `None` when it is somebody's.
    pub(super) fn take(path: &Path) -> io::Result<Option<File>> {
        loop {
            let file = match new_file().open(path) {
                // Between here and the lock another one may lock it: then it is his.
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match File::open(path) {
                    Ok(file) => file,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                },
                Err(error) => return Err(error),
            };
            if file.metadata()?.len() > 0 {
                return Ok(None);
            }
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // What was locked may have been given back or replaced before: then another one is to be looked at.
            if is_at(&file, path)? {
                return Ok(Some(file));
            }
        }
    }

    /// Whether `path` is still that file.
    pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
        let (ours, there) = (file.metadata()?, fs::symlink_metadata(path));
        match there {
            Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(not(unix))]
mod lock {
    use super::{File, Path, fs, io, new_file};

    /// A new file at `path`; `None` when it is somebody's.
    pub(super) fn take(path: &Path) -> io::Result<Option<File>> {
        match new_file().open(path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether `path` is still that file: what is remembered is never empty.
    pub(super) fn is_at(_: &File, path: &Path) -> io::Result<bool> {
        Ok(fs::metadata(path)?.len() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    const A: &str = "74621b04-d2db-4a10-b43a-45450504d43f";
    const B: &str = "00000000-0000-4000-8000-000000000001";

    fn store() -> (tempfile::TempDir, SessionStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = SessionStore::at(&dir.path().join("state"));
        (dir, store)
    }

    fn record(id: &str, cwd: &Path, updated_ms: u64) -> SessionRecord {
        SessionRecord { updated_ms, ..SessionRecord::new(id, "wave", "ses_1", cwd).unwrap() }
    }

    #[test]
    fn what_is_remembered_is_found_until_it_is_forgotten() {
        let (dir, store) = store();
        assert_eq!(store.find(A).unwrap(), None);
        let mut known = record(A, dir.path(), 5);
        known.title = Some("a \"title\"\n".into());
        store.remember(&known).unwrap();
        assert_eq!(store.find(A).unwrap(), Some(known.clone()));
        assert_eq!(store.find(&A.to_uppercase()).unwrap(), Some(known.clone()));
        known.acp_session_id = "ses_2".into();
        store.remember(&known).unwrap();
        assert_eq!(store.find(A).unwrap(), Some(known));
        store.forget(A).unwrap();
        store.forget(A).unwrap();
        assert_eq!(store.find(A).unwrap(), None);
    }

    #[test]
    fn only_a_uuid_names_a_file() {
        let (dir, store) = store();
        for wrong in
            ["", "x", "../../etc/passwd", "74621b04d2db4a10b43a45450504d43f", "{74621b04-d2db-4a10-b43a-45450504d43f}"]
        {
            assert!(matches!(store.find(wrong), Err(StoreError::NotUuid)), "{wrong}");
            assert!(matches!(store.forget(wrong), Err(StoreError::NotUuid)), "{wrong}");
            assert!(matches!(store.reserve(wrong), Err(StoreError::NotUuid)), "{wrong}");
            let bad = SessionRecord { id: wrong.into(), ..record(A, dir.path(), 0) };
            assert!(matches!(store.remember(&bad), Err(StoreError::NotUuid)), "{wrong}");
        }
        assert!(!dir.path().join("state").exists());
    }

    #[test]
    fn the_newest_is_of_this_directory_and_this_agent() {
        let (dir, store) = store();
        assert_eq!(store.newest(dir.path(), "wave").unwrap(), None);
        let elsewhere = tempfile::tempdir().unwrap();
        let id = |n: u8| format!("00000000-0000-4000-8000-0000000000{n:02}");
        store.remember(&record(&id(1), dir.path(), 10)).unwrap();
        store.remember(&record(&id(2), dir.path(), 30)).unwrap();
        store.remember(&record(&id(3), dir.path(), 20)).unwrap();
        store.remember(&record(&id(4), elsewhere.path(), 40)).unwrap();
        store.remember(&SessionRecord { agent: "other".into(), ..record(&id(5), dir.path(), 50) }).unwrap();
        let _reserved = store.reserve(&id(6)).unwrap();
        let newest = |cwd: &Path, agent| store.newest(cwd, agent).unwrap().map(|record| record.id);
        assert_eq!(newest(dir.path(), "wave"), Some(id(2)));
        assert_eq!(newest(&dir.path().join("."), "wave"), Some(id(2)));
        assert_eq!(newest(elsewhere.path(), "wave"), Some(id(4)));
        assert_eq!(newest(dir.path(), "other"), Some(id(5)));
        assert_eq!(newest(dir.path(), "third"), None);
        store.touch(&id(1), Some("used again")).unwrap();
        let first = store.newest(dir.path(), "wave").unwrap().unwrap();
        assert_eq!((first.id, first.title.as_deref()), (id(1), Some("used again")));
        store.touch(&id(9), None).unwrap();
        assert_eq!(store.find(&id(9)).unwrap(), None);
    }

    #[test]
    fn a_half_written_file_hides_nothing_else() {
        let (dir, store) = store();
        store.remember(&record(A, dir.path(), 1)).unwrap();
        let whole = fs::read_to_string(store.path(A)).unwrap();
        fs::write(store.path(B), &whole[..whole.len() / 2]).unwrap();
        fs::write(store.dir.join(format!("{B}.half.tmp")), "{").unwrap();
        assert_eq!(store.find(B).unwrap(), None);
        assert_eq!(store.newest(dir.path(), "wave").unwrap().map(|record| record.id), Some(A.into()));
        assert!(matches!(store.reserve(B), Err(StoreError::InUse(_))));
        // A file under another's name is not that other session.
        fs::write(store.path(B), whole).unwrap();
        assert_eq!(store.find(B).unwrap(), None);
        store.remember(&record(B, dir.path(), 2)).unwrap();
        assert_eq!(store.find(B).unwrap().map(|record| record.updated_ms), Some(2));
    }

    #[test]
    fn a_reserved_id_is_nobody_elses_until_it_is_given_back() {
        let (dir, store) = store();
        let first = store.reserve(A).unwrap();
        let refused = store.reserve(A).unwrap_err();
        assert_eq!(refused.to_string(), format!("Session ID {A} is already in use."));
        drop(first);
        let again = store.reserve(A).unwrap();
        store.remember(&record(A, dir.path(), 1)).unwrap();
        drop(again);
        assert!(store.find(A).unwrap().is_some());
        assert!(matches!(store.reserve(&A.to_uppercase()), Err(StoreError::InUse(_))));
        store.forget(A).unwrap();
        drop(store.reserve(A).unwrap());
        assert_eq!(fs::read_dir(&store.dir).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn what_a_dead_process_reserved_is_free_again() {
        let (_dir, store) = store();
        store.make_dir().unwrap();
        fs::write(store.path(A), "").unwrap();
        let held = store.reserve(A).unwrap();
        assert!(store.reserve(A).is_err());
        drop(held);
    }

    #[test]
    fn of_many_that_want_one_id_at_once_one_gets_it() {
        let (_dir, store) = store();
        const RACERS: usize = 8;
        for round in 0..50 {
            let id = format!("00000000-0000-4000-8000-0000000{round:05}");
            let (start, end) = (Barrier::new(RACERS), Barrier::new(RACERS));
            let won: usize = std::thread::scope(|scope| {
                let race = || {
                    start.wait();
                    let got = store.reserve(&id);
                    // Nobody gives back before all have tried.
                    end.wait();
                    usize::from(got.is_ok())
                };
                let racers: Vec<_> = (0..RACERS).map(|_| scope.spawn(race)).collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).sum()
            });
            assert_eq!(won, 1, "round {round}");
        }
    }

    #[test]
    fn two_that_write_one_session_at_once_leave_one_whole_record() {
        let (dir, store) = store();
        std::thread::scope(|scope| {
            for writer in 1..=2u64 {
                let (store, cwd) = (&store, dir.path());
                scope.spawn(move || {
                    for _ in 0..50 {
                        let title = Some("x".repeat(usize::try_from(writer).unwrap() * 1000));
                        store.remember(&SessionRecord { title, ..record(A, cwd, writer) }).unwrap();
                        let read = store.find(A).unwrap().expect("it is never missing");
                        assert_eq!(read.title.map(|title| title.len() as u64), Some(read.updated_ms * 1000));
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(&store.dir).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_can_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let (dir, store) = store();
        store.remember(&record(A, dir.path(), 1)).unwrap();
        let _reserved = store.reserve(B).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&store.dir), mode(&store.path(A)), mode(&store.path(B))), (0o700, 0o600, 0o600));
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let (dir, store) = store();
        fs::write(dir.path().join("state"), "a file").unwrap();
        let error = store.remember(&record(A, dir.path(), 1)).unwrap_err().to_string();
        assert!(error.contains("state") && error.contains("DIGLOT_STATE_DIR"), "{error}");
    }

    #[test]
    fn the_state_directory_follows_the_variables() {
        let with = |vars: &'static [(&str, &str)]| {
            state_dir(&move |name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        };
        assert_eq!(with(&[("DIGLOT_STATE_DIR", "/d"), ("HOME", "/h")]), Some("/d".into()));
        assert_eq!(with(&[("XDG_STATE_HOME", "/x"), ("HOME", "/h")]), Some("/x/diglot".into()));
        assert_eq!(with(&[("XDG_STATE_HOME", "x"), ("HOME", "/h")]), Some("/h/.local/state/diglot".into()));
        assert_eq!(
            with(&[("DIGLOT_STATE_DIR", ""), ("HOME", ""), ("USERPROFILE", "/u")]),
            Some("/u/.local/state/diglot".into())
        );
        assert_eq!(with(&[]), None);
        assert!(matches!(SessionStore::of_user(&|_| None), Err(StoreError::NoPlace)));
    }
}
