use std::cell::RefCell;
use std::collections::HashSet;

use burn::backend::{Autodiff, Flex};
use fewshot_kernels::with_reference;
use fewshot_models::{BnStatistics, Conv4Config};

use super::*;
use crate::data::{Glyphs, GlyphsConfig, ImageSet, Rotations};
use crate::episode::{Part, Protocol};
use crate::learners::{Learner, ProtoNet};

type B = Flex;

const SIZE: usize = 12;
const PROTOCOL: Protocol = Protocol::new(3, 2).with_queries(3);
const EPISODES: usize = 23;

/// All at a time, and as little as can be.
const AMPLE: Limits = LIMITS;
const TIGHT: Limits = Limits { memory: 0, drawn: 7, batch: 4, launch: 1 };

fn glyphs() -> ImageSet {
    let config = GlyphsConfig {
        train_alphabets: 2,
        validation_alphabets: 1,
        test_alphabets: 1,
        characters: 5,
        drawers: 6,
        size: SIZE,
        ..GlyphsConfig::new(0)
    };
    Glyphs::generate(&config).train
}

fn sampler(rotations: Rotations) -> EpisodeSampler {
    glyphs().with_rotations(rotations).unwrap().sampler(PROTOCOL, 4).unwrap()
}

fn shown(sampler: &EpisodeSampler, episodes: Range<usize>) -> Vec<ImageRef> {
    let episodes = episodes.map(|index| sampler.episode(index as u64));
    let parts = [Part::Support, Part::Query];
    let shown = |episode: Episode| parts.map(|part| episode.images(part).collect::<Vec<_>>());
    episodes.flat_map(shown).flatten().collect()
}

/// Pixels are the embedding; counts the images of each batch.
#[derive(Default)]
struct Pixels {
    batches: RefCell<Vec<usize>>,
}

impl Pixels {
    fn embedded(&self, limits: Limits, sampler: &EpisodeSampler) -> Vec<usize> {
        EmbeddedTest::<B>::new(self, sampler, &Default::default(), limits)
            .run(0..EPISODES)
            .unwrap();
        self.batches.take()
    }
}

impl OnEmbeddings<B> for Pixels {
    fn embed(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        self.batches.borrow_mut().push(images.dims()[0]);
        images.flatten(1, 3)
    }

    fn of_embeddings(&self, support: EmbeddedSupport<B>, queries: Tensor<B, 3>) -> Tensor<B, 3> {
        let ([t, n, d], ways) = (support.embeddings.dims(), support.ways);
        let means = support.embeddings.reshape([t, ways, n / ways, d]).mean_dim(2);
        let means = means.reshape([t, ways, d]);
        queries.matmul(means.swap_dims(1, 2))
    }
}

#[test]
fn every_episode_has_the_accuracy_that_it_has_by_its_images() {
    let device = Default::default();
    B::seed(&device, 1);
    let network = Conv4Config::new([1, SIZE, SIZE]).with_channels(4).with_blocks(2);
    let learner = ProtoNet::<B, _>::new(network.init(&device));
    for rotations in [Rotations::None, Rotations::AsClasses, Rotations::PerClassAndEpisode] {
        let sampler = sampler(rotations);
        let expected: Vec<f64> = (0..EPISODES as u64)
            .flat_map(|index| {
                let batch = sampler.batch::<B>([index], &device);
                let logits = learner.outputs(&batch, BnStatistics::Running);
                learners::accuracies(logits, batch.query_labels.clone())
                    .into_data()
                    .iter::<f64>()
                    .collect::<Vec<_>>()
            })
            .collect();
        let different: HashSet<_> = expected.iter().map(|value| value.to_bits()).collect();
        assert!(different.len() > 2, "{expected:?}");
        for limits in
            [AMPLE, TIGHT, Limits { memory: 50 * 4, ..TIGHT }, Limits { launch: 4, ..AMPLE }]
        {
            let test = |episodes| {
                EmbeddedTest::<B>::new(&learner, &sampler, &device, limits).run(episodes).unwrap()
            };
            assert_eq!(test(0..EPISODES), expected, "{limits:?}");
            assert_eq!([test(0..9), test(9..EPISODES)].concat(), expected, "{limits:?}");
            assert!(test(5..5).is_empty());
        }
    }
}

/// Processes that share a test get the accuracy of one process, but for queries between two classes.
#[test]
fn an_embedding_is_the_same_in_any_batch_but_for_rounding() {
    let device = Default::default();
    let sampler = sampler(Rotations::AsClasses);
    let shown = shown(&sampler, 0..3);
    for channels in [5, 16, 64] {
        let network = Conv4Config::new([1, SIZE, SIZE]).with_channels(channels).with_blocks(2);
        let learner = ProtoNet::<B, _>::new(network.init(&device));
        let embedded = |batch: usize| {
            let images = shown.chunks(batch).map(|shown| images(sampler.dataset(), shown, &device));
            let each = images.map(|images| learner.embed(images.unwrap()));
            Tensor::cat(each.collect(), 0).into_data()
        };
        for batch in [1, 2, 7, 16] {
            let [found, whole] =
                [batch, shown.len()].map(|batch| embedded(batch).into_vec::<f32>());
            for (found, whole) in found.unwrap().into_iter().zip(whole.unwrap()) {
                let near = (found - whole).abs() <= 1e-4 * whole.abs().max(1.0);
                assert!(near, "{channels} channels, {batch}: {found}, not {whole}");
            }
        }
    }
}

#[test]
fn every_image_is_embedded_once_and_none_that_no_episode_shows() {
    for (rotations, most) in [(Rotations::None, 60), (Rotations::PerClassAndEpisode, 240)] {
        let sampler = sampler(rotations);
        let mut different: Vec<ImageRef> = Vec::new();
        for shown in shown(&sampler, 0..EPISODES) {
            if !different.contains(&shown) {
                different.push(shown);
            }
        }
        assert!(different.len() <= most);
        for limits in [AMPLE, Limits { memory: AMPLE.memory, ..TIGHT }] {
            let batches = Pixels::default().embedded(limits, &sampler);
            // The first tells how long an embedding is.
            assert_eq!(batches[0], 1);
            assert_eq!(batches[1..].iter().sum::<usize>(), different.len(), "{limits:?}");
            assert!(batches.iter().all(|&batch| batch <= limits.batch), "{batches:?}");
        }
    }
}

#[test]
fn no_more_embeddings_are_kept_than_there_is_room_for() {
    let sampler = sampler(Rotations::PerClassAndEpisode);
    let device = Default::default();
    let each = PROTOCOL.ways * PROTOCOL.examples();
    for (room, most) in [(0, each), (each, each), (40, 40), (100, 100)] {
        let limits = Limits { memory: room * SIZE * SIZE, ..AMPLE };
        let learner = Pixels::default();
        let mut test = EmbeddedTest::<B>::new(&learner, &sampler, &device, limits);
        let episodes: Vec<_> = (0..EPISODES as u64).map(|index| sampler.episode(index)).collect();
        for episodes in episodes.chunks(5) {
            test.test(episodes).unwrap();
            let kept = test.embeddings.as_ref().unwrap().dims()[0];
            assert_eq!(kept, test.rows.len());
            assert!(kept <= most, "{kept} images where there is room for {room}");
        }
        assert_eq!(test.accuracies.len(), EPISODES);
    }
}

#[test]
fn episodes_of_many_ways_are_launched_one_by_one() {
    let protocol = |ways, shots, queries| Protocol::new(ways, shots).with_queries(queries);
    assert_eq!(episodes_in_launch::<B>(protocol(300, 5, 5).into(), 2), 1);
    assert_eq!(episodes_in_launch::<B>(protocol(5, 5, 15).into(), 2), LAUNCH);
    assert_eq!(launch::<B>(protocol(300, 5, 5), 2), Launch::SINGLE);
}

fn launch<B: Backend>(protocol: Protocol, length: usize) -> Launch {
    Launch::new::<B>(protocol.into(), length, &Default::default())
}

#[test]
fn a_host_divides_launches_unless_it_differentiates() {
    let protocol = Protocol::new(5, 1).with_queries(15);
    assert_eq!(launch::<B>(protocol, 640), Launch { episodes: 327, part: 2 });
    let whole = |episodes| Launch { episodes, part: episodes };
    assert_eq!(launch::<Autodiff<B>>(protocol, 640), whole(81));
    assert_eq!(with_reference(|| launch::<B>(protocol, 640)), whole(327));
}
