//! The same work on two backends, in turns.

use burn::tensor::backend::AutodiffBackend;
use fewshot::hardware::DeviceInfo;
use serde_json::{Value, json};

use super::case::{Case, Scale};
use super::machine::Machine;
use super::timing::Spread;
use crate::cli::args::CompareArgs;
use crate::cli::backend::{self, Job, Place};
use crate::cli::bench::Operation;
use crate::cli::error::{CliError, usage};
use crate::cli::output::{print, tell};
use crate::cli::report::rounded;

/// One operation's cases on whichever backend.
struct Cases<'a> {
    operation: Operation,
    scale: Scale,
    found: &'a mut Vec<Case>,
}

impl Job for Cases<'_> {
    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        self.found.extend(self.operation.cases::<B>(self.scale, &place.device));
        Ok(())
    }
}

/// A case's times on both.
struct Pair {
    name: String,
    spreads: [Spread; 2],
}

impl Pair {
    /// How many times as long the first takes.
    fn ratio(&self) -> f64 {
        let [one, other] = &self.spreads;
        one.median() / other.median()
    }

    fn line(&self) -> String {
        let [one, other] = self.spreads.each_ref().map(Spread::text);
        format!("{:<76}{one:>24}{other:>24}{:>9.2}", self.name, self.ratio())
    }

    fn json(&self) -> Value {
        let [one, other] = self.spreads.each_ref().map(Spread::json);
        json!({ "work": self.name, "ms": [one, other], "ratio": rounded(self.ratio(), 4) })
    }
}

pub(crate) fn compare(args: &CompareArgs) -> Result<(), CliError> {
    backend::prepare(args.threads)?;
    let devices = devices(args)?;
    let keys = devices.each_ref().map(|info| info.key.to_string());
    let (scale, json, machine) = (args.measure.scale(), args.measure.json, Machine::here());
    tell(json, format_args!("{machine}; ms (quartiles), in turns"))?;
    tell(json, format_args!("{:<76}{:>24}{:>24}{:>9}", "", keys[0], keys[1], "ratio"))?;
    let mut pairs = Vec::new();
    for operation in args.measure.operations() {
        let mut cases = [Vec::new(), Vec::new()];
        for (info, found) in devices.iter().zip(&mut cases) {
            backend::on(info, Cases { operation, scale, found })?;
        }
        let [first, second] = cases;
        assert_eq!(first.len(), second.len(), "an operation has one list of sizes");
        for (one, other) in first.into_iter().zip(second) {
            let pair = measure(one, other, scale);
            tell(json, pair.line())?;
            pairs.push(pair.json());
        }
    }
    if !json {
        return Ok(());
    }
    let version = env!("CARGO_PKG_VERSION");
    print(json!({ "machine": machine, "version": version, "devices": keys, "rows": pairs }))
}

fn devices(args: &CompareArgs) -> Result<[DeviceInfo; 2], CliError> {
    match args.compare.as_slice() {
        [one, other] => Ok([backend::select(one)?.device, backend::select(other)?.device]),
        names => Err(usage!("--compare takes two devices, as flex,wgpu, not {}", names.len())),
    }
}

fn measure(mut one: Case, mut other: Case, scale: Scale) -> Pair {
    let Case { operation, shape, variant, pass, .. } = &one;
    let name = format!("{operation:<16}{shape:<31}{variant:<13}{pass}");
    Pair { name, spreads: scale.effort().turns(&mut one.work, &mut other.work) }
}
