//! Lists on the graph, as one operation: the gradients of `y + alpha x` are `g` and `alpha g`.

use std::sync::Arc;

use burn::backend::autodiff::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, TensorMetadata};

use super::FusedAxpy;
use crate::variadic_op::{OptionalTensors, VariadicBackward, record};

impl<B: FusedAxpy, C: CheckpointStrategy> FusedAxpy for Autodiff<B, C> {
    fn axpy_all(
        ys: Vec<FloatTensor<Self>>,
        alpha: f64,
        xs: Vec<FloatTensor<Self>>,
    ) -> Vec<FloatTensor<Self>> {
        let sums = B::axpy_all(inner::<B, C>(&ys), alpha, inner::<B, C>(&xs));
        let plain = ys.len();
        let operands: Vec<_> = ys.into_iter().chain(xs).collect();
        record::<B, C>(&operands, || Arc::new(Terms::new::<C>(&operands, plain, alpha)), sums)
    }

    fn scaled_all(xs: Vec<FloatTensor<Self>>, alpha: f64) -> Vec<FloatTensor<Self>> {
        let products = B::scaled_all(inner::<B, C>(&xs), alpha);
        record::<B, C>(&xs, || Arc::new(Terms::new::<C>(&xs, 0, alpha)), products)
    }

    fn fan_out(xs: Vec<FloatTensor<Self>>) -> [Vec<FloatTensor<Self>>; 2] {
        let [mut both, second] = B::fan_out(inner::<B, C>(&xs));
        both.extend(second);
        let terms =
            || Arc::new(Shared(Terms::new::<C>(&xs, 0, 1.0))) as Arc<dyn VariadicBackward<B>>;
        let mut first = record::<B, C>(&xs, terms, both);
        let second = first.split_off(xs.len());
        [first, second]
    }
}

fn inner<B: FusedAxpy, C: CheckpointStrategy>(
    of: &[FloatTensor<Autodiff<B, C>>],
) -> Vec<FloatTensor<B>> {
    of.iter().map(|tensor| tensor.primitive.clone()).collect()
}

/// Of sums `y + alpha x`, the terms that are not scaled first; or of products `alpha x`.
struct Terms<B: FusedAxpy> {
    terms: Vec<Term<B>>,
    /// How many are not scaled.
    plain: usize,
    alpha: f64,
}

impl<B: FusedAxpy> Terms<B> {
    fn new<C: CheckpointStrategy>(
        operands: &[FloatTensor<Autodiff<B, C>>],
        plain: usize,
        alpha: f64,
    ) -> Self {
        let term = |tensor: &FloatTensor<Autodiff<B, C>>| Term {
            is_leaf: tensor.node.parents.is_empty(),
            shape: tensor.shape(),
            device: B::float_device(&tensor.primitive),
        };
        Self { terms: operands.iter().map(term).collect(), plain, alpha }
    }
}

impl<B: FusedAxpy> VariadicBackward<B> for Terms<B> {
    fn gradients(&self, results: OptionalTensors<B>, wanted: &[bool]) -> OptionalTensors<B> {
        let of_scaled = results.iter().zip(&wanted[self.plain..]);
        let of_scaled = of_scaled.map(|(gradient, &wanted)| gradient.clone().filter(|_| wanted));
        let scaled = scaled::<B>(of_scaled.collect(), self.alpha);
        let found = results.into_iter().take(self.plain).chain(scaled);
        let terms = self.terms.iter().zip(wanted).zip(found);
        let gradient = |((term, &wanted), found): ((&Term<B>, &bool), Option<_>)| match wanted {
            true => found.or_else(|| term.without_gradient()),
            false => None,
        };
        terms.map(gradient).collect()
    }
}

/// Tensors that two users have.
struct Shared<B: FusedAxpy>(Terms<B>);

impl<B: FusedAxpy> VariadicBackward<B> for Shared<B> {
    fn gradients(&self, mut results: OptionalTensors<B>, wanted: &[bool]) -> OptionalTensors<B> {
        let second = results.split_off(wanted.len());
        let (mut places, mut pairs) = (Vec::new(), (Vec::new(), Vec::new()));
        let mut found = Vec::new();
        for (place, (first, second)) in results.into_iter().zip(second).enumerate() {
            found.push(match (first.filter(|_| wanted[place]), second.filter(|_| wanted[place])) {
                (Some(first), Some(second)) => {
                    places.push(place);
                    pairs.0.push(first);
                    pairs.1.push(second);
                    None
                }
                (first, second) => first.or(second),
            });
        }
        if !places.is_empty() {
            for (place, sum) in places.into_iter().zip(B::axpy_all(pairs.0, 1.0, pairs.1)) {
                found[place] = Some(sum);
            }
        }
        let each = found.into_iter().zip(&self.0.terms).zip(wanted);
        each.map(|((found, term), wanted)| match wanted {
            true => found.or_else(|| term.without_gradient()),
            false => None,
        })
        .collect()
    }
}

/// `alpha` times what there is, in one operation.
fn scaled<B: FusedAxpy>(of: OptionalTensors<B>, alpha: f64) -> OptionalTensors<B> {
    let places: Vec<_> = (0..of.len()).filter(|&place| of[place].is_some()).collect();
    let mut scaled: OptionalTensors<B> = of.iter().map(|_| None).collect();
    if !places.is_empty() {
        let products = B::scaled_all(of.into_iter().flatten().collect(), alpha);
        for (place, product) in places.into_iter().zip(products) {
            scaled[place] = Some(product);
        }
    }
    scaled
}

struct Term<B: FusedAxpy> {
    is_leaf: bool,
    shape: Shape,
    device: B::Device,
}

impl<B: FusedAxpy> Term<B> {
    /// The gradient where nothing depends on the result. A leaf has none, but what comes from other
    /// operations is asked for one.
    fn without_gradient(&self) -> Option<FloatTensor<B>> {
        let zeros = || B::float_zeros(self.shape.clone(), &self.device, DType::F32.into());
        (!self.is_leaf).then(zeros)
    }
}
