//! The stack, its gradients and their tangents as operations on the tensors of a host backend.

use std::sync::Arc;

use burn::tensor::Tensor;
use burn::tensor::ops::FloatTensor;

use super::autodiff::{Forward, StackOps};
use super::fused::StackCall;
use super::lanes::{self, Tape};
use crate::host::{HostBackend, elements, unwrap, write};

/// The parts of a gradient as one vector: of the parameters, then of the images if wanted.
fn flat(gradients: super::cpu::Gradients) -> Vec<f32> {
    let mut flat = gradients.dparams;
    if let Some(dx) = gradients.dx {
        flat.extend(dx);
    }
    flat
}

impl<B: HostBackend> StackOps for B {
    /// The tape has it all.
    type Kept = ();

    fn keep(_: &FloatTensor<B>, _: &FloatTensor<B>) {}

    fn forward(
        images: FloatTensor<B>,
        parameters: FloatTensor<B>,
        call: &StackCall,
        keep: bool,
    ) -> Forward<B> {
        let device = B::float_device(&images);
        let (images, parameters) = (elements::<B>(&images), elements::<B>(&parameters));
        let output = lanes::forward(call, &images, &parameters, keep);
        let features = write::<B, 4>(output.features, call.features(), &device);
        let moments = vector::<B>(output.moments, &device);
        Forward {
            features: unwrap(features),
            moments: unwrap(moments),
            tape: output.tape.map(Arc::new),
        }
    }

    fn gradients((): (), grad: FloatTensor<B>, tape: &Arc<Tape>, images: bool) -> FloatTensor<B> {
        let found = flat(tape.backward(&elements::<B>(&grad), images));
        unwrap(vector::<B>(found, &B::float_device(&grad)))
    }
}

pub(super) fn vector<B: HostBackend>(elements: Vec<f32>, device: &B::Device) -> Tensor<B, 1> {
    let length = elements.len();
    write(elements, [length], device)
}
