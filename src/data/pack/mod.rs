//! Packs: decoded images in one file, for data that is larger than memory or dear to decode.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 15 | `fewshot pack`, and four zeros |
//! | 16 to 39 | version of the format, place of the header in the file, its length: 64 bits each, the lowest byte first |
//! | 40 to 71 | SHA-256 of the header |
//! | 4096 on | pixels: a byte each, an image `[c, h, w]` after the other |
//! | to the end | header: JSON with shape, scaling, SHA-256 of the pixels, and the classes of the three splits |

mod header;
mod pixels;
mod writer;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::PixelBlock;
use crate::data::{DataError, ImageShape, Result, Shades, Splits};
use header::{Beginning, Header};
pub(super) use header::{FilesDigest, PackedClass, PackedSet};
pub(super) use pixels::PackedPixels;
use pixels::{FORMAT, read_at};
pub use writer::PackWriter;

/// Place of the first pixel in the file: a page, so that other programs may map the pixels.
const PIXELS: u64 = 4096;

/// Images that were decoded once and lie in a file, with their classes and splits.
///
/// Opening reads the header alone. The images of an episode are read when it is drawn, so the set may be larger than
/// memory, and what lies there is for the system's cache to decide.
///
/// # Example
/// ```
/// use fewshot::data::{Glyphs, GlyphsConfig, Pack, PackWriter, Shades};
///
/// let folder = std::env::temp_dir().join(format!("pack-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let file = folder.join("glyphs.pack");
/// let glyphs = Glyphs::generate(&GlyphsConfig { characters: 5, ..GlyphsConfig::default() });
/// PackWriter::create(&file)?.finish(&glyphs, Shades::Inverted, "glyphs".into())?;
///
/// let pack = Pack::open(&file)?;
/// assert_eq!(pack.splits().classes(), glyphs.classes());
/// pack.check()?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pack {
    path: PathBuf,
    header: Header,
    block: Arc<PixelBlock>,
}

impl Pack {
    /// The pack in a file, whose header and length are checked.
    ///
    /// # Errors
    /// If the file cannot be read, is no pack, was cut short, or has a header that is damaged or of another version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let damaged = |reason: String| DataError::damaged(path, FORMAT)(reason);
        let file = File::open(path).map_err(DataError::read(path))?;
        let length = file.metadata().map_err(DataError::read(path))?.len();
        let read = |out: &mut [u8], at| {
            read_at(&file, out, at).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => damaged(format!("it has only {length} bytes")),
                _ => DataError::read(path)(error),
            })
        };
        let mut beginning = [0; Beginning::BYTES];
        read(&mut beginning, 0)?;
        let beginning = Beginning::read(&beginning, length).map_err(damaged)?;
        let mut header = vec![0; beginning.header_bytes as usize];
        read(&mut header, beginning.header)?;
        let header = beginning.header(&header).map_err(damaged)?;
        let pixels = PackedPixels::new(Arc::new(file), path.into(), PIXELS, beginning.pixels());
        Ok(Self { path: path.to_owned(), header, block: Arc::new(PixelBlock::in_file(pixels)) })
    }

    /// The classes to train, to validate and to test on.
    pub fn splits(&self) -> Splits {
        let Header { image, train, validation, test, .. } = &self.header;
        let [train, validation, test] =
            [train, validation, test].map(|set| set.images(*image, &self.block));
        Splits { train, validation, test }
    }

    /// Channels, height and width of its images.
    pub fn image_shape(&self) -> ImageShape {
        self.header.image
    }

    /// Number of its images.
    pub fn images(&self) -> usize {
        self.header.images
    }

    /// Treatment of dark and bright that turns a picture into an image like these.
    pub fn shades(&self) -> Shades {
        self.header.shades
    }

    /// The source and the options that it was made with, as its maker wrote them down.
    pub fn source(&self) -> &Value {
        &self.header.source
    }

    /// Compares the pixels with their checksum, which reads all of them.
    ///
    /// # Errors
    /// If they cannot be read, or are not those that were written.
    pub fn check(&self) -> Result {
        let mut sha256 = Sha256::new();
        self.block.chunks().try_for_each(|chunk| chunk.map(|chunk| sha256.update(&chunk)))?;
        match format!("{:x}", sha256.finalize()) == self.header.sha256 {
            true => Ok(()),
            false => {
                let reason = "its pixels are not those that were written: their checksum differs";
                Err(DataError::damaged(&self.path, FORMAT)(reason))
            }
        }
    }
}

#[cfg(test)]
mod tests;
