mod archive;
mod decode;
mod split;

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::data::decode::decode as decode_picture;
use crate::data::{DataError, ImageSet, ImageShape, PictureLimits, Result, Rotations, Splits};

use archive::Archive;
pub(super) use decode::{PUBLISHED, write_small_and_bright};
pub use split::Split;

/// Height and width of an image once it is made small, as in every paper since Vinyals et al.
pub(super) const SIDE: usize = 28;

/// Omniglot: 1623 handwritten characters of 50 alphabets, each drawn once by 20 people.
///
/// Images are `1x28x28` with bright ink (255) on black (0). [`split`](Self::split) makes of them
/// what papers report on.
///
/// # Conventions
/// The published images are 105 x 105 pixels with black ink. Every pixel here is the mean of the
/// area it covers, 3.75 x 3.75 of theirs, computed in integers and rounded once, then inverted. The
/// papers did otherwise: Snell et al. take the nearest pixel (PIL's `resize` on a one-bit image,
/// after its rotation), Finn et al. filter with LANCZOS; pixels therefore differ from theirs. They
/// are the same whether an image is turned before or after it is made small.
///
/// # Source
/// Lake, Salakhutdinov and Tenenbaum, *Science* 350 (2015) 1332-1338; files at
/// github.com/brendenlake/omniglot, `python/`.
///
/// # Example
/// ```no_run
/// use fewshot::data::{Omniglot, Split};
///
/// let splits = Omniglot::open("data/omniglot")?.split(Split::Vinyals)?;
/// assert_eq!(splits.classes(), [4112, 688, 1692]);
/// # Ok::<(), fewshot::data::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Omniglot {
    dir: PathBuf,
    characters: ImageSet,
}

impl Omniglot {
    /// Reads every image of both halves, background and evaluation.
    ///
    /// Each half is found as a zip file or unpacked, in `dir` or in its folder `python`:
    /// `images_background.zip` or `images_background/Alphabet/characterNN/*.png`, and likewise
    /// `images_evaluation`. Images are decoded on all of rayon's threads; 25 MB stay in memory.
    ///
    /// # Errors
    /// If a half is absent, an archive is cut short or none, or an image is broken or is not
    /// 105 x 105 pixels.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref().to_path_buf();
        let halves = Archive::open_all(&dir, &["images_background", "images_evaluation"])?;

        let mut images = Vec::new();
        for half in &halves {
            let of_half = half.images()?;
            images.extend(of_half.into_iter().map(|image| (image, half)));
        }
        images.sort_by(|(a, _), (b, _)| (&a.character, &a.file).cmp(&(&b.character, &b.file)));

        let mut pixels = vec![0; images.len() * SIDE * SIDE];
        pixels.par_chunks_exact_mut(SIDE * SIDE).zip(&images).try_for_each_init(
            Vec::new,
            |encoded, (out, (image, half))| {
                half.read(image, encoded)?;
                let path = half.path_of(image);
                let page = decode_picture(encoded, &path, PictureLimits::default())?;
                match decode::small_and_bright(page, out) {
                    decode::PUBLISHED => Ok(()),
                    actual => {
                        Err(DataError::ImageSize { path, expected: decode::PUBLISHED, actual })
                    }
                }
            },
        )?;

        let classes = images
            .chunk_by(|(a, _), (b, _)| a.character == b.character)
            .map(|class| (class[0].0.character.clone(), class.len()));
        let characters = ImageSet::new(ImageShape::new(1, SIDE, SIDE), pixels, classes)?;
        Ok(Self { dir, characters })
    }

    /// Every character as a class of its own, upright, sorted by name: `Alphabet/characterNN`.
    pub fn characters(&self) -> &ImageSet {
        &self.characters
    }

    /// The classes to train, to validate and to test on. The pixels are shared, not copied.
    ///
    /// # Errors
    /// For [`Split::Vinyals`], if a list is absent or names a character that is not there; for
    /// [`Split::Finn`], if there are fewer than 1623 characters.
    pub fn split(&self, split: Split) -> Result<Splits> {
        match split {
            Split::Vinyals => {
                split::vinyals(&self.characters, &self.dir.join("splits").join("vinyals"))
            }
            Split::Finn { seed } => {
                split::finn(&self.characters, seed)?.with_rotations(Rotations::PerClassAndEpisode)
            }
        }
    }
}

#[cfg(test)]
mod tests;
