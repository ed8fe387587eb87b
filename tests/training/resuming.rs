//! What learners change in the course of training, in a run that is stopped and goes on.

use fewshot::adapt::Proximal;
use fewshot::learners::{Annealing, Plastic};
use fewshot::models::{AnyEncoder, Downsampling, ResNet12Config};
use fewshot::plasticity::TraceRule;

use super::*;

const WAYS: usize = 5;

fn config() -> Conv4Config {
    Conv4Config::omniglot().with_channels(4).with_blocks(2).with_downsampling(Downsampling::Stride)
}

fn encoder() -> Conv4<B> {
    let device = Default::default();
    B::seed(&device, 3);
    config().init(&device)
}

fn network() -> Classifier<B, Conv4<B>> {
    Classifier::new(encoder(), config().features(), WAYS, &Default::default())
}

/// That six steps are the same with a stop after the third.
fn assert_goes_on<L: MetaLearner<B>>(made: impl Fn() -> L) {
    let whole_setting = Setting { steps: 6, ..WHOLE };
    let stopped_setting = Setting { stop_at: Some(3), ..whole_setting };
    let [whole, parts] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let expected = run_of(made(), whole.path(), false, &whole_setting).unwrap();
    let stopped = run_of(made(), parts.path(), false, &stopped_setting);
    assert!(matches!(stopped, Err(TrainError::Interrupted { step: 3 })));
    let resumed = run_of(made(), parts.path(), true, &whole_setting).unwrap();
    let name = made().architecture();
    let [resumed, expected] = [resumed, expected].map(|it| parameters::<Flex>(&it.learner));
    assert_eq!(resumed, expected, "{name}");
    assert_eq!(metrics(parts.path()), metrics(whole.path()), "{name}");
}

#[test]
fn a_learner_that_changes_in_the_course_of_training_goes_on_where_a_run_was_stopped() {
    let inner = || InnerLoop::new(2, 0.1);
    // After the stop there is one step of first order, and two with the losses of all inner steps.
    let annealing = Annealing { multi_step: 5, first_order: 4 };
    assert_goes_on(|| Maml::plus_plus(network(), inner(), annealing).unwrap());
    assert_goes_on(|| Maml::meta_sgd(network(), inner()).unwrap());
    let proximal = Proximal { strength: 2.0, iterations: 2, damped: false };
    assert_goes_on(|| Maml::implicit(network(), inner(), proximal).unwrap());
    let (features, device) = (config().features(), Default::default());
    assert_goes_on(|| Plastic::<B, _>::new(encoder(), features, WAYS, TraceRule::Oja, &device));
}

#[test]
fn any_network_goes_on_where_a_run_was_stopped() {
    let made = || {
        let device = Default::default();
        B::seed(&device, 3);
        let narrow = ResNet12Config::new().with_channels(1).with_widths([4, 4, 6, 8]);
        ProtoNet::<B, _>::new(AnyEncoder::from(narrow.init::<B>(&device)))
    };
    assert_goes_on(made);
}
