//! Images of tasks as embeddings.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::{BnStatistics, Encoder};

use crate::episode::EpisodeBatch;

/// `[t, n, c, h, w]` to `[t, n, d]`, all in one batch of the network.
pub(super) fn embed_tasks<B: Backend>(
    encoder: &impl Encoder<B>,
    images: Tensor<B, 5>,
    statistics: BnStatistics,
) -> Tensor<B, 3> {
    let [tasks, examples, ..] = images.dims();
    let embeddings = encoder.encode(images.flatten(0, 1), statistics);
    let features = embeddings.dims()[1];
    embeddings.reshape([tasks, examples, features])
}

/// Support and queries of each task in a batch of its own, `[t, n + q, d]`.
pub(super) fn embed_jointly<B: Backend>(
    encoder: &impl Encoder<B>,
    batch: &EpisodeBatch<B>,
    statistics: BnStatistics,
) -> Tensor<B, 3> {
    let all = batch.joined();
    if batch.tasks() == 1 {
        return embed_tasks(encoder, all, statistics);
    }
    let tasks = all.split(1, 0).into_iter().map(|task| embed_tasks(encoder, task, statistics));
    Tensor::cat(tasks.collect(), 0)
}
