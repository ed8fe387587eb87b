use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::InnerLoop;
use super::parameters::tiled;

/// How many inner rates are learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateKind {
    /// None: the inner loop's own rate.
    #[default]
    Fixed,
    /// One for each tensor that moves and each step.
    ///
    /// # Source
    /// Antoniou, Edwards and Storkey, "How to train your MAML", ICLR 2019.
    PerStep,
    /// One for each value that moves, the same at every step.
    ///
    /// # Source
    /// Li, Zhou, Chen and Li, "Meta-SGD: Learning to Learn Quickly for Few-Shot Learning", 2017.
    PerValue,
}

/// Learned rates of an inner loop.
#[derive(Module, Debug)]
pub struct InnerRates<B: Backend> {
    /// By tensor that moves, in the order of the module: `[steps]` or `[values]`.
    rates: Vec<Param<Tensor<B, 1>>>,
    #[module(skip)]
    kind: RateKind,
}

impl<B: Backend> InnerRates<B> {
    /// None.
    pub fn fixed() -> Self {
        Self { rates: Vec::new(), kind: RateKind::Fixed }
    }

    /// Rates of tensors of these lengths that all begin at that of `inner`.
    pub(crate) fn new(
        kind: RateKind,
        inner: &InnerLoop,
        lengths: impl Iterator<Item = usize>,
        device: &B::Device,
    ) -> Self {
        let full = |length| Param::from_tensor(Tensor::full([length], inner.rate, device));
        let rates = match kind {
            RateKind::Fixed => Vec::new(),
            RateKind::PerStep => lengths.map(|_| full(inner.steps)).collect(),
            RateKind::PerValue => lengths.map(full).collect(),
        };
        Self { rates, kind }
    }

    /// How many are learned.
    pub fn kind(&self) -> RateKind {
        self.kind
    }

    /// The rates themselves, by tensor that moves: `[steps]` or `[values]`.
    pub fn tensors(&self) -> Vec<Tensor<B, 1>> {
        self.rates.iter().map(Param::val).collect()
    }

    /// The same with other values, on the graph they are on.
    pub(crate) fn with(&self, values: &[Tensor<B, 1>]) -> Self {
        super::filled::<B, Self>(self.clone(), values, 1)
    }

    /// `direction` times the rate of the tensor with number `moved` among those that move. A loop
    /// longer than the learned rates goes on with the last ones.
    pub(super) fn apply(
        &self,
        fixed: f64,
        (moved, step): (usize, usize),
        lanes: usize,
        direction: Tensor<B, 1>,
    ) -> Tensor<B, 1> {
        match self.kind {
            RateKind::Fixed => direction * fixed,
            RateKind::PerStep => {
                let rates = self.rates[moved].val();
                let last = rates.dims()[0] - 1;
                direction * rates.narrow(0, step.min(last), 1)
            }
            RateKind::PerValue => direction * tiled(self.rates[moved].val(), lanes),
        }
    }
}
