//! A linear layer with what follows it.

pub(crate) mod host;
mod reference;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

pub use crate::cpu::epilogue::Activation;
use crate::host::{HostTable, unwrap, wrap};
use crate::registry;

/// What follows a linear layer, with vectors and matrices of these types.
#[derive(Clone, Debug)]
pub enum LinearEpilogue<V, M> {
    /// A function of every value.
    Activation(Activation),
    /// `y * scale + add`.
    Residual {
        /// By output, `[o]`; ones if there is none.
        scale: Option<V>,
        /// `[n, o]`.
        add: M,
    },
}

/// `x weight + bias`, and what follows: an activation, or a residual connection with a scale by output.
///
/// A host takes it in one pass, below autodiff: on a backend that differentiates, plain operations run, and
/// gradients flow.
///
/// # Shapes
/// - `x`: `[n, i]`
/// - `weight`: `[i, o]`
/// - `bias`: `[o]`
/// - returns `[n, o]`
///
/// # Panics
/// When the shapes do not fit.
pub fn fused_linear<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    bias: Tensor<B, 1>,
    epilogue: LinearEpilogue<Tensor<B, 1>, Tensor<B, 2>>,
) -> Tensor<B, 2> {
    let ([n, inputs], [wanted, outputs]) = (x.dims(), weight.dims());
    assert_eq!(inputs, wanted, "a weight of as many rows as there are inputs");
    assert_eq!(bias.dims(), [outputs], "a bias for each output");
    let mut types = vec![x.dtype(), weight.dtype(), bias.dtype()];
    if let LinearEpilogue::Residual { scale, add } = &epilogue {
        let fits = scale.as_ref().is_none_or(|scale| scale.dims() == [outputs]);
        assert!(fits, "a scale for each output");
        assert_eq!(add.dims(), [n, outputs], "what is added has the shape of the result");
        types.extend(scale.as_ref().map(|scale| scale.dtype()).into_iter().chain([add.dtype()]));
    }
    if n * outputs == 0 {
        return Tensor::zeros([n, outputs], (&x.device(), x.dtype()));
    }
    match registry::f32_table::<HostTable<B>>("fused_linear", types) {
        Some(table) if inputs > 0 => {
            let epilogue = match epilogue {
                LinearEpilogue::Activation(of) => LinearEpilogue::Activation(of),
                LinearEpilogue::Residual { scale, add } => {
                    LinearEpilogue::Residual { scale: scale.map(unwrap), add: unwrap(add) }
                }
            };
            wrap((table.fused_linear)([unwrap(x), unwrap(weight), unwrap(bias)], epilogue))
        }
        _ => reference::fused_linear(x, weight, bias, epilogue),
    }
}
