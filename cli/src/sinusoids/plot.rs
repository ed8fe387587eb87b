use burn::tensor::{Tensor, TensorData};
use fewshot::data::{Functions, Sinusoids};
use fewshot::episode::Examples;
use fewshot::learners::{Adapted, Learner, Maml};
use fewshot::models::Mlp;
use fewshot::plot::{self, NamedCurve, Panel, PlotError};
use plotters::prelude::*;

use super::{AFTER, SinusoidSettings, TEST};
use crate::prelude::*;

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

/// Draws two waves of the test, each with the points it was learned from and the learner's curves after each
/// number of steps.
pub(super) fn write<B: Backend>(
    learner: &Maml<B, Mlp<B>>,
    settings: &SinusoidSettings,
    folder: &Path,
    device: &B::Device,
) -> Result {
    let path = folder.join("adapted.svg");
    plot::write(&path, SIZE, &[0, 1], |area, &task| panel(area, learner, settings, task, device))
        .map_err(CliError::Failed)
}

fn panel<B: Backend>(
    area: &Panel,
    learner: &Maml<B, Mlp<B>>,
    settings: &SinusoidSettings,
    task: u64,
    device: &B::Device,
) -> Result<(), PlotError> {
    let waves = Sinusoids::default();
    let seed = settings.seed.wrapping_add(TEST);
    let wave = waves.wave(seed, task);
    let (inputs, targets) = waves.draw(seed, task, settings.shots);
    let support = Examples::<B> {
        inputs: column(&inputs, device).unsqueeze_dims(&[0, 3, 4]),
        targets: column(&targets, device).unsqueeze(),
    };
    let [low, high] = waves.x;
    let x = |index: usize| low + (high - low) * index as f64 / (POINTS - 1) as f64;
    let grid: Vec<f64> = (0..POINTS).map(x).collect();
    let at: Vec<f32> = grid.iter().map(|&x| x as f32).collect();
    let curve = |name: &str, color, values: &mut dyn Iterator<Item = f64>| -> NamedCurve {
        let points = grid.iter().copied().zip(values).filter(|(_, y)| y.abs() <= LIMIT);
        (name.to_owned(), color, points.collect())
    };
    let mut curves = Vec::new();
    for (steps, color) in AFTER.into_iter().zip(SHADES) {
        let learner = learner.clone().with_test_steps(steps);
        let queries = column(&at, device).unsqueeze_dims(&[0, 3, 4]);
        let predicted = learner.adapt(&support).predict(queries).into_data();
        curves.push(curve(&format!("{steps} steps"), color, &mut predicted.iter::<f64>()));
    }
    curves.push(curve("sinusoid", WAVE, &mut grid.iter().map(|&x| wave.value_at(x))));
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(36)
        .build_cartesian_2d(-5.0..5.0, -LIMIT..LIMIT + ROOM)?;
    chart.configure_mesh().light_line_style(WHITE).draw()?;
    plot::named_curves(&mut chart, SeriesLabelPosition::UpperRight, &curves)?;
    let points = inputs.iter().zip(&targets).map(|(&x, &y)| (f64::from(x), f64::from(y)));
    chart.draw_series(points.map(|point| Circle::new(point, 4, WAVE.filled()))).map(|_| ())
}

/// `[n, 1]`
fn column<B: Backend>(values: &[f32], device: &B::Device) -> Tensor<B, 2> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len(), 1]), device)
}
