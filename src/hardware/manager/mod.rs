//! A device of one backend type, and work on it.

mod discovery;
#[cfg(all(test, feature = "flex"))]
mod tests;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::Module;
use burn::tensor::backend::{AutodiffBackend, Backend};
use rayon::ThreadPool;

use super::config::{Checkpointing, HardwareConfig, MemoryBudget};
use super::{
    Bytes, DeviceInfo, HardwareError, Inventory, MemoryReport, MemoryScope, Precision, Rejection,
    Selection, to_device,
};

/// A device of one backend type, chosen and set up as a [`HardwareConfig`] says.
///
/// The choice between backends is [`Inventory::select`](super::Inventory::select) and
/// [`run_on`](super::run_on).
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
    config: HardwareConfig,
    selection: Selection,
    device: B::Device,
    threads: Option<ThreadPool>,
}

/// Work that needs a backend that differentiates.
pub trait DifferentiableWork<B: Backend> {
    /// What it gives back.
    type Output;

    /// Runs on `device`, with a backend that differentiates on top of `B`. A learner that has
    /// segments is to be told `checkpointing`, as by
    /// [`EmbeddingLearner::with_checkpointing`](crate::learners::EmbeddingLearner::with_checkpointing):
    /// a backend knows nothing of them.
    fn run<A>(self, device: &A::Device, checkpointing: Checkpointing) -> Self::Output
    where
        A: AutodiffBackend<InnerBackend = B, Device = B::Device>;
}

impl<B: Backend> HardwareManager<B> {
    /// Finds and tries the devices of `B`, and takes the one that `config` asks for.
    ///
    /// # Errors
    /// [`HardwareError::Unavailable`] if what is asked for is not there or does not work;
    /// [`HardwareError::UnsupportedDType`] for a precision that the device asked for lacks;
    /// [`HardwareError::Config`] for a field without meaning.
    pub fn detect(config: HardwareConfig) -> Result<Self, HardwareError> {
        check(&config)?;
        let selection = selected(discovery::inventory::<B>(&config.device), &config)?;
        let device = discovery::device::<B>(&selection.device.key)?;
        if let Some(seed) = config.seed {
            B::seed(&device, seed);
        }
        let threads = config.threads.map(pool).transpose()?;
        Ok(Self { config, selection, device, threads })
    }

    /// The device, on which everything is placed.
    pub fn device(&self) -> &B::Device {
        &self.device
    }

    /// What is known of [`device`](Self::device).
    pub fn info(&self) -> &DeviceInfo {
        &self.selection.device
    }

    /// The devices that `auto` would have preferred, and why it could not take them.
    pub fn skipped(&self) -> &[Rejection] {
        &self.selection.skipped
    }

    /// What of the device's memory may be used.
    ///
    /// # Errors
    /// [`HardwareError::Config`] for a share where the device does not tell how much is free.
    pub fn budget(&self) -> Result<Bytes, HardwareError> {
        match (self.config.memory, self.info().memory.free) {
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

    /// Runs `work` with the wanted number of threads, and tells what memory it took on the device
    /// and what of it stayed; see [`MemoryScope::measure`].
    pub fn scope<T: Send>(&self, work: impl FnOnce() -> T + Send) -> (T, MemoryReport) {
        let measured = || MemoryScope::measure::<B, T>(self.device(), work);
        match &self.threads {
            Some(threads) => threads.install(measured),
            None => measured(),
        }
    }

    /// Runs `work` on a backend that differentiates and recomputes what was asked for.
    pub fn differentiate<W: DifferentiableWork<B>>(&self, work: W) -> W::Output {
        let checkpointing = self.config.checkpointing;
        match checkpointing {
            Checkpointing::Nothing | Checkpointing::Segments => {
                work.run::<Autodiff<B>>(self.device(), checkpointing)
            }
            Checkpointing::Balanced => {
                work.run::<Autodiff<B, BalancedCheckpointing>>(self.device(), checkpointing)
            }
        }
    }
}

/// The device that `config` asks for, among those that compute in its precision.
fn selected(
    mut inventory: Inventory,
    config: &HardwareConfig,
) -> Result<Selection, HardwareError> {
    let dtype = config.precision.dtype();
    let unsupported =
        |info: &DeviceInfo| HardwareError::UnsupportedDType { device: info.key.to_string(), dtype };
    let lacks = |info: &mut DeviceInfo| !info.capabilities.dtype(dtype).arithmetic;
    let lacking: Vec<_> = inventory.devices.extract_if(.., lacks).collect();
    let rejections = lacking.iter().map(|info| info.rejected(unsupported(info).to_string()));
    inventory.rejected.extend(rejections);
    let selection = inventory.select(&config.device).map_err(|error| {
        let asked = lacking.iter().find(|info| config.device.matches(info));
        asked.map_or(error, unsupported)
    })?;
    let DeviceInfo { key, capabilities, .. } = &selection.device;
    if config.precision != Precision::F32 && !capabilities.dtype(dtype).accelerated {
        log::warn!("{key} computes in {dtype} without units for it: expect no speed");
    }
    Ok(selection)
}

fn check(config: &HardwareConfig) -> Result<(), HardwareError> {
    let (field, reason) = match (config.memory, config.threads) {
        (MemoryBudget::Share(share), _) if !(share > 0.0 && share <= 1.0) => {
            ("memory", format!("a share of {share} is not above 0 and at most 1"))
        }
        (MemoryBudget::Bytes(Bytes(0)), _) => ("memory", "nothing runs in no memory".into()),
        (_, Some(0)) => ("threads", "at least one thread is needed".into()),
        _ => return Ok(()),
    };
    Err(HardwareError::config(field, reason))
}

fn pool(threads: usize) -> Result<ThreadPool, HardwareError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|error| HardwareError::config("threads", error.to_string()))
}
