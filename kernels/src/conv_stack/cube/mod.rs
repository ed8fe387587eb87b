//! The stack on a device, as one operation: maps lie as `[n, lanes * c, h, w]` throughout, and of a
//! block the convolution's output and the block's own are all that is written.
//!
//! A block takes four launches forward: convolution, partial moments, what it normalises with, and
//! normalisation with ReLU and pool. Back it takes six: partial sums, the gradients by channel, the
//! map's gradient, the input's, and the weight's in parts and their sum. Along a direction it is as
//! many each way.

#[allow(clippy::too_many_arguments)]
mod vectors;

use burn::tensor::ops::FloatTensorOps;
use burn::tensor::{DType, FloatDType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use self::vectors::{Norm, NormAlong, Vectors};
use super::StackCall;
use crate::bundle::Places;
use crate::channels::cube::{correlate, moment_parts};
use crate::conv2d::cube::convolution;
use crate::conv2d::{ConvShape, Role};
use crate::norm_relu::Rectified;
use crate::norm_relu::cube::{
    Along, Change, activate, activate_along, combine, combine_along, correlate as correlate_dv,
    correlate_along,
};
use crate::smooth::{At, MovedAlong, Passed, Passes};

/// What a block leaves in the forward pass.
#[derive(Clone)]
pub struct Saved<T> {
    /// Its input.
    x: T,
    /// The output of its convolution.
    y: T,
    norm: Norm<T>,
}

/// The gradients in a block.
#[derive(Clone)]
pub struct Between<T> {
    /// Of its output.
    dz: T,
    /// Of its convolution's output.
    dy: T,
    /// By channel, see [`vectors::Gradients::sums`].
    sums: T,
}

/// How a block moves.
#[derive(Clone)]
pub struct SavedAlong<T> {
    /// Its input; none where the images stand still.
    x: Option<T>,
    /// The output of its convolution.
    y: T,
    norm: NormAlong<T>,
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
}

impl StackCall {
    /// The shape of every block's convolution, and what comes after.
    fn layers(&self) -> Vec<(ConvShape, Rectified)> {
        let (n, mut c, mut h, mut w) = (self.shape.n, self.shape.c, self.shape.h, self.shape.w);
        let layer = |block: &super::cpu::BlockShape| {
            let (o, stride, lanes) = (block.channels_out, block.stride, self.lanes);
            let conv = ConvShape { n, c, h, w, o, kernel: 3, stride, padding: 1, lanes };
            [h, w] = conv.output_size().map(|side| if block.pool { side / 2 } else { side });
            c = o;
            (conv, Rectified { pool: block.pool })
        };
        self.shape.blocks.iter().map(layer).collect()
    }

    fn on_device<'a, R: CubeRuntime>(&self, operands: &'a [CubeTensor<R>]) -> Vec<Block<'a, R>> {
        let layers = self.layers();
        let (parameters, running) = operands[1..].split_at(4 * layers.len());
        let block = |(index, (conv, after)): (usize, (ConvShape, Rectified))| {
            let [weight, bias, gamma, beta] = &parameters[4 * index..][..4] else {
                unreachable!("four tensors a block");
            };
            let vectors = Vectors {
                bias: into_contiguous(bias.clone()),
                gamma: into_contiguous(gamma.clone()),
                beta: into_contiguous(beta.clone()),
                biased: self.biased[index],
            };
            let running = self
                .running
                .then(|| [0, 1].map(|which| into_contiguous(running[2 * index + which].clone())));
            Block { conv, after, weight, vectors, running }
        };
        layers.into_iter().enumerate().map(block).collect()
    }

    /// The type of a block's output, where there are so many after it, of maps of `dtype`.
    fn output_type(&self, left: usize, dtype: DType) -> DType {
        match self.precision.low() {
            // The features are f32.
            Some(_) if left == 0 => DType::F32,
            _ => dtype,
        }
    }
}

/// Which operands' gradients are wanted.
struct Wanted<'a>(&'a [bool]);

impl Wanted<'_> {
    fn images(&self) -> bool {
        self.0[0]
    }

    fn weight(&self, block: usize) -> bool {
        self.0[1 + 4 * block]
    }

    /// Of bias, gamma and beta.
    fn vector(&self, block: usize, place: usize) -> bool {
        self.0[2 + 4 * block + place]
    }

    /// Whether the gradient of a block's input is wanted, or one behind it.
    fn before(&self, block: usize) -> bool {
        self.0[..1 + 4 * block].contains(&true)
    }
}

/// The derivatives of a convolution with the gradients of its output.
fn convolved<R: CubeRuntime>(
    wanted: Role,
    terms: Vec<[&CubeTensor<R>; 2]>,
    conv: &ConvShape,
    dtype: DType,
) -> CubeTensor<R> {
    let terms = terms.into_iter().map(|term| term.map(Clone::clone)).collect();
    convolution(wanted, terms, conv, dtype)
}

impl<R, F, I, BT> Passes<CubeBackend<R, F, I, BT>> for StackCall
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    BT: BoolElement,
{
    type Tape = Vec<Saved<CubeTensor<R>>>;
    type Between = Vec<Between<CubeTensor<R>>>;
    type Tangent = Vec<SavedAlong<CubeTensor<R>>>;

    const READS_OPERANDS: bool = true;

    fn result(&self) -> Shape {
        self.features().into()
    }

    fn forward(&self, operands: &[CubeTensor<R>], keep: bool) -> Passed<CubeTensor<R>, Self::Tape> {
        let blocks = self.on_device(operands);
        let images = operands[0].clone();
        let mut x = into_contiguous(match self.precision.low() {
            Some(low) => CubeBackend::<R, F, I, BT>::float_cast(images, low),
            None => images,
        });
        let of = x.dtype;
        let (mut tape, mut aside) = (Vec::new(), Vec::new());
        for (left, block) in (0..blocks.len()).rev().zip(&blocks) {
            let y = convolved(Role::Output, vec![[&x, block.weight]], &block.conv, of);
            let norm = match block.running.clone() {
                Some(given) => vectors::of_running(given, &block.vectors, self.epsilon),
                None => {
                    let parts = moment_parts(y.clone());
                    let (norm, moments) = vectors::of_batch(parts, &block.vectors, self.epsilon);
                    aside.extend(moments);
                    norm
                }
            };
            let z = activate(y.clone(), norm.map(), block.after, self.output_type(left, of));
            if keep {
                tape.push(Saved { x, y, norm });
            }
            x = z;
        }
        Passed { result: x, aside, tape: keep.then_some(tape) }
    }

    fn backward(
        &self,
        at: At<'_, CubeBackend<R, F, I, BT>, Self>,
        grad: &CubeTensor<R>,
        wanted: &[bool],
        keep: bool,
    ) -> (Places<CubeBackend<R, F, I, BT>>, Option<Self::Between>) {
        let blocks = self.on_device(at.operands);
        let wants = Wanted(wanted);
        let mut found: Places<CubeBackend<R, F, I, BT>> = wanted.iter().map(|_| None).collect();
        let mut between = Vec::new();
        let mut dz = into_contiguous(grad.clone());
        for (index, (block, saved)) in blocks.iter().zip(at.tape).enumerate().rev() {
            let Saved { x, y, norm } = saved;
            let parts = correlate_dv(dz.clone(), y.clone(), norm.map(), block.after);
            let of_vectors = vectors::gradients(parts, norm, &block.vectors, block.pixels());
            let dy = combine(dz.clone(), y.clone(), norm.map(), of_vectors.drift, block.after);
            if wants.weight(index) {
                let terms = vec![[&dy, x]];
                let dw = convolved(Role::Weight, terms, &block.conv, block.weight.dtype);
                found[1 + 4 * index] = Some(dw);
            }
            for (place, vector) in of_vectors.vectors.into_iter().enumerate() {
                found[2 + 4 * index + place] = wants.vector(index, place).then_some(vector);
            }
            if keep {
                let (dz, dy) = (dz.clone(), dy.clone());
                between.push(Between { dz, dy, sums: of_vectors.sums });
            }
            let before = if index == 0 { wants.images() } else { keep || wants.before(index) };
            if !before {
                break;
            }
            let dtype = if index == 0 { at.operands[0].dtype } else { x.dtype };
            dz = convolved(Role::Input, vec![[block.weight, &dy]], &block.conv, dtype);
            if index == 0 {
                found[0] = Some(dz.clone());
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
        let blocks = self.on_device(at.operands);
        let mut moved = direction[0].clone().map(|images| match self.precision.low() {
            Some(low) => CubeBackend::<R, F, I, BT>::float_cast(images, low),
            None => images,
        });
        let mut tangent = Vec::new();
        for (index, (block, saved)) in blocks.iter().zip(at.tape).enumerate() {
            let Saved { x, y, norm } = saved;
            let [weight, bias, gamma, beta] =
                [0, 1, 2, 3].map(|part| &direction[1 + 4 * index + part]);
            let by_input = moved.as_ref().map(|moved| [moved, block.weight]);
            let by_weight = weight.as_ref().map(|moved| [x, moved]);
            let terms: Vec<_> = by_input.into_iter().chain(by_weight).collect();
            let y_moved = match terms.is_empty() {
                true => {
                    let (shape, device) = (y.meta.shape().clone(), at.device);
                    let dtype = FloatDType::from(y.dtype);
                    CubeBackend::<R, F, I, BT>::float_zeros(shape, device, dtype)
                }
                false => convolved(Role::Output, terms, &block.conv, y.dtype),
            };
            let parts = block
                .pixels()
                .map(|pixels| (correlate(y_moved.clone(), y.clone(), norm.centre.clone()), pixels));
            let moves = [bias, gamma, beta].map(|of| of.clone().map(into_contiguous));
            let norm_moved = vectors::along(parts, norm, &block.vectors, &moves);
            let along = Along {
                x: y.clone(),
                moved: y_moved.clone(),
                map: norm.map(),
                bend: norm_moved.bend.clone(),
            };
            let dtype = self.output_type(blocks.len() - 1 - index, y.dtype);
            let z_moved = activate_along(&along, block.after, dtype);
            let x_moved = moved.replace(z_moved);
            tangent.push(SavedAlong { x: x_moved, y: y_moved, norm: norm_moved });
        }
        (moved.expect("at least one block"), tangent)
    }

    fn backward_along(
        &self,
        at: At<'_, CubeBackend<R, F, I, BT>, Self>,
        moved: MovedAlong<'_, CubeBackend<R, F, I, BT>, Self>,
        change: Option<&CubeTensor<R>>,
        wanted: &[bool],
    ) -> Places<CubeBackend<R, F, I, BT>> {
        let MovedAlong { direction, tangent, between } = moved;
        let blocks = self.on_device(at.operands);
        let wants = Wanted(wanted);
        let mut found: Places<CubeBackend<R, F, I, BT>> = wanted.iter().map(|_| None).collect();
        let mut change = change.cloned().map(into_contiguous);
        for (index, block) in blocks.iter().enumerate().rev() {
            let Saved { x, y, norm } = &at.tape[index];
            let Between { dz, dy, sums } = &between[index];
            let SavedAlong { x: x_moved, y: y_moved, norm: norm_moved } = &tangent[index];
            let along = Along {
                x: y.clone(),
                moved: y_moved.clone(),
                map: norm.map(),
                bend: norm_moved.bend.clone(),
            };
            let by = Change { dz: dz.clone(), change: change.take() };
            let parts = correlate_along(&along, &by, norm_moved.centre.clone(), block.after);
            let (drift, of_vectors) = vectors::gradients_along(
                parts,
                sums.clone(),
                (norm, norm_moved),
                &block.vectors,
                &direction[2 + 4 * index].clone().map(into_contiguous),
                block.pixels(),
            );
            let dy_moved = combine_along(&along, &by, drift, block.after);
            if wants.weight(index) {
                let by_input = x_moved.as_ref().map(|moved| [dy, moved]);
                let terms = [[&dy_moved, x]].into_iter().chain(by_input).collect();
                let dw = convolved(Role::Weight, terms, &block.conv, block.weight.dtype);
                found[1 + 4 * index] = Some(dw);
            }
            for (place, vector) in of_vectors.into_iter().enumerate() {
                found[2 + 4 * index + place] = wants.vector(index, place).then_some(vector);
            }
            if !wants.before(index) {
                break;
            }
            let by_weight = direction[1 + 4 * index].as_ref().map(|moved| [moved, dy]);
            let terms = [[block.weight, &dy_moved]].into_iter().chain(by_weight).collect();
            let dtype = if index == 0 { at.operands[0].dtype } else { x.dtype };
            let dx = convolved(Role::Input, terms, &block.conv, dtype);
            match index {
                0 => found[0] = Some(dx),
                _ => change = Some(dx),
            }
        }
        found
    }
}

#[cfg(all(test, feature = "wgpu", feature = "flex"))]
mod tests;
