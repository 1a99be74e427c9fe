//! The files that an agent reads and writes through diglot, where the user switched that on.
//!
//! Owns every opening of such a file. Keeps: only regular files below the session's directories. A path is resolved with all
//! its links first; then it is walked from its root, part by part and never through a link, so that one who swaps a part
//! for a link meanwhile gets an error and not another file. Only text, only up to a size. All functions block.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::translate::client::{ClientDone, ClientFailure, Want};

/// Larger files are neither read nor written.
pub(super) const LIMIT: u64 = 16 * 1024 * 1024;

/// Held while a file is compared and written.
static WRITES: Mutex<()> = Mutex::new(());

type Done = Result<ClientDone, ClientFailure>;

/// Where a path leads.
struct Place {
    /// The root's real path.
    root: PathBuf,
    /// The root as the session has it.
    as_given: PathBuf,
    /// The parts below it; without links, as far as they exist.
    parts: Vec<OsString>,
    /// How many of the parts exist.
    there: usize,
}

/// [`ClientWork::Find`](crate::translate::client::ClientWork::Find).
pub(super) fn find(path: &Path, want: Want, roots: &[PathBuf]) -> Done {
    let place = place(path, roots)?;
    let missing = place.there < place.parts.len();
    if missing && want != Want::NewFile {
        return Err(not_found(path));
    }
    if !missing {
        let meta = fs::symlink_metadata(place.real()).map_err(|e| failed(path, &e))?;
        let fits = if want == Want::Directory { meta.is_dir() } else { meta.is_file() };
        if !fits {
            return Err(kind(path, want));
        }
    }
    Ok(ClientDone::Found(place.parts.iter().fold(place.as_given, |path, part| path.join(part))))
}

/// [`ClientWork::Read`](crate::translate::client::ClientWork::Read).
pub(super) fn read(path: &Path, skip: u64, limit: Option<u64>, roots: &[PathBuf]) -> Done {
    let place = place(path, roots)?;
    if place.there < place.parts.len() {
        return Err(not_found(path));
    }
    let file = open::existing(&place, false).map_err(|e| opening(path, &e))?;
    regular(path, &file)?;
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(LIMIT + 1).read_to_end(&mut bytes).map_err(|e| failed(path, &e))?;
    if bytes.len() as u64 > LIMIT {
        return Err(too_large(path));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| ClientFailure::NotAllowed(format!("{} is not UTF-8 text", path.display())))?;
    Ok(ClientDone::Text(lines(text, skip, limit)))
}

/// [`ClientWork::Write`](crate::translate::client::ClientWork::Write).
pub(super) fn write(path: &Path, content: &str, over: Option<&str>, roots: &[PathBuf]) -> Done {
    if content.len() as u64 > LIMIT {
        return Err(too_large(path));
    }
    let place = place(path, roots)?;
    let new = place.there < place.parts.len();
    // Of two that go by the same content, the second finds another.
    let _one_by_one = WRITES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(over) = over {
        let as_shown = match new {
            true => over.is_empty(),
            false => matches!(read(path, 0, None, roots), Ok(ClientDone::Text(now)) if now == over),
        };
        if !as_shown {
            let why = format!("{} has changed since the edit was shown; read it again", path.display());
            return Err(ClientFailure::Failed(why));
        }
    }
    let opened = if new { open::new(&place) } else { open::existing(&place, true) };
    let mut file = opened.map_err(|e| opening(path, &e))?;
    // Nothing of it is lost before it is known to be a file.
    regular_to_write(path, &file)?;
    let written = file.set_len(0).and_then(|()| file.write_all(content.as_bytes())).and_then(|()| file.flush());
    written.map_err(|e| failed(path, &e))?;
    Ok(ClientDone::Written)
}

impl Place {
    fn real(&self) -> PathBuf {
        self.parts.iter().fold(self.root.clone(), |path, part| path.join(part))
    }
}

/// Resolves a path: what of it exists with all its links, what does not by its letters.
fn place(path: &Path, roots: &[PathBuf]) -> Result<Place, ClientFailure> {
    let not_allowed = |why: &str| Err(ClientFailure::NotAllowed(format!("{} {why}", path.display())));
    if !path.is_absolute() {
        return not_allowed("is no absolute path");
    }
    let mut rest: Vec<OsString> = Vec::new();
    let mut at = path;
    let real = loop {
        match fs::canonicalize(at) {
            Ok(real) => break real,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Err(not_found(path)),
            Err(e) => return Err(failed(path, &e)),
        }
        // What a link to nowhere would make is not ours to say.
        if fs::symlink_metadata(at).is_ok() {
            return not_allowed("is, or lies behind, a link to nowhere");
        }
        // `..` behind what does not exist could lead anywhere, once it does.
        match (at.components().next_back(), at.parent()) {
            (Some(Component::Normal(name)), Some(parent)) => {
                rest.push(name.to_owned());
                at = parent;
            }
            _ => return not_allowed("goes through a directory that does not exist"),
        }
    };
    for root in roots {
        let Ok(real_root) = fs::canonicalize(root) else { continue };
        let Ok(inner) = real.strip_prefix(&real_root) else { continue };
        let mut parts: Vec<OsString> = inner.iter().map(ToOwned::to_owned).collect();
        let there = parts.len();
        if !rest.is_empty() && !real.is_dir() {
            return Err(not_found(path));
        }
        parts.extend(rest.into_iter().rev());
        return Ok(Place { root: real_root, as_given: root.clone(), parts, there });
    }
    not_allowed("lies outside of the session's directories")
}

/// Some lines of a text, each with its end.
fn lines(text: String, skip: u64, limit: Option<u64>) -> String {
    if skip == 0 && limit.is_none() {
        return text;
    }
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    text.split_inclusive('\n').skip(count(skip)).take(limit.map_or(usize::MAX, count)).collect()
}

fn regular_to_write(path: &Path, file: &File) -> Result<(), ClientFailure> {
    let meta = file.metadata().map_err(|e| failed(path, &e))?;
    if meta.is_file() { Ok(()) } else { Err(kind(path, Want::File)) }
}

fn regular(path: &Path, file: &File) -> Result<(), ClientFailure> {
    regular_to_write(path, file)?;
    let meta = file.metadata().map_err(|e| failed(path, &e))?;
    if meta.len() > LIMIT { Err(too_large(path)) } else { Ok(()) }
}

fn not_found(path: &Path) -> ClientFailure {
    ClientFailure::NotFound(path.display().to_string())
}

fn too_large(path: &Path) -> ClientFailure {
    ClientFailure::NotAllowed(format!("{} is larger than {} MiB", path.display(), LIMIT / 1024 / 1024))
}

fn kind(path: &Path, want: Want) -> ClientFailure {
    let what = if want == Want::Directory { "directory" } else { "regular file" };
    ClientFailure::NotAllowed(format!("{} is no {what}", path.display()))
}

fn failed(path: &Path, error: &io::Error) -> ClientFailure {
    ClientFailure::Failed(format!("{}: {error}", path.display()))
}

fn opening(path: &Path, error: &io::Error) -> ClientFailure {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        // A link where none was a moment ago; a pipe that nobody reads.
        if matches!(errno, Some(Errno::LOOP | Errno::MLINK | Errno::NOTDIR | Errno::EXIST | Errno::NXIO)) {
            return ClientFailure::NotAllowed(format!("{} is no regular file any more", path.display()));
        }
    }
    if error.kind() == io::ErrorKind::NotFound {
        return not_found(path);
    }
    failed(path, error)
}

#[cfg(unix)]
mod open {
    //! Opening below a root, never through a link.

    use std::fs::File;
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
    use rustix::io::Errno;

    use super::Place;

    /// Never a controlling terminal, never waits for the other end of a pipe.
    const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
    const DIRECTORY: OFlags = ALWAYS.union(OFlags::DIRECTORY).union(OFlags::RDONLY);

    /// The directory that holds the last part; with `make`, what is missing of it is made.
    fn holder(place: &Place, make: bool) -> io::Result<OwnedFd> {
        // The root's own path was resolved, and who can change what lies above it is not held off by diglot.
        let mut at = open(&place.root, DIRECTORY, Mode::empty())?;
        let parts = place.parts.split_last().map_or(&[][..], |(_, parts)| parts);
        for part in parts {
            if make {
                match mkdirat(&at, part, Mode::from(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            at = openat(&at, part, DIRECTORY, Mode::empty())?;
        }
        Ok(at)
    }

    pub(super) fn existing(place: &Place, write: bool) -> io::Result<File> {
        let Some(name) = place.parts.last() else { return Err(Errno::ISDIR.into()) };
        let how = ALWAYS | if write { OFlags::WRONLY } else { OFlags::RDONLY };
        Ok(openat(holder(place, false)?, name, how, Mode::empty())?.into())
    }

    pub(super) fn new(place: &Place) -> io::Result<File> {
        let Some(name) = place.parts.last() else { return Err(Errno::ISDIR.into()) };
        let how = ALWAYS | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        Ok(openat(holder(place, true)?, name, how, Mode::from(0o666))?.into())
    }
}

#[cfg(not(unix))]
mod open {
    //! Opening where a path cannot be walked: it was resolved just now.

    use std::fs::{self, File};
    use std::io;

    use super::Place;

    pub(super) fn existing(place: &Place, write: bool) -> io::Result<File> {
        fs::OpenOptions::new().read(!write).write(write).open(place.real())
    }

    pub(super) fn new(place: &Place) -> io::Result<File> {
        let path = place.real();
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::OpenOptions::new().write(true).create_new(true).open(path)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct World {
        _all: tempfile::TempDir,
        inside: PathBuf,
        outside: PathBuf,
    }

    impl World {
        fn new() -> Self {
            let all = tempfile::tempdir().expect("a temporary folder can be used");
            let real = all.path().canonicalize().expect("a temporary folder can be used");
            let (inside, outside) = (real.join("in"), real.join("out"));
            fs::create_dir(&inside).expect("a temporary folder can be used");
            fs::create_dir(&outside).expect("a temporary folder can be used");
            fs::write(inside.join("a.txt"), "one\ntwo\r\nthree").expect("a temporary folder can be used");
            fs::write(outside.join("secret"), "secret").expect("a temporary folder can be used");
            Self { _all: all, inside, outside }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.inside.join(name)
        }

        fn read(&self, path: impl AsRef<Path>) -> Done {
            read(path.as_ref(), 0, None, std::slice::from_ref(&self.inside))
        }

        fn write(&self, path: impl AsRef<Path>) -> Done {
            write(path.as_ref(), "new", None, std::slice::from_ref(&self.inside))
        }

        fn find(&self, path: impl AsRef<Path>, want: Want) -> Done {
            find(path.as_ref(), want, std::slice::from_ref(&self.inside))
        }
    }

    fn text(done: Done) -> String {
        match done {
            Ok(ClientDone::Text(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    fn not_allowed(done: Done) -> bool {
        matches!(done, Err(ClientFailure::NotAllowed(_)))
    }

    #[test]
    fn lines_are_counted_and_keep_their_ends() {
        let world = World::new();
        let some = |skip, limit| text(read(&world.at("a.txt"), skip, limit, std::slice::from_ref(&world.inside)));
        assert_eq!(some(0, None), "one\ntwo\r\nthree");
        assert_eq!(some(1, Some(1)), "two\r\n");
        assert_eq!(some(2, Some(9)), "three");
        assert_eq!(some(9, None), "");
        assert_eq!(some(0, Some(0)), "");
    }

    #[test]
    fn what_lies_outside_is_neither_read_nor_written_on_any_way() {
        let world = World::new();
        symlink(world.outside.join("secret"), world.at("link")).unwrap();
        symlink(&world.outside, world.at("way")).unwrap();
        symlink(world.outside.join("not there"), world.at("dangling")).unwrap();
        symlink(world.at("loop"), world.at("loop")).unwrap();
        let outside = world.outside.display().to_string();
        for path in [
            outside.clone() + "/secret",
            outside.clone() + "/new",
            "/etc/passwd".into(),
            world.at("../out/secret").display().to_string(),
            world.at("../out/new").display().to_string(),
            world.at("../in2").display().to_string(),
            world.at("link").display().to_string(),
            world.at("way").join("secret").display().to_string(),
            world.at("way").join("new").display().to_string(),
            world.at("way").join("deep").join("new").display().to_string(),
            world.at("dangling").display().to_string(),
            world.at("dangling").join("new").display().to_string(),
            world.at("not/there/../../../out/secret").display().to_string(),
            "a.txt".into(),
            format!("/proc/self/root{outside}/secret"),
            "/proc/self/environ".into(),
            "/proc/self/fd/0".into(),
        ] {
            assert!(not_allowed(world.write(&path)), "{path} was written: {:?}", world.write(&path));
            assert!(world.read(&path).is_err(), "{path} was read");
            assert!(world.find(&path, Want::NewFile).is_err(), "{path} was found");
        }
        assert!(world.write(world.at("loop")).is_err());
        assert_eq!(fs::read_to_string(world.outside.join("secret")).unwrap(), "secret");
        assert_eq!(fs::read_dir(&world.outside).unwrap().count(), 1, "nothing was made outside");
    }

    #[test]
    fn a_link_that_stays_inside_is_followed_and_named() {
        let world = World::new();
        symlink("a.txt", world.at("link")).unwrap();
        assert_eq!(text(world.read(world.at("link"))), "one\ntwo\r\nthree");
        assert_eq!(world.find(world.at("link"), Want::File), Ok(ClientDone::Found(world.at("a.txt"))));
        assert_eq!(world.write(world.at("link")), Ok(ClientDone::Written));
        assert_eq!(fs::read_to_string(world.at("a.txt")).unwrap(), "new");
        assert!(fs::symlink_metadata(world.at("link")).unwrap().is_symlink(), "the link stays one");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let world = World::new();
        let fifo = world.at("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let socket = std::os::unix::net::UnixListener::bind(world.at("socket")).unwrap();
        for path in [fifo, world.at("socket"), world.inside.clone()] {
            assert!(world.read(&path).is_err(), "{}", path.display());
            assert!(world.write(&path).is_err(), "{}", path.display());
            assert!(not_allowed(world.find(&path, Want::NewFile)), "{}", path.display());
        }
        drop(socket);
        let device = [PathBuf::from("/dev")];
        assert!(not_allowed(read(Path::new("/dev/zero"), 0, None, &device)));
        assert!(not_allowed(write(Path::new("/dev/null"), "x", None, &device)));
    }

    #[test]
    fn large_files_and_other_bytes_are_not_read() {
        let world = World::new();
        File::create(world.at("large")).unwrap().set_len(100 * 1024 * 1024).unwrap();
        assert!(not_allowed(world.read(world.at("large"))));
        fs::write(world.at("bytes"), [0xff, 0xfe]).unwrap();
        assert!(not_allowed(world.read(world.at("bytes"))));
        let large = "x".repeat(usize::try_from(LIMIT).unwrap() + 1);
        assert!(not_allowed(write(&world.at("b"), &large, None, std::slice::from_ref(&world.inside))));
        assert!(!world.at("b").exists());
    }

    #[test]
    fn a_file_that_is_not_there_is_told_with_its_path_and_made_with_its_directories() {
        let world = World::new();
        let new = world.at("x/y/new.txt");
        assert_eq!(world.read(&new), Err(ClientFailure::NotFound(new.display().to_string())));
        assert_eq!(world.find(&new, Want::NewFile), Ok(ClientDone::Found(new.clone())));
        assert_eq!(world.write(&new), Ok(ClientDone::Written));
        assert_eq!(fs::read_to_string(&new).unwrap(), "new");
        assert!(world.write(world.at("a.txt/below")).is_err());
    }

    #[test]
    fn a_part_that_becomes_a_link_meanwhile_is_not_followed() {
        let world = World::new();
        fs::create_dir(world.at("dir")).unwrap();
        fs::write(world.at("dir").join("secret"), "mine").unwrap();
        for (name, swapped, new) in [("secret", "dir", false), ("new", "dir", true), ("", "a.txt", false)] {
            let path = if name.is_empty() { world.at(swapped) } else { world.at(swapped).join(name) };
            let place = place(&path, std::slice::from_ref(&world.inside)).unwrap_or_else(|e| panic!("{e}"));
            let (at, aside) = (world.at(swapped), world.at("aside"));
            fs::rename(&at, &aside).unwrap();
            let target = if swapped == "dir" { world.outside.clone() } else { world.outside.join("secret") };
            symlink(target, &at).unwrap();
            let opened = if new { open::new(&place) } else { open::existing(&place, true) };
            assert!(opened.is_err(), "{} was opened behind a link", path.display());
            fs::remove_file(&at).unwrap();
            fs::rename(&aside, &at).unwrap();
        }
        assert_eq!(fs::read_dir(&world.outside).unwrap().count(), 1);
    }

    #[test]
    fn an_edit_is_written_over_just_what_was_compared() {
        let world = World::new();
        let over =
            |content: &str, over: &str| write(&world.at("b"), content, Some(over), std::slice::from_ref(&world.inside));
        assert!(matches!(over("lost", "what is not there"), Err(ClientFailure::Failed(_))));
        assert!(!world.at("b").exists());
        assert_eq!(over("one", ""), Ok(ClientDone::Written));
        assert_eq!(over("two", "one"), Ok(ClientDone::Written));
        // The second of two that go by the same content.
        assert!(matches!(over("lost", "one"), Err(ClientFailure::Failed(_))));
        assert_eq!(fs::read_to_string(world.at("b")).unwrap(), "two");
    }

    #[test]
    fn a_root_that_is_reached_through_a_link_keeps_its_name() {
        let world = World::new();
        let root = world.outside.join("project");
        symlink(&world.inside, &root).unwrap();
        let found = find(&root.join("a.txt"), Want::File, std::slice::from_ref(&root));
        assert_eq!(found, Ok(ClientDone::Found(root.join("a.txt"))));
    }
}
