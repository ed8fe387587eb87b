//! Images embedded once each: all of a dataset, or those that the episodes of a test show.

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
    rows: Rows,
    /// Of the images that have rows, `[n, d]`.
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
        let rows = Rows::new(sampler.dataset());
        let (embeddings, features, found) = (None, None, Vec::new());
        Self { learner, sampler, device, limits, rows, embeddings, features, found }
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

    /// Embeds what is new, and judges. Where that would be too much to keep, what is there is
    /// forgotten; where it still is, one half comes after the other.
    fn test(&mut self, episodes: &[Episode]) {
        let had = self.rows.len();
        let new = self.rows.number(episodes);
        let numbers = self.rows.len() * self.features(&new);
        if numbers <= self.limits.kept || had == 0 && episodes.len() == 1 {
            self.embed(&new);
            return self.judge(episodes);
        }
        self.rows.forget();
        self.embeddings = None;
        if had > 0 {
            return self.test(episodes);
        }
        let (first, last) = episodes.split_at(episodes.len() / 2);
        self.test(first);
        self.test(last);
    }

    /// Length of an embedding; the first time an image is asked.
    fn features(&mut self, shown: &[ImageRef]) -> usize {
        if self.features.is_none() {
            self.features = shown.first().map(|&one| self.embedded(&[one]).dims()[1]);
        }
        self.features.expect("the first episode shows images")
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
                let rows = shown.map(|shown| self.rows.of(shown) as usize);
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

/// Rows of the images of a dataset, in the order in which they are first shown.
struct Rows {
    /// Number of the first image of each class.
    first: Vec<usize>,
    turns: usize,
    /// One more than the row of each image in each turn, or 0.
    rows: Vec<u32>,
    /// Places in `rows` that are not 0.
    taken: Vec<usize>,
}

impl Rows {
    fn new(dataset: &dyn ClassDataset) -> Self {
        let turns = if dataset.draws_turns() { QuarterTurn::ALL.len() } else { 1 };
        let mut count = 0;
        let first = (0..dataset.classes()).map(|class| {
            let first = count;
            count += dataset.examples(class);
            first
        });
        let first = first.collect();
        // Pages of zeros that nothing is written to take no memory.
        Self { first, turns, rows: vec![0; count * turns], taken: Vec::new() }
    }

    fn len(&self) -> usize {
        self.taken.len()
    }

    fn place(&self, shown: ImageRef) -> usize {
        (self.first[shown.class] + shown.example) * self.turns + shown.turn as usize % self.turns
    }

    /// The row of an image that has one.
    fn of(&self, shown: ImageRef) -> u32 {
        self.rows[self.place(shown)] - 1
    }

    /// Gives rows to images that have none, and tells which.
    fn number(&mut self, episodes: &[Episode]) -> Vec<ImageRef> {
        let mut new = Vec::new();
        for shown in episodes.iter().flat_map(Episode::all_shown) {
            let place = self.place(shown);
            if self.rows[place] == 0 {
                self.taken.push(place);
                self.rows[place] = self.taken.len() as u32;
                new.push(shown);
            }
        }
        new
    }

    fn forget(&mut self) {
        self.taken.drain(..).for_each(|place| self.rows[place] = 0);
    }
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
