//! Operations on slices that can be differentiated twice, as operations on tensors.
//!
//! The gradient of such an operation is an operation of its own. Under a second level of autodiff its
//! backward pass is the pass along a direction: for a cotangent `u` of the gradients `G(x, g)` of
//! `<g, f(x)>`, the gradient of `<u, G>` is the tangent of `G` along `u` for the operands `x`, and the
//! tangent of `f` along `u` for `g`.
//!
//! Where the loss is curved, `g` depends on the result, which has a gradient of its own later in the
//! same pass. The part of the tangent of `G` that falls to the operands is left to the backward pass of
//! `f`, which adds its own in one pass.

#[cfg(feature = "fusion")]
mod fusion;

use std::borrow::Cow;
use std::fmt::Debug;
use std::iter;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{FloatDType, Shape};

use crate::bundle::{self, Bundle, Places};
use crate::host::{HostBackend, elements, write_shape};

/// An operation on f32 slices with one result that is differentiated.
pub trait Smooth: Clone + Debug + Send + Sync + 'static {
    /// What the gradients need, or need besides the operands.
    type Tape: Send + Sync + 'static;

    /// The gradients between the operands' and the result's.
    type Between: Send + Sync + 'static;

    /// How what lies between operands and result changes along a direction.
    type Tangent: Send + Sync + 'static;

    /// Whether the gradients read the operands. What they do not read need not stay in memory.
    const READS_OPERANDS: bool;

    /// Shape of the operand in this place.
    fn operand(&self, place: usize) -> Shape;

    /// Shape of the result.
    fn result(&self) -> Shape;

    /// The result, with the tape where `keep` asks for it.
    fn forward(&self, operands: &[&[f32]], keep: bool) -> Passed<Vec<f32>, Self::Tape>;

    /// The gradients of the operands, given that of the result; those that are not `wanted` may be
    /// left out. With what the pass along a direction needs of them where `keep` asks for it.
    fn backward(
        &self,
        at: Point<'_, Self>,
        grad: &[f32],
        wanted: &[bool],
        keep: bool,
    ) -> (Vec<Option<Vec<f32>>>, Option<Self::Between>);

    /// How the result changes where the operands move along `direction`, those without one standing
    /// still.
    fn forward_along(
        &self,
        at: Point<'_, Self>,
        direction: &[Option<&[f32]>],
    ) -> (Vec<f32>, Self::Tangent);

    /// How the [gradients](Self::backward) change where the operands move, and the gradient of the
    /// result by `change`, or not at all.
    fn backward_along(
        &self,
        at: Point<'_, Self>,
        moved: Moved<'_, Self>,
        change: Option<&[f32]>,
        wanted: &[bool],
    ) -> Vec<Option<Vec<f32>>>;
}

/// What a forward pass returns.
pub struct Passed<V, T> {
    pub result: V,
    /// What is not differentiated, vectors of any number.
    pub aside: Vec<V>,
    /// If it was asked for.
    pub tape: Option<T>,
}

/// Where the gradients are taken.
pub struct Point<'a, S: Smooth> {
    pub tape: &'a S::Tape,
    /// None unless [they are read](Smooth::READS_OPERANDS).
    pub operands: &'a [&'a [f32]],
}

/// How operands move.
pub struct Moved<'a, S: Smooth> {
    /// As [`Smooth::forward_along`] was told; read by a body whose tangent does not have it.
    pub direction: &'a [Option<&'a [f32]>],
    /// As it returned.
    pub tangent: &'a S::Tangent,
    /// What the gradient of the result left on its way to the operands.
    pub between: &'a S::Between,
}

/// The passes of an operation with one differentiated result, on tensors of `H`, a backend below
/// autodiff. Those of a [`Smooth`] operation run on slices of every host.
pub trait Passes<H: Backend>: Clone + Debug + Send + Sync + 'static {
    /// See [`Smooth::Tape`].
    type Tape: Send + Sync + 'static;

    /// See [`Smooth::Between`].
    type Between: Send + Sync + 'static;

    /// See [`Smooth::Tangent`].
    type Tangent: Send + Sync + 'static;

    /// See [`Smooth::READS_OPERANDS`].
    const READS_OPERANDS: bool;

    /// Shape of the result.
    fn result(&self) -> Shape;

    /// See [`Smooth::forward`].
    fn forward(
        &self,
        operands: &[FloatTensor<H>],
        keep: bool,
    ) -> Passed<FloatTensor<H>, Self::Tape>;

    /// See [`Smooth::backward`].
    fn backward(
        &self,
        at: At<'_, H, Self>,
        grad: &FloatTensor<H>,
        wanted: &[bool],
        keep: bool,
    ) -> (Places<H>, Option<Self::Between>);

    /// See [`Smooth::forward_along`].
    fn forward_along(
        &self,
        at: At<'_, H, Self>,
        direction: &[Option<FloatTensor<H>>],
    ) -> (FloatTensor<H>, Self::Tangent);

    /// See [`Smooth::backward_along`].
    fn backward_along(
        &self,
        at: At<'_, H, Self>,
        moved: MovedAlong<'_, H, Self>,
        change: Option<&FloatTensor<H>>,
        wanted: &[bool],
    ) -> Places<H>;
}

/// Where the gradients are taken, in tensors.
pub struct At<'a, H: Backend, S: Passes<H>> {
    pub tape: &'a S::Tape,
    /// None unless [they are read](Passes::READS_OPERANDS).
    pub operands: &'a [FloatTensor<H>],
    pub device: &'a H::Device,
}

/// How operands move, in tensors.
pub struct MovedAlong<'a, H: Backend, S: Passes<H>> {
    /// As [`Passes::forward_along`] was told.
    pub direction: &'a [Option<FloatTensor<H>>],
    /// As it returned.
    pub tangent: &'a S::Tangent,
    /// What the gradient of the result left on its way to the operands.
    pub between: &'a S::Between,
}

impl<H: HostBackend, S: Smooth> Passes<H> for S {
    type Tape = S::Tape;
    type Between = S::Between;
    type Tangent = S::Tangent;

    const READS_OPERANDS: bool = S::READS_OPERANDS;

    fn result(&self) -> Shape {
        Smooth::result(self)
    }

    fn forward(&self, operands: &[FloatTensor<H>], keep: bool) -> Passed<FloatTensor<H>, S::Tape> {
        let device = H::float_device(&operands[0]);
        let Passed { result, aside, tape } =
            with_slices::<H, _>(operands, |slices| Smooth::forward(self, slices, keep));
        let result = write_shape::<H>(result, Smooth::result(self), &device);
        let vector = |of: Vec<f32>| {
            let length = of.len();
            write_shape::<H>(of, [length].into(), &device)
        };
        let aside = aside.into_iter().map(vector).collect();
        Passed { result, aside, tape }
    }

    fn backward(
        &self,
        At { tape, operands, device }: At<'_, H, S>,
        grad: &FloatTensor<H>,
        wanted: &[bool],
        keep: bool,
    ) -> (Places<H>, Option<S::Between>) {
        let (found, between) = with_slices::<H, _>(operands, |operands| {
            let at = Point { tape, operands };
            Smooth::backward(self, at, &elements::<H>(grad), wanted, keep)
        });
        (placed::<H, S>(self, found, wanted, device), between)
    }

    fn forward_along(
        &self,
        At { tape, operands, device }: At<'_, H, S>,
        direction: &[Option<FloatTensor<H>>],
    ) -> (FloatTensor<H>, S::Tangent) {
        let (change, tangent) = with_slices::<H, _>(operands, |operands| {
            let at = Point { tape, operands };
            with_places::<H, _>(direction, |direction| Smooth::forward_along(self, at, direction))
        });
        (write_shape::<H>(change, Smooth::result(self), device), tangent)
    }

    fn backward_along(
        &self,
        At { tape, operands, device }: At<'_, H, S>,
        moved: MovedAlong<'_, H, S>,
        change: Option<&FloatTensor<H>>,
        wanted: &[bool],
    ) -> Places<H> {
        let MovedAlong { direction, tangent, between } = moved;
        let change = change.map(elements::<H>);
        let found = with_slices::<H, _>(operands, |operands| {
            let at = Point { tape, operands };
            with_places::<H, _>(direction, |direction| {
                let moved = Moved { direction, tangent, between };
                Smooth::backward_along(self, at, moved, change.as_deref(), wanted)
            })
        });
        placed::<H, S>(self, found, wanted, device)
    }
}

/// A backend below autodiff: what passes run on.
pub trait Leaf: Backend {}

impl<B: HostBackend> Leaf for B {}

/// A backend that runs any operation that has [`Passes`] on its leaf, bare and under two levels of
/// autodiff.
pub trait SmoothOps: Backend {
    /// The backend below all levels of autodiff.
    type Leaf: Leaf;

    /// The result and what stands aside, with what the gradients need where `keep` asks for it.
    fn forward<S: Passes<Self::Leaf>>(
        call: &S,
        operands: Vec<FloatTensor<Self>>,
        keep: bool,
    ) -> Forward<Self, S>;

    /// The gradients of the operands, given that of the result, in every wanted place.
    fn gradients<S: Passes<Self::Leaf>>(
        kept: &Kept<Self, S>,
        grad: FloatTensor<Self>,
        wanted: &[bool],
    ) -> Places<Self>;
}

/// What [`SmoothOps::forward`] returns.
pub struct Forward<B: SmoothOps, S: Passes<B::Leaf>> {
    pub result: FloatTensor<B>,
    /// Untracked.
    pub aside: Vec<FloatTensor<B>>,
    kept: Option<Kept<B, S>>,
}

/// What the gradients need.
pub struct Kept<B: SmoothOps, S: Passes<B::Leaf>> {
    call: S,
    operands: Vec<FloatTensor<B>>,
    /// On the graph where an operand is; none below all graphs.
    result: Option<FloatTensor<B>>,
    pass: Arc<Pass<B::Leaf, S>>,
}

/// What all levels have of a forward pass.
struct Pass<H: Backend, S: Passes<H>> {
    tape: S::Tape,
    device: H::Device,
    slope: Mutex<SlopeOf<H, S>>,
}

/// The derivative of the gradients of a pass.
enum SlopeOf<H: Backend, S: Passes<H>> {
    /// Nobody has asked for it.
    Unknown,
    /// The backward pass of the operation itself is to find it.
    Left(Left<H, S>),
    /// That pass is over.
    Over,
}

/// What is left to do of the derivative of gradients.
struct Left<H: Backend, S: Passes<H>> {
    direction: Places<H>,
    tangent: S::Tangent,
    between: Arc<S::Between>,
}

impl<H: Backend, S: Passes<H>> Pass<H, S> {
    /// Leaves this to the backward pass of the operation, or hands it back where that is over or has
    /// one already.
    fn leave(&self, left: Left<H, S>) -> Option<Left<H, S>> {
        let mut slope = self.slope.lock().unwrap_or_else(PoisonError::into_inner);
        match *slope {
            SlopeOf::Unknown => *slope = SlopeOf::Left(left),
            SlopeOf::Left(_) | SlopeOf::Over => return Some(left),
        }
        None
    }

    /// What was left to the backward pass of the operation, which is now.
    fn left(&self) -> Option<Left<H, S>> {
        let mut slope = self.slope.lock().unwrap_or_else(PoisonError::into_inner);
        match mem::replace(&mut *slope, SlopeOf::Over) {
            SlopeOf::Left(left) => Some(left),
            SlopeOf::Unknown | SlopeOf::Over => None,
        }
    }
}

impl<B: Leaf> SmoothOps for B {
    type Leaf = B;

    fn forward<S: Passes<B>>(call: &S, operands: Vec<FloatTensor<B>>, keep: bool) -> Forward<B, S> {
        let device = B::float_device(&operands[0]);
        let Passed { result, aside, tape } = call.forward(&operands, keep);
        let kept = tape.map(|tape| Kept {
            call: call.clone(),
            operands: if S::READS_OPERANDS { operands } else { Vec::new() },
            result: None,
            pass: Arc::new(Pass { tape, device, slope: Mutex::new(SlopeOf::Unknown) }),
        });
        Forward { result, aside, kept }
    }

    fn gradients<S: Passes<B>>(
        kept: &Kept<B, S>,
        grad: FloatTensor<B>,
        wanted: &[bool],
    ) -> Places<B> {
        match kept.pass.left() {
            Some(left) => kept.along(&left, Some(&grad), wanted),
            None => kept.back(&grad, wanted, false).0,
        }
    }
}

impl<B: Leaf, S: Passes<B>> Kept<B, S> {
    fn at(&self) -> At<'_, B, S> {
        At { tape: &self.pass.tape, operands: &self.operands, device: &self.pass.device }
    }

    /// The gradients, with what the pass along a direction needs of them where `keep` asks for it.
    fn back(
        &self,
        grad: &FloatTensor<B>,
        wanted: &[bool],
        keep: bool,
    ) -> (Places<B>, Option<S::Between>) {
        self.call.backward(self.at(), grad, wanted, keep)
    }

    /// How the gradients change along a direction, where that of the result changes by `change`.
    fn along(
        &self,
        left: &Left<B, S>,
        change: Option<&FloatTensor<B>>,
        wanted: &[bool],
    ) -> Places<B> {
        let Left { direction, tangent, between } = left;
        let moved = MovedAlong { direction, tangent, between: &**between };
        self.call.backward_along(self.at(), moved, change, wanted)
    }
}

/// The gradients that are wanted, as tensors.
fn placed<B: HostBackend, S: Smooth>(
    call: &S,
    found: Vec<Option<Vec<f32>>>,
    wanted: &[bool],
    device: &B::Device,
) -> Places<B> {
    // Operands at the end may be constants, of which nothing was found.
    let found = found.into_iter().chain(iter::repeat_with(|| None));
    let each = found.zip(wanted).enumerate();
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

/// Calls `then` with the elements of the tensor in each place.
fn with_places<B: HostBackend, T>(
    tensors: &[Option<FloatTensor<B>>],
    then: impl FnOnce(&[Option<&[f32]>]) -> T,
) -> T {
    let all: Vec<_> = tensors.iter().map(|tensor| tensor.as_ref().map(elements::<B>)).collect();
    let slices: Vec<Option<&[f32]>> = all.iter().map(Option::as_deref).collect();
    then(&slices)
}

/// The operation on the graph of its operands: its result, what stands aside, and what its gradients
/// need, in case that of the operands is wanted.
pub fn on_graph<B: SmoothOps, C: CheckpointStrategy, S: Passes<B::Leaf>>(
    call: &S,
    operands: &[FloatTensor<Autodiff<B, C>>],
    keep: bool,
) -> OnGraph<B, C, S> {
    let keeps = keep || operands.iter().any(|operand| operand.is_tracked());
    let inner = operands.iter().map(|operand| operand.primitive.clone()).collect();
    let Forward { result, aside, kept } = B::forward(call, inner, keeps);
    let pass = kept.as_ref().map(|kept| kept.pass.clone());
    let bundle = || Arc::new(kept.expect("kept, as asked")) as Arc<dyn Bundle<B>>;
    let mut result = bundle::record::<B, C>(operands, bundle, vec![result]);
    OnGraph {
        result: result.pop().expect("one result"),
        aside: aside.into_iter().map(<Autodiff<B, C> as AutodiffBackend>::from_inner).collect(),
        pass,
    }
}

/// What [`on_graph`] returns.
pub struct OnGraph<B: SmoothOps, C: CheckpointStrategy, S: Passes<B::Leaf>> {
    pub result: FloatTensor<Autodiff<B, C>>,
    /// Untracked.
    pub aside: Vec<FloatTensor<Autodiff<B, C>>>,
    pass: Option<Arc<Pass<B::Leaf, S>>>,
}

impl<B: SmoothOps, S: Passes<B::Leaf>> Bundle<B> for Kept<B, S> {
    fn gradients(&self, mut results: Places<B>, wanted: &[bool]) -> Places<B> {
        let grad = results[0].take().expect("the gradient of the one result");
        let found = B::gradients(self, grad, wanted);
        debug_assert!(found.iter().zip(wanted).all(|(found, wanted)| found.is_some() >= *wanted));
        found
    }
}

impl<B: Leaf, C: CheckpointStrategy> SmoothOps for Autodiff<B, C> {
    type Leaf = B;

    fn forward<S: Passes<B>>(
        call: &S,
        operands: Vec<FloatTensor<Self>>,
        keep: bool,
    ) -> Forward<Self, S> {
        let OnGraph { result, aside, pass } = on_graph::<B, C, S>(call, &operands, keep);
        let (call, same) = (call.clone(), result.clone());
        let kept = pass.filter(|_| keep);
        let kept = kept.map(|pass| Kept { call, operands, result: Some(same), pass });
        Forward { result, aside, kept }
    }

    fn gradients<S: Passes<B>>(
        kept: &Kept<Self, S>,
        grad: FloatTensor<Self>,
        wanted: &[bool],
    ) -> Places<Self> {
        let read = kept.operands.iter().filter(|_| <S as Passes<B>>::READS_OPERANDS);
        let operands = read.map(|operand| operand.primitive.clone()).collect();
        let (call, pass) = (kept.call.clone(), kept.pass.clone());
        let below = Kept { call, operands, result: None, pass };
        let result = kept.result.as_ref().expect("a result of this level");
        let parents: Vec<_> = kept.operands.iter().chain([&grad, result]).cloned().collect();
        // It is where an operand is.
        let (found, between) = below.back(&grad.primitive, wanted, result.is_tracked());
        let places: Vec<usize> = (0..found.len()).filter(|&place| found[place].is_some()).collect();
        let slope = || {
            let between = between.map(Arc::new);
            Arc::new(Slope { at: below, between, places: places.clone() }) as Arc<dyn Bundle<B>>
        };
        let results = found.into_iter().flatten().collect();
        let found = bundle::record::<B, C>(&parents, slope, results);
        let mut all: Places<Self> = wanted.iter().map(|_| None).collect();
        for (place, gradient) in places.into_iter().zip(found) {
            all[place] = Some(gradient);
        }
        all
    }
}

/// The gradients as an operation on the operands, the gradient of the result, and the result: they do
/// not depend on that, but what is left to its backward pass must be there before it.
struct Slope<B: Leaf, S: Passes<B>> {
    at: Kept<B, S>,
    /// Where an operand is on the graph.
    between: Option<Arc<S::Between>>,
    /// Which operands the results are the gradients of.
    places: Vec<usize>,
}

impl<B: Leaf, S: Passes<B>> Bundle<B> for Slope<B, S> {
    fn gradients(&self, results: Places<B>, wanted: &[bool]) -> Places<B> {
        let Kept { call, pass, .. } = &self.at;
        let [wanted @ .., grad_wanted, result_wanted] = wanted else {
            unreachable!("operands, the gradient and the result are its parents");
        };
        let mut direction: Places<B> = wanted.iter().map(|_| None).collect();
        for (&place, cotangent) in self.places.iter().zip(results) {
            direction[place] = cotangent;
        }
        let (change, tangent) = call.forward_along(self.at.at(), &direction);
        let mut all: Places<B> = wanted.iter().map(|_| None).collect();
        if let Some(between) = self.between.clone() {
            let left = Left { direction, tangent, between };
            if let Some(left) = pass.leave(left) {
                all = self.at.along(&left, None, wanted);
            }
        }
        all.push(grad_wanted.then_some(change));
        // Its backward pass is made whether anything else depends on it or not.
        let nothing = || B::float_zeros(call.result(), &pass.device, FloatDType::F32);
        all.push(result_wanted.then(nothing));
        all
    }
}
