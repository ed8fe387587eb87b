use std::cmp::Reverse;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{Bytes, DeviceKey, HardwareError};

/// Models with their devices.
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
    /// Memory that it needs.
    pub bytes: Bytes,
    /// Where it is.
    pub device: DeviceKey,
}

/// Load of a device in a placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLoad {
    /// The device.
    pub device: DeviceKey,
    /// Memory that models may take there: all that was free, less the share that stays free.
    pub usable: Bytes,
    /// Memory that the models laid there need.
    pub used: Bytes,
}

/// Lays whole models on devices, the largest first, each on the first device with room. A share of
/// every device's free memory, 0 to below 1, stays free for what a plan does not count.
///
/// Among devices with room and as much free memory as that one, the least loaded takes the model.
/// If a model then has no place, all are laid again, each on the very first device with room, which
/// packs more closely. The order of the devices is a preference; models of the same size keep
/// theirs. The same arguments give the same placement.
///
/// # Conventions
/// On equal devices, first fit decreasing takes at most 11/9 times as many devices as the best
/// packing, plus one (Yue 1991). A model is never split: laying the layers of one on several devices is out of
/// scope.
///
/// # Errors
/// [`HardwareError::NoRoom`] for the first model without a place, and [`HardwareError::Config`] for a name
/// that occurs twice or a share that is not from 0 to below 1.
///
/// # Source
/// Johnson, "Near-Optimal Bin Packing Algorithms", PhD thesis, MIT, 1973.
pub fn place<S: AsRef<str>>(
    models: &[(S, Bytes)],
    devices: &[(DeviceKey, Bytes)],
    keep_free: f64,
) -> Result<Placement, HardwareError> {
    HardwareError::check_share("keep_free", keep_free)?;
    unique("models", models.iter().map(|(name, _)| name.as_ref().to_owned()))?;
    unique("devices", devices.iter().map(|(device, _)| device.to_string()))?;
    let load = |(device, free): &(DeviceKey, Bytes)| DeviceLoad {
        device: device.clone(),
        usable: free.without(keep_free),
        used: Bytes(0),
    };
    let loads: Vec<_> = devices.iter().map(load).collect();
    lay(models, loads.clone(), Choice::LeastLoaded).or_else(|_| lay(models, loads, Choice::First))
}

impl DeviceLoad {
    /// Memory that models may still take.
    pub fn left(&self) -> Bytes {
        Bytes(self.usable.0.saturating_sub(self.used.0))
    }
}

/// Rule that chooses among the devices with room.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// The least loaded among those as large as the first one.
    LeastLoaded,
    First,
}

fn lay<S: AsRef<str>>(
    models: &[(S, Bytes)],
    mut loads: Vec<DeviceLoad>,
    choice: Choice,
) -> Result<Placement, HardwareError> {
    let mut order: Vec<usize> = (0..models.len()).collect();
    order.sort_by_key(|&index| Reverse(models[index].1));
    let mut places = vec![0; models.len()];
    for index in order {
        let (name, need) = &models[index];
        let roomy: Vec<_> = (0..loads.len()).filter(|&at| loads[at].left() >= *need).collect();
        let Some(&first) = roomy.first() else {
            // The first of several with as much room.
            let roomiest = loads.iter().rev().max_by_key(|load| load.left());
            let roomiest = roomiest.map(|load| (load.device.clone(), load.left()));
            let (model, need) = (name.as_ref().to_owned(), *need);
            return Err(HardwareError::NoRoom { model, need, roomiest });
        };
        let alike = roomy.into_iter().filter(|&at| loads[at].usable == loads[first].usable);
        places[index] = match choice {
            Choice::LeastLoaded => alike.min_by_key(|&at| loads[at].used).unwrap_or(first),
            Choice::First => first,
        };
        loads[places[index]].used.0 += need.0;
    }
    let placed = models.iter().zip(places).map(|((name, bytes), place)| PlacedModel {
        name: name.as_ref().to_owned(),
        bytes: *bytes,
        device: loads[place].device.clone(),
    });
    Ok(Placement { models: placed.collect(), devices: loads })
}

fn unique(field: &'static str, names: impl Iterator<Item = String>) -> Result<(), HardwareError> {
    let mut seen = HashSet::new();
    let twice = names.filter_map(|name| seen.replace(name)).next();
    twice.map_or(Ok(()), |name| {
        Err(HardwareError::config(field, format!("there are two called {name}")))
    })
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

    const ALL: f64 = 0.0;

    #[test]
    fn equal_devices_share_the_load() {
        let eight = devices("cuda", 8, 141);
        let placement = place(&models(&[10; 16]), &eight, 0.1).unwrap();
        assert_eq!(numbers(&placement), [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(placement.devices.iter().all(|load| load.used == Bytes(20 * GIB)));
        let mixed = place(&models(&[20, 100, 60, 126]), &eight[..3], 0.1);
        let mixed = mixed.unwrap();
        assert_eq!(numbers(&mixed), [2, 1, 2, 0], "the largest is laid first");
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
        let placement = place(&[("all", most)], &one, 0.1).unwrap();
        assert_eq!(placement.devices[0].left(), Bytes(0));
        let error = place(&[("all", Bytes(most.0 + 1))], &one, 0.1).unwrap_err();
        let text = "all needs 57.6 GiB; the device with the most room, metal:0, has 57.6 GiB left";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn a_refusal_names_the_device_with_the_most_room_left() {
        let error = place(&models(&[60, 70, 80]), &devices("cuda", 2, 100), ALL).unwrap_err();
        let roomiest = Some((DeviceKey::new("cuda", 1), Bytes(30 * GIB)));
        let (model, need) = ("model0".to_owned(), Bytes(60 * GIB));
        assert_eq!(error, HardwareError::NoRoom { model, need, roomiest });
    }

    #[test]
    fn what_cannot_be_a_question_is_refused() {
        let one = devices("flex", 1, 8);
        let none = place(&models(&[1]), &[], ALL).unwrap_err();
        assert_eq!(none.to_string(), "model0 needs 1.00 GiB; there is no device");
        assert_eq!(place(&models(&[]), &[], ALL).unwrap().models, []);
        let twice = place(&[("a", Bytes(1)), ("a", Bytes(2))], &one, ALL).unwrap_err();
        assert_eq!(twice.to_string(), "models: there are two called a");
        let same = [one[0].clone(), one[0].clone()];
        let twice = place(&models(&[1]), &same, ALL).unwrap_err();
        assert_eq!(twice.to_string(), "devices: there are two called flex:0");
        for keep_free in [-0.1, 1.0, f64::NAN] {
            let refused = place(&models(&[1]), &one, keep_free).unwrap_err();
            assert!(refused.to_string().starts_with("keep_free: "), "{refused}");
        }
    }

    #[test]
    fn a_placement_reads_back_from_json() {
        let placement = place(&models(&[3, 1, 2]), &devices("cuda", 2, 8), ALL).unwrap();
        let json = serde_json::to_string(&placement).unwrap();
        assert_eq!(serde_json::from_str::<Placement>(&json).unwrap(), placement);
    }
}
