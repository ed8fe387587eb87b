//! Gathering recorded by Burn's fusion.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Shape};
use burn_fusion::{Fusion, FusionBackend};

use super::{FusedGather, GatherCall};
use crate::fusion::record_one;

impl<B: FusionBackend + FusedGather> FusedGather for Fusion<B> {
    fn largest_bank(device: &Self::Device) -> u64 {
        B::largest_bank(device)
    }

    fn gather_images(of: [IntTensor<Self>; 2], call: &GatherCall) -> FloatTensor<Self> {
        let output = (Shape::new(call.output()), DType::F32);
        let call = call.clone();
        record_one::<B, _>("gather_images", of.into(), output, move |given| {
            B::gather_images([given.int(0), given.int(1)], &call)
        })
    }
}
