//! The layers as an operation on slices.

use std::borrow::Cow;

use burn::tensor::Shape;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;

use super::LinearLayer;
use super::cpu::{self, Lane, Tangents, Workspace};
use crate::host::{HostBackend, elements, write_shape};
use crate::parallel_lanes::map_lanes;
use crate::twice_differentiable::{
    ForwardOutput, Gradients, PrimalTensors, TangentTensors, TwiceDifferentiable, operand_tensors,
};

/// The settings of a fused body, of linear layers with ReLU between them.
///
/// Its operands are `[t, n, i]`, then weight `[t * i, o]` and bias `[t * o]` of every layer, and it gives
/// `[t, n, o]`. All operands are f32; an absent bias comes as zeros. There is at least one lane and one example.
#[derive(Clone, Debug)]
pub struct LinearCall {
    /// Lanes, which share nothing.
    pub lanes: usize,
    /// Examples of every lane.
    pub examples: usize,
    /// Inputs of the first layer, then outputs of every layer.
    pub widths: Vec<usize>,
    /// True for each layer with a bias; without, its place has any numbers on a device and zeros on a host.
    pub biased: Vec<bool>,
}

impl LinearCall {
    /// # Panics
    /// When the layers do not fit each other or `x`.
    pub(super) fn new<B: Backend>(
        [lanes, examples, features]: [usize; 3],
        layers: &[LinearLayer<B>],
    ) -> Self {
        assert!(!layers.is_empty(), "a stack of linear layers needs at least one");
        let mut widths = vec![features];
        for (layer, LinearLayer { weight, bias }) in layers.iter().enumerate() {
            let (features, weight_shape) = (widths[layer], weight.dims());
            assert!(
                weight_shape[0] == lanes * features,
                "layer {layer} of {lanes} lanes with {features} features each needs a weight \
                 [{}, o], found {weight_shape:?}",
                lanes * features
            );
            let empty = features == 0 || weight_shape[1] == 0;
            assert!(!empty, "layer {layer} has no inputs or no outputs");
            let biases = lanes * weight_shape[1];
            let values = bias.as_ref().map_or(biases, |bias| bias.dims()[0]);
            assert!(
                values == biases,
                "layer {layer} needs {biases} values of bias, one an output of every lane, \
                 found {values}"
            );
            widths.push(weight_shape[1]);
        }
        let biased = layers.iter().map(|layer| layer.bias.is_some()).collect();
        Self { lanes, examples, widths, biased }
    }

    /// True if there are no examples.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes * self.examples == 0
    }

    /// Shape of what the last layer gives.
    pub(super) fn outputs(&self) -> [usize; 3] {
        [self.lanes, self.examples, self.widths[self.widths.len() - 1]]
    }

    fn lane<'a>(&'a self, operands: &'a [&'a [f32]], index: usize) -> Lane<'a> {
        let operands = self.lane_part(operands, index);
        Lane { examples: self.examples, widths: &self.widths, operands }
    }

    /// One lane's part of what holds lane after lane.
    fn lane_part<'a, T>(&self, all: &'a [T], index: usize) -> &'a [T] {
        let length = all.len() / self.lanes;
        &all[index * length..][..length]
    }

    /// The results of `part` on every tensor for the first lane, then for the next one.
    fn parts<'a, T, P>(&self, all: &'a [T], part: impl Fn(&'a T, usize) -> P) -> Vec<P> {
        let part = &part;
        (0..self.lanes).flat_map(|lane| all.iter().map(move |of| part(of, lane))).collect()
    }

    fn operand_parts<'a>(&self, all: &'a [Cow<'_, [f32]>]) -> Vec<&'a [f32]> {
        self.parts(all, |of, lane| self.lane_part(of, lane))
    }

    fn tangent_parts<'a>(&self, all: &'a [Option<Cow<'_, [f32]>>]) -> Vec<Option<&'a [f32]>> {
        self.parts(all, |of, lane| Some(self.lane_part(of.as_deref()?, lane)))
    }

    /// Zeros for the outputs of all layers but the last `but`.
    fn layer_outputs(&self, but: usize) -> Vec<f32> {
        let widths: usize = self.widths[1..self.widths.len() - but].iter().sum();
        vec![0.0; self.lanes * self.examples * widths]
    }
}

/// Operands are `x`, then weight and bias of every layer.
impl<H: HostBackend> TwiceDifferentiable<H> for LinearCall {
    /// The hidden activations.
    type Saved = Vec<f32>;
    /// The gradients of all layers' outputs before ReLU.
    type IntermediateGrads = Vec<f32>;
    /// The tangent of the hidden activations.
    type SavedTangent = Vec<f32>;

    const READS_OPERANDS: bool = true;

    fn forward(
        &self,
        operands: &[FloatTensor<H>],
        keep: bool,
    ) -> ForwardOutput<FloatTensor<H>, Vec<f32>> {
        let device = H::float_device(&operands[0]);
        let operands: Vec<_> = operands.iter().map(elements::<H>).collect();
        let operands = self.operand_parts(&operands);
        let mut results = vec![self.result()];
        results.extend(keep.then(|| self.layer_outputs(1)));
        map_lanes(&mut results, self.work(1), Workspace::new, |workspace, index, to| {
            let (y, hidden) = to.split_first_mut().expect("the result");
            let hidden = hidden.first_mut().map(|hidden| &mut **hidden);
            cpu::forward(workspace, self.lane(&operands, index), hidden, y);
        });
        let mut results = results.into_iter();
        let result = results.next().expect("the result");
        let result = write_shape::<H>(result, self.outputs().into(), &device);
        ForwardOutput { result, aux: Vec::new(), saved: results.next() }
    }

    fn vjp(
        &self,
        PrimalTensors { saved, operands, device }: PrimalTensors<'_, H, Self>,
        along: Option<TangentTensors<'_, H, Self>>,
        grad: Option<&FloatTensor<H>>,
        requires_grad: &[bool],
        keep: bool,
    ) -> Gradients<H, Vec<f32>> {
        let operands: Vec<_> = operands.iter().map(elements::<H>).collect();
        let operands = self.operand_parts(&operands);
        let grad = grad.map(elements::<H>);
        let tangents = along.as_ref().map_or(&[][..], |along| along.tangents);
        let tangents: Vec<_> = tangents.iter().map(|of| of.as_ref().map(elements::<H>)).collect();
        let tangents = self.tangent_parts(&tangents);
        let mut results = self.zeros(requires_grad);
        results.extend(keep.then(|| self.layer_outputs(0)));
        let work = self.work(if along.is_some() { 4 } else { 2 });
        map_lanes(&mut results, work, Workspace::new, |workspace, index, to| {
            let along = along.as_ref().map(|along| Tangents {
                operands: self.lane_part(&tangents, index),
                hidden_tangent: self.lane_part(along.saved_tangent, index),
                layer_grads: self.lane_part(along.intermediate_grads, index),
            });
            let lane = self.lane(&operands, index);
            let hidden = self.lane_part(saved, index);
            let grad = grad.as_deref().map(|grad| self.lane_part(grad, index));
            let (to, layer_grads) = to.split_at_mut(requires_grad.len());
            let layer_grads = layer_grads.first_mut().map(|grads| &mut **grads);
            cpu::backward(workspace, lane, (hidden, along), grad, layer_grads, to);
        });
        let intermediate_grads = if keep { results.pop() } else { None };
        let results = results.into_iter().map(Some);
        let shape = |place| self.operand_shape(place);
        (operand_tensors::<H>(results, requires_grad, shape, device), intermediate_grads)
    }

    fn jvp(
        &self,
        PrimalTensors { saved, operands, device }: PrimalTensors<'_, H, Self>,
        tangents: &[Option<FloatTensor<H>>],
    ) -> (FloatTensor<H>, Vec<f32>) {
        let operands: Vec<_> = operands.iter().map(elements::<H>).collect();
        let operands = self.operand_parts(&operands);
        let tangents: Vec<_> = tangents.iter().map(|of| of.as_ref().map(elements::<H>)).collect();
        let tangents = self.tangent_parts(&tangents);
        let mut results = [self.result(), self.layer_outputs(1)];
        map_lanes(&mut results, self.work(2), Workspace::new, |workspace, index, to| {
            let lane = self.lane(&operands, index);
            let hidden = self.lane_part(saved, index);
            let [y, hidden_tangent] = to else { unreachable!("two tensors have two parts") };
            let tangents = self.lane_part(&tangents, index);
            cpu::jvp(workspace, lane, hidden, tangents, hidden_tangent, y);
        });
        let [tangent, hidden_tangent] = results;
        (write_shape::<H>(tangent, self.outputs().into(), device), hidden_tangent)
    }
}

impl LinearCall {
    /// Shape of the operand in this place.
    pub(super) fn operand_shape(&self, place: usize) -> Shape {
        let Some(place) = place.checked_sub(1) else {
            return [self.lanes, self.examples, self.widths[0]].into();
        };
        let [inputs, outputs] = [self.widths[place / 2], self.widths[place / 2 + 1]];
        match place % 2 {
            0 => [self.lanes * inputs, outputs].into(),
            _ => [self.lanes * outputs].into(),
        }
    }

    /// Zeros for the result.
    fn result(&self) -> Vec<f32> {
        vec![0.0; self.outputs().iter().product()]
    }

    /// The lanes, and the multiply-adds of so many passes.
    fn work(&self, passes: usize) -> (usize, usize) {
        let weights: usize = self.widths.windows(2).map(|sides| sides[0] * sides[1]).sum();
        (self.lanes, passes * self.lanes * self.examples * weights)
    }

    /// Zeros for every operand; nothing for an `x` that is not wanted.
    fn zeros(&self, requires_grad: &[bool]) -> Vec<Vec<f32>> {
        let zeros = |place| match place == 0 && !requires_grad[0] {
            true => Vec::new(),
            false => vec![0.0; self.operand_shape(place).num_elements()],
        };
        (0..requires_grad.len()).map(zeros).collect()
    }
}
