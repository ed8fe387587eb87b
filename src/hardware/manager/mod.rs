//! The devices of one backend type, and work on them.

mod discovery;
mod dispatch;
#[cfg(all(test, feature = "flex"))]
mod tests;

use burn::module::Module;
use burn::tensor::backend::Backend;
use rayon::ThreadPool;

pub use dispatch::{Work, run_on};

use super::config::{Determinism, HardwareConfig, MemoryBudget};
use super::{
    Bytes, DeviceInfo, HardwareError, Inventory, MemoryReport, MemoryScope, MemoryStats, Precision,
    Rejection, Tier, memory_stats, release, to_device,
};

/// The devices of one backend type, and what of their memory may be used.
///
/// [`detect`](Self::detect) chooses and sets them up as a [`HardwareConfig`] says, for a program that names its
/// backend. Where the backend is chosen at run time, as by [`Inventory::select`], [`run_on`] gives [`Work`] its manager.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use fewshot::hardware::{HardwareConfig, HardwareManager};
/// use fewshot::models::Conv4Config;
///
/// let manager = HardwareManager::<Flex>::detect(HardwareConfig::new().with_seed(Some(7)))?;
/// println!("{} with {}", manager.info().name, manager.budget()?);
/// let network = manager.place(Conv4Config::omniglot().init(manager.device()));
/// # let _ = network;
/// # Ok::<(), fewshot::hardware::HardwareError>(())
/// ```
#[derive(Debug)]
pub struct HardwareManager<B: Backend> {
    memory: MemoryBudget,
    devices: Vec<(DeviceInfo, B::Device)>,
    skipped: Vec<Rejection>,
    threads: Option<ThreadPool>,
}

impl<B: Backend> HardwareManager<B> {
    /// Finds and tries the devices of `B`, and takes those that `config` asks for.
    ///
    /// # Errors
    /// [`HardwareError::Unavailable`] if what is asked for is not there, does not work, or is too
    /// few; [`HardwareError::UnsupportedDType`] for a precision that the device asked for lacks;
    /// [`HardwareError::Config`] for a field without meaning.
    pub fn detect(config: HardwareConfig) -> Result<Self, HardwareError> {
        check(&config)?;
        Self::among(discovery::inventory::<B>(&config.device), config)
    }

    fn among(inventory: Inventory, config: HardwareConfig) -> Result<Self, HardwareError> {
        let (infos, skipped) = chosen(inventory, &config)?;
        let devices = infos.into_iter().map(|info| {
            let device = discovery::device::<B>(&info)?;
            if let Some(seed) = config.seed {
                B::seed(&device, seed);
            }
            Ok((info, device))
        });
        let manager = Self::new(devices.collect::<Result<_, _>>()?).with_memory(config.memory);
        Ok(Self { skipped, threads: config.threads.map(pool).transpose()?, ..manager })
    }

    /// At least one device.
    fn new(devices: Vec<(DeviceInfo, B::Device)>) -> Self {
        Self { memory: MemoryBudget::default(), devices, skipped: Vec::new(), threads: None }
    }

    /// The same devices with this part of their memory.
    pub fn with_memory(self, memory: MemoryBudget) -> Self {
        Self { memory, ..self }
    }

    /// The first of the devices, on which everything is placed.
    pub fn device(&self) -> &B::Device {
        &self.devices[0].1
    }

    /// Name, memory and capabilities of [`device`](Self::device).
    pub fn info(&self) -> &DeviceInfo {
        &self.devices[0].0
    }

    /// The devices that were asked for, each with its description.
    pub fn devices(&self) -> impl Iterator<Item = (&DeviceInfo, &B::Device)> {
        self.devices.iter().map(|(info, device)| (info, device))
    }

    /// The devices that `auto` would have preferred, and why it could not take them.
    pub fn skipped(&self) -> &[Rejection] {
        &self.skipped
    }

    /// Bytes of the device's memory that may be used.
    ///
    /// # Errors
    /// [`HardwareError::Config`] for a share where the device does not tell how much is free.
    pub fn budget(&self) -> Result<Bytes, HardwareError> {
        match (self.memory, self.info().memory.free) {
            (MemoryBudget::Bytes(bytes), _) => Ok(bytes),
            (MemoryBudget::Share(share), Some(free)) => Ok(Bytes((share * free.0 as f64) as u64)),
            (MemoryBudget::Share(_), None) => {
                let key = &self.info().key;
                let reason = format!("{key} does not tell how much is free; give an amount");
                Err(HardwareError::config("memory", reason))
            }
        }
    }

    /// `module` on the device. What lies on another one is carried through the host's memory: a
    /// direct copy between devices is not there on every backend.
    pub fn place<M: Module<B>>(&self, module: M) -> M {
        to_device::<B, M>(module, self.device())
    }

    /// The memory of the device, as the calling thread uses it.
    pub fn memory(&self) -> MemoryStats {
        memory_stats::<B>(self.device())
    }

    /// Gives back what the device keeps for later; see [`release`].
    pub fn release(&self) {
        release::<B>(self.device());
    }

    /// Runs `work` with the wanted number of threads, and tells what memory it took on the device
    /// and what of it stayed; see [`MemoryScope::measure`].
    pub fn scope<T: Send>(&self, work: impl FnOnce() -> T + Send) -> (T, MemoryReport) {
        let measured = || MemoryScope::measure::<B, T>(self.device(), work);
        match &self.threads {
            Some(threads) => threads.install(measured),
            None => measured(),
        }
    }
}

/// Devices of one platform, in the number that `config` asks for, and the rejected ones that would have been
/// preferred to the first of them.
fn chosen(
    inventory: Inventory,
    config: &HardwareConfig,
) -> Result<(Vec<DeviceInfo>, Vec<Rejection>), HardwareError> {
    let (inventory, refused) = eligible(inventory, config);
    let first = inventory.select(&config.device).map_err(|error| {
        let rejection = refused.into_iter().find(|(info, _)| config.device.matches(info));
        rejection.map_or(error, |(_, reason)| reason.with_usable(&inventory))
    })?;
    let key = &first.device.key;
    let others = inventory.devices.iter().filter(|info| {
        info.key != *key && info.key.platform == key.platform && info.skipped.is_none()
    });
    let mut infos = others.cloned().collect::<Vec<_>>();
    infos.insert(0, first.device);
    if infos.len() < config.devices {
        return Err(HardwareError::Unavailable {
            device: format!("{} devices", config.devices),
            reason: format!("{} has {}", infos[0].key.platform, infos.len()),
            usable: infos.into_iter().map(|info| info.key).collect(),
        });
    }
    infos.truncate(config.devices);
    Ok((infos, first.skipped))
}

/// The devices that can do what `config` asks for, and why the others cannot.
fn eligible(
    inventory: Inventory,
    config: &HardwareConfig,
) -> (Inventory, Vec<(DeviceInfo, HardwareError)>) {
    let mut rejected = inventory.rejected;
    let mut refused = Vec::new();
    let mut devices = Vec::new();
    for info in inventory.devices {
        match refusal(&info, config) {
            None => devices.push(info),
            Some(reason) => {
                rejected.push(info.rejected(reason.to_string()));
                refused.push((info, reason));
            }
        }
    }
    (Inventory::new(devices, rejected), refused)
}

fn refusal(info: &DeviceInfo, config: &HardwareConfig) -> Option<HardwareError> {
    let dtype = config.precision.dtype();
    let support = info.capabilities.dtype(dtype);
    if !support.arithmetic {
        return Some(HardwareError::UnsupportedDType { device: info.key.to_string(), dtype });
    }
    if config.precision != Precision::F32 && !support.accelerated {
        log::warn!("{} computes in {dtype} without units for it: expect no speed", info.key);
    }
    let strict = config.determinism == Determinism::Required;
    (strict && info.tier != Tier::Cpu)
        .then(|| HardwareError::unavailable(&info.key, "its results need not repeat bit for bit"))
}

fn check(config: &HardwareConfig) -> Result<(), HardwareError> {
    let (field, reason) = match (config.memory, config.devices, config.threads) {
        (MemoryBudget::Share(share), ..) if !(share > 0.0 && share <= 1.0) => {
            ("memory", format!("a share of {share} is not above 0 and at most 1"))
        }
        (MemoryBudget::Bytes(Bytes(0)), ..) => ("memory", "nothing runs in no memory".into()),
        (_, 0, _) => ("devices", "at least one device is needed".into()),
        (_, _, Some(0)) => ("threads", "at least one thread is needed".into()),
        _ => return Ok(()),
    };
    Err(HardwareError::config(field, reason))
}

fn pool(threads: usize) -> Result<ThreadPool, HardwareError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|error| HardwareError::config("threads", error.to_string()))
}
