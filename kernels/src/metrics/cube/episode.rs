//! The loss of prototypical networks for whole episodes, in three launches: class means, the softmax of each
//! query, and the gradient of the embeddings with the means of loss and accuracy.

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::forms::score;
use crate::cube::{
    cube_max, cube_sum, cube_sum_in, empty, empty_each, empty_like, lane_sum, launch, row_of_cubes,
    units, vector_size, wide,
};
use crate::distances::Metric;
use crate::distances::reference::LEAST_SQUARE;
use crate::metrics::{EpisodeLoss, LossCall};

/// Classes whose scores a cube holds in shared memory, 4 KiB.
const MOST_WAYS: usize = 1024;

/// Multiplications of all queries with all prototypes, at most: they read these from the second-level
/// cache, where a matrix product would hold them in shared memory.
const MOST_PRODUCTS: usize = 1 << 27;

/// Tasks, support examples, queries and classes of each, and features.
#[derive(Clone, Copy, Debug)]
pub struct EpisodeShape {
    pub tasks: usize,
    pub examples: usize,
    pub queries: usize,
    pub ways: usize,
    pub features: usize,
}

impl EpisodeShape {
    /// Whether the kernels here take it: it has elements, and is not too large.
    pub fn is_taken(&self) -> bool {
        let Self { tasks, examples, queries, ways, features } = *self;
        let products = tasks * queries * ways * features;
        examples > 0 && products > 0 && products <= MOST_PRODUCTS && ways <= MOST_WAYS
    }
}

/// Of each task, and vectors of each row.
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

/// A cube for each query: its scores, their softmax, and the gradient of its loss by them, divided by the scale.
#[cube(launch_unchecked)]
fn queries_kernel<F: Float, I: Int, N: Size>(
    x: &Array<Vector<F, N>>,
    labels: &Array<I>,
    means: &Array<Vector<f32, N>>,
    of_classes: &Array<f32>,
    of_queries: &mut Array<f32>,
    losses: &mut Array<f32>,
    correct: &mut Array<f32>,
    weights: &mut Array<f32>,
    pulls: &mut Array<f32>,
    rows: usize,
    sizes: &Sizes,
    scale: f32,
    least: f32,
    nan: f32,
    #[comptime] wanted: Wanted,
    #[comptime] capacity: u32,
    #[define(F)] _dtype: StorageType,
    #[define(I)] _label: StorageType,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let Wanted { metric, gradient, units } = comptime!(wanted);
    let unit = UNIT_POS as usize;
    let task = row / sizes.queries;
    let own = sizes.row(task, sizes.examples + row % sizes.queries);
    let (ways, first_class) = (sizes.ways, task * sizes.ways);
    let mut scores = SharedMemory::<f32>::new(comptime!(capacity as usize));
    let mut parts = SharedMemory::<f32>::new(comptime!(units as usize));

    let mut square = 0.0f32;
    let mut at = unit;
    while at < sizes.vectors {
        let values = wide(x[own + at]);
        square += lane_sum(values * values);
        at += comptime!(units as usize);
    }
    let square = cube_sum_in(square, &mut parts, units);

    // So many units share a class, and so many classes are multiplied with at once.
    let abreast = comptime!((if capacity < units { capacity } else { units }) as usize);
    let group = comptime!((units / if capacity < units { capacity } else { units }) as usize);
    let (place, lane) = (unit / group, unit % group);
    let mut first = 0usize;
    while first < ways {
        let way = first + place;
        let mut product = 0.0f32;
        if way < ways {
            let mean = (first_class + way) * sizes.vectors;
            let mut at = lane;
            while at < sizes.vectors {
                product += lane_sum(wide(x[own + at]) * means[mean + at]);
                at += group;
            }
        }
        parts[unit] = product;
        sync_cube();
        if lane == 0 && way < ways {
            for other in 1..group {
                product += parts[unit + other];
            }
            scores[way] = score(product, square, of_classes[first_class + way], least, metric);
        }
        sync_cube();
        first += abreast;
    }

    let mut largest = f32::min_value();
    let mut way = unit;
    while way < ways {
        largest = max(largest, scores[way] * scale);
        way += comptime!(units as usize);
    }
    let largest = cube_max(largest, units);
    let mut sum = 0.0f32;
    // Of the classes with the largest score the first counts; its number as a float, negative.
    let mut nearest = comptime!(-(capacity as f32)).runtime();
    let mut way = unit;
    while way < ways {
        let found = scores[way] * scale;
        sum += f32::exp(found - largest);
        if found == largest {
            nearest = max(nearest, 0.0f32 - way as f32);
        }
        way += comptime!(units as usize);
    }
    let sum = cube_sum(sum, units);
    let nearest = 0.0f32 - cube_max(nearest, units);

    let label = i32::cast_from(labels[row]);
    if UNIT_POS == 0 {
        let mut at_label = nan;
        if label >= 0 && label < ways as i32 {
            at_label = scores[label as usize] * scale - largest;
        }
        of_queries[row] = square;
        losses[row] = f32::ln(sum) - at_label;
        correct[row] = f32::cast_from(nearest == label as f32);
    }
    if comptime!(gradient) {
        let mut way = unit;
        while way < ways {
            let score = scores[way];
            let mut weight = f32::exp(score * scale - largest) / sum;
            if way as i32 == label {
                weight -= 1.0f32;
            }
            weights[row * ways + way] = weight;
            if comptime!(metric == Metric::Cosine) {
                pulls[row * ways + way] = weight * score;
            }
            way += comptime!(units as usize);
        }
    }
}

/// A cube for each query and each class, which go on to the gradients of the embeddings, and one for the means.
///
/// By rows the gradients of queries and of prototypes are `a * (sum_i W_i x_i - c * x)` over the vectors
/// of the other side, with `a`, `W` and `c` as in [`super::gradients`].
#[cube(launch_unchecked)]
fn gradient_kernel<F: Float, I: Int, N: Size>(
    x: &Array<Vector<F, N>>,
    labels: &Array<I>,
    means: &Array<Vector<f32, N>>,
    of_classes: &Array<f32>,
    of_queries: &Array<f32>,
    counts: &Array<f32>,
    losses: &Array<f32>,
    correct: &Array<f32>,
    weights: &Array<f32>,
    pulls: &Array<f32>,
    gradient: &mut Array<Vector<F, N>>,
    loss: &mut Array<F>,
    accuracy: &mut Array<F>,
    rows: usize,
    gradients: usize,
    sizes: &Sizes,
    factor: f32,
    least: f32,
    #[comptime] wanted: Wanted,
    #[comptime] lanes: u32,
    #[define(F)] _dtype: StorageType,
    #[define(I)] _label: StorageType,
) {
    let cube = CUBE_POS;
    if cube > gradients {
        terminate!();
    }
    let Wanted { metric, gradient: wants_gradient, units } = comptime!(wanted);
    let unit = UNIT_POS as usize;
    if cube == gradients {
        let mut of_losses = 0.0f32;
        let mut of_correct = 0.0f32;
        let mut at = unit;
        while at < rows {
            of_losses += losses[at];
            of_correct += correct[at];
            at += comptime!(units as usize);
        }
        let of_losses = cube_sum(of_losses, units);
        let of_correct = cube_sum(of_correct, units);
        if UNIT_POS == 0 {
            loss[0] = F::cast_from(of_losses / rows as f32);
            accuracy[0] = F::cast_from(of_correct / rows as f32);
        }
    } else if comptime!(wants_gradient) {
        let of_query = cube < rows;
        let (examples, queries, ways) = (sizes.examples, sizes.queries, sizes.ways);
        let mut class = 0usize;
        let mut task = cube / queries;
        let mut first = cube * ways;
        let mut step = 1usize;
        let mut count = ways;
        if !of_query {
            class = cube - rows;
            task = class / ways;
            first = task * queries * ways + class % ways;
            step = ways;
            count = queries;
        }
        let mut square = of_classes[class];
        if of_query {
            square = of_queries[cube];
        }
        let mut along = factor * 2.0f32;
        let mut turn = 1.0f32;
        if comptime!(metric == Metric::Cosine) {
            along = factor / f32::sqrt(max(square, least));
            turn = 0.0f32;
            if square >= least {
                turn = 1.0f32 / f32::sqrt(square);
            }
        }
        let mut parts = SharedMemory::<Vector<f32, N>>::new(comptime!(units as usize));
        let mut pull_parts = SharedMemory::<f32>::new(comptime!(units as usize));
        let groups = comptime!((units / lanes) as usize);
        let (lane, group) = (unit % comptime!(lanes as usize), unit / comptime!(lanes as usize));
        let mut start = 0usize;
        while start < sizes.vectors {
            let at = start + lane;
            let mut sum = Vector::<f32, N>::new(0.0f32);
            let mut pull = 0.0f32;
            if at < sizes.vectors {
                let mut other = group;
                while other < count {
                    let index = first + other * step;
                    let mut weight = weights[index];
                    let mut pulled = weight;
                    if comptime!(metric == Metric::Cosine) {
                        pulled = pulls[index];
                    }
                    pull += pulled;
                    if of_query {
                        let from = task * ways + other;
                        if comptime!(metric == Metric::Cosine) {
                            weight = weight / f32::sqrt(max(of_classes[from], least));
                        }
                        sum += means[from * sizes.vectors + at] * Vector::new(weight);
                    } else {
                        if comptime!(metric == Metric::Cosine) {
                            let square = of_queries[task * queries + other];
                            weight = weight / f32::sqrt(max(square, least));
                        }
                        let query = sizes.row(task, examples + other);
                        sum += wide(x[query + at]) * Vector::new(weight);
                    }
                    other += groups;
                }
            }
            parts[unit] = sum;
            pull_parts[unit] = pull;
            sync_cube();
            if group == 0 && at < sizes.vectors {
                for part in 1..groups {
                    let from = lane + part * comptime!(lanes as usize);
                    sum += parts[from];
                    pull += pull_parts[from];
                }
                let pull = Vector::new(pull * turn);
                let along = Vector::new(along);
                if of_query {
                    let own = sizes.row(task, examples + cube % queries) + at;
                    gradient[own] = Vector::cast_from((sum - wide(x[own]) * pull) * along);
                } else {
                    let found = (sum - means[class * sizes.vectors + at] * pull) * along;
                    let share = found / Vector::new(counts[class]);
                    let way = (class % ways) as i32;
                    let none = Vector::<f32, N>::new(0.0f32);
                    for example in 0..examples {
                        let label = i32::cast_from(labels[task * examples + example]);
                        let to = sizes.row(task, example) + at;
                        if label == way {
                            gradient[to] = Vector::cast_from(share);
                        } else if way == 0 && (label < 0 || label >= ways as i32) {
                            // Of no class.
                            gradient[to] = Vector::cast_from(none);
                        }
                    }
                }
            }
            sync_cube();
            start += comptime!(lanes as usize);
        }
    }
}

/// The loss of the episodes whose embeddings `x` `[t, n + q, d]` and labels `[t, n]` and `[t, q]` are contiguous,
/// of a shape that is taken; with the gradient if it is wanted.
pub fn loss<R: CubeRuntime>(
    call: LossCall,
    x: CubeTensor<R>,
    [of_support, of_queries]: [CubeTensor<R>; 2],
    shape: EpisodeShape,
    wants_gradient: bool,
) -> EpisodeLoss<CubeTensor<R>> {
    let EpisodeShape { tasks, examples, queries, ways, features } = shape;
    let client = x.client.clone();
    let LossCall { metric, scale } = call;
    let width = vector_size(&client, features, size_of::<f32>());
    let vectors = features / width;
    let sizes = || SizesLaunch::new(examples, queries, ways, vectors);
    let (rows, classes) = (tasks * queries, tasks * ways);
    let of_pairs = |wanted: bool| if wanted { rows * ways } else { 1 };
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
    let wanted = Wanted { metric, gradient: wants_gradient, units };
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
            rows, sizes(), scale as f32, least, f32::NAN, wanted, capacity, x.dtype.into(),
            of_queries.dtype.into());
        launch!(gradient_kernel, row_of_cubes(&client, gradients + 1, units), width;
            x, of_support, means, class_squares, query_squares, counts, losses, correct, weights, pulls,
            gradient, loss, accuracy;
            rows, gradients, sizes(), factor as f32, least, wanted, lanes, x.dtype.into(),
            of_support.dtype.into());
    }
    EpisodeLoss { loss, accuracy, gradient: wants_gradient.then_some(gradient) }
}
