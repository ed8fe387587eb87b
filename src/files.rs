//! Files that are whole or not there, locks on what one process at a time may change, and checksums.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Puts `bytes` at `path` whole or not at all: written beside under a name of its own, synced, renamed. Of several that
/// do so at once, the last one's bytes stay. Parts that a killed process has left beside are removed.
///
/// # Errors
/// If one of the three fails; what was at `path` is there still.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = NewFile::create(path)?;
    (&file.file).write_all(bytes)?;
    file.put()
}

/// A file that is written beside its place, and moved there when it is whole. Dropped before, it is removed.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    partial: PathBuf,
    file: File,
}

impl NewFile {
    /// Begins a file that will be at `path`. Parts that a killed process has left beside are removed.
    ///
    /// # Errors
    /// If no file can be made there.
    pub fn create(path: &Path) -> io::Result<Self> {
        remove_abandoned(path);
        let (partial, file) = begun(path)?;
        Ok(Self { path: path.to_owned(), partial, file })
    }

    /// The file, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The path that it will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves it to its place, over the file that may be there: synced, renamed.
    ///
    /// # Errors
    /// If one of the two fails; what was there is there still.
    pub fn put(&self) -> io::Result<()> {
        put(&self.partial, &self.path)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // It is no longer there once it was moved.
        let _ = fs::remove_file(&self.partial);
    }
}

/// The end of names of parts.
const PARTIAL: &str = ".partial";

/// The beginning of names of parts of the file at `path`.
fn prefix(path: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    prefix
}

/// A new file beside `path`, locked, so that no other process takes it for abandoned.
fn begun(path: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let mut name = prefix(path);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        name.push(format!("{}.{number}{PARTIAL}", process::id()));
        let partial = path.with_file_name(name);
        match File::options().read(true).write(true).create_new(true).open(&partial) {
            // File systems without locks do without: there nothing is taken for abandoned either.
            Ok(file) if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) => {}
            Ok(file) if partial.exists() => return Ok((partial, file)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes parts of the file at `path` whose writers have ended.
fn remove_abandoned(path: &Path) {
    let prefix = prefix(path);
    let is_part = |name: &OsStr| {
        let middle = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        let middle = middle.and_then(|rest| rest.strip_suffix(PARTIAL.as_bytes()));
        middle.is_some_and(|of| of.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.'))
    };
    let entries = fs::read_dir(folder_of(path)).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_part(&entry.file_name())) {
        let Ok(file) = File::options().write(true).open(entry.path()) else { continue };
        // Locked until it is gone: its writer may be about to lock it.
        if file.try_lock().is_ok() {
            let _ = fs::remove_file(entry.path());
        }
        drop(file);
    }
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Moves a file that is whole, and that may be written to, to its place, over the file that may be there:
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
    File::open(folder_of(path))?.sync_all()
}

/// A lock that one process at a time has, of those that ask for the same file. It is held until it is dropped, and the
/// system lets go of it when the process ends, however that comes about.
///
/// The file has the number of the process in it. On Unix it is removed with the lock; one that is left by a killed
/// process keeps nobody out.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: File,
}

/// Errors of taking a lock.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// A lock that the named process holds.
    #[error("it is in use by {0}")]
    Held(String),
    /// A file that cannot be opened, or not be locked where it is.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Lock {
    /// Takes the lock of the file at `path`, which is made if it is not there; others are told of `holder`.
    ///
    /// # Errors
    /// When another process has it, or the file cannot be written or locked.
    pub fn take(path: impl Into<PathBuf>, holder: &str) -> Result<Self, LockError> {
        let path = path.into();
        loop {
            let open = File::options().write(true).create(true).truncate(false).open(&path);
            let mut file = open?;
            match file.try_lock() {
                // Who had the lock may have removed the file after it was opened here.
                Ok(()) if !is_at(&file, &path)? => {}
                Ok(()) => {
                    file.set_len(0)?;
                    write!(file, "process {} ({holder})", process::id())?;
                    return Ok(Self { path, _file: file });
                }
                Err(TryLockError::WouldBlock) => {
                    let by = fs::read_to_string(&path).unwrap_or_default();
                    let by = if by.is_empty() { "another process".to_owned() } else { by };
                    return Err(LockError::Held(by));
                }
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
    }
    /// Takes the lock of changes to a file, which is a file beside it; others can read the file meanwhile.
    ///
    /// # Errors
    /// The reasons of [`take`](Self::take).
    pub fn beside(file: &Path, holder: &str) -> Result<Self, LockError> {
        let name = file.file_name().unwrap_or_default();
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        // One file has one lock, whatever links lead to it.
        let place = file.canonicalize().or_else(|_| folder.canonicalize().map(|at| at.join(name)));
        let place = place.unwrap_or_else(|_| file.to_owned());
        let mut lock = place.file_name().unwrap_or_default().to_owned();
        lock.push(".lock");
        Self::take(place.with_file_name(lock), holder)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if cfg!(unix) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// `true` where an open file is the one at `path`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;

    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The same, where nobody removes the files of locks.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
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

/// The sha256 of bytes, hexadecimal.
pub fn sha256_of(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        // A folder is not replaced.
        let path = folder.path().join("state");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("old"), b"old").unwrap();
        assert!(replace(&path, b"new").is_err());
        assert_eq!(names(folder.path()), ["state"]);
        assert_eq!(fs::read(path.join("old")).unwrap(), b"old");
        assert!(replace(&folder.path().join("none/state"), b"new").is_err());
    }

    #[test]
    fn parts_of_a_killed_process_are_removed_and_those_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (mine, _written) = begun(&path).unwrap();
        for name in [".state.1.0.partial", ".state.77.3.partial", ".state.x.partial"] {
            fs::write(folder.path().join(name), b"part").unwrap();
        }
        replace(&path, b"new").unwrap();
        let mine = mine.file_name().unwrap().to_str().unwrap();
        let mut expected = [mine, ".state.x.partial", "state"];
        expected.sort_unstable();
        assert_eq!(names(folder.path()), expected);
    }

    #[test]
    fn many_writers_at_once_succeed_and_readers_see_whole_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        replace(&path, &[0; 10_000]).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..8_u8 {
                let path = &path;
                scope
                    .spawn(move || (0..20).for_each(|_| replace(path, &[writer; 10_000]).unwrap()));
            }
            for _ in 0..200 {
                let read = fs::read(&path).unwrap();
                assert!(read.len() == 10_000 && read.iter().all(|byte| *byte == read[0]));
            }
        });
        assert_eq!(names(folder.path()), ["state"]);
    }

    #[test]
    fn a_lock_is_held_by_one_who_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        // One that is left keeps nobody out.
        fs::write(&path, "process 1 (killed)").unwrap();
        let lock = Lock::take(&path, "fewshot serve").unwrap();
        let refused = Lock::take(&path, "other").unwrap_err().to_string();
        let number = process::id();
        assert_eq!(refused, format!("it is in use by process {number} (fewshot serve)"));
        drop(lock);
        assert_eq!(path.exists(), cfg!(windows));
        drop(Lock::take(&path, "other").unwrap());
    }

    #[test]
    fn never_do_two_hold_one_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (path, holders) = (folder.path().join("lock"), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let Ok(_lock) = Lock::take(&path, "test") else { continue };
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                        holders.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
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
