use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::backend::Backend;
use serde_json::{Value, json};

use super::batch::Labels;
use super::{
    Classification, DataPlacement, Episode, EpisodeBatch, EpisodeError, Protocol, TaskSource, draw,
};
use crate::data::{ClassDataset, ImageSet, QuarterTurn};
use crate::random::{Purpose, Stream};

/// Draws episodes: the one with index `i` is a pure function of the seed and `i`.
///
/// Nothing depends on what was drawn before, so the stream is the same on every backend, for any
/// number of workers, and after a resume.
#[derive(Clone)]
pub struct EpisodeSampler {
    dataset: Arc<dyn ClassDataset>,
    protocol: Protocol,
    seed: u64,
    data_on: DataPlacement,
    /// Least bytes that were free on a device.
    free: Option<u64>,
    labels: Arc<Labels>,
}

impl EpisodeSampler {
    /// A sampler of `protocol` over all classes of `dataset`.
    ///
    /// # Errors
    /// When the protocol has a zero, the dataset has fewer classes than ways, or a class has fewer
    /// examples than shots and queries together.
    pub fn new(
        dataset: impl ClassDataset + 'static,
        protocol: Protocol,
        seed: u64,
    ) -> Result<Self, EpisodeError> {
        let needed = protocol.shots.saturating_add(protocol.queries);
        let name = |class| dataset.class_name(class);
        draw::check(dataset.classes(), |of| dataset.examples(of), name, protocol, needed)?;
        Ok(Self {
            dataset: Arc::new(dataset),
            protocol,
            seed,
            data_on: DataPlacement::Auto,
            free: None,
            labels: Arc::new(Labels::new()),
        })
    }

    /// Where images lie while an accelerator uses them; [`DataPlacement::Auto`] by default.
    pub fn with_data_on(self, data_on: DataPlacement) -> Self {
        Self { data_on, ..self }
    }

    /// The dataset that episodes are drawn from.
    pub fn dataset(&self) -> &dyn ClassDataset {
        &*self.dataset
    }

    /// Number of different [classes](EpisodeBatch::classes) among the ways of episodes.
    pub fn base_classes(&self) -> usize {
        let turns = if self.dataset.draws_turns() { QuarterTurn::ALL.len() } else { 1 };
        turns * self.dataset.classes()
    }

    /// The size of the episodes.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The examples of episode `index`.
    pub fn episode(&self, index: u64) -> Episode {
        let mut random = Stream::new(self.seed, Purpose::Episode, [index, 0]);
        let Protocol { ways, shots, queries } = self.protocol;
        let (set, queries) = (self.dataset(), vec![queries; ways]);
        let examples = |class| set.examples(class);
        draw::draw(set.classes(), examples, set.draws_turns(), shots, &queries, &mut random)
    }

    /// The episodes with these indices as tensors, in this order.
    ///
    /// # Panics
    /// Where images are to be on `device` and cannot, with the text of an [`EpisodeError`];
    /// [`place_data`](TaskSource::place_data) tells before.
    pub fn batch<B: Backend>(
        &self,
        indices: impl IntoIterator<Item = u64>,
        device: &B::Device,
    ) -> EpisodeBatch<B> {
        let episodes: Vec<_> = indices.into_iter().map(|index| self.episode(index)).collect();
        let dataset = self.dataset();
        match self.data_on.decide::<B>(dataset, device, self.free) {
            Ok(DataPlacement::Device) => {
                EpisodeBatch::from_block(dataset, &episodes, self.protocol, &self.labels, device)
            }
            Ok(_) => EpisodeBatch::gather(dataset, &episodes, self.protocol, device),
            Err(error) => panic!("{error}"),
        }
    }
}

impl TaskSource for EpisodeSampler {
    type Kind = Classification;

    fn tasks<B: Backend>(&self, indices: Range<u64>, device: &B::Device) -> EpisodeBatch<B> {
        self.batch(indices, device)
    }

    fn place_data<B: Backend>(
        &mut self,
        device: &B::Device,
        free: Option<u64>,
    ) -> Result<DataPlacement, EpisodeError> {
        self.free = self.free.into_iter().chain(free).min();
        self.data_on.decide::<B>(self.dataset(), device, self.free)
    }

    fn test_batch_size(&self) -> usize {
        (400 / (self.protocol.ways * self.protocol.examples())).max(1)
    }

    fn episodes(&self) -> Option<&EpisodeSampler> {
        Some(self)
    }

    fn settings(&self) -> Value {
        json!({
            "classes": self.dataset.classes(),
            "image": self.dataset.image_shape(),
            "protocol": self.protocol,
            "seed": self.seed,
        })
    }
}

impl fmt::Debug for EpisodeSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpisodeSampler")
            .field("classes", &self.dataset.classes())
            .field("protocol", &self.protocol)
            .field("seed", &self.seed)
            .field("data_on", &self.data_on)
            .finish_non_exhaustive()
    }
}

impl ImageSet {
    /// A sampler over these images; fails as [`EpisodeSampler::new`] does.
    pub fn sampler(&self, protocol: Protocol, seed: u64) -> Result<EpisodeSampler, EpisodeError> {
        EpisodeSampler::new(self.clone(), protocol, seed)
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;

    use super::*;
    use crate::data::{ImageShape, Rotations};

    #[test]
    fn a_class_in_each_turn_is_a_base_class_where_turns_are_drawn() {
        let names = ["a", "b", "c"].map(|name| (name.to_owned(), 2));
        let set = ImageSet::new(ImageShape::new(1, 2, 2), vec![0; 24], names).unwrap();
        let turned = set.clone().with_rotations(Rotations::PerClassAndEpisode).unwrap();
        for (set, turns) in [(set, 1), (turned, 4)] {
            let sampler = set.sampler(Protocol::new(3, 1).with_queries(1), 5).unwrap();
            assert_eq!(sampler.base_classes(), turns * 3);
            for index in 0..8 {
                let draws = sampler.episode(index).classes;
                let expected: Vec<_> = draws
                    .iter()
                    .map(|draw| {
                        turns * draw.class + if turns == 4 { draw.turn as usize } else { 0 }
                    })
                    .collect();
                let batch = sampler.batch::<Flex>([index], &Default::default());
                assert_eq!(batch.classes(), Some(&expected[..]));
            }
        }
    }

    #[test]
    fn a_test_has_a_task_at_least_in_a_batch() {
        let one = |ways: usize| {
            let names = (0..ways).map(|class| (class.to_string(), 21));
            let set = ImageSet::new(ImageShape::new(1, 1, 1), vec![0; ways * 21], names).unwrap();
            let sampler = set.sampler(Protocol::new(ways, 1).with_queries(20), 9).unwrap();
            (sampler.test_batch_size(), sampler.seed())
        };
        assert_eq!([one(2), one(19), one(20)], [(9, 9), (1, 9), (1, 9)]);
    }
}
