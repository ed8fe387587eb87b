//! Steps of optimizers and statistics of gradients, over the parameters of whole networks, and of
//! plastic layers.

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Distribution, Tensor};
use fewshot::kernels::optim_step::{Momentum, WeightDecay};
use fewshot::kernels::{self, Coefficient, StepRule, StepState, StepTensors};

use super::case::{Case, Load, Pass, Scale, sides};

/// A network, as the sizes of its parameters.
type Network = (&'static str, Vec<usize>);

pub(super) fn optim_step<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let case = |(name, sizes): &Network, (variant, rule): (&'static str, StepRule)| {
        let sizes = sizes.clone();
        // Parameter, gradient and what is remembered; all but the gradient are written.
        let streams = 3 + 2 * rule.remembers();
        let load = Load::floats(streams * sizes.iter().sum::<usize>());
        let (names, of) = (["optim_step", variant], (Pass::Update, load));
        let make = move |device: &B::Device| Steps::<B::InnerBackend>::new(rule, &sizes, device);
        Case::new::<B, _>(names, name.to_string(), of, device, make, Steps::step)
    };
    let networks = networks(scale);
    networks.iter().flat_map(|network| rules().map(|rule| case(network, rule))).collect()
}

pub(super) fn grad_stats<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let case = |(name, sizes): Network| {
        let of = (Pass::Forward, Load::floats(sizes.iter().sum()));
        let make = move |device: &B::Device| tensors::<B::InnerBackend>(&sizes, 1e-3, device);
        Case::new::<B, _>(["grad_stats", "norm"], name.to_owned(), of, device, make, |gradients| {
            kernels::grad_stats::<B::InnerBackend>(gradients.clone(), 1.0);
        })
    };
    networks(scale).into_iter().map(case).collect()
}

pub(super) fn rank_update<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let sizes = scale.choose(vec![[400, 800], [800, 400]], vec![[5, 33]]);
    let pairs = sizes.into_iter().flat_map(|size| [1, 64].map(|examples| (size, examples)));
    let case = |([rows, columns], examples): ([usize; 2], usize)| {
        let variant = if examples == 1 { "one example" } else { "64 examples" };
        let load = Load::floats(2 * rows * columns + examples * (rows + columns) + rows);
        let make = move |device: &B::Device| {
            [[examples, rows], [examples, columns], [rows, 1], [rows, columns]]
                .map(|shape| normal::<B::InnerBackend, 2>(shape, 1e-3, device))
        };
        let (names, of) = (["rank_update", variant], (Pass::Update, load));
        Case::new::<B, _>(names, sides([rows, columns]), of, device, make, |state| {
            let [left, right, rates, weight] = state.clone();
            // The weight's own memory may be written into.
            state[3] = rates.clone();
            let rate = Coefficient::Number(0.1);
            state[3] = kernels::rank_update(weight, Coefficient::Tensor(rates), left, right, rate);
        })
    };
    pairs.map(case).collect()
}

pub(super) fn weighted_sums<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let sizes = scale.choose(vec![[8, 400, 800], [64, 100, 200], [64, 400, 800]], vec![[3, 5, 33]]);
    let case = |[examples, inputs, neurons]: [usize; 3]| {
        let floats = examples * (inputs + neurons) + inputs * neurons;
        let load = Load::products((2 * examples * inputs * neurons) as f64, floats);
        let make = move |device: &B::Device| {
            [[examples, inputs], [neurons, inputs]]
                .map(|shape| normal::<B::InnerBackend, 2>(shape, 1.0, device))
        };
        let (names, of) = (["weighted_sums", "forward"], (Pass::Forward, load));
        let shape = format!("{examples}x{inputs} {neurons}x{inputs}");
        Case::new::<B, _>(names, shape, of, device, make, |[x, weight]| {
            kernels::weighted_sums(x.clone(), weight.clone());
        })
    };
    sizes.into_iter().map(case).collect()
}

/// The encoders of the literature, and one tensor that no cache holds.
fn networks(scale: Scale) -> Vec<Network> {
    let conv4 = [1, 64, 64, 64].into_iter().flat_map(|c| [64 * c * 9, 64, 64, 64]).collect();
    let full = vec![("conv4", conv4), ("resnet12", resnet12()), ("50M", vec![50_000_000])];
    scale.choose(full, vec![("tiny", vec![33, 100, 1])])
}

/// Four blocks of three convolutions and a shortcut, each with a batch-norm.
fn resnet12() -> Vec<usize> {
    let blocks = [(3, 64), (64, 160), (160, 320), (320, 640)];
    let layers = blocks.into_iter().flat_map(|(from, to)| {
        [9 * from * to, 9 * to * to, 9 * to * to, from * to].map(|weight| [weight, to, to])
    });
    layers.flatten().collect()
}

fn rules() -> [(&'static str, StepRule); 5] {
    let sgd = |momentum| StepRule::Sgd { momentum, weight_decay: WeightDecay::NONE };
    let momentum = Momentum { factor: 0.9, dampening: 0.0, nesterov: false };
    let (beta_1, beta_2) = (0.9, 0.999);
    let adam = |weight_decay| StepRule::Adam { beta_1, beta_2, epsilon: 1e-8, weight_decay };
    [
        ("sgd", sgd(None)),
        ("momentum", sgd(Some(momentum))),
        ("adam", adam(WeightDecay::NONE)),
        ("adam_w", adam(WeightDecay::Decoupled(0.01))),
        ("lamb", StepRule::Lamb { beta_1, beta_2, epsilon: 1e-6, weight_decay: 0.01 }),
    ]
}

fn normal<B: Backend, const D: usize>(
    shape: [usize; D],
    scale: f64,
    device: &B::Device,
) -> Tensor<B, D> {
    Tensor::random(shape, Distribution::Normal(0.0, scale), device)
}

fn tensors<B: Backend>(sizes: &[usize], scale: f64, device: &B::Device) -> Vec<FloatTensor<B>> {
    let tensor = |&size| normal::<B, 1>([size], scale, device).into_primitive().tensor();
    sizes.iter().map(tensor).collect()
}

/// Steps that each go on from the one before.
struct Steps<B: Backend> {
    rule: StepRule,
    gradients: Vec<FloatTensor<B>>,
    states: Vec<(FloatTensor<B>, StepState<FloatTensor<B>>)>,
}

impl<B: Backend> Steps<B> {
    fn new(rule: StepRule, sizes: &[usize], device: &B::Device) -> Self {
        let parameters = tensors::<B>(sizes, 0.05, device).into_iter();
        let states = parameters.map(|parameter| (parameter, StepState::default())).collect();
        Self { rule, gradients: tensors::<B>(sizes, 1e-3, device), states }
    }

    fn step(&mut self) {
        let of = self.states.drain(..).zip(&self.gradients);
        let of = of.map(|((parameter, state), gradient)| {
            let gradient = gradient.clone();
            StepTensors { parameter, gradient, state }
        });
        let moved = kernels::optim_step::<B>(of.collect(), &self.rule, 1e-6);
        self.states.extend(moved.into_iter().map(|one| (one.parameter, one.state)));
    }
}
