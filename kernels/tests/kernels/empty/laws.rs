//! What an accelerator does without elements. A launch over none would leave CUDA's server unusable, so
//! kernels refuse to be launched so on every device.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Int, Tensor, TensorData, TensorPrimitive};
use fewshot_kernels::batch_norm::NormStatistics;
use fewshot_kernels::{
    Coefficient, ConvBlock, LinearLayer, Metric, Precision, StackOptions, Statistics, TaskLoss,
    axpy_all, batch_norm, conv_stack, conv2d, episode_proto_loss, global_avg_pool, inverse_power,
    leaky_relu, linear, linear_stack, max_pool, norm_relu, overlapping_max_pool, product,
    proto_loss, prototypes, rank_update, scaled_all, scores, summed_all, task_loss, tiled_all,
    weighted_sums,
};

use crate::judge::read;

/// Halves. CubeCL refuses to upload a tensor to CUDA that has no elements.
fn halves<B: Backend, const D: usize>(shape: [usize; D]) -> Tensor<B, D> {
    if shape.contains(&0) {
        return Tensor::empty(shape, &Default::default());
    }
    let values = vec![0.5f32; shape.iter().product()];
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

fn labels<B: Backend>(shape: [usize; 2]) -> Tensor<B, 2, Int> {
    if shape.contains(&0) {
        return Tensor::empty(shape, &Default::default());
    }
    let values = vec![0i32; shape.iter().product()];
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

/// This shape with each of its axes empty in turn.
fn with_an_empty_axis<const D: usize>(shape: [usize; D]) -> impl Iterator<Item = [usize; D]> {
    (0..D).map(move |axis| {
        let mut shape = shape;
        shape[axis] = 0;
        shape
    })
}

/// The elements of a result of this shape.
fn found<B: Backend, const D: usize>(result: Tensor<B, D>, wanted: [usize; D]) -> Vec<f32> {
    assert_eq!(result.dims(), wanted);
    read(result)
}

fn assert_all_zero(values: &[f32]) {
    assert!(values.iter().all(|value| *value == 0.0), "{values:?}");
}

pub fn layers_refuse_images_without_elements<B: AutodiffBackend>() {
    for shape in with_an_empty_axis([2, 3, 4, 6]) {
        let x = || halves::<B, 4>(shape);
        let weight = || halves::<B, 4>([2, shape[1], 3, 3]);
        let block = || ConvBlock {
            weight: weight(),
            bias: None,
            gamma: None,
            beta: None,
            stride: 1,
            pool: true,
        };
        let refused: [(&str, &dyn Fn()); 7] = [
            ("conv2d", &|| drop(conv2d(x(), weight(), None, 1, 1))),
            ("batch_norm", &|| drop(batch_norm(x(), None, None, NormStatistics::Batch, 1e-5))),
            ("norm_relu", &|| {
                drop(norm_relu(x(), None, None, NormStatistics::Batch, 1e-5, true));
            }),
            ("max_pool", &|| drop(max_pool(x()))),
            ("overlapping_max_pool", &|| drop(overlapping_max_pool(x()))),
            ("global_avg_pool", &|| drop(global_avg_pool(x()))),
            ("conv_stack", &|| {
                drop(conv_stack(x(), &[block()], Statistics::Batch, StackOptions::default()));
            }),
        ];
        for (name, run) in refused {
            assert_refused(name, run);
        }
        assert!(found(leaky_relu(x(), 0.1), shape).is_empty());
    }
    let no_outputs = halves::<B, 4>([0, 3, 3, 3]);
    assert_refused("conv2d", &|| {
        drop(conv2d(halves([2, 3, 4, 6]), no_outputs.clone(), None, 1, 1))
    });
    let nothing = || inverse_power(halves::<B::InnerBackend, 2>([0, 5]), None, 10.0);
    assert_refused("inverse_power", &|| drop(nothing()));
}

/// That `run` panics because of a shape, before anything is launched.
fn assert_refused(name: &str, run: &dyn Fn()) {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err(name);
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.downcast_ref::<&str>().copied()).expect("an error's text");
    let told = ["need", "to nothing", "0 examples"].iter().any(|of| text.contains(of));
    assert!(told, "{name}: {text}");
}

pub fn products_take_matrices_without_elements<B: AutodiffBackend>() {
    for [t, r, k, c] in with_an_empty_axis([2, 3, 4, 5]) {
        let of = |shape| halves::<B, 3>(shape).require_grad();
        assert_all_zero(&found(product(of([t, r, k]), of([t, k, c])), [t, r, c]));
    }
    let layer = || LinearLayer { weight: halves::<B, 2>([4, 5]), bias: Some(halves([5])) };
    found(linear_stack(halves([1, 0, 4]), &[layer()], Precision::F32), [1, 0, 5]);
    found(linear(halves::<B, 2>([0, 4]), halves([4, 5]), Some(halves([5]))), [0, 5]);
}

pub fn metrics_take_tasks_without_elements<B: AutodiffBackend>() {
    for [t, q, d] in with_an_empty_axis([2, 3, 5]) {
        let ways = 4;
        for metric in [Metric::SquaredEuclidean, Metric::Cosine] {
            let of = |rows| halves::<B, 3>([t, rows, d]).require_grad();
            assert_all_zero(&found(scores(of(q), of(ways), metric), [t, q, ways]));
            let (queries, classes) = (of(q), of(ways));
            let found = proto_loss(queries, classes, labels([t, q]), metric, 1.0);
            assert_eq!(found.correct.dims(), [t, q]);
            let loss = read(found.loss)[0];
            let wanted = if t * q == 0 { f32::NAN } else { 4f32.ln() };
            assert!(loss.to_bits() == wanted.to_bits() || (loss - wanted).abs() < 1e-5, "{loss}");
        }
    }
    let of_episode = |[t, n, q, d]: [usize; 4]| {
        let x = halves::<B, 3>([t, n + q, d]).require_grad();
        let labels = [labels([t, n]), labels([t, q])];
        episode_proto_loss(x, labels, 1, Metric::SquaredEuclidean, 1.0)
    };
    found(of_episode([2, 3, 4, 0]).loss, [1]);
    for [t, n, q] in with_an_empty_axis([2, 3, 4]) {
        assert_refused("episode_proto_loss", &|| drop(of_episode([t, n, q, 5])));
    }
    for [t, n, d] in with_an_empty_axis([2, 3, 5]) {
        let means = prototypes(halves::<B, 3>([t, n, d]).require_grad(), labels([t, n]), 4);
        assert!(found(means, [t, 4, d]).iter().all(|mean| mean.is_nan()));
    }
    found(prototypes(halves::<B, 3>([2, 3, 5]), labels([2, 3]), 0), [2, 0, 5]);
}

pub fn losses_take_tasks_without_elements<B: AutodiffBackend>() {
    for shape in with_an_empty_axis([2, 3, 4]) {
        for of in [TaskLoss::CrossEntropy, TaskLoss::SquaredError] {
            let outputs = halves::<B, 3>(shape).require_grad();
            found(task_loss(outputs, halves(shape), of), [1]);
        }
    }
}

/// Tensors of these lengths.
fn list<B: Backend>(lengths: &[usize]) -> Vec<FloatTensor<B>> {
    let one = |length: &usize| halves::<B, 1>([*length]).into_primitive().tensor();
    lengths.iter().map(one).collect()
}

fn lengths<B: Backend>(of: Vec<FloatTensor<B>>) -> Vec<usize> {
    let length = |one| Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(one)).dims()[0];
    of.into_iter().map(length).collect()
}

pub fn lists_take_tensors_without_elements<B: AutodiffBackend>() {
    for all in [&[][..], &[0], &[0, 0], &[3, 0, 2]] {
        let plain = || list::<B::InnerBackend>(all);
        assert_eq!(lengths::<B>(axpy_all::<B>(list::<B>(all), 2.0, list::<B>(all))), all);
        assert_eq!(lengths::<B>(scaled_all::<B>(list::<B>(all), 2.0)), all);
        let twice: Vec<_> = all.iter().map(|length| 2 * length).collect();
        let tiled = tiled_all::<B::InnerBackend>(plain(), 2);
        assert_eq!(
            lengths::<B::InnerBackend>(summed_all::<B::InnerBackend>(tiled.clone(), 2)),
            all
        );
        assert_eq!(lengths::<B::InnerBackend>(tiled), twice);
    }
}

pub fn plastic_updates_take_what_has_no_elements<B: AutodiffBackend>() {
    for [k, rows, columns] in with_an_empty_axis([2, 3, 4]) {
        let of = |shape| halves::<B::InnerBackend, 2>(shape);
        let (left, right) = (of([k, rows]), of([k, columns]));
        let (lost, rate) = (Coefficient::Number(0.0), Coefficient::Number(1.0));
        let weight = rank_update(of([rows, columns]), lost, left, right, rate);
        let grown = found(weight, [rows, columns]);
        assert!(grown.iter().all(|value| *value == 0.5), "{grown:?}");
        let sums = weighted_sums(of([k, columns]), of([rows, columns]));
        assert_all_zero(&found(sums, [k, rows]));
    }
}
