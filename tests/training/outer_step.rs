//! Optimizers, schedules, averages of weights and frozen parameters in a whole training.

use fewshot::optim::{AnyOptimizer, ParameterGroups, RateCurve, Schedule};
use fewshot::train::NamedParameters;

use super::*;

const STEPS: u64 = 6;

fn learner() -> Net<B> {
    let device = Default::default();
    B::seed(&device, 3);
    ProtoNet::new(Conv4Config::omniglot().with_channels(4).with_blocks(2).init(&device))
}

/// What a training has beside the defaults.
#[derive(Clone)]
struct Outer {
    optimizer: AnyOptimizer,
    curve: RateCurve,
    decay: Option<f64>,
    freeze: Vec<&'static str>,
    validates: bool,
}

impl Default for Outer {
    fn default() -> Self {
        Self {
            optimizer: AnyOptimizer::Adam(Adam::new()),
            curve: RateCurve::Constant,
            decay: None,
            freeze: Vec::new(),
            validates: false,
        }
    }
}

struct Part<'a> {
    folder: &'a Path,
    resume: bool,
    stop_at: Option<u64>,
}

fn train(outer: &Outer, part: &Part) -> Result<Trained<Net<Flex>>, TrainError> {
    let splits = glyphs();
    let sampler = |set: &ImageSet| set.sampler(Protocol::new(3, 1).with_queries(1), 1).unwrap();
    let learner = learner();
    let groups = ParameterGroups::of(&learner).freeze(&outer.freeze).unwrap();
    let groups = groups.without_decay_of_vectors();
    let optimizer = outer.optimizer.init::<B, Net<B>>().with_groups(groups.clone());
    let mut trainer = MetaTrainer::new(learner, optimizer).groups(groups);
    trainer = match part.resume {
        true => trainer.resume_from(part.folder),
        false => trainer.run_folder(part.folder),
    };
    if let Some(decay) = outer.decay {
        trainer = trainer.average_weights(decay);
    }
    if outer.validates {
        trainer = trainer.validation(sampler(&splits.validation), 2).validate_every(STEPS);
    }
    let interrupt = Arc::new(AtomicBool::new(false));
    let (flag, stop_at) = (interrupt.clone(), part.stop_at);
    trainer
        .learning_rate(Schedule::new(0.01, outer.curve.clone()).with_warm_up(1))
        .episodes(sampler(&splits.train))
        .steps(STEPS)
        .interrupt(interrupt)
        .observe(move |event| {
            if let (Event::Step { metrics, .. }, Some(stop)) = (event, stop_at) {
                flag.fetch_or(metrics.step == stop, Ordering::Relaxed);
            }
        })
        .fit::<B>()
}

/// Records of a checkpoint, of which the ids of parameters are no part.
fn last(folder: &Path) -> [Vec<f32>; 2] {
    let last = Checkpoint::read(&RunFolder::last(folder)).unwrap();
    let device = Default::default();
    let averaged: Net<B> = last.load::<B, _, _>(learner(), &device).unwrap();
    let weights = last.record::<B, _>("weights", &device).map(|it| learner().load_record(it));
    [parameters::<B>(&averaged), weights.map_or_else(|_| Vec::new(), |it| parameters::<B>(&it))]
}

#[test]
fn a_stop_changes_nothing_whatever_the_outer_step() {
    let optimizers = [
        AnyOptimizer::Sgd(Sgd::new().with_momentum(0.9).with_nesterov(true)),
        AnyOptimizer::Adam(Adam::new().with_weight_decay(0.1)),
        AnyOptimizer::AdamW(AdamW::new()),
        AnyOptimizer::Lamb(Lamb::new()),
    ];
    let curves = [
        RateCurve::Constant,
        RateCurve::Step { every: 2, gamma: 0.5 },
        RateCurve::MultiStep { milestones: vec![2, 4], gamma: 0.1 },
        RateCurve::Cosine { steps: STEPS },
        RateCurve::OneCycle { steps: STEPS },
        RateCurve::Linear { steps: STEPS },
    ];
    for (index, optimizer) in optimizers.iter().enumerate() {
        for (other, curve) in curves.iter().enumerate() {
            let decay = ((index + other) % 2 == 0).then_some(0.9);
            let (optimizer, curve) = (optimizer.clone(), curve.clone());
            let outer = Outer { optimizer, curve, decay, ..Outer::default() };
            let [whole, parts] = [(); 2].map(|()| tempfile::tempdir().unwrap());
            let begin = |folder, stop_at| train(&outer, &Part { folder, resume: false, stop_at });
            let expected = begin(whole.path(), None).unwrap();
            begin(parts.path(), Some(3)).unwrap_err();
            let rest = Part { folder: parts.path(), resume: true, stop_at: None };
            let resumed = train(&outer, &rest).unwrap();
            let name = format!("{:?} {:?} {decay:?}", outer.optimizer, outer.curve);
            let [resumed, expected] = [resumed, expected].map(|it| parameters::<Flex>(&it.learner));
            assert_eq!(resumed, expected, "{name}");
            assert_eq!(last(parts.path()), last(whole.path()), "{name}");
        }
    }
}

#[test]
fn the_average_of_weights_is_what_its_formula_says() {
    let folders = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let weights_after = |folder: &Path, decay, steps| {
        let outer = Outer { decay, ..Outer::default() };
        let stop_at = (steps < STEPS).then_some(steps);
        let _ = train(&outer, &Part { folder, resume: false, stop_at });
        last(folder)
    };
    let mut expected = parameters::<B>(&learner());
    for (step, folder) in folders[..3].iter().enumerate() {
        let [weights, none] = weights_after(folder.path(), None, step as u64 + 1);
        assert!(none.is_empty());
        let share = 1.0 - 0.15f64.min((1.0 + step as f64) / (10.0 + step as f64));
        for (average, weight) in expected.iter_mut().zip(weights) {
            *average += (weight - *average) * share as f32;
        }
    }
    let [averaged, weights] = weights_after(folders[3].path(), Some(0.15), 3);
    assert_eq!(weights, last(folders[2].path())[0]);
    let mut copies = 0;
    for ((averaged, expected), weight) in averaged.iter().zip(&expected).zip(&weights) {
        // Running averages are copies.
        copies += usize::from(averaged == weight);
        assert!((averaged - expected).abs() < 1e-6 || averaged == weight);
    }
    assert!((1..averaged.len() / 2).contains(&copies), "{copies} of {}", averaged.len());
}

#[test]
fn the_average_is_validated_returned_and_the_best() {
    let trained = |decay, validates| {
        let folder = tempfile::tempdir().unwrap();
        let outer = Outer { decay, validates, ..Outer::default() };
        let part = Part { folder: folder.path(), resume: false, stop_at: None };
        let learner = parameters::<Flex>(&train(&outer, &part).unwrap().learner);
        let best = validates.then(|| Checkpoint::read(&RunFolder::best(folder.path())).unwrap());
        let device = Default::default();
        let best = best.map(|it| it.load::<B, _, _>(self::learner(), &device).unwrap());
        (learner, best.map(|best| parameters::<B>(&best)), last(folder.path()))
    };
    let (plain, none, _) = trained(None, false);
    assert!(none.is_none());
    let (averaged, _, [saved, weights]) = trained(Some(0.9), false);
    assert_eq!(averaged, saved);
    assert_eq!(weights, plain, "averages change nothing of the training");
    assert_ne!(averaged, plain);
    let (returned, best, _) = trained(Some(0.9), true);
    assert_eq!(best.unwrap(), returned);
    assert_eq!(returned, averaged);
    // Without any decay the average is the weights.
    assert_eq!(trained(Some(0.0), false).0, plain);
}

fn named<M: Module<B>>(module: &M) -> Vec<(String, Vec<f32>)> {
    struct Named(fewshot::optim::ParameterPath, Vec<(String, Vec<f32>)>);
    impl ModuleVisitor<B> for Named {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.enter(name, container);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.exit();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.1.push((self.0.name(), param.val().into_data().iter::<f32>().collect()));
        }
    }
    let mut named = Named(Default::default(), Vec::new());
    module.visit(&mut named);
    named.1
}

#[test]
fn frozen_parameters_and_their_running_averages_stay() {
    let folder = tempfile::tempdir().unwrap();
    let optimizer = AnyOptimizer::AdamW(AdamW::new().with_weight_decay(0.5));
    let outer = Outer { optimizer, freeze: vec!["blocks.0"], ..Outer::default() };
    let part = Part { folder: folder.path(), resume: false, stop_at: None };
    train(&outer, &part).unwrap();
    let last = Checkpoint::read(&RunFolder::last(folder.path())).unwrap();
    let after = last.load::<B, _, _>(learner(), &Default::default()).unwrap();
    let (before, after) = (named(&learner()), named(&after));
    assert!(before.iter().any(|(name, _)| name == "encoder.blocks.0.norm.running_mean"));
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        // A bias before batch-norm has no gradient but rounding.
        if !name.ends_with("conv.bias") {
            assert_eq!(before == after, name.starts_with("encoder.blocks.0."), "{name}");
        }
    }
}

#[test]
fn a_run_goes_on_with_the_same_frozen_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let begin = Part { folder: folder.path(), resume: false, stop_at: Some(2) };
    let frozen = Outer { freeze: vec!["blocks.0"], ..Outer::default() };
    train(&frozen, &begin).unwrap_err();
    let rest = Part { folder: folder.path(), resume: true, stop_at: None };
    for freeze in [vec![], vec!["blocks.1"]] {
        let other = train(&Outer { freeze, ..Outer::default() }, &rest).unwrap_err().to_string();
        assert!(other.contains("frozen"), "{other}");
    }
    train(&frozen, &rest).unwrap();
}

#[test]
fn frozen_gradients_are_no_part_of_the_norm_that_is_clipped() {
    const RATE: f64 = 10.0;
    let trained = |clip| {
        let learner = learner();
        let groups = ParameterGroups::of(&learner).freeze(&["blocks.0"]).unwrap();
        let sampler = glyphs().train.sampler(Protocol::new(5, 1).with_queries(3), 1).unwrap();
        let trainer = MetaTrainer::new(learner, Sgd::new().init()).groups(groups);
        let trainer = trainer.episodes(sampler).steps(1).observe(|_| {}).learning_rate(RATE);
        parameters::<Flex>(&trainer.clip_norm(clip).fit::<B>().unwrap().learner)
    };
    let (before, whole) = (parameters::<B>(&learner()), trained(1e9));
    let still = trained(1e-30);
    // Running averages move alike in all.
    let norm = |after: &[f32]| {
        let moved = (0..before.len()).filter(|place| still[*place] != whole[*place]);
        moved.map(|place| f64::from(after[place] - before[place]).powi(2)).sum::<f64>().sqrt()
    };
    let all = norm(&whole);
    assert!(all > 1e-3, "{all}");
    let half = norm(&trained(all / RATE / 2.0));
    assert!((half / all - 0.5).abs() < 1e-3, "{half} of {all}");
}

#[test]
fn an_encoder_goes_from_one_learner_to_another() {
    let device = Default::default();
    let maml = |channels, ways| {
        let config = Conv4Config::omniglot().with_channels(channels).with_blocks(2);
        let network = Classifier::new(config.init::<B>(&device), config.features(), ways, &device);
        Maml::<B, _>::new(network, InnerLoop::new(1, 0.1)).unwrap()
    };
    let encoder = |named: Vec<(String, Vec<f32>)>| -> Vec<Vec<f32>> {
        let within = named.into_iter().filter(|(name, _)| name.contains("encoder."));
        within.map(|(_, values)| values).collect()
    };
    let trained = learner();
    let given = NamedParameters::of::<B, _>(&trained);
    let (fresh, loaded) = (maml(4, 3), given.load_encoder::<B, _>(maml(4, 3)).unwrap());
    assert_ne!(encoder(named(&fresh)), encoder(named(&trained)));
    assert_eq!(encoder(named(&loaded)), encoder(named(&trained)));
    assert_eq!(tracked(&loaded), tracked(&fresh), "what was trained still is");
    let error = given.load_encoder::<B, _>(maml(8, 3)).unwrap_err().to_string();
    assert!(error.contains("8x1x3x3 here and 4x1x3x3 there"), "{error}");
    let given = NamedParameters::of::<B, _>(&loaded);
    let (same, left) = given.load_fitting::<B, _>(maml(4, 3));
    assert_eq!((named(&same), left), (named(&loaded), Vec::new()));
    let (_, left) = given.load_fitting::<B, _>(maml(4, 5));
    assert_eq!(left, ["network.head.bias", "network.head.weight"]);
}

/// The number of parameters that gradients are asked of.
fn tracked<M: Module<B>>(module: &M) -> usize {
    struct Tracked(usize);
    impl ModuleVisitor<B> for Tracked {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.0 += usize::from(param.val().is_require_grad());
        }
    }
    let mut tracked = Tracked(0);
    module.visit(&mut tracked);
    tracked.0
}

#[test]
fn a_decay_of_one_is_refused() {
    for decay in [1.0, -0.1, f64::NAN] {
        let folder = tempfile::tempdir().unwrap();
        let outer = Outer { decay: Some(decay), ..Outer::default() };
        let part = Part { folder: folder.path(), resume: false, stop_at: None };
        let error = train(&outer, &part).unwrap_err();
        assert!(matches!(error, TrainError::AverageDecay(_)), "{error}");
    }
}
