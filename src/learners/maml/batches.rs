use burn::tensor::backend::Backend;
use fewshot_kernels::select;

use crate::episode::Examples;
use crate::random::{Purpose, Stream};

/// The examples of an inner loop, step by step.
pub(super) struct InnerBatches<B: Backend> {
    examples: Examples<B>,
    /// Examples of a step; all, where there is none.
    size: Option<usize>,
    /// Key that their order is drawn by.
    key: u64,
}

impl<B: Backend> InnerBatches<B> {
    pub(super) fn new(examples: Examples<B>, size: Option<usize>, key: u64) -> Self {
        Self { examples, size, key }
    }

    /// Examples of one step.
    pub(super) fn at(&self, step: usize) -> Examples<B> {
        let Examples { inputs, targets } = self.examples.clone();
        let Some(size) = self.size else { return Examples { inputs, targets } };
        let chosen = positions(self.key, step, size, inputs.dims()[1]);
        Examples { inputs: select(inputs, 1, chosen.clone()), targets: select(targets, 1, chosen) }
    }
}

/// Places of the examples of a step, of `count` in all: each of them in a random order, then all in another;
/// the same in every task, so that tasks side by side learn as they do one by one.
fn positions(key: u64, step: usize, size: usize, count: usize) -> Vec<i32> {
    let order = |round: usize| {
        Stream::new(key, Purpose::MiniBatch, [round as u64, count as u64]).permutation(count)
    };
    let (first, last) = (step * size, (step + 1) * size - 1);
    let orders: Vec<_> = (first / count..=last / count).map(order).collect();
    (first..=last)
        .map(|place| orders[place / count - first / count][place % count] as i32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_shows_every_example_once_in_an_order_of_its_own() {
        let places: Vec<_> = (0..6).flat_map(|step| positions(0, step, 4, 6)).collect();
        let rounds: Vec<_> = places.chunks(6).collect();
        for round in &rounds {
            let mut round = round.to_vec();
            round.sort_unstable();
            assert_eq!(round, [0, 1, 2, 3, 4, 5]);
        }
        assert!(rounds.windows(2).any(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn another_key_gives_another_order() {
        assert_ne!(positions(0, 0, 10, 10), positions(1, 0, 10, 10));
    }

    #[test]
    fn a_step_may_be_larger_than_a_round() {
        let step = positions(0, 1, 5, 2);
        assert_eq!(step.len(), 5);
        assert!(step.iter().all(|place| (0..2).contains(place)));
    }
}
