use std::fmt::Debug;
use std::ops::Range;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{TaskLoss, TaskLossOptions, task_accuracy, task_loss_with};
use serde::{Deserialize, Serialize};

use super::{EpisodeBatch, RegressionBatch, Support};
use crate::metric::accuracies;

/// A kind of task: its input and target tensors, its loss and its score.
///
/// [`Classification`] and [`Regression`] are such kinds; a kind of your own takes its place beside
/// them.
pub trait TaskKind: Copy + Debug + Send + Sync + 'static {
    /// Labelled examples of tasks.
    type Support<B: Backend>: Sync;
    /// Whole tasks.
    type Batch<B: Backend>: Sync;

    /// Figure that a test of a learner reports.
    const MEASURE: Measure;

    /// Number of tasks.
    fn tasks<B: Backend>(support: &Self::Support<B>) -> usize;

    /// Length of an output: classes, or values.
    fn outputs<B: Backend>(support: &Self::Support<B>) -> usize;

    /// Labelled examples of the tasks of a batch.
    fn support<B: Backend>(batch: &Self::Batch<B>) -> &Self::Support<B>;

    /// The inputs that the tasks of a batch are judged by, `[t, q, c, h, w]`.
    fn queries<B: Backend>(batch: &Self::Batch<B>) -> Tensor<B, 5>;

    /// The examples that `tasks` are learned from.
    fn support_of<B: Backend>(support: &Self::Support<B>, tasks: Range<usize>) -> Examples<B>;

    /// The examples that `tasks` are judged by.
    fn queries_of<B: Backend>(batch: &Self::Batch<B>, tasks: Range<usize>) -> Examples<B>;

    /// The sum over tasks of their mean losses, `[1]`, of `outputs` and `targets` `[t, n, d]`.
    fn loss<B: Backend>(outputs: Tensor<B, 3>, targets: Tensor<B, 3>) -> Tensor<B, 1> {
        Self::loss_with(outputs, targets, TaskLossOptions::default())
    }

    /// The [`loss`](Self::loss) times the factor of the options, which its gradients are multiplied by too.
    /// Where the gradient alone is wanted, the value may still be computed.
    fn loss_with<B: Backend>(
        outputs: Tensor<B, 3>,
        targets: Tensor<B, 3>,
        options: TaskLossOptions,
    ) -> Tensor<B, 1>;

    /// Each task's measure, `[t]`.
    fn scores<B: Backend>(outputs: Tensor<B, 3>, targets: Tensor<B, 3>) -> Tensor<B, 1>;

    /// The sum of [`scores`](Self::scores) times `factor`, `[1]`.
    fn scaled_score<B: Backend>(
        outputs: Tensor<B, 3>,
        targets: Tensor<B, 3>,
        factor: f64,
    ) -> Tensor<B, 1> {
        Self::scores(outputs, targets).sum() * factor
    }
}

/// Figure of the outputs of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Share of queries classified rightly, in percent where it is told; the more, the better.
    Accuracy,
    /// Mean squared difference of queries from their targets; the less, the better.
    SquaredError,
}

/// Examples of `t` tasks as every kind has them.
#[derive(Clone, Debug)]
pub struct Examples<B: Backend> {
    /// `[t, n, c, h, w]`
    pub inputs: Tensor<B, 5>,
    /// Values, or a one for the class and zeros, `[t, n, d]`.
    pub targets: Tensor<B, 3>,
}

impl<B: Backend> Examples<B> {
    /// Number of tasks.
    pub fn tasks(&self) -> usize {
        self.inputs.dims()[0]
    }

    fn part(&self, tasks: Range<usize>) -> Self {
        Self {
            inputs: self.inputs.clone().narrow(0, tasks.start, tasks.len()),
            targets: self.targets.clone().narrow(0, tasks.start, tasks.len()),
        }
    }
}

/// Queries belong to one of the classes of the support; judged by cross-entropy and accuracy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification;

/// Queries have values; judged by the mean squared difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regression;

impl TaskKind for Classification {
    type Support<B: Backend> = Support<B>;
    type Batch<B: Backend> = EpisodeBatch<B>;

    const MEASURE: Measure = Measure::Accuracy;

    fn tasks<B: Backend>(support: &Support<B>) -> usize {
        support.images.dims()[0]
    }

    fn outputs<B: Backend>(support: &Support<B>) -> usize {
        support.ways
    }

    fn support<B: Backend>(batch: &EpisodeBatch<B>) -> &Support<B> {
        &batch.support
    }

    fn queries<B: Backend>(batch: &EpisodeBatch<B>) -> Tensor<B, 5> {
        batch.queries.clone()
    }

    fn support_of<B: Backend>(support: &Support<B>, tasks: Range<usize>) -> Examples<B> {
        support.part(tasks).examples()
    }

    fn queries_of<B: Backend>(batch: &EpisodeBatch<B>, tasks: Range<usize>) -> Examples<B> {
        let queries = Support {
            images: batch.queries.clone(),
            labels: batch.query_labels.clone(),
            ways: batch.ways(),
        };
        queries.part(tasks).examples()
    }

    fn loss_with<B: Backend>(
        logits: Tensor<B, 3>,
        targets: Tensor<B, 3>,
        options: TaskLossOptions,
    ) -> Tensor<B, 1> {
        task_loss_with(logits, targets, TaskLoss::CrossEntropy, options)
    }

    fn scores<B: Backend>(logits: Tensor<B, 3>, targets: Tensor<B, 3>) -> Tensor<B, 1> {
        accuracies(logits, targets.argmax(2).squeeze_dim(2))
    }

    /// One launch on an accelerator.
    fn scaled_score<B: Backend>(
        logits: Tensor<B, 3>,
        targets: Tensor<B, 3>,
        factor: f64,
    ) -> Tensor<B, 1> {
        task_accuracy(logits, targets, factor)
    }
}

impl TaskKind for Regression {
    type Support<B: Backend> = Examples<B>;
    type Batch<B: Backend> = RegressionBatch<B>;

    const MEASURE: Measure = Measure::SquaredError;

    fn tasks<B: Backend>(support: &Examples<B>) -> usize {
        support.tasks()
    }

    fn outputs<B: Backend>(support: &Examples<B>) -> usize {
        support.targets.dims()[2]
    }

    fn support<B: Backend>(batch: &RegressionBatch<B>) -> &Examples<B> {
        &batch.support
    }

    fn queries<B: Backend>(batch: &RegressionBatch<B>) -> Tensor<B, 5> {
        batch.queries.inputs.clone()
    }

    fn support_of<B: Backend>(support: &Examples<B>, tasks: Range<usize>) -> Examples<B> {
        support.part(tasks)
    }

    fn queries_of<B: Backend>(batch: &RegressionBatch<B>, tasks: Range<usize>) -> Examples<B> {
        batch.queries.part(tasks)
    }

    fn loss_with<B: Backend>(
        outputs: Tensor<B, 3>,
        targets: Tensor<B, 3>,
        options: TaskLossOptions,
    ) -> Tensor<B, 1> {
        task_loss_with(outputs, targets, TaskLoss::SquaredError, options)
    }

    fn scores<B: Backend>(outputs: Tensor<B, 3>, targets: Tensor<B, 3>) -> Tensor<B, 1> {
        assert_eq!(outputs.dims(), targets.dims(), "outputs and targets have one shape");
        let difference = outputs - targets;
        (difference.clone() * difference).flatten::<2>(1, 2).mean_dim(1).squeeze_dim(1)
    }

    /// The loss, which is one launch.
    fn scaled_score<B: Backend>(
        outputs: Tensor<B, 3>,
        targets: Tensor<B, 3>,
        factor: f64,
    ) -> Tensor<B, 1> {
        let options = TaskLossOptions { factor, ..Default::default() };
        Self::loss_with(outputs, targets, options)
    }
}

impl Measure {
    /// Factor of a mean in reports: 100 for percent, or 1.
    pub fn unit(self) -> f64 {
        match self {
            Self::Accuracy => 100.0,
            Self::SquaredError => 1.0,
        }
    }

    /// True if `new` is better than `old`.
    pub fn improves(self, new: f64, old: f64) -> bool {
        match self {
            Self::Accuracy => new > old,
            Self::SquaredError => new < old,
        }
    }
}
