//! From a folder of pictures to a classifier of pictures.
//!
//! ```sh
//! cargo run --release --example 07_pictures -- efficientnet-lite0 WEIGHTS.pth SUPPORT_DIR PICTURE…
//! ```
//!
//! Without words it says so and ends, because weights and pictures are yours.

use burn::backend::Flex;
use fewshot::adapted::{AdaptedModel, PretrainedBackbone};
use fewshot::data::Picture;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, weights, support, pictures @ ..] = words.as_slice() else {
        println!("BACKBONE WEIGHTS SUPPORT_DIR PICTURE… are needed");
        return Ok(());
    };
    let device = Default::default();
    let backbone = PretrainedBackbone::<Flex>::load(name, weights, &device)?;
    let model = AdaptedModel::of_folder(backbone, "simpleshot", support)?;
    if let Some(left_out) = model.left_out() {
        println!("{:.1} % right of pictures that were left out", left_out.accuracy());
    }

    for path in pictures {
        let prediction = &model.predict(&[Picture::open(path)?])[0];
        println!("{path}: {} ({:.2})", prediction.class(), prediction.probability());
    }
    Ok(())
}
