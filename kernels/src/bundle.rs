//! Operations of any number of tensors with any number of results, under autodiff.
//!
//! A node of Burn's graph has a fixed number of parents and one result, and joining tensors into one,
//! or cutting one into parts, moves all of them at every level of autodiff. Here the operands hang on
//! links, the last of which stands for the operation, and every result is a node of its
//! own behind that. Gradients go from one to the other through an [`Exchange`]; the nodes between
//! hand on nothing but their turn.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::tensor::TensorMetadata;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;

use crate::layers::node;

/// One tensor or none in each place.
pub type Places<B> = Vec<Option<FloatTensor<B>>>;

/// An operation that was computed, and now is to be differentiated.
pub trait Bundle<B: Backend>: Send + Sync {
    /// The gradients of the operands that want one, all of which must be there, given those of the
    /// results; a result that nothing depends on has none.
    fn gradients(&self, results: Places<B>, wanted: &[bool]) -> Places<B>;
}

/// Parents of a link: the link before it, and operands. One link serves a stack of eight blocks: the
/// gradients of further links' operands stay until these have their turn.
const PARENTS: usize = 40;

/// The `results` of an operation on `operands`, on the graph if any of the operands is.
pub fn record<B: Backend, C: CheckpointStrategy>(
    operands: &[FloatTensor<Autodiff<B, C>>],
    bundle: impl FnOnce() -> Arc<dyn Bundle<B>>,
    results: Vec<FloatTensor<B>>,
) -> Vec<FloatTensor<Autodiff<B, C>>> {
    let from_inner = <Autodiff<B, C> as AutodiffBackend>::from_inner;
    let wanted: Vec<_> = operands.iter().map(|operand| operand.is_tracked()).collect();
    let Some(first) = results.first().filter(|_| wanted.contains(&true)) else {
        return results.into_iter().map(from_inner).collect();
    };
    let turn = B::float_empty([1].into(), &B::float_device(first), first.dtype().into());
    let exchange = Arc::new(Exchange {
        bundle: bundle(),
        turn: turn.clone(),
        places: Mutex::new((0..results.len()).map(|_| None).collect()),
        wanted,
    });
    let constant = from_inner(turn.clone());
    let tracked: Vec<_> = (0..operands.len()).filter(|&index| exchange.wanted[index]).collect();
    let mut links = tracked.chunks(PARENTS - 1).peekable();
    let mut previous = None;
    while let Some(own) = links.next() {
        let parents: [_; PARENTS] = std::array::from_fn(|place| match place.checked_sub(1) {
            None => previous.as_ref().unwrap_or(&constant),
            Some(place) => own.get(place).map_or(&constant, |&index| &operands[index]),
        });
        let state = || LinkState {
            exchange: exchange.clone(),
            operands: own.to_vec(),
            last: links.peek().is_none(),
        };
        previous = Some(node::record::<B, C, _, _>(Link, parents, state, turn.clone()));
    }
    let last = previous.expect("an operand is tracked");
    let result = |(place, result)| {
        let state = || ResultState { exchange: exchange.clone(), place };
        node::record::<B, C, _, _>(OneResult, [&last], state, result)
    };
    results.into_iter().enumerate().map(result).collect()
}

/// Where gradients lie between the steps of a backward pass.
struct Exchange<B: Backend> {
    bundle: Arc<dyn Bundle<B>>,
    /// What nodes register where the gradient itself lies here.
    turn: FloatTensor<B>,
    /// Of the results until the operation's own step, then of the operands.
    places: Mutex<Places<B>>,
    /// Of every operand.
    wanted: Vec<bool>,
}

impl<B: Backend> Exchange<B> {
    fn places(&self) -> MutexGuard<'_, Places<B>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Link;

#[derive(Clone)]
struct LinkState<B: Backend> {
    exchange: Arc<Exchange<B>>,
    /// Operands among the parents, from the second on.
    operands: Vec<usize>,
    /// Whether this is the operation itself.
    last: bool,
}

impl<B: Backend> fmt::Debug for LinkState<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkState").field("operands", &self.operands).finish_non_exhaustive()
    }
}

impl<B: Backend> Backward<B, PARENTS> for Link {
    type State = LinkState<B>;

    fn backward(
        self,
        ops: Ops<LinkState<B>, PARENTS>,
        grads: &mut Gradients,
        _: &mut Checkpointer,
    ) {
        let turn = grads.consume::<B>(&ops.node);
        let LinkState { exchange, operands, last } = ops.state;
        let mut places = exchange.places();
        if last {
            let results = std::mem::take(&mut *places);
            *places = exchange.bundle.gradients(results, &exchange.wanted);
        }
        let mut parents = ops.parents.into_iter();
        if let Some(before) = parents.next().flatten() {
            grads.register::<B>(before.id, turn);
        }
        for (parent, index) in parents.flatten().zip(operands) {
            let gradient =
                places[index].take().expect("a gradient of every operand that wants one");
            grads.register::<B>(parent.id, gradient);
        }
    }
}

#[derive(Debug)]
struct OneResult;

#[derive(Clone)]
struct ResultState<B: Backend> {
    exchange: Arc<Exchange<B>>,
    place: usize,
}

impl<B: Backend> fmt::Debug for ResultState<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultState").field("place", &self.place).finish_non_exhaustive()
    }
}

impl<B: Backend> Backward<B, 1> for OneResult {
    type State = ResultState<B>;

    fn backward(self, ops: Ops<ResultState<B>, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let ResultState { exchange, place } = ops.state;
        let mut places = exchange.places();
        let first = places.iter().all(Option::is_none);
        places[place] = Some(gradient);
        if first {
            let [last] = ops.parents;
            let last = last.expect("tracked, as an operand is");
            grads.register::<B>(last.id, exchange.turn.clone());
        }
    }
}
