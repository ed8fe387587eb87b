//! Tests of classifiers over embeddings that are there already.

use std::fmt;
use std::time::Instant;

use burn::tensor::backend::Backend;
use fewshot_kernels::{Route, route};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Score;
use super::gram::{gram_accuracies, mean_accuracies, products_pay};
use crate::episode::{FeatureBatch, FeatureSampler, Measure, Protocol, QueryCounts};
use crate::learners;
use crate::learners::heads::{EmbeddedSupport, Head};

/// Most numbers that the episodes of a launch are gathered into, 64 MiB of `f32`.
const GATHERED: usize = 1 << 24;

/// The same on a host, for heads whose operations use all threads: what caches hold is 1.4 to 2 times as
/// fast there.
const GATHERED_ON_HOST: usize = 1 << 22;

/// The same where each thread has episodes of its own.
const GATHERED_BY_A_THREAD: usize = 1 << 18;

/// Most episodes of a launch.
const TOGETHER: usize = 512;

/// Most numbers of a launch where each episode has one for a class and two of its rows, 1 GiB of `f32`:
/// heads hold such tensors ([`SimpleCnaps`](crate::learners::heads::SimpleCnaps)), and with many ways
/// they are larger by far than the rows.
const HELD: usize = 1 << 28;

/// How a classifier over embeddings is tested on [`Features`](crate::data::Features).
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

/// What a test of a classifier over embeddings found, and under which protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeatureEvaluation {
    /// Name of the method.
    pub method: String,
    /// Its settings.
    pub settings: Value,
    /// Ways, shots and queries; where queries are unbalanced, their mean number a class.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// Episodes tested on.
    pub episodes: usize,
    /// Whether all queries of an episode were seen together.
    pub transductive: bool,
    /// `alpha` of the [Dirichlet distribution](QueryCounts::Dirichlet) that the numbers of queries of
    /// each class were drawn from; `None` if these are equal.
    pub unbalanced: Option<usize>,
    /// Seed of the episodes.
    pub seed: u64,
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
    /// For one that takes the [nearest class mean](Head::comparison) or sees no more than [scalar
    /// products](crate::learners::heads::GramHead), the products of all pairs of features are computed
    /// once and looked up in each episode, if episodes are many and the products take no more than 1
    /// GiB: accuracies are the same up to rounding.
    pub fn run<B: Backend>(
        &self,
        head: &impl Head<B>,
        sampler: &FeatureSampler,
        device: &B::Device,
    ) -> FeatureEvaluation {
        self.run_observed(head, sampler, device, &|_| ())
    }

    /// [`run`](Self::run), which calls `observer` as it goes: with 0 when all before the first episode is
    /// done, then with the number of episodes done since, from whichever thread did them.
    pub fn run_observed<B: Backend>(
        &self,
        head: &impl Head<B>,
        sampler: &FeatureSampler,
        device: &B::Device,
        observer: &(dyn Fn(usize) + Sync),
    ) -> FeatureEvaluation {
        let start = Instant::now();
        let comparison = head.comparison().filter(|_| products_pay(sampler, self.episodes));
        let accuracies = match (comparison, head.gram_head()) {
            (Some(comparison), _) => {
                mean_accuracies::<B>(&comparison, sampler, self.episodes, device, observer)
            }
            (None, Some(head)) => {
                let together = batch::<B>(sampler, GATHERED_BY_A_THREAD);
                gram_accuracies(head, sampler, [self.episodes, together], device, observer)
            }
            (None, None) => self.general(head, sampler, device, observer),
        };
        let Score { mean: accuracy, ci95, .. } = Score::of(Measure::Accuracy, &accuracies);
        FeatureEvaluation {
            method: head.name().to_owned(),
            settings: head.settings(),
            protocol: sampler.protocol(),
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
        }
    }

    /// The accuracy of each episode, from logits of as many together as can be.
    fn general<B: Backend>(
        &self,
        head: &impl Head<B>,
        sampler: &FeatureSampler,
        device: &B::Device,
        observer: &(dyn Fn(usize) + Sync),
    ) -> Vec<f64> {
        let rows = sampler.features().tensor::<B>(device);
        let together = batch::<B>(sampler, GATHERED_ON_HOST);
        let mut found = Vec::with_capacity(self.episodes);
        observer(0);
        for first in (0..self.episodes).step_by(together) {
            let last = (first + together).min(self.episodes);
            let batch = sampler.batch(first as u64..last as u64, &rows);
            let FeatureBatch { support, labels, ways, queries, query_labels } = batch;
            let logits = head.logits(EmbeddedSupport::new(support, labels, ways), queries);
            let accuracies = learners::accuracies(logits, query_labels);
            found.extend(accuracies.into_data().iter::<f64>());
            observer(last - first);
        }
        found
    }
}

/// How many episodes a launch takes, of which a host gathers so many numbers.
fn batch<B: Backend>(sampler: &FeatureSampler, on_host: usize) -> usize {
    let gathered = match route::<B>() {
        Route::Host(_) => on_host,
        _ => GATHERED,
    };
    let protocol = sampler.protocol();
    let rows = protocol.ways * protocol.examples();
    let pairs = protocol.ways.saturating_mul(rows.saturating_mul(rows));
    let fitting = (gathered / (rows * sampler.features().length())).min(HELD / pairs);
    fitting.clamp(1, TOGETHER)
}

impl fmt::Display for FeatureEvaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, accuracy, ci95, protocol, episodes, .. } = self;
        write!(f, "{method} {accuracy:.2} ± {ci95:.2} % ({protocol}, {episodes} episodes")?;
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use burn::backend::Flex;

    use super::*;
    use crate::data::Features;
    use crate::learners::heads::AnyHead;

    /// Classes in a row that overlap.
    fn sampler(classes: usize, protocol: Protocol) -> FeatureSampler {
        let row = |class: usize, at: usize| [class as f32, ((class * 7 + at * 5) % 11) as f32];
        let rows = |class| (0..protocol.examples()).flat_map(move |at| row(class, at)).collect();
        let classes = (0..classes).map(|class| (format!("{class:03}"), rows(class)));
        FeatureSampler::new(Features::new(2, classes).unwrap(), protocol, 5).unwrap()
    }

    #[test]
    fn episodes_of_many_ways_are_launched_one_by_one() {
        let of = |ways, shots, queries| {
            let protocol = Protocol::new(ways, shots).with_queries(queries);
            batch::<Flex>(&sampler(ways, protocol), GATHERED_ON_HOST)
        };
        assert_eq!(of(300, 5, 5), 1);
        assert_eq!(of(5, 5, 15), TOGETHER);
    }

    #[test]
    fn observed_episodes_add_up_and_change_nothing() {
        let sampler = sampler(9, Protocol::new(6, 2).with_queries(3));
        let device = Default::default();
        // Several launches where there are no products to look up.
        for (name, episodes) in [("prototypes", 40), ("r2d2", TOGETHER + 8), ("pt-map", 40)] {
            let test = FeatureTest::new(episodes);
            let head = AnyHead::<Flex>::with_name(name, [2, 1, 1], &device).unwrap();
            let done = AtomicUsize::new(0);
            let observer = |more| {
                done.fetch_add(more, Ordering::Relaxed);
            };
            let observed = test.run_observed(&head, &sampler, &device, &observer);
            let plain = test.run(&head, &sampler, &device);
            assert_eq!((observed.accuracy, observed.ci95), (plain.accuracy, plain.ci95), "{name}");
            assert_eq!(done.into_inner(), episodes, "{name}");
        }
    }
}
