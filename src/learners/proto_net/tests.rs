use burn::backend::{Autodiff, Flex};
use burn::module::{ModuleVisitor, Param};
use fewshot_models::{Conv4, Conv4Config, Mlp, MlpConfig};

use super::*;
use crate::data::{Glyphs, GlyphsConfig};
use crate::episode::{Protocol, SampleEpisodes};
use crate::precision::LossScale;

type A = Autodiff<Flex>;

const SIZE: usize = 16;

fn conv4(config: Conv4Config) -> ProtoNet<A, Conv4<A>> {
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

fn step(learner: &ProtoNet<A, Conv4<A>>, batch: &EpisodeBatch<A>) -> Step {
    let MetaGradients { loss, score, gradients } = learner.meta_gradients(batch, LossScale::ONE);
    let (gradients, _) = gradients.into_parts();
    let mut collect = Collect { gradients: &gradients, values: Vec::new(), found: Vec::new() };
    learner.visit(&mut collect);
    assert_eq!(collect.found.iter().flatten().count(), gradients.len());
    (collect.values, collect.found, [loss.into_scalar(), score.into_scalar()])
}

#[test]
fn segments_change_nothing_but_how_the_gradient_is_computed() {
    let deep = config().with_blocks(8).with_halve_every(2);
    for (config, tasks) in [(config(), 3), (deep, 1)] {
        let batch = batch(tasks);
        let whole = conv4(config.clone());
        let parts = conv4(config).with_checkpointing(Checkpointing::Segments);
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
