use std::collections::HashMap;

use burn::module::{Param, ParamId};
use burn::optim::Optimizer;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::record::AdaptorRecord;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::{FloatTensor, FloatTensorOps};
use burn::tensor::{Tensor, TensorPrimitive};
use fewshot_kernels::{StepRule, StepState};

use super::BurnRecords;

/// Stands for any module: the type of a record is the same for all.
type AnyModule<B> = Param<Tensor<B, 1>>;

/// The record of Burn's optimizer.
pub(super) type Records<R, B> = <OptimizerAdaptor<
    <R as BurnRecords<<B as AutodiffBackend>::InnerBackend>>::Optimizer,
    AnyModule<B>,
    B,
> as Optimizer<AnyModule<B>, B>>::Record;

/// The optimizer's state of all parameters.
#[derive(Clone)]
pub(super) struct States<R: BurnRecords<B::InnerBackend>, B: AutodiffBackend> {
    slots: HashMap<ParamId, Slot<B::InnerBackend>>,
    /// Records of parameters that have not moved since loading: the first move shows their rank.
    loaded: Records<R, B>,
}

/// The optimizer's state of a parameter, without its rank in the type.
#[derive(Clone)]
struct Slot<B: Backend> {
    rank: usize,
    state: StepState<FloatTensor<B>>,
}

impl<R: BurnRecords<B::InnerBackend>, B: AutodiffBackend> States<R, B> {
    pub(super) fn loaded(loaded: Records<R, B>) -> Self {
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
        let state = match self.loaded.remove(&id) {
            Some(record) => map(R::unpack::<D>(record.into_state(), device), lower),
            None => self.slots.remove(&id).map(|slot| slot.state).unwrap_or_default(),
        };
        let mut state =
            map(state, |tensor| match B::InnerBackend::float_device(&tensor) == *device {
                true => tensor,
                false => B::InnerBackend::float_to_device(tensor, device),
            });
        state.tensors[rule.remembers()..].fill(None);
        state
    }

    pub(super) fn keep(
        &mut self,
        id: ParamId,
        rank: usize,
        state: StepState<FloatTensor<B::InnerBackend>>,
    ) {
        self.slots.insert(id, Slot { rank, state });
    }

    pub(super) fn to_record(&self) -> Records<R, B> {
        let mut record = self.loaded.clone();
        let slots = self.slots.iter();
        record.extend(slots.map(|(id, slot)| (*id, slot.clone().into_record::<B, R>())));
        record
    }
}

impl<B: Backend> Slot<B> {
    fn into_record<A, R>(self) -> AdaptorRecord<R::Optimizer, A>
    where
        A: AutodiffBackend<InnerBackend = B>,
        R: BurnRecords<B>,
    {
        match self.rank {
            0 => self.record::<A, R, 0>(),
            1 => self.record::<A, R, 1>(),
            2 => self.record::<A, R, 2>(),
            3 => self.record::<A, R, 3>(),
            4 => self.record::<A, R, 4>(),
            5 => self.record::<A, R, 5>(),
            6 => self.record::<A, R, 6>(),
            7 => self.record::<A, R, 7>(),
            8 => self.record::<A, R, 8>(),
            rank => panic!("Burn records tensors of rank 8 at most, not {rank}"),
        }
    }

    fn record<A, R, const D: usize>(self) -> AdaptorRecord<R::Optimizer, A>
    where
        A: AutodiffBackend<InnerBackend = B>,
        R: BurnRecords<B>,
    {
        AdaptorRecord::from_state(R::pack(map(self.state, lift::<B, D>)))
    }
}

/// The state with each of its tensors through `change`.
pub(super) fn map<T, U>(state: StepState<T>, change: impl Fn(T) -> U) -> StepState<U> {
    StepState { time: state.time, tensors: state.tensors.map(|one| one.map(&change)) }
}

pub(super) fn lower<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

pub(super) fn lift<B: Backend, const D: usize>(tensor: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}
