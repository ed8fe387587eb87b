//! Files that are whole or not there, and their checksums.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// This program's folder among the user's caches: `$XDG_CACHE_HOME/fewshot` or `~/.cache/fewshot`, on
/// Windows below `%LOCALAPPDATA%`; `None` where there is no such place. It need not be there yet.
pub fn cache_folder() -> Option<PathBuf> {
    let folder = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| {
        let home = env::var_os(if cfg!(windows) { "LOCALAPPDATA" } else { "HOME" })?;
        Some(PathBuf::from(home).join(".cache"))
    });
    folder.filter(|folder| folder.is_absolute()).map(|folder| folder.join("fewshot"))
}

/// Puts `bytes` at `path` whole or not at all: written beside, synced, renamed.
///
/// # Errors
/// If one of the three fails; what was at `path` is there still.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    let written = fs::write(&partial, bytes).and_then(|()| put(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Puts a file that is whole, and that may be written to, where it belongs, in the place of what was there:
/// synced, renamed.
///
/// # Errors
/// If one of the two fails; both files are as they were.
pub fn put(whole: &Path, path: &Path) -> io::Result<()> {
    // Windows syncs only what is open for writing.
    File::options().write(true).open(whole)?.sync_all()?;
    fs::rename(whole, path)?;
    if cfg!(windows) {
        // Folders cannot be opened there.
        return Ok(());
    }
    // Makes the rename itself survive a power cut.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The sha256 of a file, hexadecimal.
///
/// # Errors
/// If it cannot be read.
pub fn sha256(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(format!("{:x}", hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        replace(&path, b"old").unwrap();
        fs::create_dir(folder.path().join("state.partial")).unwrap();
        assert!(replace(&path, b"new").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn a_replaced_file_has_the_new_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        replace(&path, b"old").unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
