use std::path::PathBuf;

use thiserror::Error;

use super::{Bytes, DeviceKey, Inventory};

/// Errors of devices and their memory.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum HardwareError {
    /// A device could not give the memory that was asked of it. `reason` is the first line of its
    /// message, which may tell the `request`; `in_use` and `free` are of that time, where they
    /// can be known.
    #[error("out of memory on {device}{}: {reason}", numbers(*.request, *.in_use, *.free))]
    OutOfMemory {
        device: String,
        request: Option<Bytes>,
        in_use: Option<Bytes>,
        free: Option<Bytes>,
        reason: String,
    },
    /// A device failed for a reason other than memory: the first line of what it said.
    #[error("{device} failed: {reason}")]
    Failed { device: String, reason: String },
    /// Nothing of this name is there.
    #[error("there is no {what} {name:?}{} There is: {}", did_you_mean(.name, .known), .known.join(", "))]
    Unknown { what: &'static str, name: String, known: Vec<String> },
    /// A device that was asked for cannot be used, and nothing else was taken in its place.
    /// `usable` is empty where nothing is, or nothing was looked for.
    #[error("{device} cannot be used: {reason}{}", list(.usable))]
    Unavailable { device: String, reason: String, usable: Vec<DeviceKey> },
    /// A device does not compute in a data type.
    #[error("{device} does not compute in {dtype}")]
    UnsupportedDType { device: String, dtype: &'static str },
    /// A setting without meaning, or without meaning here: an argument, or a field of
    /// [`HardwareConfig`](super::HardwareConfig).
    #[error("{field}: {reason}")]
    Config { field: &'static str, reason: String },
    /// A file that holds no inventory.
    #[error("inventory {}: {reason}", .path.display())]
    Inventory { path: PathBuf, reason: String },
    /// Not even the smallest size of a search fits. It takes `need`, if it ran to its end.
    #[error("a size of {size} does not fit {budget} ({})", needed(.need))]
    DoesNotFit { size: usize, need: Option<Bytes>, budget: Bytes },
    /// A meta-batch that takes more memory than it may. At most `fit` of its tasks fit, where that
    /// is known.
    #[error("{tasks} tasks do not fit {budget} ({need} needed): {}", fitting(*.fit))]
    TooManyTasks { tasks: usize, need: Bytes, budget: Bytes, fit: Option<usize> },
    /// A meta-batch with a tensor that is larger than the device allows. With at most `fit` tasks
    /// there is no such tensor, where that is known.
    #[error(
        "a tensor of {tasks} tasks has {need}, {most} is the most that the device gives one: {}",
        fitting(*.fit)
    )]
    LargestBuffer { tasks: usize, need: Bytes, most: Bytes, fit: Option<usize> },
    /// A model fits on no device beside the larger ones. `roomiest` is the device with the most
    /// room left, and that room.
    #[error("{model} needs {need}; {}", room(.roomiest))]
    NoRoom { model: String, need: Bytes, roomiest: Option<(DeviceKey, Bytes)> },
    /// Tasks of a trial that cannot be read.
    #[error("{reason}")]
    Tasks { reason: String },
    /// A device whose memory nobody counts.
    #[error(
        "the memory of {device} is not counted; on a CPU, install \
         fewshot::hardware::CountingAllocator as #[global_allocator]"
    )]
    NoMeter { device: String },
}

impl HardwareError {
    /// The error for a `name` that is not among the known ones.
    pub(crate) fn unknown<'a>(
        what: &'static str,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let known = known.into_iter().map(str::to_owned).collect();
        Self::Unknown { what, name: name.to_owned(), known }
    }

    /// A device that cannot be used, without a word of others.
    pub(super) fn unavailable(device: &impl ToString, reason: impl Into<String>) -> Self {
        let (device, reason) = (device.to_string(), reason.into());
        Self::Unavailable { device, reason, usable: Vec::new() }
    }

    pub(crate) fn config(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Config { field, reason: reason.into() }
    }

    /// Checks that this share of something can stay free.
    pub(super) fn check_share(field: &'static str, share: f64) -> Result<(), Self> {
        match (0.0..1.0).contains(&share) {
            true => Ok(()),
            false => Err(Self::config(field, format!("{share} is no share of 0 to below 1"))),
        }
    }

    /// Adds the usable devices to the error of one that is not.
    pub(super) fn with_usable(self, inventory: &Inventory) -> Self {
        match self {
            Self::Unavailable { device, reason, .. } => {
                Self::Unavailable { device, reason, usable: inventory.keys() }
            }
            other => other,
        }
    }
}

fn needed(need: &Option<Bytes>) -> String {
    need.map_or("out of memory".to_owned(), |need| format!("{need} needed"))
}

fn fitting(fit: Option<usize>) -> String {
    match fit {
        None => "how many would is not known".to_owned(),
        Some(0) => "not one fits".to_owned(),
        Some(fit) => format!("{fit} would fit"),
    }
}

fn room(roomiest: &Option<(DeviceKey, Bytes)>) -> String {
    roomiest.as_ref().map_or("there is no device".to_owned(), |(device, left)| {
        format!("the device with the most room, {device}, has {left} left")
    })
}

fn numbers(request: Option<Bytes>, in_use: Option<Bytes>, free: Option<Bytes>) -> String {
    let parts = [("asked for", request), ("in use", in_use), ("free", free)];
    let known = parts.into_iter().filter_map(|(name, bytes)| Some(format!("{name} {}", bytes?)));
    let known = known.collect::<Vec<_>>();
    if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) }
}

fn did_you_mean(name: &str, known: &[String]) -> String {
    let lower = name.to_lowercase();
    let near = known.iter().map(|known| (strsim::damerau_levenshtein(known, &lower), known));
    // Half of it wrong is another word.
    let best = near.min_by_key(|(distance, _)| *distance);
    let best = best.filter(|(distance, known)| 2 * distance <= known.len());
    best.map_or(".".to_owned(), |(_, name)| format!("; did you mean {name:?}?"))
}

pub(super) fn list(usable: &[DeviceKey]) -> String {
    let keys = usable.iter().map(ToString::to_string).collect::<Vec<_>>();
    if keys.is_empty() { String::new() } else { format!(". Usable: {}", keys.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right_is_suggested() {
        let known = ["cuda", "vulkan", "flex"];
        let text = |name| HardwareError::unknown("platform", name, known).to_string();
        assert_eq!(
            text("vulcan"),
            "there is no platform \"vulcan\"; did you mean \"vulkan\"? There is: cuda, vulkan, flex"
        );
        assert!(text("CUDA").contains("did you mean \"cuda\"?"));
        assert!(!text("toaster").contains("did you mean"));
    }
}
