//! Body in plain Rust, for every processor.

use super::simd::Simd;

/// Lanes in an array, which the compiler turns into whatever the target has: four, or sixteen where
/// tests want the tiles of AVX-512 on every processor.
#[derive(Clone, Copy)]
pub struct Portable<const LANES: usize = 4>;

macro_rules! lane_by_lane {
    ($($name:ident: $operator:tt,)*) => {$(
        #[inline(always)]
        fn $name(self, a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
            std::array::from_fn(|i| a[i] $operator b[i])
        }
    )*};
}

impl<const LANES: usize> Simd for Portable<LANES> {
    type Vector = [f32; LANES];
    const NAME: &'static str = if LANES == 4 { "portable" } else { "wide portable" };
    const WIDTH: usize = LANES;
    const ROWS: usize = if LANES == 4 { 6 } else { 14 };

    #[inline(always)]
    fn splat(self, value: f32) -> [f32; LANES] {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn read(self, from: *const f32) -> [f32; LANES] {
        // SAFETY: the caller promises `LANES` readable floats.
        unsafe { from.cast::<[f32; LANES]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn write(self, to: *mut f32, value: [f32; LANES]) {
        // SAFETY: the caller promises `LANES` writable floats.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(value) }
    }

    lane_by_lane! { add: +, sub: -, mul: *, div: /, }

    #[inline(always)]
    fn mul_add(self, a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn scalar_mul_add(self, a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }

    #[inline(always)]
    fn max(self, a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| if a[i] > b[i] || a[i].is_nan() { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn relu(self, a: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| if a[i] <= 0.0 { 0.0 } else { a[i] })
    }

    #[inline(always)]
    fn gate(self, a: [f32; LANES], value: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| if a[i] <= 0.0 { 0.0 } else { value[i] })
    }

    #[inline(always)]
    fn part(
        self,
        a: [f32; LANES],
        b: [f32; LANES],
        value: [f32; LANES],
    ) -> ([f32; LANES], [f32; LANES]) {
        let same = std::array::from_fn(|i| if a[i] == b[i] { value[i] } else { 0.0 });
        let other = std::array::from_fn(|i| if a[i] == b[i] { 0.0 } else { value[i] });
        (same, other)
    }

    #[inline(always)]
    fn power_of_two(self, shifted: [f32; LANES]) -> [f32; LANES] {
        let one = 1.0f32.to_bits();
        std::array::from_fn(|i| f32::from_bits((shifted[i].to_bits() << 23).wrapping_add(one)))
    }
}
