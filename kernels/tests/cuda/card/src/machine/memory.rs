//! Loads and stores, and where addresses lie.

use super::lanes::*;
use super::lower::{Flat, Lowering};
use super::races::Access;
use super::{
    Class, Cx, Exec, Inst, Kind, LOCAL_TAG, PARAM_TAG, SHARED_START, SHARED_TAG, TAG_MASK,
};
use crate::errors::{ILLEGAL_ADDRESS, MISALIGNED_ADDRESS};
use crate::ptx::{Operand, Space};

pub const SPACE_GLOBAL: u32 = 0;
pub const SPACE_SHARED: u32 = 1;
pub const SPACE_LOCAL: u32 = 2;
pub const SPACE_PARAM: u32 = 3;
pub const SPACE_GENERIC: u32 = 4;

// Flags of `x`.
const SIZE: u32 = 0; // two bits and one: log2 of the bytes of an element
const COUNT: u32 = 4;
pub const SPACE: u32 = 8;
const SIGNED: u32 = 1 << 12;
const WIDE: u32 = 1 << 13;
pub const WIDE_ADDRESS: u32 = 1 << 14;
/// Cannot race with others of its kind.
pub const STRONG: u32 = 1 << 15;

pub fn space_code(space: Space) -> u32 {
    match space {
        Space::Global | Space::Const => SPACE_GLOBAL,
        Space::Shared => SPACE_SHARED,
        Space::Local => SPACE_LOCAL,
        Space::Param => SPACE_PARAM,
        Space::Generic => SPACE_GENERIC,
    }
}

pub fn class_of(space: u32) -> Class {
    match space {
        SPACE_SHARED => Class::Shared,
        SPACE_LOCAL => Class::Local,
        SPACE_PARAM => Class::Parameter,
        _ => Class::Global,
    }
}

pub fn is_strong(op: &Flat) -> bool {
    ["volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"].iter().any(|name| op.has(name))
}

pub fn lower(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    let load = match op.name() {
        "ld" | "ldu" => true,
        "st" => false,
        "prefetch" | "prefetchu" | "applypriority" | "discard" => {
            return Ok(Some(l.nothing(op, Class::Global)));
        }
        _ => return Ok(None),
    };
    let Some(&ty) = op.types().first() else { return Ok(None) };
    let space = op.space();
    let mut inst = l.inst(op, class_of(space_code(space)));
    inst.kind = Kind::Faulty;
    let (address, value) =
        if load { (&op.args[1], &op.args[0]) } else { (&op.args[0], &op.args[1]) };
    let values: Vec<Operand> = match value {
        Operand::Vector(values) => values.clone(),
        one => vec![one.clone()],
    };
    if ty.bytes() > 8 {
        return Ok(None);
    }
    l.address(&mut inst, address)?;
    let wide =
        values.iter().any(|one| if load { l.is_wide(one) } else { l.is_wide_source(one, ty) });
    inst.x |= ty.bytes().trailing_zeros() << SIZE
        | (values.len() as u32) << COUNT
        | space_code(space) << SPACE
        | if ty.is_signed() { SIGNED } else { 0 }
        | if wide { WIDE } else { 0 }
        | if is_strong(op) { STRONG } else { 0 };
    let mut rows = Vec::new();
    for one in &values {
        rows.push(if load { l.destination(one)? } else { l.source_any(one, ty)? });
    }
    if load {
        inst.d = rows[0];
    } else {
        inst.b = rows[0];
    }
    let single = rows.len() == 1;
    inst.y = l.list(rows);
    if space == Space::Param && load && l.is_constant(inst.a) {
        inst.kind = Kind::Plain;
        inst.imm += l.constant_value(inst.a) as i64;
        inst.f = load_parameter;
        return Ok(Some(inst));
    }
    inst.f = match (load, ty.bytes(), wide, single) {
        (true, 4, false, true) => load_word::<u32>,
        (true, 8, true, true) => load_word::<u64>,
        (true, 4, false, false) => load_words,
        (true, ..) => load_any,
        (false, 4, false, true) => store_word::<u32>,
        (false, 8, true, true) => store_word::<u64>,
        (false, ..) => store_any,
    } as Exec;
    Ok(Some(inst))
}

unsafe fn load_parameter(cx: &mut Cx, i: &Inst, mask: u32) {
    let bytes = 1usize << (i.x & 7);
    let count = (i.x >> COUNT & 15) as usize;
    let launch = cx.launch;
    for at in 0..count {
        let start = i.imm as usize + at * bytes;
        let mut value = [0u8; 8];
        if let Some(from) = launch.parameters.get(start..start + bytes) {
            value[..bytes].copy_from_slice(from);
        }
        let value = extend(u64::from_le_bytes(value), bytes, i.x & SIGNED != 0);
        let row = launch.kernel.lists[i.y as usize][at];
        unsafe {
            if i.x & WIDE != 0 {
                write(cx, row, mask, &[value; LANES]);
            } else {
                write(cx, row, mask, &[value as u32; LANES]);
            }
        }
    }
}

#[inline(always)]
fn extend(value: u64, bytes: usize, signed: bool) -> u64 {
    if !signed {
        return value;
    }
    match bytes {
        1 => value as u8 as i8 as u64,
        2 => value as u16 as i16 as u64,
        4 => value as u32 as i32 as u64,
        _ => value,
    }
}

/// Addresses of all lanes; those of lanes that are not in the mask are that of one that is.
#[inline(always)]
pub unsafe fn addresses(cx: &Cx, i: &Inst, mask: u32) -> [u64; LANES] {
    let mut found = [0u64; LANES];
    unsafe {
        if i.x & WIDE_ADDRESS != 0 {
            let row = &*(cx.row(i.a) as *const [u64; LANES]);
            for lane in 0..LANES {
                found[lane] = row[lane].wrapping_add(i.imm as u64);
            }
        } else {
            let row = &*(cx.row(i.a) as *const [u32; LANES]);
            for lane in 0..LANES {
                found[lane] = (row[lane] as u64).wrapping_add(i.imm as u64);
            }
        }
    }
    if mask != !0 {
        let first = found[mask.trailing_zeros() as usize & 31];
        for lane in 0..LANES {
            found[lane] = if mask >> lane & 1 != 0 { found[lane] } else { first };
        }
    }
    found
}

#[inline(always)]
fn extent(addresses: &[u64; LANES]) -> (u64, u64, u64) {
    let (mut low, mut high, mut all) = (u64::MAX >> 1, 0i64, 0);
    for &address in addresses {
        low = if (address as i64) < low as i64 { address } else { low };
        high = if address as i64 > high { address as i64 } else { high };
        all |= address;
    }
    (low, high as u64, all)
}

/// Where the lanes' bytes lie in the host's memory. What is not theirs is a fault.
///
/// # Safety
/// The instruction has an address as its operand `a`.
#[inline(always)]
pub unsafe fn locate(
    cx: &mut Cx,
    i: &Inst,
    mask: u32,
    bytes: u64,
    access: Access,
) -> Option<[u64; LANES]> {
    let addresses = unsafe { addresses(cx, i, mask) };
    locate_all(cx, i.x >> SPACE & 7, &addresses, mask, bytes, access)
}

#[inline(always)]
pub fn locate_all(
    cx: &mut Cx,
    space: u32,
    addresses: &[u64; LANES],
    mask: u32,
    bytes: u64,
    access: Access,
) -> Option<[u64; LANES]> {
    let (low, high, all) = extent(addresses);
    if all & (bytes - 1) != 0 {
        misaligned(cx, addresses, mask, bytes);
        return None;
    }
    let space = if space == SPACE_GENERIC {
        if all & TAG_MASK == 0 {
            SPACE_GLOBAL
        } else {
            return locate_generic(cx, addresses, mask, bytes, access);
        }
    } else {
        space
    };
    let mut found = *addresses;
    match space {
        SPACE_GLOBAL => {
            if low < cx.near.0 || high.wrapping_add(bytes) > cx.near.1 || (low as i64) < 0 {
                find_allocations(cx, addresses, mask, bytes)?;
            }
        }
        SPACE_SHARED => {
            let end = SHARED_START + cx.block.shared_bytes as u64;
            if low < SHARED_START || high + bytes > end || (low as i64) < 0 {
                outside_shared(cx, addresses, mask, bytes);
                return None;
            }
            let base = (cx.block.shared as u64).wrapping_sub(SHARED_START);
            for lane in 0..LANES {
                found[lane] = addresses[lane].wrapping_add(base);
            }
        }
        SPACE_LOCAL => {
            let size = cx.launch.kernel.local_bytes as u64;
            if (low as i64) < 0 || high + bytes > size {
                let lane = worst(addresses, mask, |address| address.wrapping_add(bytes) > size);
                let what =
                    format!("local memory of {size} bytes, accessed at {:#x}", addresses[lane]);
                cx.fail(ILLEGAL_ADDRESS, Some(lane), what);
                return None;
            }
            let base = cx.warp().local as u64;
            for lane in 0..LANES {
                found[lane] = base + lane as u64 * size + addresses[lane];
            }
        }
        _ => {
            let size = cx.launch.parameters.len() as u64;
            if (low as i64) < 0 || high + bytes > size || access.writes {
                let lane = worst(addresses, mask, |address| address.wrapping_add(bytes) > size);
                let what =
                    format!("parameters of {size} bytes, accessed at {:#x}", addresses[lane]);
                cx.fail(ILLEGAL_ADDRESS, Some(lane), what);
                return None;
            }
            for lane in 0..LANES {
                found[lane] = cx.launch.parameters.as_ptr() as u64 + addresses[lane];
            }
        }
    }
    if cx.launch.counts_traffic && !cx.is_quiet {
        count(cx, space, addresses, mask, bytes, access);
    }
    if cx.races.is_some() && space <= SPACE_SHARED {
        super::races::record(cx, space, addresses, mask, bytes, access);
    }
    Some(found)
}

fn worst(addresses: &[u64; LANES], mask: u32, is_bad: impl Fn(u64) -> bool) -> usize {
    lanes(mask).find(|&lane| is_bad(addresses[lane])).unwrap_or(mask.trailing_zeros() as usize & 31)
}

#[cold]
fn misaligned(cx: &mut Cx, addresses: &[u64; LANES], mask: u32, bytes: u64) {
    let lane = worst(addresses, mask, |address| address & (bytes - 1) != 0);
    let address = addresses[lane];
    let place = if address & TAG_MASK == 0 && address > 1 << 32 {
        cx.launch.memory.describe(address)
    } else {
        String::new()
    };
    let what = format!("misaligned access of {bytes} bytes at {address:#x} {place}");
    cx.fail(MISALIGNED_ADDRESS, Some(lane), what);
}

#[cold]
fn outside_shared(cx: &mut Cx, addresses: &[u64; LANES], mask: u32, bytes: u64) {
    let end = SHARED_START + cx.block.shared_bytes as u64;
    let lane = worst(addresses, mask, |address| {
        address < SHARED_START || address.wrapping_add(bytes) > end
    });
    let what = format!(
        "access of {bytes} bytes at byte {} of shared memory, which has {} bytes",
        addresses[lane].wrapping_sub(SHARED_START) as i64,
        cx.block.shared_bytes
    );
    cx.fail(ILLEGAL_ADDRESS, Some(lane), what);
}

#[inline(never)]
fn find_allocations(cx: &mut Cx, addresses: &[u64; LANES], mask: u32, bytes: u64) -> Option<()> {
    for lane in lanes(mask) {
        let address = addresses[lane];
        if address >= cx.near.0 && address.wrapping_add(bytes) <= cx.near.1 {
            continue;
        }
        match cx.launch.map.find(address) {
            Some(range) if address + bytes <= range.1 => cx.near = range,
            found => {
                let place = match address & TAG_MASK {
                    0 if found.is_some() => {
                        format!("which crosses the end of {}", cx.launch.memory.describe(address))
                    }
                    0 => cx.launch.memory.describe(address),
                    SHARED_TAG => "an address of shared memory".to_string(),
                    LOCAL_TAG => "an address of local memory".to_string(),
                    _ => "an address of no space".to_string(),
                };
                let what = format!(
                    "illegal access of {bytes} bytes of global memory at {address:#x}, {place}"
                );
                cx.fail(ILLEGAL_ADDRESS, Some(lane), what);
                return None;
            }
        }
    }
    Some(())
}

/// Lanes whose addresses are of several spaces.
#[inline(never)]
fn locate_generic(
    cx: &mut Cx,
    addresses: &[u64; LANES],
    mask: u32,
    bytes: u64,
    access: Access,
) -> Option<[u64; LANES]> {
    let mut found = [0; LANES];
    let mut rest = mask;
    while rest != 0 {
        let first = rest.trailing_zeros() as usize;
        let tag = addresses[first] & TAG_MASK;
        let same = lanes(rest)
            .filter(|&lane| addresses[lane] & TAG_MASK == tag)
            .fold(0, |mask, lane| mask | 1u32 << lane);
        rest &= !same;
        let space = match tag {
            SHARED_TAG => SPACE_SHARED,
            LOCAL_TAG => SPACE_LOCAL,
            PARAM_TAG => SPACE_PARAM,
            _ => SPACE_GLOBAL,
        };
        let mut part = [addresses[first] & !TAG_MASK; LANES];
        if space == SPACE_GLOBAL {
            part = [addresses[first]; LANES];
        }
        for lane in lanes(same) {
            part[lane] =
                if space == SPACE_GLOBAL { addresses[lane] } else { addresses[lane] & !TAG_MASK };
        }
        let places = locate_all(cx, space, &part, same, bytes, access)?;
        for lane in lanes(same) {
            found[lane] = places[lane];
        }
    }
    Some(found)
}

/// Sectors of global memory, conflicts of banks of shared memory.
#[inline(never)]
fn count(cx: &mut Cx, space: u32, addresses: &[u64; LANES], mask: u32, bytes: u64, access: Access) {
    if space == SPACE_GLOBAL {
        let mut sorted = [0; LANES];
        let mut length = 0;
        for lane in lanes(mask) {
            sorted[length] = addresses[lane];
            length += 1;
        }
        let sorted = &mut sorted[..length];
        sorted.sort_unstable();
        let (mut sectors, mut asked, mut last) = (0, 0, u64::MAX);
        let mut end = 0;
        for &address in sorted.iter() {
            asked += (address + bytes).saturating_sub(end.max(address));
            end = end.max(address + bytes);
            for sector in address >> 5..=(address + bytes - 1) >> 5 {
                if sector != last {
                    sectors += 1;
                    last = sector;
                    cx.counters.touch(sector);
                }
            }
        }
        let counters = &mut cx.counters;
        if access.writes {
            counters.sectors_written += sectors;
            counters.bytes_written += asked;
        }
        if access.reads {
            counters.sectors_read += sectors;
            counters.bytes_read += asked;
        }
    } else if space == SPACE_SHARED {
        let group = (128 / bytes.max(4)).min(32) as usize;
        let words = (bytes / 4).max(1);
        for start in (0..LANES).step_by(group) {
            let mut seen = [[u64::MAX; 32]; 32];
            let mut counts = [0u8; 32];
            let mut most = 0;
            for lane in start..start + group {
                if mask >> lane & 1 == 0 {
                    continue;
                }
                for word in addresses[lane] / 4..addresses[lane] / 4 + words {
                    let bank = (word % 32) as usize;
                    let used = counts[bank] as usize;
                    if !seen[bank][..used].contains(&word) {
                        seen[bank][used] = word;
                        counts[bank] += 1;
                        most = most.max(counts[bank]);
                    }
                }
            }
            cx.counters.wavefronts += most as u64;
            cx.counters.conflicts += (most as u64).saturating_sub(1);
        }
    }
}

fn reading(i: &Inst) -> Access {
    Access { reads: true, writes: false, strong: i.x & STRONG != 0 }
}

fn writing(i: &Inst) -> Access {
    Access { reads: false, writes: true, strong: i.x & STRONG != 0 }
}

unsafe fn load_word<S: Copy + Default>(cx: &mut Cx, i: &Inst, mask: u32) {
    unsafe {
        let Some(places) = locate(cx, i, mask, size_of::<S>() as u64, reading(i)) else { return };
        let mut out = [S::default(); LANES];
        // Lanes that are not in the mask read what one in it does.
        if mask == !0 || places[0] != 0 && mask != 0 && i.x >> SPACE & 7 == SPACE_GLOBAL {
            for lane in 0..LANES {
                out[lane] = *(places[lane] as *const S);
            }
        } else {
            for lane in lanes(mask) {
                out[lane] = *(places[lane] as *const S);
            }
        }
        write(cx, i.d, mask, &out);
    }
}

unsafe fn load_words(cx: &mut Cx, i: &Inst, mask: u32) {
    let count = (i.x >> COUNT & 15) as usize;
    unsafe {
        let Some(places) = locate(cx, i, mask, 4 * count as u64, reading(i)) else { return };
        let rows = cx.launch.kernel.lists[i.y as usize].as_slice();
        let mut out = [[0u32; LANES]; 8];
        for lane in lanes(mask) {
            let from = places[lane] as *const u32;
            for at in 0..count {
                out[at][lane] = *from.add(at);
            }
        }
        for at in 0..count {
            write(cx, rows[at], mask, &out[at]);
        }
    }
}

unsafe fn load_any(cx: &mut Cx, i: &Inst, mask: u32) {
    let bytes = 1usize << (i.x & 7);
    let count = (i.x >> COUNT & 15) as usize;
    unsafe {
        let Some(places) = locate(cx, i, mask, (bytes * count) as u64, reading(i)) else { return };
        let rows = cx.launch.kernel.lists[i.y as usize].as_slice();
        // All of a lane before any, since a destination may be the address.
        let mut out = [[0u64; LANES]; 8];
        for lane in lanes(mask) {
            let from = places[lane] as *const u8;
            for at in 0..count {
                let from = from.add(at * bytes);
                let value = match bytes {
                    1 => *from as u64,
                    2 => *(from as *const u16) as u64,
                    4 => *(from as *const u32) as u64,
                    _ => *(from as *const u64),
                };
                out[at][lane] = extend(value, bytes, i.x & SIGNED != 0);
            }
        }
        for at in 0..count {
            for lane in lanes(mask) {
                put(cx, rows[at], i.x & WIDE != 0, lane, out[at][lane]);
            }
        }
    }
}

unsafe fn store_word<S: Copy>(cx: &mut Cx, i: &Inst, mask: u32) {
    unsafe {
        let Some(places) = locate(cx, i, mask, size_of::<S>() as u64, writing(i)) else { return };
        let values = *(cx.row(i.b) as *const [S; LANES]);
        if mask == !0 {
            for lane in 0..LANES {
                *(places[lane] as *mut S) = values[lane];
            }
        } else {
            for lane in lanes(mask) {
                *(places[lane] as *mut S) = values[lane];
            }
        }
    }
}

unsafe fn store_any(cx: &mut Cx, i: &Inst, mask: u32) {
    let bytes = 1usize << (i.x & 7);
    let count = (i.x >> COUNT & 15) as usize;
    unsafe {
        let Some(places) = locate(cx, i, mask, (bytes * count) as u64, writing(i)) else { return };
        let rows = cx.launch.kernel.lists[i.y as usize].as_slice();
        for lane in lanes(mask) {
            let to = places[lane] as *mut u8;
            for (at, &row) in rows.iter().enumerate() {
                let value = get(cx, row, i.x & WIDE != 0, lane);
                let to = to.add(at * bytes);
                match bytes {
                    1 => *to = value as u8,
                    2 => *(to as *mut u16) = value as u16,
                    4 => *(to as *mut u32) = value as u32,
                    _ => *(to as *mut u64) = value,
                }
            }
        }
    }
}
