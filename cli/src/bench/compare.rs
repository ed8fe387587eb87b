//! The same work on two backends, in turns.

use fewshot::hardware::{DeviceInfo, run_on};

use super::CompareArgs;
use super::cases::{Case, Operation, Scale};
use super::timing::{Repeats, Spread};
use crate::machine::Machine;
use crate::prelude::*;

/// One operation's cases on whichever backend.
struct Cases<'a> {
    operation: Operation,
    scale: Scale,
    cases: &'a mut Vec<Case>,
}

impl Work for Cases<'_> {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        self.cases.extend(self.operation.cases::<Autodiff<B>>(self.scale, hardware.device()));
        Ok(())
    }
}

pub(crate) fn compare(args: &CompareArgs) -> Result {
    backend::prepare(args.threads)?;
    let devices = devices(args)?;
    let keys = devices.each_ref().map(|info| info.key.to_string());
    let (scale, json, machine) = (args.measure.scale(), args.json, Machine::here());
    tell(json, format_args!("{machine}; ms (quartiles), in turns"))?;
    tell(json, format_args!("{:<80}{:>24}{:>24}{:>9}", "", keys[0], keys[1], "ratio"))?;
    let mut rows = Vec::new();
    for operation in args.measure.operations() {
        let mut cases = [Vec::new(), Vec::new()];
        for (info, cases) in devices.iter().zip(&mut cases) {
            run_on(vec![info.clone()], Cases { operation, scale, cases })??;
        }
        let [first, mut second] = cases;
        for mut one in first {
            let work = label(&one);
            // Types that one of the two does not compute in are left out.
            let Some(place) = second.iter().position(|other| label(other) == work) else {
                continue;
            };
            let mut other = second.remove(place);
            let spreads = Repeats::for_scale(scale).turns([&mut one.work, &mut other.work]);
            let [first, second] = spreads.each_ref().map(Spread::text);
            // How many times as long the first takes.
            let ratio = spreads[0].median() / spreads[1].median();
            tell(json, format_args!("{work:<80}{first:>24}{second:>24}{ratio:>9.2}"))?;
            let ms = spreads.each_ref().map(Spread::json);
            rows.push(json!({ "work": work, "ms": ms, "ratio": rounded(ratio, 4) }));
        }
    }
    if !json {
        return Ok(());
    }
    let version = env!("CARGO_PKG_VERSION");
    print(json!({ "machine": machine, "version": version, "devices": keys, "rows": rows }))
}

fn label(case: &Case) -> String {
    let Case { operation, shape, variant, pass, .. } = case;
    format!("{operation:<20}{shape:<31}{variant:<13}{pass}")
}

fn devices(args: &CompareArgs) -> Result<[DeviceInfo; 2]> {
    match args.compare.as_slice() {
        [one, other] => Ok([backend::select(one)?.device, backend::select(other)?.device]),
        names => Err(usage!("--compare takes two devices, as flex,wgpu, not {}", names.len())),
    }
}
