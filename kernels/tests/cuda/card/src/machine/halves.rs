//! Floats of 16 bits, alone and in pairs. Each operation is rounded once.

use super::half::{Binary16, Brain16, Half, fma};
use super::lower::{Flat, Lowering, f1, f2, f3};
use super::{Class, Exec, Inst};
use crate::ptx::Ty;

#[inline(always)]
fn one<H: Half>(a: u16, f: impl Fn(f32) -> f32) -> u16 {
    H::of_f32(f(H::to_f32(a)))
}

#[inline(always)]
fn two<H: Half>(a: u16, b: u16, f: impl Fn(f32, f32) -> f32) -> u16 {
    H::of_f32(f(H::to_f32(a), H::to_f32(b)))
}

#[inline(always)]
fn pair1(a: u32, f: impl Fn(u16) -> u16) -> u32 {
    f(a as u16) as u32 | (f((a >> 16) as u16) as u32) << 16
}

#[inline(always)]
fn pair2(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    f(a as u16, b as u16) as u32 | (f((a >> 16) as u16, (b >> 16) as u16) as u32) << 16
}

#[inline(always)]
fn pair3(a: u32, b: u32, c: u32, f: impl Fn(u16, u16, u16) -> u16) -> u32 {
    f(a as u16, b as u16, c as u16) as u32
        | (f((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16) as u32) << 16
}

fn saturated(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}

/// The smaller, as `min`: of a NaN and a number the number.
fn smaller<H: Half>(a: u16, b: u16) -> u16 {
    let (x, y) = (H::to_f32(a), H::to_f32(b));
    if x.is_nan() {
        if y.is_nan() { 0x7fff } else { b }
    } else if y.is_nan() || x < y || x == y && a >> 15 == 1 {
        a
    } else {
        b
    }
}

fn larger<H: Half>(a: u16, b: u16) -> u16 {
    let (x, y) = (H::to_f32(a), H::to_f32(b));
    if x.is_nan() {
        if y.is_nan() { 0x7fff } else { b }
    } else if y.is_nan() || x > y || x == y && a >> 15 == 0 {
        a
    } else {
        b
    }
}

fn strict<H: Half>(a: u16, b: u16, value: u16) -> u16 {
    if H::to_f32(a).is_nan() || H::to_f32(b).is_nan() { 0x7fff } else { value }
}

/// One operand, alone or in pairs.
macro_rules! h1 {
    ($op:expr, $ty:expr, |$a:ident, $h:ident| $e:expr) => {
        match $ty {
            Ty::F16 => { type $h = Binary16; f1!(u16 => u16, |$a| $e) }
            Ty::Bf16 => { type $h = Brain16; f1!(u16 => u16, |$a| $e) }
            Ty::F16x2 => { type $h = Binary16; f1!(u32 => u32, |x| pair1(x, |$a| $e)) }
            _ => { type $h = Brain16; f1!(u32 => u32, |x| pair1(x, |$a| $e)) }
        }
    };
}

macro_rules! h2 {
    ($op:expr, $ty:expr, |$a:ident, $b:ident, $h:ident| $e:expr) => {
        match $ty {
            Ty::F16 => { type $h = Binary16; f2!(u16, u16 => u16, |$a, $b| $e) }
            Ty::Bf16 => { type $h = Brain16; f2!(u16, u16 => u16, |$a, $b| $e) }
            Ty::F16x2 => { type $h = Binary16; f2!(u32, u32 => u32, |x, y| pair2(x, y, |$a, $b| $e)) }
            _ => { type $h = Brain16; f2!(u32, u32 => u32, |x, y| pair2(x, y, |$a, $b| $e)) }
        }
    };
}

macro_rules! h3 {
    ($op:expr, $ty:expr, |$a:ident, $b:ident, $c:ident, $h:ident| $e:expr) => {
        match $ty {
            Ty::F16 => { type $h = Binary16; f3!(u16, u16, u16 => u16, |$a, $b, $c| $e) }
            Ty::Bf16 => { type $h = Brain16; f3!(u16, u16, u16 => u16, |$a, $b, $c| $e) }
            Ty::F16x2 => { type $h = Binary16; f3!(u32, u32, u32 => u32, |x, y, z| pair3(x, y, z, |$a, $b, $c| $e)) }
            _ => { type $h = Brain16; f3!(u32, u32, u32 => u32, |x, y, z| pair3(x, y, z, |$a, $b, $c| $e)) }
        }
    };
}

pub fn lower(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    let types = op.types();
    let Some(&ty) = types.first() else { return Ok(None) };
    if !matches!(ty, Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2) {
        return Ok(None);
    }
    // `.sat` and `.relu` come after rounding: both bounds are numbers of 16 bits.
    let (sat, relu, nan) = (op.has("sat"), op.has("relu"), op.has("NaN"));
    let f: Exec = match op.name() {
        "add" if sat => h2!(op, ty, |a, b, H| two::<H>(a, b, |a, b| saturated(a + b))),
        "sub" if sat => h2!(op, ty, |a, b, H| two::<H>(a, b, |a, b| saturated(a - b))),
        "mul" if sat => h2!(op, ty, |a, b, H| two::<H>(a, b, |a, b| saturated(a * b))),
        "add" => h2!(op, ty, |a, b, H| two::<H>(a, b, |a, b| a + b)),
        "sub" => h2!(op, ty, |a, b, H| two::<H>(a, b, |a, b| a - b)),
        "mul" => h2!(op, ty, |a, b, H| two::<H>(a, b, |a, b| a * b)),
        "fma" if relu => h3!(op, ty, |a, b, c, H| {
            let value = fma::<H>(a, b, c);
            if H::to_f32(value).is_nan() {
                0x7fff
            } else if value >> 15 == 1 {
                0
            } else {
                value
            }
        }),
        "fma" if sat => h3!(op, ty, |a, b, c, H| one::<H>(fma::<H>(a, b, c), saturated)),
        "fma" => h3!(op, ty, |a, b, c, H| fma::<H>(a, b, c)),
        "abs" => h1!(op, ty, |a, H| {
            let _: Option<H> = None;
            a & 0x7fff
        }),
        "neg" => h1!(op, ty, |a, H| {
            let _: Option<H> = None;
            a ^ 0x8000
        }),
        "min" if nan => h2!(op, ty, |a, b, H| strict::<H>(a, b, smaller::<H>(a, b))),
        "max" if nan => h2!(op, ty, |a, b, H| strict::<H>(a, b, larger::<H>(a, b))),
        "min" => h2!(op, ty, |a, b, H| smaller::<H>(a, b)),
        "max" => h2!(op, ty, |a, b, H| larger::<H>(a, b)),
        "ex2" => h1!(op, ty, |a, H| one::<H>(a, super::float::exp2)),
        "tanh" => h1!(op, ty, |a, H| one::<H>(a, f32::tanh)),
        _ => return Ok(None),
    };
    let mut inst =
        l.inst(op, if matches!(op.name(), "ex2" | "tanh") { Class::Special } else { Class::Half });
    inst.f = f;
    inst.d = l.destination(&op.args[0])?;
    inst.a = l.source(&op.args[1], ty)?;
    inst.b = if op.args.len() > 2 { l.source(&op.args[2], ty)? } else { inst.a };
    inst.c = if op.args.len() > 3 { l.source(&op.args[3], ty)? } else { inst.a };
    Ok(Some(inst))
}
