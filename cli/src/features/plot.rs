use fewshot::plot::{self, Panel, PlotError};
use fewshot::train::FeatureEvaluation;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::table::{label, title};
use crate::prelude::*;

const WIDTH: u32 = 560;
const BAR: u32 = 26;
const AROUND: u32 = 110;
const INDUCTIVE: RGBColor = RGBColor(31, 119, 180);
const TRANSDUCTIVE: RGBColor = RGBColor(255, 158, 74);

/// Accuracies with their intervals as bars, a panel for each number of shots, as SVG.
pub(super) fn write(tables: &[Vec<FeatureEvaluation>], path: &Path) -> Result {
    plot::write(path, size(tables), tables, |area, rows| panel(area, rows))
        .map_err(CliError::Failed)
}

fn size(tables: &[Vec<FeatureEvaluation>]) -> (u32, u32) {
    (WIDTH, AROUND + BAR * tables.iter().map(Vec::len).max().unwrap_or(0) as u32)
}

fn panel(area: &Panel, rows: &[FeatureEvaluation]) -> Result<(), PlotError> {
    let Some(first) = rows.first() else { return Ok(()) };
    let count = rows.len();
    let mut chart = ChartBuilder::on(area)
        .caption(title(first), ("sans-serif", 15))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(170)
        // Room for the figures behind a full bar.
        .build_cartesian_2d(0.0..125.0, (0..count.max(2) - 1).into_segmented())?;
    // The first row is the topmost.
    let row = |place: &SegmentValue<usize>| match place {
        SegmentValue::CenterOf(place) if *place < count => label(&rows[count - 1 - place]),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_mesh()
        .x_labels(12)
        .y_labels(count)
        .y_label_formatter(&row)
        .x_label_formatter(&|x| if *x > 100.0 { String::new() } else { format!("{x:.0}") })
        .x_desc("accuracy (%); orange: sees all queries together")
        .draw()?;
    for (index, evaluation) in rows.iter().enumerate() {
        let place = count - 1 - index;
        let color = if evaluation.transductive { TRANSDUCTIVE } else { INDUCTIVE };
        let corners = [
            (0.0, SegmentValue::Exact(place)),
            (evaluation.accuracy, SegmentValue::Exact(place + 1)),
        ];
        let mut bar = Rectangle::new(corners, color.filled());
        bar.set_margin(4, 4, 0, 0);
        let middle = || SegmentValue::CenterOf(place);
        let ends = [evaluation.accuracy - evaluation.ci95, evaluation.accuracy + evaluation.ci95];
        let interval = ends.map(|end| (end.clamp(0.0, 100.0), middle()));
        let figures = format!("{:.2} ± {:.2}", evaluation.accuracy, evaluation.ci95);
        let behind = (ends[1].min(100.0) + 1.0, middle());
        let style = ("sans-serif", 13).into_font().color(&BLACK);
        chart.draw_series([bar])?;
        chart.draw_series([PathElement::new(interval.to_vec(), BLACK.stroke_width(2))])?;
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        chart.draw_series([Text::new(figures, behind, style)])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::test::example;

    fn drawn(tables: &[Vec<FeatureEvaluation>]) -> Result<String, PlotError> {
        plot::drawn(size(tables), tables, |area, rows| panel(area, rows))
    }

    #[test]
    fn every_method_has_a_bar_with_its_figures() {
        let rows =
            vec![example("pt-map", true, 76.1, 0.25), example("simpleshot", false, 63.6, 0.2)];
        let drawing = drawn(&[rows.clone(), rows]).unwrap();
        assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
        for text in ["pt-map *", "simpleshot", "76.10 ± 0.25", "63.60 ± 0.20", "5-way 1-shot"] {
            assert_eq!(drawing.matches(text).count(), 2, "{text}");
        }
        assert!(drawn(&[]).is_ok());
        let one = drawn(&[vec![example("pt-map", true, 76.1, 0.25)]]).unwrap();
        assert_eq!(one.matches("pt-map *").count(), 1);
        // Background and bar.
        assert_eq!(one.matches("<rect").count(), 2, "{one}");
    }
}
