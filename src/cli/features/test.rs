use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use fewshot::data::Features;
use fewshot::episode::{FeatureSampler, Protocol, QueryCounts};
use fewshot::kernels::route;
use fewshot::learners::heads::{AnyHead, AnyTransductiveHead, HEAD_NAMES, TRANSDUCTIVE_HEAD_NAMES};
use fewshot::train::{FeatureEvaluation, FeatureTest};
use serde_json::json;

use super::args::FeatureProtocol;
use super::{plot, table};
use crate::cli::args::EvalArgs;
use crate::cli::args::TRAINED_ON_EPISODES;
use crate::cli::backend::{self, Job, Place};
use crate::cli::error::CliError;
use crate::cli::output::{print, print_status};
use crate::cli::report::rounded;

/// `fewshot eval --features`, of the file `path`.
pub(crate) fn eval_features(args: &EvalArgs, path: &Path) -> Result<(), CliError> {
    backend::prepare(&args.device)?;
    let all = ["all".to_owned()];
    let methods = methods(if args.method.is_empty() { &all } else { &args.method })?;
    let plot = args.features.plot.clone();
    let svg = |path: &Path| path.extension().is_some_and(|ending| ending == "svg");
    if let Some(path) = plot.as_ref().filter(|path| !svg(path)) {
        return Err(CliError::Usage(format!("--plot draws .svg, not {}", path.display())));
    }
    let features = Features::open(path)?;
    let base_mean = match &args.features.base_features {
        Some(path) => Some(Features::open(path)?.mean()),
        None => features.base_mean().map(<[f32]>::to_vec),
    };
    let features = match base_mean {
        Some(mean) => features.with_base_mean(mean)?,
        None => features,
    };
    let protocol = FeatureProtocol::new(args);
    let test = Test { features: Arc::new(features), methods, protocol };
    let samplers = test.samplers()?;
    let testing = Testing { test, samplers, path: path.to_owned(), plot, json: args.json };
    backend::dispatch(&args.device, testing)
}

/// The methods that are asked for, each once.
fn methods(asked: &[String]) -> Result<Vec<&'static str>, CliError> {
    let all = || HEAD_NAMES.iter().chain(TRANSDUCTIVE_HEAD_NAMES).copied();
    let known = || all().filter(|name| !TRAINED_ON_EPISODES.contains(name));
    let mut found: Vec<&str> = Vec::new();
    for name in asked {
        let named: Vec<_> = match name.as_str() {
            "all" => known().collect(),
            "protonet" => vec!["prototypes"],
            name if TRAINED_ON_EPISODES.contains(&name) => {
                return Err(CliError::Usage(format!(
                    "{name} has weights of its own, which a file of features does not bring"
                )));
            }
            name => known().filter(|known| *known == name).collect(),
        };
        if named.is_empty() {
            let known: Vec<_> = known().collect();
            let known = known.join(", ");
            return Err(CliError::Usage(format!("no method {name:?}: there are all, {known}")));
        }
        found.extend(named.into_iter().filter(|name| !found.contains(name)).collect::<Vec<_>>());
    }
    Ok(found)
}

struct Test {
    features: Arc<Features>,
    methods: Vec<&'static str>,
    protocol: FeatureProtocol,
}

impl Test {
    /// One of each number of shots.
    fn samplers(&self) -> Result<Vec<FeatureSampler>, CliError> {
        let FeatureProtocol { ways, queries, seed, ref shots, unbalanced, .. } = self.protocol;
        let counts = match unbalanced {
            Some(alpha) => QueryCounts::Dirichlet { alpha },
            None => QueryCounts::Balanced,
        };
        let sampler = |&shots: &usize| {
            let protocol = Protocol::new(ways, shots).with_queries(queries);
            let sampler = FeatureSampler::new(self.features.clone(), protocol, seed)?;
            Ok(sampler.with_query_counts(counts)?)
        };
        shots.iter().map(sampler).collect()
    }

    /// All methods on all numbers of shots, the best of each number first.
    fn found<B: Backend>(
        &self,
        samplers: &[FeatureSampler],
        device: &B::Device,
    ) -> Vec<Vec<FeatureEvaluation>> {
        let all = samplers.iter().map(|sampler| {
            let found = self.methods.iter().map(|method| {
                let found = self.one::<B>(method, sampler, device);
                print_status(&found);
                figures(found)
            });
            let mut found: Vec<_> = found.collect();
            found.sort_by(|one, other| other.accuracy.total_cmp(&one.accuracy));
            found
        });
        all.collect()
    }

    fn one<B: Backend>(
        &self,
        method: &str,
        sampler: &FeatureSampler,
        device: &B::Device,
    ) -> FeatureEvaluation {
        let (maps, test) = (maps(&self.features), FeatureTest::new(self.protocol.episodes));
        let mean = self.features.base_mean().map(|mean| Tensor::from_floats(mean, device));
        if let Some(head) = AnyHead::<B>::with_name(method, maps, device) {
            return match (head, mean) {
                (AnyHead::SimpleShot(head), Some(mean)) => {
                    test.run(&head.with_base_mean(mean), sampler, device)
                }
                (head, _) => test.run(&head, sampler, device),
            };
        }
        let head = AnyTransductiveHead::<B>::with_name(method, maps, device);
        match (head.expect("methods have names of heads"), mean) {
            (AnyTransductiveHead::LaplacianShot(head), Some(mean)) => {
                test.run_transductive(&head.with_base_mean(mean), sampler, device)
            }
            (head, _) => test.run_transductive(&head, sampler, device),
        }
    }
}

/// The maps that rows are made of, where their file says; rows are vectors otherwise.
fn maps(features: &Features) -> [usize; 3] {
    let said = features.metadata().get("maps").and_then(|text| {
        let sizes = text.split('x').map(|size| size.parse().ok());
        <[usize; 3]>::try_from(sizes.collect::<Option<Vec<_>>>()?).ok()
    });
    let fits = |maps: &[usize; 3]| maps.iter().product::<usize>() == features.length();
    said.filter(fits).unwrap_or([features.length(), 1, 1])
}

/// Rounded to what they are worth.
fn figures(found: FeatureEvaluation) -> FeatureEvaluation {
    let digits = |value| rounded(value, 2);
    FeatureEvaluation {
        accuracy: digits(found.accuracy),
        ci95: digits(found.ci95),
        episodes_per_s: digits(found.episodes_per_s),
        ..found
    }
}

/// A test that can begin.
struct Testing {
    test: Test,
    samplers: Vec<FeatureSampler>,
    path: PathBuf,
    plot: Option<PathBuf>,
    json: bool,
}

impl Job for Testing {
    type Output = ();

    fn run<B: AutodiffBackend>(self, place: Place<B>) -> Result<(), CliError> {
        let Self { test, samplers, path, plot, json } = self;
        let tables = test.found::<B::InnerBackend>(&samplers, &place.device);
        if let Some(plot) = &plot {
            plot::write(&tables, plot)?;
        }
        if !json {
            return print(table::text(&tables));
        }
        let Test { features, .. } = test;
        print(json!({
            "features": path.display().to_string(),
            "classes": features.classes(),
            "rows": features.rows(),
            "length": features.length(),
            "base_mean": features.base_mean().is_some(),
            "backend": place.backend,
            "device": place.label,
            "route": route::<B>().to_string(),
            "results": tables.concat(),
        }))
    }
}

/// What might be found of a method.
#[cfg(test)]
pub(super) fn example(
    method: &str,
    transductive: bool,
    accuracy: f64,
    ci95: f64,
) -> FeatureEvaluation {
    FeatureEvaluation {
        method: method.to_owned(),
        settings: json!({}),
        protocol: Protocol::new(5, 1),
        episodes: 100,
        transductive,
        unbalanced: None,
        seed: 1,
        accuracy,
        ci95,
        episodes_per_s: 10.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Result<Vec<&'static str>, CliError> {
        methods(&names.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn methods_are_named_once_and_known() {
        assert_eq!(named(&["simpleshot", "simpleshot"]).unwrap(), ["simpleshot"]);
        let all = named(&["all", "simpleshot"]).unwrap();
        assert!(all.contains(&"simpleshot") && !all.contains(&"relation"));
        let error = named(&["simple"]).unwrap_err().to_string();
        assert!(error.contains("\"simple\"") && error.contains("simpleshot"), "{error}");
    }

    #[test]
    fn rows_are_maps_where_their_file_says_so() {
        let features = Features::new(12, [("a".to_owned(), vec![0.0; 12])]).unwrap();
        assert_eq!(maps(&features), [12, 1, 1]);
        assert_eq!(maps(&features.clone().with_metadata("maps", "3x2x2")), [3, 2, 2]);
        for wrong in ["3x2", "3x2x3", "conv"] {
            assert_eq!(maps(&features.clone().with_metadata("maps", wrong)), [12, 1, 1]);
        }
    }
}
