//! Rounding to a lower type, in place and kept as `f32`.

use super::simd::Simd;

/// A type of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfType {
    /// Five bits of exponent and ten of mantissa, as in IEEE 754.
    F16,
    /// The first half of an `f32`.
    Bf16,
}

/// Rounds to the nearest value of the type, the even one of two; to infinity beyond its largest. NaN is NaN.
#[inline(always)]
pub fn round<S: Simd>(_: S, to: HalfType, values: &mut [f32]) {
    match to {
        HalfType::F16 => values.iter_mut().for_each(|value| *value = to_f16(*value)),
        HalfType::Bf16 => values.iter_mut().for_each(|value| *value = to_bf16(*value)),
    }
}

/// The bits without the last `dropped`, rounded; the exponent grows where the digits are full.
#[inline(always)]
fn shorten(bits: u32, dropped: u32) -> u32 {
    let odd = (bits >> dropped) & 1;
    let half = (1 << (dropped - 1)) - 1;
    bits.wrapping_add(half + odd) & (u32::MAX << dropped)
}

/// `rounded`, but NaN for NaN: not `value` itself, which compilers leave in place by masked stores,
/// slow as they are.
#[inline(always)]
fn quiet(value: f32, rounded: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { rounded }
}

#[inline(always)]
fn to_bf16(value: f32) -> f32 {
    let rounded = f32::from_bits(shorten(value.to_bits(), 16));
    quiet(value, rounded)
}

#[inline(always)]
fn to_f16(value: f32) -> f32 {
    /// The least number with all digits of an `f16`.
    const NORMAL: f32 = 1.0 / 16384.0;
    /// Adding this leaves of a smaller number what its `f16` has.
    const DIGITS: f32 = 0.5;
    /// The first number beyond the largest `f16`, which is rounded to already.
    const BEYOND: f32 = 65536.0;
    let normal = f32::from_bits(shorten(value.to_bits(), 13));
    let small = ((value.abs() + DIGITS) - DIGITS).copysign(value);
    let infinite = f32::INFINITY.copysign(value);
    let rounded = if value.abs() < NORMAL { small } else { normal };
    let rounded = if rounded.abs() >= BEYOND { infinite } else { rounded };
    quiet(value, rounded)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::instruction_set::bodies;

    /// Numbers of every exponent and either sign, those half between two of a low type and their
    /// neighbours, and what is no number.
    fn numbers() -> Vec<f32> {
        let spread = (0..1 << 20).map(|i: u32| i.wrapping_mul(2_654_435_761));
        let ties = (0..1 << 16).flat_map(|high: u32| {
            [13, 16].into_iter().flat_map(move |dropped| {
                let tie = (high << 16) | 1 << (dropped - 1);
                [tie - 1, tie, tie + 1, tie | 1 << dropped]
            })
        });
        let small = (0..1 << 12).map(|i| (i as f32 * 2f32.powi(-26)).to_bits());
        let ends = [65504.0, 65519.99, 65520.0, 65536.0, f32::MAX, f32::INFINITY, f32::NAN, 0.0]
            .map(f32::to_bits);
        spread.chain(ties).chain(small).chain(ends).map(f32::from_bits).collect()
    }

    #[test]
    fn every_number_is_rounded_as_its_type_does() {
        type Cast = fn(f32) -> f32;
        let casts: [(HalfType, Cast); 2] = [
            (HalfType::F16, |value| f16::from_f32(value).to_f32()),
            (HalfType::Bf16, |value| bf16::from_f32(value).to_f32()),
        ];
        let numbers = numbers();
        for (body, (half, cast)) in
            bodies().into_iter().flat_map(|body| casts.map(|cast| (body, cast)))
        {
            let mut rounded = numbers.clone();
            body.round(half, &mut rounded);
            for (&number, rounded) in numbers.iter().zip(rounded) {
                let expected = cast(number);
                let same = expected.to_bits() == rounded.to_bits()
                    || expected.is_nan() && rounded.is_nan();
                let what = body.name();
                assert!(same, "{what}, {half:?} of {number:e}: {rounded:e}, not {expected:e}");
            }
        }
    }
}
