use std::cmp::Reverse;
use std::collections::HashSet;
use std::iter;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Bytes, DeviceKey};

/// How models are laid on devices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacementPolicy {
    /// Share of each device's free memory that stays free, for what a plan does not count: 0 to
    /// below 1.
    pub keep_free: f64,
}

impl Default for PlacementPolicy {
    /// A tenth stays free.
    fn default() -> Self {
        Self { keep_free: 0.1 }
    }
}

/// Which model is where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The models in the order in which they were given.
    pub models: Vec<PlacedModel>,
    /// The devices in the order in which they were given, those without a model among them.
    pub devices: Vec<DeviceLoad>,
}

/// A model and its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedModel {
    /// Its name.
    pub name: String,
    /// What it needs.
    pub bytes: Bytes,
    /// Where it is.
    pub device: DeviceKey,
}

/// What a placement lays on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLoad {
    /// The device.
    pub device: DeviceKey,
    /// What models may take there: what was free, less the share that stays free.
    pub usable: Bytes,
    /// What the models laid there need.
    pub used: Bytes,
}

/// Why models cannot be laid on devices.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// There is nothing to lay them on.
    #[error("there is no device for {model}, which needs {need}")]
    NoDevice {
        /// The first model.
        model: String,
        /// What it needs.
        need: Bytes,
    },
    /// A model fits on no device beside the larger ones.
    #[error(
        "{model} needs {need}; the device with the most room, {device}, has {left} left of {free} \
         free, of which {:.0} % stay free", .keep_free * 100.0
    )]
    NoRoom {
        /// The model.
        model: String,
        /// What it needs.
        need: Bytes,
        /// The device with the most room left.
        device: DeviceKey,
        /// What models may still take there.
        left: Bytes,
        /// What was free there before any model.
        free: Bytes,
        /// The policy's share.
        keep_free: f64,
    },
    /// A name that several models or devices have.
    #[error("there are two called {name}")]
    Twice {
        /// The name.
        name: String,
    },
    /// A share that is none.
    #[error("keep_free is {keep_free}; it is a share of 0 to below 1")]
    Share {
        /// The policy's share.
        keep_free: f64,
    },
}

/// Lays whole models on devices, the largest first, each on the first device with room.
///
/// Devices with as much free memory as that one are as good, and of those with room the least
/// loaded takes the model. Where that leaves a model without a place, each goes to the very first
/// device with room instead, which packs more closely. The order of the devices is a preference;
/// models of the same size keep theirs. The same arguments give the same placement.
///
/// # Conventions
/// On equal devices, first fit decreasing takes at most 11/9 of those that the best packing takes, and
/// one more. A model is never split: laying the layers of one on several devices is out of scope.
///
/// # Errors
/// No device, no room (with the model, what it needs, and the device with the most left), a name that
/// occurs twice, or a share that is none.
///
/// # Source
/// Johnson, "Near-Optimal Bin Packing Algorithms", PhD thesis, MIT, 1973.
pub fn place<S: AsRef<str>>(
    models: &[(S, Bytes)],
    devices: &[(DeviceKey, Bytes)],
    policy: PlacementPolicy,
) -> Result<Placement, PlacementError> {
    unique(models.iter().map(|(name, _)| name.as_ref().to_owned()))?;
    let state = PlacementState::new(devices, policy)?;
    state.clone().lay(models, Choice::LeastLoaded).or_else(|_| state.lay(models, Choice::FirstFit))
}

/// The devices that can hold one whole replica of a model, in the order in which they are given:
/// those on which data-parallel training may run.
///
/// # Errors
/// As [`place`]; one device with room is enough.
pub fn replicate(
    (model, bytes): (&str, Bytes),
    devices: &[(DeviceKey, Bytes)],
    policy: PlacementPolicy,
) -> Result<Vec<DeviceKey>, PlacementError> {
    let state = PlacementState::new(devices, policy)?;
    let roomy = state.loads.iter().filter(|load| load.left() >= bytes);
    let keys: Vec<DeviceKey> = roomy.map(|load| load.device.clone()).collect();
    if keys.is_empty() { Err(state.refusal(model, bytes)) } else { Ok(keys) }
}

impl Placement {
    /// Where a model is.
    pub fn device_of(&self, model: &str) -> Option<&DeviceKey> {
        self.models.iter().find(|placed| placed.name == model).map(|placed| &placed.device)
    }
}

impl DeviceLoad {
    /// What models may still take.
    pub fn left(&self) -> Bytes {
        Bytes(self.usable.0.saturating_sub(self.used.0))
    }
}

/// Which of the devices with room takes a model.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// Of those with as much free memory as the first one.
    LeastLoaded,
    FirstFit,
}

/// Devices while models are laid on them.
#[derive(Clone)]
struct PlacementState<'a> {
    devices: &'a [(DeviceKey, Bytes)],
    policy: PlacementPolicy,
    loads: Vec<DeviceLoad>,
}

impl<'a> PlacementState<'a> {
    fn new(
        devices: &'a [(DeviceKey, Bytes)],
        policy: PlacementPolicy,
    ) -> Result<Self, PlacementError> {
        let keep_free = policy.keep_free;
        if !(0.0..1.0).contains(&keep_free) {
            return Err(PlacementError::Share { keep_free });
        }
        unique(devices.iter().map(|(device, _)| device.to_string()))?;
        let load = |(device, free): &(DeviceKey, Bytes)| DeviceLoad {
            device: device.clone(),
            usable: Bytes(free.0 - ((free.0 as f64 * keep_free).ceil() as u64).min(free.0)),
            used: Bytes(0),
        };
        Ok(Self { devices, policy, loads: devices.iter().map(load).collect() })
    }

    /// Lays down the largest model first.
    fn lay<S: AsRef<str>>(
        mut self,
        models: &[(S, Bytes)],
        choice: Choice,
    ) -> Result<Placement, PlacementError> {
        let mut order: Vec<usize> = (0..models.len()).collect();
        order.sort_by_key(|&index| Reverse(models[index].1));
        let mut places = vec![0; models.len()];
        for index in order {
            let (name, bytes) = &models[index];
            let place = self.choose(*bytes, choice);
            places[index] = place.ok_or_else(|| self.refusal(name.as_ref(), *bytes))?;
            self.loads[places[index]].used.0 += bytes.0;
        }
        let placed = models.iter().zip(places).map(|((name, bytes), place)| PlacedModel {
            name: name.as_ref().to_owned(),
            bytes: *bytes,
            device: self.devices[place].0.clone(),
        });
        Ok(Placement { models: placed.collect(), devices: self.loads })
    }

    fn choose(&self, bytes: Bytes, choice: Choice) -> Option<usize> {
        let mut roomy = (0..self.loads.len()).filter(|&index| self.loads[index].left() >= bytes);
        let first = roomy.next()?;
        match choice {
            Choice::FirstFit => Some(first),
            Choice::LeastLoaded => {
                let alike = roomy.filter(|&index| self.devices[index].1 == self.devices[first].1);
                iter::once(first).chain(alike).min_by_key(|&index| self.loads[index].used)
            }
        }
    }

    fn refusal(&self, model: &str, need: Bytes) -> PlacementError {
        // The first of several with as much room.
        let roomiest = (0..self.loads.len()).rev().max_by_key(|&index| self.loads[index].left());
        let model = model.to_owned();
        match roomiest {
            None => PlacementError::NoDevice { model, need },
            Some(index) => PlacementError::NoRoom {
                model,
                need,
                device: self.devices[index].0.clone(),
                left: self.loads[index].left(),
                free: self.devices[index].1,
                keep_free: self.policy.keep_free,
            },
        }
    }
}

fn unique(names: impl Iterator<Item = String>) -> Result<(), PlacementError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name.clone()) {
            return Err(PlacementError::Twice { name });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn devices(platform: &str, count: usize, gib: u64) -> Vec<(DeviceKey, Bytes)> {
        (0..count).map(|index| (DeviceKey::new(platform, index), Bytes(gib * GIB))).collect()
    }

    fn models(gib: &[u64]) -> Vec<(String, Bytes)> {
        let named = |(index, &gib)| (format!("model{index}"), Bytes(gib * GIB));
        gib.iter().enumerate().map(named).collect()
    }

    fn numbers(placement: &Placement) -> Vec<usize> {
        placement.models.iter().map(|placed| placed.device.index).collect()
    }

    const ALL: PlacementPolicy = PlacementPolicy { keep_free: 0.0 };

    #[test]
    fn equal_devices_share_the_load() {
        let eight = devices("cuda", 8, 141);
        let placement = place(&models(&[10; 16]), &eight, PlacementPolicy::default()).unwrap();
        assert_eq!(numbers(&placement), [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(placement.devices.iter().all(|load| load.used == Bytes(20 * GIB)));
        let mixed = place(&models(&[20, 100, 60, 126]), &eight[..3], PlacementPolicy::default());
        let mixed = mixed.unwrap();
        assert_eq!(numbers(&mixed), [2, 1, 2, 0], "the largest is laid first");
        assert_eq!(mixed.device_of("model3"), Some(&DeviceKey::new("cuda", 0)));
        assert_eq!(mixed.device_of("model4"), None);
    }

    #[test]
    fn an_earlier_device_is_preferred_to_one_of_another_size() {
        let mut both = devices("cuda", 1, 40);
        both.extend(devices("metal", 1, 64));
        let placement = place(&models(&[10, 30, 20]), &both, ALL).unwrap();
        let platforms = placement.models.iter().map(|placed| placed.device.platform.as_str());
        assert_eq!(platforms.collect::<Vec<_>>(), ["cuda", "cuda", "metal"]);
    }

    #[test]
    fn models_are_packed_where_spreading_leaves_one_without_a_place() {
        let two = devices("cuda", 2, 10);
        let placement = place(&models(&[5, 5, 4, 2, 2, 2]), &two, ALL).unwrap();
        let used: Vec<_> = placement.devices.iter().map(|load| load.used.0 / GIB).collect();
        assert_eq!(used, [10, 10]);
        assert_eq!(numbers(&placement), [0, 0, 1, 1, 1, 1]);
    }

    #[test]
    fn a_share_of_every_device_stays_free() {
        let one = devices("metal", 1, 64);
        let tenth = Bytes((64 * GIB).div_ceil(10));
        let most = Bytes(64 * GIB - tenth.0);
        let policy = PlacementPolicy::default();
        let placement = place(&[("all", most)], &one, policy).unwrap();
        assert_eq!(placement.devices[0].left(), Bytes(0));
        let error = place(&[("all", Bytes(most.0 + 1))], &one, policy).unwrap_err();
        let text = error.to_string();
        assert_eq!(
            text,
            "all needs 57.6 GiB; the device with the most room, metal:0, has 57.6 GiB left of 64.0 \
             GiB free, of which 10 % stay free"
        );
    }

    #[test]
    fn a_refusal_names_the_device_with_the_most_room_left() {
        let error = place(&models(&[60, 70, 80]), &devices("cuda", 2, 100), ALL).unwrap_err();
        let expected = PlacementError::NoRoom {
            model: "model0".to_owned(),
            need: Bytes(60 * GIB),
            device: DeviceKey::new("cuda", 1),
            left: Bytes(30 * GIB),
            free: Bytes(100 * GIB),
            keep_free: 0.0,
        };
        assert_eq!(error, expected);
    }

    #[test]
    fn what_cannot_be_a_question_is_refused() {
        let one = devices("flex", 1, 8);
        let none = place(&models(&[1]), &[], ALL).unwrap_err();
        assert_eq!(none.to_string(), "there is no device for model0, which needs 1.00 GiB");
        assert_eq!(place(&models(&[]), &[], ALL).unwrap().models, []);
        let twice = |name: &str| Err(PlacementError::Twice { name: name.to_owned() });
        assert_eq!(place(&[("a", Bytes(1)), ("a", Bytes(2))], &one, ALL), twice("a"));
        let same = [one[0].clone(), one[0].clone()];
        assert_eq!(place(&models(&[1]), &same, ALL), twice("flex:0"));
        for keep_free in [-0.1, 1.0, f64::NAN] {
            let policy = PlacementPolicy { keep_free };
            let refused = place(&models(&[1]), &one, policy);
            assert!(matches!(refused, Err(PlacementError::Share { .. })), "{keep_free}");
        }
    }

    #[test]
    fn a_replica_goes_to_every_device_that_holds_it_whole() {
        let mut mixed = devices("cuda", 2, 40);
        mixed.insert(1, (DeviceKey::new("metal", 0), Bytes(20 * GIB)));
        let keys = |gib| replicate(("net", Bytes(gib * GIB)), &mixed, PlacementPolicy::default());
        let written =
            |keys: Vec<DeviceKey>| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(written(keys(18).unwrap()), ["cuda:0", "metal:0", "cuda:1"]);
        assert_eq!(written(keys(19).unwrap()), ["cuda:0", "cuda:1"]);
        let refused = keys(37).unwrap_err();
        assert!(matches!(refused, PlacementError::NoRoom { ref device, .. } if device.index == 0));
        let nowhere = replicate(("net", Bytes(1)), &[], PlacementPolicy::default());
        assert!(matches!(nowhere, Err(PlacementError::NoDevice { .. })));
    }

    #[test]
    fn a_placement_reads_back_from_json() {
        let placement = place(&models(&[3, 1, 2]), &devices("cuda", 2, 8), ALL).unwrap();
        let json = serde_json::to_string(&placement).unwrap();
        assert_eq!(serde_json::from_str::<Placement>(&json).unwrap(), placement);
    }
}
