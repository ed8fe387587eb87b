use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Int, Tensor, TensorData};

use super::{Episode, Examples, Part, Protocol, Shown};
use crate::data::{ClassDataset, Scaling};

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

/// Episodes of one protocol as tensors, with a task axis in front.
///
/// Examples are ordered by class, and a class's examples as drawn; no learner relies on it.
#[derive(Clone, Debug)]
pub struct EpisodeBatch<B: Backend> {
    /// What each task is learned from, `n = ways * shots`.
    pub support: Support<B>,
    /// Images to be classified, `[t, q, c, h, w]`, `q = ways * queries`.
    pub queries: Tensor<B, 5>,
    /// Their labels, `[t, q]`.
    pub query_labels: Tensor<B, 2, Int>,
}

impl<B: Backend> Support<B> {
    /// Those of some of the tasks.
    pub(super) fn part(&self, tasks: Range<usize>) -> Self {
        Self {
            images: self.images.clone().narrow(0, tasks.start, tasks.len()),
            labels: self.labels.clone().narrow(0, tasks.start, tasks.len()),
            ways: self.ways,
        }
    }

    /// With rows of zeros and a one for the labels.
    pub(super) fn examples(self) -> Examples<B> {
        let rows = match self.ways {
            // Of which Burn makes no row.
            1 => self.labels.ones_like().unsqueeze_dim::<3>(2),
            ways => self.labels.one_hot(ways),
        };
        let targets = rows.float().cast(self.images.dtype());
        Examples { inputs: self.images, targets }
    }
}

impl<B: Backend> EpisodeBatch<B> {
    /// Number of tasks.
    pub fn tasks(&self) -> usize {
        self.queries.dims()[0]
    }

    /// Number of classes in each task.
    pub fn ways(&self) -> usize {
        self.support.ways
    }

    /// Some of the tasks.
    pub fn part(&self, tasks: Range<usize>) -> Self {
        Self {
            support: self.support.part(tasks.clone()),
            queries: self.queries.clone().narrow(0, tasks.start, tasks.len()),
            query_labels: self.query_labels.clone().narrow(0, tasks.start, tasks.len()),
        }
    }

    /// Gathers the images of `episodes` and scales them on the device.
    ///
    /// # Panics
    /// When an episode does not have the size that `protocol` says, or names an example that
    /// `dataset` does not have.
    pub fn gather(
        dataset: &(impl ClassDataset + ?Sized),
        episodes: &[Episode],
        protocol: Protocol,
        device: &B::Device,
    ) -> Self {
        check_sizes(episodes, protocol);
        let part = |part, per_class| {
            let shown: Vec<_> = episodes.iter().flat_map(|episode| episode.shown(part)).collect();
            let images = images::<B>(dataset, &shown, device);
            let [_, c, h, w] = images.dims();
            images.reshape([episodes.len(), protocol.ways * per_class, c, h, w])
        };
        let support = part(Part::Support, protocol.shots);
        let queries = part(Part::Query, protocol.queries);
        let label = |examples| labels(episodes.len(), protocol.ways, examples, device);
        Self {
            support: Support {
                images: support,
                labels: label(protocol.shots),
                ways: protocol.ways,
            },
            queries,
            query_labels: label(protocol.queries),
        }
    }
}

fn check_sizes(episodes: &[Episode], protocol: Protocol) {
    let Protocol { ways, shots, queries } = protocol;
    for (index, episode) in episodes.iter().enumerate() {
        let mut draws = episode.classes.iter();
        let fits = draws.all(|draw| draw.support.len() == shots && draw.query.len() == queries);
        assert!(fits && episode.classes.len() == ways, "episode {index} is not {protocol}");
    }
}

/// The images that are shown, `[n, c, h, w]`, scaled on the device.
pub(crate) fn images<B: Backend>(
    dataset: &(impl ClassDataset + ?Sized),
    shown: &[Shown],
    device: &B::Device,
) -> Tensor<B, 4> {
    let shape = dataset.image_shape();
    let mut pixels = vec![0; shown.len() * shape.values()];
    for (shown, out) in shown.iter().zip(pixels.chunks_exact_mut(shape.values())) {
        dataset.write_image(shown.class, shown.example, shown.turn, out);
    }
    let dims = [shown.len(), shape.channels, shape.height, shape.width];
    scale(upload(pixels, dims, device), dataset.scaling())
}

/// Bytes as floats; they travel as bytes where the device can hold bytes.
fn upload<B: Backend>(pixels: Vec<u8>, dims: [usize; 4], device: &B::Device) -> Tensor<B, 4> {
    if B::supports_dtype(device, DType::U8) {
        let bytes = TensorData::new(pixels, dims);
        return Tensor::<B, 4, Int>::from_data(bytes, (device, DType::U8)).float();
    }
    let floats: Vec<f32> = pixels.into_iter().map(f32::from).collect();
    Tensor::from_data(TensorData::new(floats, dims), device)
}

/// `(x / 255 - mean) / std`, by channel.
fn scale<B: Backend>(x: Tensor<B, 4>, scaling: &Scaling) -> Tensor<B, 4> {
    let device = x.device();
    let channels = scaling.mean.len();
    let per_channel = |values: Vec<f32>| {
        Tensor::<B, 1>::from_floats(values.as_slice(), &device).reshape([1, channels, 1, 1])
    };
    let gains = scaling.std.iter().map(|std| 1.0 / (255.0 * std)).collect::<Vec<_>>();
    let shifts = scaling.mean.iter().zip(&scaling.std).map(|(mean, std)| -mean / std);
    let shifts = shifts.collect::<Vec<_>>();
    let shifted = shifts.iter().any(|&shift| shift != 0.0);
    // A number is far cheaper than a tensor that has to be broadcast.
    let x = match gains.iter().all(|gain| *gain == gains[0]) {
        true => x * gains[0],
        false => x * per_channel(gains),
    };
    if shifted { x + per_channel(shifts) } else { x }
}

/// Those of examples in the order of their classes, `[t, ways * per_class]`.
pub(crate) fn labels<B: Backend>(
    tasks: usize,
    ways: usize,
    per_class: usize,
    device: &B::Device,
) -> Tensor<B, 2, Int> {
    let one = (0..ways).flat_map(|label| std::iter::repeat_n(label as i32, per_class));
    let all: Vec<i32> = one.cycle().take(tasks * ways * per_class).collect();
    Tensor::from_data(TensorData::new(all, [tasks, ways * per_class]), device)
}
