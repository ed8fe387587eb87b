//! [`Conv4`] as nodes of an ONNX graph.

use burn::tensor::backend::Backend;
use fewshot_kernels::{ConvBlock, Moments};

use super::Conv4;
use crate::onnx::{ConvShape, Graph, OnnxNetwork, Value, add_mapped};

impl<B: Backend> Conv4<B> {
    fn add_block(&self, graph: &mut Graph, index: usize, x: &Value) -> Value {
        let norm = &self.blocks[index].norm;
        let ConvBlock { weight, bias, gamma, beta, stride, pool } = self.tensors(index);
        let Moments { mean, variance } = norm.running();
        let spread = (variance + norm.epsilon).sqrt();
        let scale = match gamma {
            Some(gamma) => gamma / spread,
            None => spread.recip(),
        };
        let centre = match bias {
            Some(bias) => bias - mean,
            None => -mean,
        };
        let shift = match beta {
            Some(beta) => centre * scale.clone() + beta,
            None => centre * scale.clone(),
        };
        let y = add_mapped(graph, x, weight, [scale, shift], ConvShape::square(3, stride, 1));
        let y = graph.node("Relu", &[&y], &[]);
        if pool { graph.max_pool(&y, ConvShape::square(2, 2, 0)) } else { y }
    }
}

impl<B: Backend> OnnxNetwork for Conv4<B> {
    fn add_to(&self, graph: &mut Graph, images: &Value, _: [usize; 2]) -> Value {
        let blocks = 0..self.blocks.len();
        let maps = blocks.fold(images.clone(), |x, index| self.add_block(graph, index, &x));
        if self.average { graph.average(&maps) } else { graph.flatten(&maps) }
    }
}
