//! Changed images recorded by Burn's fusion.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Shape};
use burn_fusion::{Fusion, FusionBackend};

use super::AugmentCall;
use crate::fusion::record_one;
use crate::registry::Runs;

impl<B: FusionBackend + Runs<AugmentCall>> Runs<AugmentCall> for Fusion<B> {
    fn run(operands: [IntTensor<Self>; 3], call: &AugmentCall) -> FloatTensor<Self> {
        let output = (Shape::new(call.gather.output()), DType::F32);
        let call = call.clone();
        record_one::<B, _>("augment_images", operands.into(), output, move |given| {
            B::run([given.int(0), given.int(1), given.int(2)], &call)
        })
    }
}
