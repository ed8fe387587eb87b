//! The gradient of an outer loss of fast weights by the values that the inner loop began with.

use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

use super::lists::{Gradients, seed_cotangents};
use super::{FastWeights, InnerRates, InnerSteps, Order, RateKind, SecondOrder};
use crate::phase::{Phase, phase_on};

/// A tensor without the level of autodiff that differentiates it.
type Plain<B> = Tensor<<B as AutodiffBackend>::InnerBackend, 1>;

#[derive(Debug)]
pub(crate) struct MetaGradient<B: AutodiffBackend> {
    pub(crate) loss: Plain<B>,
    /// By value at the start of the loop.
    pub(crate) start: Gradients<B::InnerBackend>,
    /// By learned rate; for second moments that last, what inner loops remember of them.
    pub(crate) rates: Gradients<B::InnerBackend>,
}

/// The outer loss after so many steps; `None` where it does not count.
pub(crate) type OuterLoss<'a, B> = dyn Fn(usize, &[Tensor<B, 1>]) -> Option<Tensor<B, 1>> + 'a;

/// The gradient of `loss`, by this route where inner gradients are differentiated.
pub(crate) fn outer_gradient<B: AutodiffBackend>(
    route: SecondOrder,
    steps: &InnerSteps<'_, B>,
    start: Vec<Tensor<B, 1>>,
    rates: &InnerRates<B>,
    loss: &OuterLoss<'_, B>,
) -> MetaGradient<B> {
    let outer = Outer { steps, rates, loss };
    if steps.inner.order == Order::First && rates.kind() == RateKind::Fixed {
        return outer.first_order(start);
    }
    match route {
        SecondOrder::Unrolled => outer.unrolled(start),
        SecondOrder::Chain => outer.chain(start),
    }
}

/// An inner loop to differentiate.
struct Outer<'a, B: AutodiffBackend> {
    steps: &'a InnerSteps<'a, B>,
    rates: &'a InnerRates<B>,
    loss: &'a OuterLoss<'a, B>,
}

impl<B: AutodiffBackend> Outer<'_, B> {
    /// By the graph of the whole loop.
    fn unrolled(&self, start: Vec<Tensor<B, 1>>) -> MetaGradient<B> {
        let &Self { steps, rates, loss } = self;
        let start = leaf(&FastWeights::start(start));
        let learned = leaves(&rates.tensors());
        let rates = rates.with(&learned);
        let mut total = loss(0, &start.values);
        let mut fast = start.clone();
        for step in 0..steps.inner.steps {
            fast = steps.advance(step, fast, &rates);
            total = sum(total, loss(step + 1, &fast.values));
        }
        let total = total.expect("an outer loss after some step");
        let mut grads = backward(&total);
        let mut gradients = |tensors: &[Tensor<B, 1>]| -> Vec<_> {
            tensors.iter().map(|tensor| tensor.grad_remove(&mut grads)).collect()
        };
        let (start, rates) = (gradients(&start.values), gradients(&learned));
        MetaGradient { loss: total.inner(), start, rates }
    }

    /// From the last step to the first: the cotangent of the fast weights after a step becomes that of
    /// those before it by the graph of this step alone, which is made again from them.
    ///
    /// For gradient descent at the rate `a` that is `v <- v - a H v` with the Hessian `H` of the support
    /// loss; the graph of the step gives it for every rule, for clipped gradients and for learned rates.
    fn chain(&self, start: Vec<Tensor<B, 1>>) -> MetaGradient<B> {
        let &Self { steps, rates, loss } = self;
        let learned: Vec<_> = rates.tensors().into_iter().map(Tensor::detach).collect();
        let constant = rates.with(&learned);
        let mut before = vec![FastWeights::start(start).map(Tensor::detach)];
        // The last step is made once, with its graph.
        for step in 1..steps.inner.steps {
            let fast = steps.advance(step - 1, before[step - 1].clone(), &constant);
            before.push(fast.map(Tensor::detach));
        }
        let mut back = OuterBackward::<B>::new(before[0].values.len(), learned.len());
        for step in (0..steps.inner.steps).rev() {
            let fast = before.pop().expect("the fast weights before each step");
            let device = fast.values[0].device();
            phase_on::<B, _>(Phase::Backward, &device, || back.through(self, step, &fast));
            if step == 0 {
                before.push(fast);
            }
        }
        back.at(0, &before[0].values, loss);
        back.into_gradient()
    }

    /// Where inner gradients are constants, a change of the start moves all fast weights alike.
    fn first_order(&self, start: Vec<Tensor<B, 1>>) -> MetaGradient<B> {
        let &Self { steps, rates, loss } = self;
        let mut back = OuterBackward::<B>::new(start.len(), 0);
        let mut fast = FastWeights::start(start).map(Tensor::detach);
        back.at(0, &fast.values, loss);
        for step in 0..steps.inner.steps {
            fast = steps.advance(step, fast, rates).map(Tensor::detach);
            back.at(step + 1, &fast.values, loss);
        }
        back.into_gradient()
    }
}

/// Gradients that have come back so far.
struct OuterBackward<B: AutodiffBackend> {
    loss: Option<Plain<B>>,
    values: Gradients<B::InnerBackend>,
    memory: Vec<Gradients<B::InnerBackend>>,
    rates: Gradients<B::InnerBackend>,
}

impl<B: AutodiffBackend> OuterBackward<B> {
    fn new(values: usize, rates: usize) -> Self {
        Self {
            loss: None,
            values: vec![None; values],
            memory: vec![Vec::new(); values],
            rates: vec![None; rates],
        }
    }

    /// Through one step from `fast`, with the outer loss behind it.
    fn through(&mut self, outer: &Outer<'_, B>, step: usize, fast: &FastWeights<B>) {
        let &Outer { steps, rates, loss } = outer;
        let fast = leaf(fast);
        let learned = leaves(&rates.tensors());
        let after = steps.advance(step, fast.clone(), &rates.with(&learned));
        let outer = loss(step + 1, &after.values);
        if let Some(outer) = &outer {
            self.loss = sum(self.loss.take(), Some(outer.clone().inner()));
        }
        let cotangents = self.values.iter().chain(self.memory.iter().flatten());
        let pairs = after.tensors().zip(cotangents).filter_map(|(tensor, cotangent)| {
            Some((tensor.clone(), Tensor::from_inner(cotangent.clone()?)))
        });
        let Some(total) = sum(outer, seed_cotangents(pairs)) else { return };
        let mut grads = total.backward();
        let mut take = |tensor: &Tensor<B, 1>| tensor.grad_remove(&mut grads);
        self.values = fast.values.iter().map(&mut take).collect();
        self.memory = fast.memory.iter().map(|all| all.iter().map(&mut take).collect()).collect();
        for (total, rate) in self.rates.iter_mut().zip(&learned) {
            *total = sum(total.take(), take(rate));
        }
    }

    /// Adds the outer loss of these values after `step` steps.
    fn at(&mut self, step: usize, values: &[Tensor<B, 1>], loss: &OuterLoss<'_, B>) {
        let values = leaves(values);
        let Some(outer) = loss(step, &values) else { return };
        let mut grads = backward(&outer);
        self.loss = sum(self.loss.take(), Some(outer.inner()));
        for (total, value) in self.values.iter_mut().zip(&values) {
            *total = sum(total.take(), value.grad_remove(&mut grads));
        }
    }

    fn into_gradient(self) -> MetaGradient<B> {
        let loss = self.loss.expect("an outer loss after some step");
        MetaGradient { loss, start: self.values, rates: self.rates }
    }
}

fn backward<B: AutodiffBackend>(loss: &Tensor<B, 1>) -> B::Gradients {
    phase_on::<B, _>(Phase::Backward, &loss.device(), || loss.backward())
}

/// The same values as leaves of their graph.
pub(crate) fn leaves<B: AutodiffBackend>(tensors: &[Tensor<B, 1>]) -> Vec<Tensor<B, 1>> {
    tensors.iter().map(|tensor| tensor.clone().detach().require_grad()).collect()
}

fn leaf<B: AutodiffBackend>(fast: &FastWeights<B>) -> FastWeights<B> {
    fast.map(|tensor| tensor.detach().require_grad())
}

/// The sum of what there is.
pub(crate) fn sum<B: Backend>(
    total: Option<Tensor<B, 1>>,
    more: Option<Tensor<B, 1>>,
) -> Option<Tensor<B, 1>> {
    match (total, more) {
        (Some(total), Some(more)) => Some(total + more),
        (total, more) => total.or(more),
    }
}
