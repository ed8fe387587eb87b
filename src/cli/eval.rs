use std::path::{Path, PathBuf};

use burn::tensor::backend::AutodiffBackend;
use fewshot::data::ClassDataset;
use fewshot::episode::{EpisodeSampler, Protocol, SampleEpisodes, TaskSource};
use fewshot::hardware::Checkpointing;
use fewshot::kernels::route;
use fewshot::learners::heads::{AnyHead, AnyTransductiveHead};
use fewshot::learners::{Inductive, Learner, MetaLearner, Transductive};
use fewshot::train::{Checkpoint, Evaluator, RunFolder};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::args::{EvalArgs, Method};
use super::backend::{self, Job, Place};
use super::data_spec::DataSpec;
use super::error::CliError;
use super::output::print;
use super::recipe::{InnerRecipe, LearnerJob, Recipe};
use super::report::{rounded, test_protocol};
use super::train::World;
use super::{features, sinusoids, world};

pub(crate) fn run(args: EvalArgs) -> Result<(), CliError> {
    let world = world::join()?;
    if let Some(path) = &args.features.features {
        world::refuse_several(&*world, "eval --features")?;
        return features::eval_features(&args, path);
    }
    if let Some(option) = args.features.given() {
        return Err(CliError::Usage(format!("{option} is for --features, not for a run")));
    }
    world::run_or_abort(&*world, || run_in(args, world.clone()))
}

fn run_in(args: EvalArgs, world: World) -> Result<(), CliError> {
    backend::prepare(&args.device)?;
    let Some(given) = &args.checkpoint else {
        return Err(CliError::Usage(
            "a checkpoint, a run folder or --features is needed".to_owned(),
        ));
    };
    let path = file(given);
    let (method, shots) = (args.method()?, args.shots()?);
    let checkpoint = Checkpoint::read(&path)?;
    if sinusoids::is_sinusoid_run(&checkpoint) {
        return sinusoids::eval(args, path, checkpoint, world);
    }
    let trained: Recipe = recipe(&checkpoint, &path)?;
    let data = match args.data.clone() {
        None => trained.data.clone(),
        Some(DataSpec::Images(data)) => data,
        Some(DataSpec::Sinusoids) => {
            let path = path.display();
            return Err(CliError::Usage(format!("{path} takes images, not sinusoids")));
        }
    };
    data.refuse_other_options(args.split, false)?;
    let inner = match (trained.inner, args.eval_inner_steps) {
        (Some(inner), Some(eval_steps)) => Some(InnerRecipe { eval_steps, ..inner }),
        (None, Some(_)) => {
            let method = method.unwrap_or(trained.method);
            return Err(CliError::Usage(format!("--eval-inner-steps is not for {method}")));
        }
        (inner, None) => inner,
    };
    let inner = inner.map(|inner| inner.with_batch_norm(args.batch_norm));
    let inner = with_batch(inner, args.eval_inner_batch, trained.method)?;
    let recipe = Recipe {
        inner,
        data,
        split: args.split.unwrap_or(trained.split),
        test: Protocol {
            ways: args.ways.unwrap_or(trained.test.ways),
            shots: shots.unwrap_or(trained.test.shots),
            queries: args.queries.unwrap_or(trained.test.queries),
        },
        ..trained
    };
    let test = recipe.data.open(recipe.split, recipe.folder)?.test;
    if test.image_shape() != recipe.image {
        return Err(CliError::Failed(format!(
            "the checkpoint takes images of {}, {} has {}",
            recipe.image,
            recipe.data,
            test.image_shape()
        )));
    }
    let sampler = test.sampler(recipe.test, args.seed.unwrap_or(recipe.seed))?;
    let sampler = sampler.with_data_on(args.data_on.into());
    let device = args.device.clone();
    backend::dispatch(&device, Testing { args, method, recipe, path, checkpoint, sampler, world })
}

/// With another number of examples in an inner step.
pub(super) fn with_batch(
    inner: Option<InnerRecipe>,
    asked: Option<usize>,
    method: Method,
) -> Result<Option<InnerRecipe>, CliError> {
    match (inner, asked) {
        (inner, None) => Ok(inner),
        (Some(InnerRecipe { batch: Some([training, _]), .. }), Some(batch)) => {
            Ok(inner.map(|inner| InnerRecipe { batch: Some([training, batch]), ..inner }))
        }
        (_, Some(_)) => {
            Err(CliError::Usage(format!("--eval-inner-batch is for reptile, not for {method}")))
        }
    }
}

/// What a checkpoint of the command was trained by.
pub(super) fn recipe<R: DeserializeOwned>(
    checkpoint: &Checkpoint,
    path: &Path,
) -> Result<R, CliError> {
    R::deserialize(&checkpoint.settings()["user"]).map_err(|error| {
        let path = path.display();
        CliError::Failed(format!("{path} was not made by `fewshot train`: {error}"))
    })
}

/// A run folder stands for its best checkpoint, or the last one.
pub(super) fn file(given: &Path) -> PathBuf {
    if !given.is_dir() {
        return given.to_owned();
    }
    let best = RunFolder::best(given);
    if best.exists() { best } else { RunFolder::last(given) }
}

struct Testing {
    args: EvalArgs,
    /// To be put on the encoder, unless it is the run's own.
    method: Option<Method>,
    recipe: Recipe,
    path: PathBuf,
    checkpoint: Checkpoint,
    sampler: EpisodeSampler,
    world: World,
}

impl Job for Testing {
    type Output = ();

    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        let recipe = self.recipe.clone();
        let device = place.device.clone();
        match self.method.filter(|method| *method != recipe.method) {
            Some(method) => self.with_head(method, place),
            None => {
                let testing = TestingAt { testing: self, place };
                recipe.with_learner(&device, Checkpointing::Nothing, testing)
            }
        }
    }
}

impl Testing {
    /// Tests the encoder of the run with another head.
    fn with_head<B: AutodiffBackend>(
        mut self,
        method: Method,
        place: Place<B>,
    ) -> Result<(), CliError> {
        if method.needs_episodes() {
            return Err(CliError::Usage(format!(
                "{method} has weights of its own, which only its own training on episodes gives it"
            )));
        }
        let encoder = self.recipe.encoder::<B>(&self.checkpoint, &place.device)?;
        let (name, maps) = (method.head_name(), self.recipe.network()?.maps());
        self.recipe = Recipe { method, ..self.recipe };
        let transductive = AnyTransductiveHead::with_name(&name, maps, &place.device);
        let inductive = AnyHead::with_name(&name, maps, &place.device);
        let at = TestingAt { testing: self, place };
        match (transductive, inductive) {
            (Some(head), _) => at.test(Transductive::new(encoder, head)),
            (None, Some(head)) => at.test(Inductive::new(encoder, head)),
            (None, None) => {
                Err(CliError::Usage(format!("{method} is no head to put on an encoder")))
            }
        }
    }
}

/// A test on a backend.
struct TestingAt<B: AutodiffBackend> {
    testing: Testing,
    place: Place<B>,
}

impl<B: AutodiffBackend> LearnerJob<B> for TestingAt<B> {
    type Output = ();

    fn run<L: MetaLearner<B>>(self, learner: L) -> Result<(), CliError> {
        let learner = self.testing.checkpoint.load::<B, _, _>(learner, &self.place.device)?;
        self.test(learner.valid())
    }
}

impl<B: AutodiffBackend> TestingAt<B> {
    fn test(self, learner: impl Learner<B::InnerBackend>) -> Result<(), CliError> {
        let Self { testing, place } = self;
        let Testing { args, recipe, path, checkpoint, mut sampler, world, .. } = testing;
        let statistics = recipe.statistics(args.batch_norm)?;
        let free = place.free_of(world.size()).map(|free| free.0);
        let data_on = sampler.place_data::<B>(&place.device, free)?;
        let evaluation =
            Evaluator::new(args.episodes())
                .with_statistics(statistics)
                .run_shared::<B::InnerBackend>(&learner, &sampler, &place.device, &*world)?;
        if !args.json {
            let data = recipe.data.name();
            return print(format_args!("accuracy on test classes of {data}: {evaluation}"));
        }
        let report = json!({
            "accuracy": rounded(evaluation.accuracy, 2),
            "ci95": rounded(evaluation.ci95, 2),
            "steps": checkpoint.progress().step,
            "eval_episodes_per_s": rounded(evaluation.episodes_per_s, 2),
            "backend": place.backend,
            "device": place.label,
            "route": route::<B>().to_string(),
            "inner": recipe.inner,
            "protocol": test_protocol(&recipe, &evaluation),
            "seed": evaluation.seed,
            "checkpoint": path.display().to_string(),
            "data_on": data_on,
        });
        print(report)
    }
}
