use std::env;

use fewshot::hardware::{DevicePreference, Inventory};
use fewshot::kernels::check_environment;
use serde_json::{Map, Value, json};

use super::args::DoctorArgs;
use super::list::{facts, table};
use crate::cli::backend;
use crate::cli::error::CliError;
use crate::cli::output::print;

/// Variables that change which device is taken or how it computes.
const VARIABLES: [&str; 8] = [
    "CUBECL_WGPU_DEFAULT_DEVICE",
    "CUDA_DEVICE_ORDER",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "FEWSHOT_KERNELS",
    "HIP_VISIBLE_DEVICES",
    "RAYON_NUM_THREADS",
    "VK_DRIVER_FILES",
];

const FEATURES: [(&str, bool); 11] = [
    ("autotune", cfg!(feature = "autotune")),
    ("candle", cfg!(feature = "candle")),
    ("cuda", cfg!(feature = "cuda")),
    ("flex", cfg!(feature = "flex")),
    ("fusion", cfg!(feature = "fusion")),
    ("metal", cfg!(feature = "metal")),
    ("ndarray", cfg!(feature = "ndarray")),
    ("nvml", cfg!(feature = "nvml")),
    ("rocm", cfg!(feature = "rocm")),
    ("vulkan", cfg!(feature = "vulkan")),
    ("wgpu", cfg!(feature = "wgpu")),
];

pub(super) fn run(args: &DoctorArgs) -> Result<(), CliError> {
    let inventory = backend::inventory(&DevicePreference::Auto);
    let features = FEATURES.iter().filter(|(_, on)| *on).map(|(name, _)| *name);
    let features = features.collect::<Vec<_>>();
    let variables = VARIABLES.iter().filter_map(|name| Some((*name, env::var(name).ok()?)));
    let variables = variables.collect::<Vec<_>>();
    let kernels = check_environment().map_err(|error| error.to_string()).err();
    if args.json {
        let set = variables.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
        return print(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "burn": BURN,
            "os": format!("{} {}", env::consts::OS, env::consts::ARCH),
            "features": features,
            "environment": Map::<String, Value>::from_iter(set),
            "kernels_error": kernels,
            "inventory": inventory,
        }));
    }
    print(format_args!("fewshot           {}, Burn {BURN}", env!("CARGO_PKG_VERSION")))?;
    print(format_args!("system            {} {}", env::consts::OS, env::consts::ARCH))?;
    print(format_args!("features          {}", features.join(" ")))?;
    for (name, value) in variables {
        print(format_args!("environment       {name}={value}"))?;
    }
    if let Some(error) = kernels {
        print(format_args!("environment       {error}"))?;
    }
    tell_devices(&inventory)
}

/// The release that the workspace is pinned to.
const BURN: &str = "0.21.0";

fn tell_devices(inventory: &Inventory) -> Result<(), CliError> {
    let selected = inventory.select(&DevicePreference::Auto).map(|found| found.device.key).ok();
    print(format_args!("\n{}", table(inventory, selected.as_ref())))?;
    for device in &inventory.devices {
        print("")?;
        for (name, value) in facts(device) {
            print(format_args!("{name:<18}{value}"))?;
        }
    }
    Ok(())
}
