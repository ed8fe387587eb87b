use std::collections::HashMap;

use burn::module::{AutodiffModule, ParamId};
use burn::optim::Optimizer;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use fewshot_kernels::{StepRule, StepState};

use super::BurnRecords;
use super::state::Slot;

/// The record of Burn's optimizer over a module.
pub(super) type Records<R, M, B> = <OptimizerAdaptor<
    <R as BurnRecords<<B as AutodiffBackend>::InnerBackend>>::Optimizer,
    M,
    B,
> as Optimizer<M, B>>::Record;

/// What is remembered of all parameters.
#[derive(Clone)]
pub(super) struct States<R, M, B>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    R: BurnRecords<B::InnerBackend>,
{
    slots: HashMap<ParamId, Slot<B::InnerBackend>>,
    /// Of parameters that have not moved since they were loaded: their rank shows when they do.
    loaded: Records<R, M, B>,
}

impl<R, M, B> States<R, M, B>
where
    B: AutodiffBackend,
    M: AutodiffModule<B>,
    R: BurnRecords<B::InnerBackend>,
{
    pub(super) fn loaded(loaded: Records<R, M, B>) -> Self {
        Self { slots: HashMap::new(), loaded }
    }

    /// Removes the state of a parameter of rank `D`, which lies on `device`; tensors that `rule` does
    /// not remember are dropped.
    pub(super) fn take<const D: usize>(
        &mut self,
        id: ParamId,
        device: &B::Device,
        rule: &StepRule,
    ) -> StepState<FloatTensor<B::InnerBackend>> {
        let slot = match self.loaded.remove(&id) {
            Some(record) => Some(Slot::from_record::<B, R, D>(record, device)),
            None => self.slots.remove(&id),
        };
        let mut state = slot.map(|slot| slot.on(device)).unwrap_or_default();
        state.tensors[rule.remembers()..].fill(None);
        state
    }

    pub(super) fn keep(
        &mut self,
        id: ParamId,
        rank: usize,
        state: StepState<FloatTensor<B::InnerBackend>>,
    ) {
        self.slots.insert(id, Slot::new(rank, state));
    }

    pub(super) fn to_record(&self) -> Records<R, M, B> {
        let mut record = self.loaded.clone();
        let slots = self.slots.iter();
        record.extend(slots.map(|(id, slot)| (*id, slot.clone().into_record::<B, R>())));
        record
    }
}
