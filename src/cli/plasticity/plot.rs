use std::path::Path;

use plotters::prelude::*;

use super::report::{Moment, RunResult};
use crate::cli::error::CliError;
use crate::cli::plot::{self, Curve};

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
    let top = norms.iter().flatten().map(|point| point.1).fold(1e-3, f64::max) * 1.05;
    let explained = curves(result, |moment| &moment.explained);
    let panels = [("row norm", top, norms), ("explained variance", 1.0, explained)];
    plot::write(path, SIZE, &panels, |area, (title, top, curves)| {
        let last = curves.iter().flatten().map(|point| point.0).fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..last, 0.0..*top)?;
        chart.configure_mesh().x_desc("tick").light_line_style(WHITE).x_labels(6).draw()?;
        let named = (1..).zip(COLORS.into_iter().cycle()).zip(curves);
        let named =
            named.map(|((layer, color), points)| (format!("layer {layer}"), color, points.clone()));
        plot::curves(&mut chart, SeriesLabelPosition::MiddleRight, named)
    })
}

fn curves(result: &RunResult, values: fn(&Moment) -> &Vec<f64>) -> Vec<Curve> {
    let layer = |layer: usize| {
        result.moments.iter().map(|moment| (moment.tick as f64, values(moment)[layer])).collect()
    };
    (0..result.firings.len()).map(layer).collect()
}
