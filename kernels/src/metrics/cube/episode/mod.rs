//! The loss of prototypical networks for whole episodes, in three launches: class means, the softmax of each
//! query, and the gradient of the embeddings with the means of loss and accuracy.

mod gradient;
mod queries;

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::{
    cube_sum, empty, empty_each, empty_like, lane_sum, launch, row_of_cubes, units, vector_size,
};
use crate::distances::Metric;
use crate::distances::reference::LEAST_SQUARE;
use crate::metrics::{EpisodeLoss, LossCall};
use gradient::gradient_kernel;
use queries::queries_kernel;

/// Classes whose scores a cube holds in shared memory, 4 KiB.
const MOST_WAYS: usize = 1024;

/// Multiplications of all queries with all prototypes, at most: they read these from the second-level
/// cache, where a matrix product would hold them in shared memory.
const MOST_PRODUCTS: usize = 1 << 27;

/// True if the kernels here take so many tasks, support examples, queries and classes of each, and features: there
/// are elements, and not too many.
pub fn takes([tasks, examples, queries, ways, features]: [usize; 5]) -> bool {
    let products = tasks * queries * ways * features;
    examples > 0 && products > 0 && products <= MOST_PRODUCTS && ways <= MOST_WAYS
}

/// Numbers of each task, and vectors of each row.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Sizes {
    examples: usize,
    queries: usize,
    ways: usize,
    vectors: usize,
}

#[cube]
impl Sizes {
    /// The first vector of an example of a task; queries follow the support.
    fn row(&self, task: usize, example: usize) -> usize {
        (task * (self.examples + self.queries) + example) * self.vectors
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Wanted {
    metric: Metric,
    gradient: bool,
    units: u32,
}

/// A cube for each class: the mean of its examples, the squared length of that, and their number.
#[cube(launch_unchecked)]
fn class_means_kernel<F: Float, I: Int, N: Size>(
    x: &Array<Vector<F, N>>,
    labels: &Array<I>,
    means: &mut Array<Vector<f32, N>>,
    squares: &mut Array<f32>,
    counts: &mut Array<f32>,
    classes: usize,
    sizes: &Sizes,
    #[comptime] units: u32,
    #[define(F)] _dtype: StorageType,
    #[define(I)] _label: StorageType,
) {
    let class = CUBE_POS;
    if class >= classes {
        terminate!();
    }
    let task = class / sizes.ways;
    let way = (class % sizes.ways) as i32;
    let (first_label, first_row) = (task * sizes.examples, sizes.row(task, 0usize));
    let mut square = 0.0f32;
    let mut count = 0.0f32;
    let mut at = UNIT_POS as usize;
    while at < sizes.vectors {
        let mut sum = Vector::<f32, N>::new(0.0f32);
        count = 0.0f32;
        for example in 0..sizes.examples {
            if i32::cast_from(labels[first_label + example]) == way {
                sum += Vector::cast_from(x[first_row + example * sizes.vectors + at]);
                count += 1.0f32;
            }
        }
        let mean = sum / Vector::new(count);
        means[class * sizes.vectors + at] = mean;
        square += lane_sum(mean * mean);
        at += comptime!(units as usize);
    }
    let square = cube_sum(square, units);
    if UNIT_POS == 0 {
        squares[class] = square;
        counts[class] = count;
    }
}

/// The loss of the episodes whose embeddings `x` `[t, n + q, d]` and labels `[t, n]` and `[t, q]` are contiguous,
/// of sizes that it [takes]; with the gradient if it is wanted.
pub fn loss<R: CubeRuntime>(
    call: LossCall,
    x: CubeTensor<R>,
    [of_support, of_queries]: [CubeTensor<R>; 2],
    ways: usize,
    wants_gradient: bool,
) -> EpisodeLoss<CubeTensor<R>> {
    let [tasks, _, features] = x.meta.shape().dims();
    let [examples, queries] = [&of_support, &of_queries].map(|labels| labels.meta.shape()[1]);
    let client = x.client.clone();
    let LossCall { metric, scale } = call;
    let width = vector_size(&client, features, size_of::<f32>());
    let vectors = features / width;
    let sizes = || SizesLaunch::new(examples, queries, ways, vectors);
    let (rows, classes) = (tasks * queries, tasks * ways);
    let of_pairs = |is_written: bool| if is_written { rows * ways } else { 1 };
    let shapes = [
        classes * features,
        classes,
        classes,
        rows,
        rows,
        rows,
        of_pairs(wants_gradient),
        of_pairs(wants_gradient && metric == Metric::Cosine),
    ];
    let [means, class_squares, counts, query_squares, losses, correct, weights, pulls] =
        empty_each(&x, shapes.map(|elements| Shape::new([elements])), DType::F32);
    let [loss, accuracy] = empty_each(&x, [[1]; 2], x.dtype);
    let gradient = match wants_gradient {
        true => empty_like(&x),
        false => empty(&x, [width], x.dtype),
    };
    let units = units(&client).min(128);
    let options = Wanted { metric, gradient: wants_gradient, units };
    let capacity = ways.next_power_of_two() as u32;
    let lanes = (vectors.next_power_of_two() as u32).min(units);
    let gradients = if wants_gradient { rows + classes } else { 0 };
    let factor = scale / rows as f64;
    let least = LEAST_SQUARE as f32;
    // SAFETY: of `x` each task has a row of `vectors` vectors for each example and each query, of means one for
    // each class; squares, numbers of examples, losses and flags are one a class or query, weights and pulls, where
    // they are wanted, `ways` a query; cubes stop after the last class, query and gradient.
    unsafe {
        launch!(class_means_kernel, row_of_cubes(&client, classes, units), width;
            x, of_support, means, class_squares, counts;
            classes, sizes(), units, x.dtype.into(), of_support.dtype.into());
        launch!(queries_kernel, row_of_cubes(&client, rows, units), width;
            x, of_queries, means, class_squares, query_squares, losses, correct, weights, pulls;
            rows, sizes(), scale as f32, least, f32::NAN, options, capacity, x.dtype.into(),
            of_queries.dtype.into());
        launch!(gradient_kernel, row_of_cubes(&client, gradients + 1, units), width;
            x, of_support, means, class_squares, query_squares, counts, losses, correct, weights, pulls,
            gradient, loss, accuracy;
            rows, gradients, sizes(), factor as f32, least, options, lanes, x.dtype.into(),
            of_support.dtype.into());
    }
    EpisodeLoss { loss, accuracy, gradient: wants_gradient.then_some(gradient) }
}
