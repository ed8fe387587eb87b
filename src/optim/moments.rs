use burn::optim::AdaptiveMomentumState;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::StepState;

pub(super) fn pack<B: Backend, const D: usize>(
    state: StepState<Tensor<B, D>>,
) -> AdaptiveMomentumState<B, D> {
    let [first, second] = state.tensors.map(|moment| moment.expect("a step leaves both moments"));
    AdaptiveMomentumState::new(state.time, first, second)
}

pub(super) fn unpack<B: Backend, const D: usize>(
    state: AdaptiveMomentumState<B, D>,
) -> StepState<Tensor<B, D>> {
    StepState { time: state.time, tensors: [Some(state.moment_1), Some(state.moment_2)] }
}
