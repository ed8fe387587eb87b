//! The outer gradient at the end of a proximal inner loop, whatever steps led there.

use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use serde::{Deserialize, Serialize};

use super::chain::{OuterLoss, leaves};
use super::error::setting;
use super::{AdaptError, GradientFn, MetaGradient};
use crate::phase::{Phase, phase_on};

/// A support loss with `strength / 2 * |theta - start|^2` added, which ties the fast weights to the
/// values they began with, and how its outer gradient is solved for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proximal {
    /// Factor of the squared distance; 2 in the paper on Omniglot.
    pub strength: f64,
    /// Iterations of conjugate gradients; 5 in the paper.
    pub iterations: usize,
}

impl Proximal {
    /// # Errors
    /// When a number makes no sense.
    pub fn check(&self) -> Result<(), AdaptError> {
        let Self { strength, iterations } = *self;
        let positive = strength.is_finite() && strength > 0.0;
        setting("proximal strength", "a positive number", strength, positive)?;
        setting("conjugate gradients", "at least 1", iterations as f64, iterations > 0)
    }

    /// The gradient with the proximal term's.
    pub(crate) fn gradient_fn<'a, B: Backend>(
        self,
        gradient_fn: &'a GradientFn<'a, B>,
        start: &'a [Tensor<B, 1>],
    ) -> impl Fn(usize, &[Tensor<B, 1>]) -> Vec<Option<Tensor<B, 1>>> + 'a {
        move |step, values| {
            let pull = |(value, start): (&Tensor<B, 1>, &Tensor<B, 1>)| {
                (value.clone() - start.clone()) * self.strength
            };
            let pulls = values.iter().zip(start).map(pull);
            let pairs = gradient_fn(step, values).into_iter().zip(pulls);
            pairs.map(|(gradient, pull)| gradient.map(|gradient| gradient + pull)).collect()
        }
    }

    /// The gradient of `loss` of the fast weights `values` by what their inner loop began with:
    /// `(I + H / strength)^-1 v` for `lanes` tasks, with `v` the gradient of the outer loss and `H`
    /// the Hessian of the support loss, whose gradient is `gradient_fn` without the proximal term.
    ///
    /// What does not move has no gradient here: it is frozen. Exact where `values` are a minimum
    /// and conjugate gradients have converged; neither takes the memory of a graph of the steps.
    pub(crate) fn gradient<B: AutodiffBackend>(
        self,
        gradient_fn: &GradientFn<'_, B>,
        (values, adapted): (&[Tensor<B, 1>], &[bool]),
        lanes: usize,
        loss: &OuterLoss<'_, B>,
        steps: usize,
    ) -> MetaGradient<B> {
        let tracked = leaves(values);
        let outer = loss(steps, &tracked).expect("an outer loss after the last step");
        let device = outer.device();
        phase_on::<B, _>(Phase::Backward, &device, || {
            let mut found = outer.backward();
            let found: Vec<_> = tracked.iter().map(|value| value.grad_remove(&mut found)).collect();
            let reached: Vec<_> = (0..found.len())
                .filter(|&index| adapted[index] && found[index].is_some())
                .collect();
            let wanted: Vec<_> = reached.iter().filter_map(|&index| found[index].clone()).collect();
            let solved = self.solve(wanted, lanes, |direction| {
                hessian_product(gradient_fn, values, &reached, direction)
            });
            let mut start = vec![None; values.len()];
            for (index, solved) in reached.into_iter().zip(solved) {
                start[index] = Some(solved);
            }
            MetaGradient { loss: outer.inner(), start, rates: Vec::new() }
        })
    }

    /// Conjugate gradients for `(I + H / strength) x = wanted`, each task by itself.
    fn solve<B: Backend>(
        self,
        wanted: Vec<Tensor<B, 1>>,
        lanes: usize,
        hessian: impl Fn(&[Tensor<B, 1>]) -> Vec<Tensor<B, 1>>,
    ) -> Vec<Tensor<B, 1>> {
        let mut solution: Vec<_> = wanted.iter().map(Tensor::zeros_like).collect();
        let mut direction = wanted.clone();
        let mut square = dot(&wanted, &wanted, lanes);
        let mut residual = wanted;
        for _ in 0..self.iterations {
            let curved = hessian(&direction).into_iter().map(|curved| curved / self.strength);
            let curved: Vec<_> =
                direction.iter().zip(curved).map(|(one, curved)| one.clone() + curved).collect();
            let length = square.clone() / (dot(&direction, &curved, lanes) + TINY);
            solution = plus(&solution, &length, &direction);
            residual = plus(&residual, &-length, &curved);
            let next = dot(&residual, &residual, lanes);
            direction = plus(&residual, &(next.clone() / (square + TINY)), &direction);
            square = next;
        }
        solution
    }
}

/// So that a task whose residual is zero has no quotient of zeros.
const TINY: f64 = 1e-30;

/// The scalar product of each task, `[lanes, 1]`.
fn dot<B: Backend>(one: &[Tensor<B, 1>], other: &[Tensor<B, 1>], lanes: usize) -> Tensor<B, 2> {
    let products = one.iter().zip(other).map(|(one, other)| {
        let product: Tensor<B, 2> = (one.clone() * other.clone()).reshape([lanes as i32, -1]);
        product.sum_dim(1)
    });
    products.reduce(|sum, product| sum + product).expect("at least one tensor")
}

/// `one + factor * other`, with a factor for each task, `[lanes, 1]`.
fn plus<B: Backend>(
    one: &[Tensor<B, 1>],
    factor: &Tensor<B, 2>,
    other: &[Tensor<B, 1>],
) -> Vec<Tensor<B, 1>> {
    let [lanes, _] = factor.dims();
    let sum = |(one, other): (&Tensor<B, 1>, &Tensor<B, 1>)| {
        let scaled: Tensor<B, 2> = other.clone().reshape([lanes as i32, -1]) * factor.clone();
        one.clone() + scaled.reshape(one.dims())
    };
    one.iter().zip(other).map(sum).collect()
}

/// The Hessian whose gradient is `gradient_fn`, at `values`, times a direction of the values that are
/// `reached`.
fn hessian_product<B: AutodiffBackend>(
    gradient_fn: &GradientFn<'_, B>,
    values: &[Tensor<B, 1>],
    reached: &[usize],
    direction: &[Tensor<B::InnerBackend, 1>],
) -> Vec<Tensor<B::InnerBackend, 1>> {
    let tracked = leaves(values);
    let gradients = gradient_fn(0, &tracked);
    let products = reached.iter().zip(direction).filter_map(|(&index, direction)| {
        Some((gradients[index].clone()? * Tensor::from_inner(direction.clone())).sum())
    });
    let product = products.reduce(|sum, product| sum + product).expect("a support gradient");
    let mut found = product.backward();
    let pairs = reached.iter().zip(direction);
    pairs
        .map(|(&index, direction)| {
            tracked[index].grad_remove(&mut found).unwrap_or_else(|| direction.zeros_like())
        })
        .collect()
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::{Autodiff, Flex};

    use super::*;

    type B = Autodiff<Flex>;

    fn vector(values: &[f64]) -> Tensor<B, 1> {
        Tensor::from_data(values, (&Default::default(), burn::tensor::DType::F64))
    }

    fn read(tensor: &Tensor<Flex, 1>) -> Vec<f64> {
        tensor.to_data().iter().collect()
    }

    /// A support loss of `x^T A x / 2 - b^T x` has the minimum `(A + s)^-1 (b + s start)` with the
    /// proximal term, whose derivative by `start` is `s (A + s)^-1`, whatever led there.
    #[test]
    fn a_quadratic_has_the_derivative_that_one_computes_by_hand() {
        // Two tasks with the same A = [[2, 1], [1, 3]]; s = 4, so that A + s has determinant 41.
        let gradient_fn = |_: usize, values: &[Tensor<B, 1>]| {
            let x: Tensor<B, 2> = values[0].clone().reshape([2, 2]);
            let (one, two) = (x.clone().narrow(1, 0, 1), x.narrow(1, 1, 1));
            let rows = [one.clone() * 2.0 + two.clone(), one + two * 3.0];
            vec![Some(Tensor::cat(rows.to_vec(), 1).reshape([4]))]
        };
        let weights = vector(&[1.0, -2.0, 0.5, 3.0]);
        let loss =
            |_: usize, values: &[Tensor<B, 1>]| Some((values[0].clone() * weights.clone()).sum());
        let proximal = Proximal { strength: 4.0, iterations: 2 };
        let values = [vector(&[0.3, 0.7, -0.2, 0.1])];
        let found = proximal.gradient(&gradient_fn, (&values, &[true]), 2, &loss, 1);
        // s (A + s)^-1 = 4 / 41 [[7, -1], [-1, 6]]
        let by_hand = |v: [f64; 2]| [7.0 * v[0] - v[1], 6.0 * v[1] - v[0]].map(|x| 4.0 / 41.0 * x);
        let expected = [by_hand([1.0, -2.0]), by_hand([0.5, 3.0])].concat();
        for (found, expected) in read(found.start[0].as_ref().unwrap()).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
        }
    }

    #[test]
    fn the_proximal_term_pulls_towards_the_start() {
        let gradient_fn = |_: usize, values: &[Tensor<B, 1>]| vec![Some(values[0].zeros_like())];
        let start = [vector(&[1.0, 2.0])];
        let proximal = Proximal { strength: 3.0, iterations: 1 };
        let found = proximal.gradient_fn(&gradient_fn, &start)(0, &[vector(&[1.5, 2.0])]);
        assert_eq!(read(&found[0].clone().unwrap().inner()), [1.5, 0.0]);
    }
}
