//! The stack along a direction, by two levels of autodiff over plain Burn operations.
//!
//! For the gradient `G(x, p, g)` of `<g, f(x, p)>` and a direction `u`, the gradient of `<u, G>` by
//! `g` is how `f` changes along `u`, and by `x` and `p`, how `G` does.

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

use super::{
    BlockTangent, ConvBlock, Moments, StackDirection, StackOptions, Statistics, reference,
};

type Inner<B> = Autodiff<B>;
type Outer<B> = Autodiff<Autodiff<B>>;

/// A point and a direction.
pub(super) struct Point<B: Backend> {
    pub images: Tensor<B, 4>,
    pub blocks: Vec<ConvBlock<B>>,
    pub statistics: Statistics<B>,
    pub options: StackOptions,
    pub direction: StackDirection<B>,
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
    let vector = |vector: &Option<Tensor<B::InnerBackend, 1>>| vector.as_ref().map(lift);
    let block = |block: &ConvBlock<B::InnerBackend>| ConvBlock {
        weight: lift(&block.weight),
        bias: vector(&block.bias),
        gamma: vector(&block.gamma),
        beta: vector(&block.beta),
        stride: block.stride,
        pool: block.pool,
    };
    Leaves { images: lift(images), blocks: blocks.iter().map(block).collect() }
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

impl<B: Backend> Point<B> {
    fn statistics(&self) -> Statistics<Outer<B>> {
        let constant = |vector: &Tensor<B, 1>| {
            Tensor::from_inner(Tensor::<Inner<B>, 1>::from_inner(vector.clone()))
        };
        match &self.statistics {
            Statistics::Batch => Statistics::Batch,
            Statistics::Running(all) => Statistics::Running(
                all.iter()
                    .map(|moments| Moments {
                        mean: constant(&moments.mean),
                        variance: constant(&moments.variance),
                    })
                    .collect(),
            ),
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

    /// The gradients for that of the features, times the direction.
    fn product(
        &self,
        outer: &Leaves<Outer<B>>,
        features: Tensor<Outer<B>, 4>,
        grad: &Tensor<Inner<B>, 4>,
    ) -> Tensor<Inner<B>, 1> {
        let grads = dot(features, &Tensor::from_inner(grad.clone())).backward();
        let mut sum = dot(grad.clone(), &grad.zeros_like());
        if let Some(moved) = &self.direction.images {
            let moved = Tensor::from_inner(moved.clone());
            sum = sum + dot(gradient(&outer.images, &grads), &moved);
        }
        for (block, moved) in outer.blocks.iter().zip(&self.direction.blocks) {
            let weight = Tensor::from_inner(moved.weight.clone());
            sum = sum + dot(gradient(&block.weight, &grads), &weight);
            let pairs = [
                (&block.bias, &moved.bias),
                (&block.gamma, &moved.gamma),
                (&block.beta, &moved.beta),
            ];
            for (vector, moved) in pairs {
                if let (Some(vector), Some(moved)) = (vector, moved) {
                    sum = sum + dot(gradient(vector, &grads), &Tensor::from_inner(moved.clone()));
                }
            }
        }
        sum
    }

    /// The features, and how fast they change.
    pub fn forward(&self) -> (Tensor<B, 4>, Tensor<B, 4>) {
        let Run { outer, features, .. } = self.run();
        let value = features.clone().inner().inner();
        let grad = lift::<Inner<B>, 4>(&value.zeros_like());
        let grads = self.product(&outer, features, &grad).backward();
        (value, gradient(&grad, &grads))
    }

    /// How fast the gradients change.
    pub fn gradients(
        &self,
        grad: Tensor<B, 4>,
        grad_along: Option<Tensor<B, 4>>,
        images: bool,
    ) -> StackDirection<B> {
        let Run { inner, outer, features } = self.run();
        let inner_features = features.clone().inner();
        let mut sum = self.product(&outer, features, &Tensor::from_inner(grad));
        if let Some(along) = grad_along {
            sum = sum + dot(inner_features, &Tensor::from_inner(along));
        }
        let grads = sum.backward();
        let vector = |vector: &Option<Tensor<Inner<B>, 1>>| {
            vector.as_ref().map(|vector| gradient(vector, &grads))
        };
        let block = |block: &ConvBlock<Inner<B>>| BlockTangent {
            weight: gradient(&block.weight, &grads),
            bias: vector(&block.bias),
            gamma: vector(&block.gamma),
            beta: vector(&block.beta),
        };
        StackDirection {
            images: images.then(|| gradient(&inner.images, &grads)),
            blocks: inner.blocks.iter().map(block).collect(),
        }
    }
}
