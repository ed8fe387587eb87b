//! Registers of a warp as rows of 32 lanes, and functions over whole rows.
//!
//! A row has 32 words of 32 bits; a register of 64 bits has two rows, as 32 words of 64 bits. Registers of 16
//! bits take a row too, with zeros above. Immediates are rows as well, in a bank of their own that all warps
//! share, so that an instruction never asks what its operands are.

use super::{Cx, Inst};

pub const LANES: usize = 32;
/// Bytes of a row.
pub const ROW: usize = 4 * LANES;
/// Marks an operand of the bank of constants.
pub const CONSTANT: u32 = 1 << 31;

pub trait Lane: Copy {
    type Slot: Copy + Default;
    fn from_slot(slot: Self::Slot) -> Self;
    fn slot(self) -> Self::Slot;
}

macro_rules! lane {
    ($($ty:ty, $slot:ty, |$from:ident| $get:expr, |$to:ident| $put:expr;)*) => {$(
        impl Lane for $ty {
            type Slot = $slot;
            #[inline(always)]
            fn from_slot($from: $slot) -> Self { $get }
            #[inline(always)]
            fn slot(self) -> $slot { let $to = self; $put }
        }
    )*};
}

lane! {
    u32, u32, |x| x, |x| x;
    i32, u32, |x| x as i32, |x| x as u32;
    f32, u32, |x| f32::from_bits(x), |x| x.to_bits();
    u64, u64, |x| x, |x| x;
    i64, u64, |x| x as i64, |x| x as u64;
    f64, u64, |x| f64::from_bits(x), |x| x.to_bits();
    u16, u32, |x| x as u16, |x| x as u32;
    i16, u32, |x| x as i16, |x| x as u16 as u32;
}

/// # Safety
/// The operand is one that lowering made for a register of this width.
#[inline(always)]
pub unsafe fn read<T: Lane>(cx: &Cx, operand: u32) -> [T::Slot; LANES] {
    unsafe { *(cx.row(operand) as *const [T::Slot; LANES]) }
}

/// # Safety
/// See [`read`]; the operand is a register.
#[inline(always)]
pub unsafe fn write<S: Copy>(cx: &mut Cx, operand: u32, mask: u32, values: &[S; LANES]) {
    unsafe {
        let row = &mut *(cx.row(operand) as *mut [S; LANES]);
        if mask == !0 {
            *row = *values;
        } else {
            for lane in 0..LANES {
                row[lane] = if mask >> lane & 1 != 0 { values[lane] } else { row[lane] };
            }
        }
    }
}

/// # Safety
/// See [`write`].
#[inline(always)]
pub unsafe fn map1<A: Lane, D: Lane>(cx: &mut Cx, i: &Inst, mask: u32, f: impl Fn(A) -> D) {
    unsafe {
        let a = &*(cx.row(i.a) as *const [A::Slot; LANES]);
        let mut out = [D::Slot::default(); LANES];
        for lane in 0..LANES {
            out[lane] = f(A::from_slot(a[lane])).slot();
        }
        write(cx, i.d, mask, &out);
    }
}

/// # Safety
/// See [`write`].
#[inline(always)]
pub unsafe fn map2<A: Lane, B: Lane, D: Lane>(
    cx: &mut Cx,
    i: &Inst,
    mask: u32,
    f: impl Fn(A, B) -> D,
) {
    unsafe {
        let a = &*(cx.row(i.a) as *const [A::Slot; LANES]);
        let b = &*(cx.row(i.b) as *const [B::Slot; LANES]);
        let mut out = [D::Slot::default(); LANES];
        for lane in 0..LANES {
            out[lane] = f(A::from_slot(a[lane]), B::from_slot(b[lane])).slot();
        }
        write(cx, i.d, mask, &out);
    }
}

/// # Safety
/// See [`write`].
#[inline(always)]
pub unsafe fn map3<A: Lane, B: Lane, C: Lane, D: Lane>(
    cx: &mut Cx,
    i: &Inst,
    mask: u32,
    f: impl Fn(A, B, C) -> D,
) {
    unsafe {
        let a = &*(cx.row(i.a) as *const [A::Slot; LANES]);
        let b = &*(cx.row(i.b) as *const [B::Slot; LANES]);
        let c = &*(cx.row(i.c) as *const [C::Slot; LANES]);
        let mut out = [D::Slot::default(); LANES];
        for lane in 0..LANES {
            out[lane] =
                f(A::from_slot(a[lane]), B::from_slot(b[lane]), C::from_slot(c[lane])).slot();
        }
        write(cx, i.d, mask, &out);
    }
}

/// Only for lanes of the mask: for what is slow.
///
/// # Safety
/// See [`write`].
#[inline(always)]
pub unsafe fn each1<A: Lane, D: Lane>(cx: &mut Cx, i: &Inst, mask: u32, f: impl Fn(A) -> D) {
    unsafe {
        for lane in lanes(mask) {
            let a = *(cx.row(i.a) as *const A::Slot).add(lane);
            *(cx.row(i.d) as *mut D::Slot).add(lane) = f(A::from_slot(a)).slot();
        }
    }
}

/// # Safety
/// See [`write`].
#[inline(always)]
pub unsafe fn each2<A: Lane, B: Lane, D: Lane>(
    cx: &mut Cx,
    i: &Inst,
    mask: u32,
    f: impl Fn(A, B) -> D,
) {
    unsafe {
        for lane in lanes(mask) {
            let a = *(cx.row(i.a) as *const A::Slot).add(lane);
            let b = *(cx.row(i.b) as *const B::Slot).add(lane);
            *(cx.row(i.d) as *mut D::Slot).add(lane) = f(A::from_slot(a), B::from_slot(b)).slot();
        }
    }
}

/// # Safety
/// See [`write`].
#[inline(always)]
pub unsafe fn each3<A: Lane, B: Lane, C: Lane, D: Lane>(
    cx: &mut Cx,
    i: &Inst,
    mask: u32,
    f: impl Fn(A, B, C) -> D,
) {
    unsafe {
        for lane in lanes(mask) {
            let a = *(cx.row(i.a) as *const A::Slot).add(lane);
            let b = *(cx.row(i.b) as *const B::Slot).add(lane);
            let c = *(cx.row(i.c) as *const C::Slot).add(lane);
            *(cx.row(i.d) as *mut D::Slot).add(lane) =
                f(A::from_slot(a), B::from_slot(b), C::from_slot(c)).slot();
        }
    }
}

/// Bits of the lanes for which a comparison holds.
///
/// # Safety
/// See [`read`].
#[inline(always)]
pub unsafe fn compare<T: Lane>(cx: &Cx, i: &Inst, f: impl Fn(T, T) -> bool) -> u32 {
    unsafe {
        let a = &*(cx.row(i.a) as *const [T::Slot; LANES]);
        let b = &*(cx.row(i.b) as *const [T::Slot; LANES]);
        let mut out = [0u8; LANES];
        for lane in 0..LANES {
            out[lane] = if f(T::from_slot(a[lane]), T::from_slot(b[lane])) { 0xff } else { 0 };
        }
        bits(&out)
    }
}

/// The uppermost bit of each byte.
#[inline(always)]
pub fn bits(bytes: &[u8; LANES]) -> u32 {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_movemask_epi8};
    // SAFETY: the load is of 32 bytes, and the whole crate is compiled for AVX2.
    unsafe { _mm256_movemask_epi8(_mm256_loadu_si256(bytes.as_ptr() as *const __m256i)) as u32 }
}

/// Numbers of the lanes of a mask.
#[inline(always)]
pub fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let lane = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(lane)
    })
}

/// A register of any width, as 64 bits.
///
/// # Safety
/// The operand is a register or constant of `wide` or narrow slots.
#[inline(always)]
pub unsafe fn get(cx: &Cx, operand: u32, wide: bool, lane: usize) -> u64 {
    unsafe {
        if wide {
            *(cx.row(operand) as *const u64).add(lane)
        } else {
            *(cx.row(operand) as *const u32).add(lane) as u64
        }
    }
}

/// # Safety
/// See [`get`].
#[inline(always)]
pub unsafe fn put(cx: &mut Cx, operand: u32, wide: bool, lane: usize, value: u64) {
    unsafe {
        if wide {
            *(cx.row(operand) as *mut u64).add(lane) = value;
        } else {
            *(cx.row(operand) as *mut u32).add(lane) = value as u32;
        }
    }
}
