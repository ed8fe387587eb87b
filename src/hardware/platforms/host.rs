use std::marker::PhantomData;
use std::thread;

use burn::tensor::backend::Backend;
use sysinfo::{CpuRefreshKind, RefreshKind, System};

use crate::hardware::{
    Capabilities, DetectedDevice, DeviceClass, DeviceMemory, Platform, ProbeResult, Tier,
};
use crate::machine;

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
pub(in crate::hardware) fn device<D: Default>(index: usize) -> Result<D, String> {
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

    fn find(&self) -> Result<Vec<DetectedDevice>, String> {
        Ok(vec![DetectedDevice::new(processor(), DeviceClass::Cpu, Tier::Cpu)])
    }

    fn probe(&self, index: usize) -> Result<ProbeResult, String> {
        let capabilities = Capabilities {
            cores: thread::available_parallelism().ok().map(usize::from),
            instructions: instructions(),
            ..ProbeResult::of::<B>(&device(index)?)?.capabilities
        };
        Ok(ProbeResult { capabilities, memory: memory() })
    }
}

fn processor() -> String {
    let only = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
    let system = System::new_with_specifics(only);
    let brand = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
    brand.filter(|brand| !brand.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn memory() -> DeviceMemory {
    let (total, free) = machine::memory().unzip();
    DeviceMemory { total, free, unified: Some(true) }
}

/// Vector instructions of this processor, among those that make a difference here.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn instructions() -> Option<Vec<String>> {
    #[cfg(target_arch = "aarch64")]
    use std::arch::is_aarch64_feature_detected as has;
    #[cfg(target_arch = "x86_64")]
    use std::arch::is_x86_feature_detected as has;
    macro_rules! those {
        ($($name:tt)*) => { [$(has!($name).then(|| $name.to_owned())),*] };
    }
    #[cfg(target_arch = "aarch64")]
    let all = those!("neon" "fp16" "bf16" "dotprod" "i8mm" "sve" "sve2");
    #[cfg(target_arch = "x86_64")]
    let all = those!("avx2" "fma" "f16c" "avx512f" "avx512bf16" "avx512fp16");
    Some(all.into_iter().flatten().collect())
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn instructions() -> Option<Vec<String>> {
    None
}
