//! The update over slices of host memory.

use std::borrow::Cow;

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;
use fewshot_simd::instruction_set::InstructionSet;
use fewshot_simd::rank::{BLOCK, RankUpdate, tiles};
use rayon::prelude::*;

use super::{Coefficient, WeightUpdate};
use crate::environment::chosen;
use crate::host::{HostBackend, elements, into_elements, write_shape};
use crate::registry::{Operation, Runs};

/// Multiply-adds in a task of a thread, about.
const CHUNK: usize = 1 << 17;

/// Multiply-adds from which it pays to wake another thread.
const PARALLEL: usize = 1 << 20;

impl<H: HostBackend> Runs<WeightUpdate> for H {
    fn run(
        (weight, decay, [left, right], rate): <WeightUpdate as Operation>::Operands<H>,
        _: &WeightUpdate,
    ) -> FloatTensor<H> {
        let (shape, device) = (weight.shape(), H::float_device(&weight));
        let (columns, summands) = (shape[1], left.shape()[0]);
        let mut w = into_elements::<H>(weight);
        let rate = match rate {
            Coefficient::Number(rate) => rate,
            Coefficient::Tensor(rate) => f64::from(elements::<H>(&rate)[0]),
        };
        let retention = match decay {
            // Whatever the rate is.
            Coefficient::Number(0.0) => vec![1.0],
            Coefficient::Number(share) => vec![(1.0 - rate * share) as f32],
            Coefficient::Tensor(shares) => {
                let retention = |decay: &f32| 1.0 - rate as f32 * decay;
                elements::<H>(&shares).iter().map(retention).collect()
            }
        };
        let (left, right) = (&*elements::<H>(&left), &*elements::<H>(&right));
        let rate = rate as f32;
        let retention = &*retention;
        let update =
            RankUpdate { left, left_step: shape[0], rate, right, columns, summands, retention };
        rank_update(chosen(), &update, &mut w);
        write_shape::<H>(w, shape, &device)
    }
}

/// Updates `w`, `[rows, columns]`, in place, by the factors of the whole weight; the right one is not
/// packed yet, `[summands, columns]`.
///
/// A row does not depend on those beside it, so the result does not depend on the number of threads.
fn rank_update(body: &dyn InstructionSet, of: &RankUpdate<'_>, w: &mut [f32]) {
    if w.is_empty() {
        return;
    }
    let rows = w.len() / of.columns;
    let right = packed(body, of);
    let of = RankUpdate { right: &right, ..*of };
    let run = |first: usize, w: &mut [f32]| body.rank_update(&part(&of, first, w), w);
    let work = w.len() * (of.summands + 1);
    if work < PARALLEL {
        return run(0, w);
    }
    let chunk = (CHUNK * rows / work).max(1).next_multiple_of(BLOCK);
    let chunks = w.par_chunks_mut(chunk * of.columns).enumerate();
    chunks.for_each(|(index, w)| run(index * chunk, w));
}

/// The right factor as `body` reads it.
fn packed<'a>(body: &dyn InstructionSet, of: &RankUpdate<'a>) -> Cow<'a, [f32]> {
    match of.summands {
        1 => Cow::Borrowed(of.right),
        _ => Cow::Owned(tiles(of.right, of.columns, body.tile())),
    }
}

/// The part of the rows of `w`, from `first` of all rows on.
fn part<'a>(of: &RankUpdate<'a>, first: usize, w: &[f32]) -> RankUpdate<'a> {
    let retention = match of.retention {
        [_] => of.retention,
        retention => &retention[first..first + w.len() / of.columns],
    };
    RankUpdate { left: of.left.get(first..).unwrap_or_default(), retention, ..*of }
}

#[cfg(test)]
mod tests {
    use fewshot_simd::instruction_set::bodies;
    use fewshot_simd::integers;

    use super::*;

    /// The value around every slice, which must stand there afterwards.
    const GUARD: f32 = 77.5;

    /// The weight by its formula.
    fn expected(of: &RankUpdate<'_>, rows: usize, w: &[f32]) -> Vec<f32> {
        let element = |(at, w): (usize, &f32)| {
            let (i, j) = (at / of.columns, at % of.columns);
            let terms =
                (0..of.summands).map(|s| of.left[s * rows + i] * of.right[s * of.columns + j]);
            w * of.retention[if of.retention.len() == 1 { 0 } else { i }]
                + of.rate * terms.sum::<f32>()
        };
        w.iter().enumerate().map(element).collect()
    }

    #[test]
    fn every_shape_is_updated_by_the_formula_and_nothing_beside_it() {
        let sides = [1, 2, 3, 4, 5, 7, 16, 31, 32, 33, 65];
        for (rows, columns) in sides.iter().flat_map(|&r| sides.map(|c| (r, c))) {
            for (summands, shares) in
                [(0, 1), (1, rows), (2, 1), (7, rows), (64, rows), (65, 1), (130, rows)]
            {
                let left = integers(summands * rows, 1);
                let right = integers(summands * columns, 2);
                let retention = integers(shares, 3);
                let of = RankUpdate {
                    left: &left,
                    left_step: rows,
                    rate: 3.0,
                    right: &right,
                    retention: &retention,
                    summands,
                    columns,
                };
                let mut w = [GUARD; 16].to_vec();
                w.extend(integers(rows * columns, 4));
                w.extend([GUARD; 16]);
                let end = w.len() - 16;
                let expected = expected(&of, rows, &w[16..end]);
                for body in bodies() {
                    let mut w = w.clone();
                    rank_update(body, &of, &mut w[16..end]);
                    let what = format!("{} {rows}x{columns}, {summands}", body.name());
                    assert_eq!(w[16..end], expected, "{what}");
                    let around = w[..16].iter().chain(&w[end..]);
                    assert!(around.clone().all(|&value| value == GUARD), "{what}");
                }
            }
        }
    }

    #[test]
    fn rows_that_threads_share_are_those_of_one() {
        let (rows, columns, summands) = (517, 721, 3);
        let fraction = |value: f32| value / 7.0;
        let [left, right, retention, w] =
            [(summands * rows, 1), (summands * columns, 2), (rows, 3), (rows * columns, 4)]
                .map(|(count, seed)| integers(count, seed).into_iter().map(fraction).collect())
                .map(|values: Vec<f32>| values);
        let of = RankUpdate {
            left: &left,
            left_step: rows,
            rate: 0.3,
            right: &right,
            retention: &retention,
            summands,
            columns,
        };
        assert!(w.len() * summands > PARALLEL);
        for body in bodies() {
            let mut shared = w.clone();
            rank_update(body, &of, &mut shared);
            let right = packed(body, &of);
            let of = RankUpdate { right: &right, ..of };
            for row in 0..rows {
                let mut alone = w[row * columns..][..columns].to_vec();
                body.rank_update(&part(&of, row, &alone), &mut alone);
                assert_eq!(alone, shared[row * columns..][..columns], "{}", body.name());
            }
        }
    }
}
