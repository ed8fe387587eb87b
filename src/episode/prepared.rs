use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::{Episode, ImageRef, Part};
use crate::data::{Augmentation, ClassDataset, DataError, ImageShape};

/// The host's share of tasks: bytes of their images, which are still to be uploaded.
///
/// [`TaskSource::preparer`](super::TaskSource::preparer) makes it in any thread,
/// [`TaskSource::tasks_from`](super::TaskSource::tasks_from) takes it.
pub struct PreparedTasks {
    pub(super) episodes: Vec<Episode>,
    /// `[t * n, c, h, w]`
    pub(super) support: Vec<u8>,
    /// `[t * q, c, h, w]`
    pub(super) queries: Vec<u8>,
}

/// The function that makes the host's share of the tasks with these indices.
///
/// # Errors
/// If data of a task lies in a file that cannot be read.
pub type Preparer = Arc<dyn Fn(Range<u64>) -> Result<PreparedTasks, DataError> + Send + Sync>;

/// Random changes of the images of episodes, keyed by the seed, the index of an episode, and the view.
#[derive(Clone, Copy)]
pub(super) struct Augmenting<'a> {
    pub(super) augmentation: &'a Augmentation,
    pub(super) seed: u64,
    /// Index of each episode.
    pub(super) indices: &'a [u64],
    /// Number of the view; a training image has one, 0.
    pub(super) view: u32,
}

impl Augmenting<'_> {
    /// The index of an image in the random numbers of its episode.
    fn number(&self, place: usize) -> u64 {
        u64::from(self.view) << 32 | place as u64
    }

    /// Words of the changes of all images, for an accelerator, of episodes with so many examples each.
    pub(super) fn words(&self, shape: ImageShape, examples: usize) -> Vec<i32> {
        let mut words = Vec::new();
        for &index in self.indices {
            for place in 0..examples {
                let number = [index, self.number(place)];
                self.augmentation.encode(shape, self.seed, number, &mut words);
            }
        }
        words
    }
}

impl PreparedTasks {
    /// Bytes of the images of supports, and of queries.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> [&[u8]; 2] {
        [&self.support, &self.queries]
    }

    /// Gathers the images of episodes as they are.
    pub(super) fn gather(
        dataset: &(impl ClassDataset + ?Sized),
        episodes: Vec<Episode>,
    ) -> Result<Self, DataError> {
        let part = |part| {
            let refs: Vec<_> = episodes.iter().flat_map(|episode| episode.images(part)).collect();
            bytes(dataset, &refs)
        };
        let (support, queries) = (part(Part::Support)?, part(Part::Query)?);
        Ok(Self { episodes, support, queries })
    }

    /// Gathers the images of episodes, each changed at random by itself, on all of rayon's threads.
    pub(super) fn augment(
        dataset: &dyn ClassDataset,
        episodes: Vec<Episode>,
        augmenting: Augmenting<'_>,
    ) -> Result<Self, DataError> {
        let part = |part| augmented_bytes(dataset, &episodes, part, augmenting);
        let (support, queries) = (part(Part::Support)?, part(Part::Query)?);
        Ok(Self { episodes, support, queries })
    }
}

/// The bytes of images, one after the other. Threads read those of a file side by side.
pub(super) fn bytes(
    dataset: &(impl ClassDataset + ?Sized),
    refs: &[ImageRef],
) -> Result<Vec<u8>, DataError> {
    let values = dataset.image_shape().values();
    let mut pixels = vec![0; refs.len() * values];
    let places = pixels.par_chunks_exact_mut(values).zip(refs);
    places.try_for_each(|(out, image)| {
        dataset.write_image(image.class, image.example, image.turn, out)
    })?;
    Ok(pixels)
}

fn augmented_bytes(
    dataset: &dyn ClassDataset,
    episodes: &[Episode],
    part: Part,
    augmenting: Augmenting<'_>,
) -> Result<Vec<u8>, DataError> {
    let (shape, Augmenting { augmentation, seed, .. }) = (dataset.image_shape(), augmenting);
    let images = episodes.iter().zip(augmenting.indices).flat_map(|(episode, &index)| {
        // Queries are numbered after the support.
        let first = match part {
            Part::Support => 0,
            Part::Query => episode.images(Part::Support).count(),
        };
        let numbered = episode.images(part).enumerate();
        numbered.map(move |(place, image)| (image, [index, augmenting.number(first + place)]))
    });
    let images: Vec<_> = images.collect();
    let mut pixels = vec![0; images.len() * shape.values()];
    let outs = pixels.par_chunks_exact_mut(shape.values());
    outs.zip(&images).try_for_each(|(out, &(image, number))| {
        dataset.write_image(image.class, image.example, image.turn, out)?;
        augmentation.apply(out, shape, seed, number);
        Ok::<_, DataError>(())
    })?;
    Ok(pixels)
}

impl fmt::Debug for PreparedTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.support.len() + self.queries.len();
        f.debug_struct("PreparedTasks")
            .field("tasks", &self.episodes.len())
            .field("bytes", &bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use rayon::ThreadPoolBuilder;

    use super::*;
    use crate::data::{AugmentSpec, Glyphs, GlyphsConfig, ImageSet, Pack, PackWriter, Shades};
    use crate::episode::{
        DataPlacement, EpisodeBatch, EpisodeError, EpisodeSampler, Mixing, Protocol, TaskSource,
    };

    const PROTOCOL: Protocol = Protocol::new(3, 2).with_queries(2);

    fn plain() -> EpisodeSampler {
        let config = GlyphsConfig { train_alphabets: 1, size: 12, ..GlyphsConfig::new(0) };
        Glyphs::generate(&config).train.sampler(PROTOCOL, 1).unwrap()
    }

    fn augmentation(text: &str) -> Augmentation {
        let shape = plain().dataset().image_shape();
        text.parse::<AugmentSpec>().unwrap().for_image(shape).unwrap()
    }

    fn augmented(text: &str) -> EpisodeSampler {
        plain().with_augmentation(augmentation(text)).unwrap()
    }

    /// All values of a batch, the support first.
    fn values(batch: EpisodeBatch<Flex>) -> Vec<f32> {
        let support = batch.support.images.to_data().iter::<f32>().collect::<Vec<_>>();
        support.into_iter().chain(batch.queries.to_data().iter::<f32>()).collect()
    }

    fn tasks(sampler: &EpisodeSampler, indices: Range<u64>) -> Vec<f32> {
        values(sampler.tasks(indices, &Default::default()).unwrap())
    }

    #[test]
    fn an_augmented_episode_is_the_same_in_every_batch_and_on_any_number_of_threads() {
        let sampler = augmented("strong");
        let alone = values(sampler.batch([5], &Default::default()));
        let batch: EpisodeBatch<Flex> = sampler.batch([9, 5, 2], &Default::default());
        assert_eq!(values(batch.part(1..2)), alone);
        let one = ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let three = ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let all = tasks(&sampler, 0..7);
        assert_eq!(one.install(|| tasks(&sampler, 0..7)), all);
        assert_eq!(three.install(|| tasks(&sampler, 0..7)), all);
        assert_ne!(all, tasks(&plain(), 0..7));
    }

    #[test]
    fn episodes_and_seeds_are_augmented_apart() {
        let shape = plain().dataset().image_shape();
        let image = vec![7; shape.values()];
        let at = |seed, index| {
            let mut image = image.clone();
            augmentation("pad=3,erase=1").apply(&mut image, shape, seed, index);
            image
        };
        assert!(at(1, [0, 0]) != at(1, [0, 1]) && at(1, [0, 0]) != at(1, [1, 0]));
        assert_ne!(at(1, [0, 0]), at(2, [0, 0]));
    }

    /// Images that are all the same, so that differences are those of augmentation.
    struct Constant;

    impl ClassDataset for Constant {
        fn classes(&self) -> usize {
            3
        }

        fn class_name(&self, class: usize) -> String {
            class.to_string()
        }

        fn examples(&self, _: usize) -> usize {
            4
        }

        fn image_shape(&self) -> ImageShape {
            ImageShape::new(1, 12, 12)
        }

        fn scaling(&self) -> &crate::data::Scaling {
            static UNIT: std::sync::OnceLock<crate::data::Scaling> = std::sync::OnceLock::new();
            UNIT.get_or_init(|| crate::data::Scaling::unit(1))
        }

        fn write_image(
            &self,
            _: usize,
            _: usize,
            _: crate::data::QuarterTurn,
            out: &mut [u8],
        ) -> Result<(), DataError> {
            (0..).zip(out).for_each(|(place, pixel)| *pixel = place);
            Ok(())
        }
    }

    #[test]
    fn each_image_of_an_episode_is_augmented_by_itself() {
        let sampler = EpisodeSampler::new(Constant, PROTOCOL, 1).unwrap();
        let sampler = sampler.with_augmentation(augmentation("crop,rotate")).unwrap();
        let all = tasks(&sampler, 0..3);
        let mut images: Vec<_> = all.chunks(144).map(|image| format!("{image:?}")).collect();
        assert_eq!(images.len(), 3 * 12);
        images.sort_unstable();
        images.dedup();
        assert_eq!(images.len(), 3 * 12, "of support and queries of every episode");
    }

    #[test]
    fn prepared_tasks_are_the_tasks() {
        let sampler = augmented("standard");
        assert!(plain().preparer().is_none());
        let preparer = sampler.preparer().unwrap();
        let batch =
            sampler.tasks_from::<Flex>(3..6, preparer(3..6).unwrap(), &Default::default()).unwrap();
        assert_eq!(values(batch), tasks(&sampler, 3..6));
    }

    #[test]
    fn images_of_a_file_are_prepared_once_they_are_placed_on_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("glyphs.pack");
        let config = GlyphsConfig { train_alphabets: 1, size: 12, ..GlyphsConfig::new(0) };
        let glyphs = Glyphs::generate(&config);
        let writer = PackWriter::create(&path).unwrap();
        writer.finish(&glyphs, Shades::Inverted, "glyphs".into()).unwrap();
        let packed = Pack::open(&path).unwrap().splits().train;
        let mut sampler = packed.sampler(PROTOCOL, 1).unwrap();
        assert!(sampler.preparer().is_none());
        sampler.place_data::<Flex>(&Default::default(), None).unwrap();
        let prepared = sampler.preparer().unwrap()(3..6).unwrap();
        let batch = sampler.tasks_from::<Flex>(3..6, prepared, &Default::default()).unwrap();
        assert_eq!(values(batch), tasks(&plain(), 3..6));
        let mut in_memory = plain();
        in_memory.place_data::<Flex>(&Default::default(), None).unwrap();
        assert!(in_memory.preparer().is_none());
    }

    #[test]
    fn without_parts_nothing_changes() {
        let sampler = augmented("none");
        assert_eq!(sampler.settings(), plain().settings());
        assert_eq!(tasks(&sampler, 0..3), tasks(&plain(), 0..3));
        assert!(sampler.episodes().is_some());
    }

    #[test]
    fn settings_name_augmentation_and_mixing() {
        let mixing = Mixing { mixup: Some(0.2), cutmix: None };
        let sampler = augmented("flip=0.25").with_mixing(mixing).unwrap();
        let settings = sampler.settings();
        assert_eq!(settings["augmentation"][0]["flip"]["probability"], 0.25);
        assert_eq!(settings["mixing"]["mixup"], 0.2);
        assert!(plain().settings().get("augmentation").is_none());
    }

    #[test]
    fn the_first_view_is_plain_and_the_others_differ() {
        let sampler = plain().with_views(augmentation("standard"), 3).unwrap();
        let view = |view| values(sampler.view(0..2, view, &Default::default()).unwrap());
        assert_eq!((sampler.views(), view(0)), (3, tasks(&plain(), 0..2)));
        assert!(view(1) != view(0) && view(2) != view(0) && view(1) != view(2));
        assert!(sampler.episodes().is_none());
        let single = plain().with_views(augmentation("standard"), 1).unwrap();
        assert_eq!(single.views(), 1);
        assert!(single.episodes().is_some());
    }

    #[test]
    fn views_that_would_be_equal_are_refused() {
        for text in ["none", "flip=0,pad=0,jitter=0,rotate=0,erase=0"] {
            let refused = plain().with_views(augmentation(text), 3).unwrap_err();
            assert_eq!(refused, EpisodeError::EqualViews { views: 3 }, "{text}");
            assert_eq!(plain().with_views(augmentation(text), 1).unwrap().views(), 1);
        }
        for text in ["flip=0.1", "crop=1", "flip=0,pad=1", "jitter=0:0.1:0:0", "rotate=1"] {
            assert_eq!(plain().with_views(augmentation(text), 2).unwrap().views(), 2, "{text}");
        }
    }

    #[test]
    fn augmented_images_lie_on_the_host_unless_a_device_is_asked_for() {
        let place =
            |on| augmented("flip").with_data_on(on).place_data::<Flex>(&Default::default(), None);
        assert_eq!(place(DataPlacement::Auto), Ok(DataPlacement::Host));
        let refused = place(DataPlacement::Device).unwrap_err();
        assert!(matches!(refused, EpisodeError::NoAccelerator { .. }), "{refused}");
        assert!(augmented("flip").with_data_on(DataPlacement::Device).preparer().is_none());
    }

    #[test]
    fn many_channels_are_augmented_on_the_host() {
        let shape = ImageShape::new(5, 2, 2);
        let names = ["a", "b", "c"].map(|name| (name.to_owned(), 4));
        let set = ImageSet::new(shape, vec![0; 3 * 4 * 20], names).unwrap();
        let sampler = set.sampler(PROTOCOL, 1).unwrap();
        let sampler = sampler.with_augmentation(augmentation("flip")).unwrap();
        let mut sampler = sampler.with_data_on(DataPlacement::Device);
        let refused = sampler.place_data::<Flex>(&Default::default(), None).unwrap_err();
        assert_eq!(refused, EpisodeError::AugmentedOnDevice { shape });
    }

    #[test]
    fn mistakes_are_refused() {
        let grey = Augmentation::new([crate::data::AugmentStep::Grey(Default::default())]);
        let refused = plain().with_augmentation(grey).unwrap_err().to_string();
        assert_eq!(refused, "grey changes colours, and images of 1x12x12 have none");
        let mixing = Mixing { mixup: Some(0.0), cutmix: None };
        let refused = plain().with_mixing(mixing).unwrap_err().to_string();
        assert_eq!(refused, "images are mixed by an alpha from 0.01 to 1000, not 0");
    }
}
