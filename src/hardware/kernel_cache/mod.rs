//! Compiled kernels, kept from one run of a program to the next.

#[cfg(feature = "cube")]
mod folder;

#[cfg(feature = "cube")]
use std::env;
use std::path::PathBuf;

#[cfg(feature = "cube")]
use cubecl::config::{
    CubeClRuntimeConfig, RuntimeConfig, cache::CacheConfig, profiling::ProfilingLogLevel,
};

#[cfg(feature = "cube")]
use crate::files::cache_folder;
#[cfg(feature = "cube")]
use crate::hardware::panics::quietly;

/// Says where kernels go, or `off`.
#[cfg(feature = "cube")]
const VARIABLE: &str = "FEWSHOT_KERNEL_CACHE";

/// Has CubeCL keep compiled kernels on disk, and the results of its tuning where that is built in, so
/// that the next run of this program begins without compiling. Call it once at the start of a program,
/// before it touches a device: CubeCL reads its settings then and never again.
///
/// They go to `kernels` in [`cache_folder`](crate::files::cache_folder), or where the environment
/// variable `FEWSHOT_KERNEL_CACHE` says; `off` turns it off. In there every program has a folder of
/// its own, by its file and the machine, because CubeCL knows kernels by name and not by what they
/// compute; the ones that were used last are kept. A `compilation.cache` in the user's
/// `cubecl.toml` is taken instead.
///
/// The kept programs depend on the runtime: PTX on CUDA, code objects on ROCm, SPIR-V with the feature
/// `vulkan`. Nothing is kept of WGSL, which `wgpu` uses without that feature: only the driver's own
/// cache helps there.
///
/// Returns the folder; if this sets none, the reason is logged at the level `Info`.
pub fn keep_compiled_kernels() -> Option<PathBuf> {
    configured(Launches::Quiet)
}

/// Keeps compiled kernels as [`keep_compiled_kernels`], and from then on logs every launch through the crate `log`, at
/// the level `Info`, as `Executing` and the name of the kernel. That takes time at every launch.
pub fn log_launches() -> Option<PathBuf> {
    configured(Launches::Logged)
}

#[derive(PartialEq, Eq)]
enum Launches {
    Quiet,
    Logged,
}

fn configured(launches: Launches) -> Option<PathBuf> {
    let folder = configure(launches);
    folder.inspect_err(|reason| log::info!("compiled kernels are not kept: {reason}")).ok()
}

#[cfg(not(feature = "cube"))]
fn configure(_launches: Launches) -> Result<PathBuf, String> {
    Err("no accelerator is compiled into this program".to_owned())
}

#[cfg(feature = "cube")]
fn configure(launches: Launches) -> Result<PathBuf, String> {
    if CubeClRuntimeConfig::storage().lock().is_some() {
        return Err("a device was touched before".to_owned());
    }
    // A file of settings that makes no sense is a panic.
    let mut config = quietly(|| CubeClRuntimeConfig::from_current_dir().override_from_env())?;
    let folder = keep(&mut config);
    if launches == Launches::Logged {
        config.profiling.logger.level = ProfilingLogLevel::Minimal;
        config.profiling.logger.log = Some(Default::default());
    }
    CubeClRuntimeConfig::set(config);
    folder
}

#[cfg(feature = "cube")]
fn keep(config: &mut CubeClRuntimeConfig) -> Result<PathBuf, String> {
    if config.compilation.cache.is_some() {
        return Err("the user's settings of CubeCL say where they go".to_owned());
    }
    let root = match env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        Some(value) if value == "off" => return Err(format!("{VARIABLE} is off")),
        Some(value) => PathBuf::from(value),
        None => cache_folder().ok_or("there is no folder for the user's caches")?.join("kernels"),
    };
    let folder = folder::program_folder(&root)?;
    config.compilation.cache = Some(CacheConfig::File(folder.clone()));
    if !folder::has_settings() {
        config.autotune.cache = CacheConfig::File(folder.clone());
    }
    Ok(folder)
}
