//! `cp.async`: copies that happen when they are waited for, and no sooner, so that a missing wait shows.

use super::lanes::*;
use super::lower::{Flat, Lowering};
use super::memory::{SPACE, SPACE_GLOBAL, SPACE_SHARED, WIDE_ADDRESS, locate_all};
use super::races::Access;
use super::{Class, Cx, Inst, Kind};
use crate::ptx::{Base, Operand, Ty};

/// A copy of one lane.
#[derive(Clone, Copy)]
pub struct Copy {
    pub from: u64,
    pub to: u64,
    pub bytes: u32,
    /// Bytes that are read; the others are zeros.
    pub taken: u32,
    pub group: u32,
    pub lane: u32,
}

pub fn lower(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    if op.name() != "cp" || op.part(1) != "async" {
        return Ok(None);
    }
    let mut inst = l.inst(op, Class::Shared);
    inst.kind = Kind::Faulty;
    match op.part(2) {
        "commit_group" => {
            inst.f = commit;
            inst.kind = Kind::Plain;
            return Ok(Some(inst));
        }
        "wait_group" => {
            inst.imm = l.immediate(&op.args[0])?;
            inst.f = wait;
            return Ok(Some(inst));
        }
        "wait_all" => {
            inst.imm = -1;
            inst.f = wait;
            return Ok(Some(inst));
        }
        "ca" | "cg" => {}
        _ => return Ok(None),
    }
    // cp.async.ca.shared.global [to], [from], bytes {, taken};
    let Operand::Memory(base, offset) = &op.args[0] else { return Ok(None) };
    inst.imm = *offset;
    match base {
        Base::Register(register) => {
            inst.a = l.source_any(&Operand::Register(*register), Ty::B64)?;
            inst.x |= if l.is_wide(&Operand::Register(*register)) { WIDE_ADDRESS } else { 0 };
        }
        _ => {
            inst.a = l.integer(0, true);
            inst.x |= WIDE_ADDRESS;
        }
    }
    let mut second = inst;
    second.x = 0;
    l.address(&mut second, &op.args[1])?;
    let bytes = l.immediate(&op.args[2])?;
    let taken = match op.args.get(3) {
        Some(taken) => l.source(taken, Ty::B32)?,
        None => l.integer(bytes as u64, false),
    };
    inst.y =
        l.list(vec![second.a, second.x & WIDE_ADDRESS, second.imm as u32, taken, bytes as u32]);
    inst.x |= SPACE_SHARED << SPACE;
    inst.f = issue;
    Ok(Some(inst))
}

unsafe fn issue(cx: &mut Cx, i: &Inst, mask: u32) {
    let list = cx.launch.kernel.lists[i.y as usize].as_slice();
    let bytes = list[4];
    let source = Inst { a: list[0], x: list[1], imm: list[2] as i32 as i64, ..*i };
    unsafe {
        let taken = read::<u32>(cx, list[3]);
        let to = super::memory::addresses(cx, i, mask);
        let from = super::memory::addresses(cx, &source, mask);
        let writes = Access { reads: false, writes: true, strong: false };
        let reads = Access { reads: true, writes: false, strong: false };
        let Some(to) = locate_all(cx, SPACE_SHARED, &to, mask, bytes as u64, writes) else {
            return;
        };
        let reading =
            lanes(mask).filter(|&lane| taken[lane] > 0).fold(0, |all, lane| all | 1u32 << lane);
        let mut places = [0; LANES];
        if reading != 0 {
            let mut shown = from;
            let first = from[reading.trailing_zeros() as usize];
            for lane in 0..LANES {
                if reading >> lane & 1 == 0 {
                    shown[lane] = first;
                }
            }
            let all = lanes(reading).all(|lane| taken[lane] >= bytes);
            let width = if all { bytes } else { 1 };
            let Some(found) = locate_all(cx, SPACE_GLOBAL, &shown, reading, width as u64, reads)
            else {
                return;
            };
            places = found;
        }
        let group = cx.warp().group;
        for lane in lanes(mask) {
            let copy = Copy {
                from: places[lane],
                to: to[lane],
                bytes,
                taken: taken[lane].min(bytes),
                group,
                lane: lane as u32,
            };
            cx.warp().copies.push(copy);
        }
    }
}

unsafe fn commit(cx: &mut Cx, _: &Inst, _: u32) {
    cx.warp().group += 1;
}

unsafe fn wait(cx: &mut Cx, i: &Inst, mask: u32) {
    let group = cx.warp().group;
    // Groups below this one have to be there; all, and what is in none yet, if negative.
    let below = if i.imm < 0 { u32::MAX } else { group.saturating_sub(i.imm as u32) };
    unsafe { finish(cx, mask, below) };
}

/// Does what lanes have issued in groups below one.
///
/// # Safety
/// The warp is one that runs.
pub unsafe fn finish(cx: &mut Cx, mask: u32, below: u32) {
    let copies = std::mem::take(&mut cx.warp().copies);
    for copy in &copies {
        if copy.group < below && mask >> copy.lane & 1 != 0 {
            // SAFETY: both were found to lie in memory when the copy was issued.
            unsafe {
                let to = copy.to as *mut u8;
                if copy.taken > 0 {
                    std::ptr::copy_nonoverlapping(copy.from as *const u8, to, copy.taken as usize);
                }
                std::ptr::write_bytes(
                    to.add(copy.taken as usize),
                    0,
                    (copy.bytes - copy.taken) as usize,
                );
            }
        } else {
            cx.warp().copies.push(*copy);
        }
    }
}
