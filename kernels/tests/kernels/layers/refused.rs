//! Shapes that do not fit, and what is said of them.

use burn::backend::Flex;
use burn::tensor::Tensor;
use fewshot_kernels::conv_stack::Moments;
use fewshot_kernels::{
    NormStatistics, batch_norm, conv2d, global_avg_pool, linear, max_pool, overlapping_max_pool,
};

use crate::refusal::refusal;

fn tensor<const D: usize>(shape: [usize; D]) -> Tensor<Flex, D> {
    Tensor::ones(shape, &Default::default())
}

fn assert_refused<T>(call: impl FnOnce() -> T, wanted: impl ToString) {
    assert_eq!(refusal(call), wanted.to_string());
}

#[test]
fn a_convolution_needs_operands_that_fit() {
    let call = |x, weight, bias: Option<usize>, stride, padding| {
        let bias = bias.map(|length| tensor([length]));
        move || conv2d(tensor(x), tensor(weight), bias, stride, padding)
    };
    let (x, weight) = ([2, 3, 8, 7], [4, 3, 3, 3]);
    let found = [0, 3, 8, 7];
    assert_refused(
        call(found, weight, None, 1, 1),
        "a convolution needs images with pixels, found the shape [0, 3, 8, 7]",
    );
    for found in [[4, 5, 3, 3], [4, 3, 3, 2]] {
        let wanted =
            format!("a convolution of 3 channels needs a weight [o, 3, k, k], found {found:?}");
        assert_refused(call(x, found, None, 1, 1), wanted);
    }
    let wanted = "a convolution to 4 channels needs as many values of bias, found 3";
    assert_refused(call(x, weight, Some(3), 1, 1), wanted);
    let wanted = "the stride of a convolution is at least 1, found 0";
    assert_refused(call(x, weight, None, 0, 1), wanted);
    let wanted = "a 3x3 window does not fit an image of 1x7 with 0 zeros around it";
    assert_refused(call([2, 3, 1, 7], weight, None, 1, 0), wanted);
}

#[test]
fn a_normalisation_needs_a_value_a_channel() {
    let norm = |gamma: usize, beta: usize, running: Option<[usize; 2]>| {
        let statistics = match running {
            None => NormStatistics::Batch,
            Some([mean, variance]) => NormStatistics::Running(Moments {
                mean: tensor([mean]),
                variance: tensor([variance]),
            }),
        };
        let (gamma, beta) = (Some(tensor([gamma])), Some(tensor([beta])));
        move || batch_norm(tensor([2, 3, 4, 4]), gamma, beta, statistics, 1e-5)
    };
    let wanted =
        |name| format!("a normalisation of 3 channels needs as many values of {name}, found 2");
    assert_refused(norm(2, 3, None), wanted("gamma"));
    assert_refused(norm(3, 2, None), wanted("beta"));
    assert_refused(norm(3, 3, Some([2, 3])), wanted("running mean"));
    assert_refused(norm(3, 3, Some([3, 2])), wanted("running variance"));
    let found = [2, 3, 0, 4];
    let call = || batch_norm(tensor(found), None, None, NormStatistics::Batch, 1e-5);
    assert_refused(call, "a normalisation needs images with pixels, found the shape [2, 3, 0, 4]");
}

#[test]
fn a_pool_needs_a_window() {
    let wanted = "a 2x2 pool would shrink an image of 1x6 to nothing";
    assert_refused(|| max_pool(tensor([2, 3, 1, 6])), wanted);
    let found = [0, 3, 4, 6];
    let wanted = "a pool needs images with pixels, found the shape [0, 3, 4, 6]";
    assert_refused(|| max_pool(tensor(found)), wanted);
    assert_refused(|| overlapping_max_pool(tensor(found)), wanted);
    assert_refused(|| global_avg_pool(tensor(found)), wanted);
}

#[test]
fn a_linear_layer_needs_operands_that_fit() {
    let wanted = "a linear layer of 4 features needs a weight [4, o], found [5, 3]";
    assert_refused(|| linear(tensor([2, 4]), tensor([5, 3]), None), wanted);
    let wanted = "a linear layer with 3 outputs needs as many values of bias, found 1";
    assert_refused(|| linear(tensor([2, 4]), tensor([4, 3]), Some(tensor([1]))), wanted);
}
