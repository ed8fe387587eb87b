use std::ops::Range;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use serde_json::{Value, json};

use super::{EpisodeError, Examples, Regression, RegressionBatch, TaskSource, uploaded};
use crate::random::{Purpose, Stream};

/// Draws tasks of pattern completion: binary patterns to remember, and degraded copies of them to
/// complete.
///
/// A pattern has as many values of 1 as of -1 (one more of -1 where its length is odd). A query is
/// one of the patterns with some of its values set to zero, and its target is the whole one.
///
/// # Source
/// Miconi, Clune and Stanley, "Differentiable plasticity: training plastic neural networks with
/// backpropagation", ICML 2018, section 4.1: 5 patterns of 1000 values, half of them degraded.
#[derive(Clone, Debug)]
pub struct PatternSampler {
    length: usize,
    patterns: usize,
    queries: usize,
    seed: u64,
}

impl PatternSampler {
    /// Tasks of `patterns` patterns of `length` values and `queries` degraded ones, of which half the
    /// values are zero.
    ///
    /// # Errors
    /// When there is nothing to remember or to complete, and beyond 2^24 values, patterns or queries.
    pub fn new(
        length: usize,
        patterns: usize,
        queries: usize,
        seed: u64,
    ) -> Result<Self, EpisodeError> {
        let served = 1..=1 << 24;
        if !(2..=1 << 24).contains(&length) {
            return Err(EpisodeError::PatternLength { found: length });
        }
        match served.contains(&patterns) && served.contains(&queries) {
            true => Ok(Self { length, patterns, queries, seed }),
            false => Err(EpisodeError::Samples { shots: patterns, queries }),
        }
    }

    /// Patterns, queries and targets of a task.
    fn draw(&self, index: u64) -> [Vec<f32>; 3] {
        let mut random = Stream::new(self.seed, Purpose::Pattern, [index, 0]);
        let pattern = |_| {
            let sign = |place: usize| if place < self.length / 2 { 1.0 } else { -1.0 };
            random.permutation(self.length).into_iter().map(sign).collect()
        };
        let patterns: Vec<Vec<f32>> = (0..self.patterns).map(pattern).collect();
        let (mut queries, mut targets) = (Vec::new(), Vec::new());
        for _ in 0..self.queries {
            let target = &patterns[random.below(self.patterns)];
            let mut query = target.clone();
            random.sample(self.length, self.length / 2).into_iter().for_each(|at| query[at] = 0.0);
            queries.extend(query);
            targets.extend(target);
        }
        [patterns.concat(), queries, targets]
    }
}

/// Most connections of the networks of tasks in one batch, 16 MiB in 32 bits.
const CONNECTIONS: usize = 1 << 22;

impl TaskSource for PatternSampler {
    type Kind = Regression;

    fn tasks<B: Backend>(&self, indices: Range<u64>, device: &B::Device) -> RegressionBatch<B> {
        let drawn: Vec<_> = indices.map(|index| self.draw(index)).collect();
        let tensor = |values: usize, examples| {
            let all: Vec<f32> = drawn.iter().flat_map(|task| &task[values]).copied().collect();
            uploaded::<B, 3, _>(all, [drawn.len(), examples, self.length], device)
        };
        let patterns = tensor(0, self.patterns);
        let queries = tensor(1, self.queries);
        let inputs = |values: Tensor<B, 3>| values.unsqueeze_dims(&[-1, -1]);
        RegressionBatch {
            support: Examples { inputs: inputs(patterns.clone()), targets: patterns },
            queries: Examples { inputs: inputs(queries), targets: tensor(2, self.queries) },
        }
    }

    /// What takes memory is a network of `length^2` connections for each task.
    fn test_batch_size(&self) -> usize {
        (CONNECTIONS / (self.length * self.length)).clamp(1, 64)
    }

    fn settings(&self) -> Value {
        json!({
            "patterns": self.patterns,
            "length": self.length,
            "queries": self.queries,
            "seed": self.seed,
        })
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;

    use super::*;

    #[test]
    fn queries_are_patterns_of_which_half_is_missing() {
        let sampler = PatternSampler::new(10, 3, 4, 1).unwrap();
        let batch = sampler.tasks::<Flex>(0..2, &Default::default());
        let read = |tensor: Tensor<Flex, 3>| tensor.into_data().to_vec::<f32>().unwrap();
        let patterns = read(batch.support.targets);
        let (queries, targets) =
            (read(batch.queries.inputs.flatten(2, 4)), read(batch.queries.targets));
        assert!(patterns.chunks(10).all(|pattern| pattern.iter().sum::<f32>() == 0.0));
        for (index, (query, target)) in queries.chunks(10).zip(targets.chunks(10)).enumerate() {
            let task = index / 4;
            let mut known = patterns[task * 30..(task + 1) * 30].chunks(10);
            assert!(known.any(|pattern| pattern == target), "query {index}");
            assert_eq!(query.iter().filter(|value| **value == 0.0).count(), 5);
            assert!(query.iter().zip(target).all(|(q, t)| *q == 0.0 || q == t));
        }
        let alone = sampler.tasks::<Flex>(1..2, &Default::default());
        assert_eq!(read(alone.support.targets), patterns[30..]);
    }

    #[test]
    fn nothing_to_remember_is_an_error() {
        for (patterns, queries) in [(0, 1), (1, 0)] {
            let error = PatternSampler::new(10, patterns, queries, 1).unwrap_err();
            assert_eq!(error, EpisodeError::Samples { shots: patterns, queries });
        }
        for found in [0, 1, (1 << 24) + 1, usize::MAX] {
            let error = PatternSampler::new(found, 1, 1, 1).unwrap_err();
            assert_eq!(error, EpisodeError::PatternLength { found });
        }
    }

    #[test]
    fn long_patterns_are_tested_a_few_tasks_at_a_time() {
        let together = |length| PatternSampler::new(length, 5, 1, 1).unwrap().test_batch_size();
        assert_eq!([20, 1000, 5000].map(together), [64, 4, 1]);
    }
}
