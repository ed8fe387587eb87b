//! Inner steps that are short where the loss is curved.

use std::cell::RefCell;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::GradientFn;
use super::by_task::{dot, scaled_by_task};
use super::lists::Gradients;

/// The gradients of `gradient_fn` for gradient descent at `rate`, those of a task scaled down where its
/// step would be longer than `1 / L`.
///
/// `L = |g - g'| / |x - x'|` is how much the gradient changed in the last step, from `x'` to `x`: along a
/// direction of curvature `L`, gradient descent at a fixed rate goes away from the minimum from `2 / L`
/// on. The first step has the rate. Factors are constants where gradients are on a graph.
///
/// # Source
/// After Malitsky and Mishchenko, "Adaptive Gradient Descent without Descent", ICML 2020, whose steps
/// are at most half as long, and grow slowly.
pub(crate) fn within_curvature<'a, B: Backend>(
    gradient_fn: impl Fn(usize, &[Tensor<B, 1>]) -> Gradients<B> + 'a,
    rate: f64,
    lanes: usize,
) -> Box<GradientFn<'a, B>> {
    let last: RefCell<Option<[Vec<Tensor<B, 1>>; 2]>> = RefCell::default();
    Box::new(move |step, values| {
        let gradients = gradient_fn(step, values);
        let moving = values.iter().zip(&gradients);
        let now = moving.filter_map(|(value, gradient)| {
            Some((value.clone().detach(), gradient.clone()?.detach()))
        });
        let (x, g): (Vec<_>, Vec<_>) = now.unzip();
        let last = last.replace(Some([x.clone(), g.clone()])).filter(|_| step > 0 && !x.is_empty());
        let Some([last_x, last_g]) = last else { return gradients };
        let moved = squared_distance(&x, &last_x, lanes);
        let turned = squared_distance(&g, &last_g, lanes) * (rate * rate);
        let steep = turned.clone().greater(moved.clone());
        let factor = (moved / turned).sqrt();
        let factor = factor.ones_like().mask_where(steep, factor).detach();
        scaled_by_task(gradients, &factor)
    })
}

/// By task, `[lanes, 1]`.
fn squared_distance<B: Backend>(
    one: &[Tensor<B, 1>],
    other: &[Tensor<B, 1>],
    lanes: usize,
) -> Tensor<B, 2> {
    let pairs = one.iter().zip(other);
    let difference: Vec<_> = pairs.map(|(one, other)| one.clone() - other.clone()).collect();
    dot(&difference, &difference, lanes)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;

    use super::*;
    use crate::adapt::{InnerLoop, InnerRates, InnerSteps};

    fn vector(values: &[f64]) -> Tensor<Flex, 1> {
        Tensor::from_data(values, (&Default::default(), burn::tensor::DType::F64))
    }

    /// Loss of two tasks in two tensors: `sum of curvature * x^2 / 2`, from ones, in steps of a tenth.
    fn descended(curvatures: [&[f64]; 2], steps: usize, limited: bool) -> Vec<Vec<f64>> {
        let curvatures = curvatures.map(vector);
        let slope = |_: usize, values: &[Tensor<Flex, 1>]| {
            let pairs = values.iter().zip(&curvatures);
            pairs.map(|(x, curvature)| Some(x.clone() * curvature.clone())).collect::<Vec<_>>()
        };
        let (inner, limit) = (InnerLoop::new(steps, 0.1), within_curvature(slope, 0.1, 2));
        let gradient_fn: &GradientFn<'_, Flex> = if limited { &*limit } else { &slope };
        let adapted = [true, true];
        let steps = InnerSteps { inner: &inner, adapted: &adapted, gradient_fn, lanes: 2 };
        let start = curvatures.iter().map(Tensor::ones_like).collect();
        let values = steps.run(start, &InnerRates::fixed()).values;
        values.into_iter().map(|values| values.into_data().iter().collect()).collect()
    }

    #[test]
    fn a_steep_task_comes_down_beside_one_that_is_left_alone() {
        let curvatures: [&[f64]; 2] = [&[2.0, 300.0], &[1.0, 3.0, 100.0, 5.0]];
        let plain = descended(curvatures, 16, false);
        let limited = descended(curvatures, 16, true);
        assert!(plain[0][1].abs() > 1e20, "{plain:?}");
        assert!(limited[0][1].abs().max(limited[1][2].abs()) < 1e-3, "{limited:?}");
        // A third of what its curvature of 3 allows.
        assert_eq!(limited[0][0], plain[0][0]);
        assert_eq!(limited[1][..2], plain[1][..2]);
    }
}
