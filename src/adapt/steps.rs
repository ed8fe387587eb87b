//! Steps on lists of tensors, whatever module they are the parameters of.

use burn::backend::Autodiff;
use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

use super::clip::clip_norm;
use super::{InnerLoop, InnerRates, Order, filled, lifted};

/// The gradient of the support loss by tensor, at an inner step and given values; `None` where
/// there is none.
pub(crate) type Slope<'a, B> = dyn Fn(usize, &[Tensor<B, 1>]) -> Vec<Option<Tensor<B, 1>>> + 'a;

/// Fast weights, and what the rule remembers of the steps to them.
#[derive(Clone, Debug)]
pub(crate) struct Fast<B: Backend> {
    pub(crate) values: Vec<Tensor<B, 1>>,
    /// By tensor; empty for one that has not moved.
    pub(crate) memory: Vec<Vec<Tensor<B, 1>>>,
}

impl<B: Backend> Fast<B> {
    pub(crate) fn start(values: Vec<Tensor<B, 1>>) -> Self {
        let memory = vec![Vec::new(); values.len()];
        Self { values, memory }
    }

    /// The same with every tensor through `change`.
    pub(crate) fn map(&self, change: impl Fn(Tensor<B, 1>) -> Tensor<B, 1>) -> Self {
        let all = |tensors: &Vec<Tensor<B, 1>>| tensors.iter().cloned().map(&change).collect();
        Self { values: all(&self.values), memory: self.memory.iter().map(all).collect() }
    }

    /// All tensors: the values, then what is remembered.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor<B, 1>> {
        self.values.iter().chain(self.memory.iter().flatten())
    }
}

/// An inner loop over the parameters of `lanes` tasks.
pub(crate) struct InnerSteps<'a, B: Backend> {
    pub(crate) inner: &'a InnerLoop,
    pub(crate) moves: &'a [bool],
    pub(crate) slope: &'a Slope<'a, B>,
    pub(crate) lanes: usize,
}

impl<B: Backend> InnerSteps<'_, B> {
    /// All steps.
    pub(crate) fn run(&self, start: Vec<Tensor<B, 1>>, rates: &InnerRates<B>) -> Fast<B> {
        let start = Fast::start(rates.placed(0, start, self.lanes));
        (0..self.inner.steps).fold(start, |fast, step| self.advance(step, fast, rates))
    }

    /// One step.
    pub(crate) fn advance(&self, step: usize, fast: Fast<B>, rates: &InnerRates<B>) -> Fast<B> {
        let Fast { values, mut memory } = fast;
        let mut values = rates.placed(step, values, self.lanes);
        let mut gradients = (self.slope)(step, &values);
        if self.inner.order == Order::First {
            gradients =
                gradients.into_iter().map(|gradient| gradient.map(Tensor::detach)).collect();
        }
        if let Some(limit) = self.inner.clip_norm {
            gradients = clip_norm(gradients, self.lanes, limit);
        }
        let mut moved = 0;
        for (index, gradient) in gradients.into_iter().enumerate() {
            if !self.moves[index] {
                continue;
            }
            if let Some(gradient) = gradient {
                let (direction, remembered) =
                    self.inner.rule.direction(step, gradient, &memory[index]);
                let change = rates.apply(self.inner.rate, (moved, step), self.lanes, direction);
                values[index] = values[index].clone() - change;
                memory[index] = remembered;
            }
            moved += 1;
        }
        Fast { values, memory }
    }
}

/// The slope of `loss` for a module one level of autodiff up, of which `template` is a copy with
/// any values: on the graph of the values.
pub(crate) fn lifted_slope<'a, B: Backend, M: Module<Autodiff<B>>>(
    template: &'a M,
    lanes: usize,
    moves: &'a [bool],
    loss: &'a dyn Fn(usize, &M) -> Tensor<Autodiff<B>, 1>,
) -> impl Fn(usize, &[Tensor<B, 1>]) -> Vec<Option<Tensor<B, 1>>> + 'a {
    move |step, values| {
        let values = values.iter().cloned().map(lifted::<B, 1>).collect();
        gradients::<Autodiff<B>, M>(template, lanes, moves, |module| loss(step, module), values)
    }
}

/// The slope of `loss` for a module on the values' own backend, of which `template` is a copy: a
/// constant. It asks for one derivative alone, so it serves every layer.
pub(crate) fn flat_slope<'a, B: AutodiffBackend, M: Module<B>>(
    template: &'a M,
    lanes: usize,
    moves: &'a [bool],
    loss: &'a dyn Fn(usize, &M) -> Tensor<B, 1>,
) -> impl Fn(usize, &[Tensor<B, 1>]) -> Vec<Option<Tensor<B, 1>>> + 'a {
    move |step, values| {
        let values = values.iter().cloned().map(Tensor::detach).collect();
        let found = gradients::<B, M>(template, lanes, moves, |module| loss(step, module), values);
        found.into_iter().map(|gradient| gradient.map(Tensor::from_inner)).collect()
    }
}

/// The gradient of `loss` by the values that move.
fn gradients<B: AutodiffBackend, M: Module<B>>(
    template: &M,
    lanes: usize,
    moves: &[bool],
    loss: impl Fn(&M) -> Tensor<B, 1>,
    values: Vec<Tensor<B, 1>>,
) -> Vec<Option<Tensor<B::InnerBackend, 1>>> {
    let track = |(value, moves): (Tensor<B, 1>, &bool)| match moves {
        true => value.require_grad(),
        false => value,
    };
    let leaves: Vec<_> = values.into_iter().zip(moves).map(track).collect();
    let module = filled::<B, M>(template.clone(), &leaves, lanes);
    let mut found = loss(&module).backward();
    let gradient = |(leaf, moves): (&Tensor<B, 1>, &bool)| {
        moves.then(|| leaf.grad_remove(&mut found)).flatten()
    };
    leaves.iter().zip(moves).map(gradient).collect()
}
