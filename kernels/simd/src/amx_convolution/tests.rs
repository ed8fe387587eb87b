//! The convolution and its two gradients against their definition, in integers: those are of bf16, and
//! their sums do not depend on the order.

use crate::amx_convolution::BLOCK;
use crate::buffers::Buffer;
use crate::convolution::{Convolution, Term};
use crate::filter::Filter;
use crate::instruction_set::{InstructionSet, bodies};
use crate::integers;
use crate::layout::Map;
use crate::rounding::HalfType;

/// AMX, or `None` and a word about it.
fn amx() -> Option<&'static dyn InstructionSet> {
    let found = bodies().into_iter().find(|body| body.amx().is_some());
    if found.is_none() {
        eprintln!("skipped: this processor has no AMX");
    }
    found
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

    fn map(&self, channels: usize, ring: usize) -> Map {
        let [h, w] = self.size;
        Map { channels, lane: BLOCK, h, w, ring }
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

fn check(body: &dyn InstructionSet, shape: Shape) {
    let Shape { n, c, o, size: [h, w], side } = shape;
    let (x, dy) = (integers(n * c * h * w, 1), integers(n * o * h * w, 2));
    let weight = integers(shape.filter().len(), 3);
    let [mut y, mut dx, mut dweight] = [&dy, &x, &weight].map(|of| vec![0.0; of.len()]);
    shape.products(|i, j, k| {
        y[k] += x[i] * weight[j];
        dx[i] += weight[j] * dy[k];
        dweight[j] += x[i] * dy[k];
    });
    let way = Convolution::new(&shape.map(c, side / 2), shape.map(o, 0), 1, n);
    let way = way.with_amx(body.amx());
    let turned = Convolution::turned(&shape.map(o, side / 2), shape.map(c, 0), 1, n);
    let turned = turned.with_amx(body.amx());
    assert!(way.rounds() && turned.rounds(), "{shape:?}");
    let (filter, none) = (shape.filter(), vec![0.0; weight.len()]);
    let [to, zero] = [&weight, &none].map(|weight| filter.pack(body, weight, &way.taps));
    let found = convolved(body, &way, [(&to, &x), (&zero, &x)], n);
    assert!(found == rounded(body, y), "y of {shape:?}");
    let taps = [&*way.taps, &turned.taps];
    let [to, zero] = [&weight, &none].map(|weight| filter.pack_turned(body, weight, taps));
    let found = convolved(body, &turned, [(&zero, &dy), (&to, &dy)], n);
    assert!(found == rounded(body, dx), "dx of {shape:?}");

    let inputs = packed(body, &way.from, &x);
    let delta = shape.map(o, side / 2);
    let deltas = packed(body, &delta, &dy);
    let mut sums = Buffer::stale(way.gradient_floats());
    let mut scratch = way.scratch(1);
    for first in [true, false] {
        way.weight(body, &inputs, (delta, &deltas), (&mut sums, first), &mut scratch);
    }
    let mut found = vec![0.0; weight.len()];
    filter.unpack(body, &way.restore(body, sums), &way.taps, &mut found);
    assert!(found.iter().zip(dweight).all(|(twice, once)| *twice == 2.0 * once), "{shape:?}");
}

#[test]
fn every_size_agrees_with_the_definition() {
    let Some(body) = amx() else { return };
    for size in [[1, 1], [1, 5], [6, 1], [3, 3], [7, 7], [14, 14], [28, 28], [21, 42], [5, 84]] {
        for side in [1, 3] {
            check(body, Shape { n: 2, c: 32, o: 32, size, side });
        }
    }
}

#[test]
fn every_number_of_images_and_tiles_agrees_with_the_definition() {
    let Some(body) = amx() else { return };
    for n in [1, 3, 17, 35] {
        check(body, Shape { n, c: 64, o: 32, size: [3, 4], side: 3 });
        check(body, Shape { n, c: 32, o: 96, size: [7, 6], side: 3 });
    }
}

#[test]
fn what_does_not_fill_tiles_goes_another_way() {
    let Some(body) = amx() else { return };
    for (c, o, stride) in [(31, 32, 1), (32, 40, 1), (32, 32, 2)] {
        let shape = Shape { n: 1, c, o, size: [6, 6], side: 3 };
        let mut out = shape.map(o, 0);
        [out.h, out.w] = [6 / stride; 2];
        let way = Convolution::new(&shape.map(c, 1), out, stride, 1).with_amx(body.amx());
        assert!(!way.rounds(), "{shape:?}");
    }
}

#[test]
fn what_is_no_number_is_none_in_bf16() {
    let Some(body) = amx() else { return };
    let amx = body.amx().expect("found by it");
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
fn ties_go_to_the_even_one_and_subnormal_numbers_to_zero() {
    let Some(body) = amx() else { return };
    let mut from = vec![0.0; BLOCK];
    let bits = [0x3f80_8000, 0x3f81_8000, 0xbf80_8001, 0x0000_0001, 0x807f_ffff];
    from.iter_mut().zip(bits).for_each(|(value, bits)| *value = f32::from_bits(bits));
    let mut to = vec![1; BLOCK];
    body.amx().expect("found by it").narrow(&from, &mut to);
    assert_eq!(to[..5], [0x3f80, 0x3f82, 0xbf81, 0, 0x8000]);
}
