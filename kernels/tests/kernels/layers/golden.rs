//! Values from PyTorch; `tests/golden/layers.py` has made them.

use std::collections::BTreeMap;

use super::case::{Case, Layer, Layout, Operand};
use super::run::Outcome;

#[derive(serde::Deserialize)]
pub struct Golden {
    epsilon: f64,
    cases: BTreeMap<String, Entry>,
}

#[derive(serde::Deserialize)]
struct Entry {
    shape: Vec<usize>,
    data: Vec<f64>,
}

impl Golden {
    pub fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/layers.json");
        serde_json::from_reader(std::fs::File::open(path).unwrap()).unwrap()
    }

    pub fn values(&self, name: &str) -> Vec<f32> {
        self.cases[name].data.iter().map(|&value| value as f32).collect()
    }

    /// Every case with its name.
    pub fn cases(&self) -> Vec<(String, Case)> {
        let convolution = |kernel: usize, stride| {
            let layer = Layer::Convolution { stride, padding: kernel / 2 };
            let name = format!("conv2d/{kernel}x{kernel}/{stride}");
            (name, layer, &["x", "weight", "bias"][..])
        };
        let norm = Layer::Norm { running: false, epsilon: self.epsilon };
        let cases = [
            convolution(3, 1),
            convolution(3, 2),
            convolution(1, 1),
            convolution(1, 2),
            ("batch_norm".to_string(), norm, &["x", "gamma", "beta"]),
            ("max_pool".to_string(), Layer::MaxPool, &["x"]),
            ("overlapping_max_pool".to_string(), Layer::OverlappingMaxPool, &["x"]),
        ];
        let case = |(name, layer, operands): (String, _, &[&'static str])| {
            let operands = operands.iter().map(|operand| self.operand(&name, operand)).collect();
            (name, Case { layer, operands, low: None })
        };
        cases.map(case).into()
    }

    fn operand(&self, case: &str, name: &'static str) -> Operand {
        let path = format!("{case}/{name}");
        let shape = self.cases[&path].shape.clone();
        Operand { name, shape, layout: Layout::Contiguous, values: self.values(&path) }
    }

    /// The gradients under `kind` of these names, with what they are gradients of.
    pub fn outcome(&self, path: &str, output: Vec<f32>, names: &[&'static str]) -> Outcome {
        let gradient = |name: &&'static str| (*name, self.values(&format!("{path}/{name}")));
        Outcome { output, gradients: names.iter().map(gradient).collect() }
    }
}
