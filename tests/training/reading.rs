//! Losses and scores that are read for many steps at once.

use std::cell::RefCell;
use std::fs;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::backend::{Autodiff, Flex};
use burn::module::{AutodiffModule, Module, ModuleDisplay, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot::data::DataError;
use fewshot::episode::{Classification, TaskSource};
use fewshot::learners::MetaGradients;
use fewshot::models::{BnStatistics, Conv4};
use fewshot::precision::{LossScale, ScaledGrads};
use fewshot::prelude::*;
use fewshot::train::{Checkpoint, Event, RunFolder};
use serde_json::Value;

use crate::{glyphs, metrics, parameters};

const STEPS: u64 = 11;

/// Episodes of which one has an image that is no number.
#[derive(Clone)]
struct Damaged {
    episodes: EpisodeSampler,
    at: Option<u64>,
}

impl TaskSource for Damaged {
    type Kind = Classification;

    fn tasks<B: Backend>(
        &self,
        indices: Range<u64>,
        device: &B::Device,
    ) -> Result<EpisodeBatch<B>, DataError> {
        let damaged = self.at.is_some_and(|at| indices.contains(&at));
        let mut batch = TaskSource::tasks::<B>(&self.episodes, indices, device)?;
        if damaged {
            batch.queries = batch.queries.clone() * f32::NAN;
        }
        Ok(batch)
    }

    fn test_batch_size(&self) -> usize {
        self.episodes.test_batch_size()
    }

    fn settings(&self) -> Value {
        self.episodes.settings()
    }
}

/// A learner whose gradient is infinite at one step, and its loss is not.
#[derive(Module, Debug)]
struct Steep<B: Backend, L> {
    learner: L,
    #[module(skip)]
    at: Option<u64>,
    #[module(skip)]
    step: u64,
    _backend: PhantomData<B>,
}

impl<B: Backend, L: Learner<B> + ModuleDisplay> Learner<B> for Steep<B, L> {
    type Adapted = L::Adapted;

    fn adapt(&self, support: &Support<B>) -> L::Adapted {
        self.learner.adapt(support)
    }

    fn outputs(&self, batch: &EpisodeBatch<B>, statistics: BnStatistics) -> Tensor<B, 3> {
        self.learner.outputs(batch, statistics)
    }

    fn architecture(&self) -> String {
        self.learner.architecture()
    }
}

impl<B: AutodiffBackend, L> MetaLearner<B> for Steep<B, L>
where
    L: MetaLearner<B> + ModuleDisplay,
    L: AutodiffModule<B, InnerModule: Learner<B::InnerBackend> + ModuleDisplay>,
{
    fn meta_gradients(&self, batch: &EpisodeBatch<B>, scale: LossScale) -> MetaGradients<B> {
        let found = self.learner.meta_gradients(batch, scale);
        if self.at != Some(self.step) {
            return found;
        }
        let (mut gradients, scale) = found.gradients.into_parts();
        self.visit(&mut Infinite { gradients: &mut gradients });
        MetaGradients { gradients: ScaledGrads::new(gradients, scale), ..found }
    }

    fn at_step(&mut self, step: u64) {
        self.step = step;
    }
}

struct Infinite<'a> {
    gradients: &'a mut GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Infinite<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id) {
            let infinite = gradient.ones_like() * f32::INFINITY;
            self.gradients.register::<B::InnerBackend, D>(param.id, infinite);
        }
    }
}

#[derive(Clone, Default)]
struct Setting {
    read_every: Option<u64>,
    damaged: Option<u64>,
    steep: Option<u64>,
    stop_at: Option<u64>,
    resume: bool,
}

type Net<B> = Steep<B, ProtoNet<B, Conv4<B>>>;

struct Done<B: AutodiffBackend> {
    trained: Result<Trained<Net<B::InnerBackend>>, TrainError>,
    /// Steps, as the observer was told.
    told: Vec<u64>,
}

fn run<B: AutodiffBackend>(folder: &Path, setting: &Setting) -> Done<B> {
    let device = Default::default();
    B::seed(&device, 3);
    let encoder = Conv4Config::omniglot().with_channels(4).with_blocks(2).init(&device);
    let learner = Steep {
        learner: ProtoNet::<B, _>::new(encoder),
        at: setting.steep,
        step: 0,
        _backend: PhantomData,
    };
    let splits = glyphs();
    let source = |set: &fewshot::data::ImageSet, at| Damaged {
        episodes: set.clone().sampler(Protocol::new(3, 1).with_queries(2), 1).unwrap(),
        at,
    };
    let told = Rc::new(RefCell::new(Vec::new()));
    let interrupt = Arc::new(AtomicBool::new(false));
    let (flag, stop_at, steps) = (interrupt.clone(), setting.stop_at, told.clone());
    let mut trainer = MetaTrainer::new(learner, Adam::new().init())
        .episodes(source(&splits.train, setting.damaged))
        .validation(source(&splits.validation, None), 3)
        .steps(STEPS)
        .validate_every(6)
        .checkpoint_every(4)
        .interrupt(interrupt)
        .observe(move |event| {
            if let Event::Step { metrics, .. } = event {
                steps.borrow_mut().push(metrics.step);
                flag.fetch_or(stop_at == Some(metrics.step), Ordering::Relaxed);
            }
        });
    trainer = match setting.resume {
        true => trainer.resume_from(folder),
        false => trainer.run_folder(folder),
    };
    if let Some(steps) = setting.read_every {
        trainer = trainer.read_every(steps);
    }
    let trained = trainer.fit::<B>();
    Done { trained, told: told.take() }
}

fn every(steps: u64) -> Setting {
    Setting { read_every: Some(steps), ..Setting::default() }
}

fn the_interval_of_readings_changes_nothing_but_their_number<B: AutodiffBackend>() {
    let folders = [(); 4].map(|()| tempfile::tempdir().unwrap());
    // Validations after 6 and 11 steps and checkpoints after 4 and 8 want all to be read.
    let readings = [(1, STEPS), (3, 5), (100, 4), (2, 6)];
    let runs: Vec<_> = folders
        .iter()
        .zip(readings)
        .map(|(folder, (steps, readings))| {
            let Done { trained, told } = run::<B>(folder.path(), &every(steps));
            let Trained { learner, report } = trained.unwrap();
            assert_eq!(told, (1..=STEPS).collect::<Vec<_>>());
            assert_eq!(report.reads, readings, "every {steps} steps");
            (parameters(&learner), report.progress, report.last_loss, metrics(folder.path()))
        })
        .collect();
    assert_eq!(runs[0].3.lines().count() as u64, STEPS + 2);
    for other in &runs[1..] {
        assert_eq!(other, &runs[0]);
    }
}

#[test]
fn on_a_processor_the_interval_of_readings_changes_nothing_but_their_number() {
    the_interval_of_readings_changes_nothing_but_their_number::<Autodiff<Flex>>();
}

#[cfg(feature = "wgpu")]
#[test]
fn on_an_accelerator_the_interval_of_readings_changes_nothing_but_their_number() {
    the_interval_of_readings_changes_nothing_but_their_number::<Autodiff<burn::backend::Wgpu>>();
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs a CUDA device; run with --include-ignored where there is one"]
fn on_cuda_the_interval_of_readings_changes_nothing_but_their_number() {
    the_interval_of_readings_changes_nothing_but_their_number::<Autodiff<burn::backend::Cuda>>();
}

type B = Autodiff<Flex>;

#[test]
fn a_processor_is_read_at_every_step_unless_said() {
    let folder = tempfile::tempdir().unwrap();
    let report = run::<B>(folder.path(), &Setting::default()).trained.unwrap().report;
    assert_eq!(report.reads, STEPS);
}

/// The error of a run, the last of its steps that were told, and steps done at its last checkpoint.
fn failed(setting: &Setting) -> (TrainError, u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let Done { trained, told } = run::<B>(folder.path(), setting);
    let lines = fs::read_to_string(folder.path().join("metrics.jsonl")).unwrap();
    assert!(!lines.contains("null"), "{lines}");
    let last = Checkpoint::read(&RunFolder::last(folder.path())).unwrap();
    assert!(!RunFolder::best(folder.path()).exists());
    (trained.unwrap_err(), *told.last().unwrap(), last.progress().step)
}

#[test]
fn a_loss_that_is_not_finite_is_told_with_its_step() {
    for steps in [1, 2, 100] {
        let (error, told, kept) = failed(&Setting { damaged: Some(5), ..every(steps) });
        let TrainError::NonFiniteLoss { loss, step: 5, episode: 5, folder: Some(_), .. } = error
        else {
            panic!("{error}");
        };
        assert!(loss.is_nan());
        assert_eq!((told, kept), (5, 4), "every {steps} steps");
    }
}

#[test]
fn a_gradient_that_is_not_finite_is_told_with_its_step_and_never_kept() {
    for steps in [1, 2, 100] {
        let (error, told, kept) = failed(&Setting { steep: Some(4), ..every(steps) });
        assert!(
            matches!(error, TrainError::NonFiniteGradient { step: 4, folder: Some(_) }),
            "{error}"
        );
        assert_eq!((told, kept), (4, 4), "every {steps} steps");
    }
}

#[test]
fn a_run_that_is_read_seldom_resumes_as_if_it_had_never_stopped() {
    let [whole, parts] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let expected = run::<B>(whole.path(), &every(1)).trained.unwrap();
    // What is seen of step 3 is seen when step 4 is read.
    let stopped = run::<B>(parts.path(), &Setting { stop_at: Some(3), ..every(100) });
    let error = stopped.trained.unwrap_err();
    assert!(matches!(error, TrainError::Interrupted { step: 4 | 5 }), "{error}");
    let resumed = run::<B>(parts.path(), &Setting { resume: true, ..every(100) }).trained.unwrap();
    assert_eq!(parameters(&resumed.learner), parameters(&expected.learner));
    assert_eq!(resumed.report.progress, expected.report.progress);
    assert_eq!(metrics(parts.path()), metrics(whole.path()));
}
