//! The three derivatives of the trilinear form against nested loops, on every body.

use fewshot_simd::instruction_set::bodies;

use super::super::shape::{ConvShape, Role};
use super::derivative_with;
use crate::noise::Noise;

/// Visits every product of the form: positions in `x`, `w` and `dy`.
fn products(shape: &ConvShape, mut visit: impl FnMut(usize, usize, usize)) {
    let ConvShape { n, c, h, w, o, kernel, stride, padding, .. } = *shape;
    let [height, width] = shape.output_size();
    let outputs = (0..n).flat_map(|n| (0..o).map(move |o| (n, o)));
    for (at, (n, o)) in outputs.enumerate() {
        for pixel in 0..height * width {
            for tap in 0..c * kernel * kernel {
                let (c, tap) = (tap / (kernel * kernel), tap % (kernel * kernel));
                let row = (pixel / width * stride + tap / kernel).wrapping_sub(padding);
                let column = (pixel % width * stride + tap % kernel).wrapping_sub(padding);
                if row < h && column < w {
                    let x = ((n * shape.c + c) * h + row) * w + column;
                    let weight = (o * shape.c + c) * kernel * kernel + tap;
                    visit(x, weight, at * height * width + pixel);
                }
            }
        }
    }
}

fn check([n, c, h, w, o]: [usize; 5], kernel: usize, stride: usize) {
    let shape =
        ConvShape { n, c, h, w, o, kernel, stride, padding: kernel / 2, lanes: 1, tf32: false };
    let length = |role| shape.of(role).iter().product::<usize>();
    let [x, weight, dy] = [(Role::Input, 1), (Role::Weight, 2), (Role::Output, 3)]
        .map(|(r, s)| Noise::new(s).values(length(r)));
    let [mut dx, mut dweight, mut y] = [&x, &weight, &dy].map(|of| vec![0.0f64; of.len()]);
    products(&shape, |i, j, k| {
        dx[i] += f64::from(weight[j]) * f64::from(dy[k]);
        dweight[j] += f64::from(x[i]) * f64::from(dy[k]);
        y[k] += f64::from(x[i]) * f64::from(weight[j]);
    });
    for body in bodies() {
        for (wanted, operands, expected) in [
            (Role::Output, [&x, &weight], &y),
            (Role::Input, [&weight, &dy], &dx),
            (Role::Weight, [&dy, &x], &dweight),
        ] {
            let found = derivative_with(body, wanted, &shape, operands.map(|of| &of[..]));
            assert_eq!(found.len(), expected.len());
            let scale = expected.iter().fold(0.1, |most: f64, v| most.max(v.abs()));
            for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
                let error = (f64::from(*found) - expected).abs() / scale;
                let name = body.name();
                assert!(error < 2e-5, "{wanted:?}[{i}] is off by {error:e}: {shape:?}, {name}");
            }
        }
    }
}

#[test]
fn channels_need_not_fill_a_tile() {
    for (c, o) in [(1, 33), (3, 16), (31, 1), (33, 40), (17, 64)] {
        for kernel in [1, 3, 5, 7] {
            for stride in [1, 2] {
                check([2, c, 7, 6, o], kernel, stride);
            }
        }
    }
}

#[test]
fn channels_of_a_single_image_are_computed_in_parts() {
    for (c, o) in [(3, 33), (20, 64), (40, 130), (64, 300)] {
        for (kernel, stride) in [(1, 1), (1, 2), (3, 1), (3, 2), (7, 2)] {
            check([1, c, 9, 8, o], kernel, stride);
        }
    }
}

#[test]
fn threads_do_not_change_a_bit_of_a_single_image() {
    let shape = ConvShape {
        n: 1,
        c: 40,
        h: 9,
        w: 8,
        o: 300,
        kernel: 3,
        stride: 1,
        padding: 1,
        lanes: 1,
        tf32: false,
    };
    let [x, weight] = [(Role::Input, 1), (Role::Weight, 2)]
        .map(|(role, seed)| Noise::new(seed).values(shape.of(role).iter().product()));
    for body in bodies() {
        let [alone, shared] = [1, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| derivative_with(body, Role::Output, &shape, [&x[..], &weight[..]]))
        });
        assert_eq!(alone, shared, "{}", body.name());
    }
}

#[test]
fn every_size_agrees_with_the_definition() {
    for (h, w) in [(1, 1), (1, 5), (6, 1), (2, 2), (3, 3), (9, 13), (31, 30)] {
        for kernel in [1, 3, 5, 7] {
            for stride in [1, 2] {
                check([3, 5, h, w, 9], kernel, stride);
            }
        }
    }
}

#[test]
fn many_images_agree_with_the_definition() {
    for n in [1, 8, 9, 17, 35] {
        check([n, 32, 7, 8, 33], 3, 1);
        check([n, 4, 5, 4, 6], 3, 2);
        check([n, 4, 5, 4, 6], 1, 1);
    }
    // Wide enough for all images at once.
    check([4, 200, 8, 8, 201], 3, 1);
}
