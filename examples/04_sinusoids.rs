//! Meta-trains a small network on sine waves with MAML, then fits waves that it has never seen from
//! ten points.
//!
//! `cargo run --release --example 04_sinusoids`

use burn::backend::{Autodiff, Flex};
use burn::tensor::backend::Backend;
use fewshot::prelude::*;

type B = Autodiff<Flex>; // or Autodiff<Cuda>, Autodiff<Wgpu>: nothing else changes

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Default::default();
    B::seed(&device, 1);

    let network = MlpConfig::new(1).with_layers(vec![40, 40, 1]).init::<B>(&device);
    let learner = Maml::new(network, InnerLoop::new(1, 0.01))?;
    let trained = MetaTrainer::new(learner, Adam::new().init())
        .episodes(RegressionSampler::new(Sinusoids::default(), 10, 10, 1)?)
        .meta_batch(25)
        .learning_rate(3e-3)
        .steps(1_000)
        .fit::<B>()?;

    let waves = RegressionSampler::new(Sinusoids::default(), 10, 100, 2)?;
    for steps in [0, 1, 5, 10] {
        let learner = trained.learner.clone().with_test_steps(steps);
        let score = Evaluator::new(600).score(&learner, &waves, &device);
        println!("after {steps} steps: {score}");
    }
    Ok(())
}
