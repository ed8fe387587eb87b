mod embedded;
mod features;

pub use embedded::embed_all;
pub use features::{FeatureEvaluation, FeatureTest};

use std::fmt;
use std::ops::Range;
use std::time::Instant;

use burn::tensor::activation::softmax;
use burn::tensor::backend::Backend;
use fewshot_models::BnStatistics;
use serde::{Deserialize, Serialize};

use crate::data::DataError;
use crate::episode::{EpisodeSampler, EpisodeSizes, Measure, TaskKind, TaskSource};
use crate::learners::{Learner, QueryNorm};
use crate::parallel::{Communicator, ParallelError, Solo, gather_numbers};

/// Test of a learner on a number of episodes.
///
/// Where a learner [compares embeddings](Learner::on_embeddings) under [`BnStatistics::Running`], every image
/// that [episodes](TaskSource::episodes) show is embedded once, and stays on the device as long as
/// all take no more than 1 GiB. Otherwise every episode goes through the network.
#[derive(Clone, Copy, Debug)]
pub struct Evaluator {
    episodes: usize,
    statistics: Option<BnStatistics>,
}

/// Mean of a test with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Figure that was measured.
    pub measure: Measure,
    /// Mean over tasks; of accuracies in percent.
    pub mean: f64,
    /// Half-width of the 95 % interval of the mean: `1.96 * std / sqrt(n)`, with the sample
    /// standard deviation over tasks.
    pub ci95: f64,
}

/// Accuracy of a classifier in a test, and the protocol of the test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Mean accuracy over episodes, in percent.
    pub accuracy: f64,
    /// Half-width of its 95 % interval over episodes, in percent, as [`Score::ci95`].
    pub ci95: f64,
    /// Episodes tested on.
    pub episodes: usize,
    /// Sizes of the episodes.
    #[serde(rename = "protocol")]
    pub sizes: EpisodeSizes,
    /// Seed of the episodes; none of a list.
    pub seed: Option<u64>,
    /// True if a query's prediction could depend on the other queries of its task: by the
    /// [learner](Learner::transductive), or by batch-norm.
    pub transductive: bool,
    /// Statistics of batch-norm; [`BnStatistics::Batch`] makes the test transductive.
    pub batch_norm: BnStatistics,
    /// Moments of the queries in batch-norm; [`QueryNorm::Alone`] makes the test inductive again.
    pub query_norm: QueryNorm,
    /// Number of [views](EpisodeSampler::with_views) of each episode, over which probabilities were averaged.
    #[serde(default = "single")]
    pub views: u32,
    /// Episodes a second, sampling included.
    pub episodes_per_s: f64,
}

/// Reason for which a test has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// Processes that do not reach each other.
    #[error(transparent)]
    Parallel(#[from] ParallelError),
    /// Data of a task that cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

/// Number of views of a test that names none.
fn single() -> u32 {
    1
}

impl Evaluator {
    /// A test on the first `episodes` episodes of a sampler, with the learner's own batch-norm
    /// [`statistics`](Learner::statistics).
    ///
    /// # Panics
    /// Without an episode.
    pub fn new(episodes: usize) -> Self {
        assert!(episodes > 0, "a test needs at least one episode");
        Self { episodes, statistics: None }
    }

    /// With other batch-norm statistics.
    ///
    /// # Panics
    /// On [`BnStatistics::Track`]: a test must not change what it tests.
    pub fn with_statistics(self, statistics: BnStatistics) -> Self {
        assert_ne!(statistics, BnStatistics::Track, "a test does not move running averages");
        Self { statistics: Some(statistics), ..self }
    }

    /// Tests a classifier.
    ///
    /// # Panics
    /// If images lie in a file that cannot be read, of which [`run_shared`](Self::run_shared) makes an error; and where tasks
    /// have no queries.
    pub fn run<B: Backend>(
        &self,
        learner: &impl Learner<B>,
        sampler: &EpisodeSampler,
        device: &B::Device,
    ) -> Evaluation {
        self.run_shared(learner, sampler, device, &Solo).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Tests like [`run`](Self::run), with the episodes shared by the processes of `communicator`.
    ///
    /// # Errors
    /// When the processes do not reach each other, or the data cannot be read.
    ///
    /// # Panics
    /// Where tasks have no queries, as those of [`mini_batches`](EpisodeSampler::mini_batches).
    pub fn run_shared<B: Backend>(
        &self,
        learner: &impl Learner<B>,
        sampler: &EpisodeSampler,
        device: &B::Device,
        communicator: &dyn Communicator,
    ) -> Result<Evaluation, EvaluationError> {
        let start = Instant::now();
        let score = self.score_shared(learner, sampler, device, communicator)?;
        let Score { mean, ci95, .. } = score;
        let batch_norm = self.statistics.unwrap_or(learner.statistics());
        let query_norm = learner.query_norm();
        let shared_norm = batch_norm == BnStatistics::Batch && query_norm == QueryNorm::Together;
        Ok(Evaluation {
            accuracy: mean,
            ci95,
            episodes: self.episodes,
            sizes: sampler.sizes(),
            seed: sampler.seed(),
            transductive: learner.transductive() || shared_norm,
            batch_norm,
            query_norm,
            views: sampler.views(),
            episodes_per_s: self.episodes as f64 / start.elapsed().as_secs_f64(),
        })
    }

    /// Tests a learner of any kind of task.
    ///
    /// # Panics
    /// If data of tasks lies in a file that cannot be read, of which [`score_shared`](Self::score_shared) makes an
    /// error.
    pub fn score<B: Backend, T: TaskSource>(
        &self,
        learner: &impl Learner<B, T::Kind>,
        source: &T,
        device: &B::Device,
    ) -> Score {
        self.score_shared(learner, source, device, &Solo).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Tests like [`score`](Self::score), with the tasks shared by the processes of `communicator`. All processes
    /// get the same score. The result is that of a single process, except for rounding where each image
    /// is embedded by itself: which batch it is embedded in depends on the share of its process.
    ///
    /// # Errors
    /// When the processes do not reach each other, or the data cannot be read.
    ///
    /// # Panics
    /// Where tasks have no [queries](TaskSource::has_queries).
    pub fn score_shared<B: Backend, T: TaskSource>(
        &self,
        learner: &impl Learner<B, T::Kind>,
        source: &T,
        device: &B::Device,
        communicator: &dyn Communicator,
    ) -> Result<Score, EvaluationError> {
        assert!(source.has_queries(), "a test needs tasks with queries");
        let batch = source.test_batch_size();
        let batches = self.episodes.div_ceil(batch);
        let first = |rank: usize| (batches * rank / communicator.size() * batch).min(self.episodes);
        let tasks = first(communicator.rank())..first(communicator.rank() + 1);
        let scores = self.scores(learner, source, device, tasks)?;
        let scores = gather_numbers(communicator, &scores)?.concat();
        Ok(Score::new(T::Kind::MEASURE, &scores))
    }

    fn scores<B: Backend, T: TaskSource>(
        &self,
        learner: &impl Learner<B, T::Kind>,
        source: &T,
        device: &B::Device,
        tasks: Range<usize>,
    ) -> Result<Vec<f64>, DataError> {
        let statistics = self.statistics.unwrap_or(learner.statistics());
        if statistics == BnStatistics::Running
            && let (Some(learner), Some(sampler)) = (learner.on_embeddings(), source.episodes())
        {
            return embedded::image_accuracies(learner, sampler, device, tasks);
        }
        let mut scores = Vec::new();
        let batch_size = source.test_batch_size();
        for first in tasks.clone().step_by(batch_size) {
            let last = (first + batch_size).min(tasks.end);
            let indices = first as u64..last as u64;
            let batch = source.tasks::<B>(indices.clone(), device)?;
            let mut outputs = learner.outputs(&batch, statistics);
            if source.views() > 1 {
                // Ranked like their mean.
                outputs = softmax(outputs, 2);
                for view in 1..source.views() {
                    let batch = source.view::<B>(indices.clone(), view, device)?;
                    outputs = outputs + softmax(learner.outputs(&batch, statistics), 2);
                }
            }
            let targets = T::Kind::queries_of(&batch, 0..last - first).targets;
            scores.extend(T::Kind::scores(outputs, targets).into_data().iter::<f64>());
        }
        Ok(scores)
    }
}

impl Score {
    /// Mean score of tasks in the unit of `measure`; of a single task without an interval.
    pub(super) fn new(measure: Measure, scores: &[f64]) -> Self {
        let n = scores.len() as f64;
        let mean = scores.iter().sum::<f64>() / n;
        let squares = scores.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        let ci95 = if n < 2.0 { 0.0 } else { 1.96 * (squares / (n - 1.0) / n).sqrt() };
        Self { measure, mean: mean * measure.unit(), ci95: ci95 * measure.unit() }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measure, mean, ci95 } = self;
        match measure {
            Measure::Accuracy => write!(f, "{mean:.2} ± {ci95:.2} %"),
            Measure::SquaredError => write!(f, "{mean:.4} ± {ci95:.4} squared error"),
        }
    }
}

impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { accuracy, ci95, episodes, sizes, .. } = self;
        let rule = match (self.batch_norm, self.query_norm) {
            (BnStatistics::Running, _) => "running batch-norm statistics",
            (_, QueryNorm::Together) => "transductive batch-norm statistics",
            (_, QueryNorm::Alone) => "batch-norm statistics of support and one query",
        };
        let seen = match self.transductive && self.batch_norm == BnStatistics::Running {
            true => ", transductive",
            false => "",
        };
        let views = match self.views {
            1 => String::new(),
            views => format!(", {views} views"),
        };
        write!(f, "{accuracy:.2} ± {ci95:.2} % ({sizes}, {episodes} episodes{views}, {rule}{seen})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_mean() {
        let score = |scores: &[f64]| Score::new(Measure::SquaredError, scores);
        let Score { mean, ci95, .. } = score(&[0.5, 0.7, 0.9, 0.7]);
        assert!((mean - 0.7).abs() < 1e-12);
        // Sample variance 0.08 / 3.
        assert!((ci95 - 1.96 * (0.08f64 / 3.0 / 4.0).sqrt()).abs() < 1e-12);
        let single = score(&[0.25]);
        assert_eq!((single.mean, single.ci95), (0.25, 0.0));
    }
}
