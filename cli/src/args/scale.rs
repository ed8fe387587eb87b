//! Use of the hardware in training: precision, memory and replicas.

use clap::Args;
use fewshot::hardware::{Checkpointing, SearchBudget};
use fewshot::parallel::Reduction;
use fewshot::precision::Precision;

use super::{checkpointing, count, one_of, steps};
use crate::method::{Family, Method};
use crate::prelude::*;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Use of the hardware")]
pub(crate) struct ScaleArgs {
    /// Type of numbers in convolutions and, if f16 or bf16 on a CPU, in linear layers; all else is f32, and f16
    /// has a scaled loss
    #[arg(long, default_value = "f32", value_parser = one_of([
        ("f32", "All of it", Precision::F32),
        ("tf32", "Convolutions in TF32, on tensor cores", Precision::Tf32),
        ("f16", "Products in f16", Precision::MixedF16),
        ("bf16", "Products in bf16", Precision::MixedBf16),
    ]))]
    pub(crate) precision: Precision,
    /// Values to compute again in the backward pass rather than keep: none, balanced (what costs
    /// little) or segments (of protonet, every block of the network)
    #[arg(long, value_name = "WHAT", default_value = "none", value_parser = checkpointing())]
    pub(crate) grad_checkpoint: Checkpointing,
    /// Meta-batches in a step, one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = steps(1..=65_536))]
    pub(crate) accumulate: u64,
    /// Tasks that are differentiated at once: less memory, and the same results whatever the number
    /// of devices and processes [default: a meta-batch, or the share of a
    /// device; on an accelerator as many of these as fit, in every process]
    #[arg(long, value_name = "T", value_parser = count(1..=65_536))]
    pub(crate) micro_batch: Option<usize>,
    /// Find the largest --micro-batch that fits the memory, by trying
    #[arg(long, conflicts_with = "micro_batch")]
    pub(crate) auto_batch: bool,
    /// Share of the memory that --auto-batch leaves free beside what steps took when it tried them
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = SearchBudget::KEEP_FREE,
        requires = "auto_batch",
        value_parser = share
    )]
    pub(crate) auto_batch_margin: f64,
    /// Devices of the backend that share the tasks of a step, as 0,1
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', conflicts_with = "device")]
    pub(crate) devices: Vec<usize>,
    /// Sum of the gradients of processes: exact, the same bits whatever their number, or fast, by
    /// MPI's own sum, with less to send
    #[arg(long, value_name = "HOW", default_value = "exact", value_parser = one_of([
        ("exact", "The same bits whatever their number", Reduction::Exact),
        ("fast", "MPI's own sum", Reduction::Fast),
    ]))]
    pub(crate) reduction: Reduction,
    /// Tell what each phase of a step takes, waiting for the device after each
    #[arg(long)]
    pub(crate) profile: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "write a share from 0 to below 1, as 0.05".to_owned())
}

impl ScaleArgs {
    pub(crate) fn check(&self, method: Method) -> Result {
        if self.grad_checkpoint == Checkpointing::Segments && method != Method::Protonet {
            let or_chain = match method.family() {
                Family::InnerLoop => {
                    ", or --second-order-route chain if it differentiates whole inner steps"
                }
                _ => "",
            };
            return Err(usage!(
                "--grad-checkpoint segments is for protonet; for {method}, use none or \
                 balanced{or_chain}"
            ));
        }
        for (index, device) in self.devices.iter().enumerate() {
            if self.devices[..index].contains(device) {
                return Err(usage!("--devices names {device} twice"));
            }
        }
        Ok(())
    }
}
