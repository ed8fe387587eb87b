//! Figures of a training: the most memory, and the time of each phase of a step.

use fewshot::hardware::{MemoryScope, Tier};
use fewshot::train::TrainingReport;

use crate::prelude::*;

/// Runs `training`, and measures the most memory in use meanwhile, in MB of 1e6 bytes; on an
/// accelerator, where that takes time, only with `profile`.
pub(super) fn with_peak<B: AutodiffBackend, T>(
    hardware: &HardwareManager<B::InnerBackend>,
    profile: bool,
    training: impl FnOnce() -> T,
) -> (T, Option<f64>) {
    if hardware.info().tier != Tier::Cpu && !profile {
        return (training(), None);
    }
    let (trained, report) = MemoryScope::measure::<B, _>(hardware.device(), training);
    let peak = report.before.in_use.zip(report.peak);
    (trained, peak.map(|(before, peak)| rounded((before.0 + peak.0) as f64 / 1e6, 1)))
}

pub(super) fn used(report: &TrainingReport, peak_memory_mb: Option<f64>) -> Value {
    let mut phases = serde_json::to_value(report.phase_ms.rounded()).expect("plain data");
    phases["other"] = rounded(report.other_ms, 3).into();
    json!({
        "precision": report.precision.dtype(),
        "loss_scale": report.loss_scale,
        "skipped_steps": report.skipped_steps,
        "replicas": report.replicas,
        "data_on": report.data_on,
        "phase_ms": phases,
        "peak_memory_mb": peak_memory_mb,
    })
}

pub(super) fn tell_profile(report: &TrainingReport) {
    print_status(format_args!(
        "a step, validations and checkpoints in proportion:\n{}",
        report.phase_ms
    ));
    let total = report.phase_ms.total() + report.other_ms;
    let share = 100.0 * report.other_ms / total;
    print_status(format_args!("{:<9} {:10.3} ms, {share:.1} % of all", "other", report.other_ms));
}
