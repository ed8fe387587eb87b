use fewshot::episode::Measure;
use fewshot::plot::{self, COLORS, Curve, NamedCurve};
use fewshot::train::RunHistory;

use super::named::{self, NamedRun};
use crate::prelude::*;

const SIZE: (u32, u32) = (560, 420);

pub(super) fn plot(folders: &[PathBuf], to: &Path) -> Result {
    let runs = named::read(folders)?;
    let measure = measure(&runs)?;
    let losses = curves(&runs, RunHistory::loss_curve);
    let validations = curves(&runs, RunHistory::validation_curve);
    let right = match measure {
        Measure::Accuracy => ("validation accuracy (%)", 100.0, validations),
        Measure::SquaredError => ("validation squared error", plot::top(&validations), validations),
    };
    let panels = [("training loss", plot::top(&losses), losses), right];
    plot::write(to, SIZE, &panels, plot::over_time("step")).map_err(CliError::Failed)?;
    print(format_args!("curves of {} runs in {}", runs.len(), to.display()))
}

/// The measure of all runs; one without a step has none.
fn measure(runs: &[NamedRun]) -> Result<Measure> {
    let known = runs.iter().filter_map(|(name, run)| Some((name, run.measure()?)));
    let known: Vec<_> = known.collect();
    let Some((first, measure)) = known.first() else { return Ok(Measure::Accuracy) };
    let Some((other, _)) = known.iter().find(|(_, other)| other != measure) else {
        return Ok(*measure);
    };
    let (accuracy, error) = match measure {
        Measure::Accuracy => (first, other),
        Measure::SquaredError => (other, first),
    };
    Err(usage!("{accuracy} is judged by accuracy and {error} by squared error: not in one plot"))
}

fn curves(runs: &[NamedRun], curve: fn(&RunHistory) -> Curve) -> Vec<NamedCurve> {
    let colored = runs.iter().zip(COLORS);
    colored.map(|((name, run), color)| (name.clone(), color, curve(run))).collect()
}
