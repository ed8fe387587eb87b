use fewshot::kernels::with_reference;

use super::cases::Case;
use super::limits::{Bound, load_names};
use super::timing::{Repeats, Spread};
use crate::prelude::*;

pub(super) struct Row {
    case: Case,
    spread: Spread,
    reference: Option<Spread>,
    /// Operations or bytes a second.
    rate: f64,
    bound: Bound,
}

impl Row {
    /// Measures `case`, which takes `bound` at best, and its reference if they are to `compare`.
    pub(super) fn measure(mut case: Case, repeats: Repeats, compare: bool, bound: Bound) -> Self {
        let (spread, reference) = match compare && case.has_reference {
            true => {
                let [spread, reference] =
                    repeats.spreads(&mut case.work, |work| with_reference(work));
                (spread, Some(reference))
            }
            false => (repeats.spread(&mut case.work), None),
        };
        // What it worked on takes memory.
        case.work = Box::new(|| ());
        let rate = case.load.amount() / spread.median();
        Self { case, spread, reference, rate, bound }
    }

    /// The share of its bound that the case reaches.
    fn share_of_limit(&self) -> f64 {
        self.bound.seconds / self.spread.median()
    }

    fn speedup(&self) -> Option<f64> {
        self.reference.as_ref().map(|reference| reference.median() / self.spread.median())
    }

    pub(super) fn heading() -> String {
        let names =
            "operation,shape,variant,pass,ms (quartiles),reference ms,speedup,rate,of limit";
        columns(&names.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    pub(super) fn line(&self) -> String {
        let Case { operation, shape, variant, pass, .. } = &self.case;
        let case = [*operation, shape, variant, &pass.to_string()].map(str::to_owned);
        columns(&[&case[..], &self.figures(Spread::text)].concat())
    }

    /// Its times and its reference's as `ms` tells them, speedup, rate and share of the limit.
    fn figures(&self, ms: fn(&Spread) -> String) -> [String; 5] {
        [
            ms(&self.spread),
            known(self.reference.as_ref().map(ms)),
            known(self.speedup().map(|speedup| format!("{speedup:.1}"))),
            format!("{:.1} {}", self.rate / 1e9, load_names(self.case.load)[1]),
            format!("{:.2} {}", self.share_of_limit(), self.bound.by),
        ]
    }

    pub(super) const MARKDOWN_HEAD: &str = "\
| operation | shape | ms | plain Burn, ms | speedup | rate | of limit |
|---|---|---|---|---|---|---|
";

    pub(super) fn markdown(&self) -> String {
        let Case { operation, shape, variant, pass, .. } = &self.case;
        let variant = if variant.is_empty() { String::new() } else { format!(", {variant}") };
        let figures = self.figures(Spread::median_text).join(" | ");
        format!("| `{operation}` {pass}{variant} | {shape} | {figures} |\n")
    }

    pub(super) fn json(&self) -> Value {
        let [_, _, unit] = load_names(self.case.load);
        json!({
            "operation": self.case.operation,
            "shape": self.case.shape,
            "variant": self.case.variant,
            "pass": self.case.pass.to_string(),
            "ms": self.spread.json(),
            "reference_ms": self.reference.as_ref().map(Spread::json),
            "speedup": self.speedup().map(|speedup| rounded(speedup, 4)),
            unit: rounded(self.rate / 1e9, 4),
            "limit": self.bound.by,
            "launches": self.bound.launches,
            "of_limit": rounded(self.share_of_limit(), 5),
        })
    }
}

/// Words stand on the left of their columns, figures on the right.
fn columns(cells: &[String]) -> String {
    let widths = [20, 31, 13, 17, 21, 21, 9, 15, 13];
    let cells = (0..).zip(cells.iter().zip(widths)).map(|(column, (cell, width))| match column {
        0..4 => format!("{cell:<width$}"),
        _ => format!("{cell:>width$}"),
    });
    cells.collect()
}
