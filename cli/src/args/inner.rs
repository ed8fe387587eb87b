use clap::Args;
use fewshot::adapt::{Order, SecondOrder};

use super::{count, first_given, one_of, steps};

/// Inner loops of the methods that have one.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Inner loop (maml and its relatives)")]
pub(crate) struct InnerArgs {
    /// Inner learning rate [default: of the method, see below]
    #[arg(long, value_name = "RATE")]
    pub(crate) inner_lr: Option<f64>,
    /// Inner steps in training [default: of the method, see below]
    #[arg(long, value_name = "N", value_parser = count(1..=1000))]
    pub(crate) inner_steps: Option<usize>,
    /// Inner steps in the test [default: of the method, see below]
    #[arg(long, value_name = "N", value_parser = count(0..=1000))]
    pub(crate) eval_inner_steps: Option<usize>,
    /// Order of the outer gradient: through the inner gradients or not [default: second, of fomaml first]
    #[arg(long, value_parser = one_of([
        ("first", "Inner gradients are constants", Order::First),
        ("second", "The exact derivative", Order::Second),
    ]))]
    pub(crate) order: Option<Order>,
    /// Route by which the exact derivative is computed; the result is the same [default: unrolled]
    #[arg(long, value_name = "ROUTE", value_parser = one_of([
        ("unrolled", "By the graph of the whole inner loop", SecondOrder::Unrolled),
        ("chain", "Step by step, with memory for one", SecondOrder::Chain),
    ]))]
    pub(crate) second_order_route: Option<SecondOrder>,
    /// Strength of imaml's proximal term [default: 2]
    #[arg(long, value_name = "STRENGTH")]
    pub(crate) proximal: Option<f64>,
    /// Iterations of imaml's conjugate gradients [default: 5]
    #[arg(long, value_name = "N", value_parser = count(1..=1000))]
    pub(crate) cg_steps: Option<usize>,
    /// imaml as in its authors' code: inner steps without the proximal term, one of it after them in
    /// training, and damped conjugate gradients
    #[arg(long)]
    pub(crate) damped: bool,
    /// Meta-steps in which maml++ has the loss after every inner step, less and less [default:
    /// 5000, for larger images 7500]
    #[arg(long, value_name = "N", value_parser = steps(0..))]
    pub(crate) multi_step_loss: Option<u64>,
    /// Meta-steps of first order that maml++ begins with [default: 0]
    #[arg(long, value_name = "N", value_parser = steps(0..))]
    pub(crate) first_order_steps: Option<u64>,
    /// Examples in an inner step of reptile [default: 10]
    #[arg(long, value_name = "N", value_parser = count(1..=65_536))]
    pub(crate) inner_batch: Option<usize>,
    /// Examples in an inner step of reptile's test [default: 5]
    #[arg(long, value_name = "N", value_parser = count(1..=65_536))]
    pub(crate) eval_inner_batch: Option<usize>,
    /// Tasks that share a network: more are faster on large devices and take memory [default: 4,
    /// for sinusoids 64, of anil twice as many; all on an accelerator]
    #[arg(long, value_name = "N", value_parser = count(1..=65_536))]
    pub(crate) lanes: Option<usize>,
}

impl InnerArgs {
    /// The first option that was given.
    pub(crate) fn given(&self) -> Option<String> {
        let first = first_given!(self, inner_lr, inner_steps, eval_inner_steps, order);
        let implicit = first_given!(self, second_order_route, proximal, cg_steps, damped);
        let annealing = first_given!(self, multi_step_loss, first_order_steps);
        let others = first_given!(self, inner_batch, eval_inner_batch, lanes);
        first.or(implicit).or(annealing).or(others)
    }
}
