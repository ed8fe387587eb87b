use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use fewshot_kernels::{GatherCall, gather_images, largest_bank, with_reference};

use crate::judge::read;

/// Bytes of `images`, 0 and 255 and the bit of a sign among them.
fn pixels(images: usize, shape: [usize; 3]) -> Vec<u8> {
    let values = images * shape.iter().product::<usize>();
    (0..values).map(|at| [0, 255, 128, 127, 1][at % 5] ^ (at / 5 * 37 % 256) as u8).collect()
}

fn bank<B: Backend>(pixels: &[u8]) -> Tensor<B, 1, Int> {
    let words = pixels.chunks(4).map(|bytes| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        i32::from_le_bytes(word)
    });
    let words: Vec<i32> = words.collect();
    let shape = [words.len()];
    Tensor::from_data(TensorData::new(words, shape), &Default::default())
}

fn call([c, h, w]: [usize; 3], [tasks, examples]: [usize; 2]) -> GatherCall {
    let (gains, shifts) = ([0.5, -2.0, 1.0 / 255.0], [0.0, 1.5, -0.25]);
    GatherCall {
        tasks: 0..tasks,
        examples: 0..examples,
        shape: [c, h, w],
        gains: gains[..c].to_vec(),
        shifts: shifts[..c].to_vec(),
    }
}

fn chosen<B: Backend>(images: usize, [tasks, examples]: [usize; 2]) -> Tensor<B, 2, Int> {
    let numbers: Vec<i32> =
        (0..tasks * examples).map(|place| (4 * (place * 7 % images) + place % 4) as i32).collect();
    Tensor::from_data(TensorData::new(numbers, [tasks, examples]), &Default::default())
}

/// By the definition: a quarter turn to the left, so often.
fn expected(pixels: &[u8], images: usize, count: usize, call: &GatherCall) -> Vec<f32> {
    let [c, h, w] = call.shape;
    let mut found = Vec::new();
    for place in 0..count {
        let (image, turns) = (place * 7 % images, if h == w { place % 4 } else { 0 });
        for (channel, plane) in pixels[image * c * h * w..][..c * h * w].chunks(h * w).enumerate() {
            let mut plane = plane.to_vec();
            for _ in 0..turns {
                let turned = |at: usize| plane[at % w * w + w - 1 - at / w];
                plane = (0..h * w).map(turned).collect();
            }
            let scale = |byte| call.gains[channel] * f32::from(byte) + call.shifts[channel];
            found.extend(plane.into_iter().map(scale));
        }
    }
    found
}

fn assert_same(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        // A product and a sum may be rounded once or twice.
        let close = (found - expected).abs() <= 1e-6 * expected.abs().max(1.0);
        assert!(close, "{what}: {found}, not {expected}, at {at}");
    }
}

pub fn images_are_the_bytes_of_the_bank_turned_and_scaled<B: Backend>() {
    let sizes = [[1, 28, 28], [1, 5, 5], [3, 7, 7], [1, 1, 1], [3, 4, 6], [1, 3, 2], [2, 8, 8]];
    for shape in sizes {
        for size in [[1, 1], [1, 9], [3, 5]] {
            let images = 6;
            let pixels = pixels(images, shape);
            let call = call(shape, size);
            let gather = || gather_images(bank::<B>(&pixels), chosen(images, size), &call);
            let what = format!("{size:?} of {shape:?}");
            let (found, by_reference) = (gather(), with_reference(gather));
            assert_eq!(found.dims(), [size[0], size[1], shape[0], shape[1], shape[2]]);
            let expected = expected(&pixels, images, size[0] * size[1], &call);
            assert_same(&what, &read(found), &expected);
            assert_same(&format!("{what}, reference"), &read(by_reference), &expected);
        }
    }
}

pub fn any_tasks_and_examples_are_parts_of_all<B: Backend>() {
    let (shape, size) = ([1, 5, 5], [3, 7]);
    let (bank, chosen) = (bank::<B>(&pixels(6, shape)), chosen::<B>(6, size));
    let all = gather_images(bank.clone(), chosen.clone(), &call(shape, size));
    for (tasks, examples) in [(0..3, 0..2), (0..3, 2..7), (1..2, 0..7), (2..3, 3..4)] {
        let part = GatherCall { tasks, examples, ..call(shape, size) };
        let found = gather_images(bank.clone(), chosen.clone(), &part);
        let whole = all.clone().slice([part.tasks, part.examples]);
        assert_eq!(read(found), read(whole * 1.0));
    }
}

pub fn no_images_are_gathered_of_none<B: Backend>() {
    let (shape, size) = ([1, 5, 5], [2, 3]);
    let (bank, chosen) = (bank::<B>(&pixels(6, shape)), chosen::<B>(6, size));
    for (tasks, examples) in [(0..0, 0..3), (0..2, 1..1)] {
        let none = GatherCall { tasks, examples, ..call(shape, size) };
        let found = gather_images(bank.clone(), chosen.clone(), &none);
        assert_eq!(found.dims(), [none.tasks.len(), none.examples.len(), 1, 5, 5]);
    }
}

pub fn what_was_not_chosen_is_refused<B: Backend>() {
    let (shape, size) = ([1, 5, 5], [2, 3]);
    let (bank, chosen) = (bank::<B>(&pixels(6, shape)), chosen::<B>(6, size));
    let beyond = GatherCall { examples: 2..4, ..call(shape, size) };
    let unscaled = GatherCall { gains: Vec::new(), ..call(shape, size) };
    for wrong in [beyond, unscaled] {
        let gather = || gather_images(bank.clone(), chosen.clone(), &wrong);
        assert!(catch_unwind(AssertUnwindSafe(gather)).is_err(), "{wrong:?}");
    }
}

pub fn an_accelerator_has_a_body_of_its_own_and_a_limit<B: Backend>() {
    let most = largest_bank::<B>(&Default::default()).expect("a body");
    assert!(most >= 1 << 20 && most <= u64::from(u32::MAX), "{most}");
    assert_eq!(with_reference(|| largest_bank::<B>(&Default::default())), None);
}

pub fn autodiff_gathers_the_same<B: Backend>() {
    let (shape, size) = ([1, 7, 7], [2, 3]);
    let (bank, chosen, call) = (bank::<B>(&pixels(6, shape)), chosen(6, size), call(shape, size));
    let plain = gather_images(bank.clone(), chosen.clone(), &call);
    let bank = Tensor::<Autodiff<B>, 1, Int>::from_inner(bank);
    let found = gather_images(bank, Tensor::from_inner(chosen), &call);
    assert_eq!(read(found), read(plain));
}
