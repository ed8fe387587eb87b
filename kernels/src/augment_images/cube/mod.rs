//! Changed images of a bank on a device: one launch, a cube for each image.
//!
//! The image lies in a workspace, a pixel to a word and a byte to a channel. A change that moves pixels goes from one half
//! of the workspace to the other; the others change pixels where they are, each unit its own.

mod color;
mod hue;
mod kernel;
mod moves;

use burn::tensor::DType;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::{AugmentCall, ChangeKind};
use crate::cube::{empty, into_contiguous, launch, row_of_cubes, units};
use crate::gather_images::GatherCall;
use crate::registry::Runs;
use kernel::augment_kernel;

/// The settings that are known when the kernel is compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    pub kinds: Vec<ChangeKind>,
    pub size: Size,
}

/// The size of an image, and the units of its cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    pub channels: usize,
    pub height: usize,
    pub width: usize,
    pub units: u32,
}

impl Plan {
    /// Words of the changes of an image before the one at `step`.
    pub fn words_before(&self, step: usize) -> usize {
        self.kinds[..step].iter().map(|kind| kind.words()).sum()
    }

    /// The place of the half of the workspace that holds the image before the change at `step`.
    pub fn half_before(&self, step: usize) -> usize {
        let moves = self.kinds[..step].iter().filter(|kind| kind.moves_pixels()).count();
        moves % 2 * self.size.pixels()
    }
}

impl Size {
    pub fn pixels(&self) -> usize {
        self.height * self.width
    }
}

impl ChangeKind {
    fn moves_pixels(self) -> bool {
        matches!(self, Self::Crop | Self::Shift | Self::Flip | Self::Rotation)
    }
}

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Runs<AugmentCall>
    for CubeBackend<R, F, I, BT>
{
    fn run(operands: [IntTensor<Self>; 3], call: &AugmentCall) -> FloatTensor<Self> {
        let [bank, chosen, changes] = operands.map(into_contiguous);
        let [_, chosen_examples] = chosen.meta.shape().dims();
        let GatherCall { tasks, examples, shape: [c, h, w], gains, shifts } = &call.gather;
        let (images, client) = (tasks.len() * examples.len(), bank.client.clone());
        let units = units(&client);
        let size = Size { channels: *c, height: *h, width: *w, units };
        let plan = Plan { kinds: call.kinds.clone(), size };
        let workspace = empty(&bank, [images, 2, size.pixels()], DType::U32);
        let values = empty(&bank, call.gather.output(), DType::F32);
        let words = bank.meta.num_elements();
        let first = tasks.start * chosen_examples + examples.start;
        // SAFETY: cubes stop at the last image of the result, and units at the last pixel of an image; the caller has checked
        // that tasks and examples are among those chosen, and that each of these has the words of its changes. A word
        // beyond the bank, which has one, is not read, and places that changes name are brought into the image.
        unsafe {
            launch!(augment_kernel, row_of_cubes(&client, images, units);
                bank, chosen, changes, workspace, values;
                gains.iter().copied().collect(), shifts.iter().copied().collect(),
                images, words, first, examples.len(), chosen_examples, plan,
                bank.dtype.into(), chosen.dtype.into(), changes.dtype.into());
        }
        values
    }
}
