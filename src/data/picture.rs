use std::io::Cursor;
use std::path::{Path, PathBuf};

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use fewshot_models::{Interpolation, Preprocessing};
use image::{DynamicImage, ImageFormat, RgbImage};

use super::decode::{decode, decode_file};
use super::image_folder::write_pixels;
use super::{ImageShape, PictureLimits, Result, Shades, omniglot};

/// A photograph or drawing of any size, decoded to red, green and blue and turned as the camera noted.
#[derive(Clone, Debug)]
pub struct Picture {
    pixels: RgbImage,
}

impl Picture {
    /// Reads a png, jpeg, bmp, gif, webp or tiff file, whichever its content is.
    ///
    /// # Errors
    /// When it cannot be read, is broken or cut, or is larger than the [limits](PictureLimits) that hold by default.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_within(path, PictureLimits::default())
    }

    /// The same within other limits.
    ///
    /// # Errors
    /// The reasons are those of [`open`](Self::open).
    pub fn open_within(path: impl AsRef<Path>, limits: PictureLimits) -> Result<Self> {
        decode_file(&path.as_ref().to_owned(), limits).map(Self::from_image)
    }

    /// Decodes the content of a file; `name` is the one in errors.
    ///
    /// # Errors
    /// The reasons are those of [`open`](Self::open).
    pub fn decode(bytes: &[u8], name: impl Into<PathBuf>) -> Result<Self> {
        Self::decode_within(bytes, name, PictureLimits::default())
    }

    /// The same within other limits.
    ///
    /// # Errors
    /// The reasons are those of [`open`](Self::open).
    pub fn decode_within(
        bytes: &[u8],
        name: impl Into<PathBuf>,
        limits: PictureLimits,
    ) -> Result<Self> {
        decode(bytes, &name.into(), limits).map(Self::from_image)
    }

    fn from_image(image: DynamicImage) -> Self {
        Self { pixels: image.into_rgb8() }
    }

    /// A picture of pixels that are decoded already: red, green and blue of each, row by row.
    ///
    /// `None` where these are not `3 * width * height` bytes, or none.
    pub fn from_rgb(width: u32, height: u32, pixels: Vec<u8>) -> Option<Self> {
        let whole = !pixels.is_empty() && pixels.len() == 3 * width as usize * height as usize;
        RgbImage::from_raw(width, height, pixels).filter(|_| whole).map(|pixels| Self { pixels })
    }

    /// Width and height in pixels.
    pub fn size(&self) -> [usize; 2] {
        [self.pixels.width() as usize, self.pixels.height() as usize]
    }

    /// The input of a network, `[3, crop, crop]`: resized, cropped and scaled.
    ///
    /// # Conventions
    /// Sizes are rounded as torchvision's `Resize` and `CenterCrop` round them, and interpolation is PIL's, with
    /// antialiasing.
    pub fn prepared(&self, how: &Preprocessing) -> Vec<f32> {
        let Preprocessing { crop, mean, deviation, .. } = *how;
        let cropped = self.cropped(how);
        let mut out = vec![0.0; 3 * crop * crop];
        for (channel, plane) in out.chunks_exact_mut(crop * crop).enumerate() {
            let (scale, mean) = (1.0 / (255.0 * deviation[channel]), mean[channel]);
            let values = cropped[channel..].iter().step_by(3);
            plane.iter_mut().zip(values).for_each(|(to, &value)| {
                *to = (f32::from(value) - 255.0 * mean) * scale;
            });
        }
        out
    }

    /// The input of a network that was trained on images as [`image_folder`](crate::data::image_folder()) and
    /// other readers make them, `[c, h, w]`: stretched to their height and width, in grey or in colour, bytes
    /// divided by 255.
    ///
    /// # Conventions
    /// For a file with 8 bits a value these are the very values that readers make. An [inverted](Shades::Inverted) one of 105 x 105 pixels
    /// becomes 28 x 28 of grey as [`Omniglot`](crate::data::Omniglot) makes it.
    ///
    /// # Panics
    /// When `image` is empty, or has neither one channel nor three.
    pub fn stretched(&self, image: ImageShape, shades: Shades) -> Vec<f32> {
        assert!([1, 3].contains(&image.channels), "images have 1 or 3 channels, not {image}");
        let mut bytes = vec![0; image.values()];
        let pixels = DynamicImage::from(self.pixels.clone());
        let small = ImageShape::new(1, omniglot::SIDE, omniglot::SIDE);
        let of_omniglot = (self.pixels.height(), self.pixels.width()) == omniglot::PUBLISHED;
        match shades {
            Shades::Kept => write_pixels(pixels, image, &mut bytes),
            Shades::Inverted if of_omniglot && image == small => {
                omniglot::write_small_and_bright(&pixels.into_luma8(), &mut bytes);
            }
            Shades::Inverted => {
                write_pixels(pixels, image, &mut bytes);
                bytes.iter_mut().for_each(|byte| *byte = 255 - *byte);
            }
        }
        // Multiplied as episodes do it: a quotient would be rounded otherwise.
        bytes.into_iter().map(|byte| f32::from(byte) * (1.0 / 255.0)).collect()
    }

    /// A JPEG file of the square in the middle, with `side` pixels along a side.
    ///
    /// # Panics
    /// When there is no pixel along a side.
    pub fn thumbnail(&self, side: usize) -> Vec<u8> {
        assert!(side > 0, "a thumbnail has pixels");
        let how = Preprocessing { resize: side, crop: side, ..Preprocessing::torchvision() };
        let square = RgbImage::from_raw(side as u32, side as u32, self.cropped(&how));
        let mut file = Cursor::new(Vec::new());
        let square = square.expect("three bytes a pixel");
        square.write_to(&mut file, ImageFormat::Jpeg).expect("memory takes all that is written");
        file.into_inner()
    }

    fn resized_size(&self, shorter: usize) -> [usize; 2] {
        let [width, height] = self.size();
        match width <= height {
            true => [shorter, shorter * height / width],
            false => [shorter * width / height, shorter],
        }
    }

    /// The bytes of the square in the middle of the resized picture: no others are computed.
    fn cropped(&self, how: &Preprocessing) -> Vec<u8> {
        let crop = how.crop;
        let resized = self.resized_size(how.resize.max(crop));
        let filter = match how.interpolation {
            Interpolation::Bilinear => FilterType::Bilinear,
            Interpolation::Bicubic => FilterType::CatmullRom,
        };
        // Where the square begins in this picture, and its side. Half a pixel goes to the even neighbour.
        let part = |axis: usize| {
            let before = ((resized[axis] - crop) as f64 / 2.0).round_ties_even();
            let scale = self.size()[axis] as f64 / resized[axis] as f64;
            [before * scale, crop as f64 * scale]
        };
        let ([left, across], [top, down]) = (part(0), part(1));
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter));
        let (width, height) = self.pixels.dimensions();
        // Of one type of pixel: the loops of all others would be compiled too.
        let whole = TypedImageRef::<U8x3>::from_buffer(width, height, self.pixels.as_raw());
        let whole = whole.expect("three bytes a pixel");
        let [mut wide, mut square] =
            [height, crop as u32].map(|rows| TypedImage::<U8x3>::new(crop as u32, rows));
        let mut resizer = Resizer::new();
        // Along rows first, as PIL does it: what overshoots is cut off after each direction.
        let along = options.crop(left, 0.0, across, f64::from(height));
        resizer.resize_typed(&whole, &mut wide, &along).expect("the part is within the picture");
        let along = options.crop(0.0, top, crop as f64, down);
        resizer.resize_typed(&wide, &mut square, &along).expect("the part is within the picture");
        square.pixels().iter().flat_map(|pixel| pixel.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::*;

    fn picture(width: u32, height: u32) -> Picture {
        let value = |x: u32, y: u32, channel: u32| {
            let edge = if x > y { 90 } else { 0 };
            ((x * x / 7 + y * (3 + channel) + edge) % 256) as u8
        };
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let bytes = pixels.flat_map(|(x, y)| [0, 1, 2].map(|channel| value(x, y, channel)));
        Picture::from_rgb(width, height, bytes.collect()).unwrap()
    }

    #[test]
    fn pictures_are_prepared_as_torchvision_does_it() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pictures.json");
        let golden: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        for case in golden["cases"].as_array().unwrap() {
            let how = match case["how"].as_str().unwrap() {
                "torchvision" => Preprocessing::torchvision(),
                "dinov2" => Preprocessing::dinov2(),
                "clip" => Preprocessing::clip(),
                "efficientnet_lite" => Preprocessing::efficientnet_lite(),
                _ => Preprocessing::mini_imagenet(),
            };
            let size: [u32; 2] = serde_json::from_value(case["size"].clone()).unwrap();
            let expected: Vec<f32> = serde_json::from_value(case["values"].clone()).unwrap();
            let prepared = picture(size[0], size[1]).prepared(&how);
            assert_eq!(prepared.len(), 3 * how.crop * how.crop);
            let sample: Vec<_> = prepared.iter().step_by(499).collect();
            assert_eq!(sample.len(), expected.len());
            // Both round to bytes after each direction.
            let level = how.deviation.map(|of| 1.0 / (255.0 * of)).into_iter().fold(0.0, f32::max);
            let off = |(actual, expected): (&&f32, &f32)| (**actual - expected).abs();
            let furthest = sample.iter().zip(&expected).map(off).fold(0.0, f32::max);
            assert!(furthest <= 1.01 * level, "{} {size:?}: {}", case["how"], furthest / level);
            let mean = sample.iter().zip(&expected).map(off).sum::<f32>() / expected.len() as f32;
            assert!(mean < 0.2 * level, "{} {size:?}: {} on average", case["how"], mean / level);
        }
    }

    #[test]
    fn pixels_that_do_not_fit_are_refused() {
        assert!(Picture::from_rgb(2, 2, vec![0; 11]).is_none());
        assert!(Picture::from_rgb(0, 2, Vec::new()).is_none());
        assert!(Picture::from_rgb(2, 2, vec![0; 13]).is_none());
        assert!(Picture::decode(b"nothing", "upload").unwrap_err().to_string().contains("upload"));
    }

    #[test]
    fn a_thumbnail_is_the_middle_of_the_picture() {
        let slope =
            |x: u32, y: u32| image::Rgb([(x * 255 / 299) as u8, (y * 255 / 199) as u8, 128]);
        let smooth = Picture { pixels: RgbImage::from_fn(300, 200, slope) };
        let thumbnail = Picture::decode(&smooth.thumbnail(96), "thumbnail").unwrap();
        assert_eq!(thumbnail.size(), [96, 96]);
        let how = Preprocessing { resize: 96, crop: 96, ..Preprocessing::torchvision() };
        let expected = smooth.cropped(&how);
        let off = thumbnail.pixels.iter().zip(&expected).map(|(a, b)| f64::from(a.abs_diff(*b)));
        assert!(off.sum::<f64>() / (expected.len() as f64) < 4.0);
    }

    #[test]
    #[should_panic(expected = "a thumbnail has pixels")]
    fn a_thumbnail_without_pixels_is_refused() {
        picture(4, 4).thumbnail(0);
    }

    #[test]
    fn a_picture_of_one_pixel_can_be_prepared() {
        let prepared = Picture::from_rgb(1, 1, vec![127, 127, 127]).unwrap();
        let prepared = prepared.prepared(&Preprocessing::efficientnet_lite());
        assert!(prepared.iter().all(|value| value.abs() < 1e-6));
    }

    /// Resized as a whole, it would be millions of pixels long.
    #[test]
    fn a_line_of_pixels_can_be_prepared() {
        for [width, height] in [[1, 30_000], [30_000, 1]] {
            let prepared = picture(width, height).prepared(&Preprocessing::dinov2());
            assert!(
                prepared.len() == 3 * 224 * 224 && prepared.iter().all(|value| value.is_finite())
            );
        }
    }
}
