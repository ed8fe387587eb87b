//! Convolution of bf16 on tile registers.
//!
//! Adjacent pixels of a map with its ring are the rows of a matrix as they lie, and so are those a tap
//! further: nothing is unfolded. At the end of every row of the map that computes a few pixels too
//! many, which are dropped.

use super::amx::Amx;
use super::buffers::Buffer;
use super::convolution::Term;
use super::layout::{Map, Tap};
use super::winograd::Scratch;

/// Rows, steps and columns of a block of a product.
pub const BLOCK: usize = 32;

/// Blocks of a product: `c[block] (+)= sum over steps of a[block, step] b[step]`.
///
/// Every block of `c` is `[32, 32]`, that of `a` in bf16 `[32 rows, 32 steps]`, and that of `b` as
/// [`pairs`](Amx::pairs) gives it.
#[cfg_attr(
    not(all(target_arch = "x86_64", target_os = "linux", target_pointer_width = "64")),
    allow(dead_code, reason = "nothing multiplies them there")
)]
pub struct BlockProduct<'a> {
    pub a: &'a [u16],
    /// Distance between the rows of a block of `a`.
    pub a_row: usize,
    pub b: &'a [u16],
    /// Where every block begins in `a`, and in `c`.
    pub blocks: &'a [[usize; 2]],
    /// Where every step begins in `a`, from the start of the block on, and in `b`.
    pub steps: &'a [[usize; 2]],
    /// Adds products to `c` instead of replacing it.
    pub accumulate: bool,
}

/// Steps of a gradient of the weight from which writing its sums costs little.
const STEPS: usize = 28;

/// Most images taken together.
const GROUP: usize = 16;

/// A convolution that keeps the size, from one map, with a ring, to another, without. Channels of both
/// fill whole tiles of 32.
///
/// Operands are rounded to bf16, products are summed in `f32`, and outputs, but not gradients of the
/// weight, are rounded again.
pub struct AmxConvolution {
    amx: Amx,
    input: Map,
    out: Map,
    /// Where every block of pixels begins in the input and in the output.
    pixels: Vec<[usize; 2]>,
    /// Where every position in the window of every tile of channels reads in the input, and in the weight
    /// of a tile of the output.
    taps: Vec<[usize; 2]>,
    /// Where the positions of a tile read in the transposed input, and where the gradients of their
    /// weights are.
    weights: Vec<[usize; 2]>,
    /// Where every block of pixels of a group of images lies in the transposed inputs and in the paired
    /// gradients of the outputs.
    group_pixels: Vec<[usize; 2]>,
}

impl AmxConvolution {
    /// The convolution from `input` to `out` with these taps, if it fits tiles.
    pub fn fits(amx: Amx, input: Map, out: Map, stride: usize, taps: &[Tap]) -> Option<Self> {
        let whole = |map: &Map| map.lane == BLOCK && map.channels.is_multiple_of(BLOCK);
        if stride != 1 || !whole(&input) || !whole(&out) {
            return None;
        }
        let offsets = taps.iter().step_by(BLOCK).map(|tap| tap.offset);
        let taps: Vec<_> = offsets.enumerate().map(|(k, at)| [at, k * BLOCK * BLOCK]).collect();
        let window = taps[..input.window() * input.window()].iter();
        let weights = window.map(|[at, weight]| [at / BLOCK, *weight]).collect();
        let (pixels, group_pixels) = (Vec::new(), Vec::new());
        let mut this = Self { amx, input, out, pixels, taps, weights, group_pixels };
        let (chunks, line) = (this.chunks(), this.line());
        this.pixels = (0..chunks).map(|chunk| [chunk * BLOCK * BLOCK; 2]).collect();
        let place = |k: usize| {
            let (image, chunk) = (k / chunks, k % chunks);
            let a = image * input.channels * line + chunk * BLOCK;
            [a, (image * out.tiles() * chunks + chunk) * BLOCK * BLOCK]
        };
        this.group_pixels = (0..this.group() * chunks).map(place).collect();
        Some(this)
    }

    /// Images to take together.
    pub fn group(&self) -> usize {
        STEPS.div_ceil(self.chunks()).min(GROUP)
    }

    /// Pixels from the first of the output to the last, in rows as long as the input's.
    fn span(&self) -> usize {
        (self.out.h - 1) * self.pitch() + self.out.w
    }

    /// Pixels of a row of the input.
    fn pitch(&self) -> usize {
        self.input.row() / BLOCK
    }

    /// Blocks of pixels that have all of the output.
    fn chunks(&self) -> usize {
        self.span().div_ceil(BLOCK)
    }

    /// Pixels in a channel of the transposed input: those that any tap of a block reads.
    fn line(&self) -> usize {
        let furthest = self.weights.last().map_or(0, |[at, _]| *at);
        (self.chunks() * BLOCK + furthest).next_multiple_of(BLOCK)
    }

    /// Lengths of the buffers for [`convolve`](Self::convolve) of so many terms and
    /// [`weight`](Self::weight).
    pub fn scratch_lengths(&self, terms: usize) -> Vec<usize> {
        // Behind an image, blocks read pixels that are dropped.
        let image = (self.input.image() + 2 * BLOCK * BLOCK) / 2;
        let transposed = self.group() * self.input.channels * self.line() / 2;
        let product = self.chunks() * BLOCK * BLOCK;
        let deltas = self.group() * self.out.tiles() * product / 2;
        [vec![image.max(transposed); terms], vec![product.max(deltas)]].concat()
    }

    /// Packed weights `[o tiles, taps, 32]` to blocks of pairs.
    pub fn prepare(&self, packed: &[f32]) -> Buffer {
        let mut prepared = Buffer::stale(packed.len() / 2);
        let blocks = packed.chunks_exact(BLOCK * BLOCK);
        let to = halves_mut(&mut prepared).chunks_exact_mut(BLOCK * BLOCK);
        blocks.zip(to).for_each(|(from, to)| self.amx.pairs(from, to));
        prepared
    }

    /// Convolves images with the prepared weight: the sum over `terms`.
    pub fn convolve(&self, terms: &[Term<'_>], outputs: &mut [f32], scratch: &mut Scratch) {
        let (image, weight) = (self.input.image(), self.taps.len() * BLOCK * BLOCK);
        for (n, output) in outputs.chunks_exact_mut(self.out.image()).enumerate() {
            for (term, to) in terms.iter().zip(&mut scratch.inputs) {
                self.amx.narrow(&term.input[n * image..(n + 1) * image], halves_mut(to));
            }
            for (tile, output) in output.chunks_exact_mut(self.out.plane()).enumerate() {
                for (i, (term, input)) in terms.iter().zip(&scratch.inputs).enumerate() {
                    let job = BlockProduct {
                        a: halves(input),
                        a_row: BLOCK,
                        b: &halves(term.weight)[tile * weight..(tile + 1) * weight],
                        blocks: &self.pixels,
                        steps: &self.taps,
                        accumulate: i > 0,
                    };
                    self.amx.blocks(&job, &mut scratch.out);
                }
                let rows = scratch.out.chunks(self.input.row());
                for (row, output) in rows.zip(output.chunks_exact_mut(self.out.row())) {
                    self.amx.round_to(row, output);
                }
            }
        }
    }

    /// Adds to the gradient of the packed weight what images contribute, or replaces it if they are the
    /// first; `deltas` are the gradients of their outputs, in the map `delta` with a ring of zeros. What is not
    /// finite in a pixel of an edge reaches taps that do not see it, too: it meets those zeros.
    pub fn weight(
        &self,
        inputs: &[f32],
        (delta, deltas): (Map, &[f32]),
        (weight, first): (&mut [f32], bool),
        scratch: &mut Scratch,
    ) {
        let inputs = inputs.chunks(self.group() * self.input.image());
        let deltas = deltas.chunks(self.group() * delta.image());
        for (part, (inputs, deltas)) in inputs.zip(deltas).enumerate() {
            let images = inputs.len() / self.input.image();
            self.transpose(inputs, &mut scratch.inputs[0]);
            self.pair(delta, &deltas[..images * delta.image()], &mut scratch.out);
            let pairs = weight.chunks_exact_mut(self.weights.len() * BLOCK * BLOCK);
            for (k, weight) in pairs.enumerate() {
                let (to, from) = (k / self.input.tiles(), k % self.input.tiles());
                let job = BlockProduct {
                    a: &halves(&scratch.inputs[0])[from * BLOCK * self.line()..],
                    a_row: self.line(),
                    b: &halves(&scratch.out)[to * self.chunks() * BLOCK * BLOCK..],
                    blocks: &self.weights,
                    steps: &self.group_pixels[..images * self.chunks()],
                    accumulate: !first || part > 0,
                };
                self.amx.blocks(&job, weight);
            }
        }
    }

    /// Images to `[n, channels, line]`, with zeros behind their pixels.
    fn transpose(&self, inputs: &[f32], to: &mut [f32]) {
        let to = halves_mut(to).chunks_exact_mut(BLOCK * self.line());
        for (plane, to) in inputs.chunks_exact(self.input.plane()).zip(to) {
            let mut rows = plane.chunks(BLOCK * BLOCK);
            for chunk in 0..self.line() / BLOCK {
                let pixels = rows.next().unwrap_or_default();
                self.amx.transposed(pixels, &mut to[chunk * BLOCK..], self.line());
            }
        }
    }

    /// The gradients of outputs to `[n, tiles, chunks]` blocks of pairs, with zeros behind their pixels
    /// and, from the ring, at the ends of their rows.
    fn pair(&self, delta: Map, deltas: &[f32], to: &mut [f32]) {
        debug_assert_eq!(delta.row(), self.input.row(), "the rows of both have one ring");
        let pixels = delta.start(0, 0)..delta.start(0, 0) + self.span() * BLOCK;
        let mut to = halves_mut(to).chunks_exact_mut(BLOCK * BLOCK);
        for plane in deltas.chunks_exact(delta.plane()) {
            let chunks = plane[pixels.clone()].chunks(BLOCK * BLOCK);
            chunks.zip(&mut to).for_each(|(pixels, to)| self.amx.pairs(pixels, to));
        }
    }
}

/// The halves of floats, as numbers of bf16.
fn halves(floats: &[f32]) -> &[u16] {
    // SAFETY: a float has two of them, and every bit pattern is one.
    unsafe { std::slice::from_raw_parts(floats.as_ptr().cast(), 2 * floats.len()) }
}

/// [`halves`], to be written.
fn halves_mut(floats: &mut [f32]) -> &mut [u16] {
    // SAFETY: as above; and whatever is written, it is a float.
    unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), 2 * floats.len()) }
}
