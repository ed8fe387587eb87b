use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::product;
use serde_json::{Value, json};

use super::checked::{not_zero, positive};
use super::class_blocks::{ClassBlocks, KernelDerivative, by_task, dot, moved, targets, times};
use super::linear_solve::{on_device, read};
use super::{EmbeddedSupport, FittedHead, Head, LengthNormalisation, LogitFormula, NoFormula};

/// Iterations after which a quadratic programme is left as it is; it takes 10 to 20.
const MOST_ITERATIONS: usize = 60;

/// A multi-class support vector machine on embeddings, through which the encoder learns.
///
/// `logits(x) = scale sum_i a_i <x_i, x>`, where `a`, `[n, ways]`, is the solution of the dual of
/// Crammer and Singer's machine:
///
/// minimise `1/2 sum_k |sum_i a_ik x_i|^2 + ridge/2 |a|^2 - sum_i a_i,y(i)`
/// subject to `a_ik <= C` at an example's own class, `a_ik <= 0` at others, and `sum_k a_ik = 0`.
///
/// The programme is solved by an interior point method in f64 on the host, after one reading of the
/// kernels, and differentiated by the implicit function theorem at its solution. The scale is learned
/// with the encoder. Logits can be differentiated twice.
///
/// # Conventions
/// `C` = 0.1 as in the paper. The ridge of 1 is the authors' code's, also LibFewShot's; the paper has
/// none. Without it `a` is not unique where examples are linearly dependent. In training the authors
/// smooth labels by 0.1, which is left to the loss. Their ridge regression is an
/// [`R2d2`](super::R2d2).
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::Tensor};
/// # use fewshot::learners::heads::{EmbeddedSupport, Head, MetaOptNet};
/// # let device = Default::default();
/// let support = Tensor::<Flex, 3>::from_data([[[1.0, 0.0], [0.0, 1.0]]], &device);
/// let support = EmbeddedSupport::new(support, Tensor::from_data([[0, 1]], &device), 2);
/// let head = MetaOptNet::new(&device).fit(support);
/// let logits = head.logits(Tensor::from_data([[[1.0, 0.0]]], &device));
/// let expected = Tensor::<Flex, 3>::from_data([[[0.1, -0.1]]], &device);
/// assert!((logits - expected).abs().max().into_scalar() < 1e-6);
/// ```
///
/// # Source
/// Lee, Maji, Ravichandran and Soatto, "Meta-Learning with Differentiable Convex Optimization", CVPR
/// 2019; the machine is of Crammer and Singer, "On the Algorithmic Implementation of Multiclass
/// Kernel-based Vector Machines", JMLR 2001.
#[derive(Module, Debug)]
pub struct MetaOptNet<B: Backend> {
    /// Factor of the sums, `[1]`; [`with_scale`](Self::with_scale) starts it elsewhere.
    pub scale: Param<Tensor<B, 1>>,
    /// `C`, the bound of the dual, above 0: the price of an error.
    pub c: f64,
    /// The ridge, above 0; the paper's formula is the limit of small ones.
    pub ridge: f64,
}

impl<B: Backend> MetaOptNet<B> {
    /// With the published `C` of 0.1, and a scale that is 1 before training.
    pub fn new(device: &B::Device) -> Self {
        Self { scale: Param::from_tensor(Tensor::ones([1], device)), c: 0.1, ridge: 1.0 }
    }

    /// With another scale to start from.
    ///
    /// # Panics
    /// When it is zero or not finite.
    pub fn with_scale(self, scale: f64) -> Self {
        not_zero("the scale of MetaOptNet", scale);
        Self { scale: self.scale.map(|old| old.full_like(scale).require_grad()), ..self }
    }

    /// The duals' solutions `[t, n, ways]`.
    fn weights(&self, support: &EmbeddedSupport<B>) -> Tensor<B, 3> {
        positive("the C of a machine", self.c);
        positive("the ridge of a machine", self.ridge);
        assert_eq!(self.scale.dims(), [1], "MetaOptNet has one scale");
        let (x, ways) = (support.embeddings.clone(), support.ways);
        let [tasks, examples, _] = x.dims();
        let kernel = product(x.clone(), x.swap_dims(1, 2));
        let (values, constant) = read(&kernel);
        let solved = by_task(&values, &support.labels, |kernel, labels| {
            QuadraticProgram::new(kernel, labels, ways, self.c, self.ridge).solve()
        });
        let (weights, blocks): (Vec<_>, Vec<_>) = solved.into_iter().unzip();
        let weights = on_device(weights.concat(), [tasks, ways, examples], &kernel).swap_dims(1, 2);
        if !B::ad_enabled(&kernel.device()) {
            return weights;
        }
        let derivative = KernelDerivative::new(&blocks, ways, &kernel);
        let change = kernel - constant;
        // Near the solution a = a0 - S(dK a): put into itself twice, it has two exact derivatives.
        (0..2).fold(weights.clone(), |found, _| {
            let [along, _] = derivative.along(change.clone(), found);
            weights.clone() - along
        })
    }

    /// Weights of the classes, `[t, d, ways]`.
    fn class_weights(&self, support: EmbeddedSupport<B>) -> Tensor<B, 3> {
        let dual = self.weights(&support);
        let scale = self.scale.val().unsqueeze::<3>();
        product(support.embeddings.swap_dims(1, 2), dual) * scale
    }
}

impl<B: Backend> Head<B> for MetaOptNet<B> {
    const NAME: &'static str = "meta-opt-net";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let ways = support.ways;
        let weights = self.class_weights(support);
        FittedHead::new(ways, move |queries| product(queries, weights.clone()))
    }

    fn formula(&self, support: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        Ok(LogitFormula::products(LengthNormalisation::Given, self.class_weights(support)))
    }

    fn settings(&self) -> Value {
        json!({ "c": self.c, "ridge": self.ridge })
    }
}

/// The dual of one task in `z = a / unit`, the unit such that nothing in it is large.
struct QuadraticProgram {
    ways: usize,
    examples: usize,
    unit: f64,
    /// `unit (K + ridge I)`.
    kernel: Vec<f64>,
    /// Linear term, `[ways, n]`.
    targets: Vec<f64>,
    /// Bound of `z` at an example's own class.
    bound: f64,
}

/// Where the interior point method is, or a step of it.
struct Point {
    z: Vec<f64>,
    /// Distance of `z` to its bounds, `[ways, n]`.
    slack: Vec<f64>,
    /// Multipliers of the bounds, `[ways, n]`.
    multipliers: Vec<f64>,
    /// Multipliers of the sums over classes, `[n]`.
    shared: Vec<f64>,
}

impl QuadraticProgram {
    fn new(kernel: &[f64], labels: &[usize], ways: usize, c: f64, ridge: f64) -> Self {
        let examples = labels.len();
        let trace: f64 = kernel.iter().step_by(examples + 1).sum();
        let unit = c.min((trace / examples as f64 + ridge).recip());
        let mut kernel: Vec<f64> = kernel.iter().map(|value| unit * value).collect();
        kernel.iter_mut().step_by(examples + 1).for_each(|value| *value += unit * ridge);
        Self { ways, examples, unit, kernel, targets: targets(labels, ways), bound: c / unit }
    }

    /// `a` `[ways, n]`, and the blocks of its derivative by the kernel.
    ///
    /// Mehrotra's predictor and corrector, inside the bounds from the start.
    fn solve(&self) -> (Vec<f64>, ClassBlocks) {
        let mut at = self.start();
        for _ in 0..MOST_ITERATIONS {
            let (gap, residual) = (at.gap(), self.residual(&at));
            if gap < 1e-14 && residual.iter().all(|value| value.abs() < 1e-10) {
                break;
            }
            let blocks = self.blocks(&at);
            let now: Vec<f64> = at.slack.iter().zip(&at.multipliers).map(|(s, p)| s * p).collect();
            let change: Vec<f64> = now.iter().map(|product| -product).collect();
            let predicted = at.direction(&blocks, &residual, &change);
            let left = at.after(&predicted, at.longest(&predicted)).gap();
            let centre = gap * (left / gap).powi(3);
            let bent = predicted.slack.iter().zip(&predicted.multipliers).map(|(s, p)| s * p);
            let change: Vec<f64> =
                now.iter().zip(bent).map(|(p, bent)| centre - p - bent).collect();
            let step = at.direction(&blocks, &residual, &change);
            at = at.after(&step, 0.995 * at.longest(&step));
        }
        let mut blocks = self.blocks(&at);
        blocks.blocks.iter_mut().for_each(|value| *value *= self.unit);
        blocks.coupling.iter_mut().for_each(|value| *value /= self.unit);
        (at.z.iter().map(|z| z * self.unit).collect(), blocks)
    }

    /// A point well inside the bounds, which are 0, and 1 or more.
    fn start(&self) -> Point {
        let own = if self.ways == 1 { 0.0 } else { 0.5 };
        let other = -0.5 / (self.ways as f64 - 1.0);
        let z: Vec<f64> = self.targets.iter().map(|y| if *y > 0.0 { own } else { other }).collect();
        let limits = self.targets.iter().map(|target| target * self.bound);
        let slack: Vec<f64> = limits.zip(&z).map(|(limit, z)| limit - z).collect();
        let multipliers = slack.iter().map(|slack| 0.1 / slack).collect();
        Point { z, slack, multipliers, shared: vec![0.0; self.examples] }
    }

    /// Derivative of the Lagrangian by `z`.
    fn residual(&self, at: &Point) -> Vec<f64> {
        let products = at.z.chunks(self.examples).flat_map(|z| times(&self.kernel, z));
        let rest = self.targets.iter().zip(&at.multipliers).zip(at.shared.iter().cycle());
        products
            .zip(rest)
            .map(|(product, ((y, multiplier), v))| product - y + multiplier + v)
            .collect()
    }

    /// Inverses of `kernel + multipliers / slack`.
    fn blocks(&self, at: &Point) -> ClassBlocks {
        let barrier =
            at.multipliers.iter().zip(&at.slack).map(|(multiplier, slack)| multiplier / slack);
        let barrier: Vec<f64> = barrier.collect();
        ClassBlocks::from_sums(&self.kernel, barrier.chunks(self.examples))
    }
}

impl Point {
    /// Mean product of slack and multiplier, zero at the solution.
    fn gap(&self) -> f64 {
        dot(&self.slack, &self.multipliers) / self.slack.len() as f64
    }

    /// Newton's step to where there is no residual and slack times multiplier has changed by `change`.
    fn direction(&self, blocks: &ClassBlocks, residual: &[f64], change: &[f64]) -> Self {
        let right = residual.iter().zip(change).zip(&self.slack);
        let right: Vec<f64> = right.map(|((residual, change), s)| -residual - change / s).collect();
        let (z, shared) = blocks.solve(&right, &vec![0.0; self.shared.len()]);
        let multipliers = change.iter().zip(&self.multipliers).zip(z.iter().zip(&self.slack));
        let multipliers = multipliers
            .map(|((change, multiplier), (z, s))| (change + multiplier * z) / s)
            .collect();
        Self { slack: z.iter().map(|z| -z).collect(), z, multipliers, shared }
    }

    /// The longest step, 1 at most, after which no slack and no multiplier is negative.
    fn longest(&self, step: &Self) -> f64 {
        let values = self.slack.iter().chain(&self.multipliers);
        let falling =
            values.zip(step.slack.iter().chain(&step.multipliers)).filter(|(_, by)| **by < 0.0);
        falling.map(|(value, by)| -value / by).fold(1.0, f64::min)
    }

    fn after(&self, step: &Self, length: f64) -> Self {
        Self {
            z: moved(&self.z, length, &step.z),
            slack: moved(&self.slack, length, &step.slack),
            multipliers: moved(&self.multipliers, length, &step.multipliers),
            shared: moved(&self.shared, length, &step.shared),
        }
    }
}
