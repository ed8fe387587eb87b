//! Datasets that are three pickles, one for each split.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use image::{DynamicImage, RgbImage};

use super::image_folder::{Class, PARTS, Source, try_each};
use super::pickle::{Pickle, Value};
use crate::data::{PictureLimits, Result};

/// One image of an array `[n, h, w, 3]`.
#[derive(Clone, Copy)]
pub(super) struct ArrayImage<'a> {
    height: usize,
    width: usize,
    pixels: &'a [u8],
}

impl Source for ArrayImage<'_> {
    fn identity(&self, _: &Path) -> Cow<'_, [u8]> {
        self.pixels.into()
    }
}

/// The pickles of the three splits, in files of the names that `name` makes of theirs.
pub(super) fn open_all(dir: &Path, name: impl Fn(&str) -> String) -> Result<[Pickle; 3]> {
    try_each(PARTS, |part| Pickle::open(dir.join(name(part))))
}

pub(super) fn images_in<'a>(pickle: &Pickle, array: Value<'a>) -> Result<Vec<ArrayImage<'a>>> {
    let (shape, pixels) = array.array()?;
    match *shape {
        [_, height, width, 3] if height * width > 0 => {
            let images = pixels.chunks_exact(height * width * 3);
            Ok(images.map(|pixels| ArrayImage { height, width, pixels }).collect())
        }
        _ => Err(pickle.wrong(format!("images are an array of {shape:?}, not [n, h, w, 3]"))),
    }
}

pub(super) fn decode_array(image: &ArrayImage<'_>, _: PictureLimits) -> Result<DynamicImage> {
    let mut rgb = RgbImage::new(image.width as u32, image.height as u32);
    rgb.copy_from_slice(image.pixels);
    Ok(rgb.into())
}

/// Groups the images by their labels, in order of number.
pub(super) fn by_number<E>(
    pickle: &Pickle,
    labels: Value<'_>,
    images: Vec<E>,
    name: impl Fn(i64) -> String,
) -> Result<Vec<Class<E>>> {
    let labels = labels.integers()?;
    if labels.len() != images.len() {
        let (labels, images) = (labels.len(), images.len());
        return Err(pickle.wrong(format!("there are {labels} labels of {images} images")));
    }
    let mut classes = BTreeMap::<i64, Vec<E>>::new();
    for (label, image) in labels.into_iter().zip(images) {
        classes.entry(label).or_default().push(image);
    }
    Ok(classes.into_iter().map(|(label, images)| (name(label), images)).collect())
}
