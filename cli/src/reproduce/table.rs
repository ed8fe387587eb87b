//! Results as a table.

use super::outcome::{self, Outcome};
use super::recipe::{Recipe, Test};
use crate::prelude::*;

const HEAD: &str = "\
| learner | protocol | batch-norm in the test | paper | band | ours | seeds | minutes a run | commit |
|---|---|---|---|---|---|---|---|---|
";

/// The results of all recipes in Markdown: of each seed the last one.
pub(super) fn markdown(recipes: &[Recipe], results: &Path) -> Result<String> {
    let mut text = HEAD.to_owned();
    for recipe in recipes {
        let outcomes = outcome::read(results, recipe)?;
        for test in &recipe.tests {
            let outcomes_of_test = latest(&outcomes, test);
            if !outcomes_of_test.is_empty() {
                text += &row(test, &outcomes_of_test);
            }
        }
    }
    Ok(text)
}

/// The last outcome of every seed, by seed.
fn latest<'a>(outcomes: &'a [Outcome], test: &Test) -> Vec<&'a Outcome> {
    let own = |outcome: &&Outcome| outcome.options == test.options && outcome.figure == test.figure;
    let mut newest: Vec<&Outcome> = outcomes.iter().rev().filter(own).collect();
    // Stable: of one seed the last stays first.
    newest.sort_by_key(|outcome| outcome.seed);
    newest.dedup_by_key(|outcome| outcome.seed);
    newest
}

fn row(test: &Test, outcomes: &[&Outcome]) -> String {
    let last = outcomes[outcomes.len() - 1];
    let values: Vec<f64> = outcomes.iter().filter_map(|outcome| outcome.value).collect();
    let intervals: Vec<f64> = outcomes.iter().filter_map(|outcome| outcome.ci95).collect();
    let minutes: Vec<_> = outcomes.iter().map(|outcome| outcome.train_seconds / 60.0).collect();
    let [mean, interval, minutes] = [&values, &intervals, &minutes].map(|of| mean(of));
    let short = match values.len() == outcomes.len() && test.is_within(rounded(mean, 2)) {
        true => "",
        false => ", **below the band**",
    };
    let deviation = match values.len() {
        0 | 1 => String::new(),
        n => format!(", deviation {:.2} over {n} seeds", deviation(&values)),
    };
    let seeds: Vec<_> = outcomes.iter().map(|outcome| outcome.seed.to_string()).collect();
    let mut commits: Vec<_> =
        outcomes.iter().filter_map(|outcome| outcome.commit.clone()).collect();
    commits.dedup();
    format!(
        "| {} | {} | {} | {} | {} | {mean:.2} ± {interval:.2}{deviation}{short} | {} | {minutes:.0} | {} |\n",
        last.learner,
        protocol(test, last),
        batch_norm(last),
        test.paper.clone().unwrap_or_default(),
        test.band.map(|band| band.to_string()).unwrap_or_default(),
        seeds.join(", "),
        commits.join(", "),
    )
}

pub(super) fn line(test: &Test, outcome: &Outcome) -> String {
    let (protocol, seed) = (protocol(test, outcome), outcome.seed);
    let figure = match outcome.value.zip(outcome.ci95) {
        Some((value, ci95)) => format!("{value:.2} ± {ci95:.2}"),
        None => "not finite".to_owned(),
    };
    let paper = test.paper.as_ref().map(|paper| format!(", paper {paper}")).unwrap_or_default();
    let band = test.band.map(|band| format!(", band {band}")).unwrap_or_default();
    format!("{}, {protocol}, seed {seed}: {figure}{paper}{band}", outcome.learner)
}

/// The protocol of an outcome, as `Omniglot (vinyals), 5-way 1-shot`.
fn protocol(test: &Test, outcome: &Outcome) -> String {
    let of = &outcome.protocol;
    let data = of["data"].as_str().unwrap_or("");
    if let Some(steps) = test.figure.strip_prefix("mse_after/") {
        let plural = if steps == "1" { "" } else { "s" };
        return format!("{data}, {} points, error after {steps} step{plural}", of["shots"]);
    }
    let split = of["split"].as_str().map_or_else(String::new, |split| format!(" ({split})"));
    match of["sampling"].as_str() {
        Some(sampling @ ("varied" | "listed")) => {
            format!("{data}{split}, {sampling} ways and shots")
        }
        _ => format!("{data}{split}, {}-way {}-shot", of["ways"], of["shots"]),
    }
}

fn batch_norm(outcome: &Outcome) -> &str {
    match outcome.protocol["batch_norm"].as_str() {
        Some("batch") => "of the episode (transductive)",
        Some("support") => "of the support",
        Some("running") => "running",
        Some(other) => other,
        None => "none",
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The corrected standard deviation.
fn deviation(values: &[f64]) -> f64 {
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}
