//! Lists recorded by Burn's fusion, as one operation.

use burn::tensor::ops::FloatTensor;
use burn_fusion::{Fusion, FusionBackend};

use super::FusedAxpy;
use crate::fusion::{like, record};

impl<B: FusionBackend + FusedAxpy> FusedAxpy for Fusion<B> {
    fn axpy_all(
        ys: Vec<FloatTensor<Self>>,
        alpha: f64,
        xs: Vec<FloatTensor<Self>>,
    ) -> Vec<FloatTensor<Self>> {
        let sums = ys.len();
        let outputs = ys.iter().map(like).collect();
        let inputs = ys.into_iter().chain(xs).collect();
        record::<B, _>("axpy_all", inputs, outputs, move |given| {
            let ys = (0..sums).map(|place| given.float(place)).collect();
            let xs = (sums..2 * sums).map(|place| given.float(place)).collect();
            B::axpy_all(ys, alpha, xs)
        })
    }

    fn scaled_all(xs: Vec<FloatTensor<Self>>, alpha: f64) -> Vec<FloatTensor<Self>> {
        let products = xs.len();
        let outputs = xs.iter().map(like).collect();
        record::<B, _>("scaled_all", xs, outputs, move |given| {
            B::scaled_all((0..products).map(|place| given.float(place)).collect(), alpha)
        })
    }
}
