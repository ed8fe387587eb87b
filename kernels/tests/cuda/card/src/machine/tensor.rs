//! Tensor cores: `wmma`, `mma`, and the loads and stores of their tiles.
//!
//! Lanes of `mma` have the elements that the PTX ISA says. Those of `wmma` are not specified; here 16x16 tiles lie
//! as those of two `mma`, others by rows. Operands of f16 twice as long as their tile, as on a card, have each
//! element twice. Sums are f32, in the order of the summed axis, rounded at every step; a card truncates.

use super::half::{Binary16, Brain16, E4M3, E5M2, Half, decode};
use super::lanes::*;
use super::lower::{Flat, Lowering};
use super::memory::{SPACE, locate, locate_all, space_code};
use super::races::Access;
use super::{Class, Cx, Inst, Kind};
use crate::ptx::{Operand, Ty};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Element {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    S8,
    U8,
    S32,
    E4m3,
    E5m2,
}

impl Element {
    fn of(name: &str) -> Option<Element> {
        Some(match name {
            "f16" => Element::F16,
            "bf16" => Element::Bf16,
            "tf32" => Element::Tf32,
            "f32" => Element::F32,
            "f64" => Element::F64,
            "s8" => Element::S8,
            "u8" => Element::U8,
            "s32" => Element::S32,
            "e4m3" => Element::E4m3,
            "e5m2" => Element::E5m2,
            _ => return None,
        })
    }

    fn bytes(self) -> usize {
        match self {
            Element::S8 | Element::U8 | Element::E4m3 | Element::E5m2 => 1,
            Element::F16 | Element::Bf16 => 2,
            Element::Tf32 | Element::F32 | Element::S32 => 4,
            Element::F64 => 8,
        }
    }

    fn per_register(self) -> usize {
        if self == Element::F64 { 1 } else { 4 / self.bytes() }
    }
}

/// One operand of a product, and where its elements are.
pub struct Fragment {
    pub registers: Vec<u32>,
    pub element: Element,
    pub columns: usize,
    /// Row times columns plus column, of element `e` of lane `l` at `32 * e + l`.
    pub places: Vec<u16>,
}

pub struct Tile {
    pub shape: [usize; 3],
    pub a: Fragment,
    pub b: Fragment,
    pub c: Fragment,
    pub d: Fragment,
    /// True for loads and stores whose columns are contiguous in memory.
    pub by_columns: bool,
    pub stride: u32,
    pub saturates: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    A,
    B,
    C,
}

/// Row and column of a lane's element in `mma`, by the PTX ISA.
fn mma_place(
    role: Role,
    shape: [usize; 3],
    element: Element,
    lane: usize,
    e: usize,
) -> (usize, usize) {
    let (group, thread) = (lane / 4, lane % 4);
    let [m, _, k] = shape;
    match role {
        Role::C => {
            if element == Element::F64 && m == 8 {
                return (group, thread * 2 + e);
            }
            (group + 8 * (e / 2), thread * 2 + e % 2)
        }
        Role::A if element == Element::F64 && m == 8 => (group, thread),
        Role::B if element == Element::F64 && m == 8 => (thread, group),
        Role::A => {
            // Elements that lie side by side in a register, then eight rows, then the next columns.
            let per = element.per_register();
            let (register, inner) = (e / per, e % per);
            let high = if m == 16 { register % 2 } else { 0 };
            let next = if m == 16 { register / 2 } else { register };
            let _ = k;
            (group + 8 * high, thread * per + inner + 4 * per * next)
        }
        Role::B => {
            let per = element.per_register();
            let (register, inner) = (e / per, e % per);
            (thread * per + inner + 4 * per * register, group)
        }
    }
}

fn wmma_place(role: Role, shape: [usize; 3], lane: usize, e: usize) -> (usize, usize) {
    let [m, n, k] = shape;
    let (rows, columns) = match role {
        Role::A => (m, k),
        Role::B => (k, n),
        Role::C => (m, n),
    };
    let own = (rows * columns / LANES).max(1);
    let e = e % own;
    let (group, thread) = (lane / 4, lane % 4);
    if rows == 16 && columns == 16 {
        return match role {
            Role::A => (group + 8 * (e / 2 % 2), 2 * thread + e % 2 + 8 * (e / 4)),
            Role::B => (2 * thread + e % 2 + 8 * (e / 2 % 2), group + 8 * (e / 4)),
            Role::C => (group + 8 * (e / 2 % 2), 2 * thread + e % 2 + 8 * (e / 4)),
        };
    }
    match (role, rows, columns) {
        // One word an element: as those of `mma`.
        (Role::A, 16, 8) => (group + 8 * (e % 2), thread + 4 * (e / 2)),
        (Role::B, 8, 16) => (thread + 4 * (e % 2), group + 8 * (e / 2)),
        _ => {
            let index = lane * own + e;
            (index / columns, index % columns)
        }
    }
}

fn fragment(
    registers: Vec<u32>,
    role: Role,
    shape: [usize; 3],
    element: Element,
    is_mma: bool,
) -> Fragment {
    let count = registers.len() * element.per_register();
    let columns = match role {
        Role::A => shape[2],
        Role::B | Role::C => shape[1],
    };
    let mut places = Vec::new();
    for e in 0..count {
        for lane in 0..LANES {
            let (row, column) = if is_mma {
                mma_place(role, shape, element, lane, e)
            } else {
                wmma_place(role, shape, lane, e)
            };
            places.push((row * columns + column) as u16);
        }
    }
    Fragment { registers, element, columns, places }
}

fn empty() -> Fragment {
    Fragment { registers: Vec::new(), element: Element::F32, columns: 1, places: Vec::new() }
}

/// `m16n8k16`.
fn shape_of(op: &Flat) -> Option<[usize; 3]> {
    for part in op.name_parts() {
        let Some(rest) = part.strip_prefix('m') else { continue };
        let Some((m, rest)) = rest.split_once('n') else { continue };
        let Some((n, k)) = rest.split_once('k') else { continue };
        if let (Ok(m), Ok(n), Ok(k)) = (m.parse(), n.parse(), k.parse()) {
            return Some([m, n, k]);
        }
    }
    None
}

pub fn lower(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    match op.name() {
        "wmma" => match op.part(1) {
            "load" | "store" => transfer(l, op),
            _ => product(l, op, false),
        },
        "mma" if op.part(1) == "sync" => product(l, op, true),
        "ldmatrix" | "stmatrix" => matrices(l, op),
        "movmatrix" => {
            let mut inst = l.inst(op, Class::Tensor);
            inst.kind = Kind::Together;
            inst.d = l.destination(&op.args[0])?;
            inst.a = l.source(&op.args[1], Ty::B32)?;
            inst.f = transpose;
            Ok(Some(inst))
        }
        _ => Ok(None),
    }
}

fn registers(
    l: &mut Lowering,
    operand: &Operand,
    element: Element,
    writes: bool,
) -> Result<Vec<u32>, String> {
    let ty = if element == Element::F64 { Ty::B64 } else { Ty::B32 };
    let all = match operand {
        Operand::Vector(all) => all.clone(),
        one => vec![one.clone()],
    };
    all.iter().map(|one| if writes { l.destination(one) } else { l.source(one, ty) }).collect()
}

fn product(l: &mut Lowering, op: &Flat, is_mma: bool) -> Result<Option<Inst>, String> {
    let Some(shape) = shape_of(op) else { return Ok(None) };
    let elements: Vec<Element> =
        op.name_parts().iter().filter_map(|part| Element::of(part)).collect();
    let (d, a, b, c) = match *elements.as_slice() {
        [d, a, b, c] => (d, a, b, c),
        [d, c] => (d, Element::F16, Element::F16, c),
        _ => return Ok(None),
    };
    if op.name_parts().iter().any(|part| matches!(part.as_str(), "sp" | "xor" | "and")) {
        return Ok(None);
    }
    if is_mma && shape == [8, 8, 4] && a == Element::F16 {
        return Ok(None);
    }
    let mut inst = l.inst(op, Class::Tensor);
    inst.kind = Kind::Together;
    let mut part = |at: usize, role: Role, element: Element| -> Result<Fragment, String> {
        let rows = registers(l, &op.args[at], element, at == 0)?;
        Ok(fragment(rows, role, shape, element, is_mma))
    };
    let tile = Tile {
        shape,
        d: part(0, Role::C, d)?,
        a: part(1, Role::A, a)?,
        b: part(2, Role::B, b)?,
        c: part(3, Role::C, c)?,
        by_columns: false,
        stride: 0,
        saturates: op.has("satfinite"),
    };
    for (fragment, size) in [
        (&tile.a, shape[0] * shape[2]),
        (&tile.b, shape[2] * shape[1]),
        (&tile.c, shape[0] * shape[1]),
    ] {
        if fragment.places.len() < size
            || fragment.places.iter().any(|&place| place as usize >= size)
        {
            return Err(format!("operands of {} do not have the size of its tiles", op.text()));
        }
    }
    inst.imm = (2 * shape[0] * shape[1] * shape[2]) as i64;
    inst.f = match a {
        Element::F64 => multiply_f64,
        Element::S8 | Element::U8 => multiply_integers,
        _ => multiply,
    };
    inst.y = l.tile(tile);
    Ok(Some(inst))
}

fn transfer(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    let Some(shape) = shape_of(op) else { return Ok(None) };
    let loads = op.part(1) == "load";
    let role = match op.part(2) {
        "a" => Role::A,
        "b" => Role::B,
        _ => Role::C,
    };
    let Some(element) = op.name_parts().iter().rev().find_map(|part| Element::of(part)) else {
        return Ok(None);
    };
    let mut inst = l.inst(op, Class::Tensor);
    inst.kind = Kind::Together;
    let (address, value) =
        if loads { (&op.args[1], &op.args[0]) } else { (&op.args[0], &op.args[1]) };
    l.address(&mut inst, address)?;
    inst.x |= space_code(op.space()) << SPACE;
    let rows = registers(l, value, element, loads)?;
    let part = fragment(rows, role, shape, element, false);
    let by_columns = op.has("col");
    let stride = match op.args.get(2) {
        Some(stride) => l.source(stride, Ty::B32)?,
        None => {
            let (rows, columns) = match role {
                Role::A => (shape[0], shape[2]),
                Role::B => (shape[2], shape[1]),
                Role::C => (shape[0], shape[1]),
            };
            l.integer(if by_columns { rows } else { columns } as u64, false)
        }
    };
    let tile = Tile {
        shape,
        a: part,
        b: empty(),
        c: empty(),
        d: empty(),
        by_columns,
        stride,
        saturates: false,
    };
    inst.y = l.tile(tile);
    inst.f = if loads { load_tile } else { store_tile };
    Ok(Some(inst))
}

fn matrices(l: &mut Lowering, op: &Flat) -> Result<Option<Inst>, String> {
    let loads = op.name() == "ldmatrix";
    if !op.has("m8n8") {
        return Ok(None);
    }
    let mut inst = l.inst(op, Class::Shared);
    inst.kind = Kind::Together;
    let (address, value) =
        if loads { (&op.args[1], &op.args[0]) } else { (&op.args[0], &op.args[1]) };
    l.address(&mut inst, address)?;
    inst.x |= space_code(op.space()) << SPACE;
    let rows = registers(l, value, Element::F16, loads)?;
    inst.b = op.has("trans") as u32;
    inst.c = rows.len() as u32;
    inst.y = l.list(rows);
    inst.f = if loads { load_matrices } else { store_matrices };
    Ok(Some(inst))
}

#[inline(always)]
fn value(element: Element, word: u32, inner: usize) -> f32 {
    match element {
        Element::F16 => Binary16::to_f32((word >> (16 * inner)) as u16),
        Element::Bf16 => Brain16::to_f32((word >> (16 * inner)) as u16),
        Element::Tf32 => f32::from_bits(word & !0x1fff),
        Element::E4m3 => decode(word >> (8 * inner) & 0xff, E4M3),
        Element::E5m2 => decode(word >> (8 * inner) & 0xff, E5M2),
        _ => f32::from_bits(word),
    }
}

const MOST: usize = 32 * 32;

unsafe fn gather(cx: &Cx, fragment: &Fragment, to: &mut [f32; MOST]) {
    let per = fragment.element.per_register();
    for (at, &register) in fragment.registers.iter().enumerate() {
        let row = unsafe { &*(cx.row(register) as *const [u32; LANES]) };
        for inner in 0..per {
            let places = &fragment.places[(at * per + inner) * LANES..][..LANES];
            let mut values = [0f32; LANES];
            match fragment.element {
                Element::F16 => {
                    (0..LANES).for_each(|lane| values[lane] = value(Element::F16, row[lane], inner))
                }
                Element::Bf16 => (0..LANES)
                    .for_each(|lane| values[lane] = value(Element::Bf16, row[lane], inner)),
                element => {
                    (0..LANES).for_each(|lane| values[lane] = value(element, row[lane], inner))
                }
            }
            for lane in 0..LANES {
                to[places[lane] as usize] = values[lane];
            }
        }
    }
}

unsafe fn scatter(cx: &mut Cx, fragment: &Fragment, mask: u32, from: &[f32; MOST]) {
    let per = fragment.element.per_register();
    for (at, &register) in fragment.registers.iter().enumerate() {
        let mut out = [0u32; LANES];
        for inner in 0..per {
            let places = &fragment.places[(at * per + inner) * LANES..][..LANES];
            for lane in 0..LANES {
                let value = from[places[lane] as usize];
                out[lane] |= match fragment.element {
                    Element::F16 => (Binary16::of_f32(value) as u32) << (16 * inner),
                    Element::Bf16 => (Brain16::of_f32(value) as u32) << (16 * inner),
                    _ => value.to_bits(),
                };
            }
        }
        unsafe { write(cx, register, mask, &out) };
    }
}

unsafe fn multiply(cx: &mut Cx, i: &Inst, mask: u32) {
    let tile = &cx.launch.kernel.tiles[i.y as usize];
    let [m, n, k] = tile.shape;
    let (mut a, mut b, mut sums) = ([0f32; MOST], [0f32; MOST], [0f32; MOST]);
    unsafe {
        gather(cx, &tile.a, &mut a);
        gather(cx, &tile.b, &mut b);
        gather(cx, &tile.c, &mut sums);
    }
    for row in 0..m {
        for inner in 0..k {
            let factor = a[row * k + inner];
            let (sums, b) = (&mut sums[row * n..][..n], &b[inner * n..][..n]);
            for column in 0..n {
                sums[column] = factor.mul_add(b[column], sums[column]);
            }
        }
    }
    cx.counters.tensor_flops += i.imm as u64;
    cx.counters.tensor_time += tensor_time(tile.a.element, i.imm as u64);
    unsafe { scatter(cx, &tile.d, mask, &sums) };
}

/// In units of what f16 takes.
fn tensor_time(element: Element, flops: u64) -> u64 {
    match element {
        Element::Tf32 => 2 * flops,
        Element::S8 | Element::U8 | Element::E4m3 | Element::E5m2 => flops / 2,
        Element::F64 => 15 * flops,
        _ => flops,
    }
}

unsafe fn multiply_integers(cx: &mut Cx, i: &Inst, mask: u32) {
    let tile = &cx.launch.kernel.tiles[i.y as usize];
    let [m, n, k] = tile.shape;
    let gather = |cx: &Cx, fragment: &Fragment| {
        let mut to = [0i32; MOST];
        let per = fragment.element.per_register();
        for (at, &register) in fragment.registers.iter().enumerate() {
            let row = unsafe { read::<u32>(cx, register) };
            for inner in 0..per {
                for lane in 0..LANES {
                    let word = row[lane];
                    let byte = (word >> (8 * inner)) as u8;
                    to[fragment.places[(at * per + inner) * LANES + lane] as usize] =
                        match fragment.element {
                            Element::S8 => byte as i8 as i32,
                            Element::U8 => byte as i32,
                            _ => word as i32,
                        };
                }
            }
        }
        to
    };
    let (a, b, c) = (gather(cx, &tile.a), gather(cx, &tile.b), gather(cx, &tile.c));
    let mut sums = [0i32; MOST];
    for row in 0..m {
        for column in 0..n {
            let mut sum = c[row * n + column] as i64;
            for inner in 0..k {
                sum += a[row * k + inner] as i64 * b[inner * n + column] as i64;
            }
            sums[row * n + column] = if tile.saturates {
                sum.clamp(i32::MIN as i64, i32::MAX as i64) as i32
            } else {
                sum as i32
            };
        }
    }
    cx.counters.tensor_flops += i.imm as u64;
    cx.counters.tensor_time += tensor_time(tile.a.element, i.imm as u64);
    for (at, &register) in tile.d.registers.iter().enumerate() {
        let mut out = [0u32; LANES];
        for lane in 0..LANES {
            out[lane] = sums[tile.d.places[at * LANES + lane] as usize] as u32;
        }
        unsafe { write(cx, register, mask, &out) };
    }
}

unsafe fn multiply_f64(cx: &mut Cx, i: &Inst, mask: u32) {
    let tile = &cx.launch.kernel.tiles[i.y as usize];
    let [m, n, k] = tile.shape;
    let gather = |cx: &Cx, fragment: &Fragment| {
        let mut to = [0f64; MOST];
        for (at, &register) in fragment.registers.iter().enumerate() {
            let row = unsafe { read::<f64>(cx, register) };
            for lane in 0..LANES {
                to[fragment.places[at * LANES + lane] as usize] = f64::from_bits(row[lane]);
            }
        }
        to
    };
    let (a, b, mut sums) = (gather(cx, &tile.a), gather(cx, &tile.b), gather(cx, &tile.c));
    for row in 0..m {
        for inner in 0..k {
            for column in 0..n {
                let sum = &mut sums[row * n + column];
                *sum = a[row * k + inner].mul_add(b[inner * n + column], *sum);
            }
        }
    }
    cx.counters.tensor_flops += i.imm as u64;
    cx.counters.tensor_time += tensor_time(Element::F64, i.imm as u64);
    for (at, &register) in tile.d.registers.iter().enumerate() {
        let mut out = [0u64; LANES];
        for lane in 0..LANES {
            out[lane] = sums[tile.d.places[at * LANES + lane] as usize].to_bits();
        }
        unsafe { write(cx, register, mask, &out) };
    }
}

/// Addresses of an element of each lane.
unsafe fn element_addresses(
    cx: &mut Cx,
    i: &Inst,
    tile: &Tile,
    mask: u32,
    e: usize,
) -> [u64; LANES] {
    let mut all = unsafe { super::memory::addresses(cx, i, mask) };
    let stride = unsafe { read::<u32>(cx, tile.stride) };
    let (columns, bytes) = (tile.a.columns, tile.a.element.bytes() as u64);
    for lane in 0..LANES {
        let place = tile.a.places[e * LANES + lane] as usize;
        let (row, column) = ((place / columns) as u64, (place % columns) as u64);
        let index = if tile.by_columns {
            column * stride[lane] as u64 + row
        } else {
            row * stride[lane] as u64 + column
        };
        all[lane] = all[lane].wrapping_add(index * bytes);
    }
    all
}

fn check_tile(cx: &mut Cx, i: &Inst, tile: &Tile, mask: u32) {
    let (start, stride) = unsafe {
        let lane = mask.trailing_zeros() as usize;
        (super::memory::addresses(cx, i, mask)[lane], read::<u32>(cx, tile.stride)[lane])
    };
    let step = stride as u64 * tile.a.element.bytes() as u64;
    // The programming guide asks for these; a card may get by with less.
    if !start.is_multiple_of(32) || !step.is_multiple_of(16) {
        cx.warn(format!(
            "tile at address {start:#x} with rows of {step} bytes: wmma wants multiples of 32 and 16 bytes"
        ));
    }
}

/// Counts the traffic of a tile as that of 16 bytes for each of eight rows, as `ldmatrix` has it, if it lies so.
/// Otherwise each element of all lanes is an access.
unsafe fn count_tile(cx: &mut Cx, i: &Inst, tile: &Tile, mask: u32, access: Access) -> bool {
    if !cx.launch.counts_traffic || tile.a.element.bytes() > 2 && access.reads {
        return false;
    }
    let lane = mask.trailing_zeros() as usize;
    let (start, stride) = unsafe {
        (super::memory::addresses(cx, i, mask)[lane], read::<u32>(cx, tile.stride)[lane] as u64)
    };
    let bytes = tile.a.element.bytes() as u64;
    let step = stride * bytes;
    let columns = tile.a.columns as u64;
    let rows = (tile.a.places.iter().max().map_or(0, |&most| most as u64) + 1) / columns;
    let (across, along) = if tile.by_columns { (columns, rows) } else { (rows, columns) };
    if !start.is_multiple_of(16) || !step.is_multiple_of(16) || !(along * bytes).is_multiple_of(16)
    {
        return false;
    }
    let races = cx.races.take();
    for chunk in 0..along * bytes / 16 {
        for first in (0..across).step_by(8) {
            let mut addresses = [start + first * step + chunk * 16; LANES];
            for row in 0..8 {
                addresses[row as usize] += row * step;
            }
            locate_all(cx, i.x >> SPACE & 7, &addresses, 0xff, 16, access);
        }
    }
    cx.races = races;
    true
}

unsafe fn load_tile(cx: &mut Cx, i: &Inst, mask: u32) {
    let tile = &cx.launch.kernel.tiles[i.y as usize];
    let (element, bytes) = (tile.a.element, tile.a.element.bytes());
    let per = element.per_register();
    let access = Access { reads: true, writes: false, strong: false };
    check_tile(cx, i, tile, mask);
    cx.is_quiet = unsafe { count_tile(cx, i, tile, mask, access) };
    let count = tile.a.places.len() / LANES;
    let own =
        count.min((tile.a.places.iter().max().map_or(0, |&most| most as usize + 1) / LANES).max(1));
    for (at, &register) in tile.a.registers.iter().enumerate() {
        let mut out = [0u64; LANES];
        for inner in 0..per {
            let e = at * per + inner;
            let addresses = unsafe { element_addresses(cx, i, tile, mask, e) };
            let counts = cx.races.is_some() && e >= own;
            let races = if counts { cx.races.take() } else { None };
            let places = locate_all(cx, i.x >> SPACE & 7, &addresses, mask, bytes as u64, access);
            if races.is_some() {
                cx.races = races;
            }
            let Some(places) = places else { return };
            for lane in lanes(mask) {
                unsafe {
                    out[lane] |= match bytes {
                        1 => (*(places[lane] as *const u8) as u64) << (8 * inner),
                        2 => (*(places[lane] as *const u16) as u64) << (16 * inner),
                        4 => *(places[lane] as *const u32) as u64,
                        _ => *(places[lane] as *const u64),
                    };
                }
            }
        }
        unsafe {
            if bytes == 8 {
                write(cx, register, mask, &out);
            } else {
                write(cx, register, mask, &out.map(|word| word as u32));
            }
        }
    }
    cx.is_quiet = false;
}

unsafe fn store_tile(cx: &mut Cx, i: &Inst, mask: u32) {
    let tile = &cx.launch.kernel.tiles[i.y as usize];
    let bytes = tile.a.element.bytes();
    let per = tile.a.element.per_register();
    let access = Access { reads: false, writes: true, strong: false };
    check_tile(cx, i, tile, mask);
    cx.is_quiet = unsafe { count_tile(cx, i, tile, mask, access) };
    for (at, &register) in tile.a.registers.iter().enumerate() {
        for inner in 0..per {
            let addresses = unsafe { element_addresses(cx, i, tile, mask, at * per + inner) };
            let Some(places) =
                locate_all(cx, i.x >> SPACE & 7, &addresses, mask, bytes as u64, access)
            else {
                return;
            };
            for lane in lanes(mask) {
                unsafe {
                    let value = get(cx, register, bytes == 8, lane);
                    match bytes {
                        1 => *(places[lane] as *mut u8) = (value >> (8 * inner)) as u8,
                        2 => *(places[lane] as *mut u16) = (value >> (16 * inner)) as u16,
                        4 => *(places[lane] as *mut u32) = value as u32,
                        _ => *(places[lane] as *mut u64) = value,
                    }
                }
            }
        }
    }
    cx.is_quiet = false;
}

unsafe fn load_matrices(cx: &mut Cx, i: &Inst, mask: u32) {
    let count = i.c as usize;
    let givers = if count == 4 { !0 } else { (1u32 << (8 * count)) - 1 };
    let access = Access { reads: true, writes: false, strong: false };
    unsafe {
        let Some(places) = locate(cx, i, givers & mask, 16, access) else { return };
        let rows = cx.launch.kernel.lists[i.y as usize].as_slice();
        for matrix in 0..count {
            let mut out = [0u32; LANES];
            for lane in 0..LANES {
                let element = |row: usize, column: usize| {
                    *(places[8 * matrix + row] as *const u16).add(column) as u32
                };
                let (row, column) = (lane / 4, lane % 4 * 2);
                out[lane] = if i.b != 0 {
                    element(column, row) | element(column + 1, row) << 16
                } else {
                    element(row, column) | element(row, column + 1) << 16
                };
            }
            write(cx, rows[matrix], mask, &out);
        }
    }
}

unsafe fn store_matrices(cx: &mut Cx, i: &Inst, mask: u32) {
    let count = i.c as usize;
    let takers = if count == 4 { !0 } else { (1u32 << (8 * count)) - 1 };
    let access = Access { reads: false, writes: true, strong: false };
    unsafe {
        let Some(places) = locate(cx, i, takers & mask, 16, access) else { return };
        let rows = cx.launch.kernel.lists[i.y as usize].as_slice();
        for matrix in 0..count {
            let words = read::<u32>(cx, rows[matrix]);
            for lane in 0..LANES {
                let put = |row: usize, column: usize, half: u32| {
                    *(places[8 * matrix + row] as *mut u16).add(column) = half as u16;
                };
                let (row, column) = (lane / 4, lane % 4 * 2);
                if i.b != 0 {
                    put(column, row, words[lane]);
                    put(column + 1, row, words[lane] >> 16);
                } else {
                    put(row, column, words[lane]);
                    put(row, column + 1, words[lane] >> 16);
                }
            }
        }
    }
}

/// `movmatrix`: 8x8 elements of 16 bits.
unsafe fn transpose(cx: &mut Cx, i: &Inst, mask: u32) {
    unsafe {
        let words = read::<u32>(cx, i.a);
        let element =
            |row: usize, column: usize| words[row * 4 + column / 2] >> (16 * (column % 2)) & 0xffff;
        let mut out = [0; LANES];
        for lane in 0..LANES {
            let (row, column) = (lane / 4, lane % 4 * 2);
            out[lane] = element(column, row) | element(column + 1, row) << 16;
        }
        write(cx, i.d, mask, &out);
    }
}
