//! The statistics under Burn's fusion: its streams are run up to the gradients.

use burn::tensor::ops::FloatTensor;
use burn_fusion::{Fusion, FusionBackend};

use super::{GradParts, GradPartsCall, GradStatsCall, reference};
use crate::axpy::scaled_all;
use crate::fusion::Recorded;
use crate::registry::Runs;

impl<B: FusionBackend + Runs<GradStatsCall>> Runs<GradStatsCall> for Fusion<B> {
    fn run(
        gradients: Vec<FloatTensor<Self>>,
        &GradStatsCall { factor }: &GradStatsCall,
    ) -> (Vec<FloatTensor<Self>>, f64) {
        let gradients: Vec<Recorded<B>> = match factor {
            1.0 => gradients,
            factor => scaled_all::<Self>(gradients, factor),
        };
        let resolve = |gradient: &Recorded<B>| {
            gradient.client.clone().resolve_tensor_float::<B>(gradient.clone())
        };
        let inner = gradients.iter().map(resolve).collect();
        let (_, squares) = B::run(inner, &GradStatsCall { factor: 1.0 });
        (gradients, squares)
    }
}

impl<B: FusionBackend> Runs<GradPartsCall> for Fusion<B> {
    fn run(gradients: Vec<FloatTensor<Self>>, _: &GradPartsCall) -> GradParts<Self> {
        reference::grad_parts::<Self>(gradients)
    }
}
