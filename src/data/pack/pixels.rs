use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::data::{DataError, Result};
use crate::machine::memory;

/// The pixels in a pack.
///
/// They are read at their places, straight into the room that a caller has for them, by any number of threads at once;
/// the system keeps in its cache what it has memory for. The file is not mapped: a mapped file that another process
/// cuts short kills the program with SIGBUS, where reading is an error that names the file, and mapping is `unsafe`.
#[derive(Clone, Debug)]
pub(in crate::data) struct PackedPixels {
    file: Arc<File>,
    path: PathBuf,
    /// Place of the first one in the file.
    start: u64,
    bytes: u64,
    free_memory: u64,
}

impl PackedPixels {
    /// So many bytes from `start` on.
    pub(super) fn new(file: Arc<File>, path: PathBuf, start: u64, bytes: u64) -> Self {
        let free_memory = memory().map_or(u64::MAX, |(_, free)| free.0);
        Self { file, path, start, bytes, free_memory }
    }

    /// The file that they are in.
    pub(in crate::data) fn path(&self) -> &Path {
        &self.path
    }

    pub(in crate::data) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that were free in the host's memory when the file was opened.
    pub(in crate::data) fn free_memory(&self) -> u64 {
        self.free_memory
    }

    /// True for pixels of the same open file.
    pub(super) fn is_of(&self, file: &Arc<File>) -> bool {
        Arc::ptr_eq(&self.file, file)
    }

    pub(in crate::data) fn read(&self, first: u64, out: &mut [u8]) -> Result {
        let end = first.checked_add(out.len() as u64);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "bytes {first} to {end:?} of a block of {}",
            self.bytes
        );
        read_at(&self.file, out, self.start + first).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                DataError::damaged(&self.path, FORMAT)("it was cut short after it was opened")
            }
            _ => DataError::read(&self.path)(error),
        })
    }
}

/// The name of the format in errors.
pub(super) const FORMAT: &str = "pack";

/// Fills `out` from place `at` of a file, whose own position is of no account.
#[cfg(unix)]
pub(super) fn read_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, at)
}

/// Fills `out` from place `at` of a file, whose own position moves and is of no account.
#[cfg(windows)]
pub(super) fn read_at(file: &File, mut out: &mut [u8], mut at: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;

    while !out.is_empty() {
        match file.seek_read(out, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                out = &mut out[count..];
                at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The same where there are no files.
#[cfg(not(any(unix, windows)))]
pub(super) fn read_at(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
