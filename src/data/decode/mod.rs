//! The one way from the bytes of a picture's file to its pixels.

mod format;
mod orientation;
mod whole;

#[cfg(test)]
mod tests;

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::metadata::Orientation;
use image::{ColorType, DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use serde::{Deserialize, Serialize};

use super::{DataError, Result};

/// Pixels along a side of a picture, at most.
const LONGEST: u32 = 1 << 16;

/// Bytes that a header, with the notes and the profile of colours in it, may take.
const HEADER: u64 = 1 << 26;

/// Bytes of a pixel, at most: four numbers of 16 bits.
const PIXEL: u64 = 8;

/// The largest picture that is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PictureLimits {
    /// Pixels of a picture, width times height: 100 million unless more are allowed.
    pub pixels: u64,
}

impl Default for PictureLimits {
    fn default() -> Self {
        Self { pixels: 100_000_000 }
    }
}

/// The reason why bytes are no picture.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("{0} is not read: convert it to PNG or JPEG")]
    Refused(String),
    #[error("its content is none of png, jpeg, bmp, gif, webp and tiff")]
    Unknown,
    #[error("the file is cut: {0} is missing")]
    Cut(&'static str),
    #[error(
        "it has {} x {} pixels, {} in all, and the limit is {limit}: --max-pixels allows more",
        size[0], size[1], u64::from(size[0]) * u64::from(size[1])
    )]
    TooManyPixels { size: [u32; 2], limit: u64 },
    #[error("it has {} x {} pixels, and a side may have {LONGEST}", size[0], size[1])]
    TooLong { size: [u32; 2] },
    #[error("its pixels are floating-point numbers, whose range it does not tell")]
    Floating,
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// The picture in a file, whose format is recognised by its content, turned as its camera noted.
pub(super) fn decode_file(path: &PathBuf, limits: PictureLimits) -> Result<DynamicImage> {
    decode(&fs::read(path).map_err(DataError::read(path))?, path, limits)
}

/// The same of the content of a file; `name` is the one in errors.
pub(super) fn decode(bytes: &[u8], name: &Path, limits: PictureLimits) -> Result<DynamicImage> {
    decoded(bytes, name, limits).map_err(DataError::image(name))
}

fn decoded(bytes: &[u8], name: &Path, limits: PictureLimits) -> Result<DynamicImage, Fault> {
    let format = format::format_of(bytes, name)?;
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut memory = Limits::no_limits();
    memory.max_alloc = Some(HEADER);
    reader.limits(memory.clone());
    let mut decoder = reader.into_decoder().map_err(|error| {
        let cut = whole::check(bytes, format).err();
        cut.unwrap_or(error.into())
    })?;
    limits.check(decoder.dimensions().into())?;
    if matches!(decoder.color_type(), ColorType::Rgb32F | ColorType::Rgba32F) {
        return Err(Fault::Floating);
    }
    whole::check(bytes, format)?;
    memory.max_alloc = Some(HEADER + PIXEL * limits.pixels);
    decoder.set_limits(memory)?;
    let noted = match format {
        ImageFormat::Png => whole::png_chunk(bytes, b"eXIf").map(<[u8]>::to_vec),
        // Its first directory has the form of all such notes.
        ImageFormat::Tiff => Some(bytes.to_vec()),
        _ => decoder.exif_metadata()?,
    };
    let turn = noted.and_then(|noted| orientation::noted_in(&noted));
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(turn.unwrap_or(Orientation::NoTransforms));
    Ok(image)
}

impl PictureLimits {
    fn check(self, size: [u32; 2]) -> Result<(), Fault> {
        let limit = self.pixels;
        if u64::from(size[0]) * u64::from(size[1]) > limit {
            return Err(Fault::TooManyPixels { size, limit });
        }
        match size.iter().all(|&side| side <= LONGEST) {
            true => Ok(()),
            false => Err(Fault::TooLong { size }),
        }
    }
}
