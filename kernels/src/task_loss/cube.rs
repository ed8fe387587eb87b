//! The loss on a device: a cube adds up all rows, and a unit writes a row of a gradient.

use burn::tensor::DType;
use burn::tensor::ops::FloatTensor;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::prelude::*;

use super::{TaskAccuracyCall, TaskLoss, TaskLossCall};
use crate::cube::{
    cube_sum, elementwise, empty, empty_like, grid, into_contiguous, launch, unit_below, units,
    zeros,
};
use crate::max_pool::cube::beats;
use crate::registry::Runs;
use crate::twice_differentiable::{
    ForwardOutput, Gradients, PrimalTensors, TangentTensors, TwiceDifferentiable,
};

/// Sums of a row of outputs and targets.
#[derive(CubeType, Clone, Copy)]
struct Row {
    /// The logarithm of the sum of exponentials.
    log_sum: f32,
    /// The sum of the targets.
    weight: f32,
    /// The tangents of the outputs, weighted by the softmax.
    outputs_tangent: f32,
}

#[cube]
fn row(
    outputs: &Array<f32>,
    targets: &Array<f32>,
    outputs_tangent: &Array<f32>,
    first: usize,
    length: usize,
    #[comptime] tangent: bool,
) -> Row {
    let mut most = outputs[first];
    for place in 1..length {
        most = max(most, outputs[first + place]);
    }
    let mut sum = 0.0f32;
    let mut weight = 0.0f32;
    let mut mean = 0.0f32;
    for place in 0..length {
        let likely = f32::exp(outputs[first + place] - most);
        sum += likely;
        weight += targets[first + place];
        if comptime!(tangent) {
            mean += likely * outputs_tangent[first + place];
        }
    }
    Row { log_sum: most + f32::ln(sum), weight, outputs_tangent: mean / sum }
}

/// The loss, or its tangent given that of the outputs: one cube over all rows.
#[cube(launch_unchecked)]
fn loss_kernel(
    outputs: &Array<f32>,
    targets: &Array<f32>,
    outputs_tangent: &Array<f32>,
    loss: &mut Array<f32>,
    rows: usize,
    length: usize,
    share: f32,
    #[comptime] of: TaskLoss,
    #[comptime] tangent: bool,
    #[comptime] units: u32,
) {
    let mut sum = 0.0f32;
    let mut at = UNIT_POS as usize;
    while at < rows {
        let first = at * length;
        match comptime!(of) {
            TaskLoss::CrossEntropy => {
                let row = row(outputs, targets, outputs_tangent, first, length, tangent);
                let mut loss = row.weight * row.log_sum;
                if comptime!(tangent) {
                    loss = row.weight * row.outputs_tangent;
                }
                for place in first..first + length {
                    if comptime!(tangent) {
                        loss -= targets[place] * outputs_tangent[place];
                    } else {
                        loss -= targets[place] * outputs[place];
                    }
                }
                sum += loss;
            }
            TaskLoss::SquaredError => {
                for place in first..first + length {
                    let difference = outputs[place] - targets[place];
                    if comptime!(tangent) {
                        sum += 2.0f32 * difference * outputs_tangent[place];
                    } else {
                        sum += difference * difference;
                    }
                }
            }
        }
        at += comptime!(units as usize);
    }
    let sum = cube_sum(sum, units);
    if UNIT_POS == 0 {
        loss[0] = sum * share;
    }
}

/// The place of the first largest of so many values from `first` on; NaN is the largest.
#[cube]
fn largest(values: &Array<f32>, first: usize, length: usize) -> usize {
    let mut at = 0usize;
    let mut value = values[first];
    for place in 1..length {
        let other = values[first + place];
        if beats(other, value) {
            at = place;
            value = other;
        }
    }
    at
}

/// The number of rows whose largest output is where the largest target is, times `share`: one cube over all rows.
#[cube(launch_unchecked)]
fn accuracy_kernel(
    outputs: &Array<f32>,
    targets: &Array<f32>,
    accuracy: &mut Array<f32>,
    rows: usize,
    length: usize,
    share: f32,
    #[comptime] units: u32,
) {
    let mut sum = 0.0f32;
    let mut row = UNIT_POS as usize;
    while row < rows {
        let first = row * length;
        if largest(outputs, first, length) == largest(targets, first, length) {
            sum += 1.0f32;
        }
        row += comptime!(units as usize);
    }
    let sum = cube_sum(sum, units);
    if UNIT_POS == 0 {
        accuracy[0] = sum * share;
    }
}

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Runs<TaskAccuracyCall>
    for CubeBackend<R, F, I, BT>
{
    fn run(operands: [FloatTensor<Self>; 2], call: &TaskAccuracyCall) -> FloatTensor<Self> {
        let [outputs, targets] = operands.map(into_contiguous);
        let accuracy = empty(&outputs, [1], DType::F32);
        let TaskAccuracyCall { shape: [tasks, examples, length], factor } = *call;
        let (units, share) = (units(&accuracy.client), factor / examples as f64);
        // SAFETY: outputs and targets have `length` elements a row, and units stop at the last row.
        unsafe {
            launch!(accuracy_kernel, grid(&accuracy.client, [1, 1, 1], units);
                outputs, targets, accuracy; tasks * examples, length, share as f32, units);
        }
        accuracy
    }
}

/// The gradient of the outputs given that of the loss; or the tangent of that gradient, given those of the
/// outputs and of the gradient of the loss. A unit for each row.
#[cube(launch_unchecked)]
fn gradient_kernel(
    outputs: &Array<f32>,
    targets: &Array<f32>,
    outputs_tangent: &Array<f32>,
    grad: &Array<f32>,
    grad_tangent: &Array<f32>,
    gradient: &mut Array<f32>,
    rows: usize,
    length: usize,
    share: f32,
    #[comptime] of: TaskLoss,
    #[comptime] tangent: bool,
    #[comptime] has_outputs_tangent: bool,
    #[comptime] has_grad_tangent: bool,
) {
    let at = unit_below(rows);
    let first = at * length;
    let grad = grad[0] * share;
    // By what the gradient itself is multiplied.
    let mut direct = grad;
    if comptime!(tangent) {
        direct = 0.0f32;
        if comptime!(has_grad_tangent) {
            direct = grad_tangent[0] * share;
        }
    }
    match comptime!(of) {
        TaskLoss::CrossEntropy => {
            let row = row(outputs, targets, outputs_tangent, first, length, has_outputs_tangent);
            for place in first..first + length {
                let likely = f32::exp(outputs[place] - row.log_sum) * row.weight;
                let mut value = direct * (likely - targets[place]);
                if comptime!(has_outputs_tangent) {
                    value += grad * likely * (outputs_tangent[place] - row.outputs_tangent);
                }
                gradient[place] = value;
            }
        }
        TaskLoss::SquaredError => {
            for place in first..first + length {
                let mut value = direct * (outputs[place] - targets[place]);
                if comptime!(has_outputs_tangent) {
                    value += grad * outputs_tangent[place];
                }
                gradient[place] = 2.0f32 * value;
            }
        }
    }
}

impl TaskLossCall {
    /// The factor of the sum over all elements.
    fn share(&self) -> f32 {
        let [_, examples, length] = self.shape;
        let summands = match self.of {
            TaskLoss::CrossEntropy => examples,
            TaskLoss::SquaredError => examples * length,
        };
        (self.options.factor / summands as f64) as f32
    }

    /// The loss, or its tangent given that of the outputs.
    fn loss<R: CubeRuntime>(
        &self,
        operands: &[CubeTensor<R>],
        outputs_tangent: Option<&CubeTensor<R>>,
    ) -> CubeTensor<R> {
        let [outputs, targets] = contiguous(operands);
        let loss = empty(&outputs, [1], DType::F32);
        let [tasks, examples, length] = self.shape;
        let units = units(&loss.client);
        // SAFETY: outputs, targets and the tangent, read where there is one, have `length` elements a
        // row, and units stop at the last row.
        unsafe {
            launch!(loss_kernel, grid(&loss.client, [1, 1, 1], units);
                outputs, targets, outputs_tangent.unwrap_or(&outputs), loss;
                tasks * examples, length, self.share(), self.of, outputs_tangent.is_some(), units);
        }
        loss
    }

    /// The gradient of the outputs given that of the loss, or its tangent if `tangents` are given: of the
    /// outputs, and of the gradient of the loss; `None` is zero.
    fn gradient<R: CubeRuntime>(
        &self,
        operands: &[CubeTensor<R>],
        grad: &CubeTensor<R>,
        tangents: Option<[Option<&CubeTensor<R>>; 2]>,
    ) -> CubeTensor<R> {
        let [outputs, targets] = contiguous(operands);
        let gradient = empty_like(&outputs);
        let [tasks, examples, length] = self.shape;
        let rows = tasks * examples;
        let [outputs_tangent, grad_tangent] = tangents.unwrap_or([None, None]);
        // SAFETY: as in `loss`; the gradient and its tangent have an element, and a unit writes its row.
        unsafe {
            launch!(gradient_kernel, elementwise(&gradient.client, rows);
                outputs, targets, outputs_tangent.unwrap_or(&outputs), grad,
                grad_tangent.unwrap_or(grad), gradient;
                rows, length, self.share(), self.of, tangents.is_some(), outputs_tangent.is_some(),
                grad_tangent.is_some());
        }
        gradient
    }
}

/// Outputs and targets.
fn contiguous<R: CubeRuntime>(operands: &[CubeTensor<R>]) -> [CubeTensor<R>; 2] {
    [&operands[0], &operands[1]].map(|of| into_contiguous(of.clone()))
}

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement>
    TwiceDifferentiable<CubeBackend<R, F, I, BT>> for TaskLossCall
{
    type Saved = ();
    /// The gradient of the loss.
    type IntermediateGrads = CubeTensor<R>;
    /// The tangent of the outputs.
    type SavedTangent = Option<CubeTensor<R>>;

    const READS_OPERANDS: bool = true;

    fn forward(&self, operands: &[CubeTensor<R>], keep: bool) -> ForwardOutput<CubeTensor<R>, ()> {
        let result = match self.options.gradient_alone {
            true => empty(&operands[0], [1], DType::F32),
            false => self.loss(operands, None),
        };
        ForwardOutput { result, aux: Vec::new(), saved: keep.then_some(()) }
    }

    fn vjp(
        &self,
        primal: PrimalTensors<'_, CubeBackend<R, F, I, BT>, Self>,
        along: Option<TangentTensors<'_, CubeBackend<R, F, I, BT>, Self>>,
        grad: Option<&CubeTensor<R>>,
        requires_grad: &[bool],
        keep: bool,
    ) -> Gradients<CubeBackend<R, F, I, BT>, CubeTensor<R>> {
        let grad = grad.cloned().map(into_contiguous);
        let (of_loss, tangents) = match &along {
            Some(along) => {
                let tangents = [along.saved_tangent.as_ref(), grad.as_ref()];
                (Some(along.intermediate_grads), Some(tangents))
            }
            None => (grad.as_ref(), None),
        };
        let of_loss = of_loss.expect("a gradient of the loss");
        let gradient = requires_grad[0].then(|| self.gradient(primal.operands, of_loss, tangents));
        (vec![gradient, None], grad.filter(|_| keep))
    }

    fn jvp(
        &self,
        primal: PrimalTensors<'_, CubeBackend<R, F, I, BT>, Self>,
        tangents: &[Option<CubeTensor<R>>],
    ) -> (CubeTensor<R>, Self::SavedTangent) {
        let outputs_tangent = tangents[0].clone().map(into_contiguous);
        let loss_tangent = match &outputs_tangent {
            Some(outputs_tangent) => self.loss(primal.operands, Some(outputs_tangent)),
            None => zeros(&primal.operands[0], [1], DType::F32),
        };
        (loss_tangent, outputs_tangent)
    }

    fn saved_tangent(
        &self,
        _: PrimalTensors<'_, CubeBackend<R, F, I, BT>, Self>,
        tangents: &[Option<CubeTensor<R>>],
    ) -> Self::SavedTangent {
        tangents[0].clone().map(into_contiguous)
    }
}
