//! What models take: `estimate`, `recommend` and `plan`.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::tensor::backend::Backend;
use fewshot::catalog::{
    Backbone, Catalog, Estimate, Method, Recommendation, Target as Meant, recommend,
};
use fewshot::hardware::{
    Bytes, Calibration, Checkpointing, DeviceInfo, DevicePreference, Effort, MemoryFigure,
    MemoryFit, OptimizerKind, Provenance, Tier, Work, place, run_on,
};
use fewshot::kernels::Route;
use fewshot::train::TrainError;
use serde_json::json;

use super::args::{EstimateArgs, MethodName, PlanArgs, RecommendArgs, TaskArgs, WhereArgs};
use super::list;
use crate::cli::backend;
use crate::cli::error::CliError;
use crate::cli::output::{print, print_status};
use crate::cli::report::rounded;
use crate::cli::train::GradCheckpoint;

/// A device that is meant, and what of its memory may be used.
struct Target {
    info: DeviceInfo,
    route: Route,
    budget: Option<Bytes>,
    /// Whether it is a device of this machine.
    here: bool,
}

impl Target {
    fn new(args: &WhereArgs) -> Result<Self, CliError> {
        let here = args.machine.inventory.is_none();
        let info = match here {
            true => backend::select(&args.device)?.device,
            false => list::inventory(&args.machine, &args.device)?.select(&args.device)?.device,
        };
        let budget = args.budget.or(info.memory.free);
        Ok(Self { route: route(&info), info, budget, here })
    }

    fn known_budget(&self) -> Result<Bytes, CliError> {
        self.budget.ok_or_else(|| {
            let key = &self.info.key;
            CliError::Usage(format!("{key} does not tell how much memory is free; say --budget"))
        })
    }

    /// What a simple measurement of the device found; of another machine's there is none.
    fn calibration(&self) -> Result<Option<Calibration>, CliError> {
        if !self.here {
            return Ok(None);
        }
        let cache = super::cache::Cache::open();
        if let Some(found) = cache.get(&self.info) {
            return Ok(Some(found));
        }
        print_status(format_args!(
            "measuring how fast {} is, for the time of a step",
            self.info.key
        ));
        let found = run_on(&self.info.key, super::bench::Measure(Effort::Full))??;
        cache.put(&self.info, &found);
        Ok(Some(found))
    }
}

/// Which way operations go on a device, of this machine or another; what is not known to be fused
/// is taken not to be.
pub(super) fn route(info: &DeviceInfo) -> Route {
    let fused = info.capabilities.route.as_ref().is_some_and(|route| route.starts_with("fused"));
    match (fused, info.tier) {
        (false, _) => Route::Reference,
        (true, Tier::Cpu) => Route::Host("as measured"),
        (true, _) => Route::Device("CubeCL"),
    }
}

/// Work that counts tensors, for which any backend of the processor will do.
fn counting<W: Work>(work: W) -> Result<W::Output, CliError> {
    let cpu = backend::select(&DevicePreference::Cpu)?.device;
    Ok(run_on(&cpu.key, work)?)
}

fn method(task: &TaskArgs) -> Method {
    let steps = task.inner_steps;
    match task.method {
        MethodName::Protonet => Method::ProtoNet,
        MethodName::Maml => Method::Maml { steps },
        MethodName::Fomaml => Method::FirstOrder { steps },
        MethodName::Anil => Method::Anil { steps },
    }
}

struct Estimating<'a> {
    backbone: &'a Backbone,
    task: &'a TaskArgs,
    optimizer: OptimizerKind,
    checkpointing: GradCheckpoint,
    route: Route,
}

impl Work for Estimating<'_> {
    type Output = Estimate;

    fn run<B: Backend>(self, device: B::Device) -> Estimate {
        let Self { backbone, task, optimizer, checkpointing, route } = self;
        Estimate::new::<B>(backbone, method(task), task.task, optimizer, route, &device)
            .with_checkpointing(checkpointing.into())
    }
}

/// Running steps of so few tasks that they share a network, and so many that there is a line: one
/// task alone has no copies of the parameters.
struct Measuring<'a>(&'a Estimate);

impl Work for Measuring<'_> {
    type Output = Result<MemoryFit, TrainError>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let sizes = [2, 3, 4];
        match self.0.checkpointing() {
            Checkpointing::Balanced => {
                self.0.measure::<Autodiff<B, BalancedCheckpointing>>(sizes, &device)
            }
            Checkpointing::Nothing | Checkpointing::Segments => {
                self.0.measure::<Autodiff<B>>(sizes, &device)
            }
        }
    }
}

/// That the method has segments, if they are asked for.
fn check(checkpointing: GradCheckpoint, task: &TaskArgs) -> Result<(), CliError> {
    if checkpointing == GradCheckpoint::Segments && task.method != MethodName::Protonet {
        return Err(CliError::Usage("--grad-checkpoint segments is for protonet".to_owned()));
    }
    Ok(())
}

/// The backbone of this name, for images of the size that is meant.
fn backbone(name: &str, task: &TaskArgs) -> Result<Backbone, CliError> {
    let catalog = Catalog::built_in();
    let named = catalog.get(name)?;
    let Some(image) = task.image else { return Ok(named.clone()) };
    named.for_images(image.0).ok_or_else(|| {
        CliError::Usage(format!("images of {image} are too small or too large for {name}"))
    })
}

pub(super) fn estimate(args: &EstimateArgs) -> Result<(), CliError> {
    check(args.grad_checkpoint, &args.task)?;
    let target = Target::new(&args.place)?;
    let backbone = backbone(&args.model, &args.task)?;
    let work = Estimating {
        backbone: &backbone,
        task: &args.task,
        optimizer: args.optimizer.into(),
        checkpointing: args.grad_checkpoint,
        route: target.route,
    };
    let estimate = counting(work)?;
    let estimate = match args.measure {
        true => {
            print_status(format_args!("running steps on {}", target.info.key));
            let fit = run_on(&target.info.key, Measuring(&estimate))??;
            estimate.with_measured(fit)
        }
        false => estimate,
    };
    let estimate = estimate.with_largest_buffer(target.info.capabilities.largest_buffer);
    let plan = estimate.plan(args.tasks);
    let need = plan.total();
    let fits = match plan.largest_fits() {
        Some(false) => Some(false),
        _ => target.budget.and_then(|budget| plan.fits(budget)),
    };
    let most = target.budget.and_then(|budget| estimate.max_tasks(budget));
    // What does not fit takes no time.
    let calibration = if fits == Some(false) { None } else { target.calibration()? };
    let seconds = calibration.and_then(|rates| estimate.seconds(args.tasks, &rates));
    if args.place.machine.json {
        print(json!({
            "model": backbone.name,
            "method": method(&args.task),
            "checkpointing": estimate.checkpointing(),
            "task": args.task.task,
            "tasks": args.tasks,
            "device": target.info.key,
            "plan": plan,
            "total": need,
            "budget": target.budget,
            "fits": fits,
            "max_tasks": most,
            "gflop_per_step": rounded(estimate.flops(args.tasks) / 1e9, 4),
            "seconds_per_step": seconds,
        }))?;
    } else {
        print(format_args!(
            "{}, {}, tasks a step: {}, on {}",
            backbone.name, args.task.task, args.tasks, target.info.key
        ))?;
        print(&plan)?;
        if let Some(seconds) = seconds {
            let ms = seconds * 1e3;
            print(format_args!("about {ms:.1} ms a step, by rates measured on the device"))?;
        }
        match (target.budget, fits) {
            (Some(budget), Some(fits)) => {
                let fits = if fits { "fits" } else { "does not fit" };
                let most = most.map(|most| format!("; tasks a step at most: {most}"));
                let (need, most) = (need.bytes, most.unwrap_or_default());
                print(format_args!("{fits}: {need} of {budget}{most}"))?;
            }
            (Some(budget), None) => {
                print(format_args!("{need} of {budget}: whether it fits is not known"))?;
            }
            (None, Some(_)) => {}
            (None, None) => print("the device does not tell its memory: say --budget")?,
        }
    }
    match fits {
        Some(false) if plan.largest_fits() == Some(false) => {
            Ok(estimate.check(args.tasks, target.budget.unwrap_or(Bytes(u64::MAX)))?)
        }
        Some(false) => Err(CliError::DoesNotFit {
            what: format!("{} tasks of {}", args.tasks, backbone.name),
            need: need.bytes,
            budget: target.known_budget()?,
        }),
        _ => Ok(()),
    }
}

struct Recommending<'a> {
    task: &'a TaskArgs,
    image: [usize; 3],
    target: Meant<'a>,
}

impl Work for Recommending<'_> {
    type Output = Vec<Recommendation>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let Self { task, image, target } = self;
        recommend::<B>(&Catalog::built_in(), image, task.task, method(task), target, &device)
    }
}

pub(super) fn recommend_models(args: &RecommendArgs) -> Result<(), CliError> {
    let target = Target::new(&args.place)?;
    let image = args.task.image.map_or([1, 28, 28], |image| image.0);
    let budget = target.known_budget()?;
    let calibration = target.calibration()?;
    let meant = Meant {
        budget,
        largest_buffer: target.info.capabilities.largest_buffer,
        route: target.route,
        calibration: calibration.as_ref(),
    };
    let ranked = counting(Recommending { task: &args.task, image, target: meant })?;
    if args.place.machine.json {
        print(json!({
            "device": target.info.key,
            "budget": budget,
            "task": args.task.task,
            "image": image,
            "ranked": ranked,
        }))?;
    } else {
        print(format_args!(
            "{:<24}{:>11}{:>14}{:>12}{:>12}",
            "MODEL", "NEEDS", "TASKS AT MOST", "STEP ABOUT", "PARAMETERS"
        ))?;
        for entry in &ranked {
            let time = entry.seconds.map_or("-".to_owned(), |s| format!("{:.1} ms", s * 1e3));
            print(format_args!(
                "{:<24}{:>11}{:>14}{:>12}{:>12}{}",
                entry.backbone,
                entry.need,
                entry.max_tasks,
                time,
                entry.parameters,
                if entry.fits { "" } else { "  does not fit" }
            ))?;
        }
    }
    match ranked.iter().any(|entry| entry.fits) {
        true => Ok(()),
        false => Err(CliError::DoesNotFit {
            what: "the smallest of the models".to_owned(),
            need: ranked.iter().map(|entry| entry.need).min().unwrap_or_default(),
            budget,
        }),
    }
}

pub(super) fn plan(args: &PlanArgs) -> Result<(), CliError> {
    check(args.grad_checkpoint, &args.task)?;
    let rooms = rooms(args)?;
    let routes = rooms.iter().map(|(info, _)| route(info)).collect::<Vec<_>>();
    let free = rooms.into_iter().map(|(info, room)| (info.key, room)).collect::<Vec<_>>();
    let models = args.models.iter().map(|wanted| {
        let bytes = match wanted.bytes {
            Some(bytes) => bytes,
            None => need(&wanted.name, args, &routes)?,
        };
        Ok((wanted.name.clone(), bytes))
    });
    let models = models.collect::<Result<Vec<_>, CliError>>()?;
    let placement = place(&models, &free, args.keep_free)?;
    if args.machine.json {
        return print(json!(placement));
    }
    for model in &placement.models {
        print(format_args!("{:<28}{:>11}  {}", model.name, model.bytes, model.device))?;
    }
    for load in &placement.devices {
        print(format_args!("{}: {} of {} taken", load.device, load.used, load.usable))?;
    }
    Ok(())
}

/// The devices to place models on, with their memory.
fn rooms(args: &PlanArgs) -> Result<Vec<(DeviceInfo, Bytes)>, CliError> {
    let inventory = list::inventory(&args.machine, &DevicePreference::Auto)?;
    if args.devices.is_empty() {
        let processor = inventory.devices.iter().find(|info| info.tier == Tier::Cpu);
        let accelerators = inventory.devices.iter().filter(|info| info.tier.is_accelerator());
        let (told, untold): (Vec<_>, Vec<_>) =
            accelerators.chain(processor).partition(|info| info.memory.free.is_some());
        for DeviceInfo { key, .. } in untold {
            print_status(format_args!(
                "left out {key}: it does not tell its memory; --devices {key}=AMOUNT takes it in"
            ));
        }
        let room = |info: &DeviceInfo| Some((info.clone(), info.memory.free?));
        return Ok(told.into_iter().filter_map(room).collect());
    }
    let mut rooms: Vec<(DeviceInfo, Bytes)> = Vec::new();
    for wanted in &args.devices {
        let info = inventory.select(&wanted.device)?.device;
        let key = &info.key;
        if rooms.iter().any(|(other, _)| other.key == *key) {
            return Err(CliError::Usage(format!("--devices names {key} twice")));
        }
        let room = wanted.bytes.or(info.memory.free).ok_or_else(|| {
            CliError::Usage(format!("{key} does not tell its memory: say {key}=AMOUNT"))
        })?;
        rooms.push((info, room));
    }
    Ok(rooms)
}

/// What training a model on one task at a time takes where operations go one of these ways, at
/// most.
fn need(name: &str, args: &PlanArgs, routes: &[Route]) -> Result<Bytes, CliError> {
    let backbone = backbone(name, &args.task)?;
    let needs = routes.iter().map(|&route| {
        let need = training_need(&backbone, &args.task, args.grad_checkpoint, route)?;
        match need.source {
            Provenance::Unknown => Err(CliError::Usage(format!(
                "what {name} takes under this --grad-checkpoint is not known where operations go \
                 {route}: say {name}=AMOUNT"
            ))),
            _ => Ok(need.bytes),
        }
    });
    Ok(needs.collect::<Result<Vec<_>, CliError>>()?.into_iter().max().unwrap_or_default())
}

/// What training on one task at a time takes.
pub(super) fn training_need(
    backbone: &Backbone,
    task: &TaskArgs,
    checkpointing: GradCheckpoint,
    route: Route,
) -> Result<MemoryFigure, CliError> {
    let optimizer = OptimizerKind::Adam;
    let work = Estimating { backbone, task, optimizer, checkpointing, route };
    Ok(counting(work)?.plan(1).total())
}
