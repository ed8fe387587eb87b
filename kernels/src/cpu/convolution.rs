//! The direct convolution over one image, and the choice between it and Winograd's.

use std::ops::Range;

use super::body::Body;
use super::buffers::Buffer;
use super::contract::{Contraction, Places, Run};
use super::layout::{Map, STRIP_PIXELS, Tap};
use super::winograd::{Scratch, Winograd};

/// Weights of a tile used for all rows of a strip before the next ones: they fit the L1 cache
/// beside the activations.
const CHUNK_FLOATS: usize = 5120;

/// Pixels of small images taken together, so that weights are read once for all of them.
const GROUP_PIXELS: usize = 128;

/// Most images taken together without transforms.
const GROUP: usize = 16;

/// One summand of a sum of convolutions of the same shape.
#[derive(Clone, Copy)]
pub struct Term<'a> {
    /// In the form that [`Convolution::prepare`] returns.
    pub weight: &'a [f32],
    /// One image, or a group of them.
    pub input: &'a [f32],
}

/// A convolution over a map whose ring fits its window, cut into strips of pixels and chunks of
/// weights.
pub struct Convolution {
    from: Map,
    out: Map,
    classes: Vec<Class>,
    pub taps: Vec<Tap>,
    /// The faster way, where there is one.
    pub winograd: Option<Winograd>,
}

/// Pixels of the output that take the same taps.
struct Class {
    /// Start of the window of every pixel.
    windows: Vec<usize>,
    /// Where every pixel lies in a tile of the output.
    places: Vec<usize>,
    chunks: Vec<Vec<Run>>,
}

impl Convolution {
    /// Of so many images, from the map `from`, whose ring tells the side of the window, to `out`,
    /// without one.
    pub fn new(from: &Map, out: Map, stride: usize, images: usize) -> Self {
        let taps = from.taps();
        let class = Class {
            windows: from.windows(out.h, out.w, stride),
            places: out.windows(out.h, out.w, 1),
            chunks: chunks(&taps, 0, out.lane),
        };
        let winograd = Winograd::pays(*from, out, stride, images);
        Self { from: *from, out, classes: vec![class], taps, winograd }
    }

    /// The gradient by the input of a convolution with this stride: from that of its output in the
    /// map `from`, whose ring tells the side of the window, to that of its input.
    ///
    /// Row `i` of the input takes part in row `(i + ring - tap) / stride` of the output where that
    /// is whole. Rows and columns with the same remainder by the stride thus have the same taps.
    pub fn turned(from: &Map, out: Map, stride: usize, images: usize) -> Self {
        let all = from.taps();
        let (mut taps, mut classes) = (Vec::with_capacity(all.len()), Vec::new());
        // Where a tap of the turned window reads, from the corner of the window on.
        let reach = |first: usize, at: usize| {
            let shift = first + at + (stride - 1) * from.ring;
            shift.is_multiple_of(stride).then(|| shift / stride)
        };
        for [row, column] in (0..stride * stride).map(|k| [k / stride, k % stride]) {
            let start = taps.len();
            taps.extend(all.iter().filter_map(|tap| {
                let (down, right) = (reach(row, tap.at[0])?, reach(column, tap.at[1])?);
                let corner = tap.offset - tap.at[0] * from.row() - tap.at[1] * from.lane;
                Some(Tap { offset: corner + down * from.row() + right * from.lane, ..*tap })
            }));
            let count = |side: usize, first: usize| (side + stride - 1 - first) / stride;
            let (h, w) = (count(out.h, row), count(out.w, column));
            let first = row * out.row() + column * out.lane;
            classes.push(Class {
                windows: from.windows(h, w, 1),
                places: out.windows(h, w, stride).iter().map(|place| first + place).collect(),
                chunks: chunks(&taps[start..], start, out.lane),
            });
        }
        let winograd = Winograd::pays(*from, out, stride, images);
        Self { from: *from, out, classes, taps, winograd }
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
        let direct = (GROUP_PIXELS / (self.out.h * self.out.w)).clamp(1, GROUP);
        self.winograd.as_ref().map_or(direct, Winograd::group)
    }

    /// Room for [`images`](Self::images) of so many terms, where any is needed.
    pub fn scratch(&self, terms: usize) -> Option<Scratch> {
        self.winograd.as_ref().map(|winograd| winograd.scratch(terms))
    }

    /// Floats in the [`scratch`](Self::scratch) of one term.
    pub fn scratch_floats(&self) -> usize {
        self.winograd.as_ref().map_or(0, Winograd::scratch_floats)
    }

    /// Lengths of the buffers in the [`scratch`](Self::scratch) of so many terms.
    pub fn scratch_lengths(&self, terms: usize) -> Vec<usize> {
        self.winograd.as_ref().map_or(Vec::new(), |winograd| winograd.scratch_lengths(terms))
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
        for class in &self.classes {
            let (pixels, images) = (class.windows.len(), out.len() / self.out.image());
            for start in (0..images * pixels).step_by(STRIP_PIXELS) {
                let strip = start..(start + STRIP_PIXELS).min(images * pixels);
                let of = |each: &[usize], image: usize| -> Vec<usize> {
                    strip.clone().map(|i| i / pixels * image + each[i % pixels]).collect()
                };
                let windows = of(&class.windows, self.from.image());
                let places = of(&class.places, self.out.image());
                let pixels = (&*windows, Places::At(&places));
                for tile in 0..self.out.tiles() {
                    let out = &mut out[self.out.start(tile, 0)..];
                    self.strip(body, terms, (class, tile), pixels, out);
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
        let (class, w) = (&self.classes[0], self.out.w);
        let windows = &class.windows[rows.start * w..rows.end * w];
        let pixels = (windows, Places::Apart(self.out.lane));
        self.strip(body, terms, (class, tile), pixels, out);
    }

    /// Computes some pixels of a class of output tile `tile`, given their windows and places.
    fn strip(
        &self,
        body: &dyn Body,
        terms: &[Term<'_>],
        (class, tile): (&Class, usize),
        (rows, to): (&[usize], Places<'_>),
        out: &mut [f32],
    ) {
        let length = self.taps.len() * self.out.lane;
        let chunks =
            terms.iter().flat_map(|term| class.chunks.iter().map(move |runs| (term, runs)));
        for (i, (term, runs)) in chunks.enumerate() {
            let job = Contraction {
                a: term.input,
                rows,
                b: &term.weight[tile * length..(tile + 1) * length],
                runs,
                a_step: 1,
                b_step: self.out.lane,
                to,
                accumulate: i > 0,
            };
            body.contract(&job, out);
        }
    }
}

/// Taps, whose weights start with number `first`, as contiguous runs for weights packed in tiles of
/// `tile` output channels, a chunk of weights at a time.
fn chunks(taps: &[Tap], first: usize, tile: usize) -> Vec<Vec<Run>> {
    let mut chunks: Vec<Vec<Run>> = vec![Vec::new()];
    let mut steps = 0;
    for run in runs(taps, first, tile) {
        if steps > 0 && (steps + run.len) * tile > CHUNK_FLOATS {
            chunks.push(Vec::new());
            steps = 0;
        }
        steps += run.len;
        chunks.last_mut().expect("it starts with one").push(run);
    }
    chunks
}

fn runs(taps: &[Tap], first: usize, tile: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (k, tap) in taps.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if run.a + run.len == tap.offset => run.len += 1,
            _ => runs.push(Run { a: tap.offset, b: (first + k) * tile, len: 1 }),
        }
    }
    runs
}
