//! Any Burn module becomes an encoder with one `impl`; adapting and predicting need no trainer.
//!
//! `cargo run --release --example 02_own_encoder`

use burn::backend::{Autodiff, Flex};
use burn::module::{AutodiffModule, Module};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use fewshot::learners::accuracies;
use fewshot::models::nn::{Linear, LinearConfig};
use fewshot::prelude::*;

type B = Autodiff<Flex>;

/// One strided convolution and a linear layer.
#[derive(Module, Debug)]
struct Shallow<B: Backend> {
    conv: Conv2d<B>,
    head: Linear<B>,
}

impl<B: Backend> Encoder<B> for Shallow<B> {
    fn encode(&self, images: Tensor<B, 4>, _: BnStatistics) -> Tensor<B, 2> {
        let maps = relu(self.conv.forward(images)); // [n, 16, 12, 12]
        self.head.forward(maps.flatten(1, 3)) // [n, 64]
    }

    fn architecture(&self) -> String {
        "shallow(16 maps of 12x12, 64 features)".to_owned()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Default::default();
    B::seed(&device, 1);
    let encoder = Shallow {
        conv: Conv2dConfig::new([1, 16], [5, 5]).with_stride([2, 2]).init(&device),
        head: LinearConfig::new(16 * 12 * 12, 64).init(&device),
    };
    let glyphs = Glyphs::generate(&GlyphsConfig::default());
    let trained = MetaTrainer::new(ProtoNet::<B, _>::new(encoder), Adam::new().init())
        .episodes(glyphs.train.sampler(Protocol::new(10, 1).with_queries(5), 1)?)
        .validation(glyphs.validation.sampler(Protocol::new(5, 1), 1)?, 50)
        .steps(60)
        .fit()?;

    let episode = glyphs.test.sampler(Protocol::new(5, 5), 1)?.batch::<Flex>([0], &device);
    let classifier = trained.learner.adapt(&episode.support);
    let logits = classifier.predict(episode.queries.clone()); // [1, 75, 5]
    println!("one 5-way 5-shot task: {}", accuracies(logits, episode.query_labels.clone()));

    let finer: ProtoNet<B, Shallow<B>> = AutodiffModule::from_inner(trained.learner);
    println!("the learner can go back to training: {}", finer.architecture());
    Ok(())
}
