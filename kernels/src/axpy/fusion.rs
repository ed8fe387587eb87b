//! Lists recorded by Burn's fusion, as one operation.

use burn::tensor::ops::FloatTensor;
use burn_fusion::{Fusion, FusionBackend};

use super::AxpyAll;
use crate::fusion::{like, record};
use crate::registry::Runs;

impl<B: FusionBackend + Runs<AxpyAll>> Runs<AxpyAll> for Fusion<B> {
    fn run(
        (ys, xs): (Option<Vec<FloatTensor<Self>>>, Vec<FloatTensor<Self>>),
        &AxpyAll { alpha }: &AxpyAll,
    ) -> Vec<FloatTensor<Self>> {
        let (count, added) = (xs.len(), ys.is_some());
        let outputs = xs.iter().map(like).collect();
        let inputs = xs.into_iter().chain(ys.into_iter().flatten()).collect();
        record::<B, _>("axpy_all", inputs, outputs, move |given| {
            let xs = (0..count).map(|place| given.float(place)).collect();
            let ys = added.then(|| (count..2 * count).map(|place| given.float(place)).collect());
            B::run((ys, xs), &AxpyAll { alpha })
        })
    }
}
