//! Drawings in SVG, of runs and of the command.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::files;

/// Points of a line.
pub type Curve = Vec<(f64, f64)>;
/// A line with its name and its colour.
pub type NamedCurve = (String, RGBColor, Curve);
/// A part of a drawing.
pub type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Error of drawing a panel.
pub type PlotError = DrawingAreaErrorKind<std::io::Error>;
/// A panel with two axes of numbers.
pub type Chart<'a, 'b> =
    ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Colours of lines side by side.
pub const COLORS: [RGBColor; 10] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 158, 74),
    RGBColor(44, 120, 44),
    RGBColor(200, 60, 50),
    RGBColor(120, 80, 160),
    RGBColor(110, 110, 110),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(160, 160, 30),
    RGBColor(23, 190, 207),
];

/// The end of an axis from 0 that has room for all points of `curves`.
pub fn top(curves: &[NamedCurve]) -> f64 {
    curves.iter().flat_map(|curve| &curve.2).map(|point| point.1).fold(1e-3, f64::max) * 1.05
}

/// Writes one panel of this size for each of `items`, side by side, to the file `path`.
///
/// # Errors
/// When a panel cannot be drawn or the file cannot be written, with its path.
pub fn write<T>(
    path: &Path,
    panel_size: (u32, u32),
    items: &[T],
    panel: impl Fn(&Panel, &T) -> Result<(), PlotError>,
) -> Result<(), String> {
    let failed = |reason: String| format!("{}: {reason}", path.display());
    let text = drawn(panel_size, items, panel).map_err(|error| failed(error.to_string()))?;
    files::replace(path, text.as_bytes()).map_err(|error| failed(error.to_string()))
}

/// The text of the drawing that [`write`] writes.
///
/// # Errors
/// When a panel cannot be drawn.
pub fn drawn<T>(
    (width, height): (u32, u32),
    items: &[T],
    panel: impl Fn(&Panel, &T) -> Result<(), PlotError>,
) -> Result<String, PlotError> {
    let mut text = String::new();
    let panels = items.len().max(1);
    let root = SVGBackend::with_string(&mut text, (width * panels as u32, height));
    let root = root.into_drawing_area();
    root.fill(&WHITE)?;
    for (area, item) in root.split_evenly((1, panels)).iter().zip(items) {
        panel(area, item)?;
    }
    root.present()?;
    drop(root);
    Ok(text)
}

/// Draws a panel of [`write()`] with a title and named curves over time, from 0 to a given end; `x` is the
/// label of the time axis.
pub fn over_time(
    x: &str,
) -> impl Fn(&Panel, &(&str, f64, Vec<NamedCurve>)) -> Result<(), PlotError> + '_ {
    move |area, (title, top, curves)| {
        let times = curves.iter().flat_map(|curve| &curve.2).map(|point| point.0);
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..times.fold(1.0, f64::max), 0.0..*top)?;
        chart.configure_mesh().x_desc(x).light_line_style(WHITE).x_labels(6).draw()?;
        named_curves(&mut chart, SeriesLabelPosition::MiddleRight, curves)
    }
}

/// Draws curves that have a point, with a legend.
///
/// # Errors
/// When they cannot be drawn.
pub fn named_curves<'a: 'b, 'b>(
    chart: &mut Chart<'a, 'b>,
    legend: SeriesLabelPosition,
    curves: &[NamedCurve],
) -> Result<(), PlotError> {
    for (name, color, points) in curves.iter().filter(|curve| !curve.2.is_empty()) {
        let style = color.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(legend)
        .border_style(BLACK.mix(0.3))
        .background_style(WHITE)
        .draw()
}
