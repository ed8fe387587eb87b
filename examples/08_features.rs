//! Tests classifiers on embeddings that a model of yours has made, in whatever framework.
//!
//! ```sh
//! cargo run --release --example 08_features -- FEATURES.safetensors
//! ```
//!
//! The file has a float tensor `[n, d]` for each class, under the name of the class, as PyTorch writes it with
//! `safetensors.torch.save_file({"owl": owls, "wren": wrens}, "FEATURES.safetensors")`. Without a file the program makes one.

use std::path::Path;

use burn::backend::Flex;
use fewshot::data::{DataError, Features};
use fewshot::episode::{FeatureSampler, Protocol};
use fewshot::learners::heads::AnyHead;
use fewshot::train::FeatureTest;

/// Classifiers; the last two are transductive: they see all queries of a task together.
const HEADS: [&str; 6] =
    ["prototypes", "simpleshot", "logistic", "r2d2", "bd-cspn", "soft-k-means"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let features = match std::env::args().nth(1) {
        Some(file) => Features::open(file)?,
        None => {
            let file =
                std::env::temp_dir().join(format!("embeddings-{}.safetensors", std::process::id()));
            write_embeddings(&file)?;
            let features = Features::open(&file)?;
            std::fs::remove_file(file)?;
            features
        }
    };
    let (rows, classes, length) = (features.rows(), features.classes(), features.length());
    println!("{rows} embeddings of {length} values in {classes} classes");

    let (ways, device) = (classes.min(5), Default::default());
    let test = FeatureTest::new(300);
    for shots in [1, 5] {
        let protocol = Protocol::new(ways, shots).with_queries(5);
        let sampler = FeatureSampler::new(features.clone(), protocol, 1)?;
        for name in HEADS {
            let head = AnyHead::<Flex>::with_name(name, [length, 1, 1], &device).ok_or(name)?;
            println!("{}", test.run(&head, &sampler, &device));
        }
    }
    Ok(())
}

/// Ten classes of 20 points around a centre each, of which some are nearer to another.
fn write_embeddings(file: &Path) -> Result<(), DataError> {
    const LENGTH: usize = 16;
    // Numbers between -1 and 1 without a pattern to speak of.
    let noise = |seed: usize| ((seed as f32 * 12.9898).sin() * 43_758.547).fract();
    let class = |class: usize| {
        let value = |row: usize, at: usize| {
            noise(class * LENGTH + at) + 1.2 * noise(1000 + (class * 20 + row) * LENGTH + at)
        };
        let rows = (0..20).flat_map(|row| (0..LENGTH).map(move |at| value(row, at)));
        (format!("class {class}"), rows.collect())
    };
    Features::new(LENGTH, (0..10).map(class))?.write(file)
}
