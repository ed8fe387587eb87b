use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;

/// `module` with all its parameters drawn.
///
/// Burn draws a parameter when it is first used, and a clone of one that was not used yet draws
/// values of its own. After this, clones are alike and the backend's random numbers are spent.
pub fn drawn<B: Backend, M: Module<B>>(module: M) -> M {
    draw(&module);
    module
}

/// Draws all parameters of `module` that were not drawn yet, as [`drawn`].
pub fn draw<B: Backend, M: Module<B>>(module: &M) {
    module.visit(&mut Draw);
}

struct Draw;

impl<B: Backend> ModuleVisitor<B> for Draw {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        param.val();
    }
}

#[cfg(test)]
mod tests {
    use burn::backend::Flex;

    use super::*;
    use crate::nn::{Linear, LinearConfig};

    #[test]
    fn a_clone_of_a_drawn_module_has_the_same_parameters() {
        let device = Default::default();
        let layer: Linear<Flex> = drawn(LinearConfig::new(3, 4).init(&device));
        let clone = layer.clone();
        clone.weight.val().into_data().assert_eq(&layer.weight.val().into_data(), true);
    }
}
