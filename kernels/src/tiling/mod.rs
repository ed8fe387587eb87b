//! Parameters laid out for tasks side by side, and their gradients added up over these.

#[cfg(feature = "cube")]
pub(crate) mod cube;
pub mod reference;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, TensorMetadata};

use crate::axpy::AxpyTable;
use crate::lists::{has_elements, in_groups, in_parts};
use crate::registry;

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

/// What becomes of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverLanes {
    /// As many copies as there are lanes.
    Tiled,
    /// Their sum.
    Summed,
}

impl OverLanes {
    /// What becomes of the gradient.
    pub(crate) fn transposed(self) -> Self {
        match self {
            Self::Tiled => Self::Summed,
            Self::Summed => Self::Tiled,
        }
    }
}

/// All tensors of a device at once, and one by one those that no body takes.
fn over_lanes<B: Backend>(
    xs: Vec<FloatTensor<B>>,
    lanes: usize,
    what: OverLanes,
) -> Vec<FloatTensor<B>> {
    let alone = |x| reference::over_lanes::<B>(x, lanes, what);
    let Some(table) = registry::table::<AxpyTable<B>>() else {
        return xs.into_iter().map(alone).collect();
    };
    let takes = |x: &FloatTensor<B>| has_elements(x) && x.dtype() == DType::F32;
    let run = |_, xs| (table.over_lanes)(xs, lanes, what);
    in_parts(xs, takes, |xs| in_groups(xs, B::float_device, run), alone)
}
