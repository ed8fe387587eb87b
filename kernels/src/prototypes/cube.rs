//! Class means and their transpose on a device, where labels stay.

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::{elementwise, empty, into_contiguous, launch, unit_below, vector_size, zeros};

/// A unit for each vector of the means.
#[cube(launch_unchecked)]
fn means_kernel<F: Float, I: Int, N: Size>(
    x: &Array<Vector<F, N>>,
    labels: &Array<I>,
    means: &mut Array<Vector<F, N>>,
    vectors: usize,
    row: usize,
    examples: usize,
    ways: usize,
    #[define(F)] _dtype: StorageType,
    #[define(I)] _label: StorageType,
) {
    let at = unit_below(vectors);
    let class = at / row;
    let way = (class % ways) as i32;
    let first = class / ways * examples;
    let mut sum = Vector::<f32, N>::new(0.0f32);
    let mut count = 0.0f32;
    for example in first..first + examples {
        if i32::cast_from(labels[example]) == way {
            sum += Vector::cast_from(x[example * row + at % row]);
            count += 1.0f32;
        }
    }
    means[at] = Vector::cast_from(sum / Vector::new(count));
}

/// A unit for each vector of the rows.
#[cube(launch_unchecked)]
fn spread_kernel<F: Float, I: Int, N: Size>(
    g: &Array<Vector<F, N>>,
    labels: &Array<I>,
    rows: &mut Array<Vector<F, N>>,
    vectors: usize,
    row: usize,
    examples: usize,
    ways: usize,
    #[define(F)] _dtype: StorageType,
    #[define(I)] _label: StorageType,
) {
    let at = unit_below(vectors);
    let example = at / row;
    let label = i32::cast_from(labels[example]);
    let mut value = Vector::<f32, N>::new(0.0f32);
    if label >= 0 && label < ways as i32 {
        let task = example / examples;
        let mut count = 0.0f32;
        for other in task * examples..(task + 1) * examples {
            if i32::cast_from(labels[other]) == label {
                count += 1.0f32;
            }
        }
        let class = task * ways + label as usize;
        value = Vector::cast_from(g[class * row + at % row]) / Vector::new(count);
    }
    rows[at] = Vector::cast_from(value);
}

/// See [`FusedMetrics`](crate::metrics::FusedMetrics).
pub fn class_means<R: CubeRuntime>(
    x: CubeTensor<R>,
    labels: CubeTensor<R>,
    ways: usize,
) -> CubeTensor<R> {
    let (x, labels) = (into_contiguous(x), into_contiguous(labels));
    let [tasks, examples, features] = x.meta.shape().dims();
    let means = empty(&x, [tasks, ways, features], x.dtype);
    let width = vector_size(&x.client, features, x.elem_size());
    let vectors = means.meta.num_elements() / width;
    if vectors == 0 {
        return means;
    }
    // SAFETY: `x` has a row for each of the labels, `means` one for each class of each task, of
    // `features` elements, which is whole vectors; units stop at the last of these.
    unsafe {
        launch!(means_kernel, elementwise(&x.client, vectors), width;
            x, labels, means;
            vectors, features / width, examples, ways, x.dtype.into(), labels.dtype.into());
    }
    means
}

/// See [`FusedMetrics`](crate::metrics::FusedMetrics).
pub fn class_spread<R: CubeRuntime>(g: CubeTensor<R>, labels: CubeTensor<R>) -> CubeTensor<R> {
    let (g, labels) = (into_contiguous(g), into_contiguous(labels));
    let [tasks, ways, features] = g.meta.shape().dims();
    let [_, examples] = labels.meta.shape().dims();
    if ways == 0 {
        return zeros(&g, [tasks, examples, features], g.dtype);
    }
    let rows = empty(&g, [tasks, examples, features], g.dtype);
    let width = vector_size(&g.client, features, g.elem_size());
    let vectors = rows.meta.num_elements() / width;
    if vectors == 0 {
        return rows;
    }
    // SAFETY: `g` has a row for each class of each task, the result one for each of the labels, of
    // `features` elements, which is whole vectors; units stop at the last of these, and only labels of
    // a class are used as an index.
    unsafe {
        launch!(spread_kernel, elementwise(&g.client, vectors), width;
            g, labels, rows;
            vectors, features / width, examples, ways, g.dtype.into(), labels.dtype.into());
    }
    rows
}
