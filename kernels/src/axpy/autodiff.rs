//! Sums on the graph, a list as one operation: the gradients of `y + alpha x` are `g` and `alpha g`.

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::ops::{FloatTensor, FloatTensorOps};

use super::{Axpy, AxpyAll, FanOut, SeedCotangents};
use crate::layers::node;
use crate::list_gradients::{completed, inner, terms, where_wanted};
use crate::lists::in_parts;
use crate::registry::Runs;
use crate::variadic_op::record;

impl<B: Runs<Axpy>, C: CheckpointStrategy> Runs<Axpy> for Autodiff<B, C> {
    fn run(
        (y, x): (Option<FloatTensor<Self>>, FloatTensor<Self>),
        call @ &Axpy { alpha }: &Axpy,
    ) -> FloatTensor<Self> {
        let Some(y) = y else { return Self::float_mul_scalar(x, alpha.into()) };
        let sum = B::run((Some(y.primitive.clone()), x.primitive.clone()), call);
        node::record::<B, C, 2>([&y, &x], sum, move |g, [to_y, to_x]| {
            let scaled = |g| B::run((None, g), &Axpy { alpha });
            [to_y.then(|| g.clone()), to_x.then(|| scaled(g))]
        })
    }
}

impl<B: Runs<AxpyAll>, C: CheckpointStrategy> Runs<AxpyAll> for Autodiff<B, C> {
    fn run(
        (ys, xs): (Option<Vec<FloatTensor<Self>>>, Vec<FloatTensor<Self>>),
        call @ &AxpyAll { alpha }: &AxpyAll,
    ) -> Vec<FloatTensor<Self>> {
        let sums = B::run((ys.as_deref().map(inner::<B, C>), inner::<B, C>(&xs)), call);
        let plain = ys.as_ref().map_or(0, Vec::len);
        let operands: Vec<_> = ys.into_iter().flatten().chain(xs).collect();
        let terms = terms::<B, C>(&operands);
        record::<B, C>(&operands, sums, move |mut results, requires_grad| {
            let scale = |gradients| B::run((None, gradients), &AxpyAll { alpha });
            let scaled = where_wanted::<B>(results.clone(), &requires_grad[plain..], scale);
            results.truncate(plain);
            completed(&terms, results.into_iter().chain(scaled), requires_grad)
        })
    }
}

/// The gradients that come back from both users are added.
impl<B: Runs<FanOut> + Runs<AxpyAll>, C: CheckpointStrategy> Runs<FanOut> for Autodiff<B, C> {
    fn run(xs: Vec<FloatTensor<Self>>, call: &FanOut) -> [Vec<FloatTensor<Self>>; 2] {
        let [mut both, second] = <B as Runs<FanOut>>::run(inner::<B, C>(&xs), call);
        both.extend(second);
        let terms = terms::<B, C>(&xs);
        let mut first = record::<B, C>(&xs, both, move |mut results, requires_grad| {
            let second = results.split_off(requires_grad.len());
            let pairs = results.into_iter().zip(second).zip(requires_grad);
            let pairs = pairs.map(|((one, other), &requires_grad)| match requires_grad {
                true => (one, other),
                false => (None, None),
            });
            let added = |pairs: Vec<(Option<_>, Option<_>)>| {
                let (ones, others) =
                    pairs.into_iter().filter_map(|(one, other)| one.zip(other)).unzip();
                let sums = <B as Runs<AxpyAll>>::run((Some(ones), others), &AxpyAll { alpha: 1.0 });
                sums.into_iter().map(Some).collect()
            };
            let both_are_there =
                |(one, other): &(Option<_>, Option<_>)| one.is_some() && other.is_some();
            let sums =
                in_parts(pairs.collect(), both_are_there, added, |(one, other)| one.or(other));
            completed(&terms, sums, requires_grad)
        });
        let second = first.split_off(xs.len());
        [first, second]
    }
}

impl<B: Runs<SeedCotangents>, C: CheckpointStrategy> Runs<SeedCotangents> for Autodiff<B, C> {
    fn run(
        [xs, cotangents]: [Vec<FloatTensor<Self>>; 2],
        call: &SeedCotangents,
    ) -> FloatTensor<Self> {
        let cotangents = inner::<B, C>(&cotangents);
        let zero = B::run([inner::<B, C>(&xs), cotangents.clone()], call);
        let pull_back = move |_, requires_grad: &[bool]| {
            let each = cotangents.into_iter().zip(requires_grad);
            each.map(|(cotangent, &requires_grad)| requires_grad.then_some(cotangent)).collect()
        };
        record::<B, C>(&xs, vec![zero], pull_back).remove(0)
    }
}
