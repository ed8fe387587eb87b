use burn::backend::{Autodiff, Flex};
use burn::tensor::TensorData;

use super::*;

type Trained = Autodiff<Flex>;

const D: usize = 5;

/// Numbers from -1 to 1 of this shape.
fn waves<B: Backend, const N: usize>(shape: [usize; N], from: f32) -> Tensor<B, N> {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|at| (2.3 * at as f32 + from).sin()).collect();
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

fn noise(mean: &Tensor<Trained, 3>) -> Option<Tensor<Trained, 3>> {
    Some(waves(mean.dims(), 0.7))
}

#[test]
fn gradients_by_moments_are_those_of_the_draw() {
    let moments = waves::<Trained, 3>([1, 3, 8], 0.2).require_grad();
    let weights = waves::<Trained, 3>([1, 3, 4], 1.1);
    // Of 0.1, some deviations are too small and do not move.
    let draw = Draw::new(moments.clone(), 0.1, noise);
    let found = draw.by_moments(weights.clone()).inner();
    let gradients = (draw.value * weights).sum().backward();
    let wanted = moments.grad(&gradients).unwrap();
    let still = wanted.clone().narrow(2, 4, 4).equal_elem(0.0).int().sum().into_scalar();
    assert!((1..12).contains(&still), "{still} of 12 deviations do not move");
    found.into_data().assert_approx_eq::<f32>(&wanted.into_data(), Default::default());
}

/// A head whose deviations are far from the least, where derivatives jump.
fn head() -> Leo<Trained> {
    let config = LeoConfig::new(D).with_latents(3).with_loss(LeoLoss::Sum).with_steps(2);
    let config = config.with_rate(0.5).with_fine_tuning_rate(0.3);
    let mut head = config.init(&Default::default());
    head.encoder = Param::from_tensor(waves([D, 3], 0.1));
    let positive = waves::<Trained, 2>([6, 6], 0.4).abs();
    head.relations =
        [0.5, 1.0, 1.0].map(|scale| Param::from_tensor(positive.clone() * scale)).into();
    head.decoder = Param::from_tensor(waves([3, 2 * D], 0.9) * 0.4);
    head
}

#[test]
fn the_meta_gradient_goes_through_draws_and_all_steps() {
    let head = head();
    let labels = Tensor::from_data([[0, 1, 1, 0]], &Default::default());
    let value = |x: Tensor<Trained, 3>| {
        let support = EmbeddedSupport::new(x, labels.clone(), 2);
        let weights = head.adapted_by(support, noise).weights;
        let shape = weights.dims();
        (weights * waves(shape, 0.3)).sum()
    };
    let x = waves::<Trained, 3>([1, 4, D], 0.6);
    let way = waves::<Trained, 3>([1, 4, D], 2.6);
    let tracked = x.clone().require_grad();
    let gradient = tracked.grad(&value(tracked.clone()).backward()).unwrap();
    let along: f32 = (gradient * way.clone().inner()).sum().into_scalar();
    let h = 2e-3;
    let at = |step: f64| -> f32 { value(x.clone() + way.clone() * step).into_scalar() };
    let difference = (at(h) - at(-h)) / (2.0 * h as f32);
    assert!((along - difference).abs() < 5e-3 * along.abs(), "{along} is not {difference}");
    assert!(along.abs() > 0.05, "too flat to tell: {along}");
}

#[test]
fn dropout_keeps_the_mean_of_what_it_drops() {
    let config = LeoConfig::new(D).with_dropout(0.5);
    let head = config.init::<Trained>(&Default::default());
    let x = Tensor::<Trained, 3>::ones([1, 40, D], &Default::default());
    let dropped: Vec<f32> = head.dropped(x).into_data().iter().collect();
    assert!(dropped.iter().all(|&value| value == 0.0 || value == 2.0), "{dropped:?}");
    let zeros = dropped.iter().filter(|&&value| value == 0.0).count();
    assert!((50..150).contains(&zeros), "{zeros} of 200");
}
