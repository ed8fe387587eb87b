//! What is tested on one backend, because it does not depend on which.

use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::backend::{Autodiff, Flex};
use burn::tensor::{DType, Int, Tensor};
use fewshot_kernels::{
    Metric, Route, episode_proto_loss, mahalanobis, proto_loss, prototypes, route, scores,
    with_reference,
};

use super::case::{Case, METRICS, assert_close, assert_outcomes, labels, read};
use crate::judge::{Judge, with_any_threads};
use crate::refusal::refusal;

#[test]
fn gradients_are_central_differences() {
    for metric in METRICS {
        let case = Case::new([2, 3, 2, 4, 5], metric);
        let values = case.values();
        let found = case.first::<Judge>(&values);
        for (which, side) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            for i in (0..values[side].len()).step_by(7) {
                let step = 1e-2;
                let at = |by: f32| {
                    let mut moved = values.clone();
                    moved[side][i] += by;
                    let leaves = case.leaves::<Flex>(&moved);
                    read(case.forward(&leaves)[which].clone())[0]
                };
                let difference = (at(step) - at(-step)) / (2.0 * step);
                let gradient = found[which].gradients[side][i];
                let error = (difference - gradient).abs();
                assert!(error < 2e-3, "{metric} {which} {side} {i}: {gradient}, not {difference}");
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for metric in METRICS {
        let case = Case::new([2, 33, 2, 150, 130], metric);
        with_any_threads(&format!("{metric:?}"), || case.first::<Judge>(&case.values()));
    }
}

#[test]
fn every_checkpointing_strategy_has_the_same_gradients() {
    let case = Case::new([2, 3, 2, 7, 31], Metric::Cosine);
    let values = case.values();
    let plain = case.first::<Judge>(&values);
    assert_eq!(plain, case.first::<Autodiff<Flex, BalancedCheckpointing>>(&values));
    assert!(matches!(route::<Autodiff<Judge>>(), Route::Host(_)));
}

#[test]
fn half_precision_takes_the_reference() {
    for (dtype, tolerance) in [(DType::F16, 5e-3), (DType::BF16, 4e-2)] {
        let case = Case::new([1, 3, 2, 7, 31], Metric::Cosine);
        let run = |dtype: DType| {
            let [support, queries] = case.leaves::<Flex>(&case.values()).map(|x| x.cast(dtype));
            let means = prototypes(support, labels(1, 6, 3), 3);
            let loss = proto_loss(queries, means, labels(1, 7, 3), case.metric, 1.0).loss;
            assert_eq!(loss.dtype(), dtype);
            read(loss.cast(DType::F32))
        };
        assert_close(&format!("{dtype:?}"), &run(dtype), &run(DType::F32), tolerance);
    }
}

#[test]
fn only_what_is_tracked_has_a_gradient() {
    let case = Case::new([1, 3, 2, 7, 31], Metric::SquaredEuclidean);
    let [support, queries] = case.leaves::<Judge>(&case.values());
    let queries = queries.require_grad();
    let means = prototypes(support.clone(), labels(1, 6, 3), 3);
    let found = proto_loss(queries.clone(), means, labels(1, 7, 3), case.metric, case.scale);
    let gradients = (found.loss * 2.0).backward();
    assert!(support.grad(&gradients).is_none());
    let [whole, _] = case.first::<Judge>(&case.values());
    let twice: Vec<f32> = whole.gradients[1].iter().map(|g| 2.0 * g).collect();
    assert_close("queries", &read(queries.grad(&gradients).unwrap()), &twice, 1e-6);
    assert_eq!(found.correct.dims(), [1, 7]);
}

#[test]
fn outcomes_of_large_episodes_equal_the_reference() {
    let case = Case::new([1, 100, 2, 200, 130], Metric::SquaredEuclidean);
    let values = case.values();
    let wanted = with_reference(|| case.first::<Judge>(&values));
    assert_outcomes("large", &case.first::<Judge>(&values), &wanted, [2e-5, 5e-5]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let device = Default::default();
    let rows = |t: usize, n: usize, d: usize| Tensor::<Flex, 3>::zeros([t, n, d], &device);
    let euclidean = Metric::SquaredEuclidean;
    let text = refusal(|| scores(rows(2, 3, 4), rows(1, 5, 4), euclidean));
    assert_eq!(text, "queries [2, 3, 4] need prototypes [2, at least one, 4], found [1, 5, 4]");
    let text = refusal(|| scores(rows(2, 3, 4), rows(2, 0, 4), euclidean));
    assert!(text.ends_with("found [2, 0, 4]"), "{text}");
    let text = refusal(|| prototypes(rows(2, 3, 4), labels(2, 4, 2), 2));
    assert_eq!(text, "embeddings [2, 3, 4] need labels [2, 3], found [2, 4]");
    let text =
        refusal(|| mahalanobis(rows(2, 3, 4), rows(2, 5, 4), Tensor::zeros([2, 2, 4, 4], &device)));
    assert!(text.ends_with("need a precision [2, 1 or 5, 4, 4], found [2, 2, 4, 4]"), "{text}");
    for label in [2, -1] {
        let wrong = Tensor::<Flex, 2, Int>::from_ints([[0, label]], &device);
        let wanted = format!("a label is {label}, but there are 2 classes");
        let of = wrong.clone();
        assert_eq!(refusal(|| prototypes(rows(1, 2, 4), of, 2)), wanted);
        let of = wrong.clone();
        let text = refusal(|| proto_loss(rows(1, 2, 4), rows(1, 2, 4), of, euclidean, 1.0));
        assert_eq!(text, wanted);
        let right = || labels::<Flex>(1, 2, 2);
        for of in [[wrong.clone(), right()], [right(), wrong.clone()]] {
            let loss = || episode_proto_loss(rows(1, 4, 4), of, 2, euclidean, 1.0);
            assert_eq!(refusal(loss), wanted);
        }
    }
    let of = [labels(1, 2, 2), labels(1, 1, 1)];
    let text = refusal(|| episode_proto_loss(rows(1, 4, 4), of, 2, euclidean, 1.0));
    assert!(text.ends_with("as many as embeddings, found 2 and 1"), "{text}");
    let of = [labels(1, 2, 2), labels(2, 2, 2)];
    let text = refusal(|| episode_proto_loss(rows(1, 4, 4), of, 2, euclidean, 1.0));
    assert_eq!(text, "embeddings [1, 2, 4] need labels [1, 2], found [2, 2]");
}
