//! Costs of networks in time and memory, from their configurations alone.

mod conv4;
mod mlp;
mod resnet12;

use fewshot_kernels::Route;

/// Cost of a network for a batch. Memory is a sum over layers, within about 30 % of what a step takes.
///
/// Elements are those of the parameters' type; fused bodies on a CPU have f32 whatever that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Multiply-accumulates of a forward pass in convolutions and matrix products; a backward pass
    /// for the parameters takes about twice as many.
    pub macs: u64,
    /// Elements of the batch that goes in.
    pub inputs: u64,
    /// Elements that a forward pass saves for the backward pass, beside images and parameters.
    pub saved: u64,
    /// Elements of intermediate gradients, which a gradient that is itself differentiated saves besides.
    pub intermediate_grads: u64,
    /// Elements of the tangents of saved maps that the derivative of a gradient has at once.
    pub tangents: u64,
    /// Elements of working memory of a backward pass beyond what is saved, where tasks follow each other.
    pub workspace: u64,
    /// Elements of the same for each of the tasks that run at once.
    pub lane_workspace: u64,
    /// Elements of the largest map between two layers.
    pub largest_map: u64,
}

/// A configuration with formulas for the cost of its network.
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
    /// Cost of the network for `batch` inputs when its operations go this way.
    fn cost(&self, batch: usize, route: Route) -> Cost;

    /// Cost of each of the network's [segments](crate::Encoder::segments), first to last, where one is
    /// computed after the other; `None` where there is no formula.
    fn segment_costs(&self, batch: usize, route: Route) -> Option<Vec<Cost>> {
        let _ = (batch, route);
        None
    }
}
