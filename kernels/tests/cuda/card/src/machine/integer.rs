//! Integers and bits.

use super::lanes::*;
use super::lower::{Flat, Lowering, e2, f1, f2, f3};
use super::{Class, Cx, Exec, Inst};
use crate::ptx::Ty;

/// Expands an expression with `T` as the integer of a type.
macro_rules! by_type {
    ($ty:expr, $($body:tt)*) => {
        match $ty {
            Ty::U16 | Ty::B16 => { type T = u16; $($body)* }
            Ty::S16 => { type T = i16; $($body)* }
            Ty::U32 | Ty::B32 => { type T = u32; $($body)* }
            Ty::S32 => { type T = i32; $($body)* }
            Ty::U64 | Ty::B64 => { type T = u64; $($body)* }
            Ty::S64 => { type T = i64; $($body)* }
            _ => return Ok(None),
        }
    };
}

macro_rules! by_bits {
    ($ty:expr, $($body:tt)*) => {
        match $ty.bytes() {
            2 => { type T = u16; $($body)* }
            4 => { type T = u32; $($body)* }
            8 => { type T = u64; $($body)* }
            _ => return Ok(None),
        }
    };
}

macro_rules! by_words {
    ($ty:expr, $($body:tt)*) => {
        match $ty {
            Ty::U32 | Ty::B32 => { type T = u32; $($body)* }
            Ty::S32 => { type T = i32; $($body)* }
            Ty::U64 | Ty::B64 => { type T = u64; $($body)* }
            Ty::S64 => { type T = i64; $($body)* }
            _ => return Ok(None),
        }
    };
}

trait Int: Lane {
    fn high(self, other: Self) -> Self;
    fn divide(self, other: Self) -> Self;
    fn remainder(self, other: Self) -> Self;
    fn shift_left(self, by: u32) -> Self;
    fn shift_right(self, by: u32) -> Self;
}

macro_rules! int {
    ($($ty:ty, $double:ty, $bits:expr, $signed:expr;)*) => {$(
        impl Int for $ty {
            #[inline(always)]
            fn high(self, other: Self) -> Self { ((self as $double * other as $double) >> $bits) as $ty }
            #[inline(always)]
            fn divide(self, other: Self) -> Self { if other == 0 { !0 } else { self.wrapping_div(other) } }
            #[inline(always)]
            fn remainder(self, other: Self) -> Self { if other == 0 { self } else { self.wrapping_rem(other) } }
            #[inline(always)]
            fn shift_left(self, by: u32) -> Self { if by >= $bits { 0 } else { self << by } }
            #[inline(always)]
            fn shift_right(self, by: u32) -> Self {
                if by < $bits { self >> by } else if $signed { self >> ($bits - 1) } else { 0 }
            }
        }
    )*};
}

int! {
    u16, u32, 16, false;
    i16, i32, 16, true;
    u32, u64, 32, false;
    i32, i64, 32, true;
    u64, u128, 64, false;
    i64, i128, 64, true;
}

pub fn lower(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    let types = op.types();
    let Some(&ty) = types.first() else { return Ok(None) };
    let name = op.name();
    if matches!(
        ty,
        Ty::F16 | Ty::F32 | Ty::F64 | Ty::Bf16 | Ty::F16x2 | Ty::Bf16x2 | Ty::Pred | Ty::F32x2
    ) {
        return Ok(None);
    }
    let mut inst = l.inst(op, Class::Integer);
    let count = op.args.len();
    let (low, high, wide) = (op.has("lo"), op.has("hi"), op.has("wide"));
    if op.has("cc") || matches!(name, "addc" | "subc" | "madc") {
        return carries(l, op, ty, inst).map(Some);
    }
    if matches!(op.part(1), "u16x2" | "s16x2") {
        return Ok(None);
    }
    let f: Exec = match name {
        "add" if op.has("sat") => f2!(i32, i32 => i32, |a, b| a.saturating_add(b)),
        "sub" if op.has("sat") => f2!(i32, i32 => i32, |a, b| a.saturating_sub(b)),
        "add" => by_bits!(ty, f2!(T, T => T, |a, b| a.wrapping_add(b))),
        "sub" => by_bits!(ty, f2!(T, T => T, |a, b| a.wrapping_sub(b))),
        "mul" if wide => match ty {
            Ty::U16 => f2!(u16, u16 => u32, |a, b| a as u32 * b as u32),
            Ty::S16 => f2!(i16, i16 => i32, |a, b| a as i32 * b as i32),
            Ty::U32 => f2!(u32, u32 => u64, |a, b| a as u64 * b as u64),
            Ty::S32 => f2!(i32, i32 => i64, |a, b| a as i64 * b as i64),
            _ => return Ok(None),
        },
        "mul" if high => by_type!(ty, f2!(T, T => T, |a, b| a.high(b))),
        "mul" if low => by_bits!(ty, f2!(T, T => T, |a, b| a.wrapping_mul(b))),
        "mad" if wide => {
            let f: Exec = match ty {
                Ty::U16 => {
                    f3!(u16, u16, u32 => u32, |a, b, c| (a as u32 * b as u32).wrapping_add(c))
                }
                Ty::S16 => {
                    f3!(i16, i16, i32 => i32, |a, b, c| (a as i32 * b as i32).wrapping_add(c))
                }
                Ty::U32 => {
                    f3!(u32, u32, u64 => u64, |a, b, c| (a as u64 * b as u64).wrapping_add(c))
                }
                Ty::S32 => {
                    f3!(i32, i32, i64 => i64, |a, b, c| (a as i64 * b as i64).wrapping_add(c))
                }
                _ => return Ok(None),
            };
            inst.d = l.destination(&op.args[0])?;
            inst.a = l.source(&op.args[1], ty)?;
            inst.b = l.source(&op.args[2], ty)?;
            inst.c = l.source(&op.args[3], if ty.bytes() == 4 { Ty::U64 } else { Ty::U32 })?;
            inst.f = f;
            return Ok(Some(inst));
        }
        "mad" if op.has("sat") => f3!(i32, i32, i32 => i32, |a, b, c| a.high(b).saturating_add(c)),
        "mad" if high => by_type!(ty, f3!(T, T, T => T, |a, b, c| a.high(b).wrapping_add(c))),
        "mad" if low => {
            by_bits!(ty, f3!(T, T, T => T, |a, b, c| a.wrapping_mul(b).wrapping_add(c)))
        }
        "mul24" if ty == Ty::S32 && low => {
            f2!(i32, i32 => i32, |a, b| (a << 8 >> 8).wrapping_mul(b << 8 >> 8))
        }
        "mul24" if low => f2!(u32, u32 => u32, |a, b| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff)),
        "mul24" if ty == Ty::S32 => {
            f2!(i32, i32 => i32, |a, b| (((a << 8 >> 8) as i64 * (b << 8 >> 8) as i64) >> 16) as i32)
        }
        "mul24" => {
            f2!(u32, u32 => u32, |a, b| (((a & 0xff_ffff) as u64 * (b & 0xff_ffff) as u64) >> 16) as u32)
        }
        "mad24" if ty == Ty::S32 && low => {
            f3!(i32, i32, i32 => i32, |a, b, c| (a << 8 >> 8).wrapping_mul(b << 8 >> 8).wrapping_add(c))
        }
        "mad24" if low => {
            f3!(u32, u32, u32 => u32, |a, b, c| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff).wrapping_add(c))
        }
        "sad" => by_type!(ty, f3!(T, T, T => T, |a, b, c| c.wrapping_add(a.abs_diff(b) as T))),
        "div" => by_type!(ty, e2!(T, T => T, |a, b| a.divide(b))),
        "rem" => by_type!(ty, e2!(T, T => T, |a, b| a.remainder(b))),
        "abs" => match ty {
            Ty::S16 => f1!(i16 => i16, |a| a.wrapping_abs()),
            Ty::S32 => f1!(i32 => i32, |a| a.wrapping_abs()),
            Ty::S64 => f1!(i64 => i64, |a| a.wrapping_abs()),
            _ => return Ok(None),
        },
        "neg" => by_bits!(ty, f1!(T => T, |a| a.wrapping_neg())),
        "min" if op.has("relu") => f2!(i32, i32 => i32, |a, b| a.min(b).max(0)),
        "max" if op.has("relu") => f2!(i32, i32 => i32, |a, b| a.max(b).max(0)),
        "min" => by_type!(ty, f2!(T, T => T, |a, b| if b < a { b } else { a })),
        "max" => by_type!(ty, f2!(T, T => T, |a, b| if b > a { b } else { a })),
        "popc" if ty.bytes() == 4 => f1!(u32 => u32, |a| a.count_ones()),
        "popc" => f1!(u64 => u32, |a| a.count_ones()),
        "clz" if ty.bytes() == 4 => f1!(u32 => u32, |a| a.leading_zeros()),
        "clz" => f1!(u64 => u32, |a| a.leading_zeros()),
        "bfind" if op.has("shiftamt") => match ty {
            Ty::U32 => f1!(u32 => u32, |a| if a == 0 { !0 } else { a.leading_zeros() }),
            Ty::S32 => {
                f1!(i32 => u32, |a| { let a = (a ^ (a >> 31)) as u32; if a == 0 { !0 } else { a.leading_zeros() } })
            }
            Ty::U64 => f1!(u64 => u32, |a| if a == 0 { !0 } else { a.leading_zeros() }),
            _ => {
                f1!(i64 => u32, |a| { let a = (a ^ (a >> 63)) as u64; if a == 0 { !0 } else { a.leading_zeros() } })
            }
        },
        "bfind" => match ty {
            Ty::U32 => f1!(u32 => u32, |a| 31u32.wrapping_sub(a.leading_zeros())),
            Ty::S32 => f1!(i32 => u32, |a| 31u32.wrapping_sub((a ^ (a >> 31)).leading_zeros())),
            Ty::U64 => f1!(u64 => u32, |a| 63u32.wrapping_sub(a.leading_zeros())),
            _ => f1!(i64 => u32, |a| 63u32.wrapping_sub((a ^ (a >> 63)).leading_zeros())),
        },
        "brev" => by_words!(ty, f1!(T => T, |a| a.reverse_bits())),
        "and" => by_bits!(ty, f2!(T, T => T, |a, b| a & b)),
        "or" => by_bits!(ty, f2!(T, T => T, |a, b| a | b)),
        "xor" => by_bits!(ty, f2!(T, T => T, |a, b| a ^ b)),
        "not" => by_bits!(ty, f1!(T => T, |a| !a)),
        "cnot" => by_bits!(ty, f1!(T => T, |a| (a == 0) as T)),
        "shl" | "shr" => {
            inst.f = if name == "shl" {
                by_bits!(ty, f2!(T, u32 => T, |a, b| a.shift_left(b)))
            } else {
                by_type!(ty, f2!(T, u32 => T, |a, b| a.shift_right(b)))
            };
            inst.d = l.destination(&op.args[0])?;
            inst.a = l.source(&op.args[1], ty)?;
            inst.b = l.source(&op.args[2], Ty::U32)?;
            return Ok(Some(inst));
        }
        "shf" => match (op.has("l"), op.has("wrap")) {
            (true, true) => {
                f3!(u32, u32, u32 => u32, |a, b, c| (((b as u64) << 32 | a as u64) << (c & 31) >> 32) as u32)
            }
            (true, false) => {
                f3!(u32, u32, u32 => u32, |a, b, c| (((b as u64) << 32 | a as u64) << c.min(32) >> 32) as u32)
            }
            (false, true) => {
                f3!(u32, u32, u32 => u32, |a, b, c| (((b as u64) << 32 | a as u64) >> (c & 31)) as u32)
            }
            (false, false) => {
                f3!(u32, u32, u32 => u32, |a, b, c| (((b as u64) << 32 | a as u64) >> c.min(32)) as u32)
            }
        },
        "bfe" => {
            inst.d = l.destination(&op.args[0])?;
            inst.a = l.source(&op.args[1], ty)?;
            inst.b = l.source(&op.args[2], Ty::U32)?;
            inst.c = l.source(&op.args[3], Ty::U32)?;
            inst.f = match ty {
                Ty::U32 => {
                    f3!(u32, u32, u32 => u32, |a, b, c| extract(a as u64, b, c, 32, false) as u32)
                }
                Ty::S32 => {
                    f3!(u32, u32, u32 => u32, |a, b, c| extract(a as i32 as u64, b, c, 32, true) as u32)
                }
                Ty::U64 => f3!(u64, u32, u32 => u64, |a, b, c| extract(a, b, c, 64, false)),
                _ => f3!(u64, u32, u32 => u64, |a, b, c| extract(a, b, c, 64, true)),
            };
            return Ok(Some(inst));
        }
        "bfi" => {
            inst.d = l.destination(&op.args[0])?;
            inst.a = l.source(&op.args[1], ty)?;
            inst.b = l.source(&op.args[2], ty)?;
            inst.c = l.source(&op.args[3], Ty::U32)?;
            inst.y = l.source(&op.args[4], Ty::U32)?;
            inst.f = if ty.bytes() == 4 { insert_bits::<u32> } else { insert_bits::<u64> };
            return Ok(Some(inst));
        }
        "bmsk" => {
            if op.has("clamp") {
                f2!(u32, u32 => u32, |a, b| mask_of(a, b))
            } else {
                f2!(u32, u32 => u32, |a, b| mask_of(a & 31, b & 31))
            }
        }
        "szext" => {
            let wraps = op.has("wrap");
            match (ty, wraps) {
                (Ty::U32, true) => {
                    f2!(u32, u32 => u32, |a, b| extract(a as u64, 0, b & 31, 32, false) as u32)
                }
                (Ty::U32, false) => {
                    f2!(u32, u32 => u32, |a, b| extract(a as u64, 0, b.min(32), 32, false) as u32)
                }
                (_, true) => {
                    f2!(u32, u32 => u32, |a, b| extract(a as i32 as u64, 0, b & 31, 32, true) as u32)
                }
                _ => {
                    f2!(u32, u32 => u32, |a, b| extract(a as i32 as u64, 0, b.min(32), 32, true) as u32)
                }
            }
        }
        "lop3" => {
            inst.d = l.destination(&op.args[0])?;
            inst.a = l.source(&op.args[1], ty)?;
            inst.b = l.source(&op.args[2], ty)?;
            inst.c = l.source(&op.args[3], ty)?;
            inst.x = l.immediate(&op.args[4])? as u32;
            inst.f = logic3;
            return Ok(Some(inst));
        }
        "prmt" => {
            inst.d = l.destination(&op.args[0])?;
            inst.a = l.source(&op.args[1], Ty::B32)?;
            inst.b = l.source(&op.args[2], Ty::B32)?;
            inst.c = l.source(&op.args[3], Ty::B32)?;
            inst.f = match op.part(2) {
                "" => f3!(u32, u32, u32 => u32, |a, b, c| permute(a, b, c)),
                mode => {
                    inst.x = ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]
                        .iter()
                        .position(|one| *one == mode)
                        .unwrap_or(0) as u32;
                    permute_by_mode
                }
            };
            return Ok(Some(inst));
        }
        "dp4a" | "dp2a" => {
            let Some(&second) = types.get(1) else { return Ok(None) };
            inst.d = l.destination(&op.args[0])?;
            inst.a = l.source(&op.args[1], Ty::B32)?;
            inst.b = l.source(&op.args[2], Ty::B32)?;
            inst.c = l.source(&op.args[3], Ty::B32)?;
            inst.x = ty.is_signed() as u32 | (second.is_signed() as u32) << 1 | (high as u32) << 2;
            inst.f = if name == "dp4a" { dot4 } else { dot2 };
            return Ok(Some(inst));
        }
        _ => return Ok(None),
    };
    inst.f = f;
    inst.d = l.destination(&op.args[0])?;
    inst.a = l.source(&op.args[1], ty)?;
    if count > 2 {
        inst.b = l.source(&op.args[2], ty)?;
    }
    if count > 3 {
        inst.c = l.source(&op.args[3], if name == "shf" { Ty::U32 } else { ty })?;
    }
    Ok(Some(inst))
}

#[inline(always)]
fn extract(a: u64, position: u32, length: u32, bits: u32, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if length == 0 {
        return 0;
    }
    let top = (position + length - 1).min(bits - 1);
    let sign = signed && a >> top & 1 == 1;
    let field = if position >= bits { 0 } else { a >> position };
    // Bits of the field that there are.
    let known = (top + 1).saturating_sub(position).min(length);
    let kept = if known >= 64 { field } else { field & ((1u64 << known) - 1) };
    if sign && known < 64 { kept | !0 << known } else { kept }
}

fn mask_of(position: u32, length: u32) -> u32 {
    if position >= 32 {
        return 0;
    }
    let ones = if length >= 32 { !0 } else { (1u32 << length) - 1 };
    ones << position
}

trait Bits: Lane {
    fn to(self) -> u64;
    fn of(value: u64) -> Self;
    const BITS: u32;
}
impl Bits for u32 {
    fn to(self) -> u64 {
        self as u64
    }
    fn of(value: u64) -> Self {
        value as u32
    }
    const BITS: u32 = 32;
}
impl Bits for u64 {
    fn to(self) -> u64 {
        self
    }
    fn of(value: u64) -> Self {
        value
    }
    const BITS: u32 = 64;
}

unsafe fn insert_bits<T: Bits>(cx: &mut Cx, i: &Inst, mask: u32) {
    unsafe {
        let (a, b) = (read::<T>(cx, i.a), read::<T>(cx, i.b));
        let (c, d) = (read::<u32>(cx, i.c), read::<u32>(cx, i.y));
        let mut out = [T::Slot::default(); LANES];
        for lane in 0..LANES {
            let (position, length) = (c[lane] & 0xff, d[lane] & 0xff);
            let (from, into) = (T::from_slot(a[lane]).to(), T::from_slot(b[lane]).to());
            let ones = if length >= 64 { !0u64 } else { (1u64 << length) - 1 };
            let field = if position >= T::BITS { 0 } else { ones << position };
            let moved = if position >= T::BITS { 0 } else { from << position };
            out[lane] = T::of(into & !field | moved & field).slot();
        }
        write(cx, i.d, mask, &out);
    }
}

unsafe fn logic3(cx: &mut Cx, i: &Inst, mask: u32) {
    let table = i.x;
    unsafe {
        map3::<u32, u32, u32, u32>(cx, i, mask, |a, b, c| {
            let mut found = 0;
            for at in 0..8u32 {
                if table >> at & 1 != 0 {
                    let a = if at & 4 != 0 { a } else { !a };
                    let b = if at & 2 != 0 { b } else { !b };
                    let c = if at & 1 != 0 { c } else { !c };
                    found |= a & b & c;
                }
            }
            found
        });
    }
}

fn permute(a: u32, b: u32, selection: u32) -> u32 {
    let bytes = (b as u64) << 32 | a as u64;
    let mut found = 0;
    for at in 0..4 {
        let select = selection >> (4 * at) & 0xf;
        let byte = (bytes >> (8 * (select & 7))) as u8;
        let byte = if select & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        found |= (byte as u32) << (8 * at);
    }
    found
}

unsafe fn permute_by_mode(cx: &mut Cx, i: &Inst, mask: u32) {
    let mode = i.x;
    unsafe {
        map3::<u32, u32, u32, u32>(cx, i, mask, |a, b, c| {
            let c = c & 3;
            let selection = match mode {
                0 => [0x3210, 0x4321, 0x5432, 0x6543],
                1 => [0x5670, 0x6701, 0x7012, 0x0123],
                2 => [0x0000, 0x1111, 0x2222, 0x3333],
                3 => [0x3210, 0x3211, 0x3222, 0x3333],
                4 => [0x0000, 0x1110, 0x2210, 0x3210],
                _ => [0x1010, 0x3232, 0x1010, 0x3232],
            }[c as usize];
            permute(a, b, selection)
        });
    }
}

unsafe fn dot4(cx: &mut Cx, i: &Inst, mask: u32) {
    let x = i.x;
    unsafe {
        map3::<u32, u32, i32, i32>(cx, i, mask, |a, b, c| {
            let byte = |word: u32, at: u32, signed: bool| {
                let byte = (word >> (8 * at)) as u8;
                if signed { byte as i8 as i32 } else { byte as i32 }
            };
            (0..4).fold(c, |sum, at| {
                sum.wrapping_add(byte(a, at, x & 1 != 0) * byte(b, at, x & 2 != 0))
            })
        });
    }
}

unsafe fn dot2(cx: &mut Cx, i: &Inst, mask: u32) {
    let x = i.x;
    unsafe {
        map3::<u32, u32, i32, i32>(cx, i, mask, |a, b, c| {
            let start = if x & 4 != 0 { 2 } else { 0 };
            (0..2).fold(c, |sum, at| {
                let half = (a >> (16 * at)) as u16;
                let half = if x & 1 != 0 { half as i16 as i32 } else { half as i32 };
                let byte = (b >> (8 * (start + at))) as u8;
                let byte = if x & 2 != 0 { byte as i8 as i32 } else { byte as i32 };
                sum.wrapping_add(half.wrapping_mul(byte))
            })
        });
    }
}

// Additions over several words.

const ADD: u32 = 0;
const SUBTRACT: u32 = 1;
const LOW: u32 = 2;
const HIGH: u32 = 3;
const SIGNED_HIGH: u32 = 4;
const READS_CARRY: u32 = 8;
const WRITES_CARRY: u32 = 16;

fn carries(l: &mut Lowering, op: &Flat, ty: Ty, mut inst: Inst) -> Result<Inst, String> {
    inst.x = match op.name() {
        "add" | "addc" => ADD,
        "sub" | "subc" => SUBTRACT,
        _ if op.has("lo") => LOW,
        _ if ty.is_signed() => SIGNED_HIGH,
        _ => HIGH,
    };
    if op.name().ends_with('c') {
        inst.x |= READS_CARRY;
    }
    if op.has("cc") {
        inst.x |= WRITES_CARRY;
    }
    inst.d = l.destination(&op.args[0])?;
    inst.a = l.source(&op.args[1], ty)?;
    inst.b = l.source(&op.args[2], ty)?;
    inst.c = if op.args.len() > 3 { l.source(&op.args[3], ty)? } else { inst.a };
    inst.imm = (ty.bytes() * 8) as i64;
    inst.f = with_carry;
    Ok(inst)
}

unsafe fn with_carry(cx: &mut Cx, i: &Inst, mask: u32) {
    let wide = i.imm == 64;
    let bits = i.imm as u32;
    let all = if wide { u64::MAX as u128 } else { u32::MAX as u128 };
    let before = cx.warp().carry;
    let mut after = before;
    for lane in lanes(mask) {
        unsafe {
            let a = get(cx, i.a, wide, lane) as u128;
            let b = get(cx, i.b, wide, lane) as u128;
            let c = get(cx, i.c, wide, lane) as u128;
            let carry = if i.x & READS_CARRY != 0 { (before >> lane & 1) as u128 } else { 0 };
            let product = a * b;
            let (result, out) = match i.x & 7 {
                ADD => (a + b + carry, None),
                SUBTRACT => (a.wrapping_sub(b + carry), Some(a < b + carry)),
                LOW => ((product & all) + c + carry, None),
                HIGH => ((product >> bits) + c + carry, None),
                _ => {
                    let signed = if wide {
                        (a as i64 as i128 * b as i64 as i128) >> 64
                    } else {
                        (a as i32 as i128 * b as i32 as i128) >> 32
                    };
                    ((signed as u128 & all) + c + carry, None)
                }
            };
            put(cx, i.d, wide, lane, result as u64);
            if i.x & WRITES_CARRY != 0 {
                let out = out.unwrap_or(result >> bits & 1 != 0);
                after = after & !(1 << lane) | (out as u32) << lane;
            }
        }
    }
    cx.warp().carry = after;
}
