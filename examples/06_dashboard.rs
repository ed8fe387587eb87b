//! Trains a prototypical network in the terminal dashboard of `burn-train`: curves of loss and accuracy, figures
//! and progress; key `q` and then `s` stops. Where standard output is no terminal, it prints lines.
//!
//! `cargo run --release --features train-tui --example 06_dashboard -- 200`

use std::env;
use std::sync::Arc;

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use fewshot::prelude::*;
use fewshot::train::dashboard;

type B = Autodiff<Flex>; // or Autodiff<Cuda>, Autodiff<Wgpu>: nothing else changes

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let steps = env::args().nth(1).map_or(Ok(200), |steps| steps.parse())?;
    let device = Default::default();
    B::seed(&device, 1);
    let glyphs = Glyphs::generate(&GlyphsConfig::default());

    let interrupt = Arc::default();
    let trained = MetaTrainer::new(
        ProtoNet::<B, _>::new(Conv4Config::omniglot().init(&device)),
        Adam::new().init(),
    )
    .episodes(glyphs.train.sampler(Protocol::new(20, 1).with_queries(5), 1)?)
    .validation(glyphs.validation.sampler(Protocol::new(5, 1), 1)?, 100)
    .validate_every(20)
    .patience(5)
    .steps(steps)
    .observe(dashboard(Arc::clone(&interrupt)))
    .interrupt(interrupt)
    .fit()?;

    println!("{}", trained.evaluate(&glyphs.test.sampler(Protocol::new(5, 1), 1)?, 200));
    Ok(())
}
