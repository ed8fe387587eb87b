use std::fs;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zip::ZipArchive;

use super::decode::Fault;
use crate::data::DataError;

/// One half of Omniglot, packed or unpacked.
pub(super) enum Archive {
    Zip { path: PathBuf, zip: ZipArchive<Cursor<Arc<[u8]>>> },
    Folder { path: PathBuf },
}

/// Where one image is.
pub(super) struct Located {
    /// `Alphabet/characterNN`.
    pub(super) character: String,
    /// Path within the archive or folder.
    pub(super) file: String,
    /// Number within the zip; unused in a folder.
    entry: usize,
}

impl Archive {
    /// The halves of these names, each from the first place that has it.
    pub(super) fn open_all<const N: usize>(
        dir: &Path,
        names: [&str; N],
    ) -> Result<Vec<Self>, DataError> {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for name in names {
            match Self::open(dir, name)? {
                Some(archive) => found.push(archive),
                None => missing.push(format!("{name}.zip")),
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        Err(DataError::OmniglotMissing { dir: dir.to_path_buf(), missing })
    }

    fn open(dir: &Path, name: &str) -> Result<Option<Self>, DataError> {
        for place in [dir.to_path_buf(), dir.join("python")] {
            let packed = place.join(format!("{name}.zip"));
            if packed.is_file() {
                return Self::open_zip(packed).map(Some);
            }
            let path = place.join(name);
            if path.is_dir() {
                return Ok(Some(Self::Folder { path }));
            }
        }
        Ok(None)
    }

    fn open_zip(path: PathBuf) -> Result<Self, DataError> {
        let bytes: Arc<[u8]> = match fs::read(&path) {
            Ok(bytes) => bytes.into(),
            Err(source) => return Err(DataError::Read { path, source }),
        };
        match ZipArchive::new(Cursor::new(bytes)) {
            Ok(zip) => Ok(Self::Zip { path, zip }),
            Err(error) => Err(DataError::Zip { path, reason: error.to_string() }),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Zip { path, .. } | Self::Folder { path } => path,
        }
    }

    /// Every image, in no particular order.
    pub(super) fn images(&self) -> Result<Vec<Located>, DataError> {
        let images: Vec<_> = match self {
            Self::Zip { zip, .. } => (0..zip.len())
                .filter_map(|entry| located(zip.name_for_index(entry)?, entry))
                .collect(),
            Self::Folder { path } => {
                let files = files_three_deep(path)?;
                files.iter().filter_map(|file| located(file, 0)).collect()
            }
        };
        if images.is_empty() {
            return Err(DataError::NoCharacters { path: self.path().to_path_buf() });
        }
        Ok(images)
    }

    /// Reads the encoded bytes of an image, in place of what `encoded` held.
    pub(super) fn read(&self, image: &Located, encoded: &mut Vec<u8>) -> Result<(), DataError> {
        encoded.clear();
        match self {
            Self::Zip { zip, .. } => {
                // A clone shares bytes and directory; only the place it reads at is its own.
                let mut zip = zip.clone();
                let mut entry = zip
                    .by_index(image.entry)
                    .map_err(|error| self.fault(image, Fault::Unreadable(error.to_string())))?;
                entry
                    .read_to_end(encoded)
                    .map_err(|error| self.fault(image, Fault::Unreadable(error.to_string())))?;
            }
            Self::Folder { path } => {
                let path = path.join(&image.file);
                *encoded = fs::read(&path).map_err(|source| DataError::Read { path, source })?;
            }
        }
        Ok(())
    }

    /// The error that says which image has the fault.
    pub(super) fn fault(&self, image: &Located, fault: Fault) -> DataError {
        let path = self.path().join(&image.file);
        match fault {
            Fault::Unreadable(reason) => DataError::Image { path, reason },
            Fault::Size { wanted, found } => DataError::ImageSize { path, wanted, found },
        }
    }
}

/// The image behind a path that ends in `Alphabet/characterNN/name.png`, unless part of it is
/// hidden, as is what macOS adds to zip files.
fn located(file: &str, entry: usize) -> Option<Located> {
    let hidden = |part: &str| part.starts_with('.') || part == "__MACOSX";
    if !file.ends_with(".png") || file.split('/').any(hidden) {
        return None;
    }
    let mut parts = file.rsplit('/').skip(1);
    let character = parts.next()?;
    let alphabet = parts.next()?;
    Some(Located { character: format!("{alphabet}/{character}"), file: file.to_string(), entry })
}

/// The paths `a/b/c` below a folder, relative to it.
fn files_three_deep(root: &Path) -> Result<Vec<String>, DataError> {
    let mut level = vec![String::new()];
    for _ in 0..3 {
        let mut deeper = Vec::new();
        for parent in level {
            let folder = root.join(&parent);
            if !folder.is_dir() {
                continue;
            }
            let names =
                names_in(&folder).map_err(|source| DataError::Read { path: folder, source })?;
            let prefix = if parent.is_empty() { parent } else { parent + "/" };
            deeper.extend(names.into_iter().map(|name| format!("{prefix}{name}")));
        }
        level = deeper;
    }
    Ok(level)
}

fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}
