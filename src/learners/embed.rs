//! Images of tasks as embeddings.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::{BnStatistics, Encoder};

use super::heads::{EmbeddedEpisode, EmbeddedSupport};
use crate::episode::{EpisodeBatch, Support};

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

/// The support of tasks, under running statistics.
pub(super) fn embed_support<B: Backend>(
    encoder: &impl Encoder<B>,
    support: &Support<B>,
) -> EmbeddedSupport<B> {
    let embeddings = embed_tasks(encoder, support.images.clone(), BnStatistics::Running);
    EmbeddedSupport::new(embeddings, support.labels.clone(), support.ways)
}

/// All images of each task, in a batch of its own.
pub(super) fn embed_jointly<B: Backend>(
    encoder: &impl Encoder<B>,
    batch: &EpisodeBatch<B>,
    statistics: BnStatistics,
) -> EmbeddedEpisode<B> {
    let all = batch.joined();
    let embeddings = if batch.tasks() == 1 {
        embed_tasks(encoder, all, statistics)
    } else {
        let tasks = all.split(1, 0).into_iter().map(|task| embed_tasks(encoder, task, statistics));
        Tensor::cat(tasks.collect(), 0)
    };
    EmbeddedEpisode::new(embeddings, batch.labels(), batch.ways())
}
