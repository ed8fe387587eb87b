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

    /// With another way to the exact derivative than the graph of the whole inner loop. Where the head
    /// alone adapts, it is that graph in any case.
    pub fn with_second_order(self, route: SecondOrder) -> Self {
        self.set(|settings| settings.route = route)
    }

    /// With at most so many tasks in one network: by default, on a CPU [`Network::LANES`] of every
    /// thread, twice as many where the head alone adapts, and on an accelerator all, for which it takes
    /// as many launches as for one. They take memory in proportion.
    ///
    /// # Panics
    /// On 0.
    pub fn with_lanes(self, lanes: usize) -> Self {
        assert!(lanes > 0, "a network has at least one lane");
        self.set(|settings| settings.lanes = Some(lanes))
    }

    /// With the query loss after every step in the outer loss, times these weights: the multi-step
    /// loss of MAML++, here the same in every meta-step; with an [`Annealing`](super::Annealing), once it
    /// is over. An implicit gradient and Reptile's way know the last one alone.
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

    /// With another number of examples in an inner step of the test, of a learner that takes them
    /// in mini-batches.
    ///
    /// # Panics
    /// On 0, and for a learner that does not take them so.
    pub fn with_test_batch(self, batch: usize) -> Self {
        assert!(batch > 0, "a mini-batch has at least one example");
        assert!(self.settings.batch[0].is_some(), "{} has no mini-batches", self.settings.name);
        self.set(|settings| settings.batch[1] = Some(batch))
    }

    /// With second moments of the inner loop's rule, if it has any, that go on from task to task.
    pub(in crate::learners) fn with_lasting_moments(self) -> Self {
        let Self { network, rates, settings } = self;
        let rates = rates.with_lasting_moments(&settings.inner, &network, &settings.adapted);
        Self { network, rates, settings }
    }

    pub(in crate::learners) fn set(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }
}
