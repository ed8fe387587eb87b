//! Steps recorded by Burn's fusion.

use burn::tensor::ops::{FloatTensor, FloatTensorOps};
use burn::tensor::{DType, TensorMetadata};
use burn_fusion::{Fusion, FusionBackend};

use super::{FusedSteps, StepRule, StepState, StepTensors, Stepped};
use crate::fusion::{Recorded, record};

impl<B: FusionBackend + FusedSteps> FusedSteps for Fusion<B> {
    fn takes(found: DType) -> bool {
        B::takes(found)
    }

    fn optim_step(
        of: Vec<StepTensors<FloatTensor<Self>>>,
        rule: &StepRule,
        learning_rate: f64,
    ) -> Vec<Stepped<FloatTensor<Self>>> {
        of.into_iter().map(|one| step::<B>(one, *rule, learning_rate)).collect()
    }

    fn grad_stats(gradients: Vec<FloatTensor<Self>>, factor: f64) -> (Vec<FloatTensor<Self>>, f64) {
        let scale = |gradient| match factor {
            1.0 => gradient,
            factor => Self::float_mul_scalar(gradient, factor.into()),
        };
        let gradients: Vec<Recorded<B>> = gradients.into_iter().map(scale).collect();
        let resolve = |gradient: &Recorded<B>| {
            gradient.client.clone().resolve_tensor_float::<B>(gradient.clone())
        };
        let (_, squares) = B::grad_stats(gradients.iter().map(resolve).collect(), 1.0);
        (gradients, squares)
    }
}

fn step<B: FusionBackend + FusedSteps>(
    of: StepTensors<Recorded<B>>,
    rule: StepRule,
    learning_rate: f64,
) -> Stepped<Recorded<B>> {
    let StepTensors { parameter, gradient, state: StepState { time, tensors } } = of;
    let remembered = vec![(parameter.shape(), DType::F32); rule.remembers()];
    let outputs = [(parameter.shape(), parameter.dtype())].into_iter().chain(remembered).collect();
    let old: Vec<_> = tensors.into_iter().flatten().collect();
    let olds = old.len();
    let inputs = [parameter, gradient].into_iter().chain(old).collect();
    let found = record::<B, _>("optim_step", inputs, outputs, move |given| {
        let [parameter, gradient] = given.floats(0);
        let tensors = [0, 1].map(|place| (place < olds).then(|| given.float(2 + place)));
        let state = StepState { time, tensors };
        let moved =
            B::optim_step(vec![StepTensors { parameter, gradient, state }], &rule, learning_rate);
        let parts = |one: Stepped<FloatTensor<B>>| {
            [Some(one.parameter)].into_iter().chain(one.state.tensors).flatten()
        };
        moved.into_iter().flat_map(parts).collect()
    });
    let mut found = found.into_iter();
    let parameter = found.next().expect("the parameter is recorded first");
    let tensors = [found.next(), found.next()];
    Stepped { parameter, state: StepState { time: time + 1, tensors } }
}
