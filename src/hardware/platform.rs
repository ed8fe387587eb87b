use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use super::{Capabilities, DeviceClass, DeviceMemory, Tier};

/// A family of devices: how to find them, and how to try one.
///
/// A [`Registry`](super::Registry) is open to platforms of one's own. Both methods may panic, hang
/// or take long: whoever detects devices guards against it.
pub trait Platform: Send + Sync {
    /// Its name in a [`DeviceKey`](super::DeviceKey): letters, digits, `-` and `_`.
    fn name(&self) -> &str;

    /// Where `auto` places its devices, unless one says otherwise.
    fn tier(&self) -> Tier;

    /// True if it can be looked for at all in this program and on this system.
    fn is_built(&self) -> bool {
        true
    }

    /// The devices there are, by number, without computing anything.
    ///
    /// # Errors
    /// One line that says why there can be none.
    fn find(&self) -> Result<Vec<DetectedDevice>, String>;

    /// Allocates, computes and reads back on the device with this number.
    ///
    /// # Errors
    /// One line that says what failed.
    fn probe(&self, index: usize) -> Result<ProbeResult, String>;
}

/// A device that is there, whether or not it works.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectedDevice {
    /// Name that its driver gives it.
    pub name: String,
    /// Class of the device.
    pub class: DeviceClass,
    /// Where `auto` places it.
    pub tier: Tier,
    /// Name and version of its driver.
    pub driver: Option<String>,
    /// Why `auto` must not take it though it may work, for instance because an environment variable
    /// names another one.
    pub skipped: Option<String>,
}

impl DetectedDevice {
    /// A device that its driver says nothing else of.
    pub fn new(name: impl Into<String>, class: DeviceClass, tier: Tier) -> Self {
        Self { name: name.into(), class, tier, driver: None, skipped: None }
    }
}

/// Answer of a device when it was tried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeResult {
    /// Abilities of the device.
    pub capabilities: Capabilities,
    /// Its memory.
    pub memory: DeviceMemory,
}

impl ProbeResult {
    /// Computes on a device of `B`, and asks it what every backend can be asked.
    pub(super) fn of<B: Backend>(device: &B::Device) -> Result<Self, String> {
        compute::<B>(device)?;
        Ok(Self { capabilities: Capabilities::of::<B>(device), memory: DeviceMemory::default() })
    }
}

/// Allocates, computes and reads back: squares whose values are known. A single kernel, for a
/// software renderer takes seconds to compile those of a matrix product.
fn compute<B: Backend>(device: &B::Device) -> Result<(), String> {
    let numbers = (1..=64).map(|number| number as f32).collect::<Vec<_>>();
    let expected = numbers.iter().map(|number| number * number).collect::<Vec<_>>();
    let tensor = Tensor::<B, 1>::from_data(TensorData::new(numbers, [64]), device);
    let squares = tensor.clone() * tensor;
    B::sync(device).map_err(|error| error.to_string())?;
    let data = squares.try_into_data().map_err(|error| error.to_string())?;
    let values = data.convert::<f32>().to_vec::<f32>().map_err(|error| format!("{error:?}"))?;
    match values == expected {
        true => Ok(()),
        false => Err(format!("squares came out as {:?} …", &values[..4.min(values.len())])),
    }
}
