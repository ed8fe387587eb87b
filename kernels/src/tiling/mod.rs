//! Parameters laid out for tasks side by side, and their gradients added up over these.

#[cfg(feature = "cube")]
pub(crate) mod cube;
pub mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, TensorMetadata};

use crate::lists::{has_elements, in_groups, in_parts};
use crate::optim_step::StepTable;
use crate::registry;

/// Each of `xs`, `[n]` of any `n`, as often as there are `lanes`, one after the other: `[lanes * n]`.
///
/// On an accelerator one operation for all of them, of f32; below autodiff alone.
pub fn tiled_all<B: Backend>(xs: Vec<FloatTensor<B>>, lanes: usize) -> Vec<FloatTensor<B>> {
    let alone = |x| reference::tiled::<B>(x, lanes);
    match registry::table::<StepTable<B>>() {
        Some(table) => batched::<B>(xs, |xs| (table.tiled_all)(xs, lanes), alone),
        None => xs.into_iter().map(alone).collect(),
    }
}

/// The sum over the `lanes` of each of `xs`, `[lanes * n]` of any `n`: `[n]`.
///
/// On an accelerator one operation for all of them, of f32; below autodiff alone.
pub fn summed_all<B: Backend>(xs: Vec<FloatTensor<B>>, lanes: usize) -> Vec<FloatTensor<B>> {
    let alone = |x| reference::summed::<B>(x, lanes);
    match registry::table::<StepTable<B>>() {
        Some(table) => batched::<B>(xs, |xs| (table.summed_all)(xs, lanes), alone),
        None => xs.into_iter().map(alone).collect(),
    }
}

/// The results of `run` for the tensors of every device, and of `alone` for those that no body takes.
fn batched<B: Backend>(
    xs: Vec<FloatTensor<B>>,
    run: impl Fn(Vec<FloatTensor<B>>) -> Vec<FloatTensor<B>>,
    alone: impl Fn(FloatTensor<B>) -> FloatTensor<B>,
) -> Vec<FloatTensor<B>> {
    let takes = |x: &FloatTensor<B>| has_elements(x) && x.dtype() == DType::F32;
    in_parts(xs, takes, |xs| in_groups(xs, |x| B::float_device(x), |_, xs| run(xs)), alone)
}
