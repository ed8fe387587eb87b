use std::collections::HashSet;
use std::sync::Arc;

use fewshot::data::{FeatureRows, Features};
use fewshot::episode::{EpisodeList, FeatureSampler, Protocol, QueryCounts};
use fewshot::learners::heads::{AnyHead, HEAD_NAMES, TRAINED_ON_EPISODES, TRANSDUCTIVE_HEAD_NAMES};
use fewshot::train::{FeatureEvaluation, FeatureTest};

use super::{plot, table};
use crate::args::{EvalArgs, Sampling, TestEpisodes, first_given};
use crate::prelude::*;
use crate::progress::EpisodeProgress;
use crate::settings::{LISTED, VARIED, refuse_sizes};

/// `fewshot eval --features`, of the file `path`.
pub(crate) fn eval_features(args: &EvalArgs, path: &Path) -> Result {
    backend::prepare(args.device.threads)?;
    let all = ["all".to_owned()];
    let methods = methods(if args.method.is_empty() { &all } else { &args.method })?;
    if let Some(path) = &args.features.plot
        && path.extension().is_none_or(|ending| ending != "svg")
    {
        return Err(usage!("--plot draws .svg, not {}", path.display()));
    }
    let mut features = Features::open_with_labels(path, args.features.labels.as_deref())?;
    if let Some(path) = &args.features.base_features {
        features = features.with_base_mean(FeatureRows::open(path)?.mean())?;
    }
    let features = Arc::new(features);
    let counts = match args.features.unbalanced {
        Some(alpha) => QueryCounts::Dirichlet { alpha },
        None => QueryCounts::Balanced,
    };
    let samplers = match uneven_sampler(args, &features)? {
        Some(sampler) => vec![sampler],
        None => samplers(args, &features, counts)?,
    };
    backend::dispatch(&args.device, Testing { args, path, features, methods, samplers })
}

/// The sampler of each number of shots.
fn samplers(
    args: &EvalArgs,
    features: &Arc<Features>,
    counts: QueryCounts,
) -> Result<Vec<FeatureSampler>> {
    let shots = if args.shots.is_empty() { &[1, 5][..] } else { &args.shots };
    let samplers = shots.iter().map(|&shots| {
        let protocol =
            Protocol::new(args.ways.unwrap_or(5), shots).with_queries(args.queries.unwrap_or(15));
        let sampler = FeatureSampler::new(features.clone(), protocol, args.seed.unwrap_or(1))?;
        Ok(sampler.with_query_counts(counts)?)
    });
    samplers.collect()
}

/// The sampler of a list, or of episodes of various sizes, if one of them is asked for.
fn uneven_sampler(args: &EvalArgs, features: &Arc<Features>) -> Result<Option<FeatureSampler>> {
    let sizes =
        first_given!(args, ways, shots, queries).or(first_given!(args.features, unbalanced));
    if let Some(path) = args.list() {
        let by_rule = first_given!(args.sampling, protocol).or(first_given!(args, seed));
        refuse_sizes(sizes.or(by_rule), LISTED)?;
        let list = EpisodeList::read_rows(path, features)?;
        return Ok(Some(FeatureSampler::listed(features.clone(), list)?));
    }
    match args.sampling.protocol {
        None | Some(Sampling::Fixed) => Ok(None),
        Some(Sampling::Varied) => {
            refuse_sizes(sizes, VARIED)?;
            Ok(Some(FeatureSampler::varied(features.clone(), args.seed.unwrap_or(1))?))
        }
    }
}

fn methods(names: &[String]) -> Result<Vec<&'static str>> {
    let all = || HEAD_NAMES.iter().chain(TRANSDUCTIVE_HEAD_NAMES).copied();
    let known = || all().filter(|name| !TRAINED_ON_EPISODES.contains(name));
    let mut methods: Vec<&str> = Vec::new();
    for name in names {
        let named: Vec<_> = match name.as_str() {
            "all" => known().collect(),
            "protonet" => vec!["prototypes"],
            name if TRAINED_ON_EPISODES.contains(&name) => {
                return Err(usage!(
                    "{name} has weights of its own, which a file of features does not bring"
                ));
            }
            name => known().filter(|known| *known == name).collect(),
        };
        if named.is_empty() {
            let known = known().collect::<Vec<_>>().join(", ");
            return Err(usage!("no method {name:?}: there are all, {known}"));
        }
        methods.extend(named);
    }
    let mut seen = HashSet::new();
    methods.retain(|name| seen.insert(*name));
    Ok(methods)
}

struct Testing<'a> {
    args: &'a EvalArgs,
    path: &'a Path,
    features: Arc<Features>,
    methods: Vec<&'static str>,
    /// One of each number of shots.
    samplers: Vec<FeatureSampler>,
}

impl Work for Testing<'_> {
    type Output = Result;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Result {
        let tables = self.tables::<B>(hardware.device());
        let Self { args, path, features, .. } = self;
        if let Some(plot) = &args.features.plot {
            plot::write(&tables, plot)?;
        }
        if !args.json {
            return print(table::text(&tables));
        }
        let mut report = json!({
            "features": path.display().to_string(),
            "classes": features.classes(),
            "rows": features.rows(),
            "length": features.length(),
            "base_mean": features.base_mean().is_some(),
            "results": tables.concat(),
        });
        join(&mut report, backend::fields(&hardware));
        print(report)
    }
}

impl Testing<'_> {
    /// All methods on all numbers of shots, the best of each number first.
    fn tables<B: Backend>(&self, device: &B::Device) -> Vec<Vec<FeatureEvaluation>> {
        let mut tables = Vec::new();
        for sampler in &self.samplers {
            let mut table = Vec::new();
            for method in &self.methods {
                let mut evaluation = self.one::<B>(method, sampler, device);
                print_status(&evaluation);
                for figure in
                    [&mut evaluation.accuracy, &mut evaluation.ci95, &mut evaluation.episodes_per_s]
                {
                    *figure = rounded(*figure, 2);
                }
                table.push(evaluation);
            }
            table.sort_by(|one, other| other.accuracy.total_cmp(&one.accuracy));
            tables.push(table);
        }
        tables
    }

    fn one<B: Backend>(
        &self,
        method: &str,
        sampler: &FeatureSampler,
        device: &B::Device,
    ) -> FeatureEvaluation {
        let head = AnyHead::<B>::for_features(method, &self.features, device);
        let head = head.expect("methods have names of heads");
        let drawn = self.args.episodes.as_ref().and_then(TestEpisodes::drawn);
        let episodes = sampler.list().map(EpisodeList::len).or(drawn).unwrap_or(10_000);
        let progress = EpisodeProgress::start(method, sampler.sizes(), episodes);
        let tell = |done| progress.tell(done);
        let evaluation = FeatureTest::new(episodes).run_observed(&head, sampler, device, &tell);
        progress.finish();
        evaluation
    }
}

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
        sizes: fewshot::episode::EpisodeSizes::Fixed(Protocol::new(5, 1)),
        episodes: 100,
        transductive,
        unbalanced: None,
        seed: Some(1),
        accuracy,
        ci95,
        episodes_per_s: 10.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Result<Vec<&'static str>> {
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
}
