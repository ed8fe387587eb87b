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

/// Where compiled kernels go, or why nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelCache {
    /// In this folder.
    At(PathBuf),
    /// Where the user's own settings of CubeCL say.
    UserSettings,
    /// Nowhere, with the reason.
    Off(String),
}

/// Has CubeCL keep compiled kernels on disk, and the results of its tuning where that is built in, so
/// that the next run of this program begins without compiling. Call it once at the start of a program,
/// before it touches a device: CubeCL reads its settings then and never again.
///
/// They go to `kernels` in [`cache_folder`](crate::files::cache_folder), or where the environment
/// variable `FEWSHOT_KERNEL_CACHE` says; `off` turns it off. In there every program has a folder of its
/// own, by its file and the machine, because CubeCL knows kernels by name and not by what they compute;
/// the ones that were used last are kept. A `compilation.cache` in the user's `cubecl.toml` goes first.
///
/// What is kept depends on the runtime: PTX on CUDA, code objects on ROCm, SPIR-V with the feature
/// `vulkan`. Of WGSL, as `wgpu` has without it, nothing is: only the driver's own cache helps there.
pub fn keep_compiled_kernels() -> KernelCache {
    configure(Launches::Quiet)
}

/// As [`keep_compiled_kernels`], and every launch is told to the crate `log` from then on, at the level
/// `Info`, as `Executing` and the name of the kernel. That takes time at every launch.
pub fn log_launches() -> KernelCache {
    configure(Launches::Logged)
}

#[derive(PartialEq, Eq)]
enum Launches {
    Quiet,
    Logged,
}

#[cfg(not(feature = "cube"))]
fn configure(_launches: Launches) -> KernelCache {
    KernelCache::Off("no accelerator is compiled into this program".to_owned())
}

#[cfg(feature = "cube")]
fn configure(launches: Launches) -> KernelCache {
    if CubeClRuntimeConfig::storage().lock().is_some() {
        return KernelCache::Off("a device was touched before".to_owned());
    }
    // A file of settings that makes no sense is a panic.
    let found = quietly(|| CubeClRuntimeConfig::from_current_dir().override_from_env());
    let mut config = match found {
        Ok(config) => config,
        Err(reason) => return KernelCache::Off(reason),
    };
    let kept = keep(&mut config);
    if launches == Launches::Logged {
        config.profiling.logger.level = ProfilingLogLevel::Minimal;
        config.profiling.logger.log = Some(Default::default());
    }
    CubeClRuntimeConfig::set(config);
    kept
}

#[cfg(feature = "cube")]
fn keep(config: &mut CubeClRuntimeConfig) -> KernelCache {
    if config.compilation.cache.is_some() {
        return KernelCache::UserSettings;
    }
    let told = env::var_os(VARIABLE).filter(|told| !told.is_empty());
    if told.as_ref().is_some_and(|told| told == "off") {
        return KernelCache::Off(format!("{VARIABLE} is off"));
    }
    let root = told.map(PathBuf::from).or_else(|| Some(cache_folder()?.join("kernels")));
    let Some(root) = root else {
        return KernelCache::Off("there is no folder for the user's caches".to_owned());
    };
    match folder::of_program(&root) {
        Ok(folder) => {
            config.compilation.cache = Some(CacheConfig::File(folder.clone()));
            if !folder::has_settings() {
                config.autotune.cache = CacheConfig::File(folder.clone());
            }
            KernelCache::At(folder)
        }
        Err(reason) => KernelCache::Off(reason),
    }
}
