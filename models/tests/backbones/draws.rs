//! Distributions that parameters are drawn from, by their moments.

use burn::backend::Flex;
use burn::tensor::backend::Backend;
use burn_store::ModuleSnapshot;
use fewshot_models::{
    EfficientNetLiteConfig, ResNet12Config, ResNetConfig, VitConfig, VitFamily, WideResNetConfig,
};

/// A distribution with mean zero, by its deviation, or a constant.
#[derive(Clone, Copy, Debug)]
enum Law {
    Normal(f64),
    Uniform(f64),
    Constant(f32),
}

impl Law {
    /// The fourth moment in fourth powers of the deviation.
    fn kurtosis(self) -> f64 {
        match self {
            Self::Normal(_) => 3.0,
            Self::Uniform(_) | Self::Constant(_) => 1.8,
        }
    }

    /// Compares moments within five of their own deviations, of which each is at most `4 / sqrt(n)` here but for the fourth.
    fn assert_holds(self, name: &str, values: &[f32]) {
        let (Self::Normal(deviation) | Self::Uniform(deviation)) = self else {
            let Self::Constant(constant) = self else {
                unreachable!("all others have a deviation")
            };
            return assert!(values.iter().all(|x| *x == constant), "{name} is not {constant}");
        };
        let count = values.len() as f64;
        let moment = |power| {
            let scaled = values.iter().map(|x| (f64::from(*x) / deviation).powi(power));
            scaled.sum::<f64>() / count
        };
        let moments = [(1, 0.0, 1.0), (2, 1.0, 2f64.sqrt()), (4, self.kurtosis(), 96f64.sqrt())];
        for (power, expected, spread) in moments {
            let (moment, off) = (moment(power), 5.0 * spread / count.sqrt());
            let what = format!("moment {power} of {name}, {self:?}");
            assert!(
                (moment - expected).abs() < off,
                "{what}, is {moment}, not {expected} +- {off}"
            );
        }
        let bound = deviation * 3f64.sqrt() * 1.000_001;
        let bounded = values.iter().all(|x| f64::from(x.abs()) <= bound);
        assert!(bounded || matches!(self, Self::Normal(_)), "{name} leaves its bounds");
    }
}

/// Compares each tensor with the law that its name and shape have.
fn assert_drawn(network: &impl ModuleSnapshot<Flex>, law: impl Fn(&str, &[usize]) -> Law) {
    for tensor in network.collect(None, None, false) {
        let (name, shape) = (tensor.full_path(), tensor.shape.to_vec());
        let values: Vec<f32> = tensor.to_data().unwrap().into_vec().unwrap();
        law(&name, &shape).assert_holds(&name, &values);
    }
}

fn seed() {
    Flex::seed(&Default::default(), 7);
}

/// Of convolutions of as many `groups` as the shape tells, normal by their outputs; of batch-norm what changes nothing.
fn convolutional(name: &str, shape: &[usize]) -> Law {
    match (name.rsplit('.').next(), shape) {
        (_, &[outputs, inputs, height, width]) => {
            let depthwise = name.contains("depthwise");
            assert!(!depthwise || inputs == 1);
            let of_a_group = if depthwise { 1 } else { outputs };
            Law::Normal((2.0 / (of_a_group * height * width) as f64).sqrt())
        }
        (Some("gamma" | "running_var"), _) => Law::Constant(1.0),
        (Some("beta" | "running_mean"), _) => Law::Constant(0.0),
        _ => panic!("{name} of {shape:?} has no law"),
    }
}

#[test]
fn convolutional_networks_are_normal_by_their_outputs() {
    let device = Default::default();
    seed();
    let resnet12 = ResNet12Config::new().with_widths([16, 24, 32, 40]);
    assert_drawn(&resnet12.init::<Flex>(&device), convolutional);
    for config in [ResNetConfig::resnet18(), ResNetConfig::resnet50()] {
        assert_drawn(&config.with_width(8).init::<Flex>(&device), convolutional);
    }
    let wide = WideResNetConfig::new().with_blocks(2).with_width(2);
    assert_drawn(&wide.init::<Flex>(&device), convolutional);
    assert_drawn(&EfficientNetLiteConfig::new().init::<Flex>(&device), convolutional);
}

const WIDTH: usize = 48;

/// PyTorch's default of as many inputs: uniform within the inverse of their root.
fn by_inputs(inputs: usize) -> Law {
    Law::Uniform((3.0 * inputs as f64).sqrt().recip())
}

/// Norms of every transformer, and patches of 8 x 8 in three colours.
fn of_any_transformer(name: &str) -> Option<Law> {
    match name {
        "patch_embed.proj.weight" | "patch_embed.proj.bias" => Some(by_inputs(3 * 64)),
        _ if name.contains("norm") && name.ends_with("gamma") => Some(Law::Constant(1.0)),
        _ if name.contains("norm") => Some(Law::Constant(0.0)),
        _ => None,
    }
}

fn dinov2(name: &str, _: &[usize]) -> Law {
    of_any_transformer(name).unwrap_or_else(|| match name {
        "cls_token" | "register_tokens" => Law::Normal(1e-6),
        _ if name.contains(".ls") => Law::Constant(1e-5),
        _ if name.ends_with("bias") => Law::Constant(0.0),
        _ => Law::Normal(0.02),
    })
}

fn clip(name: &str, shape: &[usize]) -> Law {
    let glorot = (6.0 / (4 * WIDTH) as f64).sqrt() / 3f64.sqrt();
    of_any_transformer(name).unwrap_or_else(|| match name {
        "cls_token" | "pos_embed" | "proj" => Law::Normal((WIDTH as f64).powf(-0.5)),
        _ if name.ends_with("qkv.weight") => Law::Uniform(glorot),
        _ if name.contains("attn") && name.ends_with("bias") => Law::Constant(0.0),
        _ if name.ends_with("fc2.bias") => by_inputs(4 * WIDTH),
        _ if name.ends_with("bias") => by_inputs(WIDTH),
        _ => by_inputs(shape[0]),
    })
}

#[test]
fn transformers_are_drawn_as_in_their_authors_code() {
    let device = Default::default();
    seed();
    let config = |family| VitConfig::new(family, 8, 6, WIDTH, 2, 3).with_projection(40);
    let registers = config(VitFamily::DinoV2).with_registers(4);
    assert_drawn(&registers.init::<Flex>(&device), dinov2);
    assert_drawn(&config(VitFamily::Clip).init::<Flex>(&device), clip);
}
