//! The tensors of a network on a backend.

use burn::backend::Autodiff;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};
use fewshot_kernels::{ConvBlock, StackOptions, StackOutput, Statistics};

use super::network::{Layout, Network};

pub type Stack<B> =
    fn(Tensor<B, 4>, &[ConvBlock<B>], Statistics<B>, StackOptions) -> StackOutput<B>;

/// The tensors that a network's results are differentiated by.
pub struct Leaves<B: Backend> {
    pub images: Tensor<B, 4>,
    pub weights: Vec<Tensor<B, 4>>,
    pub vectors: Vec<[Option<Tensor<B, 1>>; 3]>,
    pub output_gradient: Tensor<B, 4>,
}

pub const VECTORS: [&str; 3] = ["conv.bias", "norm.weight", "norm.bias"];

fn leaf<B: Backend, const D: usize>(data: &TensorData, tracked: bool) -> Tensor<B, D> {
    let leaf = Tensor::from_data(data.clone(), &Default::default());
    if tracked { leaf.require_grad() } else { leaf }
}

impl<B: Backend> Leaves<B> {
    pub fn new(network: &Network, tracked: impl Fn(&str) -> bool) -> Self {
        let layers = || network.layers.iter().enumerate();
        Self {
            images: leaf(&network.images, tracked("input")),
            weights: layers()
                .map(|(block, layer)| {
                    leaf(&layer.weight, tracked(&format!("blocks.{block}.conv.weight")))
                })
                .collect(),
            vectors: layers()
                .map(|(block, layer)| {
                    std::array::from_fn(|index| {
                        let name = format!("blocks.{block}.{}", VECTORS[index]);
                        layer.vectors[index].as_ref().map(|data| leaf(data, tracked(&name)))
                    })
                })
                .collect(),
            output_gradient: leaf(&network.output_gradient, tracked("output_gradient")),
        }
    }

    pub fn images(&self, network: &Network) -> Tensor<B, 4> {
        let images = self.images.clone();
        match network.layout {
            Layout::Contiguous => images,
            Layout::Permuted => images.permute([0, 3, 1, 2]),
            Layout::Expanded => {
                let [_, c, h, w] = images.dims();
                images.expand([network.count, c, h, w])
            }
        }
    }

    pub fn blocks(&self, network: &Network) -> Vec<ConvBlock<B>> {
        let tensors = self.weights.iter().zip(&self.vectors);
        let blocks = tensors.zip(&network.layers).map(|((weight, vectors), layer)| {
            let [bias, gamma, beta] = vectors.clone().map(|vector| {
                vector.map(|vector| match network.layout {
                    Layout::Expanded => vector.expand([layer.channels]),
                    _ => vector,
                })
            });
            let weight = match network.layout {
                Layout::Permuted => weight.clone().permute([3, 2, 0, 1]),
                _ => weight.clone(),
            };
            ConvBlock { weight, bias, gamma, beta, stride: layer.stride, pool: layer.pool }
        });
        blocks.collect()
    }

    pub fn forward(&self, network: &Network, stack: Stack<B>) -> StackOutput<B> {
        let blocks = self.blocks(network);
        stack(self.images(network), &blocks, network.statistics(), network.options())
    }

    pub fn loss(&self, features: Tensor<B, 4>) -> Tensor<B, 1> {
        (features * self.output_gradient.clone()).sum()
    }
}

impl<B: AutodiffBackend> Leaves<B> {
    /// The gradient of every leaf that has one, flattened, by name.
    pub fn gradients(&self, of: &B::Gradients) -> Vec<(String, Tensor<B::InnerBackend, 1>)> {
        let flat = |leaf: &Tensor<B, 4>| leaf.grad(of).map(|gradient| gradient.flatten(0, 3));
        let mut found = vec![
            ("input".to_string(), flat(&self.images)),
            ("output_gradient".to_string(), flat(&self.output_gradient)),
        ];
        for (block, (weight, vectors)) in self.weights.iter().zip(&self.vectors).enumerate() {
            found.push((format!("blocks.{block}.conv.weight"), flat(weight)));
            for (vector, name) in vectors.iter().zip(VECTORS) {
                let gradient = vector.as_ref().and_then(|vector| vector.grad(of));
                found.push((format!("blocks.{block}.{name}"), gradient));
            }
        }
        let present = found.into_iter();
        present.filter_map(|(name, gradient)| Some((name, gradient?))).collect()
    }
}

/// Leaves of an outer level of autodiff above those of an inner one.
pub fn lifted<B: AutodiffBackend>(inner: &Leaves<B>) -> Leaves<Autodiff<B>> {
    fn lift<B: AutodiffBackend, const D: usize>(tensor: &Tensor<B, D>) -> Tensor<Autodiff<B>, D> {
        Tensor::from_inner(tensor.clone()).require_grad()
    }
    Leaves {
        images: lift(&inner.images),
        weights: inner.weights.iter().map(lift).collect(),
        vectors: inner
            .vectors
            .iter()
            .map(|vectors| vectors.each_ref().map(|vector| vector.as_ref().map(lift)))
            .collect(),
        output_gradient: lift(&inner.output_gradient),
    }
}
