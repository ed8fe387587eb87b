//! Recipes: how a paper's figure is trained and tested.

use std::fs;

use serde::Deserialize;

use crate::prelude::*;

macro_rules! recipes {
    ($($name:literal)+) => {
        pub(super) const RECIPES: &[(&str, &str)] = &[$((
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../recipes/", $name, ".toml")),
        )),+];
    };
}

recipes! {
    "protonet-omniglot"
    "matching-omniglot"
    "relation-omniglot"
    "r2d2-omniglot"
    "simpleshot-omniglot"
    "maml-omniglot"
    "maml-5-shot-omniglot"
    "fomaml-omniglot"
    "anil-omniglot"
    "meta-sgd-omniglot"
    "maml-plus-plus-omniglot"
    "imaml-omniglot"
    "reptile-omniglot"
    "plasticity-omniglot"
    "maml-sinusoid"
    "anil-sinusoid"
    "reptile-sinusoid"
    "cavia-sinusoid"
    "imaml-sinusoid"
    "emoji"
    "emoji-lite0"
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recipe {
    /// Its file's name without the ending.
    #[serde(skip)]
    pub(super) name: String,
    pub(super) learner: String,
    /// Authors, year and table.
    pub(super) paper: String,
    /// Data to learn from, as `--data` has it, without the folder of files.
    pub(super) data: String,
    /// Options of a training that comes first, and from which the other one starts.
    pub(super) base: Option<String>,
    pub(super) train: String,
    pub(super) seeds: Vec<u64>,
    #[serde(rename = "test")]
    pub(super) tests: Vec<Test>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Test {
    #[serde(default)]
    pub(super) options: String,
    /// Where the figure is in the report of `fewshot eval --json`.
    #[serde(default = "accuracy")]
    pub(super) figure: String,
    /// The figure as the paper prints it.
    pub(super) paper: Option<String>,
    /// Aim: the least accuracy, or the largest error.
    pub(super) band: Option<f64>,
}

fn accuracy() -> String {
    "accuracy".to_owned()
}

impl Recipe {
    /// The recipe of this name, or in this file.
    pub(super) fn named(given: &str) -> Result<Self> {
        if let Some((name, text)) = RECIPES.iter().find(|(name, _)| *name == given) {
            return Self::parse(name, text);
        }
        let path = Path::new(given);
        if path.extension().is_none_or(|ending| ending != "toml") {
            let names: Vec<_> = RECIPES.iter().map(|(name, _)| *name).collect();
            let known = names.join(", ");
            return Err(usage!("no recipe {given:?}: there are {known}, and files FILE.toml"));
        }
        let text = fs::read_to_string(path).map_err(|error| failed!("{given}: {error}"))?;
        Self::parse(&path.file_stem().unwrap_or_default().to_string_lossy(), &text)
    }

    pub(super) fn all() -> Result<Vec<Self>> {
        RECIPES.iter().map(|(name, text)| Self::parse(name, text)).collect()
    }

    fn parse(name: &str, text: &str) -> Result<Self> {
        let wrong = |error: String| failed!("recipe {name}: {}", error.trim_end());
        let mut recipe: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        recipe.name = name.to_owned();
        match recipe {
            Self { ref seeds, .. } if seeds.is_empty() => Err(wrong("it has no seeds".to_owned())),
            Self { ref tests, .. } if tests.is_empty() => Err(wrong("it has no test".to_owned())),
            _ => Ok(recipe),
        }
    }
}

impl Test {
    pub(super) fn is_within(&self, value: f64) -> bool {
        let is_error = self.figure != accuracy();
        self.band.is_none_or(|band| if is_error { value <= band } else { value >= band })
    }

    /// The figure in a report, and the half-width of its interval.
    pub(super) fn read(&self, report: &Value) -> Option<[f64; 2]> {
        let interval = match self.figure.strip_prefix("mse_after/") {
            Some(steps) => format!("/mse_ci95_after/{steps}"),
            None => "/ci95".to_owned(),
        };
        let at = |place: &str| report.pointer(place)?.as_f64();
        Some([at(&format!("/{}", self.figure))?, at(&interval)?])
    }
}
