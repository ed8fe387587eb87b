//! Fused bodies of a backend as operations of Burn's fusion over it.
//!
//! Each is recorded as one operation that fusion does not look into, and runs when its stream does.

use std::fmt;
use std::marker::PhantomData;

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Shape, TensorMetadata};
use burn_fusion::stream::{Operation, OperationStreams};
use burn_fusion::{FusionBackend, FusionRuntime, FusionTensor};
use burn_ir::{CustomOpIr, HandleContainer, OperationIr, TensorIr};

/// A tensor of `Fusion<B>`, of any kind.
pub type Recorded<B> = FusionTensor<<B as FusionBackend>::FusionRuntime>;

type Handles<B> =
    HandleContainer<<<B as FusionBackend>::FusionRuntime as FusionRuntime>::FusionHandle>;

/// The tensors of an operation when it runs, in the order in which they were recorded. Each may be taken
/// once.
pub struct Operands<'a, B: FusionBackend> {
    handles: &'a mut Handles<B>,
    inputs: &'a [TensorIr],
}

impl<B: FusionBackend> Operands<'_, B> {
    pub fn float(&mut self, place: usize) -> FloatTensor<B> {
        self.handles.get_float_tensor::<B>(&self.inputs[place])
    }

    pub fn int(&mut self, place: usize) -> IntTensor<B> {
        self.handles.get_int_tensor::<B>(&self.inputs[place])
    }

    /// The operands from `start` on.
    pub fn floats<const N: usize>(&mut self, start: usize) -> [FloatTensor<B>; N] {
        std::array::from_fn(|place| self.float(start + place))
    }
}

struct Record<B, F> {
    description: CustomOpIr,
    body: F,
    backend: PhantomData<fn() -> B>,
}

impl<B, F> fmt::Debug for Record<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.description.id)
    }
}

impl<B, F> Operation<B::FusionRuntime> for Record<B, F>
where
    B: FusionBackend,
    F: Fn(&mut Operands<'_, B>) -> Vec<FloatTensor<B>> + Send + Sync,
{
    fn execute(&self, handles: &mut Handles<B>) {
        let results = (self.body)(&mut Operands { handles, inputs: &self.description.inputs });
        for (output, tensor) in self.description.outputs.iter().zip(results) {
            handles.register_float_tensor::<B>(&output.id, tensor);
        }
    }
}

/// Records an operation over at least one tensor, whose float results have these shapes and types.
pub fn record<B, F>(
    name: &'static str,
    inputs: Vec<Recorded<B>>,
    outputs: Vec<(Shape, DType)>,
    body: F,
) -> Vec<Recorded<B>>
where
    B: FusionBackend,
    F: Fn(&mut Operands<'_, B>) -> Vec<FloatTensor<B>> + Send + Sync + 'static,
{
    let client = inputs[0].client.clone();
    let streams = OperationStreams::with_inputs(&inputs);
    let empty = |(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape, dtype);
    let outputs: Vec<TensorIr> = outputs.into_iter().map(empty).collect();
    let inputs: Vec<TensorIr> = inputs.into_iter().map(FusionTensor::into_ir).collect();
    let description = CustomOpIr::new(name, &inputs, &outputs);
    let recorded = Record { description: description.clone(), body, backend: PhantomData };
    client.register(streams, OperationIr::Custom(description), recorded)
}

/// [`record`] of one result.
pub fn record_one<B, F>(
    name: &'static str,
    inputs: Vec<Recorded<B>>,
    output: (Shape, DType),
    body: F,
) -> Recorded<B>
where
    B: FusionBackend,
    F: Fn(&mut Operands<'_, B>) -> FloatTensor<B> + Send + Sync + 'static,
{
    let [result] = all(record::<B, _>(name, inputs, vec![output], move |of| vec![body(of)]));
    result
}

/// [`record_one`] of `N` float operands.
pub fn record_floats<B: FusionBackend, const N: usize>(
    name: &'static str,
    inputs: [Recorded<B>; N],
    output: (Shape, DType),
    body: impl Fn([FloatTensor<B>; N]) -> FloatTensor<B> + Send + Sync + 'static,
) -> Recorded<B> {
    record_one::<B, _>(name, inputs.into(), output, move |given| body(given.floats(0)))
}

/// The shape and type of a tensor.
pub fn like(of: &impl TensorMetadata) -> (Shape, DType) {
    (of.shape(), of.dtype())
}

/// All results of an operation, which are as many as were recorded.
pub fn all<T, const N: usize>(results: Vec<T>) -> [T; N] {
    results.try_into().unwrap_or_else(|_| unreachable!("as many as were recorded"))
}
