//! `cvt`, `cvta` and what else changes a type.

use super::half::{
    BF16, Binary16, Brain16, E4M3, E5M2, F16, F32, Format, Half, Round, TF32, decode, encode,
};
use super::lanes::*;
use super::lower::{Flat, Lowering, f1};
use super::{Class, Cx, Exec, Inst, LOCAL_TAG, PARAM_TAG, SHARED_TAG, TAG_MASK};
use crate::ptx::{Operand, Ty};

const INTEGRAL: u32 = 1 << 8;
const SATURATE: u32 = 1 << 9;
const FTZ: u32 = 1 << 10;
const RELU: u32 = 1 << 11;
const FINITE: u32 = 1 << 12;

/// The rounding of a value: low bits of the flags.
fn round_of(op: &Flat) -> (u32, bool) {
    for (name, code, integral) in [
        ("rn", 0, false),
        ("rna", 1, false),
        ("rz", 2, false),
        ("rm", 3, false),
        ("rp", 4, false),
        ("rni", 0, true),
        ("rzi", 2, true),
        ("rmi", 3, true),
        ("rpi", 4, true),
    ] {
        if op.has(name) {
            return (code, integral);
        }
    }
    (0, false)
}

fn mode(x: u32) -> Round {
    match x & 7 {
        0 => Round::Nearest,
        1 => Round::NearestAway,
        2 => Round::Zero,
        3 => Round::Down,
        _ => Round::Up,
    }
}

fn code(ty: Ty) -> i64 {
    match ty {
        Ty::B8 | Ty::U8 => 0,
        Ty::S8 => 1,
        Ty::B16 | Ty::U16 => 2,
        Ty::S16 => 3,
        Ty::B32 | Ty::U32 => 4,
        Ty::S32 => 5,
        Ty::B64 | Ty::U64 => 6,
        Ty::S64 => 7,
        Ty::F16 => 8,
        Ty::Bf16 => 9,
        Ty::F32 => 10,
        Ty::F64 => 11,
        Ty::Tf32 => 12,
        Ty::F16x2 => 13,
        Ty::Bf16x2 => 14,
        Ty::E4m3x2 => 15,
        Ty::E5m2x2 => 16,
        _ => 99,
    }
}

pub fn lower(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    let types = op.types();
    match op.name() {
        "cvta" => {
            let mut inst = l.inst(op, Class::Integer);
            inst.d = l.destination(&op.args[0])?;
            let ty = types.first().copied().unwrap_or(Ty::U64);
            inst.a = l.source(&op.args[1], ty)?;
            if ty.bytes() != 8 {
                return Ok(None);
            }
            let shared = op.name_parts().iter().any(|part| part.starts_with("shared"));
            inst.f = match (op.has("to"), shared, op.has("local"), op.has("param")) {
                (true, true, ..) => {
                    f1!(u64 => u64, |a| if a & TAG_MASK == SHARED_TAG { a ^ SHARED_TAG } else { a })
                }
                (true, _, true, _) => {
                    f1!(u64 => u64, |a| if a & TAG_MASK == LOCAL_TAG { a ^ LOCAL_TAG } else { a })
                }
                (true, _, _, true) => {
                    f1!(u64 => u64, |a| if a & TAG_MASK == PARAM_TAG { a ^ PARAM_TAG } else { a })
                }
                (false, true, ..) => f1!(u64 => u64, |a| a | SHARED_TAG),
                (false, _, true, _) => f1!(u64 => u64, |a| a | LOCAL_TAG),
                (false, _, _, true) => f1!(u64 => u64, |a| a | PARAM_TAG),
                _ => f1!(u64 => u64, |a| a),
            };
            Ok(Some(inst))
        }
        "isspacep" => {
            let mut inst = l.inst(op, Class::Integer);
            inst.d = l.predicate(&op.args[0])?;
            inst.a = l.source(&op.args[1], Ty::U64)?;
            let space = op.part(1);
            inst.imm = match space {
                "shared" | "shared::cta" | "shared::cluster" => SHARED_TAG as i64,
                "local" => LOCAL_TAG as i64,
                "param" => PARAM_TAG as i64,
                "const" => 9 << 56,
                _ => 0,
            };
            inst.f = is_space;
            Ok(Some(inst))
        }
        "mapa" => {
            // Clusters have one block here.
            let mut inst = l.inst(op, Class::Integer);
            inst.d = l.destination(&op.args[0])?;
            let ty = types.first().copied().unwrap_or(Ty::U64);
            inst.a = l.source(&op.args[1], ty)?;
            inst.f = if ty.bytes() == 8 { f1!(u64 => u64, |a| a) } else { f1!(u32 => u32, |a| a) };
            Ok(Some(inst))
        }
        "cvt" => {
            let (Some(&to), Some(&from)) = (types.first(), types.get(1)) else { return Ok(None) };
            let (round, integral) = round_of(op);
            let mut inst = l.inst(op, Class::Convert);
            let pack = op.has("pack");
            if pack || code(to) == 99 || code(from) == 99 {
                return Ok(None);
            }
            inst.d = l.destination(&op.args[0])?;
            inst.a = l.source_any(&op.args[1], from)?;
            inst.x = round;
            for (name, flag) in
                [("sat", SATURATE), ("ftz", FTZ), ("relu", RELU), ("satfinite", FINITE)]
            {
                if op.has(name) {
                    inst.x |= flag;
                }
            }
            if integral {
                inst.x |= INTEGRAL;
            }
            let (wide_to, wide_from) =
                (l.is_wide(&op.args[0]), l.is_wide_source(&op.args[1], from));
            if matches!(to, Ty::F16x2 | Ty::Bf16x2 | Ty::E4m3x2 | Ty::E5m2x2) {
                if op.args.len() > 2 {
                    inst.b = l.source(&op.args[2], from)?;
                    inst.imm = code(to) | code(from) << 8;
                    inst.f = into_pair;
                } else {
                    inst.imm = code(to) | code(from) << 8;
                    inst.f = pair_into_pair;
                }
                return Ok(Some(inst));
            }
            inst.f = match fast(to, from, inst.x, wide_to, wide_from) {
                Some(f) => f,
                None => {
                    inst.imm = code(to)
                        | code(from) << 8
                        | (wide_to as i64) << 16
                        | (wide_from as i64) << 17;
                    general
                }
            };
            let _: &[Operand] = &op.args;
            Ok(Some(inst))
        }
        _ => Ok(None),
    }
}

fn fast(to: Ty, from: Ty, x: u32, wide_to: bool, wide_from: bool) -> Option<Exec> {
    use Ty::*;
    if x & (SATURATE | FTZ | RELU) != 0 {
        return None;
    }
    let nearest = x & 7 == 0;
    Some(match (to, from, wide_to, wide_from) {
        (U64 | S64 | B64, U32 | B32, true, false) => f1!(u32 => u64, |a| a as u64),
        (U64 | S64 | B64, S32, true, false) => f1!(i32 => i64, |a| a as i64),
        (U64 | S64 | B64, U64 | S64 | B64, true, true) => f1!(u64 => u64, |a| a),
        (U32 | S32 | B32, U64 | S64 | B64, false, true) => f1!(u64 => u32, |a| a as u32),
        (U32 | S32 | B32, U32 | S32 | B32, false, false) => f1!(u32 => u32, |a| a),
        (U32 | S32 | B32, U16 | B16, false, false) => f1!(u16 => u32, |a| a as u32),
        (U32 | S32 | B32, S16, false, false) => f1!(i16 => i32, |a| a as i32),
        (U16 | S16 | B16, U32 | S32 | B32, false, false) => f1!(u32 => u16, |a| a as u16),
        (F32, S32, false, false) if nearest => f1!(i32 => f32, |a| a as f32),
        (F32, U32, false, false) if nearest => f1!(u32 => f32, |a| a as f32),
        (F32, F16, false, false) => f1!(u16 => f32, |a| Binary16::to_f32(a)),
        (F32, Bf16, false, false) => f1!(u16 => f32, |a| Brain16::to_f32(a)),
        (F16, F32, false, false) if nearest && x & INTEGRAL == 0 => {
            f1!(f32 => u16, |a| Binary16::of_f32(a))
        }
        (Bf16, F32, false, false) if nearest && x & INTEGRAL == 0 => {
            f1!(f32 => u16, |a| Brain16::of_f32(a))
        }
        (F64, F32, true, false) if x & INTEGRAL == 0 => f1!(f32 => f64, |a| a as f64),
        (F32, F64, false, true) if nearest && x & INTEGRAL == 0 => f1!(f64 => f32, |a| a as f32),
        _ => return None,
    })
}

unsafe fn is_space(cx: &mut Cx, i: &Inst, mask: u32) {
    let mut bits = 0;
    unsafe {
        let a = read::<u64>(cx, i.a);
        for lane in lanes(mask) {
            bits |= ((a[lane] & TAG_MASK == i.imm as u64) as u32) << lane;
        }
    }
    cx.set_predicate(i.d, mask, bits);
}

enum Value {
    Integer(i128),
    Float(f64),
}

fn integral(value: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => value.round_ties_even(),
        Round::NearestAway => value.round(),
        Round::Zero => value.trunc(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
    }
}

fn flush(value: f64) -> f64 {
    if value.abs() < f32::MIN_POSITIVE as f64 { 0.0f64.copysign(value) } else { value }
}

/// An integer as a double that rounds to fewer bits as the integer itself would.
fn to_double(value: i128, to: i64, round: Round) -> u64 {
    let negative = value < 0;
    let magnitude = value.unsigned_abs();
    let digits: u32 = match to {
        8 => 11,
        9 => 8,
        10 | 12 => 24,
        _ => 53,
    };
    let bits = 128 - magnitude.leading_zeros();
    let away = bits.saturating_sub(digits);
    let (kept, rest) = (magnitude >> away, magnitude & ((1u128 << away) - 1));
    let half = if away == 0 { 0 } else { 1u128 << (away - 1) };
    let up = match round {
        Round::Nearest => away > 0 && (rest > half || rest == half && kept & 1 == 1),
        Round::NearestAway => away > 0 && rest >= half,
        Round::Zero => false,
        Round::Down => negative && rest != 0,
        Round::Up => !negative && rest != 0,
    };
    let rounded = ((kept + up as u128) << away) as f64;
    (if negative { -rounded } else { rounded }).to_bits()
}

unsafe fn general(cx: &mut Cx, i: &Inst, mask: u32) {
    let (to, from) = (i.imm & 255, i.imm >> 8 & 255);
    let (wide_to, wide_from) = (i.imm >> 16 & 1 != 0, i.imm >> 17 & 1 != 0);
    let round = mode(i.x);
    for lane in lanes(mask) {
        let bits = unsafe { get(cx, i.a, wide_from, lane) };
        let value = match from {
            0 => Value::Integer(bits as u8 as i128),
            1 => Value::Integer(bits as i8 as i128),
            2 => Value::Integer(bits as u16 as i128),
            3 => Value::Integer(bits as i16 as i128),
            4 => Value::Integer(bits as u32 as i128),
            5 => Value::Integer(bits as i32 as i128),
            6 => Value::Integer(bits as i128),
            7 => Value::Integer(bits as i64 as i128),
            8 => Value::Float(Binary16::to_f32(bits as u16) as f64),
            9 => Value::Float(Brain16::to_f32(bits as u16) as f64),
            10 | 12 => Value::Float(f32::from_bits(bits as u32) as f64),
            _ => Value::Float(f64::from_bits(bits)),
        };
        let value = match value {
            Value::Float(float) if i.x & FTZ != 0 && from == 10 => Value::Float(flush(float)),
            value => value,
        };
        let result = match (to, value) {
            (0..=7, Value::Integer(value)) => into_integer(value, to, i.x & SATURATE != 0, wide_to),
            (0..=7, Value::Float(value)) => float_to_integer(value, to, round, from, wide_to),
            (_, Value::Integer(value)) => {
                float_bits(f64::from_bits(to_double(value, to, round)), to, i.x, round)
            }
            (_, Value::Float(value)) => {
                let value = if i.x & INTEGRAL != 0 { integral(value, round) } else { value };
                float_bits(value, to, i.x, round)
            }
        };
        unsafe { put(cx, i.d, wide_to, lane, result) };
    }
}

fn bounds(to: i64) -> (i128, i128) {
    match to {
        0 => (0, 0xff),
        1 => (-0x80, 0x7f),
        2 => (0, 0xffff),
        3 => (-0x8000, 0x7fff),
        4 => (0, u32::MAX as i128),
        5 => (i32::MIN as i128, i32::MAX as i128),
        6 => (0, u64::MAX as i128),
        _ => (i64::MIN as i128, i64::MAX as i128),
    }
}

/// Bits of a register: the value, extended by its sign or zeros.
fn into_integer(value: i128, to: i64, saturates: bool, wide: bool) -> u64 {
    let (least, most) = bounds(to);
    let value = if saturates { value.clamp(least, most) } else { value };
    let bits = match to {
        0 => value as u8 as u64,
        1 => value as i8 as u64,
        2 => value as u16 as u64,
        3 => value as i16 as u64,
        4 => value as u32 as u64,
        5 => value as i32 as u64,
        _ => value as u64,
    };
    if wide {
        bits
    } else if to <= 3 && to & 1 == 1 {
        // Registers of 16 bits have zeros above; the reader takes as many bits as it wants.
        bits as u32 as u64
    } else {
        bits
    }
}

fn float_to_integer(value: f64, to: i64, round: Round, from: i64, wide: bool) -> u64 {
    let (least, most) = bounds(to);
    if value.is_nan() {
        // Narrow formats give zero, wide ones the largest of their sign bit.
        let bits = match (to, from) {
            (6 | 7, 8..=11) => 1u64 << 63,
            (4, 11) | (5, 11) => 0x8000_0000,
            _ => 0,
        };
        return bits;
    }
    let rounded = integral(value, round);
    let value = if rounded >= most as f64 {
        most
    } else if rounded <= least as f64 {
        least
    } else {
        rounded as i128
    };
    into_integer(value, to, true, wide)
}

fn float_bits(value: f64, to: i64, x: u32, round: Round) -> u64 {
    let value = if x & SATURATE != 0 {
        if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) + 0.0 }
    } else {
        value
    };
    let value = if x & RELU != 0 && value < 0.0 { 0.0 } else { value };
    let in_format = |format: Format| {
        let bits = encode(value, format, round);
        if x & FINITE != 0 {
            let infinity = ((1u32 << format.exponent) - 1) << format.mantissa;
            let sign = 1u32 << (format.exponent + format.mantissa);
            if bits & !sign == infinity && !format.finite {
                return bits - 1;
            }
            if format.finite
                && bits & !sign == infinity + (1 << format.mantissa) - 1
                && !value.is_nan()
            {
                return bits - 1;
            }
        }
        bits
    };
    match to {
        8 => in_format(F16) as u64,
        9 => in_format(BF16) as u64,
        10 => {
            let value = if x & FTZ != 0 { flush(value) } else { value };
            encode(value, F32, round) as u64
        }
        11 => value.to_bits(),
        12 => (in_format(TF32) as u64) << 13,
        15 => in_format(E4M3) as u64,
        16 => in_format(E5M2) as u64,
        _ => 0,
    }
}

/// Two values into one register; the first is above.
unsafe fn into_pair(cx: &mut Cx, i: &Inst, mask: u32) {
    let to = match i.imm & 255 {
        13 => 8,
        14 => 9,
        other => other,
    };
    let round = mode(i.x);
    let shift = if to >= 15 { 8 } else { 16 };
    unsafe {
        map2::<f32, f32, u32>(cx, i, mask, |a, b| {
            if i.x == 0 && to == 8 {
                return (Binary16::of_f32(a) as u32) << 16 | Binary16::of_f32(b) as u32;
            }
            if i.x == 0 && to == 9 {
                return (Brain16::of_f32(a) as u32) << 16 | Brain16::of_f32(b) as u32;
            }
            let high = float_bits(a as f64, to, i.x, round) as u32;
            let low = float_bits(b as f64, to, i.x, round) as u32;
            high << shift | low
        });
    }
}

/// Pairs of eight bits to and from pairs of sixteen.
unsafe fn pair_into_pair(cx: &mut Cx, i: &Inst, mask: u32) {
    let (to, from) = (i.imm & 255, i.imm >> 8 & 255);
    let (x, round) = (i.x, mode(i.x));
    unsafe {
        map1::<u32, u32>(cx, i, mask, |a| {
            let value = |at: u32| match from {
                13 => Binary16::to_f32((a >> (16 * at)) as u16),
                14 => Brain16::to_f32((a >> (16 * at)) as u16),
                15 => decode(a >> (8 * at) & 0xff, E4M3),
                _ => decode(a >> (8 * at) & 0xff, E5M2),
            };
            let (target, shift) = match to {
                13 => (8, 16),
                14 => (9, 16),
                other => (other, 8),
            };
            let part = |at: u32| float_bits(value(at) as f64, target, x, round) as u32;
            part(1) << shift | part(0)
        });
    }
}
