//! The direct convolution over one image, and the choice between it and Winograd's.

use std::ops::Range;

use super::body::Body;
use super::buffers::Buffer;
use super::contract::{Contraction, Run};
use super::layout::{Map, Tap, strips};
use super::winograd::{Scratch, Winograd};

/// Weights of a tile used for all rows of a strip before the next ones: they fit the L1 cache
/// beside the activations.
const CHUNK_FLOATS: usize = 5120;

/// One summand of a sum of convolutions of the same shape.
#[derive(Clone, Copy)]
pub struct Term<'a> {
    /// In the form that [`Convolution::prepare`] returns.
    pub weight: &'a [f32],
    /// One image, or a group of them.
    pub input: &'a [f32],
}

impl<'a> Term<'a> {
    /// The term with a part of its input.
    pub fn part(self, range: Range<usize>) -> Self {
        Self { weight: self.weight, input: &self.input[range] }
    }
}

/// A convolution over a map whose ring fits its window, cut into strips of rows and chunks of
/// weights.
pub struct Convolution {
    from: Map,
    out: Map,
    windows: Vec<usize>,
    chunks: Vec<Vec<Run>>,
    pub taps: Vec<Tap>,
    /// The faster way, where there is one.
    pub winograd: Option<Winograd>,
}

impl Convolution {
    /// From the map `from`, whose ring tells the side of the window, to `out`, without one.
    pub fn new(from: &Map, out: Map, stride: usize) -> Self {
        let tile = out.lane;
        let mut chunks: Vec<Vec<Run>> = vec![Vec::new()];
        let mut steps = 0;
        for run in from.runs(tile) {
            if steps > 0 && (steps + run.len) * tile > CHUNK_FLOATS {
                chunks.push(Vec::new());
                steps = 0;
            }
            steps += run.len;
            chunks.last_mut().expect("it starts with one").push(run);
        }
        let (windows, taps) = (from.windows(out.h, out.w, stride), from.taps());
        let winograd = Winograd::pays(*from, out, stride);
        Self { from: *from, out, windows, chunks, taps, winograd }
    }

    /// The form of the packed weight that this convolution takes.
    pub fn prepare(&self, body: &dyn Body, packed: Buffer) -> Buffer {
        match &self.winograd {
            Some(winograd) => winograd.expand(body, &packed),
            None => packed,
        }
    }

    /// Length of what [`prepare`](Self::prepare) returns.
    pub fn prepared(&self) -> usize {
        let packed = self.out.tiles() * self.taps.len() * self.out.lane;
        self.winograd.as_ref().map_or(packed, Winograd::expanded)
    }

    /// The gradient of the packed weight, from that of its prepared form.
    pub fn restore(&self, body: &dyn Body, prepared: Buffer) -> Buffer {
        match &self.winograd {
            Some(winograd) => winograd.reduce(body, &prepared),
            None => prepared,
        }
    }

    /// Images to take together.
    pub fn group(&self) -> usize {
        self.winograd.as_ref().map_or(1, Winograd::group)
    }

    /// Room for [`images`](Self::images) of so many terms, where any is needed.
    pub fn scratch(&self, terms: usize) -> Option<Scratch> {
        self.winograd.as_ref().map(|winograd| winograd.scratch(terms))
    }

    /// Computes a group of images, the sum over `terms`, into `out`.
    pub fn images(
        &self,
        body: &dyn Body,
        terms: &[Term<'_>],
        out: &mut [f32],
        scratch: &mut Option<Scratch>,
    ) {
        if let (Some(winograd), Some(scratch)) = (&self.winograd, scratch) {
            return winograd.convolve(body, terms, out, scratch);
        }
        let image = self.from.image();
        for (i, out) in out.chunks_exact_mut(self.out.image()).enumerate() {
            let part = i * image..(i + 1) * image;
            let terms: Vec<_> = terms.iter().map(|term| term.part(part.clone())).collect();
            for tile in 0..self.out.tiles() {
                for rows in strips(self.out.h, self.out.w) {
                    let start = self.out.start(tile, rows.start);
                    let out = &mut out[start..start + rows.len() * self.out.row()];
                    self.rows(body, &terms, tile, rows, out);
                }
            }
        }
    }

    /// Computes `rows` of output tile `tile`, the sum over `terms` of one image each, into
    /// `out [rows, w, tile]`.
    pub fn rows(
        &self,
        body: &dyn Body,
        terms: &[Term<'_>],
        tile: usize,
        rows: Range<usize>,
        out: &mut [f32],
    ) {
        let (length, w) = (self.taps.len() * self.out.lane, self.out.w);
        let chunks = terms.iter().flat_map(|term| self.chunks.iter().map(move |runs| (term, runs)));
        for (i, (term, runs)) in chunks.enumerate() {
            let job = Contraction {
                a: term.input,
                rows: &self.windows[rows.start * w..rows.end * w],
                b: &term.weight[tile * length..(tile + 1) * length],
                runs,
                a_step: 1,
                b_step: self.out.lane,
                out_step: self.out.lane,
                accumulate: i > 0,
            };
            body.contract(&job, out);
        }
    }
}
