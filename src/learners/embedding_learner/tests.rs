use std::marker::PhantomData;

use burn::backend::{Autodiff, Flex};
use burn::module::{ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Recorder};
use fewshot_models::{Conv4, Conv4Config, Mlp, MlpConfig};

use super::*;
use crate::data::{Glyphs, GlyphsConfig};
use crate::episode::Protocol;
use crate::learners::heads::FeatConfig;

type A = Autodiff<Flex>;

const SIZE: usize = 16;

type Learned<H> = EmbeddingLearner<A, Conv4<A>, H>;

fn conv4(config: Conv4Config) -> Learned<Prototypes> {
    A::seed(&Default::default(), 1);
    ProtoNet::new(config.init(&Default::default()))
}

fn config() -> Conv4Config {
    Conv4Config::new([1, SIZE, SIZE]).with_channels(6)
}

fn batch(tasks: u64) -> EpisodeBatch<A> {
    let config = GlyphsConfig { size: SIZE, ..GlyphsConfig::default() };
    let protocol = Protocol::new(5, 2).with_queries(3);
    Glyphs::generate(&config)
        .train
        .sampler(protocol, 1)
        .unwrap()
        .batch(0..tasks, &Default::default())
}

/// Values of all tensors, and their gradients, where there is one.
struct Collect<'a> {
    gradients: &'a GradientsParams,
    values: Vec<Vec<f32>>,
    found: Vec<Option<Vec<f32>>>,
}

impl ModuleVisitor<A> for Collect<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<A, D>>) {
        self.values.push(param.val().into_data().into_vec().unwrap());
        let gradient = self.gradients.get::<Flex, D>(param.id);
        self.found.push(gradient.map(|gradient| gradient.into_data().into_vec().unwrap()));
    }
}

/// Values after the pass, running averages among them, with gradients and with loss and score.
type Step = (Vec<Vec<f32>>, Vec<Option<Vec<f32>>>, [f32; 2]);

fn step<H>(learner: &Learned<H>, batch: &EpisodeBatch<A>) -> Step
where
    H: Head<A> + AutodiffModule<A, InnerModule: Head<Flex>>,
{
    let MetaGradients { loss, score, gradients } = learner.meta_gradients(batch, LossScale::ONE);
    let (gradients, _) = gradients.into_parts();
    let mut collect = Collect { gradients: &gradients, values: Vec::new(), found: Vec::new() };
    learner.visit(&mut collect);
    assert_eq!(collect.found.iter().flatten().count(), gradients.len());
    (collect.values, collect.found, [loss.into_scalar(), score.into_scalar()])
}

#[test]
fn segments_change_nothing_but_how_the_gradient_is_computed() {
    segments_change_nothing(Prototypes::new());
    // A head with parameters of its own.
    segments_change_nothing(FeatConfig::new(6).init(&Default::default()));
}

fn segments_change_nothing<H>(head: H)
where
    H: Head<A> + AutodiffModule<A, InnerModule: Head<Flex>>,
{
    let deep = config().with_blocks(8).with_halve_every(2);
    for (config, tasks) in [(config(), 3), (deep, 1)] {
        let batch = batch(tasks);
        let with_head = |learner: Learned<Prototypes>| {
            EmbeddingLearner::with_head(learner.encoder, head.clone())
        };
        let whole = with_head(conv4(config.clone()));
        let parts = with_head(conv4(config)).with_checkpointing(Checkpointing::Segments);
        assert_eq!(parts.check(&batch), Ok(()));
        let (values, expected, [loss, score]) = step(&whole, &batch);
        let (moved, found, [other_loss, other_score]) = step(&parts, &batch);
        assert!((loss - other_loss).abs() < 1e-5 * loss && (score - other_score).abs() < 1e-6);
        assert_eq!(moved, values);
        let largest = |all: &[f32]| all.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let floor = expected.iter().flatten().map(|all| largest(all)).fold(0.0, f32::max) / 10.0;
        for (found, expected) in found.iter().zip(&expected) {
            let (Some(found), Some(expected)) = (found, expected) else {
                assert_eq!(found, expected);
                continue;
            };
            let bound = 1e-5 * largest(expected).max(floor);
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() <= bound, "{found}, not {expected}");
            }
        }
    }
}

#[test]
fn a_network_of_one_segment_is_refused_where_segments_are_asked_for() {
    let encoder: Mlp<A> = MlpConfig::new(SIZE * SIZE).init(&Default::default());
    let text = "has one segment; a backward pass by segments needs two";
    for (asked, refused) in [
        (Checkpointing::Nothing, false),
        (Checkpointing::Balanced, false),
        (Checkpointing::Segments, true),
    ] {
        let learner = ProtoNet::new(encoder.clone()).with_checkpointing(asked);
        let checked = MetaLearner::<A>::check(&learner, &batch(1));
        assert_eq!(checked.is_err(), refused, "{asked:?}");
        if let Err(error) = checked {
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}

#[test]
fn a_run_by_segments_does_not_resume_as_another() {
    let settings = |asked| conv4(config()).with_checkpointing(asked).settings();
    assert_eq!(settings(Checkpointing::Nothing), Value::Null);
    assert_eq!(settings(Checkpointing::Balanced), Value::Null);
    assert_eq!(settings(Checkpointing::Segments), json!({ "checkpointing": "segments" }));
}

/// As checkpoints of `ProtoNet` hold it that are older than [`EmbeddingLearner`].
#[derive(Module, Debug)]
struct Older<B: Backend, E> {
    encoder: E,
    #[module(skip)]
    metric: u32,
    scale: f64,
    _backend: PhantomData<B>,
}

#[test]
fn an_older_record_of_prototypical_networks_loads() {
    let (device, recorder) =
        (Default::default(), NamedMpkBytesRecorder::<FullPrecisionSettings>::default());
    let saved = conv4(config());
    let images = batch(1).joined().flatten(0, 1);
    let embedded = |learner: &Learned<Prototypes>| learner.embed(images.clone()).into_data();
    let encoder = saved.encoder.clone();
    let older: Older<A, _> = Older { encoder, metric: 0, scale: 1.0, _backend: PhantomData };
    let bytes = Recorder::<A>::record(&recorder, older.into_record(), ()).unwrap();
    A::seed(&device, 2);
    let other = ProtoNet::new(config().init(&device));
    assert_ne!(embedded(&other), embedded(&saved));
    let loaded = other.load_record(Recorder::<A>::load(&recorder, bytes, &device).unwrap());
    assert_eq!(embedded(&loaded), embedded(&saved));
    let architecture =
        format!("protonet(squared-euclidean, scale 1, {})", saved.encoder.architecture());
    assert_eq!(saved.architecture(), architecture);
}
