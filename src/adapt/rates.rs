use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};
use serde::{Deserialize, Serialize};

use super::curvature::{apply_modes, identity, modes};
use super::lists::{Gradients, axpy_all};
use super::norms::StepNorms;
use super::parameters::tiled;
use super::rule::Prior;
use super::second_moments::SecondMoments;
use super::{AdaptError, FastWeights, InnerLoop, slots, values};

/// Tensors that are meta-learned for an inner loop besides its initial parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateKind {
    /// Nothing: the inner loop's own rate.
    #[default]
    Fixed,
    /// A rate for each adapted tensor and each step.
    ///
    /// # Source
    /// Antoniou, Edwards and Storkey, "How to train your MAML", ICLR 2019.
    PerStep,
    /// The rates of [`PerStep`](Self::PerStep), and, by the same paper, for each step gains and shifts of the
    /// normalisation layers: tensors called `gamma` and `beta`, which then do not move in the inner loop.
    PerStepWithNorms,
    /// A rate for each adapted value, the same at every step.
    ///
    /// # Source
    /// Li, Zhou, Chen and Li, "Meta-SGD: Learning to Learn Quickly for Few-Shot Learning", 2017.
    PerValue,
    /// A matrix for each mode of each adapted tensor, which its direction goes through before
    /// the inner loop's own rate, the same at every step.
    ///
    /// # Source
    /// Park and Oliva, "Meta-Curvature", NeurIPS 2019.
    Curvature,
}

/// The meta-learned values of an inner loop besides its initial parameters.
#[derive(Module, Debug)]
pub struct InnerRates<B: Backend> {
    /// By adapted tensor, in the order of the module: `[steps]`, `[values]`, or a matrix
    /// `[size * size]` for each mode.
    rates: Vec<Param<Tensor<B, 1>>>,
    norms: Option<StepNorms<B>>,
    moments: Option<SecondMoments<B>>,
    #[module(skip)]
    kind: RateKind,
    /// The sizes of the modes of each adapted tensor.
    #[module(skip)]
    modes: Vec<Vec<usize>>,
}

impl<B: Backend> InnerRates<B> {
    /// None.
    pub fn fixed() -> Self {
        let kind = RateKind::Fixed;
        Self { rates: Vec::new(), norms: None, moments: None, kind, modes: Vec::new() }
    }

    /// Rates of `module`, which all begin where the inner loop is the same without them, and which
    /// of its tensors move.
    pub(crate) fn new<M: Module<B>>(
        kind: RateKind,
        inner: &InnerLoop,
        module: &M,
    ) -> Result<(Self, Vec<bool>), AdaptError> {
        let (mut slots, values) = (slots::<B, M>(module), values::<B, M>(module));
        let norms = (kind == RateKind::PerStepWithNorms)
            .then(|| StepNorms::new(&slots, &values, inner.steps));
        for (index, slot) in slots.iter_mut().enumerate() {
            slot.free &= !norms.as_ref().is_some_and(|norms| norms.slots.contains(&index));
        }
        let adapted = inner.mask.select(&slots)?;
        let moving: Vec<_> = (0..slots.len()).filter(|&index| adapted[index]).collect();
        let modes: Vec<_> = moving.iter().map(|&index| modes(&slots[index].shape)).collect();
        let begin = |(&index, modes): (&usize, &Vec<usize>)| -> Vec<Tensor<B, 1>> {
            let device = values[index].device();
            let full = |length: usize| vec![Tensor::full([length], inner.rate, &device)];
            match kind {
                RateKind::Fixed => Vec::new(),
                RateKind::PerStep | RateKind::PerStepWithNorms => full(inner.steps),
                RateKind::PerValue => full(values[index].dims()[0]),
                RateKind::Curvature => modes.iter().map(|&size| identity(size, &device)).collect(),
            }
        };
        let rates = moving.iter().zip(&modes).flat_map(begin).map(Param::from_tensor).collect();
        Ok((Self { rates, norms, moments: None, kind, modes }, adapted))
    }

    /// With second moments of the rule, if it has any, that go on from one inner loop to the next.
    pub(crate) fn with_lasting_moments<M: Module<B>>(
        self,
        inner: &InnerLoop,
        module: &M,
        adapted: &[bool],
    ) -> Self {
        let values = values::<B, M>(module);
        let Some(device) = values.first().map(Tensor::device) else { return self };
        let moving = values.iter().zip(adapted).filter(|(_, adapted)| **adapted);
        let lengths = moving.map(|(value, _)| value.dims()[0]).collect();
        Self { moments: SecondMoments::new(inner.rule, lengths, &device), ..self }
    }

    pub(crate) fn has_lasting_moments(&self) -> bool {
        self.moments.is_some()
    }

    /// The second moments that the adapted tensors begin with in each of `lanes` tasks, if they last.
    pub(super) fn priors(&self, lanes: usize) -> Option<Arc<[Prior<B>]>> {
        self.moments.as_ref().map(|moments| moments.priors(lanes))
    }

    /// Kind of the learned rates.
    pub fn kind(&self) -> RateKind {
        self.kind
    }

    /// All that is learned: by adapted tensor its rates, `[steps]` or `[values]`, or its
    /// matrices, `[size * size]` row after row; then by gain or shift its values step after step,
    /// `[steps * c]`.
    pub fn tensors(&self) -> Vec<Tensor<B, 1>> {
        let rows = self.norms.iter().flat_map(|norms| &norms.rows);
        self.rates.iter().chain(rows).map(Param::val).collect()
    }

    /// The same with other values, on the graph they are on.
    pub(crate) fn with(&self, values: &[Tensor<B, 1>]) -> Self {
        super::filled::<B, Self>(self.clone(), values)
    }

    /// `values` of `lanes` tasks with what is not theirs at this step in its place.
    pub(super) fn placed(
        &self,
        step: usize,
        values: Vec<Tensor<B, 1>>,
        lanes: usize,
    ) -> Vec<Tensor<B, 1>> {
        match &self.norms {
            Some(norms) => norms.placed(step, values, lanes),
            None => values,
        }
    }

    /// Tensors after this step: value less direction times rate, in their order. A loop
    /// longer than the learned rates goes on with the last ones.
    pub(super) fn apply(
        &self,
        fixed: f64,
        step: usize,
        lanes: usize,
        updates: Vec<TensorUpdate<B>>,
    ) -> Vec<Tensor<B, 1>> {
        let updates = match self.kind {
            RateKind::Fixed => updates,
            RateKind::PerStep | RateKind::PerStepWithNorms | RateKind::PerValue => {
                let moved = |TensorUpdate { number, value, direction }| {
                    let rates = self.rates[number].val();
                    let rates = match self.kind {
                        RateKind::PerValue => tiled(rates, lanes),
                        _ => rates.clone().narrow(0, step.min(rates.dims()[0] - 1), 1),
                    };
                    value - direction * rates
                };
                return updates.into_iter().map(moved).collect();
            }
            RateKind::Curvature => {
                let curve = |mut update: TensorUpdate<B>| {
                    let matrices = self.matrices(update.number);
                    let modes = &self.modes[update.number];
                    update.direction = apply_modes(update.direction, &matrices, modes, lanes);
                    update
                };
                updates.into_iter().map(curve).collect()
            }
        };
        let pairs = updates.into_iter().map(|update| (update.value, update.direction));
        let (values, directions) = pairs.unzip();
        axpy_all(values, -fixed, directions)
    }

    /// The matrices of the adapted tensor with this number.
    fn matrices(&self, number: usize) -> Vec<Tensor<B, 1>> {
        let first = self.modes[..number].iter().map(Vec::len).sum();
        self.rates.iter().skip(first).take(self.modes[number].len()).map(Param::val).collect()
    }
}

impl<B: AutodiffBackend> InnerRates<B> {
    /// For second moments that last, what an inner loop of `lanes` tasks remembers of them, summed over
    /// the tasks.
    pub(crate) fn summed_moments(
        &self,
        fast: &FastWeights<B>,
        adapted: &[bool],
        lanes: usize,
    ) -> Gradients<B::InnerBackend> {
        self.moments.iter().map(|moments| Some(moments.summed(fast, adapted, lanes))).collect()
    }

    /// Second moments that last go on by inner loops of so many steps, which remember `share` of
    /// `summed` in the mean.
    pub(crate) fn update_moments(
        &self,
        summed: &[Option<Tensor<B::InnerBackend, 1>>],
        share: f64,
        steps: usize,
    ) {
        if let (Some(moments), [Some(summed)]) = (&self.moments, summed) {
            moments.update(Tensor::from_inner(summed.clone() * share), steps);
        }
    }
}

pub(super) struct TensorUpdate<B: Backend> {
    /// Its number among the adapted tensors.
    pub(super) number: usize,
    pub(super) value: Tensor<B, 1>,
    pub(super) direction: Tensor<B, 1>,
}
