//! The kernel: change by change.

use cubecl::prelude::*;

use super::color::{greyed, jittered};
use super::moves::{cropped, erased, flipped, rotated, shifted};
use super::{Plan, Size};
use crate::augment_images::ChangeKind;
use crate::gather_images::cube::{bank_byte, channel_number, turned_place};

/// The byte of a channel.
#[cube]
pub fn byte_of(pixel: u32, #[comptime] channel: usize) -> u32 {
    (pixel >> comptime!(8 * channel as u32)) & 255u32
}

/// The pixel at `at` of an image of the bank that begins at byte `start`.
#[cube]
fn gathered<I: Int>(
    bank: &Array<I>,
    words: usize,
    start: usize,
    at: usize,
    turn: u32,
    #[comptime] size: Size,
) -> u32 {
    let Size { channels, height, width, .. } = comptime!(size);
    let pixels = comptime!(size.pixels());
    let mut pixel = 0u32;
    #[unroll]
    for channel in 0..channels {
        let place = turned_place(channel * pixels + at, turn, height, width);
        let byte = bank_byte::<I>(bank, start + place, words);
        pixel = pixel | (byte << comptime!(8 * channel as u32));
    }
    pixel
}

#[cube(launch_unchecked)]
pub fn augment_kernel<I: Int, J: Int, K: Int>(
    bank: &Array<I>,
    chosen: &Array<J>,
    changes: &Array<K>,
    workspace: &mut Array<u32>,
    values: &mut Array<f32>,
    gains: &Sequence<f32>,
    shifts: &Sequence<f32>,
    images: usize,
    words: usize,
    // The first example that is gathered, how many there are of a task, and how many were chosen.
    first: usize,
    examples: usize,
    chosen_examples: usize,
    #[comptime] plan: Plan,
    #[define(I)] _word: StorageType,
    #[define(J)] _number: StorageType,
    #[define(K)] _change: StorageType,
) {
    let image = CUBE_POS;
    if image >= images {
        terminate!();
    }
    let size = comptime!(plan.size);
    let pixels = comptime!(size.pixels());
    let channels = comptime!(size.channels);
    let units = comptime!(size.units as usize);
    let steps = comptime!(plan.kinds.len());
    let place = first + image / examples * chosen_examples + image % examples;
    let choice = u32::cast_from(chosen[place]);
    let turn = choice % 4u32;
    let start = (choice / 4u32) as usize * (pixels * channels);
    let own = image * comptime!(2 * size.pixels());
    let mut at = UNIT_POS as usize;
    while at < pixels {
        workspace[own + at] = gathered::<I>(bank, words, start, at, turn, size);
        at += units;
    }
    let of_image = place * comptime!(plan.words_before(plan.kinds.len()));
    #[unroll]
    for step in 0..steps {
        let kind = comptime!(plan.kinds[step]);
        let numbers = of_image + comptime!(plan.words_before(step));
        let from = own + comptime!(plan.half_before(step));
        let to = own + comptime!(plan.half_before(step + 1));
        if comptime!(kind.moves_pixels()) {
            sync_storage();
        }
        if comptime!(kind == ChangeKind::Crop) {
            cropped::<K>(changes, numbers, workspace, from, to, size);
        } else if comptime!(kind == ChangeKind::Shift) {
            shifted::<K>(changes, numbers, workspace, from, to, size);
        } else if comptime!(kind == ChangeKind::Flip) {
            flipped::<K>(changes, numbers, workspace, from, to, size);
        } else if comptime!(kind == ChangeKind::Rotation) {
            rotated::<K>(changes, numbers, workspace, from, to, size);
        } else if comptime!(kind == ChangeKind::Erasing) {
            erased::<K>(changes, numbers, workspace, from, size);
        } else if comptime!(kind == ChangeKind::Grey) {
            greyed::<K>(changes, numbers, workspace, from, size);
        } else {
            jittered::<K>(changes, numbers, workspace, from, kind, size);
        }
    }
    let last = own + comptime!(plan.half_before(plan.kinds.len()));
    let mut at = UNIT_POS as usize;
    while at < pixels {
        let pixel = workspace[last + at];
        #[unroll]
        for channel in 0..channels {
            let value = f32::cast_from(byte_of(pixel, channel));
            values[(image * channels + channel) * pixels + at] =
                value * channel_number(gains, channel) + channel_number(shifts, channel);
        }
        at += units;
    }
}
