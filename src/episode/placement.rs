use burn::tensor::backend::Backend;
use fewshot_kernels::largest_bank;
use serde::{Deserialize, Serialize};

use super::EpisodeError;
use crate::data::ClassDataset;

/// Where the images of a dataset lie while an accelerator learns from them.
///
/// Episodes are the same, and so are their numbers within the rounding of the scaling, and of the bytes of rotated images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataPlacement {
    /// On the accelerator where the dataset is one block and takes at most a quarter of
    /// what is free there, or 1 GiB where that is not known; else on the host, as are images that are augmented.
    #[default]
    Auto,
    /// On the accelerator: a step uploads nothing but which images its episodes have, and a few numbers for each that is
    /// augmented.
    Device,
    /// In host memory, from where each episode is uploaded; the only placement on backends of the
    /// CPU.
    Host,
}

/// Divisor of the free memory, of which [`DataPlacement::Auto`] takes one part.
const SHARE: u64 = 4;

/// Bytes that [`DataPlacement::Auto`] takes where free memory is not known.
const UNKNOWN: u64 = 1 << 30;

impl DataPlacement {
    /// Where the images of `dataset` are on `device`, of which so many bytes are free: never
    /// [`Auto`](Self::Auto).
    pub(super) fn decide<B: Backend>(
        self,
        dataset: &dyn ClassDataset,
        device: &B::Device,
        free: Option<u64>,
    ) -> Result<Self, EpisodeError> {
        match self {
            Self::Host => Ok(Self::Host),
            Self::Device => {
                let room = free.unwrap_or(u64::MAX);
                fits::<B>(dataset, device, room).map(|()| Self::Device)
            }
            Self::Auto => {
                let room = free.map_or(UNKNOWN, |free| free / SHARE);
                let fits = fits::<B>(dataset, device, room).is_ok();
                Ok(if fits { Self::Device } else { Self::Host })
            }
        }
    }
}

/// Checks that episodes of `dataset` can be gathered on `device`, with `room` bytes for its images. Images that
/// are there already need no room; those of a file need it on the host too, while they are read.
fn fits<B: Backend>(
    dataset: &dyn ClassDataset,
    device: &B::Device,
    room: u64,
) -> Result<(), EpisodeError> {
    let Some(largest) = largest_bank::<B>(device) else {
        return Err(EpisodeError::NoAccelerator { backend: B::name(device) });
    };
    let block = dataset.block().ok_or(EpisodeError::NoBlock)?;
    // An image and its turn are one number of 31 bits.
    let numbered = (dataset.image_shape().values() as u64) << 29;
    let (bytes, room) = (block.bytes(), room.min(largest).min(numbered).min(block.room_on_host()));
    if bytes > room && !block.is_on::<B>(device) {
        return Err(EpisodeError::NoRoom { bytes, room });
    }
    Ok(())
}
