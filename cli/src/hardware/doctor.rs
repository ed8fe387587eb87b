use std::collections::BTreeMap;
use std::env::{self, consts};

use fewshot::hardware::DevicePreference;
use fewshot::kernels::check_environment;

use super::list::{devices, facts};
use crate::prelude::*;

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

const FEATURES: [(&str, bool); 10] = [
    ("autotune", cfg!(feature = "autotune")),
    ("candle", cfg!(feature = "candle")),
    ("cuda", cfg!(feature = "cuda")),
    ("flex", cfg!(feature = "flex")),
    ("fusion", cfg!(feature = "fusion")),
    ("metal", cfg!(feature = "metal")),
    ("ndarray", cfg!(feature = "ndarray")),
    ("rocm", cfg!(feature = "rocm")),
    ("vulkan", cfg!(feature = "vulkan")),
    ("wgpu", cfg!(feature = "wgpu")),
];

pub(super) fn run(json: bool) -> Result {
    let inventory = backend::inventory(&DevicePreference::Auto);
    let features = FEATURES.iter().filter(|(_, on)| *on).map(|(name, _)| *name);
    let features = features.collect::<Vec<_>>();
    let variables = VARIABLES.iter().filter_map(|name| Some((*name, env::var(name).ok()?)));
    let kernels = check_environment().map_err(|error| error.to_string()).err();
    let (version, os) = (env!("CARGO_PKG_VERSION"), format!("{} {}", consts::OS, consts::ARCH));
    if json {
        return print(json!({
            "version": version,
            "burn": BURN,
            "os": os,
            "features": features,
            "environment": variables.collect::<BTreeMap<_, _>>(),
            "kernels_error": kernels,
            "inventory": inventory,
        }));
    }
    print(format_args!("fewshot           {version}, Burn {BURN}"))?;
    print(format_args!("system            {os}"))?;
    print(format_args!("features          {}", features.join(" ")))?;
    let variables = variables.map(|(name, value)| format!("{name}={value}"));
    for line in variables.chain(kernels) {
        print(format_args!("environment       {line}"))?;
    }
    let selected =
        inventory.select(&DevicePreference::Auto).map(|selection| selection.device.key).ok();
    print(format_args!("\n{}", devices(&inventory, selected.as_ref())))?;
    inventory.devices.iter().try_for_each(|device| print(format_args!("\n{}", facts(device))))
}

/// The release that the workspace is pinned to.
const BURN: &str = "0.21.0";
