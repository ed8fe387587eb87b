//! Gradients of layer normalisation.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;
use rayon::prelude::*;

use super::super::layer_norm::{LayerNorm, TASK};
use super::rows_of_part;
use crate::environment::chosen;
use crate::host::{HostBackend, elements, into_elements, write_like};
use crate::layers::node::record;
use crate::registry::Runs;

impl<H: HostBackend, C: CheckpointStrategy> Runs<LayerNorm> for Autodiff<H, C> {
    fn run(operands: [FloatTensor<Self>; 3], call: &LayerNorm) -> FloatTensor<Self> {
        let parents = operands.each_ref();
        let [x, gamma, beta] = parents.map(|of| of.primitive.clone());
        let y = <H as Runs<LayerNorm>>::run([x.clone(), gamma.clone(), beta], call);
        let epsilon = call.epsilon as f32;
        record::<H, C, 3>(parents, y, move |dy, requires_grad| {
            let gradients = gradients::<H>([&x, &gamma], dy, epsilon).into_iter();
            let mut gradients =
                gradients.zip(requires_grad).map(|(of, is_asked)| is_asked.then_some(of));
            std::array::from_fn(|_| gradients.next().flatten())
        })
    }
}

/// The gradients of rows, gain and shift.
fn gradients<H: HostBackend>(
    [x, gamma]: [&FloatTensor<H>; 2],
    dy: FloatTensor<H>,
    epsilon: f32,
) -> [FloatTensor<H>; 3] {
    let shape @ [_, length]: [usize; 2] = x.shape().dims();
    let ([of_x, of_gamma], body) = ([x, gamma].map(elements::<H>), chosen());
    let mut dy = into_elements::<H>(dy);
    let rows = rows_of_part(shape, TASK);
    let parts = dy.par_chunks_mut(rows * length).zip(of_x.par_chunks(rows * length));
    let sums: Vec<_> = parts
        .map(|(dy, x)| {
            let mut sums = [vec![0.0; length], vec![0.0; length]];
            for (dy, x) in dy.chunks_exact_mut(length).zip(x.chunks_exact(length)) {
                let sums = sums.each_mut().map(|of| &mut of[..]);
                body.layer_norm_vjp(&of_gamma, epsilon, x, dy, sums);
            }
            sums
        })
        .collect();
    let [of_gain, of_shift] = [0, 1].map(|index| {
        let mut total = vec![0.0; length];
        for part in &sums {
            total.iter_mut().zip(&part[index]).for_each(|(total, of)| *total += of);
        }
        write_like::<H, 1>(x, total, [length])
    });
    [write_like::<H, 2>(x, dy, shape), of_gain, of_shift]
}
