use burn::module::Module;
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use fewshot_kernels::product;
use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem, SolveOutcome};
use rayon::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use super::checked::{fits_map, positive};
use super::unit_length::unit_length;
use super::{EmbeddedSupport, FittedHead, Head, LogitFormula, NoFormula};

/// Least weight of a place.
const LEAST_WEIGHT: f64 = 1e-3;

/// DeepEMD: the earth mover's distance between the places of a query's map and those of a class's map.
///
/// `logit_k(q) = temperature / n * sum_ij cos(q_i, p_j) x_ij` over the `n` places of both maps, with the
/// flow `x` that has the largest such sum among all with `sum_j x_ij = a_i` and `sum_i x_ij = b_j`. A place
/// weighs `a_i = max(q_i . mean_j p_j, 0) + 0.001`, and `b_j` likewise; both are scaled to add up to `n`.
/// For cosines, the mean over channels is taken off each place.
///
/// # Shapes
/// Embeddings are maps `[c, h, w]`, flattened in this order.
///
/// # Conventions
/// The authors' temperature of 12.5. The map of a class is the mean of its support's. For several shots
/// the paper then fine-tunes this map by gradient descent.
///
/// A flow is the solution of a linear programme for each query and class, on the host: about a
/// millisecond of a processor core at 5 x 5 places. Gradients flow through cosines alone, as with the
/// authors' faster solver. Where an input of the programme is not finite, or the solver gives up, logits
/// are NaN.
///
/// # Example
/// ```
/// # use burn::{backend::Flex, tensor::{Distribution, Tensor}};
/// # use fewshot::learners::heads::{DeepEmd, EmbeddedSupport, Head};
/// # let device = Default::default();
/// let maps = Tensor::<Flex, 3>::random([1, 2, 8 * 3 * 3], Distribution::Default, &device);
/// let support = EmbeddedSupport::new(maps.clone(), Tensor::from_data([[0, 1]], &device), 2);
/// let logits = DeepEmd::new([8, 3, 3]).fit(support).logits(maps);
/// assert_eq!(logits.dims(), [1, 2, 2]);
/// ```
///
/// # Source
/// Zhang, Cai, Lin and Shen, "DeepEMD: Few-Shot Image Classification with Differentiable Earth Mover's
/// Distance and Structured Classifiers", CVPR 2020.
#[derive(Module, Clone, Debug, Serialize)]
pub struct DeepEmd {
    /// Shape `[c, h, w]` of the maps.
    #[module(skip)]
    pub map: [usize; 3],
    /// Factor of the distances, above 0.
    pub temperature: f64,
}

impl DeepEmd {
    /// The paper's head on maps `[c, h, w]`.
    ///
    /// # Panics
    /// When such a map is empty, or has one channel, of which nothing is left without its mean.
    pub fn new(map: [usize; 3]) -> Self {
        let fits = !map.contains(&0) && map[0] > 1;
        assert!(fits, "DeepEMD needs maps with pixels and several channels, found {map:?}");
        Self { map, temperature: 12.5 }
    }

    fn places(&self) -> usize {
        self.map[1] * self.map[2]
    }

    fn maps<B: Backend>(&self, maps: Tensor<B, 3>) -> Maps<B> {
        let [tasks, count, found] = maps.dims();
        fits_map(found, self.map);
        let (channels, places) = (self.map[0], self.places());
        let maps = maps.reshape([tasks, count, channels, places]);
        let means = maps.clone().mean_dim(3).squeeze_dim(3);
        let rows = maps.swap_dims(2, 3).reshape([tasks, count * places, channels]);
        let units = unit_length(rows.clone() - rows.clone().mean_dim(2), 2);
        Maps { rows, means, units }
    }
}

/// Several maps of each task.
struct Maps<B: Backend> {
    /// Places one after the other, `[t, m * n, c]`.
    rows: Tensor<B, 3>,
    /// Over the places of each map, `[t, m, c]`.
    means: Tensor<B, 3>,
    /// Places without their mean, of length 1, `[t, m * n, c]`.
    units: Tensor<B, 3>,
}

impl<B: Backend> Maps<B> {
    /// Products of all places with the mean of each of `other`'s maps, or 0, `[t, m * n, other's m]`.
    fn weights(&self, other: &Self) -> Tensor<B, 3> {
        let means = other.means.clone().detach().swap_dims(1, 2);
        relu(product(self.rows.clone().detach(), means))
    }
}

impl<B: Backend> Head<B> for DeepEmd {
    const NAME: &'static str = "deep-emd";

    fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
        positive("the temperature", self.temperature);
        let (head, ways) = (self.clone(), support.ways);
        let classes = self.maps(support.prototypes());
        FittedHead::new(ways, move |queries| {
            let [tasks, asked, _] = queries.dims();
            let (queries, places) = (head.maps(queries), head.places());
            let cosines = product(queries.units.clone(), classes.units.clone().swap_dims(1, 2));
            // Side by side of each query and class: [t, q, ways, n, n], and [t, q, ways, n].
            let of_pairs = [tasks, asked, places, ways, places];
            let gains = cosines.clone().detach().reshape(of_pairs).swap_dims(2, 3);
            let supply = queries.weights(&classes).reshape([tasks, asked, places, ways]);
            let demand = classes.weights(&queries).reshape([tasks, ways, places, asked]);
            let flows = flows(gains, supply.swap_dims(2, 3), demand.permute([0, 3, 1, 2]));
            let flows = flows.swap_dims(2, 3).reshape([tasks, asked * places, ways * places]);
            let moved = (cosines * flows).reshape(of_pairs);
            let sums = moved.sum_dim(4).sum_dim(2).reshape([tasks, asked, ways]);
            sums * (head.temperature / places as f64)
        })
    }

    fn formula(&self, _: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
        Err(NoFormula("it solves a linear programme for each query and class"))
    }

    fn settings(&self) -> Value {
        json!(self)
    }
}

/// The flows `[t, q, ways, n, n]` from the places of each query to those of each class, by their cosines
/// of this shape and the weights `[t, q, ways, n]` of their places.
fn flows<B: Backend>(
    gains: Tensor<B, 5>,
    supply: Tensor<B, 4>,
    demand: Tensor<B, 4>,
) -> Tensor<B, 5> {
    let (dims, options) = (gains.dims(), (&gains.device(), gains.dtype()));
    let places = dims[4];
    let gains: Vec<f64> = gains.into_data().iter().collect();
    let [supply, demand] = [supply, demand].map(|weights| {
        let weights = weights.into_data();
        weights.iter::<f64>().map(|weight| weight + LEAST_WEIGHT).collect::<Vec<_>>()
    });
    let scaled = |weights: &[f64]| {
        let factor = places as f64 / weights.iter().sum::<f64>();
        weights.iter().map(|weight| weight * factor).collect::<Vec<_>>()
    };
    let weights = supply.par_chunks(places).zip(demand.par_chunks(places));
    let pairs = gains.par_chunks(places * places).zip(weights);
    let flows = pairs.flat_map_iter(|(gains, (supply, demand))| {
        transport(gains, &scaled(supply), &scaled(demand))
    });
    let flows: Vec<_> = flows.map(|flow| flow as f32).collect();
    Tensor::from_data(TensorData::new(flows, dims), options)
}

/// The flow `[n, n]` with the largest sum of `gains * flow` among those whose rows add up to `supply` and
/// whose columns to `demand`; both have the same sum. NaN where there is no such flow.
fn transport(gains: &[f64], supply: &[f64], demand: &[f64]) -> Vec<f64> {
    let places = supply.len();
    let none = || vec![f64::NAN; gains.len()];
    if !gains.iter().chain(supply).chain(demand).all(|value| value.is_finite()) {
        return none();
    }
    let mut programme = Problem::new(OptimizationDirection::Maximize);
    let flow: Vec<_> =
        gains.iter().map(|gain| programme.add_var(*gain, (0.0, f64::INFINITY))).collect();
    let mut constrain = |members: &mut dyn Iterator<Item = usize>, sum: f64| {
        let mut side = LinearExpr::empty();
        members.for_each(|at| side.add(flow[at], 1.0));
        programme.add_constraint(side, ComparisonOp::Eq, sum);
    };
    for (row, sum) in supply.iter().enumerate() {
        constrain(&mut (row * places..(row + 1) * places), *sum);
    }
    // The last column takes what is left.
    for (column, sum) in demand[..places - 1].iter().enumerate() {
        constrain(&mut (column..gains.len()).step_by(places), *sum);
    }
    match programme.solve() {
        Ok(SolveOutcome::Solution(solution)) => flow.iter().map(|at| solution[*at]).collect(),
        _ => none(),
    }
}
