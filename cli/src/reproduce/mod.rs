//! `fewshot reproduce`: the papers' figures by recipes.

mod child;
mod outcome;
mod recipe;
mod table;

use clap::Args;
use fewshot::train::{RunFolder, RunHistory};

use crate::data_spec::DataSpec;
use crate::machine::{self, Machine};
use crate::prelude::*;
use outcome::Outcome;
use recipe::{Recipe, Test};

pub(crate) const REPRODUCE_HELP: &str = "\
A recipe is a file in TOML: the options of `fewshot train` that a paper's figure takes (train, and base for those of a \
training from which it starts), the seeds, and for each test \
the options of `fewshot eval` with the figure of the paper and the band, which is aimed at (the least accuracy, or the largest error). NAME \
is one of this program's own, or a file.

Every seed is trained in a run folder of its own below --runs. A run that was stopped or killed continues bit for bit \
when the command is given again, and one that is done is tested again. Each test appends one line of JSON to \
RECIPE.jsonl below --results: recipe, learner, options (of the test), figure (what was measured), value, ci95 \
(over episodes), paper, band, seed, protocol, selected_by, steps, checkpoint_step, train_seconds, base (in a recipe \
that has it), train and eval (the commands), commit (with a + if files differ from it; null outside a checkout), version, machine and date.

--table prints the results of all recipes as a table in Markdown: of each seed the last line counts.";

#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// A recipe, or a file with one; without it all are listed
    #[arg(value_name = "NAME_OR_FILE", conflicts_with = "table")]
    pub(crate) recipe: Option<String>,
    /// Where the recipe's data is, as omniglot:DIR; glyphs and sinusoid need none
    #[arg(long, value_name = "SPEC", requires = "recipe")]
    pub(crate) data: Option<String>,
    /// Seeds, separated by commas [default: the recipe's]
    #[arg(long, value_name = "N", value_delimiter = ',', requires = "recipe")]
    pub(crate) seeds: Vec<u64>,
    /// Folder of the run folders
    #[arg(long, value_name = "DIR", default_value = "runs/reproduce")]
    pub(crate) runs: PathBuf,
    /// Folder of the results
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    pub(crate) results: PathBuf,
    /// Print the results of all recipes as a table in Markdown
    #[arg(long)]
    pub(crate) table: bool,
    /// Options that training and tests take, as -- --backend wgpu --threads 4
    #[arg(last = true, value_name = "OPTIONS", requires = "recipe")]
    pub(crate) device: Vec<String>,
}

pub(crate) fn run(args: &ReproduceArgs) -> Result {
    let Some(name) = &args.recipe else {
        let recipes = Recipe::all()?;
        return match args.table {
            true => print(table::markdown(&recipes, &args.results)?.trim_end()),
            false => list(&recipes, &args.results),
        };
    };
    let recipe = Recipe::named(name)?;
    let data = recipe.data(args.data.as_deref())?;
    let seeds = if args.seeds.is_empty() { &recipe.seeds } else { &args.seeds };
    // The checkout may have moved on when a training of hours ends.
    let commit = machine::commit();
    seeds.iter().try_for_each(|&seed| {
        Reproduction { args, recipe: &recipe, data: &data, seed, commit: commit.clone() }.run()
    })
}

/// All recipes, and how many seeds of each have results.
fn list(recipes: &[Recipe], results: &Path) -> Result {
    let head = ["recipe", "learner", "paper", "seeds"].map(str::to_owned);
    let row = |recipe: &Recipe| {
        let mut done: Vec<_> =
            outcome::read(results, recipe)?.iter().map(|outcome| outcome.seed).collect();
        done.sort_unstable();
        done.dedup();
        let seeds = format!("{} of {}", done.len(), recipe.seeds.len());
        Ok([recipe.name.clone(), recipe.learner.clone(), recipe.paper.clone(), seeds])
    };
    let rows = recipes.iter().map(row).collect::<Result<Vec<_>>>()?;
    print(table([head].into_iter().chain(rows)))
}

impl Recipe {
    fn data(&self, given: Option<&str>) -> Result<String> {
        let (name, data) = (&self.name, &self.data);
        match given {
            None if data.parse::<DataSpec>().is_ok() => Ok(data.clone()),
            None => Err(usage!("{name} needs --data {data}:DIR")),
            Some(given) if given.split(':').next() == Some(data) => Ok(given.to_owned()),
            Some(given) => Err(usage!("{name} is trained on {data}, not on {given}")),
        }
    }
}

struct Reproduction<'a> {
    args: &'a ReproduceArgs,
    recipe: &'a Recipe,
    data: &'a str,
    seed: u64,
    commit: Option<String>,
}

impl Reproduction<'_> {
    fn run(&self) -> Result {
        let Self { recipe, seed, .. } = self;
        print_status(format_args!("{}, seed {seed}", recipe.name));
        let folder = self.args.runs.join(format!("{}-{seed}", recipe.name));
        let base = self.args.runs.join(format!("{}-{seed}-base", recipe.name));
        let mut seconds = 0.0;
        if let Some(options) = &recipe.base {
            self.train(&base, options, None)?;
            seconds += RunHistory::read(&base)?.seconds();
        }
        let from = recipe.base.as_ref().map(|_| &*base);
        let trained = self.train(&folder, &recipe.train, from)?;
        seconds = (seconds + RunHistory::read(&folder)?.seconds()).round();
        recipe.tests.iter().try_for_each(|test| self.test(test, &folder, (&trained, seconds)))
    }

    /// Trains the run in `folder`, or what is left of it, from another run if there is one.
    fn train(&self, folder: &Path, options: &str, from: Option<&Path>) -> Result<Value> {
        let mut words = vec!["train", "--data", self.data];
        words.extend(options.split_whitespace());
        let from = from.map(|from| from.display().to_string());
        words.extend(from.iter().flat_map(|from| ["--from", from]));
        let (seed, folder_name) = (self.seed.to_string(), folder.display().to_string());
        words.extend(["--seed", &seed, "--out", &folder_name]);
        if RunFolder::last(folder).exists() {
            words.push("--resume");
        }
        self.fewshot(&words)
    }

    fn test(&self, test: &Test, folder: &Path, (trained, train_seconds): (&Value, f64)) -> Result {
        let folder_name = folder.display().to_string();
        let mut words = vec!["eval", &folder_name];
        words.extend(test.options.split_whitespace());
        let tested = self.fewshot(&words)?;
        let measured = test.read(&tested);
        let number = |report: &Value, field: &str| report[field].as_u64().unwrap_or(0);
        let (recipe, place, seed) = (self.recipe, self.place(), self.seed.to_string());
        let outcome = Outcome {
            recipe: recipe.name.clone(),
            learner: recipe.learner.clone(),
            options: test.options.clone(),
            figure: test.figure.clone(),
            value: measured.map(|[value, _]| value),
            ci95: measured.map(|[_, ci95]| ci95),
            paper: test.paper.clone(),
            band: test.band,
            seed: self.seed,
            protocol: tested["protocol"].clone(),
            selected_by: trained["protocol"]["selected_by"].clone(),
            steps: number(trained, "steps"),
            checkpoint_step: number(&tested, "steps"),
            train_seconds,
            base: recipe.base.as_ref().map(|base| {
                self.line(&["train --data", &place, base, "--seed", &seed, "--out BASE"])
            }),
            train: self.line(&[
                "train --data",
                &place,
                &recipe.train,
                if recipe.base.is_some() { "--from BASE" } else { "" },
                "--seed",
                &seed,
            ]),
            eval: self.line(&["eval RUN", &test.options]),
            commit: self.commit.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: json!(Machine::here()),
            date: machine::today(),
        };
        outcome::append(&self.args.results, recipe, &outcome)?;
        print(table::line(test, &outcome))
    }

    /// A command as it is recorded: what another machine repeats.
    fn line(&self, words: &[&str]) -> String {
        let device = self.args.device.iter().map(String::as_str);
        let words = ["fewshot"].into_iter().chain(words.iter().copied()).chain(device);
        words.filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// The data without the folder that has it here.
    fn place(&self) -> String {
        match self.data.split_once(':') {
            Some((name, _)) => format!("{name}:DIR"),
            None => self.data.to_owned(),
        }
    }

    /// The JSON report of another command of this program.
    fn fewshot(&self, words: &[&str]) -> Result<Value> {
        let device = self.args.device.iter().map(String::as_str);
        child::report(&words.iter().copied().chain(device).collect::<Vec<_>>())
    }
}
