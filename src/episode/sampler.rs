use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::backend::Backend;
use fewshot_kernels::augment_images::can_augment;
use serde_json::{Value, json};

use super::batch::Labels;
use super::mixing::Mixture;
use super::plan::Plan;
use super::prepared::Augmenting;
use super::{
    BatchSizes, Classification, DataPlacement, Episode, EpisodeBatch, EpisodeError, EpisodeList,
    EpisodeSizes, Mixing, PreparedTasks, Preparer, Protocol, TaskSource,
};
use crate::data::{Augmentation, ClassDataset, DataError, ImageSet, QuarterTurn, sides};

/// Draws episodes: the one with index `i` is a pure function of the seed and `i`.
///
/// Nothing depends on what was drawn before, so the stream is the same on every backend, for any
/// number of workers, and after a resume.
#[derive(Clone)]
pub struct EpisodeSampler {
    dataset: Arc<dyn ClassDataset>,
    plan: Plan,
    data_on: DataPlacement,
    /// Least bytes that were free on a device.
    free: Option<u64>,
    /// Place of the images on all devices so far; the device if they are on one of them.
    placed: Option<DataPlacement>,
    labels: Arc<Labels>,
    augmentation: Arc<Augmentation>,
    mixing: Mixing,
    /// Augmentation of every view of a test but the first, and the number of views.
    views: Option<(Arc<Augmentation>, u32)>,
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
        Self::with_plan(dataset, Plan::fixed(protocol, seed))
    }

    /// A sampler of episodes with various numbers of classes and of examples, over all classes of `dataset`.
    ///
    /// - The number of ways is uniform from 5 to the number of classes, at most 50.
    /// - Each class has as many queries as the others, half of the smallest class of the episode, at most 10.
    /// - The support has `sum_c ceil(beta * min(100, |c| - q))` examples, at most 500: `|c|` is the number of
    ///   examples of class `c`, `q` that of its queries, and `beta` uniform from 0, without it, to 1.
    /// - Class `c` has one of them, and of the others the whole part of a share by `exp(alpha_c) * |c|`, with
    ///   `alpha_c` uniform from `ln 0.5` to `ln 2`; together at most `|c| - q`.
    ///
    /// Tasks of several sizes make no batch: a trainer takes them one after the other, and a step minimises the
    /// mean over all of its queries.
    ///
    /// # Errors
    /// When the dataset has fewer than 5 classes, or a class has a single example.
    ///
    /// # Source
    /// Triantafillou et al., "Meta-Dataset: A Dataset of Datasets for Learning to Learn from Few Examples", ICLR
    /// 2020, section 3.2, of datasets without a hierarchy of classes.
    pub fn varied(dataset: impl ClassDataset + 'static, seed: u64) -> Result<Self, EpisodeError> {
        Self::with_plan(dataset, Plan::Varied { seed })
    }

    /// Most classes of an episode of [`varied`](Self::varied) size.
    pub const MOST_VARIED_WAYS: usize = super::varied::MOST_WAYS;

    /// A sampler of mini-batches of `images` images of all classes, in random order, for the classical training of a
    /// [`BaseClassifier`](crate::learners::BaseClassifier). An epoch shows each image once, in each quarter turn where turns
    /// are drawn; its last mini-batch ends with the first images of the next epoch.
    ///
    /// A mini-batch is an episode in which every image is a labelled example of a way of its own, without queries. Training on
    /// episodes refuses it, and a test panics.
    ///
    /// # Errors
    /// When `images` is zero, or more than an epoch has.
    pub fn mini_batches(
        dataset: impl ClassDataset + 'static,
        images: usize,
        seed: u64,
    ) -> Result<Self, EpisodeError> {
        Self::with_plan(dataset, Plan::MiniBatches { images, seed })
    }

    /// A sampler of the episodes of `list`, in their order. Index `i` is the list's episode `i`.
    ///
    /// # Errors
    /// When the dataset does not have an example of the list, or an episode has a class without support, no query, or
    /// an example twice.
    pub fn listed(
        dataset: impl ClassDataset + 'static,
        list: EpisodeList,
    ) -> Result<Self, EpisodeError> {
        Self::with_plan(dataset, Plan::Listed(list))
    }

    fn with_plan(dataset: impl ClassDataset + 'static, plan: Plan) -> Result<Self, EpisodeError> {
        plan.check(&&dataset)?;
        Ok(Self {
            dataset: Arc::new(dataset),
            plan,
            data_on: DataPlacement::Auto,
            free: None,
            placed: None,
            labels: Arc::new(Labels::new()),
            augmentation: Arc::default(),
            mixing: Mixing::default(),
            views: None,
        })
    }

    /// With images that change at random each time that they are shown, support and queries apart: a change is a pure
    /// function of the seed, the index of the episode and the place in the episode. They are changed on the host, on all
    /// of rayon's threads, and uploaded for each step; with [`DataPlacement::Device`] on the accelerator, in one launch.
    ///
    /// # Errors
    /// When the augmentation does not pass its [`check`](Augmentation::check) for the dataset's images.
    pub fn with_augmentation(self, augmentation: Augmentation) -> Result<Self, EpisodeError> {
        augmentation.check(self.dataset.image_shape())?;
        Ok(Self { augmentation: Arc::new(augmentation), ..self })
    }

    /// With images mixed in pairs, where a [`BaseClassifier`](crate::learners::BaseClassifier) is trained by the episodes;
    /// other training leaves images apart.
    ///
    /// # Errors
    /// For an alpha out of range.
    pub fn with_mixing(self, mixing: Mixing) -> Result<Self, EpisodeError> {
        mixing.check()?;
        Ok(Self { mixing, ..self })
    }

    /// With `views` views of each episode in a test: the images as they are, and `views - 1` in which support and queries
    /// are augmented. A test averages the predicted probabilities.
    ///
    /// # Errors
    /// When the augmentation does not pass its [`check`](Augmentation::check) for the dataset's images, and when it is the
    /// [identity](Augmentation::is_identity) and there are several views.
    ///
    /// # Panics
    /// Without a view.
    pub fn with_views(self, augmentation: Augmentation, views: u32) -> Result<Self, EpisodeError> {
        assert!(views > 0, "a test needs at least one view");
        augmentation.check(self.dataset.image_shape())?;
        if views > 1 && augmentation.is_identity() {
            return Err(EpisodeError::EqualViews { views });
        }
        Ok(Self { views: (views > 1).then(|| (Arc::new(augmentation), views)), ..self })
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

    /// Sizes of the episodes.
    pub fn sizes(&self) -> EpisodeSizes {
        self.plan.sizes()
    }

    /// The protocol whose episodes are at least as large as all of these.
    pub fn largest(&self) -> Protocol {
        self.plan.largest(&self.dataset())
    }

    /// The list, of a sampler of [listed](Self::listed) episodes.
    pub fn list(&self) -> Option<&EpisodeList> {
        self.plan.list()
    }

    /// The numbers that all episodes have in common, if they have.
    pub(crate) fn batch_sizes(&self) -> Option<BatchSizes> {
        self.plan.batch_sizes()
    }

    /// The seed; none of a list.
    pub fn seed(&self) -> Option<u64> {
        self.plan.seed()
    }

    /// The examples of episode `index`.
    ///
    /// # Panics
    /// Beyond the end of a list.
    pub fn episode(&self, index: u64) -> Episode {
        self.plan.episode(&self.dataset(), index)
    }

    /// The episodes with these indices as tensors, in this order.
    ///
    /// # Panics
    /// Where episodes differ in the numbers of classes, of labelled examples or of queries, of which a batch has one
    /// each; beyond the end of a list; and where images are to be on `device` and cannot, with the text of an
    /// [`EpisodeError`]; [`place_data`](TaskSource::place_data) tells before. And where
    /// [`try_batch`](Self::try_batch) fails.
    pub fn batch<B: Backend>(
        &self,
        indices: impl IntoIterator<Item = u64>,
        device: &B::Device,
    ) -> EpisodeBatch<B> {
        self.try_batch(indices, device).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same of images that may lie in a file.
    ///
    /// # Errors
    /// If the file cannot be read.
    ///
    /// # Panics
    /// Where images are to be on `device` and cannot, as [`batch`](Self::batch).
    pub fn try_batch<B: Backend>(
        &self,
        indices: impl IntoIterator<Item = u64>,
        device: &B::Device,
    ) -> Result<EpisodeBatch<B>, DataError> {
        let indices: Vec<_> = indices.into_iter().collect();
        self.batch_of_view(&indices, &self.augmentation, 0, device)
    }

    /// Episodes as a view shows them, augmented where their images lie.
    fn batch_of_view<B: Backend>(
        &self,
        indices: &[u64],
        augmentation: &Augmentation,
        view: u32,
        device: &B::Device,
    ) -> Result<EpisodeBatch<B>, DataError> {
        match self.placement::<B>(device) {
            Ok(DataPlacement::Device) => {
                let (episodes, protocol) = (self.episodes_of(indices), self.sizes().protocol());
                let mixtures = self.mixtures(indices, &episodes);
                let augmenting = self.augmenting(augmentation, indices, view);
                let (dataset, labels) = (self.dataset(), &self.labels);
                let batch = EpisodeBatch::from_block(
                    dataset, &episodes, augmenting, protocol, labels, device,
                )?;
                Ok(batch.with_mixtures(mixtures))
            }
            Ok(_) => {
                let prepared = self.prepare(indices, augmentation, view)?;
                Ok(self.upload(indices, prepared, device))
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The random changes of episodes, if there are any.
    fn augmenting<'a>(
        &self,
        augmentation: &'a Augmentation,
        indices: &'a [u64],
        view: u32,
    ) -> Option<Augmenting<'a>> {
        // A list has no seed, and no other list the same episodes.
        let seed = self.seed().unwrap_or_default();
        let augmenting = Augmenting { augmentation, seed, indices, view };
        (!augmentation.is_empty()).then_some(augmenting)
    }

    fn episodes_of(&self, indices: &[u64]) -> Vec<Episode> {
        indices.iter().map(|&index| self.episode(index)).collect()
    }

    /// Where images lie.
    fn placement<B: Backend>(&self, device: &B::Device) -> Result<DataPlacement, EpisodeError> {
        let is_augmented = !self.augmentation.is_empty() || self.views.is_some();
        let shape = self.dataset.image_shape();
        match self.data_on {
            DataPlacement::Auto if is_augmented => Ok(DataPlacement::Host),
            DataPlacement::Device if is_augmented && !can_augment(sides(shape)) => {
                Err(EpisodeError::AugmentedOnDevice { shape })
            }
            data_on => data_on.decide::<B>(self.dataset(), device, self.free),
        }
    }

    /// True of images that lie on the host, in a file.
    fn reads_a_file(&self) -> bool {
        let is_in_file = self.dataset.block().is_some_and(|block| block.in_memory().is_none());
        is_in_file && self.placed == Some(DataPlacement::Host)
    }

    /// The host's share of episodes.
    fn prepare(
        &self,
        indices: &[u64],
        augmentation: &Augmentation,
        view: u32,
    ) -> Result<PreparedTasks, DataError> {
        let (dataset, episodes) = (self.dataset(), self.episodes_of(indices));
        match self.augmenting(augmentation, indices, view) {
            None => PreparedTasks::gather(dataset, episodes),
            Some(augmenting) => PreparedTasks::augment(dataset, episodes, augmenting),
        }
    }

    fn upload<B: Backend>(
        &self,
        indices: &[u64],
        prepared: PreparedTasks,
        device: &B::Device,
    ) -> EpisodeBatch<B> {
        let mixtures = self.mixtures(indices, &prepared.episodes);
        let protocol = self.sizes().protocol();
        EpisodeBatch::from_prepared(self.dataset(), prepared, protocol, device)
            .with_mixtures(mixtures)
    }

    /// The mixture of each episode.
    fn mixtures(&self, indices: &[u64], episodes: &[Episode]) -> Option<Arc<[Mixture]>> {
        if self.mixing.is_none() {
            return None;
        }
        let (shape, seed) = (self.dataset.image_shape(), self.seed().unwrap_or_default());
        let mixtures = indices.iter().zip(episodes).map(|(&index, episode)| {
            self.mixing.draw(episode.sizes().examples(), shape, seed, index)
        });
        mixtures.collect()
    }
}

impl TaskSource for EpisodeSampler {
    type Kind = Classification;

    fn tasks<B: Backend>(
        &self,
        indices: Range<u64>,
        device: &B::Device,
    ) -> Result<EpisodeBatch<B>, DataError> {
        self.try_batch(indices, device)
    }

    /// Only for images that are augmented on the host, and for those of a file that [`place_data`](TaskSource::place_data) has
    /// left there: others are copied faster than a thread is told to.
    fn preparer(&self) -> Option<Preparer> {
        let on_device = self.data_on == DataPlacement::Device;
        if (self.augmentation.is_empty() || on_device) && !self.reads_a_file() {
            return None;
        }
        let sampler = self.clone();
        Some(Arc::new(move |indices| {
            sampler.prepare(&indices.collect::<Vec<_>>(), &sampler.augmentation, 0)
        }))
    }

    fn tasks_from<B: Backend>(
        &self,
        indices: Range<u64>,
        prepared: PreparedTasks,
        device: &B::Device,
    ) -> Result<EpisodeBatch<B>, DataError> {
        Ok(self.upload(&indices.collect::<Vec<_>>(), prepared, device))
    }

    fn views(&self) -> u32 {
        self.views.as_ref().map_or(1, |(_, views)| *views)
    }

    fn view<B: Backend>(
        &self,
        indices: Range<u64>,
        view: u32,
        device: &B::Device,
    ) -> Result<EpisodeBatch<B>, DataError> {
        let (Some((augmentation, _)), 1..) = (&self.views, view) else {
            return self.tasks(indices, device);
        };
        self.batch_of_view(&indices.collect::<Vec<_>>(), augmentation, view, device)
    }

    fn place_data<B: Backend>(
        &mut self,
        device: &B::Device,
        free: Option<u64>,
    ) -> Result<DataPlacement, EpisodeError> {
        self.free = self.free.into_iter().chain(free).min();
        let here = self.placement::<B>(device)?;
        let is_on_device = self.placed == Some(DataPlacement::Device);
        self.placed = Some(if is_on_device { DataPlacement::Device } else { here });
        Ok(here)
    }

    fn test_batch_size(&self) -> usize {
        self.batch_sizes().map_or(1, |sizes| (400 / sizes.examples()).max(1))
    }

    fn has_equal_sizes(&self) -> bool {
        self.batch_sizes().is_some()
    }

    fn has_queries(&self) -> bool {
        !matches!(self.plan, Plan::MiniBatches { .. })
    }

    /// `None` where an image looks different each time that it is shown.
    fn episodes(&self) -> Option<&EpisodeSampler> {
        (self.augmentation.is_empty() && self.views.is_none()).then_some(self)
    }

    fn settings(&self) -> Value {
        let mut settings = self.plan.settings();
        settings["classes"] = json!(self.dataset.classes());
        settings["image"] = json!(self.dataset.image_shape());
        // Runs without them are told as before there were any.
        if !self.augmentation.is_empty() {
            settings["augmentation"] = json!(*self.augmentation);
        }
        if !self.mixing.is_none() {
            settings["mixing"] = json!(self.mixing);
        }
        settings
    }
}

impl fmt::Debug for EpisodeSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpisodeSampler")
            .field("classes", &self.dataset.classes())
            .field("plan", &self.plan)
            .field("data_on", &self.data_on)
            .field("augmentation", &self.augmentation)
            .field("mixing", &self.mixing)
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
    fn no_episodes_are_a_batch_of_their_protocol() {
        let names = ["a", "b", "c"].map(|name| (name.to_owned(), 5));
        let set = ImageSet::new(ImageShape::new(1, 2, 2), vec![0; 60], names).unwrap();
        let sampler = set.sampler(Protocol::new(3, 1).with_queries(4), 5).unwrap();
        let batch = sampler.batch::<Flex>([], &Default::default());
        assert_eq!(batch.labels().map(|labels| labels.dims()), [[0, 3], [0, 12]]);
        assert_eq!(batch.queries.dims(), [0, 12, 1, 2, 2]);
    }

    #[test]
    fn a_test_has_a_task_at_least_in_a_batch() {
        let one = |ways: usize| {
            let names = (0..ways).map(|class| (class.to_string(), 21));
            let set = ImageSet::new(ImageShape::new(1, 1, 1), vec![0; ways * 21], names).unwrap();
            let sampler = set.sampler(Protocol::new(ways, 1).with_queries(20), 9).unwrap();
            (sampler.test_batch_size(), sampler.seed())
        };
        assert_eq!([one(2), one(19), one(20)], [9, 1, 1].map(|tasks| (tasks, Some(9))));
    }
}
