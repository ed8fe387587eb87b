//! What a manager's configuration does to learners.
#![cfg(feature = "flex")]
#![recursion_limit = "256"]

use burn::backend::Flex;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use fewshot::data::GlyphsConfig;
use fewshot::episode::TaskSource;
use fewshot::hardware::{Checkpointing, DifferentiableWork, HardwareConfig, HardwareManager};
use fewshot::prelude::*;

/// Work that tells its backend, a slope, and whether a learner without segments was asked for them.
struct Told;

impl DifferentiableWork<Flex> for Told {
    type Output = (String, f32, bool);

    fn run<A>(self, device: &A::Device, checkpointing: Checkpointing) -> Self::Output
    where
        A: AutodiffBackend<InnerBackend = Flex>,
    {
        let x = Tensor::<A, 1>::from_data([3.0_f32], device).require_grad();
        let gradients = (x.clone() * x.clone()).exp().log().backward();
        let slope = x.grad(&gradients).unwrap().into_scalar();
        let network = MlpConfig::new(784).with_layers(vec![2]).init::<A>(device);
        let learner = ProtoNet::new(network).with_checkpointing(checkpointing);
        let glyphs = GlyphsConfig { train_alphabets: 1, characters: 2, ..GlyphsConfig::default() };
        let source = Glyphs::generate(&glyphs).train.sampler(Protocol::new(2, 1), 1).unwrap();
        let refused = learner.check(&source.tasks::<A>(0..1, device)).is_err();
        (std::any::type_name::<A>().to_owned(), slope, refused)
    }
}

#[test]
fn checkpointing_decides_what_is_computed_again() {
    let run = |checkpointing| {
        let config = HardwareConfig::new().with_checkpointing(checkpointing);
        let manager = HardwareManager::<Flex>::detect(config).unwrap();
        let (backend, slope, refused) = manager.differentiate(Told);
        assert!((slope - 6.0).abs() < 1e-4);
        (backend.contains("BalancedCheckpointing"), refused)
    };
    assert_eq!(run(Checkpointing::Nothing), (false, false));
    assert_eq!(run(Checkpointing::Balanced), (true, false));
    assert_eq!(run(Checkpointing::Segments), (false, true));
}
