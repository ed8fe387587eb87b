use plotters::style::RGBColor;

use super::metrics::Line;
use super::{StepMetrics, ValidationMetrics};
use crate::episode::Measure;
use crate::plot::{self, Curve};

/// Width and height of a panel.
const SIZE: (u32, u32) = (450, 420);
const POINTS: usize = 300;
const LOSS: RGBColor = RGBColor(31, 119, 180);
const TRAINING: RGBColor = RGBColor(255, 158, 74);
const VALIDATION: RGBColor = RGBColor(44, 120, 44);

/// Loss and accuracies over steps, as SVG. Long runs are averaged to a few hundred points.
pub(super) fn draw(lines: &[Line]) -> String {
    let (mut steps, mut validations) = (Vec::new(), Vec::new());
    for line in lines {
        match line {
            Line::Step(metrics) => steps.push(metrics),
            Line::Validation(metrics) => validations.push(metrics),
        }
    }
    let loss = training(steps.iter().copied(), |metrics| Some(f64::from(metrics.loss)));
    let losses = vec![("training".to_owned(), LOSS, loss)];
    let losses = ("loss", plot::top(&losses), losses);
    let measure = validations.first().map(|metrics| metrics.validation.measure);
    let validation = ("validation".to_owned(), VALIDATION, validation(validations));
    let right = match measure {
        Some(Measure::SquaredError) => {
            let errors = vec![validation];
            ("squared error", plot::top(&errors), errors)
        }
        Some(Measure::Accuracy) | None => {
            let accuracy = training(steps, |metrics| metrics.accuracy);
            ("accuracy (%)", 100.0, vec![("training".to_owned(), TRAINING, accuracy), validation])
        }
    };
    // Drawing into memory fails only on a degenerate range; all values are finite.
    let panels = plot::drawn(SIZE, &[losses, right], plot::over_time("step"));
    panels.expect("curves have a finite range")
}

/// A figure of training over steps.
pub(super) fn training<'a>(
    steps: impl IntoIterator<Item = &'a StepMetrics>,
    value: impl Fn(&StepMetrics) -> Option<f64>,
) -> Curve {
    let points = steps.into_iter().filter_map(|it| Some((it.step as f64, value(it)?)));
    let points: Curve = points.collect();
    let width = points.len().div_ceil(POINTS).max(1);
    points.chunks(width).map(mean).collect()
}

pub(super) fn validation<'a>(
    validations: impl IntoIterator<Item = &'a ValidationMetrics>,
) -> Curve {
    validations.into_iter().map(|it| (it.step as f64, it.validation.mean)).collect()
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
