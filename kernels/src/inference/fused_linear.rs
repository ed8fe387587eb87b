//! A linear layer with what follows it.

use std::mem::MaybeUninit;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorMetadata};
use fewshot_simd::buffers::in_parts;
pub use fewshot_simd::epilogue::Activation;
use fewshot_simd::epilogue::Epilogue;
use fewshot_simd::gemm::{Gemm, RightMatrix};

use super::weight_cache::cached_weight;
use super::{reference, rows_of_a_task};
use crate::environment::chosen;
use crate::host::{HostBackend, elements, unwrap, wrap, write_like};
use crate::registry::{self, Operation, Runs};

/// The step after a linear layer.
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
        return Tensor::empty([n, outputs], (&x.device(), x.dtype()));
    }
    match registry::f32_body::<B, FusedLinear>("fused_linear", types) {
        Some(body) if inputs > 0 => {
            let (activation, residual) = match epilogue {
                LinearEpilogue::Activation(activation) => (activation, None),
                LinearEpilogue::Residual { scale, add } => {
                    (Activation::Identity, Some((scale.map(unwrap), unwrap(add))))
                }
            };
            let operands = [unwrap(x), unwrap(weight), unwrap(bias)];
            wrap(body((operands, residual), &FusedLinear(activation)))
        }
        _ => reference::fused_linear(x, weight, bias, epilogue),
    }
}

/// The linear layer of rows, weight and bias with this activation, and the residual connection.
pub(crate) struct FusedLinear(pub(super) Activation);

/// The scale by output of a residual connection, where there is one, and the summand.
pub(super) type Residual<B> = (Option<FloatTensor<B>>, FloatTensor<B>);

impl Operation for FusedLinear {
    type Operands<B: Backend> = ([FloatTensor<B>; 3], Option<Residual<B>>);
    type Results<B: Backend> = FloatTensor<B>;
}

/// The weight as products read it.
enum Right<'a> {
    Cached(&'a RightMatrix<'static>),
    Packed(RightMatrix<'a>),
}

impl<H: HostBackend> Runs<FusedLinear> for H {
    fn run(
        (tensors, residual): ([FloatTensor<H>; 3], Option<Residual<H>>),
        &FusedLinear(activation): &FusedLinear,
    ) -> FloatTensor<H> {
        let [n, inputs]: [usize; 2] = tensors[0].shape().dims();
        let (outputs, body) = (tensors[1].shape()[1], chosen());
        let values = tensors.each_ref().map(elements::<H>);
        let [x, weight, bias] = values.each_ref().map(|of| &**of);
        let residual = residual.as_ref();
        let residual =
            residual.map(|(scale, add)| (scale.as_ref().map(elements::<H>), elements::<H>(add)));
        let shape = [inputs, outputs];
        let cached = cached_weight::<H>(&tensors[1], shape);
        let pack = |_| match &cached {
            Some(cached) => Right::Cached(&cached.matrix),
            None => Right::Packed(RightMatrix::new(body.tile() / 2, (weight, outputs), shape)),
        };
        let rows = rows_of_a_task(n, inputs * outputs);
        let write = |right: &Right<'_>, [_, task]: [usize; 2], y: &mut [MaybeUninit<f32>]| {
            let place = task * rows * outputs;
            let residual = residual.as_ref();
            let residual =
                residual.map(|(scale, add)| (scale.as_deref(), &add[place..][..y.len()]));
            let job = Gemm {
                a: (&x[task * rows * inputs..], inputs),
                b: match right {
                    Right::Cached(matrix) => matrix,
                    Right::Packed(matrix) => matrix,
                },
                rows: y.len() / outputs,
                epilogue: Epilogue::Columns { bias, activation, residual },
            };
            body.gemm(&job, (y, outputs));
        };
        // SAFETY: a part is whole rows, and a product writes all of them.
        let y = unsafe { in_parts(1, [n * outputs, rows * outputs], pack, write) };
        drop(values);
        write_like::<H, 2>(&tensors[0], y, [n, outputs])
    }
}
