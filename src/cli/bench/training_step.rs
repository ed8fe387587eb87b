use burn::optim::Optimizer;
use burn::tensor::backend::AutodiffBackend;
use fewshot::data::{ImageSet, ImageShape};
use fewshot::episode::{Protocol, SampleEpisodes};
use fewshot::learners::{MetaGradients, MetaLearner, ProtoNet};
use fewshot::models::Conv4Config;
use fewshot::optim::Adam;
use fewshot::precision::LossScale;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::case::{Case, Load, Pass, Reference, Scale};
use super::conv_stack::flops;

pub(super) fn cases<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let (grey, colour) = (ImageShape::new(1, 28, 28), ImageShape::new(3, 84, 84));
    let full = vec![
        (grey, Protocol::new(5, 5), Reference::Beside),
        (grey, Protocol::new(60, 1).with_queries(5), Reference::Beside),
        (colour, Protocol::new(30, 1), Reference::TooLarge),
    ];
    let tiny = ImageShape::new(1, 16, 16);
    let quick = vec![(tiny, Protocol::new(2, 1).with_queries(1), Reference::Beside)];
    let cases = scale.choose(full, quick).into_iter();
    cases
        .map(|(image, protocol, reference)| case::<B>(image, protocol, reference, device))
        .collect()
}

fn case<B: AutodiffBackend>(
    image: ImageShape,
    protocol: Protocol,
    reference: Reference,
    device: &B::Device,
) -> Case {
    let images = (protocol.ways * protocol.examples()) as f64;
    let (forward, backward) = flops([image.channels, image.height, image.width]);
    Case {
        operation: "training_step",
        shape: format!("{image} {protocol}"),
        variant: "batch",
        pass: Pass::Training,
        load: Load::Flops(images * (forward + backward)),
        reference,
        work: steps::<B>(image, protocol, device),
    }
}

/// One step of training after the other, each on an episode of its own.
fn steps<B: AutodiffBackend>(
    image: ImageShape,
    protocol: Protocol,
    device: &B::Device,
) -> Box<dyn FnMut()> {
    B::seed(device, 1);
    let sampler = noise(image, protocol).sampler(protocol, 1).expect("made for the protocol");
    let config = Conv4Config::new([image.channels, image.height, image.width]);
    let mut learner = Some(ProtoNet::<B, _>::new(config.init(device)));
    let mut optimizer = Adam::new().init();
    let device = device.clone();
    let mut index = 0;
    Box::new(move || {
        index += 1;
        let before = learner.take().expect("every step puts the learner back");
        let batch = sampler.batch::<B>([index], &device);
        let MetaGradients { gradients, .. } = before.meta_gradients(&batch, LossScale::ONE);
        learner = Some(optimizer.step(1e-3, before, gradients.into_parts().0));
        B::sync(&device).expect("the device answers");
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
