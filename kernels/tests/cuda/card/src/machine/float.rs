//! Floats of 32 and 64 bits.

use std::arch::asm;

use super::lanes::*;
use super::lower::{Flat, Lowering, e1, e2, f1, f2, f3};
use super::{Class, Cx, Exec, Inst};
use crate::ptx::Ty;

/// The NaN of 32 bits that a card writes for every other.
#[inline(always)]
fn canonical(value: f32) -> f32 {
    if value.is_nan() { f32::from_bits(0x7fff_ffff) } else { value }
}

#[inline(always)]
fn flush<const FTZ: bool>(value: f32) -> f32 {
    if FTZ && value.to_bits() & 0x7f80_0000 == 0 {
        f32::from_bits(value.to_bits() & 0x8000_0000)
    } else {
        value
    }
}

#[inline(always)]
fn saturate<const SAT: bool>(value: f32) -> f32 {
    if !SAT {
        value
    } else if value.is_nan() || value <= 0.0 {
        0.0
    } else if value > 1.0 {
        1.0
    } else {
        value
    }
}

#[inline(always)]
fn done<const FTZ: bool, const SAT: bool>(value: f32) -> f32 {
    saturate::<SAT>(canonical(flush::<FTZ>(value)))
}

/// The four combinations of flushing and saturation.
macro_rules! variants {
    ($op:expr, $macro:ident, ($($a:ty),*), |$($x:ident),*| $e:expr) => {
        match ($op.has("ftz"), $op.has("sat")) {
            (false, false) => { const F: bool = false; const S: bool = false;
                $macro!($($a),* => f32, |$($x),*| { $(let $x = flush::<F>($x);)* done::<F, S>($e) }) }
            (true, false) => { const F: bool = true; const S: bool = false;
                $macro!($($a),* => f32, |$($x),*| { $(let $x = flush::<F>($x);)* done::<F, S>($e) }) }
            (false, true) => { const F: bool = false; const S: bool = true;
                $macro!($($a),* => f32, |$($x),*| { $(let $x = flush::<F>($x);)* done::<F, S>($e) }) }
            (true, true) => { const F: bool = true; const S: bool = true;
                $macro!($($a),* => f32, |$($x),*| { $(let $x = flush::<F>($x);)* done::<F, S>($e) }) }
        }
    };
}

/// Rounding other than to nearest, as bits of the processor's control register.
fn rounding(op: &Flat) -> Option<u32> {
    if op.has("rz") {
        Some(3)
    } else if op.has("rm") {
        Some(1)
    } else if op.has("rp") {
        Some(2)
    } else {
        None
    }
}

/// An operation with the processor rounding in a direction.
macro_rules! directed {
    ($name:ident, $ty:ty, $text:expr) => {
        fn $name(mode: u32, a: $ty, b: $ty, c: $ty) -> $ty {
            let mut result = a;
            let normal: u32 = 0x1f80;
            let control: u32 = normal | mode << 13;
            // SAFETY: the control register is as before afterwards; the asm reads and writes nothing else.
            unsafe {
                asm!(
                    "ldmxcsr [{control}]", $text, "ldmxcsr [{normal}]",
                    control = in(reg) &control, normal = in(reg) &normal,
                    a = inout(xmm_reg) result, b = in(xmm_reg) b, c = in(xmm_reg) c,
                );
            }
            result
        }
    };
}
directed!(add32, f32, "vaddss {a}, {a}, {b} /* {c} */");
directed!(sub32, f32, "vsubss {a}, {a}, {b} /* {c} */");
directed!(mul32, f32, "vmulss {a}, {a}, {b} /* {c} */");
directed!(div32, f32, "vdivss {a}, {a}, {b} /* {c} */");
directed!(sqrt32, f32, "vsqrtss {a}, {a}, {a} /* {b} {c} */");
directed!(fma32, f32, "vfmadd213ss {a}, {b}, {c}");
directed!(add64, f64, "vaddsd {a}, {a}, {b} /* {c} */");
directed!(sub64, f64, "vsubsd {a}, {a}, {b} /* {c} */");
directed!(mul64, f64, "vmulsd {a}, {a}, {b} /* {c} */");
directed!(div64, f64, "vdivsd {a}, {a}, {b} /* {c} */");
directed!(sqrt64, f64, "vsqrtsd {a}, {a}, {a} /* {b} {c} */");
directed!(fma64, f64, "vfmadd213sd {a}, {b}, {c}");

const FTZ: u32 = 4;
const SAT: u32 = 8;

macro_rules! slow32 {
    ($f:ident) => {{
        unsafe fn run(cx: &mut Cx, i: &Inst, m: u32) {
            let (mode, ftz, sat) = (i.x & 3, i.x & FTZ != 0, i.x & SAT != 0);
            let flush = |value: f32| if ftz { flush::<true>(value) } else { value };
            unsafe {
                e3_values(cx, i, m, |a: f32, b: f32, c: f32| {
                    let value = canonical(flush($f(mode, flush(a), flush(b), flush(c))));
                    if sat { saturate::<true>(value) } else { value }
                })
            }
        }
        run as Exec
    }};
}

macro_rules! slow64 {
    ($f:ident) => {{
        unsafe fn run(cx: &mut Cx, i: &Inst, m: u32) {
            let mode = i.x & 3;
            unsafe { e3_values(cx, i, m, |a: f64, b: f64, c: f64| $f(mode, a, b, c)) }
        }
        run as Exec
    }};
}

unsafe fn e3_values<T: Lane>(cx: &mut Cx, i: &Inst, m: u32, f: impl Fn(T, T, T) -> T) {
    unsafe { each3::<T, T, T, T>(cx, i, m, f) }
}

/// 2^x, as loops over lanes can do it.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let x = x as f64;
    let clamped = x.clamp(-200.0, 200.0);
    let whole = clamped.round_ties_even();
    let t = (clamped - whole) * std::f64::consts::LN_2;
    let mut sum = 1.0 / 39_916_800.0;
    for factor in [3_628_800.0, 362_880.0, 40_320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0]
    {
        sum = f64::mul_add(sum, t, 1.0 / factor);
    }
    let scale = f64::from_bits(((whole as i32 + 1023) as u64) << 52);
    let value = (sum * scale) as f32;
    if x.is_nan() { f32::NAN } else { value }
}

#[inline(always)]
pub fn log2(x: f32) -> f32 {
    (x as f64).log2() as f32
}

#[inline(always)]
fn minimum(a: f32, b: f32) -> f32 {
    if a.is_nan() {
        canonical(b)
    } else if b.is_nan() || a < b || (a == b && a.is_sign_negative()) {
        a
    } else {
        b
    }
}

#[inline(always)]
fn maximum(a: f32, b: f32) -> f32 {
    if a.is_nan() {
        canonical(b)
    } else if b.is_nan() || a > b || (a == b && !a.is_sign_negative()) {
        a
    } else {
        b
    }
}

/// NaN if either is.
#[inline(always)]
fn strict(a: f32, b: f32, value: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::from_bits(0x7fff_ffff) } else { value }
}

fn minimum64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() || a < b || (a == b && a.is_sign_negative()) {
        a
    } else {
        b
    }
}

fn maximum64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() || a > b || (a == b && !a.is_sign_negative()) {
        a
    } else {
        b
    }
}

pub fn lower(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    let types = op.types();
    let Some(&ty) = types.first() else { return Ok(None) };
    let name = op.name();
    let f: Exec = match ty {
        Ty::F32 => match single(op, name) {
            Some(f) => f,
            None => return Ok(None),
        },
        Ty::F64 => match double(op, name) {
            Some(f) => f,
            None => return Ok(None),
        },
        Ty::B32 | Ty::B64 if matches!(name, "copysign") => return Ok(None),
        _ => return Ok(None),
    };
    let special = matches!(name, "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh")
        || name == "div" && ty == Ty::F32;
    let class = if special {
        Class::Special
    } else if ty == Ty::F32 {
        Class::Fp32
    } else {
        Class::Fp64
    };
    let mut inst = l.inst(op, class);
    inst.f = f;
    inst.x = rounding(op).unwrap_or(0)
        | if op.has("ftz") { FTZ } else { 0 }
        | if op.has("sat") { SAT } else { 0 };
    if name == "testp" {
        inst.d = l.predicate(&op.args[0])?;
        inst.a = l.source(&op.args[1], ty)?;
        inst.b = inst.a;
        return Ok(Some(inst));
    }
    inst.d = l.destination(&op.args[0])?;
    inst.a = l.source(&op.args[1], ty)?;
    inst.b = if op.args.len() > 2 { l.source(&op.args[2], ty)? } else { inst.a };
    inst.c = if op.args.len() > 3 { l.source(&op.args[3], ty)? } else { inst.a };
    Ok(Some(inst))
}

macro_rules! test {
    ($ty:ty, |$x:ident| $e:expr) => {{
        unsafe fn run(cx: &mut Cx, i: &Inst, m: u32) {
            let bits = unsafe { compare::<$ty>(cx, i, |$x, _| $e) };
            cx.set_predicate(i.d, m, bits);
        }
        run as Exec
    }};
}

fn single(op: &Flat, name: &str) -> Option<Exec> {
    let directed = rounding(op).is_some();
    let approximate = op.has("approx");
    Some(match name {
        "add" if directed => slow32!(add32),
        "sub" if directed => slow32!(sub32),
        "mul" if directed => slow32!(mul32),
        "fma" | "mad" if directed => slow32!(fma32),
        "add" => variants!(op, f2, (f32, f32), |a, b| a + b),
        "sub" => variants!(op, f2, (f32, f32), |a, b| a - b),
        "mul" => variants!(op, f2, (f32, f32), |a, b| a * b),
        "fma" | "mad" => variants!(op, f3, (f32, f32, f32), |a, b, c| a.mul_add(b, c)),
        "div" if directed => slow32!(div32),
        "div" if approximate => variants!(op, f2, (f32, f32), |a, b| {
            // The card multiplies by a reciprocal that is zero for these.
            let large = b.abs() > f32::from_bits(0x7e80_0000) && b.abs() < f32::INFINITY;
            if large { a * 0.0f32.copysign(b) } else { a / b }
        }),
        "div" => variants!(op, f2, (f32, f32), |a, b| a / b),
        "rcp" if directed => {
            unsafe fn run(cx: &mut Cx, i: &Inst, m: u32) {
                let (mode, ftz) = (i.x & 3, i.x & FTZ != 0);
                let flush = |value: f32| if ftz { flush::<true>(value) } else { value };
                unsafe {
                    each1::<f32, f32>(cx, i, m, |a| {
                        canonical(flush(div32(mode, 1.0, flush(a), 0.0)))
                    })
                }
            }
            run
        }
        "rcp" => variants!(op, f1, (f32), |a| 1.0 / a),
        "sqrt" if directed => slow32!(sqrt32),
        "sqrt" => variants!(op, f1, (f32), |a| a.sqrt()),
        "rsqrt" => variants!(op, f1, (f32), |a| (1.0 / (a as f64).sqrt()) as f32),
        "ex2" => variants!(op, f1, (f32), |a| exp2(a)),
        "lg2" => variants!(op, e1, (f32), |a| log2(a)),
        "sin" => variants!(op, e1, (f32), |a| a.sin()),
        "cos" => variants!(op, e1, (f32), |a| a.cos()),
        "tanh" => variants!(op, e1, (f32), |a| (a as f64).tanh() as f32),
        "abs" if op.has("ftz") => {
            f1!(u32 => f32, |a| flush::<true>(f32::from_bits(a & 0x7fff_ffff)))
        }
        "abs" => f1!(u32 => u32, |a| a & 0x7fff_ffff),
        "neg" if op.has("ftz") => {
            f1!(u32 => f32, |a| flush::<true>(f32::from_bits(a ^ 0x8000_0000)))
        }
        "neg" => f1!(u32 => u32, |a| a ^ 0x8000_0000),
        "min" | "max" => {
            let three = op.args.len() > 3;
            match (name == "min", op.has("NaN"), op.has("ftz"), three) {
                (true, false, false, false) => f2!(f32, f32 => f32, |a, b| minimum(a, b)),
                (true, false, true, false) => {
                    f2!(f32, f32 => f32, |a, b| minimum(flush::<true>(a), flush::<true>(b)))
                }
                (true, true, false, false) => {
                    f2!(f32, f32 => f32, |a, b| strict(a, b, minimum(a, b)))
                }
                (true, true, true, false) => {
                    f2!(f32, f32 => f32, |a, b| strict(a, b, minimum(flush::<true>(a), flush::<true>(b))))
                }
                (false, false, false, false) => f2!(f32, f32 => f32, |a, b| maximum(a, b)),
                (false, false, true, false) => {
                    f2!(f32, f32 => f32, |a, b| maximum(flush::<true>(a), flush::<true>(b)))
                }
                (false, true, false, false) => {
                    f2!(f32, f32 => f32, |a, b| strict(a, b, maximum(a, b)))
                }
                (false, true, true, false) => {
                    f2!(f32, f32 => f32, |a, b| strict(a, b, maximum(flush::<true>(a), flush::<true>(b))))
                }
                _ => return None,
            }
        }
        // PTX: the sign of the first, the rest of the second.
        "copysign" => f2!(u32, u32 => u32, |a, b| a & 0x8000_0000 | b & 0x7fff_ffff),
        "testp" => match op.part(1) {
            "finite" => test!(f32, |x| x.is_finite()),
            "infinite" => test!(f32, |x| x.is_infinite()),
            "number" => test!(f32, |x| !x.is_nan()),
            "notanumber" => test!(f32, |x| x.is_nan()),
            "normal" => test!(f32, |x| x.is_normal()),
            "subnormal" => test!(f32, |x| x.is_subnormal()),
            _ => return None,
        },
        _ => return None,
    })
}

fn double(op: &Flat, name: &str) -> Option<Exec> {
    let directed = rounding(op).is_some();
    Some(match name {
        "add" if directed => slow64!(add64),
        "sub" if directed => slow64!(sub64),
        "mul" if directed => slow64!(mul64),
        "fma" | "mad" if directed => slow64!(fma64),
        "div" if directed => slow64!(div64),
        "sqrt" if directed => slow64!(sqrt64),
        "add" => f2!(f64, f64 => f64, |a, b| a + b),
        "sub" => f2!(f64, f64 => f64, |a, b| a - b),
        "mul" => f2!(f64, f64 => f64, |a, b| a * b),
        "fma" | "mad" => f3!(f64, f64, f64 => f64, |a, b, c| a.mul_add(b, c)),
        "div" => e2!(f64, f64 => f64, |a, b| a / b),
        // The card's approximation has the upper 32 bits only.
        "rcp" if op.has("approx") => {
            f1!(f64 => f64, |a| f64::from_bits((1.0 / a).to_bits() & !0xffff_ffff))
        }
        "rcp" if directed => {
            unsafe fn run(cx: &mut Cx, i: &Inst, m: u32) {
                let mode = i.x & 3;
                unsafe { each1::<f64, f64>(cx, i, m, |a| div64(mode, 1.0, a, 0.0)) }
            }
            run
        }
        "rcp" => f1!(f64 => f64, |a| 1.0 / a),
        "sqrt" => f1!(f64 => f64, |a| a.sqrt()),
        "rsqrt" => f1!(f64 => f64, |a| f64::from_bits((1.0 / a.sqrt()).to_bits() & !0xffff_ffff)),
        "abs" => f1!(u64 => u64, |a| a & !(1 << 63)),
        "neg" => f1!(u64 => u64, |a| a ^ (1 << 63)),
        "min" => f2!(f64, f64 => f64, |a, b| minimum64(a, b)),
        "max" => f2!(f64, f64 => f64, |a, b| maximum64(a, b)),
        "copysign" => f2!(u64, u64 => u64, |a, b| a & (1 << 63) | b & !(1 << 63)),
        "testp" => match op.part(1) {
            "finite" => test!(f64, |x| x.is_finite()),
            "infinite" => test!(f64, |x| x.is_infinite()),
            "number" => test!(f64, |x| !x.is_nan()),
            "notanumber" => test!(f64, |x| x.is_nan()),
            "normal" => test!(f64, |x| x.is_normal()),
            "subnormal" => test!(f64, |x| x.is_subnormal()),
            _ => return None,
        },
        _ => return None,
    })
}
