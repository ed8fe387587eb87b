//! Levels of autodiff, and what Burn 0.21 gets wrong around them.

use burn::backend::Autodiff;
use burn::module::{HasAutodiffModule, Module, ModuleVisitor};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot_models::nn::draw;

use super::AdaptError;
use crate::hardware::panics::{Cause, Expected, caught, find};

/// A module one level of autodiff up.
pub type Lifted<B, M> = <M as HasAutodiffModule<Autodiff<B>>>::TrainModule;

/// `module` one level of autodiff up; its parameters stay on the graph that they are on.
///
/// # Conventions
/// Lazily drawn parameters are drawn first: Burn would draw others for the copy.
pub fn lift<B, M>(module: &M) -> Lifted<B, M>
where
    B: Backend,
    M: Module<B> + HasAutodiffModule<Autodiff<B>>,
{
    draw::<B, M>(module);
    module.clone().train::<Autodiff<B>>()
}

/// `tensor` one level of autodiff up, a constant there; it stays on the graph it is on.
pub(crate) fn lifted<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<Autodiff<B>, D> {
    Tensor::from_inner(tensor)
}

/// Runs `work`, which differentiates a gradient of `module`.
///
/// # Errors
/// Where the module uses an operation whose gradient Burn cannot differentiate; Burn panics then.
pub(crate) fn differentiating_twice<B: Backend, M: Module<B>, T>(
    module: &M,
    work: impl FnOnce() -> T,
) -> Result<T, AdaptError> {
    let expected = Expected::Of(&[Cause::NoDerivative]);
    let message = match caught(Vec::new(), expected, work).result {
        Ok(value) => return Ok(value),
        Err(message) => message,
    };
    let operation = find(&message).map_or(message.as_str(), |finding| finding.rest);
    let operation = operation.trim_end_matches('.').replace('_', " ");
    let mut layers = Layers { kind: layer(&operation), path: Vec::new(), places: Vec::new() };
    module.visit(&mut layers);
    Err(AdaptError::NotTwice { layer: layers.kind, operation, places: layers.places })
}

/// The type of Burn's layers that use an operation.
fn layer(operation: &str) -> &'static str {
    let layers = [
        ("linear", "Linear"),
        ("embedding", "Embedding"),
        ("adaptive avg pool2d", "AdaptiveAvgPool2d"),
        ("avg pool 2d", "AvgPool2d"),
        ("max pool2d", "MaxPool2d"),
        ("interpolate", "Interpolate2d"),
        ("deform conv 2d", "DeformConv2d"),
    ];
    let layer = layers.into_iter().find(|(start, _)| operation.starts_with(start));
    layer.map_or("layer", |(_, layer)| layer)
}

/// Where a module has parameters of layers of a type.
struct Layers {
    kind: &'static str,
    path: Vec<String>,
    places: Vec<String>,
}

impl<B: Backend> ModuleVisitor<B> for Layers {
    fn enter_module(&mut self, name: &str, container: &str) {
        let place = self.path.join(".");
        if container.strip_prefix("Struct:") == Some(self.kind) && !self.places.contains(&place) {
            self.places.push(place);
        }
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }
}

/// Tells whether `tensor` is on a graph without being a leaf of it, as an adapted parameter is.
///
/// Burn does not tell, but refuses to make a leaf of such a tensor.
pub(crate) fn is_derived<B: Backend, const D: usize>(tensor: &Tensor<B, D>) -> bool {
    let leaf = || tensor.clone().require_grad();
    caught(Vec::new(), Expected::Of(&[Cause::NoLeaf]), leaf).result.is_err()
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use burn::backend::Flex;
    use burn::nn::{Linear, LinearConfig};

    use super::*;

    #[test]
    fn a_layer_one_level_up_has_the_weights_that_the_layer_is_drawn_with() {
        let layer: Linear<Flex> = LinearConfig::new(3, 2).init(&Default::default());
        let lifted = lift::<Flex, _>(&layer);
        let [above, below] = [lifted.weight.val().inner(), layer.weight.val()];
        assert_eq!(above.into_data(), below.into_data());
    }
}
