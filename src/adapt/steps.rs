//! Steps on lists of tensors, whatever module they are the parameters of.

use std::sync::Arc;

use burn::backend::Autodiff;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::{AutodiffBackend, Backend};

use super::by_task::clip_norm;
use super::lists::{Gradients, fan_out, scaled_all};
use super::parameters::flat;
use super::rates::TensorUpdate;
use super::rule::Prior;
use super::{InnerLoop, InnerRates, Order, filled, lifted};
use crate::precision::Precision;

/// The gradient of the support loss at an inner step and given values.
pub(crate) type GradientFn<'a, B> = dyn Fn(usize, &[Tensor<B, 1>]) -> Gradients<B> + 'a;

/// Fast weights, and what the rule remembers of the steps to them.
#[derive(Clone, Debug)]
pub(crate) struct FastWeights<B: Backend> {
    pub(crate) values: Vec<Tensor<B, 1>>,
    /// By tensor; empty for one that has not moved.
    pub(crate) memory: Vec<Vec<Tensor<B, 1>>>,
    /// By adapted tensor what second moments began with, once a step was made; none, if they do not last.
    priors: Option<Arc<[Prior<B>]>>,
}

impl<B: Backend> FastWeights<B> {
    pub(crate) fn start(values: Vec<Tensor<B, 1>>) -> Self {
        let memory = vec![Vec::new(); values.len()];
        Self { values, memory, priors: None }
    }

    /// The same with every tensor through `change`.
    pub(crate) fn map(&self, change: impl Fn(Tensor<B, 1>) -> Tensor<B, 1>) -> Self {
        let all = |tensors: &Vec<Tensor<B, 1>>| tensors.iter().cloned().map(&change).collect();
        Self {
            values: all(&self.values),
            memory: self.memory.iter().map(all).collect(),
            priors: self.priors.clone(),
        }
    }

    /// All tensors: the values, then what is remembered.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor<B, 1>> {
        self.values.iter().chain(self.memory.iter().flatten())
    }
}

/// An inner loop over the parameters of `lanes` tasks.
pub(crate) struct InnerSteps<'a, B: Backend> {
    pub(crate) inner: &'a InnerLoop,
    pub(crate) adapted: &'a [bool],
    pub(crate) gradient_fn: &'a GradientFn<'a, B>,
    pub(crate) lanes: usize,
}

impl<B: Backend> InnerSteps<'_, B> {
    pub(crate) fn run(&self, start: Vec<Tensor<B, 1>>, rates: &InnerRates<B>) -> FastWeights<B> {
        let start = FastWeights::start(rates.placed(0, start, self.lanes));
        (0..self.inner.steps).fold(start, |fast, step| self.advance(step, fast, rates))
    }

    pub(crate) fn advance(
        &self,
        step: usize,
        fast: FastWeights<B>,
        rates: &InnerRates<B>,
    ) -> FastWeights<B> {
        let FastWeights { values, mut memory, priors } = fast;
        let priors = priors.or_else(|| rates.priors(self.lanes));
        let values = rates.placed(step, values, self.lanes);
        let [values, shown] = fan_out(values);
        let mut gradients = (self.gradient_fn)(step, &shown);
        drop(shown);
        if self.inner.order == Order::First {
            gradients =
                gradients.into_iter().map(|gradient| gradient.map(Tensor::detach)).collect();
        }
        if let Some(limit) = self.inner.clip_norm {
            gradients = clip_norm(gradients, self.lanes, limit);
        }
        // Taken out, so that what a value was may go as soon as it has moved.
        let mut values: Vec<_> = values.into_iter().map(Some).collect();
        let (mut places, mut updates) = (Vec::new(), Vec::new());
        let indices = (0..values.len()).filter(|&index| self.adapted[index]);
        for (number, index) in indices.enumerate() {
            if let Some(gradient) = gradients[index].take() {
                let prior = priors.as_ref().map(|priors| &priors[number]);
                let (direction, remembered) =
                    self.inner.rule.direction(step, gradient, &memory[index], prior);
                memory[index] = remembered;
                places.push(index);
                let value = values[index].take().expect("each is updated once");
                updates.push(TensorUpdate { number, value, direction });
            }
        }
        let moved = rates.apply(self.inner.rate, step, self.lanes, updates);
        for (index, value) in places.into_iter().zip(moved) {
            values[index] = Some(value);
        }
        let values = values.into_iter().map(|value| value.expect("all are back")).collect();
        FastWeights { values, memory, priors }
    }
}

/// The gradient of `loss` by the adapted parameters, which can be differentiated itself. `template` gives the
/// module's structure, and its values are ignored.
pub(crate) fn lifted_gradient_fn<'a, B: Backend, M: Module<Autodiff<B>>>(
    template: &'a M,
    adapted: &'a [bool],
    precision: Precision,
    loss: &'a dyn Fn(usize, &M) -> Tensor<Autodiff<B>, 1>,
) -> impl Fn(usize, &[Tensor<B, 1>]) -> Gradients<B> + 'a {
    move |step, values| {
        let values = values.iter().cloned().map(lifted::<B, 1>).collect();
        let loss = |module: &M| loss(step, module);
        gradients::<Autodiff<B>, M>(template, adapted, precision, loss, values)
    }
}

/// The same as a constant: it takes first derivatives only, so it works with every layer.
pub(crate) fn flat_gradient_fn<'a, B: AutodiffBackend, M: Module<B>>(
    template: &'a M,
    adapted: &'a [bool],
    precision: Precision,
    loss: &'a dyn Fn(usize, &M) -> Tensor<B, 1>,
) -> impl Fn(usize, &[Tensor<B, 1>]) -> Gradients<B> + 'a {
    move |step, values| {
        // Burn's `detach` leaves a leaf what it is.
        let constant = |value: &Tensor<B, 1>| Tensor::from_inner(value.clone().inner());
        let values = values.iter().map(constant).collect();
        let loss = |module: &M| loss(step, module);
        let grads = gradients::<B, M>(template, adapted, precision, loss, values);
        grads.into_iter().map(|gradient| gradient.map(Tensor::from_inner)).collect()
    }
}

/// Factor of the loss of an inner loop before its backward pass, and divisor of its
/// gradients: a power of two, which `f32` multiplies and divides by exactly.
///
/// In `f16` it keeps gradients off the least numbers of the format. Of 5-way 5-shot gradients of a
/// fresh Conv-4 on 84x84 images, those cost 0.2 % without it, and 5 %, as much as rounding, once the loss
/// has fallen to a sixteenth; 64 leaves that below rounding down to a loss of 1/256, and gradients up to
/// 1000 finite. It is a constant, for a test has no scale that fell in training. In second order it cancels
/// out: measured gradients are as near to those in `f32` for any scale up to `2^12`.
fn loss_scale(precision: Precision) -> Option<f64> {
    match precision {
        Precision::MixedF16 => Some(64.0),
        Precision::F32 | Precision::Tf32 | Precision::MixedBf16 => None,
    }
}

/// The gradient of `loss` by the values that move.
fn gradients<B: AutodiffBackend, M: Module<B>>(
    template: &M,
    adapted: &[bool],
    precision: Precision,
    loss: impl Fn(&M) -> Tensor<B, 1>,
    values: Vec<Tensor<B, 1>>,
) -> Gradients<B::InnerBackend> {
    let module = filled::<B, M>(template.clone(), &values);
    let module = module.map(&mut Track(adapted.iter()));
    let (loss, scale) = (loss(&module), loss_scale(precision));
    let loss = if let Some(scale) = scale { loss * scale } else { loss };
    let mut grads = loss.backward();
    let mut taking = TakeGradients { grads: &mut grads, gradients: Vec::new() };
    module.visit(&mut taking);
    match scale {
        // The inverse of a power of two is exact.
        Some(scale) => scaled_all(taking.gradients, 1.0 / scale),
        None => taking.gradients,
    }
}

/// Makes leaves of the tensors that move, in their own shapes: flat ones would be one more operation
/// each on this level's graph.
struct Track<'a>(std::slice::Iter<'a, bool>);

impl<B: AutodiffBackend> ModuleMapper<B> for Track<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let adapted = *self.0.next().expect("one for each tensor of the module");
        param.map(|value| value.set_require_grad(adapted))
    }
}

/// Takes the gradients of the tensors that move, each flattened.
struct TakeGradients<'a, B: AutodiffBackend> {
    grads: &'a mut B::Gradients,
    gradients: Gradients<B::InnerBackend>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for TakeGradients<'_, B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.gradients.push(param.val().grad_remove(self.grads).map(flat));
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::{Autodiff, Flex};
    use burn::tensor::{Distribution, Int};
    use fewshot_models::{BnStatistics, Classifier, Conv4, Conv4Config};

    use super::super::values;
    use super::*;
    use crate::episode::{Classification, TaskKind};
    use crate::precision::Precision;

    type B = Autodiff<Flex>;

    /// 5-way 5-shot supports: noise on an image of each class.
    fn support([c, h, w]: [usize; 3]) -> (Tensor<B, 5>, Tensor<B, 3>) {
        let device = Default::default();
        B::seed(&device, 8);
        let noise = |n| Tensor::random([1, n, c, h, w], Distribution::Normal(0.0, 1.0), &device);
        let inputs = noise(5).repeat_dim(1, 5) + noise(25);
        let labels = Tensor::<B, 1, Int>::arange(0..5, &device).repeat_dim(0, 5);
        (inputs, labels.one_hot::<2>(5).float().unsqueeze())
    }

    /// The gradient of the loss times `scale`, divided by it.
    fn gradient_fn(config: &Conv4Config, precision: Precision, scale: f64) -> Vec<f32> {
        let device = Default::default();
        B::seed(&device, 7);
        let encoder = config.clone().with_precision(precision).init(&device);
        let network = Classifier::<B, Conv4<B>>::new(encoder, config.features(), 5, &device);
        let (inputs, targets) = support(config.image);
        let loss = |_: usize, network: &Classifier<B, Conv4<B>>| {
            let outputs = network.forward_lanes(inputs.clone(), BnStatistics::Batch);
            Classification::loss(outputs, targets.clone()) * scale
        };
        let values = values::<B, _>(&network);
        let adapted = vec![true; values.len()];
        let actual = flat_gradient_fn(&network, &adapted, precision, &loss)(0, &values);
        let actual = actual.into_iter().flatten().map(|gradient| gradient / scale);
        actual.flat_map(|gradient| gradient.into_data().into_vec::<f32>().unwrap()).collect()
    }

    fn relative_error(actual: &[f32], expected: &[f32]) -> f64 {
        let square = |values: &mut dyn Iterator<Item = f32>| -> f64 {
            values.map(|value| f64::from(value).powi(2)).sum()
        };
        let differences =
            &mut actual.iter().zip(expected).map(|(actual, expected)| actual - expected);
        (square(differences) / square(&mut expected.iter().copied())).sqrt()
    }

    #[test]
    fn a_flat_gradient_fn_takes_leaves_for_values_and_has_nothing_of_what_stands_still() {
        let (config, device) = (Conv4Config::omniglot(), Default::default());
        let encoder = config.init(&device);
        let network = Classifier::<B, Conv4<B>>::new(encoder, config.features(), 5, &device);
        let (inputs, targets) = support(config.image);
        let loss = |_: usize, network: &Classifier<B, Conv4<B>>| {
            Classification::loss(
                network.forward_lanes(inputs.clone(), BnStatistics::Batch),
                targets.clone(),
            )
        };
        let values: Vec<_> = values::<B, _>(&network);
        let values: Vec<_> =
            values.into_iter().map(|value| value.detach().require_grad()).collect();
        let grads = |adapted: &[bool]| {
            flat_gradient_fn(&network, adapted, Precision::F32, &loss)(0, &values)
        };
        let all = grads(&vec![true; values.len()]);
        let adapted: Vec<_> = (0..values.len()).map(|place| place % 3 == 0).collect();
        for (place, (some, all)) in grads(&adapted).into_iter().zip(all).enumerate() {
            let data = |gradient: Tensor<B, 1>| gradient.into_data();
            let expected = all.map(data).filter(|_| adapted[place]);
            assert_eq!(some.map(data), expected, "tensor {place}");
        }
    }

    #[test]
    fn inner_gradients_in_f16_lose_less_to_its_least_numbers_than_to_rounding() {
        for config in [Conv4Config::omniglot(), Conv4Config::mini_imagenet()] {
            let low = |power: i32| gradient_fn(&config, Precision::MixedF16, 2f64.powi(power));
            let large = low(6);
            let rounding = relative_error(&large, &gradient_fn(&config, Precision::F32, 1.0));
            // As where the loss has fallen to a sixteenth.
            let error = relative_error(&low(-4), &large);
            assert!(10.0 * error < rounding, "{error} of {rounding}");
            assert!(relative_error(&low(-14), &large) > rounding, "they are lost at some scale");
        }
    }
}
