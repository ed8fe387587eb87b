use std::path::Path;

use fewshot::plot::{self, NamedCurve};

use super::report::{Moment, RunResult};
use crate::cli::error::{CliError, Result};

const SIZE: (u32, u32) = (450, 420);

/// Row norms and explained variance of all layers over ticks, as SVG.
pub(super) fn write(result: &RunResult, path: &Path) -> Result {
    let norms = curves(result, |moment| &moment.norms);
    let explained = curves(result, |moment| &moment.explained);
    let panels = [("row norm", plot::top(&norms), norms), ("explained variance", 1.0, explained)];
    plot::write(path, SIZE, &panels, plot::over_time("tick")).map_err(CliError::Failed)
}

fn curves(result: &RunResult, values: fn(&Moment) -> &Vec<f64>) -> Vec<NamedCurve> {
    let layers = (0..result.firings.len()).zip(plot::COLORS.into_iter().cycle());
    let curve = |(layer, color)| {
        let points = result.moments.iter().map(|it| (it.tick as f64, values(it)[layer]));
        (format!("layer {}", layer + 1), color, points.collect())
    };
    layers.map(curve).collect()
}
