//! The matrices over slices of host memory.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, TensorMetadata};
use fewshot_simd::buffers::Buffer;
use fewshot_simd::instruction_set::InstructionSet;
use rayon::prelude::*;

use super::{Gram, reference};
use crate::environment::chosen;
use crate::host::{HostBackend, elements, unwrap, wrap, write_shape};
use crate::registry::Runs;

impl<H: HostBackend> Runs<Gram> for H {
    fn run(x: FloatTensor<H>, Gram { rows, size }: &Gram) -> FloatTensor<H> {
        let size = *size;
        let (device, features, body) = (H::float_device(&x), x.shape()[1], chosen());
        let products = match H::borrow(&x) {
            Some(x) => gram(body, x, features, rows, size),
            // Copied are the rows that are asked for, not all there are.
            None => {
                let x = unwrap(reference::picked::<H>(wrap(x), rows));
                let numbers: Vec<_> = (0..rows.len()).collect();
                gram(body, &elements::<H>(&x), features, &numbers, size)
            }
        };
        write_shape::<H>(products, Shape::new([rows.len() / size, size, size]), &device)
    }
}

/// The products among `size` rows of `x` at a time, whose numbers are `rows`.
///
/// A thread copies the rows of a task to where they are aligned and near, each with zeros behind it up to a
/// whole tile.
fn gram(
    body: &dyn InstructionSet,
    x: &[f32],
    features: usize,
    rows: &[usize],
    size: usize,
) -> Vec<f32> {
    let mut out = vec![0.0; rows.len() * size];
    let padded = features.next_multiple_of(body.tile());
    let of_tasks = out.par_chunks_exact_mut(size * size).zip(rows.par_chunks_exact(size));
    of_tasks.for_each(|(out, rows)| {
        let mut own = Buffer::stale(size * padded);
        for (own, row) in own.chunks_exact_mut(padded).zip(rows) {
            let (own, behind) = own.split_at_mut(features);
            own.copy_from_slice(&x[row * features..][..features]);
            behind.fill(0.0);
        }
        body.gram(&own, padded, out);
    });
    out
}

#[cfg(test)]
mod tests {
    use fewshot_simd::instruction_set::bodies;
    use fewshot_simd::integers;

    use super::*;

    #[test]
    fn every_shape_has_the_products_of_its_rows() {
        for (rows, features) in
            [1, 2, 15, 16, 17, 31, 33, 64, 80].into_iter().flat_map(|m| [1, 7, 64].map(|d| (m, d)))
        {
            let x = integers(29 * features, 1);
            let picked: Vec<usize> = (0..3 * rows).map(|i| i * 11 % 29).collect();
            let of_task = |picked: &[usize]| -> Vec<f32> {
                let x: Vec<_> = picked.iter().map(|row| &x[row * features..][..features]).collect();
                let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum();
                x.iter().flat_map(|a| x.iter().map(|b| dot(a, b)).collect::<Vec<_>>()).collect()
            };
            let wanted: Vec<f32> = picked.chunks(rows).flat_map(of_task).collect();
            for body in bodies() {
                let found = gram(body, &x, features, &picked, rows);
                assert_eq!(found, wanted, "{} {rows} of {features}", body.name());
            }
        }
    }
}
