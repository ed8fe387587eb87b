//! The layers on a device: chains of products, with the bias, the ReLU and what gates a gradient in them, and
//! the gradient of a bias in that of its weight.

// A condition of the compiler's and one of the device's are two, and an index of the one is one of the other.
#[allow(clippy::collapsible_if, clippy::needless_range_loop, clippy::too_many_arguments)]
mod chain;

use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use self::chain::{Chain, Place, Product};
use super::LinearCall;
use crate::twice_differentiable::{
    ForwardOutput, Gradients, PrimalTensors, TangentTensors, TwiceDifferentiable,
};

/// Two factors.
type Pair = Option<[Place; 2]>;

/// A chain for the layers of a call, and where it has their tensors.
struct Layers<'a, R: CubeRuntime> {
    call: &'a LinearCall,
    chain: Chain<R>,
    operands: Vec<Place>,
    /// The hidden activations that are known so far.
    hidden: Vec<Place>,
}

impl<'a, R: CubeRuntime> Layers<'a, R> {
    fn new(call: &'a LinearCall, operands: &[CubeTensor<R>], hidden: &[CubeTensor<R>]) -> Self {
        let mut chain = Chain::new(call.lanes);
        let [operands, hidden] = [operands, hidden]
            .map(|of| of.iter().map(|tensor| chain.input(tensor.clone())).collect());
        Self { call, chain, operands, hidden }
    }

    fn inputs(&mut self, of: &[Option<CubeTensor<R>>]) -> Vec<Option<Place>> {
        of.iter().map(|of| of.clone().map(|of| self.chain.input(of))).collect()
    }

    fn last(&self) -> usize {
        self.call.widths.len() - 2
    }

    fn weight(&self, layer: usize) -> Place {
        self.operands[1 + 2 * layer]
    }

    /// The input of a layer.
    fn input(&self, layer: usize) -> Place {
        layer.checked_sub(1).map_or(self.operands[0], |before| self.hidden[before])
    }

    /// Examples, and inputs and outputs of a layer.
    fn sizes(&self, layer: usize) -> [usize; 3] {
        [self.call.examples, self.call.widths[layer], self.call.widths[layer + 1]]
    }

    /// The outputs `[t, n, o]` of examples `[t, n, i]` and weights `[t * i, o]`.
    fn output(
        &mut self,
        layer: usize,
        terms: [Pair; 2],
        [bias, gate]: [Option<Place>; 2],
        relu: bool,
    ) -> Place {
        let sizes @ [examples, _, outputs] = self.sizes(layer);
        let out = self.chain.output([self.call.lanes, examples, outputs]);
        self.chain.push(Product { terms, bias, relu, gate, out, ..Product::default() }, sizes);
        out
    }

    /// The gradients `[t, n, i]`, gated, of gradients `[t, n, o]` and weights.
    fn through_weights(&mut self, layer: usize, terms: [Pair; 2], gate: Option<Place>) -> Place {
        let [examples, inputs, outputs] = self.sizes(layer);
        let out = self.chain.output([self.call.lanes, examples, inputs]);
        let product = Product { terms, turned: [false, true], gate, out, ..Product::default() };
        self.chain.push(product, [examples, outputs, inputs]);
        out
    }

    /// The gradients of the weight and of the bias, of examples and gradients; the first pair has the bias.
    fn parameter_gradients(&mut self, layer: usize, terms: [Pair; 2]) -> [Place; 2] {
        let ([examples, inputs, outputs], lanes) = (self.sizes(layer), self.call.lanes);
        let out = self.chain.output([lanes * inputs, outputs]);
        let bias = self.chain.output([lanes * outputs]);
        let (turned, totals) = ([true, false], Some(bias));
        let product = Product { terms, turned, out, totals, ..Product::default() };
        self.chain.push(product, [inputs, examples, outputs]);
        [out, bias]
    }
}

/// The tensors at these places.
fn picked<R: CubeRuntime>(of: &[CubeTensor<R>], places: &[Place]) -> Vec<CubeTensor<R>> {
    places.iter().map(|place| of[*place].clone()).collect()
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

    fn forward(
        &self,
        operands: &[CubeTensor<R>],
        keep: bool,
    ) -> ForwardOutput<CubeTensor<R>, Self::Saved> {
        let mut layers = Layers::new(self, operands, &[]);
        let mut outputs = Vec::new();
        for layer in 0..=layers.last() {
            let bias = self.biased[layer].then(|| layers.operands[2 + 2 * layer]);
            let pair = [layers.input(layer), layers.weight(layer)];
            let relu = layer < layers.last();
            let y = layers.output(layer, [Some(pair), None], [bias, None], relu);
            layers.hidden.push(y);
            outputs.push(y);
        }
        let mut outputs = picked(&layers.chain.run(), &outputs);
        let result = outputs.pop().expect("at least one layer");
        ForwardOutput { aux: Vec::new(), result, saved: keep.then_some(outputs) }
    }

    fn vjp(
        &self,
        primal: PrimalTensors<'_, CubeBackend<R, F, I, BT>, Self>,
        along: Option<TangentTensors<'_, CubeBackend<R, F, I, BT>, Self>>,
        grad: Option<&CubeTensor<R>>,
        requires_grad: &[bool],
        keep: bool,
    ) -> Gradients<CubeBackend<R, F, I, BT>, Self::IntermediateGrads> {
        let mut layers = Layers::new(self, primal.operands, primal.saved);
        // What the tangents of input and weight add to the products below, by layer: tangents of the inputs
        // and of the weights, and the gradients of the outputs.
        let tangents = along.map(|along| {
            let operands = layers.inputs(along.tangents);
            let hidden = along.saved_tangent.iter().map(|of| Some(layers.chain.input(of.clone())));
            let inputs: Vec<_> = [operands[0]].into_iter().chain(hidden).collect();
            let weights: Vec<_> = operands[1..].iter().step_by(2).copied().collect();
            let grads = along.intermediate_grads.iter();
            let grads: Vec<_> = grads.map(|of| layers.chain.input(of.clone())).collect();
            (inputs, weights, grads)
        });
        let mut gradients: Vec<Option<Place>> = vec![None; requires_grad.len()];
        let mut intermediate_grads = Vec::new();
        let mut grad = grad.map(|grad| layers.chain.input(grad.clone()));
        for layer in (0..=layers.last()).rev() {
            let [by_input, by_weight] = tangents.as_ref().map_or([None; 2], |of| {
                let (inputs, weights, grads) = of;
                let grad = grads[layer];
                [inputs[layer].map(|x| [x, grad]), weights[layer].map(|weight| [grad, weight])]
            });
            if requires_grad[1 + 2 * layer] || requires_grad[2 + 2 * layer] {
                // The gradient comes first: its sums are the bias's.
                let pair = grad.map(|grad| [layers.input(layer), grad]);
                let [weight, bias] = layers.parameter_gradients(layer, [pair, by_input]);
                gradients[1 + 2 * layer] = Some(weight);
                gradients[2 + 2 * layer] = Some(bias);
            }
            if keep {
                intermediate_grads.extend(grad);
            }
            let terms = [grad.map(|grad| [grad, layers.weight(layer)]), by_weight];
            match layer.checked_sub(1) {
                Some(below) if keep || requires_grad[..1 + 2 * layer].contains(&true) => {
                    let gate = layers.hidden[below];
                    let changes = terms.iter().any(Option::is_some);
                    grad = changes.then(|| layers.through_weights(layer, terms, Some(gate)));
                }
                None if requires_grad[0] => {
                    gradients[0] = Some(layers.through_weights(layer, terms, None))
                }
                _ => break,
            }
        }
        intermediate_grads.reverse();
        let tensors = layers.chain.run();
        let gradients =
            gradients.into_iter().map(|place| place.map(|place| tensors[place].clone()));
        (gradients.collect(), keep.then(|| picked(&tensors, &intermediate_grads)))
    }

    fn jvp(
        &self,
        primal: PrimalTensors<'_, CubeBackend<R, F, I, BT>, Self>,
        tangents: &[Option<CubeTensor<R>>],
    ) -> (CubeTensor<R>, Self::SavedTangent) {
        let mut layers = Layers::new(self, primal.operands, primal.saved);
        let tangents = layers.inputs(tangents);
        let (mut x_tangent, mut tangents_of_layers) = (tangents[0], Vec::new());
        for layer in 0..=layers.last() {
            let terms = [
                x_tangent.map(|tangent| [tangent, layers.weight(layer)]),
                tangents[1 + 2 * layer].map(|tangent| [layers.input(layer), tangent]),
            ];
            let finish = [tangents[2 + 2 * layer], layers.hidden.get(layer).copied()];
            let tangent = layers.output(layer, terms, finish, false);
            tangents_of_layers.push(tangent);
            x_tangent = Some(tangent);
        }
        let mut tangents_of_layers = picked(&layers.chain.run(), &tangents_of_layers);
        (tangents_of_layers.pop().expect("at least one layer"), tangents_of_layers)
    }
}

#[cfg(all(test, any(feature = "wgpu", feature = "cuda"), feature = "flex"))]
mod tests;
