//! Compiled kernels, kept from one run of a program to the next.

#[cfg(feature = "cube")]
mod cube;

use std::path::PathBuf;

#[cfg(feature = "cube")]
use cube::configure;

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
/// What is kept depends on the runtime: PTX on CUDA, code objects on ROCm, SPIR-V with the feature
/// `vulkan`. Nothing is kept of WGSL, which `wgpu` uses without that feature: only the driver's own
/// cache helps there.
///
/// Returns the folder; if this sets none, the reason is logged at the level `Info`.
pub fn keep_compiled_kernels() -> Option<PathBuf> {
    configured(Launches::Quiet)
}

/// As [`keep_compiled_kernels`], and from then on every launch is logged through the crate `log`, at
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
    let kept = configure(launches);
    kept.inspect_err(|reason| log::info!("compiled kernels are not kept: {reason}")).ok()
}

#[cfg(not(feature = "cube"))]
fn configure(_launches: Launches) -> Result<PathBuf, String> {
    Err("no accelerator is compiled into this program".to_owned())
}
