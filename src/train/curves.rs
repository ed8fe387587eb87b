use plotters::prelude::*;

use super::ValidationMetrics;
use super::metrics::Line;
use crate::episode::Measure;

const SIZE: (u32, u32) = (900, 420);
const POINTS: usize = 300;
const LOSS: RGBColor = RGBColor(31, 119, 180);
const TRAINING: RGBColor = RGBColor(255, 158, 74);
const VALIDATION: RGBColor = RGBColor(44, 120, 44);

type Curve = Vec<(f64, f64)>;

/// Loss and accuracies over steps, as SVG. Long runs are averaged to a few hundred points.
pub(super) fn draw(lines: &[Line]) -> String {
    let mut text = String::new();
    // Drawing into memory fails only on a degenerate range; all values are finite.
    paint(lines, &mut text).expect("curves have a finite range");
    text
}

fn paint(lines: &[Line], text: &mut String) -> Result<(), String> {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(|error| error.to_string())?;
    let (left, right) = root.split_horizontally(SIZE.0 / 2);
    let loss = training(lines, |metrics| Some(f64::from(metrics.loss)));
    let top = loss.iter().map(|point| point.1).fold(0.0, f64::max).max(1e-3) * 1.05;
    panel(&left, "loss", top, &[("training", LOSS, loss)])?;
    let errors = validation(lines, Measure::SquaredError);
    if errors.is_empty() {
        let accuracy = training(lines, |metrics| metrics.accuracy);
        let validation = validation(lines, Measure::Accuracy);
        let curves = [("training", TRAINING, accuracy), ("validation", VALIDATION, validation)];
        panel(&right, "accuracy (%)", 100.0, &curves)?;
    } else {
        let top = errors.iter().map(|point| point.1).fold(0.0, f64::max).max(1e-3) * 1.05;
        panel(&right, "squared error", top, &[("validation", VALIDATION, errors)])?;
    }
    root.present().map_err(|error| error.to_string())
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    top: f64,
    curves: &[(&str, RGBColor, Curve)],
) -> Result<(), String> {
    let draw = || -> Result<(), DrawingAreaErrorKind<_>> {
        let last = curves.iter().flat_map(|curve| &curve.2).map(|point| point.0);
        let last = last.fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..last, 0.0..top)?;
        chart.configure_mesh().x_desc("step").light_line_style(WHITE).x_labels(6).draw()?;
        for (name, color, points) in curves.iter().filter(|curve| !curve.2.is_empty()) {
            chart
                .draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?
                .label(*name)
                .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        }
        chart.configure_series_labels().border_style(BLACK.mix(0.3)).draw()
    };
    draw().map_err(|error| error.to_string())
}

fn training(lines: &[Line], value: impl Fn(&super::StepMetrics) -> Option<f64>) -> Curve {
    let points = lines.iter().filter_map(|line| match line {
        Line::Step(metrics) => Some((metrics.step as f64, value(metrics)?)),
        Line::Validation(_) => None,
    });
    let points: Curve = points.collect();
    let width = points.len().div_ceil(POINTS).max(1);
    points.chunks(width).map(mean).collect()
}

fn validation(lines: &[Line], measure: Measure) -> Curve {
    let points = lines.iter().filter_map(|line| match line {
        Line::Step(_) => None,
        Line::Validation(ValidationMetrics { step, validation }) => {
            (validation.measure == measure).then_some((*step as f64, validation.mean))
        }
    });
    points.collect()
}

fn mean(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let sum = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
    (sum.0 / n, sum.1 / n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::PhaseTimes;
    use crate::train::{Score, StepMetrics};

    #[test]
    fn a_long_run_is_drawn_with_few_points_and_both_curves() {
        let steps = (1..=9000).map(|step| {
            let accuracy = 100.0 - 5e4 / (step as f64 + 600.0);
            let loss = (5.0 / step as f32).min(4.0);
            Line::Step(StepMetrics {
                step,
                loss,
                accuracy: Some(accuracy),
                learning_rate: 1e-3,
                loss_scale: None,
                phase_ms: PhaseTimes::default(),
            })
        });
        let validation = Line::Validation(ValidationMetrics {
            step: 9000,
            validation: Score { measure: Measure::Accuracy, mean: 96.0, ci95: 0.4 },
        });
        let drawing = draw(&steps.chain([validation]).collect::<Vec<_>>());
        assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
        assert!(drawing.contains("validation"));
        assert!(drawing.len() < 60_000, "{} bytes", drawing.len());
    }

    #[test]
    fn errors_are_drawn_on_a_scale_of_their_own() {
        let validation = |mean| Score { measure: Measure::SquaredError, mean, ci95: 0.1 };
        let lines = [1, 2].map(|step| {
            Line::Validation(ValidationMetrics { step, validation: validation(3.0 / step as f64) })
        });
        let drawing = draw(&lines);
        assert!(drawing.contains("squared error") && !drawing.contains("accuracy"));
    }

    #[test]
    fn a_run_without_a_step_is_drawn_too() {
        assert!(draw(&[]).starts_with("<svg"));
    }
}
