//! Body in plain Rust, for every processor.

use super::body::implement_body;
use super::simd::Simd;

/// Four lanes in an array, which the compiler turns into whatever the target has.
#[derive(Clone, Copy)]
pub struct Portable;

type Lanes = [f32; 4];

impl Simd for Portable {
    type Vector = Lanes;
    const NAME: &'static str = "portable";
    const WIDTH: usize = 4;

    #[inline(always)]
    fn splat(self, value: f32) -> Lanes {
        [value; 4]
    }

    #[inline(always)]
    unsafe fn read(self, from: *const f32) -> Lanes {
        // SAFETY: the caller promises four readable floats.
        unsafe { from.cast::<Lanes>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn write(self, to: *mut f32, value: Lanes) {
        // SAFETY: the caller promises four writable floats.
        unsafe { to.cast::<Lanes>().write_unaligned(value) }
    }

    #[inline(always)]
    fn add(self, a: Lanes, b: Lanes) -> Lanes {
        std::array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Lanes, b: Lanes) -> Lanes {
        std::array::from_fn(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul_add(self, a: Lanes, b: Lanes, c: Lanes) -> Lanes {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn max(self, a: Lanes, b: Lanes) -> Lanes {
        std::array::from_fn(|i| if a[i] > b[i] || a[i].is_nan() { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn relu(self, a: Lanes) -> Lanes {
        std::array::from_fn(|i| if a[i] <= 0.0 { 0.0 } else { a[i] })
    }

    #[inline(always)]
    fn gate(self, a: Lanes, value: Lanes) -> Lanes {
        std::array::from_fn(|i| if a[i] <= 0.0 { 0.0 } else { value[i] })
    }

    #[inline(always)]
    fn part(self, a: Lanes, b: Lanes, value: Lanes) -> (Lanes, Lanes) {
        let same = std::array::from_fn(|i| if a[i] == b[i] { value[i] } else { 0.0 });
        let other = std::array::from_fn(|i| if a[i] == b[i] { 0.0 } else { value[i] });
        (same, other)
    }
}

implement_body!(Portable);
