use std::panic;
use std::str::FromStr;

use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot::kernels::check_environment;

use super::args::DeviceArgs;
use super::error::CliError;

/// A backend by its name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendName {
    Auto,
    Flex,
    Ndarray,
    Candle,
    Wgpu,
    Cuda,
}

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
}

/// All names, in the order in which `auto` tries those that are compiled.
const NAMES: [(&str, BackendName); 5] = [
    ("flex", BackendName::Flex),
    ("candle", BackendName::Candle),
    ("ndarray", BackendName::Ndarray),
    ("cuda", BackendName::Cuda),
    ("wgpu", BackendName::Wgpu),
];

impl BackendName {
    const fn compiled(self) -> bool {
        match self {
            Self::Auto => true,
            Self::Flex => cfg!(feature = "flex"),
            Self::Ndarray => cfg!(feature = "ndarray"),
            Self::Candle => cfg!(feature = "candle"),
            Self::Wgpu => cfg!(feature = "wgpu"),
            Self::Cuda => cfg!(feature = "cuda"),
        }
    }
}

impl FromStr for BackendName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let compiled = || {
            let names = NAMES.iter().filter(|(_, name)| name.compiled());
            names.map(|(text, _)| *text).collect::<Vec<_>>().join(", ")
        };
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match NAMES.iter().find(|(name, _)| *name == text) {
            Some((_, name)) if name.compiled() => Ok(*name),
            Some(_) => Err(format!(
                "it is not compiled into this program; build it with --features {text}. \
                 Compiled: {}",
                compiled()
            )),
            None => Err(format!("there is no such backend. Compiled: {}", compiled())),
        }
    }
}

/// Runs `job` where `args` says.
pub(crate) fn dispatch<J: Job>(args: &DeviceArgs, job: J) -> Result<J::Output, CliError> {
    let name = match args.backend {
        BackendName::Auto => NAMES.iter().map(|(_, name)| *name).find(|name| name.compiled()),
        name => Some(name),
    };
    match name {
        #[cfg(feature = "flex")]
        Some(BackendName::Flex) => {
            only_device("flex", args.device)?;
            on::<burn::backend::Flex, J>("flex", "cpu", Default::default(), job)
        }
        #[cfg(feature = "ndarray")]
        Some(BackendName::Ndarray) => {
            only_device("ndarray", args.device)?;
            on::<burn::backend::NdArray, J>("ndarray", "cpu", Default::default(), job)
        }
        #[cfg(feature = "candle")]
        #[allow(deprecated)]
        Some(BackendName::Candle) => {
            only_device("candle", args.device)?;
            on::<burn::backend::Candle, J>("candle", "cpu", Default::default(), job)
        }
        #[cfg(feature = "wgpu")]
        Some(BackendName::Wgpu) => {
            use burn::backend::wgpu::WgpuDevice;
            let (device, label) = match args.device {
                0 => (WgpuDevice::DefaultDevice, "default adapter".to_owned()),
                n => (WgpuDevice::DiscreteGpu(n), format!("discrete adapter {n}")),
            };
            on::<burn::backend::Wgpu, J>("wgpu", &label, device, job)
        }
        #[cfg(feature = "cuda")]
        Some(BackendName::Cuda) => {
            let device = burn::backend::cuda::CudaDevice::new(args.device);
            on::<burn::backend::Cuda, J>("cuda", &format!("cuda:{}", args.device), device, job)
        }
        _ => Err(CliError::Usage("this program was built without any backend".to_owned())),
    }
}

/// Checks the environment and sets the number of threads; to be called before anything computes.
pub(crate) fn prepare(args: &DeviceArgs) -> Result<(), CliError> {
    check_environment().map_err(|error| CliError::Usage(error.to_string()))?;
    let Some(threads) = args.threads else { return Ok(()) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.build_global().map_err(|error| CliError::Failed(format!("threads: {error}")))
}

#[cfg(any(feature = "flex", feature = "ndarray", feature = "candle"))]
fn only_device(backend: &'static str, device: usize) -> Result<(), CliError> {
    match device {
        0 => Ok(()),
        _ => Err(CliError::Usage(format!("backend {backend} has only device 0, not {device}"))),
    }
}

fn on<B, J>(
    backend: &'static str,
    label: &str,
    device: B::Device,
    job: J,
) -> Result<J::Output, CliError>
where
    B: Backend,
    J: Job,
{
    probe::<B>(&device).map_err(|reason| CliError::Backend { backend, reason })?;
    job.run::<burn::backend::Autodiff<B>>(Place { device, backend, label: label.to_owned() })
}

/// Computes something small: a backend without its driver or device panics on first use.
fn probe<B: Backend>(device: &B::Device) -> Result<(), String> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let found = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        Tensor::<B, 1>::ones([3], device).sum().into_data().iter::<f32>().next()
    }));
    panic::set_hook(hook);
    match found {
        Ok(Some(3.0)) => Ok(()),
        Ok(other) => Err(format!("1 + 1 + 1 came out as {other:?}")),
        Err(panic) => Err(reason(&panic)),
    }
}

fn reason(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let line = text.and_then(|text| text.lines().next().map(str::to_owned));
    format!("no usable device or driver ({})", line.as_deref().unwrap_or("unknown panic"))
}
