use serde_json::{Value, json};

use super::PlasticityRunArgs;
use crate::cli::error::CliError;
use crate::cli::output::print;
use crate::cli::report::rounded;

/// What a run showed.
pub(super) struct RunResult {
    pub(super) moments: Vec<Moment>,
    /// Of each layer.
    pub(super) firings: Vec<usize>,
    /// Of the ticks alone.
    pub(super) seconds: f64,
}

/// The layers after a number of ticks.
pub(super) struct Moment {
    pub(super) tick: usize,
    pub(super) norms: Vec<f64>,
    pub(super) explained: Vec<f64>,
}

pub(super) fn write(
    args: &PlasticityRunArgs,
    result: &RunResult,
    backend: &str,
    device: &str,
) -> Result<(), CliError> {
    let last = result.moments.last().expect("a run has at least one step");
    let pace = args.steps as f64 / result.seconds;
    if args.json {
        return print(object(args, result, last, [backend, device]));
    }
    let plot = args.plot.display();
    for (layer, (norm, explained)) in last.norms.iter().zip(&last.explained).enumerate() {
        let (neurons, period) = (args.levels[layer + 1], args.periods[layer]);
        let firings = result.firings[layer];
        print(format_args!(
            "layer {}: {neurons} neurons, period {period}, {firings} firings, row norm {norm:.3}, \
             explained variance {:.1} %",
            layer + 1,
            100.0 * explained
        ))?;
    }
    let (steps, seconds) = (args.steps, result.seconds);
    print(format_args!("{steps} steps in {seconds:.2} s, {pace:.0} steps/s; plot: {plot}"))
}

fn object(args: &PlasticityRunArgs, result: &RunResult, last: &Moment, place: [&str; 2]) -> Value {
    let layer = |layer: usize| {
        json!({
            "period": args.periods[layer],
            "firings": result.firings[layer],
            "row_norm": rounded(last.norms[layer], 4),
            "explained_variance": rounded(last.explained[layer], 4),
        })
    };
    let lower = |name: &dyn std::fmt::Debug| format!("{name:?}").to_lowercase();
    json!({
        "levels": args.levels,
        "periods": args.periods,
        "activation": lower(&args.activation()),
        "aggregate": lower(&args.aggregate),
        "top_down": args.top_down,
        "rule": lower(&args.rule),
        "rate": args.rate(),
        "decay": args.decay(),
        "tau": args.tau(),
        "whole": args.whole,
        "seed": args.seed,
        "steps": args.steps,
        "batch": args.batch,
        "seconds": rounded(result.seconds, 4),
        "steps_per_s": rounded(args.steps as f64 / result.seconds, 1),
        "layers": (0..result.firings.len()).map(layer).collect::<Vec<_>>(),
        "backend": place[0],
        "device": place[1],
        "threads": rayon::current_num_threads(),
        "plot": args.plot.display().to_string(),
    })
}
