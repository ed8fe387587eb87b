//! Backends that run every twice differentiable operation of their innermost backend, bare and under two
//! levels of autodiff.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;

use super::{ForwardOutput, Gradients, PrimalTensors, TangentTensors, TwiceDifferentiable};
use crate::host::HostBackend;
use crate::registry::{Operation, Runs};
use crate::variadic_op::{self, OptionalTensors, Pull, Trigger};

/// A backend without autodiff, on which the passes of operations run.
pub trait InnermostBackend: Backend {}

impl<B: HostBackend> InnermostBackend for B {}

/// A backend that runs [`TwiceDifferentiable`] operations, bare and under two levels of autodiff.
pub trait TwiceDifferentiableBackend: Backend {
    /// The backend below all levels of autodiff.
    type Innermost: InnermostBackend;

    /// The forward pass; with what the gradients need if `keep` is set.
    fn forward<S: TwiceDifferentiable<Self::Innermost>>(
        call: &S,
        operands: Vec<FloatTensor<Self>>,
        keep: bool,
    ) -> ForwardPass<Self, S>;

    /// The wanted gradients of the operands, given that of the result; there may be none if a Hessian-vector
    /// product was deferred to this pass.
    fn gradients<S: TwiceDifferentiable<Self::Innermost>>(
        state: &BackwardState<Self, S>,
        grad: Option<FloatTensor<Self>>,
        requires_grad: &[bool],
    ) -> OptionalTensors<Self>;
}

/// The results, the auxiliary ones untracked, and what the backward pass needs if it is kept.
pub type ForwardPass<B, S> = ForwardOutput<FloatTensor<B>, BackwardState<B, S>>;

/// The state of an operation that its backward pass needs.
pub struct BackwardState<B: TwiceDifferentiableBackend, S: TwiceDifferentiable<B::Innermost>> {
    call: S,
    operands: Vec<FloatTensor<B>>,
    /// The trigger of the backward pass at this level; `None` if no operand is tracked.
    trigger: Option<Trigger<FloatTensor<B>, FloatTensor<B::Innermost>>>,
    shared: Arc<SharedState<B::Innermost, S>>,
}

/// The part of a forward pass that all levels of autodiff share.
struct SharedState<H: Backend, S: TwiceDifferentiable<H>> {
    saved: S::Saved,
    device: H::Device,
    hvp: Mutex<DeferredHvp<H, S>>,
}

/// The Hessian-vector product that the backward pass of the operation computes along with its own
/// gradients.
enum DeferredHvp<H: Backend, S: TwiceDifferentiable<H>> {
    /// None was requested so far.
    NotRequested,
    /// To be computed.
    Pending(HvpTangents<H, S>),
    /// The backward pass of the operation is over.
    Done,
}

/// The tangents of a Hessian-vector product.
struct HvpTangents<H: Backend, S: TwiceDifferentiable<H>> {
    /// The tangents of the operands.
    tangents: OptionalTensors<H>,
    saved_tangent: S::SavedTangent,
    intermediate_grads: S::IntermediateGrads,
}

impl<H: Backend, S: TwiceDifferentiable<H>> SharedState<H, S> {
    /// Defers a Hessian-vector product to the backward pass of the operation. Returns it if that pass
    /// is over or has one already.
    fn defer(&self, tangents: HvpTangents<H, S>) -> Option<HvpTangents<H, S>> {
        let mut hvp = self.hvp.lock().unwrap_or_else(PoisonError::into_inner);
        match *hvp {
            DeferredHvp::NotRequested => *hvp = DeferredHvp::Pending(tangents),
            DeferredHvp::Pending(_) | DeferredHvp::Done => return Some(tangents),
        }
        None
    }

    /// The deferred Hessian-vector product, if there is one, for the backward pass of the operation.
    fn take_deferred(&self) -> Option<HvpTangents<H, S>> {
        let mut hvp = self.hvp.lock().unwrap_or_else(PoisonError::into_inner);
        match mem::replace(&mut *hvp, DeferredHvp::Done) {
            DeferredHvp::Pending(tangents) => Some(tangents),
            DeferredHvp::NotRequested | DeferredHvp::Done => None,
        }
    }
}

impl<B: InnermostBackend> TwiceDifferentiableBackend for B {
    type Innermost = B;

    fn forward<S: TwiceDifferentiable<B>>(
        call: &S,
        operands: Vec<FloatTensor<B>>,
        keep: bool,
    ) -> ForwardPass<B, S> {
        let device = B::float_device(&operands[0]);
        let ForwardOutput { result, aux, saved } = call.forward(&operands, keep);
        let state = saved.map(|saved| BackwardState {
            call: call.clone(),
            operands: if S::READS_OPERANDS { operands } else { Vec::new() },
            trigger: None,
            shared: Arc::new(SharedState {
                saved,
                device,
                hvp: Mutex::new(DeferredHvp::NotRequested),
            }),
        });
        ForwardOutput { result, aux, saved: state }
    }

    fn gradients<S: TwiceDifferentiable<B>>(
        state: &BackwardState<B, S>,
        grad: Option<FloatTensor<B>>,
        requires_grad: &[bool],
    ) -> OptionalTensors<B> {
        state.vjp(state.shared.take_deferred().as_ref(), grad.as_ref(), requires_grad, false).0
    }
}

impl<B: InnermostBackend, S: TwiceDifferentiable<B>> BackwardState<B, S> {
    fn primal(&self) -> PrimalTensors<'_, B, S> {
        let SharedState { saved, device, .. } = &*self.shared;
        PrimalTensors { saved, operands: &self.operands, device }
    }

    /// See [`TwiceDifferentiable::vjp`].
    fn vjp(
        &self,
        along: Option<&HvpTangents<B, S>>,
        grad: Option<&FloatTensor<B>>,
        requires_grad: &[bool],
        keep: bool,
    ) -> Gradients<B, S::IntermediateGrads> {
        let along = along.map(|along| TangentTensors {
            tangents: &along.tangents,
            saved_tangent: &along.saved_tangent,
            intermediate_grads: &along.intermediate_grads,
        });
        self.call.vjp(self.primal(), along, grad, requires_grad, keep)
    }
}

/// The [`Operation`] of a call that is [`TwiceDifferentiable`].
pub struct Twice<S>(pub S);

impl<S: 'static> Operation for Twice<S> {
    type Operands<B: Backend> = Vec<FloatTensor<B>>;
    /// The result, and auxiliary ones, untracked.
    type Results<B: Backend> = (FloatTensor<B>, Vec<FloatTensor<B>>);
}

type Results<B> = (FloatTensor<B>, Vec<FloatTensor<B>>);

impl<B: InnermostBackend, S: TwiceDifferentiable<B>> Runs<Twice<S>> for B {
    fn run(operands: Vec<FloatTensor<B>>, Twice(call): &Twice<S>) -> Results<B> {
        let ForwardOutput { result, aux, .. } = call.forward(&operands, false);
        (result, aux)
    }
}

impl<B: TwiceDifferentiableBackend, C: CheckpointStrategy, S> Runs<Twice<S>> for Autodiff<B, C>
where
    S: TwiceDifferentiable<B::Innermost>,
{
    fn run(operands: Vec<FloatTensor<Self>>, Twice(call): &Twice<S>) -> Results<Self> {
        let (ForwardOutput { result, aux, .. }, _) =
            forward_tracked::<B, C, S>(call, &operands, false);
        (result, aux)
    }
}

/// The results on a graph, what all levels share of the pass, and the trigger of its backward pass.
type TrackedPass<B, C, S> = (
    ForwardOutput<
        FloatTensor<Autodiff<B, C>>,
        Arc<SharedState<<B as TwiceDifferentiableBackend>::Innermost, S>>,
    >,
    Option<Trigger<FloatTensor<Autodiff<B, C>>, FloatTensor<B>>>,
);

/// Runs the operation on `operands` and records it on their graph; with what its gradients need if an
/// operand is tracked or `keep` is set.
fn forward_tracked<B, C, S>(
    call: &S,
    operands: &[FloatTensor<Autodiff<B, C>>],
    keep: bool,
) -> TrackedPass<B, C, S>
where
    B: TwiceDifferentiableBackend,
    C: CheckpointStrategy,
    S: TwiceDifferentiable<B::Innermost>,
{
    let keep = keep || operands.iter().any(|operand| operand.is_tracked());
    let inner = operands.iter().map(|operand| operand.primitive.clone()).collect();
    let ForwardOutput { result, aux, saved: state } = B::forward(call, inner, keep);
    let saved = state.as_ref().map(|state| state.shared.clone());
    let gradients = |mut results: OptionalTensors<B>, requires_grad: &[bool]| {
        let gradients =
            B::gradients(&state.expect("kept, as asked"), results[0].take(), requires_grad);
        debug_assert!(
            gradients
                .iter()
                .zip(requires_grad)
                .all(|(gradients, requires_grad)| gradients.is_some() >= *requires_grad)
        );
        gradients
    };
    let (mut result, trigger) =
        variadic_op::record_with_trigger::<B, C>(operands, vec![result], gradients);
    let aux = aux.into_iter().map(<Autodiff<B, C> as AutodiffBackend>::from_inner).collect();
    let result = result.pop().expect("one result");
    (ForwardOutput { result, aux, saved }, trigger)
}

impl<B: InnermostBackend, C: CheckpointStrategy> TwiceDifferentiableBackend for Autodiff<B, C> {
    type Innermost = B;

    fn forward<S: TwiceDifferentiable<B>>(
        call: &S,
        operands: Vec<FloatTensor<Self>>,
        keep: bool,
    ) -> ForwardPass<Self, S> {
        let (ForwardOutput { result, aux, saved }, trigger) =
            forward_tracked::<B, C, S>(call, &operands, keep);
        let state = |shared| BackwardState { call: call.clone(), operands, trigger, shared };
        ForwardOutput { result, aux, saved: saved.filter(|_| keep).map(state) }
    }

    fn gradients<S: TwiceDifferentiable<B>>(
        state: &BackwardState<Self, S>,
        grad: Option<FloatTensor<Self>>,
        requires_grad: &[bool],
    ) -> OptionalTensors<Self> {
        let grad = grad.expect("Hessian-vector products are deferred below this level");
        let read = state.operands.iter().filter(|_| <S as TwiceDifferentiable<B>>::READS_OPERANDS);
        let operands = read.map(|operand| operand.primitive.clone()).collect();
        let (call, shared) = (&state.call, state.shared.clone());
        let below = BackwardState { call: call.clone(), operands, trigger: None, shared };
        let trigger = state.trigger.as_ref();
        let others = [&grad].into_iter().chain(trigger.map(|trigger| &trigger.parent));
        let parents: Vec<_> = state.operands.iter().chain(others).cloned().collect();
        let (gradients, intermediate_grads) =
            below.vjp(None, Some(&grad.primitive), requires_grad, trigger.is_some());
        let indices: Vec<usize> =
            (0..gradients.len()).filter(|&index| gradients[index].is_some()).collect();
        let pull = trigger.map(|trigger| trigger.pull.clone());
        let node = VjpNode { state: below, intermediate_grads, pull, indices: indices.clone() };
        let results = gradients.into_iter().flatten().collect();
        let gradients = variadic_op::record::<B, C>(&parents, results, |results, requires_grad| {
            node.gradients(results, requires_grad)
        });
        let mut all: OptionalTensors<Self> = requires_grad.iter().map(|_| None).collect();
        for (index, gradient) in indices.into_iter().zip(gradients) {
            all[index] = Some(gradient);
        }
        all
    }
}

/// The `vjp` as an operation on the graph: its parents are the operands, the gradient of the result,
/// and the trigger of the operation's backward pass, to which the Hessian-vector product is deferred: this
/// node runs before it, and has it run even if the result gets no gradient.
struct VjpNode<B: InnermostBackend, S: TwiceDifferentiable<B>> {
    state: BackwardState<B, S>,
    /// `None` if no operand is tracked.
    intermediate_grads: Option<S::IntermediateGrads>,
    /// The same as in [`Trigger`], if an operand is tracked.
    pull: Option<Pull<FloatTensor<B>>>,
    /// Indices of the operands whose gradients are the results.
    indices: Vec<usize>,
}

impl<B: InnermostBackend, S: TwiceDifferentiable<B>> VjpNode<B, S> {
    fn gradients(self, results: OptionalTensors<B>, requires_grad: &[bool]) -> OptionalTensors<B> {
        let BackwardState { call, shared, .. } = &self.state;
        let operands = requires_grad.len() - 1 - usize::from(self.pull.is_some());
        let (requires_grad, grad_wanted) = (&requires_grad[..operands], requires_grad[operands]);
        let mut tangents: OptionalTensors<B> = requires_grad.iter().map(|_| None).collect();
        for (index, cotangent) in self.indices.into_iter().zip(results) {
            tangents[index] = cotangent;
        }
        let (result_tangent, saved_tangent) = match grad_wanted {
            true => {
                let (tangent, saved) = call.jvp(self.state.primal(), &tangents);
                (Some(tangent), saved)
            }
            false => (None, call.saved_tangent(self.state.primal(), &tangents)),
        };
        let mut all: OptionalTensors<B> = requires_grad.iter().map(|_| None).collect();
        if let Some(intermediate_grads) = self.intermediate_grads {
            let tangents = HvpTangents { tangents, saved_tangent, intermediate_grads };
            if let Some(tangents) = shared.defer(tangents) {
                (all, _) = self.state.vjp(Some(&tangents), None, requires_grad, false);
            }
        }
        all.push(result_tangent);
        all.extend(self.pull.map(|pull| pull()));
        all
    }
}
