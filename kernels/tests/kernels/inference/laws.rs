//! What holds on every backend.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::{Autodiff, Flex};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{
    Activation, FusedConvOptions, LinearEpilogue, attention, fused_conv2d, fused_linear,
    layer_norm, with_reference,
};

pub use super::depthwise::*;
use crate::judge::{assert_close, read};
use crate::numbers::Numbers;

const RELU6: [f32; 2] = [0.0, 6.0];
const EVERYTHING: [f32; 2] = [f32::NEG_INFINITY, f32::INFINITY];

fn drawn<B: Backend, const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<B, D> {
    Tensor::from_data(Numbers(seed).data(shape, |x| x), &Default::default())
}

/// Options of a window of one pixel.
fn pointwise(bounds: [f32; 2]) -> FusedConvOptions {
    FusedConvOptions { stride: 1, padding: [0; 4], bounds }
}

/// Every layer on drawn numbers, some with strided inputs: its name and what it gives.
fn layers<B: Backend>(rows: usize, inputs: usize, outputs: usize) -> Vec<(String, Vec<f32>)> {
    let mut all = Vec::new();
    let size = format!("{rows} {inputs} {outputs}");
    let mut add = |name: &str, values: Vec<f32>| all.push((format!("{name} {size}"), values));
    let x = || drawn::<B, 2>(1, [inputs, rows]).swap_dims(0, 1);
    let (weight, bias) = (|| drawn::<B, 2>(2, [inputs, outputs]), || drawn::<B, 1>(3, [outputs]));
    let linear = |epilogue| read(fused_linear(x(), weight(), bias(), epilogue));
    for activation in [Activation::Identity, Activation::Gelu, Activation::QuickGelu] {
        let name = format!("{activation:?}");
        add(&name, linear(LinearEpilogue::Activation(activation)));
    }
    for scale in [None, Some(drawn(4, [outputs]))] {
        let residual = LinearEpilogue::Residual { scale, add: drawn(5, [rows, outputs]) };
        add("residual", linear(residual));
    }
    let map = [drawn::<B, 1>(6, [inputs]), drawn(7, [inputs])];
    add("layer norm", read(layer_norm(x() * 3.0 + 2.0, map, 1e-5)));
    let qkv = drawn::<B, 3>(8, [2, rows, 3 * inputs]) * 2.0;
    add("attention of one head", read(attention(qkv.clone(), 1)));
    if inputs.is_multiple_of(3) {
        add("attention of three heads", read(attention(qkv, 3)));
    }
    let map = || [drawn::<B, 1>(9, [outputs]), drawn(10, [outputs])];
    let maps = || drawn::<B, 4>(11, [2, inputs, rows, 3]);
    let weight = || drawn::<B, 4>(12, [outputs, inputs, 1, 1]);
    add("pointwise", read(fused_conv2d(maps(), weight(), map(), pointwise(RELU6), None)));
    for (name, bounds) in [("sum", EVERYTHING), ("bounded sum", RELU6)] {
        let residual = Some(drawn(13, [2, outputs, rows, 3]));
        let y = fused_conv2d(maps(), weight(), map(), pointwise(bounds), residual);
        add(&format!("pointwise {name}"), read(y));
    }
    for (window, stride, padding) in
        [(3, 2, [0, 0, 1, 1]), (3, 1, [1; 4]), (1, 2, [0; 4]), (5, 2, [2, 1, 2, 3])]
    {
        let maps = drawn::<B, 4>(11, [2, inputs, rows + 4, 9]);
        let weight = drawn(12, [outputs, inputs, window, window]);
        let options = FusedConvOptions { stride, padding, bounds: RELU6 };
        let name = format!("window {window} stride {stride}");
        add(&name, read(fused_conv2d(maps, weight, map(), options, None)));
    }
    all
}

pub fn layers_are_those_of_plain_operations<B: Backend>() {
    for [rows, inputs, outputs] in [[1, 1, 1], [5, 6, 7], [17, 33, 50], [70, 48, 96]] {
        let wanted = with_reference(|| layers::<Flex>(rows, inputs, outputs));
        let found = layers::<B>(rows, inputs, outputs);
        assert_eq!(found.len(), wanted.len());
        for ((name, found), (_, wanted)) in found.iter().zip(&wanted) {
            assert_close(name, found, wanted, 2e-5 * inputs as f32);
        }
    }
}

pub fn nothing_is_embedded_as_nothing<B: Backend>() {
    let device = Default::default();
    // Zeros of no elements would be a launch of no blocks.
    let matrix = |shape: [usize; 2]| Tensor::<B, 2>::empty(shape, &device);
    let vector = |length: usize| Tensor::<B, 1>::empty([length], &device);
    let gelu = || LinearEpilogue::Activation(Activation::Gelu);
    assert_eq!(fused_linear(matrix([0, 3]), matrix([3, 2]), vector(2), gelu()).dims(), [0, 2]);
    assert_eq!(layer_norm(matrix([0, 3]), [vector(3), vector(3)], 1e-5).dims(), [0, 3]);
    assert_eq!(layer_norm(matrix([3, 0]), [vector(0), vector(0)], 1e-5).dims(), [3, 0]);
    assert_eq!(attention(Tensor::<B, 3>::empty([0, 4, 6], &device), 2).dims(), [0, 4, 2]);
    assert_eq!(attention(Tensor::<B, 3>::empty([2, 0, 6], &device), 1).dims(), [2, 0, 2]);
    let maps = |shape: [usize; 4]| Tensor::<B, 4>::empty(shape, &device);
    let map = [vector(2), vector(2)];
    let options = pointwise(RELU6);
    let found = fused_conv2d(maps([0, 3, 4, 4]), maps([2, 3, 1, 1]), map, options, None);
    assert_eq!(found.dims(), [0, 2, 4, 4]);
    B::sync(&device).expect("no launch of no blocks");
}

pub fn shapes_that_do_not_fit_are_refused<B: Backend>() {
    let device = Default::default();
    let [wide, square] = [[4, 3], [3, 3]].map(|shape| Tensor::<B, 2>::zeros(shape, &device));
    let vector = |length: usize| Tensor::<B, 1>::zeros([length], &device);
    let maps = |shape: [usize; 4]| Tensor::<B, 4>::zeros(shape, &device);
    let plain = || LinearEpilogue::Activation(Activation::Identity);
    let convolved = |weight: [usize; 4], outputs: usize, options: FusedConvOptions| {
        let map = [vector(outputs), vector(outputs)];
        fused_conv2d(maps([1, 3, 4, 4]), maps(weight), map, options, None);
    };
    let refused = |said: &str, call: &dyn Fn()| {
        let error = catch_unwind(AssertUnwindSafe(call)).expect_err(said);
        let text = error.downcast_ref::<String>().expect("a message");
        assert!(text.contains(said), "{text}");
    };
    refused("as many rows as there are inputs", &|| {
        fused_linear(square.clone(), wide.clone(), vector(3), plain());
    });
    refused("a bias for each output", &|| {
        fused_linear(wide.clone(), square.clone(), vector(4), plain());
    });
    refused("the shape of the result", &|| {
        let residual = LinearEpilogue::Residual { scale: None, add: square.clone() };
        fused_linear(wide.clone(), square.clone(), vector(3), residual);
    });
    refused("a value for each of a row", &|| {
        layer_norm(wide.clone(), [vector(4), vector(3)], 1e-5);
    });
    refused("heads", &|| {
        attention(Tensor::<B, 3>::zeros([1, 2, 8], &device), 2);
    });
    let usual = pointwise(RELU6);
    refused("for each output, channel", &|| convolved([2, 4, 1, 1], 2, usual));
    refused("for each output, channel", &|| convolved([2, 3, 3, 1], 2, usual));
    refused("a value for each output", &|| convolved([2, 3, 1, 1], 3, usual));
    refused("smaller than a window of 5", &|| convolved([2, 3, 5, 5], 2, usual));
    refused("fewer zeros than 1", &|| {
        convolved([2, 3, 1, 1], 2, FusedConvOptions { padding: [0, 1, 0, 0], ..usual });
    });
    refused("a stride of 1 or 2", &|| {
        convolved([2, 3, 1, 1], 2, FusedConvOptions { stride: 0, ..usual });
    });
    refused("bounds", &|| convolved([2, 3, 1, 1], 2, pointwise([1.0, 0.0])));
    refused("the shape of the result", &|| {
        let (map, add) = ([vector(2), vector(2)], Some(maps([1, 2, 4, 3])));
        fused_conv2d(maps([1, 3, 4, 4]), maps([2, 3, 1, 1]), map, usual, add);
    });
}

pub fn gradients_flow_under_autodiff<B: Backend>() {
    let device = Default::default();
    let x = drawn::<Autodiff<B>, 2>(1, [3, 4]).require_grad();
    let ones = |length: usize| Tensor::<Autodiff<B>, 1>::ones([length], &device);
    let weight = Tensor::ones([4, 2], &device);
    let epilogue = LinearEpilogue::Residual { scale: Some(ones(2) * 3.0), add: drawn(2, [3, 2]) };
    let y = fused_linear(x.clone(), weight, ones(2), epilogue);
    let found = x.grad(&y.sum().backward()).expect("tracked");
    assert_close("gradient", &read(found), &[6.0; 12], 1e-4);
    // What all values of a row share, a norm takes away.
    let y = layer_norm(x.clone(), [ones(4), ones(4)], 1e-5);
    let found = x.grad(&y.sum().backward()).expect("tracked");
    assert_close("gradient", &read(found), &[0.0; 12], 1e-4);
}

/// The operands of a layer of a transformer.
struct Operands<B: Backend> {
    x: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    bias: Tensor<B, 1>,
    scale: Tensor<B, 1>,
    add: Tensor<B, 2>,
    map: [Tensor<B, 1>; 2],
    qkv: Tensor<B, 3>,
}

/// The layers of a transformer.
#[derive(Clone, Copy, Debug)]
enum Layer {
    Linear(Activation),
    Residual { scaled: bool },
    Norm,
    Attention { heads: usize },
}

impl Layer {
    const ALL: [Self; 8] = [
        Self::Linear(Activation::Identity),
        Self::Linear(Activation::Gelu),
        Self::Linear(Activation::QuickGelu),
        Self::Residual { scaled: false },
        Self::Residual { scaled: true },
        Self::Norm,
        Self::Attention { heads: 1 },
        Self::Attention { heads: 3 },
    ];

    /// The result, as rows.
    fn applied<B: Backend>(self, of: Operands<B>) -> Tensor<B, 2> {
        let Operands { x, weight, bias, scale, add, map, qkv } = of;
        match self {
            Self::Linear(activation) => {
                fused_linear(x, weight, bias, LinearEpilogue::Activation(activation))
            }
            Self::Residual { scaled } => {
                let scale = scaled.then_some(scale);
                fused_linear(x, weight, bias, LinearEpilogue::Residual { scale, add })
            }
            Self::Norm => layer_norm(x * 3.0 + 2.0, map, 1e-5),
            Self::Attention { heads } => attention(qkv * 2.0, heads).flatten(0, 1),
        }
    }

    /// Gradients of all operands by weighted results, of those that the layer has.
    fn gradients<B: Backend>(self, [rows, inputs, outputs]: [usize; 3]) -> Vec<Option<Vec<f32>>> {
        let vector = |seed, length| drawn::<Autodiff<B>, 1>(seed, [length]).require_grad();
        let matrix = |seed, shape| drawn::<Autodiff<B>, 2>(seed, shape).require_grad();
        // Rows that are not adjacent in memory.
        let x = matrix(1, [inputs, rows]);
        let (weight, bias) = (matrix(2, [inputs, outputs]), vector(3, outputs));
        let (scale, add) = (vector(4, outputs), matrix(5, [rows, outputs]));
        let map = [vector(6, inputs), vector(7, inputs)];
        let qkv = drawn::<Autodiff<B>, 3>(8, [2, rows, 3 * inputs]).require_grad();
        let result = self.applied(Operands {
            x: x.clone().swap_dims(0, 1),
            weight: weight.clone(),
            bias: bias.clone(),
            scale: scale.clone(),
            add: add.clone(),
            map: map.clone(),
            qkv: qkv.clone(),
        });
        let by = drawn::<Autodiff<B>, 2>(9, result.dims());
        let from = (result * by).sum().backward();
        let [gain, shift] = map;
        let matrices = [x, weight, add].map(|of| of.grad(&from).map(read));
        let vectors = [bias, scale, gain, shift].map(|of| of.grad(&from).map(read));
        let of_qkv = qkv.grad(&from).map(read);
        matrices.into_iter().chain(vectors).chain([of_qkv]).collect()
    }
}

pub fn gradients_are_those_of_plain_operations<B: Backend>() {
    for size @ [_, inputs, _] in [[1, 3, 1], [5, 6, 7], [17, 33, 50], [70, 48, 96]] {
        for layer in Layer::ALL {
            let wanted = with_reference(|| layer.gradients::<Flex>(size));
            let found = layer.gradients::<B>(size);
            for (operand, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                let what = format!("gradient {operand} of {layer:?} {size:?}");
                match (found, wanted) {
                    (Some(found), Some(wanted)) => {
                        assert_close(&what, found, wanted, 2e-5 * inputs as f32);
                    }
                    _ => assert_eq!(found, wanted, "{what}"),
                }
            }
        }
    }
}

/// With constants beside it, an operand has the gradient that it has beside operands which have one.
pub fn gradients_are_given_to_those_who_ask<B: Backend>() {
    let size @ [rows, inputs, outputs] = [5, 6, 7];
    for scaled in [false, true] {
        let layer = Layer::Residual { scaled };
        let all = layer.gradients::<B>(size);
        let bias = drawn::<Autodiff<B>, 1>(3, [outputs]).require_grad();
        let result = layer.applied(Operands {
            x: drawn(1, [inputs, rows]).swap_dims(0, 1),
            weight: drawn(2, [inputs, outputs]),
            bias: bias.clone(),
            scale: drawn(4, [outputs]),
            add: drawn(5, [rows, outputs]),
            map: [drawn(6, [inputs]), drawn(7, [inputs])],
            qkv: drawn(8, [2, rows, 3 * inputs]),
        });
        let by = drawn::<Autodiff<B>, 2>(9, result.dims());
        let alone = bias.grad(&(result * by).sum().backward()).expect("tracked");
        assert_eq!(Some(read(alone)), all[3]);
    }
}

pub fn attention_gradients_flow_under_autodiff<B: Backend>() {
    let odds = 3f32.ln();
    // Queries, keys and values of two heads. The first token looks in the first head at the tokens by
    // 1/4 and 3/4; all else is by halves.
    let qkv = [[[odds, 1.0, 0.0, 0.0, 1.0, 2.0], [0.0, 1.0, 1.0, 0.0, 5.0, 4.0]]];
    let qkv = Tensor::<Autodiff<B>, 3>::from_data(qkv, &Default::default()).require_grad();
    let found = qkv.grad(&attention(qkv.clone(), 2).sum().backward()).expect("tracked");
    let first = [0.75, 0.0, -0.75 * odds, -1.0, 0.75, 1.0];
    let second = [1.0, 0.0, 0.75 * odds, 1.0, 1.25, 1.0];
    let wanted = [first, second].concat();
    assert_close("gradient", &read(found), &wanted, 1e-4);
}

pub fn pointwise_gradients_flow_under_autodiff<B: Backend>() {
    let device = Default::default();
    let x = [[[[1f32, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]];
    let x = Tensor::<Autodiff<B>, 4>::from_data(x, &device).require_grad();
    let weight = Tensor::<Autodiff<B>, 4>::ones([2, 2, 1, 1], &device).require_grad();
    // The second output is out of bounds everywhere.
    let [scale, shift] = [[2f32, 3.0], [0.0, 100.0]]
        .map(|of| Tensor::<Autodiff<B>, 1>::from_data(of, &device).require_grad());
    let add = Tensor::<Autodiff<B>, 4>::zeros([1, 2, 2, 2], &device).require_grad();
    let map = [scale.clone(), shift.clone()];
    let options = pointwise([-50.0, 50.0]);
    let y = fused_conv2d(x.clone(), weight.clone(), map, options, Some(add.clone()));
    let from = y.sum().backward();
    let close = |name: &str, found: Option<Vec<f32>>, wanted: &[f32]| {
        assert_close(name, &found.expect("tracked"), wanted, 1e-4);
    };
    close("x", x.grad(&from).map(read), &[2.0; 8]);
    close("weight", weight.grad(&from).map(read), &[20.0, 52.0, 0.0, 0.0]);
    close("scale", scale.grad(&from).map(read), &[36.0, 0.0]);
    close("shift", shift.grad(&from).map(read), &[4.0, 0.0]);
    close("add", add.grad(&from).map(read), &[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
}
