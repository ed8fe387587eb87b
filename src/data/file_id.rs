use std::io;
use std::path::Path;

/// Identity of a file or folder, the same under all its paths: device and inode.
#[cfg(unix)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId([u64; 2]);

/// Identity of a file or folder, the same under all its paths: the path without links.
#[cfg(not(unix))]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId(std::path::PathBuf);

impl FileId {
    #[cfg(unix)]
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        path.metadata().map(|metadata| Self([metadata.dev(), metadata.ino()]))
    }

    #[cfg(not(unix))]
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        path.canonicalize().map(Self)
    }
}
