//! What Adam and its relatives remember, as Burn records it.

use burn::optim::{AdamState, AdamWState, AdaptiveMomentumState};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::StepState;

use super::records::State;
use super::{Adam, AdamW, BurnRecords, Lamb};

/// Burn's optimizers are as unlike each other as types can be, and their states as like.
macro_rules! records_moments {
    ($($ours:ty as $burns:ty, $state:ident;)+) => { $(
        impl<B: Backend> BurnRecords<B> for $ours {
            type Optimizer = $burns;

            fn pack<const D: usize>(state: StepState<Tensor<B, D>>) -> State<Self, B, D> {
                let [first, second] =
                    state.tensors.map(|moment| moment.expect("a step leaves both moments"));
                $state::new(AdaptiveMomentumState::new(state.time, first, second))
            }

            fn unpack<const D: usize>(
                state: State<Self, B, D>,
                _device: &B::Device,
            ) -> StepState<Tensor<B, D>> {
                let moments = state.momentum;
                let tensors = [Some(moments.moment_1), Some(moments.moment_2)];
                StepState { time: moments.time, tensors }
            }
        }
    )+ };
}

records_moments! {
    Adam as burn::optim::Adam, AdamState;
    AdamW as burn::optim::AdamW, AdamWState;
    Lamb as burn::optim::Adam, AdamState;
}
