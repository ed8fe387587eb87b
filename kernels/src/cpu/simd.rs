//! The vector operations a body is made of.

/// A set of vector instructions; holding a value proves that the processor has them.
///
/// A tile of channels is [`TILE`](Simd::TILE) = two vectors wide.
pub trait Simd: Copy {
    /// `WIDTH` floats.
    type Vector: Copy;
    /// What the set of instructions is called.
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

    /// `a + b`.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `a - b`.
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `a * b + c`.
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// The larger lane, or NaN where either is NaN.
    fn max(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

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

    /// Writes the transpose of `WIDTH` vectors, as far apart as given with them.
    ///
    /// # Safety
    /// The vectors are readable at `from`, and as many writable at `to`.
    #[inline(always)]
    unsafe fn flip(self, (from, step): (*const f32, usize), (to, out): (*mut f32, usize)) {
        for i in 0..Self::WIDTH {
            for j in 0..Self::WIDTH {
                // SAFETY: float `j` of vector `i` and float `i` of vector `j`, as promised.
                unsafe { *to.add(j * out + i) = *from.add(i * step + j) };
            }
        }
    }

    /// Writes the transpose of the `WIDTH` vectors at the start of `from`, as far apart as given
    /// with them.
    #[inline(always)]
    fn transpose(self, (from, step): (&[f32], usize), (to, out): (&mut [f32], usize)) {
        let end = |step: usize| (Self::WIDTH - 1) * step + Self::WIDTH;
        let (from, to) = (&from[..end(step)], &mut to[..end(out)]);
        // SAFETY: the slices above end with the last vector.
        unsafe { self.flip((from.as_ptr(), step), (to.as_mut_ptr(), out)) }
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
