//! The update of every host backend.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;

use super::{Lost, UpdateRate, cpu};
use crate::cpu::body;
use crate::host::{HostBackend, elements, into_elements, write_shape};

/// See [`FusedSteps`](crate::FusedSteps).
pub fn rank_update<B: HostBackend>(
    weight: FloatTensor<B>,
    lost: Lost<FloatTensor<B>>,
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
    let kept = match lost {
        // Whatever the rate is.
        Lost::Share(0.0) => vec![1.0],
        Lost::Share(share) => vec![(1.0 - rate * share) as f32],
        Lost::Each(shares) => {
            let kept = |lost: &f32| 1.0 - rate as f32 * lost;
            elements::<B>(&shares).iter().map(kept).collect()
        }
    };
    let (left, right) = (&*elements::<B>(&left), &*elements::<B>(&right));
    let rate = rate as f32;
    let update = cpu::Update { left, rate, right, kept: &kept, summands, columns };
    cpu::rank_update(body::chosen(), &update, &mut w);
    write_shape::<B>(w, shape, &device)
}
