use std::fs;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fewshot_kernels::augment_images::{Adjustment, Shift};
use serde_json::Value;

use super::color::ADJUSTMENTS;
use super::rotation::rotation_of;
use super::*;

const GREY: ImageShape = ImageShape::new(1, 17, 23);
const COLORED: ImageShape = ImageShape::new(3, 17, 23);

/// The picture of `tests/golden/augment.py`.
fn picture(shape: ImageShape) -> Vec<u8> {
    let plane = shape.height * shape.width;
    let value = |place: usize| {
        let (channel, y, x) = (place / plane, place % plane / shape.width, place % shape.width);
        match (x + y) % 7 {
            0 => 40 * (x % 6),
            _ => x * x * (channel + 1) + y * (11 + 6 * channel) + if x > y { 90 } else { 0 },
        }
    };
    (0..shape.values()).map(|place| value(place) as u8).collect()
}

/// The part of a golden case, made with the numbers that were drawn for it.
fn made(case: &Value, shape: ImageShape) -> Vec<u8> {
    let mut image = picture(shape);
    let draws = case["draws"].as_array().unwrap();
    let number = |place: usize| draws[place].as_u64().unwrap() as usize;
    let window = || {
        let [top, left, height, width] = [0, 1, 2, 3].map(number);
        Window { top, left, height, width }
    };
    let change = match case["part"].as_str().unwrap() {
        "crop" => Change::Crop(window()),
        "erase" => Change::Erasing(window()),
        "pad" => {
            let [padding, top, left] = [0, 1, 2].map(|place| number(place) as i32);
            Change::Shift(Shift { down: top - padding, right: left - padding })
        }
        "rotate" => Change::Rotation(rotation_of(draws[0].as_f64().unwrap())),
        "hflip" => Change::Flip,
        "grey" => Change::Grey,
        _ => Change::Jitter(draws.iter().map(adjustment).collect()),
    };
    change.apply(&mut image, sides(shape));
    image
}

fn adjustment(drawn: &Value) -> Adjustment {
    let names = ["brightness", "contrast", "saturation", "hue"];
    let place = names.iter().position(|name| drawn[0] == *name).unwrap();
    ADJUSTMENTS[place](drawn[1].as_f64().unwrap())
}

#[test]
fn pixels_are_those_of_torchvision() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/augment.json");
    let golden: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 70);
    for case in cases {
        let shape = if case["channels"] == 1 { GREY } else { COLORED };
        let expected = BASE64_STANDARD.decode(case["pixels"].as_str().unwrap()).unwrap();
        let actual = made(case, shape);
        assert_eq!(actual.len(), expected.len());
        let off: Vec<_> = actual.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).collect();
        let (most, sum) = (off.iter().max(), off.iter().map(|off| f64::from(*off)).sum::<f64>());
        let name = format!("{} of {} {}", case["part"], case["channels"], case["draws"]);
        assert!(most <= Some(&1), "{name}: {most:?}");
        assert!(sum < 0.02 * off.len() as f64, "{name}: {sum} of {}", off.len());
    }
}

/// Parts that surely change an image, as they are written.
const PARTS: [&str; 7] =
    ["crop", "pad=8", "flip=1", "jitter=0.4:0.4:0.4:0.1", "grey=1", "rotate", "erase=1"];

fn augmentation(text: &str, shape: ImageShape) -> Augmentation {
    text.parse::<AugmentSpec>().unwrap().for_image(shape).unwrap()
}

fn augmented(text: &str, shape: ImageShape, seed: u64, index: [u64; 2]) -> Vec<u8> {
    let mut image = picture(shape);
    augmentation(text, shape).apply(&mut image, shape, seed, index);
    image
}

#[test]
fn an_image_depends_on_seed_and_index_alone() {
    for part in PARTS {
        let first = augmented(part, COLORED, 3, [5, 7]);
        assert_eq!(first, augmented(part, COLORED, 3, [5, 7]), "{part}");
        assert_ne!(first, picture(COLORED), "{part}");
        if ["flip=1", "grey=1"].contains(&part) {
            continue;
        }
        for (seed, index) in [(4, [5, 7]), (3, [6, 7]), (3, [5, 8])] {
            assert_ne!(first, augmented(part, COLORED, seed, index), "{part} {seed} {index:?}");
        }
    }
}

#[test]
fn parts_without_strength_change_nothing() {
    for part in ["crop=1", "pad=0", "flip=0", "jitter=0", "grey=0", "rotate=0", "erase=0"] {
        let is_crop = part == "crop=1";
        for index in 0..if is_crop { 1 } else { 20 } {
            let mut whole = augmentation(part, COLORED);
            if let AugmentStep::ResizedCrop(crop) = &mut whole.steps[0] {
                crop.ratio = [23.0 / 17.0; 2];
            }
            let mut image = picture(COLORED);
            whole.apply(&mut image, COLORED, 1, [0, index]);
            assert_eq!(image, picture(COLORED), "{part}");
        }
    }
}

#[test]
fn parts_follow_each_other_in_their_order() {
    let zeros = |text| {
        let image = augmented(text, COLORED, 1, [0, 0]);
        image.iter().filter(|byte| **byte == 0).count()
    };
    assert!(zeros("jitter=0.9:0,erase=1") > zeros("jitter=0.9:0"));
    let black = |text| {
        let image = augmented(text, COLORED, 1, [0, 0]);
        // Turned after it was erased, the window is no longer along rows.
        image.chunks(23).filter(|row| row.iter().filter(|byte| **byte == 0).count() > 4).count()
    };
    assert_ne!(black("rotate=180,erase=1"), black("erase=1,rotate=180"));
}

#[test]
fn windows_have_the_areas_and_ratios_of_their_part() {
    let shape = ImageShape::new(1, 64, 64);
    let mut random = Stream::new(0, Purpose::Augmentation, [0, 0]);
    let crop = ResizedCrop { scale: [0.2, 0.5], ratio: [0.5, 2.0] };
    let mut areas = Vec::new();
    for _ in 0..2000 {
        let Window { top, left, height, width } = crop.draw(shape, &mut random);
        assert!(top + height <= 64 && left + width <= 64);
        let ratio = width as f64 / height as f64;
        assert!((0.46..2.2).contains(&ratio), "{ratio}");
        areas.push((height * width) as f64 / 4096.0);
    }
    let mean = areas.iter().sum::<f64>() / 2000.0;
    assert!(areas.iter().all(|area| (0.18..0.53).contains(area)));
    assert!((mean - 0.35).abs() < 0.01, "{mean}");
    let erasing = RandomErasing { probability: 0.25, ..RandomErasing::default() };
    let erased = (0..2000).filter(|_| erasing.draw(shape, &mut random).is_some()).count();
    assert!((440..560).contains(&erased), "{erased}");
}

#[test]
fn a_crop_that_never_fits_is_the_middle() {
    let mut random = Stream::new(0, Purpose::Augmentation, [0, 0]);
    let line = ImageShape::new(1, 4, 100);
    let window = ResizedCrop { scale: [1.0, 1.0], ..Default::default() }.draw(line, &mut random);
    // As wide as 4/3 of the height.
    assert_eq!(window, Window { top: 0, left: 47, height: 4, width: 5 });
    let mut image = picture(line);
    augmentation("crop", line).apply(&mut image, line, 1, [0, 0]);
}

#[test]
fn jitter_draws_every_order_and_keeps_to_its_strengths() {
    let mut random = Stream::new(2, Purpose::Augmentation, [0, 0]);
    let jitter = ColorJitter { brightness: 0.4, contrast: 1.5, saturation: 0.0, hue: 0.1 };
    let mut orders = Vec::new();
    for _ in 0..400 {
        let drawn = jitter.draw(&mut random);
        assert_eq!(drawn.len(), 3);
        for adjustment in &drawn {
            let is_within = match adjustment {
                Adjustment::Brightness(factor) => (0.6..1.4).contains(factor),
                Adjustment::Contrast(factor) => (0.0..2.5).contains(factor),
                Adjustment::Hue(shift) => (-25..=25).contains(&shift.cast_signed()),
                Adjustment::Saturation(_) => panic!("it has no strength"),
            };
            assert!(is_within, "{adjustment:?}");
        }
        let order: Vec<_> = drawn.iter().map(std::mem::discriminant).collect();
        if !orders.contains(&order) {
            orders.push(order);
        }
    }
    assert_eq!(orders.len(), 6);
}

#[test]
fn presets_are_for_images_of_every_kind() {
    for shape in [GREY, COLORED, ImageShape::new(3, 84, 84), ImageShape::new(1, 1, 1)] {
        for preset in Preset::ALL {
            assert_eq!(preset.to_string().parse(), Ok(preset));
            let augmentation = preset.for_image(shape);
            assert_eq!(augmentation.check(shape), Ok(()), "{preset} of {shape}");
            assert_eq!(augmentation.is_empty(), preset == Preset::None);
            let mut image = picture(shape);
            (0..9).for_each(|index| augmentation.apply(&mut image, shape, 1, [0, index]));
            let json = serde_json::to_string(&augmentation).unwrap();
            assert_eq!(serde_json::from_str::<Augmentation>(&json).unwrap(), augmentation);
        }
    }
    let padded = |side| PaddedCrop::for_image(ImageShape::new(3, side, side)).padding;
    assert_eq!([28, 32, 84, 224].map(padded), [4, 4, 8, 22]);
}

#[test]
fn a_list_is_read_as_it_is_written() {
    let shape = ImageShape::new(3, 84, 84);
    let read = augmentation("crop=0.2,jitter=0.3:0.2,pad=5,grey,rotate=30,flip,erase=0.1", shape);
    let jitter = ColorJitter { brightness: 0.3, contrast: 0.2, ..Default::default() };
    let erasing = RandomErasing { probability: 0.1, ..Default::default() };
    assert_eq!(
        read.steps,
        [
            AugmentStep::ResizedCrop(ResizedCrop { scale: [0.2, 1.0], ..Default::default() }),
            AugmentStep::Jitter(jitter),
            AugmentStep::PaddedCrop(PaddedCrop { padding: 5 }),
            AugmentStep::Grey(RandomGrey::default()),
            AugmentStep::Rotation(RandomRotation { degrees: 30.0 }),
            AugmentStep::Flip(HorizontalFlip::default()),
            AugmentStep::Erasing(erasing),
        ]
    );
    let standard = Preset::Standard.for_image(shape);
    let with_more = augmentation("standard,erase=0.1", shape);
    assert_eq!(with_more.steps[..3], standard.steps);
    assert_eq!(with_more.steps[3], AugmentStep::Erasing(erasing));
    // Strengths of all that images of one channel have.
    let grey = augmentation("jitter=0.3", GREY).steps;
    assert_eq!(
        grey,
        [AugmentStep::Jitter(ColorJitter { saturation: 0.0, ..ColorJitter::even(0.3, GREY) })]
    );
}

#[test]
fn mistakes_are_named() {
    let refused = |text: &str, shape| {
        let spec = text.parse::<AugmentSpec>();
        spec.and_then(|spec| spec.for_image(shape)).unwrap_err().to_string()
    };
    for (text, expected) in [
        ("standart", "\"standart\" is no augmentation"),
        ("standard=2", "\"standard\" is no augmentation"),
        ("", "\"\" is no augmentation"),
        ("flip=x", "flip=x: write a probability, as 0.5"),
        ("flip=2", "flip: a probability is from 0 to 1, not 2"),
        ("flip=nan", "flip: a probability is from 0 to 1, not NaN"),
        ("crop=0", "crop: a share of the area is an interval above 0 and up to 1, not 0 to 1"),
        ("pad=1.5", "pad=1.5: write whole pixels, as 8"),
        ("pad=99999", "pad: the border is from 0 to 65535 pixels, not 99999"),
        ("jitter=1:2:3:4:5", "jitter=1:2:3:4:5: write a strength"),
        ("jitter=-1", "jitter: the strength of brightness is a number from 0 on, not -1"),
        ("jitter=0:0:0:0.6", "jitter: the shift of hue is from 0 to 0.5, not 0.6"),
        ("rotate=400", "rotate: the greatest angle is from 0 to 180 degrees, not 400"),
        ("none,flip", "none must be alone"),
        ("flip,standard", "standard must be the first in the list"),
    ] {
        let error = refused(text, COLORED);
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    for text in ["grey", "jitter=0:0:0.1", "jitter=0:0:0:0.1"] {
        let error = refused(text, GREY);
        assert!(error.ends_with("changes colours, and images of 1x17x23 have none"), "{error}");
    }
}
