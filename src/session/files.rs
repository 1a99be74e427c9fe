//! What may be read for a preview.
//!
//! Owns the one place where diglot reads a file that an agent names. Keeps: only regular files, only inside of the
//! session's directories with every link resolved, only up to a size, only text (design, section 5.2; "security is a
//! feature").

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::peer::scratch::Scratch;
use crate::translate::FileContent;

/// Larger files are not shown before they change; their change comes with the result.
const LIMIT: u64 = 1024 * 1024;

/// Reads `path` if it may be shown. Blocks.
pub(super) fn read(path: &Path, roots: &[PathBuf]) -> FileContent {
    let real = match fs::canonicalize(path) {
        Ok(real) => real,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return missing(path, roots),
        Err(_) => return FileContent::Unreadable("it cannot be read"),
    };
    if !inside(&real, roots) {
        return FileContent::Unreadable("it lies outside of the session's directories");
    }
    // A pipe or a device would block or never end.
    match fs::metadata(&real) {
        Ok(meta) if !meta.is_file() => return FileContent::Unreadable("it is no regular file"),
        Ok(meta) if meta.len() > LIMIT => return FileContent::Unreadable("it is larger than 1 MiB"),
        Ok(_) => {}
        Err(_) => return FileContent::Unreadable("it cannot be read"),
    }
    let mut bytes = Vec::new();
    // It may have grown since it was measured.
    let read = File::open(&real).and_then(|file| file.take(LIMIT + 1).read_to_end(&mut bytes));
    match read {
        Ok(n) if n as u64 > LIMIT => FileContent::Unreadable("it is larger than 1 MiB"),
        Ok(_) => String::from_utf8(bytes).map_or(FileContent::Unreadable("it is not text"), FileContent::Text),
        Err(_) => FileContent::Unreadable("it cannot be read"),
    }
}

/// A file that is not there is new only where we may look.
fn missing(path: &Path, roots: &[PathBuf]) -> FileContent {
    // A link to nowhere exists, and what writing to it does is not ours to say.
    if fs::symlink_metadata(path).is_ok() {
        return FileContent::Unreadable("it is a link to nowhere");
    }
    // The folders on the way to it may be missing too: the first one that exists decides.
    let parent = path.ancestors().skip(1).find_map(|p| fs::canonicalize(p).ok());
    match parent {
        Some(real) if inside(&real, roots) => FileContent::Missing,
        _ => FileContent::Unreadable("it lies outside of the session's directories"),
    }
}

fn inside(real: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| fs::canonicalize(root).is_ok_and(|root| real.starts_with(root)))
}

/// A file that only this user can read, removed when it is dropped; if diglot is killed, with the next one.
#[derive(Debug)]
pub(super) struct Private {
    path: PathBuf,
    _folder: Scratch,
}

impl Private {
    /// Writes a new one.
    pub(super) fn create(text: &str) -> io::Result<Self> {
        let folder = Scratch::create(usize::MAX)?;
        let path = folder.path().join("mcp.json");
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path)?;
        file.write_all(text.as_bytes())?;
        Ok(Self { path, _folder: folder })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_private_file_is_for_its_user_only_and_goes_with_its_owner() -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let private = Private::create("secret")?;
        let path = private.path().to_owned();
        assert_eq!(fs::read_to_string(&path)?, "secret");
        assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
        drop(private);
        assert!(!path.exists());
        Ok(())
    }

    #[test]
    fn only_regular_text_files_inside_of_the_roots_are_shown() -> io::Result<()> {
        let inside = tempfile::tempdir()?;
        let outside = tempfile::tempdir()?;
        let roots = [inside.path().to_owned()];
        let at = |name: &str| inside.path().join(name);
        fs::write(at("a.txt"), "hello")?;
        fs::write(outside.path().join("secret"), "secret")?;
        fs::write(at("binary"), [0xff, 0xfe])?;
        fs::write(at("large"), vec![b'x'; LIMIT as usize + 1])?;
        fs::create_dir(at("folder"))?;
        assert_eq!(read(&at("a.txt"), &roots), FileContent::Text("hello".into()));
        assert_eq!(read(&at("new.txt"), &roots), FileContent::Missing);
        assert_eq!(read(&at("no/such/folder/new.txt"), &roots), FileContent::Missing);
        let unreadable = |path: &Path| matches!(read(path, &roots), FileContent::Unreadable(_));
        assert!(unreadable(&outside.path().join("secret")));
        assert!(unreadable(&outside.path().join("new")));
        assert!(unreadable(&at("../../etc/passwd")));
        assert!(unreadable(&at("binary")));
        assert!(unreadable(&at("large")));
        assert!(unreadable(&at("folder")));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(outside.path().join("secret"), at("link"))?;
            std::os::unix::fs::symlink(outside.path(), at("way"))?;
            std::os::unix::fs::symlink(outside.path().join("nowhere"), at("dangling"))?;
            assert!(unreadable(&at("link")));
            assert!(unreadable(&at("way/new")));
            assert!(unreadable(&at("dangling")));
        }
        Ok(())
    }
}
