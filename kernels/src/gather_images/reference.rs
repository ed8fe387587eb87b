//! Images of a bank, read and turned on the host: no two backends have the same operations on bits.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, TensorData};

use super::GatherCall;

/// See [`gather_images`](crate::gather_images()).
pub fn gather_images<B: Backend>(
    bank: Tensor<B, 1, Int>,
    chosen: Tensor<B, 2, Int>,
    call: &GatherCall,
) -> Tensor<B, 5> {
    let device = bank.device();
    let GatherCall { tasks, examples, shape, gains, shifts } = call;
    let [c, h, w] = *shape;
    let words = bank.into_data();
    let bytes: Vec<u8> = words.iter::<i64>().flat_map(|word| (word as i32).to_le_bytes()).collect();
    let [_, row] = chosen.dims();
    let chosen: Vec<usize> =
        chosen.into_data().iter::<i64>().map(|choice| choice as usize).collect();
    let places = places(*shape);
    let mut pixels = Vec::new();
    for choice in tasks.clone().flat_map(|task| &chosen[task * row..][examples.clone()]) {
        let (image, turn) = (choice / 4, choice % 4);
        let image = &bytes[image * c * h * w..];
        let turned = &places[turn * c * h * w..][..c * h * w];
        let value = |(at, &from): (usize, &usize)| {
            let channel = at / (h * w);
            f32::from(image[from]) * gains[channel] + shifts[channel]
        };
        pixels.extend(turned.iter().enumerate().map(value));
    }
    Tensor::from_data(TensorData::new(pixels, call.output()), (&device, DType::F32))
}

/// The place in an image of each value of the turned one, for each of the four turns.
fn places([c, h, w]: [usize; 3]) -> Vec<usize> {
    let from = |turn: usize, at: usize| {
        let (channel, row, column) = (at / (h * w), at / w % h, at % w);
        let (row, column) = match turn {
            1 if h == w => (column, w - 1 - row),
            2 if h == w => (h - 1 - row, w - 1 - column),
            3 if h == w => (h - 1 - column, row),
            _ => (row, column),
        };
        (channel * h + row) * w + column
    };
    (0..4).flat_map(|turn| (0..c * h * w).map(move |at| from(turn, at))).collect()
}
