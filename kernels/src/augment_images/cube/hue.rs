//! Shifts of hue, by way of hue, saturation and value in bytes.
//!
//! The host computes some of it in floats of 64 bits, which a device may not have. The bytes are the same: for all values
//! that they have, the sums below are rounded once, as there.

use cubecl::prelude::*;

use super::color::pixel_of;
use super::kernel::byte_of;

/// A quotient by a number of at most eight bits, rounded to the nearest where the device's own division is not: products with
/// either half of the guess are exact, and so is the remainder.
#[cube]
fn quotient(of: f32, by: f32) -> f32 {
    let guess = of / by;
    let first = f32::reinterpret(u32::reinterpret(guess) & 4294963200u32);
    let rest = guess - first;
    guess + ((of - first * by) - rest * by) / by
}

/// `255 * share` without its fraction, of a share from 0 to 1 in all of its bits.
#[cube]
fn byte(share: f32) -> u32 {
    let mut whole = 255u32;
    if share < 1.0f32 {
        let bits = u32::cast_from(share * 4294967296.0f32);
        whole = ((bits >> 16u32) * 255u32 + (((bits & 65535u32) * 255u32) >> 16u32)) >> 16u32;
    }
    whole
}

/// The hue of a colour that is not grey, whose largest channel and span from the least are given.
#[cube]
fn hue_of(red: u32, green: u32, blue: u32, value: u32, span: f32) -> u32 {
    let mut middle = 4.0f32;
    let mut plus = green;
    let mut minus = red;
    if red == value {
        middle = 0.0f32;
        plus = blue;
        minus = green;
    } else if green == value {
        middle = 2.0f32;
        plus = red;
        minus = blue;
    }
    let plus = quotient(f32::cast_from(value - plus), span);
    let minus = quotient(f32::cast_from(value - minus), span);
    // Sixths of the circle. One of the two is the least channel, so 1: its sum is exact.
    let mut sixths = middle + 1.0f32 - minus;
    if minus == 1.0f32 {
        sixths = middle - 1.0f32 + plus;
    }
    let mut turns = quotient(sixths, 6.0f32);
    if sixths < 0.0f32 {
        turns += 1.0f32;
    }
    byte(turns)
}

/// `value * (1 - share * part)` to the nearest, where twelve bits of each factor are whole and the rest is small.
#[cube]
fn faded(value: u32, share: f32, part_whole: u32, part_rest: f32) -> u32 {
    let scaled = share * 4096.0f32;
    let whole = f32::floor(scaled);
    let rest = scaled - whole;
    let small = f32::cast_from(value)
        * (whole * part_rest + rest * (f32::cast_from(part_whole) + part_rest));
    let large = value * u32::cast_from(whole) * part_whole + 8388608u32;
    let mut decrease = large;
    if small < 0.0f32 {
        decrease -= u32::cast_from(f32::ceil(0.0f32 - small));
    } else {
        decrease += u32::cast_from(small);
    }
    value - (decrease >> 24u32)
}

/// The colour of this hue, saturation and value.
#[cube]
fn rgb(hue: u32, saturation: u32, value: u32) -> u32 {
    let sector = hue * 6u32 / 255u32;
    let sixths = quotient(f32::cast_from(hue * 6u32), 255.0f32);
    let within = (sixths - f32::cast_from(sector)) * 4096.0f32;
    let whole = f32::floor(within);
    let rest = within - whole;
    let share = quotient(f32::cast_from(saturation), 255.0f32);
    let low = faded(value, share, 4096u32, 0.0f32);
    let falling = faded(value, share, u32::cast_from(whole), rest);
    let rising = faded(value, share, 4096u32 - u32::cast_from(whole), 0.0f32 - rest);
    let mut color = pixel_of(value, low, falling);
    if sector == 0u32 || sector == 6u32 {
        color = pixel_of(value, rising, low);
    } else if sector == 1u32 {
        color = pixel_of(falling, value, low);
    } else if sector == 2u32 {
        color = pixel_of(low, value, rising);
    } else if sector == 3u32 {
        color = pixel_of(low, falling, value);
    } else if sector == 4u32 {
        color = pixel_of(rising, low, value);
    }
    color
}

/// A pixel with its hue shifted.
#[cube]
pub fn turned_hue(pixel: u32, shift: u32) -> u32 {
    let (red, green, blue) =
        (byte_of(pixel, 0usize), byte_of(pixel, 1usize), byte_of(pixel, 2usize));
    let value = max(max(red, green), blue);
    let least = min(min(red, green), blue);
    let mut result = pixel;
    if value != least {
        let span = f32::cast_from(value - least);
        let hue = hue_of(red, green, blue, value, span);
        let saturation = byte(quotient(span, f32::cast_from(value)));
        result = rgb((hue + shift) & 255u32, saturation, value);
    }
    result
}
