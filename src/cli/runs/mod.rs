//! `fewshot runs`: what run folders tell.

mod args;
mod compare;
mod list;
mod named;
mod plot;
mod settings;
mod show;
mod summary;

pub(crate) use args::{RUNS_HELP, RunsCommand};

use super::error::Result;

pub(crate) fn run(command: RunsCommand) -> Result {
    match command {
        RunsCommand::List { folder, json } => list::list(&folder, json),
        RunsCommand::Show { run, json } => show::show(&run, json),
        RunsCommand::Compare { runs, json } => compare::compare(&runs, json),
        RunsCommand::Plot { runs, to } => plot::plot(&runs, &to),
    }
}
