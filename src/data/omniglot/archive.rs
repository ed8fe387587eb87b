use std::fs;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zip::ZipArchive;

use crate::data::image_folder::visible_in;
use crate::data::{DataError, Result};

/// One half of Omniglot, packed or unpacked.
pub(super) struct Archive {
    path: PathBuf,
    /// Where it is packed.
    zip: Option<ZipArchive<Cursor<Arc<[u8]>>>>,
}

/// Where one image is.
pub(super) struct Located {
    /// `Alphabet/characterNN`.
    pub(super) character: String,
    /// Path within the archive or folder.
    pub(super) file: String,
}

impl Archive {
    /// The halves of these names, each from the first place that has it.
    pub(super) fn open_all(dir: &Path, names: &[&str]) -> Result<Vec<Self>> {
        let (mut archives, mut missing) = (Vec::new(), Vec::new());
        for name in names {
            match Self::open(dir, name)? {
                Some(archive) => archives.push(archive),
                None => missing.push(format!("{name}.zip")),
            }
        }
        match missing.is_empty() {
            true => Ok(archives),
            false => Err(DataError::OmniglotMissing { dir: dir.to_path_buf(), missing }),
        }
    }

    fn open(dir: &Path, name: &str) -> Result<Option<Self>> {
        for place in [dir.to_path_buf(), dir.join("python")] {
            let packed = place.join(format!("{name}.zip"));
            if packed.is_file() {
                return Self::open_zip(packed).map(Some);
            }
            let path = place.join(name);
            if path.is_dir() {
                return Ok(Some(Self { path, zip: None }));
            }
        }
        Ok(None)
    }

    fn open_zip(path: PathBuf) -> Result<Self> {
        let bytes: Arc<[u8]> = fs::read(&path).map_err(DataError::read(&path))?.into();
        let zip = ZipArchive::new(Cursor::new(bytes)).map_err(DataError::damaged(&path, "zip"))?;
        Ok(Self { path, zip: Some(zip) })
    }

    /// Every image, in no particular order.
    pub(super) fn images(&self) -> Result<Vec<Located>> {
        let images: Vec<_> = match &self.zip {
            Some(zip) => zip.file_names().filter_map(located).collect(),
            None => files_three_deep(&self.path)?.iter().filter_map(|file| located(file)).collect(),
        };
        if images.is_empty() {
            let expected = "images named Alphabet/characterNN/*.png";
            return Err(DataError::no_classes(&self.path, expected));
        }
        Ok(images)
    }

    /// Reads the encoded bytes of an image, in place of what `encoded` held.
    pub(super) fn read(&self, image: &Located, encoded: &mut Vec<u8>) -> Result {
        encoded.clear();
        match &self.zip {
            Some(zip) => {
                // A clone shares bytes and directory; only the place it reads at is its own.
                let mut zip = zip.clone();
                let entry = zip.by_name(&image.file).map_err(io::Error::other);
                entry
                    .and_then(|mut entry| entry.read_to_end(encoded))
                    .map_err(|error| self.unreadable(image, error))?;
            }
            None => {
                let path = self.path_of(image);
                *encoded = fs::read(&path).map_err(DataError::read(&path))?;
            }
        }
        Ok(())
    }

    /// Where an image is; inside an archive, the archive's path comes first.
    pub(super) fn path_of(&self, image: &Located) -> PathBuf {
        self.path.join(&image.file)
    }

    pub(super) fn unreadable(&self, image: &Located, reason: impl ToString) -> DataError {
        DataError::image(&self.path_of(image))(reason)
    }
}

/// The image behind a path that ends in `Alphabet/characterNN/name.png`, unless part of it is
/// hidden, as is what macOS adds to zip files.
fn located(file: &str) -> Option<Located> {
    let hidden = |part: &str| part.starts_with('.') || part == "__MACOSX";
    if !file.ends_with(".png") || file.split('/').any(hidden) {
        return None;
    }
    let mut parts = file.rsplit('/').skip(1);
    let character = parts.next()?;
    let alphabet = parts.next()?;
    Some(Located { character: format!("{alphabet}/{character}"), file: file.to_string() })
}

/// The paths `a/b/c` below a folder, relative to it.
fn files_three_deep(root: &Path) -> Result<Vec<String>> {
    let mut level = vec![root.to_path_buf()];
    for _ in 0..3 {
        let folders = level.iter().filter(|path| path.is_dir());
        level = folders.map(|path| visible_in(path)).collect::<Result<Vec<_>, _>>()?.concat();
    }
    let relative = level.iter().filter_map(|path| path.strip_prefix(root).ok());
    Ok(relative.map(|path| path.to_string_lossy().replace('\\', "/")).collect())
}
