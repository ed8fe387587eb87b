//! Tests on embeddings. Images are embedded once each: all of a dataset, or those that the episodes of a test show.

use std::collections::HashMap;
use std::ops::Range;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_kernels::{Route, route};
use rayon::prelude::*;

use crate::data::{ClassDataset, DataError, Features, QuarterTurn};
use crate::episode::{BatchSizes, Episode, EpisodeSampler, FeatureBatch, ImageRef, images};
use crate::learners::heads::EmbeddedSupport;
use crate::learners::{self, OnEmbeddings};

/// Most that is done at a time, though at least one episode.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Numbers of the embeddings in memory.
    memory: usize,
    /// Episodes that are drawn before their new images are embedded.
    drawn: usize,
    /// Images in a batch of the network.
    batch: usize,
    /// Episodes in a launch.
    launch: usize,
}

/// Limits of a test: 1 GiB of embeddings in `f32`.
const LIMITS: Limits = Limits { memory: 1 << 28, drawn: 2048, batch: 256, launch: LAUNCH };

/// Most episodes of a launch.
pub(super) const LAUNCH: usize = 512;

/// Most numbers that the episodes of a launch are gathered into, 64 MiB of `f32`.
const GATHERED: usize = 1 << 24;

/// Most of them on a host where a launch is not divided, 16 MiB of `f32`.
const GATHERED_ON_HOST: usize = 1 << 22;

/// Most of them in a part of a launch, which one thread of a host computes: 512 KiB of `f32`, which a core's own cache
/// holds beside the result of an operation.
const GATHERED_BY_THREAD: usize = 1 << 17;

/// Most numbers of a launch where each episode has one for a class and two of its rows, 1 GiB of `f32`:
/// heads hold such tensors ([`SimpleCnaps`](crate::learners::heads::SimpleCnaps)), and with many ways
/// they are larger by far than the rows.
const HELD: usize = 1 << 28;

/// Numbers of episodes that are computed together, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    /// Episodes in a launch.
    pub episodes: usize,
    /// Episodes in a part of it. Threads compute the parts of a launch at the same time.
    pub part: usize,
}

impl Launch {
    /// One episode after the other.
    pub const SINGLE: Self = Self { episodes: 1, part: 1 };

    /// Launches of episodes of these sizes, of embeddings of this length.
    ///
    /// A host has several parts, since most operations run on a single thread there. A backend that differentiates has
    /// one: Burn's autodiff is not safe across threads.
    pub fn new<B: Backend>(sizes: BatchSizes, length: usize, device: &B::Device) -> Self {
        let episodes = |most| episodes_of(sizes, length, most);
        match route::<B>() {
            Route::Host(_) if !B::ad_enabled(device) => {
                Self { episodes: episodes(GATHERED), part: episodes(GATHERED_BY_THREAD) }
            }
            _ => {
                let episodes = episodes_in_launch::<B>(sizes, length);
                Self { episodes, part: episodes }
            }
        }
    }
}

/// Number of episodes in a launch of one part, of embeddings of this length.
pub(super) fn episodes_in_launch<B: Backend>(sizes: BatchSizes, length: usize) -> usize {
    let most = match route::<B>() {
        Route::Host(_) => GATHERED_ON_HOST,
        _ => GATHERED,
    };
    episodes_of(sizes, length, most)
}

/// Number of episodes that are gathered into so many numbers.
fn episodes_of(sizes: BatchSizes, length: usize, most: usize) -> usize {
    let rows = sizes.examples();
    let pairs = sizes.ways.saturating_mul(rows.saturating_mul(rows));
    (most / (rows * length).max(1)).min(HELD / pairs).clamp(1, LAUNCH)
}

/// `range` in parts of `length`, the last of which may be shorter.
pub(super) fn parts(range: Range<usize>, length: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(length).map(move |first| first..(first + length).min(end))
}

/// Accuracy of each episode of a batch by the `logits` of its queries.
pub(super) fn accuracies<B: Backend>(
    batch: FeatureBatch<B>,
    logits: impl FnOnce(EmbeddedSupport<B>, Tensor<B, 3>) -> Tensor<B, 3>,
) -> Vec<f64> {
    let FeatureBatch { support, labels, ways, queries, query_labels } = batch;
    let logits = logits(EmbeddedSupport::new(support, labels, ways), queries);
    learners::accuracies(logits, query_labels).into_data().iter::<f64>().collect()
}

/// Accuracy of each of the `episodes` under running statistics.
pub(super) fn image_accuracies<B: Backend>(
    learner: &dyn OnEmbeddings<B>,
    sampler: &EpisodeSampler,
    device: &B::Device,
    episodes: Range<usize>,
) -> Result<Vec<f64>, DataError> {
    EmbeddedTest::new(learner, sampler, device, LIMITS).run(episodes)
}

/// Test with the embeddings that it has so far.
struct EmbeddedTest<'a, B: Backend> {
    learner: &'a dyn OnEmbeddings<B>,
    sampler: &'a EpisodeSampler,
    device: &'a B::Device,
    limits: Limits,
    /// Row of each image that has an embedding.
    rows: HashMap<ImageRef, usize>,
    /// Embeddings of the images in `rows`, `[n, d]`.
    embeddings: Option<Tensor<B, 2>>,
    /// Length of an embedding.
    length: Option<usize>,
    accuracies: Vec<f64>,
}

impl<'a, B: Backend> EmbeddedTest<'a, B> {
    fn new(
        learner: &'a dyn OnEmbeddings<B>,
        sampler: &'a EpisodeSampler,
        device: &'a B::Device,
        limits: Limits,
    ) -> Self {
        let (rows, accuracies) = (HashMap::new(), Vec::new());
        let (embeddings, length) = (None, None);
        Self { learner, sampler, device, limits, rows, embeddings, length, accuracies }
    }

    fn run(mut self, episodes: Range<usize>) -> Result<Vec<f64>, DataError> {
        for first in episodes.clone().step_by(self.limits.drawn) {
            let drawn = first..(first + self.limits.drawn).min(episodes.end);
            let draw = |index| self.sampler.episode(index as u64);
            let drawn: Vec<_> = drawn.into_par_iter().map(draw).collect();
            self.test(&drawn)?;
        }
        Ok(self.accuracies)
    }

    /// Embeds the new images, and tests. Where there is no room for all of them, the embeddings before are
    /// forgotten; where there is still none, one half of the episodes comes after the other.
    fn test(&mut self, episodes: &[Episode]) -> Result<(), DataError> {
        let before = self.rows.len();
        let new = self.number(episodes);
        let numbers = self.rows.len() * self.length(&new)?;
        if numbers <= self.limits.memory || before == 0 && episodes.len() == 1 {
            self.embed(&new)?;
            self.classify(episodes);
            return Ok(());
        }
        self.rows.clear();
        self.embeddings = None;
        if before > 0 {
            return self.test(episodes);
        }
        let (first, last) = episodes.split_at(episodes.len() / 2);
        self.test(first)?;
        self.test(last)
    }

    /// Gives rows to the images that have none, and returns them.
    fn number(&mut self, episodes: &[Episode]) -> Vec<ImageRef> {
        let mut new = Vec::new();
        for image in episodes.iter().flat_map(Episode::all_images) {
            let row = self.rows.len();
            self.rows.entry(image).or_insert_with(|| {
                new.push(image);
                row
            });
        }
        new
    }

    /// Length of an embedding; the first time an image is asked.
    fn length(&mut self, images: &[ImageRef]) -> Result<usize, DataError> {
        if self.length.is_none()
            && let Some(&image) = images.first()
        {
            self.length = Some(self.embedded(&[image])?.dims()[1]);
        }
        Ok(self.length.expect("the first episode shows images"))
    }

    fn embedded(&self, refs: &[ImageRef]) -> Result<Tensor<B, 2>, DataError> {
        let images = images(self.sampler.dataset(), refs, self.device)?;
        // On a backend that differentiates nobody will ask for gradients.
        Ok(self.learner.embed(images).detach())
    }

    /// Appends the embeddings of images whose rows are the next ones.
    fn embed(&mut self, refs: &[ImageRef]) -> Result<(), DataError> {
        if refs.is_empty() {
            return Ok(());
        }
        let new = refs.chunks(self.limits.batch).map(|batch| self.embedded(batch));
        let all: Vec<_> =
            self.embeddings.iter().cloned().map(Ok).chain(new).collect::<Result<_, _>>()?;
        self.embeddings = Some(Tensor::cat(all, 0));
        Ok(())
    }

    /// Classifies the queries of episodes of which all images have embeddings.
    fn classify(&mut self, episodes: &[Episode]) {
        let embeddings = self.embeddings.clone().expect("an episode shows images");
        for equal in episodes.chunk_by(|one, next| one.sizes() == next.sizes()) {
            let sizes = equal[0].sizes();
            let launch = episodes_in_launch::<B>(sizes, embeddings.dims()[1]);
            for episodes in equal.chunks(launch.min(self.limits.launch)) {
                let row = |image| self.rows[&image];
                let batch = FeatureBatch::from_rows(episodes, sizes.ways, &embeddings, row);
                let logits = |support, queries| self.learner.of_embeddings(support, queries);
                self.accuracies.extend(accuracies(batch, logits));
            }
        }
    }
}

/// The embeddings of all images of a dataset, upright.
///
/// # Errors
/// Where two classes have one name, an embedding is not finite, or images lie in a file that cannot be read.
pub fn embed_all<B: Backend>(
    learner: &dyn OnEmbeddings<B>,
    dataset: &dyn ClassDataset,
    device: &B::Device,
) -> Result<Features, DataError> {
    let mut length = 0;
    let mut classes = Vec::with_capacity(dataset.classes());
    for class in 0..dataset.classes() {
        let upright = |example| ImageRef { class, example, turn: QuarterTurn::R0 };
        let refs: Vec<_> = (0..dataset.examples(class)).map(upright).collect();
        let mut rows = Vec::new();
        for batch in refs.chunks(LIMITS.batch) {
            // On a backend that differentiates nobody will ask for gradients.
            let embedded = learner.embed(images(dataset, batch, device)?).detach();
            length = embedded.dims()[1];
            rows.extend(embedded.into_data().iter::<f32>());
        }
        classes.push((dataset.class_name(class), rows));
    }
    Features::new(length, classes)
}

#[cfg(all(test, feature = "flex"))]
mod tests;
