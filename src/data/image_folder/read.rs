use std::path::PathBuf;

use image::imageops::{self, FilterType};
use image::{DynamicImage, ImageReader};
use rayon::prelude::*;

use super::{FolderReport, OnBroken, ReadOptions};
use crate::data::needed_memory::check_memory;
use crate::data::{DataError, ImageSet, ImageShape, Result};

/// The name of a class and its images, found but not decoded.
pub(in crate::data) type Class<E> = (String, Vec<E>);

/// Decodes every image of the classes, on all of rayon's threads.
pub(in crate::data) fn read<E: Sync>(
    classes: &[Class<E>],
    options: &ReadOptions,
    decode: impl Fn(&E) -> Result<DynamicImage> + Sync,
) -> Result<FolderReport<ImageSet>> {
    let shape = options.shape()?;
    let images: Vec<&E> = classes.iter().flat_map(|(_, images)| images).collect();
    check_memory(images.len(), shape)?;
    let mut pixels = vec![0; images.len() * shape.values()];
    let broken: Vec<Option<PathBuf>> = pixels
        .par_chunks_exact_mut(shape.values())
        .zip(&images)
        .map(|(out, image)| match (decode(image), options.on_broken) {
            (Ok(image), _) => {
                write_pixels(image, shape, out);
                Ok(None)
            }
            (Err(DataError::Image { path, .. }), OnBroken::Skip) => Ok(Some(path)),
            (Err(error), _) => Err(error),
        })
        .collect::<Result<_, _>>()?;

    let whole: Vec<bool> = broken.iter().map(Option::is_none).collect();
    close_gaps(&mut pixels, &whole, shape.values());
    let data = ImageSet::new(shape, pixels, count_whole(classes, &whole)?)?;
    Ok(FolderReport { data, skipped: broken.into_iter().flatten().collect(), repeated_rows: 0 })
}

/// The image in a file, whose format is recognised by its content.
pub(in crate::data) fn decode_file(path: &PathBuf) -> Result<DynamicImage> {
    let reader = ImageReader::open(path).and_then(ImageReader::with_guessed_format);
    let reader = reader.map_err(DataError::read(path))?;
    reader.decode().map_err(DataError::image(path))
}

/// Writes the image at its new size, channel after channel.
pub(in crate::data) fn write_pixels(image: DynamicImage, shape: ImageShape, out: &mut [u8]) {
    let interleaved = stretched(image, shape);
    let planes = out.chunks_exact_mut(shape.height * shape.width);
    for (channel, plane) in planes.enumerate() {
        let values = interleaved.iter().skip(channel).step_by(shape.channels);
        for (pixel, value) in plane.iter_mut().zip(values) {
            *pixel = *value;
        }
    }
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
fn count_whole<E>(classes: &[Class<E>], whole: &[bool]) -> Result<Vec<(String, usize)>> {
    let mut rest = whole;
    let mut counted = Vec::new();
    for (class, images) in classes {
        let (own, others) = rest.split_at(images.len());
        rest = others;
        let count = own.iter().filter(|&&whole| whole).count();
        if count == 0 {
            let wanted = "image that can be read";
            return Err(DataError::EmptyClass { class: class.clone(), wanted });
        }
        counted.push((class.clone(), count));
    }
    Ok(counted)
}
