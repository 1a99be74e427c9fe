//! Folders for what must not outlive diglot: sockets, files with secrets.
//!
//! Owns one place per user, below `XDG_RUNTIME_DIR` or the system's temporary folder, with a folder for each [`Scratch`] and a
//! lock beside it that its process holds. Keeps: only this user gets in; a folder goes with its owner, and one whose owner was
//! killed (nobody holds its lock any more) goes when the next one is made. Where no such place can be had (somebody else has
//! its name, there are no locks) a folder lies by itself, and only its owner removes it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// A folder of mode 0700, removed when it is dropped.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
    /// Held until the folder is gone.
    lock: Option<Lock>,
}

impl Scratch {
    /// Makes a new one whose path has at most `longest` bytes.
    ///
    /// # Errors
    /// The system's, or that every path would be too long.
    pub fn create(longest: usize) -> io::Result<Self> {
        let temp = std::env::temp_dir();
        // Not one that another user's session has left to this one (`su`, `sudo -E`).
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| is_safe(dir));
        let mut last = None;
        let mut name = Uuid::new_v4().simple().to_string();
        name.truncate(NAME);
        let fits = |dir: &Path| dir.as_os_str().len() <= longest;
        // The system's temporary folder may have a path that is too long for a socket.
        let shared = [&temp, Path::new("/tmp")].into_iter().filter(|dir| is_safe(dir)).map(of_user);
        for place in runtime.map(|dir| dir.join("diglot")).into_iter().chain(shared) {
            let dir = place.join(&name);
            if !fits(&dir) {
                continue;
            }
            match own(&place).and_then(|()| Self::make(&place, &name)) {
                Ok(made) => {
                    sweep(&place);
                    return Ok(made);
                }
                Err(error) => last = Some(error),
            }
        }
        // Somebody else has the place, say.
        for parent in [&temp, Path::new("/tmp")] {
            let dir = parent.join(format!("diglot-{name}"));
            if !fits(&dir) {
                continue;
            }
            match private(&dir) {
                Ok(()) => return Ok(Self { dir, lock: None }),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            let why = "the temporary folder's path is too long; set TMPDIR to another";
            io::Error::new(io::ErrorKind::InvalidInput, why)
        }))
    }

    fn make(place: &Path, name: &str) -> io::Result<Self> {
        let lock = Lock::take(place, name)?;
        let dir = place.join(name);
        private(&dir)?;
        Ok(Self { dir, lock: Some(lock) })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            if let Some(lock) = &mut self.lock {
                // The next one tries again.
                lock.stays = true;
            }
            tracing::warn!(%error, folder = %self.dir.display(), "a temporary folder could not be removed");
        }
    }
}

/// Makes a folder that only this user gets into.
#[cfg(unix)]
fn private(dir: &Path) -> io::Result<()> {
    std::os::unix::fs::DirBuilderExt::mode(&mut fs::DirBuilder::new(), 0o700).create(dir)
}

#[cfg(not(unix))]
fn private(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir)
}

/// Whether nobody else can rename what this user has in a folder: it is his, or one that all share (sticky).
#[cfg(unix)]
fn is_safe(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let is = |found: fs::Metadata| {
        let his = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
        found.is_dir() && (his || (found.uid() == 0 && found.mode() & 0o1000 != 0))
    };
    dir.is_absolute() && fs::symlink_metadata(dir).is_ok_and(is)
}

/// There are no locks that end with their process.
#[cfg(not(unix))]
fn is_safe(_dir: &Path) -> bool {
    false
}

/// The user's place below a folder that all share.
fn of_user(parent: &Path) -> PathBuf {
    #[cfg(unix)]
    let user = rustix::process::geteuid().as_raw();
    #[cfg(not(unix))]
    let user = 0;
    parent.join(format!("diglot-{user}"))
}

/// Makes the place, or sees that it is this user's alone.
fn own(place: &Path) -> io::Result<()> {
    match private(place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Not what a link leads to.
    let found = fs::symlink_metadata(place)?;
    #[cfg(unix)]
    let ours = {
        use std::os::unix::fs::MetadataExt as _;
        found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0
    };
    #[cfg(not(unix))]
    let ours = true;
    match found.is_dir() && ours {
        true => Ok(()),
        false => Err(io::Error::other(format!("{} is not this user's alone", place.display()))),
    }
}

/// What says that a folder's owner lives: the system takes it from whoever ends.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _file: fs::File,
    /// What it is for is still there.
    stays: bool,
}

impl Lock {
    fn take(place: &Path, name: &str) -> io::Result<Self> {
        let path = place.join(format!("{name}{LOCK}"));
        let file = fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
        // Who cleans up may hold it for a moment, and removes it then; so it is in any case.
        let lock = Self { path, _file: file, stays: false };
        self::lock(&lock._file)?;
        Ok(lock)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.stays {
            // Whoever finds it later removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(unix)]
fn lock(file: &fs::File) -> io::Result<()> {
    Ok(rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?)
}

/// Nothing is cleaned up where a lock does not end with its process.
#[cfg(not(unix))]
fn lock(_file: &fs::File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// How the name of a lock ends.
const LOCK: &str = ".lock";

/// Whether a name is one of those that folders are given.
fn is_ours(name: &str) -> bool {
    name.len() == NAME && name.bytes().all(|b| b.is_ascii_hexdigit())
}

/// How long the name of a folder is.
const NAME: usize = 12;

/// Removes what the killed have left.
fn sweep(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_suffix(LOCK)).filter(|name| is_ours(name)) else {
            continue;
        };
        let Ok(file) = fs::OpenOptions::new().write(true).open(entry.path()) else { continue };
        if lock(&file).is_err() {
            continue;
        }
        let removed = fs::remove_dir_all(place.join(name));
        if removed.is_ok() || removed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let parent = tempfile::tempdir().unwrap();
        let place = of_user(parent.path());
        own(&place).unwrap();
        (parent, place)
    }

    #[test]
    fn a_folder_goes_with_its_owner() {
        let (_parent, place) = place();
        let made = Scratch::make(&place, "0123456789ab").unwrap();
        fs::write(made.path().join("secret"), "x").unwrap();
        drop(made);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    }

    #[test]
    fn what_the_killed_have_left_is_removed_and_what_the_living_have_is_not() {
        let (_parent, place) = place();
        let alive = Scratch::make(&place, "a11fea11fe00").unwrap();
        private(&place.join("deaddeaddead")).unwrap();
        fs::write(place.join("deaddeaddead/secret"), "x").unwrap();
        fs::write(place.join("deaddeaddead.lock"), "").unwrap();
        // Killed before it had a folder.
        fs::write(place.join("ea51ea51ea51.lock"), "").unwrap();
        // Nobody's.
        for name in [".lock", "...lock", "Cargo.lock"] {
            fs::write(place.join(name), "").unwrap();
        }
        sweep(&place);
        let mut left: Vec<_> = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["...lock", ".lock", "Cargo.lock", "a11fea11fe00", "a11fea11fe00.lock"]);
        drop(alive);
    }

    #[test]
    fn a_place_that_others_get_into_is_not_used() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let (parent, place) = place();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(own(&place).is_err());
        fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(own(&place).is_ok());
        let link = parent.path().join("link");
        symlink(&place, &link).unwrap();
        assert!(own(&link).is_err());
        assert!(is_safe(&place) && !is_safe(&link) && !is_safe(Path::new("relative")));
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!is_safe(parent.path()));
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        assert!(Scratch::create(3).is_err());
    }
}
