use burn::optim::SimpleOptimizer;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::StepState;

/// A configuration whose optimizer keeps the records of one of Burn's own.
pub trait BurnRecords<B: Backend>: Clone + Send + Sync + 'static {
    /// Burn's optimizer.
    type Optimizer: SimpleOptimizer<B> + 'static;

    /// Converts the state of a tensor to Burn's record.
    fn pack<const D: usize>(state: StepState<Tensor<B, D>>) -> State<Self, B, D>;

    /// Converts Burn's record to the state of a tensor.
    fn unpack<const D: usize>(
        state: State<Self, B, D>,
        device: &B::Device,
    ) -> StepState<Tensor<B, D>>;
}

/// The state of Burn's optimizer.
pub type State<R, B, const D: usize> =
    <<R as BurnRecords<B>>::Optimizer as SimpleOptimizer<B>>::State<D>;
