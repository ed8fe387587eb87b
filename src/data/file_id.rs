use std::io;
use std::path::Path;

/// What a file or folder has in common with itself under all its paths: device and inode.
#[cfg(unix)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId([u64; 2]);

/// What a file or folder has in common with itself under all its paths: the one without links.
#[cfg(not(unix))]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId(std::path::PathBuf);

impl FileId {
    #[cfg(unix)]
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        path.metadata().map(|found| Self([found.dev(), found.ino()]))
    }

    #[cfg(not(unix))]
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        path.canonicalize().map(Self)
    }
}
