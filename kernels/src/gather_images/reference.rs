//! Images of a bank in plain Burn operations.

use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Int, Tensor, TensorData};

use super::GatherCall;

/// See [`gather_images`](crate::gather_images()).
pub fn gather_images<B: Backend>(
    bank: Tensor<B, 1, Int>,
    chosen: Tensor<B, 2, Int>,
    call: &GatherCall,
) -> Tensor<B, 5> {
    let device = bank.device();
    let GatherCall { tasks, examples, shape: [c, h, w], gains, shifts } = call;
    let (images, values) = (tasks.len() * examples.len(), c * h * w);
    let chosen = chosen.slice([tasks.clone(), examples.clone()]).reshape([images]);
    let turns = chosen.clone().remainder_scalar(4);
    let first = (chosen - turns.clone()).div_scalar(4).mul_scalar(values as i64);
    let from = TensorData::new(places(call.shape), [4, values]);
    let from = Tensor::<B, 2, Int>::from_data(from, &device).select(0, turns);
    let from = from + first.reshape([images, 1]);
    let pixels = bytes(bank).select(0, from.reshape([images * values])).float();
    let by_channel = |of: &[f32]| {
        Tensor::<B, 1>::from_floats(of, &device).cast(FloatDType::F32).reshape([1, 1, *c, 1, 1])
    };
    let pixels = pixels.cast(FloatDType::F32).reshape(call.output());
    pixels * by_channel(gains) + by_channel(shifts)
}

/// The bytes of words, the lowest first. The remainder of a negative word is its lowest byte too.
fn bytes<B: Backend>(words: Tensor<B, 1, Int>) -> Tensor<B, 1, Int> {
    let [count] = words.dims();
    let mut left = words;
    let bytes = (0..4).map(|_| {
        let lowest = left.clone().remainder_scalar(256);
        left = (left.clone() - lowest.clone()).div_scalar(256);
        lowest
    });
    Tensor::stack::<2>(bytes.collect(), 1).reshape([4 * count])
}

/// Which value of an image each value of the turned one is, for each of the four turns.
fn places([c, h, w]: [usize; 3]) -> Vec<i32> {
    let from = |turn: usize, at: usize| {
        let (channel, row, column) = (at / (h * w), at / w % h, at % w);
        let (row, column) = match turn {
            1 if h == w => (column, w - 1 - row),
            2 if h == w => (h - 1 - row, w - 1 - column),
            3 if h == w => (h - 1 - column, row),
            _ => (row, column),
        };
        ((channel * h + row) * w + column) as i32
    };
    (0..4).flat_map(|turn| (0..c * h * w).map(move |at| from(turn, at))).collect()
}
