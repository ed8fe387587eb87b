use fewshot::data::{ClassDataset, ImageSet, QuarterTurn, Split, Splits};
use fewshot::episode::{EpisodeSampler, Protocol, TaskSource};
use fewshot::hardware::Checkpointing;
use fewshot::learners::MetaLearner;
use fewshot::metric::Metric;
use fewshot::train::{Checkpoint, Evaluator, RunFolder};

use crate::args::{EncoderSpec, TrainArgs};
use crate::backend::Balanced;
use crate::checkpoint;
use crate::data_spec::{FolderOptions, ImageSpec};
use crate::method::{Benchmark, Method};
use crate::prelude::*;
use crate::report::evaluated;
use crate::settings::{
    AugmentSettings, EncoderSettings, InnerSettings, LearnerJob, OuterStep, RunClasses,
    RunSettings, Source, Start, StartedFrom, TestRule, number_of_episodes,
    refuse_sizes_of_training, sampled,
};
use crate::training::{Run, Tasks};
use crate::world::World;

pub(super) fn run(args: &TrainArgs, data: ImageSpec, world: World) -> Result {
    args.images.check(&data)?;
    let data = data.absolute();
    let split = args.images.split.unwrap_or(Split::Vinyals);
    let default = data.default_options()?;
    let old = resumed(args);
    if old.is_none() {
        refuse_two_beginnings(args)?;
    }
    let of_weights = match data.pack() {
        Some(_) => None,
        None => image_size_of_weights(args, old.as_ref())?,
    };
    let size = of_weights.unwrap_or(default.size);
    let folder = args.images.over(FolderOptions { size, ..default });
    let mut splits = data.open(split, folder)?;
    let (from, start) = started(args, old.as_ref())?;
    let earlier = old.as_ref().and_then(|old| old.encoder.clone());
    let classes = match old {
        None => RunClasses::from_splits(&splits),
        Some(run) if run.data == data && run.folder == folder => {
            run.warn_of_unknown_classes();
            if let Some(classes) = &run.classes {
                splits = classes.splits(&splits)?;
            }
            run.classes
        }
        // Other data is refused by the trainer, which names it.
        Some(run) => run.classes,
    };
    if args.train_on_validation {
        let moved = splits.trained_on_validation();
        splits = moved.ok_or_else(|| {
            failed!("{data} scales or turns validation classes otherwise than those to train on")
        })?;
    }
    let image = splits.train.image_shape();
    let inner = InnerSettings::new(args.method, &args.inner, Benchmark::for_image(image))?
        .map(|inner| inner.with_batch_norm(args.batch_norm));
    let test = Protocol::new(args.ways.unwrap_or(5), args.shots.unwrap_or(1));
    let test = test.with_queries(args.queries.unwrap_or(test.queries));
    let mut settings = RunSettings {
        method: args.method,
        data,
        split,
        folder,
        image,
        test,
        sampling: args.sampling.protocol.unwrap_or_default(),
        metric: args.metric.unwrap_or_else(|| default_metric(args)),
        inner,
        classical: None,
        augment: AugmentSettings::new(&args.augment, image)?,
        outer: OuterStep::new(args, inner.is_none().then_some(2000), PACE[0])?,
        precision: args.scale.precision,
        seed: args.seed,
        encoder: None,
        classes,
        from,
        train_on_validation: args.train_on_validation,
        source: Source::Own,
    };
    settings.encoder = match (&args.network.encoder, &start) {
        (None, Some(start)) => start.encoder(settings.precision),
        (None, None) if settings.from.is_some() => earlier,
        (encoder, _) => EncoderSettings::new(encoder.as_ref(), &settings, earlier)?,
    };
    if let Some(start) = &start {
        start.check(&settings)?;
    }
    let features = settings.network()?.features();
    // A turn that is drawn makes another class.
    let turns = if splits.train.draws_turns() { QuarterTurn::ALL.len() } else { 1 };
    let classes = turns * splits.train.classes();
    settings.classical = args.classical.classifier(args.method, features, classes)?;
    settings.augment.check(settings.classical.is_some())?;
    let rotation = settings.classical.as_ref().is_some_and(|classes| classes.rotation > 0.0);
    if rotation && matches!(settings.data, ImageSpec::Omniglot(_)) {
        let reason = "whose turned characters are classes of their own";
        return Err(usage!("--rotation-loss is not for omniglot, {reason}"));
    }
    if rotation && image.height != image.width {
        return Err(usage!("--rotation-loss needs square images, not {image}"));
    }
    refuse_sizes_of_training(args, settings.classical.is_some())?;
    let tasks = tasks(args, &settings, splits)?;
    // Tasks of several sizes are learned from one by one.
    let micro_batch = if tasks.train.has_equal_sizes() { args.scale.micro_batch } else { Some(1) };
    let run = Run { args, settings, tasks, world, start, pace: PACE, micro_batch };
    backend::dispatch_on(&args.device, &args.scale.devices, run)
}

/// The settings of the run that goes on, if they can be read: the trainer tells why they cannot.
fn resumed(args: &TrainArgs) -> Option<RunSettings> {
    let folder = args.out.as_ref().filter(|_| args.resume)?;
    let path = RunFolder::last(folder);
    let checkpoint = Checkpoint::read(&path).ok()?;
    checkpoint::settings(&checkpoint, &path).ok()
}

/// Side of the images that the weights of the encoder were trained on, where no other is asked for; of a run that goes on
/// its own.
fn image_size_of_weights(args: &TrainArgs, old: Option<&RunSettings>) -> Result<Option<usize>> {
    match (&args.network.encoder, old) {
        (Some(encoder), Some(old)) if encoder.has_weights() => Ok(Some(old.folder.size)),
        (Some(encoder), None) if args.images.image_size.is_none() => encoder.image_size(),
        _ => Ok(None),
    }
}

/// Squared distances; of an encoder with weights cosines. Its embeddings are longer than those of drawn weights, so that squared
/// distances of them begin with losses in the hundreds, whose gradients destroy what the weights know.
fn default_metric(args: &TrainArgs) -> Metric {
    let has_weights = args.network.encoder.as_ref().is_some_and(EncoderSpec::has_weights);
    match args.method {
        Method::Protonet if has_weights => Metric::Cosine,
        _ => Metric::default(),
    }
}

/// Refuses weights of `--encoder` that those of `--from` would take the place of.
fn refuse_two_beginnings(args: &TrainArgs) -> Result {
    let has_weights = args.network.encoder.as_ref().is_some_and(EncoderSpec::has_weights);
    match args.outer.from.is_some() && has_weights {
        true => Err(usage!(
            "--encoder with weights is not for --from, whose encoder training starts with"
        )),
        false => Ok(()),
    }
}

/// The run that training starts from; one that goes on has its parameters already.
fn started(
    args: &TrainArgs,
    old: Option<&RunSettings>,
) -> Result<(Option<StartedFrom>, Option<Start>)> {
    let Some(run) = &args.outer.from else { return Ok((None, None)) };
    let known = old.and_then(|old| old.from.clone()).filter(|from| from.is(run));
    if let Some(from) = known {
        return Ok((Some(from), None));
    }
    let start = Start::read(run)?;
    Ok((Some(start.origin()), Some(start)))
}

fn tasks(
    args: &TrainArgs,
    settings: &RunSettings,
    splits: Splits,
) -> Result<Tasks<EpisodeSampler>> {
    let defaults = settings.method.defaults(Benchmark::for_image(settings.image));
    let classify = settings.classical.is_some();
    let shots = args.train_shots.or(defaults.shots).unwrap_or(settings.test.shots);
    let (ways, queries, meta_batch) = match settings.inner {
        None if settings.has_outputs() => (settings.test.ways, 5, 4),
        None => (20.min(splits.train.classes()), 5, 1),
        Some(_) => (settings.test.ways, defaults.queries.unwrap_or(shots), defaults.meta_batch),
    };
    let ways = args.train_ways.unwrap_or(ways);
    let (method, test_ways) = (settings.method, settings.test.ways);
    if settings.has_outputs() && ways != test_ways {
        return Err(usage!(
            "{method} learns tasks of as many classes as it is tested on: --train-ways {ways} is \
             not --ways {test_ways}"
        ));
    }
    let place = |sampler: EpisodeSampler| sampler.with_data_on(args.data_on);
    let train = Protocol::new(ways, shots).with_queries(args.train_queries.unwrap_or(queries));
    let train = match classify {
        true => mini_batches(args, splits.train)?,
        false => sampled(splits.train, settings.sampling, train, args.seed)?,
    };
    let train = settings.augment.train(place(train))?;
    let drawn = TestRule::Drawn(settings.sampling, settings.test);
    let test = match args.eval_episodes.list() {
        Some(path) => TestRule::Listed(path.to_path_buf()),
        None => drawn.clone(),
    };
    let test = place(test.sampler(splits.test, args.seed)?);
    let test = settings.augment.test(test, args.augment.test_augment)?;
    settings.check_ways(&test)?;
    // Too few validation classes are no reason not to train, other mistakes were found above.
    let validation = match args.train_on_validation {
        true => Err("the validation classes are learned from".to_owned()),
        false => drawn.sampler(splits.validation, args.seed).map_err(|error| error.to_string()),
    };
    if let Err(reason) = &validation {
        print_status(format_args!("no validation, the last step is tested: {reason}"));
    }
    let meta_batch = args.meta_batch.unwrap_or(meta_batch);
    Ok(Tasks { train, validation: validation.ok().map(place), test, meta_batch })
}

/// Images in a mini-batch of classical training, unless there are fewer.
const BATCH_SIZE: usize = 256;

fn mini_batches(args: &TrainArgs, images: ImageSet) -> Result<EpisodeSampler> {
    let examples: usize = (0..images.classes()).map(|class| images.examples(class)).sum();
    let batch_size = args.classical.batch_size.unwrap_or(BATCH_SIZE.min(examples));
    Ok(EpisodeSampler::mini_batches(images, batch_size, args.seed)?)
}

/// Defaults of the steps, and of the steps between validations and between checkpoints.
const PACE: [u64; 3] = [600, 100, 50];

pub(super) type ImageRun<'a> = Run<'a, RunSettings, EpisodeSampler>;

impl Work for ImageRun<'_> {
    type Output = Result;

    fn run<B: Backend>(mut self, hardware: HardwareManager<B>) -> Result {
        let memory = self.memory(hardware.info());
        let hardware = hardware.with_memory(memory);
        self.fit_memory(&hardware)?;
        let (settings, checkpointing) = (self.settings.clone(), self.args.scale.grad_checkpoint);
        match checkpointing {
            Checkpointing::Balanced => {
                settings.with_learner::<Balanced<B>>(&hardware, checkpointing, self)
            }
            Checkpointing::Nothing | Checkpointing::Segments => {
                settings.with_learner::<Autodiff<B>>(&hardware, checkpointing, self)
            }
        }
    }
}

impl LearnerJob for ImageRun<'_> {
    fn run<B: AutodiffBackend, L: MetaLearner<B>>(
        self,
        hardware: &HardwareManager<B::InnerBackend>,
        learner: L,
    ) -> Result {
        let Self { args, settings, tasks, world, start, .. } = &self;
        let learner = match start {
            Some(start) => start.load::<B, L>(hardware, learner, settings)?,
            None => learner,
        };
        let statistics = settings.statistics(args.batch_norm)?;
        let (train, name) = (tasks.train.sizes(), settings.data.name());
        let what = format!("{} ({train})", settings.data);
        let fitted = self.fit::<B, L>(hardware, learner, &settings.outer, name, what)?;
        let (learner, device) = (&fitted.learner, hardware.device());
        let episodes = number_of_episodes(Some(&args.eval_episodes), &tasks.test);
        let evaluation = Evaluator::new(episodes)
            .with_statistics(statistics)
            .run_shared::<B::InnerBackend>(learner, &tasks.test, device, &**world)?;
        if !args.json {
            print(format_args!("accuracy on test classes of {name}: {evaluation}"))?;
            return print(format_args!("run folder: {}", fitted.folder.display()));
        }
        let mut protocol = settings.test_protocol(&evaluation);
        if let Some(list) = args.eval_episodes.list() {
            protocol["list"] = list.display().to_string().into();
        }
        let mut of_training = json!(train);
        let how = json!({
            "meta_batch": tasks.meta_batch,
            "on": if settings.classical.is_some() { "all training classes" } else { "episodes" },
            "batch_norm": match settings.inner {
                None if settings.classical.is_some() => "mini-batch",
                None => "support and query in one batch",
                Some(inner) if inner.batch.is_some() => "mini-batches of support and query",
                Some(_) => "support and query in batches of their own",
            },
        });
        join(&mut of_training, how);
        protocol["train"] = of_training;
        protocol["selected_by"] = fitted.selected_by().into();
        let (inner, seed) = (settings.inner, settings.seed);
        let mut report = json!({ "inner": inner, "protocol": protocol, "seed": seed });
        join(&mut report, evaluated(&evaluation));
        join(&mut report, fitted.json(hardware));
        print(report)
    }
}
