//! The layers on a device: a launch for every product, with the bias, the ReLU and what gates a
//! gradient in the same one, and the gradient of a bias in that of its weight.

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::reshape;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::LinearCall;
use crate::bundle::Places;
use crate::cube::{Finish, Matrices, Products};
use crate::smooth::{At, MovedAlong, Passed, Passes};

/// One layer of every lane.
struct Layer {
    lanes: usize,
    examples: usize,
    inputs: usize,
    outputs: usize,
}

/// Two factors.
type Pair<'a, R> = Option<[&'a CubeTensor<R>; 2]>;

impl Layer {
    /// The factors of examples `[t, n, i]` and weights `[t * i, o]` as matrices: `[t, n, o]`.
    fn forward<R: CubeRuntime>(
        &self,
        pairs: [Pair<'_, R>; 2],
        like: &CubeTensor<R>,
        finish: Finish<R>,
    ) -> CubeTensor<R> {
        let &Self { lanes, examples, inputs, outputs } = self;
        let term = |[x, weight]: [&CubeTensor<R>; 2]| {
            [
                Matrices::new(x.clone(), [examples, inputs]),
                Matrices::new(weight.clone(), [inputs, outputs]),
            ]
        };
        let terms = pairs.into_iter().flatten().map(term).collect();
        let sizes = [lanes, examples, inputs, outputs];
        Products { terms, sizes, dtype: DType::F32 }.finished(like, finish)
    }

    /// Of gradients `[t, n, o]` and weights: `[t, n, i]`, gated.
    fn through_weights<R: CubeRuntime>(
        &self,
        pairs: [Pair<'_, R>; 2],
        like: &CubeTensor<R>,
        gate: Option<&CubeTensor<R>>,
    ) -> CubeTensor<R> {
        let &Self { lanes, examples, inputs, outputs } = self;
        let term = |[grad, weight]: [&CubeTensor<R>; 2]| {
            [
                Matrices::new(grad.clone(), [examples, outputs]),
                Matrices::new(weight.clone(), [inputs, outputs]).transposed(),
            ]
        };
        let terms = pairs.into_iter().flatten().map(term).collect();
        let sizes = [lanes, examples, outputs, inputs];
        let finish = Finish { gate: gate.cloned(), ..Finish::default() };
        Products { terms, sizes, dtype: DType::F32 }.finished(like, finish)
    }

    /// Of examples and gradients: the gradient of the weight, and that of the bias where the first pair
    /// is there, else zeros.
    fn of_parameters<R: CubeRuntime>(
        &self,
        pairs: [Pair<'_, R>; 2],
        like: &CubeTensor<R>,
    ) -> [CubeTensor<R>; 2] {
        let &Self { lanes, examples, inputs, outputs } = self;
        let term = |[x, grad]: [&CubeTensor<R>; 2]| {
            [
                Matrices::new(x.clone(), [examples, inputs]).transposed(),
                Matrices::new(grad.clone(), [examples, outputs]),
            ]
        };
        let summed = pairs[0].is_some();
        let terms = pairs.into_iter().flatten().map(term).collect();
        let sizes = [lanes, inputs, examples, outputs];
        let products = Products { terms, sizes, dtype: DType::F32 };
        let [weight, bias] = products.with_totals(like, summed);
        [reshape(weight, [lanes * inputs, outputs].into()), bias]
    }
}

/// A call whose operands are on a device.
struct OnDevice<'a, R: CubeRuntime> {
    layers: Vec<Layer>,
    operands: &'a [CubeTensor<R>],
}

impl<'a, R: CubeRuntime> OnDevice<'a, R> {
    fn new(call: &LinearCall, operands: &'a [CubeTensor<R>]) -> Self {
        let (lanes, examples) = (call.lanes(), call.examples());
        let layer =
            |sides: &[usize]| Layer { lanes, examples, inputs: sides[0], outputs: sides[1] };
        Self { layers: call.widths().windows(2).map(layer).collect(), operands }
    }

    fn weight(&self, layer: usize) -> &'a CubeTensor<R> {
        &self.operands[1 + 2 * layer]
    }

    fn last(&self) -> usize {
        self.layers.len() - 1
    }

    /// What a layer gets.
    fn input<'b>(&self, hidden: &'b [CubeTensor<R>], layer: usize) -> &'b CubeTensor<R>
    where
        'a: 'b,
    {
        layer.checked_sub(1).map_or(&self.operands[0], |before| &hidden[before])
    }
}

fn contiguous<R: CubeRuntime>(operands: &[CubeTensor<R>]) -> Vec<CubeTensor<R>> {
    operands.iter().cloned().map(into_contiguous).collect()
}

impl<R, F, I, BT> Passes<CubeBackend<R, F, I, BT>> for LinearCall
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    /// The hidden activations.
    type Tape = Vec<CubeTensor<R>>;
    /// The gradients of all layers' outputs before ReLU.
    type Between = Vec<CubeTensor<R>>;
    /// How the hidden activations move.
    type Tangent = Vec<CubeTensor<R>>;

    const READS_OPERANDS: bool = true;

    fn result(&self) -> Shape {
        self.outputs().into()
    }

    fn forward(&self, operands: &[CubeTensor<R>], keep: bool) -> Passed<CubeTensor<R>, Self::Tape> {
        let operands = contiguous(operands);
        let on = OnDevice::new(self, &operands);
        let (mut x, mut hidden) = (operands[0].clone(), Vec::new());
        for (index, layer) in on.layers.iter().enumerate() {
            let bias = self.is_biased(index).then(|| operands[2 + 2 * index].clone());
            let finish = Finish { bias, relu: index < on.last(), gate: None };
            let y = layer.forward([Some([&x, on.weight(index)]), None], &x, finish);
            if keep && index < on.last() {
                hidden.push(y.clone());
            }
            x = y;
        }
        Passed { aside: Vec::new(), result: x, tape: keep.then_some(hidden) }
    }

    fn backward(
        &self,
        at: At<'_, CubeBackend<R, F, I, BT>, Self>,
        grad: &CubeTensor<R>,
        wanted: &[bool],
        keep: bool,
    ) -> (Places<CubeBackend<R, F, I, BT>>, Option<Self::Between>) {
        let operands = contiguous(at.operands);
        let on = OnDevice::new(self, &operands);
        let mut found: Places<CubeBackend<R, F, I, BT>> = wanted.iter().map(|_| None).collect();
        let mut between = Vec::new();
        let mut grad = into_contiguous(grad.clone());
        for (index, layer) in on.layers.iter().enumerate().rev() {
            if wanted[1 + 2 * index] || wanted[2 + 2 * index] {
                let x = on.input(at.tape, index);
                let [weight, bias] = layer.of_parameters([Some([x, &grad]), None], &grad);
                found[1 + 2 * index] = Some(weight);
                found[2 + 2 * index] = Some(bias);
            }
            if keep {
                between.push(grad.clone());
            }
            let pairs = [Some([&grad, on.weight(index)]), None];
            match index.checked_sub(1) {
                Some(below) if keep || wanted[..1 + 2 * index].contains(&true) => {
                    grad = layer.through_weights(pairs, &grad, Some(&at.tape[below]));
                }
                None if wanted[0] => found[0] = Some(layer.through_weights(pairs, &grad, None)),
                _ => break,
            }
        }
        between.reverse();
        (found, keep.then_some(between))
    }

    fn forward_along(
        &self,
        at: At<'_, CubeBackend<R, F, I, BT>, Self>,
        direction: &[Option<CubeTensor<R>>],
    ) -> (CubeTensor<R>, Self::Tangent) {
        let operands = contiguous(at.operands);
        let on = OnDevice::new(self, &operands);
        let moves: Vec<_> =
            direction.iter().map(|moved| moved.clone().map(into_contiguous)).collect();
        let (mut x_moved, mut tangent) = (moves[0].clone(), Vec::new());
        for (index, layer) in on.layers.iter().enumerate() {
            let weight_moved = moves[1 + 2 * index].as_ref();
            let pairs = [
                x_moved.as_ref().map(|moved| [moved, on.weight(index)]),
                weight_moved.map(|moved| [on.input(at.tape, index), moved]),
            ];
            let bias = moves[2 + 2 * index].clone();
            let finish = Finish { bias, relu: false, gate: at.tape.get(index).cloned() };
            let moved = layer.forward(pairs, &operands[0], finish);
            if index < on.last() {
                tangent.push(moved.clone());
            }
            x_moved = Some(moved);
        }
        (x_moved.expect("at least one layer"), tangent)
    }

    fn backward_along(
        &self,
        at: At<'_, CubeBackend<R, F, I, BT>, Self>,
        MovedAlong { direction, tangent, between }: MovedAlong<'_, CubeBackend<R, F, I, BT>, Self>,
        change: Option<&CubeTensor<R>>,
        wanted: &[bool],
    ) -> Places<CubeBackend<R, F, I, BT>> {
        let operands = contiguous(at.operands);
        let on = OnDevice::new(self, &operands);
        let moves: Vec<_> =
            direction.iter().map(|moved| moved.clone().map(into_contiguous)).collect();
        let mut found: Places<CubeBackend<R, F, I, BT>> = wanted.iter().map(|_| None).collect();
        let mut change = change.cloned().map(into_contiguous);
        for (index, layer) in on.layers.iter().enumerate().rev() {
            let (x, grad) = (on.input(at.tape, index), &between[index]);
            let x_moved = match index.checked_sub(1) {
                None => moves[0].as_ref(),
                Some(before) => Some(&tangent[before]),
            };
            if wanted[1 + 2 * index] || wanted[2 + 2 * index] {
                // The change of the gradient comes first: its sums are the bias's.
                let pairs =
                    [change.as_ref().map(|change| [x, change]), x_moved.map(|moved| [moved, grad])];
                let [weight, bias] = layer.of_parameters(pairs, grad);
                found[1 + 2 * index] = Some(weight);
                found[2 + 2 * index] = Some(bias);
            }
            let pairs = [
                change.as_ref().map(|change| [change, on.weight(index)]),
                moves[1 + 2 * index].as_ref().map(|moved| [grad, moved]),
            ];
            match index.checked_sub(1) {
                Some(below) if wanted[..1 + 2 * index].contains(&true) => {
                    let changes = pairs.iter().any(Option::is_some);
                    let next = || layer.through_weights(pairs, grad, Some(&at.tape[below]));
                    change = changes.then(next);
                }
                None if wanted[0] => found[0] = Some(layer.through_weights(pairs, grad, None)),
                _ => break,
            }
        }
        found
    }
}

#[cfg(all(test, feature = "wgpu", feature = "flex"))]
mod tests;
