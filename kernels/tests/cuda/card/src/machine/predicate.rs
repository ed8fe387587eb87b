//! Comparisons, predicates, selection and moves.

use super::half::{Binary16, Brain16, Half};
use super::lanes::*;
use super::lower::{Flat, Lowering, f1, f3};
use super::{Class, Cx, Exec, Inst, NO_GUARD, SINK};
use crate::ptx::{Operand, Ty};

/// Ways to combine the result of a comparison with a predicate.
const ALONE: u32 = 0;
const AND: u32 = 1;
const OR: u32 = 2;
const XOR: u32 = 3;

#[inline(always)]
fn settle(cx: &mut Cx, i: &Inst, mask: u32, bits: u32) {
    let other = if i.x == ALONE { 0 } else { cx.condition(i.c) };
    let combine = |bits: u32| match i.x {
        ALONE => bits,
        AND => bits & other,
        OR => bits | other,
        _ => bits ^ other,
    };
    let (first, second) = (combine(bits), combine(!bits));
    cx.set_predicate(i.d, mask, first);
    if i.y != SINK {
        cx.set_predicate(i.y, mask, second);
    }
}

macro_rules! setp {
    ($ty:ty, |$a:ident, $b:ident| $e:expr) => {{
        unsafe fn run(cx: &mut Cx, i: &Inst, m: u32) {
            let bits = unsafe { compare::<$ty>(cx, i, |$a, $b| $e) };
            settle(cx, i, m, bits);
        }
        run as Exec
    }};
}

macro_rules! ordered {
    ($ty:ty, $name:expr, $of:expr) => {
        match $name {
            "eq" => setp!($ty, |a, b| $of(a) == $of(b)),
            "ne" => setp!($ty, |a, b| !($of(a) == $of(b)) && !nan($of(a), $of(b))),
            "lt" | "lo" => setp!($ty, |a, b| $of(a) < $of(b)),
            "le" | "ls" => setp!($ty, |a, b| $of(a) <= $of(b)),
            "gt" | "hi" => setp!($ty, |a, b| $of(a) > $of(b)),
            "ge" | "hs" => setp!($ty, |a, b| $of(a) >= $of(b)),
            "equ" => setp!($ty, |a, b| $of(a) == $of(b) || nan($of(a), $of(b))),
            "neu" => setp!($ty, |a, b| $of(a) != $of(b)),
            "ltu" => setp!($ty, |a, b| !($of(a) >= $of(b))),
            "leu" => setp!($ty, |a, b| !($of(a) > $of(b))),
            "gtu" => setp!($ty, |a, b| !($of(a) <= $of(b))),
            "geu" => setp!($ty, |a, b| !($of(a) < $of(b))),
            "num" => setp!($ty, |a, b| !nan($of(a), $of(b))),
            "nan" => setp!($ty, |a, b| nan($of(a), $of(b))),
            _ => return None,
        }
    };
}

#[allow(clippy::eq_op)]
#[inline(always)]
fn nan<T: PartialEq + Copy>(a: T, b: T) -> bool {
    a != a || b != b
}

#[inline(always)]
fn same<T>(value: T) -> T {
    value
}

#[inline(always)]
fn flushed(value: f32) -> f32 {
    if value.to_bits() & 0x7f80_0000 == 0 { 0.0 } else { value }
}

fn comparison(name: &str, ty: Ty, ftz: bool) -> Option<Exec> {
    Some(match ty {
        Ty::B16 | Ty::U16 => ordered!(u16, name, same),
        Ty::S16 => ordered!(i16, name, same),
        Ty::B32 | Ty::U32 => ordered!(u32, name, same),
        Ty::S32 => ordered!(i32, name, same),
        Ty::B64 | Ty::U64 => ordered!(u64, name, same),
        Ty::S64 => ordered!(i64, name, same),
        Ty::F32 if ftz => ordered!(f32, name, flushed),
        Ty::F32 => ordered!(f32, name, same),
        Ty::F64 => ordered!(f64, name, same),
        Ty::F16 => ordered!(u16, name, Binary16::to_f32),
        Ty::Bf16 => ordered!(u16, name, Brain16::to_f32),
        _ => return None,
    })
}

/// Compares the halves of a pair; the low one comes first.
fn compare_halves(code: u32, brain: bool, a: u32, b: u32) -> [bool; 2] {
    [0, 16].map(|shift| {
        let of = |word: u32| {
            let half = (word >> shift) as u16;
            if brain { Brain16::to_f32(half) } else { Binary16::to_f32(half) }
        };
        holds(code, of(a) as f64, of(b) as f64)
    })
}

const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
    "lo", "ls", "hi", "hs",
];

fn holds(code: u32, a: f64, b: f64) -> bool {
    let unordered = a.is_nan() || b.is_nan();
    match COMPARISONS[code as usize] {
        "eq" => a == b,
        "ne" => a != b && !unordered,
        "lt" | "lo" => a < b,
        "le" | "ls" => a <= b,
        "gt" | "hi" => a > b,
        "ge" | "hs" => a >= b,
        "equ" => a == b || unordered,
        "neu" => a != b,
        "ltu" => a < b || unordered,
        "leu" => a <= b || unordered,
        "gtu" => a > b || unordered,
        "geu" => a >= b || unordered,
        "num" => !unordered,
        _ => unordered,
    }
}

fn boolean(name: &str) -> Option<u32> {
    Some(match name {
        "and" => AND,
        "or" => OR,
        "xor" => XOR,
        _ => return None,
    })
}

pub fn lower(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    let types = op.types();
    let name = op.name();
    let mut inst = l.inst(op, Class::Integer);
    match name {
        "setp" => {
            let Some(&ty) = types.first() else { return Ok(None) };
            if matches!(ty, Ty::F32 | Ty::F64 | Ty::F16 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2) {
                inst.class = Class::Fp32;
            }
            let comparison_name = op.part(1);
            if let Some(combine) = boolean(op.part(2)) {
                inst.x = combine;
                inst.c = l.condition(&op.args[3])?;
            } else {
                inst.c = NO_GUARD - 1;
            }
            (inst.d, inst.y) = match &op.args[0] {
                Operand::Both(first, second) => (l.predicate(first)?, l.predicate(second)?),
                one => (l.predicate(one)?, SINK),
            };
            inst.a = l.source(&op.args[1], ty)?;
            inst.b = l.source(&op.args[2], ty)?;
            if matches!(ty, Ty::F16x2 | Ty::Bf16x2) {
                let code = COMPARISONS.iter().position(|one| *one == comparison_name);
                inst.imm = code.ok_or("no such comparison")? as i64
                    | if ty == Ty::Bf16x2 { 256 } else { 0 };
                inst.f = setp_halves;
                return Ok(Some(inst));
            }
            let Some(f) = comparison(comparison_name, ty, op.has("ftz")) else { return Ok(None) };
            inst.f = f;
            Ok(Some(inst))
        }
        "set" => {
            // set.CmpOp{.BoolOp}.dtype.stype
            let (Some(&to), Some(&from)) = (types.first(), types.get(1)) else { return Ok(None) };
            let code = COMPARISONS
                .iter()
                .position(|one| *one == op.part(1))
                .ok_or("no such comparison")?;
            if let Some(combine) = boolean(op.part(2)) {
                inst.x = combine;
                inst.c = l.condition(&op.args[3])?;
            }
            inst.d = l.destination(&op.args[0])?;
            inst.a = l.source(&op.args[1], from)?;
            inst.b = l.source(&op.args[2], from)?;
            inst.y = if op.has("ftz") { 1 } else { 0 };
            inst.imm = code as i64 | (kind_of(from) as i64) << 8 | (result_of(to) as i64) << 16;
            inst.f = set;
            Ok(Some(inst))
        }
        "selp" => {
            let Some(&ty) = types.first() else { return Ok(None) };
            inst.d = l.destination(&op.args[0])?;
            inst.a = l.source(&op.args[1], ty)?;
            inst.b = l.source(&op.args[2], ty)?;
            inst.c = l.condition(&op.args[3])?;
            inst.f = if ty.bytes() == 8 { select::<u64> } else { select::<u32> };
            Ok(Some(inst))
        }
        "slct" => {
            let (Some(&ty), Some(&by)) = (types.first(), types.get(1)) else { return Ok(None) };
            inst.d = l.destination(&op.args[0])?;
            inst.a = l.source(&op.args[1], ty)?;
            inst.b = l.source(&op.args[2], ty)?;
            inst.c = l.source(&op.args[3], by)?;
            inst.f = match (ty.bytes(), by) {
                (8, Ty::F32) => f3!(u64, u64, f32 => u64, |a, b, c| if c >= 0.0 { a } else { b }),
                (8, _) => f3!(u64, u64, i32 => u64, |a, b, c| if c >= 0 { a } else { b }),
                (_, Ty::F32) => f3!(u32, u32, f32 => u32, |a, b, c| if c >= 0.0 { a } else { b }),
                _ => f3!(u32, u32, i32 => u32, |a, b, c| if c >= 0 { a } else { b }),
            };
            Ok(Some(inst))
        }
        "and" | "or" | "xor" | "not" | "mov" if types.first() == Some(&Ty::Pred) => {
            inst.d = l.predicate(&op.args[0])?;
            inst.a = l.condition(&op.args[1])?;
            inst.b = if op.args.len() > 2 { l.condition(&op.args[2])? } else { inst.a };
            inst.x = boolean(name).unwrap_or(if name == "not" { 4 } else { 5 });
            inst.f = logic;
            Ok(Some(inst))
        }
        "mov" => {
            inst.class = Class::Move;
            let ty = types.first().copied().unwrap_or(Ty::B32);
            match (&op.args[0], &op.args[1]) {
                (Operand::Vector(to), from) => {
                    let list: Result<Vec<u32>, String> =
                        to.iter().map(|one| l.destination(one)).collect();
                    let wide = to.iter().any(|one| l.is_wide(one));
                    inst.y = l.list(list?);
                    inst.x = (ty.bytes() * 8 / to.len()) as u32 | if wide { 256 } else { 0 };
                    if ty.bytes() == 16 {
                        return Ok(None);
                    }
                    inst.imm = (ty.bytes() == 8) as i64;
                    inst.a = l.source(from, ty)?;
                    inst.f = unpack;
                }
                (to, Operand::Vector(from)) => {
                    let part = match ty.bytes() / from.len() {
                        1 => Ty::B8,
                        2 => Ty::B16,
                        4 => Ty::B32,
                        8 => Ty::B64,
                        _ => return Ok(None),
                    };
                    if ty.bytes() == 16 {
                        return Ok(None);
                    }
                    let list: Result<Vec<u32>, String> =
                        from.iter().map(|one| l.source(one, part)).collect();
                    inst.y = l.list(list?);
                    inst.x = (part.bytes() * 8) as u32;
                    inst.imm = (ty.bytes() == 8) as i64;
                    inst.d = l.destination(to)?;
                    inst.f = pack;
                }
                (to, from) => {
                    inst.d = l.destination(to)?;
                    if let Operand::Special(name) = from
                        && let Some(f) = super::warp::clock(name)
                    {
                        inst.f = f;
                        return Ok(Some(inst));
                    }
                    inst.a = l.source(from, ty)?;
                    inst.f = if ty.bytes() == 8 {
                        f1!(u64 => u64, |a| a)
                    } else {
                        f1!(u32 => u32, |a| a)
                    };
                    if ty.bytes() == 8 && !l.is_wide(to) {
                        return Err("a move of 64 bits into fewer".to_string());
                    }
                }
            }
            Ok(Some(inst))
        }
        _ => Ok(None),
    }
}

unsafe fn logic(cx: &mut Cx, i: &Inst, mask: u32) {
    let (a, b) = (cx.condition(i.a), cx.condition(i.b));
    let bits = match i.x {
        AND => a & b,
        OR => a | b,
        XOR => a ^ b,
        4 => !a,
        _ => a,
    };
    cx.set_predicate(i.d, mask, bits);
}

unsafe fn select<T: Lane>(cx: &mut Cx, i: &Inst, mask: u32) {
    let chosen = cx.condition(i.c);
    unsafe {
        let (a, b) = (read::<T>(cx, i.a), read::<T>(cx, i.b));
        let mut out = b;
        for lane in 0..LANES {
            out[lane] = if chosen >> lane & 1 != 0 { a[lane] } else { b[lane] };
        }
        write(cx, i.d, mask, &out);
    }
}

unsafe fn setp_halves(cx: &mut Cx, i: &Inst, mask: u32) {
    let (mut low, mut high) = (0, 0);
    unsafe {
        let (a, b) = (read::<u32>(cx, i.a), read::<u32>(cx, i.b));
        for lane in lanes(mask) {
            let [first, second] =
                compare_halves((i.imm & 255) as u32, i.imm & 256 != 0, a[lane], b[lane]);
            low |= (first as u32) << lane;
            high |= (second as u32) << lane;
        }
    }
    let other = if i.x == ALONE { 0 } else { cx.condition(i.c) };
    let combine = |bits: u32| match i.x {
        ALONE => bits,
        AND => bits & other,
        OR => bits | other,
        _ => bits ^ other,
    };
    let (low, high) = (combine(low), combine(high));
    cx.set_predicate(i.d, mask, low);
    cx.set_predicate(i.y, mask, high);
}

fn kind_of(ty: Ty) -> u32 {
    match ty {
        Ty::S16 => 1,
        Ty::U16 | Ty::B16 => 0,
        Ty::U32 | Ty::B32 => 2,
        Ty::S32 => 3,
        Ty::U64 | Ty::B64 => 4,
        Ty::S64 => 5,
        Ty::F32 => 6,
        Ty::F64 => 7,
        Ty::F16 => 8,
        Ty::Bf16 => 9,
        Ty::F16x2 => 10,
        _ => 11,
    }
}

fn result_of(ty: Ty) -> u32 {
    match ty {
        Ty::F32 => 1,
        Ty::F16 => 2,
        Ty::Bf16 => 3,
        Ty::F16x2 => 4,
        Ty::Bf16x2 => 5,
        Ty::U16 | Ty::S16 | Ty::B16 => 6,
        _ => 0,
    }
}

unsafe fn set(cx: &mut Cx, i: &Inst, mask: u32) {
    let (code, kind, result) = ((i.imm & 255) as u32, i.imm >> 8 & 255, i.imm >> 16 & 255);
    let wide = matches!(kind, 4 | 5 | 7);
    for lane in lanes(mask) {
        let other = if i.x == ALONE { false } else { cx.condition(i.c) >> lane & 1 != 0 };
        let combine = |found: bool| match i.x {
            ALONE => found,
            AND => found & other,
            OR => found | other,
            _ => found ^ other,
        };
        unsafe {
            let (a, b) = (get(cx, i.a, wide, lane), get(cx, i.b, wide, lane));
            let found = if kind >= 10 {
                compare_halves(code, kind == 11, a as u32, b as u32)
            } else {
                let ordering = |a: std::cmp::Ordering| holds(code, a as i8 as f64, 0.0);
                let found = match kind {
                    0 => ordering((a as u16).cmp(&(b as u16))),
                    1 => ordering((a as i16).cmp(&(b as i16))),
                    2 => ordering((a as u32).cmp(&(b as u32))),
                    3 => ordering((a as i32).cmp(&(b as i32))),
                    4 => ordering(a.cmp(&b)),
                    5 => ordering((a as i64).cmp(&(b as i64))),
                    6 => {
                        let of = |x: u64| {
                            let x = f32::from_bits(x as u32);
                            if i.y == 1 { flushed(x) } else { x }
                        };
                        holds(code, of(a) as f64, of(b) as f64)
                    }
                    7 => holds(code, f64::from_bits(a), f64::from_bits(b)),
                    8 => holds(
                        code,
                        Binary16::to_f32(a as u16) as f64,
                        Binary16::to_f32(b as u16) as f64,
                    ),
                    _ => holds(
                        code,
                        Brain16::to_f32(a as u16) as f64,
                        Brain16::to_f32(b as u16) as f64,
                    ),
                };
                [found, found]
            };
            let [low, high] = found.map(combine);
            let value = match result {
                0 if kind >= 10 => low as u32 * 0xffff | (high as u32 * 0xffff) << 16,
                0 => (low as u32).wrapping_neg(),
                1 => low as u32 * 0x3f80_0000,
                2 => low as u32 * 0x3c00,
                3 => low as u32 * 0x3f80,
                4 => low as u32 * 0x3c00 | (high as u32 * 0x3c00) << 16,
                5 => low as u32 * 0x3f80 | (high as u32 * 0x3f80) << 16,
                _ => low as u32 * 0xffff,
            };
            put(cx, i.d, false, lane, value as u64);
        }
    }
}

unsafe fn unpack(cx: &mut Cx, i: &Inst, mask: u32) {
    let to = cx.launch.kernel.lists[i.y as usize].as_slice();
    let bits = i.x & 255;
    let ones = if bits >= 64 { !0 } else { (1u64 << bits) - 1 };
    for lane in lanes(mask) {
        unsafe {
            let value = get(cx, i.a, i.imm != 0, lane);
            for (at, &one) in to.iter().enumerate() {
                put(cx, one, i.x & 256 != 0, lane, value >> (at as u32 * bits) & ones);
            }
        }
    }
}

unsafe fn pack(cx: &mut Cx, i: &Inst, mask: u32) {
    let from = cx.launch.kernel.lists[i.y as usize].as_slice();
    let ones = if i.x >= 64 { !0 } else { (1u64 << i.x) - 1 };
    for lane in lanes(mask) {
        unsafe {
            let mut value = 0;
            for (at, &one) in from.iter().enumerate() {
                value |= (get(cx, one, i.x == 64, lane) & ones) << (at as u32 * i.x);
            }
            put(cx, i.d, i.imm != 0, lane, value);
        }
    }
}
