//! The same work on two backends, in turns.

use burn::tensor::backend::AutodiffBackend;
use clap::ValueEnum;
use fewshot::hardware::DeviceInfo;
use serde_json::{Value, json};

use super::case::{Case, Scale};
use super::machine::Machine;
use super::timing::Spread;
use crate::cli::args::CompareArgs;
use crate::cli::backend::{self, Job, Place};
use crate::cli::bench::Operation;
use crate::cli::error::CliError;
use crate::cli::output::{print, print_status};
use crate::cli::report::rounded;

/// One operation's cases on whichever backend.
struct Cases {
    operation: Operation,
    scale: Scale,
}

impl Job for Cases {
    type Output = Vec<Case>;

    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<Vec<Case>, CliError> {
        Ok(self.operation.cases::<B>(self.scale, &place.device))
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
    backend::prepare_threads(args.threads)?;
    let [one, other] = devices(args)?;
    let scale = if args.quick { Scale::Quick } else { Scale::Full };
    let say = |line: String| match args.json {
        true => {
            print_status(line);
            Ok(())
        }
        false => print(line),
    };
    let Machine { cpu, cores, threads, os } = Machine::here();
    say(format!("{cpu}, {cores} cores, {threads} threads, {os}; ms (quartiles), in turns"))?;
    say(format!(
        "{:<76}{:>24}{:>24}{:>9}",
        "",
        one.key.to_string(),
        other.key.to_string(),
        "ratio"
    ))?;
    let all = Operation::value_variants();
    let chosen = if args.only.is_empty() { all } else { &args.only };
    let mut pairs = Vec::new();
    for operation in chosen {
        let cases = |info| backend::on(info, Cases { operation: *operation, scale });
        let (first, second) = (cases(&one)?, cases(&other)?);
        assert_eq!(first.len(), second.len(), "an operation has one list of sizes");
        for (one, other) in first.into_iter().zip(second) {
            let pair = measure(one, other, scale);
            say(pair.line())?;
            pairs.push(pair);
        }
    }
    if args.json {
        return print(json!({
            "machine": { "cpu": cpu, "cores": cores, "threads": threads, "os": os },
            "version": env!("CARGO_PKG_VERSION"),
            "devices": [one.key, other.key],
            "rows": pairs.iter().map(Pair::json).collect::<Vec<_>>(),
        }));
    }
    Ok(())
}

fn devices(args: &CompareArgs) -> Result<[DeviceInfo; 2], CliError> {
    match args.compare.as_slice() {
        [one, other] => Ok([backend::select(one)?.device, backend::select(other)?.device]),
        names => Err(CliError::Usage(format!(
            "--compare takes two devices, as flex,wgpu, not {}",
            names.len()
        ))),
    }
}

fn measure(mut one: Case, mut other: Case, scale: Scale) -> Pair {
    let Case { operation, shape, variant, pass, .. } = &one;
    let name = format!("{operation:<16}{shape:<31}{variant:<13}{pass}");
    Pair { name, spreads: scale.effort().turns(&mut one.work, &mut other.work) }
}
