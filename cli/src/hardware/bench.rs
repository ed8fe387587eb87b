use fewshot::hardware::{
    Calibration, DeviceInfo, DevicePreference, Effort, HardwareError, Tier, guarded, run_on,
};

use crate::prelude::*;

pub(super) struct Measure(pub(super) Effort);

impl Work for Measure {
    type Output = Result<Calibration, HardwareError>;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Self::Output {
        let device = hardware.device();
        guarded::<B, _>(device, || Calibration::measure::<B>(device, self.0))
    }
}

pub(super) fn run(preferences: &[DevicePreference], quick: bool, json: bool) -> Result {
    let effort = if quick { Effort::Quick } else { Effort::Full };
    let mut measured = Vec::new();
    for device in devices(preferences)? {
        tell(json, format_args!("{} ({})", device.key, device.name))?;
        let calibration = run_on(vec![device.clone()], Measure(effort))??;
        if !json {
            print(calibration_text(&calibration))?;
        }
        measured.push((device, calibration));
    }
    // Where each device that is not the processor's best overtakes it.
    let mut crossings = Vec::new();
    if let Some((processor, slow)) = measured.iter().find(|(info, _)| info.tier == Tier::Cpu) {
        for (info, fast) in measured.iter().filter(|(info, _)| info.tier != Tier::Cpu) {
            crossings.push((&info.key, &processor.key, fast.crossover(slow)));
        }
    }
    if json {
        let devices = measured.iter().map(
            |(info, calibration)| json!({ "device": info.key, "name": info.name, "calibration": calibration }),
        );
        let crossings = crossings.iter().map(
            |(device, against, rows)| json!({ "device": device, "against": against, "rows": rows }),
        );
        return print(json!({
            "threads": rayon::current_num_threads(),
            "devices": Value::from_iter(devices),
            "crossover": Value::from_iter(crossings),
        }));
    }
    for (accelerator, processor, rows) in crossings {
        let size = match rows {
            Some(rows) => format!("products of {rows} rows"),
            None => "no size that was measured".to_owned(),
        };
        print(format_args!("{accelerator} overtakes {processor} at {size}"))?;
    }
    Ok(())
}

fn devices(preferences: &[DevicePreference]) -> Result<Vec<DeviceInfo>> {
    let inventory = backend::inventory(&DevicePreference::Auto);
    if preferences.is_empty() {
        let hardware = inventory.devices.into_iter().filter(|info| info.tier != Tier::Software);
        return Ok(hardware.collect());
    }
    preferences.iter().map(|preference| Ok(inventory.select(preference)?.device)).collect()
}

pub(crate) fn calibration_text(calibration: &Calibration) -> String {
    let mut text = String::new();
    for (dtype, rate) in &calibration.products {
        let way = calibration.ways.get(dtype).map(|way| format!("  ({way})")).unwrap_or_default();
        text += &format!("  products in {dtype:<5}{:>10.1} GFLOP/s{way}\n", rate / 1e9);
    }
    let (copy, copied) = (calibration.copy / 1e9, calibration.copied);
    text += &format!("  copy             {copy:>10.1} GB/s  ({copied}, bytes read and written)");
    let mut times = vec![("launch".to_owned(), calibration.launch)];
    times.extend(calibration.issue.map(|time| ("launch, to issue".to_owned(), time)));
    times
        .extend(calibration.squares.iter().map(|(rows, time)| (format!("{rows} x {rows}"), *time)));
    for (what, time) in times {
        text += &format!("\n  {what:<17}{:>10.1} us", time * 1e6);
    }
    text
}
