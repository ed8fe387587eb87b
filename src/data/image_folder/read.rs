use std::path::{Path, PathBuf};

use image::imageops::{self, FilterType};
use image::{DynamicImage, ImageReader};
use rayon::prelude::*;

use super::listing::ClassFiles;
use super::{FolderReport, OnBroken};
use crate::data::{DataError, ImageSet, ImageShape};

/// Decodes every image of the classes, on all of rayon's threads.
pub(super) fn read(
    classes: &[ClassFiles],
    shape: ImageShape,
    on_broken: OnBroken,
) -> Result<FolderReport<ImageSet>, DataError> {
    let files: Vec<&PathBuf> = classes.iter().flat_map(|class| &class.files).collect();
    let mut pixels = vec![0; files.len() * shape.values()];
    let whole: Vec<bool> = pixels
        .par_chunks_exact_mut(shape.values())
        .zip(&files)
        .map(|(out, file)| match (write_pixels(file, shape, out), on_broken) {
            (Ok(()), _) => Ok(true),
            (Err(DataError::Image { .. }), OnBroken::Skip) => Ok(false),
            (Err(error), _) => Err(error),
        })
        .collect::<Result<_, _>>()?;

    close_gaps(&mut pixels, &whole, shape.values());
    let broken = files.iter().zip(&whole).filter(|&(_, &whole)| !whole);
    let skipped = broken.map(|(file, _)| file.to_path_buf()).collect();
    let data = ImageSet::new(shape, pixels, count_whole(classes, &whole)?)?;
    Ok(FolderReport { data, skipped })
}

fn write_pixels(path: &Path, shape: ImageShape, out: &mut [u8]) -> Result<(), DataError> {
    let reader = ImageReader::open(path).and_then(ImageReader::with_guessed_format);
    let reader = reader.map_err(DataError::read(path))?;
    let image = reader.decode().map_err(|error| DataError::Image {
        path: path.to_path_buf(),
        reason: error.to_string(),
    })?;
    let interleaved = stretched(image, shape);
    let planes = out.chunks_exact_mut(shape.height * shape.width);
    for (channel, plane) in planes.enumerate() {
        let values = interleaved.iter().skip(channel).step_by(shape.channels);
        for (pixel, value) in plane.iter_mut().zip(values) {
            *pixel = *value;
        }
    }
    Ok(())
}

/// The bytes of the image at its new size, channel by channel within each pixel.
fn stretched(image: DynamicImage, shape: ImageShape) -> Vec<u8> {
    let (width, height) = (shape.width as u32, shape.height as u32);
    let fits = (image.width(), image.height()) == (width, height);
    // Color is dropped first: a third of the work, and transparency does not matter in the filter.
    macro_rules! resized {
        ($pixels:expr) => {{
            let pixels = $pixels;
            if fits {
                pixels.into_raw()
            } else {
                imageops::resize(&pixels, width, height, FilterType::Triangle).into_raw()
            }
        }};
    }
    match shape.channels {
        1 => resized!(image.into_luma8()),
        _ => resized!(image.into_rgb8()),
    }
}

/// Moves the images that were read to the front, in order, and drops the rest.
fn close_gaps(pixels: &mut Vec<u8>, whole: &[bool], values: usize) {
    let mut kept = 0;
    for (image, _) in whole.iter().enumerate().filter(|&(_, &whole)| whole) {
        pixels.copy_within(image * values..(image + 1) * values, kept * values);
        kept += 1;
    }
    pixels.truncate(kept * values);
}

/// The name of each class and how many of its images were read.
fn count_whole(classes: &[ClassFiles], whole: &[bool]) -> Result<Vec<(String, usize)>, DataError> {
    let mut rest = whole;
    let mut counted = Vec::new();
    for class in classes {
        let (own, others) = rest.split_at(class.files.len());
        rest = others;
        let count = own.iter().filter(|&&whole| whole).count();
        if count == 0 {
            return Err(DataError::NoImages { path: class.folder.clone(), skipped: own.len() });
        }
        counted.push((class.name(), count));
    }
    Ok(counted)
}
