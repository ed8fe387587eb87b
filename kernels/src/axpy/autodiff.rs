//! Lists on the graph, as one operation: the gradients of `y + alpha x` are `g` and `alpha g`.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, TensorMetadata};

use super::FusedAxpy;
use crate::lists::in_parts;
use crate::tiling::OverLanes;
use crate::variadic_op::{OptionalTensors, record};

impl<B: FusedAxpy, C: CheckpointStrategy> FusedAxpy for Autodiff<B, C> {
    fn axpy_all(
        ys: Option<Vec<FloatTensor<Self>>>,
        alpha: f64,
        xs: Vec<FloatTensor<Self>>,
    ) -> Vec<FloatTensor<Self>> {
        let sums = B::axpy_all(ys.as_deref().map(inner::<B, C>), alpha, inner::<B, C>(&xs));
        let plain = ys.as_ref().map_or(0, Vec::len);
        let operands: Vec<_> = ys.into_iter().flatten().chain(xs).collect();
        let terms = terms::<B, C>(&operands);
        record::<B, C>(&operands, sums, move |mut results, wanted| {
            let scale = |of| B::axpy_all(None, alpha, of);
            let scaled = of_wanted::<B>(results.clone(), &wanted[plain..], scale);
            results.truncate(plain);
            completed(&terms, results.into_iter().chain(scaled), wanted)
        })
    }

    fn over_lanes(
        xs: Vec<FloatTensor<Self>>,
        lanes: usize,
        what: OverLanes,
    ) -> Vec<FloatTensor<Self>> {
        let terms = terms::<B, C>(&xs);
        let found = B::over_lanes(inner::<B, C>(&xs), lanes, what);
        record::<B, C>(&xs, found, move |results, wanted| {
            let back = |of| B::over_lanes(of, lanes, what.transposed());
            let found = of_wanted::<B>(results, wanted, back);
            completed(&terms, found, wanted)
        })
    }

    fn fan_out(xs: Vec<FloatTensor<Self>>) -> [Vec<FloatTensor<Self>>; 2] {
        let [mut both, second] = B::fan_out(inner::<B, C>(&xs));
        both.extend(second);
        let terms = terms::<B, C>(&xs);
        let mut first = record::<B, C>(&xs, both, move |mut results, wanted| {
            let second = results.split_off(wanted.len());
            let pairs = results.into_iter().zip(second).zip(wanted);
            let pairs = pairs.map(|((one, other), &wanted)| match wanted {
                true => (one, other),
                false => (None, None),
            });
            let added = |pairs: Vec<(Option<_>, Option<_>)>| {
                let (ones, others) =
                    pairs.into_iter().filter_map(|(one, other)| one.zip(other)).unzip();
                B::axpy_all(Some(ones), 1.0, others).into_iter().map(Some).collect()
            };
            let both_are_there =
                |(one, other): &(Option<_>, Option<_>)| one.is_some() && other.is_some();
            let found =
                in_parts(pairs.collect(), both_are_there, added, |(one, other)| one.or(other));
            completed(&terms, found, wanted)
        });
        let second = first.split_off(xs.len());
        [first, second]
    }

    fn seed_cotangents(
        xs: Vec<FloatTensor<Self>>,
        cotangents: Vec<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let cotangents = inner::<B, C>(&cotangents);
        let zero = B::seed_cotangents(inner::<B, C>(&xs), cotangents.clone());
        let pull_back = move |_, wanted: &[bool]| {
            let each = cotangents.into_iter().zip(wanted);
            each.map(|(cotangent, &wanted)| wanted.then_some(cotangent)).collect()
        };
        record::<B, C>(&xs, vec![zero], pull_back).remove(0)
    }
}

fn inner<B: FusedAxpy, C: CheckpointStrategy>(
    of: &[FloatTensor<Autodiff<B, C>>],
) -> Vec<FloatTensor<B>> {
    of.iter().map(|tensor| tensor.primitive.clone()).collect()
}

/// What one operation makes of the wanted ones of those there are.
fn of_wanted<B: FusedAxpy>(
    of: OptionalTensors<B>,
    wanted: &[bool],
    operation: impl FnOnce(Vec<FloatTensor<B>>) -> Vec<FloatTensor<B>>,
) -> OptionalTensors<B> {
    let of = of.into_iter().zip(wanted).map(|(of, &wanted)| of.filter(|_| wanted));
    let all = |of: OptionalTensors<B>| {
        operation(of.into_iter().flatten().collect()).into_iter().map(Some).collect()
    };
    in_parts(of.collect(), Option::is_some, all, |none| none)
}

/// An operand.
struct Term<B: FusedAxpy> {
    is_leaf: bool,
    shape: Shape,
    device: B::Device,
}

fn terms<B: FusedAxpy, C: CheckpointStrategy>(
    operands: &[FloatTensor<Autodiff<B, C>>],
) -> Vec<Term<B>> {
    let term = |tensor: &FloatTensor<Autodiff<B, C>>| Term {
        is_leaf: tensor.node.parents.is_empty(),
        shape: tensor.shape(),
        device: B::float_device(&tensor.primitive),
    };
    operands.iter().map(term).collect()
}

/// The wanted gradients, zeros where nothing depends on a result. A leaf has none there, but what comes
/// from other operations is asked for one.
fn completed<B: FusedAxpy>(
    terms: &[Term<B>],
    found: impl IntoIterator<Item = Option<FloatTensor<B>>>,
    wanted: &[bool],
) -> OptionalTensors<B> {
    let gradient = |((term, found), &wanted): ((&Term<B>, Option<_>), &bool)| {
        let zeros = || B::float_zeros(term.shape.clone(), &term.device, DType::F32.into());
        match wanted {
            true => found.or_else(|| (!term.is_leaf).then(zeros)),
            false => None,
        }
    };
    terms.iter().zip(found).zip(wanted).map(gradient).collect()
}
