//! Instructions that lanes of a warp, or warps of a block, run together.

use super::lanes::*;
use super::lower::{Flat, Lowering};
use super::{Class, Cx, Exec, Inst, Kind, SINK};
use crate::ptx::{Operand, Ty};

/// In `x`: `y` is the row of the lanes that take part; otherwise all do.
pub const MEMBERS: u32 = 1 << 31;

/// Lanes that an instruction has to have.
pub fn members(cx: &Cx, i: &Inst, mask: u32) -> u32 {
    if i.x & MEMBERS == 0 {
        return !0;
    }
    // SAFETY: `y` is a row of 32 bits by the flag.
    let row = unsafe { read::<u32>(cx, i.y) };
    lanes(mask).fold(0, |all, lane| all | row[lane])
}

pub fn lower(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    let name = op.name();
    let mut inst = l.inst(op, Class::Shuffle);
    match name {
        "shfl" => {
            let mode = ["up", "down", "bfly", "idx"]
                .iter()
                .position(|mode| op.has(mode))
                .ok_or("no such shuffle")?;
            let (to, predicate) = match &op.args[0] {
                Operand::Both(to, predicate) => (l.destination(to)?, l.predicate(predicate)?),
                to => (l.destination(to)?, SINK),
            };
            inst.d = to;
            inst.imm = predicate as i64;
            inst.a = l.source(&op.args[1], Ty::B32)?;
            inst.b = l.source(&op.args[2], Ty::B32)?;
            inst.c = l.source(&op.args[3], Ty::B32)?;
            inst.y = if op.args.len() > 4 {
                l.source(&op.args[4], Ty::B32)?
            } else {
                l.integer(u32::MAX as u64, false)
            };
            inst.x = mode as u32 | MEMBERS;
            inst.kind = Kind::Together;
            inst.f = shuffle;
            Ok(Some(inst))
        }
        "vote" => {
            inst.x = ["all", "any", "uni", "ballot"]
                .iter()
                .position(|one| op.has(one))
                .ok_or("no such vote")? as u32;
            inst.d =
                if inst.x == 3 { l.destination(&op.args[0])? } else { l.predicate(&op.args[0])? };
            inst.a = l.condition(&op.args[1])?;
            inst.y = if op.args.len() > 2 {
                l.source(&op.args[2], Ty::B32)?
            } else {
                l.integer(u32::MAX as u64, false)
            };
            inst.x |= MEMBERS;
            inst.kind = Kind::Together;
            inst.f = vote;
            Ok(Some(inst))
        }
        "activemask" => {
            inst.d = l.destination(&op.args[0])?;
            inst.f = active;
            Ok(Some(inst))
        }
        "match" => {
            let ty = op.types().first().copied().unwrap_or(Ty::B32);
            let (to, predicate) = match &op.args[0] {
                Operand::Both(to, predicate) => (l.destination(to)?, l.predicate(predicate)?),
                to => (l.destination(to)?, SINK),
            };
            inst.d = to;
            inst.imm = predicate as i64;
            inst.a = l.source(&op.args[1], ty)?;
            inst.y = l.source(&op.args[2], Ty::B32)?;
            inst.b = (ty.bytes() == 8) as u32;
            inst.x = op.has("all") as u32 | MEMBERS;
            inst.kind = Kind::Together;
            inst.f = matching;
            Ok(Some(inst))
        }
        "redux" => {
            let ty = op.types().first().copied().unwrap_or(Ty::B32);
            let which =
                ["add", "min", "max", "and", "or", "xor"].iter().position(|one| op.has(one));
            if ty == Ty::F32 {
                return Ok(None);
            }
            inst.x =
                which.ok_or("no such reduction")? as u32 | (ty.is_signed() as u32) << 4 | MEMBERS;
            inst.d = l.destination(&op.args[0])?;
            inst.a = l.source(&op.args[1], ty)?;
            inst.y = l.source(&op.args[2], Ty::B32)?;
            inst.kind = Kind::Together;
            inst.f = reduce;
            Ok(Some(inst))
        }
        "elect" => {
            let (to, predicate) = match &op.args[0] {
                Operand::Both(to, predicate) => (l.destination(to)?, l.predicate(predicate)?),
                _ => return Ok(None),
            };
            inst.d = to;
            inst.imm = predicate as i64;
            inst.y = l.source(&op.args[1], Ty::B32)?;
            inst.x = MEMBERS;
            inst.kind = Kind::Together;
            inst.f = elect;
            Ok(Some(inst))
        }
        "bar" | "barrier" => {
            inst.class = Class::Barrier;
            if op.has("warp") {
                inst.y = l.source(&op.args[0], Ty::B32)?;
                inst.x = MEMBERS;
                inst.kind = Kind::Together;
                inst.f = idle;
                return Ok(Some(inst));
            }
            if op.has("cluster") {
                // One block in a cluster: to arrive is nothing, to wait is a barrier of the block.
                if op.has("arrive") {
                    return Ok(Some(l.nothing(op, Class::Barrier)));
                }
                inst.kind = Kind::Barrier;
                inst.a = l.integer(16, false);
                inst.b = l.integer(0, false);
                inst.f = idle;
                return Ok(Some(inst));
            }
            if op.has("arrive") {
                return Ok(None);
            }
            inst.kind = Kind::Barrier;
            inst.f = idle;
            let mut args = op.args.as_slice();
            if op.has("red") {
                inst.x = ["none", "popc", "and", "or"]
                    .iter()
                    .position(|one| op.has(one))
                    .ok_or("no such barrier")? as u32;
                inst.d =
                    if inst.x == 1 { l.destination(&args[0])? } else { l.predicate(&args[0])? };
                inst.c = l.condition(&args[args.len() - 1])?;
                args = &args[1..args.len() - 1];
            }
            inst.a = l.source(&args[0], Ty::B32)?;
            inst.b = match args.get(1) {
                Some(count) => l.source(count, Ty::B32)?,
                None => l.integer(0, false),
            };
            Ok(Some(inst))
        }
        "membar" | "fence" | "nanosleep" | "griddepcontrol" | "setmaxnreg" | "brkpt"
        | "pmevent" => Ok(Some(l.nothing(op, Class::Barrier))),
        "trap" => {
            inst.kind = Kind::Faulty;
            inst.f = trap;
            Ok(Some(inst))
        }
        _ => Ok(None),
    }
}

unsafe fn idle(_: &mut Cx, _: &Inst, _: u32) {}

unsafe fn trap(cx: &mut Cx, _: &Inst, mask: u32) {
    cx.fail(
        crate::errors::ILLEGAL_INSTRUCTION,
        Some(mask.trailing_zeros() as usize),
        "trap".to_string(),
    );
}

unsafe fn shuffle(cx: &mut Cx, i: &Inst, mask: u32) {
    unsafe {
        let (a, b, c) = (read::<u32>(cx, i.a), read::<u32>(cx, i.b), read::<u32>(cx, i.c));
        let mut out = [0; LANES];
        let mut inside = 0;
        let mut missing = 0u32;
        for lane in 0..LANES {
            let at = lane as i32;
            let (by, clamp, segments) =
                ((b[lane] & 31) as i32, (c[lane] & 31) as i32, (c[lane] >> 8 & 31) as i32);
            let highest = at & segments | clamp & !segments;
            let lowest = at & segments;
            let (from, is_inside) = match i.x & 3 {
                0 => (at - by, at - by >= highest),
                1 => (at + by, at + by <= highest),
                2 => (at ^ by, at ^ by <= highest),
                _ => {
                    let from = lowest | by & !segments;
                    (from, from <= highest)
                }
            };
            let from = if is_inside { from as usize & 31 } else { lane };
            inside |= (is_inside as u32) << lane;
            // The value of a lane that is not there is not defined.
            let there = mask >> from & 1 != 0;
            missing |= ((!there && mask >> lane & 1 != 0) as u32) << lane;
            out[lane] = if there { a[from] } else { u32::MAX };
        }
        write(cx, i.d, mask, &out);
        cx.set_predicate(i.imm as u32, mask, inside);
        if missing != 0 {
            cx.counters.missing_lanes += 1;
        }
    }
}

unsafe fn vote(cx: &mut Cx, i: &Inst, mask: u32) {
    let bits = cx.condition(i.a) & mask;
    let yes = match i.x & 3 {
        0 => bits == mask,
        1 => bits != 0,
        2 => bits == mask || bits == 0,
        _ => {
            unsafe { write(cx, i.d, mask, &[bits; LANES]) };
            return;
        }
    };
    cx.set_predicate(i.d, mask, (yes as u32).wrapping_neg());
}

unsafe fn active(cx: &mut Cx, i: &Inst, mask: u32) {
    unsafe { write(cx, i.d, mask, &[mask; LANES]) };
}

unsafe fn matching(cx: &mut Cx, i: &Inst, mask: u32) {
    unsafe {
        let value = |cx: &Cx, lane| get(cx, i.a, i.b != 0, lane);
        let mut out = [0; LANES];
        for lane in lanes(mask) {
            let own = value(cx, lane);
            out[lane] = lanes(mask)
                .filter(|&other| value(cx, other) == own)
                .fold(0, |all, other| all | 1 << other);
        }
        if i.x & 1 != 0 {
            let all = lanes(mask).all(|lane| out[lane] == mask);
            cx.set_predicate(i.imm as u32, mask, (all as u32).wrapping_neg());
            out = [if all { mask } else { 0 }; LANES];
        }
        write(cx, i.d, mask, &out);
    }
}

unsafe fn reduce(cx: &mut Cx, i: &Inst, mask: u32) {
    unsafe {
        let row = read::<u32>(cx, i.a);
        let signed = i.x & 16 != 0;
        let all = lanes(mask).map(|lane| row[lane]);
        let result = match i.x & 15 {
            0 => all.fold(0u32, |sum, one| sum.wrapping_add(one)),
            1 if signed => all.map(|one| one as i32).min().unwrap_or(0) as u32,
            1 => all.min().unwrap_or(0),
            2 if signed => all.map(|one| one as i32).max().unwrap_or(0) as u32,
            2 => all.max().unwrap_or(0),
            3 => all.fold(!0, |found, one| found & one),
            4 => all.fold(0, |found, one| found | one),
            _ => all.fold(0, |found, one| found ^ one),
        };
        write(cx, i.d, mask, &[result; LANES]);
    }
}

unsafe fn elect(cx: &mut Cx, i: &Inst, mask: u32) {
    let first = mask.trailing_zeros();
    unsafe { write(cx, i.d, mask, &[first; LANES]) };
    cx.set_predicate(i.imm as u32, mask, 1 << first);
}

/// Number of a barrier, and how many threads it waits for. The warp's predicates are kept for its reduction.
pub fn barrier(cx: &mut Cx, i: &Inst, mask: u32) -> (u32, u32) {
    let lane = mask.trailing_zeros() as usize;
    // SAFETY: rows of 32 bits by lowering.
    let (number, count) = unsafe { (read::<u32>(cx, i.a)[lane], read::<u32>(cx, i.b)[lane]) };
    if i.x != 0 {
        let bits = cx.condition(i.c) & mask;
        cx.warp().vote = bits;
    }
    (number, count)
}

/// The reduction's result, for a warp that goes on.
pub fn finish_barrier(cx: &mut Cx, i: &Inst, mask: u32, votes: &[(u32, u32)]) {
    let sum: u32 = votes.iter().map(|(bits, _)| bits.count_ones()).sum();
    match i.x {
        // SAFETY: lowering made `d` a row for the sum.
        1 => unsafe { write(cx, i.d, mask, &[sum; LANES]) },
        2 => {
            let all = votes.iter().all(|(bits, live)| bits & live == *live);
            cx.set_predicate(i.d, mask, (all as u32).wrapping_neg());
        }
        _ => cx.set_predicate(i.d, mask, ((sum > 0) as u32).wrapping_neg()),
    }
}

/// Clocks are read when they are moved from.
pub fn clock(name: &str) -> Option<Exec> {
    unsafe fn narrow(cx: &mut Cx, i: &Inst, mask: u32) {
        let now = cx.counters.instructions() as u32;
        unsafe { write(cx, i.d, mask, &[now; LANES]) };
    }
    unsafe fn wide(cx: &mut Cx, i: &Inst, mask: u32) {
        let now = cx.counters.instructions();
        unsafe { write(cx, i.d, mask, &[now; LANES]) };
    }
    unsafe fn time(cx: &mut Cx, i: &Inst, mask: u32) {
        let now = cx.launch.start.elapsed().as_nanos() as u64;
        unsafe { write(cx, i.d, mask, &[now; LANES]) };
    }
    match name {
        "%clock" | "%clock_hi" => Some(narrow),
        "%clock64" => Some(wide),
        "%globaltimer" => Some(time),
        _ => None,
    }
}
