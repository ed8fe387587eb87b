//! A linear layer with what follows it.

use std::mem::MaybeUninit;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};
use fewshot_simd::buffers::in_parts;
pub use fewshot_simd::epilogue::Activation;
use fewshot_simd::epilogue::Epilogue;
use fewshot_simd::gemm::{Gemm, RightMatrix};

use super::{reference, rows_of_a_task};
use crate::environment::chosen;
use crate::host::{HostBackend, HostTable, elements, unwrap, wrap, write_like};
use crate::registry;

/// What follows a linear layer.
#[derive(Clone, Debug)]
pub enum LinearEpilogue<B: Backend> {
    /// A function of every value.
    Activation(Activation),
    /// `y * scale + add`.
    Residual {
        /// By output, `[o]`; ones if there is none.
        scale: Option<Tensor<B, 1>>,
        /// `[n, o]`.
        add: Tensor<B, 2>,
    },
}

/// `x weight + bias`, and what follows: an activation, or a residual connection with a scale by output.
///
/// # Shapes
/// - `x`: `[n, i]`
/// - `weight`: `[i, o]`
/// - `bias`: `[o]`
/// - returns `[n, o]`
pub fn fused_linear<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    bias: Tensor<B, 1>,
    epilogue: LinearEpilogue<B>,
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
            let (activation, residual) = match epilogue {
                LinearEpilogue::Activation(activation) => (activation, None),
                LinearEpilogue::Residual { scale, add } => {
                    (Activation::Identity, Some((scale.map(unwrap), unwrap(add))))
                }
            };
            let of = [unwrap(x), unwrap(weight), unwrap(bias)];
            wrap((table.fused_linear)(of, activation, residual))
        }
        _ => reference::fused_linear(x, weight, bias, epilogue),
    }
}

/// A residual connection's scale by output, where there is one, and what is added.
pub(crate) type Residual<B> = (Option<FloatTensor<B>>, FloatTensor<B>);

/// See [`HostTable`](crate::host::HostTable).
pub(crate) fn on_host<B: HostBackend>(
    tensors: [FloatTensor<B>; 3],
    activation: Activation,
    residual: Option<Residual<B>>,
) -> FloatTensor<B> {
    let [n, inputs]: [usize; 2] = tensors[0].shape().dims();
    let (outputs, body) = (tensors[1].shape()[1], chosen());
    let values = tensors.each_ref().map(elements::<B>);
    let [x, weight, bias] = values.each_ref().map(|of| &**of);
    let residual = residual.as_ref();
    let residual =
        residual.map(|(scale, add)| (scale.as_ref().map(elements::<B>), elements::<B>(add)));
    let pack = |_| RightMatrix::new(body.tile() / 2, (weight, outputs), [inputs, outputs]);
    let rows = rows_of_a_task(n, inputs * outputs);
    let write = |right: &RightMatrix<'_>, [_, task]: [usize; 2], y: &mut [MaybeUninit<f32>]| {
        let place = task * rows * outputs;
        let residual = residual.as_ref();
        let residual = residual.map(|(scale, add)| (scale.as_deref(), &add[place..][..y.len()]));
        let job = Gemm {
            a: (&x[task * rows * inputs..], inputs),
            b: right,
            rows: y.len() / outputs,
            epilogue: Epilogue::Columns { bias, activation, residual },
        };
        body.gemm(&job, (y, outputs));
    };
    // SAFETY: a part is whole rows, and a product writes all of them.
    let y = unsafe { in_parts(1, [n * outputs, rows * outputs], pack, write) };
    drop(values);
    write_like::<B, 2>(&tensors[0], y, [n, outputs])
}
