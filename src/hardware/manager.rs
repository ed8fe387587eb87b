use std::time::Instant;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::module::Module;
use burn::prelude::DeviceOps;
use burn::tensor::backend::{AutodiffBackend, Backend, DeviceId};
use rayon::ThreadPool;

use super::config::{Checkpointing, Determinism, HardwareConfig, MemoryBudget};
use super::{
    Bytes, Capabilities, Detection, DeviceClass, DeviceInfo, DeviceKey, DeviceMemory,
    DevicePreference, HardwareError, Inventory, MemoryReport, MemoryScope, MemoryStats, Precision,
    Registry, Rejection, Tier, memory_stats, panics, placed, platforms, probe, release,
};
use crate::episode::{TaskKind, TaskSource};

/// The devices of one backend type, chosen and set up as a [`HardwareConfig`] says.
///
/// The choice between backends is [`Inventory::select`] and [`run_on`](super::run_on).
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
    devices: Vec<(DeviceInfo, B::Device)>,
    passed_over: Vec<Rejection>,
    threads: Option<ThreadPool>,
}

/// Work that needs a backend that differentiates.
pub trait DifferentiableWork<B: Backend> {
    /// What it gives back.
    type Output;

    /// Runs on `device`, with a backend that differentiates on top of `B`.
    fn run<A>(self, device: &A::Device) -> Self::Output
    where
        A: AutodiffBackend<InnerBackend = B, Device = B::Device>;
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
        Self::among(inventory::<B>(&config.device), config)
    }

    fn among(inventory: Inventory, config: HardwareConfig) -> Result<Self, HardwareError> {
        let (inventory, refused) = eligible(inventory, &config);
        let first = inventory.select(&config.device).map_err(|error| {
            let asked = refused.into_iter().find(|(info, _)| config.device.matches(info));
            asked.map_or(error, |(_, reason)| reason)
        })?;
        let mut infos = vec![first.device.clone()];
        let others = inventory.devices.iter().filter(|info| {
            info.key != first.device.key && info.key.platform == first.device.key.platform
        });
        infos.extend(others.filter(|info| info.passed_over.is_none()).cloned());
        if infos.len() < config.devices {
            return Err(HardwareError::Unavailable {
                device: format!("{} devices", config.devices),
                reason: format!("{} has {}", first.device.key.platform, infos.len()),
                usable: infos.into_iter().map(|info| info.key).collect(),
            });
        }
        infos.truncate(config.devices);
        let devices = infos.into_iter().map(|info| {
            let device = device::<B>(&info.key)?;
            if let Some(seed) = config.seed {
                B::seed(&device, seed);
            }
            Ok((info, device))
        });
        Ok(Self {
            devices: devices.collect::<Result<_, _>>()?,
            passed_over: first.passed_over,
            threads: config.threads.map(pool).transpose()?,
            config,
        })
    }

    /// What was asked for.
    pub fn config(&self) -> &HardwareConfig {
        &self.config
    }

    /// The first of the devices, on which everything is placed.
    pub fn device(&self) -> &B::Device {
        &self.devices[0].1
    }

    /// What is known of [`device`](Self::device).
    pub fn info(&self) -> &DeviceInfo {
        &self.devices[0].0
    }

    /// As many devices as were asked for, and what is known of them.
    pub fn devices(&self) -> impl Iterator<Item = (&DeviceInfo, &B::Device)> {
        self.devices.iter().map(|(info, device)| (info, device))
    }

    /// What `auto` would have preferred, and why it could not be.
    pub fn passed_over(&self) -> &[Rejection] {
        &self.passed_over
    }

    /// What of the device's memory may be used.
    ///
    /// # Errors
    /// [`HardwareError::Config`] for a share where the device does not tell how much is free.
    pub fn budget(&self) -> Result<Bytes, HardwareError> {
        match (self.config.memory, self.info().memory.free) {
            (MemoryBudget::Bytes(bytes), _) => Ok(bytes),
            (MemoryBudget::Share(share), Some(free)) => Ok(Bytes((share * free.0 as f64) as u64)),
            (MemoryBudget::Share(_), None) => Err(HardwareError::Config {
                field: "memory",
                reason: format!(
                    "{} does not tell how much memory is free; give an amount",
                    self.info().key
                ),
            }),
        }
    }

    /// `module` on the device. What lies on another one is carried through the host's memory: a
    /// direct copy between devices is not there on every backend.
    pub fn place<M: Module<B>>(&self, module: M) -> M {
        placed::on::<B, M>(module, self.device())
    }

    /// The tasks with these indices, on the device.
    pub fn place_episodes<T: TaskSource>(
        &self,
        source: &T,
        indices: std::ops::Range<u64>,
    ) -> <T::Kind as TaskKind>::Batch<B> {
        source.tasks::<B>(indices, self.device())
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

    /// Runs `work` on a backend that differentiates and recomputes what was asked for, as far as the
    /// backend does that: of segments it knows nothing.
    pub fn differentiate<W: DifferentiableWork<B>>(&self, work: W) -> W::Output {
        match self.config.checkpointing {
            Checkpointing::Nothing | Checkpointing::Segments => {
                work.run::<Autodiff<B>>(self.device())
            }
            Checkpointing::Balanced => {
                work.run::<Autodiff<B, BalancedCheckpointing>>(self.device())
            }
        }
    }
}

/// What is there for a backend: the devices of its platform, or, of a backend that is not Burn's,
/// what it says itself.
fn inventory<B: Backend>(preference: &DevicePreference) -> Inventory {
    match platforms::name_for::<B::Device>() {
        Some(name) => {
            let mut only = preference.platforms();
            if !only.iter().any(|other| other == name) {
                only.push(name.to_owned());
            }
            let found = Registry::built_in().detect(&Detection { only, ..Detection::default() });
            of_platform(found, name)
        }
        None => own_inventory::<B>(),
    }
}

/// The devices of a platform; those of others that were asked for are refused.
fn of_platform(found: Inventory, platform: &str) -> Inventory {
    let mut rejected = found.rejected;
    let devices = found.devices.into_iter();
    let (own, others): (Vec<_>, Vec<_>) = devices.partition(|info| info.key.platform == platform);
    rejected.extend(others.into_iter().map(|info| Rejection {
        what: info.key.to_string(),
        tier: info.tier,
        tried: true,
        reason: ANOTHER_BACKEND.to_owned(),
    }));
    Inventory::new(own, rejected)
}

const ANOTHER_BACKEND: &str = "it is of another backend than this program's";

const OWN: &str = "own";

fn own_inventory<B: Backend>() -> Inventory {
    let _silence = panics::Silence::begin();
    let mut devices = Vec::new();
    let mut rejected = Vec::new();
    for index in 0..panics::quietly(|| B::device_count(0)).unwrap_or(0) {
        let key = DeviceKey::new(OWN, index);
        let start = Instant::now();
        let found = device::<B>(&key).and_then(|device| {
            let found = panics::quietly(|| {
                probe::compute::<B>(&device)?;
                Ok((B::name(&device), Capabilities::of::<B>(&device)))
            });
            found
                .unwrap_or_else(Err)
                .map_err(|reason| HardwareError::Failed { device: key.to_string(), reason })
        });
        match found {
            Ok((name, capabilities)) => devices.push(DeviceInfo {
                key,
                name,
                class: DeviceClass::Other,
                tier: Tier::Gpu,
                driver: None,
                passed_over: None,
                memory: DeviceMemory::default(),
                capabilities,
                probe_ms: start.elapsed().as_secs_f64() * 1e3,
            }),
            Err(error) => rejected.push(Rejection {
                what: key.to_string(),
                tier: Tier::Gpu,
                tried: true,
                reason: error.to_string(),
            }),
        }
    }
    Inventory::new(devices, rejected)
}

/// The device of `B` with this key.
fn device<B: Backend>(key: &DeviceKey) -> Result<B::Device, HardwareError> {
    if key.platform == OWN {
        return Ok(B::Device::from_id(DeviceId::new(0, key.index as u16)));
    }
    let any = platforms::device(key)?;
    any.downcast::<B::Device>().map(|device| *device).map_err(|_| HardwareError::Unavailable {
        device: key.to_string(),
        reason: ANOTHER_BACKEND.to_owned(),
        usable: Vec::new(),
    })
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
                rejected.push(Rejection {
                    what: info.key.to_string(),
                    tier: info.tier,
                    tried: true,
                    reason: reason.to_string(),
                });
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
    (strict && info.tier != Tier::Cpu).then(|| HardwareError::Unavailable {
        device: info.key.to_string(),
        reason: "its results need not repeat bit for bit".to_owned(),
        usable: Vec::new(),
    })
}

fn check(config: &HardwareConfig) -> Result<(), HardwareError> {
    let wrong = |field, reason: &str| Err(HardwareError::Config { field, reason: reason.into() });
    match config.memory {
        MemoryBudget::Share(share) if !(share > 0.0 && share <= 1.0) => {
            return wrong("memory", &format!("a share of {share} is not above 0 and at most 1"));
        }
        MemoryBudget::Bytes(Bytes(0)) => return wrong("memory", "nothing runs in no memory"),
        _ => {}
    }
    if config.devices == 0 {
        return wrong("devices", "at least one device is needed");
    }
    if config.threads == Some(0) {
        return wrong("threads", "at least one thread is needed");
    }
    Ok(())
}

fn pool(threads: usize) -> Result<ThreadPool, HardwareError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|error| HardwareError::Config { field: "threads", reason: error.to_string() })
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use burn::tensor::{Distribution, Tensor};
    use fewshot_models::MlpConfig;

    use super::*;
    use crate::data::Sinusoids;
    use crate::episode::RegressionSampler;
    use crate::hardware::fixtures;

    fn detect(config: HardwareConfig) -> Result<HardwareManager<Flex>, HardwareError> {
        HardwareManager::detect(config)
    }

    fn refused(config: HardwareConfig) -> String {
        detect(config).unwrap_err().to_string()
    }

    /// What a manager of `Flex` would choose on another machine.
    fn chosen(machine: &str, config: HardwareConfig) -> Result<String, HardwareError> {
        check(&config)?;
        let (inventory, _) = eligible(fixtures::inventory(machine), &config);
        inventory.select(&config.device).map(|selection| selection.device.key.to_string())
    }

    #[test]
    fn the_device_asked_for_is_taken_or_nothing_is() {
        let manager = detect(HardwareConfig::new()).unwrap();
        assert_eq!(manager.info().key.to_string(), "flex:0");
        assert_eq!(manager.devices().count(), 1);
        let wanted = |text: &str| HardwareConfig::new().with_device(text.parse().unwrap());
        assert!(detect(wanted("flex:0")).is_ok());
        assert!(refused(wanted("flex:1")).contains("flex has 1 device, numbered from 0"));
        assert!(refused(wanted("gpu")).starts_with("gpu cannot be used"));
        assert!(refused(wanted("flix")).contains("did you mean \"flex\"?"));
    }

    #[cfg(feature = "ndarray")]
    #[test]
    fn a_backend_takes_devices_of_its_own_platform_alone() {
        use burn::backend::NdArray;

        let wanted = |text: &str| HardwareConfig::new().with_device(text.parse().unwrap());
        for text in ["auto", "cpu", "ndarray"] {
            let manager = HardwareManager::<NdArray>::detect(wanted(text)).unwrap();
            assert_eq!(manager.info().key.to_string(), "ndarray:0");
        }
        let error = HardwareManager::<NdArray>::detect(wanted("flex")).unwrap_err().to_string();
        let reason = format!("flex:0: {ANOTHER_BACKEND}");
        assert_eq!(error, format!("flex cannot be used: {reason}. Usable: ndarray:0"));
    }

    #[test]
    fn a_precision_decides_which_devices_will_do() {
        let on = |device: &str, precision| {
            let config = HardwareConfig::new().with_device(device.parse().unwrap());
            chosen("amd_laptop", config.with_precision(precision))
        };
        assert_eq!(on("auto", Precision::F32), Ok("vulkan:0".to_owned()));
        assert_eq!(on("auto", Precision::MixedF16), Ok("vulkan:0".to_owned()));
        assert_eq!(on("auto", Precision::MixedBf16), Ok("flex:0".to_owned()));
        assert!(on("ndarray", Precision::MixedBf16).is_err());
    }

    #[test]
    fn results_that_must_repeat_keep_to_the_processor() {
        let config = HardwareConfig::new().with_determinism(Determinism::Required);
        assert_eq!(chosen("8xh200", HardwareConfig::new()), Ok("cuda:0".to_owned()));
        assert_eq!(chosen("8xh200", config.clone()), Ok("flex:0".to_owned()));
        let cuda = config.with_device("cuda".parse().unwrap());
        assert!(chosen("8xh200", cuda).unwrap_err().to_string().contains("repeat bit for bit"));
    }

    #[test]
    fn a_budget_is_an_amount_or_a_share_of_what_is_free() {
        let budget = |memory| detect(HardwareConfig::new().with_memory(memory));
        let amount = MemoryBudget::Bytes(Bytes(1 << 20));
        assert_eq!(budget(amount).unwrap().budget(), Ok(Bytes(1 << 20)));
        let half = budget(MemoryBudget::Share(0.5)).unwrap();
        let free = half.info().memory.free.unwrap().0;
        assert_eq!(half.budget(), Ok(Bytes(free / 2)));
        for share in [0.0, -1.0, 1.5, f64::NAN] {
            let wrong = budget(MemoryBudget::Share(share)).unwrap_err().to_string();
            assert!(wrong.starts_with("memory: a share of"), "{wrong}");
        }
        assert!(budget(MemoryBudget::Bytes(Bytes(0))).is_err());
    }

    #[test]
    fn threads_are_those_of_the_scope() {
        let threads = |threads| {
            let manager = detect(HardwareConfig::new().with_threads(threads)).unwrap();
            manager.scope(rayon::current_num_threads).0
        };
        assert_eq!(threads(Some(1)), 1);
        assert_eq!(threads(Some(3)), 3);
        assert_eq!(threads(None), rayon::current_num_threads());
        assert!(refused(HardwareConfig::new().with_threads(Some(0))).starts_with("threads: "));
    }

    #[test]
    fn more_devices_than_there_are_is_an_error() {
        let wanted = |devices| HardwareConfig::new().with_devices(devices);
        let text = refused(wanted(2));
        assert_eq!(text, "2 devices cannot be used: flex has 1. Usable: flex:0");
        assert!(refused(wanted(0)).starts_with("devices: "));
    }

    #[test]
    fn a_seed_repeats_what_the_backend_draws() {
        let drawn = |seed| {
            let manager = detect(HardwareConfig::new().with_seed(seed)).unwrap();
            let noise = Tensor::<Flex, 1>::random([8], Distribution::Default, manager.device());
            noise.into_data()
        };
        assert_eq!(drawn(Some(5)), drawn(Some(5)));
        assert_ne!(drawn(Some(5)), drawn(Some(6)));
    }

    #[test]
    fn checkpointing_decides_what_differentiates() {
        struct Named;
        impl DifferentiableWork<Flex> for Named {
            type Output = (String, f32);

            fn run<A>(self, device: &A::Device) -> Self::Output
            where
                A: AutodiffBackend<InnerBackend = Flex>,
            {
                let x = Tensor::<A, 1>::from_data([3.0_f32], device).require_grad();
                let gradients = (x.clone() * x.clone()).exp().log().backward();
                let slope = x.grad(&gradients).unwrap().into_scalar();
                (std::any::type_name::<A>().to_owned(), slope)
            }
        }
        let run = |checkpointing| {
            let config = HardwareConfig::new().with_checkpointing(checkpointing);
            detect(config).unwrap().differentiate(Named)
        };
        for unknown_to_it in [Checkpointing::Nothing, Checkpointing::Segments] {
            let (plain, slope) = run(unknown_to_it);
            assert!(!plain.contains("BalancedCheckpointing") && (slope - 6.0).abs() < 1e-4);
        }
        let (balanced, slope) = run(Checkpointing::Balanced);
        assert!(balanced.contains("BalancedCheckpointing") && (slope - 6.0).abs() < 1e-4);
    }

    #[test]
    fn what_is_placed_is_what_it_was() {
        let manager = detect(HardwareConfig::new()).unwrap();
        let network = MlpConfig::new(2).with_layers(vec![3]).init::<Flex>(manager.device());
        let x = Tensor::ones([1, 2], manager.device());
        let before = network.forward(x.clone()).into_data();
        assert_eq!(manager.place(network).forward(x).into_data(), before);
        let waves = RegressionSampler::new(Sinusoids::default(), 5, 5, 1).unwrap();
        assert_eq!(manager.place_episodes(&waves, 0..3).support.tasks(), 3);
    }

    #[test]
    fn memory_is_told_where_it_is_counted() {
        let manager = detect(HardwareConfig::new()).unwrap();
        let (_, report) = manager.scope(|| vec![0_u8; 1 << 20]);
        manager.release();
        // These tests have no allocator that counts: nothing is known, and not 0.
        assert_eq!((report.peak, report.left_behind), (None, None));
        assert!(manager.memory().total.unwrap() > Bytes(0));
        assert_eq!(manager.memory().in_use, None);
    }

    #[test]
    fn a_config_reads_back_from_its_file() {
        use burn::config::Config;
        let config = HardwareConfig::new()
            .with_device("cuda:1".parse().unwrap())
            .with_memory(MemoryBudget::Bytes(Bytes(5)));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hardware.json");
        config.save(&path).unwrap();
        assert_eq!(HardwareConfig::load(&path).unwrap(), config);
    }
}
