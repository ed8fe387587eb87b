use fewshot::kernels::with_reference;
use serde_json::{Value, json};

use super::case::Case;
use super::limits::Bound;
use super::timing::{Effort, Spread};
use crate::cli::report::rounded;

/// What a case took.
pub(super) struct Row {
    case: Case,
    spread: Spread,
    reference: Option<Spread>,
    /// Operations or bytes a second.
    rate: f64,
    bound: Bound,
}

impl Row {
    /// Measures `case`, which takes `bound` at best, and its reference where that is `beside`.
    pub(super) fn measure(mut case: Case, effort: Effort, beside: bool, bound: Bound) -> Self {
        let (spread, reference) = match beside && case.beside {
            true => {
                let [spread, reference] =
                    effort.spreads(&mut case.work, |work| with_reference(work));
                (spread, Some(reference))
            }
            false => (effort.spread(&mut case.work), None),
        };
        // What it worked on takes memory.
        case.work = Box::new(|| ());
        let rate = case.load.amount() / spread.median();
        Self { case, spread, reference, rate, bound }
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
        columns([
            "operation",
            "shape",
            "variant",
            "pass",
            "ms (quartiles)",
            "reference ms",
            "speedup",
            "rate",
            "of limit",
        ])
    }

    pub(super) fn line(&self) -> String {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let Case { operation, shape, variant, pass, load, .. } = &self.case;
        columns([
            operation,
            shape,
            variant,
            &pass.to_string(),
            &self.spread.text(),
            &or_none(self.reference.as_ref().map(Spread::text)),
            &or_none(self.speedup().map(|speedup| format!("{speedup:.1}"))),
            &format!("{:.1} {}", self.rate / 1e9, load.names()[1]),
            &format!("{:.2} {}", self.of_limit(), self.bound.by),
        ])
    }

    /// The first lines of a table of [`markdown`](Self::markdown).
    pub(super) const MARKDOWN_HEAD: &str = "\
| operation | shape | ms | plain Burn, ms | speedup | rate | of limit |
|---|---|---|---|---|---|---|
";

    pub(super) fn markdown(&self) -> String {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let Case { operation, shape, variant, pass, load, .. } = &self.case;
        let variant = if variant.is_empty() { String::new() } else { format!(", {variant}") };
        let (ms, rate) = (self.spread.median_text(), self.rate / 1e9);
        format!(
            "| `{operation}` {pass}{variant} | {shape} | {ms} | {} | {} | {rate:.1} {} | {:.2} {} |\n",
            or_none(self.reference.as_ref().map(Spread::median_text)),
            or_none(self.speedup().map(|speedup| format!("{speedup:.1}"))),
            load.names()[1],
            self.of_limit(),
            self.bound.by,
        )
    }

    pub(super) fn json(&self) -> Value {
        let [_, _, unit] = self.case.load.names();
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
            "of_limit": rounded(self.of_limit(), 5),
        })
    }
}

fn columns(
    [operation, shape, variant, pass, ms, reference, speedup, rate, share]: [&str; 9],
) -> String {
    format!(
        "{operation:<16}{shape:<31}{variant:<13}{pass:<17}{ms:>21}{reference:>21}\
         {speedup:>9}{rate:>15}{share:>13}"
    )
}
