//! `mbarrier`, and copies of whole tiles that complete on one (TMA). Copies are done when they are issued.
//!
//! A barrier is a word of 64 bits in shared memory: 20 bits of arrivals that are missing, 20 of those that are
//! expected, 22 of bytes that are missing, and the phase.

use super::lanes::*;
use super::lower::{Flat, Lowering};
use super::memory::{SPACE_GENERIC, SPACE_SHARED, locate_all};
use super::races::Access;
use super::{Class, Cx, Inst, Kind, PARAM_TAG, SHARED_START, SHARED_TAG, TAG_MASK};
use crate::errors::{ILLEGAL_ADDRESS, LAUNCH_FAILED, MISALIGNED_ADDRESS};
use crate::ptx::{Base, Operand, Ty};

const COUNT: u64 = (1 << 20) - 1;
const BYTES: u64 = (1 << 22) - 1;
const PHASE: u64 = 1 << 63;

/// The 128 bytes that `cuTensorMapEncodeTiled` writes.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct TensorMap {
    pub magic: u32,
    pub element: u8,
    pub rank: u8,
    pub swizzle: u8,
    pub fills_nan: u8,
    pub address: u64,
    pub sizes: [u64; 5],
    pub strides: [u64; 4],
    pub boxes: [u32; 5],
    pub steps: [u8; 5],
    pub kind: u8,
    pub rest: [u8; 14],
}

pub const MAGIC: u32 = 0x7a11_0001;

/// An address in any of a lane's spaces, as rows: base, whether it is wide, offset.
#[derive(Clone, Copy)]
struct Address {
    row: u32,
    wide: bool,
    offset: i64,
}

fn address(l: &mut Lowering, operand: &Operand) -> Result<Address, String> {
    match operand {
        Operand::Memory(Base::Register(register), offset) => {
            let register = Operand::Register(*register);
            Ok(Address {
                row: l.source_any(&register, Ty::B64)?,
                wide: l.is_wide(&register),
                offset: *offset,
            })
        }
        Operand::Memory(Base::None, offset) => {
            Ok(Address { row: l.integer(0, true), wide: true, offset: *offset })
        }
        Operand::Register(_) => Ok(Address {
            row: l.source_any(operand, Ty::B64)?,
            wide: l.is_wide(operand),
            offset: 0,
        }),
        other => Err(format!("not an address: {other:?}")),
    }
}

fn packed(address: Address) -> [u32; 3] {
    [address.row, address.wide as u32, address.offset as u32]
}

unsafe fn unpacked(cx: &Cx, list: &[u32], lane: usize) -> u64 {
    let base = unsafe { get(cx, list[0], list[1] != 0, lane) };
    let base = if list[1] != 0 {
        base.wrapping_add(list[2] as i32 as u64)
    } else {
        base + list[2] as u64 & 0xffff_ffff
    };
    if base & TAG_MASK == SHARED_TAG { base & !TAG_MASK } else { base }
}

const INIT: u32 = 0;
const EXPECT: u32 = 1;
const COMPLETE: u32 = 2;
const ARRIVE: u32 = 3;
const ARRIVE_EXPECT: u32 = 4;
const DROP: u32 = 5;
const WAIT_STATE: u32 = 6;
const WAIT_PARITY: u32 = 7;
const NOTHING: u32 = 8;
const COPIES_ARRIVE: u32 = 9;
const PENDING: u32 = 10;

pub fn lower(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    match op.name() {
        "mbarrier" => barrier(l, op),
        "cp" if op.part(1) == "async" && op.part(2) == "mbarrier" => {
            let mut inst = l.inst(op, Class::Barrier);
            inst.kind = Kind::Faulty;
            let place = address(l, &op.args[0])?;
            let one = l.integer(1, false);
            let mut list = packed(place).to_vec();
            list.extend([one, 0, 0, 0]);
            inst.y = l.list(list);
            inst.x = COPIES_ARRIVE;
            inst.imm = op.has("noinc") as i64;
            inst.f = act;
            Ok(Some(inst))
        }
        "cp" if op.part(1) == "async" && op.part(2) == "bulk" => copies(l, op),
        _ => Ok(None),
    }
}

fn barrier(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    let mut inst = l.inst(op, Class::Barrier);
    inst.kind = Kind::Faulty;
    inst.f = act;
    let narrow = |l: &mut Lowering, operand: Option<&Operand>| match operand {
        Some(operand) => l.source(operand, Ty::U32),
        None => Ok(l.integer(1, false)),
    };
    let (which, place, value, to) = match op.part(1) {
        "init" => (INIT, 0, Some(1), None),
        "inval" => (NOTHING, 0, None, None),
        "expect_tx" => (EXPECT, 0, Some(1), None),
        "complete_tx" => (COMPLETE, 0, Some(1), None),
        "arrive" if op.has("expect_tx") => (ARRIVE_EXPECT, 1, Some(2), Some(0)),
        "arrive" => (ARRIVE, 1, Some(2), Some(0)),
        "arrive_drop" => (DROP, 1, Some(2), Some(0)),
        "test_wait" | "try_wait" => {
            inst.kind = Kind::Waiting;
            (if op.has("parity") { WAIT_PARITY } else { WAIT_STATE }, 1, Some(2), None)
        }
        "pending_count" => (PENDING, 0, None, None),
        _ => return Ok(None),
    };
    if which == PENDING {
        return Ok(None);
    }
    // Forms without a result begin with the address.
    let shift = usize::from(to.is_some() && matches!(op.args[0], Operand::Memory(..)));
    let place = address(l, &op.args[place - shift])?;
    let mut list = packed(place).to_vec();
    let value = value.and_then(|at| op.args.get(at - shift));
    list.push(if which == WAIT_STATE {
        l.source(value.ok_or("no state")?, Ty::B64)?
    } else {
        narrow(l, value)?
    });
    let mut state = [0; 2];
    if to.is_some() && shift == 0 && op.args[0] != Operand::Nothing {
        state = [l.destination(&op.args[0])?, 1];
    }
    list.extend(state);
    list.push(0);
    if matches!(which, WAIT_STATE | WAIT_PARITY) {
        inst.d = l.predicate(&op.args[0])?;
    }
    inst.y = l.list(list);
    inst.x = which;
    Ok(Some(inst))
}

/// The word of a barrier.
fn word(cx: &mut Cx, lane: usize, address: u64) -> Option<*mut u64> {
    if !address.is_multiple_of(8)
        || address < SHARED_START
        || address + 8 > SHARED_START + cx.block.shared_bytes as u64
    {
        let status = if !address.is_multiple_of(8) { MISALIGNED_ADDRESS } else { ILLEGAL_ADDRESS };
        cx.fail(
            status,
            Some(lane),
            format!("a barrier at {address:#x}, which is not one of shared memory"),
        );
        return None;
    }
    // SAFETY: the eight bytes are the block's.
    Some(unsafe { cx.block.shared.add((address - SHARED_START) as usize) as *mut u64 })
}

fn completed(value: u64) -> u64 {
    let (pending, expected, bytes) = (value & COUNT, value >> 20 & COUNT, value >> 40 & BYTES);
    if pending != 0 || bytes != 0 {
        return value;
    }
    (value & PHASE ^ PHASE) | expected << 20 | expected
}

fn with_bytes(value: u64, change: i64) -> u64 {
    let bytes = (value >> 40 & BYTES).wrapping_add(change as u64) & BYTES;
    value & !(BYTES << 40) | bytes << 40
}

unsafe fn act(cx: &mut Cx, i: &Inst, mask: u32) {
    let list = cx.launch.kernel.lists[i.y as usize].as_slice();
    let mut ready = 0u32;
    for lane in lanes(mask) {
        let place = unsafe { unpacked(cx, list, lane) };
        let Some(place) = word(cx, lane, place) else { return };
        let amount = unsafe { get(cx, list[3], i.x == WAIT_STATE, lane) };
        // SAFETY: `word` checked the place, and a block runs on one thread.
        let value = unsafe { *place };
        let arrive = |value: u64, count: u64| {
            let pending = (value & COUNT).wrapping_sub(count) & COUNT;
            completed(value & !COUNT | pending)
        };
        let next = match i.x {
            INIT => amount << 20 | amount,
            EXPECT => with_bytes(value, amount as i64),
            COMPLETE => completed(with_bytes(value, -(amount as i64))),
            ARRIVE | ARRIVE_EXPECT | COPIES_ARRIVE | DROP => {
                let count = if i.x == ARRIVE_EXPECT { 1 } else { amount };
                if i.x != COPIES_ARRIVE && value & COUNT < count {
                    let what =
                        format!("{count} arrivals at a barrier that waits for {}", value & COUNT);
                    cx.fail(LAUNCH_FAILED, Some(lane), what);
                    return;
                }
                let value = match i.x {
                    ARRIVE_EXPECT => with_bytes(value, amount as i64),
                    DROP => value - (count << 20),
                    _ => value,
                };
                if i.x == COPIES_ARRIVE {
                    unsafe { super::asynchronous::finish(cx, 1 << lane, u32::MAX) };
                    if i.imm != 0 { arrive(value, 1) } else { value }
                } else {
                    arrive(value, count)
                }
            }
            WAIT_STATE => {
                ready |= (((value ^ amount) & PHASE != 0) as u32) << lane;
                value
            }
            WAIT_PARITY => {
                ready |= (((value >> 63) != amount & 1) as u32) << lane;
                value
            }
            _ => value,
        };
        unsafe {
            *place = next;
            if list[5] != 0 {
                put(cx, list[4], true, lane, value);
            }
        }
    }
    if matches!(i.x, WAIT_STATE | WAIT_PARITY) {
        if ready & mask == mask {
            cx.set_predicate(i.d, mask, !0);
        } else {
            cx.again = true;
        }
    }
}

const TO_SHARED: u32 = 0;
const TO_GLOBAL: u32 = 1;
const TILE_TO_SHARED: u32 = 2;
const TILE_TO_GLOBAL: u32 = 3;

fn copies(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    if op.has("commit_group") || op.has("wait_group") || op.has("prefetch") {
        return Ok(Some(l.nothing(op, Class::Shared)));
    }
    if op.has("im2col")
        || op.has("multicast::cluster")
        || op.name_parts().iter().any(|part| part == "reduce")
    {
        return Ok(None);
    }
    let mut inst = l.inst(op, Class::Shared);
    inst.kind = Kind::Faulty;
    let to_shared =
        op.name_parts().iter().skip(3).find(|part| part.starts_with("shared") || *part == "global");
    let to_shared = to_shared.is_some_and(|part| part.starts_with("shared"));
    let mut list = Vec::new();
    if op.has("tensor") {
        let (tensor, shared) =
            if to_shared { (&op.args[1], &op.args[0]) } else { (&op.args[0], &op.args[1]) };
        let Operand::Tensor(map, coordinates) = tensor else { return Ok(None) };
        list.extend(packed(address(l, shared)?));
        list.extend(packed(address(l, map)?));
        match op.args.get(2) {
            Some(barrier) if to_shared => list.extend(packed(address(l, barrier)?)),
            _ => list.extend([0; 3]),
        }
        for coordinate in coordinates {
            list.push(l.source(coordinate, Ty::S32)?);
        }
        inst.x = if to_shared { TILE_TO_SHARED } else { TILE_TO_GLOBAL };
        inst.f = tile;
    } else {
        list.extend(packed(address(l, &op.args[0])?));
        list.extend(packed(address(l, &op.args[1])?));
        match op.args.get(3) {
            Some(barrier) if to_shared => list.extend(packed(address(l, barrier)?)),
            _ => list.extend([0; 3]),
        }
        list.push(l.source(&op.args[2], Ty::U32)?);
        inst.x = if to_shared { TO_SHARED } else { TO_GLOBAL };
        inst.f = straight;
    }
    inst.y = l.list(list);
    Ok(Some(inst))
}

fn complete(cx: &mut Cx, lane: usize, barrier: u64, bytes: u64) {
    if let Some(place) = word(cx, lane, barrier) {
        // SAFETY: as in `act`.
        unsafe { *place = completed(with_bytes(*place, -(bytes as i64))) };
    }
}

/// The host's place of bytes that one lane names.
fn one(cx: &mut Cx, space: u32, lane: usize, address: u64, writes: bool) -> Option<*mut u8> {
    let access = Access { reads: !writes, writes, strong: true };
    let places = locate_all(cx, space, &[address; LANES], 1 << lane, 16, access)?;
    Some(places[lane] as *mut u8)
}

unsafe fn straight(cx: &mut Cx, i: &Inst, mask: u32) {
    let list = cx.launch.kernel.lists[i.y as usize].as_slice();
    for lane in lanes(mask) {
        let (to, from) = unsafe { (unpacked(cx, list, lane), unpacked(cx, &list[3..], lane)) };
        let bytes = unsafe { get(cx, list[9], false, lane) };
        if bytes % 16 != 0 {
            cx.fail(
                MISALIGNED_ADDRESS,
                Some(lane),
                format!("a copy of {bytes} bytes, which is no multiple of 16"),
            );
            return;
        }
        let spaces = if i.x == TO_SHARED {
            (SPACE_SHARED, SPACE_GENERIC)
        } else {
            (SPACE_GENERIC, SPACE_SHARED)
        };
        for at in (0..bytes).step_by(16) {
            let Some(to) = one(cx, spaces.0, lane, to + at, true) else { return };
            let Some(from) = one(cx, spaces.1, lane, from + at, false) else { return };
            // SAFETY: both were found to be there.
            unsafe { std::ptr::copy_nonoverlapping(from, to, 16) };
        }
        if i.x == TO_SHARED {
            let barrier = unsafe { unpacked(cx, &list[6..], lane) };
            complete(cx, lane, barrier, bytes);
        }
    }
}

fn swizzled(address: u64, mode: u8) -> u64 {
    match mode {
        1 => address ^ (address >> 7 & 1) << 4,
        2 => address ^ (address >> 7 & 3) << 4,
        3 => address ^ (address >> 7 & 7) << 4,
        _ => address,
    }
}

unsafe fn tile(cx: &mut Cx, i: &Inst, mask: u32) {
    let list = cx.launch.kernel.lists[i.y as usize].as_slice();
    for lane in lanes(mask) {
        let (shared, place) = unsafe { (unpacked(cx, list, lane), unpacked(cx, &list[3..], lane)) };
        // SAFETY: parameters are as long as the launch says; other addresses are looked up.
        let map = unsafe {
            let bytes = size_of::<TensorMap>();
            let offset = (place & !TAG_MASK) as usize;
            if place & TAG_MASK == PARAM_TAG || offset + bytes <= cx.launch.parameters.len() {
                if offset + bytes > cx.launch.parameters.len() {
                    cx.fail(
                        ILLEGAL_ADDRESS,
                        Some(lane),
                        "a tensor map outside the parameters".to_string(),
                    );
                    return;
                }
                std::ptr::read_unaligned(
                    cx.launch.parameters.as_ptr().add(offset) as *const TensorMap
                )
            } else {
                let Some(from) = one(cx, SPACE_GENERIC, lane, place, false) else { return };
                std::ptr::read_unaligned(from as *const TensorMap)
            }
        };
        if map.magic != MAGIC {
            cx.fail(ILLEGAL_ADDRESS, Some(lane), format!("no tensor map at {place:#x}"));
            return;
        }
        let rank = map.rank as usize;
        let mut start = [0i64; 5];
        for axis in 0..rank {
            start[axis] = unsafe { get(cx, list[9 + axis], false, lane) } as i32 as i64;
        }
        let element = map.element as u64;
        let count: u64 = map.boxes[..rank].iter().map(|&size| size as u64).product();
        let to_shared = i.x == TILE_TO_SHARED;
        if shared % 128 != 0 {
            cx.fail(
                MISALIGNED_ADDRESS,
                Some(lane),
                format!("a tile at {shared:#x}, which is no multiple of 128"),
            );
            return;
        }
        let end = SHARED_START + cx.block.shared_bytes as u64;
        if shared < SHARED_START || shared + count * element > end {
            cx.fail(
                ILLEGAL_ADDRESS,
                Some(lane),
                format!("a tile of {} bytes outside shared memory", count * element),
            );
            return;
        }
        for index in 0..count {
            let mut rest = index;
            let mut from = map.address;
            let mut inside = true;
            for axis in 0..rank {
                let at =
                    start[axis] + (rest % map.boxes[axis] as u64 * map.steps[axis] as u64) as i64;
                rest /= map.boxes[axis] as u64;
                inside &= at >= 0 && (at as u64) < map.sizes[axis];
                let stride = if axis == 0 { element } else { map.strides[axis - 1] };
                from = from.wrapping_add((at as u64).wrapping_mul(stride));
            }
            let to = swizzled(shared + index * element, map.swizzle) - SHARED_START;
            if inside && (from < cx.near.0 || from + element > cx.near.1) {
                match cx.launch.map.find(from) {
                    Some(range) if from + element <= range.1 => cx.near = range,
                    _ => {
                        let what =
                            format!("a tile reads {from:#x}, {}", cx.launch.memory.describe(from));
                        cx.fail(ILLEGAL_ADDRESS, Some(lane), what);
                        return;
                    }
                }
            }
            // SAFETY: the shared side is within the block's memory, the other in an allocation.
            unsafe {
                let own = cx.block.shared.add(to as usize);
                match (to_shared, inside) {
                    (true, true) => {
                        std::ptr::copy_nonoverlapping(from as *const u8, own, element as usize)
                    }
                    (true, false) => std::ptr::write_bytes(
                        own,
                        if map.fills_nan != 0 { 0xff } else { 0 },
                        element as usize,
                    ),
                    (false, true) => {
                        std::ptr::copy_nonoverlapping(own, from as *mut u8, element as usize)
                    }
                    (false, false) => {}
                }
            }
        }
        if to_shared {
            let barrier = unsafe { unpacked(cx, &list[6..], lane) };
            complete(cx, lane, barrier, count * element);
        }
    }
}
