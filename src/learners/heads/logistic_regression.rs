use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;
use serde_json::{Value, json};

use super::checked::positive;
use super::class_blocks::{ClassBlocks, KernelDerivative, by_task, dot, moved, targets, times};
use super::linear_solve::{invert, on_device, read};
use super::unit_length::unit_length;
use super::{EmbeddedSupport, FittedHead, Head, LengthNormalisation, LogitFormula, NoFormula};

/// Newton steps after which a regression is left as it is; it takes 5 to 10.
const MOST_STEPS: usize = 60;

/// Multinomial logistic regression from embeddings to classes, to convergence.
///
/// `logits(x) = x W + b` with `W` and `b` that minimise `1/2 |W|^2 + C sum_i cross_entropy(x_i W + b,
/// y_i)`; the intercepts `b` add up to zero. Embeddings have unit length.
///
/// Solved by Newton's method in f64 on the host, after one reading of the products of embeddings with
/// each other: `W = sum_i x_i a_i^T`, so that the number of features does not matter. Logits can be
/// differentiated once, by the implicit function theorem at the solution.
///
/// # Conventions
/// `C` = 1 and unit length as in the authors' code (`RFS`). Two ways are multinomial, too; scikit-learn
/// then has a single logit, and finds the same probabilities with `2 C` in place of `C`.
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::Tensor};
/// # use fewshot::learners::heads::{EmbeddedSupport, Head, LogisticRegression};
/// # let device = Default::default();
/// let support = Tensor::<Flex, 3>::from_data([[[1.0, 0.0], [0.0, 2.0]]], &device);
/// let support = EmbeddedSupport::new(support, Tensor::from_data([[0, 1]], &device), 2);
/// let logits = LogisticRegression::new().fit(support).logits(Tensor::ones([1, 1, 2], &device));
/// assert!(logits.abs().max().into_scalar() < 1e-6); // as near to one as to the other
/// ```
///
/// # Source
/// Tian, Wang, Krishnan, Tenenbaum and Isola, "Rethinking Few-Shot Image Classification: a Good
/// Embedding Is All You Need?", ECCV 2020.
#[derive(Module, Clone, Debug)]
pub struct LogisticRegression {
    /// `C`, the price of errors relative to that of large weights, above 0.
    pub c: f64,
    /// True if embeddings are brought to unit length.
    pub unit_length: bool,
}

impl Default for LogisticRegression {
    fn default() -> Self {
        Self::new()
    }
}

impl LogisticRegression {
    /// With `C` = 1, on embeddings of unit length.
    pub fn new() -> Self {
        Self { c: 1.0, unit_length: true }
    }

    /// Dual weights `[t, n, ways]` and intercepts `[t, 1, ways]`.
    fn solved<B: Backend>(&self, support: &EmbeddedSupport<B>) -> [Tensor<B, 3>; 2] {
        positive("the C of a logistic regression", self.c);
        let (x, ways) = (support.embeddings.clone(), support.ways);
        let [tasks, examples, _] = x.dims();
        let kernel = product(x.clone(), x.swap_dims(1, 2));
        let (values, constant) = read(&kernel);
        let solutions = by_task(&values, &support.labels, |kernel, labels| {
            Regression::new(kernel, labels, ways, self.c).solve()
        });
        let all =
            |part: fn(&Solution) -> &[f64]| solutions.iter().flat_map(part).copied().collect();
        let by_class = |values: Vec<f64>, each: usize| {
            on_device::<B, 3, 3>(values, [tasks, ways, each], &kernel).swap_dims(1, 2)
        };
        let weights = by_class(all(|task| &task.at.weights), examples);
        let intercepts = by_class(all(|task| &task.at.intercepts), 1);
        if !B::ad_enabled(&kernel.device()) {
            return [weights, intercepts];
        }
        let pull = by_class(all(|task| &task.newton.pull), examples);
        let blocks: Vec<_> = solutions.into_iter().map(|task| task.newton.blocks).collect();
        let derivative = KernelDerivative::new(&blocks, ways, &kernel);
        let [along, shifted] = derivative.along(kernel - constant, weights.clone());
        let moved = (pull * shifted).sum_dim(1);
        let moved = moved.clone() - moved.mean_dim(2);
        [weights - along, intercepts - moved]
    }

    /// Weights `[t, d, ways]` and intercepts `[t, 1, ways]`.
    fn layer<B: Backend>(&self, support: &EmbeddedSupport<B>) -> (Tensor<B, 3>, Tensor<B, 3>) {
        let support = support.with_embeddings(self.scaled(support.embeddings.clone()));
        let [dual, intercepts] = self.solved(&support);
        (product(support.embeddings.swap_dims(1, 2), dual), intercepts)
    }

    fn scaled<B: Backend>(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        if self.unit_length { unit_length(x, 2) } else { x }
    }
}

impl<B: Backend> Head<B> for LogisticRegression {
    const NAME: &'static str = "logistic";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let ways = support.ways;
        let (weights, intercepts) = self.layer(&support);
        let head = self.clone();
        FittedHead::new(ways, move |queries| {
            product(head.scaled(queries), weights.clone()) + intercepts.clone()
        })
    }

    fn formula(&self, support: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        let (weights, intercepts) = self.layer(&support);
        let lengths = match self.unit_length {
            true => LengthNormalisation::Unit,
            false => LengthNormalisation::Given,
        };
        Ok(LogitFormula::linear(lengths, weights, intercepts))
    }

    fn settings(&self) -> Value {
        json!({ "c": self.c, "unit_length": self.unit_length })
    }
}

/// The regression of one task in `a` and `b`, of logits `K a_m + b_m`.
struct Regression<'a> {
    kernel: &'a [f64],
    labels: &'a [usize],
    /// `[ways, n]`.
    targets: Vec<f64>,
    ways: usize,
    c: f64,
}

/// Where Newton's method is, or a step of it.
#[derive(Clone)]
struct Point {
    /// `a`, `[ways, n]`.
    weights: Vec<f64>,
    /// `b`, `[ways]`.
    intercepts: Vec<f64>,
}

/// The system of Newton's method.
struct Newton {
    /// `Q_m` with intercepts eliminated, `Q - Q 1 1^T Q / 1^T Q 1`.
    blocks: ClassBlocks,
    /// `Q 1 / 1^T Q 1`, by which intercepts follow what `Q` is applied to, `[ways, n]`.
    pull: Vec<f64>,
    /// `1^T Q 1`, `[ways]`.
    sums: Vec<f64>,
}

struct Solution {
    at: Point,
    newton: Newton,
}

impl<'a> Regression<'a> {
    fn new(kernel: &'a [f64], labels: &'a [usize], ways: usize, c: f64) -> Self {
        Self { kernel, labels, targets: targets(labels, ways), ways, c }
    }

    /// Newton's method with halved steps, from zero.
    fn solve(&self) -> Solution {
        let examples = self.labels.len();
        let mut at =
            Point { weights: vec![0.0; self.ways * examples], intercepts: vec![0.0; self.ways] };
        for _ in 0..MOST_STEPS {
            let (objective, probabilities) = self.judge(&at);
            let (step, slope) = self.step(&at, &probabilities);
            if -slope < 1e-10 * (1.0 + objective) {
                // So near that a whole step squares the error, which a comparison could not see.
                at = at.after(&step, 1.0);
                break;
            }
            let better = |length: &f64| {
                self.judge(&at.after(&step, *length)).0 <= objective + 1e-4 * length * slope
            };
            let lengths = (0..30).map(|halvings| 0.5_f64.powi(halvings));
            let Some(length) = lengths.into_iter().find(better) else { break };
            at = at.after(&step, length);
        }
        let newton = self.newton(&self.judge(&at).1);
        Solution { at, newton }
    }

    /// Value of the objective, and probabilities `[ways, n]`.
    fn judge(&self, at: &Point) -> (f64, Vec<f64>) {
        let examples = self.labels.len();
        let products = self.products(&at.weights);
        let mut objective = 0.5 * dot(&products, &at.weights);
        let mut probabilities = vec![0.0; products.len()];
        for (i, &label) in self.labels.iter().enumerate() {
            let logit = |class: usize| products[class * examples + i] + at.intercepts[class];
            let most = (0..self.ways).map(logit).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = (0..self.ways).map(|class| (logit(class) - most).exp()).sum();
            objective += self.c * (most + sum.ln() - logit(label));
            for class in 0..self.ways {
                probabilities[class * examples + i] = (logit(class) - most).exp() / sum;
            }
        }
        (objective, probabilities)
    }

    /// `K v_m` for each class.
    fn products(&self, of_classes: &[f64]) -> Vec<f64> {
        let classes = of_classes.chunks(self.labels.len());
        classes.flat_map(|class| times(self.kernel, class)).collect()
    }

    /// Newton's step, and the derivative of the objective along it.
    ///
    /// With `g = a + C (p - y)`, it is `da_m = -g_m + Q_m (K g_m - v - db_m)`, where `v` and `db` are
    /// such that `a` keeps sums of zero over classes and over examples.
    fn step(&self, at: &Point, probabilities: &[f64]) -> (Point, f64) {
        let examples = self.labels.len();
        let errors = probabilities.iter().zip(&self.targets).map(|(p, y)| self.c * (p - y));
        let errors: Vec<f64> = errors.collect();
        let excess: Vec<f64> = errors.chunks(examples).map(|class| class.iter().sum()).collect();
        let gradient: Vec<f64> = errors.iter().zip(&at.weights).map(|(e, a)| a + e).collect();
        let right = self.products(&gradient);
        let Newton { blocks, pull, sums } = self.newton(probabilities);
        let mut total = vec![0.0; examples];
        for (pull, excess) in pull.chunks(examples).zip(&excess) {
            total.iter_mut().zip(pull).for_each(|(total, pull)| *total -= pull * excess);
        }
        let (mut weights, shared) = blocks.solve(&right, &total);
        let mut intercepts = Vec::with_capacity(self.ways);
        for class in 0..self.ways {
            let here = class * examples..(class + 1) * examples;
            let pull = &pull[here.clone()];
            intercepts.push(
                dot(pull, &right[here.clone()]) - dot(pull, &shared) - excess[class] / sums[class],
            );
            let of_class = weights[here.clone()].iter_mut().zip(pull).zip(&gradient[here]);
            of_class.for_each(|((weight, pull), g)| *weight += pull * excess[class] - g);
        }
        let mean = intercepts.iter().sum::<f64>() / self.ways as f64;
        intercepts.iter_mut().for_each(|intercept| *intercept -= mean);
        let slope = dot(&right, &weights) + dot(&excess, &intercepts);
        (Point { weights, intercepts }, slope)
    }

    /// With `Q_m = (K + 1 / (C p_m))^-1`, computed such that `p_m` may be zero.
    fn newton(&self, probabilities: &[f64]) -> Newton {
        let examples = self.labels.len();
        let (mut blocks, mut pull, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for of_class in probabilities.chunks(examples) {
            let root: Vec<f64> = of_class.iter().map(|p| p.max(1e-100).sqrt()).collect();
            let outer = |i: usize| root[i / examples] * root[i % examples];
            let mut block: Vec<f64> =
                self.kernel.iter().enumerate().map(|(i, value)| value * outer(i)).collect();
            block.iter_mut().step_by(examples + 1).for_each(|value| *value += self.c.recip());
            invert(&mut block, examples);
            block.iter_mut().enumerate().for_each(|(i, value)| *value *= outer(i));
            let rows: Vec<f64> = block.chunks(examples).map(|row| row.iter().sum()).collect();
            let sum: f64 = rows.iter().sum();
            let of_sum = |i: usize| rows[i / examples] * (rows[i % examples] / sum);
            block.iter_mut().enumerate().for_each(|(i, value)| *value -= of_sum(i));
            blocks.extend(block);
            pull.extend(rows.iter().map(|row| row / sum));
            sums.push(sum);
        }
        let blocks = ClassBlocks::new(blocks, examples, self.c / examples as f64);
        Newton { blocks, pull, sums }
    }
}

impl Point {
    fn after(&self, step: &Self, length: f64) -> Self {
        Self {
            weights: moved(&self.weights, length, &step.weights),
            intercepts: moved(&self.intercepts, length, &step.intercepts),
        }
    }
}
