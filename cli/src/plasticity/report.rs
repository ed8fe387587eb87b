use fewshot::hardware::DeviceInfo;
use fewshot::plot::{self, NamedCurve};

use super::PlasticityRunArgs;
use crate::prelude::*;

const SIZE: (u32, u32) = (450, 420);

pub(super) struct RunResult {
    pub(super) moments: Vec<Moment>,
    /// Number of firings of each layer.
    pub(super) firings: Vec<usize>,
    /// Time of the ticks alone.
    pub(super) seconds: f64,
}

/// The layers after a number of ticks.
pub(super) struct Moment {
    pub(super) tick: usize,
    pub(super) norms: Vec<f64>,
    pub(super) explained: Vec<f64>,
}

pub(super) fn write(args: &PlasticityRunArgs, result: &RunResult, info: &DeviceInfo) -> Result {
    let last = result.moments.last().expect("a run has at least one step");
    if args.json {
        return print(object(args, result, last, info));
    }
    let layers = args.levels[1..].iter().zip(&args.periods).zip(&result.firings);
    let layers = (1..).zip(layers).zip(last.norms.iter().zip(&last.explained));
    for ((layer, ((neurons, period), firings)), (norm, explained)) in layers {
        let explained = 100.0 * explained;
        print(format_args!(
            "layer {layer}: {neurons} neurons, period {period}, {firings} firings, row norm \
             {norm:.3}, explained variance {explained:.1} %"
        ))?;
    }
    let (steps, seconds, plot) = (args.steps, result.seconds, args.plot.display());
    let pace = steps as f64 / seconds;
    print(format_args!("{steps} steps in {seconds:.2} s, {pace:.0} steps/s; plot: {plot}"))
}

fn object(args: &PlasticityRunArgs, result: &RunResult, last: &Moment, info: &DeviceInfo) -> Value {
    let layer = |layer: usize| {
        json!({
            "period": args.periods[layer],
            "firings": result.firings[layer],
            "row_norm": rounded(last.norms[layer], 4),
            "explained_variance": rounded(last.explained[layer], 4),
        })
    };
    json!({
        "levels": args.levels,
        "periods": args.periods,
        "activation": args.activation(),
        "aggregate": args.aggregate,
        "top_down": args.top_down,
        "rule": lower(args.rule),
        "rate": args.rate(),
        "decay": args.decay.unwrap_or(0.0),
        "tau": args.tau(),
        "whole": args.whole,
        "seed": args.seed,
        "steps": args.steps,
        "batch": args.batch,
        "seconds": rounded(result.seconds, 4),
        "steps_per_s": rounded(args.steps as f64 / result.seconds, 1),
        "layers": (0..result.firings.len()).map(layer).collect::<Vec<_>>(),
        "backend": backend::name(info),
        "device": backend::label(info),
        "threads": rayon::current_num_threads(),
        "plot": args.plot.display().to_string(),
    })
}

/// Row norms and explained variance of all layers over ticks, as SVG.
pub(super) fn plot(result: &RunResult, path: &Path) -> Result {
    let norms = curves(result, |moment| &moment.norms);
    let explained = curves(result, |moment| &moment.explained);
    let panels = [("row norm", plot::top(&norms), norms), ("explained variance", 1.0, explained)];
    plot::write(path, SIZE, &panels, plot::over_time("tick")).map_err(CliError::Failed)
}

fn curves(result: &RunResult, values: fn(&Moment) -> &Vec<f64>) -> Vec<NamedCurve> {
    let layers = (0..result.firings.len()).zip(plot::COLORS.into_iter().cycle());
    let curve = |(layer, color)| {
        let points = result.moments.iter().map(|it| (it.tick as f64, values(it)[layer]));
        (format!("layer {}", layer + 1), color, points.collect())
    };
    layers.map(curve).collect()
}
