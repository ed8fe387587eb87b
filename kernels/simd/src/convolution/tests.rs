//! The convolution and its two gradients against their definition, in integers: their sums do not depend on the
//! order.

use super::{Algorithm, Convolution, Term};
use crate::amx_convolution::BLOCK;
use crate::buffers::Buffer;
use crate::filter::Filter;
use crate::instruction_set::{InstructionSet, bodies};
use crate::integers;
use crate::layout::Map;
use crate::rounding::HalfType;
use crate::winograd::Winograd;

/// The body with AMX.
fn amx() -> &'static dyn InstructionSet {
    let body = bodies().into_iter().find(|body| body.amx().is_some());
    body.expect("this processor has no AMX, or the process may not use it")
}

/// Images `[n, c, h, w]` and filters `[o, c, side, side]`.
#[derive(Clone, Copy, Debug)]
struct Shape {
    n: usize,
    c: usize,
    o: usize,
    size: [usize; 2],
    side: usize,
}

impl Shape {
    /// Visits every product: places in the images, the weight and the outputs.
    fn products(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let Self { n, c, o, size: [h, w], side } = *self;
        for (image, to, from) in (0..n * o * c).map(|k| (k / (o * c), k / c % o, k % c)) {
            for (down, right) in (0..side * side).map(|k| (k / side, k % side)) {
                let weight = ((to * c + from) * side + down) * side + right;
                for (row, column) in (0..h * w).map(|k| (k / w, k % w)) {
                    let at = [row + down, column + right].map(|at| at.wrapping_sub(side / 2));
                    if at[0] < h && at[1] < w {
                        let x = ((image * c + from) * h + at[0]) * w + at[1];
                        visit(x, weight, ((image * o + to) * h + row) * w + column);
                    }
                }
            }
        }
    }

    fn map(&self, lane: usize, channels: usize, ring: usize) -> Map {
        let [h, w] = self.size;
        Map { channels, lane, h, w, ring }
    }

    fn filter(&self) -> Filter {
        Filter { o: self.o, i: self.c, side: self.side }
    }
}

/// Images with a ring of zeros.
fn packed(body: &dyn InstructionSet, map: &Map, images: &[f32]) -> Buffer {
    let mut packed = Buffer::zeros(images.len() / map.dense() * map.image());
    map.pack_all(body, images, &mut packed);
    packed
}

/// The sum of `way` over terms of a packed weight and images each.
fn convolved(
    body: &dyn InstructionSet,
    way: &Convolution,
    terms: [(&[f32], &[f32]); 2],
    count: usize,
) -> Vec<f32> {
    let weights = terms.map(|(weight, _)| {
        let mut packed = Buffer::stale(weight.len());
        packed.copy_from_slice(weight);
        way.prepare(body, packed)
    });
    let inputs = terms.map(|(_, images)| packed(body, &way.from, images));
    let both = [0, 1].map(|k| Term { weight: &weights[k], input: &inputs[k] });
    let mut out = Buffer::stale(count * way.out.image());
    way.images(body, &both, &mut out, &mut way.scratch(2));
    let mut images = vec![0.0; count * way.out.dense()];
    let pairs = out.chunks_exact(way.out.image()).zip(images.chunks_exact_mut(way.out.dense()));
    pairs.for_each(|(out, image)| way.out.unpack(body, out, image));
    images
}

fn rounded(body: &dyn InstructionSet, mut values: Vec<f32>) -> Vec<f32> {
    body.round(HalfType::Bf16, &mut values);
    values
}

/// Output and gradients by their definition.
struct Expected {
    x: Vec<f32>,
    dy: Vec<f32>,
    weight: Vec<f32>,
    y: Vec<f32>,
    dx: Vec<f32>,
    dweight: Vec<f32>,
}

impl Expected {
    fn new(shape: Shape) -> Self {
        let Shape { n, c, o, size: [h, w], .. } = shape;
        let (x, dy) = (integers(n * c * h * w, 1), integers(n * o * h * w, 2));
        let weight = integers(shape.filter().weights(), 3);
        let [mut y, mut dx, mut dweight] = [&dy, &x, &weight].map(|like| vec![0.0; like.len()]);
        shape.products(|i, j, k| {
            y[k] += x[i] * weight[j];
            dx[i] += weight[j] * dy[k];
            dweight[j] += x[i] * dy[k];
        });
        Self { x, dy, weight, y, dx, dweight }
    }
}

/// A convolution and the one of its input's gradient.
struct Pair {
    body: &'static dyn InstructionSet,
    shape: Shape,
    way: Convolution,
    turned: Convolution,
}

impl Pair {
    /// Both, each by what `algorithm` makes of the maps of its input and its output.
    fn new(
        body: &'static dyn InstructionSet,
        shape: Shape,
        algorithm: impl Fn(Convolution) -> Convolution,
    ) -> Self {
        let Shape { n, c, o, side, .. } = shape;
        let map = |channels, ring| shape.map(body.tile(), channels, ring);
        let batched = |way: Convolution| {
            let images = way.group();
            way.with_batch(images)
        };
        let way = Convolution::new(&map(c, side / 2), map(o, 0), 1, n);
        let turned = Convolution::turned(&map(o, side / 2), map(c, 0), 1, n);
        let [way, turned] = [way, turned].map(|way| batched(algorithm(way)));
        Self { body, shape, way, turned }
    }

    /// The weight as each of the two takes it.
    fn weights(&self, weight: &[f32]) -> [Buffer; 2] {
        let taps = [&*self.way.taps, &self.turned.taps];
        let filter = self.shape.filter();
        [filter.pack(self.body, weight, taps[0]), filter.pack_turned(self.body, weight, taps)]
    }

    /// Output, gradient of the input and gradient of the weight.
    fn run(&self, case: &Expected) -> [Vec<f32>; 3] {
        let Self { body, shape, way, turned } = self;
        let zero = vec![0.0; case.weight.len()];
        let [[to, back], [no, none]] = [&case.weight, &zero].map(|weight| self.weights(weight));
        let y = convolved(*body, way, [(&to, &case.x), (&no, &case.x)], shape.n);
        let dx = convolved(*body, turned, [(&none, &case.dy), (&back, &case.dy)], shape.n);
        let (inputs, delta) = (packed(*body, &way.from, &case.x), turned.from);
        let deltas = packed(*body, &delta, &case.dy);
        let mut sums = Buffer::stale(way.gradient_floats());
        let mut scratch = way.scratch(1);
        for first in [true, false] {
            way.weight(*body, &inputs, (delta, &deltas), (&mut sums, first), &mut scratch);
        }
        let mut dweight = self.unpacked(sums);
        dweight.iter_mut().for_each(|twice| *twice /= 2.0);
        [y, dx, dweight]
    }

    /// The gradient of the weight, from that of its prepared form.
    fn unpacked(&self, prepared: Buffer) -> Vec<f32> {
        let (filter, way) = (self.shape.filter(), &self.way);
        let mut weight = vec![0.0; filter.weights()];
        filter.unpack(self.body, &way.restore(self.body, prepared), &way.taps, &mut weight);
        weight
    }
}

fn by_definition(mut way: Convolution) -> Convolution {
    way.algorithm = Algorithm::Direct;
    way
}

fn check_direct(shape: Shape) {
    let case = Expected::new(shape);
    for body in bodies() {
        let [y, dx, dweight] = Pair::new(body, shape, by_definition).run(&case);
        assert!(y == case.y, "{} y of {shape:?}", body.name());
        assert!(dx == case.dx, "{} dx of {shape:?}", body.name());
        assert!(dweight == case.dweight, "{} dweight of {shape:?}", body.name());
    }
}

/// Asserts that the relative error is small, as transforms round.
fn assert_near(result: &[f32], expected: &[f32], name: &str) {
    assert_eq!(result.len(), expected.len(), "{name}");
    let scale = expected.iter().fold(1.0, |most: f32, value| most.max(value.abs()));
    for (result, expected) in result.iter().zip(expected) {
        let error = (result - expected).abs() / scale;
        assert!(error < 1e-5, "{name} is off by {error:e}");
    }
}

fn check_winograd(shape: Shape) {
    let case = Expected::new(shape);
    for body in bodies() {
        let transformed = |mut way: Convolution| {
            let winograd = Winograd { batch: 3, ..Winograd::new(way.from, way.out) };
            way.algorithm = Algorithm::Winograd(winograd);
            way
        };
        let pair = Pair::new(body, shape, transformed);
        let by_group = pair.run(&case);
        let [to, back] = pair.weights(&case.weight);
        let at_once = |way: &Convolution, weight, images: &[f32]| {
            let Algorithm::Winograd(winograd) = &way.algorithm else { unreachable!("set above") };
            winograd.convolve_batch(body, images, &way.prepare(body, weight))
        };
        let Algorithm::Winograd(winograd) = &pair.way.algorithm else { unreachable!("set above") };
        let sums = winograd.weight_batch(body, &case.x, (pair.turned.from, &case.dy));
        let by_batch = [
            at_once(&pair.way, to, &case.x),
            at_once(&pair.turned, back, &case.dy),
            pair.unpacked(sums),
        ];
        for [y, dx, dweight] in [by_group, by_batch] {
            let name = |part| format!("{} {part} of {shape:?}", body.name());
            assert_near(&y, &case.y, &name("y"));
            assert_near(&dx, &case.dx, &name("dx"));
            assert_near(&dweight, &case.dweight, &name("dweight"));
        }
    }
}

fn check_amx(shape: Shape) {
    let (case, body) = (Expected::new(shape), amx());
    let pair = Pair::new(body, shape, |way| way.with_amx(body.amx()));
    assert!(pair.way.rounds() && pair.turned.rounds(), "{shape:?}");
    let [y, dx, dweight] = pair.run(&case);
    assert!(y == rounded(body, case.y), "y of {shape:?}");
    assert!(dx == rounded(body, case.dx), "dx of {shape:?}");
    assert!(dweight == case.dweight, "dweight of {shape:?}");
}

#[test]
fn every_size_agrees_with_the_definition() {
    for size in [[1, 1], [1, 5], [6, 1], [3, 3], [7, 7], [14, 14], [5, 84]] {
        for side in [1, 3] {
            check_direct(Shape { n: 2, c: 5, o: 33, size, side });
            check_direct(Shape { n: 5, c: 33, o: 5, size, side });
        }
    }
}

#[test]
fn every_number_of_images_agrees_with_the_definition() {
    for n in [1, 3, 17, 35] {
        check_direct(Shape { n, c: 9, o: 32, size: [3, 4], side: 3 });
        check_direct(Shape { n, c: 32, o: 17, size: [7, 6], side: 3 });
    }
}

#[test]
fn transforms_of_every_size_agree_with_the_definition() {
    for size in [[1, 1], [3, 3], [4, 4], [7, 6], [13, 9], [10, 3]] {
        check_winograd(Shape { n: 5, c: 33, o: 40, size, side: 3 });
    }
}

#[test]
fn transforms_of_every_number_of_images_agree_with_the_definition() {
    for n in [1, 3, 4, 35] {
        check_winograd(Shape { n, c: 9, o: 17, size: [5, 6], side: 3 });
    }
}

#[test]
#[ignore = "needs AMX"]
fn amx_of_every_size_agrees_with_the_definition() {
    for size in [[1, 1], [1, 5], [6, 1], [3, 3], [7, 7], [14, 14], [28, 28], [21, 42], [5, 84]] {
        for side in [1, 3] {
            check_amx(Shape { n: 2, c: 32, o: 32, size, side });
        }
    }
}

#[test]
#[ignore = "needs AMX"]
fn amx_of_every_number_of_images_and_tiles_agrees_with_the_definition() {
    for n in [1, 3, 17, 35] {
        check_amx(Shape { n, c: 64, o: 32, size: [3, 4], side: 3 });
        check_amx(Shape { n, c: 32, o: 96, size: [7, 6], side: 3 });
    }
}

#[test]
#[ignore = "needs AMX"]
fn channels_or_strides_that_do_not_fill_tiles_of_amx_go_another_way() {
    let body = amx();
    for (c, o, stride) in [(31, 32, 1), (32, 40, 1), (32, 32, 2)] {
        let shape = Shape { n: 1, c, o, size: [6, 6], side: 3 };
        let mut out = shape.map(BLOCK, o, 0);
        [out.h, out.w] = [6 / stride; 2];
        let way = Convolution::new(&shape.map(BLOCK, c, 1), out, stride, 1).with_amx(body.amx());
        assert!(!way.rounds(), "{shape:?}");
    }
}

#[test]
#[ignore = "needs AMX"]
fn nan_and_infinity_stay_so_in_bf16() {
    let body = amx();
    let amx = body.amx().expect("its body was chosen by it");
    let from: Vec<f32> = (0..BLOCK * BLOCK)
        .map(|i| match i % 5 {
            0 => f32::NAN,
            1 => f32::INFINITY,
            2 => -f32::MAX,
            _ => (i as f32 - 500.0) * 1.001,
        })
        .collect();
    let wanted = rounded(body, from.clone());
    let float = |half: u16| f32::from_bits(u32::from(half) << 16);
    let same = |found: f32, wanted: f32| found == wanted || found.is_nan() && wanted.is_nan();
    let [mut rows, mut pairs, mut columns] = [(); 3].map(|()| vec![0; from.len()]);
    amx.narrow(&from, &mut rows);
    amx.pairs(&from, &mut pairs);
    amx.transposed(&from, &mut columns, BLOCK);
    for (row, column) in (0..from.len()).map(|k| (k / BLOCK, k % BLOCK)) {
        let wanted = wanted[row * BLOCK + column];
        let pair = (column / 16 * 16 + row / 2) * 32 + column % 16 * 2 + row % 2;
        assert!(same(float(rows[row * BLOCK + column]), wanted), "{row} {column}");
        assert!(same(float(pairs[pair]), wanted), "{row} {column} in pairs");
        assert!(same(float(columns[column * BLOCK + row]), wanted), "{row} {column} transposed");
    }
}

#[test]
#[ignore = "needs AMX"]
fn ties_go_to_the_even_one_and_subnormal_numbers_to_zero() {
    let body = amx();
    let mut from = vec![0.0; BLOCK];
    let bits = [0x3f80_8000, 0x3f81_8000, 0xbf80_8001, 0x0000_0001, 0x807f_ffff];
    from.iter_mut().zip(bits).for_each(|(value, bits)| *value = f32::from_bits(bits));
    let mut to = vec![1; BLOCK];
    body.amx().expect("its body was chosen by it").narrow(&from, &mut to);
    assert_eq!(to[..5], [0x3f80, 0x3f82, 0xbf81, 0, 0x8000]);
}
