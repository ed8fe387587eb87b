//! The outer gradient.

use std::cell::RefCell;
use std::ops::Range;

use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn::tensor::backend::AutodiffBackend;
use fewshot_models::{BnStatistics, Classifier};

use super::{AdaptableEncoder, Labelled, Maml};
use crate::adapt::{
    InnerSteps, Lifted, MetaGradient, Order, SecondOrder, Slope, chain, filled, flat_slope, lift,
    lifted_slope, register, stacked, summed, unrolled, values,
};
use crate::episode::EpisodeBatch;
use crate::learners::{MetaGradients, MetaLearner};

impl<B, E> MetaLearner<B> for Maml<B, E>
where
    B: AutodiffBackend,
    E: AdaptableEncoder<B> + AutodiffModule<B, InnerModule: AdaptableEncoder<B::InnerBackend>>,
{
    fn meta_gradients(&self, batch: &EpisodeBatch<B>) -> MetaGradients<B> {
        self.check_ways(batch.ways());
        let groups: Vec<_> = self.groups(batch.tasks()).collect();
        let found = groups.iter().map(|group| self.group_gradient(batch, group));
        let total = found.reduce(GroupGradient::plus).expect("a batch has at least one task");
        let share = 1.0 / batch.tasks() as f64;
        let mut gradients = GradientsParams::new();
        register::<B, _>(&mut gradients, &self.classifier, total.start, share);
        register::<B, _>(&mut gradients, &self.rates, total.rates, share);
        MetaGradients { loss: total.loss * share, accuracy: total.correct * share, gradients }
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
        let (lanes, inner, moves) = (group.len(), &self.settings.inner, &*self.settings.moves);
        let statistics = BnStatistics::Batch;
        let support = Labelled::of_support(&batch.support, group);
        let queries = Labelled::of_queries(batch, group);
        let last = RefCell::new(None);
        let outer = |step: usize, values: &[Tensor<B, 1>]| {
            let weight = step.checked_sub(1).map_or(0.0, |index| self.settings.step_weights[index]);
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
        let start = stacked(&values::<B, _>(&self.classifier), lanes);
        let solve = |slope: &Slope<'_, B>| {
            let steps = InnerSteps { inner, moves, slope, lanes };
            match self.settings.route {
                SecondOrder::Chain => chain(&steps, start, &self.rates, &outer),
                SecondOrder::Unrolled => unrolled(&steps, start, &self.rates, &outer),
            }
        };
        let MetaGradient { loss, start, rates } = match inner.order {
            Order::First => {
                let loss = |classifier: &Classifier<B, E>| support.loss(classifier, statistics).1;
                solve(&flat_slope(&self.classifier, lanes, moves, &loss))
            }
            Order::Second => {
                let template: Lifted<B, Classifier<B, E>> = lift(&self.classifier);
                let support = support.lifted();
                let loss = |classifier: &Lifted<B, Classifier<B, E>>| {
                    support.loss(classifier, statistics).1
                };
                solve(&lifted_slope(&template, lanes, moves, &loss))
            }
        };
        let logits = last.into_inner().expect("the outer loss was asked for");
        let correct = queries.accuracies(logits).inner().sum();
        let start = start.into_iter().map(|gradient| gradient.map(|all| summed(all, lanes)));
        GroupGradient { loss, correct, start: start.collect(), rates }
    }
}
