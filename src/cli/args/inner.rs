use clap::{Args, ValueEnum};

use super::{count, steps};

/// Whether the outer gradient goes through the inner gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderName {
    /// Inner gradients are constants
    First,
    /// The exact derivative
    Second,
}

/// How the exact derivative is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RouteName {
    /// Step by step, with memory for one
    Chain,
    /// By the graph of the whole inner loop
    Unrolled,
}

/// Inner loops of the methods that have one.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Inner loop (maml and its relatives)")]
pub(crate) struct InnerArgs {
    /// Inner learning rate [default: the paper's, see below]
    #[arg(long, value_name = "RATE")]
    pub(crate) inner_lr: Option<f64>,
    /// Inner steps in training [default: the paper's, see below]
    #[arg(long, value_name = "N", value_parser = count(1..=1000))]
    pub(crate) inner_steps: Option<usize>,
    /// Inner steps in the test [default: the paper's, see below]
    #[arg(long, value_name = "N", value_parser = count(0..=1000))]
    pub(crate) eval_inner_steps: Option<usize>,
    /// Whether the outer gradient goes through the inner ones [default: second, of fomaml first]
    #[arg(long, value_enum)]
    pub(crate) order: Option<OrderName>,
    /// How the exact derivative is computed; the result is the same [default: chain, for
    /// sinusoids unrolled]
    #[arg(long, value_enum, value_name = "ROUTE")]
    pub(crate) second_order_route: Option<RouteName>,
    /// Strength of imaml's proximal term [default: 2]
    #[arg(long, value_name = "STRENGTH")]
    pub(crate) proximal: Option<f64>,
    /// Iterations of imaml's conjugate gradients [default: 5]
    #[arg(long, value_name = "N", value_parser = count(1..=1000))]
    pub(crate) cg_steps: Option<usize>,
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
    /// for sinusoids 64; all on an accelerator]
    #[arg(long, value_name = "N", value_parser = count(1..=65_536))]
    pub(crate) lanes: Option<usize>,
}

impl InnerArgs {
    /// The first option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let options = [
            ("--inner-lr", self.inner_lr.is_some()),
            ("--inner-steps", self.inner_steps.is_some()),
            ("--eval-inner-steps", self.eval_inner_steps.is_some()),
            ("--order", self.order.is_some()),
            ("--second-order-route", self.second_order_route.is_some()),
            ("--proximal", self.proximal.is_some()),
            ("--cg-steps", self.cg_steps.is_some()),
            ("--multi-step-loss", self.multi_step_loss.is_some()),
            ("--first-order-steps", self.first_order_steps.is_some()),
            ("--inner-batch", self.inner_batch.is_some()),
            ("--eval-inner-batch", self.eval_inner_batch.is_some()),
            ("--lanes", self.lanes.is_some()),
        ];
        options.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}
