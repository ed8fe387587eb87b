//! The loss on a device: a cube adds up all rows, and a unit writes a row of a gradient.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::prelude::*;

use super::{FusedTaskLoss, LossOf, TaskLoss};
use crate::bundle::Places;
use crate::cube::{cube_sum, elementwise, empty, empty_like, units, zeros};
use crate::smooth::{At, MovedAlong, Passed, Passes, SmoothOps};

/// Of a row of outputs and targets.
#[derive(CubeType, Clone, Copy)]
struct Row {
    /// The logarithm of the sum of exponentials.
    log_sum: f32,
    /// The sum of the targets.
    weight: f32,
    /// How the outputs move, weighed by the softmax.
    moved: f32,
}

#[cube]
fn row(
    outputs: &Array<f32>,
    targets: &Array<f32>,
    moved: &Array<f32>,
    first: usize,
    length: usize,
    #[comptime] along: bool,
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
        if comptime!(along) {
            mean += likely * moved[first + place];
        }
    }
    Row { log_sum: most + f32::ln(sum), weight, moved: mean / sum }
}

/// The loss, or how it changes where the outputs move: one cube over all rows.
#[cube(launch_unchecked)]
fn loss_kernel(
    outputs: &Array<f32>,
    targets: &Array<f32>,
    moved: &Array<f32>,
    loss: &mut Array<f32>,
    rows: usize,
    length: usize,
    share: f32,
    #[comptime] of: TaskLoss,
    #[comptime] along: bool,
    #[comptime] units: u32,
) {
    let mut sum = 0.0f32;
    let mut at = UNIT_POS as usize;
    while at < rows {
        let first = at * length;
        match comptime!(of) {
            TaskLoss::CrossEntropy => {
                let row = row(outputs, targets, moved, first, length, along);
                let mut found = row.weight * row.log_sum;
                if comptime!(along) {
                    found = row.weight * row.moved;
                }
                for place in first..first + length {
                    if comptime!(along) {
                        found -= targets[place] * moved[place];
                    } else {
                        found -= targets[place] * outputs[place];
                    }
                }
                sum += found;
            }
            TaskLoss::SquaredError => {
                for place in first..first + length {
                    let apart = outputs[place] - targets[place];
                    if comptime!(along) {
                        sum += 2.0f32 * apart * moved[place];
                    } else {
                        sum += apart * apart;
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

/// The gradient of the outputs given that of the loss; or, where the outputs move, how it changes while
/// that of the loss changes by `change`. A unit for each row.
#[cube(launch_unchecked)]
fn gradient_kernel(
    outputs: &Array<f32>,
    targets: &Array<f32>,
    moved: &Array<f32>,
    grad: &Array<f32>,
    change: &Array<f32>,
    found: &mut Array<f32>,
    rows: usize,
    length: usize,
    share: f32,
    #[comptime] of: TaskLoss,
    #[comptime] along: bool,
    #[comptime] moves: bool,
    #[comptime] changes: bool,
) {
    let at = ABSOLUTE_POS;
    if at >= rows {
        terminate!();
    }
    let first = at * length;
    let grad = grad[0] * share;
    // By what the gradient itself is multiplied.
    let mut direct = grad;
    if comptime!(along) {
        direct = 0.0f32;
        if comptime!(changes) {
            direct = change[0] * share;
        }
    }
    match comptime!(of) {
        TaskLoss::CrossEntropy => {
            let row = row(outputs, targets, moved, first, length, moves);
            for place in first..first + length {
                let likely = f32::exp(outputs[place] - row.log_sum) * row.weight;
                let mut value = direct * (likely - targets[place]);
                if comptime!(moves) {
                    value += grad * likely * (moved[place] - row.moved);
                }
                found[place] = value;
            }
        }
        TaskLoss::SquaredError => {
            for place in first..first + length {
                let mut value = direct * (outputs[place] - targets[place]);
                if comptime!(moves) {
                    value += grad * moved[place];
                }
                found[place] = 2.0f32 * value;
            }
        }
    }
}

/// Outputs and targets.
struct Operands<R: CubeRuntime>([CubeTensor<R>; 2]);

impl<R: CubeRuntime> Operands<R> {
    fn new(of: &[CubeTensor<R>]) -> Self {
        Self([&of[0], &of[1]].map(|of| into_contiguous(of.clone())))
    }

    fn loss(&self, call: &LossOf, moved: Option<&CubeTensor<R>>) -> CubeTensor<R> {
        let [outputs, targets] = &self.0;
        let loss = empty(outputs, [1], DType::F32);
        let [tasks, examples, length] = call.shape;
        let units = units(&loss.client);
        // SAFETY: outputs, targets and the movement, read where there is one, have `length` elements a
        // row, and units stop at the last row.
        unsafe {
            loss_kernel::launch_unchecked::<R>(
                &loss.client,
                CubeCount::Static(1, 1, 1),
                CubeDim::new_1d(units),
                outputs.clone().into_array_arg(),
                targets.clone().into_array_arg(),
                moved.unwrap_or(outputs).clone().into_array_arg(),
                loss.clone().into_array_arg(),
                tasks * examples,
                length,
                call.share(),
                call.of,
                moved.is_some(),
                units,
            );
        }
        loss
    }

    /// The gradient of the outputs given that of the loss, or, where `along` says so, how it changes.
    fn gradient(
        &self,
        call: &LossOf,
        grad: &CubeTensor<R>,
        along: Option<Along<'_, R>>,
    ) -> CubeTensor<R> {
        let [outputs, targets] = &self.0;
        let found = empty_like(outputs);
        let [tasks, examples, length] = call.shape;
        let rows = tasks * examples;
        let (count, dim) = elementwise(&found.client, rows);
        let moved = along.as_ref().and_then(|along| along.moved);
        let change = along.as_ref().and_then(|along| along.change);
        // SAFETY: as in `loss`; the gradient and its change have an element, and a unit writes its row.
        unsafe {
            gradient_kernel::launch_unchecked::<R>(
                &found.client,
                count,
                dim,
                outputs.clone().into_array_arg(),
                targets.clone().into_array_arg(),
                moved.unwrap_or(outputs).clone().into_array_arg(),
                grad.clone().into_array_arg(),
                change.unwrap_or(grad).clone().into_array_arg(),
                found.clone().into_array_arg(),
                rows,
                length,
                call.share(),
                call.of,
                along.is_some(),
                moved.is_some(),
                change.is_some(),
            );
        }
        found
    }
}

/// How outputs move, and the gradient of the loss.
struct Along<'a, R: CubeRuntime> {
    moved: Option<&'a CubeTensor<R>>,
    change: Option<&'a CubeTensor<R>>,
}

impl<R, F, I, BT> Passes<CubeBackend<R, F, I, BT>> for LossOf
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    type Tape = ();
    /// The gradient of the loss.
    type Between = CubeTensor<R>;
    /// How the outputs move.
    type Tangent = Option<CubeTensor<R>>;

    const READS_OPERANDS: bool = true;

    fn result(&self) -> Shape {
        [1].into()
    }

    fn forward(&self, operands: &[CubeTensor<R>], keep: bool) -> Passed<CubeTensor<R>, ()> {
        let result = Operands::new(operands).loss(self, None);
        Passed { result, aside: Vec::new(), tape: keep.then_some(()) }
    }

    fn backward(
        &self,
        at: At<'_, CubeBackend<R, F, I, BT>, Self>,
        grad: &CubeTensor<R>,
        wanted: &[bool],
        keep: bool,
    ) -> (Places<CubeBackend<R, F, I, BT>>, Option<CubeTensor<R>>) {
        let grad = into_contiguous(grad.clone());
        let operands = Operands::new(at.operands);
        let found = wanted[0].then(|| operands.gradient(self, &grad, None));
        (vec![found, None], keep.then_some(grad))
    }

    fn forward_along(
        &self,
        at: At<'_, CubeBackend<R, F, I, BT>, Self>,
        direction: &[Option<CubeTensor<R>>],
    ) -> (CubeTensor<R>, Self::Tangent) {
        let moved = direction[0].clone().map(into_contiguous);
        let change = match &moved {
            Some(moved) => Operands::new(at.operands).loss(self, Some(moved)),
            None => zeros(&at.operands[0], [1], DType::F32),
        };
        (change, moved)
    }

    fn backward_along(
        &self,
        at: At<'_, CubeBackend<R, F, I, BT>, Self>,
        MovedAlong { tangent, between, .. }: MovedAlong<'_, CubeBackend<R, F, I, BT>, Self>,
        change: Option<&CubeTensor<R>>,
        wanted: &[bool],
    ) -> Places<CubeBackend<R, F, I, BT>> {
        let change = change.cloned().map(into_contiguous);
        let along = Along { moved: tangent.as_ref(), change: change.as_ref() };
        let operands = Operands::new(at.operands);
        let found = wanted[0].then(|| operands.gradient(self, between, Some(along)));
        vec![found, None]
    }
}

impl<R, F, I, BT> FusedTaskLoss for CubeBackend<R, F, I, BT>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    fn task_loss(operands: Vec<FloatTensor<Self>>, call: &LossOf) -> FloatTensor<Self> {
        <Self as SmoothOps>::forward(call, operands, false).result
    }
}
