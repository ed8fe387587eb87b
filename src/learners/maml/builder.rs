//! The options of a [`Maml`].

use burn::tensor::backend::Backend;

use super::{Maml, Settings};
use crate::adapt::SecondOrder;
use crate::learners::{Network, QueryNorm};

impl<B: Backend, N: Network<B>> Maml<B, N> {
    /// With another number of inner steps in the test, and in
    /// [`Learner::adapt`](crate::learners::Learner::adapt).
    pub fn with_test_steps(self, test_steps: usize) -> Self {
        self.set(|settings| settings.test_steps = test_steps)
    }

    /// With this way of computing the exact derivative, by default the graph of the whole inner loop.
    /// Where the head alone adapts, that graph is used in any case.
    pub fn with_second_order(self, route: SecondOrder) -> Self {
        self.set(|settings| settings.route = route)
    }

    /// With at most `lanes` tasks in one network. The default on a CPU is [`Network::lanes`] for the
    /// network of each thread, twice as many where the head alone adapts; on an accelerator it is all
    /// tasks, which take as many launches as one. Memory grows in proportion to the tasks.
    ///
    /// # Panics
    /// On 0.
    pub fn with_lanes(self, lanes: usize) -> Self {
        assert!(lanes > 0, "a network has at least one lane");
        self.set(|settings| settings.lanes = Some(lanes))
    }

    /// With an outer loss that adds up the query losses after every inner step, times these weights: the
    /// multi-step loss of MAML++, here the same in every meta-step; with an
    /// [`Annealing`](super::Annealing), once it is over. Implicit MAML and Reptile use nothing but the
    /// end of the inner loop.
    ///
    /// # Panics
    /// Unless there is one weight a step.
    pub fn with_step_weights(self, weights: Vec<f64>) -> Self {
        let (found, wanted) = (weights.len(), self.settings.inner.steps);
        assert_eq!(found, wanted, "{wanted} steps need as many weights, found {found}");
        self.set(|settings| settings.step_weights = weights)
    }

    /// With other moments for queries in the test, where batch-norm takes those of the batch at
    /// hand; in meta-training queries are normalised together.
    pub fn with_query_norm(self, query_norm: QueryNorm) -> Self {
        self.set(|settings| settings.query_norm = query_norm)
    }

    /// With another mini-batch size in the inner steps of the test, for a learner that takes
    /// examples in mini-batches.
    ///
    /// # Panics
    /// On 0, and for a learner that does not take mini-batches.
    pub fn with_test_batch(self, batch: usize) -> Self {
        assert!(batch > 0, "a mini-batch has at least one example");
        assert!(self.settings.batch[0].is_some(), "{} has no mini-batches", self.settings.name);
        self.set(|settings| settings.batch[1] = Some(batch))
    }

    pub(super) fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }
}
