use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, OnceLock};

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor};
use fewshot_kernels::augment_images::ChangeKind;
use fewshot_kernels::{AugmentCall, GatherCall, augment_images, gather_images};

use super::mixing::{MixedImages, Mixture, mix};
use super::prepared::{Augmenting, PreparedTasks, bytes};
use super::{BatchSizes, Episode, Examples, ImageRef, Part, Protocol, uploaded};
use crate::data::{ClassDataset, DataError, DeviceCache, QuarterTurn, Scaling, sides};

/// The labelled examples of `t` tasks.
#[derive(Clone, Debug)]
pub struct Support<B: Backend> {
    /// Images, `[t, n, c, h, w]`.
    pub images: Tensor<B, 5>,
    /// Labels from 0 to `ways - 1`, `[t, n]`.
    pub labels: Tensor<B, 2, Int>,
    /// Number of classes.
    pub ways: usize,
}

/// The tensors of an [`EpisodeBatch`].
#[derive(Clone, Debug)]
pub struct EpisodeTensors<B: Backend> {
    /// Labelled examples of each task, of a protocol `n = ways * shots`.
    pub support: Support<B>,
    /// Images to be classified, `[t, q, c, h, w]`, of a protocol `q = ways * queries`.
    pub queries: Tensor<B, 5>,
    /// Their labels, `[t, q]`.
    pub query_labels: Tensor<B, 2, Int>,
}

/// Episodes as tensors, with a task axis in front: all with the same number of classes, of labelled examples and of
/// queries, of which a class may have more than another.
///
/// It is read and written as [`EpisodeTensors`]. Where the images of a dataset lie on an accelerator,
/// they are gathered when they are first looked at: support and queries apart, or
/// [joined](Self::joined).
///
/// Examples are ordered by class, and a class's examples as drawn; no learner relies on it.
#[derive(Clone, Debug)]
pub struct EpisodeBatch<B: Backend> {
    tensors: OnceLock<EpisodeTensors<B>>,
    /// Where the tensors come from, unless someone may have changed them.
    drawn: Option<DeferredGather<B>>,
    /// The base class of each way of each task.
    classes: Option<Arc<[usize]>>,
    /// The mixture of each task, if images are to be mixed.
    mixtures: Option<Arc<[Mixture]>>,
}

/// Episodes of images in a bank on the device.
#[derive(Clone, Debug)]
struct DeferredGather<B: Backend> {
    bank: Tensor<B, 1, Int>,
    /// Images of each task, the support before the queries, as `gather_images` takes them.
    chosen: Tensor<B, 2, Int>,
    /// For all of them.
    call: GatherCall,
    changes: Option<Changes<B>>,
    sizes: BatchSizes,
    support_labels: Tensor<B, 2, Int>,
    query_labels: Tensor<B, 2, Int>,
}

/// Random changes of images, as `augment_images` takes them.
#[derive(Clone, Debug)]
struct Changes<B: Backend> {
    kinds: Vec<ChangeKind>,
    /// `[t, n, words]`
    words: Tensor<B, 3, Int>,
}

/// Labels that are uploaded once: of so many tasks, classes and examples a class.
pub(super) type Labels = DeviceCache<[usize; 3]>;

impl<B: Backend> Support<B> {
    /// Examples of some of the tasks.
    pub(super) fn part(&self, tasks: Range<usize>) -> Self {
        Self {
            images: self.images.clone().narrow(0, tasks.start, tasks.len()),
            labels: self.labels.clone().narrow(0, tasks.start, tasks.len()),
            ways: self.ways,
        }
    }

    /// With rows of zeros and a one for the labels.
    pub(super) fn examples(self) -> Examples<B> {
        let targets = one_hot(self.labels, self.ways).cast(self.images.dtype());
        Examples { inputs: self.images, targets }
    }
}

/// Rows of a one and zeros, `[t, n, ways]`, in fewer launches than Burn's own.
pub(crate) fn one_hot<B: Backend>(labels: Tensor<B, 2, Int>, ways: usize) -> Tensor<B, 3> {
    let classes = Tensor::<B, 1, Int>::arange(0..ways as i64, &labels.device());
    labels.unsqueeze_dim::<3>(2).equal(classes.unsqueeze()).float()
}

impl<B: Backend> DeferredGather<B> {
    fn images(&self, examples: Range<usize>) -> Tensor<B, 5> {
        let gather = GatherCall { examples, ..self.call.clone() };
        let (bank, chosen) = (self.bank.clone(), self.chosen.clone());
        match self.changes.clone() {
            None => gather_images(bank, chosen, &gather),
            Some(Changes { kinds, words }) => {
                augment_images(bank, chosen, words, &AugmentCall { gather, kinds })
            }
        }
    }

    fn tensors(&self) -> EpisodeTensors<B> {
        let BatchSizes { ways, support, .. } = self.sizes;
        let all = self.call.examples.end;
        EpisodeTensors {
            support: Support {
                images: self.images(0..support),
                labels: self.support_labels.clone(),
                ways,
            },
            queries: self.images(support..all),
            query_labels: self.query_labels.clone(),
        }
    }

    fn part(&self, tasks: Range<usize>) -> Self {
        let first = self.call.tasks.start;
        let labels = |of: &Tensor<B, 2, Int>| of.clone().narrow(0, tasks.start, tasks.len());
        Self {
            call: GatherCall { tasks: first + tasks.start..first + tasks.end, ..self.call.clone() },
            support_labels: labels(&self.support_labels),
            query_labels: labels(&self.query_labels),
            ..self.clone()
        }
    }
}

impl<B: Backend> Deref for EpisodeBatch<B> {
    type Target = EpisodeTensors<B>;

    fn deref(&self) -> &EpisodeTensors<B> {
        let gather = || self.drawn.as_ref().expect("there are tensors or draws").tensors();
        self.tensors.get_or_init(gather)
    }
}

impl<B: Backend> DerefMut for EpisodeBatch<B> {
    fn deref_mut(&mut self) -> &mut EpisodeTensors<B> {
        let _ = &**self;
        self.drawn = None;
        self.tensors.get_mut().expect("they were looked at")
    }
}

impl<B: Backend> From<EpisodeTensors<B>> for EpisodeBatch<B> {
    fn from(tensors: EpisodeTensors<B>) -> Self {
        Self { tensors: OnceLock::from(tensors), drawn: None, classes: None, mixtures: None }
    }
}

impl<B: Backend> EpisodeBatch<B> {
    /// The tensors themselves.
    pub fn into_tensors(mut self) -> EpisodeTensors<B> {
        let _ = &*self;
        self.tensors.take().expect("they were looked at")
    }

    /// Number of tasks.
    pub fn tasks(&self) -> usize {
        match &self.drawn {
            Some(drawn) => drawn.call.tasks.len(),
            None => self.queries.dims()[0],
        }
    }

    /// Number of classes in each task.
    pub fn ways(&self) -> usize {
        match &self.drawn {
            Some(drawn) => drawn.sizes.ways,
            None => self.support.ways,
        }
    }

    /// Labels of support `[t, n]` and queries `[t, q]`, without a look at images.
    pub fn labels(&self) -> [Tensor<B, 2, Int>; 2] {
        match &self.drawn {
            Some(drawn) => [drawn.support_labels.clone(), drawn.query_labels.clone()],
            None => [self.support.labels.clone(), self.query_labels.clone()],
        }
    }

    /// True of tasks with queries; mini-batches of images have none.
    pub(crate) fn has_queries(&self) -> bool {
        match &self.drawn {
            Some(drawn) => drawn.sizes.queries > 0,
            None => self.query_labels.dims()[1] > 0,
        }
    }

    /// Images of support and queries of each task, `[t, n + q, c, h, w]`.
    pub fn joined(&self) -> Tensor<B, 5> {
        match &self.drawn {
            Some(drawn) => drawn.images(drawn.call.examples.clone()),
            // Backends of accelerators join no empty tensors.
            None if !self.has_queries() => self.support.images.clone(),
            None => Tensor::cat(vec![self.support.images.clone(), self.queries.clone()], 1),
        }
    }

    /// Class of the dataset that each way of each task is, task after task; `None` of a batch that was
    /// made of tensors. Where classes are drawn in one of four turns, a class in a turn is one of its own:
    /// `4 * class + turn`.
    pub fn classes(&self) -> Option<&[usize]> {
        self.classes.as_deref()
    }

    /// The [class of the dataset](Self::classes) of each example, `[t, n + q]`, in the order of
    /// [`joined`](Self::joined).
    pub fn base_labels(&self) -> Option<Tensor<B, 2, Int>> {
        let classes: Vec<_> = self.classes()?.iter().map(|&class| class as i32).collect();
        let [support, queries] = self.labels();
        let labels = match self.has_queries() {
            true => Tensor::cat(vec![support, queries], 1),
            false => support,
        };
        let shape = [self.tasks(), self.ways()];
        let classes: Tensor<B, 2, Int> = uploaded(classes, shape, &labels.device());
        Some(classes.gather(1, labels))
    }

    /// Images of support and queries of each task, mixed; `None` where they are not to be mixed.
    pub(crate) fn mixed(&self) -> Option<MixedImages<B>> {
        self.mixtures.as_ref().map(|mixtures| mix(self.joined(), mixtures))
    }

    /// With a mixture for each task, or with none.
    pub(super) fn with_mixtures(self, mixtures: Option<Arc<[Mixture]>>) -> Self {
        Self { mixtures, ..self }
    }

    /// Some of the tasks.
    pub fn part(&self, tasks: Range<usize>) -> Self {
        let ways = self.ways();
        let of_tasks =
            |classes: &Arc<[usize]>| classes[tasks.start * ways..tasks.end * ways].into();
        let classes = self.classes.as_ref().map(of_tasks);
        let mixtures = self.mixtures.as_ref().map(|mixtures| mixtures[tasks.clone()].into());
        if let Some(drawn) = &self.drawn {
            let drawn = Some(drawn.part(tasks));
            return Self { tensors: OnceLock::new(), drawn, classes, mixtures };
        }
        let part = Self::from(EpisodeTensors {
            support: self.support.part(tasks.clone()),
            queries: self.queries.clone().narrow(0, tasks.start, tasks.len()),
            query_labels: self.query_labels.clone().narrow(0, tasks.start, tasks.len()),
        });
        Self { classes, mixtures, ..part }
    }

    /// The images of `episodes`, all of `protocol` if there is one, by their places in the dataset's block, which is
    /// taken to `device`, and changed there if they are augmented.
    ///
    /// # Errors
    /// If the block lies in a file that cannot be read.
    ///
    /// # Panics
    /// Panics like [`gather`](Self::gather) or [`gather_uneven`](Self::gather_uneven), and where there is no block.
    pub(super) fn from_block(
        dataset: &dyn ClassDataset,
        episodes: &[Episode],
        augmenting: Option<Augmenting<'_>>,
        protocol: Option<Protocol>,
        labels: &Labels,
        device: &B::Device,
    ) -> Result<Self, DataError> {
        let sizes = match protocol {
            Some(protocol) => checked_sizes(episodes, protocol),
            None => BatchSizes::common(episodes),
        };
        let (tasks, ways, examples) = (episodes.len(), sizes.ways, sizes.examples());
        let chosen = choices(dataset, episodes);
        let labels = |part| match protocol {
            None => labels_of(episodes, part, sizes, device),
            Some(Protocol { shots, queries, .. }) => {
                let each = if matches!(part, Part::Support) { shots } else { queries };
                labels.get_or_make([tasks, ways, each], device, || {
                    self::labels::<B>(tasks, ways, each, device)
                })
            }
        };
        let (gains, shifts) = gains_and_shifts(dataset.scaling());
        let shape = sides(dataset.image_shape());
        let changes = augmenting.and_then(|augmenting| {
            let words = augmenting.words(dataset.image_shape(), examples);
            let shape = [tasks, examples, words.len() / (tasks * examples).max(1)];
            let kinds = augmenting.augmentation.kinds();
            // A jitter of no strength has none.
            (!words.is_empty())
                .then(|| Changes { kinds, words: uploaded(words, shape, (device, DType::I32)) })
        });
        let drawn = DeferredGather {
            bank: dataset.block().expect("images are in one block").bank::<B>(device)?,
            chosen: uploaded(chosen, [tasks, examples], (device, DType::I32)),
            call: GatherCall { tasks: 0..tasks, examples: 0..examples, shape, gains, shifts },
            changes,
            sizes,
            support_labels: labels(Part::Support),
            query_labels: labels(Part::Query),
        };
        let classes = Some(classes(dataset, episodes));
        Ok(Self { tensors: OnceLock::new(), drawn: Some(drawn), classes, mixtures: None })
    }

    /// Gathers the images of `episodes` and scales them on the device.
    ///
    /// # Errors
    /// If an image lies in a file that cannot be read.
    ///
    /// # Panics
    /// When an episode does not have the size that `protocol` says, or names an example that
    /// `dataset` does not have.
    pub fn gather(
        dataset: &(impl ClassDataset + ?Sized),
        episodes: &[Episode],
        protocol: Protocol,
        device: &B::Device,
    ) -> Result<Self, DataError> {
        Self::gathered(dataset, episodes, checked_sizes(episodes, protocol), device)
    }

    /// Gathers the images of `episodes` in which a class may have more labelled examples or queries than another.
    ///
    /// # Errors
    /// Fails like [`gather`](Self::gather).
    ///
    /// # Panics
    /// When two episodes differ in the number of classes, of labelled examples or of queries, there is no episode, or
    /// one names an example that `dataset` does not have.
    pub fn gather_uneven(
        dataset: &(impl ClassDataset + ?Sized),
        episodes: &[Episode],
        device: &B::Device,
    ) -> Result<Self, DataError> {
        Self::gathered(dataset, episodes, BatchSizes::common(episodes), device)
    }

    fn gathered(
        dataset: &(impl ClassDataset + ?Sized),
        episodes: &[Episode],
        sizes: BatchSizes,
        device: &B::Device,
    ) -> Result<Self, DataError> {
        let prepared = PreparedTasks::gather(dataset, episodes.to_vec())?;
        Ok(Self::upload(dataset, prepared, sizes, device))
    }

    /// Uploads the images of episodes of these sizes and scales them on the device.
    pub(super) fn upload(
        dataset: &(impl ClassDataset + ?Sized),
        prepared: PreparedTasks,
        sizes: BatchSizes,
        device: &B::Device,
    ) -> Self {
        let PreparedTasks { episodes, support, queries } = prepared;
        let part = |pixels, examples| {
            let images = scaled::<B>(dataset, pixels, device);
            let [_, c, h, w] = images.dims();
            // In a reshape, 0 stands for the dimension as it is.
            match examples {
                0 => Tensor::empty([episodes.len(), 0, c, h, w], device),
                _ => images.reshape([episodes.len(), examples, c, h, w]),
            }
        };
        let batch = Self::from(EpisodeTensors {
            support: Support {
                images: part(support, sizes.support),
                labels: labels_of(&episodes, Part::Support, sizes, device),
                ways: sizes.ways,
            },
            queries: part(queries, sizes.queries),
            query_labels: labels_of(&episodes, Part::Query, sizes, device),
        });
        Self { classes: Some(classes(dataset, &episodes)), ..batch }
    }

    /// Uploads the images of episodes, all of `protocol` if there is one.
    ///
    /// # Panics
    /// Panics like [`gather`](Self::gather) or [`gather_uneven`](Self::gather_uneven).
    pub(super) fn from_prepared(
        dataset: &dyn ClassDataset,
        prepared: PreparedTasks,
        protocol: Option<Protocol>,
        device: &B::Device,
    ) -> Self {
        let sizes = match protocol {
            Some(protocol) => checked_sizes(&prepared.episodes, protocol),
            None => BatchSizes::common(&prepared.episodes),
        };
        Self::upload(dataset, prepared, sizes, device)
    }
}

/// The classes of the dataset that the ways of `episodes` are.
fn classes(dataset: &(impl ClassDataset + ?Sized), episodes: &[Episode]) -> Arc<[usize]> {
    let draws = episodes.iter().flat_map(|episode| &episode.classes);
    match dataset.draws_turns() {
        true => {
            draws.map(|draw| QuarterTurn::ALL.len() * draw.class + draw.turn as usize).collect()
        }
        false => draws.map(|draw| draw.class).collect(),
    }
}

/// Images of each task, the support before the queries: four times the place of an image, plus its turns.
fn choices(dataset: &dyn ClassDataset, episodes: &[Episode]) -> Vec<i32> {
    let choice = |ImageRef { class, example, turn }| {
        let place = dataset.block_image(class, example, turn);
        let (image, turn) = place.expect("images are in one block");
        i32::try_from(4 * image + turn as usize).expect("images that can be numbered")
    };
    episodes.iter().flat_map(Episode::all_images).map(choice).collect()
}

/// By channel, what a byte is multiplied with and what is added.
fn gains_and_shifts(scaling: &Scaling) -> (Vec<f32>, Vec<f32>) {
    let gains = scaling.std.iter().map(|std| 1.0 / (255.0 * std)).collect();
    // No zero with a sign.
    let shifts = scaling.mean.iter().zip(&scaling.std).map(|(mean, std)| 0.0 - mean / std);
    (gains, shifts.collect())
}

/// The sizes of `episodes`, which are those of `protocol`.
fn checked_sizes(episodes: &[Episode], protocol: Protocol) -> BatchSizes {
    for (index, episode) in episodes.iter().enumerate() {
        assert!(episode.protocol() == Some(protocol), "episode {index} is not {protocol}");
    }
    protocol.into()
}

/// The images that are shown, `[n, c, h, w]`, scaled on the device. Threads read those of a file side by side.
pub(crate) fn images<B: Backend>(
    dataset: &(impl ClassDataset + ?Sized),
    refs: &[ImageRef],
    device: &B::Device,
) -> Result<Tensor<B, 4>, DataError> {
    Ok(scaled(dataset, bytes(dataset, refs)?, device))
}

/// Images of these bytes, `[n, c, h, w]`, scaled on the device.
fn scaled<B: Backend>(
    dataset: &(impl ClassDataset + ?Sized),
    pixels: Vec<u8>,
    device: &B::Device,
) -> Tensor<B, 4> {
    let shape = dataset.image_shape();
    let images = pixels.len() / shape.values();
    let dims = [images, shape.channels, shape.height, shape.width];
    scale(as_floats(pixels, dims, device), dataset.scaling())
}

/// Bytes as floats; they travel as bytes where the device can hold bytes.
fn as_floats<B: Backend>(pixels: Vec<u8>, dims: [usize; 4], device: &B::Device) -> Tensor<B, 4> {
    if B::supports_dtype(device, DType::U8) {
        return uploaded::<B, 4, Int>(pixels, dims, (device, DType::U8)).float();
    }
    let floats: Vec<f32> = pixels.into_iter().map(f32::from).collect();
    uploaded(floats, dims, device)
}

/// `(x / 255 - mean) / std`, by channel.
fn scale<B: Backend>(x: Tensor<B, 4>, scaling: &Scaling) -> Tensor<B, 4> {
    let device = x.device();
    let channels = scaling.mean.len();
    let per_channel = |values: Vec<f32>| {
        Tensor::<B, 1>::from_floats(values.as_slice(), &device).reshape([1, channels, 1, 1])
    };
    let (gains, shifts) = gains_and_shifts(scaling);
    let shifted = shifts.iter().any(|&shift| shift != 0.0);
    // A number is far cheaper than a tensor that has to be broadcast.
    let x = match gains.iter().all(|gain| *gain == gains[0]) {
        true => x * gains[0],
        false => x * per_channel(gains),
    };
    if shifted { x + per_channel(shifts) } else { x }
}

/// Labels of a part of episodes of these sizes, `[t, n]` or `[t, q]`.
fn labels_of<B: Backend>(
    episodes: &[Episode],
    part: Part,
    sizes: BatchSizes,
    device: &B::Device,
) -> Tensor<B, 2, Int> {
    let labels = episodes.iter().flat_map(|episode| episode.labels(part));
    let labels: Vec<i32> = labels.map(|label| label as i32).collect();
    let examples = if matches!(part, Part::Support) { sizes.support } else { sizes.queries };
    uploaded(labels, [episodes.len(), examples], device)
}

/// Labels of examples in the order of their classes, `[t, ways * per_class]`.
pub(crate) fn labels<B: Backend>(
    tasks: usize,
    ways: usize,
    per_class: usize,
    device: &B::Device,
) -> Tensor<B, 2, Int> {
    let one = (0..ways).flat_map(|label| std::iter::repeat_n(label as i32, per_class));
    let all: Vec<i32> = one.cycle().take(tasks * ways * per_class).collect();
    uploaded(all, [tasks, ways * per_class], device)
}
