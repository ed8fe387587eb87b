//! Episodes and learners: laws on every backend, and values from PyTorch.
#![recursion_limit = "256"]

#[macro_use]
mod backends;
mod sources;
#[cfg(any(feature = "wgpu", feature = "cuda"))]
#[path = "sources/written.rs"]
mod written;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use burn::backend::{Autodiff, Flex};
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor, TensorData};
use fewshot::data::{
    ClassDataset, Glyphs, GlyphsConfig, ImageSet, ImageShape, Preset, QuarterTurn, Rotations,
    Scaling,
};
use fewshot::episode::{
    ClassDraw, DataPlacement, Episode, EpisodeBatch, EpisodeError, EpisodeList, EpisodeSampler,
    EpisodeSizes, EpisodeTensors, Protocol, Support, TaskSource,
};
use fewshot::learners::heads::{PrototypeScore, Prototypes};
use fewshot::learners::{
    Adapted, EmbeddingLearner, Learner, MetaGradients, MetaLearner, ProtoNet, accuracies,
    cross_entropy,
};
use fewshot::metric::{Metric, prototypes, scores};
use fewshot::models::{BnStatistics, Conv4, Conv4Config, Encoder, Mlp, MlpConfig};
use fewshot::precision::LossScale;
use fewshot::train::Evaluator;

use sources::BatchesAlone;

const IMAGE: [usize; 3] = [2, 5, 7];
const WAYS: usize = 3;

fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().into_vec().unwrap()
}

fn read_labels<B: Backend>(labels: Tensor<B, 2, Int>) -> Vec<i64> {
    labels.into_data().iter().collect()
}

/// Equal up to `tolerance` times the largest value.
fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    let largest = expected.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        assert!(error <= tolerance * largest, "{what}[{index}] is {found}, not {expected}");
    }
}

/// A shuffled task on the host: images with their labels.
#[derive(Clone)]
struct Task {
    support: Vec<(Vec<f32>, usize)>,
    queries: Vec<(Vec<f32>, usize)>,
}

fn tasks(seed: u64, count: usize) -> Vec<Task> {
    let length = IMAGE.iter().product::<usize>();
    Flex::seed(&Default::default(), seed);
    let drawn = |labels: &[usize]| {
        let distribution = Distribution::Uniform(-1.0, 1.0);
        let draw = |&label| {
            let image = Tensor::<Flex, 1>::random([length], distribution, &Default::default());
            (read(image), label)
        };
        labels.iter().map(draw).collect()
    };
    let task = |_| Task { support: drawn(&[2, 0, 1, 1, 0, 2]), queries: drawn(&[1, 2, 0, 0]) };
    (0..count).map(task).collect()
}

fn batch<B: Backend>(tasks: &[Task]) -> EpisodeBatch<B> {
    let (support, labels) = tensors(tasks.iter().map(|task| &task.support));
    let (queries, query_labels) = tensors(tasks.iter().map(|task| &task.queries));
    let support = Support { images: support, labels, ways: WAYS };
    EpisodeTensors { support, queries, query_labels }.into()
}

fn tensors<'a, B: Backend>(
    tasks: impl ExactSizeIterator<Item = &'a Vec<(Vec<f32>, usize)>>,
) -> (Tensor<B, 5>, Tensor<B, 2, Int>) {
    let count = tasks.len();
    let all: Vec<_> = tasks.flatten().cloned().collect();
    let examples = all.len() / count;
    let (images, labels): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let labels: Vec<i32> = labels.into_iter().map(|label| label as i32).collect();
    let [c, h, w] = IMAGE;
    let device = Default::default();
    (
        Tensor::from_data(TensorData::new(images.concat(), [count, examples, c, h, w]), &device),
        Tensor::from_data(TensorData::new(labels, [count, examples]), &device),
    )
}

fn mlp<B: Backend>() -> ProtoNet<B, Mlp<B>> {
    B::seed(&Default::default(), 1);
    let inputs = IMAGE.iter().product();
    ProtoNet::new(MlpConfig::new(inputs).with_layers(vec![8, 5]).init(&Default::default()))
}

fn cosine<B: Backend>() -> ProtoNet<B, Mlp<B>> {
    by_cosines(mlp(), 10.0)
}

fn by_cosines<B: Backend, E: Encoder<B>>(learner: ProtoNet<B, E>, scale: f64) -> ProtoNet<B, E> {
    let head = Prototypes { score: PrototypeScore::Cosine, scale };
    EmbeddingLearner::with_head(learner.encoder().clone(), head)
}

/// With running averages that have moved away from zero and one.
fn conv4<B: Backend>() -> ProtoNet<B, Conv4<B>> {
    B::seed(&Default::default(), 2);
    let config = Conv4Config::new(IMAGE).with_channels(4).with_blocks(2);
    let learner = ProtoNet::new(config.init(&Default::default()));
    learner.outputs(&batch(&tasks(90, 1)), BnStatistics::Track);
    learner
}

/// The law `$body` of every learner.
macro_rules! for_each_learner {
    (|$learner:ident| $body:block) => {{
        {
            let $learner = mlp::<B>();
            $body
        }
        {
            let $learner = cosine::<B>();
            $body
        }
        {
            let $learner = conv4::<B>();
            $body
        }
    }};
}

const UNTRACKED: [BnStatistics; 2] = [BnStatistics::Running, BnStatistics::Batch];

/// Values from PyTorch; `tests/golden/proto_net.py` has made them.
#[derive(serde::Deserialize)]
struct Golden {
    scales: HashMap<String, f64>,
    cases: HashMap<String, GoldenTensor>,
}

#[derive(serde::Deserialize)]
struct GoldenTensor {
    shape: Vec<usize>,
    data: Vec<f64>,
}

impl Golden {
    fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/proto_net.json");
        serde_json::from_reader(std::fs::File::open(path).unwrap()).unwrap()
    }

    fn values(&self, name: &str) -> Vec<f32> {
        self.cases[name].data.iter().map(|&value| value as f32).collect()
    }

    fn tensor<B: Backend, const D: usize>(&self, name: &str) -> Tensor<B, D> {
        let data = TensorData::new(self.values(name), self.cases[name].shape.clone());
        Tensor::from_data(data, &Default::default())
    }

    fn labels<B: Backend>(&self, name: &str) -> Tensor<B, 2, Int> {
        let GoldenTensor { shape, data } = &self.cases[name];
        let labels: Vec<i32> = data.iter().map(|&label| label as i32).collect();
        Tensor::from_data(TensorData::new(labels, shape.clone()), &Default::default())
    }
}

/// Gradients of all parameters, one after another.
struct Flattened<'a> {
    gradients: &'a GradientsParams,
    values: Vec<f32>,
}

impl<B: Backend> ModuleVisitor<Autodiff<B>> for Flattened<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Autodiff<B>, D>>) {
        let gradient = self.gradients.get::<B, D>(param.id);
        self.values.extend(gradient.into_iter().flat_map(read));
    }
}

fn flattened<B: Backend>(
    learner: &impl Module<Autodiff<B>>,
    gradients: &GradientsParams,
) -> Vec<f32> {
    let mut flattened = Flattened { gradients, values: Vec::new() };
    learner.visit(&mut flattened);
    flattened.values
}

/// Three channels, seven classes of six images.
fn colours() -> ImageSet {
    let shape = ImageShape::new(3, 4, 4);
    let pixels = (0..7 * 6 * shape.values()).map(|index| (index * 89 % 251) as u8);
    let classes = (0..7).map(|class| (format!("class {class}"), 6));
    ImageSet::new(shape, pixels.collect::<Vec<_>>(), classes).unwrap()
}

fn glyphs() -> ImageSet {
    let config = GlyphsConfig {
        train_alphabets: 2,
        validation_alphabets: 1,
        test_alphabets: 1,
        characters: 5,
        drawers: 6,
        size: 12,
        ..GlyphsConfig::new(0)
    };
    Glyphs::generate(&config).train
}

mod laws {
    use super::*;

    pub fn values_and_gradients_are_those_of_pytorch<B: Backend>() {
        let golden = Golden::read();
        for episode in ["five_way", "one_shot"] {
            let support_labels = golden.labels(&format!("{episode}/support_labels"));
            let query_labels: Tensor<Autodiff<B>, 2, Int> =
                golden.labels(&format!("{episode}/query_labels"));
            for (name, metric) in
                [("squared_euclidean", Metric::SquaredEuclidean), ("cosine", Metric::Cosine)]
            {
                let leaf = |name: &str| {
                    golden.tensor::<Autodiff<B>, 3>(&format!("{episode}/{name}")).require_grad()
                };
                let (support, queries) = (leaf("support"), leaf("queries"));
                let means = golden.values(&format!("{episode}/prototypes"));
                let ways = golden.cases[&format!("{episode}/prototypes")].shape[1];
                let found = prototypes(support.clone(), support_labels.clone(), ways);
                assert_close(episode, &read(found.clone()), &means, 1e-5);

                let path = format!("{episode}/{name}");
                let logits = scores(queries.clone(), found, metric) * golden.scales[name];
                let expected = golden.values(&format!("{path}/logits"));
                assert_close(&path, &read(logits.clone()), &expected, 1e-5);
                let accuracy = accuracies(logits.clone().inner(), query_labels.clone().inner());
                let expected = golden.values(&format!("{path}/accuracy"));
                assert_close(&path, &read(accuracy), &expected, 1e-6);
                let loss = cross_entropy(logits, query_labels.clone());
                let expected = golden.values(&format!("{path}/loss"));
                assert_close(&path, &read(loss.clone()), &expected, 1e-5);
                let gradients = loss.backward();
                for (leaf, name) in [(support, "support"), (queries, "queries")] {
                    let path = format!("{path}/gradient/{name}");
                    let found = read(leaf.grad(&gradients).unwrap());
                    assert_close(&path, &found, &golden.values(&path), 5e-4);
                }
            }
        }
    }

    pub fn logits_do_not_depend_on_the_order_of_the_support<B: Backend>() {
        let tasks = tasks(1, 2);
        let mut shuffled = tasks.clone();
        shuffled.iter_mut().for_each(|task| task.support.rotate_left(2));
        shuffled[1].support.swap(0, 3);
        for_each_learner!(|learner| {
            for statistics in UNTRACKED {
                let expected = read(learner.outputs(&batch(&tasks), statistics));
                let found = read(learner.outputs(&batch(&shuffled), statistics));
                assert_close(&learner.architecture(), &found, &expected, 2e-5);
            }
        });
    }

    pub fn logits_depend_on_the_support<B: Backend>() {
        let tasks = tasks(1, 1);
        let mut swapped = tasks.clone();
        // Two examples of different classes change places under labels that stay.
        let [first, second, ..] = &mut swapped[0].support[..] else { unreachable!() };
        std::mem::swap(&mut first.0, &mut second.0);
        for_each_learner!(|learner| {
            for statistics in UNTRACKED {
                let before = read(learner.outputs(&batch(&tasks), statistics));
                let after = read(learner.outputs(&batch(&swapped), statistics));
                let moved = before.iter().zip(&after).map(|(one, two)| (one - two).abs());
                assert!(moved.fold(0.0, f32::max) > 1e-3, "{}", learner.architecture());
            }
        });
    }

    pub fn logits_permute_with_the_labels<B: Backend>() {
        const NEW: [usize; WAYS] = [2, 0, 1];
        let tasks = tasks(2, 2);
        let mut renamed = tasks.clone();
        for (_, label) in renamed.iter_mut().flat_map(|task| &mut task.support) {
            *label = NEW[*label];
        }
        for_each_learner!(|learner| {
            for statistics in UNTRACKED {
                let logits = read(learner.outputs(&batch(&tasks), statistics));
                let found = read(learner.outputs(&batch(&renamed), statistics));
                let mut expected = vec![0.0; logits.len()];
                for (old, new) in logits.chunks(WAYS).zip(expected.chunks_mut(WAYS)) {
                    (0..WAYS).for_each(|way| new[NEW[way]] = old[way]);
                }
                assert_close(&learner.architecture(), &found, &expected, 2e-5);
            }
        });
    }

    pub fn running_logits_are_adaptation_then_prediction<B: Backend>() {
        let tasks = tasks(3, 2);
        for_each_learner!(|learner| {
            let batch = batch::<B>(&tasks);
            let logits = learner.outputs(&batch, BnStatistics::Running);
            assert_eq!(logits.dims(), [2, 4, WAYS]);
            let adapted = learner.adapt(&batch.support);
            let predicted = adapted.predict(batch.queries.clone());
            assert_eq!(read(predicted), read(logits.clone()));

            // One query at a time: under running statistics they do not inform each other.
            let alone = (0..4).map(|query| {
                adapted.predict(batch.queries.clone().slice([0..2, query..query + 1]))
            });
            let alone = read(Tensor::cat(alone.collect(), 1));
            assert_close(&learner.architecture(), &alone, &read(logits), 2e-5);
        });
    }

    pub fn what_was_adapted_ignores_the_learners_later_states<B: Backend>() {
        let learner = conv4::<B>();
        let batch = batch(&tasks(4, 2));
        let adapted = learner.adapt(&batch.support);
        let before = read(adapted.predict(batch.queries.clone()));
        learner.outputs(&batch, BnStatistics::Track);
        assert_eq!(read(adapted.predict(batch.queries.clone())), before);
        let later = learner.adapt(&batch.support).predict(batch.queries.clone());
        assert_ne!(read(later), before);
    }

    pub fn tasks_of_a_batch_are_tasks_one_by_one<B: Backend>() {
        let tasks = tasks(5, 3);
        for_each_learner!(|learner| {
            for statistics in UNTRACKED {
                let together = read(learner.outputs(&batch(&tasks), statistics));
                let alone = tasks.iter().flat_map(|task| {
                    read(learner.outputs(&batch(std::slice::from_ref(task)), statistics))
                });
                let alone: Vec<f32> = alone.collect();
                assert_close(&learner.architecture(), &together, &alone, 2e-5);
            }
        });
    }

    pub fn the_gradient_of_a_batch_is_the_mean_over_its_tasks<B: Backend>() {
        let tasks = tasks(6, 2);
        let learner = conv4::<Autodiff<B>>();
        let step = |tasks: &[Task]| {
            let batch = batch(tasks);
            let MetaGradients { loss, score, gradients } =
                learner.meta_gradients(&batch, LossScale::ONE);
            let (gradients, _) = gradients.into_parts();
            assert_eq!(gradients.len(), 8);
            let share = read(score)[0] * batch.query_labels.dims().iter().product::<usize>() as f32;
            assert!((share - share.round()).abs() < 1e-4, "{share}");
            (read(loss)[0], flattened::<B>(&learner, &gradients))
        };
        let whole = step(&tasks);
        let [first, second] = [0, 1].map(|task| step(&tasks[task..=task]));
        assert_ne!(first, second);
        assert_close("loss", &[whole.0], &[(first.0 + second.0) / 2.0], 1e-5);
        let mean = first.1.iter().zip(&second.1).map(|(one, two)| (one + two) / 2.0);
        assert_close("gradient", &whole.1, &mean.collect::<Vec<_>>(), 2e-4);
    }

    pub fn only_tracking_moves_what_is_predicted<B: Backend>() {
        let learner = conv4::<B>();
        let batch = batch(&tasks(7, 2));
        let before = read(learner.outputs(&batch, BnStatistics::Running));
        let joint = read(learner.outputs(&batch, BnStatistics::Batch));
        assert_ne!(joint, before);
        assert_eq!(read(learner.outputs(&batch, BnStatistics::Running)), before);
        assert_eq!(read(learner.outputs(&batch, BnStatistics::Track)), joint);
        assert_ne!(read(learner.outputs(&batch, BnStatistics::Running)), before);
    }

    pub fn gathered_images_are_the_datasets_scaled<B: Backend>() {
        let protocol = Protocol::new(3, 2).with_queries(1);
        let colour = Scaling { mean: vec![0.1, 0.5, -0.2], std: vec![0.5, 0.25, 2.0] };
        let grey = Scaling { mean: vec![0.3], std: vec![0.7] };
        for dataset in [
            colours(),
            colours().with_scaling(colour).unwrap(),
            colours().with_rotations(Rotations::PerClassAndEpisode).unwrap(),
            glyphs(),
            glyphs().with_scaling(grey).unwrap().with_rotations(Rotations::AsClasses).unwrap(),
        ] {
            let sampler = dataset.clone().sampler(protocol, 7).unwrap();
            let indices = [4, 0, 9];
            let batch = sampler.batch::<B>(indices, &Default::default());
            assert_eq!((batch.tasks(), batch.ways()), (3, 3));
            let batch = batch.into_tensors();
            let ImageShape { channels, height, width } = dataset.image_shape();
            assert_eq!(batch.support.images.dims(), [3, 6, channels, height, width]);
            assert_eq!(batch.queries.dims(), [3, 3, channels, height, width]);
            assert_eq!(read_labels(batch.support.labels), [[0, 0, 1, 1, 2, 2]; 3].concat());
            assert_eq!(read_labels(batch.query_labels), [[0, 1, 2]; 3].concat());

            let episodes = indices.map(|index| sampler.episode(index));
            let [support, queries] = shown(&dataset, &episodes);
            assert_close("support", &read(batch.support.images), &support, 1e-6);
            assert_close("queries", &read(batch.queries), &queries, 1e-6);
        }
    }

    /// The numbers of support and query images in order, made without tensors.
    fn shown(dataset: &ImageSet, episodes: &[Episode]) -> [Vec<f32>; 2] {
        let mut shown = [Vec::new(), Vec::new()];
        let shape = dataset.image_shape();
        let mut image = vec![0; shape.values()];
        for draw in episodes.iter().flat_map(|episode| &episode.classes) {
            for (shown, indices) in shown.iter_mut().zip([&draw.support, &draw.query]) {
                for &index in indices {
                    dataset.write_image(draw.class, index, draw.turn, &mut image).unwrap();
                    let planes = image.chunks(shape.height * shape.width).enumerate();
                    shown.extend(planes.flat_map(|(channel, plane)| {
                        plane.iter().map(move |&pixel| dataset.scaling().apply(channel, pixel))
                    }));
                }
            }
        }
        shown
    }

    pub fn uneven_episodes_are_gathered_with_their_labels<B: Backend>() {
        let dataset = colours().with_rotations(Rotations::PerClassAndEpisode).unwrap();
        let sampler = EpisodeSampler::varied(dataset.clone(), 4).unwrap();
        let mut uneven = false;
        for index in 0..4 {
            let episode = sampler.episode(index);
            let batch = sampler.batch::<B>([index], &Default::default());
            assert_eq!((batch.tasks(), batch.ways()), (1, episode.classes.len()));
            let labels = |examples: fn(&ClassDraw) -> usize| {
                let draws = (0..).zip(&episode.classes);
                let labels = draws.flat_map(|(label, draw)| vec![label; examples(draw)]);
                labels.collect::<Vec<i64>>()
            };
            let [support_labels, query_labels] = batch.labels();
            assert_eq!(read_labels(support_labels), labels(|draw| draw.support.len()));
            assert_eq!(read_labels(query_labels), labels(|draw| draw.query.len()));
            let classes = episode.classes.iter().map(|draw| 4 * draw.class + draw.turn as usize);
            assert_eq!(batch.classes().unwrap(), classes.collect::<Vec<_>>());
            let shots: HashSet<_> = episode.classes.iter().map(|draw| draw.support.len()).collect();
            uneven |= shots.len() > 1;
            let [support, queries] = shown(&dataset, &[episode]);
            let tensors = batch.into_tensors();
            assert_close("support", &read(tensors.support.images), &support, 1e-6);
            assert_close("queries", &read(tensors.queries), &queries, 1e-6);
        }
        assert!(uneven, "no episode has different shots");
    }

    pub fn a_test_on_embeddings_finds_what_one_by_images_finds<B: Backend>() {
        let turned = glyphs().with_rotations(Rotations::PerClassAndEpisode).unwrap();
        let varied = EpisodeSampler::varied(turned.clone(), 3).unwrap();
        let sampler = turned.sampler(Protocol::new(4, 1).with_queries(3), 3).unwrap();
        let device = Default::default();
        B::seed(&device, 2);
        let network = Conv4Config::new([1, 12, 12]).with_channels(4).with_blocks(2);
        let learner = ProtoNet::new(network.init::<B>(&device));
        learner.outputs(&sampler.batch(50..52, &device), BnStatistics::Track);
        for learner in [learner.clone(), by_cosines(learner, 10.0)] {
            // Episode after episode: one more changes the mean by what it is.
            for episodes in [1, 2, 3, 4, 5, 9, 14] {
                let found = Evaluator::new(episodes).score::<B, _>(&learner, &sampler, &device);
                let images = BatchesAlone(sampler.clone());
                let expected = Evaluator::new(episodes).score::<B, _>(&learner, &images, &device);
                assert_eq!(found, expected, "{} in {episodes}", learner.architecture());
                assert!(episodes < 14 || found.mean > 25.0 && found.mean < 100.0, "{found}");
            }
            let found = Evaluator::new(6).score::<B, _>(&learner, &varied, &device);
            let images = BatchesAlone(varied.clone());
            let expected = Evaluator::new(6).score::<B, _>(&learner, &images, &device);
            assert_eq!(found, expected, "{} in varied episodes", learner.architecture());
        }
    }

    pub fn gathered_images_are_those_of_flex<B: Backend>() {
        let sampler = glyphs().sampler(Protocol::new(4, 1).with_queries(2), 3).unwrap();
        let found = (*sampler.batch::<B>(0..3, &Default::default())).clone();
        let expected = (*sampler.batch::<Flex>(0..3, &Default::default())).clone();
        assert_close("support", &read(found.support.images), &read(expected.support.images), 1e-6);
        assert_close("queries", &read(found.queries), &read(expected.queries), 1e-6);
        assert_eq!(read_labels(found.query_labels), read_labels(expected.query_labels));
    }

    /// By one gather on an accelerator, and by a copy elsewhere.
    pub fn images_of_support_and_queries_come_joined_too<B: Backend>() {
        let device = Default::default();
        let sampler = glyphs().with_rotations(Rotations::PerClassAndEpisode).unwrap();
        let sampler = sampler.sampler(Protocol::new(4, 2).with_queries(1), 3).unwrap();
        for data_on in [DataPlacement::Auto, DataPlacement::Host] {
            let batch = || sampler.clone().with_data_on(data_on).batch::<B>(0..3, &device);
            let apart = |batch: &EpisodeBatch<B>| {
                Tensor::cat(vec![batch.support.images.clone(), batch.queries.clone()], 1)
            };
            let all = read(apart(&batch()));
            assert_eq!(read(batch().joined()), all);
            let part = batch().part(1..3);
            assert_eq!((part.tasks(), part.ways(), part.labels()[1].dims()), (2, 4, [2, 4]));
            assert_eq!(read(part.joined()), all[all.len() / 3..]);
            assert_eq!(read(part.part(1..2).queries.clone()), all[all.len() - 4 * 12 * 12..]);
            // What someone changes is what is joined.
            let mut changed = batch();
            changed.queries = changed.queries.clone() * 2.0;
            let found = read(changed.joined());
            assert_ne!(found, all);
            assert_eq!(found, read(apart(&changed)));
        }
    }
}

on_every_backend! {
    values_and_gradients_are_those_of_pytorch
    logits_do_not_depend_on_the_order_of_the_support
    logits_depend_on_the_support
    logits_permute_with_the_labels
    running_logits_are_adaptation_then_prediction
    what_was_adapted_ignores_the_learners_later_states
    tasks_of_a_batch_are_tasks_one_by_one
    the_gradient_of_a_batch_is_the_mean_over_its_tasks
    only_tracking_moves_what_is_predicted
    gathered_images_are_the_datasets_scaled
    uneven_episodes_are_gathered_with_their_labels
    a_test_on_embeddings_finds_what_one_by_images_finds
    gathered_images_are_those_of_flex
    images_of_support_and_queries_come_joined_too
}

mod episodes {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const PROTOCOL: Protocol = Protocol::new(4, 2).with_queries(3);

    fn sampler(seed: u64) -> EpisodeSampler {
        colours().sampler(PROTOCOL, seed).unwrap()
    }

    fn drawn(sampler: &EpisodeSampler, indices: impl IntoIterator<Item = u64>) -> Vec<Episode> {
        indices.into_iter().map(|index| sampler.episode(index)).collect()
    }

    #[test]
    fn seed_and_index_name_an_episode() {
        let all = drawn(&sampler(5), 0..20);
        assert_eq!(drawn(&sampler(5), 0..20), all);
        assert_ne!(drawn(&sampler(6), 0..20), all);
        let different: HashSet<_> = all.iter().map(|episode| format!("{episode:?}")).collect();
        assert_eq!(different.len(), 20);
    }

    #[test]
    fn what_was_drawn_before_does_not_matter() {
        let sampler = sampler(5);
        let forwards = drawn(&sampler, 0..20);
        let mut backwards = drawn(&sampler, (0..20).rev());
        backwards.reverse();
        assert_eq!(backwards, forwards);
        assert_eq!(sampler.clone().episode(u64::MAX), sampler.episode(u64::MAX));
    }

    #[test]
    fn an_episode_has_the_size_asked_for_and_nothing_twice() {
        for episode in drawn(&sampler(1), 0..200) {
            let classes: HashSet<_> = episode.classes.iter().map(|draw| draw.class).collect();
            assert_eq!((episode.classes.len(), classes.len()), (4, 4));
            assert!(classes.iter().all(|&class| class < 7));
            for draw in &episode.classes {
                assert_eq!((draw.support.len(), draw.query.len()), (2, 3));
                let examples: HashSet<_> = draw.support.iter().chain(&draw.query).collect();
                assert_eq!(examples.len(), 5, "support and queries are disjoint: {draw:?}");
                assert!(examples.iter().all(|&&example| example < 6));
            }
        }
    }

    #[test]
    fn every_class_and_example_takes_every_part() {
        const EPISODES: u64 = 3000;
        let (mut labels, mut support, mut query) = ([[0; 7]; 4], [0; 6], [0; 6]);
        for episode in drawn(&sampler(2), 0..EPISODES) {
            for (label, draw) in episode.classes.iter().enumerate() {
                labels[label][draw.class] += 1;
                draw.support.iter().for_each(|&example| support[example] += 1);
                draw.query.iter().for_each(|&example| query[example] += 1);
            }
        }
        let near = |count: u64, expected: u64| count.abs_diff(expected) < expected / 5;
        assert!(labels.as_flattened().iter().all(|&n| near(n, EPISODES / 7)), "{labels:?}");
        assert!(support.iter().all(|&n| near(n, EPISODES * 4 * 2 / 6)), "{support:?}");
        assert!(query.iter().all(|&n| near(n, EPISODES * 4 * 3 / 6)), "{query:?}");
    }

    #[test]
    fn turns_are_drawn_by_class_where_the_dataset_says_so() {
        let turns = |dataset: ImageSet| {
            let sampler = dataset.sampler(PROTOCOL, 3).unwrap();
            let episodes = drawn(&sampler, 0..100).into_iter();
            let turns = episodes.map(|episode| episode.classes.into_iter().map(|draw| draw.turn));
            turns.map(Iterator::collect::<HashSet<_>>).collect::<Vec<_>>()
        };
        for upright in [Rotations::None, Rotations::AsClasses] {
            let found = turns(colours().with_rotations(upright).unwrap());
            assert!(found.iter().all(|turns| *turns == HashSet::from([QuarterTurn::R0])));
        }
        let found = turns(colours().with_rotations(Rotations::PerClassAndEpisode).unwrap());
        let all: HashSet<_> = found.iter().flatten().collect();
        assert_eq!(all.len(), 4);
        assert!(found.iter().any(|turns| turns.len() > 1), "one turn an episode");
    }

    #[test]
    fn a_list_is_tested_as_it_was_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list.csv");
        let network = Conv4Config::new([1, 12, 12]).with_channels(4).with_blocks(2);
        let device = Default::default();
        let learner = ProtoNet::new(network.init::<Flex>(&device));
        let protocol = Protocol::new(3, 2).with_queries(2);
        for sampler in
            [glyphs().sampler(protocol, 7).unwrap(), EpisodeSampler::varied(glyphs(), 7).unwrap()]
        {
            EpisodeList::draw(&sampler, 25).unwrap().write(&path, &glyphs()).unwrap();
            let list = EpisodeList::read(&path, &glyphs()).unwrap();
            let listed = EpisodeSampler::listed(glyphs(), list).unwrap();
            assert_eq!(listed.has_equal_sizes(), sampler.has_equal_sizes());
            assert_eq!((listed.seed(), sampler.seed()), (None, Some(7)));
            for statistics in [BnStatistics::Running, BnStatistics::Batch] {
                let test = Evaluator::new(25).with_statistics(statistics);
                let drawn = test.score::<Flex, _>(&learner, &sampler, &device);
                assert_eq!(test.score::<Flex, _>(&learner, &listed, &device), drawn);
            }
        }
    }

    #[test]
    fn episodes_of_several_sizes_make_no_batch() {
        let sampler = EpisodeSampler::varied(colours(), 1).unwrap();
        assert_eq!((sampler.sizes(), sampler.test_batch_size()), (EpisodeSizes::Varied, 1));
        let sizes: HashSet<_> =
            drawn(&sampler, 0..20).iter().map(|episode| episode.classes.len()).collect();
        assert!(sizes.len() > 1);
        let gathers = |indices: Range<u64>| {
            let gather = || sampler.batch::<Flex>(indices, &Default::default()).tasks();
            catch_unwind(AssertUnwindSafe(gather))
        };
        assert!(gathers(0..20).is_err());
        assert_eq!(gathers(3..4).unwrap(), 1);
        let largest = sampler.largest();
        assert!(drawn(&sampler, 0..200).iter().all(|episode| {
            let support: usize = episode.classes.iter().map(|draw| draw.support.len()).sum();
            episode.classes.len() <= largest.ways && support <= largest.ways * largest.shots
        }));
    }

    #[test]
    fn a_protocol_has_no_zero() {
        for (ways, shots, queries) in [(0, 1, 1), (1, 0, 1), (1, 1, 0)] {
            let protocol = Protocol { ways, shots, queries };
            let error = colours().sampler(protocol, 0).unwrap_err();
            assert_eq!(error, EpisodeError::Zero(protocol));
            let found = format!("{ways}-way {shots}-shot {queries}-query");
            assert!(error.to_string().ends_with(&found), "{error}");
        }
    }

    #[test]
    fn an_episode_needs_as_many_classes_as_ways() {
        assert!(colours().sampler(Protocol { ways: 7, shots: 3, queries: 3 }, 0).is_ok());
        let error = colours().sampler(Protocol::new(8, 1).with_queries(1), 0).unwrap_err();
        assert_eq!(error, EpisodeError::NotEnoughClasses { ways: 8, actual: 7 });
        assert_eq!(error.to_string(), "a 8-way episode needs 8 classes, the split has 7");
    }

    #[test]
    fn every_class_needs_enough_examples() {
        let classes = [("large".to_string(), 4), ("small".to_string(), 3)];
        let set = ImageSet::new(ImageShape::new(1, 1, 1), vec![0; 7], classes).unwrap();
        assert!(set.clone().sampler(Protocol { ways: 1, shots: 1, queries: 2 }, 0).is_ok());
        let protocol = Protocol { ways: 1, shots: 2, queries: 2 };
        let error = set.clone().sampler(protocol, 0).unwrap_err();
        let class = "small".to_string();
        assert_eq!(
            error,
            EpisodeError::NotEnoughExamples { protocol, class, needed: 4, actual: 3 }
        );
        assert_eq!(
            error.to_string(),
            "a 1-way 2-shot 2-query episode needs 4 examples a class, class small has 3"
        );
        let endless = Protocol { ways: 1, shots: usize::MAX, queries: 2 };
        assert!(matches!(
            set.sampler(endless, 0),
            Err(EpisodeError::NotEnoughExamples { needed: usize::MAX, .. })
        ));
    }

    #[test]
    fn episodes_of_another_size_are_not_gathered() {
        let (set, episode) = (colours(), sampler(4).episode(0));
        let gathers = |episodes: &[Episode], protocol| {
            let gather = || {
                EpisodeBatch::<Flex>::gather(&set, episodes, protocol, &Default::default())
                    .unwrap();
            };
            catch_unwind(AssertUnwindSafe(gather)).is_ok()
        };
        assert!(gathers(&[episode.clone(), episode.clone()], PROTOCOL));
        for other in [
            Protocol { ways: 3, ..PROTOCOL },
            Protocol { ways: 5, ..PROTOCOL },
            Protocol { shots: 1, ..PROTOCOL },
            Protocol { queries: 4, ..PROTOCOL },
        ] {
            assert!(!gathers(std::slice::from_ref(&episode), other), "{other}");
        }
        // The total is right, and every label after the first class would be wrong.
        let mut uneven = episode.clone();
        let moved = uneven.classes[0].support.pop().unwrap();
        uneven.classes[1].support.push(moved);
        assert!(!gathers(&[uneven], PROTOCOL));
        let mut narrow = episode.clone();
        narrow.classes.pop();
        assert!(!gathers(&[episode, narrow], PROTOCOL));
    }
}

/// Where images of an accelerator lie.
mod placements {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use burn::backend::Flex;
    use fewshot::episode::TaskSource;

    use super::*;

    fn sampler(data_on: DataPlacement) -> EpisodeSampler {
        let protocol = Protocol::new(4, 1).with_queries(2);
        glyphs().sampler(protocol, 3).unwrap().with_data_on(data_on)
    }

    fn placed<B: Backend>(
        data_on: DataPlacement,
        free: Option<u64>,
    ) -> Result<DataPlacement, EpisodeError> {
        sampler(data_on).place_data::<B>(&Default::default(), free)
    }

    #[test]
    fn the_cpu_has_its_images_in_host_memory() {
        for data_on in [DataPlacement::Auto, DataPlacement::Host] {
            assert_eq!(placed::<Flex>(data_on, None), Ok(DataPlacement::Host));
        }
        let refused = placed::<Flex>(DataPlacement::Device, None).unwrap_err();
        assert!(matches!(refused, EpisodeError::NoAccelerator { .. }), "{refused}");
        let batch = || sampler(DataPlacement::Device).batch::<Flex>([0], &Default::default());
        assert!(catch_unwind(AssertUnwindSafe(batch)).is_err());
    }

    on_accelerators! {
        images_are_on_the_device_where_they_fit
        all_views_of_a_block_share_its_copy_on_a_device
        where_images_lie_changes_no_episode
        augmented_images_are_the_same_on_the_device
        a_dataset_without_a_block_stays_on_the_host
    }

    #[cfg(any(feature = "wgpu", feature = "cuda"))]
    mod laws {
        use super::*;
        use crate::written::Written;

        pub fn images_are_on_the_device_where_they_fit<B: Backend>() {
            let bytes = glyphs().block().expect("one block").bytes();
            let auto = |free| placed::<B>(DataPlacement::Auto, free);
            assert_eq!(auto(None), Ok(DataPlacement::Device));
            assert_eq!(auto(Some(4 * bytes)), Ok(DataPlacement::Device));
            assert_eq!(auto(Some(4 * bytes - 1)), Ok(DataPlacement::Host));
            let device = |free| placed::<B>(DataPlacement::Device, free);
            assert_eq!(device(None), Ok(DataPlacement::Device));
            assert_eq!(device(Some(bytes)), Ok(DataPlacement::Device));
            let room = bytes - 1;
            assert_eq!(device(Some(room)), Err(EpisodeError::NoRoom { bytes, room }));
            assert_eq!(placed::<B>(DataPlacement::Host, None), Ok(DataPlacement::Host));
        }

        pub fn all_views_of_a_block_share_its_copy_on_a_device<B: Backend>() {
            let set = glyphs();
            let block = set.block().unwrap().clone();
            let sampler =
                set.select(&[1, 2, 0, 5]).sampler(Protocol::new(3, 1).with_queries(2), 1).unwrap();
            let device = Default::default();
            assert!(!block.is_on::<B>(&device));
            sampler.batch::<Autodiff<B>>([0], &device);
            assert!(block.is_on::<B>(&device));
            // What is there already needs no room.
            let mut other = set.sampler(Protocol::new(3, 1).with_queries(2), 1).unwrap();
            assert_eq!(other.place_data::<B>(&device, Some(0)), Ok(DataPlacement::Device));
        }

        pub fn where_images_lie_changes_no_episode<B: Backend>() {
            let scaling = Scaling { mean: vec![0.1, 0.5, -0.2], std: vec![0.5, 0.25, 2.0] };
            let sets = [
                glyphs(),
                glyphs().with_rotations(Rotations::AsClasses).unwrap(),
                colours().with_scaling(scaling).unwrap(),
            ];
            for set in sets {
                let sampler = set.sampler(Protocol::new(3, 1).with_queries(2), 5).unwrap();
                let images = |data_on| {
                    let sampler = sampler.clone().with_data_on(data_on);
                    let batch = sampler.batch::<B>([7, 2], &Default::default());
                    read(batch.joined())
                };
                let (device, host) = (images(DataPlacement::Device), images(DataPlacement::Host));
                assert_close("images", &device, &host, 1e-6);
            }
        }

        pub fn augmented_images_are_the_same_on_the_device<B: Backend>() {
            let device = Default::default();
            for set in [glyphs().with_rotations(Rotations::AsClasses).unwrap(), colours()] {
                let shape = set.image_shape();
                // A rotated byte may be a level off.
                for (preset, tolerance) in [
                    (Preset::FlipCrop, 1e-6),
                    (Preset::Standard, 1e-6),
                    (Preset::Strong, 1.01 / 255.0),
                ] {
                    let augmentation = preset.for_image(shape);
                    let sampler = set.sampler(Protocol::new(3, 1).with_queries(2), 5).unwrap();
                    let sampler = sampler.with_views(augmentation.clone(), 3).unwrap();
                    let sampler = sampler.with_augmentation(augmentation).unwrap();
                    let [on_device, on_host] = [DataPlacement::Device, DataPlacement::Auto]
                        .map(|data_on| sampler.clone().with_data_on(data_on));
                    assert!(on_device.preparer().is_none() && on_host.preparer().is_some());
                    let actual = read(on_device.batch::<B>([7, 2], &device).part(1..2).joined());
                    let expected = read(on_host.batch::<B>([7, 2], &device).part(1..2).joined());
                    assert_close(&format!("{preset}"), &actual, &expected, tolerance);
                    let view = |of: &EpisodeSampler| of.view::<B>(2..4, 2, &device).unwrap();
                    let (actual, expected) = (view(&on_device), view(&on_host));
                    assert_eq!(actual.classes(), expected.classes());
                    let queries = |of: &EpisodeBatch<B>| read(of.queries.clone());
                    assert_close("a view", &queries(&actual), &queries(&expected), tolerance);
                }
            }
        }

        pub fn a_dataset_without_a_block_stays_on_the_host<B: Backend>() {
            let sampler = EpisodeSampler::new(
                Written { images: glyphs(), gone: None },
                Protocol::new(3, 1).with_queries(2),
                1,
            )
            .unwrap();
            let placed = |data_on| {
                let mut sampler = sampler.clone().with_data_on(data_on);
                sampler.place_data::<B>(&Default::default(), None)
            };
            assert_eq!(placed(DataPlacement::Auto), Ok(DataPlacement::Host));
            assert_eq!(placed(DataPlacement::Device), Err(EpisodeError::NoBlock));
        }
    }
}

#[test]
fn an_architecture_names_everything_that_a_checkpoint_depends_on() {
    let texts = [
        mlp::<Flex>().architecture(),
        cosine::<Flex>().architecture(),
        by_cosines(mlp::<Flex>(), 5.0).architecture(),
        conv4::<Flex>().architecture(),
    ];
    assert_eq!(texts.iter().collect::<HashSet<_>>().len(), 4, "{texts:?}");
    assert!(texts[3].contains(&conv4::<Flex>().encoder().architecture()));
}
