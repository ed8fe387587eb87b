//! Adjustments of colours.

use super::hue::shift_hue;

/// A change of brightness, contrast, saturation or hue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Adjustment {
    /// A blend with black, in which the image has this share.
    Brightness(f32),
    /// A blend with the mean of the grey image.
    Contrast(f32),
    /// A blend with the grey image.
    Saturation(f32),
    /// A shift of the hue, in steps of 256 around the colour circle.
    Hue(u8),
}

/// Adjusts an image.
pub fn adjust(adjustment: Adjustment, image: &mut [u8], shape: [usize; 3]) {
    match adjustment {
        Adjustment::Brightness(factor) => blend_with(0, factor, image),
        Adjustment::Contrast(factor) => blend_with(mean_of_grey(image, shape), factor, image),
        Adjustment::Saturation(factor) => blend_with_grey(factor, image),
        Adjustment::Hue(shift) => shift_hue(shift, image),
    }
}

/// Makes all three channels the grey image.
pub fn make_grey(image: &mut [u8]) {
    let [reds, greens, blues] = channels(image);
    for ((red, green), blue) in reds.iter_mut().zip(greens).zip(blues) {
        let grey = grey_of(*red, *green, *blue);
        (*red, *green, *blue) = (grey, grey, grey);
    }
}

/// Planes of red, green and blue.
pub fn channels(image: &mut [u8]) -> [&mut [u8]; 3] {
    let plane = image.len() / 3;
    let (red, others) = image.split_at_mut(plane);
    let (green, blue) = others.split_at_mut(plane);
    [red, green, blue]
}

/// Shares of red, green and blue in a grey: luma of ITU-R BT.601 in sixteen bits of fraction.
pub const WEIGHTS: [u32; 3] = [19_595, 38_470, 7_471];

/// The grey, to the nearest.
fn grey_of(red: u8, green: u8, blue: u8) -> u8 {
    let [red, green, blue] = [red, green, blue].map(u32::from);
    ((WEIGHTS[0] * red + WEIGHTS[1] * green + WEIGHTS[2] * blue + (1 << 15)) >> 16) as u8
}

/// `from + factor * (to - from)`, without its fraction, within a byte.
fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let (from, to) = (f32::from(from), f32::from(to));
    (from + factor * (to - from)) as u8
}

/// Blends every byte with one value.
fn blend_with(value: u8, factor: f32, image: &mut [u8]) {
    let table: [u8; 256] = std::array::from_fn(|byte| blend(value, byte as u8, factor));
    image.iter_mut().for_each(|byte| *byte = table[usize::from(*byte)]);
}

fn blend_with_grey(factor: f32, image: &mut [u8]) {
    let [reds, greens, blues] = channels(image);
    for ((red, green), blue) in reds.iter_mut().zip(greens).zip(blues) {
        let grey = grey_of(*red, *green, *blue);
        *red = blend(grey, *red, factor);
        *green = blend(grey, *green, factor);
        *blue = blend(grey, *blue, factor);
    }
}

/// Mean of the grey image, to the nearest.
fn mean_of_grey(image: &mut [u8], [colors, height, width]: [usize; 3]) -> u8 {
    let pixels = height * width;
    let sum: u64 = match colors {
        3 => {
            let [reds, greens, blues] = channels(image);
            let planes = reds.iter().zip(&*greens).zip(&*blues);
            planes.map(|((&red, &green), &blue)| u64::from(grey_of(red, green, blue))).sum()
        }
        _ => image.iter().map(|&byte| u64::from(byte)).sum(),
    };
    (sum as f64 / pixels as f64 + 0.5) as u8
}
