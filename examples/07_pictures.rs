//! From a folder of pictures to a classifier of pictures.
//!
//! ```sh
//! cargo run --release --example 07_pictures -- efficientnet-lite0 WEIGHTS.pth SUPPORT_DIR PICTURE…
//! ```
//!
//! Without words the program draws its own red and green pictures, and the weights of a network that knows nothing yet but
//! tells colours apart.

use std::error::Error;
use std::fs;
use std::path::Path;

use burn::backend::Flex;
use burn::tensor::backend::Backend;
use fewshot::adapted::{AdaptedModel, PretrainedBackbone};
use fewshot::data::Picture;
use fewshot::models::{EfficientNetLiteConfig, Pretrained};
use image::{Rgb, RgbImage};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if words.is_empty() {
        words = drawn(folder.path())?;
    }
    let [name, weights, support, pictures @ ..] = words.as_slice() else {
        return Err("BACKBONE WEIGHTS SUPPORT_DIR PICTURE… are needed, or nothing".into());
    };
    let device = Default::default();
    let backbone = PretrainedBackbone::<Flex>::load(name, weights, &device)?;
    let model = AdaptedModel::from_folder(backbone, "simpleshot", support)?;
    if let Some(validation) = model.cross_validation() {
        println!("{:.1} % right of pictures that were left out", validation.accuracy());
    }

    for path in pictures {
        let prediction = &model.predict(&[Picture::open(path)?])?[0];
        println!("{path}: {} ({:.2})", prediction.class(), prediction.probability());
    }
    Ok(())
}

/// Draws weights, pictures of two classes and one to classify into a folder: the words that name them.
fn drawn(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let [weights, support, photo] =
        ["drawn.safetensors", "support", "photo.png"].map(|name| folder.join(name));
    let device = Default::default();
    Flex::seed(&device, 1);
    EfficientNetLiteConfig::new().init::<Flex>(&device).save_weights(&weights)?;

    for (class, [red, green, blue]) in [("red", [200, 20, 20]), ("green", [20, 200, 20])] {
        let of_class = support.join(class);
        fs::create_dir_all(&of_class)?;
        for number in 0..3u8 {
            let pixel = Rgb([red + number, green, blue + 3 * number]);
            RgbImage::from_pixel(32, 32, pixel).save(of_class.join(format!("{number}.png")))?;
        }
    }
    RgbImage::from_pixel(32, 32, Rgb([210, 20, 30])).save(&photo)?;
    let paths = [weights, support, photo].map(|path| path.display().to_string());
    Ok(["efficientnet-lite0".to_owned()].into_iter().chain(paths).collect())
}
