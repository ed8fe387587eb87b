use fewshot_models::Preprocessing;
use serde::{Deserialize, Serialize};

use crate::data::{ImageShape, Picture};

/// The steps from a picture to an image that a network takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preparation {
    /// Prepares the picture for a network with published weights: [`Picture::prepared`].
    Published(Preprocessing),
    /// Stretches the picture to the images that readers of this crate make for training: [`Picture::stretched`].
    Stretched {
        /// Channels, height and width of the images.
        image: ImageShape,
        /// Treatment of dark and bright.
        shades: Shades,
    },
}

/// The treatment of dark and bright in a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shades {
    /// They stay.
    #[default]
    Kept,
    /// They change places: dark ink on white paper becomes bright ink on black, as images of
    /// [`Omniglot`](crate::data::Omniglot), [`Glyphs`](crate::data::Glyphs) and [`fonts`](crate::data::fonts()) have it.
    Inverted,
}

impl Preparation {
    /// Channels, height and width of the image.
    pub fn image(&self) -> ImageShape {
        match *self {
            Self::Published(Preprocessing { crop, .. }) => ImageShape::new(3, crop, crop),
            Self::Stretched { image, .. } => image,
        }
    }

    /// The image that a picture becomes, `[c, h, w]`.
    pub fn apply(&self, picture: &Picture) -> Vec<f32> {
        match self {
            Self::Published(how) => picture.prepared(how),
            Self::Stretched { image, shades } => picture.stretched(*image, *shades),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use image::codecs::png::PngEncoder;
    use image::{DynamicImage, ExtendedColorType, GrayImage, ImageEncoder, Luma, Rgb, RgbImage};

    use super::*;
    use crate::data::image_files::image;
    use crate::data::{ClassDataset, Color, ImageSet, Omniglot, ReadOptions, image_folder};

    /// The values that an episode makes of the first image of a set.
    fn first(set: &ImageSet) -> Vec<f32> {
        image(set, 0, 0).into_iter().map(|byte| f32::from(byte) * (1.0 / 255.0)).collect()
    }

    #[test]
    fn pictures_become_the_images_that_readers_make() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("class")).unwrap();
        let file = folder.path().join("class/1.png");
        let pixel = |x: u32, y: u32| Rgb([(x * 5) as u8, (y * 7) as u8, (x * y) as u8]);
        let coloured = DynamicImage::from(RgbImage::from_fn(37, 23, pixel));
        let grey = DynamicImage::from(coloured.to_luma8());
        let clear = DynamicImage::from(coloured.to_rgba8());
        for picture in [coloured, grey, clear] {
            picture.save(&file).unwrap();
            for ([height, width], color) in
                [([16, 20], Color::Rgb), ([16, 20], Color::Grey), ([23, 37], Color::Rgb)]
            {
                let options = ReadOptions { height, width, color, ..ReadOptions::square(0) };
                let read = image_folder(&folder, &options).unwrap().data;
                let how = |shades| Preparation::Stretched { image: read.image_shape(), shades };
                let picture = Picture::open(&file).unwrap();
                assert_eq!(how(Shades::Kept).image(), read.image_shape());
                let stretched = how(Shades::Kept).apply(&picture);
                assert_eq!(stretched, first(&read));
                let inverted = how(Shades::Inverted).apply(&picture);
                let sums = stretched.iter().zip(&inverted).map(|(one, other)| one + other);
                assert!(sums.into_iter().all(|sum| (sum - 1.0).abs() < 1e-6));
            }
        }
    }

    #[test]
    fn a_published_preparation_makes_a_square_of_three_channels() {
        let picture = Picture::from_rgb(2, 3, vec![90; 18]).unwrap();
        let how = Preparation::Published(Preprocessing { crop: 5, ..Preprocessing::torchvision() });
        assert_eq!(how.image(), ImageShape::new(3, 5, 5));
        assert_eq!(how.apply(&picture).len(), how.image().values());
    }

    #[test]
    fn photographs_are_turned_for_readers_as_for_pictures() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("class")).unwrap();
        let file = folder.path().join("class/1.png");
        let pixel = |x: u32, y: u32| Rgb([(x * 5) as u8, (y * 7) as u8, (x * y) as u8]);
        let upright = RgbImage::from_fn(37, 23, pixel);
        // The orientation 6: the first row is on the right.
        let exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x04\0\0\0\x01\0\0\0\x06\0\0\0\0";
        let mut png = Vec::new();
        let mut encoder = PngEncoder::new(&mut png);
        encoder.set_exif_metadata(exif.to_vec()).unwrap();
        encoder.write_image(&upright, 37, 23, ExtendedColorType::Rgb8).unwrap();
        fs::write(&file, png).unwrap();
        let options = ReadOptions { height: 37, width: 23, ..ReadOptions::square(0) };
        let read = image_folder(&folder, &options).unwrap().data;
        let how = Preparation::Stretched { image: read.image_shape(), shades: Shades::Kept };
        assert_eq!(how.apply(&Picture::open(&file).unwrap()), first(&read));
        let turned = image::imageops::rotate90(&upright);
        let reds: Vec<u8> = turned.pixels().map(|pixel| pixel.0[0]).collect();
        assert_eq!(image(&read, 0, 0)[..37 * 23], reds);
    }

    #[test]
    fn pages_of_omniglot_become_its_images() {
        let folder = tempfile::tempdir().unwrap();
        let ink = |x: u32, y: u32| Luma([if (x * y / 50).is_multiple_of(3) { 0 } else { 255 }]);
        let page = GrayImage::from_fn(105, 105, ink);
        for half in ["images_background", "images_evaluation"] {
            let character = folder.path().join(half).join("Alphabet/character01");
            fs::create_dir_all(&character).unwrap();
            page.save(character.join("0001_01.png")).unwrap();
        }
        let read = Omniglot::open(&folder).unwrap().characters().clone();
        let file = folder.path().join("images_background/Alphabet/character01/0001_01.png");
        let image = read.image_shape();
        let how = Preparation::Stretched { image, shades: Shades::Inverted };
        assert_eq!(how.apply(&Picture::open(file).unwrap()), first(&read));
        assert_eq!(image, ImageShape::new(1, 28, 28));
    }
}
