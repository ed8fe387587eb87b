//! Memory and time of models: `estimate`, `recommend` and `plan`.

use fewshot::catalog::{self, Backbone, Estimate, Method, Recommendation, Target, recommend};
use fewshot::data::ImageShape;
use fewshot::episode::Protocol;
use fewshot::hardware::{
    Bytes, Calibration, Checkpointing, DeviceInfo, DevicePreference, Effort, MemoryFigure,
    MemoryFit, MemoryPlan, OptimizerKind, Provenance, Tier, place, run_on,
};
use fewshot::kernels::Route;
use fewshot::train::TrainError;

use super::args::{EstimateArgs, PlanArgs, TaskArgs, WhereArgs};
use super::{cache, list};
use crate::backend::Balanced;
use crate::prelude::*;

/// A device of this machine (`here`) or another, and the memory that may be used.
struct Chosen {
    info: DeviceInfo,
    route: Route,
    budget: Option<Bytes>,
    here: bool,
}

impl Chosen {
    fn new(args: &WhereArgs) -> Result<Self> {
        let info = list::selected(&args.machine, &args.device)?.device;
        let budget = args.budget.or(info.memory.free);
        Ok(Self { route: route(&info), info, budget, here: args.machine.inventory.is_none() })
    }

    /// Rates of the device by a simple measurement; a device of another machine has none.
    fn calibration(&self) -> Result<Option<Calibration>> {
        if !self.here {
            return Ok(None);
        }
        if let Some(calibration) = cache::get(&self.info) {
            return Ok(Some(calibration));
        }
        let key = &self.info.key;
        print_status(format_args!("measuring how fast {key} is, for the time of a step"));
        let calibration = run_on(vec![self.info.clone()], super::bench::Measure(Effort::Full))??;
        cache::put(&self.info, &calibration);
        Ok(Some(calibration))
    }
}

/// Route of operations on a device of this machine or another: an operation that is not known to be fused
/// is taken for one that is not.
pub(super) fn route(info: &DeviceInfo) -> Route {
    let fused = info.capabilities.route.as_ref().is_some_and(|route| route.starts_with("fused"));
    match (fused, info.tier) {
        (false, _) => Route::Reference,
        (true, Tier::Cpu) => Route::Host("as measured"),
        (true, _) => Route::Device("CubeCL"),
    }
}

/// Work that counts tensors, for which any backend of the processor will do.
fn counting<W: Work>(work: W) -> Result<W::Output> {
    let cpu = backend::select(&DevicePreference::Cpu)?.device;
    Ok(run_on(vec![cpu], work)?)
}

pub(super) struct Estimating<'a> {
    pub(super) backbone: &'a Backbone,
    pub(super) method: Method,
    pub(super) protocol: Protocol,
    pub(super) optimizer: OptimizerKind,
    pub(super) checkpointing: Checkpointing,
    pub(super) route: Route,
}

impl Estimating<'_> {
    pub(super) fn need(self) -> Result<MemoryFigure> {
        Ok(counting(self)?.planner.plan(1).total())
    }

    pub(super) fn on<B: Backend>(self, device: &B::Device) -> Estimate {
        let Self { backbone, method, protocol, optimizer, checkpointing, route } = self;
        Estimate::new::<B>(backbone, method, protocol, optimizer, route, device)
            .with_checkpointing(checkpointing)
    }
}

impl Work for Estimating<'_> {
    type Output = Estimate;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Estimate {
        self.on::<B>(hardware.device())
    }
}

/// Runs steps of few enough tasks to share a network, but not of one, which has no copies of the parameters.
struct Measuring<'a>(&'a Estimate);

impl Work for Measuring<'_> {
    type Output = Result<MemoryFit, TrainError>;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Self::Output {
        let (sizes, device) = ([2, 3, 4], hardware.device());
        match self.0.planner.activations.checkpointing {
            Checkpointing::Balanced => self.0.measure::<Balanced<B>>(sizes, device),
            Checkpointing::Nothing | Checkpointing::Segments => {
                self.0.measure::<Autodiff<B>>(sizes, device)
            }
        }
    }
}

fn check(checkpointing: Checkpointing, task: &TaskArgs) -> Result {
    match checkpointing == Checkpointing::Segments && task.method() != Method::ProtoNet {
        true => Err(usage!("--grad-checkpoint segments is for protonet")),
        false => Ok(()),
    }
}

fn sides(image: ImageShape) -> [usize; 3] {
    [image.channels, image.height, image.width]
}

/// The backbone of this name, for the images of the task.
fn backbone(name: &str, task: &TaskArgs) -> Result<Backbone> {
    let named = catalog::backbone(name)?;
    let Some(image) = task.image else { return Ok(named.clone()) };
    let fitting = named.for_images(sides(image));
    fitting.ok_or_else(|| usage!("images of {image} are too small or too large for {name}"))
}

pub(super) fn estimate(args: &EstimateArgs) -> Result {
    check(args.grad_checkpoint, &args.task)?;
    let chosen = Chosen::new(&args.place)?;
    let (key, budget) = (&chosen.info.key, chosen.budget);
    let backbone = backbone(&args.model, &args.task)?;
    let mut estimate = counting(Estimating {
        backbone: &backbone,
        method: args.task.method(),
        protocol: args.task.task,
        optimizer: args.optimizer,
        checkpointing: args.grad_checkpoint,
        route: chosen.route,
    })?;
    if args.measure {
        print_status(format_args!("running steps on {key}"));
        estimate.planner.measured = Some(run_on(vec![chosen.info.clone()], Measuring(&estimate))??);
    }
    estimate.planner.largest_buffer = chosen.info.capabilities.largest_buffer;
    let plan = estimate.planner.plan(args.tasks);
    let fits = match plan.largest_fits() {
        Some(false) => Some(false),
        _ => budget.and_then(|budget| plan.fits(budget)),
    };
    let most = budget.and_then(|budget| estimate.planner.max_tasks(budget));
    // What does not fit takes no time.
    let calibration = if fits == Some(false) { None } else { chosen.calibration()? };
    let seconds = calibration.and_then(|rates| estimate.seconds(args.tasks, &rates));
    if args.place.machine.json {
        print(json!({
            "model": backbone.name,
            "method": args.task.method(),
            "checkpointing": args.grad_checkpoint,
            "task": args.task.task,
            "tasks": args.tasks,
            "device": key,
            "plan": plan,
            "total": plan.total(),
            "budget": budget,
            "fits": fits,
            "max_tasks": most,
            "gflop_per_step": rounded(estimate.flops(args.tasks) / 1e9, 4),
            "seconds_per_step": seconds,
        }))?;
    } else {
        let (name, task, tasks) = (&backbone.name, args.task.task, args.tasks);
        print(format_args!("{name}, {task}, tasks a step: {tasks}, on {key}"))?;
        print(estimate_text(&plan, seconds, budget, fits, most))?;
    }
    Ok(estimate.check(args.tasks, budget.unwrap_or(Bytes(u64::MAX)))?)
}

fn estimate_text(
    plan: &MemoryPlan,
    seconds: Option<f64>,
    budget: Option<Bytes>,
    fits: Option<bool>,
    most: Option<usize>,
) -> String {
    let mut text = plan.to_string();
    if let Some(seconds) = seconds {
        let ms = seconds * 1e3;
        text += &format!("\nabout {ms:.1} ms a step, by rates measured on the device");
    }
    let need = plan.total();
    text += &match (budget, fits) {
        (Some(budget), Some(fits)) => {
            let fits = if fits { "fits" } else { "does not fit" };
            let most = most.map(|most| format!("; tasks a step at most: {most}"));
            format!("\n{fits}: {} of {budget}{}", need.bytes, most.unwrap_or_default())
        }
        (Some(budget), None) => format!("\n{need} of {budget}: whether it fits is not known"),
        (None, Some(_)) => String::new(),
        (None, None) => "\nthe memory of the device is not known: give --budget".to_owned(),
    };
    text
}

struct Recommending<'a> {
    task: &'a TaskArgs,
    image: [usize; 3],
    target: Target<'a>,
}

impl Work for Recommending<'_> {
    type Output = Vec<Recommendation>;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Self::Output {
        let Self { task, image, target } = self;
        recommend::<B>(image, task.task, task.method(), target, hardware.device())
    }
}

pub(super) fn recommend_models(task: &TaskArgs, place: &WhereArgs) -> Result {
    let chosen = Chosen::new(place)?;
    let image = task.image.map_or([1, 28, 28], sides);
    let key = &chosen.info.key;
    let budget = chosen
        .budget
        .ok_or_else(|| usage!("how much memory is free on {key} is not known: give --budget"))?;
    let calibration = chosen.calibration()?;
    let target = Target {
        budget,
        largest_buffer: chosen.info.capabilities.largest_buffer,
        route: chosen.route,
        calibration: calibration.as_ref(),
    };
    let ranked = counting(Recommending { task, image, target })?;
    if place.machine.json {
        print(json!({
            "device": key,
            "budget": budget,
            "task": task.task,
            "image": image,
            "ranked": ranked,
        }))?;
    } else {
        print(format_args!(
            "{:<24}{:>11}{:>14}{:>12}{:>12}",
            "MODEL", "NEEDS", "TASKS AT MOST", "STEP ABOUT", "PARAMETERS"
        ))?;
        for Recommendation { backbone, need, fits, max_tasks, seconds, parameters } in &ranked {
            let time = known(seconds.map(|s| format!("{:.1} ms", s * 1e3)));
            let fits = if *fits { "" } else { "  does not fit" };
            print(format_args!(
                "{backbone:<24}{need:>11}{max_tasks:>14}{time:>12}{parameters:>12}{fits}"
            ))?;
        }
    }
    match ranked.iter().any(|entry| entry.fits) {
        true => Ok(()),
        false => {
            let need = ranked.iter().map(|entry| entry.need).min().unwrap_or_default();
            Err(failed!("the smallest of the models: {need} needed, {budget} there"))
        }
    }
}

pub(super) fn plan(args: &PlanArgs) -> Result {
    check(args.grad_checkpoint, &args.task)?;
    let rooms = rooms(args)?;
    let models = args.models.iter().map(|model| {
        let bytes = match model.bytes {
            Some(bytes) => bytes,
            None => need(&model.name, args, rooms.iter().map(|(info, _)| route(info)))?,
        };
        Ok((model.name.clone(), bytes))
    });
    let models = models.collect::<Result<Vec<_>>>()?;
    let free = rooms.into_iter().map(|(info, room)| (info.key, room)).collect::<Vec<_>>();
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

fn rooms(args: &PlanArgs) -> Result<Vec<(DeviceInfo, Bytes)>> {
    let inventory = list::inventory(&args.machine, &DevicePreference::Auto)?;
    let mut rooms: Vec<(DeviceInfo, Bytes)> = Vec::new();
    if args.devices.is_empty() {
        let processor = inventory.devices.iter().find(|info| info.tier == Tier::Cpu);
        let accelerators = inventory.devices.iter().filter(|info| info.tier.is_accelerator());
        for info in accelerators.chain(processor) {
            let key = &info.key;
            match info.memory.free {
                Some(free) => rooms.push((info.clone(), free)),
                None => print_status(format_args!(
                    "left out {key}: its memory is not known; --devices {key}=AMOUNT includes it"
                )),
            }
        }
    }
    for device in &args.devices {
        let info = inventory.select(&device.name)?.device;
        let key = &info.key;
        if rooms.iter().any(|(other, _)| other.key == *key) {
            return Err(usage!("--devices names {key} twice"));
        }
        let room = device
            .bytes
            .or(info.memory.free)
            .ok_or_else(|| usage!("the memory of {key} is not known: give {key}=AMOUNT"))?;
        rooms.push((info, room));
    }
    Ok(rooms)
}

/// Most memory that training a model on one task at a time takes, over these routes of operations.
fn need(name: &str, args: &PlanArgs, routes: impl Iterator<Item = Route>) -> Result<Bytes> {
    let backbone = backbone(name, &args.task)?;
    let mut most = Bytes::default();
    for route in routes {
        let need = Estimating {
            backbone: &backbone,
            method: args.task.method(),
            protocol: args.task.task,
            optimizer: OptimizerKind::Adam,
            checkpointing: args.grad_checkpoint,
            route,
        };
        let need = need.need()?;
        if need.source == Provenance::Unknown {
            return Err(usage!(
                "what {name} takes under this --grad-checkpoint is not known where operations go \
                 {route}: give {name}=AMOUNT"
            ));
        }
        most = most.max(need.bytes);
    }
    Ok(most)
}
