//! Images embedded once each: all of a dataset, or those that the episodes of a test show.

use std::collections::HashMap;
use std::ops::Range;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use rayon::prelude::*;

use crate::data::{ClassDataset, DataError, Features, QuarterTurn};
use crate::episode::{Episode, EpisodeSampler, ImageRef, Part, gathered, images, labels};
use crate::learners::heads::EmbeddedSupport;
use crate::learners::{self, OnEmbeddings};

/// How much is done at a time, and at least one episode.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Numbers of the embeddings that are kept.
    kept: usize,
    /// Episodes that are drawn before their new images are embedded.
    drawn: usize,
    /// Images in a batch of the network.
    batch: usize,
    /// Episodes in a launch.
    judged: usize,
    /// Numbers of the embeddings that they are gathered into.
    gathered: usize,
}

/// Of `f32`, 1 GiB is kept and 64 MiB gathered.
const LIMITS: Limits =
    Limits { kept: 1 << 28, drawn: 2048, batch: 256, judged: 512, gathered: 1 << 24 };

/// The accuracy of each of the `episodes` under running statistics.
pub(super) fn accuracies<B: Backend>(
    learner: &dyn OnEmbeddings<B>,
    sampler: &EpisodeSampler,
    device: &B::Device,
    episodes: Range<usize>,
) -> Vec<f64> {
    EmbeddedTest::new(learner, sampler, device, LIMITS).run(episodes)
}

/// A test, with the embeddings that it has so far.
struct EmbeddedTest<'a, B: Backend> {
    learner: &'a dyn OnEmbeddings<B>,
    sampler: &'a EpisodeSampler,
    device: &'a B::Device,
    limits: Limits,
    /// Rows of the images in `embeddings`, in the order in which they are first shown.
    rows: HashMap<(usize, usize, u8), usize>,
    /// `[n, d]`.
    embeddings: Option<Tensor<B, 2>>,
    /// Length of an embedding.
    features: Option<usize>,
    found: Vec<f64>,
}

impl<'a, B: Backend> EmbeddedTest<'a, B> {
    fn new(
        learner: &'a dyn OnEmbeddings<B>,
        sampler: &'a EpisodeSampler,
        device: &'a B::Device,
        limits: Limits,
    ) -> Self {
        let (rows, found) = (HashMap::new(), Vec::new());
        Self { learner, sampler, device, limits, rows, embeddings: None, features: None, found }
    }

    fn run(mut self, episodes: Range<usize>) -> Vec<f64> {
        for first in episodes.clone().step_by(self.limits.drawn) {
            let drawn = first..(first + self.limits.drawn).min(episodes.end);
            let draw = |index| self.sampler.episode(index as u64);
            let drawn: Vec<_> = drawn.into_par_iter().map(draw).collect();
            self.test(&drawn);
        }
        self.found
    }

    /// Embeds what is new, and judges, as many episodes at a time as can be kept for sure. Where that would
    /// be too much beside what is there, this is forgotten.
    fn test(&mut self, episodes: &[Episode]) {
        let (protocol, features) = (self.sampler.protocol(), self.features(&episodes[0]));
        let each = protocol.ways * protocol.examples() * features;
        for episodes in episodes.chunks((self.limits.kept / each.max(1)).max(1)) {
            let had = self.rows.len();
            let mut new = self.number(episodes);
            if had > 0 && self.rows.len() * features > self.limits.kept {
                self.rows.clear();
                self.embeddings = None;
                new = self.number(episodes);
            }
            self.embed(&new);
            self.judge(episodes);
        }
    }

    /// Gives rows to images that have none, and tells which.
    fn number(&mut self, episodes: &[Episode]) -> Vec<ImageRef> {
        let mut new = Vec::new();
        for shown in episodes.iter().flat_map(Episode::all_shown) {
            let next = self.rows.len();
            self.rows.entry(key(shown)).or_insert_with(|| {
                new.push(shown);
                next
            });
        }
        new
    }

    /// Length of an embedding; the first time an image is asked.
    fn features(&mut self, episode: &Episode) -> usize {
        if self.features.is_none() {
            self.features = episode.all_shown().next().map(|one| self.embedded(&[one]).dims()[1]);
        }
        self.features.expect("an episode shows images")
    }

    fn embedded(&self, shown: &[ImageRef]) -> Tensor<B, 2> {
        let images = images(self.sampler.dataset(), shown, self.device);
        // On a backend that differentiates nobody will ask for gradients.
        self.learner.embed(images).detach()
    }

    /// Appends the embeddings of images that have got the next rows.
    fn embed(&mut self, shown: &[ImageRef]) {
        if shown.is_empty() {
            return;
        }
        let new = shown.chunks(self.limits.batch).map(|batch| self.embedded(batch));
        let all: Vec<_> = self.embeddings.iter().cloned().chain(new).collect();
        self.embeddings = Some(Tensor::cat(all, 0));
    }

    /// Judges episodes of which all images have embeddings.
    fn judge(&mut self, episodes: &[Episode]) {
        let embeddings = self.embeddings.clone().expect("an episode shows images");
        let protocol = self.sampler.protocol();
        let numbers = protocol.ways * protocol.examples() * embeddings.dims()[1];
        let together = (self.limits.gathered / numbers.max(1)).clamp(1, self.limits.judged);
        for episodes in episodes.chunks(together) {
            let part = |part| {
                let shown = episodes.iter().flat_map(|episode| episode.shown(part));
                let rows = shown.map(|shown| self.rows[&key(shown)]);
                gathered(&embeddings, rows, episodes.len())
            };
            let labels = |each| labels::<B>(episodes.len(), protocol.ways, each, self.device);
            let support =
                EmbeddedSupport::new(part(Part::Support), labels(protocol.shots), protocol.ways);
            let logits = self.learner.of_embeddings(support, part(Part::Query));
            let found = learners::accuracies(logits, labels(protocol.queries));
            self.found.extend(found.into_data().iter::<f64>());
        }
    }
}

/// What tells images of a dataset apart.
fn key(ImageRef { class, example, turn }: ImageRef) -> (usize, usize, u8) {
    (class, example, turn as u8)
}

/// The embeddings of all images of a dataset, upright.
///
/// # Errors
/// Where two classes have one name, or an embedding is not finite.
pub fn embed_all<B: Backend>(
    learner: &dyn OnEmbeddings<B>,
    dataset: &dyn ClassDataset,
    device: &B::Device,
) -> Result<Features, DataError> {
    let mut length = 0;
    let mut classes = Vec::with_capacity(dataset.classes());
    for class in 0..dataset.classes() {
        let shown = |example| ImageRef { class, example, turn: QuarterTurn::R0 };
        let shown: Vec<_> = (0..dataset.examples(class)).map(shown).collect();
        let mut rows = Vec::new();
        for batch in shown.chunks(LIMITS.batch) {
            // On a backend that differentiates nobody will ask for gradients.
            let embedded = learner.embed(images(dataset, batch, device)).detach();
            length = embedded.dims()[1];
            rows.extend(embedded.into_data().iter::<f32>());
        }
        classes.push((dataset.class_name(class), rows));
    }
    Features::new(length, classes)
}

#[cfg(all(test, feature = "flex"))]
mod tests;
