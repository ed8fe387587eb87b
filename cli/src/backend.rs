use std::env;

use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use fewshot::hardware::{
    Detection, DeviceInfo, DeviceKey, DevicePreference, Inventory, Isolation, Registry, Selection,
    Tier, run_on,
};
use fewshot::kernels::{check_environment, route};

use crate::args::DeviceArgs;
use crate::prelude::*;

/// Autodiff that computes what costs little again in the backward pass.
pub(crate) type Balanced<B> = Autodiff<B, BalancedCheckpointing>;

/// [Prepares](prepare) and runs `work` on the device of `args`.
pub(crate) fn start(args: &DeviceArgs, work: impl Work<Output = Result>) -> Result {
    prepare(args.threads)?;
    dispatch(args, work)
}

/// Runs `work` on the device of `args`.
pub(crate) fn dispatch(args: &DeviceArgs, work: impl Work<Output = Result>) -> Result {
    dispatch_on(args, &[], work)
}

/// Runs `work` on the device of `args`, or on its backend's devices of these numbers.
pub(crate) fn dispatch_on(
    args: &DeviceArgs,
    numbers: &[usize],
    work: impl Work<Output = Result>,
) -> Result {
    let preference = &args.backend;
    if !numbers.is_empty() && !matches!(preference, DevicePreference::Platform(_)) {
        return Err(usage!(
            "--devices are numbers among the devices of a backend: --backend {preference} is none"
        ));
    }
    let selection = select(&numbered(preference, numbers.first().copied().or(args.device))?)?;
    // That something was not compiled in, or is of another system, is no news.
    for rejection in selection.skipped.iter().filter(|rejection| rejection.tried) {
        print_status(format_args!("skipped {}: {}", rejection.what, rejection.reason));
    }
    let mut devices = vec![selection.device];
    for &number in numbers.iter().skip(1) {
        let key = DeviceKey::new(devices[0].key.platform.clone(), number);
        devices.push(select(&DevicePreference::Device(key))?.device);
    }
    run_on(devices, work)?
}

/// The preferred device. Only candidates are probed; for an error message all devices are.
pub(super) fn select(preference: &DevicePreference) -> Result<Selection> {
    let selection = inventory(preference).select(preference);
    Ok(selection.or_else(|_| inventory(&DevicePreference::Auto).select(preference))?)
}

/// The device of `--backend` and `--device` together.
fn numbered(preference: &DevicePreference, device: Option<usize>) -> Result<DevicePreference> {
    match (preference, device) {
        (preference, None) => Ok(preference.clone()),
        (DevicePreference::Platform(name), Some(index)) => {
            Ok(DevicePreference::Device(DeviceKey::new(name, index)))
        }
        (preference, Some(index)) => Err(usage!(
            "--device {index} is a number among the devices of a backend: --backend {preference} is none"
        )),
    }
}

/// Probes devices in a process of their own, which a driver may crash or hang.
pub(super) fn inventory(preference: &DevicePreference) -> Inventory {
    let arguments = vec!["hardware".to_owned(), "probe".to_owned()];
    let isolation = env::current_exe()
        .map_or(Isolation::Thread, |program| Isolation::Process { program, arguments });
    let only = preference.platforms();
    Registry::built_in().detect(&Detection { only, isolation, ..Detection::default() })
}

/// Checks the environment and starts the threads, as many as cores unless given; to be called before anything computes.
pub(crate) fn prepare(threads: Option<usize>) -> Result {
    check_environment().map_err(|error| CliError::Usage(error.to_string()))?;
    // Zero is as many as there are cores.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0));
    pool.build_global().map_err(|error| failed!("threads: {error}"))
}

/// Burn's name of a device's backend.
pub(crate) fn name(info: &DeviceInfo) -> &str {
    match info.key.platform.as_str() {
        platform @ ("flex" | "candle" | "ndarray" | "cuda" | "rocm") => platform,
        _ => "wgpu",
    }
}

/// The key and the name of a device.
pub(crate) fn label(info: &DeviceInfo) -> String {
    format!("{} ({})", info.key, info.name)
}

/// The backend, the device and the route of operations, as a phrase.
pub(crate) fn phrase<B: Backend>(hardware: &HardwareManager<B>) -> String {
    let info = hardware.info();
    format!("backend {} on {}, {}", name(info), label(info), route::<Autodiff<B>>())
}

/// The same as fields of a report.
pub(crate) fn fields<B: Backend>(hardware: &HardwareManager<B>) -> Value {
    let (info, route) = (hardware.info(), route::<Autodiff<B>>().to_string());
    json!({ "backend": name(info), "device": label(info), "route": route })
}

/// Number of `processes` that share the memory of a device: on a processor all of them.
pub(crate) fn sharers(info: &DeviceInfo, processes: usize) -> usize {
    if info.tier == Tier::Cpu { processes } else { 1 }
}
