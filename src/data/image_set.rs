use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::pack::{FilesDigest, PackedClass, PackedSet};
use crate::data::{ClassDataset, DataError, ImageShape, PixelBlock, QuarterTurn, Result, Scaling};

/// The use of the four quarter turns of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rotations {
    /// Classes are shown upright.
    #[default]
    None,
    /// Each turn is a class of its own, so there are four times as many; `name` becomes
    /// `name/rot000` to `name/rot270`. Vinyals et al. (2016), Snell et al. (2017).
    AsClasses,
    /// Every class of an episode is shown in one turn, drawn anew each time. Finn et al. (2017).
    PerClassAndEpisode,
}

#[derive(Clone)]
struct Class {
    name: String,
    images: Range<usize>,
    turn: QuarterTurn,
    /// Digest of the names of its files.
    files: Option<u64>,
    /// Names of the files of its images, without folders; none where images have no files.
    names: Arc<[Box<str>]>,
}

/// Images in memory or in a [pack](crate::data::Pack), one byte a value, grouped by class.
///
/// The pixels are one block, shared by every clone and every view ([`select`](Self::select),
/// [`with_rotations`](Self::with_rotations)), so those cost no memory to speak of; so are its
/// copies on accelerators.
///
/// # Example
/// ```
/// use fewshot::data::{ClassDataset, ImageSet, ImageShape, QuarterTurn, Rotations};
///
/// let classes = [("a".into(), 2), ("b".into(), 1)];
/// let set = ImageSet::new(ImageShape::new(1, 2, 2), (0..12).collect::<Vec<u8>>(), classes)?;
/// let turned = set.select(&[1]).with_rotations(Rotations::AsClasses)?;
/// assert_eq!(turned.class_name(1), "b/rot090");
///
/// let mut image = [0; 4];
/// turned.write_image(1, 0, QuarterTurn::R0, &mut image)?;
/// assert_eq!(image, [9, 11, 8, 10]); // [[8, 9], [10, 11]], a quarter turn to the left
/// # Ok::<(), fewshot::data::DataError>(())
/// ```
#[derive(Clone)]
pub struct ImageSet {
    pixels: Arc<PixelBlock>,
    classes: Arc<[Class]>,
    shape: ImageShape,
    scaling: Scaling,
    draws_turns: bool,
}

impl ImageSet {
    /// Images one after another, class after class; each class is a name and its number of images.
    /// Pixels are scaled to 0 to 1, classes are shown upright.
    ///
    /// # Shapes
    /// `pixels`: `[n, c, h, w]`, `n` being the sum over the classes.
    ///
    /// # Errors
    /// If the shape holds no value, a class has no image, or the number of pixels is not that of
    /// the images.
    pub fn new(
        shape: ImageShape,
        pixels: impl Into<Arc<[u8]>>,
        classes: impl IntoIterator<Item = (String, usize)>,
    ) -> Result<Self> {
        shape.check()?;
        Self::in_block(shape, PixelBlock::new(pixels), classes)
    }

    /// The same of a block that may lie in a file.
    pub(super) fn in_block(
        shape: ImageShape,
        pixels: PixelBlock,
        classes: impl IntoIterator<Item = (String, usize)>,
    ) -> Result<Self> {
        let mut images = 0;
        let mut grouped = Vec::new();
        for (name, count) in classes {
            if count == 0 {
                return Err(DataError::EmptyClass { class: name, expected: "image" });
            }
            let range = images..images + count;
            let (turn, names) = (QuarterTurn::R0, Arc::default());
            grouped.push(Class { name, images: range, turn, files: None, names });
            images += count;
        }
        let actual = pixels.bytes();
        if actual != images as u64 * shape.values() as u64 {
            return Err(DataError::PixelCount { images, shape, actual });
        }
        Ok(Self {
            pixels: Arc::new(pixels),
            classes: grouped.into(),
            shape,
            scaling: Scaling::unit(shape.channels),
            draws_turns: false,
        })
    }

    /// The set that a pack describes, in its block.
    pub(super) fn packed(shape: ImageShape, pixels: Arc<PixelBlock>, set: &PackedSet) -> Self {
        let classes = set.classes.iter().map(|class| Class {
            name: class.name.clone(),
            images: class.first..class.first + class.images,
            turn: class.turn,
            files: class.files.map(|FilesDigest(digest)| digest),
            names: class.names.clone().into(),
        });
        let (classes, scaling) = (classes.collect(), set.scaling.clone());
        Self { pixels, classes, shape, scaling, draws_turns: set.draws_turns }
    }

    /// The description of the set in a pack of its block. Classes that have no files are known again by their images.
    pub(super) fn to_packed(&self) -> Result<PackedSet> {
        // Turns of a class are classes of the same pixels.
        let mut digests = HashMap::new();
        let classes = self.classes.iter().map(|class| {
            let known = class.files.or_else(|| digests.get(&class.images).copied());
            let files = known.map_or_else(|| self.pixels_digest(class), Ok)?;
            digests.insert(class.images.clone(), files);
            Ok(PackedClass {
                name: class.name.clone(),
                first: class.images.start,
                images: class.images.len(),
                turn: class.turn,
                files: Some(FilesDigest(files)),
                names: class.names.to_vec(),
            })
        });
        let (classes, scaling) = (classes.collect::<Result<_>>()?, self.scaling.clone());
        Ok(PackedSet { scaling, draws_turns: self.draws_turns, classes })
    }

    fn pixels_digest(&self, class: &Class) -> Result<u64> {
        let (mut digest, values) = (Sha256::new(), self.shape.values());
        for image in class.images.clone() {
            digest.update(self.pixels.part(image as u64 * values as u64, values)?);
        }
        let bytes = digest.finalize();
        Ok(u64::from_be_bytes(*bytes.first_chunk().expect("a checksum of 32 bytes")))
    }

    /// The view of these classes, in this order.
    ///
    /// # Panics
    /// If a class is out of range.
    pub fn select(&self, classes: &[usize]) -> Self {
        let chosen = classes.iter().map(|&class| self.class(class).clone()).collect();
        Self { classes: chosen, ..self.clone() }
    }

    /// With the digest of each class's files.
    pub(super) fn with_digests(&self, digests: &[u64]) -> Self {
        let classes = self.classes.iter().zip(digests);
        let classes = classes.map(|(class, &files)| Class { files: Some(files), ..class.clone() });
        Self { classes: classes.collect(), ..self.clone() }
    }

    /// With the names of the files of each class's images.
    pub(super) fn with_names(self, names: Vec<Vec<Box<str>>>) -> Self {
        let classes = self.classes.iter().zip(names);
        let classes = classes.map(|(class, names)| Class { names: names.into(), ..class.clone() });
        Self { classes: classes.collect(), ..self }
    }

    /// The classes of these sets, one set after the other, if all are views of the same pixels; scaled and turned as the first.
    pub(super) fn join<const N: usize>(sets: [&Self; N]) -> Option<Self> {
        let shared = sets.iter().all(|set| Arc::ptr_eq(&set.pixels, &sets[0].pixels));
        let classes = sets.iter().flat_map(|set| set.classes.iter().cloned());
        shared.then(|| Self { classes: classes.collect(), ..sets[0].clone() })
    }

    /// Eight bytes of a digest of the names of a class's files, to know it again by; `None` for a class that was not
    /// read from a dataset of files. Images without files of their own, as in a pickle, count by their bytes.
    ///
    /// # Panics
    /// If the class is out of range.
    pub fn files_digest(&self, class: usize) -> Option<u64> {
        self.class(class).files
    }

    /// The view in which quarter turns are treated this way.
    ///
    /// # Errors
    /// If the images are not square, and so would change their shape.
    pub fn with_rotations(self, rotations: Rotations) -> Result<Self> {
        if rotations != Rotations::None && !self.shape.is_square() {
            return Err(DataError::NotSquare { shape: self.shape });
        }
        Ok(match rotations {
            Rotations::None => Self { draws_turns: false, ..self },
            Rotations::PerClassAndEpisode => Self { draws_turns: true, ..self },
            Rotations::AsClasses => {
                let all = 0..self.classes.len();
                let turned = all.flat_map(|class| QuarterTurn::ALL.map(|turn| (class, turn)));
                Self { draws_turns: false, ..self.select_turned(turned) }
            }
        })
    }

    /// The view of these classes, each in a turn that is part of what it is and of its name.
    pub(super) fn select_turned(
        &self,
        turned: impl IntoIterator<Item = (usize, QuarterTurn)>,
    ) -> Self {
        let turned = turned.into_iter().map(|(class, turn)| {
            let class = self.class(class);
            Class {
                name: format!("{}/{turn}", class.name),
                images: class.images.clone(),
                turn: class.turn.then(turn),
                files: class.files,
                names: class.names.clone(),
            }
        });
        Self { classes: turned.collect(), ..self.clone() }
    }

    /// The same images, scaled in another way when an episode is built.
    ///
    /// # Errors
    /// If the scaling is not one for images of this many channels.
    pub fn with_scaling(self, scaling: Scaling) -> Result<Self> {
        scaling.check(self.shape.channels)?;
        Ok(Self { scaling, ..self })
    }

    /// Number of images to draw from, the same image in two turns counting as two.
    pub fn images(&self) -> usize {
        self.classes.iter().map(|class| class.images.len()).sum()
    }

    fn class(&self, class: usize) -> &Class {
        let classes = self.classes.len();
        self.classes
            .get(class)
            .unwrap_or_else(|| panic!("class {class} of a set of {classes} classes"))
    }

    /// The number of an image in the block, and its turn in all.
    fn place(&self, class: usize, example: usize, turn: QuarterTurn) -> (usize, QuarterTurn) {
        let class = self.class(class);
        let count = class.images.len();
        assert!(example < count, "example {example} of a class of {count} images");
        let turn = class.turn.then(turn);
        let fits = turn == QuarterTurn::R0 || self.shape.is_square();
        assert!(fits, "a {} image cannot be turned", self.shape);
        (class.images.start + example, turn)
    }
}

impl ClassDataset for ImageSet {
    fn classes(&self) -> usize {
        self.classes.len()
    }

    fn class_name(&self, class: usize) -> String {
        self.class(class).name.clone()
    }

    fn examples(&self, class: usize) -> usize {
        self.class(class).images.len()
    }

    fn example_name(&self, class: usize, example: usize) -> Option<&str> {
        self.class(class).names.get(example).map(|name| &**name)
    }

    fn image_shape(&self) -> ImageShape {
        self.shape
    }

    fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    fn draws_turns(&self) -> bool {
        self.draws_turns
    }

    fn write_image(
        &self,
        class: usize,
        example: usize,
        turn: QuarterTurn,
        out: &mut [u8],
    ) -> Result {
        let (image, turn) = self.place(class, example, turn);
        let values = self.shape.values();
        assert_eq!(out.len(), values, "room for a {} image", self.shape);

        let first = image as u64 * values as u64;
        if turn == QuarterTurn::R0 {
            return self.pixels.read(first, out);
        }
        let image = self.pixels.part(first, values)?;
        let plane = self.shape.height * self.shape.width;
        for (from, to) in image.chunks_exact(plane).zip(out.chunks_exact_mut(plane)) {
            turn.write_plane(from, self.shape.width, to);
        }
        Ok(())
    }

    fn block(&self) -> Option<&Arc<PixelBlock>> {
        Some(&self.pixels)
    }

    fn block_image(
        &self,
        class: usize,
        example: usize,
        turn: QuarterTurn,
    ) -> Option<(usize, QuarterTurn)> {
        Some(self.place(class, example, turn))
    }
}

impl fmt::Debug for ImageSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageSet")
            .field("classes", &self.classes.len())
            .field("images", &self.images())
            .field("shape", &self.shape)
            .field("scaling", &self.scaling)
            .field("draws_turns", &self.draws_turns)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
