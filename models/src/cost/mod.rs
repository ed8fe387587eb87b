//! What networks take of time and memory, from their configuration alone.

mod conv4;
mod mlp;

use fewshot_kernels::conv_stack::cpu::StackShape;
use fewshot_kernels::{Precision, Route};

/// What a network takes for a batch.
///
/// Elements are those of the parameters' type; fused bodies on a CPU have f32 whatever that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Multiply-accumulates of a forward pass in convolutions and matrix products; a backward pass
    /// for the parameters takes about twice as many.
    pub macs: u64,
    /// Elements that a forward pass saves for the backward pass, beside images and parameters.
    pub saved: u64,
    /// Elements of intermediate gradients, which a gradient that is itself differentiated saves besides.
    pub intermediate_grads: u64,
    /// Elements of the tangents of what is saved, which the derivative of a gradient computes.
    pub saved_tangents: u64,
    /// Elements of gradients of parameters before they are added up, which all calls that a backward
    /// pass goes through have at once.
    pub parameter_grads: u64,
    /// The most elements of gradients of activations that a backward pass has at once, beyond what is
    /// saved, which it frees as it goes. Tasks side by side have theirs at once.
    pub activation_grads: u64,
    /// Elements of working memory, however many tasks there are side by side.
    pub workspace: u64,
    /// Elements of the largest map between two layers.
    pub largest_map: u64,
    /// Elements of the features.
    pub outputs: u64,
}

/// A configuration that tells what its network takes.
///
/// # Example
/// ```
/// use burn::backend::{Autodiff, Flex};
/// use fewshot_kernels::route;
/// use fewshot_models::{Conv4Config, CostModel};
///
/// let cost = Conv4Config::mini_imagenet().cost(1, route::<Autodiff<Flex>>());
/// assert_eq!(cost.macs, 97_164_288);
/// ```
pub trait CostModel {
    /// What the network takes for `batch` inputs when its operations go this way.
    fn cost(&self, batch: usize, route: Route) -> Cost;

    /// The stack that `batch` inputs go through as one fused operation of a CPU, if they do.
    fn stack(&self, batch: usize, route: Route) -> Option<StackShape> {
        let _ = (batch, route);
        None
    }

    /// What that stack computes in.
    fn precision(&self) -> Precision {
        Precision::F32
    }

    /// What each of the network's [segments](crate::Encoder::segments) takes, first to last, where
    /// one is computed after the other; `None` where nothing tells.
    fn segment_costs(&self, batch: usize, route: Route) -> Option<Vec<SegmentCost>> {
        let _ = (batch, route);
        None
    }
}

/// What a segment of a network takes for a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCost {
    /// Elements of what goes into it.
    pub inputs: u64,
    /// What it takes while it is computed a second time and differentiated.
    pub graph: Cost,
    /// Elements that stay with the fused operations of a CPU when it is done, and are too few for
    /// the segment before it.
    pub left: u64,
}
