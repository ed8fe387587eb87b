use std::path::Path;

use fewshot::files;
use plotters::prelude::*;

use super::report::{Moment, RunResult};
use crate::cli::error::CliError;

const SIZE: (u32, u32) = (900, 420);
const COLORS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 158, 74),
    RGBColor(44, 120, 44),
    RGBColor(200, 60, 50),
    RGBColor(120, 80, 160),
    RGBColor(110, 110, 110),
];

type Curve = Vec<(f64, f64)>;

/// Row norms and explained variance of all layers over ticks, as SVG.
pub(super) fn write(result: &RunResult, path: &Path) -> Result<(), CliError> {
    let failed = |reason: String| CliError::Failed(format!("{}: {reason}", path.display()));
    let mut text = String::new();
    paint(result, &mut text).map_err(failed)?;
    files::replace(path, text.as_bytes()).map_err(|error| failed(error.to_string()))
}

fn paint(result: &RunResult, text: &mut String) -> Result<(), String> {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(|error| error.to_string())?;
    let (left, right) = root.split_horizontally(SIZE.0 / 2);
    let norms = curves(result, |moment| &moment.norms);
    let top = norms.iter().flatten().map(|point| point.1).fold(1e-3, f64::max) * 1.05;
    panel(&left, "row norm", top, &norms)?;
    panel(&right, "explained variance", 1.0, &curves(result, |moment| &moment.explained))?;
    root.present().map_err(|error| error.to_string())
}

fn curves(result: &RunResult, values: fn(&Moment) -> &Vec<f64>) -> Vec<Curve> {
    let layer = |layer: usize| {
        result.moments.iter().map(|moment| (moment.tick as f64, values(moment)[layer])).collect()
    };
    (0..result.firings.len()).map(layer).collect()
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    top: f64,
    curves: &[Curve],
) -> Result<(), String> {
    let draw = || -> Result<(), DrawingAreaErrorKind<_>> {
        let last = curves.iter().flatten().map(|point| point.0).fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..last, 0.0..top)?;
        chart.configure_mesh().x_desc("tick").light_line_style(WHITE).x_labels(6).draw()?;
        for (index, points) in curves.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            chart
                .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?
                .label(format!("layer {}", index + 1))
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2))
                });
        }
        chart.configure_series_labels().border_style(BLACK.mix(0.3)).background_style(WHITE).draw()
    };
    draw().map_err(|error| error.to_string())
}
