//! Tests of classifiers over embeddings that are there already.

use std::fmt;
use std::time::Instant;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{Route, route};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Score;
use super::gram::{Gram, gram_accuracies};
use crate::episode::{FeatureBatch, FeatureSampler, Measure, Protocol, QueryCounts};
use crate::learners;
use crate::learners::heads::{EmbeddedSupport, Head, TransductiveHead};

/// Most numbers that the episodes of a launch are gathered into, 64 MiB of `f32`.
const GATHERED: usize = 1 << 24;

/// The same on a host, for heads whose operations use all threads: what caches hold is 1.4 to 2 times as
/// fast there.
const GATHERED_ON_HOST: usize = 1 << 22;

/// The same where each thread has episodes of its own.
const GATHERED_BY_A_THREAD: usize = 1 << 18;

/// Most episodes of a launch.
const TOGETHER: usize = 512;

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
    /// Ways, shots and queries; of the last the mean of a class, where they are unbalanced.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// Episodes tested on.
    pub episodes: usize,
    /// Whether all queries of an episode were seen together.
    pub transductive: bool,
    /// `alpha` of the [Dirichlet distribution](QueryCounts::Dirichlet) that queries of each class were
    /// drawn by; `None` of as many in each.
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

    /// Tests a classifier that judges each query by itself.
    ///
    /// Of one that takes the [nearest class mean](Head::comparison), where episodes are many and the
    /// products of all pairs of features take no more than 1 GiB, these are computed once and looked up
    /// in each episode: accuracies are the same up to rounding.
    pub fn run<B: Backend>(
        &self,
        head: &impl Head<B>,
        sampler: &FeatureSampler,
        device: &B::Device,
    ) -> FeatureEvaluation {
        let (method, settings) = (head.name(), head.settings());
        let comparison = head.comparison().filter(|_| Gram::pays(sampler, self.episodes));
        self.evaluation(method, settings, head.transductive(), sampler, || match &comparison {
            Some(comparison) => {
                let gram = Gram::of::<B>(comparison, sampler.features(), device);
                gram.accuracies(sampler, self.episodes)
            }
            None => {
                let logits = |support, queries| head.fit(support).logits(queries);
                self.general(logits, sampler, device)
            }
        })
    }

    /// Tests a classifier that judges all queries of an episode together.
    ///
    /// Of a [`GramHead`](crate::learners::heads::GramHead), where episodes are many, the products of all
    /// pairs of features are computed once, as for [`run`](Self::run).
    pub fn run_transductive<B: Backend>(
        &self,
        head: &impl TransductiveHead<B>,
        sampler: &FeatureSampler,
        device: &B::Device,
    ) -> FeatureEvaluation {
        let logits = |support, queries| head.logits(support, queries);
        let (method, settings) = (head.name(), head.settings());
        self.evaluation(method, settings, true, sampler, || match head.gram_head() {
            Some(head) => gram_accuracies(
                head,
                sampler,
                self.episodes,
                batch::<B>(sampler, GATHERED_BY_A_THREAD),
                device,
            ),
            None => self.general(logits, sampler, device),
        })
    }

    /// What a test came to that finds the accuracy of each episode.
    fn evaluation(
        &self,
        method: &str,
        settings: Value,
        transductive: bool,
        sampler: &FeatureSampler,
        accuracies: impl FnOnce() -> Vec<f64>,
    ) -> FeatureEvaluation {
        let start = Instant::now();
        let Score { mean: accuracy, ci95, .. } = Score::of(Measure::Accuracy, &accuracies());
        FeatureEvaluation {
            method: method.to_owned(),
            settings,
            protocol: sampler.protocol(),
            episodes: self.episodes,
            transductive,
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
        logits: impl Fn(EmbeddedSupport<B>, Tensor<B, 3>) -> Tensor<B, 3>,
        sampler: &FeatureSampler,
        device: &B::Device,
    ) -> Vec<f64> {
        let rows = sampler.features().tensor::<B>(device);
        let together = batch::<B>(sampler, GATHERED_ON_HOST);
        let mut found = Vec::with_capacity(self.episodes);
        for first in (0..self.episodes).step_by(together) {
            let last = (first + together).min(self.episodes);
            let batch = sampler.batch(first as u64..last as u64, &rows);
            let FeatureBatch { support, labels, ways, queries, query_labels } = batch;
            let logits = logits(EmbeddedSupport::new(support, labels, ways), queries);
            let accuracies = learners::accuracies(logits, query_labels);
            found.extend(accuracies.into_data().iter::<f64>());
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
    let numbers = protocol.ways * protocol.examples() * sampler.features().length();
    (gathered / numbers).clamp(1, TOGETHER)
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
