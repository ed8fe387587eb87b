//! Gathering recorded by Burn's fusion.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Shape};
use burn_fusion::{Fusion, FusionBackend};

use super::{GatherCall, LargestBank};
use crate::fusion::record_one;
use crate::registry::Runs;

impl<B: FusionBackend + Runs<LargestBank>> Runs<LargestBank> for Fusion<B> {
    fn run(device: Self::Device, call: &LargestBank) -> u64 {
        B::run(device, call)
    }
}

impl<B: FusionBackend + Runs<GatherCall>> Runs<GatherCall> for Fusion<B> {
    fn run(operands: [IntTensor<Self>; 2], call: &GatherCall) -> FloatTensor<Self> {
        let output = (Shape::new(call.output()), DType::F32);
        let call = call.clone();
        record_one::<B, _>("gather_images", operands.into(), output, move |given| {
            B::run([given.int(0), given.int(1)], &call)
        })
    }
}
