//! Images of a bank on a device: one launch.

use burn::tensor::DType;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::prelude::*;

use super::{GatherCall, LargestBank};
use crate::cube::{array, elementwise, empty, into_contiguous, launch, unit_below, vector_size};
use crate::registry::Runs;

/// A kernel counts bytes in 32 bits.
const MOST_BYTES: u64 = u32::MAX as u64 - 3;

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Runs<LargestBank>
    for CubeBackend<R, F, I, BT>
{
    fn run(device: R::Device, _: &LargestBank) -> u64 {
        R::client(&device).properties().memory.max_page_size.min(MOST_BYTES)
    }
}

impl<R: CubeRuntime, F: FloatElement, I: IntElement, BT: BoolElement> Runs<GatherCall>
    for CubeBackend<R, F, I, BT>
{
    fn run(operands: [IntTensor<Self>; 2], call: &GatherCall) -> FloatTensor<Self> {
        let [bank, chosen] = operands.map(into_contiguous);
        let [_, chosen_examples] = chosen.meta.shape().dims();
        let GatherCall { tasks, examples, shape: [c, h, w], gains, shifts } = call;
        let values = c * h * w;
        let images = empty(&bank, call.output(), DType::F32);
        let width = vector_size(&bank.client, values, size_of::<f32>());
        let vectors = images.meta.num_elements() / width;
        let words = bank.meta.num_elements();
        let first = tasks.start * chosen_examples + examples.start;
        // SAFETY: units stop at the last vector of the result, of which an image has whole ones; the caller
        // has checked that tasks and examples are among those chosen, and a word beyond the bank, which has
        // one, is not read.
        unsafe {
            launch!(gather_kernel, elementwise(&bank.client, vectors), width;
                bank, chosen;
                gains.iter().copied().collect(), shifts.iter().copied().collect(),
                array(&images), vectors, words, values / width, first, examples.len(),
                chosen_examples, values, *h, *w, bank.dtype.into(), chosen.dtype.into());
        }
        images
    }
}

/// The number of channel `of`.
#[cube]
pub fn channel_number(numbers: &Sequence<f32>, of: usize) -> f32 {
    let count = comptime!(numbers.len());
    let mut number = *numbers.index(0usize);
    #[unroll]
    for channel in 1..count {
        if of == channel {
            number = *numbers.index(channel);
        }
    }
    number
}

/// The place in an image of value `at` of the turned one.
#[cube]
pub fn turned_place(
    at: usize,
    turn: u32,
    #[comptime] height: usize,
    #[comptime] width: usize,
) -> usize {
    let mut from = at;
    if comptime!(height == width) {
        let plane = at / (height * width) * (height * width);
        let line = at / width % height;
        let column = at % width;
        let last = width - 1;
        if turn == 1u32 {
            from = plane + column * width + last - line;
        } else if turn == 2u32 {
            from = plane + (last - line) * width + last - column;
        } else if turn == 3u32 {
            from = plane + (last - column) * width + line;
        }
    }
    from
}

/// A byte of a bank of so many words.
#[cube]
pub fn bank_byte<I: Int>(bank: &Array<I>, byte: usize, words: usize) -> u32 {
    let mut word = byte / 4;
    if word >= words {
        word = 0;
    }
    (u32::cast_from(bank[word]) >> ((byte % 4) as u32 * 8u32)) & 255u32
}

/// A unit for each vector of the result.
#[cube(launch_unchecked)]
fn gather_kernel<I: Int, J: Int, N: Size>(
    bank: &Array<I>,
    chosen: &Array<J>,
    gains: &Sequence<f32>,
    shifts: &Sequence<f32>,
    images: &mut Array<Vector<f32, N>>,
    vectors: usize,
    words: usize,
    // Vectors of an image.
    row: usize,
    // The first example that is gathered, how many there are of a task, and how many were chosen.
    first: usize,
    examples: usize,
    chosen_examples: usize,
    #[comptime] values: usize,
    #[comptime] height: usize,
    #[comptime] width: usize,
    #[define(I)] _word: StorageType,
    #[define(J)] _number: StorageType,
) {
    let unit = unit_below(vectors);
    let image = unit / row;
    let task = image / examples;
    let choice = u32::cast_from(chosen[first + task * chosen_examples + image % examples]);
    let turn = choice % 4u32;
    let start = (choice / 4u32) as usize * values;
    let mut values_of_unit = Vector::<f32, N>::new(0.0f32);
    #[unroll]
    for lane in 0..N::value() {
        let at = unit % row * N::value() + lane;
        let channel = at / (height * width);
        let from = turned_place(at, turn, height, width);
        let value = f32::cast_from(bank_byte::<I>(bank, start + from, words));
        values_of_unit[lane] =
            value * channel_number(gains, channel) + channel_number(shifts, channel);
    }
    images[unit] = values_of_unit;
}
