//! Images from a bank of bytes, changed at random: an accelerator's augmentation.

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData};
use fewshot::kernels::augment_images::{Adjustment, Change, ChangeKind, Window};
use fewshot::kernels::{AugmentCall, GatherCall, augment_images};

use super::case::{Case, Load, Pass, Scale, sides};

/// Images in the bank.
const BANK: usize = 1000;

/// Images of an episode of 30-way 1-shot with 15 queries.
const EPISODE: ([usize; 3], usize) = ([3, 84, 84], 480);

/// Changes of the preset `standard`.
const KINDS: [ChangeKind; 3] =
    [ChangeKind::Crop, ChangeKind::Jitter { adjustments: 3, has_contrast: true }, ChangeKind::Flip];

pub(super) fn cases<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let sizes = scale.choose(vec![EPISODE], vec![([3, 12, 12], 10)]);
    sizes.into_iter().map(|size| case::<B::InnerBackend>(size, device)).collect()
}

fn case<B: Backend>((shape, images): ([usize; 3], usize), device: &B::Device) -> Case {
    let values: usize = shape.iter().product();
    let gather = GatherCall {
        tasks: 0..1,
        examples: 0..images,
        shape,
        gains: vec![1.0 / 255.0; shape[0]],
        shifts: vec![0.0; shape[0]],
    };
    let call = AugmentCall { gather, kinds: KINDS.to_vec() };
    let count = call.words();
    let make = move |device: &B::Device| {
        let words: Vec<i32> = (0..BANK * values / 4).map(|word| word as i32).collect();
        let chosen: Vec<i32> = (0..images).map(|place| 4 * (place * 7 % BANK) as i32).collect();
        let changes: Vec<i32> = (0..images).flat_map(|place| changes(place, shape)).collect();
        let (bank, chosen, changes) = (
            TensorData::new(words, [BANK * values / 4]),
            TensorData::new(chosen, [1, images]),
            TensorData::new(changes, [1, images, count]),
        );
        (
            Tensor::<B, 1, Int>::from_data(bank, device),
            Tensor::<B, 2, Int>::from_data(chosen, device),
            Tensor::<B, 3, Int>::from_data(changes, device),
        )
    };
    // A byte is read and a float written.
    let load = Load::Bytes((5 * images * values) as f64);
    let (names, shape) = (["augment_images", "standard"], format!("{images} of {}", sides(shape)));
    let pass = (Pass::Forward, load);
    Case::new::<B, _>(names, shape, pass, device, make, move |(bank, chosen, changes)| {
        augment_images(bank.clone(), chosen.clone(), changes.clone(), &call);
    })
}

/// The words of the changes of an image.
fn changes(place: usize, [_, height, width]: [usize; 3]) -> Vec<i32> {
    let (top, left) = (place % (height / 2), place % (width / 3));
    let window = Window { top, left, height: height / 2, width: 2 * width / 3 };
    let factor = 0.6 + 0.8 * (place % 11) as f32 / 10.0;
    let mut adjustments = vec![
        Adjustment::Brightness(factor),
        Adjustment::Contrast(2.0 - factor),
        Adjustment::Saturation(factor),
    ];
    adjustments.rotate_left(place % 3);
    let flip = place.is_multiple_of(2).then_some(Change::Flip);
    let drawn = [Some(Change::Crop(window)), Some(Change::Jitter(adjustments)), flip];
    let mut words = Vec::new();
    for (kind, change) in KINDS.iter().zip(drawn) {
        kind.encode(change.as_ref(), &mut words);
    }
    words
}
