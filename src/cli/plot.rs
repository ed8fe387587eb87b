//! Drawings in SVG.

use std::path::Path;

use fewshot::files;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::error::{CliError, failed};

pub(super) type Curve = Vec<(f64, f64)>;
pub(super) type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type PlotError = DrawingAreaErrorKind<std::io::Error>;
pub(super) type Chart<'a, 'b> =
    ChartContext<'b, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Writes one panel for each of `items`, side by side, to the file `path`.
pub(super) fn write<T>(
    path: &Path,
    panel_size: (u32, u32),
    items: &[T],
    panel: impl Fn(&Panel, &T) -> Result<(), PlotError>,
) -> Result<(), CliError> {
    let failed = |reason: String| failed!("{}: {reason}", path.display());
    let text = drawn(panel_size, items, panel).map_err(|error| failed(error.to_string()))?;
    files::replace(path, text.as_bytes()).map_err(|error| failed(error.to_string()))
}

pub(super) fn drawn<T>(
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

/// Draws curves with a legend.
pub(super) fn curves<'a: 'b, 'b>(
    chart: &mut Chart<'a, 'b>,
    legend: SeriesLabelPosition,
    curves: impl IntoIterator<Item = (String, RGBColor, Curve)>,
) -> Result<(), PlotError> {
    for (name, color, points) in curves {
        let style = color.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points, style))?
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
