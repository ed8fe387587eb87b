use burn::tensor::backend::Backend;
use fewshot::hardware::{
    Calibration, DeviceInfo, DevicePreference, Effort, HardwareError, Tier, Work, guarded, run_on,
};
use serde_json::{Value, json};

use super::args::BenchArgs;
use crate::cli::backend;
use crate::cli::error::CliError;
use crate::cli::output::{print, print_status};

/// Measuring whichever device it is.
pub(super) struct Measure(pub(super) Effort);

impl Work for Measure {
    type Output = Result<Calibration, HardwareError>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        guarded::<B, _>(&device, || Calibration::measure::<B>(&device, self.0))
    }
}

pub(super) fn run(args: &BenchArgs) -> Result<(), CliError> {
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    let mut measured = Vec::new();
    for device in devices(args)? {
        if args.json {
            print_status(format_args!("measuring {} ({})", device.key, device.name));
        } else {
            print(format_args!("{} ({})", device.key, device.name))?;
        }
        let found = run_on(&device.key, Measure(effort))??;
        if !args.json {
            print(calibration_text(&found))?;
        }
        measured.push((device, found));
    }
    let crossings = crossings(&measured);
    if args.json {
        return print(report(&measured, &crossings));
    }
    for (accelerator, processor, size) in crossings {
        print(match size {
            Some(size) => format!("{accelerator} overtakes {processor} at products of {size} rows"),
            None => format!("{accelerator} overtakes {processor} at no size that was measured"),
        })?;
    }
    Ok(())
}

fn devices(args: &BenchArgs) -> Result<Vec<DeviceInfo>, CliError> {
    let inventory = backend::inventory(&DevicePreference::Auto);
    if args.devices.is_empty() {
        let hardware = inventory.devices.into_iter().filter(|info| info.tier != Tier::Software);
        return Ok(hardware.collect());
    }
    let chosen = args.devices.iter().map(|wanted| Ok(inventory.select(wanted)?.device));
    chosen.collect()
}

/// What was measured, a line each.
pub(crate) fn calibration_text(found: &Calibration) -> String {
    let mut lines = Vec::new();
    for (dtype, rate) in &found.products {
        let way = found.ways.get(dtype).map(|way| format!("  ({way})")).unwrap_or_default();
        lines.push(format!("  products in {dtype:<5}{:>10.1} GFLOP/s{way}", rate / 1e9));
    }
    let copied = found.copied;
    lines.push(format!(
        "  copy             {:>10.1} GB/s  ({copied}, bytes read and written)",
        found.copy / 1e9
    ));
    lines.push(format!("  launch           {:>10.1} us", found.launch * 1e6));
    if let Some(issue) = found.issue {
        lines.push(format!("  launch, to issue {:>10.1} us", issue * 1e6));
    }
    for (rows, seconds) in &found.squares {
        lines.push(format!("  {:<17}{:>10.1} us", format!("{rows} x {rows}"), seconds * 1e6));
    }
    lines.join("\n")
}

type Crossing = (String, String, Option<usize>);

/// Where each device that is not the processor's best overtakes it.
fn crossings(measured: &[(DeviceInfo, Calibration)]) -> Vec<Crossing> {
    let processor = measured.iter().find(|(info, _)| info.tier == Tier::Cpu);
    let Some((cpu, slow)) = processor else { return Vec::new() };
    let others = measured.iter().filter(|(info, _)| info.tier != Tier::Cpu);
    let crossing = |(info, fast): &(DeviceInfo, Calibration)| {
        (info.key.to_string(), cpu.key.to_string(), fast.crossover(slow))
    };
    others.map(crossing).collect()
}

fn report(measured: &[(DeviceInfo, Calibration)], crossings: &[Crossing]) -> Value {
    let devices = measured.iter().map(
        |(info, found)| json!({ "device": info.key, "name": info.name, "calibration": found }),
    );
    let crossings = crossings.iter().map(|(accelerator, processor, size)| {
        json!({ "device": accelerator, "against": processor, "rows": size })
    });
    json!({
        "threads": rayon::current_num_threads(),
        "devices": devices.collect::<Vec<_>>(),
        "crossover": crossings.collect::<Vec<_>>(),
    })
}
