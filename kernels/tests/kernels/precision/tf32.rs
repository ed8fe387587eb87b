//! The stack under TF32.

use burn::tensor::backend::AutodiffBackend;
use fewshot_kernels::{Precision, Statistics, conv_stack};

use super::stack::{IMAGES, blocks, options};
use super::{Autodiff, assert_near, drawn};
use crate::judge;

type Tested<B> = Autodiff<B>;

mod laws {
    use super::*;

    /// Features and the gradient of the images.
    fn outcome<B: AutodiffBackend>(precision: Precision) -> [Vec<f64>; 2] {
        let images = drawn::<B, 4>(1, IMAGES).require_grad();
        let how = options(precision);
        let features = conv_stack(images.clone(), &blocks(), Statistics::Batch, how).features;
        let weights = drawn::<B, 4>(2, features.dims());
        let found = (features.clone() * weights).sum().backward();
        let of_images = images.grad(&found).expect("it is tracked");
        [judge::read(features), judge::read(of_images)]
            .map(|values| values.into_iter().map(f64::from).collect())
    }

    pub fn tf32_is_near_f32_and_equal_without_tensor_cores<B: AutodiffBackend>() {
        let [exact, found] = [Precision::F32, Precision::Tf32].map(outcome::<B>);
        if Precision::Tf32.check::<B>(&Default::default()).is_err() {
            assert_eq!(found, exact);
            return;
        }
        for (found, exact) in found.iter().zip(&exact) {
            assert_ne!(found, exact);
            assert_near("of TF32", found, exact, 0.0, 1e-2);
        }
    }
}

laws! {
    every {
        tf32_is_near_f32_and_equal_without_tensor_cores
    }
}
