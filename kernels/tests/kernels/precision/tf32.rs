//! The stack under TF32.

use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{FloatDType, Tensor};
use fewshot_kernels::{Precision, Statistics, conv_stack};

use super::stack::{IMAGES, blocks, law, options};
use super::{Autodiff, Once, assert_near, drawn};

type Tested<B> = Autodiff<B>;

mod laws {
    use super::*;

    /// Features and the gradient of the images.
    fn outcome<B: AutodiffBackend>(precision: Precision) -> [Vec<f64>; 2] {
        let images = drawn::<B, 4>(1, IMAGES).require_grad();
        let how = options(precision);
        let features = conv_stack(images.clone(), &blocks(), Statistics::Batch, how).features;
        with_gradient(images, features)
    }

    fn with_gradient<B: AutodiffBackend>(
        images: Tensor<B, 4>,
        features: Tensor<B, 4>,
    ) -> [Vec<f64>; 2] {
        let weights = drawn::<B, 4>(2, features.dims()).cast(features.dtype());
        let gradients = (features.clone() * weights).sum().backward();
        [doubles(features), doubles(images.grad(&gradients).expect("it is tracked"))]
    }

    fn doubles<B: Backend>(of: Tensor<B, 4>) -> Vec<f64> {
        of.into_data().iter::<f64>().collect()
    }

    /// The stack whose convolutions round their operands to the 10 binary digits that f16 has as well.
    fn rounded() -> [Vec<f64>; 2] {
        let images = drawn::<Once, 4>(1, IMAGES).require_grad();
        let round = |x: Tensor<Once, 4>| x.cast(FloatDType::F16).cast(FloatDType::F64);
        let features = law(images.clone(), &blocks(), [&round, &|y| y]);
        with_gradient(images, features)
    }

    pub fn tf32_rounds_operands_and_is_f32_without_tensor_cores<B: AutodiffBackend>() {
        let [exact, found] = [Precision::F32, Precision::Tf32].map(outcome::<B>);
        if Precision::Tf32.check::<B>(&Default::default()).is_err() {
            assert_eq!(found, exact);
            return;
        }
        // Rounding may turn a ReLU or a pool to another pixel, so that f32 is no judge of single gradients.
        for ((found, exact), rounded) in found.iter().zip(&exact).zip(&rounded()) {
            assert_ne!(found, exact);
            assert_near("of TF32", found, rounded, 0.0, 1e-2);
        }
    }
}

laws! {
    every {
        tf32_rounds_operands_and_is_f32_without_tensor_cores
    }
}
