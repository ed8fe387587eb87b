use std::path::Path;

use fewshot::plot::{self, Curve, Panel};
use plotters::style::RGBColor;

use super::report::{Moment, RunResult};
use crate::cli::error::CliError;

const SIZE: (u32, u32) = (450, 420);
const COLORS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 158, 74),
    RGBColor(44, 120, 44),
    RGBColor(200, 60, 50),
    RGBColor(120, 80, 160),
    RGBColor(110, 110, 110),
];

/// Row norms and explained variance of all layers over ticks, as SVG.
pub(super) fn write(result: &RunResult, path: &Path) -> Result<(), CliError> {
    let norms = curves(result, |moment| &moment.norms);
    let top =
        norms.iter().flat_map(|curve| &curve.2).map(|point| point.1).fold(1e-3, f64::max) * 1.05;
    let explained = curves(result, |moment| &moment.explained);
    let panels = [("row norm", top, norms), ("explained variance", 1.0, explained)];
    let panel = |area: &Panel, (title, top, curves): &(&str, f64, Vec<_>)| {
        plot::over_time(area, title, "tick", *top, curves)
    };
    plot::write(path, SIZE, &panels, panel).map_err(CliError::Failed)
}

fn curves(result: &RunResult, values: fn(&Moment) -> &Vec<f64>) -> Vec<(String, RGBColor, Curve)> {
    let layers = (0..result.firings.len()).zip(COLORS.into_iter().cycle());
    let curve = |(layer, color): (usize, RGBColor)| {
        let points = result.moments.iter().map(|it| (it.tick as f64, values(it)[layer]));
        (format!("layer {}", layer + 1), color, points.collect())
    };
    layers.map(curve).collect()
}
