//! The direct convolution over one image, and the choice between it and faster ones.

use std::ops::Range;

use super::amx_convolution::AmxConvolution;
use super::contract::{Contraction, RowOffsets, Run};
use super::instruction_set::InstructionSet;
use super::layout::{Map, STRIP_PIXELS, Tap};
use super::padding_taps::Side;
use super::winograd::{Scratch, Winograd};

/// Weights of a tile used for all rows of a strip before the next ones: they fit the L1 cache
/// beside the activations.
const CHUNK_FLOATS: usize = 5120;

/// Pixels of small images taken together, so that weights are read once for all of them.
const GROUP_PIXELS: usize = 256;

/// Most images taken together without transforms.
const GROUP: usize = 16;

/// Images taken together from which pixels at the edge are enough to be convolved by themselves.
const EDGE_IMAGES: usize = 4;

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
    pub(super) from: Map,
    pub(super) out: Map,
    pub(super) stride: usize,
    classes: Vec<Class>,
    /// All pixels as one class, where those at the edge are others.
    whole: Option<Class>,
    /// Images whose pixels the classes have.
    images: usize,
    /// Positions of the weight in the order of its packed form.
    pub taps: Vec<Tap>,
    /// Offset of every tap.
    pub(super) offsets: Vec<usize>,
    pub(super) algorithm: Algorithm,
}

/// Algorithm of a convolution.
pub(super) enum Algorithm {
    /// By its definition.
    Direct,
    /// With fewer products, of transforms.
    Winograd(Winograd),
    /// The fastest, of operands that are rounded to bf16.
    Amx(AmxConvolution),
}

/// Pixels of the output that take the same taps, of as many images as are taken together.
struct Class {
    /// Pixels of one image.
    pixels: usize,
    /// Start of the window of every pixel.
    windows: Vec<usize>,
    /// Where every pixel lies in a tile of the output.
    places: Vec<usize>,
    chunks: Vec<Vec<Run>>,
}

impl Convolution {
    /// The convolution of so many images from the map `from`, whose ring tells the side of the window, to
    /// `out`, without one.
    pub fn new(from: &Map, out: Map, stride: usize, images: usize) -> Self {
        let taps = from.taps();
        let reads = Reads {
            windows: Side::rows_and_columns(from, [out.h, out.w], stride),
            taps: taps.iter().map(|tap| (tap.offset, tap.at)).collect(),
            first: 0,
            places: out.windows(out.h, out.w, 1),
        };
        let whole = reads.whole(from, out.lane);
        let (classes, whole) = match reads.by_edge(from, out, images) {
            Some(classes) => (classes, Some(whole)),
            None => (vec![whole], None),
        };
        Self::with_classes(*from, out, stride, (classes, whole), taps, images)
    }

    fn with_classes(
        from: Map,
        out: Map,
        stride: usize,
        (classes, whole): (Vec<Class>, Option<Class>),
        taps: Vec<Tap>,
        images: usize,
    ) -> Self {
        let winograd = Winograd::pays(from, out, stride, images);
        let algorithm = winograd.map_or(Algorithm::Direct, Algorithm::Winograd);
        let offsets = taps.iter().map(|tap| tap.offset).collect();
        Self { from, out, stride, classes, whole, images: 1, taps, offsets, algorithm }
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
            let first = taps.len();
            let mut reads = Vec::new();
            for tap in &all {
                let (Some(down), Some(right)) = (reach(row, tap.at[0]), reach(column, tap.at[1]))
                else {
                    continue;
                };
                let corner = tap.offset - tap.at[0] * from.row() - tap.at[1] * from.lane;
                let offset = corner + down * from.row() + right * from.lane;
                taps.push(Tap { offset, ..*tap });
                reads.push((offset, [down, right]));
            }
            let count = |side: usize, first: usize| (side + stride - 1 - first) / stride;
            let (h, w) = (count(out.h, row), count(out.w, column));
            let corner = row * out.row() + column * out.lane;
            let reads = Reads {
                windows: Side::rows_and_columns(from, [h, w], 1),
                taps: reads,
                first,
                places: out.windows(h, w, stride).iter().map(|place| corner + place).collect(),
            };
            let by_edge = reads.by_edge(from, out, images);
            classes.extend(by_edge.unwrap_or_else(|| vec![reads.whole(from, out.lane)]));
        }
        Self::with_classes(*from, out, stride, (classes, None), taps, images)
    }

    /// Floats of the packed weight in a tile.
    pub fn tile_floats(&self) -> usize {
        self.taps.len() * self.out.lane
    }

    /// With the pixels of so many images, where it had those of one.
    pub fn with_batch(mut self, images: usize) -> Self {
        for class in &mut self.classes {
            let of = |each: &[usize], image: usize| -> Vec<usize> {
                (0..images).flat_map(|i| each.iter().map(move |at| i * image + at)).collect()
            };
            class.windows = of(&class.windows, self.from.image());
            class.places = of(&class.places, self.out.image());
        }
        self.images = images;
        self
    }

    /// Computes a group of images, the sum over `terms`, into `out`.
    pub fn images<'a>(
        &self,
        body: &dyn InstructionSet,
        terms: &[Term<'a>],
        out: &mut [f32],
        scratch: &mut Option<Scratch>,
    ) {
        match (&self.algorithm, scratch) {
            (Algorithm::Amx(amx), Some(scratch)) => return amx.convolve(terms, out, scratch),
            (Algorithm::Winograd(winograd), Some(scratch)) => {
                return winograd.convolve(body, terms, out, scratch);
            }
            _ => {}
        }
        for (k, out) in out.chunks_mut(self.images * self.out.image()).enumerate() {
            let first = k * self.images * self.from.image();
            let own = |term: &Term<'a>| Term { input: &term.input[first..], ..*term };
            self.pixels(body, &terms.iter().map(own).collect::<Vec<_>>(), out);
        }
    }

    /// Computes images that the classes have the pixels of.
    fn pixels(&self, body: &dyn InstructionSet, terms: &[Term<'_>], out: &mut [f32]) {
        for class in &self.classes {
            let pixels = out.len() / self.out.image() * class.pixels;
            for start in (0..pixels).step_by(STRIP_PIXELS) {
                let strip = start..(start + STRIP_PIXELS).min(pixels);
                let places = RowOffsets::Indexed(&class.places[strip.clone()]);
                let pixels = (&class.windows[strip], places);
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
        body: &dyn InstructionSet,
        terms: &[Term<'_>],
        tile: usize,
        rows: Range<usize>,
        out: &mut [f32],
    ) {
        let (class, w) = (self.whole.as_ref().unwrap_or(&self.classes[0]), self.out.w);
        let windows = &class.windows[rows.start * w..rows.end * w];
        let pixels = (windows, RowOffsets::Strided(self.out.lane));
        self.strip(body, terms, (class, tile), pixels, out);
    }

    /// Computes some pixels of a class of output tile `tile`, given their windows and places.
    fn strip(
        &self,
        body: &dyn InstructionSet,
        terms: &[Term<'_>],
        (class, tile): (&Class, usize),
        (rows, to): (&[usize], RowOffsets<'_>),
        out: &mut [f32],
    ) {
        let length = self.tile_floats();
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

/// Images with so many pixels that are taken together.
pub(super) fn group(out: &Map) -> usize {
    (GROUP_PIXELS / (out.h * out.w)).clamp(1, GROUP)
}

/// Pixels of the output whose windows have the same taps, of which some may lie on the ring.
struct Reads {
    /// Rows and columns.
    windows: [Side; 2],
    /// Distance of every tap from the first corner of the window in the map, and row and column there.
    taps: Vec<(usize, [usize; 2])>,
    /// Number of the first tap's weight.
    first: usize,
    /// Where every pixel lies in a tile of the output.
    places: Vec<usize>,
}

impl Reads {
    /// All pixels with all taps.
    fn whole(&self, from: &Map, tile: usize) -> Class {
        self.class(from, tile, self.windows.map(|side| 0..side.count), |_| true)
    }

    /// Pixels by the taps that they have inside the map, where that leaves out a sixteenth of the work
    /// or more.
    fn by_edge(&self, from: &Map, out: Map, images: usize) -> Option<Vec<Class>> {
        if images.min(group(&out)) < EDGE_IMAGES {
            return None;
        }
        let [rows, columns] = [0, 1].map(|side| {
            let mut taps: Vec<_> = self.taps.iter().map(|(_, at)| at[side]).collect();
            taps.sort_unstable();
            taps.dedup();
            self.windows[side].equal_runs(&taps)
        });
        let parts: Vec<_> = rows
            .iter()
            .flat_map(|rows| columns.iter().map(move |columns| [rows.clone(), columns.clone()]))
            .collect();
        let inside = |[rows, columns]: &[Range<usize>; 2], [down, right]: [usize; 2]| {
            let [row, column] = self.windows;
            row.inside(rows.start, down) && column.inside(columns.start, right)
        };
        let work = parts.iter().map(|part| {
            let taps = self.taps.iter().filter(|(_, at)| inside(part, *at));
            taps.count() * part[0].len() * part[1].len()
        });
        let pays = 16 * work.sum::<usize>() <= 15 * self.places.len() * self.taps.len();
        let class = |part: [Range<usize>; 2]| {
            self.class(from, out.lane, part.clone(), |at| inside(&part, at))
        };
        pays.then(|| parts.into_iter().map(class).collect())
    }

    /// Some pixels with some taps.
    fn class(
        &self,
        from: &Map,
        tile: usize,
        [rows, columns]: [Range<usize>; 2],
        keeps: impl Fn([usize; 2]) -> bool,
    ) -> Class {
        let [down, right] = self.windows;
        let pixels =
            || rows.clone().flat_map(|row| columns.clone().map(move |column| [row, column]));
        let window = |[row, column]: [usize; 2]| {
            row * down.step * from.row() + column * right.step * from.lane
        };
        let taps = self.taps.iter().enumerate().filter(|(_, (_, at))| keeps(*at));
        let taps = taps.map(|(k, (offset, _))| (self.first + k, *offset));
        Class {
            pixels: rows.len() * columns.len(),
            windows: pixels().map(window).collect(),
            places: pixels().map(|[row, column]| self.places[row * right.count + column]).collect(),
            chunks: chunks(taps, tile),
        }
    }
}

/// Taps, each with the number of its weight and its offset, as contiguous runs for weights packed in
/// tiles of `tile` output channels, a chunk of weights at a time.
fn chunks(taps: impl Iterator<Item = (usize, usize)>, tile: usize) -> Vec<Vec<Run>> {
    let mut chunks: Vec<Vec<Run>> = vec![Vec::new()];
    let mut steps = 0;
    for run in runs(taps, tile) {
        if steps > 0 && (steps + run.len) * tile > CHUNK_FLOATS {
            chunks.push(Vec::new());
            steps = 0;
        }
        steps += run.len;
        chunks.last_mut().expect("it starts with one").push(run);
    }
    chunks
}

fn runs(taps: impl Iterator<Item = (usize, usize)>, tile: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (k, offset) in taps {
        match runs.last_mut() {
            Some(run) if run.a + run.len == offset && run.b + run.len * tile == k * tile => {
                run.len += 1;
            }
            _ => runs.push(Run { a: offset, b: k * tile, len: 1 }),
        }
    }
    runs
}

#[cfg(test)]
mod tests;
