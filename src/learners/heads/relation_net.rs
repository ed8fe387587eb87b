use burn::config::Config;
use burn::module::{Module, Param};
use burn::tensor::activation::{relu, sigmoid};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor};
use fewshot_kernels::{conv2d, linear, product};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::checked::fits_map;
use super::head::no_logits;
use super::relation_block::{NormMoments, RelationBlock};
use super::{EmbeddedSupport, FittedHead, Head, one_hot};

/// Map of a class in a [`RelationNet`], made of the maps of its examples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassMap {
    /// Their sum, as in the paper.
    #[default]
    Sum,
    /// Their mean, as in easyfsl.
    Mean,
}

/// Pools that shrink the maps of a [`RelationNet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelationPools {
    /// The largest of every 2x2 window after each convolution, as in the paper; maps of a single
    /// row or column are left as they are.
    #[default]
    Halving,
    /// The largest of so many windows that a map of any size becomes 5x5, and then 1x1, with a
    /// second convolution without padding, as in easyfsl.
    Adaptive,
}

/// Moments that a [`RelationNet`] normalises with in a test. In training it takes the moments of each
/// task, and running averages move towards them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RelationStatistics {
    /// Running averages gathered in training.
    #[default]
    Running,
    /// The moments of all pairs of each task, as in the authors' code: its queries inform each
    /// other, which makes a test transductive.
    Task,
}

/// Configuration of a [`RelationNet`].
#[derive(Config, Debug)]
pub struct RelationNetConfig {
    /// Channels, height and width of an embedding's map.
    pub map: [usize; 3],
    /// Channels of the two convolutions, 64 in the paper.
    #[config(default = 64)]
    pub channels: usize,
    /// Features between the two linear layers, 8 in the paper.
    #[config(default = 8)]
    pub hidden: usize,
    /// Zeros around maps: 1 in the authors' code for Omniglot, and 0 for miniImageNet.
    #[config(default = 1)]
    pub padding: usize,
    /// Map of a class.
    #[config(default = "ClassMap::Sum")]
    pub class_map: ClassMap,
    /// Pools that shrink maps.
    #[config(default = "RelationPools::Halving")]
    pub pools: RelationPools,
    /// Moments that a test normalises with.
    #[config(default = "RelationStatistics::Running")]
    pub statistics: RelationStatistics,
    /// Share of the new batch in a running average; 1 in the authors' code and in easyfsl.
    #[config(default = 0.1)]
    pub momentum: f64,
}

impl RelationNetConfig {
    /// The network, with weights drawn as in the authors' code.
    ///
    /// # Panics
    /// When a size is zero, the momentum is not between 0 and 1, or maps are too small for
    /// convolutions without padding.
    pub fn init<B: Backend>(&self, device: &B::Device) -> RelationNet<B> {
        let Self { map, channels, hidden, momentum, .. } = *self;
        let sizes = [map[0], map[1], map[2], channels, hidden];
        assert!(!sizes.contains(&0), "no size of a relation network can be zero, found {sizes:?}");
        let fits = (0.0..=1.0).contains(&momentum);
        assert!(fits, "the momentum of running averages is from 0 to 1, found {momentum}");
        let kernel = |inputs| {
            let normal = Distribution::Normal(0.0, (2.0 / (9 * channels) as f64).sqrt());
            Param::from_tensor(Tensor::random([channels, inputs, 3, 3], normal, device))
        };
        let matrix = |[inputs, outputs]: [usize; 2]| {
            let normal = Distribution::Normal(0.0, 0.01);
            Param::from_tensor(Tensor::random([inputs, outputs], normal, device))
        };
        RelationNet {
            conv1_class: kernel(map[0]),
            conv1_query: kernel(map[0]),
            first: RelationBlock::new(channels, momentum, device),
            conv2: kernel(channels),
            second: RelationBlock::new(channels, momentum, device),
            fc1: matrix([channels * self.last_places(), hidden]),
            fc1_bias: Param::from_tensor(Tensor::ones([hidden], device)),
            fc2: matrix([hidden, 1]),
            fc2_bias: Param::from_tensor(Tensor::ones([1], device)),
            config: self.clone(),
        }
    }

    /// Places of the maps that the linear layers get.
    fn last_places(&self) -> usize {
        if self.pools == RelationPools::Adaptive {
            return 1;
        }
        let [_, height, width] = self.map;
        let sides = (0..2).fold([height, width], |sides, _| {
            let shrunk = sides.map(|side| (side + 2 * self.padding).saturating_sub(2));
            let (map, padding) = (self.map, self.padding);
            assert!(!shrunk.contains(&0), "maps {map:?} are too small for padding {padding}");
            if shrunk.contains(&1) { shrunk } else { shrunk.map(|side| side / 2) }
        });
        sides[0] * sides[1]
    }
}

/// Relation network: a convolutional network that scores how well the map of a query matches that
/// of a class.
///
/// `r_k(q) = sigmoid(FC(relu(FC(B(B([s_k, f(q)]))))))`, with `s_k` the sum of the maps of class
/// `k`, to which that of the query is concatenated along the channels, and `B` a 3x3 convolution,
/// batch-norm, ReLU and a 2x2 max-pool. Logits are these scores, from 0 to 1, and the loss is their
/// mean squared distance to 1 for the right class and 0 for others.
///
/// # Shapes
/// Embeddings are maps `[c, h, w]`, flattened in this order.
///
/// # Conventions
/// Sums, 64 channels and 2x2 pools as in the paper. easyfsl takes [means](ClassMap::Mean),
/// [other pools](RelationPools::Adaptive) and as many channels as the maps have. A test normalises
/// with running averages, so that each query is judged by itself; the authors' code has
/// [moments of the task](RelationStatistics::Task).
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::{Distribution, Tensor}};
/// # use fewshot::learners::heads::{EmbeddedSupport, Head, RelationNetConfig};
/// # let device = Default::default();
/// let maps = Tensor::<Flex, 3>::random([1, 2, 4 * 5 * 5], Distribution::Default, &device);
/// let support = EmbeddedSupport::new(maps.clone(), Tensor::from_data([[0, 1]], &device), 2);
/// let head = RelationNetConfig::new([4, 5, 5]).init(&device);
/// assert_eq!(head.fit(support).logits(maps).dims(), [1, 2, 2]);
/// ```
///
/// # Source
/// Sung, Yang, Zhang, Xiang, Torr and Hospedales, "Learning to Compare: Relation Network for
/// Few-Shot Learning", CVPR 2018.
#[derive(Module, Debug)]
pub struct RelationNet<B: Backend> {
    /// The part of the first convolution that is applied to class maps, `[o, c, 3, 3]`: the first
    /// half of the input channels in PyTorch's weight.
    pub conv1_class: Param<Tensor<B, 4>>,
    /// The part of the first convolution that is applied to query maps, `[o, c, 3, 3]`: the second
    /// half.
    pub conv1_query: Param<Tensor<B, 4>>,
    /// Layers after the first convolution.
    pub first: RelationBlock<B>,
    /// The second convolution, `[o, o, 3, 3]`.
    pub conv2: Param<Tensor<B, 4>>,
    /// Layers after the second convolution.
    pub second: RelationBlock<B>,
    /// The first linear layer, `[i, 8]`: the transpose of PyTorch's, as is the second.
    pub fc1: Param<Tensor<B, 2>>,
    /// Its bias, `[8]`.
    pub fc1_bias: Param<Tensor<B, 1>>,
    /// The second linear layer, `[8, 1]`.
    pub fc2: Param<Tensor<B, 2>>,
    /// Its bias, `[1]`.
    pub fc2_bias: Param<Tensor<B, 1>>,
    #[module(skip)]
    config: RelationNetConfig,
}

impl<B: Backend> RelationNet<B> {
    /// Maps of the classes, flattened, `[t, ways, c * h * w]`.
    fn class_maps(&self, support: EmbeddedSupport<B>) -> Tensor<B, 3> {
        match self.config.class_map {
            ClassMap::Sum => product(support.one_hot().swap_dims(1, 2), support.embeddings),
            ClassMap::Mean => support.prototypes(),
        }
    }

    /// The share of flattened `maps` `[t, n, c * h * w]` in the first convolution.
    fn convolved(
        &self,
        maps: Tensor<B, 3>,
        weight: &Param<Tensor<B, 4>>,
        bias: Option<Tensor<B, 1>>,
    ) -> Tensor<B, 5> {
        let [tasks, examples, found] = maps.dims();
        let [channels, height, width] = self.config.map;
        fits_map(found, self.config.map);
        let maps = maps.reshape([tasks * examples, channels, height, width]);
        let padding = match self.config.pools {
            RelationPools::Halving => self.config.padding,
            RelationPools::Adaptive => 1,
        };
        by_task(conv2d(maps, weight.val(), bias, 1, padding), tasks)
    }

    /// Scores `[t, q, ways]` from what classes `[t, ways, o, h, w]` and queries `[t, q, o, h, w]`
    /// have in the first convolution.
    fn scores(
        &self,
        classes: Tensor<B, 5>,
        queries: Tensor<B, 5>,
        moments: NormMoments,
    ) -> Tensor<B, 3> {
        let ([tasks, ways, ..], [_, asked, channels, height, width]) =
            (classes.dims(), queries.dims());
        let values = channels * height * width;
        // The convolution of maps side by side is the sum of those of the maps.
        let pairs =
            queries.reshape([tasks, asked, 1, values]) + classes.reshape([tasks, 1, ways, values]);
        let pairs = pairs.reshape([tasks, asked * ways, channels, height, width]);
        let ([first, second], padding) = match self.config.pools {
            RelationPools::Halving => ([None; 2], self.config.padding),
            RelationPools::Adaptive => ([Some(5), Some(1)], 0),
        };
        let maps = pooled(&self.first, pairs, first, moments);
        let bias = Some(self.second.bias.val());
        let maps = conv2d(maps.flatten(0, 1), self.conv2.val(), bias, 1, padding);
        let maps = pooled(&self.second, by_task(maps, tasks), second, moments);
        let flat = maps.flatten::<4>(0, 1).flatten(1, 3);
        let hidden = linear(flat, self.fc1.val(), Some(self.fc1_bias.val()));
        let scores = linear(relu(hidden), self.fc2.val(), Some(self.fc2_bias.val()));
        sigmoid(scores).reshape([tasks, asked, ways])
    }
}

impl<B: Backend> Head<B> for RelationNet<B> {
    const NAME: &'static str = "relation";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        let (head, ways) = (self.clone(), support.ways);
        let moments = match self.config.statistics {
            RelationStatistics::Running => NormMoments::Running,
            RelationStatistics::Task => NormMoments::Task,
        };
        let classes = self.convolved(self.class_maps(support), &self.conv1_class, None);
        FittedHead::new(ways, move |queries| {
            let bias = Some(head.first.bias.val());
            let queries = head.convolved(queries, &head.conv1_query, bias);
            head.scores(classes.clone(), queries, moments)
        })
    }

    fn train_logits(&self, support: EmbeddedSupport<B>, queries: Tensor<B, 3>) -> Tensor<B, 3> {
        if let Some(none) = no_logits(&queries, support.ways) {
            return none;
        }
        let classes = self.convolved(self.class_maps(support), &self.conv1_class, None);
        let queries = self.convolved(queries, &self.conv1_query, Some(self.first.bias.val()));
        self.scores(classes, queries, NormMoments::TaskTracked)
    }

    /// The mean squared distance of scores to 1 for the right class and 0 for others.
    fn loss(&self, logits: Tensor<B, 3>, labels: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        let ways = logits.dims()[2];
        (logits - one_hot(labels, ways)).square().mean()
    }

    fn transductive(&self) -> bool {
        self.config.statistics == RelationStatistics::Task
    }

    fn settings(&self) -> Value {
        json!(self.config)
    }
}

/// `maps` after a block, pooled to so many rows and columns, or else halved.
fn pooled<B: Backend>(
    block: &RelationBlock<B>,
    maps: Tensor<B, 5>,
    side: Option<usize>,
    moments: NormMoments,
) -> Tensor<B, 5> {
    let [tasks, _, _, height, width] = maps.dims();
    let Some(side) = side else {
        return block.rectified(maps, moments, height > 1 && width > 1);
    };
    let maps = block.rectified(maps, moments, false).flatten::<4>(0, 1);
    by_task(largest(largest(maps, 2, side), 3, side), tasks)
}

/// `[t * m, ..]` to `[t, m, ..]`.
fn by_task<B: Backend>(maps: Tensor<B, 4>, tasks: usize) -> Tensor<B, 5> {
    let [examples, channels, height, width] = maps.dims();
    maps.reshape([tasks, examples / tasks.max(1), channels, height, width])
}

/// The largest of each of `count` windows along `dim`, that cover it as those of PyTorch's
/// `AdaptiveMaxPool2d`.
fn largest<B: Backend>(maps: Tensor<B, 4>, dim: usize, count: usize) -> Tensor<B, 4> {
    let side = maps.dims()[dim];
    if side == count {
        return maps;
    }
    let windows = (0..count).map(|at| {
        let (start, end) = (at * side / count, ((at + 1) * side).div_ceil(count));
        maps.clone().narrow(dim, start, end - start).max_dim(dim)
    });
    Tensor::cat(windows.collect(), dim)
}
