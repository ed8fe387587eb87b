use fewshot::episode::{EpisodeSampler, Protocol, TaskSource};
use fewshot::hardware::Checkpointing;
use fewshot::learners::{EmbeddingLearner, Learner, MetaLearner};
use fewshot::train::{Checkpoint, Evaluator};

use crate::args::{EvalArgs, first_given};
use crate::checkpoint;
use crate::data_spec::Part;
use crate::features;
use crate::method::{Family, HeadTraining, Method};
use crate::prelude::*;
use crate::report::evaluated;
use crate::settings::{LearnerJob, RunSettings, head_on, number_of_episodes};
use crate::sinusoids;
use crate::world::{self, World};

pub(crate) fn run(args: &EvalArgs) -> Result {
    let world = world::join()?;
    if let Some(path) = &args.features.features {
        world::refuse_several(&*world, "eval --features")?;
        if let Some(option) = args.read.given() {
            return Err(usage!("{option} is for a run, not for --features"));
        }
        return features::eval_features(args, path);
    }
    if let Some(option) = args.features.given() {
        return Err(usage!("{option} is for --features, not for a run"));
    }
    world::run_or_abort(&*world, || run_in(args, world.clone()))
}

fn run_in(args: &EvalArgs, world: World) -> Result {
    backend::prepare(args.device.threads)?;
    let Some(given) = &args.checkpoint else {
        return Err(usage!("a checkpoint, a run folder or --features is needed"));
    };
    let path = checkpoint::file(given);
    let (method, shots) = (args.method()?, args.shots()?);
    let checkpoint = Checkpoint::read(&path)?;
    if checkpoint::is_sinusoid_run(&checkpoint) {
        if let Some(option) = args.read.given().or(first_given!(args, test_augment)) {
            return Err(usage!("{option} is for images, not for sinusoids"));
        }
        return sinusoids::eval(args, path, checkpoint, world);
    }
    let mut settings =
        RunSettings::from_checkpoint(&checkpoint, &path, args.data.as_ref(), args.split)?;
    settings.data.refuse_other_options(None, args.read.given().is_some())?;
    settings.folder = args.read.over(settings.folder);
    if let Some(inner) = &mut settings.inner {
        *inner = inner.tested_as(settings.method, args)?;
    } else if args.eval_inner_steps.is_some() {
        let method = method.unwrap_or(settings.method);
        return Err(usage!("--eval-inner-steps is not for {method}"));
    } else if args.eval_inner_batch.is_some() {
        return Err(usage!("--eval-inner-batch is for reptile, not for {}", settings.method));
    }
    let Protocol { ways, shots: trained, queries } = settings.test;
    settings.test = Protocol::new(args.ways.unwrap_or(ways), shots.unwrap_or(trained))
        .with_queries(args.queries.unwrap_or(queries));
    let rule = settings.test_rule(args, settings.test)?;
    let (images, seed) = (settings.images(Part::Test)?, args.seed.unwrap_or(settings.seed));
    let sampler = rule.sampler(images, seed)?.with_data_on(args.data_on);
    settings.check_ways(&sampler)?;
    let sampler = settings.augment.test(sampler, args.test_augment)?;
    let testing = Testing { args, method, settings, path, checkpoint, sampler, world };
    backend::dispatch(&args.device, testing)
}

struct Testing<'a> {
    args: &'a EvalArgs,
    /// The head to put on the run's encoder, unless its own.
    method: Option<Method>,
    settings: RunSettings,
    path: PathBuf,
    checkpoint: Checkpoint,
    sampler: EpisodeSampler,
    world: World,
}

impl Work for Testing<'_> {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        let settings = self.settings.clone();
        match self.method.filter(|method| *method != settings.method) {
            Some(method) => self.with_head::<Autodiff<B>>(method, &hardware),
            None => settings.with_learner::<Autodiff<B>>(&hardware, Checkpointing::Nothing, self),
        }
    }
}

impl LearnerJob for Testing<'_> {
    fn run<B: AutodiffBackend, L: MetaLearner<B>>(
        self,
        hardware: &HardwareManager<B::InnerBackend>,
        learner: L,
    ) -> Result {
        let learner = self.checkpoint.load::<B, _, _>(learner, hardware.device())?;
        self.test::<B>(hardware, learner.valid())
    }
}

impl Testing<'_> {
    fn with_head<B: AutodiffBackend>(
        mut self,
        method: Method,
        hardware: &HardwareManager<B::InnerBackend>,
    ) -> Result {
        if method.family() == Family::Head(HeadTraining::Episodes) {
            return Err(usage!(
                "{method} has weights of its own, which only its own training on episodes gives it"
            ));
        }
        let device = hardware.device();
        let encoder = self.settings.encoder::<B>(&self.checkpoint, device)?;
        let head = head_on(method, &self.settings.network()?, device)?;
        self.settings.method = method;
        match head {
            Some(head) => self.test::<B>(hardware, EmbeddingLearner::with_head(encoder, head)),
            None => Err(usage!("{method} is no head to put on an encoder")),
        }
    }

    fn test<B: AutodiffBackend>(
        self,
        hardware: &HardwareManager<B::InnerBackend>,
        learner: impl Learner<B::InnerBackend>,
    ) -> Result {
        let Self { args, settings, path, checkpoint, mut sampler, world, .. } = self;
        let statistics = settings.statistics(args.batch_norm)?;
        let (info, device) = (hardware.info(), hardware.device());
        let sharers = backend::sharers(info, world.size()) as u64;
        let free = info.memory.free.map(|free| free.0 / sharers);
        let data_on = sampler.place_data::<B>(device, free)?;
        let episodes = number_of_episodes(args.episodes.as_ref(), &sampler);
        let evaluation = Evaluator::new(episodes)
            .with_statistics(statistics)
            .run_shared::<B::InnerBackend>(&learner, &sampler, device, &*world)?;
        if !args.json {
            let data = settings.data.name();
            return print(format_args!("accuracy on test classes of {data}: {evaluation}"));
        }
        let mut protocol = settings.test_protocol(&evaluation);
        if let Some(list) = args.list() {
            protocol["list"] = list.display().to_string().into();
        }
        let mut report = json!({
            "steps": checkpoint.progress().step,
            "inner": settings.inner,
            "protocol": protocol,
            "seed": evaluation.seed,
            "checkpoint": path.display().to_string(),
            "data_on": data_on,
        });
        join(&mut report, evaluated(&evaluation));
        join(&mut report, backend::fields(hardware));
        print(report)
    }
}
