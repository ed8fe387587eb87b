//! [`Vit`] as nodes of an ONNX graph.

use std::f32::consts::FRAC_1_SQRT_2;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{Attention, Block, LayerScale, MlpBlock, Vit};
use crate::nn::{LayerNorm, Linear};
use crate::onnx::{Attribute, ConvShape, Graph, OnnxNetwork, Value};

/// Layer normalisation of rows `[.., d]`.
fn add_norm<B: Backend>(graph: &mut Graph, norm: &LayerNorm<B>, x: &Value) -> Value {
    let [gain, shift] = norm.map();
    let gain = graph.tensor("gain", gain);
    let shift = graph.tensor("shift", shift);
    let attributes =
        [("axis", Attribute::Int(-1)), ("epsilon", Attribute::Float(norm.epsilon() as f32))];
    graph.node("LayerNormalization", &[x, &gain, &shift], &attributes)
}

fn add_linear<B: Backend>(graph: &mut Graph, layer: &Linear<B>, x: &Value) -> Value {
    let weight = graph.tensor("weight", layer.weight.val());
    let bias = graph.tensor("bias", super::bias(layer));
    graph.linear(x, &weight, &bias)
}

/// The sum of a branch, times its learned scale, and what it goes around.
fn add_residual<B: Backend>(
    graph: &mut Graph,
    branch: &Value,
    scale: &Option<LayerScale<B>>,
    x: &Value,
) -> Value {
    let branch = match scale {
        Some(scale) => {
            let scale = graph.tensor("scale", scale.gamma.val());
            graph.node("Mul", &[branch, &scale], &[])
        }
        None => branch.clone(),
    };
    graph.node("Add", &[&branch, x], &[])
}

impl<B: Backend> Attention<B> {
    /// Tokens `[n, tokens, width]` that have attended to each other.
    fn add_to(&self, graph: &mut Graph, x: &Value) -> Value {
        let (heads, width) = (self.heads, self.proj.weight.dims()[0]);
        let each = width / heads;
        let all = add_linear(graph, &self.qkv, x);
        let [q, k, v] = graph.results("Split", &[&all], &[("axis", Attribute::Int(2))]);
        let mut by_head = |x: &Value, order: &[i64]| {
            let x = graph.reshape(x, &[0, 0, heads as i64, each as i64]);
            graph.transpose(&x, order)
        };
        let (q, v) = (by_head(&q, &[0, 2, 1, 3]), by_head(&v, &[0, 2, 1, 3]));
        let k = by_head(&k, &[0, 2, 3, 1]);
        let q = graph.scale(&q, (each as f32).powf(-0.5));
        let scores = graph.node("MatMul", &[&q, &k], &[]);
        let shares = graph.softmax(&scores, -1);
        let mixed = graph.node("MatMul", &[&shares, &v], &[]);
        let mixed = graph.transpose(&mixed, &[0, 2, 1, 3]);
        let mixed = graph.reshape(&mixed, &[0, 0, width as i64]);
        add_linear(graph, &self.proj, &mixed)
    }
}

impl<B: Backend> MlpBlock<B> {
    fn add_to(&self, graph: &mut Graph, x: &Value) -> Value {
        let hidden = add_linear(graph, &self.fc1, x);
        let share = match self.quick {
            true => {
                let steep = graph.scale(&hidden, 1.702);
                graph.node("Sigmoid", &[&steep], &[])
            }
            // The set of operators has no GELU: the normal distribution's share below a value.
            false => {
                let of_root = graph.scale(&hidden, FRAC_1_SQRT_2);
                let odd = graph.node("Erf", &[&of_root], &[]);
                let one = graph.number(1.0);
                let twice = graph.node("Add", &[&odd, &one], &[]);
                graph.scale(&twice, 0.5)
            }
        };
        let active = graph.node("Mul", &[&hidden, &share], &[]);
        add_linear(graph, &self.fc2, &active)
    }
}

impl<B: Backend> Block<B> {
    fn add_to(&self, graph: &mut Graph, x: &Value) -> Value {
        let normal = add_norm(graph, &self.norm1, x);
        let mixed = self.attn.add_to(graph, &normal);
        let x = add_residual(graph, &mixed, &self.ls1, x);
        let normal = add_norm(graph, &self.norm2, &x);
        let hidden = self.mlp.add_to(graph, &normal);
        add_residual(graph, &hidden, &self.ls2, &x)
    }
}

impl<B: Backend> Vit<B> {
    /// Tokens `[n, tokens, width]` of images.
    fn add_embedding(&self, graph: &mut Graph, images: &Value, [h, w]: [usize; 2]) -> Value {
        let proj = &self.patch_embed.proj;
        let ([width, ..], [patch, _]) = (proj.weight.dims(), proj.kernel_size);
        let weight = graph.tensor("weight", proj.weight.val());
        let bias = proj.bias.as_ref().map(|bias| graph.tensor("bias", bias.val()));
        let shape = ConvShape::square(patch, patch, 0);
        let maps = graph.conv(images, &weight, bias.as_ref(), shape);
        let rows = graph.reshape(&maps, &[0, width as i64, -1]);
        let patches = graph.transpose(&rows, &[0, 2, 1]);
        // Zeros in front, to which the class token and registers are added as positions are to patches.
        let [class, positions] = self.positions([h / patch, w / patch]);
        let class = self.cls_token.val() + class;
        let registers = self.register_tokens.as_ref().map(|tokens| tokens.val());
        let before = 1 + registers.as_ref().map_or(0, |tokens| tokens.dims()[1]);
        let pads = graph.integers("pads", &[0, before as i64, 0, 0, 0, 0]);
        let tokens = graph.node("Pad", &[&patches, &pads], &[]);
        let parts = [Some(class), registers, Some(positions)];
        let added = Tensor::cat(parts.into_iter().flatten().collect(), 1);
        let added = graph.tensor("positions", added);
        let tokens = graph.node("Add", &[&tokens, &added], &[]);
        match &self.norm_pre {
            Some(norm) => add_norm(graph, norm, &tokens),
            None => tokens,
        }
    }
}

impl<B: Backend> OnnxNetwork for Vit<B> {
    fn add_to(&self, graph: &mut Graph, images: &Value, size: [usize; 2]) -> Value {
        let tokens = self.add_embedding(graph, images, size);
        let tokens = self.blocks.iter().fold(tokens, |x, block| block.add_to(graph, &x));
        let first = graph.index(0);
        let class = graph.node("Gather", &[&tokens, &first], &[("axis", Attribute::Int(1))]);
        let class = add_norm(graph, &self.norm, &class);
        match &self.proj {
            Some(proj) => {
                let proj = graph.tensor("proj", proj.val());
                graph.node("MatMul", &[&class, &proj], &[])
            }
            None => class,
        }
    }
}
