//! Linear layers with ReLU between them, as one operation.
//!
//! A layer is `y = x W + b`; all but the last end with a ReLU. Several tasks with parameters of their
//! own go side by side: few examples of each meet small weights, so that what plain operations spend on
//! arranging their operands, and on their own number, is most of the time.

mod cpu;
#[cfg(feature = "cube")]
mod cube;
mod fused;
pub mod reference;

pub use fused::LinearCall;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Tensor};

use crate::host::{unwrap, wrap};
use crate::precision::Precision;
use crate::registry;
use crate::twice_differentiable::Twice;

/// A linear layer of every lane.
#[derive(Clone, Debug)]
pub struct LinearLayer<B: Backend> {
    /// Weight, `[t * i, o]`: that of lane after lane, the transpose of PyTorch's.
    pub weight: Tensor<B, 2>,
    /// Bias, `[t * o]`.
    pub bias: Option<Tensor<B, 1>>,
}

/// Takes the examples of every lane through that lane's layers.
///
/// # Shapes
/// - `x`: `[t, n, i]`
/// - returns `[t, n, o]`, `o` the last layer's outputs
///
/// # Conventions
/// Products of f32 are f32 in full. On a host a low `precision` rounds them, as its
/// [products](Precision::product), in plain operations; an accelerator multiplies f32 operands in f32
/// whatever the precision, because each product in a low type would be a launch of its own. Biases and ReLU
/// are f32. The gradient of ReLU is zero at zero. A fused body lets NaN pass
/// it, as PyTorch does; in plain operations it is the backend's own, and Flex's makes NaN zero. A lane
/// is the work of one thread on a host. On an accelerator it is that of one thread block for small
/// layers, of which as many as can be bound are one launch; of larger ones every product is a launch.
/// Where its gradients are differentiated, they and the outputs go back in
/// one backward pass, not in one each.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::Tensor;
/// use fewshot_kernels::{LinearLayer, Precision, linear_stack};
///
/// let device = Default::default();
/// // Two lanes of a layer with one input, two outputs and no bias.
/// let weight = Tensor::<Flex, 2>::from_data([[1.0, 2.0], [3.0, -4.0]], &device);
/// let layers = [LinearLayer { weight, bias: None }];
/// let x = Tensor::<Flex, 3>::from_data([[[1.0]], [[10.0]]], &device);
/// let y = linear_stack(x, &layers, Precision::F32);
/// let wanted = Tensor::<Flex, 3>::from_data([[[1.0, 2.0]], [[30.0, -40.0]]], &device);
/// assert_eq!(y.into_data(), wanted.into_data());
/// ```
pub fn linear_stack<B: Backend>(
    x: Tensor<B, 3>,
    layers: &[LinearLayer<B>],
    precision: Precision,
) -> Tensor<B, 3> {
    let call = LinearCall::new(x.dims(), layers);
    let on_device = registry::on_device::<B>();
    if call.is_empty() && on_device {
        // No device may be asked for nothing.
        return Tensor::empty(call.outputs(), (&x.device(), x.dtype()));
    }
    if (precision.low().is_some() && !on_device) || call.is_empty() {
        return reference::linear_stack(x, layers, precision);
    }
    let types = layers.iter().flat_map(|layer| {
        [layer.weight.dtype()].into_iter().chain(layer.bias.as_ref().map(Tensor::dtype))
    });
    let types = types.chain([x.dtype()]);
    match registry::f32_body::<B, Twice<LinearCall>>("linear_stack", types) {
        Some(body) => wrap(body(operands(x, layers, !on_device), &Twice(call)).0),
        None => reference::linear_stack(x, layers, precision),
    }
}

/// The operands of the fused body: `x`, then weight and bias of every layer, on a host zeros where one is
/// absent.
fn operands<B: Backend>(
    x: Tensor<B, 3>,
    layers: &[LinearLayer<B>],
    on_host: bool,
) -> Vec<FloatTensor<B>> {
    let (lanes, device) = (x.dims()[0], x.device());
    let mut operands = vec![unwrap(x)];
    for LinearLayer { weight, bias } in layers {
        let length = lanes * weight.dims()[1];
        // A device does not read it, and a fill would be a launch.
        let absent = || match on_host {
            true => Tensor::<B, 1>::zeros([length], (&device, DType::F32)),
            false => Tensor::empty([length], (&device, DType::F32)),
        };
        operands.push(unwrap(weight.clone()));
        operands.push(unwrap(bias.clone().unwrap_or_else(absent)));
    }
    operands
}
