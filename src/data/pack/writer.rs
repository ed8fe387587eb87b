use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::header::{Beginning, Header};
use super::{PIXELS, PackedPixels};
use crate::data::{
    ClassDataset, DataError, ImageSet, ImageShape, PixelBlock, Result, Shades, Splits,
};
use crate::files::NewFile;

const CREATED_BY: &str = concat!("fewshot ", env!("CARGO_PKG_VERSION"));

/// A pack that is being written, beside its place; [`finish`](Self::finish) moves it there, whole.
///
/// Readers to whose [options](crate::data::ReadOptions::store) it is given write each image to it as soon as it is
/// decoded, so that their memory holds a few of them at a time. Images that are in memory already go from there, and
/// those of a source of your own are [appended](Self::append).
///
/// # Example
/// ```
/// use fewshot::data::{ImageShape, PackWriter, Shades, Splits};
///
/// # let folder = std::env::temp_dir().join(format!("writer-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let pack = PackWriter::create(folder.join("levels.pack"))?;
/// for level in 0..6 {
///     pack.append(&[level; 3 * 8 * 8])?;
/// }
/// let set = pack.images(ImageShape::new(3, 8, 8), ["a", "b", "c"].map(|name| (name.into(), 2)))?;
/// let [train, validation, test] = [0, 1, 2].map(|class| set.select(&[class]));
/// pack.finish(&Splits { train, validation, test }, Shades::Kept, "levels".into())?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PackWriter {
    new: NewFile,
    file: Arc<File>,
    written: Mutex<Written>,
}

/// The pixels so far.
#[derive(Debug, Default)]
struct Written {
    bytes: u64,
    sha256: Sha256,
}

impl PackWriter {
    /// Begins the pack that will be at `path`.
    ///
    /// # Errors
    /// If no file can be made there.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let begun = NewFile::create(path).and_then(|new| {
            let file = Arc::new(new.file().try_clone()?);
            Ok(Self { new, file, written: Mutex::default() })
        });
        begun.map_err(DataError::write(path))
    }

    /// Writes what is known of the images behind their pixels, and moves the file to its place.
    ///
    /// `shades` is the treatment of dark and bright that turns pictures into such images, `source` tells where they
    /// come from and with which options they were read.
    ///
    /// # Errors
    /// If the three sets are no views of the same images or have two classes of one name, the images cannot be read, or
    /// the file not be written; there is then none, or the one that was there.
    pub fn finish(&self, splits: &Splits, shades: Shades, source: Value) -> Result {
        let block = splits.block().ok_or(DataError::SeparateSets)?;
        if block.file().is_none_or(|pixels| !pixels.is_of(&self.file)) {
            self.restart()?;
            block.chunks().try_for_each(|chunk| self.append(&chunk?))?;
        }
        let written = self.written();
        let image = splits.train.image_shape();
        let header = Header {
            created_by: CREATED_BY.to_owned(),
            source,
            image,
            images: (written.bytes / image.values() as u64) as usize,
            shades,
            sha256: format!("{:x}", written.sha256.clone().finalize()),
            train: splits.train.to_packed()?,
            validation: splits.validation.to_packed()?,
            test: splits.test.to_packed()?,
        };
        header.check(written.bytes).map_err(|reason| DataError::NoPack { reason })?;
        let header = serde_json::to_vec(&header).map_err(io::Error::from);
        let put = header.and_then(|header| {
            self.write_at(PIXELS + written.bytes, &header)?;
            self.write_at(0, &Beginning::new(written.bytes, &header).bytes())?;
            self.new.put()
        });
        put.map_err(DataError::write(self.new.path()))
    }

    /// Begins again without a pixel.
    pub(in crate::data) fn restart(&self) -> Result {
        *self.written() = Written::default();
        self.file.set_len(PIXELS).map_err(DataError::write(self.new.path()))
    }

    /// Writes the pixels of more images behind those that are there.
    ///
    /// # Shapes
    /// `pixels`: `[n, c, h, w]` bytes, or a part of that.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn append(&self, pixels: &[u8]) -> Result {
        let mut written = self.written();
        let appended = self.write_at(PIXELS + written.bytes, pixels);
        appended.map_err(DataError::write(self.new.path()))?;
        written.bytes += pixels.len() as u64;
        written.sha256.update(pixels);
        Ok(())
    }

    /// The images so far as a set, read from the file: class after class, each a name and its number of images.
    ///
    /// # Errors
    /// The errors of [`ImageSet::new`].
    pub fn images(
        &self,
        shape: ImageShape,
        classes: impl IntoIterator<Item = (String, usize)>,
    ) -> Result<ImageSet> {
        let (file, path) = (self.file.clone(), self.new.path().to_owned());
        let pixels = PackedPixels::new(file, path, PIXELS, self.written().bytes);
        ImageSet::in_block(shape, PixelBlock::in_file(pixels), classes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut file = &*self.file;
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
