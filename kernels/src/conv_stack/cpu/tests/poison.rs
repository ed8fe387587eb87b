//! No result depends on memory that was not written: with debug assertions it holds NaN.

use fewshot_simd::instruction_set::bodies;

use super::reference::stack;
use super::{Case, backward};
use crate::precision::Precision;

impl Case {
    /// Asserts that every result is finite, whatever is kept and asked for.
    fn is_written(&self) {
        for (body, precision) in
            bodies().into_iter().flat_map(|body| Precision::ALL.map(|precision| (body, precision)))
        {
            let case = self.clone().in_precision(precision);
            let (kept, bare) = (case.pass(body, true), case.pass(body, false));
            let saved = kept.saved.expect("it was asked for");
            let go = |dx| backward(&self.shape, &saved, &self.dy, dx);
            let (whole, partial) = (go(true), go(false));
            let dx = whole.dx.expect("it was asked for");
            for (what, values) in [
                ("y", &kept.y),
                ("y of a bare pass", &bare.y),
                ("moments", &kept.moments),
                ("moments of a bare pass", &bare.moments),
                ("dx", &dx),
                ("dparams", &whole.dparams),
                ("dparams without dx", &partial.dparams),
            ] {
                let written = values.iter().all(|value| value.is_finite());
                assert!(written, "{} {what} of {:?}, {precision:?}", body.name(), self.shape);
            }
        }
    }
}

#[test]
fn channels_that_do_not_fill_a_tile_are_written() {
    for (c, channels) in [(1, 1), (3, 5), (9, 17), (31, 33), (33, 31), (65, 48)] {
        Case::new(stack([3, c, 6, 5], &[channels, 7], 1, false)).is_written();
        Case::new(stack([3, c, 6, 5], &[channels], 1, true)).running().is_written();
    }
}

#[test]
fn transformed_patches_are_written() {
    // So many images that the transforms pay.
    for (n, h, w) in [(40, 3, 3), (12, 4, 4), (8, 7, 6), (5, 13, 9), (12, 10, 3)] {
        Case::new(stack([n, 33, h, w], &[40, 33], 1, false)).is_written();
        Case::new(stack([n, 33, h, w], &[40, 33], 1, false)).running().is_written();
    }
    Case::new(stack([19, 32, 7, 7], &[32, 32], 1, true)).is_written();
    Case::new(stack([5, 33, 8, 8], &[32, 33], 1, true)).in_lanes(8).is_written();
}

#[test]
fn dropped_and_skipped_pixels_are_written() {
    for (stride, pool) in [(1, true), (2, false), (2, true)] {
        for (h, w) in [(5, 7), (9, 4), (17, 100)] {
            Case::new(stack([3, 2, h, w], &[19], stride, pool)).is_written();
            Case::new(stack([7, 2, h, w], &[19, 5], stride, false)).in_lanes(8).is_written();
            Case::new(stack([3, 40, h, w], &[40], stride, pool)).running().is_written();
        }
    }
}

#[test]
fn sums_over_the_convolution_are_written() {
    let zero_at = |c| if c % 3 == 0 { 0.0 } else { 1.0 };
    for c in [1, 32] {
        let case = Case::new(stack([4, c, 9, 9], &[33, 32], 1, true));
        case.affine(zero_at, |_| 0.5).is_written();
    }
}
