use std::marker::PhantomData;
use std::thread;

use burn::tensor::backend::Backend;
use sysinfo::{CpuRefreshKind, RefreshKind, System};

use crate::hardware::memory::host::machine;
use crate::hardware::{
    Capabilities, DeviceClass, DeviceMemory, Found, Platform, Probed, Tier, probe,
};

/// The processor, with one of the backends that compute on it.
pub(super) struct Host<B> {
    name: &'static str,
    backend: PhantomData<fn() -> B>,
}

impl<B: Backend> Host<B> {
    pub(super) fn named(name: &'static str) -> Box<dyn Platform> {
        Box::new(Self { name, backend: PhantomData })
    }
}

/// Burn's CPU backends have one device.
pub(super) fn device<D: Default>(index: usize) -> Result<D, String> {
    match index {
        0 => Ok(D::default()),
        _ => Err("it has only device 0".to_owned()),
    }
}

impl<B: Backend> Platform for Host<B> {
    fn name(&self) -> &str {
        self.name
    }

    fn tier(&self) -> Tier {
        Tier::Cpu
    }

    fn find(&self) -> Result<Vec<Found>, String> {
        Ok(vec![Found::new(processor(), DeviceClass::Cpu, Tier::Cpu)])
    }

    fn probe(&self, index: usize) -> Result<Probed, String> {
        let device = device::<B::Device>(index)?;
        probe::compute::<B>(&device)?;
        let capabilities = Capabilities {
            cores: thread::available_parallelism().ok().map(usize::from),
            instructions: instructions(),
            ..Capabilities::of::<B>(&device)
        };
        Ok(Probed { capabilities, memory: memory() })
    }
}

fn processor() -> String {
    let only = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
    let system = System::new_with_specifics(only);
    let brand = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
    brand.filter(|brand| !brand.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn memory() -> DeviceMemory {
    let (total, free) = machine().unzip();
    DeviceMemory { total, free, unified: Some(true) }
}

/// Those of the vector instructions that make a difference here that this processor has.
fn instructions() -> Option<Vec<String>> {
    let has = asked()?.into_iter().filter(|(_, has)| *has);
    Some(has.map(|(name, _)| name.to_owned()).collect())
}

#[cfg(target_arch = "x86_64")]
fn asked() -> Option<Vec<(&'static str, bool)>> {
    use std::arch::is_x86_feature_detected as has;
    Some(vec![
        ("avx2", has!("avx2")),
        ("fma", has!("fma")),
        ("f16c", has!("f16c")),
        ("avx512f", has!("avx512f")),
        ("avx512bf16", has!("avx512bf16")),
        ("avx512fp16", has!("avx512fp16")),
        ("amx-bf16", has_amx_bf16()),
    ])
}

#[cfg(target_arch = "aarch64")]
fn asked() -> Option<Vec<(&'static str, bool)>> {
    use std::arch::is_aarch64_feature_detected as has;
    Some(vec![
        ("neon", has!("neon")),
        ("fp16", has!("fp16")),
        ("bf16", has!("bf16")),
        ("dotprod", has!("dotprod")),
        ("i8mm", has!("i8mm")),
        ("sve", has!("sve")),
        ("sve2", has!("sve2")),
    ])
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn asked() -> Option<Vec<(&'static str, bool)>> {
    None
}

/// The standard library cannot ask for AMX yet; the kernel lists it, if it lets programs use it.
#[cfg(target_arch = "x86_64")]
fn has_amx_bf16() -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "amx_bf16"))
}
