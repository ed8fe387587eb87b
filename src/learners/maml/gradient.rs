//! The outer gradient.

use std::cell::RefCell;
use std::ops::Range;

use burn::module::{AutodiffModule, Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Tensor, TensorData};
use fewshot_kernels::TaskLossOptions;
use fewshot_models::BnStatistics;

use super::body::Body;
use super::worker_pools::{on_device, on_host, parallel_reduce, worker_count};
use super::{Batch, Head, InnerBatches, Maml, Outer, lifted_examples};
use crate::adapt::{
    AdaptError, FastWeights, GradientFn, InnerSteps, Lifted, MetaGradient, Order, OuterLoss,
    SecondOrder, differentiating_twice, filled, flat_gradient_fn, leaves, lift, lifted_gradient_fn,
    outer_gradient, register, scaled_all, stacked, sum, summed_all, tiled, tiled_all, values,
};
use crate::episode::{Examples, TaskKind};
use crate::learners::{AdaptableNetwork, Divergence, MetaGradients, MetaLearner};
use crate::precision::{LossScale, ScaledGrads};

impl<B, N> MetaLearner<B, N::Kind> for Maml<B, N>
where
    B: AutodiffBackend,
    N: AdaptableNetwork<B>
        + AutodiffModule<B, InnerModule: AdaptableNetwork<B::InnerBackend, Kind = N::Kind>>,
{
    fn draws(&self) -> bool {
        self.network.draws()
    }

    fn meta_gradients(&self, batch: &Batch<B, N>, scale: LossScale) -> MetaGradients<B> {
        let support = N::Kind::support(batch);
        self.expect_size(N::Kind::outputs(support));
        let tasks = N::Kind::tasks(support);
        let groups: Vec<_> = self.groups(tasks).collect();
        let share = 1.0 / tasks as f64;
        // Random numbers come in the order of the tasks.
        let workers = if self.network.draws() { 1 } else { worker_count::<B>(groups.len()) };
        let learner = || if workers > 1 { self.on_graphs_of_its_own() } else { self.clone() };
        let groups = groups.into_iter().map(|group| (learner(), group));
        let gradient = |(learner, group): (Self, Range<usize>)| {
            learner.group_gradient(batch, &group, share, scale)
        };
        let total = parallel_reduce(workers, groups.collect(), gradient, GroupGradient::plus);
        let total = total.expect("a batch has at least one task");
        let mut gradients = GradientsParams::new();
        register::<B, _>(&mut gradients, &self.network, total.start);
        self.rates.update_moments(&total.rates, share, self.settings.inner.steps);
        register::<B, _>(&mut gradients, &self.rates, total.rates);
        let loss = match scale {
            LossScale::ONE => total.loss,
            scale => total.loss / f64::from(scale.value()),
        };
        let gradients = ScaledGrads::new(gradients, scale);
        MetaGradients { loss, score: total.score, gradients }
    }

    fn at_step(&mut self, step: u64) {
        self.settings.meta_steps = step;
    }

    fn check(&self, batch: &Batch<B, N>) -> Result<(), AdaptError> {
        let support = N::Kind::support(batch);
        self.check_size(N::Kind::outputs(support))?;
        let [_, queries, outputs] = N::Kind::queries_of(batch, 0..1).targets.dims();
        if queries == 0 {
            return Err(AdaptError::NoQueries);
        }
        self.check_size(outputs)?;
        if self.settings.inner.order == Order::First {
            return Ok(());
        }
        let support = lifted_examples(self.padded(N::Kind::support_of(support, 0..1)));
        let template: Lifted<B, N> = lift(&self.network);
        let loss = |_: usize, network: &Lifted<B, N>| {
            Body::PerTask.inner_loss(network, &support, BnStatistics::Batch)
        };
        let precision = self.network.precision();
        let gradient_fn = lifted_gradient_fn(&template, &self.settings.adapted, precision, &loss);
        let values = values::<B, _>(&self.network);
        let curved = || {
            let gradients = gradient_fn(0, &values).into_iter().flatten();
            let squares = gradients.map(|gradient| (gradient.clone() * gradient).sum());
            squares.reduce(|sum, square| sum + square).map(|sum| sum.backward())
        };
        differentiating_twice::<B, _, _>(&self.network, curved).map(drop)
    }

    fn divergence(&self, batch: &Batch<B, N>) -> Option<Divergence> {
        let mut groups = self.groups(N::Kind::tasks(N::Kind::support(batch)));
        groups.find_map(|group| self.group_divergence(batch, &group))
    }
}

type Plain<B> = Tensor<<B as AutodiffBackend>::InnerBackend, 1>;

/// The part of a group of tasks in the means over all tasks.
struct GroupGradient<B: AutodiffBackend> {
    /// Scaled, as the gradients are.
    loss: Plain<B>,
    /// Score of the tasks, `[1]`.
    score: Plain<B>,
    start: Vec<Option<Plain<B>>>,
    rates: Vec<Option<Plain<B>>>,
}

impl<B: AutodiffBackend> GroupGradient<B> {
    fn plus(self, other: Self) -> Self {
        let both = |one: Vec<Option<Plain<B>>>, other: Vec<Option<Plain<B>>>| {
            let pairs = one.into_iter().zip(other);
            pairs.map(|(one, other)| one.zip(other).map(|(one, other)| one + other)).collect()
        };
        Self {
            loss: self.loss + other.loss,
            score: self.score + other.score,
            start: both(self.start, other.start),
            rates: both(self.rates, other.rates),
        }
    }
}

impl<B: AutodiffBackend, N: AdaptableNetwork<B>> Maml<B, N> {
    /// The same learner, whose parameters are leaves that nobody else has.
    fn on_graphs_of_its_own(&self) -> Self {
        self.clone().map(&mut OwnLeaves)
    }

    fn group_gradient(
        &self,
        batch: &Batch<B, N>,
        group: &Range<usize>,
        share: f64,
        scale: LossScale,
    ) -> GroupGradient<B> {
        let (lanes, inner, adapted) =
            (group.len(), self.settings.inner_now(), &*self.settings.adapted);
        let precision = self.network.precision();
        let step_weights = self.settings.step_weights_now();
        let (statistics, shared) = (BnStatistics::Batch, self.shares_body());
        let support = self.padded(N::Kind::support_of(N::Kind::support(batch), group.clone()));
        let queries = self.padded(N::Kind::queries_of(batch, group.clone()));
        let learned_from = self.learned_from(support.clone(), batch, group);
        let factor = share * f64::from(scale.value());
        let last = RefCell::new(None);
        let outer = |step: usize, values: &[Tensor<B, 1>]| {
            let weight = step.checked_sub(1).map_or(0.0, |index| step_weights[index]);
            let at_end = step == inner.steps;
            if weight == 0.0 && !at_end {
                return None;
            }
            let adapted = filled::<B, _>(self.network.clone(), values);
            let outputs = Body::new(shared).forward(&adapted, queries.inputs.clone(), statistics);
            if at_end {
                last.replace(Some(outputs.clone().inner()));
            }
            let options = TaskLossOptions { factor: weight * factor, ..Default::default() };
            Some(N::Kind::loss_with(outputs, queries.targets.clone(), options))
        };
        let learned = self.constants(lanes);
        let start = self.start(learned.clone(), &support, statistics);
        let body = Body::new(shared);
        let flat =
            |step: usize, network: &N| body.inner_loss(network, &learned_from.at(step), statistics);
        let flat = flat_gradient_fn(&self.network, adapted, precision, &flat);
        let MetaGradient { loss, start, rates } = if inner.order == Order::First {
            self.solve(&flat, &flat, start, lanes, (&outer, factor))
        } else {
            let template: Lifted<B, N> = lift(&self.network);
            let support = lifted_examples(support.clone());
            let body = Body::new(shared);
            let lifted =
                |_: usize, network: &Lifted<B, N>| body.inner_loss(network, &support, statistics);
            let lifted = lifted_gradient_fn(&template, adapted, precision, &lifted);
            self.solve(&lifted, &flat, start, lanes, (&outer, factor))
        };
        let outputs = last.into_inner().expect("the outer loss was asked for");
        let score = N::Kind::scaled_score(outputs, queries.targets.inner(), share);
        let start = self.backprop_head(learned, start, &support);
        let start = self.summed(start, lanes).into_iter();
        let leaves_rest = self.settings.outer == Outer::GradientOfTheRest;
        let start = start
            .zip(adapted)
            .map(|(gradient, adapted)| gradient.filter(|_| !(leaves_rest && *adapted)));
        GroupGradient { loss, score, start: start.collect(), rates }
    }

    /// The learned values as constants of a network of so many tasks.
    fn constants(&self, tasks: usize) -> Vec<Tensor<B, 1>> {
        let learned = values::<B, _>(&self.network);
        let device = learned.first().map(Tensor::device).unwrap_or_default();
        let plain = on_device::<B>() && !B::InnerBackend::ad_enabled(&device);
        if plain && tasks > 1 && !self.shares_body() {
            let learned = learned.into_iter().map(Tensor::inner).collect();
            return tiled_all(learned, tasks).into_iter().map(Tensor::from_inner).collect();
        }
        let each = learned.into_iter().zip(self.lanes_by_tensor(tasks));
        each.map(|(value, lanes)| copies(value, lanes)).collect()
    }

    /// The gradients of a network of so many tasks, summed over the lanes of each tensor.
    fn summed(&self, mut grads: Vec<Option<Plain<B>>>, tasks: usize) -> Vec<Option<Plain<B>>> {
        let pairs = grads.iter_mut().zip(self.lanes_by_tensor(tasks));
        let once: Vec<_> = pairs.map(|(grads, lanes)| grads.take_if(|_| lanes == 1)).collect();
        let summed = summed_all(grads, tasks);
        once.into_iter().zip(summed).map(|(once, summed)| once.or(summed)).collect()
    }

    /// Examples that the inner loop learns tasks from.
    fn learned_from(
        &self,
        support: Examples<B>,
        batch: &Batch<B, N>,
        group: &Range<usize>,
    ) -> InnerBatches<B> {
        let examples = match self.settings.outer {
            Outer::Displacement => {
                let queries = self.padded(N::Kind::queries_of(batch, group.clone()));
                Examples {
                    inputs: Tensor::cat(vec![support.inputs, queries.inputs], 1),
                    targets: Tensor::cat(vec![support.targets, queries.targets], 1),
                }
            }
            _ => support,
        };
        InnerBatches::new(examples, self.settings.batch[0], self.settings.meta_steps)
    }

    /// The gradient by the learned values, from the gradient by the initial values of the inner loop.
    fn backprop_head(
        &self,
        learned: Vec<Tensor<B, 1>>,
        mut grads: Vec<Option<Plain<B>>>,
        support: &Examples<B>,
    ) -> Vec<Option<Plain<B>>> {
        let Head::Prototypes(head) = self.settings.head else { return grads };
        let learned = leaves(&learned);
        let start = self.start(learned.clone(), support, BnStatistics::Batch);
        let products = head.into_iter().filter_map(|index| {
            let cotangent = Tensor::from_inner(grads[index].take()?);
            Some((start[index].clone() * cotangent).sum())
        });
        if let Some(product) = products.reduce(|sum, product| sum + product) {
            let mut back = product.backward();
            for (grads, learned) in grads.iter_mut().zip(&learned) {
                *grads = sum(grads.take(), learned.grad_remove(&mut back));
            }
        }
        grads
    }

    fn group_divergence(&self, batch: &Batch<B, N>, group: &Range<usize>) -> Option<Divergence> {
        let (lanes, inner, adapted) = (group.len(), &self.settings.inner, &*self.settings.adapted);
        let support = self.padded(N::Kind::support_of(N::Kind::support(batch), group.clone()));
        let learned_from = self.learned_from(support.clone(), batch, group);
        let loss = |step: usize, network: &N| {
            Body::PerTask.inner_loss(network, &learned_from.at(step), BnStatistics::Batch)
        };
        let precision = self.network.precision();
        let gradient_fn = flat_gradient_fn(&self.network, adapted, precision, &loss);
        let start = stacked(&values::<B, _>(&self.network), lanes);
        let start = start.into_iter().map(|value| Tensor::from_inner(value.inner())).collect();
        let start = self.start(start, &support, BnStatistics::Batch);
        let gradient_fn = self.with_proximal_term(&gradient_fn, &start, lanes);
        let steps = InnerSteps { inner, adapted, gradient_fn: &*gradient_fn, lanes };
        let queries = self.padded(N::Kind::queries_of(batch, group.clone()));
        // Where the loss is not finite before the first step, no step is to blame.
        let finite_at_start = self.first_non_finite_task(&start, &queries, lanes).is_none();
        let mut fast = FastWeights::start(start.clone());
        for step in 0..inner.steps {
            fast = steps.advance(step, fast, &self.rates).map(Tensor::detach);
            let by_loss = finite_at_start
                .then(|| self.first_non_finite_task(&fast.values, &queries, lanes))
                .flatten();
            let by_values = fast.values.iter().filter_map(|values| not_finite(values, lanes));
            if let Some(lane) = by_values.chain(by_loss).min() {
                return Some(Divergence { task: group.start + lane, step: step + 1 });
            }
        }
        None
    }

    /// The first task whose outer loss with these values is not finite.
    fn first_non_finite_task(
        &self,
        values: &[Tensor<B, 1>],
        queries: &Examples<B>,
        lanes: usize,
    ) -> Option<usize> {
        let adapted = filled::<B, _>(self.network.clone(), values);
        let outputs = Body::PerTask.forward(&adapted, queries.inputs.clone(), BnStatistics::Batch);
        (0..lanes).find(|&lane| {
            let one = |all: &Tensor<B, 3>| all.clone().narrow(0, lane, 1);
            not_finite(&N::Kind::loss(one(&outputs), one(&queries.targets)), 1).is_some()
        })
    }

    /// The gradient of the outer loss, which is scaled, by `gradient_fn`, on the graph of its values, and
    /// `flat`, the same as constants.
    fn solve(
        &self,
        gradient_fn: &GradientFn<'_, B>,
        flat: &GradientFn<'_, B>,
        start: Vec<Tensor<B, 1>>,
        lanes: usize,
        (outer, factor): (&OuterLoss<'_, B>, f64),
    ) -> MetaGradient<B> {
        let (inner, adapted) = (&self.settings.inner_now(), &*self.settings.adapted);
        let constants = || start.iter().cloned().map(Tensor::detach).collect::<Vec<_>>();
        match self.settings.outer {
            Outer::Gradient | Outer::GradientOfTheRest => {
                let steps = InnerSteps { inner, adapted, gradient_fn, lanes };
                // What a shared body makes of the support is on the graph of all steps.
                let shared = self.shares_body();
                let route = if shared { SecondOrder::Unrolled } else { self.settings.route };
                outer_gradient(route, &steps, start, &self.rates, outer)
            }
            Outer::Implicit(proximal) => {
                let start = constants();
                let pulled = self.with_proximal_term(flat, &start, lanes);
                let steps = InnerSteps { inner, adapted, gradient_fn: &*pulled, lanes };
                let end = steps.run(start.clone(), &self.rates).values;
                let end = proximal.after_steps(end, &start, inner.rate);
                proximal.gradient(gradient_fn, (&end, adapted), lanes, outer, inner.steps)
            }
            Outer::Displacement => {
                let start = constants();
                let steps = InnerSteps { inner, adapted, gradient_fn: flat, lanes };
                let end = steps.run(start.clone(), &self.rates);
                let rates = self.rates.summed_moments(&end, adapted, lanes);
                let loss = outer(inner.steps, &end.values).expect("an outer loss at the end");
                let start = displacement(start, end.values, adapted, factor);
                MetaGradient { loss: loss.inner(), start, rates }
            }
        }
    }
}

/// A constant for each of `lanes` tasks, `[n]` to `[lanes * n]`.
fn copies<B: AutodiffBackend>(value: Tensor<B, 1>, lanes: usize) -> Tensor<B, 1> {
    let value = value.inner();
    let (device, length) = (value.device(), lanes * value.dims()[0]);
    let floats = on_host::<B>() && value.dtype() == DType::F32;
    if lanes == 1 || !floats || B::InnerBackend::ad_enabled(&device) {
        return Tensor::from_inner(tiled(value, lanes));
    }
    // Flex goes through an expanded tensor float by float.
    let data = value.into_data();
    let once = data.as_slice::<f32>().expect("floats of this type");
    Tensor::from_data(TensorData::new(once.repeat(lanes), [length]), (&device, DType::F32))
}

struct OwnLeaves;

impl<B: Backend> ModuleMapper<B> for OwnLeaves {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| {
            let tracked = tensor.is_require_grad();
            tensor.detach().set_require_grad(tracked)
        })
    }
}

/// `factor` times the way from where the inner loop went to back to where it began, in place of a
/// gradient.
fn displacement<B: AutodiffBackend>(
    start: Vec<Tensor<B, 1>>,
    end: Vec<Tensor<B, 1>>,
    adapted: &[bool],
    factor: f64,
) -> Vec<Option<Plain<B>>> {
    let pairs = start.into_iter().zip(end).zip(adapted);
    let back = pairs.map(|((start, end), adapted)| adapted.then(|| (start - end).inner()));
    scaled_all(back.collect(), factor)
}

/// The first task with a value that is not finite.
fn not_finite<B: AutodiffBackend>(values: &Tensor<B, 1>, lanes: usize) -> Option<usize> {
    let values: Vec<f32> = values.to_data().convert::<f32>().into_vec().expect("just converted");
    let lane = values.len() / lanes;
    values.iter().position(|value| !value.is_finite()).map(|index| index / lane)
}
