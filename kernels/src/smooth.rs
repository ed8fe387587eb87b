//! Operations on slices that can be differentiated twice, as operations on tensors.
//!
//! The gradient of such an operation is an operation of its own. Under a second level of autodiff its
//! backward pass is the pass along a direction: for a cotangent `u` of the gradients `G(x, g)` of
//! `<g, f(x)>`, the gradient of `<u, G>` is the tangent of `G` along `u` for the operands `x`, and the
//! tangent of `f` along `u` for `g`.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::Shape;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;
use rayon::prelude::*;

use crate::bundle::{self, Bundle, Places};
use crate::host::{HostBackend, elements, write_shape};

/// An operation on f32 slices with one result that is differentiated.
pub trait Smooth: Clone + Debug + Send + Sync + 'static {
    /// What the gradients need, or need besides the operands.
    type Tape: Send + Sync + 'static;

    /// Whether the gradients read the operands. What they do not read need not stay in memory.
    const READS_OPERANDS: bool;

    /// Shape of the operand in this place.
    fn operand(&self, place: usize) -> Shape;

    /// Shape of the result.
    fn result(&self) -> Shape;

    /// The result, with the tape where `keep` asks for it.
    fn forward(&self, operands: &[&[f32]], keep: bool) -> Passed<Self::Tape>;

    /// The gradients of the operands, given that of the result; those that are not `wanted` may be
    /// left out.
    fn backward(&self, at: Point<'_, Self>, grad: &[f32], wanted: &[bool])
    -> Vec<Option<Vec<f32>>>;

    /// How the result and the [gradients](Self::backward) change where the operands move along
    /// `direction`, those without one standing still, and `grad` stays.
    fn along(
        &self,
        at: Point<'_, Self>,
        direction: &[Option<&[f32]>],
        grad: &[f32],
        wanted: &[bool],
    ) -> Along;
}

/// What a forward pass returns.
pub struct Passed<T> {
    pub result: Vec<f32>,
    /// What is not differentiated.
    pub aside: Vec<f32>,
    /// If it was asked for.
    pub tape: Option<T>,
}

/// Where the gradients are taken.
pub struct Point<'a, S: Smooth> {
    pub tape: &'a S::Tape,
    /// None unless [they are read](Smooth::READS_OPERANDS).
    pub operands: &'a [&'a [f32]],
}

/// What [`Smooth::along`] returns.
pub struct Along {
    /// Change of the result.
    pub result: Vec<f32>,
    /// Changes of the gradients.
    pub gradients: Vec<Option<Vec<f32>>>,
}

/// A backend that runs any [`Smooth`] operation: a host, bare and under two levels of autodiff.
pub trait SmoothOps: Backend {
    /// The result and what stands aside, with what the gradients need where `keep` asks for it.
    fn forward<S: Smooth>(
        call: &S,
        operands: Vec<FloatTensor<Self>>,
        keep: bool,
    ) -> Forward<Self, S>;

    /// The gradients of the operands, given that of the result, in every wanted place.
    fn gradients<S: Smooth>(
        kept: &Kept<Self, S>,
        grad: FloatTensor<Self>,
        wanted: &[bool],
    ) -> Places<Self>;
}

/// What [`SmoothOps::forward`] returns.
pub struct Forward<B: Backend, S: Smooth> {
    pub result: FloatTensor<B>,
    /// Untracked.
    pub aside: FloatTensor<B>,
    kept: Option<Kept<B, S>>,
}

/// What the gradients need.
pub struct Kept<B: Backend, S: Smooth> {
    call: S,
    operands: Vec<FloatTensor<B>>,
    tape: Arc<S::Tape>,
}

impl<B: HostBackend> SmoothOps for B {
    fn forward<S: Smooth>(call: &S, operands: Vec<FloatTensor<B>>, keep: bool) -> Forward<B, S> {
        let device = B::float_device(&operands[0]);
        let Passed { result, aside, tape } =
            with_slices::<B, _>(&operands, |slices| call.forward(slices, keep));
        let aside_length = aside.len();
        Forward {
            result: write_shape::<B>(result, call.result(), &device),
            aside: write_shape::<B>(aside, [aside_length].into(), &device),
            kept: tape.map(|tape| Kept {
                call: call.clone(),
                operands: if S::READS_OPERANDS { operands } else { Vec::new() },
                tape: Arc::new(tape),
            }),
        }
    }

    fn gradients<S: Smooth>(kept: &Kept<B, S>, grad: FloatTensor<B>, wanted: &[bool]) -> Places<B> {
        let device = B::float_device(&grad);
        let found = with_slices::<B, _>(&kept.operands, |operands| {
            let at = Point { tape: &*kept.tape, operands };
            kept.call.backward(at, &elements::<B>(&grad), wanted)
        });
        placed::<B, S>(&kept.call, found, wanted, &device)
    }
}

/// The gradients that are wanted, as tensors.
fn placed<B: HostBackend, S: Smooth>(
    call: &S,
    found: Vec<Option<Vec<f32>>>,
    wanted: &[bool],
    device: &B::Device,
) -> Places<B> {
    let each = found.into_iter().zip(wanted).enumerate();
    let tensor = |(place, (found, &wanted)): (usize, (Option<Vec<f32>>, &bool))| {
        let found = found.filter(|_| wanted)?;
        Some(write_shape::<B>(found, call.operand(place), device))
    };
    each.map(tensor).collect()
}

/// Calls `then` with the elements of all tensors.
fn with_slices<B: HostBackend, T>(
    tensors: &[FloatTensor<B>],
    then: impl FnOnce(&[&[f32]]) -> T,
) -> T {
    let all: Vec<Cow<'_, [f32]>> = tensors.iter().map(elements::<B>).collect();
    let slices: Vec<&[f32]> = all.iter().map(|each| &**each).collect();
    then(&slices)
}

/// The operation on the graph of its operands.
pub fn forward<B: SmoothOps, C: CheckpointStrategy, S: Smooth>(
    call: &S,
    operands: Vec<FloatTensor<Autodiff<B, C>>>,
    keep: bool,
) -> Forward<Autodiff<B, C>, S> {
    let keeps = keep || operands.iter().any(|operand| operand.is_tracked());
    let inner = operands.iter().map(|operand| operand.primitive.clone()).collect();
    let Forward { result, aside, kept } = B::forward(call, inner, keeps);
    let tape = kept.as_ref().map(|kept| kept.tape.clone());
    let bundle = || Arc::new(kept.expect("kept, as asked")) as Arc<dyn Bundle<B>>;
    let mut result = bundle::record::<B, C>(&operands, bundle, vec![result]);
    Forward {
        result: result.pop().expect("one result"),
        aside: <Autodiff<B, C> as AutodiffBackend>::from_inner(aside),
        kept: tape.filter(|_| keep).map(|tape| Kept { call: call.clone(), operands, tape }),
    }
}

impl<B: SmoothOps, S: Smooth> Bundle<B> for Kept<B, S> {
    fn gradients(&self, mut results: Places<B>, wanted: &[bool]) -> Places<B> {
        let grad = results[0].take().expect("the gradient of the one result");
        B::gradients(self, grad, wanted)
    }
}

impl<B: HostBackend, C: CheckpointStrategy> SmoothOps for Autodiff<B, C> {
    fn forward<S: Smooth>(
        call: &S,
        operands: Vec<FloatTensor<Self>>,
        keep: bool,
    ) -> Forward<Self, S> {
        forward::<B, C, S>(call, operands, keep)
    }

    fn gradients<S: Smooth>(
        kept: &Kept<Self, S>,
        grad: FloatTensor<Self>,
        wanted: &[bool],
    ) -> Places<Self> {
        let read = kept.operands.iter().filter(|_| S::READS_OPERANDS);
        let operands = read.map(|operand| operand.primitive.clone()).collect();
        let (call, tape) = (kept.call.clone(), kept.tape.clone());
        let below = Kept { call, operands, tape };
        let found = <B as SmoothOps>::gradients(&below, grad.primitive.clone(), wanted);
        let places: Vec<usize> = (0..found.len()).filter(|&place| found[place].is_some()).collect();
        let slope = || {
            let (grad, places) = (grad.primitive.clone(), places.clone());
            Arc::new(Slope { at: below, grad, places }) as Arc<dyn Bundle<B>>
        };
        let parents: Vec<_> = kept.operands.iter().chain([&grad]).cloned().collect();
        let results = found.into_iter().flatten().collect();
        let found = bundle::record::<B, C>(&parents, slope, results);
        let mut all: Places<Self> = wanted.iter().map(|_| None).collect();
        for (place, gradient) in places.into_iter().zip(found) {
            all[place] = Some(gradient);
        }
        all
    }
}

/// The gradients as an operation on the operands and the gradient of the result.
struct Slope<B: Backend, S: Smooth> {
    at: Kept<B, S>,
    grad: FloatTensor<B>,
    /// Which operands the results are the gradients of.
    places: Vec<usize>,
}

impl<B: HostBackend, S: Smooth> Bundle<B> for Slope<B, S> {
    fn gradients(&self, results: Places<B>, wanted: &[bool]) -> Places<B> {
        let Kept { call, operands, tape } = &self.at;
        let device = B::float_device(&self.grad);
        let cotangents: Vec<_> =
            results.iter().map(|result| result.as_ref().map(elements::<B>)).collect();
        let (grad_wanted, wanted) = wanted.split_last().expect("operands, then the gradient");
        let mut direction = vec![None; wanted.len()];
        for (&place, cotangent) in self.places.iter().zip(&cotangents) {
            direction[place] = cotangent.as_deref();
        }
        let Along { result, gradients } = with_slices::<B, _>(operands, |operands| {
            let at = Point { tape: &**tape, operands };
            call.along(at, &direction, &elements::<B>(&self.grad), wanted)
        });
        let mut all = placed::<B, S>(call, gradients, wanted, &device);
        all.push(grad_wanted.then(|| write_shape::<B>(result, call.result(), &device)));
        all
    }
}

/// Multiply-adds from which it pays to wake other threads.
const PARALLEL: usize = 1 << 20;

/// Runs every lane on its parts of the tensors, of which each has those of lane after lane; with what
/// `room` makes for as many as a thread takes in turn. So many multiply-adds are to do.
pub fn by_lane<T: Send, R>(
    tensors: &mut [Vec<f32>],
    (lanes, work): (usize, usize),
    room: impl Fn() -> R + Send + Sync,
    run: impl Fn(&mut R, usize, &mut [&mut [f32]]) -> T + Send + Sync,
) -> Vec<T> {
    let mut parts: Vec<Vec<&mut [f32]>> = (0..lanes).map(|_| Vec::new()).collect();
    for tensor in tensors {
        let length = tensor.len() / lanes;
        let mut rest = &mut tensor[..];
        for own in &mut parts {
            own.push(rest.split_off_mut(..length).expect("a part for every lane"));
        }
    }
    let run = |room: &mut R, (lane, mut own): (usize, Vec<&mut [f32]>)| run(room, lane, &mut own);
    if work < PARALLEL || rayon::current_num_threads() == 1 {
        let mut room = room();
        return parts.into_iter().enumerate().map(|each| run(&mut room, each)).collect();
    }
    parts.into_par_iter().enumerate().map_init(room, run).collect()
}
