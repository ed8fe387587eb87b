//! Changes of colours, each pixel by itself.

use cubecl::prelude::*;

use super::Size;
use super::hue::turned_hue;
use super::kernel::byte_of;
use super::moves::number;
use crate::augment_images::ChangeKind;
use crate::augment_images::pixels::color::WEIGHTS;
use crate::augment_images::words::{BRIGHTNESS, CONTRAST, HUE};
use crate::cube::cube_count;

/// A pixel of three channels.
#[cube]
pub fn pixel_of(red: u32, green: u32, blue: u32) -> u32 {
    red | (green << 8u32) | (blue << 16u32)
}

/// Luma in sixteen bits of fraction, to the nearest.
#[cube]
fn luma(pixel: u32) -> u32 {
    let (red, green, blue) =
        (byte_of(pixel, 0usize), byte_of(pixel, 1usize), byte_of(pixel, 2usize));
    let sum = comptime!(WEIGHTS[0]) * red
        + comptime!(WEIGHTS[1]) * green
        + comptime!(WEIGHTS[2]) * blue
        + 32768u32;
    sum >> 16u32
}

/// The grey of a pixel: luma of three channels, or the one channel.
#[cube]
fn grey_of(pixel: u32, #[comptime] size: Size) -> u32 {
    let mut grey = pixel & 255u32;
    if comptime!(size.channels == 3) {
        grey = luma(pixel);
    }
    grey
}

/// `from + factor * (to - from)`, without its fraction, within a byte. The product is rounded before the sum, as on the host:
/// a compiler may make one rounding of a product and a sum, but not of a fused sum with nothing.
#[cube]
fn blend(from: u32, to: u32, factor: f32) -> u32 {
    let (from, to) = (f32::cast_from(from), f32::cast_from(to));
    let value = from + fma(factor, to - from, 0.0f32);
    u32::cast_from(min(max(value, 0.0f32), 255.0f32))
}

/// Every channel blended with one value.
#[cube]
fn blended(pixel: u32, value: u32, factor: f32, #[comptime] size: Size) -> u32 {
    let channels = comptime!(size.channels);
    let mut result = 0u32;
    #[unroll]
    for channel in 0..channels {
        let byte = blend(value, byte_of(pixel, channel), factor);
        result = result | (byte << comptime!(8 * channel as u32));
    }
    result
}

/// The adjustment of these two words.
#[cube]
fn adjusted(pixel: u32, code: i32, amount: i32, mean: u32, #[comptime] size: Size) -> u32 {
    let mut result = pixel;
    let factor = f32::reinterpret(amount);
    if code == BRIGHTNESS {
        result = blended(pixel, 0u32, factor, size);
    } else if code == CONTRAST {
        result = blended(pixel, mean, factor, size);
    } else if comptime!(size.channels == 3) {
        if code == HUE {
            result = turned_hue(pixel, u32::cast_from(amount));
        } else {
            result = blended(pixel, luma(pixel), factor, size);
        }
    }
    result
}

/// The mean of the grey image, to the nearest, as it is before the contrast changes.
#[cube]
fn mean_before_contrast<K: Int>(
    changes: &Array<K>,
    numbers: usize,
    workspace: &mut Array<u32>,
    own: usize,
    #[comptime] adjustments: usize,
    #[comptime] size: Size,
) -> u32 {
    let units = comptime!(size.units);
    let pixels = comptime!(size.pixels());
    let mut sum = 0u32;
    let mut at = UNIT_POS as usize;
    while at < pixels {
        let mut pixel = workspace[own + at];
        let mut is_before = true;
        #[unroll]
        for adjustment in 0..adjustments {
            let code = number::<K>(changes, numbers + 2 * adjustment);
            if code == CONTRAST {
                is_before = false;
            }
            if is_before {
                let amount = number::<K>(changes, numbers + 2 * adjustment + 1);
                pixel = adjusted(pixel, code, amount, 0u32, size);
            }
        }
        sum += grey_of(pixel, size);
        at += comptime!(units as usize);
    }
    let sum = cube_count(sum, units);
    let count = comptime!(size.pixels() as u32);
    let mut mean = sum / count;
    if 2u32 * (sum % count) >= count {
        mean += 1u32;
    }
    mean
}

/// The image with its colours adjusted.
#[cube]
pub fn jittered<K: Int>(
    changes: &Array<K>,
    numbers: usize,
    workspace: &mut Array<u32>,
    own: usize,
    #[comptime] kind: ChangeKind,
    #[comptime] size: Size,
) {
    let adjustments = comptime!(kind.words() / 2);
    let pixels = comptime!(size.pixels());
    let mut mean = 0u32;
    if comptime!(matches!(kind, ChangeKind::Jitter { has_contrast: true, .. })) {
        mean = mean_before_contrast::<K>(changes, numbers, workspace, own, adjustments, size);
    }
    let mut at = UNIT_POS as usize;
    while at < pixels {
        let mut pixel = workspace[own + at];
        #[unroll]
        for adjustment in 0..adjustments {
            let code = number::<K>(changes, numbers + 2 * adjustment);
            let amount = number::<K>(changes, numbers + 2 * adjustment + 1);
            pixel = adjusted(pixel, code, amount, mean, size);
        }
        workspace[own + at] = pixel;
        at += comptime!(size.units as usize);
    }
}

/// The image in grey, if the change says so.
#[cube]
pub fn greyed<K: Int>(
    changes: &Array<K>,
    numbers: usize,
    workspace: &mut Array<u32>,
    own: usize,
    #[comptime] size: Size,
) {
    let pixels = comptime!(size.pixels());
    let becomes_grey = number::<K>(changes, numbers) != 0;
    let mut at = UNIT_POS as usize;
    while at < pixels {
        if becomes_grey {
            let grey = grey_of(workspace[own + at], size);
            workspace[own + at] = pixel_of(grey, grey, grey);
        }
        at += comptime!(size.units as usize);
    }
}
