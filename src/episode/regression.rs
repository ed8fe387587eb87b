use std::ops::Range;
use std::sync::Arc;

use burn::tensor::backend::Backend;
use rayon::prelude::*;
use serde_json::{Value, json};

use super::{EpisodeError, Examples, Regression, TaskSource, uploaded};
use crate::data::{DataError, Functions};

/// Tasks that are worth a thread of their own.
const TASKS_OF_A_THREAD: usize = 64;

/// Regression tasks as tensors, with a task axis in front.
#[derive(Clone, Debug)]
pub struct RegressionBatch<B: Backend> {
    /// Examples that each task is learned from.
    pub support: Examples<B>,
    /// Examples that each task is judged by.
    pub queries: Examples<B>,
}

/// Draws regression tasks: the one with index `i` is a pure function of the seed and `i`.
#[derive(Clone, Debug)]
pub struct RegressionSampler {
    functions: Arc<dyn Functions>,
    shots: usize,
    queries: usize,
    seed: u64,
}

impl RegressionSampler {
    /// Tasks of `shots` examples to learn from and `queries` others.
    ///
    /// # Errors
    /// When one of them is zero, or larger than 2^24.
    pub fn new(
        functions: impl Functions + 'static,
        shots: usize,
        queries: usize,
        seed: u64,
    ) -> Result<Self, EpisodeError> {
        let served = 1..=1 << 24;
        if !(served.contains(&shots) && served.contains(&queries)) {
            return Err(EpisodeError::Samples { shots, queries });
        }
        Ok(Self { functions: Arc::new(functions), shots, queries, seed })
    }

    /// Examples to learn a task from.
    pub fn shots(&self) -> usize {
        self.shots
    }

    /// Examples that a task is judged by.
    pub fn queries(&self) -> usize {
        self.queries
    }

    fn examples(&self) -> usize {
        self.shots + self.queries
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

impl TaskSource for RegressionSampler {
    type Kind = Regression;

    fn tasks<B: Backend>(
        &self,
        indices: Range<u64>,
        device: &B::Device,
    ) -> Result<RegressionBatch<B>, DataError> {
        let count = (indices.end - indices.start) as usize;
        let draw = |at| self.functions.draw(self.seed, indices.start + at as u64, self.examples());
        let (inputs, targets): (Vec<_>, Vec<_>) =
            (0..count).into_par_iter().with_min_len(TASKS_OF_A_THREAD).map(draw).unzip();
        let (width, length) = (self.functions.inputs(), self.functions.targets());
        for (inputs, targets) in inputs.iter().zip(&targets) {
            let actual = [inputs.len(), targets.len()];
            let expected = [width, length].map(|size| size * self.examples());
            assert_eq!(
                actual, expected,
                "numbers of inputs and targets that a task was drawn with"
            );
        }
        // Divided here: on an accelerator a part of a tensor is a launch, which copies it.
        let part = |first, examples| {
            let of = |drawn: &[Vec<f32>], width| {
                let each = drawn.iter().map(|one| &one[first * width..][..examples * width]);
                each.collect::<Vec<_>>().concat()
            };
            Examples {
                inputs: uploaded(of(&inputs, width), [count, examples, width, 1, 1], device),
                targets: uploaded(of(&targets, length), [count, examples, length], device),
            }
        };
        Ok(RegressionBatch {
            support: part(0, self.shots),
            queries: part(self.shots, self.queries),
        })
    }

    fn test_batch_size(&self) -> usize {
        64
    }

    fn settings(&self) -> Value {
        json!({
            "functions": self.functions.settings(),
            "shots": self.shots,
            "queries": self.queries,
            "seed": self.seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Sinusoids;

    #[test]
    fn a_sampler_says_what_it_was_made_with() {
        let sampler = RegressionSampler::new(Sinusoids::default(), 5, 7, 3).unwrap();
        assert_eq!((sampler.shots(), sampler.queries(), sampler.seed()), (5, 7, 3));
        let settings = sampler.settings();
        assert_eq!((&settings["shots"], &settings["queries"]), (&json!(5), &json!(7)));
        for sizes in [[0, 7], [5, 0], [(1 << 24) + 1, 7]] {
            assert!(RegressionSampler::new(Sinusoids::default(), sizes[0], sizes[1], 3).is_err());
        }
    }
}
