//! Sizes and number of the episodes.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use fewshot::data::Split;
use serde::{Deserialize, Serialize};

use super::{ReadArgs, count, steps};
use crate::data_spec::{DataSpec, Part, image_specs};
use crate::prelude::*;

/// Rules for the sizes of episodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sampling {
    /// So many ways, shots and queries in every episode
    #[default]
    Fixed,
    /// Ways, queries and the shots of each class drawn for each episode, Triantafillou et al. 2020
    Varied,
}

impl Sampling {
    pub(crate) fn is_fixed(&self) -> bool {
        *self == Self::Fixed
    }
}

/// The rule for the sizes of episodes.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct SamplingArgs {
    /// Sizes of episodes, in training and test [default: fixed; of a test the run's]
    #[arg(long, value_enum, value_name = "RULE")]
    pub(crate) protocol: Option<Sampling>,
}

/// The episodes of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TestEpisodes {
    /// So many, drawn by the seed.
    Drawn(usize),
    /// All episodes of a list.
    Listed(PathBuf),
}

impl TestEpisodes {
    /// The file of the list, if it is one.
    pub(crate) fn list(&self) -> Option<&Path> {
        match self {
            Self::Drawn(_) => None,
            Self::Listed(path) => Some(path),
        }
    }

    /// Their number, if they are drawn.
    pub(crate) fn drawn(&self) -> Option<usize> {
        match self {
            Self::Drawn(count) => Some(*count),
            Self::Listed(_) => None,
        }
    }

    /// The number of tasks that are no images, of which there are no lists.
    pub(crate) fn count(&self) -> Result<usize> {
        match self {
            Self::Drawn(count) => Ok(*count),
            Self::Listed(path) => {
                Err(usage!("{} lists images, and sinusoids are none", path.display()))
            }
        }
    }
}

impl FromStr for TestEpisodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = Path::new(text);
        match (text.parse(), path.extension()) {
            (Ok(0), _) => Err("a test needs an episode".to_owned()),
            (Ok(count), _) => Ok(Self::Drawn(count)),
            (Err(_), Some(_)) => Ok(Self::Listed(path.to_path_buf())),
            _ => Err("write a number, or a file that ends in .jsonl or .csv".to_owned()),
        }
    }
}

pub(crate) const EPISODES_HELP: &str = "\
The file has the episodes that `fewshot train` and `fewshot eval` draw from these classes by this seed: a test on \
the file is the same as one without it. In .jsonl a line is an episode,

  {\"classes\": [{\"class\": \"owl\", \"support\": [\"3.png\"], \"queries\": [\"7.png\", 12]}, ...]}

and in .csv a row is an example, in the columns episode,class,picture,part (support or query). A picture is the name \
of its file, or where it has none its number: its place in the class, from 0, among the pictures that were read. A \
class that is shown in a quarter turn also has a turn of 90, 180 or 270.";

/// Options of `fewshot data episodes`.
#[derive(Debug, Args)]
pub(crate) struct EpisodeListArgs {
    #[arg(help = format!("One of: {}", image_specs()))]
    pub(crate) spec: DataSpec,
    /// File to write, .jsonl or .csv
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// Classes to draw from
    #[arg(long, value_enum, default_value_t)]
    pub(crate) part: Part,
    /// Split of Omniglot: vinyals, finn or finn:SEED [default: vinyals]
    #[arg(long)]
    pub(crate) split: Option<Split>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Classes in an episode [default: 5]
    #[arg(long, value_name = "W", value_parser = count(1..))]
    pub(crate) ways: Option<usize>,
    /// Labelled examples of each class [default: 1]
    #[arg(long, value_name = "K", value_parser = count(1..))]
    pub(crate) shots: Option<usize>,
    /// Queries of each class [default: 15]
    #[arg(long, value_name = "Q", value_parser = count(1..))]
    pub(crate) queries: Option<usize>,
    /// Episodes
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = steps(1..=10_000_000))]
    pub(crate) episodes: u64,
    /// Seed of the episodes
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn episodes_are_a_number_or_a_file() {
        assert_eq!("20".parse(), Ok(TestEpisodes::Drawn(20)));
        let file = TestEpisodes::Listed("a/20.jsonl".into());
        assert_eq!("a/20.jsonl".parse(), Ok(file));
        for wrong in ["0", "", "many", "-1", "1e3"] {
            assert!(wrong.parse::<TestEpisodes>().is_err(), "{wrong:?}");
        }
    }
}
