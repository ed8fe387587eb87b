use std::env;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot::hardware::{
    Bytes, Detection, DeviceInfo, DeviceKey, DevicePreference, Inventory, Isolation, Registry,
    Selection, Tier, Work, device_of, guarded, run_on,
};
use fewshot::kernels::check_environment;

use super::args::DeviceArgs;
use super::error::CliError;
use super::output::print_status;
use super::train::{GradCheckpoint, ScaleArgs};

/// Work that runs on whichever backend was chosen.
pub(crate) trait Job {
    type Output;

    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<Self::Output, CliError>;

    /// The same on a backend that computes what costs little again in the backward pass.
    fn run_balanced<B: AutodiffBackend>(self, _: Place<B>) -> Result<Self::Output, CliError>
    where
        Self: Sized,
    {
        Err(CliError::Usage("--grad-checkpoint balanced is for training".to_owned()))
    }
}

/// How a job uses the hardware.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    /// Numbers of the devices of the backend; the best one, if there is none.
    pub(crate) devices: Vec<usize>,
    /// Whether what costs little is computed again in the backward pass.
    pub(crate) balanced: bool,
}

impl Usage {
    pub(crate) fn of(scale: &ScaleArgs) -> Self {
        let balanced = scale.grad_checkpoint == GradCheckpoint::Balanced;
        Self { devices: scale.devices.clone(), balanced }
    }
}

/// A backend's device, and what to call both.
pub(crate) struct Place<B: Backend> {
    pub(crate) device: B::Device,
    /// All that share the work, that one first.
    pub(crate) devices: Vec<B::Device>,
    /// Whether it is not the processor.
    pub(crate) accelerator: bool,
    pub(crate) backend: &'static str,
    pub(crate) label: String,
    /// Memory that was free when the device was tried, if it told.
    pub(crate) free: Option<Bytes>,
    /// The largest single allocation, where there is a limit that is known.
    pub(crate) largest_buffer: Option<Bytes>,
}

impl<B: Backend> Place<B> {
    /// What is free to one of so many processes, which share the memory of a processor.
    pub(crate) fn free_of(&self, processes: usize) -> Option<Bytes> {
        let share = if self.accelerator { 1 } else { processes as u64 };
        self.free.map(|free| Bytes(free.0 / share))
    }
}

/// Runs `job` where `args` says.
pub(crate) fn dispatch<J: Job>(args: &DeviceArgs, job: J) -> Result<J::Output, CliError> {
    dispatch_with(args, Usage::default(), job)
}

/// Runs `job` where `args` says, and as `usage` does.
pub(crate) fn dispatch_with<J: Job>(
    args: &DeviceArgs,
    usage: Usage,
    job: J,
) -> Result<J::Output, CliError> {
    let args = match (usage.devices.first(), &args.backend) {
        (None, _) => args.clone(),
        (Some(&first), DevicePreference::Platform(_)) => {
            DeviceArgs { device: Some(first), ..args.clone() }
        }
        (Some(_), wanted) => {
            return Err(CliError::Usage(format!(
                "--devices are numbers among the devices of a backend: --backend {wanted} is none"
            )));
        }
    };
    let wanted = wanted(&args)?;
    let selection = select(&wanted)?;
    // That something was not compiled in, or is of another system, is no news.
    for rejection in selection.passed_over.iter().filter(|rejection| rejection.tried) {
        print_status(format_args!("passed over {}: {}", rejection.what, rejection.reason));
    }
    let first = &selection.device.key;
    let others = usage.devices.iter().skip(1).map(|&index| {
        let key = DeviceKey::new(first.platform.clone(), index);
        Ok(select(&DevicePreference::Device(key))?.device.key)
    });
    let others = others.collect::<Result<Vec<_>, CliError>>()?;
    placed(&selection.device, others, usage.balanced, job)
}

/// The device that is wanted. Only what may be it is tried, and all there is to say what is.
pub(super) fn select(wanted: &DevicePreference) -> Result<Selection, CliError> {
    let found = inventory(wanted).select(wanted);
    Ok(found.or_else(|_| inventory(&DevicePreference::Auto).select(wanted))?)
}

/// Runs `job` on a device that was found.
pub(super) fn on<J: Job>(info: &DeviceInfo, job: J) -> Result<J::Output, CliError> {
    placed(info, Vec::new(), false, job)
}

fn placed<J: Job>(
    info: &DeviceInfo,
    others: Vec<DeviceKey>,
    balanced: bool,
    job: J,
) -> Result<J::Output, CliError> {
    let label = format!("{} ({})", info.key, info.name);
    let (backend, free) = (backend(&info.key), info.memory.free);
    let largest_buffer = info.capabilities.largest_buffer;
    let accelerator = info.tier != Tier::Cpu;
    run_on(
        &info.key,
        Placed { job, backend, label, free, largest_buffer, accelerator, others, balanced },
    )?
}

struct Placed<J> {
    job: J,
    backend: &'static str,
    label: String,
    free: Option<Bytes>,
    largest_buffer: Option<Bytes>,
    accelerator: bool,
    others: Vec<DeviceKey>,
    balanced: bool,
}

impl<J: Job> Work for Placed<J> {
    type Output = Result<J::Output, CliError>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let Self { accelerator, .. } = self;
        if !accelerator {
            // What panics on the processor is a mistake of ours, and its trace is wanted.
            return self.start::<B>(device);
        }
        guarded::<B, _>(&device.clone(), || self.start::<B>(device))?
    }
}

impl<J: Job> Placed<J> {
    fn start<B: Backend>(self, device: B::Device) -> Result<J::Output, CliError> {
        let Self { job, backend, label, free, largest_buffer, accelerator, others, balanced } =
            self;
        let mut devices = vec![device.clone()];
        for key in &others {
            devices.push(device_of::<B>(key)?);
        }
        if balanced {
            type Balanced<B> = Autodiff<B, BalancedCheckpointing>;
            let place =
                Place { device, devices, backend, label, free, largest_buffer, accelerator };
            return job.run_balanced::<Balanced<B>>(place);
        }
        let place = Place { device, devices, backend, label, free, largest_buffer, accelerator };
        job.run::<Autodiff<B>>(place)
    }
}

/// Burn's name for what computes on a built-in platform.
fn backend(key: &DeviceKey) -> &'static str {
    match key.platform.as_str() {
        "flex" => "flex",
        "candle" => "candle",
        "ndarray" => "ndarray",
        "cuda" => "cuda",
        "rocm" => "rocm",
        _ => "wgpu",
    }
}

/// What `--backend` and `--device` say together.
pub(super) fn wanted(args: &DeviceArgs) -> Result<DevicePreference, CliError> {
    match (&args.backend, args.device) {
        (wanted, None) => Ok(wanted.clone()),
        (DevicePreference::Platform(name), Some(index)) => {
            Ok(DevicePreference::Device(DeviceKey::new(name, index)))
        }
        (wanted, Some(index)) => Err(CliError::Usage(format!(
            "--device {index} is a number among the devices of a backend: --backend {wanted} is none"
        ))),
    }
}

/// What is there of what is wanted. A driver that crashes or hangs takes its own process with it.
pub(super) fn inventory(wanted: &DevicePreference) -> Inventory {
    Registry::built_in().detect(&Detection {
        only: wanted.platforms(),
        isolation: isolation(),
        ..Detection::default()
    })
}

fn isolation() -> Isolation {
    match env::current_exe() {
        Ok(program) => Isolation::Process {
            program,
            arguments: vec!["hardware".to_owned(), "probe".to_owned()],
        },
        Err(_) => Isolation::Thread,
    }
}

/// Checks the environment and sets the number of threads; to be called before anything computes.
pub(crate) fn prepare(args: &DeviceArgs) -> Result<(), CliError> {
    prepare_threads(args.threads)
}

/// Likewise, of a command with devices of its own.
pub(crate) fn prepare_threads(threads: Option<usize>) -> Result<(), CliError> {
    check_environment().map_err(|error| CliError::Usage(error.to_string()))?;
    let Some(threads) = threads else { return Ok(()) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.build_global().map_err(|error| CliError::Failed(format!("threads: {error}")))
}
