//! The outer gradient.

use std::cell::RefCell;
use std::ops::Range;

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use fewshot_models::{BnStatistics, Classifier};

use super::{AdaptableEncoder, Head, Labelled, Maml};
use crate::adapt::{
    AdaptError, Fast, InnerSteps, Lifted, MetaGradient, Order, OuterLoss, SecondOrder, Slope,
    chain, differentiating_twice, filled, flat_slope, leaves, lift, lifted_slope, register,
    stacked, sum, summed, unrolled, values,
};
use crate::episode::EpisodeBatch;
use crate::learners::{Divergence, MetaGradients, MetaLearner};

impl<B, E> MetaLearner<B> for Maml<B, E>
where
    B: AutodiffBackend,
    E: AdaptableEncoder<B> + AutodiffModule<B, InnerModule: AdaptableEncoder<B::InnerBackend>>,
{
    fn meta_gradients(&self, batch: &EpisodeBatch<B>) -> MetaGradients<B> {
        self.expect_ways(batch.ways());
        let groups: Vec<_> = self.groups(batch.tasks()).collect();
        let found = groups.iter().map(|group| self.group_gradient(batch, group));
        let total = found.reduce(GroupGradient::plus).expect("a batch has at least one task");
        let share = 1.0 / batch.tasks() as f64;
        let mut gradients = GradientsParams::new();
        register::<B, _>(&mut gradients, &self.classifier, total.start, share);
        register::<B, _>(&mut gradients, &self.rates, total.rates, share);
        MetaGradients { loss: total.loss * share, accuracy: total.correct * share, gradients }
    }

    fn at_step(&mut self, step: u64) {
        self.settings.meta_steps = step;
    }

    fn check(&self, batch: &EpisodeBatch<B>) -> Result<(), AdaptError> {
        self.check_ways(batch.ways())?;
        if self.settings.inner.order == Order::First {
            return Ok(());
        }
        let support = Labelled::of_support(&batch.support, &(0..1)).lifted();
        let template: Lifted<B, Classifier<B, E>> = lift(&self.classifier);
        let loss = |classifier: &Lifted<B, Classifier<B, E>>| {
            support.loss(classifier, BnStatistics::Batch).1
        };
        let slope = lifted_slope(&template, 1, &self.settings.moves, &loss);
        let values = values::<B, _>(&self.classifier);
        let curved = || {
            let gradients = slope(&values).into_iter().flatten();
            let squares = gradients.map(|gradient| (gradient.clone() * gradient).sum());
            squares.reduce(|sum, square| sum + square).map(|sum| sum.backward())
        };
        differentiating_twice::<B, _, _>(&self.classifier, curved).map(drop)
    }

    fn divergence(&self, batch: &EpisodeBatch<B>) -> Option<Divergence> {
        self.groups(batch.tasks()).find_map(|group| self.group_divergence(batch, &group))
    }
}

type Plain<B> = Tensor<<B as AutodiffBackend>::InnerBackend, 1>;

/// Sums over a group of tasks.
struct GroupGradient<B: AutodiffBackend> {
    loss: Plain<B>,
    /// Of the shares of queries classified rightly, `[1]`.
    correct: Plain<B>,
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
            correct: self.correct + other.correct,
            start: both(self.start, other.start),
            rates: both(self.rates, other.rates),
        }
    }
}

impl<B, E> Maml<B, E>
where
    B: AutodiffBackend,
    E: AdaptableEncoder<B>,
{
    fn group_gradient(&self, batch: &EpisodeBatch<B>, group: &Range<usize>) -> GroupGradient<B> {
        let (lanes, inner, moves) = (group.len(), self.settings.inner_now(), &*self.settings.moves);
        let step_weights = self.settings.step_weights_now();
        let statistics = BnStatistics::Batch;
        let support = Labelled::of_support(&batch.support, group);
        let queries = Labelled::of_queries(batch, group);
        let last = RefCell::new(None);
        let outer = |step: usize, values: &[Tensor<B, 1>]| {
            let weight = step.checked_sub(1).map_or(0.0, |index| step_weights[index]);
            let at_end = step == inner.steps;
            if weight == 0.0 && !at_end {
                return None;
            }
            let adapted = filled::<B, _>(self.classifier.clone(), values, lanes);
            let (logits, loss) = queries.loss(&adapted, statistics);
            if at_end {
                last.replace(Some(logits.detach()));
            }
            Some(if weight == 1.0 { loss } else { loss * weight })
        };
        let learned = stacked(&values::<B, _>(&self.classifier), lanes);
        let constants: Vec<_> = learned.iter().cloned().map(Tensor::detach).collect();
        let start = self.start(constants, &support, statistics);
        let flat = |classifier: &Classifier<B, E>| support.loss(classifier, statistics).1;
        let flat = flat_slope(&self.classifier, lanes, moves, &flat);
        let MetaGradient { loss, start, rates } = if inner.order == Order::First {
            self.solve(&flat, &flat, start, lanes, &outer)
        } else {
            let template: Lifted<B, Classifier<B, E>> = lift(&self.classifier);
            let support = support.lifted();
            let lifted =
                |classifier: &Lifted<B, Classifier<B, E>>| support.loss(classifier, statistics).1;
            let lifted = lifted_slope(&template, lanes, moves, &lifted);
            self.solve(&lifted, &flat, start, lanes, &outer)
        };
        let logits = last.into_inner().expect("the outer loss was asked for");
        let correct = queries.accuracies(logits).inner().sum();
        let start = self.through_head(learned, start, &support);
        let start = start.into_iter().map(|gradient| gradient.map(|all| summed(all, lanes)));
        GroupGradient { loss, correct, start: start.collect(), rates }
    }

    /// The gradient by the learned values, from that by what the inner loop began with.
    fn through_head(
        &self,
        learned: Vec<Tensor<B, 1>>,
        mut found: Vec<Option<Plain<B>>>,
        support: &Labelled<B>,
    ) -> Vec<Option<Plain<B>>> {
        let Head::Prototypes(head) = self.settings.head else { return found };
        let learned = leaves(&learned);
        let start = self.start(learned.clone(), support, BnStatistics::Batch);
        let products = head.into_iter().filter_map(|index| {
            let cotangent = Tensor::from_inner(found[index].take()?);
            Some((start[index].clone() * cotangent).sum())
        });
        if let Some(product) = products.reduce(|sum, product| sum + product) {
            let mut back = product.backward();
            for (found, learned) in found.iter_mut().zip(&learned) {
                *found = sum(found.take(), learned.grad_remove(&mut back));
            }
        }
        found
    }

    fn group_divergence(
        &self,
        batch: &EpisodeBatch<B>,
        group: &Range<usize>,
    ) -> Option<Divergence> {
        let (lanes, inner, moves) = (group.len(), &self.settings.inner, &*self.settings.moves);
        let support = Labelled::of_support(&batch.support, group);
        let loss = |classifier: &Classifier<B, E>| support.loss(classifier, BnStatistics::Batch).1;
        let slope = flat_slope(&self.classifier, lanes, moves, &loss);
        let start = stacked(&values::<B, _>(&self.classifier), lanes);
        let start: Vec<_> = start.into_iter().map(Tensor::detach).collect();
        let start = self.start(start, &support, BnStatistics::Batch);
        let slope = self.pulled(&slope, &start);
        let steps = InnerSteps { inner, moves, slope: &*slope, lanes };
        let mut fast = Fast::start(start.clone());
        for step in 0..inner.steps {
            fast = steps.advance(step, fast, &self.rates).map(Tensor::detach);
            let lane = fast.values.iter().filter_map(|values| not_finite(values, lanes)).min();
            if let Some(lane) = lane {
                return Some(Divergence { task: group.start + lane, step: step + 1 });
            }
        }
        None
    }

    /// The outer gradient by `slope`, on the graph of its values, and `flat`, the same as constants.
    fn solve(
        &self,
        slope: &Slope<'_, B>,
        flat: &Slope<'_, B>,
        start: Vec<Tensor<B, 1>>,
        lanes: usize,
        outer: &OuterLoss<'_, B>,
    ) -> MetaGradient<B> {
        let (inner, moves) = (&self.settings.inner_now(), &*self.settings.moves);
        if let Some(proximal) = self.settings.proximal {
            let start: Vec<_> = start.into_iter().map(Tensor::detach).collect();
            let pulled = self.pulled(flat, &start);
            let steps = InnerSteps { inner, moves, slope: &*pulled, lanes };
            let fast = steps.run(start.clone(), &self.rates);
            return proximal.gradient(slope, (&fast.values, moves), lanes, outer, inner.steps);
        }
        let steps = InnerSteps { inner, moves, slope, lanes };
        match self.settings.route {
            SecondOrder::Chain => chain(&steps, start, &self.rates, outer),
            SecondOrder::Unrolled => unrolled(&steps, start, &self.rates, outer),
        }
    }
}

/// The first task with a value that is not finite.
fn not_finite<B: AutodiffBackend>(values: &Tensor<B, 1>, lanes: usize) -> Option<usize> {
    let values: Vec<f32> = values.to_data().convert::<f32>().into_vec().expect("just converted");
    let lane = values.len() / lanes;
    values.iter().position(|value| !value.is_finite()).map(|index| index / lane)
}
