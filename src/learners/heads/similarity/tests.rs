use burn::backend::{Autodiff, Flex};
use burn::tensor::{Tensor, TensorData, Tolerance};

use super::*;

type Diff = Autodiff<Flex>;

const ALL: [Similarity; 4] =
    [Similarity::Dot, Similarity::Cosine, Similarity::SquaredEuclidean, Similarity::Euclidean];

/// Numbers from -1 to 1.
fn drawn<B: Backend>(dims: [usize; 3], seed: u64) -> Tensor<B, 3> {
    let mut state = seed;
    let values = (0..dims.iter().product::<usize>()).map(|_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    });
    Tensor::from_data(TensorData::new(values.collect::<Vec<_>>(), dims), &Default::default())
}

/// `s(x, w)` as it is defined.
fn defined<B: Backend>(of: Similarity, x: Tensor<B, 3>, w: Tensor<B, 3>) -> Tensor<B, 3> {
    let x = x.unsqueeze_dim::<4>(2);
    let w = w.unsqueeze_dim::<4>(1);
    let dot = |a: Tensor<B, 4>, b: Tensor<B, 4>| (a * b).sum_dim(3);
    let similarity = match of {
        Similarity::Dot => dot(x, w),
        Similarity::Cosine => {
            let lengths = dot(x.clone(), x.clone()).sqrt() * dot(w.clone(), w.clone()).sqrt();
            dot(x, w) / lengths
        }
        Similarity::SquaredEuclidean => (x - w).square().sum_dim(3) / -2.0,
        Similarity::Euclidean => (x - w).square().sum_dim(3).sqrt().neg(),
    };
    similarity.squeeze_dim(3)
}

#[test]
fn logits_are_the_temperature_times_the_similarity() {
    for of in ALL {
        let [x, w] = [drawn::<Flex>([2, 7, 5], 1), drawn([2, 3, 5], 2)];
        let scored = Scored::new(of, 3.0, x.clone(), &drawn([2, 3, 5], 3));
        let wanted = defined(of, x, w.clone()) * 3.0;
        let near = Tolerance::absolute(1e-5);
        scored.logits(w).into_data().assert_approx_eq::<f32>(&wanted.into_data(), near);
    }
}

#[test]
fn gradients_are_those_of_autodiff() {
    for of in ALL {
        let [x, slopes] = [drawn([2, 7, 5], 1), drawn([2, 7, 3], 4)];
        let w = drawn::<Diff>([2, 3, 5], 2).require_grad();
        let logits = defined(of, x, w.clone()) * 3.0;
        let loss = (logits * slopes).sum();
        let wanted = w.grad(&loss.backward()).unwrap();
        let [x, slopes] = [drawn::<Flex>([2, 7, 5], 1), drawn([2, 7, 3], 4)];
        let scored = Scored::new(of, 3.0, x, &drawn([2, 3, 5], 3));
        let found = scored.gradient(&drawn([2, 3, 5], 2), |_| slopes);
        let near = Tolerance::absolute(2e-5);
        found.into_data().assert_approx_eq::<f32>(&wanted.into_data(), near);
    }
}

#[test]
fn an_embedding_has_no_distance_to_itself_and_a_short_one_to_weights_that_moved_a_little() {
    let x = drawn::<Flex>([1, 2, 64], 1) * 100.0;
    let scored = Scored::new(Similarity::Euclidean, 1.0, x.clone(), &x);
    let of_itself = |moved: f64| {
        let logits = scored.logits(x.clone() + moved).into_data().to_vec::<f32>().unwrap();
        [logits[0], logits[3]]
    };
    assert_eq!(of_itself(0.0), [0.0; 2]);
    let slopes = Tensor::from_floats([[[1.0, 0.0], [0.0, 0.0]]], &Default::default());
    let none: f32 = scored.gradient(&x, |_| slopes).abs().max().into_scalar();
    assert_eq!(none, 0.0);
    // 2^-8 in each of 64 features, which does not round.
    for logit in of_itself(1.0 / 256.0) {
        assert!((logit + 8.0 / 256.0).abs() < 1e-3 * 8.0 / 256.0, "{logit}");
    }
}

#[test]
fn nothing_points_nowhere() {
    let [x, w] = [Tensor::<Flex, 3>::zeros([1, 2, 4], &Default::default()), drawn([1, 3, 4], 2)];
    for of in ALL {
        for [x, w] in [[x.clone(), w.clone()], [w.clone(), x.clone()], [x.clone(), x.clone()]] {
            let scored = Scored::new(of, 3.0, x, &w);
            let gradient = scored.gradient(&w, |logits| logits.ones_like());
            let largest: f32 = (scored.logits(w).abs().max() + gradient.abs().max()).into_scalar();
            assert!(largest.is_finite(), "{of:?}");
        }
    }
}
