use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Tensor};

/// Iterations from one exact start to the next, each of which waits for the device.
const BLOCK: usize = 10;

/// The plan of optimal transport from queries to classes, `P_jk = u_j exp(a_jk) v_k`, in which every
/// query has a mass of 1 and every class the same share of them.
///
/// All that is kept of a plan is `log v`. A block of iterations scales the plan itself, which takes
/// two sums and no exponential; the next one starts from logarithms, so that nothing overflows and
/// what vanished in between comes back. A task that has converged keeps its `v`, whatever the tasks
/// beside it do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sinkhorn {
    /// Largest change of a query's mass in an iteration that ends them.
    pub tolerance: f64,
    /// Most iterations, rounded up to whole blocks.
    pub iterations: usize,
}

impl Sinkhorn {
    /// `log P` of affinities `a` `[ways, t, q]`, in the same shape; the mass of classes is exact.
    pub fn log_plan<B: Backend>(&self, affinities: Tensor<B, 3>) -> Tensor<B, 3> {
        let [_, tasks, queries] = affinities.dims();
        let device = affinities.device();
        let mut state = State {
            // Exact, so that every class has a mass that a block can start with.
            scales: missing(log_softmax(affinities.clone(), 0)),
            masses: Tensor::full([1, tasks, queries], f64::INFINITY, &device),
            active: Tensor::ones([1, tasks, 1], &device),
        };
        for _ in 0..self.iterations.div_ceil(BLOCK) {
            state = self.block(affinities.clone(), state);
            if state.active.clone().max().into_scalar().elem::<f32>() == 0.0 {
                break;
            }
        }
        let plan = log_softmax(affinities + state.scales, 0);
        plan.clone() + missing(plan)
    }

    /// A block of iterations.
    ///
    /// A class whose mass was right has at least the mass `1 / (q ways)` once queries have theirs
    /// again, so that no sum vanishes.
    fn block<B: Backend>(&self, affinities: Tensor<B, 3>, state: State<B>) -> State<B> {
        let [ways, tasks, queries] = affinities.dims();
        let mass = queries as f64 / ways as f64;
        let State { mut scales, mut masses, mut active } = state;
        let logits = affinities + scales.clone();
        let largest = logits.clone().max_dim(0);
        let mut plan = (logits - largest).exp();
        let mut sums = plan.clone().sum_dim(0);
        for _ in 0..BLOCK {
            // As matrices, which a row divides faster than a plane does a cube.
            let rows = sums.reshape([1, tasks * queries]);
            plan = (plan.reshape([ways, tasks * queries]) / rows).reshape([ways, tasks, queries]);
            let gain = plan.clone().sum_dim(2).recip() * mass;
            plan = plan * gain.clone();
            sums = plan.clone().sum_dim(0);
            scales = scales + gain.log() * active.clone();
            let moved = (sums.clone() - masses).abs().max_dim(2);
            active = active * moved.greater_elem(self.tolerance).float();
            masses = sums.clone();
        }
        State { scales, masses, active }
    }
}

/// What one block leaves to the next.
struct State<B: Backend> {
    /// `log v`, `[ways, t, 1]`.
    scales: Tensor<B, 3>,
    /// Of the queries, `[1, t, q]`.
    masses: Tensor<B, 3>,
    /// 1 for tasks that have not converged, and 0 for others, `[1, t, 1]`.
    active: Tensor<B, 3>,
}

/// What the logarithms of a plan `[ways, t, q]` lack for classes of the same mass, `[ways, t, 1]`.
fn missing<B: Backend>(plan: Tensor<B, 3>) -> Tensor<B, 3> {
    let [ways, _, queries] = plan.dims();
    let largest = plan.clone().max_dim(2);
    let sums = (plan - largest.clone()).exp().sum_dim(2).log() + largest;
    sums.neg() + (queries as f64 / ways as f64).ln()
}
