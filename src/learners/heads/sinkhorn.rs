//! Optimal transport from queries to classes.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use rayon::prelude::*;

use super::linear_solve::{on_device, read};

/// Iterations from one exact start to the next.
const BLOCK: usize = 10;

/// The plan of optimal transport from queries to classes, `P_jk = u_j exp(a_jk) v_k`, in which every
/// query has a mass of 1 and every class the same share of them.
///
/// All that is kept of a plan is `log v`. A block of iterations scales the plan itself, without an
/// exponential; the next one starts from logarithms, so that nothing overflows and what vanished in
/// between comes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sinkhorn {
    /// Largest change of a query's mass in an iteration that ends them.
    pub tolerance: f64,
    /// Most iterations, rounded up to whole blocks.
    pub iterations: usize,
}

impl Sinkhorn {
    /// `P` of affinities `a` `[t, ways, q]`, in the same shape; the mass of classes is exact.
    pub fn plan<B: Backend>(&self, affinities: Tensor<B, 3>) -> Tensor<B, 3> {
        host_constant(&affinities, |affinities, ways| self.solve(affinities, ways).0)
    }

    /// `log P`, finite where `P` vanishes.
    pub fn log_plan<B: Backend>(&self, affinities: Tensor<B, 3>) -> Tensor<B, 3> {
        host_constant(&affinities, |affinities, ways| self.log_solution(affinities, ways))
    }

    fn log_solution(&self, affinities: &[f64], ways: usize) -> Vec<f64> {
        let (_, scales) = self.solve(affinities, ways);
        let mut logs = log_shares(affinities, &scales);
        let queries = affinities.len() / ways;
        let missing = missing(&logs, ways);
        for (logs, missing) in logs.chunks_exact_mut(queries).zip(missing) {
            logs.iter_mut().for_each(|log| *log += missing);
        }
        logs
    }

    /// `P`, and `log v`.
    fn solve(&self, affinities: &[f64], ways: usize) -> (Vec<f64>, Vec<f64>) {
        let queries = affinities.len() / ways;
        let mass = queries as f64 / ways as f64;
        // From logarithms, so that every class has a mass that can be scaled.
        let mut scales = missing(&log_shares(affinities, &vec![0.0; ways]), ways);
        let mut plan = Vec::new();
        let (mut sums, mut before) = (vec![0.0; queries], vec![f64::INFINITY; queries]);
        for iteration in 0..self.iterations.div_ceil(BLOCK) * BLOCK {
            if iteration % BLOCK == 0 {
                plan = shares(affinities, &scales);
            } else {
                for plan in plan.chunks_exact_mut(queries) {
                    plan.iter_mut().zip(&before).for_each(|(share, sum)| *share /= sum);
                }
            }
            sums.fill(0.0);
            for (plan, scale) in plan.chunks_exact_mut(queries).zip(&mut scales) {
                let gain = mass / plan.iter().sum::<f64>();
                *scale += gain.ln();
                for (share, sum) in plan.iter_mut().zip(&mut sums) {
                    *share *= gain;
                    *sum += *share;
                }
            }
            let changes = sums.iter().zip(&before).map(|(now, before)| (now - before).abs());
            let change = changes.fold(0.0, f64::max);
            std::mem::swap(&mut sums, &mut before);
            if change <= self.tolerance {
                break;
            }
        }
        (plan, scales)
    }
}

/// A constant of what `solution` makes of the affinities `[ways, q]` of each task, in f64 on the host.
fn host_constant<B: Backend>(
    affinities: &Tensor<B, 3>,
    solution: impl Fn(&[f64], usize) -> Vec<f64> + Sync,
) -> Tensor<B, 3> {
    let [tasks, ways, queries] = affinities.dims();
    let (values, _) = read(affinities);
    let tasks_of = values.par_chunks_exact(ways * queries);
    let plans: Vec<_> = tasks_of.map(|affinities| solution(affinities, ways)).collect();
    on_device(plans.concat(), [tasks, ways, queries], affinities)
}

/// `a + log v`.
fn scaled(affinities: &[f64], scales: &[f64]) -> Vec<f64> {
    let of_class = affinities.chunks_exact(affinities.len() / scales.len()).zip(scales);
    of_class.flat_map(|(of, scale)| of.iter().map(move |near| near + scale)).collect()
}

/// `P` of queries with a mass of 1, for given `log v`.
fn shares(affinities: &[f64], scales: &[f64]) -> Vec<f64> {
    let queries = affinities.len() / scales.len();
    let mut plan = scaled(affinities, scales);
    let (mut most, mut sums) = (plan[..queries].to_vec(), vec![0.0; queries]);
    for logs in plan.chunks_exact(queries) {
        most.iter_mut().zip(logs).for_each(|(most, log)| *most = most.max(*log));
    }
    for plan in plan.chunks_exact_mut(queries) {
        for ((share, most), sum) in plan.iter_mut().zip(&most).zip(&mut sums) {
            *share = (*share - most).exp();
            *sum += *share;
        }
    }
    for plan in plan.chunks_exact_mut(queries) {
        plan.iter_mut().zip(&sums).for_each(|(share, sum)| *share /= sum);
    }
    plan
}

/// `log P` of queries with a mass of 1.
fn log_shares(affinities: &[f64], scales: &[f64]) -> Vec<f64> {
    let queries = affinities.len() / scales.len();
    let mut logs = scaled(affinities, scales);
    for query in 0..queries {
        let log_sum = log_sum_exp(logs[query..].iter().step_by(queries));
        logs[query..].iter_mut().step_by(queries).for_each(|log| *log -= log_sum);
    }
    logs
}

/// Logarithms of the factors that give the classes of a plan with `logs` `[ways, q]` the same mass, `[ways]`.
fn missing(logs: &[f64], ways: usize) -> Vec<f64> {
    let queries = logs.len() / ways;
    let log_mass = (queries as f64 / ways as f64).ln();
    logs.chunks_exact(queries).map(|logs| log_mass - log_sum_exp(logs.iter())).collect()
}

fn log_sum_exp<'a>(logs: impl Iterator<Item = &'a f64> + Clone) -> f64 {
    let most = logs.clone().copied().fold(f64::NEG_INFINITY, f64::max);
    most + logs.map(|log| (log - most).exp()).sum::<f64>().ln()
}
