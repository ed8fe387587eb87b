//! Images of a bank, read and changed on the host.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, TensorData};

use super::AugmentCall;
use crate::gather_images::reference::turned;

/// See [`augment_images`](crate::augment_images()).
pub fn augment_images<B: Backend>(
    bank: Tensor<B, 1, Int>,
    chosen: Tensor<B, 2, Int>,
    changes: Tensor<B, 3, Int>,
    call: &AugmentCall,
) -> Tensor<B, 5> {
    let device = bank.device();
    let [_, row, count] = changes.dims();
    let words: Vec<i32> = changes.into_data().iter::<i64>().map(|word| word as i32).collect();
    let mut images = turned(bank, chosen, &call.gather);
    let examples = call.gather.examples.clone();
    let places =
        call.gather.tasks.clone().flat_map(|task| examples.clone().map(move |n| task * row + n));
    for (image, place) in images.iter_mut().zip(places) {
        change(image, &words[place * count..][..count], call);
    }
    let pixels: Vec<f32> = images.iter().flat_map(|image| call.gather.scaled(image)).collect();
    Tensor::from_data(TensorData::new(pixels, call.gather.output()), (&device, DType::F32))
}

/// Makes the changes of these words.
fn change(image: &mut [u8], mut words: &[i32], call: &AugmentCall) {
    for kind in &call.kinds {
        let (of_kind, rest) = words.split_at(kind.words());
        words = rest;
        if let Some(change) = kind.decode(of_kind) {
            change.apply(image, call.gather.shape);
        }
    }
}
