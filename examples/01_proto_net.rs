//! Trains a prototypical network on generated characters and tests it on others.
//!
//! `cargo run --release --example 01_proto_net`

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use fewshot::prelude::*;

type B = Autodiff<Flex>; // or Autodiff<Cuda>, Autodiff<Wgpu>: nothing else changes

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Default::default();
    B::seed(&device, 1);
    let glyphs = Glyphs::generate(&GlyphsConfig::default());
    let learner = ProtoNet::<B, _>::new(Conv4Config::omniglot().init(&device));
    let trained = MetaTrainer::new(learner, Adam::new().init())
        .episodes(glyphs.train.sampler(Protocol::new(20, 1).with_queries(5), 1)?)
        .steps(100)
        .fit()?;
    let test = glyphs.test.sampler(Protocol::new(5, 1), 1)?;
    println!("{}", trained.evaluate(&test, 200));
    Ok(())
}
