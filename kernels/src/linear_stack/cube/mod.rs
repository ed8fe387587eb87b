//! The layers on a device: a launch for every product, with the bias, the ReLU and what gates a
//! gradient in the same one, and the gradient of a bias in that of its weight.

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::reshape;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::LinearCall;
use crate::cube::{Finish, Matrices, Products};
use crate::twice_differentiable::{
    ForwardOutput, Gradients, PrimalTensors, TangentTensors, TwiceDifferentiable,
};
use crate::variadic_op::OptionalTensors;

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
    /// Products of pairs, of which those are given transposed that are `turned`, of these rows, depth and
    /// columns.
    fn products<R: CubeRuntime>(
        &self,
        pairs: [Pair<'_, R>; 2],
        [rows, depth, columns]: [usize; 3],
        turned: [bool; 2],
    ) -> Products<R> {
        let matrices = |of: &CubeTensor<R>, [rows, columns]: [usize; 2], turned| match turned {
            true => Matrices::new(of.clone(), [columns, rows]).transposed(),
            false => Matrices::new(of.clone(), [rows, columns]),
        };
        let term = |[left, right]: [&CubeTensor<R>; 2]| {
            [matrices(left, [rows, depth], turned[0]), matrices(right, [depth, columns], turned[1])]
        };
        let terms = pairs.into_iter().flatten().map(term).collect();
        Products { terms, sizes: [self.lanes, rows, depth, columns], dtype: DType::F32 }
    }

    /// The factors of examples `[t, n, i]` and weights `[t * i, o]` as matrices: `[t, n, o]`.
    fn forward<R: CubeRuntime>(
        &self,
        pairs: [Pair<'_, R>; 2],
        like: &CubeTensor<R>,
        finish: Finish<R>,
    ) -> CubeTensor<R> {
        let sizes = [self.examples, self.inputs, self.outputs];
        self.products(pairs, sizes, [false, false]).finished(like, finish)
    }

    /// Of gradients `[t, n, o]` and weights: `[t, n, i]`, gated.
    fn through_weights<R: CubeRuntime>(
        &self,
        pairs: [Pair<'_, R>; 2],
        like: &CubeTensor<R>,
        gate: Option<&CubeTensor<R>>,
    ) -> CubeTensor<R> {
        let finish = Finish { gate: gate.cloned(), ..Finish::default() };
        let sizes = [self.examples, self.outputs, self.inputs];
        self.products(pairs, sizes, [false, true]).finished(like, finish)
    }

    /// Of examples and gradients: the gradient of the weight, and that of the bias where the first pair
    /// is there, else zeros.
    fn of_parameters<R: CubeRuntime>(
        &self,
        pairs: [Pair<'_, R>; 2],
        like: &CubeTensor<R>,
    ) -> [CubeTensor<R>; 2] {
        let &Self { lanes, examples, inputs, outputs } = self;
        let summed = pairs[0].is_some();
        let products = self.products(pairs, [inputs, examples, outputs], [true, false]);
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
        let &LinearCall { lanes, examples, .. } = call;
        let layer =
            |sides: &[usize]| Layer { lanes, examples, inputs: sides[0], outputs: sides[1] };
        Self { layers: call.widths.windows(2).map(layer).collect(), operands }
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

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement>
    TwiceDifferentiable<CubeBackend<R, F, I, BT>> for LinearCall
{
    /// The hidden activations.
    type Saved = Vec<CubeTensor<R>>;
    /// The gradients of all layers' outputs before ReLU.
    type IntermediateGrads = Vec<CubeTensor<R>>;
    /// The tangents of the hidden activations.
    type SavedTangent = Vec<CubeTensor<R>>;

    const READS_OPERANDS: bool = true;

    fn result_shape(&self) -> Shape {
        self.outputs().into()
    }

    fn forward(
        &self,
        operands: &[CubeTensor<R>],
        keep: bool,
    ) -> ForwardOutput<CubeTensor<R>, Self::Saved> {
        let operands = contiguous(operands);
        let on = OnDevice::new(self, &operands);
        let (mut x, mut hidden) = (operands[0].clone(), Vec::new());
        for (index, layer) in on.layers.iter().enumerate() {
            let bias = self.biased[index].then(|| operands[2 + 2 * index].clone());
            let finish = Finish { bias, relu: index < on.last(), gate: None };
            let y = layer.forward([Some([&x, on.weight(index)]), None], &x, finish);
            if keep && index < on.last() {
                hidden.push(y.clone());
            }
            x = y;
        }
        ForwardOutput { aux: Vec::new(), result: x, saved: keep.then_some(hidden) }
    }

    fn vjp(
        &self,
        primal: PrimalTensors<'_, CubeBackend<R, F, I, BT>, Self>,
        along: Option<TangentTensors<'_, CubeBackend<R, F, I, BT>, Self>>,
        grad: Option<&CubeTensor<R>>,
        wanted: &[bool],
        keep: bool,
    ) -> Gradients<CubeBackend<R, F, I, BT>, Self::IntermediateGrads> {
        let operands = contiguous(primal.operands);
        let on = OnDevice::new(self, &operands);
        let tangents = along.as_ref().map_or(&[][..], |along| along.tangents);
        let tangents: Vec<_> = tangents.iter().map(|of| of.clone().map(into_contiguous)).collect();
        let mut found: OptionalTensors<CubeBackend<R, F, I, BT>> =
            wanted.iter().map(|_| None).collect();
        let mut intermediate_grads = Vec::new();
        let mut grad = grad.cloned().map(into_contiguous);
        for (index, layer) in on.layers.iter().enumerate().rev() {
            let x = on.input(primal.saved, index);
            // What the tangents of input and weight add to the products below.
            let [by_input, by_weight] = match &along {
                None => [None; 2],
                Some(along) => {
                    let grad = &along.intermediate_grads[index];
                    let input = match index.checked_sub(1) {
                        None => tangents[0].as_ref(),
                        Some(before) => Some(&along.saved_tangent[before]),
                    };
                    let weight = tangents[1 + 2 * index].as_ref();
                    [input.map(|input| [input, grad]), weight.map(|weight| [grad, weight])]
                }
            };
            if wanted[1 + 2 * index] || wanted[2 + 2 * index] {
                // The gradient comes first: its sums are the bias's.
                let pairs = [grad.as_ref().map(|grad| [x, grad]), by_input];
                let [weight, bias] = layer.of_parameters(pairs, x);
                found[1 + 2 * index] = Some(weight);
                found[2 + 2 * index] = Some(bias);
            }
            if keep {
                intermediate_grads.extend(grad.clone());
            }
            let pairs = [grad.as_ref().map(|grad| [grad, on.weight(index)]), by_weight];
            match index.checked_sub(1) {
                Some(below) if keep || wanted[..1 + 2 * index].contains(&true) => {
                    let changes = pairs.iter().any(Option::is_some);
                    let next = || layer.through_weights(pairs, x, Some(&primal.saved[below]));
                    grad = changes.then(next);
                }
                None if wanted[0] => found[0] = Some(layer.through_weights(pairs, x, None)),
                _ => break,
            }
        }
        intermediate_grads.reverse();
        (found, keep.then_some(intermediate_grads))
    }

    fn jvp(
        &self,
        primal: PrimalTensors<'_, CubeBackend<R, F, I, BT>, Self>,
        tangents: &[Option<CubeTensor<R>>],
    ) -> (CubeTensor<R>, Self::SavedTangent) {
        let operands = contiguous(primal.operands);
        let on = OnDevice::new(self, &operands);
        let tangents: Vec<_> = tangents.iter().map(|of| of.clone().map(into_contiguous)).collect();
        let (mut x_tangent, mut saved_tangent) = (tangents[0].clone(), Vec::new());
        for (index, layer) in on.layers.iter().enumerate() {
            let weight_tangent = tangents[1 + 2 * index].as_ref();
            let pairs = [
                x_tangent.as_ref().map(|tangent| [tangent, on.weight(index)]),
                weight_tangent.map(|tangent| [on.input(primal.saved, index), tangent]),
            ];
            let bias = tangents[2 + 2 * index].clone();
            let finish = Finish { bias, relu: false, gate: primal.saved.get(index).cloned() };
            let tangent = layer.forward(pairs, &operands[0], finish);
            if index < on.last() {
                saved_tangent.push(tangent.clone());
            }
            x_tangent = Some(tangent);
        }
        (x_tangent.expect("at least one layer"), saved_tangent)
    }
}

#[cfg(all(test, feature = "wgpu", feature = "flex"))]
mod tests;
