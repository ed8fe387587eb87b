use std::marker::PhantomData;

use burn::backend::Flex;
use burn::tensor::{Distribution, Tensor};
use fewshot_models::MlpConfig;

use super::discovery::CustomBackend;
use super::*;
use crate::hardware::{Detection, DeviceClass, DeviceKey, Platform, Registry, fixtures};

fn detect(config: HardwareConfig) -> Result<HardwareManager<Flex>, HardwareError> {
    HardwareManager::detect(config)
}

fn refused(config: HardwareConfig) -> String {
    detect(config).unwrap_err().to_string()
}

/// What a manager of `Flex` would choose on another machine.
fn chosen(machine: &str, config: HardwareConfig) -> Result<String, HardwareError> {
    check(&config)?;
    let (infos, _) = super::chosen(fixtures::inventory(machine), &config)?;
    let keys = infos.iter().map(|info| info.key.to_string());
    Ok(keys.collect::<Vec<_>>().join(" "))
}

#[test]
fn the_device_asked_for_is_taken_or_nothing_is() {
    let manager = detect(HardwareConfig::new()).unwrap();
    assert_eq!(manager.info().key.to_string(), "flex:0");
    assert_eq!(manager.devices().count(), 1);
    let wanted = |text: &str| HardwareConfig::new().with_device(text.parse().unwrap());
    assert!(detect(wanted("flex:0")).is_ok());
    assert!(refused(wanted("flex:1")).contains("flex has 1 device, numbered from 0"));
    let gpu = refused(wanted("gpu"));
    // Not compiled in, of another backend or not there: whichever, there are reasons.
    assert!(gpu.starts_with("gpu cannot be used: cuda"), "{gpu}");
    assert!(!gpu.contains("ndarray") && gpu.ends_with("Usable: flex:0"), "{gpu}");
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
    let reason = "flex:0: it is of another backend than this program's";
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
    let refused = chosen("8xh200", cuda).unwrap_err().to_string();
    let reason = "cuda:0 cannot be used: its results need not repeat bit for bit";
    assert!(refused.starts_with(reason) && refused.contains("Usable: flex:0"), "{refused}");
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
    assert_eq!(chosen("8xh200", wanted(3)), Ok("cuda:0 cuda:1 cuda:2".to_owned()));
    let from = wanted(2).with_device("cuda:5".parse().unwrap());
    assert_eq!(chosen("8xh200", from), Ok("cuda:5 cuda:0".to_owned()));
    let nine = chosen("8xh200", wanted(9)).unwrap_err().to_string();
    assert!(nine.starts_with("9 devices cannot be used: cuda has 8. Usable: cuda:0"), "{nine}");
    let text = refused(wanted(2));
    assert_eq!(text, "2 devices cannot be used: flex has 1. Usable: flex:0");
    assert!(refused(wanted(0)).starts_with("devices: "));
}

/// Names of the devices of a manager.
struct Names;

impl Work for Names {
    type Output = Vec<String>;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Vec<String> {
        hardware.devices().map(|(info, device)| format!("{} {device:?}", info.key)).collect()
    }
}

#[test]
fn work_runs_on_devices_of_one_backend_alone() {
    let info = detect(HardwareConfig::new()).unwrap().info().clone();
    assert_eq!(run_on(vec![info.clone()], Names).unwrap().len(), 1);
    let with_key = |key| DeviceInfo { key, ..info.clone() };
    let refused = |devices| run_on(devices, Names).unwrap_err().to_string();
    let error = refused(vec![info.clone(), with_key(DeviceKey::new("vulkan", 0))]);
    assert!(error.contains("vulkan:0") && error.contains("another backend"), "{error}");
    let error = refused(vec![with_key(DeviceKey::new("abacus", 0))]);
    assert!(error.contains("built without a backend"), "{error}");
    assert!(refused(vec![with_key(DeviceKey::new("flex", 1))]).contains("only device 0"));
    assert!(refused(Vec::new()).starts_with("devices: "));
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
fn a_backend_of_ones_own_is_tried_like_any_other() {
    let registry = Registry::empty().with(CustomBackend::<Flex>(PhantomData));
    let inventory = registry.detect(&Detection::default());
    let [device] = &inventory.devices[..] else { panic!("{inventory:?}") };
    assert_eq!((device.key.to_string(), device.class), ("own:0".to_owned(), DeviceClass::Other));
    assert!(device.capabilities.dtype("f32").arithmetic && device.memory.total.is_none());
    assert!(discovery::device::<Flex>(device).is_ok());
    assert!(
        CustomBackend::<Flex>(PhantomData).probe(1 << 20).unwrap_err().contains("out of range")
    );
}

#[test]
fn what_is_placed_is_what_it_was() {
    let manager = detect(HardwareConfig::new()).unwrap();
    let network = MlpConfig::new(2).with_layers(vec![3]).init::<Flex>(manager.device());
    let x = Tensor::ones([1, 2], manager.device());
    let before = network.forward(x.clone()).into_data();
    assert_eq!(manager.place(network).forward(x).into_data(), before);
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
