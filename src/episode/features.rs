use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use fewshot_kernels::select;
use rayon::prelude::*;

use super::plan::Plan;
use super::{
    BatchSizes, Episode, EpisodeError, EpisodeList, EpisodeSizes, ImageRef, Part, Protocol,
    QueryCounts, uploaded,
};
use crate::data::Features;

/// Draws episodes of [`Features`]: the one with index `i` is a pure function of the seed and `i`.
///
/// The episode is that of an [`EpisodeSampler`](super::EpisodeSampler) with the same seed over a dataset of
/// as many classes and examples in the same order.
///
/// # Example
/// ```
/// use burn::backend::Flex;
/// use fewshot::data::Features;
/// use fewshot::episode::{FeatureSampler, Protocol, QueryCounts};
///
/// let class = |k: u8| (k.to_string(), (0..60).map(|i| f32::from(k * 60 + i)).collect());
/// let features = Features::new(2, (0..4).map(class))?;
/// let rows = features.tensor::<Flex>(&Default::default());
/// let sampler = FeatureSampler::new(features, Protocol::new(3, 1).with_queries(5), 7)?
///     .with_query_counts(QueryCounts::Dirichlet { alpha: 2 })?;
/// let batch = sampler.batch(0..10, &rows);
/// assert_eq!(batch.support.dims(), [10, 3, 2]);
/// assert_eq!(batch.queries.dims(), [10, 15, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FeatureSampler {
    features: Arc<Features>,
    plan: Plan,
}

/// Episodes of features as tensors.
///
/// Examples are ordered by class, and a class's examples as drawn; no learner relies on it.
#[derive(Clone, Debug)]
pub struct FeatureBatch<B: Backend> {
    /// Features of the labelled examples, `[t, n, d]`, of a protocol `n = ways * shots`.
    pub support: Tensor<B, 3>,
    /// Labels of the support from 0 to `ways - 1`, `[t, n]`.
    pub labels: Tensor<B, 2, Int>,
    /// Number of classes.
    pub ways: usize,
    /// Features of the queries, `[t, q, d]`, of a protocol `q = ways * queries`.
    pub queries: Tensor<B, 3>,
    /// Labels of the queries, `[t, q]`.
    pub query_labels: Tensor<B, 2, Int>,
}

impl FeatureSampler {
    /// A sampler of `protocol` over all classes, with the same number of queries for each.
    ///
    /// # Errors
    /// When the protocol has a zero, there are fewer classes than ways, or a class has fewer examples
    /// than shots and queries together.
    pub fn new(
        features: impl Into<Arc<Features>>,
        protocol: Protocol,
        seed: u64,
    ) -> Result<Self, EpisodeError> {
        Self { features: features.into(), plan: Plan::fixed(protocol, seed) }.checked()
    }

    /// A sampler of episodes by the rule of [`EpisodeSampler::varied`](super::EpisodeSampler::varied).
    ///
    /// # Errors
    /// When there are fewer than 5 classes, or a class has a single example.
    pub fn varied(features: impl Into<Arc<Features>>, seed: u64) -> Result<Self, EpisodeError> {
        Self { features: features.into(), plan: Plan::Varied { seed } }.checked()
    }

    /// A sampler of the episodes of `list`, in their order.
    ///
    /// # Errors
    /// When the features do not have an example of the list, or an episode has a class without support, no query, or
    /// an example twice.
    pub fn listed(
        features: impl Into<Arc<Features>>,
        list: EpisodeList,
    ) -> Result<Self, EpisodeError> {
        Self { features: features.into(), plan: Plan::Listed(list) }.checked()
    }

    /// With another spread of the queries, where episodes are of one protocol.
    ///
    /// # Errors
    /// When there is no such spread, or a class has fewer examples than it may take; and for episodes that are
    /// listed or of varied size.
    pub fn with_query_counts(self, counts: QueryCounts) -> Result<Self, EpisodeError> {
        counts.check()?;
        let plan = match self.plan {
            Plan::Fixed { protocol, seed, .. } => Plan::Fixed { protocol, counts, seed },
            plan if counts == QueryCounts::Balanced => plan,
            _ => return Err(EpisodeError::SpreadQueries),
        };
        Self { plan, ..self }.checked()
    }

    fn checked(self) -> Result<Self, EpisodeError> {
        self.plan.check(&*self.features)?;
        Ok(self)
    }

    /// Features that episodes are drawn from.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Sizes of the episodes.
    pub fn sizes(&self) -> EpisodeSizes {
        self.plan.sizes()
    }

    /// The list, of a sampler of [listed](Self::listed) episodes.
    pub fn list(&self) -> Option<&EpisodeList> {
        self.plan.list()
    }

    /// The numbers that all episodes have in common, if they have.
    pub(crate) fn batch_sizes(&self) -> Option<BatchSizes> {
        self.plan.batch_sizes()
    }

    /// The seed; none of a list.
    pub fn seed(&self) -> Option<u64> {
        self.plan.seed()
    }

    /// Spread of the queries over classes.
    pub fn query_counts(&self) -> QueryCounts {
        match self.plan {
            Plan::Fixed { counts, .. } => counts,
            Plan::Varied { .. } | Plan::MiniBatches { .. } | Plan::Listed(_) => {
                QueryCounts::Balanced
            }
        }
    }

    /// The examples of episode `index`.
    ///
    /// # Panics
    /// Beyond the end of a list.
    pub fn episode(&self, index: u64) -> Episode {
        self.plan.episode(&*self.features, index)
    }

    /// The episodes with these indices as tensors, in this order, with features taken from `rows`.
    ///
    /// # Shapes
    /// - `rows`: `[rows, d]`, those of [`Features::tensor`] or what became of them
    ///
    /// # Panics
    /// When `rows` has not as many rows as the features that episodes are drawn from; where episodes differ in
    /// the numbers of classes, of labelled examples or of queries, of which a batch has one each.
    pub fn batch<B: Backend>(
        &self,
        indices: impl IntoIterator<Item = u64>,
        rows: &Tensor<B, 2>,
    ) -> FeatureBatch<B> {
        assert_eq!(rows.dims()[0], self.features.rows(), "as many rows as there are features");
        let indices: Vec<_> = indices.into_iter().collect();
        let episodes = indices.into_par_iter().map(|index| self.episode(index));
        let episodes: Vec<_> = episodes.collect();
        let sizes = self.batch_sizes().unwrap_or_else(|| BatchSizes::common(&episodes));
        let row = |example: ImageRef| self.features.rows_of(example.class).start + example.example;
        FeatureBatch::from_rows(&episodes, sizes.ways, rows, row)
    }
}

impl<B: Backend> FeatureBatch<B> {
    /// Episodes of the same sizes whose examples are rows of a matrix `[rows, d]`, each in the place that `row`
    /// gives.
    pub(crate) fn from_rows(
        episodes: &[Episode],
        ways: usize,
        rows: &Tensor<B, 2>,
        row: impl Fn(ImageRef) -> usize,
    ) -> Self {
        let (tasks, device) = (episodes.len(), rows.device());
        let per_task = |count| [tasks, count / tasks.max(1)];
        let features = |part| {
            let places = episodes.iter().flat_map(|episode| episode.images(part));
            let places: Vec<_> = places.map(|example| row(example) as i32).collect();
            let [tasks, examples] = per_task(places.len());
            select(rows.clone(), 0, places).reshape([tasks, examples, rows.dims()[1]])
        };
        let labels = |part| {
            let labels = episodes.iter().flat_map(|episode| episode.labels(part));
            let labels: Vec<_> = labels.map(|label| label as i32).collect();
            let shape = per_task(labels.len());
            uploaded(labels, shape, &device)
        };
        Self {
            support: features(Part::Support),
            labels: labels(Part::Support),
            ways,
            queries: features(Part::Query),
            query_labels: labels(Part::Query),
        }
    }
}
