//! Mini-batches of images of all classes, for classical training.

use super::class_set::ClassSet;
use super::{ClassDraw, Episode, EpisodeError, Protocol};
use crate::data::QuarterTurn;
use crate::random::{Purpose, Shuffle, Stream};

/// Checks that `set` has mini-batches of so many images.
pub(super) fn check(set: &dyn ClassSet, images: usize) -> Result<(), EpisodeError> {
    let epoch = Epoch::new(set);
    match images {
        0 => Err(EpisodeError::NoImages),
        _ if images > epoch.images() => {
            Err(EpisodeError::NotEnoughImages { images, actual: epoch.images() })
        }
        _ => Ok(()),
    }
}

/// The protocol of a mini-batch of so many images.
pub(super) fn protocol(images: usize) -> Protocol {
    Protocol::new(images, 1).with_queries(0)
}

/// Mini-batch `index`: each image is a class of the episode with one labelled example and no query.
pub(super) fn episode(set: &dyn ClassSet, images: usize, seed: u64, index: u64) -> Episode {
    let epoch = Epoch::new(set);
    let all = epoch.images();
    let first = u128::from(index) * images as u128;
    let (number, place) = ((first / all as u128) as u64, (first % all as u128) as usize);
    let orders = [number, number + 1]
        .map(|number| Shuffle::new(Stream::new(seed, Purpose::Epoch, [number, 0]), all));
    let order = (place..place + images).map(|at| orders[at / all].number(at % all));
    Episode { classes: order.map(|image| epoch.image(image)).collect() }
}

/// The images that an epoch shows: every example of every class, in each quarter turn where turns are drawn.
struct Epoch {
    /// Number of the examples of each class and of the classes before it.
    ends: Vec<usize>,
    turns: usize,
}

impl Epoch {
    fn new(set: &dyn ClassSet) -> Self {
        let sums = (0..set.classes()).scan(0, |sum, class| {
            *sum += set.examples(class);
            Some(*sum)
        });
        let turns = if set.draws_turns() { QuarterTurn::ALL.len() } else { 1 };
        Self { ends: sums.collect(), turns }
    }

    fn examples(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn images(&self) -> usize {
        self.turns * self.examples()
    }

    fn image(&self, number: usize) -> ClassDraw {
        let (turn, place) = (number / self.examples(), number % self.examples());
        let class = self.ends.partition_point(|&end| end <= place);
        let first = if class == 0 { 0 } else { self.ends[class - 1] };
        let turn = QuarterTurn::ALL[turn];
        ClassDraw { class, turn, support: vec![place - first], query: Vec::new() }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use std::collections::HashMap;

    use burn::backend::Flex;

    use crate::data::{ImageSet, ImageShape, Rotations};
    use crate::episode::{EpisodeError, EpisodeSampler, EpisodeSizes, TaskSource};

    /// Classes of 2, 3 and 1 images of one pixel, which is the number of the image.
    fn images() -> ImageSet {
        let names = [("a", 2), ("b", 3), ("c", 1)].map(|(name, n)| (name.to_owned(), n));
        ImageSet::new(ImageShape::new(1, 1, 1), (0..6).collect::<Vec<u8>>(), names).unwrap()
    }

    fn sampler(images: ImageSet, size: usize) -> EpisodeSampler {
        EpisodeSampler::mini_batches(images, size, 9).unwrap()
    }

    /// Class, example and turn of each image of a mini-batch.
    fn draws(sampler: &EpisodeSampler, index: u64) -> Vec<(usize, usize, usize)> {
        let draws = sampler.episode(index).classes.into_iter();
        draws.map(|draw| (draw.class, draw.support[0], draw.turn as usize)).collect()
    }

    #[test]
    fn an_epoch_shows_every_image_once_in_another_order_each_time() {
        let sampler = sampler(images(), 4);
        let all: Vec<_> = (0..6).flat_map(|index| draws(&sampler, index)).collect();
        let mut orders = Vec::new();
        for epoch in all.chunks(6) {
            let mut sorted = epoch.to_vec();
            sorted.sort_unstable();
            let expected = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0)];
            assert_eq!(sorted, expected.map(|(class, example)| (class, example, 0)));
            orders.push(epoch);
        }
        orders.sort_unstable();
        orders.dedup();
        assert_eq!(orders.len(), 4);
    }

    #[test]
    fn every_turn_of_an_image_is_one_of_an_epoch() {
        let turned = images().with_rotations(Rotations::PerClassAndEpisode).unwrap();
        let sampler = sampler(turned, 24);
        let mut counts = HashMap::new();
        for draw in draws(&sampler, 7) {
            *counts.entry(draw).or_insert(0) += 1;
        }
        assert_eq!((counts.len(), counts.values().max()), (24, Some(&1)));
        let classes: Vec<_> = draws(&sampler, 7).iter().map(|draw| 4 * draw.0 + draw.2).collect();
        let batch = sampler.batch::<Flex>([7], &Default::default());
        assert_eq!(batch.classes(), Some(&classes[..]));
    }

    #[test]
    fn a_batch_has_the_images_their_classes_and_no_query() {
        let sampler = sampler(images(), 5);
        let batch = sampler.batch::<Flex>([0, 3], &Default::default());
        let drawn = [draws(&sampler, 0), draws(&sampler, 3)].concat();
        let first = [0, 2, 5];
        let expected: Vec<_> = drawn.iter().map(|draw| (first[draw.0] + draw.1) as f32).collect();
        let pixels = batch.joined();
        assert_eq!((pixels.dims(), batch.queries.dims()), ([2, 5, 1, 1, 1], [2, 0, 1, 1, 1]));
        let pixels = pixels.into_data().to_vec::<f32>().unwrap().into_iter();
        assert_eq!(pixels.map(|value| (255.0 * value).round()).collect::<Vec<_>>(), expected);
        let labels = batch.base_labels().unwrap().into_data();
        let classes: Vec<_> = drawn.iter().map(|draw| draw.0).collect();
        assert_eq!(labels.iter::<i64>().map(|label| label as usize).collect::<Vec<_>>(), classes);
        assert_eq!(sampler.sizes(), EpisodeSizes::MiniBatch { images: 5 });
        assert!(sampler.has_equal_sizes() && !sampler.has_queries());
    }

    #[test]
    fn mini_batches_of_no_image_or_of_more_than_an_epoch_are_refused() {
        let refused = |size| EpisodeSampler::mini_batches(images(), size, 9).unwrap_err();
        assert_eq!(refused(0), EpisodeError::NoImages);
        assert_eq!(refused(7), EpisodeError::NotEnoughImages { images: 7, actual: 6 });
        assert_eq!(
            refused(7).to_string(),
            "a mini-batch of 7 images needs as many, the split has 6"
        );
        assert_eq!(draws(&sampler(images(), 6), 2).len(), 6);
    }
}
