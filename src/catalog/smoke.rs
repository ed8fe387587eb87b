use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{ElementConversion, Tensor};
use fewshot_models::{Classifier, Encoder};

use super::noise::noise;
use super::{Backbone, BackboneConfig};
use crate::adapt::InnerLoop;
use crate::episode::{Classification, EpisodeBatch, Protocol};
use crate::hardware::Precision;
use crate::learners::{AdaptableNetwork, Maml, MetaGradients, MetaLearner, ProtoNet};
use crate::precision::LossScale;

/// Tries `backbone` on `device` in this precision: forward, backward, and the derivative
/// of a gradient, on a small task. Losses and gradients must be finite, and every trainable parameter
/// must have one.
///
/// # Errors
/// The first thing that went wrong.
///
/// # Panics
/// Where the backend does.
pub fn smoke<B: Backend>(
    backbone: &Backbone,
    precision: Precision,
    device: &B::Device,
) -> Result<(), String> {
    let features = backbone.features();
    let protocol = Protocol::new(2, 1).with_queries(1);
    let batch = noise(backbone.image, protocol).batch::<Autodiff<B>>(0..1, device);
    match &backbone.config {
        BackboneConfig::Conv4(config) => {
            let config = config.clone().with_precision(precision);
            passes(config.init(device), features, &batch, device)
        }
        BackboneConfig::Mlp(config) => {
            let config = config.clone().with_precision(precision);
            passes(config.init(device), features, &batch, device)
        }
    }
}

fn passes<B, E>(
    encoder: E,
    features: usize,
    batch: &EpisodeBatch<B>,
    device: &B::Device,
) -> Result<(), String>
where
    B: AutodiffBackend,
    E: Encoder<B> + AutodiffModule<B, InnerModule: Encoder<B::InnerBackend>>,
    Classifier<B, E>: AdaptableNetwork<B, Kind = Classification>
        + AutodiffModule<B, InnerModule: AdaptableNetwork<B::InnerBackend, Kind = Classification>>,
{
    let learner = ProtoNet::<B, E>::new(encoder.clone());
    check(&learner, learner.meta_gradients(batch, LossScale::ONE), "the gradient")?;
    let network = Classifier::new(encoder, features, 2, device);
    let inner = InnerLoop::new(1, 0.01);
    let learner = Maml::new(network, inner).map_err(|error| error.to_string())?;
    learner.check(batch).map_err(|error| error.to_string())?;
    check(&learner, learner.meta_gradients(batch, LossScale::ONE), "the derivative of a gradient")
}

/// Checks that the loss is finite, and that every parameter that training moves has a gradient.
fn check<B: AutodiffBackend, M: Module<B>>(
    module: &M,
    step: MetaGradients<B>,
    what: &str,
) -> Result<(), String> {
    let loss = step.loss.into_scalar().elem::<f32>();
    if !loss.is_finite() {
        return Err(format!("a loss of {loss}"));
    }
    match incomplete(module, step.gradients.gradients()) {
        Some(path) => Err(format!("{what} by {path} is missing or not finite")),
        None => Ok(()),
    }
}

/// The first trainable parameter without a finite gradient.
fn incomplete<B: AutodiffBackend, M: Module<B>>(
    module: &M,
    gradients: &GradientsParams,
) -> Option<String> {
    let mut check = Complete { gradients, path: Vec::new(), wrong: None };
    module.visit(&mut check);
    check.wrong
}

struct Complete<'a> {
    gradients: &'a GradientsParams,
    path: Vec<String>,
    wrong: Option<String>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Complete<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if !param.val().is_require_grad() {
            return;
        }
        let gradient = self.gradients.get::<B::InnerBackend, D>(param.id);
        let finite = gradient.is_some_and(|gradient| {
            gradient.into_data().convert::<f32>().iter::<f32>().all(f32::is_finite)
        });
        if !finite && self.wrong.is_none() {
            self.wrong = Some(self.path.join("."));
        }
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;

    use super::*;
    use crate::catalog::backbone;

    #[test]
    fn small_backbones_run_in_every_precision() {
        for name in ["conv4-omniglot-strided", "mlp-omniglot"] {
            for precision in Precision::ALL {
                let ran = smoke::<Flex>(backbone(name).unwrap(), precision, &Default::default());
                assert_eq!(ran, Ok(()), "{name} in {precision:?}");
            }
        }
    }

    #[test]
    fn a_gradient_that_is_missing_is_told_by_its_name() {
        let device = Default::default();
        let network = fewshot_models::MlpConfig::new(2).with_layers(vec![2, 2]);
        let network = network.init::<Autodiff<Flex>>(&device);
        let missing = incomplete(&network, &GradientsParams::new());
        assert_eq!(missing, Some("layers.0.weight".to_owned()));
    }
}
