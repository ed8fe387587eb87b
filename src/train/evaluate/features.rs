//! Tests of classifiers over embeddings that are there already.

use std::convert::Infallible;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use burn::tensor::backend::Backend;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Score;
use super::embedded::{Launch, accuracies, parts};
use crate::episode::{EpisodeSizes, FeatureSampler, Measure, QueryCounts};
use crate::learners::heads::Head;

/// Most episodes of the first launch, after which an observer can tell what a test will take.
const FIRST: usize = 16;

/// Time between two calls of an observer that may stop a test, where episodes take no longer.
const PATIENCE: Duration = Duration::from_millis(250);

/// Test of a classifier over embeddings on [`Features`](crate::data::Features).
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use fewshot::data::Features;
/// use fewshot::episode::{FeatureSampler, Protocol};
/// use fewshot::learners::heads::Prototypes;
/// use fewshot::train::FeatureTest;
///
/// // Classes on a line, far apart.
/// let class = |k: u8| (k.to_string(), (0..20u8).map(|i| f32::from(k) + f32::from(i) * 0.01).collect());
/// let sampler = FeatureSampler::new(Features::new(1, (0..4).map(class))?, Protocol::new(3, 1), 7)?;
/// let found = FeatureTest::new(50).run::<Flex>(&Prototypes::new(), &sampler, &Default::default());
/// assert_eq!((found.accuracy, found.ci95), (100.0, 0.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FeatureTest {
    episodes: usize,
}

/// Accuracy of a classifier over embeddings in a test, and the protocol of the test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeatureEvaluation {
    /// Name of the method.
    pub method: String,
    /// Its settings.
    pub settings: Value,
    /// Sizes of the episodes; where queries are unbalanced, with their mean number a class.
    #[serde(flatten)]
    pub sizes: EpisodeSizes,
    /// Episodes tested on.
    pub episodes: usize,
    /// True if all queries of an episode were seen together.
    pub transductive: bool,
    /// `alpha` of the [Dirichlet distribution](QueryCounts::Dirichlet) that the numbers of queries of
    /// each class were drawn from; `None` if these are equal.
    pub unbalanced: Option<usize>,
    /// Seed of the episodes; none of a list.
    pub seed: Option<u64>,
    /// Mean accuracy over episodes, in percent.
    pub accuracy: f64,
    /// Half-width of its 95 % interval over episodes, in percent, as [`Score::ci95`].
    pub ci95: f64,
    /// Episodes a second, drawing included.
    pub episodes_per_s: f64,
}

impl FeatureTest {
    /// A test on the first `episodes` episodes of a sampler.
    ///
    /// # Panics
    /// Without an episode.
    pub fn new(episodes: usize) -> Self {
        assert!(episodes > 0, "a test needs at least one episode");
        Self { episodes }
    }

    /// Tests a classifier, which gets all queries of an episode together.
    ///
    /// On a host, without autodiff, clones of the classifier test on several episodes at once, on the threads of rayon's
    /// pool. The result does not depend on their number.
    pub fn run<B: Backend>(
        &self,
        head: &impl Head<B>,
        sampler: &FeatureSampler,
        device: &B::Device,
    ) -> FeatureEvaluation {
        self.run_observed(head, sampler, device, &|_| ())
    }

    /// [`run`](Self::run), which calls `observer` as it goes: with 0 when the features are on the device, then with
    /// the number of episodes done since.
    pub fn run_observed<B: Backend>(
        &self,
        head: &impl Head<B>,
        sampler: &FeatureSampler,
        device: &B::Device,
        observer: &dyn Fn(usize),
    ) -> FeatureEvaluation {
        let observer = |done| {
            observer(done);
            Ok::<_, Infallible>(())
        };
        let Ok(evaluation) = self.run_within(head, sampler, device, None, &observer);
        evaluation
    }

    /// [`run_observed`](Self::run_observed), which ends where `observer` has an error. On a host without autodiff,
    /// `observer` is called several times a second, unless single episodes take longer.
    ///
    /// # Errors
    /// The error is the one of `observer`.
    pub fn try_run<B: Backend, E>(
        &self,
        head: &impl Head<B>,
        sampler: &FeatureSampler,
        device: &B::Device,
        observer: &dyn Fn(usize) -> Result<(), E>,
    ) -> Result<FeatureEvaluation, E> {
        self.run_within(head, sampler, device, Some(PATIENCE), observer)
    }

    fn run_within<B: Backend, E>(
        &self,
        head: &impl Head<B>,
        sampler: &FeatureSampler,
        device: &B::Device,
        patience: Option<Duration>,
        observer: &dyn Fn(usize) -> Result<(), E>,
    ) -> Result<FeatureEvaluation, E> {
        let start = Instant::now();
        let length = sampler.features().length();
        let launch = sampler
            .batch_sizes()
            .map_or(Launch::SINGLE, |sizes| Launch::new::<B>(sizes, length, device));
        let accuracies = self.accuracies(head, sampler, device, (launch, patience), observer)?;
        let Score { mean: accuracy, ci95, .. } = Score::new(Measure::Accuracy, &accuracies);
        Ok(FeatureEvaluation {
            method: head.name().to_owned(),
            settings: head.settings(),
            sizes: sampler.sizes(),
            episodes: self.episodes,
            transductive: head.transductive(),
            unbalanced: match sampler.query_counts() {
                QueryCounts::Balanced => None,
                QueryCounts::Dirichlet { alpha } => Some(alpha),
            },
            seed: sampler.seed(),
            accuracy,
            ci95,
            episodes_per_s: self.episodes as f64 / start.elapsed().as_secs_f64(),
        })
    }

    /// Accuracy of each episode, a launch after the other. Launches of several parts last about as long as the patience,
    /// if there is one.
    fn accuracies<B: Backend, E>(
        &self,
        head: &impl Head<B>,
        sampler: &FeatureSampler,
        device: &B::Device,
        (launch, patience): (Launch, Option<Duration>),
        observer: &dyn Fn(usize) -> Result<(), E>,
    ) -> Result<Vec<f64>, E> {
        let rows = sampler.features().tensor::<B>(device);
        let test = |(head, part): (_, Range<usize>)| {
            let batch = sampler.batch(part.start as u64..part.end as u64, &rows);
            accuracies(batch, |support, queries| Head::logits(&head, support, queries))
        };
        let least = launch.part * rayon::current_num_threads();
        let mut scores = Vec::with_capacity(self.episodes);
        observer(0)?;
        let mut next = launch.episodes.min(FIRST);
        while scores.len() < self.episodes {
            let start = Instant::now();
            let episodes = scores.len()..(scores.len() + next).min(self.episodes);
            // Threads cannot share a module, but may have clones of it.
            let parts = parts(episodes.clone(), launch.part).map(|part| (head.clone(), part));
            match launch.part < episodes.len() {
                true => {
                    let parts: Vec<_> = parts.collect();
                    scores.par_extend(parts.into_par_iter().flat_map_iter(test));
                }
                false => scores.extend(parts.flat_map(test)),
            }
            next = match patience {
                Some(patience) if launch.part < launch.episodes => {
                    let share = patience.as_secs_f64() / start.elapsed().as_secs_f64();
                    let lasting = (episodes.len() as f64 * share) as usize;
                    lasting.max(least).min(launch.episodes)
                }
                _ => launch.episodes,
            };
            observer(episodes.len())?;
        }
        Ok(scores)
    }
}

impl fmt::Display for FeatureEvaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, accuracy, ci95, sizes, episodes, .. } = self;
        write!(f, "{method} {accuracy:.2} ± {ci95:.2} % ({sizes}, {episodes} episodes")?;
        if self.transductive {
            f.write_str(", transductive")?;
        }
        if let Some(alpha) = self.unbalanced {
            write!(f, ", unbalanced with alpha {alpha}")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use burn::backend::Flex;

    use super::*;
    use crate::data::Features;
    use crate::episode::Protocol;
    use crate::learners::heads::AnyHead;
    use crate::train::evaluate::embedded::LAUNCH;

    /// Classes in a row that overlap.
    fn sampler(classes: usize, protocol: Protocol) -> FeatureSampler {
        let row = |class: usize, at: usize| [class as f32, ((class * 7 + at * 5) % 11) as f32];
        let rows = |class| (0..protocol.examples()).flat_map(move |at| row(class, at)).collect();
        let classes = (0..classes).map(|class| (format!("{class:03}"), rows(class)));
        FeatureSampler::new(Features::new(2, classes).unwrap(), protocol, 5).unwrap()
    }

    #[test]
    fn parts_of_a_launch_give_what_single_episodes_do() {
        let sampler = sampler(9, Protocol::new(4, 2).with_queries(5));
        let device = Default::default();
        for name in ["prototypes", "bd-cspn", "laplacian-shot", "pt-map", "tim-adm"] {
            let head = AnyHead::<Flex>::with_name(name, [2, 1, 1], &device).unwrap();
            let test = |launch, observer: &dyn Fn(usize)| {
                let observer = |done| {
                    observer(done);
                    Ok::<_, Infallible>(())
                };
                let within = (launch, None);
                FeatureTest::new(23)
                    .accuracies(&head, &sampler, &device, within, &observer)
                    .unwrap()
            };
            let single = test(Launch::SINGLE, &|_| ());
            assert!(single.iter().any(|accuracy| *accuracy != single[0]), "{name} {single:?}");
            for (episodes, part) in [(23, 23), (23, 4), (9, 4), (8, 1)] {
                let done = RefCell::new(Vec::new());
                let observer = |more| done.borrow_mut().push(more);
                let launch = Launch { episodes, part };
                assert_eq!(test(launch, &observer), single, "{name} {launch:?}");
                assert_eq!(done.take(), observed(episodes), "{launch:?}");
            }
        }
    }

    /// Numbers that an observer hears of 23 episodes.
    fn observed(launch: usize) -> Vec<usize> {
        let first = launch.min(FIRST);
        let launches = (first..23).step_by(launch).map(|start| launch.min(23 - start));
        [0, first].into_iter().chain(launches).collect()
    }

    #[test]
    fn observed_episodes_add_up_and_change_nothing() {
        let sampler = sampler(9, Protocol::new(6, 2).with_queries(3));
        let device = Default::default();
        // One launch, and several.
        for (name, episodes) in [("prototypes", 40), ("r2d2", LAUNCH + 8), ("pt-map", 40)] {
            let test = FeatureTest::new(episodes);
            let head = AnyHead::<Flex>::with_name(name, [2, 1, 1], &device).unwrap();
            let done = Cell::new(0);
            let observer = |more| done.set(done.get() + more);
            let observed = test.run_observed(&head, &sampler, &device, &observer);
            let plain = test.run(&head, &sampler, &device);
            assert_eq!((observed.accuracy, observed.ci95), (plain.accuracy, plain.ci95), "{name}");
            assert_eq!(done.get(), episodes, "{name}");
        }
    }

    #[test]
    fn an_observer_ends_a_test_and_changes_nothing_otherwise() {
        let sampler = sampler(9, Protocol::new(6, 2).with_queries(3));
        let device = Default::default();
        let head = AnyHead::<Flex>::with_name("pt-map", [2, 1, 1], &device).unwrap();
        let test = FeatureTest::new(LAUNCH + 8);
        let done = Cell::new(0);
        let patient = |more| {
            done.set(done.get() + more);
            Ok::<_, Infallible>(())
        };
        let observed = test.try_run(&head, &sampler, &device, &patient).unwrap();
        let plain = test.run(&head, &sampler, &device);
        assert_eq!((observed.accuracy, observed.ci95), (plain.accuracy, plain.ci95));
        assert_eq!(done.replace(0), LAUNCH + 8);
        let impatient = |more| {
            done.set(done.get() + more);
            if done.get() > 0 { Err("enough") } else { Ok(()) }
        };
        let ended = test.try_run(&head, &sampler, &device, &impatient);
        assert_eq!((ended.err(), done.get()), (Some("enough"), FIRST));
    }
}
