//! The linear system of a classifier's dual: classes that share a kernel and meet in a sum.

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use fewshot_kernels::product;
use rayon::prelude::*;

use super::linear_solve::{invert, on_device};

/// For each class `m` a matrix `Q_m` over examples, and classes that meet in a sum:
/// `z_m = Q_m (b_m - v)`, with `v` such that `sum_m z_m` is what it should be.
///
/// Newton's method in the dual of a multi-class SVM or of multinomial regression solves such systems.
/// Solved by classes they cost `ways` inverses of `[n, n]`, not one of `[n ways, n ways]`.
#[derive(Clone, Debug)]
pub(super) struct ClassBlocks {
    examples: usize,
    /// `Q`, `[ways, n, n]`.
    pub blocks: Vec<f64>,
    /// Inverse of the sum of all `Q`, `[n, n]`.
    pub coupling: Vec<f64>,
}

impl ClassBlocks {
    /// The system of `blocks` `[ways, n, n]`, with `gauge` added to each element of their sum, which makes it
    /// regular when all blocks send constants to zero.
    pub fn new(blocks: Vec<f64>, examples: usize, gauge: f64) -> Self {
        let mut coupling = vec![gauge; examples * examples];
        for block in blocks.chunks(coupling.len()) {
            coupling.iter_mut().zip(block).for_each(|(sum, value)| *sum += value);
        }
        invert(&mut coupling, examples);
        Self { examples, blocks, coupling }
    }

    /// With the inverse of `kernel + diag` for each class's diagonal.
    pub fn from_sums<'a>(kernel: &[f64], diagonals: impl Iterator<Item = &'a [f64]>) -> Self {
        let mut examples = 0;
        let blocks = diagonals.flat_map(|diagonal| {
            examples = diagonal.len();
            let mut block = kernel.to_vec();
            let on_diagonal = block.iter_mut().step_by(examples + 1);
            on_diagonal.zip(diagonal).for_each(|(value, more)| *value += more);
            invert(&mut block, examples);
            block
        });
        let blocks = blocks.collect();
        Self::new(blocks, examples, 0.0)
    }

    /// `z` `[ways, n]` and `v` `[n]` for `right` `[ways, n]` and the wanted `total` `[n]`.
    pub fn solve(&self, right: &[f64], total: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut excess: Vec<f64> = total.iter().map(|value| -value).collect();
        for class in self.by_class(right).chunks(self.examples) {
            excess.iter_mut().zip(class).for_each(|(sum, value)| *sum += value);
        }
        let shared = times(&self.coupling, &excess);
        let shifted: Vec<f64> =
            right.iter().zip(shared.iter().cycle()).map(|(value, shared)| value - shared).collect();
        (self.by_class(&shifted), shared)
    }

    fn by_class(&self, right: &[f64]) -> Vec<f64> {
        let size = self.examples;
        let classes = self.blocks.chunks(size * size).zip(right.chunks(size));
        classes.flat_map(|(block, right)| times(block, right)).collect()
    }
}

/// The square `matrix` times a vector.
pub(super) fn times(matrix: &[f64], vector: &[f64]) -> Vec<f64> {
    matrix.chunks(vector.len()).map(|row| dot(row, vector)).collect()
}

pub(super) fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

/// `from + length * by`.
pub(super) fn moved(from: &[f64], length: f64, by: &[f64]) -> Vec<f64> {
    from.iter().zip(by).map(|(from, by)| from + length * by).collect()
}

/// Solutions of the tasks by `solve`, each of the task's `kernel` `[n, n]` and `labels` `[n]`.
pub(super) fn by_task<B: Backend, T: Send>(
    kernel: &[f64],
    labels: &Tensor<B, 2, Int>,
    solve: impl Fn(&[f64], &[usize]) -> T + Sync,
) -> Vec<T> {
    let examples = labels.dims()[1];
    let labels: Vec<usize> = labels.to_data().iter::<i64>().map(|label| label as usize).collect();
    let kernels = kernel.par_chunks(examples * examples);
    kernels.zip(labels.par_chunks(examples)).map(|(kernel, y)| solve(kernel, y)).collect()
}

/// 1 at the class of each example and 0 elsewhere, `[ways, n]`.
pub(super) fn targets(labels: &[usize], ways: usize) -> Vec<f64> {
    let of_class = |class| labels.iter().map(move |&label| f64::from(label == class));
    (0..ways).flat_map(of_class).collect()
}

/// [`ClassBlocks`] of many tasks, to differentiate solutions by their kernel.
///
/// A solution `a(K)` of the dual changes with its kernel by `da = -S(dK a)`, where `S` solves the
/// blocks' system with a sum of zero.
#[derive(Clone, Debug)]
pub(super) struct KernelDerivative<B: Backend> {
    /// `[t, ways, n, n]`.
    blocks: Tensor<B, 4>,
    /// `[t, n, n]`.
    coupling: Tensor<B, 3>,
}

impl<B: Backend> KernelDerivative<B> {
    /// The derivative by each task's blocks, on the device of `like`.
    pub fn new(tasks: &[ClassBlocks], ways: usize, like: &Tensor<B, 3>) -> Self {
        let examples = tasks.first().map_or(0, |task| task.examples);
        let blocks = tasks.iter().flat_map(|task| task.blocks.iter().copied()).collect();
        let coupling = tasks.iter().flat_map(|task| task.coupling.iter().copied()).collect();
        Self {
            blocks: on_device(blocks, [tasks.len(), ways, examples, examples], like),
            coupling: on_device(coupling, [tasks.len(), examples, examples], like),
        }
    }

    /// `S(change weights)` and the `change weights - v` to which it applied `Q`, both `[t, n, ways]`.
    ///
    /// # Shapes
    /// - `change`: of the kernel, `[t, n, n]`
    /// - `weights`: the solution, `[t, n, ways]`
    pub fn along(&self, change: Tensor<B, 3>, weights: Tensor<B, 3>) -> [Tensor<B, 3>; 2] {
        let [tasks, examples, ways] = weights.dims();
        let right = product(change, weights);
        let by_class = |right: Tensor<B, 3>| {
            let columns = right.swap_dims(1, 2).reshape([tasks, ways, examples, 1]);
            let solved = product(self.blocks.clone(), columns);
            solved.reshape([tasks, ways, examples]).swap_dims(1, 2)
        };
        let excess = by_class(right.clone()).sum_dim(2);
        let shifted = right - product(self.coupling.clone(), excess);
        [by_class(shifted.clone()), shifted]
    }
}
