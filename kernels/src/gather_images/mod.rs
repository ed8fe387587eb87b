//! Images by number from a bank of bytes on the device, turned and scaled.

#[cfg(feature = "cube")]
#[allow(clippy::too_many_arguments, clippy::assign_op_pattern)]
pub(crate) mod cube;
#[cfg(feature = "fusion")]
mod fusion;
pub mod reference;

use std::ops::Range;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Int, Tensor};

use crate::host::wrap;
use crate::registry::{self, Operation, Runs};

/// The choice of images to gather, and the map from their bytes to values.
#[derive(Clone, Debug, PartialEq)]
pub struct GatherCall {
    /// Tasks, of those that are chosen for.
    pub tasks: Range<usize>,
    /// Examples of each of these tasks.
    pub examples: Range<usize>,
    /// Channels, height and width of an image.
    pub shape: [usize; 3],
    /// Factor of a byte of each channel.
    pub gains: Vec<f32>,
    /// Summand after that.
    pub shifts: Vec<f32>,
}

impl GatherCall {
    /// `[t, n, c, h, w]`
    pub(crate) fn output(&self) -> [usize; 5] {
        let [c, h, w] = self.shape;
        [self.tasks.len(), self.examples.len(), c, h, w]
    }

    /// True if no image is gathered.
    pub(crate) fn is_empty(&self) -> bool {
        self.output().contains(&0)
    }

    /// Checks that images can be gathered.
    ///
    /// # Panics
    /// See [`gather_images`].
    pub(crate) fn check<B: Backend>(&self, bank: &Tensor<B, 1, Int>, chosen: &Tensor<B, 2, Int>) {
        let Self { tasks, examples, shape: [c, h, w], gains, shifts } = self;
        let [t, n] = chosen.dims();
        assert!(
            tasks.end <= t && examples.end <= n,
            "{tasks:?} x {examples:?} of {t} x {n} images"
        );
        assert!(
            gains.len() == *c && shifts.len() == *c,
            "a gain and a shift for each of {c} channels"
        );
        let is_there = self.is_empty() || bank.dims() != [0];
        assert!(is_there, "images of {c}x{h}x{w} from a bank that is empty");
    }

    /// The values of the bytes of an image.
    pub(crate) fn scaled(&self, image: &[u8]) -> impl Iterator<Item = f32> {
        let [_, h, w] = self.shape;
        let value = move |(at, &byte): (usize, &u8)| {
            let channel = at / (h * w);
            f32::from(byte) * self.gains[channel] + self.shifts[channel]
        };
        image.iter().enumerate().map(value)
    }
}

/// On an accelerator: on a host, data sets write images where they are wanted. The operands are the bank and
/// the choice; there is an image to gather, and shapes have been checked.
impl Operation for GatherCall {
    type Operands<B: Backend> = [IntTensor<B>; 2];
    type Results<B: Backend> = FloatTensor<B>;
}

/// Nothing here can be differentiated.
impl<B: Runs<GatherCall>, C: CheckpointStrategy> Runs<GatherCall> for Autodiff<B, C> {
    fn run(operands: [IntTensor<Self>; 2], call: &GatherCall) -> FloatTensor<Self> {
        <Self as AutodiffBackend>::from_inner(B::run(operands, call))
    }
}

/// See [`largest_bank`].
pub(crate) struct LargestBank;

impl Operation for LargestBank {
    type Operands<B: Backend> = B::Device;
    type Results<B: Backend> = u64;
}

impl<B: Runs<LargestBank>, C: CheckpointStrategy> Runs<LargestBank> for Autodiff<B, C> {
    fn run(device: B::Device, call: &LargestBank) -> u64 {
        B::run(device, call)
    }
}

/// Bytes of the largest bank that `device` gathers images from by a fused body; none where
/// [`gather_images`](crate::gather_images()) is plain Burn operations.
pub fn largest_bank<B: Backend>(device: &B::Device) -> Option<u64> {
    registry::body::<B, LargestBank>().map(|body| body(device.clone(), &LargestBank))
}

/// Images from a bank, in one pass: `gain * byte + shift`, by channel, of f32.
///
/// # Shapes
/// - `bank`: `[words]`, images `[c, h, w]` one after the other, four bytes to a word of 32 bits, the
///   first in its lowest bits
/// - `chosen`: `[t, n]`, each four times the number of an image, plus its quarter turns from 0 to 3
/// - returns `[t, n, c, h, w]` of the tasks and examples of the `call`
///
/// # Conventions
/// Turns are counter-clockwise, as those of `numpy.rot90`. An image that is not square is not turned.
///
/// # Panics
/// When the call asks for tasks, examples or channels that are not there. A number without an image
/// panics on a host, and gives any bytes on an accelerator.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use burn::tensor::{Int, Tensor};
/// use fewshot_kernels::{GatherCall, gather_images};
///
/// let device = Default::default();
/// let bank = Tensor::<Flex, 1, Int>::from_ints([0x04_03_02_01], &device);
/// let chosen = Tensor::from_ints([[0, 1]], &device);
/// let call = GatherCall {
///     tasks: 0..1,
///     examples: 0..2,
///     shape: [1, 2, 2],
///     gains: vec![0.5],
///     shifts: vec![0.0],
/// };
/// let images = gather_images(bank, chosen, &call);
/// let found = images.into_data().to_vec::<f32>().unwrap();
/// assert_eq!(found, [0.5, 1.0, 1.5, 2.0, 1.0, 2.0, 0.5, 1.5]);
/// ```
pub fn gather_images<B: Backend>(
    bank: Tensor<B, 1, Int>,
    chosen: Tensor<B, 2, Int>,
    call: &GatherCall,
) -> Tensor<B, 5> {
    call.check(&bank, &chosen);
    if call.is_empty() {
        return Tensor::empty(call.output(), (&bank.device(), DType::F32));
    }
    match registry::body::<B, GatherCall>() {
        Some(body) => wrap(body([bank.into_primitive(), chosen.into_primitive()], call)),
        None => reference::gather_images(bank, chosen, call),
    }
}
