//! The update of every host backend.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;

use super::{Decay, UpdateRate, cpu};
use crate::cpu::instruction_set;
use crate::host::{HostBackend, elements, into_elements, write_shape};

/// See [`FusedSteps`](crate::FusedSteps).
pub fn rank_update<B: HostBackend>(
    weight: FloatTensor<B>,
    decay: Decay<FloatTensor<B>>,
    [left, right]: [FloatTensor<B>; 2],
    rate: UpdateRate<FloatTensor<B>>,
) -> FloatTensor<B> {
    let (shape, device) = (weight.shape(), B::float_device(&weight));
    let (columns, summands) = (shape[1], left.shape()[0]);
    let mut w = into_elements::<B>(weight);
    let rate = match rate {
        UpdateRate::Fixed(rate) => rate,
        UpdateRate::Read(rate) => f64::from(elements::<B>(&rate)[0]),
    };
    let kept = match decay {
        // Whatever the rate is.
        Decay::Share(0.0) => vec![1.0],
        Decay::Share(share) => vec![(1.0 - rate * share) as f32],
        Decay::Each(shares) => {
            let kept = |decay: &f32| 1.0 - rate as f32 * decay;
            elements::<B>(&shares).iter().map(kept).collect()
        }
    };
    let (left, right) = (&*elements::<B>(&left), &*elements::<B>(&right));
    let rate = rate as f32;
    let update = cpu::Update { left, rate, right, kept: &kept, summands, columns };
    cpu::rank_update(instruction_set::chosen(), &update, &mut w);
    write_shape::<B>(w, shape, &device)
}
