//! Meta-trains a classifier with exact second-order MAML on generated characters, then adapts it to
//! classes it has never seen.
//!
//! `cargo run --release --example 03_maml`

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use fewshot::prelude::*;

type B = Autodiff<Flex>; // or Autodiff<Cuda>, Autodiff<Wgpu>: nothing else changes

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Default::default();
    B::seed(&device, 1);
    let glyphs = Glyphs::generate(&GlyphsConfig::default());
    let one_shot = Protocol::new(5, 1);

    let network = Conv4Config::omniglot_strided();
    let classifier = Classifier::<B, _>::new(network.init(&device), network.features(), 5, &device);
    let learner = Maml::new(classifier, InnerLoop::new(1, 0.4))?.with_test_steps(3);
    let trained = MetaTrainer::new(learner, Adam::new().init())
        .episodes(glyphs.train.sampler(one_shot.with_queries(1), 1)?)
        .meta_batch(16)
        .steps(60)
        .fit()?;

    println!("{}", trained.evaluate(&glyphs.test.sampler(one_shot, 1)?, 200));
    Ok(())
}
