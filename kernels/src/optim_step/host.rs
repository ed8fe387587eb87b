//! Steps of every host backend.

use std::borrow::Cow;

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, TensorMetadata};

use super::cpu::{self, Elements};
use super::{FusedSteps, StepOutput, StepRule, StepState, StepTensors};
use crate::cpu::instruction_set::chosen;
use crate::grad_stats;
use crate::host::{HostBackend, elements, into_elements, write_shape};

impl<B: HostBackend> FusedSteps for B {
    fn optim_step(
        of: Vec<StepTensors<FloatTensor<B>>>,
        rule: &StepRule,
        learning_rate: f64,
    ) -> Vec<StepOutput<FloatTensor<B>>> {
        let (gradients, mut moving): (Vec<_>, Vec<_>) =
            of.into_iter().map(|one| Moving::<B>::new(one, rule)).unzip();
        let gradients: Vec<Cow<'_, [f32]>> = gradients.iter().map(elements::<B>).collect();
        let parameters = moving.iter_mut().zip(&gradients).map(|(one, gradient)| Elements {
            factors: rule.factors(one.time, learning_rate),
            p: &mut one.parameter,
            g: gradient,
            state: one.state.each_mut().map(Vec::as_mut_slice),
        });
        cpu::step(chosen(), parameters.collect());
        moving.into_iter().map(|one| one.stepped(rule)).collect()
    }

    fn grad_stats(gradients: Vec<FloatTensor<B>>, factor: f64) -> (Vec<FloatTensor<B>>, f64) {
        let body = chosen();
        if factor == 1.0 {
            let read: Vec<_> = gradients.iter().map(elements::<B>).collect();
            let squares = grad_stats::cpu::squares(body, &read);
            drop(read);
            return (gradients, squares);
        }
        let places: Vec<_> =
            gradients.iter().map(|tensor| (tensor.shape(), B::float_device(tensor))).collect();
        let mut scaled: Vec<_> = gradients.into_iter().map(into_elements::<B>).collect();
        let squares = grad_stats::cpu::scale(body, &mut scaled, factor as f32);
        let tensors = scaled.into_iter().zip(places);
        let tensor = |(elements, (shape, device))| write_shape::<B>(elements, shape, &device);
        (tensors.map(tensor).collect(), squares)
    }
}

/// A parameter and its state in memory of their own.
struct Moving<B: HostBackend> {
    shape: Shape,
    device: B::Device,
    time: usize,
    parameter: Vec<f32>,
    state: [Vec<f32>; 2],
}

impl<B: HostBackend> Moving<B> {
    /// The gradient beside it.
    fn new(of: StepTensors<FloatTensor<B>>, rule: &StepRule) -> (FloatTensor<B>, Self) {
        let StepTensors { parameter, gradient, state: StepState { time, tensors } } = of;
        let (shape, device) = (parameter.shape(), B::float_device(&parameter));
        let mut tensors = tensors.into_iter();
        let state = [0, 1].map(|place| match tensors.next().flatten() {
            Some(tensor) => into_elements::<B>(tensor),
            None if place < rule.remembers() => vec![0.0; shape.num_elements()],
            None => Vec::new(),
        });
        (gradient, Self { shape, device, time, parameter: into_elements::<B>(parameter), state })
    }

    fn stepped(self, rule: &StepRule) -> StepOutput<FloatTensor<B>> {
        let Self { shape, device, time, parameter, state } = self;
        let tensor = |elements| write_shape::<B>(elements, shape.clone(), &device);
        let mut remembered = state.into_iter().take(rule.remembers()).map(tensor);
        let tensors = [remembered.next(), remembered.next()];
        StepOutput { parameter: tensor(parameter), state: StepState { time: time + 1, tensors } }
    }
}
