//! Images by number from a bank of bytes on the device, turned, changed at random and scaled.

mod change;
#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments, clippy::collapsible_if, clippy::assign_op_pattern)]
mod cube;
#[cfg(feature = "fusion")]
mod fusion;
mod pixels;
pub mod reference;
mod words;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Int, Tensor};

pub use change::Change;
pub use pixels::color::Adjustment;
pub use pixels::rotation::Rotation;
pub use pixels::window::{Shift, Window};
pub use words::ChangeKind;

use crate::gather_images::{GatherCall, gather_images};
use crate::host::wrap;
use crate::registry::{self, Operation, Runs};

/// The choice of images to gather, and the changes of each before its bytes are mapped to values.
#[derive(Clone, Debug, PartialEq)]
pub struct AugmentCall {
    /// Images, and the map from bytes to values.
    pub gather: GatherCall,
    /// Kinds of the changes, one after the other.
    pub kinds: Vec<ChangeKind>,
}

impl AugmentCall {
    /// Number of words that the changes of an image take.
    pub fn words(&self) -> usize {
        self.kinds.iter().map(|kind| kind.words()).sum()
    }
}

/// On an accelerator: on a host, images are changed where they are wanted. The operands are the bank, the choice and
/// the words of changes; there is an image to gather, and shapes have been checked.
impl Operation for AugmentCall {
    type Operands<B: Backend> = [IntTensor<B>; 3];
    type Results<B: Backend> = FloatTensor<B>;
}

/// Nothing here can be differentiated.
impl<B: Runs<AugmentCall>, C: CheckpointStrategy> Runs<AugmentCall> for Autodiff<B, C> {
    fn run(operands: [IntTensor<Self>; 3], call: &AugmentCall) -> FloatTensor<Self> {
        <Self as AutodiffBackend>::from_inner(B::run(operands, call))
    }
}

/// Channels of an image at most: one byte each of a word.
const MOST_CHANNELS: usize = 4;

/// Pixels of a side at most, with which a kernel computes places exactly.
const LONGEST_SIDE: usize = 4096;

/// True if [`augment_images`] takes images `[c, h, w]`: up to four channels of up to 4096x4096 pixels.
pub fn can_augment([channels, height, width]: [usize; 3]) -> bool {
    channels <= MOST_CHANNELS && height.max(width) <= LONGEST_SIDE
}

/// Images from a bank, changed in bytes: `gain * byte + shift`, by channel, of f32, in one launch.
///
/// # Shapes
/// - `bank` and `chosen`: those of [`gather_images`](crate::gather_images())
/// - `changes`: `[t, n, words]`, the words of the [kinds](ChangeKind::encode) of the `call`, one after the other
/// - returns `[t, n, c, h, w]` of the tasks and examples of the `call`
///
/// # Conventions
/// A change sees bytes, rounded as [`Change::apply`] rounds them. On an accelerator bytes are the same, but for a rotation, by
/// which about one in a hundred thousand is a level of 255 less or more.
///
/// # Panics
/// When the call asks for tasks, examples, channels or words that are not there, or images are larger than
/// [`can_augment`] says. A number without an image and a window beyond the image panic on a host, and give any bytes
/// on an accelerator.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::{Int, Tensor};
/// use fewshot_kernels::augment_images::{Change, ChangeKind};
/// use fewshot_kernels::{AugmentCall, GatherCall, augment_images};
///
/// let device = Default::default();
/// let bank = Tensor::<Flex, 1, Int>::from_ints([0x04_03_02_01], &device);
/// let chosen = Tensor::from_ints([[0, 0]], &device);
/// let mut words = Vec::new();
/// ChangeKind::Flip.encode(None, &mut words);
/// ChangeKind::Flip.encode(Some(&Change::Flip), &mut words);
/// let changes = Tensor::<Flex, 1, Int>::from_ints(words.as_slice(), &device).reshape([1, 2, 1]);
/// let gather = GatherCall {
///     tasks: 0..1,
///     examples: 0..2,
///     shape: [1, 2, 2],
///     gains: vec![0.5],
///     shifts: vec![0.0],
/// };
/// let call = AugmentCall { gather, kinds: vec![ChangeKind::Flip] };
/// let images = augment_images(bank, chosen, changes, &call);
/// let values = images.into_data().to_vec::<f32>().unwrap();
/// assert_eq!(values, [0.5, 1.0, 1.5, 2.0, 1.0, 0.5, 2.0, 1.5]);
/// ```
pub fn augment_images<B: Backend>(
    bank: Tensor<B, 1, Int>,
    chosen: Tensor<B, 2, Int>,
    changes: Tensor<B, 3, Int>,
    call: &AugmentCall,
) -> Tensor<B, 5> {
    let (gather, [t, n]) = (&call.gather, chosen.dims());
    gather.check(&bank, &chosen);
    assert_eq!(changes.dims(), [t, n, call.words()], "words of changes");
    assert!(can_augment(gather.shape), "images of {:?} are too large", gather.shape);
    if call.words() == 0 || gather.is_empty() {
        return gather_images(bank, chosen, gather);
    }
    match registry::body::<B, AugmentCall>() {
        Some(body) => {
            let operands =
                [bank.into_primitive(), chosen.into_primitive(), changes.into_primitive()];
            wrap(body(operands, call))
        }
        None => reference::augment_images(bank, chosen, changes, call),
    }
}
