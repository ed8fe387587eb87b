use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::parameters::{Slot, tiled};

/// Learned gains and shifts of normalisation layers, of their own for each inner step, in which
/// they do not move.
///
/// # Source
/// Antoniou, Edwards and Storkey, "How to train your MAML", ICLR 2019, section 4: per-step batch
/// normalisation weights and biases.
#[derive(Module, Debug)]
pub struct StepNorms<B: Backend> {
    /// By gain or shift, in the order of the module: `[steps * c]`.
    pub(super) rows: Vec<Param<Tensor<B, 1>>>,
    /// Indices of the module's tensors that they stand for.
    #[module(skip)]
    pub(super) slots: Vec<usize>,
    #[module(skip)]
    steps: usize,
}

/// Names of the gains and shifts of normalisation layers.
const NAMES: [&str; 2] = ["gamma", "beta"];

impl<B: Backend> StepNorms<B> {
    /// Gains and shifts of the module with these tensors, which all begin at the module's own values.
    pub(super) fn new(slots: &[Slot], values: &[Tensor<B, 1>], steps: usize) -> Self {
        let own: Vec<_> =
            (0..slots.len()).filter(|&index| slots[index].free && is_norm(&slots[index])).collect();
        let row = |&index: &usize| Param::from_tensor(tiled(values[index].clone(), steps).detach());
        Self { rows: own.iter().map(row).collect(), slots: own, steps }
    }

    /// `values` of `lanes` tasks with those of a step in their places. A loop longer than the
    /// learned steps goes on with the last ones.
    pub(super) fn placed(
        &self,
        step: usize,
        mut values: Vec<Tensor<B, 1>>,
        lanes: usize,
    ) -> Vec<Tensor<B, 1>> {
        let step = step.min(self.steps - 1);
        for (&slot, rows) in self.slots.iter().zip(&self.rows) {
            let rows = rows.val();
            let width = rows.dims()[0] / self.steps;
            values[slot] = tiled(rows.narrow(0, step * width, width), lanes);
        }
        values
    }
}

fn is_norm(slot: &Slot) -> bool {
    let name = slot.path.rsplit('.').next();
    name.is_some_and(|name| NAMES.contains(&name))
}
