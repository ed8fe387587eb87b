use std::borrow::Cow;
use std::path::{Path, PathBuf};

use image::DynamicImage;
use image::imageops::{self, FilterType};
use rayon::prelude::*;

use super::{BrokenImage, FolderReport, OnBroken, PixelStore, ReadOptions, decode_file};
use crate::data::equal_files::Distinct;
use crate::data::needed_memory::check_memory;
use crate::data::{DataError, ImageSet, ImageShape, PackWriter, PictureLimits, Result};

/// The name of a class and its images, found but not decoded.
pub(in crate::data) type Class<E> = (String, Vec<E>);

/// A place that an image is decoded from.
pub(in crate::data) trait Source: Sync {
    /// The file whose whole content is the image, if there is one.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// Bytes to know the image again by: the path of its file from `folder`, or its content if it has no file of its own.
    fn identity(&self, folder: &Path) -> Cow<'_, [u8]>;
}

impl Source for PathBuf {
    fn file(&self) -> Option<&Path> {
        Some(self)
    }

    fn identity(&self, folder: &Path) -> Cow<'_, [u8]> {
        let names = self.strip_prefix(folder).unwrap_or(self).iter();
        let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
        names.join("/").into_bytes().into()
    }
}

/// Decodes every image of the classes, on all of rayon's threads.
pub(in crate::data) fn read<E: Source>(
    classes: &[Class<E>],
    options: &ReadOptions,
    decode: impl Fn(&E, PictureLimits) -> Result<DynamicImage> + Sync,
) -> Result<FolderReport<ImageSet>> {
    let shape = options.shape()?;
    let Distinct { classes, duplicates, contradictions } = Distinct::new(classes)?;
    let images: Vec<&E> = classes.iter().flat_map(|(_, images)| images).copied().collect();
    let decode = |images: &[&E]| decoded(images, shape, |image| decode(image, options.limits));
    let (pixels, faults) = match &options.store {
        PixelStore::Memory => {
            check_memory(images.len(), shape)?;
            let Decoded { pixels, faults } = decode(&images)?;
            (pixels, faults)
        }
        PixelStore::Pack(pack) => (Vec::new(), append(&images, shape, pack, decode)?),
    };
    let whole: Vec<bool> = faults.iter().map(Option::is_none).collect();
    let skipped = skipped(faults, options.on_broken)?;
    let whole = whole_of(&classes, &whole)?;
    let names = whole.iter().map(|(_, images)| names(images)).collect();
    let counts = whole.into_iter().map(|(name, of)| (name, of.len()));
    let data = match &options.store {
        PixelStore::Memory => ImageSet::new(shape, pixels, counts)?,
        PixelStore::Pack(pack) => pack.images(shape, counts)?,
    };
    let data = data.with_names(names);
    Ok(FolderReport { data, skipped, duplicates, contradictions, repeated_rows: 0 })
}

/// Bytes of images that are decoded before they are written to a pack.
const AT_A_TIME: usize = 1 << 26;

/// The pixels of the images that could be decoded, and the fault in each other one.
struct Decoded {
    pixels: Vec<u8>,
    faults: Vec<Option<BrokenImage>>,
}

fn decoded<E: Sync>(
    images: &[&E],
    shape: ImageShape,
    decode: impl Fn(&E) -> Result<DynamicImage> + Sync,
) -> Result<Decoded> {
    let mut pixels = vec![0; images.len() * shape.values()];
    let faults: Vec<Option<BrokenImage>> = pixels
        .par_chunks_exact_mut(shape.values())
        .zip(images)
        .map(|(out, image)| fault_of(decode(image).map(|image| write_pixels(image, shape, out))))
        .collect::<Result<_, _>>()?;
    close_gaps(&mut pixels, &faults, shape.values());
    Ok(Decoded { pixels, faults })
}

/// Decodes the images into a pack, a few at a time.
fn append<E>(
    images: &[&E],
    shape: ImageShape,
    pack: &PackWriter,
    decode: impl Fn(&[&E]) -> Result<Decoded>,
) -> Result<Vec<Option<BrokenImage>>> {
    pack.restart()?;
    let mut faults = Vec::with_capacity(images.len());
    for images in images.chunks((AT_A_TIME / shape.values()).max(1)) {
        let decoded = decode(images)?;
        pack.append(&decoded.pixels)?;
        faults.extend(decoded.faults);
    }
    Ok(faults)
}

/// Names of the files of images, if all have one.
fn names<E: Source>(images: &[&E]) -> Vec<Box<str>> {
    let name = |image: &&E| Some(Box::<str>::from(image.file()?.file_name()?.to_string_lossy()));
    images.iter().map(name).collect::<Option<_>>().unwrap_or_default()
}

/// Classes by name, each with its files of pictures.
pub type ClassFiles = Vec<(String, Vec<PathBuf>)>;

/// The files of pictures that can be used: of those of a class with equal bytes the first, and without broken ones, if these
/// are to be skipped. Under [`OnBroken::Fail`] none is decoded.
///
/// # Errors
/// If a file cannot be read, or a class has no picture left.
pub fn sound_pictures(
    classes: &[(String, Vec<PathBuf>)],
    on_broken: OnBroken,
    limits: PictureLimits,
) -> Result<FolderReport<ClassFiles>> {
    let Distinct { classes, duplicates, contradictions } = Distinct::new(classes)?;
    let files = classes.par_iter().flat_map_iter(|(_, files)| files);
    let faults: Vec<Option<BrokenImage>> = match on_broken {
        OnBroken::Fail => files.map(|_| None).collect(),
        OnBroken::Skip => {
            let decoded = files.map(|file| fault_of(decode_file(file, limits).map(|_| ())));
            decoded.collect::<Result<_>>()?
        }
    };
    let whole: Vec<bool> = faults.iter().map(Option::is_none).collect();
    let skipped = skipped(faults, on_broken)?;
    let sound = whole_of(&classes, &whole)?.into_iter();
    let data = sound.map(|(name, files)| (name, files.into_iter().cloned().collect())).collect();
    Ok(FolderReport { data, skipped, duplicates, contradictions, repeated_rows: 0 })
}

/// A broken image apart from other failures.
fn fault_of(decoded: Result) -> Result<Option<BrokenImage>> {
    match decoded {
        Ok(()) => Ok(None),
        Err(DataError::Image { path, reason }) => Ok(Some(BrokenImage { path, reason })),
        Err(error) => Err(error),
    }
}

fn skipped(faults: Vec<Option<BrokenImage>>, on_broken: OnBroken) -> Result<Vec<BrokenImage>> {
    let images = faults.len();
    let broken: Vec<_> = faults.into_iter().flatten().collect();
    match on_broken {
        OnBroken::Fail if !broken.is_empty() => Err(DataError::broken_images(images, broken)),
        _ => Ok(broken),
    }
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
fn close_gaps(pixels: &mut Vec<u8>, faults: &[Option<BrokenImage>], values: usize) {
    let mut count = 0;
    for (image, _) in faults.iter().enumerate().filter(|(_, fault)| fault.is_none()) {
        pixels.copy_within(image * values..(image + 1) * values, count * values);
        count += 1;
    }
    pixels.truncate(count * values);
}

/// The name of each class and its images that were read.
fn whole_of<'a, E>(
    classes: &[(&str, Vec<&'a E>)],
    whole: &[bool],
) -> Result<Vec<(String, Vec<&'a E>)>> {
    let mut rest = whole;
    let mut read = Vec::new();
    for (class, images) in classes {
        let (own, others) = rest.split_at(images.len());
        rest = others;
        let own = images.iter().zip(own).filter(|&(_, &whole)| whole);
        let own: Vec<_> = own.map(|(&image, _)| image).collect();
        let class = (*class).to_owned();
        if own.is_empty() {
            return Err(DataError::EmptyClass { class, expected: "image that can be read" });
        }
        read.push((class, own));
    }
    Ok(read)
}
