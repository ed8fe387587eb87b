//! Floats of fewer bits, rounded once.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    Nearest,
    NearestAway,
    Zero,
    Down,
    Up,
}

/// Bits of exponent and mantissa.
#[derive(Clone, Copy)]
pub struct Format {
    pub exponent: u32,
    pub mantissa: u32,
    /// Without infinities: all of the highest exponent but one NaN are numbers.
    pub finite: bool,
}

pub const F16: Format = Format { exponent: 5, mantissa: 10, finite: false };
pub const BF16: Format = Format { exponent: 8, mantissa: 7, finite: false };
pub const F32: Format = Format { exponent: 8, mantissa: 23, finite: false };
pub const TF32: Format = Format { exponent: 8, mantissa: 10, finite: false };
pub const E4M3: Format = Format { exponent: 4, mantissa: 3, finite: true };
pub const E5M2: Format = Format { exponent: 5, mantissa: 2, finite: false };

/// Bits of `value` in `format`. Too large numbers become infinite, or the largest number by rounding.
pub fn encode(value: f64, format: Format, round: Round) -> u32 {
    let sign = (value.is_sign_negative() as u32) << (format.exponent + format.mantissa);
    let all = (1u32 << format.exponent) - 1;
    let infinity = all << format.mantissa;
    let largest = if format.finite { infinity + (1 << format.mantissa) - 2 } else { infinity - 1 };
    if value.is_nan() {
        // A card writes all bits but the sign.
        return (1 << (format.exponent + format.mantissa)) - 1;
    }
    if value.is_infinite() {
        return sign | if format.finite { largest + 1 } else { infinity };
    }
    if value == 0.0 {
        return sign;
    }
    let bits = value.abs().to_bits();
    // Doubles below 2^-1022 are far below everything here; they count as that.
    let exponent = ((bits >> 52) as i64).max(1) - 1023;
    let significand =
        if bits >> 52 == 0 { bits & ((1 << 52) - 1) } else { bits & ((1 << 52) - 1) | 1 << 52 };
    let bias = (1i64 << (format.exponent - 1)) - 1;
    let least = 1 - bias;
    // Bits of the significand that fall away.
    let away = 52 - format.mantissa as i64 + (least - exponent).max(0);
    let (kept, rest, half) = if away > 62 {
        (0, 1, 2)
    } else {
        (significand >> away, significand & ((1u64 << away) - 1), 1u64 << (away - 1))
    };
    let negative = sign != 0;
    let up = match round {
        Round::Nearest => rest > half || rest == half && kept & 1 == 1,
        Round::NearestAway => rest >= half,
        Round::Zero => false,
        Round::Down => negative && rest != 0,
        Round::Up => !negative && rest != 0,
    };
    let kept = kept + u64::from(up);
    let biased = if exponent < least { 0 } else { (exponent - least) as u64 };
    // For normal numbers `kept` has its leading one, which adds one to the exponent.
    let result = (biased << format.mantissa) + kept;
    if result > largest as u64 {
        let truncates = match round {
            Round::Nearest | Round::NearestAway => false,
            Round::Zero => true,
            Round::Down => !negative,
            Round::Up => negative,
        };
        return sign
            | if truncates {
                largest
            } else if format.finite {
                largest + 1
            } else {
                infinity
            };
    }
    sign | result as u32
}

pub fn decode(bits: u32, format: Format) -> f32 {
    let all = (1u32 << format.exponent) - 1;
    let exponent = bits >> format.mantissa & all;
    let mantissa = bits & ((1 << format.mantissa) - 1);
    let negative = bits >> (format.exponent + format.mantissa) & 1 == 1;
    let bias = (1i32 << (format.exponent - 1)) - 1;
    let value = if exponent == all && format.finite && mantissa == (1 << format.mantissa) - 1 {
        f32::NAN
    } else if exponent == all && !format.finite {
        if mantissa == 0 { f32::INFINITY } else { f32::NAN }
    } else if exponent == 0 {
        mantissa as f32 * (2f32).powi(1 - bias - format.mantissa as i32)
    } else {
        (mantissa | 1 << format.mantissa) as f32
            * (2f32).powi(exponent as i32 - bias - format.mantissa as i32)
    };
    if negative { -value } else { value }
}

/// One of two formats of 16 bits.
pub trait Half {
    fn to_f32(bits: u16) -> f32;
    fn of_f32(value: f32) -> u16;
    fn of_f64(value: f64) -> u16;
}

pub struct Binary16;
pub struct Brain16;

impl Half for Binary16 {
    #[inline(always)]
    fn to_f32(bits: u16) -> f32 {
        let magnitude = (bits as u32 & 0x7fff) << 13;
        let sign = (bits as u32 & 0x8000) << 16;
        // Numbers below the normal ones are scaled by the multiplication.
        let scaled = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000);
        let special = magnitude >= 0x7c00 << 13;
        let value = if special { magnitude | 0x7f80_0000 } else { scaled.to_bits() };
        f32::from_bits(value | sign)
    }

    #[inline(always)]
    fn of_f32(value: f32) -> u16 {
        let bits = value.to_bits();
        let sign = (bits >> 16 & 0x8000) as u16;
        let magnitude = bits & 0x7fff_ffff;
        let result = if magnitude > 0x7f80_0000 {
            return 0x7fff;
        } else if magnitude >= 0x4780_0000 {
            0x7c00
        } else if magnitude < 0x3880_0000 {
            // The addition rounds to multiples of 2^-24.
            (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()
        } else {
            let odd = magnitude >> 13 & 1;
            (magnitude - (112 << 23) + 0xfff + odd) >> 13
        };
        result as u16 | sign
    }

    fn of_f64(value: f64) -> u16 {
        encode(value, F16, Round::Nearest) as u16
    }
}

impl Half for Brain16 {
    #[inline(always)]
    fn to_f32(bits: u16) -> f32 {
        f32::from_bits((bits as u32) << 16)
    }

    #[inline(always)]
    fn of_f32(value: f32) -> u16 {
        let bits = value.to_bits();
        if bits & 0x7fff_ffff > 0x7f80_0000 {
            return 0x7fff;
        }
        ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
    }

    fn of_f64(value: f64) -> u16 {
        encode(value, BF16, Round::Nearest) as u16
    }
}

/// `a * b + c` with one rounding: the sum of doubles is rounded to odd, so that rounding it again is right.
pub fn fma<H: Half>(a: u16, b: u16, c: u16) -> u16 {
    let product = H::to_f32(a) as f64 * H::to_f32(b) as f64;
    let addend = H::to_f32(c) as f64;
    let sum = product + addend;
    if !sum.is_finite() || sum == 0.0 {
        return H::of_f64(sum);
    }
    let back = sum - product;
    let error = (product - (sum - back)) + (addend - back);
    let mut bits = sum.to_bits();
    if error != 0.0 && bits & 1 == 0 {
        // One step towards the exact sum, if that is on the other side of `sum` from zero or not.
        bits = if (error > 0.0) == (sum > 0.0) { bits + 1 } else { bits - 1 };
    }
    H::of_f64(f64::from_bits(bits))
}
