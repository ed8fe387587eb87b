//! Parameters laid out for tasks side by side, and their gradients added up over these.

mod autodiff;
#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "fusion")]
mod fusion;
mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, TensorMetadata};

use crate::lists::{has_elements, in_groups, in_parts};
use crate::registry::{self, Operation};

/// Each of `xs`, `[n]` of any `n`, as often as there are `lanes`, one after the other: `[lanes * n]`.
///
/// On an accelerator one operation for all of them, of f32, on the graph too.
pub fn tiled_all<B: Backend>(xs: Vec<FloatTensor<B>>, lanes: usize) -> Vec<FloatTensor<B>> {
    over_lanes::<B>(xs, lanes, OverLanes::Tiled)
}

/// The sum over the `lanes` of each of `xs`, `[lanes * n]` of any `n`: `[n]`.
///
/// On an accelerator one operation for all of them, of f32, on the graph too.
pub fn summed_all<B: Backend>(xs: Vec<FloatTensor<B>>, lanes: usize) -> Vec<FloatTensor<B>> {
    over_lanes::<B>(xs, lanes, OverLanes::Summed)
}

/// The result of each tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OverLanes {
    /// A copy for each lane.
    Tiled,
    /// The sum over lanes.
    Summed,
}

impl OverLanes {
    /// The operation on the gradient.
    fn transposed(self) -> Self {
        match self {
            Self::Tiled => Self::Summed,
            Self::Summed => Self::Tiled,
        }
    }
}

/// Tensors of any length over so many lanes: at least one, all of f32 with elements, on one device.
#[derive(Clone, Copy)]
pub(crate) struct LaneCall {
    lanes: usize,
    over: OverLanes,
}

impl Operation for LaneCall {
    type Operands<B: Backend> = Vec<FloatTensor<B>>;
    type Results<B: Backend> = Vec<FloatTensor<B>>;
}

/// All tensors of a device at once, and one by one those that no body takes.
fn over_lanes<B: Backend>(
    xs: Vec<FloatTensor<B>>,
    lanes: usize,
    over: OverLanes,
) -> Vec<FloatTensor<B>> {
    let call = LaneCall { lanes, over };
    let alone = |x| reference::over_lanes::<B>(x, call);
    let Some(body) = registry::body::<B, LaneCall>() else {
        return xs.into_iter().map(alone).collect();
    };
    let takes = |x: &FloatTensor<B>| has_elements(x) && x.dtype() == DType::F32;
    let run = |_, xs| body(xs, &call);
    in_parts(xs, takes, |xs| in_groups(xs, B::float_device, run), alone)
}
