//! `atom` and `red`.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};

use super::half::{Binary16, Brain16, Half};
use super::lanes::*;
use super::lower::{Flat, Lowering};
use super::memory::{SPACE, class_of, locate, space_code};
use super::races::Access;
use super::{Cx, Inst, Kind};
use crate::ptx::{Operand, Ty};

const OPERATIONS: [&str; 12] =
    ["add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec", "none", "none"];
const TYPES: [Ty; 15] = [
    Ty::U32,
    Ty::S32,
    Ty::B32,
    Ty::U64,
    Ty::S64,
    Ty::B64,
    Ty::F32,
    Ty::F64,
    Ty::F16,
    Ty::Bf16,
    Ty::F16x2,
    Ty::Bf16x2,
    Ty::B16,
    Ty::U16,
    Ty::S16,
];
const RETURNS: u32 = 1 << 31;

pub fn lower(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    let returns = match op.name() {
        "atom" => true,
        "red" => false,
        _ => return Ok(None),
    };
    if op.has("async") {
        return Ok(None);
    }
    let Some(&ty) = op.types().last() else { return Ok(None) };
    let space = op.space();
    let Some(operation) = OPERATIONS.iter().position(|name| op.has(name)) else { return Ok(None) };
    let Some(kind) = TYPES.iter().position(|one| *one == ty) else { return Ok(None) };
    let mut inst = l.inst(op, class_of(space_code(space)));
    inst.kind = Kind::Faulty;
    let mut args = op.args.iter();
    let to = if returns { args.next() } else { None };
    let Some(address) = args.next() else { return Ok(None) };
    l.address(&mut inst, address)?;
    let Some(value) = args.next() else { return Ok(None) };
    let parts = |operand: &Operand| match operand {
        Operand::Vector(parts) => parts.clone(),
        one => vec![one.clone()],
    };
    // For each element: destination, value, second value.
    let values = parts(value);
    let count = values.len();
    let mut rows = Vec::new();
    let targets = to.map(parts);
    for at in 0..count {
        rows.push(match &targets {
            Some(targets) => l.destination(&targets[at])?,
            None => 0,
        });
        rows.push(l.source(&values[at], ty)?);
        rows.push(match (operation, args.clone().next()) {
            (7, Some(second)) => l.source(second, ty)?,
            _ => 0,
        });
    }
    inst.y = l.list(rows);
    inst.x |= (kind as u32) << 16 | (operation as u32) << 24 | space_code(space) << SPACE;
    if returns && targets.is_some_and(|targets| targets.iter().any(|one| *one != Operand::Nothing))
    {
        inst.x |= RETURNS;
    }
    inst.b = count as u32;
    inst.f = run;
    Ok(Some(inst))
}

fn half<H: Half>(operation: usize, old: u16, value: u16) -> u16 {
    let (a, b) = (H::to_f32(old), H::to_f32(value));
    match operation {
        0 => H::of_f32(a + b),
        1 => H::of_f32(a.min(b)),
        2 => H::of_f32(a.max(b)),
        _ => value,
    }
}

fn integer<
    T: Ord
        + Copy
        + std::ops::BitAnd<Output = T>
        + std::ops::BitOr<Output = T>
        + std::ops::BitXor<Output = T>,
>(
    operation: usize,
    old: T,
    value: T,
) -> T {
    match operation {
        1 => old.min(value),
        2 => old.max(value),
        3 => old & value,
        4 => old | value,
        5 => old ^ value,
        _ => value,
    }
}

/// The value that memory holds afterwards.
fn next(operation: usize, ty: Ty, old: u64, value: u64, second: u64) -> u64 {
    if operation == 7 {
        return if old == value { second } else { old };
    }
    match (ty, operation) {
        (Ty::F32, 0) => {
            let sum = f32::from_bits(old as u32) + f32::from_bits(value as u32);
            if sum.is_nan() { 0x7fff_ffff } else { sum.to_bits() as u64 }
        }
        (Ty::F64, 0) => (f64::from_bits(old) + f64::from_bits(value)).to_bits(),
        (Ty::F16, _) => half::<Binary16>(operation, old as u16, value as u16) as u64,
        (Ty::Bf16, _) => half::<Brain16>(operation, old as u16, value as u16) as u64,
        (Ty::F16x2, _) => {
            let part = |shift: u32| {
                half::<Binary16>(operation, (old >> shift) as u16, (value >> shift) as u16) as u64
            };
            part(0) | part(16) << 16
        }
        (Ty::Bf16x2, _) => {
            let part = |shift: u32| {
                half::<Brain16>(operation, (old >> shift) as u16, (value >> shift) as u16) as u64
            };
            part(0) | part(16) << 16
        }
        (Ty::U64 | Ty::S64 | Ty::B64, 0) => old.wrapping_add(value),
        (_, 0) => (old as u32).wrapping_add(value as u32) as u64,
        (_, 8) => {
            if old as u32 >= value as u32 {
                0
            } else {
                (old as u32 + 1) as u64
            }
        }
        (_, 9) => {
            if old as u32 == 0 || old as u32 > value as u32 {
                value as u32 as u64
            } else {
                (old as u32 - 1) as u64
            }
        }
        (Ty::S32, _) => integer(operation, old as i32, value as i32) as u32 as u64,
        (Ty::S64, _) => integer(operation, old as i64, value as i64) as u64,
        (Ty::U64 | Ty::B64 | Ty::F64, _) => integer(operation, old, value),
        (_, _) => integer(operation, old as u32, value as u32) as u64,
    }
}

unsafe fn run(cx: &mut Cx, i: &Inst, mask: u32) {
    let ty = TYPES[(i.x >> 16 & 255) as usize];
    let operation = (i.x >> 24 & 127) as usize;
    let count = i.b as usize;
    let bytes = ty.bytes();
    let wide = bytes == 8;
    let access = Access { reads: true, writes: true, strong: true };
    cx.counters.atomics += mask.count_ones() as u64;
    let Some(places) = (unsafe { locate(cx, i, mask, (bytes * count) as u64, access) }) else {
        return;
    };
    let rows = cx.launch.kernel.lists[i.y as usize].as_slice();
    for lane in lanes(mask) {
        for (at, row) in rows.chunks_exact(3).enumerate() {
            unsafe {
                let place = (places[lane] as *mut u8).add(at * bytes);
                let value = get(cx, row[1], wide, lane);
                let second = if operation == 7 { get(cx, row[2], wide, lane) } else { 0 };
                let old = match bytes {
                    2 => {
                        let value = value as u16 as u64;
                        let second = second as u16 as u64;
                        let step =
                            |old: u16| Some(next(operation, ty, old as u64, value, second) as u16);
                        (*(place as *const AtomicU16)).fetch_update(SeqCst, SeqCst, step).unwrap()
                            as u64
                    }
                    4 => {
                        let step =
                            |old: u32| Some(next(operation, ty, old as u64, value, second) as u32);
                        (*(place as *const AtomicU32)).fetch_update(SeqCst, SeqCst, step).unwrap()
                            as u64
                    }
                    _ => {
                        let step = |old: u64| Some(next(operation, ty, old, value, second));
                        (*(place as *const AtomicU64)).fetch_update(SeqCst, SeqCst, step).unwrap()
                    }
                };
                if i.x & RETURNS != 0 {
                    put(cx, row[0], wide, lane, old);
                }
            }
        }
    }
}
