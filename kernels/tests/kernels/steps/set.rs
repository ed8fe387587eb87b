//! Parameters, gradients and rules to step with.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorData, TensorMetadata, TensorPrimitive};
use fewshot_kernels::optim_step::{Momentum, WeightDecay};
use fewshot_kernels::{StepOutput, StepRule, StepState, StepTensors};

/// How a tensor lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    Contiguous,
    /// With its axes stored in the opposite order.
    Permuted,
    /// With one value along the first axis.
    Expanded,
    /// Behind other values.
    Sliced,
}

/// Uniform between -1 and 1.
pub fn values(count: usize, seed: u64) -> Vec<f32> {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let draw = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(draw).take(count).collect()
}

pub fn vector<B: Backend>(values: &[f32]) -> FloatTensor<B> {
    let tensor = Tensor::<B, 1>::from_data(TensorData::from(values), &Default::default());
    tensor.into_primitive().tensor()
}

pub fn shaped<B: Backend>(values: &[f32], shape: &[usize]) -> FloatTensor<B> {
    B::float_reshape(vector::<B>(values), shape.to_vec().into())
}

/// Random values of this shape in this layout.
pub fn laid_out<B: Backend>(shape: &[usize], layout: Layout, seed: u64) -> FloatTensor<B> {
    let count: usize = shape.iter().product();
    match layout {
        Layout::Contiguous => shaped::<B>(&values(count, seed), shape),
        Layout::Permuted => {
            let stored: Vec<usize> = shape.iter().rev().copied().collect();
            let axes: Vec<usize> = (0..shape.len()).rev().collect();
            B::float_permute(shaped::<B>(&values(count, seed), &stored), &axes)
        }
        Layout::Expanded => {
            let mut stored = shape.to_vec();
            stored[0] = 1;
            let one = shaped::<B>(&values(count / shape[0].max(1), seed), &stored);
            B::float_expand(one, shape.to_vec().into())
        }
        Layout::Sliced => {
            let wide = Tensor::<B, 1>::from_data(
                TensorData::from(&*values(count + 9, seed)),
                &Default::default(),
            );
            let part = wide.narrow(0, 7, count).into_primitive().tensor();
            B::float_reshape(part, shape.to_vec().into())
        }
    }
}

/// The elements; where there are none, no device is asked for them.
pub fn read<B: Backend>(tensor: &FloatTensor<B>) -> Vec<f32> {
    if tensor.shape().num_elements() == 0 {
        return Vec::new();
    }
    let tensor = Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(tensor.clone()));
    tensor.into_data().convert::<f32>().into_vec().unwrap()
}

/// The elements of a parameter and of its state.
pub fn read_all<B: Backend>(of: &StepOutput<FloatTensor<B>>) -> Vec<Vec<f32>> {
    let state = of.state.tensors.iter().flatten();
    std::iter::once(&of.parameter).chain(state).map(read::<B>).collect()
}

/// What has moved, with the next gradient.
pub fn next<T>(moved: StepOutput<T>, gradient: T) -> StepTensors<T> {
    StepTensors { parameter: moved.parameter, gradient, state: moved.state }
}

pub fn first<T>(parameter: T, gradient: T) -> StepTensors<T> {
    StepTensors { parameter, gradient, state: StepState::default() }
}

pub fn adam(weight_decay: WeightDecay) -> StepRule {
    StepRule::Adam { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-8, weight_decay }
}

pub fn sgd(momentum: Option<[f64; 2]>, nesterov: bool, weight_decay: f64) -> StepRule {
    let momentum = momentum.map(|[factor, dampening]| Momentum { factor, dampening, nesterov });
    StepRule::Sgd { momentum, weight_decay: WeightDecay::L2(weight_decay) }
}

pub fn lamb(weight_decay: f64) -> StepRule {
    StepRule::Lamb { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-6, weight_decay }
}

pub fn rules() -> Vec<StepRule> {
    vec![
        sgd(None, false, 0.0),
        sgd(None, false, 0.1),
        StepRule::Sgd { momentum: None, weight_decay: WeightDecay::Decoupled(0.1) },
        sgd(Some([0.9, 0.0]), false, 0.0),
        sgd(Some([0.8, 0.1]), false, 0.1),
        sgd(Some([0.9, 0.2]), true, 0.1),
        adam(WeightDecay::NONE),
        adam(WeightDecay::L2(0.1)),
        adam(WeightDecay::Decoupled(0.1)),
        lamb(0.0),
        lamb(0.1),
    ]
}

/// Asserts that both are the same numbers, to within rounding.
pub fn assert_close(what: &str, found: &[f32], wanted: &[f32], tolerance: f32) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (i, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
        let same = found == wanted
            || found.is_nan() && wanted.is_nan()
            || (found - wanted).abs() <= tolerance * (1.0 + wanted.abs());
        assert!(same, "{what}, element {i}: {found}, not {wanted}");
    }
}
