//! Autodiff nodes for operations with any number of operands and any number of results.
//!
//! A node of Burn's graph has a fixed number of parents and one result. Concatenating tensors to fit
//! would copy all of them at every level of autodiff. Here a chain of parent nodes has the operands as
//! parents; the last node of the chain is the operation itself, and every result is a node behind it.
//! The gradients lie in [`SharedGradients`]; what Burn hands from node to node is a placeholder
//! of one element that triggers the next node.

use std::any::{Any, TypeId};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::backend::{AutodiffBackend, Backend, DeviceId, DeviceOps};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, TensorMetadata};

use crate::layers::node;

/// One optional tensor for each operand or result.
pub type OptionalTensors<B> = Vec<Option<FloatTensor<B>>>;

/// The backward pass of an operation with any number of operands and results: the gradients of the
/// operands that want one, given those of the results; a result that nothing depends on has none, which
/// may be all of them if a [`Trigger`] had it run. An operand that comes back without one gets nothing
/// from here, and must be a leaf or get something from elsewhere.
type Operation<B> = Box<dyn FnOnce(OptionalTensors<B>, &[bool]) -> OptionalTensors<B> + Send>;

/// Parents of a chain node: the chain node before it, then operands. One node serves a stack of eight
/// blocks; of a longer list, gradients of operands stay in memory until their own chain node runs.
const MANY_PARENTS: usize = 40;

/// Parents of the node of an operation with fewer operands: each costs time, whether it is there or not.
const FEW_PARENTS: usize = 9;

/// The means of a node that runs before an operation's backward pass to start it, with or without a
/// gradient.
pub struct Trigger<V, P> {
    /// A parent of that node, `[1]`.
    pub parent: V,
    pub pull: Pull<P>,
}

/// Gives what is handed to that parent: nothing if the backward pass is to run already.
pub type Pull<P> = Arc<dyn Fn() -> Option<P> + Send + Sync>;

/// The results of an operation, and the trigger of its backward pass if it is on the graph.
type Recorded<B, C> = (
    Vec<FloatTensor<Autodiff<B, C>>>,
    Option<Trigger<FloatTensor<Autodiff<B, C>>, FloatTensor<B>>>,
);

/// The `results` of an operation on `operands`, on the graph if any of the operands is, with its
/// `operation` backward: see [`Operation`].
pub fn record<B: Backend, C: CheckpointStrategy>(
    operands: &[FloatTensor<Autodiff<B, C>>],
    results: Vec<FloatTensor<B>>,
    operation: impl FnOnce(OptionalTensors<B>, &[bool]) -> OptionalTensors<B> + Send + 'static,
) -> Vec<FloatTensor<Autodiff<B, C>>> {
    record_with_trigger::<B, C>(operands, results, operation).0
}

/// [`record`], with the trigger of the backward pass.
pub fn record_with_trigger<B: Backend, C: CheckpointStrategy>(
    operands: &[FloatTensor<Autodiff<B, C>>],
    results: Vec<FloatTensor<B>>,
    operation: impl FnOnce(OptionalTensors<B>, &[bool]) -> OptionalTensors<B> + Send + 'static,
) -> Recorded<B, C> {
    let from_inner = <Autodiff<B, C> as AutodiffBackend>::from_inner;
    let requires_grad: Vec<_> = operands.iter().map(|operand| operand.is_tracked()).collect();
    let Some(first) = results.first().filter(|_| requires_grad.contains(&true)) else {
        return (results.into_iter().map(from_inner).collect(), None);
    };
    let placeholder = placeholder::<B>(&B::float_device(first), first.dtype());
    let tracked: Vec<_> = (0..operands.len()).filter(|&index| requires_grad[index]).collect();
    let shared = Arc::new(Mutex::new(SharedGradients::<B> {
        placeholder: placeholder.clone(),
        triggered: false,
        operation: Some(Box::new(operation)),
        gradients: (0..results.len()).map(|_| None).collect(),
        requires_grad,
    }));
    let last = match tracked.len() < FEW_PARENTS {
        true => record_chain::<B, C, FEW_PARENTS>(operands, &tracked, &placeholder, &shared),
        false => record_chain::<B, C, MANY_PARENTS>(operands, &tracked, &placeholder, &shared),
    };
    let result = |(place, result)| {
        let shared = shared.clone();
        node::record::<B, C, 1>([&last], result, move |gradient, _| {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.gradients[place] = Some(gradient);
            [shared.trigger()]
        })
    };
    let results = results.into_iter().enumerate().map(result).collect();
    let pull = move || shared.lock().unwrap_or_else(PoisonError::into_inner).trigger();
    (results, Some(Trigger { parent: last.clone(), pull: Arc::new(pull) }))
}

/// Records the chain of nodes with so many parents each whose operands are `tracked`; its last node.
fn record_chain<B: Backend, C: CheckpointStrategy, const PARENTS: usize>(
    operands: &[FloatTensor<Autodiff<B, C>>],
    tracked: &[usize],
    placeholder: &FloatTensor<B>,
    shared: &Arc<Mutex<SharedGradients<B>>>,
) -> FloatTensor<Autodiff<B, C>> {
    let constant = <Autodiff<B, C> as AutodiffBackend>::from_inner(placeholder.clone());
    let mut chunks = tracked.chunks(PARENTS - 1).peekable();
    let mut previous = None;
    while let Some(own) = chunks.next() {
        let parents: [_; PARENTS] = std::array::from_fn(|place| match place.checked_sub(1) {
            None => previous.as_ref().unwrap_or(&constant),
            Some(place) => own.get(place).map_or(&constant, |&index| &operands[index]),
        });
        let (own, last, shared) = (own.to_vec(), chunks.peek().is_none(), shared.clone());
        let backward = move |placeholder, requires_grad: [bool; PARENTS]| {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if last {
                shared.run();
            }
            let mut previous = requires_grad[0].then_some(placeholder);
            std::array::from_fn(|place| match place.checked_sub(1) {
                None => previous.take(),
                Some(place) => own.get(place).and_then(|&index| shared.gradients[index].take()),
            })
        };
        previous = Some(node::record::<B, C, _>(parents, placeholder.clone(), backward));
    }
    previous.expect("an operand is tracked")
}

/// Backend, device and type of a placeholder.
type Kind = (TypeId, DeviceId, DType);

/// Placeholders that there are.
type Placeholders = Vec<(Kind, Box<dyn Any + Send + Sync>)>;

/// A tensor `[1]` whose value nobody reads. There is one of each kind: another allocation would be a message
/// to the device's thread for each operation on the graph.
fn placeholder<B: Backend>(device: &B::Device, dtype: DType) -> FloatTensor<B> {
    static PLACEHOLDERS: RwLock<Placeholders> = RwLock::new(Vec::new());
    let kind = (TypeId::of::<FloatTensor<B>>(), device.id(), dtype);
    let find = |all: &Placeholders| {
        let (_, known) = all.iter().find(|(of, _)| *of == kind)?;
        known.downcast_ref::<FloatTensor<B>>().cloned()
    };
    if let Some(known) = find(&PLACEHOLDERS.read().unwrap_or_else(PoisonError::into_inner)) {
        return known;
    }
    let mut all = PLACEHOLDERS.write().unwrap_or_else(PoisonError::into_inner);
    find(&all).unwrap_or_else(|| {
        let made = B::float_empty([1].into(), device, dtype.into());
        all.push((kind, Box::new(made.clone())));
        made
    })
}

/// The gradients of one operation during a backward pass, shared by its nodes.
struct SharedGradients<B: Backend> {
    /// Registered with Burn in place of a gradient that lies here, `[1]`.
    placeholder: FloatTensor<B>,
    /// True once the operation has been handed its placeholder.
    triggered: bool,
    /// Taken when it runs, which frees the tensors it saved.
    operation: Option<Operation<B>>,
    /// Gradients of the results until the operation ran, then of the operands.
    gradients: OptionalTensors<B>,
    /// True for every operand that needs its gradient.
    requires_grad: Vec<bool>,
}

impl<B: Backend> SharedGradients<B> {
    /// The placeholder, once.
    fn trigger(&mut self) -> Option<FloatTensor<B>> {
        (!std::mem::replace(&mut self.triggered, true)).then(|| self.placeholder.clone())
    }

    fn run(&mut self) {
        let operation = self.operation.take().expect("a backward pass runs once");
        self.gradients = operation(std::mem::take(&mut self.gradients), &self.requires_grad);
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

    /// The backward pass of two results: the sums of all operands, times their places and the squares of
    /// these.
    fn weighted(results: OptionalTensors<Flex>, requires_grad: &[bool]) -> OptionalTensors<Flex> {
        let [one, other] = [0, 1].map(|place| {
            let given = results[place].clone().map(wrap::<Flex, 1>);
            given.unwrap_or_else(|| Tensor::zeros([1], &Default::default()))
        });
        let gradient = |(place, &requires_grad): (usize, &bool)| {
            let place = place as f32;
            requires_grad.then(|| unwrap(one.clone() * place + other.clone() * (place * place)))
        };
        requires_grad.iter().enumerate().map(gradient).collect()
    }

    fn run(operands: &[Tensor<A, 1>]) -> [Tensor<A, 1>; 2] {
        let results = [1, 2].map(|power| {
            let each = operands.iter().enumerate();
            let each = each.map(|(place, of)| of.clone().inner() * (place as f32).powi(power));
            unwrap(each.reduce(|sum, more| sum + more).expect("operands"))
        });
        let operands: Vec<_> = operands.iter().cloned().map(unwrap).collect();
        let results = record::<Flex, NoCheckpointing>(&operands, results.to_vec(), weighted);
        let [one, other] = results.try_into().expect("two results");
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
        for count in [1, 2, 11, 12, 13, MANY_PARENTS - 1, MANY_PARENTS, 60, 61, 200] {
            let leaves = leaves(count);
            let [one, other] = run(&leaves);
            let gradients = (one * 2.0 + other.clone() * other.clone()).backward();
            let other = number(other.inner());
            for (place, leaf) in leaves.iter().enumerate() {
                let expected = 2.0 * place as f32 + 2.0 * other * (place * place) as f32;
                let gradient = leaf.grad(&gradients).map(number);
                assert_eq!(gradient, (place % 3 != 2).then_some(expected), "{place} of {count}");
            }
        }
    }

    #[test]
    fn a_result_that_nothing_depends_on_has_no_gradient() {
        let leaves = leaves(9);
        let [one, _] = run(&leaves);
        let gradients = (one * 5.0).backward();
        assert_eq!(leaves[4].grad(&gradients).map(number), Some(20.0));
    }

    /// An operation whose second parent is a trigger, and the gradients that come back to its first and to the
    /// operand of the triggered operation, which gives 7 whether or not it gets a gradient.
    fn triggered(loss: impl Fn(Tensor<A, 1>, Tensor<A, 1>) -> Tensor<A, 1>) -> [Option<f32>; 2] {
        let [one, other] = [0, 1].map(|_| leaves(1).remove(0));
        let value = |of: &Tensor<A, 1>| vec![unwrap(of.clone().inner())];
        let operands = [unwrap(one.clone())];
        let (mut results, trigger) =
            record_with_trigger::<Flex, NoCheckpointing>(&operands, value(&one), |_, _| {
                vec![Some(unwrap(Tensor::<Flex, 1>::from_floats([7.0], &Default::default())))]
            });
        let Trigger { parent, pull } = trigger.expect("the operand is tracked");
        let operands = [unwrap(other.clone()), parent];
        let mut behind =
            record::<Flex, NoCheckpointing>(&operands, value(&other), move |mut results, _| {
                vec![results[0].take(), pull()]
            });
        let [before, behind] = [&mut results, &mut behind].map(|of| wrap(of.remove(0)));
        let gradients = loss(before, behind).backward();
        [one, other].map(|leaf| leaf.grad(&gradients).map(number))
    }

    #[test]
    fn what_is_triggered_runs_once_with_and_without_a_gradient() {
        assert_eq!(triggered(|_, behind| behind * 3.0), [Some(7.0), Some(3.0)]);
        assert_eq!(triggered(|before, behind| before + behind * 3.0), [Some(7.0), Some(3.0)]);
        assert_eq!(triggered(|before, _| before), [Some(7.0), None]);
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
