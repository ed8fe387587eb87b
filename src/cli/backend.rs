use std::env;

use burn::backend::Autodiff;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot::hardware::{
    Bytes, Detection, DeviceInfo, DeviceKey, DevicePreference, Inventory, Isolation, Registry,
    Selection, Tier, Work, guarded, run_on,
};
use fewshot::kernels::check_environment;

use super::args::DeviceArgs;
use super::error::CliError;
use super::output::tell;

/// Work that runs on whichever backend was chosen.
pub(crate) trait Job {
    type Output;

    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<Self::Output, CliError>;
}

/// A backend's device, and what to call both.
pub(crate) struct Place<B: Backend> {
    pub(crate) device: B::Device,
    pub(crate) backend: &'static str,
    pub(crate) label: String,
    /// Memory that was free when the device was tried, if it told.
    pub(crate) free: Option<Bytes>,
}

/// Runs `job` where `args` says.
pub(crate) fn dispatch<J: Job>(args: &DeviceArgs, job: J) -> Result<J::Output, CliError> {
    let wanted = wanted(args)?;
    let selection = select(&wanted)?;
    // That something was not compiled in, or is of another system, is no news.
    for rejection in selection.passed_over.iter().filter(|rejection| rejection.tried) {
        tell(format_args!("passed over {}: {}", rejection.what, rejection.reason));
    }
    on(&selection.device, job)
}

/// The device that is wanted. Only what may be it is tried, and all there is to say what is.
pub(super) fn select(wanted: &DevicePreference) -> Result<Selection, CliError> {
    let found = inventory(wanted).select(wanted);
    Ok(found.or_else(|_| inventory(&DevicePreference::Auto).select(wanted))?)
}

/// Runs `job` on a device that was found.
pub(super) fn on<J: Job>(info: &DeviceInfo, job: J) -> Result<J::Output, CliError> {
    let label = format!("{} ({})", info.key, info.name);
    let (backend, free) = (backend(&info.key), info.memory.free);
    let accelerator = info.tier != Tier::Cpu;
    run_on(&info.key, Placed { job, backend, label, free, accelerator })?
}

struct Placed<J> {
    job: J,
    backend: &'static str,
    label: String,
    free: Option<Bytes>,
    accelerator: bool,
}

impl<J: Job> Work for Placed<J> {
    type Output = Result<J::Output, CliError>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let Self { job, backend, label, free, accelerator } = self;
        let place = Place { device: device.clone(), backend, label, free };
        if !accelerator {
            // What panics on the processor is a mistake of ours, and its trace is wanted.
            return job.run::<Autodiff<B>>(place);
        }
        guarded::<B, _>(&device, || job.run::<Autodiff<B>>(place))?
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
