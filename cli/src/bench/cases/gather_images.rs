//! Images gathered from a bank of bytes: an accelerator's data loading.

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};
use fewshot::kernels::{GatherCall, gather_images};

use super::case::{Case, Load, Pass, Scale, sides};

/// Images in the bank.
const BANK: usize = 1000;

/// Images of an episode of 60-way 1-shot with 5 queries, and of 30-way 1-shot with 15.
const EPISODES: [([usize; 3], usize); 2] = [([1, 28, 28], 360), ([3, 84, 84], 480)];

pub(super) fn cases<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let sizes = scale.choose(EPISODES.to_vec(), vec![([1, 28, 28], 10)]);
    sizes.into_iter().map(|size| case::<B::InnerBackend>(size, device)).collect()
}

fn case<B: Backend>((shape, images): ([usize; 3], usize), device: &B::Device) -> Case {
    let values: usize = shape.iter().product();
    let call = GatherCall {
        tasks: 0..1,
        examples: 0..images,
        shape,
        gains: vec![1.0 / 255.0; shape[0]],
        shifts: vec![0.0; shape[0]],
    };
    let make = move |device: &B::Device| {
        let words: Vec<i32> = (0..BANK * values / 4).map(|word| word as i32).collect();
        let chosen = (0..images).map(|place| (4 * (place * 7 % BANK) + place % 4) as i32);
        let bank = TensorData::new(words, [BANK * values / 4]);
        let chosen = TensorData::new(chosen.collect::<Vec<_>>(), [1, images]);
        (Tensor::<B, 1, Int>::from_data(bank, device), Tensor::from_data(chosen, device))
    };
    // A byte is read and a float written.
    let load = Load::Bytes((5 * images * values) as f64);
    let (names, shape) = (["gather_images", "turned"], format!("{images} of {}", sides(shape)));
    Case::new::<B, _>(names, shape, (Pass::Forward, load), device, make, move |(bank, chosen)| {
        gather_images(bank.clone(), chosen.clone(), &call);
    })
}
