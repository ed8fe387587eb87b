use burn::tensor::backend::AutodiffBackend;
use fewshot::kernels::{route, with_reference};
use serde_json::{Value, json};

use super::case::{Case, Load, Pass, Reference};
use super::limits::{Bound, Limits};
use super::machine::Machine;
use super::timing::{Effort, Spread};
use crate::cli::backend::Place;
use crate::cli::report::rounded;

/// All that was measured, and on what.
pub(super) struct Report {
    machine: Machine,
    backend: &'static str,
    device: String,
    route: String,
    pub(super) limits: Limits,
    pub(super) rows: Vec<Row>,
}

impl Report {
    pub(super) fn new<B: AutodiffBackend>(place: &Place<B>, machine: Machine) -> Self {
        Self {
            machine,
            backend: place.backend,
            device: place.label.clone(),
            route: route::<B>().to_string(),
            limits: Limits::default(),
            rows: Vec::new(),
        }
    }

    pub(super) fn heading(&self) -> String {
        let Self { machine, backend, device, route, .. } = self;
        let Machine { cpu, cores, threads, os } = machine;
        let version = env!("CARGO_PKG_VERSION");
        format!(
            "{cpu}, {cores} cores, {threads} threads, {os}\n\
             fewshot {version}, backend {backend} on {device}, {route}\n"
        )
    }

    pub(super) fn json(&self) -> Value {
        let Machine { cpu, cores, threads, os } = &self.machine;
        json!({
            "machine": {
                "cpu": cpu,
                "cores": cores,
                "threads": threads,
                "os": os,
                "route": self.route,
            },
            "version": env!("CARGO_PKG_VERSION"),
            "backend": self.backend,
            "device": self.device,
            "limits": self.limits.json(),
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        })
    }
}

/// What a case took.
pub(super) struct Row {
    operation: &'static str,
    shape: String,
    variant: &'static str,
    pass: Pass,
    spread: Spread,
    reference: Option<Spread>,
    load: Load,
    /// Operations or bytes a second.
    rate: f64,
    bound: Bound,
}

impl Row {
    /// Measures `case`, which takes `bound` at best, and its reference where that is `beside`.
    pub(super) fn measure(case: Case, effort: Effort, beside: bool, bound: Bound) -> Self {
        let Case { operation, shape, variant, pass, load, reference, mut work } = case;
        let (spread, reference) = match beside && reference == Reference::Beside {
            true => {
                let [spread, reference] = effort.spreads(&mut work, |work| with_reference(work));
                (spread, Some(reference))
            }
            false => (effort.spread(&mut work), None),
        };
        let rate = load.amount() / spread.median();
        Self { operation, shape, variant, pass, spread, reference, load, rate, bound }
    }

    /// The share of what bounds it that it reaches.
    fn of_limit(&self) -> f64 {
        self.bound.seconds / self.spread.median()
    }

    fn speedup(&self) -> Option<f64> {
        self.reference.as_ref().map(|reference| reference.median() / self.spread.median())
    }

    /// The names of the columns of [`line`](Self::line).
    pub(super) fn heading() -> String {
        let names = ["operation", "shape", "variant", "pass", "ms (quartiles)", "reference ms"];
        columns(names.map(str::to_owned), ["speedup", "rate", "of limit"].map(str::to_owned))
    }

    pub(super) fn line(&self) -> String {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        columns(
            [
                self.operation.to_owned(),
                self.shape.clone(),
                self.variant.to_owned(),
                self.pass.to_string(),
                self.spread.text(),
                or_none(self.reference.as_ref().map(Spread::text)),
            ],
            [
                or_none(self.speedup().map(|speedup| format!("{speedup:.1}"))),
                format!("{:.1} {}", self.rate / 1e9, self.load.names()[1]),
                format!("{:.2} {}", self.of_limit(), self.bound.by),
            ],
        )
    }

    fn json(&self) -> Value {
        let [_, _, unit] = self.load.names();
        json!({
            "operation": self.operation,
            "shape": self.shape,
            "variant": self.variant,
            "pass": self.pass.to_string(),
            "ms": self.spread.json(),
            "reference_ms": self.reference.as_ref().map(Spread::json),
            "speedup": self.speedup().map(|speedup| rounded(speedup, 4)),
            unit: rounded(self.rate / 1e9, 4),
            "limit": self.bound.by,
            "launches": self.bound.launches,
            "of_limit": rounded(self.of_limit(), 5),
        })
    }
}

fn columns(
    [operation, shape, variant, pass, ms, reference]: [String; 6],
    [speedup, rate, share]: [String; 3],
) -> String {
    format!(
        "{operation:<16}{shape:<31}{variant:<13}{pass:<17}{ms:>21}{reference:>21}\
         {speedup:>9}{rate:>15}{share:>13}"
    )
}
