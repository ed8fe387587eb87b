//! Steps recorded by Burn's fusion.

use burn::tensor::ops::{FloatTensor, FloatTensorOps};
use burn::tensor::{DType, TensorMetadata};
use burn_fusion::{Fusion, FusionBackend};

use super::{FusedSteps, StepOutput, StepRule, StepState, StepTensors};
use crate::axpy::scaled_all;
use crate::fusion::{Recorded, record};
use crate::lists::in_groups;

impl<B: FusionBackend + FusedSteps> FusedSteps for Fusion<B> {
    fn optim_step(
        of: Vec<StepTensors<FloatTensor<Self>>>,
        rule: &StepRule,
        learning_rate: f64,
    ) -> Vec<StepOutput<FloatTensor<Self>>> {
        let device = |one: &StepTensors<Recorded<B>>| Self::float_device(&one.parameter);
        in_groups(of, device, |_, of| steps::<B>(of, *rule, learning_rate))
    }

    fn grad_stats(gradients: Vec<FloatTensor<Self>>, factor: f64) -> (Vec<FloatTensor<Self>>, f64) {
        let gradients: Vec<Recorded<B>> = match factor {
            1.0 => gradients,
            factor => scaled_all::<Self>(gradients, factor),
        };
        let resolve = |gradient: &Recorded<B>| {
            gradient.client.clone().resolve_tensor_float::<B>(gradient.clone())
        };
        let (_, squares) = B::grad_stats(gradients.iter().map(resolve).collect(), 1.0);
        (gradients, squares)
    }
}

/// The steps of one device, as one operation.
fn steps<B: FusionBackend + FusedSteps>(
    of: Vec<StepTensors<Recorded<B>>>,
    rule: StepRule,
    learning_rate: f64,
) -> Vec<StepOutput<Recorded<B>>> {
    let (mut inputs, mut outputs, mut states) = (Vec::new(), Vec::new(), Vec::new());
    for StepTensors { parameter, gradient, state: StepState { time, tensors } } in of {
        outputs.push((parameter.shape(), parameter.dtype()));
        outputs.extend((0..rule.remembers()).map(|_| (parameter.shape(), DType::F32)));
        states.push((time, tensors.each_ref().map(Option::is_some)));
        inputs.extend([parameter, gradient].into_iter().chain(tensors.into_iter().flatten()));
    }
    let times: Vec<_> = states.iter().map(|(time, _)| time + 1).collect();
    let found = record::<B, _>("optim_step", inputs, outputs, move |given| {
        let mut places = 0..;
        let mut next = || given.float(places.next().expect("without end"));
        let taken = states.iter().map(|&(time, remembered)| {
            let [parameter, gradient] = [next(), next()];
            let tensors = remembered.map(|is_there| is_there.then(&mut next));
            StepTensors { parameter, gradient, state: StepState { time, tensors } }
        });
        let moved = B::optim_step(taken.collect(), &rule, learning_rate);
        let parts = |one: StepOutput<FloatTensor<B>>| {
            [Some(one.parameter)].into_iter().chain(one.state.tensors).flatten()
        };
        moved.into_iter().flat_map(parts).collect()
    });
    let mut found = found.into_iter();
    let mut place =
        |is_there: bool| is_there.then(|| found.next().expect("as many tensors as were recorded"));
    let stepped = |time| {
        let parameter = place(true).expect("there");
        let tensors = [0, 1].map(|number| place(number < rule.remembers()));
        StepOutput { parameter, state: StepState { time, tensors } }
    };
    times.into_iter().map(stepped).collect()
}
