use burn::optim::record::AdaptorRecord;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorPrimitive};
use fewshot_kernels::StepState;

use super::BurnRecords;

/// What is remembered of a parameter, without its rank in the type.
#[derive(Clone)]
pub(super) struct Slot<B: Backend> {
    rank: usize,
    state: StepState<FloatTensor<B>>,
}

impl<B: Backend> Slot<B> {
    pub(super) fn new(rank: usize, state: StepState<FloatTensor<B>>) -> Self {
        Self { rank, state }
    }

    /// From a record of a parameter of rank `D`.
    pub(super) fn from_record<A, R, const D: usize>(
        record: AdaptorRecord<R::Optimizer, A>,
        device: &B::Device,
    ) -> Self
    where
        A: AutodiffBackend<InnerBackend = B>,
        R: BurnRecords<B>,
    {
        let StepState { time, tensors } = R::unpack::<D>(record.into_state(), device);
        Self::new(D, StepState { time, tensors: tensors.map(|one| one.map(lower)) })
    }

    /// The state, on `device`.
    pub(super) fn on(self, device: &B::Device) -> StepState<FloatTensor<B>> {
        let move_one = |tensor| match B::float_device(&tensor) == *device {
            true => tensor,
            false => B::float_to_device(tensor, device),
        };
        let StepState { time, tensors } = self.state;
        StepState { time, tensors: tensors.map(|tensor| tensor.map(move_one)) }
    }

    pub(super) fn into_record<A, R>(self) -> AdaptorRecord<R::Optimizer, A>
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
        let StepState { time, tensors } = self.state;
        let tensors = tensors.map(|one| one.map(lift::<B, D>));
        AdaptorRecord::from_state(R::pack(StepState { time, tensors }))
    }
}

pub(super) fn lower<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

pub(super) fn lift<B: Backend, const D: usize>(tensor: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}
