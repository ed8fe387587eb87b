//! Steps recorded by Burn's fusion.

use burn::tensor::ops::{FloatTensor, FloatTensorOps};
use burn::tensor::{DType, TensorMetadata};
use burn_fusion::{Fusion, FusionBackend};

use super::{StepCall, StepOutput, StepRule, StepState, StepTensors};
use crate::fusion::{Recorded, record};
use crate::lists::in_groups;
use crate::registry::Runs;

impl<B: FusionBackend + Runs<StepCall>> Runs<StepCall> for Fusion<B> {
    fn run(
        parameters: Vec<StepTensors<FloatTensor<Self>>>,
        &StepCall { rule, learning_rate }: &StepCall,
    ) -> Vec<StepOutput<FloatTensor<Self>>> {
        let device = |one: &StepTensors<Recorded<B>>| Self::float_device(&one.parameter);
        in_groups(parameters, device, |_, group| steps::<B>(group, rule, learning_rate))
    }
}

/// The steps of one device, as one operation.
fn steps<B: FusionBackend + Runs<StepCall>>(
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
    let results = record::<B, _>("optim_step", inputs, outputs, move |given| {
        let mut places = 0..;
        let mut next = || given.float(places.next().expect("without end"));
        let taken = states.iter().map(|&(time, remembered)| {
            let [parameter, gradient] = [next(), next()];
            let tensors = remembered.map(|is_there| is_there.then(&mut next));
            StepTensors { parameter, gradient, state: StepState { time, tensors } }
        });
        let moved = B::run(taken.collect(), &StepCall { rule, learning_rate });
        let parts = |one: StepOutput<FloatTensor<B>>| {
            [Some(one.parameter)].into_iter().chain(one.state.tensors).flatten()
        };
        moved.into_iter().flat_map(parts).collect()
    });
    let mut results = results.into_iter();
    let mut place = |is_there: bool| {
        is_there.then(|| results.next().expect("as many tensors as were recorded"))
    };
    let stepped = |time| {
        let parameter = place(true).expect("there");
        let tensors = [0, 1].map(|number| place(number < rule.remembers()));
        StepOutput { parameter, state: StepState { time, tensors } }
    };
    times.into_iter().map(stepped).collect()
}
