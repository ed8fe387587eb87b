//! Forward-mode derivatives of the stack, by two levels of autodiff over plain Burn operations.
//!
//! For the gradient `G(x, p, g)` of `<g, f(x, p)>` and tangents `u`, the gradient of `<u, G>` by `g` is
//! the tangent of `f`, and by `x` and `p` that of `G` (double backward).

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

use super::{BlockTangent, ConvBlock, Moments, StackOptions, StackTangent, Statistics, reference};

type Inner<B> = Autodiff<B>;
type Outer<B> = Autodiff<Autodiff<B>>;

/// A primal point and tangents.
pub(super) struct TwoLevels<B: Backend> {
    pub images: Tensor<B, 4>,
    pub blocks: Vec<ConvBlock<B>>,
    pub statistics: Statistics<B>,
    pub options: StackOptions,
    pub tangents: StackTangent<B>,
}

/// What the double gradient is taken by.
struct Leaves<B: Backend> {
    images: Tensor<B, 4>,
    blocks: Vec<ConvBlock<B>>,
}

/// The stack on leaves of both levels.
struct Run<B: Backend> {
    inner: Leaves<Inner<B>>,
    outer: Leaves<Outer<B>>,
    features: Tensor<Outer<B>, 4>,
}

fn lift<B: AutodiffBackend, const D: usize>(tensor: &Tensor<B::InnerBackend, D>) -> Tensor<B, D> {
    Tensor::from_inner(tensor.clone()).require_grad()
}

fn lift_all<B: AutodiffBackend>(
    images: &Tensor<B::InnerBackend, 4>,
    blocks: &[ConvBlock<B::InnerBackend>],
) -> Leaves<B> {
    let blocks = blocks.iter().map(|block| block.map(lift, lift)).collect();
    Leaves { images: lift(images), blocks }
}

/// The gradient of a leaf; zero where it has none.
fn gradient<B: AutodiffBackend, const D: usize>(
    leaf: &Tensor<B, D>,
    all: &B::Gradients,
) -> Tensor<B::InnerBackend, D> {
    leaf.grad(all).unwrap_or_else(|| leaf.clone().inner().zeros_like())
}

fn dot<B: Backend, const D: usize>(a: Tensor<B, D>, b: &Tensor<B, D>) -> Tensor<B, 1> {
    (a * b.clone()).sum()
}

impl<B: Backend> TwoLevels<B> {
    fn statistics(&self) -> Statistics<Outer<B>> {
        let constant = |vector: &Tensor<B, 1>| {
            Tensor::from_inner(Tensor::<Inner<B>, 1>::from_inner(vector.clone()))
        };
        match &self.statistics {
            Statistics::Batch => Statistics::Batch,
            Statistics::Running(all) => {
                let pair = |Moments { mean, variance }: &Moments<B>| Moments {
                    mean: constant(mean),
                    variance: constant(variance),
                };
                Statistics::Running(all.iter().map(pair).collect())
            }
        }
    }

    /// The stack on leaves of both levels.
    fn run(&self) -> Run<B> {
        let inner = lift_all::<Inner<B>>(&self.images, &self.blocks);
        let outer = lift_all::<Outer<B>>(&inner.images, &inner.blocks);
        let images = outer.images.clone();
        let output = reference::conv_stack(images, &outer.blocks, self.statistics(), self.options);
        Run { inner, outer, features: output.features }
    }

    /// The gradients, given that of the features, times the tangents.
    fn product(
        &self,
        outer: &Leaves<Outer<B>>,
        features: Tensor<Outer<B>, 4>,
        grad: &Tensor<Inner<B>, 4>,
    ) -> Tensor<Inner<B>, 1> {
        let grads = dot(features, &Tensor::from_inner(grad.clone())).backward();
        let mut sum = dot(grad.clone(), &grad.zeros_like());
        if let Some(tangent) = &self.tangents.images {
            let tangent = Tensor::from_inner(tangent.clone());
            sum = sum + dot(gradient(&outer.images, &grads), &tangent);
        }
        for (block, tangent) in outer.blocks.iter().zip(&self.tangents.blocks) {
            let weight = Tensor::from_inner(tangent.weight.clone());
            sum = sum + dot(gradient(&block.weight, &grads), &weight);
            for ((_, vector), tangent) in block.vectors().into_iter().zip(tangent.vectors()) {
                if let (Some(vector), Some(tangent)) = (vector, tangent) {
                    sum = sum + dot(gradient(vector, &grads), &Tensor::from_inner(tangent.clone()));
                }
            }
        }
        sum
    }

    /// The features and their tangent.
    pub fn jvp(&self) -> (Tensor<B, 4>, Tensor<B, 4>) {
        let Run { outer, features, .. } = self.run();
        let value = features.clone().inner().inner();
        let grad = lift::<Inner<B>, 4>(&value.zeros_like());
        let grads = self.product(&outer, features, &grad).backward();
        (value, gradient(&grad, &grads))
    }

    /// The tangents of the gradients.
    pub fn hvp(
        &self,
        grad: Tensor<B, 4>,
        grad_tangent: Option<Tensor<B, 4>>,
        images: bool,
    ) -> StackTangent<B> {
        let Run { inner, outer, features } = self.run();
        let inner_features = features.clone().inner();
        let mut sum = self.product(&outer, features, &Tensor::from_inner(grad));
        if let Some(grad_tangent) = grad_tangent {
            sum = sum + dot(inner_features, &Tensor::from_inner(grad_tangent));
        }
        let grads = sum.backward();
        let block = |block: &ConvBlock<Inner<B>>| {
            let ConvBlock { weight, bias, gamma, beta, .. } =
                block.map(|leaf| gradient(leaf, &grads), |leaf| gradient(leaf, &grads));
            BlockTangent { weight, bias, gamma, beta }
        };
        StackTangent {
            images: images.then(|| gradient(&inner.images, &grads)),
            blocks: inner.blocks.iter().map(block).collect(),
        }
    }
}
