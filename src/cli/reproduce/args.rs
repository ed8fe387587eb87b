use std::path::PathBuf;

use clap::Args;

pub(crate) const REPRODUCE_HELP: &str = "\
A recipe is a file in TOML: the options of `fewshot train` that a paper's figure takes, the seeds, and for each test \
the options of `fewshot eval` with the figure of the paper and the band, which is aimed at (the least accuracy, or the largest error). NAME \
is one of this program's own, or a file.

Every seed is trained in a run folder of its own below --runs. A run that was stopped or killed continues bit for bit \
when the command is given again, and one that is done is tested again. Each test appends one line of JSON to \
RECIPE.jsonl below --results: recipe, learner, options (of the test), figure (what was measured), value, ci95 \
(over episodes), paper, band, seed, protocol, selected_by, steps, checkpoint_step, train_seconds, train and eval (the \
commands), commit (with a + if files differ from it; null outside a checkout), version, machine and date.

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
