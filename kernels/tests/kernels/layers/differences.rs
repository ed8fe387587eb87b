//! Derivatives against small steps.

use burn::tensor::backend::AutodiffBackend;

use super::case::{By, Layer, Layout};
use super::laws::{convolution, norm, plain};
use super::run::*;
use crate::judge::read;

/// What the gradient says of a small step along a direction, and what the step says.
pub fn gradients_are_central_differences<B: AutodiffBackend>() {
    let steep = norm(Layout::Contiguous, [3, 2, 3, 4], false).with("gamma", |_, v| 1.0 + v);
    for (case, step) in [
        (convolution(Layout::Contiguous, [2, 3, 5, 4], 4, 3, (1, 1)), 0.1),
        (convolution(Layout::Contiguous, [2, 3, 5, 4], 4, 3, (2, 1)), 0.1),
        (convolution(Layout::Contiguous, [2, 3, 5, 4], 4, 1, (2, 0)), 0.1),
        (steep, 0.01),
        // Distinct values, further apart than the step.
        (
            plain(Layer::MaxPool, Layout::Contiguous, [1, 2, 5, 4])
                .with("x", |i, _| (i * 7 % 40) as f32 * 0.1),
            0.01,
        ),
        (plain(Layer::Average, Layout::Contiguous, [2, 3, 4, 5]), 0.1),
        // No value is nearer to zero than the step.
        (
            plain(Layer::LeakyRelu { slope: 0.1 }, Layout::Contiguous, [1, 2, 5, 4])
                .with("x", |i, _| (i * 7 % 40) as f32 * 0.1 - 1.95),
            0.01,
        ),
        // No value is nearer to a bound.
        (
            plain(Layer::Relu6, Layout::Contiguous, [1, 2, 5, 4])
                .with("x", |i, _| (i * 7 % 40) as f32 * 0.25 - 1.9),
            0.01,
        ),
    ] {
        let moved = |by: f32| {
            let mut case = case.clone();
            for (seed, operand) in (1..).zip(&mut case.operands) {
                let along = read(direction::<B::InnerBackend>(operand.values.len(), seed));
                operand.values.iter_mut().zip(along).for_each(|(v, d)| *v += by * d);
            }
            case
        };
        let dot = |of: &[f32], seed| -> f64 {
            let along = read(direction::<B::InnerBackend>(of.len(), seed));
            of.iter().zip(along).map(|(v, d)| f64::from(*v) * f64::from(d)).sum()
        };
        let run = |by| first::<B>(&moved(by), By::Kernels, None, |_| true);
        let ends = [run(step), run(-step)];
        let slope =
            |of: &dyn Fn(&Outcome) -> f64| (of(&ends[0]) - of(&ends[1])) / (2.0 * f64::from(step));
        let along = |of: &Outcome| -> f64 {
            (1..).zip(&of.gradients).map(|(seed, (_, g))| dot(g, seed)).sum()
        };
        let what = format!("{:?}", case.layer);
        let near = |found: f64, expected: f64| {
            let error = (found - expected).abs();
            assert!(error <= 5e-3 * expected.abs().max(1.0), "{what}: {found}, not {expected}");
        };
        near(along(&run(0.0)), slope(&|end| dot(&end.output, 0)));
        // The direction that the gradients are multiplied with is the one that is stepped along.
        let found = second::<B>(&case, By::Kernels, Outer::Direction, None);
        let of_operands = found.gradients.iter().filter(|(name, _)| *name != "output_gradient");
        let curvature: f64 = (1..).zip(of_operands).map(|(seed, (_, g))| dot(g, seed)).sum();
        near(curvature, slope(&along));
    }
}
