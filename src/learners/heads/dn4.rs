use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use fewshot_kernels::product;
use serde::Serialize;
use serde_json::{Value, json};

use super::checked::fits_map;
use super::nearest::largest;
use super::unit_length::unit_length;
use super::{EmbeddedSupport, FittedHead, Head, LogitFormula, NoFormula};

/// Every place of a query's map looks for its nearest neighbours among all places of all maps of a
/// class.
///
/// `logit_k(q) = sum_i sum_{x in N_k(q_i)} cos(q_i, x)`, with `q_i` the channels at place `i` of
/// the query's map and `N_k(q_i)` the three nearest, by cosine, among those of the maps of class
/// `k`.
///
/// # Shapes
/// Embeddings are maps `[c, h, w]`, flattened in this order.
///
/// # Conventions
/// Where a class has fewer places than the number of neighbours, the mean cosine over all its
/// places stands in for each missing one; the authors' code fails there.
///
/// Takes memory for the cosines of all places of all queries with all places of all support images.
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::{Distribution, Tensor}};
/// # use fewshot::learners::heads::{Dn4, EmbeddedSupport, Head};
/// # let device = Default::default();
/// let maps = Tensor::<Flex, 3>::random([1, 2, 8 * 5 * 5], Distribution::Default, &device);
/// let support = EmbeddedSupport::new(maps.clone(), Tensor::from_data([[0, 1]], &device), 2);
/// let logits = Dn4::new([8, 5, 5]).fit(support).logits(maps);
/// assert_eq!(logits.dims(), [1, 2, 2]);
/// ```
///
/// # Source
/// Li, Wang, Xu, Huo, Gao and Luo, "Revisiting Local Descriptor Based Image-to-Class Measure for
/// Few-Shot Learning", CVPR 2019.
#[derive(Module, Clone, Debug, Serialize)]
pub struct Dn4 {
    /// Shape `[c, h, w]` of the maps.
    #[module(skip)]
    pub map: [usize; 3],
    /// Neighbours of each place, at least 1.
    pub neighbours: usize,
}

impl Dn4 {
    /// The paper's head, with three neighbours, on maps `[c, h, w]`.
    ///
    /// # Panics
    /// When such a map is empty.
    pub fn new(map: [usize; 3]) -> Self {
        assert!(!map.contains(&0), "DN4 needs maps with pixels, found {map:?}");
        Self { map, neighbours: 3 }
    }

    fn places(&self) -> usize {
        self.map[1] * self.map[2]
    }

    /// Flattened maps `[t, n, c * h * w]` as `[t, n, c, h * w]`, of length one at each place.
    fn descriptors<B: Backend>(&self, maps: Tensor<B, 3>) -> Tensor<B, 4> {
        let [tasks, examples, found] = maps.dims();
        fits_map(found, self.map);
        unit_length(maps.reshape([tasks, examples, self.map[0], self.places()]), 2)
    }
}

impl<B: Backend> Head<B> for Dn4 {
    const NAME: &'static str = "dn4";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        assert!(self.neighbours > 0, "DN4 needs a neighbour at least");
        let (slots, neighbours) = (Slots::new(&support, self.places()), self.neighbours);
        let descriptors = slots.sorted(self.descriptors(support.embeddings));
        let [tasks, ..] = descriptors.dims();
        let (head, ways, per_class) = (self.clone(), slots.ways, slots.count * slots.places);
        // How often each neighbour counts.
        let nearest = neighbours.min(per_class);
        let weights = slots.constant(&descriptors, nearest, |nth, there| {
            let there = neighbours.min(there);
            if nth < there { neighbours as f32 / there as f32 } else { 0.0 }
        });
        // Takes the cosines of empty slots below all others.
        let vacant = slots.uneven().then(|| {
            let below = |at, there| if at < there { 0.0 } else { BELOW_COSINES };
            slots.constant(&descriptors, per_class, below)
        });
        FittedHead::new(ways, move |queries| {
            let (asked, places) = (queries.dims()[1], head.places());
            let asking = head.descriptors(queries).swap_dims(2, 3);
            let asking = asking.reshape([tasks, asked * places, head.map[0]]);
            let cosines = product(asking, descriptors.clone());
            let cosines = cosines.reshape([tasks, asked * places, ways, per_class]);
            let cosines = match &vacant {
                Some(vacant) => cosines + vacant.clone(),
                None => cosines,
            };
            // Burn's top-k cannot be differentiated twice.
            let chosen = largest(cosines.clone().detach(), nearest);
            let near = cosines.gather(3, chosen) * weights.clone();
            let near = near.sum_dim(3).reshape([tasks, asked, places, ways]);
            near.sum_dim(2).reshape([tasks, asked, ways])
        })
    }

    fn formula(&self, _: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        Err(NoFormula("it adds up the nearest neighbours of a query in each class"))
    }

    fn settings(&self) -> Value {
        json!(self)
    }
}

/// The examples of each class in as many slots as the largest class has examples.
struct Slots {
    ways: usize,
    /// Slots of a class.
    count: usize,
    /// Places of a slot.
    places: usize,
    /// Examples by task and class.
    examples: Vec<Vec<i64>>,
}

impl Slots {
    fn new<B: Backend>(support: &EmbeddedSupport<B>, places: usize) -> Self {
        let ([tasks, shown], ways) = (support.labels.dims(), support.ways);
        let mut examples = vec![Vec::new(); tasks * ways];
        let labels = support.labels.to_data().convert::<i64>();
        for (at, label) in labels.iter::<i64>().enumerate() {
            let known = usize::try_from(label).is_ok_and(|label| label < ways);
            assert!(known, "a label {label} in a support of {ways} classes");
            examples[at / shown * ways + label as usize].push((at % shown) as i64);
        }
        let count = examples.iter().map(Vec::len).max().unwrap_or(0);
        Self { ways, count, places, examples }
    }

    /// Descriptors `[t, n, c, places]` by class, as `[t, c, ways * slots * places]`.
    fn sorted<B: Backend>(&self, descriptors: Tensor<B, 4>) -> Tensor<B, 3> {
        let [tasks, _, channels, places] = descriptors.dims();
        let rows = self.ways * self.count;
        let padded = |class: &Vec<i64>| {
            let missing = std::iter::repeat_n(0, self.count - class.len());
            class.iter().copied().chain(missing).collect::<Vec<_>>()
        };
        let data: Vec<i64> = self.examples.iter().flat_map(padded).collect();
        let data = TensorData::new(data, [tasks, rows, 1, 1]);
        let index = Tensor::<B, 4, Int>::from_data(data, &descriptors.device());
        let sorted = descriptors.gather(1, index.expand([tasks, rows, channels, places]));
        sorted.swap_dims(1, 2).reshape([tasks, channels, rows * places])
    }

    fn uneven(&self) -> bool {
        self.examples.iter().any(|class| class.len() < self.count)
    }

    /// Values by `value` of the first `count` places of each class, given how many it has, `[t, 1, ways,
    /// count]`, on the device of `like`.
    fn constant<B: Backend>(
        &self,
        like: &Tensor<B, 3>,
        count: usize,
        value: impl Fn(usize, usize) -> f32,
    ) -> Tensor<B, 4> {
        let of_class = |class: &Vec<i64>| {
            let there = class.len() * self.places;
            (0..count).map(|at| value(at, there)).collect::<Vec<_>>()
        };
        let data: Vec<f32> = self.examples.iter().flat_map(of_class).collect();
        let shape = [self.examples.len() / self.ways, 1, self.ways, count];
        Tensor::from_data(TensorData::new(data, shape), &like.device())
    }
}

/// Addend that makes a cosine less than any other.
const BELOW_COSINES: f32 = -4.0;
