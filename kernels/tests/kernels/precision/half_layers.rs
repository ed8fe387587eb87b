//! Layers whose tensors are of a low type themselves.

use fewshot_kernels::{
    Moments, NormStatistics, batch_norm, conv2d, global_avg_pool, linear, max_pool,
};

use super::*;

/// `layer` of a low map is that of its elements in f64, rounded, and so is the gradient.
fn assert_is_that_of_elements<const D: usize>(
    what: &str,
    layer: impl Fn(Tensor<Once, 4>) -> Tensor<Once, D>,
) {
    for (precision, rounding) in LOW {
        let what = format!("{what} in {precision:?}");
        let x = drawn::<Once, 4>(1, [3, 4, 6, 5]).cast(low(precision));
        let run = |x: Tensor<Once, 4>| {
            let x = x.detach().require_grad();
            let y = layer(x.clone());
            let weights = drawn::<Once, D>(2, y.dims()).cast(low(precision)).cast(y.dtype());
            let gradient = x.grad(&(y.clone() * weights).sum().backward());
            (y.inner(), gradient.expect("it is tracked"))
        };
        let (y, gradient) = run(x.clone());
        assert_eq!([y.dtype(), gradient.dtype()], [low(precision).into(); 2], "{what}");
        let (value, slope) = run(x.cast(FloatDType::F64));
        assert_eq!(value.dtype(), DType::F64, "{what}");
        assert_near(&what, &read(y), &read(value), 1.01 * rounding, 1e-6);
        assert_near(&what, &read(gradient), &read(slope), 1.01 * rounding, 1e-5);
    }
}

#[test]
fn layers_of_low_types_are_those_of_their_elements_rounded_once() {
    fn like<const D: usize, const E: usize>(
        x: &Tensor<Once, D>,
        seed: u64,
        shape: [usize; E],
    ) -> Tensor<Once, E> {
        // The same numbers in every type.
        drawn::<Once, E>(seed, shape).mul_scalar(8.0).round().div_scalar(8.0).cast(x.dtype())
    }
    assert_is_that_of_elements("conv2d", |x| {
        let (weight, bias) = (like(&x, 3, [3, 4, 3, 3]), like(&x, 4, [3]));
        conv2d(x, weight, Some(bias), 1, 1)
    });
    assert_is_that_of_elements("conv2d without a body", |x| {
        let weight = like(&x, 3, [3, 4, 5, 5]);
        conv2d(x, weight, None, 1, 2)
    });
    assert_is_that_of_elements("linear", |x| {
        let (weight, bias) = (like(&x, 3, [30, 7]), like(&x, 4, [7]));
        linear(x.reshape([12, 30]), weight, Some(bias))
    });
    assert_is_that_of_elements("max_pool", max_pool);
    assert_is_that_of_elements("global_avg_pool", global_avg_pool);
    assert_is_that_of_elements("batch_norm", |x| {
        let (gamma, beta) = (like(&x, 3, [4]), like(&x, 4, [4]));
        batch_norm(x, Some(gamma), Some(beta), NormStatistics::Batch, 1e-5).0
    });
    assert_is_that_of_elements("batch_norm with running moments", |x| {
        let (mean, variance) = (like(&x, 3, [4]), like(&x, 4, [4]).abs() + 1.0);
        let statistics = NormStatistics::Running(Moments { mean, variance });
        batch_norm(x, None, None, statistics, 1e-5).0
    });
}

#[test]
fn moments_of_low_types_are_f32() {
    // Neighbours in bf16, half of each: their mean is neither.
    let values: Vec<f32> = (0..64).map(|i| if i % 2 == 0 { 16.0 } else { 16.125 }).collect();
    let x: Tensor<Flex, 1> = Tensor::from_data(TensorData::from(&values[..]), &Default::default());
    let x = x.reshape([4, 1, 4, 4]).cast(FloatDType::BF16);
    let (y, moments) = batch_norm(x, None, None, NormStatistics::Batch, 1e-8);
    let moments = moments.expect("of the batch");
    assert_eq!([moments.mean.dtype(), moments.variance.dtype()], [DType::F32; 2]);
    assert_eq!(read(moments.mean), [16.0625]);
    assert_eq!(read(moments.variance), [0.0625 * 0.0625]);
    let wanted: Vec<f64> = values.iter().map(|v| if *v == 16.0 { -1.0 } else { 1.0 }).collect();
    assert_eq!(read(y), wanted);
}

#[test]
fn moments_in_f32_normalise_a_map_of_a_low_type() {
    let x = drawn::<Flex, 4>(1, [2, 3, 4, 4]).cast(FloatDType::BF16);
    let (_, moments) = batch_norm(x.clone(), None, None, NormStatistics::Batch, 1e-5);
    let running = NormStatistics::Running(moments.expect("of the batch"));
    let by_running = batch_norm(x.clone(), None, None, running, 1e-5).0;
    let by_batch = batch_norm(x, None, None, NormStatistics::Batch, 1e-5).0;
    assert_eq!(by_running.dtype(), DType::BF16);
    assert_near("normalised", &read(by_running), &read(by_batch), 1.0 / 256.0, 1e-6);
}
