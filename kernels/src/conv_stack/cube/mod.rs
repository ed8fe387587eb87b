//! The stack on a device, as one operation: maps lie as `[n, lanes * c, h, w]` throughout, and of a
//! block the convolution's output and the block's own are all that is written.
//!
//! A block takes four launches forward: convolution, partial moments, what it normalises with, and
//! normalisation with ReLU and pool; three where the map is small, with its moments in one part. Back it
//! takes six: partial sums, the gradients by channel, the map's gradient, the input's, and the weight's in
//! parts and their sum. Their tangents take as many.

#[allow(clippy::too_many_arguments)]
mod vectors;
#[allow(clippy::too_many_arguments)]
mod vectors_jvp;

use std::slice;

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use self::vectors::{Norm, Vectors, batch_norm_vectors, running_norm_vectors};
use self::vectors_jvp::{NormTangent, gradients_jvp, norm_jvp};
use super::cpu::Geometry;
use super::{StackCall, StackOptions};
use crate::channels::cube::{Grad, Input, correlate};
use crate::conv2d::cube::convolution;
use crate::conv2d::{ConvShape, Role};
use crate::cube::{into_contiguous, zeros};
use crate::norm_relu::Rectified;
use crate::norm_relu::cube::{activate, combine, correlate as correlate_dv, gradients};
use crate::precision::Precision;
use crate::twice_differentiable::{
    ForwardOutput, Gradients, PrimalTensors, TangentTensors, TwiceDifferentiable,
};
use crate::variadic_op::OptionalTensors;

/// The tensors that a block saves in the forward pass.
pub struct Saved<R: CubeRuntime> {
    /// Its input.
    x: CubeTensor<R>,
    /// The output of its convolution.
    y: CubeTensor<R>,
    norm: Norm<R>,
}

/// The gradients in a block.
pub struct IntermediateGrads<R: CubeRuntime> {
    /// The gradient of its output.
    dz: CubeTensor<R>,
    /// The gradient of its convolution's output.
    dy: CubeTensor<R>,
    /// By channel, see [`Gradients::sums`](crate::norm_relu::cube::Gradients).
    sums: CubeTensor<R>,
}

/// The tangents of what a block saved in the forward pass.
pub struct SavedTangent<R: CubeRuntime> {
    /// The tangent of its input; `None` if that of the images is zero.
    x: Option<CubeTensor<R>>,
    /// The tangent of the output of its convolution.
    y: CubeTensor<R>,
    norm: NormTangent<R>,
}

/// The tangents along which the gradients of a block are differentiated.
struct Along<'a, R: CubeRuntime> {
    saved: &'a SavedTangent<R>,
    grads: &'a IntermediateGrads<R>,
    weight: Option<&'a CubeTensor<R>>,
    bias: Option<CubeTensor<R>>,
}

/// One block of a call.
struct Block<'a, R: CubeRuntime> {
    conv: ConvShape,
    after: Rectified,
    weight: &'a CubeTensor<R>,
    vectors: Vectors<R>,
    /// Mean and variance, if they are given.
    running: Option<[CubeTensor<R>; 2]>,
}

impl<R: CubeRuntime> Block<'_, R> {
    /// Pixels of a channel, where the moments are of these.
    fn pixels(&self) -> Option<usize> {
        let [n, _, h, w] = self.conv.of(Role::Output);
        self.running.is_none().then_some(n * h * w)
    }

    /// From the gradient of the block's output to that of its convolution's, and those of bias, gamma and
    /// beta. With `along`, from the tangent of the output's gradient to the tangents of these.
    fn norm_vjp(
        &self,
        Saved { y, norm, .. }: &Saved<R>,
        along: Option<&Along<'_, R>>,
        grad: Option<CubeTensor<R>>,
    ) -> (IntermediateGrads<R>, [CubeTensor<R>; 3]) {
        let (after, bias, pixels) = (self.after, &self.vectors.bias, self.pixels());
        let (input, by, sums) = match along {
            None => {
                let input = Input::new(y.clone(), norm.map());
                let by = Grad::new(grad.expect("the gradient of every block's output"));
                let parts = correlate_dv(&input, &by, None, after);
                let norm = [&norm.scale, &norm.inverse];
                (input, by, gradients(parts, norm, bias.as_ref(), pixels))
            }
            Some(Along { saved, grads, bias: bias_tangent, .. }) => {
                let input = saved.norm.input(y, &saved.y, norm);
                let by = Grad { dz: grads.dz.clone(), tangent: grad };
                let parts = correlate_dv(&input, &by, Some(&saved.norm.centre), after);
                let (norms, sums) = ((norm, &saved.norm), grads.sums.clone());
                (input, by, gradients_jvp(parts, sums, norms, [bias, bias_tangent], pixels))
            }
        };
        let dy = combine(&input, &by, sums.moment_grad, after);
        (IntermediateGrads { dz: by.dz, dy, sums: sums.sums }, sums.vectors)
    }
}

impl StackCall {
    fn on_device<'a, R: CubeRuntime>(&self, operands: &'a [CubeTensor<R>]) -> Vec<Block<'a, R>> {
        let StackOptions { lanes, precision, .. } = self.options;
        let (n, tf32) = (self.shape.n, precision == Precision::Tf32);
        let (parameters, running) = operands[1..].split_at(4 * self.shape.blocks.len());
        let block = |(index, of): (usize, Geometry)| {
            let Geometry { c_in: c, h_in: h, w_in: w, c_out: o, stride, pool } = of;
            let conv = ConvShape { n, c, h, w, o, kernel: 3, stride, padding: 1, lanes, tf32 };
            let [weight, bias, gamma, beta] = &parameters[4 * index..][..4] else {
                unreachable!("four tensors a block");
            };
            let vectors = Vectors {
                bias: self.biased[index].then(|| into_contiguous(bias.clone())),
                gamma: into_contiguous(gamma.clone()),
                beta: into_contiguous(beta.clone()),
            };
            let running = self
                .running
                .then(|| [0, 1].map(|which| into_contiguous(running[2 * index + which].clone())));
            Block { conv, after: Rectified { pool }, weight, vectors, running }
        };
        self.shape.geometry().into_iter().enumerate().map(block).collect()
    }

    /// Images in the low type, if there is one.
    fn rounded<B: Backend>(&self, images: FloatTensor<B>) -> FloatTensor<B> {
        match self.options.precision.low() {
            Some(low) => B::float_cast(images, low),
            None => images,
        }
    }

    /// The type of a block's output, where there are so many after it, of maps of `dtype`.
    fn output_type(&self, left: usize, dtype: DType) -> DType {
        match self.options.precision.low() {
            // The features are f32.
            Some(_) if left == 0 => DType::F32,
            _ => dtype,
        }
    }
}

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement>
    TwiceDifferentiable<CubeBackend<R, F, I, BT>> for StackCall
{
    type Saved = Vec<Saved<R>>;
    type IntermediateGrads = Vec<IntermediateGrads<R>>;
    type SavedTangent = Vec<SavedTangent<R>>;

    const READS_OPERANDS: bool = true;

    fn forward(
        &self,
        operands: &[CubeTensor<R>],
        keep: bool,
    ) -> ForwardOutput<CubeTensor<R>, Self::Saved> {
        let blocks = self.on_device(operands);
        let images = operands[0].clone();
        let mut x = into_contiguous(self.rounded::<CubeBackend<R, F, I, BT>>(images));
        let (of, epsilon) = (x.dtype, self.options.epsilon as f32);
        let (mut saved, mut aux) = (Vec::new(), Vec::new());
        for (left, block) in (0..blocks.len()).rev().zip(&blocks) {
            let y = convolution(Role::Output, &[[&x, block.weight]], &block.conv, of);
            let norm = match block.running.clone() {
                Some(given) => running_norm_vectors(given, &block.vectors, epsilon),
                None => {
                    let (norm, moments) = batch_norm_vectors(&y, &block.vectors, epsilon);
                    aux.extend(moments);
                    norm
                }
            };
            let input = Input::new(y.clone(), norm.map());
            let z = activate(&input, block.after, self.output_type(left, of));
            if keep {
                saved.push(Saved { x, y, norm });
            }
            x = z;
        }
        ForwardOutput { result: x, aux, saved: keep.then_some(saved) }
    }

    fn vjp(
        &self,
        primal: PrimalTensors<'_, CubeBackend<R, F, I, BT>, Self>,
        along: Option<TangentTensors<'_, CubeBackend<R, F, I, BT>, Self>>,
        grad: Option<&CubeTensor<R>>,
        requires_grad: &[bool],
        keep: bool,
    ) -> Gradients<CubeBackend<R, F, I, BT>, Self::IntermediateGrads> {
        let blocks = self.on_device(primal.operands);
        let mut gradients: OptionalTensors<CubeBackend<R, F, I, BT>> =
            requires_grad.iter().map(|_| None).collect();
        let mut intermediate = Vec::new();
        let mut dz = grad.cloned().map(into_contiguous);
        for (index, block) in blocks.iter().enumerate().rev() {
            let (saved, operands) = (&primal.saved[index], 1 + 4 * index);
            let along = along.as_ref().map(|along| Along {
                saved: &along.saved_tangent[index],
                grads: &along.intermediate_grads[index],
                weight: along.tangents[operands].as_ref(),
                bias: along.tangents[operands + 1].clone().map(into_contiguous),
            });
            let (grads, vectors) = block.norm_vjp(saved, along.as_ref(), dz.take());
            let dy = grads.dy.clone();
            if keep {
                intermediate.push(grads);
            }
            if requires_grad[operands] {
                let by_input =
                    along.as_ref().and_then(|of| Some([&of.grads.dy, of.saved.x.as_ref()?]));
                let terms: Vec<_> = [[&dy, &saved.x]].into_iter().chain(by_input).collect();
                let dw = convolution(Role::Weight, &terms, &block.conv, block.weight.dtype);
                gradients[operands] = Some(dw);
            }
            for (place, vector) in (operands + 1..).zip(vectors) {
                gradients[place] = requires_grad[place].then_some(vector);
            }
            if !requires_grad[..operands].contains(&true) && (index == 0 || !keep) {
                break;
            }
            let by_weight = along.as_ref().and_then(|of| Some([of.weight?, &of.grads.dy]));
            let terms: Vec<_> = [[block.weight, &dy]].into_iter().chain(by_weight).collect();
            let dtype = if index == 0 { primal.operands[0].dtype } else { saved.x.dtype };
            let dx = convolution(Role::Input, &terms, &block.conv, dtype);
            match index {
                0 => gradients[0] = Some(dx),
                _ => dz = Some(dx),
            }
        }
        intermediate.reverse();
        (gradients, keep.then_some(intermediate))
    }

    fn jvp(
        &self,
        primal: PrimalTensors<'_, CubeBackend<R, F, I, BT>, Self>,
        tangents: &[Option<CubeTensor<R>>],
    ) -> (CubeTensor<R>, Self::SavedTangent) {
        let blocks = self.on_device(primal.operands);
        let mut tangent =
            tangents[0].clone().map(|images| self.rounded::<CubeBackend<R, F, I, BT>>(images));
        let mut saved_tangent = Vec::new();
        for (index, (block, saved)) in blocks.iter().zip(primal.saved).enumerate() {
            let Saved { x, y, norm } = saved;
            let [weight, bias, gamma, beta] =
                [0, 1, 2, 3].map(|part| &tangents[1 + 4 * index + part]);
            let by_input = tangent.as_ref().map(|tangent| [tangent, block.weight]);
            let by_weight = weight.as_ref().map(|tangent| [x, tangent]);
            let terms: Vec<_> = by_input.into_iter().chain(by_weight).collect();
            let y_tangent = match terms.is_empty() {
                true => zeros(y, y.meta.shape().clone(), y.dtype),
                false => convolution(Role::Output, &terms, &block.conv, y.dtype),
            };
            let parts = block.pixels().map(|pixels| {
                let by = Grad::new(y_tangent.clone());
                (correlate(&by, y, slice::from_ref(&norm.centre), [None, None]), pixels)
            });
            let vector_tangents = [bias, gamma, beta].map(|of| of.clone().map(into_contiguous));
            let norm_tangent = norm_jvp(parts, norm, &block.vectors, &vector_tangents);
            let input = norm_tangent.input(y, &y_tangent, norm);
            let dtype = self.output_type(blocks.len() - 1 - index, y.dtype);
            let z_tangent = activate(&input, block.after, dtype);
            let x_tangent = tangent.replace(z_tangent);
            saved_tangent.push(SavedTangent { x: x_tangent, y: y_tangent, norm: norm_tangent });
        }
        (tangent.expect("at least one block"), saved_tangent)
    }
}

#[cfg(all(test, any(feature = "wgpu", feature = "cuda"), feature = "flex"))]
mod tests;
