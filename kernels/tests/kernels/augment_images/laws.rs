use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use fewshot_kernels::augment_images::{
    Adjustment, Change, ChangeKind, Rotation, Shift, Window, can_augment,
};
use fewshot_kernels::{AugmentCall, GatherCall, augment_images, gather_images};

use crate::judge::read;

/// Numbers that look random.
struct Draws(u64);

impl Draws {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % count
    }

    /// From 0 to `most`.
    fn share(&mut self, most: f32) -> f32 {
        self.below(1 << 24) as f32 / (1 << 24) as f32 * most
    }

    fn window(&mut self, [_, height, width]: [usize; 3]) -> Window {
        let [tall, wide] = [height, width].map(|side| 1 + self.below(side));
        let [top, left] = [self.below(height - tall + 1), self.below(width - wide + 1)];
        Window { top, left, height: tall, width: wide }
    }

    fn adjustments(&mut self, codes: &[usize]) -> Vec<Adjustment> {
        let first = self.below(codes.len());
        let turned = codes.iter().cycle().skip(first).take(codes.len());
        let adjustment = |code: &usize| match code {
            0 => Adjustment::Brightness(self.share(2.0)),
            1 => Adjustment::Contrast(self.share(2.0)),
            2 => Adjustment::Saturation(self.share(2.0)),
            _ => Adjustment::Hue(self.below(256) as u8),
        };
        turned.map(adjustment).collect()
    }

    fn change(&mut self, kind: ChangeKind, shape: [usize; 3]) -> Option<Change> {
        let happens = self.below(3) > 0;
        match kind {
            ChangeKind::Crop => Some(Change::Crop(self.window(shape))),
            ChangeKind::Shift => {
                let [down, right] = [0; 2].map(|_| self.below(31) as i32 - 15);
                Some(Change::Shift(Shift { down, right }))
            }
            ChangeKind::Flip => happens.then_some(Change::Flip),
            ChangeKind::Jitter { adjustments, has_contrast } => {
                let codes = if has_contrast { &[1, 0, 2, 3][..adjustments] } else { &[2, 3] };
                Some(Change::Jitter(self.adjustments(codes)))
            }
            ChangeKind::Grey => happens.then_some(Change::Grey),
            ChangeKind::Rotation => {
                let angle = f64::from(self.share(6.3));
                Some(Change::Rotation(Rotation { cos: angle.cos(), sin: angle.sin() }))
            }
            ChangeKind::Erasing => happens.then(|| Change::Erasing(self.window(shape))),
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

/// Four of a jitter; of one channel brightness and contrast.
fn jitter(shape: [usize; 3]) -> ChangeKind {
    let adjustments = if shape[0] == 3 { 4 } else { 2 };
    ChangeKind::Jitter { adjustments, has_contrast: true }
}

/// Images, changes drawn for them, and the bytes that the host makes.
struct Case<B: Backend> {
    bank: Tensor<B, 1, Int>,
    chosen: Tensor<B, 2, Int>,
    words: Tensor<B, 3, Int>,
    call: AugmentCall,
    expected: Vec<f32>,
}

impl<B: Backend> Case<B> {
    fn new(kinds: &[ChangeKind], shape: [usize; 3], [tasks, examples]: [usize; 2]) -> Self {
        let mut draws = Draws(shape.iter().sum::<usize>() as u64 + 7);
        let (images, values) = (3, shape.iter().product::<usize>());
        let mut bytes = draws.bytes(images * values);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let bank: Vec<i32> =
            bytes.chunks(4).map(|of| i32::from_le_bytes(of.try_into().unwrap())).collect();
        // Turns are those of gathering, and have their own law.
        let chosen: Vec<i32> = (0..tasks * examples).map(|at| 4 * (at % images) as i32).collect();
        let (mut words, mut expected) = (Vec::new(), Vec::new());
        for choice in &chosen {
            let mut image = bytes[*choice as usize / 4 * values..][..values].to_vec();
            for kind in kinds {
                let change = draws.change(*kind, shape);
                kind.encode(change.as_ref(), &mut words);
                if let Some(change) = change {
                    change.apply(&mut image, shape);
                }
            }
            expected.extend(image.into_iter().map(f32::from));
        }
        let device = Default::default();
        let gather = GatherCall {
            tasks: 0..tasks,
            examples: 0..examples,
            shape,
            gains: vec![1.0; shape[0]],
            shifts: vec![0.0; shape[0]],
        };
        let call = AugmentCall { gather, kinds: kinds.to_vec() };
        let count = bank.len();
        Self {
            bank: Tensor::from_data(TensorData::new(bank, [count]), &device),
            chosen: Tensor::from_data(TensorData::new(chosen, [tasks, examples]), &device),
            // CUDA takes no upload of nothing.
            words: match words.is_empty() {
                true => Tensor::empty([tasks, examples, 0], &device),
                false => Tensor::from_data(
                    TensorData::new(words, [tasks, examples, call.words()]),
                    &device,
                ),
            },
            call,
            expected,
        }
    }

    fn augmented(&self, call: &AugmentCall) -> Vec<f32> {
        let (bank, chosen) = (self.bank.clone(), self.chosen.clone());
        read(augment_images(bank, chosen, self.words.clone(), call))
    }

    /// Number of values that are a level off; none may be more.
    fn levels_off(&self) -> usize {
        let actual = self.augmented(&self.call);
        assert_eq!(actual.len(), self.expected.len());
        let off = actual.iter().zip(&self.expected).map(|(one, other)| (one - other).abs());
        let what = format!("{:?} of {:?}", self.call.kinds, self.call.gather.shape);
        let levels = off.inspect(|off| assert!(*off <= 1.0, "{off} levels off in {what}"));
        levels.filter(|off| *off > 0.0).count()
    }
}

const COLORED: [usize; 3] = [3, 9, 7];

pub fn each_change_is_that_of_bytes_on_the_host<B: Backend>() {
    for shape in [COLORED, [1, 6, 6], [1, 1, 1], [3, 5, 12]] {
        for kind in [
            ChangeKind::Crop,
            ChangeKind::Shift,
            ChangeKind::Flip,
            jitter(shape),
            ChangeKind::Grey,
            ChangeKind::Erasing,
            ChangeKind::Rotation,
        ] {
            if kind == ChangeKind::Grey && shape[0] != 3 {
                continue;
            }
            let off = Case::<B>::new(&[kind], shape, [2, 6]).levels_off();
            let allowed = if kind == ChangeKind::Rotation { 2 } else { 0 };
            assert!(off <= allowed, "{off} levels in {kind:?} of {shape:?}");
        }
    }
    // Channels that are no colours.
    let moves = [ChangeKind::Crop, ChangeKind::Flip, ChangeKind::Erasing];
    assert_eq!(Case::<B>::new(&moves, [4, 6, 5], [1, 6]).levels_off(), 0);
}

pub fn changes_follow_each_other<B: Backend>() {
    let jitter = jitter(COLORED);
    let (crop, flip, grey) = (ChangeKind::Crop, ChangeKind::Flip, ChangeKind::Grey);
    for kinds in [
        &[crop, jitter, flip][..],
        &[flip, ChangeKind::Shift, crop, ChangeKind::Erasing, flip],
        &[jitter, grey, ChangeKind::Erasing, jitter],
        &[ChangeKind::Erasing, jitter, crop, crop, grey, jitter, ChangeKind::Shift, flip],
    ] {
        assert_eq!(Case::<B>::new(kinds, COLORED, [2, 7]).levels_off(), 0);
    }
    let strong = [crop, jitter, flip, grey, ChangeKind::Rotation, ChangeKind::Erasing];
    assert!(Case::<B>::new(&strong, COLORED, [2, 7]).levels_off() <= 2);
}

pub fn colors_are_the_same_in_every_byte<B: Backend>() {
    let hues = ChangeKind::Jitter { adjustments: 2, has_contrast: false };
    assert_eq!(Case::<B>::new(&[hues], [3, 48, 50], [1, 12]).levels_off(), 0);
    assert_eq!(Case::<B>::new(&[jitter(COLORED)], [3, 48, 50], [1, 12]).levels_off(), 0);
}

pub fn any_tasks_and_examples_are_parts_of_all<B: Backend>() {
    let kinds = [ChangeKind::Crop, jitter(COLORED), ChangeKind::Flip];
    let case = Case::<B>::new(&kinds, COLORED, [3, 7]);
    let (gains, shifts) = (vec![0.5, -2.0, 1.0 / 255.0], vec![0.0, 1.5, -0.25]);
    let all = GatherCall { gains, shifts, ..case.call.gather.clone() };
    let values: usize = COLORED.iter().product();
    for (tasks, examples) in [(0..3, 0..7), (0..3, 2..7), (1..2, 0..7), (2..3, 3..4), (1..1, 0..7)]
    {
        let gather = GatherCall { tasks, examples, ..all.clone() };
        let part = AugmentCall { gather, kinds: kinds.to_vec() };
        let actual = case.augmented(&part);
        let GatherCall { tasks, examples, gains, shifts, .. } = part.gather;
        let places = tasks.flat_map(|task| examples.clone().map(move |example| task * 7 + example));
        let bytes: Vec<f32> =
            places.flat_map(|place| &case.expected[place * values..][..values]).copied().collect();
        assert_eq!(actual.len(), bytes.len());
        for (at, (actual, byte)) in actual.iter().zip(bytes).enumerate() {
            let channel = at / 63 % 3;
            let expected = byte * gains[channel] + shifts[channel];
            assert!((actual - expected).abs() <= 1e-6 * expected.abs().max(1.0), "{at}");
        }
    }
}

pub fn without_changes_images_are_gathered<B: Backend>() {
    let case = Case::<B>::new(&[], COLORED, [2, 3]);
    let plain = gather_images(case.bank.clone(), case.chosen.clone(), &case.call.gather);
    assert_eq!(read(plain), case.augmented(&case.call));
    assert_eq!(case.levels_off(), 0);
}

pub fn what_does_not_fit_is_refused<B: Backend>() {
    let case = Case::<B>::new(&[ChangeKind::Crop], COLORED, [2, 3]);
    let gather = &case.call.gather;
    let more = AugmentCall { kinds: vec![ChangeKind::Crop; 2], gather: gather.clone() };
    let beyond = AugmentCall {
        gather: GatherCall { examples: 2..4, ..gather.clone() },
        ..case.call.clone()
    };
    for wrong in [more, beyond] {
        let augment = || case.augmented(&wrong);
        assert!(catch_unwind(AssertUnwindSafe(augment)).is_err(), "{wrong:?}");
    }
    for (shape, can) in [([4, 4096, 1], true), ([5, 2, 2], false), ([1, 2, 4097], false)] {
        assert_eq!(can_augment(shape), can, "{shape:?}");
    }
}

pub fn a_rotation_is_within_a_level<B: Backend>() {
    let case = Case::<B>::new(&[ChangeKind::Rotation], [3, 130, 97], [1, 8]);
    let off = case.levels_off();
    assert!(off * 10_000 < case.expected.len(), "{off} of {}", case.expected.len());
}

pub fn a_large_image_has_the_mean_of_all_its_pixels<B: Backend>() {
    let kinds = [ChangeKind::Jitter { adjustments: 2, has_contrast: true }];
    assert_eq!(Case::<B>::new(&kinds, [1, 301, 260], [1, 3]).levels_off(), 0);
}

pub fn autodiff_augments_the_same<B: Backend>() {
    let case = Case::<B>::new(&[ChangeKind::Crop, jitter(COLORED)], COLORED, [1, 4]);
    let bank = Tensor::<Autodiff<B>, 1, Int>::from_inner(case.bank.clone());
    let (chosen, words) = (case.chosen.clone(), case.words.clone());
    let (chosen, words) = (Tensor::from_inner(chosen), Tensor::from_inner(words));
    let actual = augment_images(bank, chosen, words, &case.call);
    assert_eq!(read(actual), case.expected);
}
