//! Parameters as the authors of each family draw them.

use burn::module::Initializer;
use burn::tensor::backend::Backend;
use fewshot_kernels::Precision;

use super::VitFamily;
use crate::nn::{Linear, LinearConfig};

/// The distributions that a family draws its parameters from.
pub(super) struct Draw {
    family: VitFamily,
    pub(super) token: Initializer,
    pub(super) positions: Initializer,
}

/// Deviation of weights in DINOv2.
const SMALL: Initializer = Initializer::Normal { mean: 0.0, std: 0.02 };

impl Draw {
    pub(super) fn new(family: VitFamily, width: usize) -> Self {
        let of_width = Initializer::Normal { mean: 0.0, std: (width as f64).powf(-0.5) };
        let tiny = Initializer::Normal { mean: 0.0, std: 1e-6 };
        match family {
            VitFamily::DinoV2 => Self { family, token: tiny, positions: SMALL },
            VitFamily::Clip | VitFamily::ClipGelu => {
                Self { family, token: of_width.clone(), positions: of_width }
            }
        }
    }

    /// A layer of the MLP.
    pub(super) fn linear<B: Backend>(
        &self,
        from: usize,
        to: usize,
        device: &B::Device,
    ) -> Linear<B> {
        match self.family {
            VitFamily::DinoV2 => without_bias(&SMALL, [from, to], device),
            VitFamily::Clip | VitFamily::ClipGelu => LinearConfig::new(from, to).init(device),
        }
    }

    /// Queries, keys and values.
    pub(super) fn qkv<B: Backend>(&self, width: usize, device: &B::Device) -> Linear<B> {
        let glorot = Initializer::XavierUniform { gain: 1.0 };
        match self.family {
            VitFamily::DinoV2 => without_bias(&SMALL, [width, 3 * width], device),
            VitFamily::Clip | VitFamily::ClipGelu => {
                without_bias(&glorot, [width, 3 * width], device)
            }
        }
    }

    /// The layer after attention.
    pub(super) fn mixed<B: Backend>(&self, width: usize, device: &B::Device) -> Linear<B> {
        let layer = self.linear(width, width, device);
        Linear { bias: Some(Initializer::Zeros.init([width], device)), ..layer }
    }
}

/// A layer with this draw, and biases of zero.
fn without_bias<B: Backend>(
    draw: &Initializer,
    [from, to]: [usize; 2],
    device: &B::Device,
) -> Linear<B> {
    Linear {
        weight: draw.init_with([from, to], Some(from), Some(to), device),
        bias: Some(Initializer::Zeros.init([to], device)),
        precision: Precision::F32,
    }
}
