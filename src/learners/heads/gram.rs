//! Heads that see no more of embeddings than their scalar products.

use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor, TensorData};
use fewshot_kernels::gram;
use rayon::prelude::*;

use super::{EmbeddedSupport, FittedHead};

/// Part of a squared length that translations may leave by rounding alone.
const ROUNDING: f32 = 1e-6;

/// A transductive [`Head`](super::Head) whose logits follow from the scalar products of a
/// task's embeddings.
///
/// The products are taken on the backend, once for a task; the rest is a few thousand numbers a task and is
/// computed on the host, tasks in parallel. Where many episodes are drawn from the same embeddings, a
/// [test](crate::train::FeatureTest) looks the products up. They are f32 whatever the backend's type, and
/// no gradient flows through such a head.
pub trait GramHead<B: Backend>: Sync {
    /// What is done to each embedding before products are taken, `[n, d]` to `[n, d]`.
    fn transform(&self, embeddings: Tensor<B, 2>) -> Tensor<B, 2>;

    /// Whether logits do not change when one vector is added to all transformed embeddings of a task.
    /// If so, what the embeddings have in common is subtracted first, so that it does not hide how they
    /// differ.
    fn translation_invariant(&self) -> bool {
        false
    }

    /// Logits `[q, ways]`, row by row, of a task with at least one query.
    fn gram_logits(&self, gram: TaskGram) -> Vec<f32>;
}

/// The scalar products of a task's embeddings, the Gram matrix, and the classes of its support.
#[derive(Clone, Debug)]
pub struct TaskGram {
    /// `[m, m]`, row by row; the support comes first.
    products: Vec<f32>,
    labels: Vec<usize>,
    ways: usize,
    size: usize,
}

/// Weighted sums of embeddings, as their scalar products with the embeddings and their squared lengths.
pub struct WeightedSums {
    /// Scalar products `[sums, m]` with each embedding.
    pub dots: Vec<f32>,
    /// Squared lengths `[sums]`.
    pub squares: Vec<f32>,
}

impl TaskGram {
    /// From the products `[m, m]` of `n` support embeddings, whose classes are `labels`, and then
    /// `m - n` queries.
    ///
    /// # Panics
    /// When the matrix is not square, has fewer rows than labels, or a label is no class.
    pub fn new(products: Vec<f32>, labels: Vec<usize>, ways: usize) -> Self {
        let size = products.len().isqrt();
        assert_eq!(size * size, products.len(), "products make a square matrix");
        assert!(labels.len() <= size, "{} labels of {size} embeddings", labels.len());
        assert!(labels.iter().all(|&label| label < ways), "labels are below {ways}");
        Self { products, labels, ways, size }
    }

    /// Number of classes.
    pub fn ways(&self) -> usize {
        self.ways
    }

    /// Classes `[n]` of the support.
    pub fn labels(&self) -> &[usize] {
        &self.labels
    }

    /// Number of embeddings, `m`.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Number of queries.
    pub fn queries(&self) -> usize {
        self.size - self.labels.len()
    }

    /// Products of the embedding with index `of` with all, `[m]`.
    pub fn row(&self, of: usize) -> &[f32] {
        &self.products[of * self.size..][..self.size]
    }

    /// Squared length of an embedding.
    pub fn square(&self, of: usize) -> f32 {
        self.products[of * self.size + of]
    }

    /// Weights `[ways, m]` by which support embeddings make class means.
    pub fn class_means(&self) -> Vec<f32> {
        let mut weights = vec![0.0; self.ways * self.size];
        for class in 0..self.ways {
            let members = self.labels.iter().filter(|&&label| label == class).count();
            for (at, _) in self.labels.iter().enumerate().filter(|(_, label)| **label == class) {
                weights[class * self.size + at] = 1.0 / members as f32;
            }
        }
        weights
    }

    /// The sums of embeddings with weights `[sums, m]`.
    ///
    /// # Panics
    /// When the weights are not those of whole sums.
    pub fn sums(&self, weights: &[f32]) -> WeightedSums {
        let size = self.size;
        assert!(
            weights.len().is_multiple_of(size),
            "{} weights of {size} embeddings",
            weights.len()
        );
        let mut dots = vec![0.0; weights.len()];
        let of_sums = weights.chunks_exact(self.size).zip(dots.chunks_exact_mut(self.size));
        let mut squares = Vec::with_capacity(weights.len() / self.size);
        for (weights, dots) in of_sums {
            for (at, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
                dots.iter_mut().zip(self.row(at)).for_each(|(dot, x)| *dot += weight * x);
            }
            squares.push(weights.iter().zip(&*dots).map(|(weight, dot)| weight * dot).sum());
        }
        WeightedSums { dots, squares }
    }

    /// The products after a translation of the embeddings: to each one of the support the sum of
    /// embeddings with weights `shifts[0]` is added, to each query the sum with weights `shifts[1]`,
    /// `[m]` each.
    ///
    /// An embedding of which only rounding would be left becomes zero.
    ///
    /// # Panics
    /// When a shift does not have a weight for each embedding.
    pub fn translated(self, shifts: [&[f32]; 2]) -> Self {
        let fits = shifts.iter().all(|shift| shift.len() == self.size);
        assert!(fits, "a shift has {} weights", self.size);
        let (size, support) = (self.size, self.labels.len());
        let part = |at: usize| usize::from(at >= support);
        let sums = self.sums(&shifts.concat());
        let dots = [0, 1].map(|part| &sums.dots[part * size..][..size]);
        let across = |left: usize, right: usize| -> f32 {
            shifts[left].iter().zip(dots[right]).map(|(weight, dot)| weight * dot).sum()
        };
        let among = [[across(0, 0), across(0, 1)], [across(1, 0), across(1, 1)]];
        let parts = [0..support, support..size];
        let squares: Vec<f32> = (0..size).map(|at| self.square(at)).collect();
        let mut products = self.products;
        for (at, row) in products.chunks_exact_mut(size).enumerate() {
            let of = part(at);
            for (to, range) in parts.clone().into_iter().enumerate() {
                let shift = dots[to][at] + among[of][to];
                let others = row[range.clone()].iter_mut().zip(&dots[of][range]);
                others.for_each(|(x, dot)| *x += shift + dot);
            }
        }
        for at in 0..size {
            let from = squares[at] + among[part(at)][part(at)];
            if products[at * size + at] <= ROUNDING * from {
                products[at * size..][..size].fill(0.0);
                products.iter_mut().skip(at).step_by(size).for_each(|x| *x = 0.0);
            }
        }
        Self { products, ..self }
    }

    /// The products of embeddings of length 1; those of zeros stay.
    pub fn normalised(self) -> Self {
        let lengths = (0..self.size).map(|at| self.square(at).max(f32::MIN_POSITIVE).sqrt());
        let inverse: Vec<f32> = lengths.map(f32::recip).collect();
        let mut products = self.products;
        for (row, factor) in products.chunks_exact_mut(self.size).zip(&inverse) {
            row.iter_mut().zip(&inverse).for_each(|(x, other)| *x *= factor * other);
        }
        Self { products, ..self }
    }
}

/// The head with its support, which waits for all queries.
pub(super) fn fitted<B: Backend>(
    head: impl GramHead<B> + 'static,
    support: EmbeddedSupport<B>,
) -> FittedHead<B> {
    let EmbeddedSupport { embeddings, labels, ways } = support;
    FittedHead::new(ways, move |queries| {
        let ([tasks, asked, _], options) = (queries.dims(), (&queries.device(), queries.dtype()));
        let all = Tensor::cat(vec![embeddings.clone().detach(), queries.detach()], 1);
        let [_, size, features] = all.dims();
        assert!(size > asked, "a task is learned from at least one example");
        let mut rows = head.transform(all.reshape([tasks * size, features]));
        if head.translation_invariant() {
            let of_tasks = rows.reshape([tasks, size, features]);
            rows = (of_tasks.clone() - of_tasks.mean_dim(1)).reshape([tasks * size, features]);
        }
        let labels = labels.to_data();
        let labels: Vec<_> = labels.iter::<i64>().map(|label| label as usize).collect();
        let labels: Vec<_> = labels.chunks(size - asked).map(<[usize]>::to_vec).collect();
        let numbers: Vec<_> = (0..tasks * size).collect();
        let found = task_logits(&head, rows, &numbers, labels, ways);
        Tensor::from_data(TensorData::new(found.concat(), [tasks, asked, ways]), options)
    })
}

/// Logits of the queries of every task, given embeddings `[n, d]` after
/// [`transform`](GramHead::transform), the numbers of each task's rows, support first, and the labels of
/// its support.
pub(crate) fn task_logits<B: Backend>(
    head: &(impl GramHead<B> + ?Sized),
    embeddings: Tensor<B, 2>,
    rows: &[usize],
    labels: Vec<Vec<usize>>,
    ways: usize,
) -> Vec<Vec<f32>> {
    let size = rows.len() / labels.len();
    let products = gram(embeddings.cast(FloatDType::F32), rows, size);
    let products = products.into_data().convert::<f32>();
    let products = products.as_slice::<f32>().expect("converted");
    let tasks = products.par_chunks_exact(size * size).zip(labels);
    let of_task = |(products, labels): (&[f32], Vec<usize>)| {
        let gram = TaskGram::new(products.to_vec(), labels, ways);
        let wanted = gram.queries() * ways;
        let logits = head.gram_logits(gram);
        assert_eq!(logits.len(), wanted, "a logit for each query and class");
        logits
    };
    tasks.map(of_task).collect()
}
