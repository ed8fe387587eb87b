use std::env;
use std::fmt;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use fewshot::hardware::{
    Bytes, Detection, DeviceInfo, DeviceKey, DevicePreference, Inventory, Isolation, Registry,
    Selection, Tier, Work, device_of, guarded, run_on,
};
use fewshot::kernels::{check_environment, route};

use super::args::DeviceArgs;
use super::prelude::*;

/// Autodiff that computes what costs little again in the backward pass.
pub(crate) type Balanced<B> = Autodiff<B, BalancedCheckpointing>;

/// Work that runs on whichever backend was chosen.
pub(crate) trait Job: Sized {
    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result;

    /// The same on a backend that computes what costs little again in the backward pass.
    fn run_balanced<B: AutodiffBackend>(self, _: Place<B>) -> Result {
        Err(usage!("--grad-checkpoint balanced is for training"))
    }
}

/// A backend's device, and what is known of it.
pub(crate) struct Place<B: Backend> {
    pub(crate) device: B::Device,
    /// The devices that share the work; `device` is the first.
    pub(crate) devices: Vec<B::Device>,
    pub(crate) info: DeviceInfo,
}

impl<B: Backend> Place<B> {
    /// Whether it is not the processor.
    pub(crate) fn accelerator(&self) -> bool {
        self.info.tier != Tier::Cpu
    }

    /// Burn's name of the backend.
    pub(crate) fn backend(&self) -> &str {
        match self.info.key.platform.as_str() {
            platform @ ("flex" | "candle" | "ndarray" | "cuda" | "rocm") => platform,
            _ => "wgpu",
        }
    }

    pub(crate) fn label(&self) -> String {
        format!("{} ({})", self.info.key, self.info.name)
    }

    /// Free memory for each of so many processes, which share that of a processor.
    pub(crate) fn free_of(&self, processes: usize) -> Option<Bytes> {
        let share = if self.accelerator() { 1 } else { processes as u64 };
        self.info.memory.free.map(|free| Bytes(free.0 / share))
    }

    pub(crate) fn json(&self) -> Value {
        let route = route::<B>().to_string();
        json!({ "backend": self.backend(), "device": self.label(), "route": route })
    }
}

impl<B: Backend> fmt::Display for Place<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backend {} on {}, {}", self.backend(), self.label(), route::<B>())
    }
}

/// [Prepares](prepare) and runs `job` on the device of `args`.
pub(crate) fn start(args: &DeviceArgs, job: impl Job) -> Result {
    prepare(args.threads)?;
    dispatch(args, job)
}

/// Runs `job` on the device of `args`.
pub(crate) fn dispatch(args: &DeviceArgs, job: impl Job) -> Result {
    dispatch_with(args, &[], false, job)
}

/// Runs `job` on the device of `args`, or on its backend's devices of these numbers;
/// `balanced` as [`Job::run_balanced`].
pub(crate) fn dispatch_with(
    args: &DeviceArgs,
    devices: &[usize],
    balanced: bool,
    job: impl Job,
) -> Result {
    let wanted = &args.backend;
    if !devices.is_empty() && !matches!(wanted, DevicePreference::Platform(_)) {
        return Err(usage!(
            "--devices are numbers among the devices of a backend: --backend {wanted} is none"
        ));
    }
    let selection = select(&numbered(wanted, devices.first().copied().or(args.device))?)?;
    // That something was not compiled in, or is of another system, is no news.
    for rejection in selection.skipped.iter().filter(|rejection| rejection.tried) {
        print_status(format_args!("skipped {}: {}", rejection.what, rejection.reason));
    }
    let info = selection.device;
    let others = devices.iter().skip(1).map(|&index| {
        let key = DeviceKey::new(info.key.platform.clone(), index);
        Ok(select(&DevicePreference::Device(key))?.device.key)
    });
    let others = others.collect::<Result<_>>()?;
    on(info, others, balanced, job)
}

/// The wanted device. Only candidates are probed; for an error message all devices are.
pub(super) fn select(wanted: &DevicePreference) -> Result<Selection> {
    let found = inventory(wanted).select(wanted);
    Ok(found.or_else(|_| inventory(&DevicePreference::Auto).select(wanted))?)
}

/// Runs `job` on a device that was found, and on others of its backend.
pub(super) fn on(
    info: DeviceInfo,
    others: Vec<DeviceKey>,
    balanced: bool,
    job: impl Job,
) -> Result {
    run_on(&info.key.clone(), Placed { job, info, others, balanced })?
}

struct Placed<J> {
    job: J,
    info: DeviceInfo,
    others: Vec<DeviceKey>,
    balanced: bool,
}

impl<J: Job> Work for Placed<J> {
    type Output = Result;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        if self.info.tier == Tier::Cpu {
            // A panic on the processor is our mistake, and its trace is wanted.
            return self.start::<B>(device);
        }
        guarded::<B, _>(&device.clone(), || self.start::<B>(device))?
    }
}

impl<J: Job> Placed<J> {
    fn start<B: Backend>(self, device: B::Device) -> Result {
        let Self { job, info, others, balanced } = self;
        let mut devices = vec![device.clone()];
        for key in &others {
            devices.push(device_of::<B>(key)?);
        }
        if balanced {
            return job.run_balanced::<Balanced<B>>(Place { device, devices, info });
        }
        job.run::<Autodiff<B>>(Place { device, devices, info })
    }
}

/// The device of `--backend` and `--device` together.
fn numbered(wanted: &DevicePreference, device: Option<usize>) -> Result<DevicePreference> {
    match (wanted, device) {
        (wanted, None) => Ok(wanted.clone()),
        (DevicePreference::Platform(name), Some(index)) => {
            Ok(DevicePreference::Device(DeviceKey::new(name, index)))
        }
        (wanted, Some(index)) => Err(usage!(
            "--device {index} is a number among the devices of a backend: --backend {wanted} is none"
        )),
    }
}

/// Probes devices in a process of their own, which a driver may crash or hang.
pub(super) fn inventory(wanted: &DevicePreference) -> Inventory {
    let arguments = vec!["hardware".to_owned(), "probe".to_owned()];
    let isolation = env::current_exe()
        .map_or(Isolation::Thread, |program| Isolation::Process { program, arguments });
    let only = wanted.platforms();
    Registry::built_in().detect(&Detection { only, isolation, ..Detection::default() })
}

/// Checks the environment and starts the threads, as many as cores unless given; to be called before anything computes.
pub(crate) fn prepare(threads: Option<usize>) -> Result {
    check_environment().map_err(|error| CliError::Usage(error.to_string()))?;
    // Zero is as many as there are cores.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0));
    pool.build_global().map_err(|error| failed!("threads: {error}"))
}
