//! The vector operations a body is made of.

/// A number this large has no digits behind the point: adding it rounds to whole numbers, which then
/// stand in the last bits.
pub const WHOLE: f32 = 12_582_912.0;

/// Floats in the widest vector.
pub const WIDEST: usize = 16;

/// Start and end of every one of `parts` parts of `0..count`, of nearly equal length: a short last
/// group of rows would wait on the latency of its sums.
#[inline(always)]
pub fn even_parts(count: usize, parts: usize) -> impl ExactSizeIterator<Item = [usize; 2]> {
    (0..parts).map(move |part| [part * count / parts, (part + 1) * count / parts])
}

/// A set of vector instructions; holding a value proves that the processor has them.
///
/// A tile of channels is [`TILE`](Simd::TILE) = two vectors wide.
pub trait Simd: Copy {
    /// `WIDTH` floats.
    type Vector: Copy;
    /// Name of the set of instructions.
    const NAME: &'static str;
    /// Floats in a vector.
    const WIDTH: usize;
    /// Channels in a tile.
    const TILE: usize = 2 * Self::WIDTH;
    /// Rows of a contraction held in registers, at most 14: with 16 registers, 6 rows of 2 vectors
    /// leave 4 for the operands; with 32, 14 rows.
    const ROWS: usize = 6;

    /// The value in every lane.
    fn splat(self, value: f32) -> Self::Vector;

    /// Reads a vector.
    ///
    /// # Safety
    /// `WIDTH` floats are readable at `from`.
    unsafe fn read(self, from: *const f32) -> Self::Vector;

    /// Writes a vector.
    ///
    /// # Safety
    /// `WIDTH` floats are writable at `to`.
    unsafe fn write(self, to: *mut f32, value: Self::Vector);

    /// Reads the first `count` lanes, zeros behind them.
    ///
    /// # Safety
    /// `count` floats, at most `WIDTH`, are readable at `from`.
    #[inline(always)]
    unsafe fn read_first(self, from: *const f32, count: usize) -> Self::Vector {
        let mut lanes = [0.0; WIDEST];
        // SAFETY: `lanes` holds the longest vector, and the caller promises the rest.
        unsafe {
            from.copy_to_nonoverlapping(lanes.as_mut_ptr(), count);
            self.read(lanes.as_ptr())
        }
    }

    /// Writes the first `count` lanes.
    ///
    /// # Safety
    /// `count` floats, at most `WIDTH`, are writable at `to`.
    #[inline(always)]
    unsafe fn write_first(self, to: *mut f32, count: usize, value: Self::Vector) {
        let mut lanes = [0.0; WIDEST];
        // SAFETY: `lanes` holds the longest vector, and the caller promises the rest.
        unsafe {
            self.write(lanes.as_mut_ptr(), value);
            to.copy_from_nonoverlapping(lanes.as_ptr(), count);
        }
    }

    /// Reads as [`read_first`](Self::read_first) does, and without a mask if the count is `WIDTH`.
    ///
    /// # Safety
    /// The same as there.
    #[inline(always)]
    unsafe fn read_up_to(self, from: *const f32, count: usize) -> Self::Vector {
        // SAFETY: as the caller promises.
        unsafe {
            match count == Self::WIDTH {
                true => self.read(from),
                false => self.read_first(from, count),
            }
        }
    }

    /// Writes as [`write_first`](Self::write_first) does, and without a mask if the count is `WIDTH`.
    ///
    /// # Safety
    /// The same as there.
    #[inline(always)]
    unsafe fn write_up_to(self, to: *mut f32, count: usize, value: Self::Vector) {
        // SAFETY: as the caller promises.
        unsafe {
            match count == Self::WIDTH {
                true => self.write(to, value),
                false => self.write_first(to, count, value),
            }
        }
    }

    /// `a + b`.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a - b`.
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a * b`.
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a / b`.
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `a * b + c`.
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// `a * b + c` of numbers, rounded as in a lane.
    #[inline(always)]
    fn scalar_mul_add(self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    /// The larger lane, or NaN where either is NaN.
    fn max(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// The smaller lane, or NaN where either is NaN: the opposite of the larger of the opposites.
    #[inline(always)]
    fn min(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        let zero = self.splat(0.0);
        self.sub(zero, self.max(self.sub(zero, a), self.sub(zero, b)))
    }

    /// `max(a, 0)`, or NaN where `a` is NaN.
    fn relu(self, a: Self::Vector) -> Self::Vector;

    /// `value` where `a` is positive or NaN, else zero.
    fn gate(self, a: Self::Vector, value: Self::Vector) -> Self::Vector;

    /// `value` split into the lanes where `a == b` and the others.
    fn part(
        self,
        a: Self::Vector,
        b: Self::Vector,
        value: Self::Vector,
    ) -> (Self::Vector, Self::Vector);

    /// Two to the power of a whole number from -126 to 127, which is given as its sum with
    /// [`WHOLE`]; unspecified for others, and never a trap.
    fn power_of_two(self, shifted: Self::Vector) -> Self::Vector;

    /// Writes the first `columns` vectors of the transpose of `WIDTH` vectors, as far apart as given
    /// with them; maybe more.
    ///
    /// # Safety
    /// The vectors are readable at `from`, and as many writable at `to`.
    #[inline(always)]
    unsafe fn flip(
        self,
        (from, step): (*const f32, usize),
        (to, out): (*mut f32, usize),
        columns: usize,
    ) {
        for i in 0..Self::WIDTH {
            for j in 0..columns.min(Self::WIDTH) {
                // SAFETY: float `j` of vector `i` and float `i` of vector `j`, as promised.
                unsafe { *to.add(j * out + i) = *from.add(i * step + j) };
            }
        }
    }

    /// Writes the first `columns` vectors of the transpose of the `WIDTH` vectors at the start of
    /// `from`, as far apart as given with them; maybe more.
    #[inline(always)]
    fn transpose(
        self,
        (from, step): (&[f32], usize),
        (to, out): (&mut [f32], usize),
        columns: usize,
    ) {
        let end = |step: usize| (Self::WIDTH - 1) * step + Self::WIDTH;
        let (from, to) = (&from[..end(step)], &mut to[..end(out)]);
        // SAFETY: the slices above end with the last vector.
        unsafe { self.flip((from.as_ptr(), step), (to.as_mut_ptr(), out), columns) }
    }

    /// Reads the first `WIDTH` floats of `from`.
    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::Vector {
        let from = &from[..Self::WIDTH];
        // SAFETY: the slice above has `WIDTH` floats.
        unsafe { self.read(from.as_ptr()) }
    }

    /// Writes to the first `WIDTH` floats of `to`.
    #[inline(always)]
    fn store(self, to: &mut [f32], value: Self::Vector) {
        let to = &mut to[..Self::WIDTH];
        // SAFETY: the slice above has `WIDTH` floats.
        unsafe { self.write(to.as_mut_ptr(), value) }
    }

    /// The sum of the lanes, from the first on.
    #[inline(always)]
    fn sum(self, value: Self::Vector) -> f32 {
        let mut lanes = [0.0; WIDEST];
        self.store(&mut lanes, value);
        lanes[..Self::WIDTH].iter().sum()
    }

    /// Reads the two vectors of a tile.
    #[inline(always)]
    fn load_tile(self, from: &[f32]) -> [Self::Vector; 2] {
        [self.load(from), self.load(&from[Self::WIDTH..])]
    }

    /// Adds the two vectors of a tile to memory.
    #[inline(always)]
    fn add_tile(self, to: &mut [f32], value: [Self::Vector; 2]) {
        let old = self.load_tile(to);
        self.store(to, self.add(old[0], value[0]));
        self.store(&mut to[Self::WIDTH..], self.add(old[1], value[1]));
    }
}

/// The body for a number of rows from one to at most the given one, which is a constant `N` in it; what is
/// beyond that most is left out of the code.
macro_rules! with_rows {
    ($rows:expr, $most:expr, [$($n:literal)+], |$N:ident| $body:expr) => {
        match $rows {
            $($n if $n <= $most => {
                const $N: usize = $n;
                $body
            })+
            more => unreachable!("1 to {} rows, not {more}", $most),
        }
    };
}
pub(super) use with_rows;

/// Operations of [`Simd`] that are one instruction, all of which the type proves: those that fill,
/// read and write a vector, then others.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! single_instructions {
    ($vector:ty: $splat:ident, $read:ident, $write:ident;
     $($name:ident($($arg:ident),*): $instruction:ident,)*) => {
        #[inline(always)]
        fn splat(self, value: f32) -> $vector {
            // SAFETY: `self` proves that the processor has it.
            unsafe { $splat(value) }
        }

        #[inline(always)]
        unsafe fn read(self, from: *const f32) -> $vector {
            // SAFETY: as above, and the caller promises readable floats for a vector.
            unsafe { $read(from) }
        }

        #[inline(always)]
        unsafe fn write(self, to: *mut f32, value: $vector) {
            // SAFETY: as above, and the caller promises writable floats for a vector.
            unsafe { $write(to, value) }
        }

        $(
            #[inline(always)]
            fn $name(self, $($arg: $vector),*) -> $vector {
                // SAFETY: `self` proves that the processor has it.
                unsafe { $instruction($($arg),*) }
            }
        )*
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use single_instructions;

/// The transposes of 4x4 blocks that lie side by side in four vectors.
#[cfg(target_arch = "x86_64")]
macro_rules! transposed_quarters {
    ($rows:ident, $low:ident, $high:ident, $shuffle:ident) => {{
        let low = [$low($rows[0], $rows[1]), $low($rows[2], $rows[3])];
        let high = [$high($rows[0], $rows[1]), $high($rows[2], $rows[3])];
        [
            $shuffle::<0x44>(low[0], low[1]),
            $shuffle::<0xee>(low[0], low[1]),
            $shuffle::<0x44>(high[0], high[1]),
            $shuffle::<0xee>(high[0], high[1]),
        ]
    }};
}
#[cfg(target_arch = "x86_64")]
pub(super) use transposed_quarters;

#[cfg(test)]
mod tests {
    use super::{Simd, WHOLE};
    use crate::instruction_set::bodies;
    #[cfg(target_arch = "aarch64")]
    use crate::neon::Neon;
    use crate::portable::Portable;
    #[cfg(target_arch = "x86_64")]
    use crate::{avx2::Avx2, avx512::Avx512};

    const VALUES: [f32; 9] =
        [0.0, -0.0, 1.5, -2.5, 3.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];

    /// Asserts that `operation` does in every lane as `expected` does.
    fn check<S: Simd>(
        (simd, name): (S, &str),
        operation: impl Fn(S::Vector, S::Vector, S::Vector) -> S::Vector,
        expected: impl Fn(f32, f32, f32) -> f32,
    ) {
        let all = VALUES.len().pow(3);
        for first in (0..all).step_by(S::WIDTH) {
            let operand = |place: usize| {
                let value = |i: usize| VALUES[i % all / VALUES.len().pow(place as u32) % 9];
                (first..first + S::WIDTH).map(value).collect::<Vec<_>>()
            };
            let [a, b, c] = [0, 1, 2].map(operand);
            let mut got = vec![0.0; S::WIDTH];
            simd.store(&mut got, operation(simd.load(&a), simd.load(&b), simd.load(&c)));
            for (i, &got) in got.iter().enumerate() {
                let expected = expected(a[i], b[i], c[i]);
                let same = got == expected || got.is_nan() && expected.is_nan();
                let (a, b, c) = (a[i], b[i], c[i]);
                assert!(same, "{} {name} of {a} {b} {c}: {got}, not {expected}", S::NAME);
            }
        }
    }

    /// Asserts what every operation does, and returns the name of the set.
    fn follows_its_words<S: Simd>(simd: S) -> &'static str {
        let either = |a: f32, b: f32| a.is_nan() || b.is_nan();
        check((simd, "splat"), |_, _, _| simd.splat(2.5), |_, _, _| 2.5);
        check((simd, "add"), |a, b, _| simd.add(a, b), |a, b, _| a + b);
        check((simd, "sub"), |a, b, _| simd.sub(a, b), |a, b, _| a - b);
        check((simd, "mul"), |a, b, _| simd.mul(a, b), |a, b, _| a * b);
        check((simd, "div"), |a, b, _| simd.div(a, b), |a, b, _| a / b);
        check((simd, "mul_add"), |a, b, c| simd.mul_add(a, b, c), |a, b, c| a * b + c);
        let larger = |a: f32, b: f32| if either(a, b) { f32::NAN } else { a.max(b) };
        check((simd, "max"), |a, b, _| simd.max(a, b), |a, b, _| larger(a, b));
        let smaller = |a: f32, b: f32| if either(a, b) { f32::NAN } else { a.min(b) };
        check((simd, "min"), |a, b, _| simd.min(a, b), |a, b, _| smaller(a, b));
        check((simd, "relu"), |a, _, _| simd.relu(a), |a, _, _| larger(a, 0.0));
        let open = |a: f32| a > 0.0 || a.is_nan();
        check((simd, "gate"), |a, b, _| simd.gate(a, b), |a, b, _| if open(a) { b } else { 0.0 });
        let part = |a, b, c| simd.part(a, b, c);
        check((simd, "same"), |a, b, c| part(a, b, c).0, |a, b, c| if a == b { c } else { 0.0 });
        check((simd, "other"), |a, b, c| part(a, b, c).1, |a, b, c| if a == b { 0.0 } else { c });
        for count in 0..=S::WIDTH {
            let (from, mut got) = (vec![2.0; count], vec![3.0; S::WIDTH]);
            // SAFETY: so many are readable, and as many as a vector has writable.
            let read = unsafe { simd.read_first(from.as_ptr(), count) };
            simd.store(&mut got, read);
            let (first, behind) = got.split_at(count);
            assert!(
                first.iter().all(|&lane| lane == 2.0) && behind.iter().all(|&lane| lane == 0.0)
            );
            // SAFETY: so many are writable.
            unsafe { simd.write_first(got.as_mut_ptr(), count, simd.splat(5.0)) };
            let expected = |i| if i < count { 5.0 } else { 0.0 };
            assert!((0..S::WIDTH).all(|i| got[i] == expected(i)), "{} {count}: {got:?}", S::NAME);
        }
        for power in -126..=127 {
            let mut got = vec![0.0; S::WIDTH];
            simd.store(&mut got, simd.power_of_two(simd.splat(WHOLE + power as f32)));
            assert_eq!(got, vec![2.0f32.powi(power); S::WIDTH], "{} 2^{power}", S::NAME);
        }
        let matrix: Vec<f32> = (0..S::WIDTH * S::WIDTH).map(|i| i as f32).collect();
        let mut turned = vec![0.0; matrix.len()];
        simd.transpose((&matrix, S::WIDTH), (&mut turned, S::WIDTH), S::WIDTH);
        for (i, value) in turned.into_iter().enumerate() {
            let expected = matrix[i % S::WIDTH * S::WIDTH + i / S::WIDTH];
            assert_eq!(value, expected, "{} transpose at {i}", S::NAME);
        }
        S::NAME
    }

    #[test]
    fn every_set_follows_its_words() {
        let mut checked = vec![follows_its_words(Portable::<4>), follows_its_words(Portable::<16>)];
        #[cfg(target_arch = "x86_64")]
        checked.extend(
            [Avx2::detect().map(follows_its_words), Avx512::detect().map(follows_its_words)]
                .into_iter()
                .flatten(),
        );
        #[cfg(target_arch = "aarch64")]
        checked.extend(Neon::detect().map(follows_its_words));
        // AMX has the vectors of AVX-512.
        for body in bodies().into_iter().filter(|body| body.amx().is_none()) {
            assert!(checked.contains(&body.name()), "{} was not checked", body.name());
        }
    }
}
