use burn::tensor::{Tensor, TensorData};
use fewshot::data::{Functions, Sinusoid, Sinusoids};
use fewshot::episode::Examples;
use fewshot::learners::{Adapted, Learner, Maml};
use fewshot::models::Mlp;
use fewshot::plot::{self, Curve, Panel, PlotError};
use plotters::prelude::*;

use super::{AFTER, SinusoidSettings, TEST};
use crate::cli::prelude::*;

const SIZE: (u32, u32) = (450, 420);
const POINTS: usize = 200;
/// Largest value that is drawn.
const LIMIT: f64 = 6.0;
/// For the legend, above.
const ROOM: f64 = 4.5;
const WAVE: RGBColor = RGBColor(200, 60, 50);
/// From few steps to many.
const SHADES: [RGBColor; 4] = [
    RGBColor(200, 200, 210),
    RGBColor(140, 190, 230),
    RGBColor(60, 130, 200),
    RGBColor(10, 50, 120),
];

/// One test task: the wave, the points it was learned from, and what the learner makes of them.
struct Picture {
    wave: Curve,
    points: Curve,
    adapted: Vec<Curve>,
}

/// Draws two waves of the test with the learner's curves after each number of steps.
pub(super) fn write<B: Backend>(
    learner: &Maml<B, Mlp<B>>,
    settings: &SinusoidSettings,
    folder: &Path,
    device: &B::Device,
) -> Result {
    let pictures = [0, 1].map(|task| picture(learner, settings, task, device));
    let path = folder.join("adapted.svg");
    plot::write(&path, SIZE, &pictures, panel).map_err(CliError::Failed)
}

fn picture<B: Backend>(
    learner: &Maml<B, Mlp<B>>,
    settings: &SinusoidSettings,
    task: u64,
    device: &B::Device,
) -> Picture {
    let waves = Sinusoids::default();
    let seed = settings.seed.wrapping_add(TEST);
    let wave: Sinusoid = waves.wave(seed, task);
    let (inputs, targets) = waves.draw(seed, task, settings.shots);
    let support = Examples::<B> {
        inputs: column(&inputs, device).unsqueeze_dims(&[0, 3, 4]),
        targets: column(&targets, device).unsqueeze(),
    };
    let [low, high] = waves.x;
    let x = |index: usize| low + (high - low) * index as f64 / (POINTS - 1) as f64;
    let grid: Vec<f64> = (0..POINTS).map(x).collect();
    let at: Vec<f32> = grid.iter().map(|&x| x as f32).collect();
    let adapted = AFTER.iter().map(|&steps| {
        let learner = learner.clone().with_test_steps(steps);
        let predicted =
            learner.adapt(&support).predict(column(&at, device).unsqueeze_dims(&[0, 3, 4]));
        grid.iter().copied().zip(predicted.into_data().iter::<f64>()).collect()
    });
    let pairs = inputs.iter().zip(&targets);
    Picture {
        wave: grid.iter().map(|&x| (x, wave.at(x))).collect(),
        points: pairs.map(|(&x, &y)| (f64::from(x), f64::from(y))).collect(),
        adapted: adapted.collect(),
    }
}

/// `[n, 1]`
fn column<B: Backend>(values: &[f32], device: &B::Device) -> Tensor<B, 2> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len(), 1]), device)
}

fn panel(area: &Panel, picture: &Picture) -> Result<(), PlotError> {
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(36)
        .build_cartesian_2d(-5.0..5.0, -LIMIT..LIMIT + ROOM)?;
    chart.configure_mesh().light_line_style(WHITE).draw()?;
    let adapted = picture.adapted.iter().zip(AFTER).zip(SHADES);
    let adapted = adapted.map(|((curve, steps), color)| (format!("{steps} steps"), color, curve));
    let inside =
        |curve: &Curve| curve.iter().copied().filter(|(_, y)| y.abs() <= LIMIT).collect::<Curve>();
    let all = adapted.chain([("sinusoid".to_owned(), WAVE, &picture.wave)]);
    let all = all.map(|(name, color, curve)| (name, color, inside(curve))).collect::<Vec<_>>();
    plot::named_curves(&mut chart, SeriesLabelPosition::UpperRight, &all)?;
    let points = picture.points.iter().map(|&point| Circle::new(point, 4, WAVE.filled()));
    chart.draw_series(points).map(|_| ())
}
