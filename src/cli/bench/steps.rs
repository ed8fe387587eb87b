//! Steps of optimizers and statistics of gradients, over the parameters of whole networks, and of
//! plastic layers.

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Distribution, Tensor};
use fewshot::kernels::optim_step::{Momentum, WeightDecay};
use fewshot::kernels::{self, Decay, StepRule, StepState, StepTensors, UpdateRate};

use super::case::{Case, Load, Pass, Reference, Scale};

/// A network, as the sizes of its parameters.
type Network = (&'static str, Vec<usize>);

pub(super) fn optim_step<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let case = |network: &Network, (variant, rule): (&'static str, StepRule)| {
        let mut steps = None;
        let (sizes, place) = (network.1.clone(), device.clone());
        let floats: usize = sizes.iter().sum();
        // Parameter, gradient and what is remembered; all but the gradient are written.
        let streams = 3 + 2 * rule.remembers();
        Case {
            operation: "optim_step",
            shape: network.0.to_owned(),
            variant,
            pass: Pass::Update,
            load: Load::Bytes((4 * streams * floats) as f64),
            reference: Reference::Beside,
            work: Box::new(move || {
                let fresh = || Steps::<B::InnerBackend>::new(rule, &sizes, &place);
                steps.get_or_insert_with(fresh).step(&place);
            }),
        }
    };
    let networks = networks(scale);
    networks.iter().flat_map(|network| rules().map(|rule| case(network, rule))).collect()
}

pub(super) fn grad_stats<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let case = |(name, sizes): Network| {
        let mut gradients = None;
        let device = device.clone();
        Case {
            operation: "grad_stats",
            shape: name.to_owned(),
            variant: "norm",
            pass: Pass::Forward,
            load: Load::Bytes((4 * sizes.iter().sum::<usize>()) as f64),
            reference: Reference::Beside,
            work: Box::new(move || {
                let fresh = || tensors::<B::InnerBackend>(&sizes, 1e-3, &device);
                let gradients = gradients.get_or_insert_with(fresh).clone();
                // It ends with a read-back.
                kernels::grad_stats::<B::InnerBackend>(gradients, 1.0);
            }),
        }
    };
    networks(scale).into_iter().map(case).collect()
}

pub(super) fn rank_update<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let sizes = scale.choose(vec![[400, 800], [800, 400]], vec![[5, 33]]);
    let pairs = sizes.into_iter().flat_map(|size| [1, 64].map(|examples| (size, examples)));
    let case = |([rows, columns], examples): ([usize; 2], usize)| {
        let mut weight = None;
        let device = device.clone();
        let floats = rows * columns + examples * (rows + columns) + rows;
        Case {
            operation: "rank_update",
            shape: format!("{rows}x{columns}"),
            variant: if examples == 1 { "one example" } else { "64 examples" },
            pass: Pass::Update,
            load: Load::Bytes((4 * (floats + rows * columns)) as f64),
            reference: Reference::Beside,
            work: Box::new(move || {
                let normal = |shape| {
                    let like = Distribution::Normal(0.0, 1e-3);
                    Tensor::<B::InnerBackend, 2>::random(shape, like, &device)
                };
                let ([left, right, lost], old) = weight.take().unwrap_or_else(|| {
                    let shapes = [[examples, rows], [examples, columns], [rows, 1]];
                    (shapes.map(normal), normal([rows, columns]))
                });
                let shares = Decay::Each(lost.clone());
                let (factors, rate) = ((left.clone(), right.clone()), UpdateRate::Fixed(0.1));
                let new = kernels::rank_update(old, shares, factors.0, factors.1, rate);
                B::sync(&device).expect("the device answers");
                weight = Some(([left, right, lost], new));
            }),
        }
    };
    pairs.map(case).collect()
}

pub(super) fn weighted_sums<B: AutodiffBackend>(scale: Scale, device: &B::Device) -> Vec<Case> {
    let sizes = scale.choose(vec![[8, 400, 800], [64, 100, 200], [64, 400, 800]], vec![[3, 5, 33]]);
    let case = |[examples, inputs, neurons]: [usize; 3]| {
        let mut operands = None;
        let device = device.clone();
        Case {
            operation: "weighted_sums",
            shape: format!("{examples}x{inputs} {neurons}x{inputs}"),
            variant: "forward",
            pass: Pass::Forward,
            load: Load::Flops((2 * examples * inputs * neurons) as f64),
            reference: Reference::Beside,
            work: Box::new(move || {
                let normal = |shape| {
                    let like = Distribution::Normal(0.0, 1.0);
                    Tensor::<B::InnerBackend, 2>::random(shape, like, &device)
                };
                let fresh = || [[examples, inputs], [neurons, inputs]].map(normal);
                let [x, weight] = operands.get_or_insert_with(fresh).clone();
                kernels::weighted_sums(x, weight);
                B::sync(&device).expect("the device answers");
            }),
        }
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

fn tensors<B: Backend>(sizes: &[usize], scale: f64, device: &B::Device) -> Vec<FloatTensor<B>> {
    let normal = Distribution::Normal(0.0, scale);
    let tensor = |&size| Tensor::<B, 1>::random([size], normal, device);
    sizes.iter().map(|size| tensor(size).into_primitive().tensor()).collect()
}

/// Steps that each go on from the one before.
struct Steps<B: Backend> {
    rule: StepRule,
    gradients: Vec<FloatTensor<B>>,
    states: Vec<(FloatTensor<B>, StepState<FloatTensor<B>>)>,
}

impl<B: Backend> Steps<B> {
    fn new(rule: StepRule, sizes: &[usize], device: &B::Device) -> Self {
        B::seed(device, 1);
        let parameters = tensors::<B>(sizes, 0.05, device).into_iter();
        let states = parameters.map(|parameter| (parameter, StepState::default())).collect();
        Self { rule, gradients: tensors::<B>(sizes, 1e-3, device), states }
    }

    fn step(&mut self, device: &B::Device) {
        let of = self.states.drain(..).zip(&self.gradients);
        let of = of.map(|((parameter, state), gradient)| {
            let gradient = gradient.clone();
            StepTensors { parameter, gradient, state }
        });
        let moved = kernels::optim_step::<B>(of.collect(), &self.rule, 1e-6);
        self.states.extend(moved.into_iter().map(|one| (one.parameter, one.state)));
        B::sync(device).expect("the device answers");
    }
}
