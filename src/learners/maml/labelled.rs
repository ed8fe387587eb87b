use std::ops::Range;

use burn::backend::Autodiff;
use burn::tensor::activation::log_softmax;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use fewshot_models::{BnStatistics, Classifier, Encoder};

use crate::adapt::lifted;
use crate::episode::{EpisodeBatch, Support};

/// Images of a group of tasks, with their labels as rows of zeros and a one.
pub(super) struct Labelled<B: Backend> {
    /// `[t, n, c, h, w]`
    images: Tensor<B, 5>,
    /// `[t, n, ways]`
    targets: Tensor<B, 3>,
}

impl<B: Backend> Labelled<B> {
    pub(super) fn of_support(support: &Support<B>, group: &Range<usize>) -> Self {
        Self::new(&support.images, &support.labels, support.ways, group)
    }

    pub(super) fn of_queries(batch: &EpisodeBatch<B>, group: &Range<usize>) -> Self {
        Self::new(&batch.queries, &batch.query_labels, batch.ways(), group)
    }

    fn new(
        images: &Tensor<B, 5>,
        labels: &Tensor<B, 2, Int>,
        ways: usize,
        group: &Range<usize>,
    ) -> Self {
        let images = images.clone().narrow(0, group.start, group.len());
        let labels = labels.clone().narrow(0, group.start, group.len());
        let targets = match ways {
            // Of which Burn makes no row.
            1 => labels.ones_like().unsqueeze_dim::<3>(2),
            _ => labels.one_hot(ways),
        };
        let targets = targets.float().cast(images.dtype());
        Self { images, targets }
    }

    pub(super) fn tasks(&self) -> usize {
        self.images.dims()[0]
    }

    /// The same one level of autodiff up.
    pub(super) fn lifted(&self) -> Labelled<Autodiff<B>> {
        Labelled { images: lifted(self.images.clone()), targets: lifted(self.targets.clone()) }
    }

    /// Logits `[t, n, ways]`, and the sum over tasks of their mean cross-entropies, `[1]`.
    pub(super) fn loss<E: Encoder<B>>(
        &self,
        classifier: &Classifier<B, E>,
        statistics: BnStatistics,
    ) -> (Tensor<B, 3>, Tensor<B, 1>) {
        let logits = classifier.forward_lanes(self.images.clone(), statistics);
        let examples = logits.dims()[1] as f64;
        let log_likelihood = log_softmax(logits.clone(), 2) * self.targets.clone();
        (logits, log_likelihood.sum() / -examples)
    }

    /// Weight and bias of the linear layer that classifies by squared distances to class means `c`,
    /// `2 c` and `-|c|^2`, flattened, task after task.
    pub(super) fn prototypical_head<E: Encoder<B>>(
        &self,
        classifier: &Classifier<B, E>,
        statistics: BnStatistics,
    ) -> [Tensor<B, 1>; 2] {
        let features = classifier.encode_lanes(self.images.clone(), statistics);
        let shots = self.targets.clone().sum_dim(1);
        // [t, d, ways]
        let sums = features.swap_dims(1, 2).matmul(self.targets.clone());
        let means = sums / shots;
        let lengths = (means.clone() * means.clone()).sum_dim(1);
        let flat = |tensor: Tensor<B, 3>| {
            let length = tensor.shape().num_elements();
            tensor.reshape([length])
        };
        [flat(means * 2.0), flat(-lengths)]
    }

    /// Share of each task's examples whose largest logit is at their label, `[t]`.
    pub(super) fn accuracies(&self, logits: Tensor<B, 3>) -> Tensor<B, 1> {
        let labels = self.targets.clone().argmax(2).squeeze_dim(2);
        super::super::accuracies(logits, labels)
    }
}
