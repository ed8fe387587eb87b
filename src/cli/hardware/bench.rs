use fewshot::hardware::{
    Calibration, DeviceInfo, DevicePreference, Effort, HardwareError, Tier, Work, guarded, run_on,
};

use super::args::BenchArgs;
use crate::cli::output::tell;
use crate::cli::prelude::*;

/// Measuring whichever device it is.
pub(super) struct Measure(pub(super) Effort);

impl Work for Measure {
    type Output = Result<Calibration, HardwareError>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        guarded::<B, _>(&device, || Calibration::measure::<B>(&device, self.0))
    }
}

pub(super) fn run(args: &BenchArgs) -> Result {
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    let mut measured = Vec::new();
    for device in devices(args)? {
        tell(args.json, format_args!("{} ({})", device.key, device.name))?;
        let found = run_on(&device.key, Measure(effort))??;
        if !args.json {
            print(calibration_text(&found))?;
        }
        measured.push((device, found));
    }
    // Where each device that is not the processor's best overtakes it.
    let processor = measured.iter().find(|(info, _)| info.tier == Tier::Cpu);
    let others = measured.iter().filter(|(info, _)| info.tier != Tier::Cpu);
    let crossings: Vec<_> = processor
        .into_iter()
        .flat_map(|(cpu, slow)| {
            let crossing = |(info, fast): &(DeviceInfo, Calibration)| {
                (info.key.clone(), cpu.key.clone(), fast.crossover(slow))
            };
            others.clone().map(crossing)
        })
        .collect();
    if args.json {
        let devices = measured.iter().map(
            |(info, found)| json!({ "device": info.key, "name": info.name, "calibration": found }),
        );
        let crossings = crossings.iter().map(
            |(device, against, rows)| json!({ "device": device, "against": against, "rows": rows }),
        );
        return print(json!({
            "threads": rayon::current_num_threads(),
            "devices": devices.collect::<Vec<_>>(),
            "crossover": crossings.collect::<Vec<_>>(),
        }));
    }
    for (accelerator, processor, size) in crossings {
        let size = size.map_or("no size that was measured".to_owned(), |size| {
            format!("products of {size} rows")
        });
        print(format_args!("{accelerator} overtakes {processor} at {size}"))?;
    }
    Ok(())
}

fn devices(args: &BenchArgs) -> Result<Vec<DeviceInfo>> {
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
    let mut text = String::new();
    for (dtype, rate) in &found.products {
        let way = found.ways.get(dtype).map(|way| format!("  ({way})")).unwrap_or_default();
        text += &format!("  products in {dtype:<5}{:>10.1} GFLOP/s{way}\n", rate / 1e9);
    }
    let (copy, copied) = (found.copy / 1e9, found.copied);
    text += &format!("  copy             {copy:>10.1} GB/s  ({copied}, bytes read and written)");
    let squares = found.squares.iter().map(|(rows, time)| (format!("{rows} x {rows}"), *time));
    let issue = found.issue.map(|time| ("launch, to issue".to_owned(), time));
    for (what, time) in
        [("launch".to_owned(), found.launch)].into_iter().chain(issue).chain(squares)
    {
        text += &format!("\n  {what:<17}{:>10.1} us", time * 1e6);
    }
    text
}
