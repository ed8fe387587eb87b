//! Values from PyTorch; `tests/golden/conv4.py` has made them.

use std::collections::HashMap;

use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Tensor, TensorData};
use fewshot_kernels::{Precision, conv_stack};

use super::leaves::{Leaves, VECTORS, lifted};
use super::network::{Layer, Layout, Network};
use super::run::*;
use crate::judge::{assert_close, largest, read};

#[derive(serde::Deserialize)]
struct Golden {
    epsilon: f64,
    cases: HashMap<String, GoldenTensor>,
}

#[derive(serde::Deserialize)]
struct GoldenTensor {
    shape: Vec<usize>,
    data: Vec<f64>,
}

impl Golden {
    fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/conv4.json");
        serde_json::from_reader(std::fs::File::open(path).unwrap()).unwrap()
    }

    fn values(&self, name: &str) -> Vec<f32> {
        self.cases[name].data.iter().map(|&value| value as f32).collect()
    }

    fn tensor(&self, name: &str) -> TensorData {
        TensorData::new(self.values(name), self.cases[name].shape.clone())
    }

    fn gradients(&self, prefix: &str) -> HashMap<String, Vec<f32>> {
        let names = self.cases.keys().filter_map(|name| name.strip_prefix(prefix));
        names.map(|name| (name.to_string(), self.values(&format!("{prefix}{name}")))).collect()
    }

    fn network(&self, variant: &str, statistics: &str) -> Network {
        let pool = variant == "pool";
        let state = |block: usize, name: &str| {
            self.tensor(&format!("{variant}/state/blocks.{block}.{name}"))
        };
        let layer = |block| Layer {
            weight: state(block, "conv.weight"),
            vectors: VECTORS.map(|name| Some(state(block, name))),
            channels: 5,
            stride: if pool { 1 } else { 2 },
            pool,
        };
        let moments = |block| [state(block, "norm.running_mean"), state(block, "norm.running_var")];
        Network {
            name: format!("{variant}/{statistics}"),
            images: self.tensor(&format!("{variant}/input")),
            count: 6,
            layers: vec![layer(0), layer(1)],
            running: (statistics == "running").then(|| vec![moments(0), moments(1)]),
            output_gradient: self.tensor(&format!("{variant}/output_gradient")),
            layout: Layout::Contiguous,
            epsilon: self.epsilon,
            precision: Precision::F32,
            ghost_batches: 1,
        }
    }
}

pub fn values_and_gradients_are_those_of_pytorch<B: AutodiffBackend>() {
    let golden = Golden::read();
    for variant in ["pool", "stride"] {
        for statistics in ["running", "batch"] {
            let network = golden.network(variant, statistics);
            let found = run::<B>(&network, conv_stack, all_but_output_gradient);
            let path = format!("{variant}/{statistics}");
            let output = golden.values(&format!("{path}/output"));
            assert_close(&path, &found.features, &output, VALUES * largest(&output));
            let batch = statistics == "batch";
            assert_eq!(found.moments.len(), if batch { 2 } else { 0 });
            for (block, moments) in found.moments.iter().enumerate() {
                for (name, moments) in ["mean", "variance"].iter().zip(moments) {
                    let path = format!("{path}/{name}/{block}");
                    let expected = golden.values(&path);
                    assert_close(&path, moments, &expected, VALUES * largest(&expected));
                }
            }
            let expected = golden.gradients(&format!("{path}/gradient/"));
            assert_gradients(&path, &found.gradients, &expected, GRADIENTS, |name| {
                batch && vanishes_under_batch_statistics(name)
            });
        }
    }
}

pub fn second_derivatives_with_pools_are_those_of_pytorch<B: AutodiffBackend>() {
    assert_second_derivatives::<B>("pool");
}

pub fn second_derivatives_with_strides_are_those_of_pytorch<B: AutodiffBackend>() {
    assert_second_derivatives::<B>("stride");
}

fn assert_second_derivatives<B: AutodiffBackend>(variant: &str) {
    let golden = Golden::read();
    let network = golden.network(variant, "batch");
    let inner = Leaves::<B>::new(&network, |_| true);
    let outer = lifted(&inner);
    let loss = outer.loss(outer.forward(&network, conv_stack).features);
    let first = outer.gradients(&loss.backward());
    let squares = first
        .into_iter()
        .filter(|(name, _)| name.starts_with("blocks"))
        .map(|(_, gradient)| (gradient.clone() * gradient).sum())
        .collect::<Vec<_>>();
    assert_eq!(squares.len(), 8);
    let sum = Tensor::cat(squares, 0).sum();

    let path = format!("{variant}/second");
    let expected = golden.values(&format!("{path}/loss"));
    assert_close(&path, &read(sum.clone()), &expected, SECOND * largest(&expected));
    let mut found = read_all::<B::InnerBackend>(inner.gradients(&sum.backward()));
    let expected = golden.gradients(&format!("{path}/gradient/"));
    let vanishes = |name: &str| largest(&expected[name]) == 0.0;
    for name in expected.keys().filter(|name| vanishes(name)) {
        // What nothing depends on may have no gradient at all.
        found.entry(name.clone()).or_insert_with(|| vec![0.0; expected[name].len()]);
    }
    assert_gradients(&path, &found, &expected, SECOND, vanishes);
}
