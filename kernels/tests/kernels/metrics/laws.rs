//! What holds on every backend.

use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{FloatDType, Int, Tensor, TensorData, f16};
use fewshot_kernels::{
    Metric, distances, episode_proto_loss, mahalanobis, proto_loss, prototypes, split_at,
    with_reference,
};

use super::case::{
    Case, METRICS, assert_close, assert_outcome, assert_outcomes, labels, numbers, read,
};
use super::golden::Golden;
use crate::judge::Judge;

/// Tasks, ways, shots, queries, features.
const SIZES: [[usize; 5]; 5] =
    [[1, 5, 1, 75, 64], [2, 3, 2, 7, 31], [1, 1, 1, 1, 1], [3, 33, 1, 31, 33], [1, 17, 3, 100, 5]];

fn cases() -> impl Iterator<Item = Case> {
    let all = SIZES.into_iter().flat_map(|sizes| METRICS.map(|metric| Case::new(sizes, metric)));
    // On a line, cosines do not change, and their derivatives are what rounding leaves.
    all.filter(|case| case.features > 1 || case.metric == Metric::SquaredEuclidean)
}

fn equal_to_judge<B: AutodiffBackend>(case: Case, values: &[Vec<f32>; 2]) {
    let found = case.first::<B>(values);
    let wanted = with_reference(|| case.first::<Judge>(values));
    assert_outcomes(&format!("{case:?}"), &found, &wanted, [2e-5, 5e-5]);
}

pub fn values_and_gradients_equal_the_reference<B: AutodiffBackend>() {
    cases().for_each(|case| equal_to_judge::<B>(case, &case.values()));
}

/// The values of a case, rounded to f16.
fn of_f16(case: &Case) -> [Vec<f32>; 2] {
    let rounded = |value: f32| f16::from_f32(value).to_f32();
    case.values().map(|side| side.into_iter().map(rounded).collect())
}

/// Products, lengths, softmax and loss of f16 are found in f32: what is rounded are operands, scores,
/// prototypes, and gradients of these.
pub fn sums_over_f16_are_f32<B: AutodiffBackend>() {
    for single in cases() {
        let case = Case { low: Some(FloatDType::F16), ..single };
        let values = of_f16(&case);
        let wanted = with_reference(|| single.first::<Judge>(&values));
        let found = case.first::<B>(&values);
        assert_outcomes(&format!("{case:?}"), &found, &wanted, [2e-3, 4e-3]);
        assert!(found != wanted || case.ways == 1, "{case:?}: nothing was rounded");
    }
}

pub fn second_gradients_equal_the_reference<B: AutodiffBackend>() {
    for case in cases() {
        let found = case.second::<B>(&case.values());
        let wanted = with_reference(|| case.second::<Judge>(&case.values()));
        let moves = |outcome: &super::case::Outcome| {
            outcome.gradients.iter().flatten().any(|x| x.abs() > 1e-4)
        };
        // One class has no loss.
        assert!(wanted.iter().all(moves) || case.ways == 1, "{case:?}");
        assert_outcomes(&format!("second, {case:?}"), &found, &wanted, [1e-4, 5e-4]);
    }
}

/// Also with more classes than units of a cube, with more vectors than those, and more classes than it takes.
pub fn the_loss_of_episodes_equals_the_reference<B: AutodiffBackend>() {
    let larger = [[1, 150, 1, 20, 9], [1, 3, 2, 5, 1030], [1, 1030, 1, 3, 4]];
    let larger = larger.map(|sizes| Case::new(sizes, Metric::Cosine));
    for case in cases().chain(larger) {
        let (found, accuracy) = case.of_episode::<B>(&case.values());
        let (wanted, share) = with_reference(|| case.of_episode::<Judge>(&case.values()));
        let what = format!("{case:?}");
        assert_outcome(&what, &found, &wanted, [2e-5, 5e-5]);
        assert!((accuracy - share).abs() < 1e-6, "{what}: accuracy {accuracy}, not {share}");
    }
    for metric in METRICS {
        let case = Case { permuted: true, ..Case::new([2, 3, 2, 9, 17], metric) };
        let (found, _) = case.of_episode::<B>(&case.values());
        let (wanted, _) = with_reference(|| case.of_episode::<Judge>(&case.values()));
        assert_outcome("another layout", &found, &wanted, [2e-5, 5e-5]);
    }
}

pub fn second_gradients_of_episodes_equal_the_reference<B: AutodiffBackend>() {
    for case in cases().filter(|case| case.ways > 1) {
        let found = case.second_of_episode::<B>(&case.values());
        let wanted = with_reference(|| case.second_of_episode::<Judge>(&case.values()));
        assert!(wanted.gradients.iter().flatten().any(|x| x.abs() > 1e-4), "{case:?}");
        assert_outcome(&format!("second, {case:?}"), &found, &wanted, [1e-4, 5e-4]);
    }
}

/// The f16 of operands and results, and nothing else, is rounded.
pub fn the_loss_of_episodes_of_f16_is_f32<B: AutodiffBackend>() {
    for single in cases() {
        let case = Case { low: Some(FloatDType::F16), ..single };
        let values = of_f16(&case);
        let (wanted, _) = with_reference(|| single.of_episode::<Judge>(&values));
        let (found, _) = case.of_episode::<B>(&values);
        assert_outcome(&format!("{case:?}"), &found, &wanted, [2e-3, 4e-3]);
        assert!(found != wanted || case.ways == 1, "{case:?}: nothing was rounded");
    }
}

/// The queries of another task, and other queries of this, have the gradients that they would have without.
pub fn what_is_not_finite_in_a_query_stays_in_its_task<B: AutodiffBackend>() {
    for metric in METRICS {
        let case = Case::new([2, 3, 2, 7, 31], metric);
        for bad in [f32::NAN, f32::INFINITY] {
            let mut values = case.values();
            values[1][3 * 31 + 2] = bad;
            let (found, _) = case.of_episode::<B>(&values);
            assert!(found.output[0].is_nan(), "{metric} {bad}");
            for (row, g) in found.gradients[1].chunks(31).enumerate() {
                assert_eq!(g.iter().any(|g| g.is_nan()), row == 3, "{metric} {bad} query {row}");
            }
            let of_tasks: Vec<_> = found.gradients[0].chunks(6 * 31).collect();
            assert!(of_tasks[0].iter().all(|g| g.is_nan()), "{metric} {bad}");
            assert!(of_tasks[1].iter().all(|g| g.is_finite()), "{metric} {bad}");
        }
    }
}

/// On a device: a support example of no class has a gradient of zero, and a query of none no loss.
pub fn labels_of_no_class_are_seen<B: AutodiffBackend>() {
    let device = Default::default();
    let x = Tensor::<B, 3>::from_floats([[[1.0], [9.0], [3.0], [2.0]]], &device).require_grad();
    let of = |labels: &[i32]| {
        let count = labels.len();
        let labels = TensorData::new(labels.to_vec(), [1, count]);
        Tensor::<B, 2, Int>::from_data(labels, &device)
    };
    let metric = Metric::SquaredEuclidean;
    let found = episode_proto_loss(x.clone(), [of(&[0, 7, 1]), of(&[1])], 2, metric, 1.0);
    let gradient = read(x.grad(&found.loss.clone().backward()).expect("it was tracked"));
    assert_close("loss", &read(found.loss), &[2f32.ln()], 1e-6);
    // Half way between 1 and 3, softmax is a half for each: the query's gradient is (-2 (2 - 1) + 2 (2 - 3)) / 2.
    assert_close("gradient", &gradient, &[1.0, 0.0, 1.0, -2.0], 1e-6);
    let found = episode_proto_loss(x, [of(&[0, 0, 1]), of(&[-1])], 2, metric, 1.0);
    assert!(read(found.loss)[0].is_nan());
    assert_eq!(read(found.accuracy), [0.0]);
}

pub fn other_layouts_equal_the_reference<B: AutodiffBackend>() {
    for metric in METRICS {
        let case = Case { permuted: true, ..Case::new([2, 3, 2, 9, 17], metric) };
        equal_to_judge::<B>(case, &case.values());
    }
    // Two tasks that share their queries.
    let case = Case::new([1, 3, 2, 9, 17], Metric::SquaredEuclidean);
    let [support, queries] = case.leaves::<B>(&case.values());
    let (support, queries) = (support.repeat_dim(0, 2), queries.expand([2, 9, 17]));
    let loss = |queries: Tensor<B, 3>| {
        let means = prototypes(support.clone(), labels::<B>(2, 6, 3), 3);
        read(proto_loss(queries, means, labels(2, 9, 3), case.metric, 1.0).loss)
    };
    let copied = Tensor::from_data(queries.to_data(), &Default::default());
    assert_close("shared queries", &loss(queries), &loss(copied), 1e-6);
}

pub fn what_is_not_finite_spreads_as_in_the_reference<B: AutodiffBackend>() {
    for metric in METRICS {
        let case = Case::new([2, 3, 2, 7, 31], metric);
        for bad in [f32::NAN, f32::INFINITY] {
            let mut values = case.values();
            values[1][3 * 31 + 2] = bad;
            let [support, queries] = case.leaves::<B>(&values);
            let queries = queries.require_grad();
            let means = prototypes(support, labels::<B>(2, 6, 3), 3);
            let loss = proto_loss(queries.clone(), means, labels(2, 7, 3), metric, 1.0).loss;
            let gradients = queries.grad(&loss.backward()).expect("it was tracked");
            assert!(read(loss)[0].is_nan(), "{metric} {bad}");
            for (row, g) in read(gradients).chunks(31).enumerate() {
                let bad_row = row == 3;
                assert_eq!(g.iter().any(|g| g.is_nan()), bad_row, "{metric} {bad} query {row}");
            }
        }
    }
}

pub fn a_single_class_has_no_loss<B: AutodiffBackend>() {
    let case = Case::new([2, 1, 3, 5, 8], Metric::SquaredEuclidean);
    let [loss, _] = case.first::<B>(&case.values());
    assert_eq!(loss.output, [0.0]);
    assert!(loss.gradients.iter().flatten().all(|g| g.abs() < 1e-6));
}

pub fn no_queries_have_no_loss<B: AutodiffBackend>() {
    let device = Default::default();
    let queries = Tensor::<B, 3>::empty([1, 0, 4], &device);
    let none = Tensor::<B, 2, Int>::empty([1, 0], &device);
    let means = Tensor::<B, 3>::ones([1, 2, 4], &device).require_grad();
    let found = proto_loss(queries, means, none, Metric::SquaredEuclidean, 1.0);
    assert!(read(found.loss)[0].is_nan());
    assert_eq!(found.correct.dims(), [1, 0]);
}

pub fn a_class_without_examples_has_no_prototype<B: AutodiffBackend>() {
    let device = Default::default();
    let rows =
        Tensor::<B, 3>::from_floats([[[1.0, 2.0], [3.0, 5.0]], [[7.0, 0.0], [1.0, 0.0]]], &device);
    let of_rows = Tensor::<B, 2, Int>::from_ints([[2, 2], [0, 1]], &device);
    let found = read(prototypes(rows, of_rows, 3));
    let nan = f32::NAN;
    let wanted = [nan, nan, nan, nan, 2.0, 3.5, 7.0, 0.0, 1.0, 0.0, nan, nan];
    assert_close("prototypes", &found, &wanted, 1e-6);
}

pub fn an_episode_with_a_class_without_examples_has_no_loss<B: AutodiffBackend>() {
    let device = Default::default();
    let x = Tensor::<B, 3>::from_floats([[[1.0], [9.0], [3.0], [2.0]]], &device).require_grad();
    let of = |labels: [i32; 2]| Tensor::<B, 2, Int>::from_ints([labels], &device);
    for metric in METRICS {
        let found = episode_proto_loss(x.clone(), [of([0, 0]), of([0, 0])], 2, metric, 1.0);
        let gradient = read(x.grad(&found.loss.clone().backward()).expect("it was tracked"));
        assert!(read(found.loss)[0].is_nan(), "{metric}");
        assert!(gradient[2..].iter().all(|g| g.is_nan()), "{metric}: {gradient:?}");
    }
}

pub fn distances_are_those_of_the_definition<B: AutodiffBackend>() {
    let (d, ways, count) = (5, 3, 4);
    let (q, p) = (numbers(count * d, 1), numbers(ways * d, 2));
    // Symmetric or not, a precision has a distance.
    let precisions = numbers(ways * d * d, 3);
    let tensor = |values: &[f32], shape: [usize; 3]| {
        Tensor::<B, 3>::from_data(TensorData::new(values.to_vec(), shape), &Default::default())
    };
    let (queries, means) = (tensor(&q, [1, count, d]), tensor(&p, [1, ways, d]));
    type Pair<'a> = &'a dyn Fn(&[f32], &[f32], usize) -> f32;
    let by_definition = |of: Pair<'_>| -> Vec<f32> {
        let rows = q.chunks(d).flat_map(|q| p.chunks(d).enumerate().map(move |(k, p)| (q, p, k)));
        rows.map(|(q, p, k)| of(q, p, k)).collect()
    };
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let apart = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<f32>>();
    let euclidean = by_definition(&|q, p, _| dot(&apart(q, p), &apart(q, p)));
    let found = distances(queries.clone(), means.clone(), Metric::SquaredEuclidean);
    assert_close("squared Euclidean", &read(found), &euclidean, 1e-5);
    let cosine = by_definition(&|q, p, _| 1.0 - dot(q, p) / (dot(q, q) * dot(p, p)).sqrt());
    let found = distances(queries.clone(), means.clone(), Metric::Cosine);
    assert_close("cosine", &read(found), &cosine, 1e-5);
    for matrices in [1, ways] {
        let values = &precisions[..matrices * d * d];
        let precision = tensor(values, [matrices, d, d]).unsqueeze_dim::<4>(0);
        let of = by_definition(&|q, p, k| {
            let m = &values[k % matrices * d * d..][..d * d];
            let difference = apart(q, p);
            let mapped: Vec<f32> = m.chunks(d).map(|row| dot(row, &difference)).collect();
            dot(&difference, &mapped)
        });
        let found = read(mahalanobis(queries.clone(), means.clone(), precision));
        assert_close(&format!("Mahalanobis, {matrices} matrices"), &found, &of, 2e-5);
    }
}

pub fn values_and_derivatives_are_those_of_pytorch<B: AutodiffBackend>() {
    for golden in Golden::all() {
        let case = golden.case();
        let values = [golden.support.clone(), golden.queries.clone()];
        let what = format!("{case:?}");
        let [loss, scores] = case.first::<B>(&values);
        assert_close(&what, &[loss.output, scores.output].concat(), &golden.values, 2e-5);
        let gradients = [loss.gradients, scores.gradients];
        for (found, wanted) in gradients.iter().flatten().zip(&golden.gradients) {
            assert_close(&what, found, wanted, 5e-5);
        }
        let second = case.second::<B>(&values).map(|outcome| outcome.gradients);
        for (found, wanted) in second.iter().flatten().zip(&golden.second) {
            assert_close(&format!("second, {what}"), found, wanted, 5e-4);
        }
    }
}

/// Where both parts are used, and where one is.
pub fn parts_have_the_gradients_of_slices<B: AutodiffBackend>() {
    let shape = [2, 7, 3];
    let leaf = || {
        let values = numbers(42, 1);
        let x = Tensor::<B, 1>::from_floats(values.as_slice(), &Default::default());
        x.reshape(shape).detach().require_grad()
    };
    for at in [1, 3, 6] {
        for used in [[1.0, 2.0], [1.0, 0.0], [0.0, 2.0]] {
            let gradient = |x: Tensor<B, 3>, parts: [Tensor<B, 3>; 2]| {
                let values = parts.each_ref().map(|part| read(part.clone() * 1.0));
                let parts = parts.into_iter().zip(used).filter(|(_, factor)| *factor != 0.0);
                let cubes = parts.map(|(part, factor)| part.powi_scalar(3).sum() * factor);
                let gradients = cubes.reduce(|sum, more| sum + more).unwrap().backward();
                (values, read(x.grad(&gradients).unwrap()))
            };
            let x = leaf();
            let found = gradient(x.clone(), split_at(x, at));
            let x = leaf();
            let slices = [x.clone().narrow(1, 0, at), x.clone().narrow(1, at, 7 - at)];
            assert_eq!(found, gradient(x, slices), "{used:?} at {at}");
        }
    }
}
