//! The outer gradient at the end of a proximal inner loop, whatever steps led there.

use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use serde::{Deserialize, Serialize};

use super::by_task::{by_task, dot};
use super::error::setting;
use super::lists::Gradients;
use super::outer_gradient::{OuterLoss, leaves};
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
    /// True for the way of the authors' code: inner steps leave out the proximal term, training makes
    /// one more step for that term at the end, and the system that conjugate gradients solve is damped,
    /// `(2 I + H / (strength + 10)) x = v`. This is no longer the gradient of a minimum, but closer to
    /// first-order MAML's, and finite wherever the steps led.
    #[serde(default)]
    pub damped: bool,
}

impl Proximal {
    /// # Errors
    /// When a number makes no sense.
    pub fn check(&self) -> Result<(), AdaptError> {
        let Self { strength, iterations, .. } = *self;
        let positive = strength.is_finite() && strength > 0.0;
        setting("proximal strength", "a positive number", strength, positive)?;
        setting("conjugate gradients", "at least 1", iterations as f64, iterations > 0)
    }

    /// The gradient with the proximal term's.
    pub(crate) fn gradient_fn<'a, B: Backend>(
        self,
        gradient_fn: &'a GradientFn<'a, B>,
        start: &'a [Tensor<B, 1>],
    ) -> impl Fn(usize, &[Tensor<B, 1>]) -> Gradients<B> + 'a {
        move |step, values| {
            let pull = |(value, start): (&Tensor<B, 1>, &Tensor<B, 1>)| {
                (value.clone() - start.clone()) * self.strength
            };
            let pulls = values.iter().zip(start).map(pull);
            let pairs = gradient_fn(step, values).into_iter().zip(pulls);
            pairs.map(|(gradient, pull)| gradient.map(|gradient| gradient + pull)).collect()
        }
    }

    /// Parameters of the outer loss, by the `end` of an inner loop with steps of `rate`: the end itself, or, where the
    /// steps were without the proximal term, the end after one step of that term alone.
    pub(crate) fn after_steps<B: Backend>(
        self,
        end: Vec<Tensor<B, 1>>,
        start: &[Tensor<B, 1>],
        rate: f64,
    ) -> Vec<Tensor<B, 1>> {
        if !self.damped {
            return end;
        }
        let pull = rate * self.strength;
        let pairs = end.into_iter().zip(start);
        pairs.map(|(end, start)| end.clone() - (end - start.clone()) * pull).collect()
    }

    /// Factors of `I` and `H` in what conjugate gradients solve.
    fn system(self) -> [f64; 2] {
        match self.damped {
            true => [1.0 + DAMPING, 1.0 / (self.strength + STRENGTH_DAMPING)],
            false => [1.0, 1.0 / self.strength],
        }
    }

    /// The gradient of `loss` of the fast weights `values` by what their inner loop began with:
    /// `(I + H / strength)^-1 v`, or that which is damped, for `lanes` tasks, with `v` the gradient of the
    /// outer loss and `H` the Hessian of the support loss, whose gradient is `gradient_fn` without the
    /// proximal term. What does not move is frozen and has no gradient here. Exact where `values` are a
    /// minimum and conjugate gradients have converged.
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
            let mut grads = outer.backward();
            let grads: Vec<_> = tracked.iter().map(|value| value.grad_remove(&mut grads)).collect();
            let indices: Vec<_> = (0..grads.len())
                .filter(|&index| adapted[index] && grads[index].is_some())
                .collect();
            let target: Vec<_> = indices.iter().filter_map(|&index| grads[index].clone()).collect();
            let solved = self.solve(target, lanes, |direction| {
                hessian_product(gradient_fn, values, &indices, direction)
            });
            let mut start = vec![None; values.len()];
            for (index, solved) in indices.into_iter().zip(solved) {
                start[index] = Some(solved);
            }
            MetaGradient { loss: outer.inner(), start, rates: Vec::new() }
        })
    }

    /// Conjugate gradients for `A x = target` with `A = I + H / strength`, or what is damped, each task by
    /// itself.
    ///
    /// They minimise `x^T A x / 2 - target^T x`, which has no minimum where `H` curves down by more than the
    /// strength, as it may at the end of too few inner steps. As in Steihaug's, the iterations of a task end
    /// where a direction has no minimum, or leads farther than [`LONGEST`], and there at that length. Never
    /// so where `H` is nowhere below `-strength / 2`: no eigenvalue of `A` is then below a half, and the
    /// solution is at most twice as long as `target`.
    ///
    /// # Source
    /// Steihaug, "The conjugate gradient method and trust regions in large scale optimization", SIAM
    /// Journal on Numerical Analysis 20 (3), 1983.
    fn solve<B: Backend>(
        self,
        target: Vec<Tensor<B, 1>>,
        lanes: usize,
        hessian: impl Fn(&[Tensor<B, 1>]) -> Vec<Tensor<B, 1>>,
    ) -> Vec<Tensor<B, 1>> {
        let mut solution: Vec<_> = target.iter().map(Tensor::zeros_like).collect();
        let mut direction = target.clone();
        let mut square = dot(&target, &target, lanes);
        let farthest = square.clone() * (LONGEST * LONGEST);
        let mut ended = square.clone().lower_elem(0.0);
        let mut residual = target;
        let [identity, of_hessian] = self.system();
        for _ in 0..self.iterations {
            let pairs = direction.iter().zip(hessian(&direction));
            let curved = pairs.map(|(one, curved)| one.clone() * identity + curved * of_hessian);
            let curved: Vec<_> = curved.collect();
            let curvature = dot(&direction, &curved, lanes);
            let length = square.clone() / (curvature.clone() + TINY);
            let there = plus(&solution, &length, &direction);
            // A comparison with NaN is false, so that NaN stays in the gradient, where the trainer sees it.
            let leaves = dot(&there, &there, lanes).greater(farthest.clone());
            let leaves = leaves.bool_or(curvature.lower_elem(0.0));
            let edge = to_edge(&solution, &direction, &farthest, lanes);
            let length = length.mask_where(leaves.clone(), edge).mask_fill(ended.clone(), 0.0);
            ended = ended.bool_or(leaves);
            solution = plus(&solution, &length, &direction);
            residual = plus(&residual, &-length, &curved);
            let next = dot(&residual, &residual, lanes);
            direction = plus(&residual, &(next.clone() / (square + TINY)), &direction);
            square = next;
        }
        solution
    }
}

/// The authors' code's `cg_damping` and `lam_damping`.
const DAMPING: f64 = 1.0;
const STRENGTH_DAMPING: f64 = 10.0;

/// Largest ratio of the lengths of an implicit gradient and of the gradient of the outer loss.
const LONGEST: f64 = 2.0;

/// So that a task whose residual is zero has no quotient of zeros.
const TINY: f64 = 1e-30;

/// Length along `direction` from `inside` to where the squared norm is `farthest`, by task, `[lanes, 1]`.
fn to_edge<B: Backend>(
    inside: &[Tensor<B, 1>],
    direction: &[Tensor<B, 1>],
    farthest: &Tensor<B, 2>,
    lanes: usize,
) -> Tensor<B, 2> {
    let along = dot(inside, direction, lanes);
    let square = dot(direction, direction, lanes);
    let left = (farthest.clone() - dot(inside, inside, lanes)).clamp_min(0.0);
    let root = (along.clone() * along.clone() + square.clone() * left).sqrt();
    (root - along) / (square + TINY)
}

/// `one + factor * other`, with a factor for each task, `[lanes, 1]`.
fn plus<B: Backend>(
    one: &[Tensor<B, 1>],
    factor: &Tensor<B, 2>,
    other: &[Tensor<B, 1>],
) -> Vec<Tensor<B, 1>> {
    let [lanes, _] = factor.dims();
    let sum = |(one, other): (&Tensor<B, 1>, &Tensor<B, 1>)| {
        let scaled = by_task(other.clone(), lanes) * factor.clone();
        one.clone() + scaled.reshape(one.dims())
    };
    one.iter().zip(other).map(sum).collect()
}

/// The Hessian whose gradient is `gradient_fn`, at `values`, times a direction of the values at
/// `indices`.
fn hessian_product<B: AutodiffBackend>(
    gradient_fn: &GradientFn<'_, B>,
    values: &[Tensor<B, 1>],
    indices: &[usize],
    direction: &[Tensor<B::InnerBackend, 1>],
) -> Vec<Tensor<B::InnerBackend, 1>> {
    let tracked = leaves(values);
    let gradients = gradient_fn(0, &tracked);
    let products = indices.iter().zip(direction).filter_map(|(&index, direction)| {
        Some((gradients[index].clone()? * Tensor::from_inner(direction.clone())).sum())
    });
    let product = products.reduce(|sum, product| sum + product).expect("a support gradient");
    let mut grads = product.backward();
    let pairs = indices.iter().zip(direction);
    pairs
        .map(|(&index, direction)| {
            tracked[index].grad_remove(&mut grads).unwrap_or_else(|| direction.zeros_like())
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
        let proximal = Proximal { strength: 4.0, iterations: 2, damped: false };
        let values = [vector(&[0.3, 0.7, -0.2, 0.1])];
        let actual = proximal.gradient(&gradient_fn, (&values, &[true]), 2, &loss, 1);
        // s (A + s)^-1 = 4 / 41 [[7, -1], [-1, 6]]
        let by_hand = |v: [f64; 2]| [7.0 * v[0] - v[1], 6.0 * v[1] - v[0]].map(|x| 4.0 / 41.0 * x);
        let expected = [by_hand([1.0, -2.0]), by_hand([0.5, 3.0])].concat();
        for (actual, expected) in read(actual.start[0].as_ref().unwrap()).iter().zip(expected) {
            assert!((actual - expected).abs() < 1e-12, "{actual} is not {expected}");
        }
    }

    /// Two tasks of the diagonal Hessian (24, -12); `s = 2`, so that the system is that of `2 + H / 12`.
    #[test]
    fn a_damped_gradient_has_a_larger_identity_and_less_of_the_hessian() {
        let hessian = vector(&[24.0, -12.0, 24.0, -12.0]);
        let gradient_fn =
            |_: usize, values: &[Tensor<B, 1>]| vec![Some(values[0].clone() * hessian.clone())];
        let weights = vector(&[4.0, 3.0, -8.0, 0.5]);
        let loss =
            |_: usize, values: &[Tensor<B, 1>]| Some((values[0].clone() * weights.clone()).sum());
        let proximal = Proximal { strength: 2.0, iterations: 2, damped: true };
        let values = [vector(&[0.0; 4])];
        let actual = proximal.gradient(&gradient_fn, (&values, &[true]), 2, &loss, 1);
        for (actual, expected) in
            read(actual.start[0].as_ref().unwrap()).iter().zip([1.0, 3.0, -2.0, 0.5])
        {
            assert!((actual - expected).abs() < 1e-12, "{actual} is not {expected}");
        }
    }

    /// At a rate of 0.1 and a strength of 2 the last step goes back a fifth of the way.
    #[test]
    fn a_damped_loop_ends_with_one_step_of_the_proximal_term() {
        let (start, end) = ([vector(&[1.0, -1.0])], vector(&[2.0, -6.0]));
        let after = |damped| {
            let proximal = Proximal { strength: 2.0, iterations: 1, damped };
            read(&proximal.after_steps(vec![end.clone()], &start, 0.1)[0].clone().inner())
        };
        assert_eq!(after(false), [2.0, -6.0]);
        for (actual, expected) in after(true).iter().zip([1.8, -5.0]) {
            assert!((actual - expected).abs() < 1e-12, "{actual} is not {expected}");
        }
    }

    /// With `s = 4`, tasks of two values each, whose Hessians are diagonal.
    #[test]
    fn where_the_loss_curves_down_the_gradient_ends_at_twice_its_length() {
        let curvatures = [
            [-5.0, -5.0],     // (1 - 5/4)^-1 v is -4 v, which ascends.
            [-3.996, -3.996], // (1 - 0.999)^-1 v is 1000 v.
            [4.0, -8.0],      // The second direction is the first to curve down.
            [4.0, 12.0],      // Solved, beside the others.
        ];
        let hessian = vector(&curvatures.concat());
        let gradient_fn =
            |_: usize, values: &[Tensor<B, 1>]| vec![Some(values[0].clone() * hessian.clone())];
        let v = [[3.0, 4.0], [3.0, 4.0], [2.0, 1.0], [2.0, 1.0]];
        let weights = vector(&v.concat());
        let loss =
            |_: usize, values: &[Tensor<B, 1>]| Some((values[0].clone() * weights.clone()).sum());
        let proximal = Proximal { strength: 4.0, iterations: 3, damped: false };
        let values = [vector(&[0.0; 8])];
        let actual = proximal.gradient(&gradient_fn, (&values, &[true]), 4, &loss, 1);
        // From (10/7, 5/7) along (30, 120) / 49.
        let far = (680_683_500_f64.sqrt() - 6300.0) / 15_300.0;
        let third = [(70.0 + 30.0 * far) / 49.0, (35.0 + 120.0 * far) / 49.0];
        let expected = [[6.0, 8.0], [6.0, 8.0], third, [1.0, 0.25]].concat();
        for (actual, expected) in read(actual.start[0].as_ref().unwrap()).iter().zip(expected) {
            assert!((actual - expected).abs() < 1e-12, "{actual} is not {expected}");
        }
    }

    /// One tensor has no part in the outer loss, one is frozen, and the third moves: with the Hessian 2
    /// and `s = 2` its gradient is `v / 2`.
    #[test]
    fn only_what_moves_and_matters_has_a_gradient() {
        let gradient_fn = |_: usize, values: &[Tensor<B, 1>]| {
            let moving = |index: usize| Some(values[index].clone() * 2.0);
            vec![moving(0), None, moving(2)]
        };
        let loss =
            |_: usize, values: &[Tensor<B, 1>]| Some((values[1].clone() * values[2].clone()).sum());
        let proximal = Proximal { strength: 2.0, iterations: 2, damped: false };
        let values = [vector(&[0.5]), vector(&[3.0]), vector(&[1.0])];
        let adapted = [true, false, true];
        let actual = proximal.gradient(&gradient_fn, (&values, &adapted), 1, &loss, 1);
        assert!(actual.start[..2].iter().all(Option::is_none));
        let moved = read(actual.start[2].as_ref().unwrap());
        assert!((moved[0] - 1.5).abs() < 1e-12, "{moved:?}");
    }

    #[test]
    fn the_proximal_term_pulls_towards_the_start() {
        let gradient_fn = |_: usize, values: &[Tensor<B, 1>]| vec![Some(values[0].zeros_like())];
        let start = [vector(&[1.0, 2.0])];
        let proximal = Proximal { strength: 3.0, iterations: 1, damped: false };
        let actual = proximal.gradient_fn(&gradient_fn, &start)(0, &[vector(&[1.5, 2.0])]);
        assert_eq!(read(&actual[0].clone().unwrap().inner()), [1.5, 0.0]);
    }
}
