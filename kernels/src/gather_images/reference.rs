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
    let images = turned(bank, chosen, call);
    let pixels: Vec<f32> = images.iter().flat_map(|image| call.scaled(image)).collect();
    Tensor::from_data(TensorData::new(pixels, call.output()), (&device, DType::F32))
}

/// The bytes of the images that are gathered, turned.
pub(crate) fn turned<B: Backend>(
    bank: Tensor<B, 1, Int>,
    chosen: Tensor<B, 2, Int>,
    call: &GatherCall,
) -> Vec<Vec<u8>> {
    let GatherCall { tasks, examples, shape, .. } = call;
    let values: usize = shape.iter().product();
    let words = bank.into_data();
    let bytes: Vec<u8> = words.iter::<i64>().flat_map(|word| (word as i32).to_le_bytes()).collect();
    let [_, row] = chosen.dims();
    let chosen: Vec<usize> =
        chosen.into_data().iter::<i64>().map(|choice| choice as usize).collect();
    let places = places(*shape);
    let choices = tasks.clone().flat_map(|task| &chosen[task * row..][examples.clone()]);
    let image = |choice: &usize| {
        let (image, turn) = (choice / 4, choice % 4);
        let image = &bytes[image * values..];
        places[turn * values..][..values].iter().map(|&from| image[from]).collect()
    };
    choices.map(image).collect()
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
