use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use fewshot::data::{ImageSet, ImageShape};
use fewshot::episode::Protocol;
use fewshot::learners::{MetaGradients, MetaLearner, ProtoNet};
use fewshot::models::Conv4Config;
use fewshot::optim::Adam;
use fewshot::precision::LossScale;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::case::{Case, Load, Pass, Scale};
use super::conv_stack::{flops, outputs};

pub(super) fn cases<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let (grey, colour) = (ImageShape::new(1, 28, 28), ImageShape::new(3, 84, 84));
    let full = vec![
        (grey, Protocol::new(5, 5), true),
        (grey, Protocol::new(60, 1).with_queries(5), true),
        (colour, Protocol::new(30, 1), false),
    ];
    let tiny = ImageShape::new(1, 16, 16);
    let quick = vec![(tiny, Protocol::new(2, 1).with_queries(1), true)];
    let cases = scale.choose(full, quick).into_iter();
    let case = |(image, protocol, has_reference)| Case {
        has_reference,
        ..case::<B>(image, protocol, device)
    };
    cases.map(case).collect()
}

/// One step of training after the other, each on an episode of its own.
fn case<B: AutodiffBackend>(image: ImageShape, protocol: Protocol, device: &B::Device) -> Case {
    let images = protocol.ways * protocol.examples();
    let size = [image.channels, image.height, image.width];
    let (forward, backward) = flops(size);
    let load = Load::products(images as f64 * (forward + backward), images * 8 * outputs(size));
    let make = move |device: &B::Device| {
        let sampler = noise(image, protocol).sampler(protocol, 1).expect("made for the protocol");
        let learner = ProtoNet::<B, _>::new(Conv4Config::new(size).init(device));
        (0, sampler, Some(learner), Adam::new().init(), device.clone())
    };
    let (names, of) = (["training_step", "batch"], (Pass::Training, load));
    let shape = format!("{image} {protocol}");
    Case::new::<B, _>(names, shape, of, device, make, |state| {
        let (index, sampler, learner, optimizer, device) = state;
        *index += 1;
        let before = learner.take().expect("every step puts the learner back");
        let batch = sampler.batch::<B>([*index], device);
        let MetaGradients { gradients, .. } = before.meta_gradients(&batch, LossScale::ONE);
        *learner = Some(optimizer.step(1e-3, before, gradients.into_parts().0));
    })
}

/// Random images, twice as many classes as an episode takes.
fn noise(image: ImageShape, protocol: Protocol) -> ImageSet {
    let (classes, each) = (2 * protocol.ways, protocol.examples());
    let mut pixels = vec![0; classes * each * image.values()];
    ChaCha8Rng::seed_from_u64(1).fill_bytes(&mut pixels);
    let names = (0..classes).map(|class| (class.to_string(), each));
    ImageSet::new(image, pixels, names).expect("as many pixels as the images have")
}
