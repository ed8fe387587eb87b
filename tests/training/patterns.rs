//! A memory of patterns, trained through its life.

use burn::backend::{Autodiff, Flex};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot::episode::{PatternSampler, RegressionBatch, TaskSource};
use fewshot::learners::PlasticMemory;
use fewshot::prelude::*;

const LENGTH: usize = 20;

fn patterns(seed: u64) -> PatternSampler {
    PatternSampler::new(LENGTH, 3, 2, seed).unwrap()
}

/// Share of all values whose sign is wrong, on new patterns.
fn wrong(memory: &PlasticMemory<Flex>) -> f32 {
    let batch: RegressionBatch<Flex> = patterns(2).tasks(0..100, &Default::default());
    let found = memory.outputs(&batch, BnStatistics::Running).sign();
    let differs = found.not_equal(batch.queries.targets).float().mean();
    differs.into_data().to_vec::<f32>().unwrap()[0]
}

/// Sets the rate of the trace, the one parameter of one dimension, to zero.
struct Forget;

impl ModuleMapper<Flex> for Forget {
    fn map_float<const D: usize>(
        &mut self,
        param: Param<Tensor<Flex, D>>,
    ) -> Param<Tensor<Flex, D>> {
        if D == 1 { param.map(|rate| rate.zeros_like()) } else { param }
    }
}

#[test]
fn a_trained_memory_completes_patterns_that_were_never_seen() {
    let device = Default::default();
    <Autodiff<Flex> as Backend>::seed(&device, 1);
    let memory = PlasticMemory::<Autodiff<Flex>>::new(LENGTH, &device).with_presentation(1, 3, 2);
    let untrained = wrong(&burn::module::AutodiffModule::valid(&memory));
    let trained = MetaTrainer::new(memory, Adam::new().init())
        .episodes(patterns(1))
        .learning_rate(1e-2)
        .steps(150)
        .meta_batch(8)
        .observe(|_| {})
        .fit()
        .unwrap();
    let found = wrong(&trained.learner);
    // Half of the values are missing, and half of those are guessed.
    let without = wrong(&trained.learner.map(&mut Forget));
    assert!((without - 0.25).abs() < 0.05, "{without} without a trace");
    assert!(untrained > 0.15 && found < 0.05, "{untrained} before, {found} after");
}
