//! `fewshot runs`: what run folders tell.

mod named;
mod plot;
mod summary;
mod tables;

use clap::Subcommand;
use fewshot::plot::COLORS;

use crate::prelude::*;

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// One row for each run in a folder; the one that last wrote metrics comes first.
    List {
        /// Folder whose folders are runs
        #[arg(default_value = "runs", value_name = "DIR")]
        folder: PathBuf,
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// The settings of a run, how far it is, and its results so far.
    Show {
        /// Run folder
        run: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// The settings in which runs differ, and their results side by side.
    Compare {
        /// Run folders, two or more
        #[arg(required = true, num_args = 2.., value_name = "RUN")]
        runs: Vec<PathBuf>,
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Draw training loss and validation of runs in one plot.
    Plot {
        /// Run folders, at most ten
        #[arg(required = true, num_args = 1..=COLORS.len(), value_name = "RUN")]
        runs: Vec<PathBuf>,
        /// The plot, .svg
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
}

pub(crate) const RUNS_HELP: &str = "\
A run folder is what `fewshot train` makes: a folder with config.json and metrics.jsonl. It is only read, and a \
last line of metrics that was cut off is left out.

A run is `running` as long as a process works in its folder, `done` after all its steps or after --patience, and \
else `stopped`: `fewshot train --resume` goes on with it. A running one writes its steps with its checkpoints. \
The time left is that of the last steps times the number of those left. - is what is not known, or not yet.

With --json, each run is one JSON object: name, folder, method, data, state (running, done or stopped), steps, \
steps_wanted, best and last (validations: step, measure, mean and ci95, accuracies in percent), seconds (that \
its steps took, validations among them), seconds_left; null is what is not known. `show` adds loss and accuracy \
(means of the last 100 steps) and settings, `compare` the settings that differ.

Exit code: 0 on success, 2 for wrong usage, 1 for every other failure. `list` prints the runs that it can read, \
and fails if there is one that it cannot.";

pub(crate) fn run(command: RunsCommand) -> Result {
    match command {
        RunsCommand::List { folder, json } => tables::list(&folder, json),
        RunsCommand::Show { run, json } => tables::show(&run, json),
        RunsCommand::Compare { runs, json } => tables::compare(&runs, json),
        RunsCommand::Plot { runs, to } => plot::plot(&runs, &to),
    }
}
