//! The update of every host backend.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;

use super::{Coefficient, cpu};
use crate::cpu::instruction_set;
use crate::cpu::rank::RankUpdate;
use crate::host::{HostBackend, elements, into_elements, write_shape};

/// See [`rank_update`](crate::rank_update()).
pub fn rank_update<B: HostBackend>(
    weight: FloatTensor<B>,
    decay: Coefficient<FloatTensor<B>>,
    [left, right]: [FloatTensor<B>; 2],
    rate: Coefficient<FloatTensor<B>>,
) -> FloatTensor<B> {
    let (shape, device) = (weight.shape(), B::float_device(&weight));
    let (columns, summands) = (shape[1], left.shape()[0]);
    let mut w = into_elements::<B>(weight);
    let rate = match rate {
        Coefficient::Number(rate) => rate,
        Coefficient::Tensor(rate) => f64::from(elements::<B>(&rate)[0]),
    };
    let kept = match decay {
        // Whatever the rate is.
        Coefficient::Number(0.0) => vec![1.0],
        Coefficient::Number(share) => vec![(1.0 - rate * share) as f32],
        Coefficient::Tensor(shares) => {
            let kept = |decay: &f32| 1.0 - rate as f32 * decay;
            elements::<B>(&shares).iter().map(kept).collect()
        }
    };
    let (left, right) = (&*elements::<B>(&left), &*elements::<B>(&right));
    let rate = rate as f32;
    let kept = &*kept;
    let update = RankUpdate { left, left_step: shape[0], rate, right, columns, summands, kept };
    cpu::rank_update(instruction_set::chosen(), &update, &mut w);
    write_shape::<B>(w, shape, &device)
}
