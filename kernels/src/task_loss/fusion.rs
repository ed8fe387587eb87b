//! The accuracy recorded by Burn's fusion, as one operation.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape};
use burn_fusion::{Fusion, FusionBackend};

use super::TaskAccuracyCall;
use crate::fusion::record_floats;
use crate::registry::Runs;

impl<B: FusionBackend + Runs<TaskAccuracyCall>> Runs<TaskAccuracyCall> for Fusion<B> {
    fn run(operands: [FloatTensor<Self>; 2], call: &TaskAccuracyCall) -> FloatTensor<Self> {
        let (output, call) = ((Shape::new([1]), DType::F32), *call);
        record_floats::<B, 2>("task_accuracy", operands, output, move |operands| {
            B::run(operands, &call)
        })
    }
}
