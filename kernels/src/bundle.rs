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
    /// The gradients of the operands that want one, given those of the results; a result that nothing
    /// depends on has none. An operand that comes back without one gets nothing from here, and must be
    /// a leaf or get something from elsewhere.
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
    let places = (0..results.len()).map(|_| None).collect();
    let exchange = Arc::new(Exchange {
        turn: turn.clone(),
        inside: Mutex::new(Inside { bundle: Some(bundle()), places }),
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
    /// What nodes register where the gradient itself lies here.
    turn: FloatTensor<B>,
    inside: Mutex<Inside<B>>,
    /// Of every operand.
    wanted: Vec<bool>,
}

struct Inside<B: Backend> {
    /// Until its one step, for it holds much.
    bundle: Option<Arc<dyn Bundle<B>>>,
    /// Of the results until that step, then of the operands.
    places: Places<B>,
}

impl<B: Backend> Exchange<B> {
    fn inside(&self) -> MutexGuard<'_, Inside<B>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut inside = exchange.inside();
        if last {
            let bundle = inside.bundle.take().expect("a step is made once");
            let results = std::mem::take(&mut inside.places);
            inside.places = bundle.gradients(results, &exchange.wanted);
        }
        let mut parents = ops.parents.into_iter();
        if let Some(before) = parents.next().flatten() {
            grads.register::<B>(before.id, turn);
        }
        for (parent, index) in parents.flatten().zip(operands) {
            if let Some(gradient) = inside.places[index].take() {
                grads.register::<B>(parent.id, gradient);
            }
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
        let mut inside = exchange.inside();
        let first = inside.places.iter().all(Option::is_none);
        inside.places[place] = Some(gradient);
        if first {
            let [last] = ops.parents;
            let last = last.expect("tracked, as an operand is");
            grads.register::<B>(last.id, exchange.turn.clone());
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
    use burn::tensor::{ElementConversion, Tensor};

    use super::*;
    use crate::host::{unwrap, wrap};

    type A = Autodiff<Flex>;

    /// Two results: the sums of all operands, times their places and the squares of these.
    struct Weighted;

    impl Bundle<Flex> for Weighted {
        fn gradients(&self, results: Places<Flex>, wanted: &[bool]) -> Places<Flex> {
            let [one, other] = [0, 1].map(|place| {
                let given = results[place].clone().map(wrap::<Flex, 1>);
                given.unwrap_or_else(|| Tensor::zeros([1], &Default::default()))
            });
            let gradient = |(place, &wanted): (usize, &bool)| {
                let place = place as f32;
                wanted.then(|| unwrap(one.clone() * place + other.clone() * (place * place)))
            };
            wanted.iter().enumerate().map(gradient).collect()
        }
    }

    fn run(operands: &[Tensor<A, 1>]) -> [Tensor<A, 1>; 2] {
        let results = [1, 2].map(|power| {
            let each = operands.iter().enumerate();
            let each = each.map(|(place, of)| of.clone().inner() * (place as f32).powi(power));
            unwrap(each.reduce(|sum, more| sum + more).expect("operands"))
        });
        let operands: Vec<_> = operands.iter().cloned().map(unwrap).collect();
        let bundle = || Arc::new(Weighted) as Arc<dyn Bundle<Flex>>;
        let found = record::<Flex, NoCheckpointing>(&operands, bundle, results.to_vec());
        let [one, other] = found.try_into().expect("two results");
        [one, other].map(wrap)
    }

    /// So many operands, of which every third is a constant.
    fn leaves(count: usize) -> Vec<Tensor<A, 1>> {
        let leaf = |place| {
            let leaf = Tensor::from_floats([place as f32 - 3.0], &Default::default());
            if place % 3 == 2 { leaf } else { leaf.require_grad() }
        };
        (0..count).map(leaf).collect()
    }

    fn number<B: Backend>(tensor: Tensor<B, 1>) -> f32 {
        tensor.into_scalar().elem()
    }

    #[test]
    fn any_number_of_operands_gets_its_gradients() {
        for count in [1, 2, PARENTS - 1, PARENTS, 60, 61, 200] {
            let leaves = leaves(count);
            let [one, other] = run(&leaves);
            let found = (one * 2.0 + other.clone() * other.clone()).backward();
            let other = number(other.inner());
            for (place, leaf) in leaves.iter().enumerate() {
                let wanted = 2.0 * place as f32 + 2.0 * other * (place * place) as f32;
                let found = leaf.grad(&found).map(number);
                assert_eq!(found, (place % 3 != 2).then_some(wanted), "{place} of {count}");
            }
        }
    }

    #[test]
    fn a_result_that_nothing_depends_on_has_no_gradient() {
        let leaves = leaves(9);
        let [one, _] = run(&leaves);
        let found = (one * 5.0).backward();
        assert_eq!(leaves[4].grad(&found).map(number), Some(20.0));
    }

    #[test]
    fn an_operand_in_two_places_gets_both_gradients() {
        let leaf = leaves(1).remove(0);
        let [one, _] = run(&[leaf.clone(), leaf.clone(), leaf.clone()]);
        assert_eq!(leaf.grad(&one.backward()).map(number), Some(3.0));
    }

    #[test]
    fn what_is_not_tracked_stays_so() {
        let constants: Vec<_> =
            leaves(9).into_iter().map(|leaf| Tensor::from_inner(leaf.inner())).collect();
        assert!(run(&constants).map(unwrap).iter().all(|result| !result.is_tracked()));
    }
}
