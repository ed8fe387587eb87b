//! Running averages of batch-norm, for training that gathers none.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

use super::{AnyEncoder, Network};
use crate::efficientnet_lite::MOMENTUM;
use crate::encoder::Encoder;
use crate::nn::{BatchNormConfig, BnStatistics, RUNNING_AVERAGES};

impl<B: Backend> AnyEncoder<B> {
    /// The same network with moments of its maps of `images` `[n, c, h, w]` for running averages, as
    /// [`Conv4::with_averages_of`](crate::Conv4::with_averages_of) has it. A network without batch-norm stays as it is.
    pub fn with_averages_of(self, images: Tensor<B, 4>) -> Self {
        let momentum = match self.network {
            Network::Conv4(network) => {
                let network = Network::Conv4(Box::new(network.with_averages_of(images)));
                return Self { network, ..self };
            }
            Network::Vit(_) => return self,
            Network::EfficientNetLite(_) => MOMENTUM,
            Network::ResNet12(_) | Network::ResNet(_) | Network::WideResNet(_) => {
                BatchNormConfig::new(1).momentum
            }
        };
        // Averages that begin at zero are, after one batch, its moments times the momentum.
        let from_zero = self.map(&mut Scaled { factor: 0.0, path: Vec::new() });
        from_zero.encode(images, BnStatistics::Track);
        from_zero.map(&mut Scaled { factor: 1.0 / momentum, path: Vec::new() })
    }
}

/// Multiplies running averages.
struct Scaled {
    factor: f64,
    path: Vec<String>,
}

impl<B: Backend> ModuleMapper<B> for Scaled {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let name = self.path.last().map(String::as_str);
        match name.is_some_and(|name| RUNNING_AVERAGES.contains(&name)) {
            true => param.map(|value| value * self.factor),
            false => param,
        }
    }
}
