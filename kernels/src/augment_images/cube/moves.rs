//! Changes that move pixels or erase them.

use cubecl::prelude::*;

use super::Size;
use super::kernel::byte_of;
use crate::augment_images::words::FRACTION;

/// One in the weights of a resized image, which have fourteen bits of fraction.
const ONE: u32 = 1 << 14;

/// Bits of fraction of a turned place: one more, since places are counted in half pixels.
const PLACE: u32 = FRACTION + 1;

/// A word of a change.
#[cube]
pub fn number<K: Int>(changes: &Array<K>, at: usize) -> i32 {
    i32::cast_from(changes[at])
}

/// A word of a change that is a place or a length, at most `most`.
#[cube]
fn length<K: Int>(changes: &Array<K>, at: usize, #[comptime] most: usize) -> usize {
    min(u32::cast_from(changes[at]) as usize, most)
}

/// Two pixels side by side, and the weight of the second.
#[derive(CubeType, Clone, Copy)]
struct Pair {
    first: usize,
    second: usize,
    weight: u32,
}

/// The pixels of a window's side that pixel `at` of the resized image lies between. A window is no longer than the image, so
/// that the triangle covers two of its pixels and its weights are whole numbers over `2 * whole`.
#[cube]
fn pair(at: usize, side: usize, #[comptime] whole: usize) -> Pair {
    let parts = comptime!(2 * whole);
    // One pixel to the right of the first, so that it is never negative.
    let place = (2 * at + 1) * side + whole;
    let after = place / parts;
    let weight =
        ((place % parts) as u32 * ONE + comptime!(whole as u32)) / comptime!(2 * whole as u32);
    let mut first = after;
    if after > 0 {
        first = after - 1;
    }
    Pair { first: min(first, side - 1), second: min(after, side - 1), weight }
}

/// The blend of two pixels, each channel rounded to the nearest byte.
#[cube]
fn between(one: u32, other: u32, weight: u32, #[comptime] size: Size) -> u32 {
    let channels = comptime!(size.channels);
    let mut blend = 0u32;
    #[unroll]
    for channel in 0..channels {
        let sum = byte_of(one, channel) * (ONE - weight) + byte_of(other, channel) * weight;
        blend = blend | (((sum + ONE / 2) / ONE) << comptime!(8 * channel as u32));
    }
    blend
}

/// A window, resized to the whole image.
#[cube]
pub fn cropped<K: Int>(
    changes: &Array<K>,
    numbers: usize,
    workspace: &mut Array<u32>,
    from: usize,
    to: usize,
    #[comptime] size: Size,
) {
    let Size { height, width, units, .. } = comptime!(size);
    let pixels = comptime!(size.pixels());
    let top = length::<K>(changes, numbers, comptime!(size.height - 1));
    let left = length::<K>(changes, numbers + 1, comptime!(size.width - 1));
    let tall = max(min(length::<K>(changes, numbers + 2, height), height - top), 1usize);
    let wide = max(min(length::<K>(changes, numbers + 3, width), width - left), 1usize);
    let mut at = UNIT_POS as usize;
    while at < pixels {
        let rows = pair(at / width, tall, height);
        let columns = pair(at % width, wide, width);
        let above = from + (top + rows.first) * width + left;
        let below = from + (top + rows.second) * width + left;
        let one = between(
            workspace[above + columns.first],
            workspace[above + columns.second],
            columns.weight,
            size,
        );
        let other = between(
            workspace[below + columns.first],
            workspace[below + columns.second],
            columns.weight,
            size,
        );
        workspace[to + at] = between(one, other, rows.weight, size);
        at += comptime!(units as usize);
    }
}

/// The image moved.
#[cube]
pub fn shifted<K: Int>(
    changes: &Array<K>,
    numbers: usize,
    workspace: &mut Array<u32>,
    from: usize,
    to: usize,
    #[comptime] size: Size,
) {
    let Size { height, width, units, .. } = comptime!(size);
    let pixels = comptime!(size.pixels());
    let down = number::<K>(changes, numbers);
    let right = number::<K>(changes, numbers + 1);
    let mut at = UNIT_POS as usize;
    while at < pixels {
        let row = (at / width) as i32 + down;
        let column = (at % width) as i32 + right;
        let mut pixel = 0u32;
        if row >= 0
            && row < comptime!(height as i32)
            && column >= 0
            && column < comptime!(width as i32)
        {
            pixel = workspace[from + row as usize * width + column as usize];
        }
        workspace[to + at] = pixel;
        at += comptime!(units as usize);
    }
}

/// The image, with left and right in each other's place if the change says so.
#[cube]
pub fn flipped<K: Int>(
    changes: &Array<K>,
    numbers: usize,
    workspace: &mut Array<u32>,
    from: usize,
    to: usize,
    #[comptime] size: Size,
) {
    let Size { width, units, .. } = comptime!(size);
    let pixels = comptime!(size.pixels());
    let flips = number::<K>(changes, numbers) != 0;
    let mut at = UNIT_POS as usize;
    while at < pixels {
        let mut place = at;
        if flips {
            place = at / width * width + (width - 1) - at % width;
        }
        workspace[to + at] = workspace[from + place];
        at += comptime!(units as usize);
    }
}

/// A place along a side: a pixel, and how far from its middle to the next one's.
#[derive(CubeType, Clone, Copy)]
struct Place {
    first: i32,
    within: f32,
}

/// The place of a number with a fraction and a small rest, which may carry.
#[cube]
fn place(whole: i32, rest: f32) -> Place {
    let mut first = whole >> comptime!(PLACE as i32);
    let fraction = whole & comptime!((1i32 << PLACE) - 1);
    let mut within = f32::cast_from(fraction) * comptime!(1.0f32 / (1u32 << PLACE) as f32) + rest;
    if within < 0.0f32 {
        first -= 1;
        within += 1.0f32;
    } else if within >= 1.0f32 {
        first += 1;
        within -= 1.0f32;
    }
    Place { first, within }
}

/// True if a place is on the image: half a pixel further, the pixel it begins in is one of the image's.
#[cube]
fn is_inside(whole: i32, rest: f32, #[comptime] side: usize) -> bool {
    let pixel = place(whole + comptime!(1i32 << FRACTION), rest).first;
    pixel >= 0 && pixel < comptime!(side as i32)
}

/// The number of a pixel, of the outermost ones for those beyond.
#[cube]
fn nearest(pixel: i32, #[comptime] side: usize) -> usize {
    max(min(pixel, comptime!(side as i32 - 1)), 0i32) as usize
}

/// A channel of the mean of four pixels, without its fraction as PIL cuts it off.
#[cube]
fn mean_of_four(
    a: u32,
    b: u32,
    c: u32,
    d: u32,
    right: f32,
    down: f32,
    #[comptime] channel: usize,
) -> u32 {
    let a = f32::cast_from(byte_of(a, channel));
    let b = f32::cast_from(byte_of(b, channel));
    let c = f32::cast_from(byte_of(c, channel));
    let d = f32::cast_from(byte_of(d, channel));
    let above = a + (b - a) * right;
    let below = c + (d - c) * right;
    u32::cast_from(max(above + (below - above) * down, 0.0f32))
}

/// The image turned around its middle. Twice a place is a sum of products of whole numbers, with a rest that is small: on
/// a device there are no floats of 64 bits.
#[cube]
pub fn rotated<K: Int>(
    changes: &Array<K>,
    numbers: usize,
    workspace: &mut Array<u32>,
    from: usize,
    to: usize,
    #[comptime] size: Size,
) {
    let Size { channels, height, width, units } = comptime!(size);
    let pixels = comptime!(size.pixels());
    let cos = number::<K>(changes, numbers);
    let cos_rest = f32::reinterpret(number::<K>(changes, numbers + 1)) * 0.5f32;
    let sin = number::<K>(changes, numbers + 2);
    let sin_rest = f32::reinterpret(number::<K>(changes, numbers + 3)) * 0.5f32;
    let mut at = UNIT_POS as usize;
    while at < pixels {
        // Twice the distance from the middle.
        let x = 2 * (at % width) as i32 + comptime!(1 - width as i32);
        let y = 2 * (at / width) as i32 + comptime!(1 - height as i32);
        let column = cos * x - sin * y + comptime!((width as i32 - 1) << FRACTION);
        let row = sin * x + cos * y + comptime!((height as i32 - 1) << FRACTION);
        let (far, deep) = (f32::cast_from(x), f32::cast_from(y));
        let column_rest = cos_rest * far - sin_rest * deep;
        let row_rest = sin_rest * far + cos_rest * deep;
        let mut pixel = 0u32;
        if is_inside(column, column_rest, width) && is_inside(row, row_rest, height) {
            let columns = place(column, column_rest);
            let rows = place(row, row_rest);
            let left = nearest(columns.first, width);
            let right = nearest(columns.first + 1, width);
            let above = from + nearest(rows.first, height) * width;
            let below = from + nearest(rows.first + 1, height) * width;
            let a = workspace[above + left];
            let b = workspace[above + right];
            let c = workspace[below + left];
            let d = workspace[below + right];
            #[unroll]
            for channel in 0..channels {
                let byte = mean_of_four(a, b, c, d, columns.within, rows.within, channel);
                pixel = pixel | (byte << comptime!(8 * channel as u32));
            }
        }
        workspace[to + at] = pixel;
        at += comptime!(units as usize);
    }
}

/// The image with a black window, which may have no pixel.
#[cube]
pub fn erased<K: Int>(
    changes: &Array<K>,
    numbers: usize,
    workspace: &mut Array<u32>,
    own: usize,
    #[comptime] size: Size,
) {
    let Size { height, width, units, .. } = comptime!(size);
    let pixels = comptime!(size.pixels());
    let top = length::<K>(changes, numbers, height);
    let left = length::<K>(changes, numbers + 1, width);
    let bottom = top + length::<K>(changes, numbers + 2, height);
    let end = left + length::<K>(changes, numbers + 3, width);
    let mut at = UNIT_POS as usize;
    while at < pixels {
        let row = at / width;
        let column = at % width;
        if row >= top && row < bottom && column >= left && column < end {
            workspace[own + at] = 0u32;
        }
        at += comptime!(units as usize);
    }
}
