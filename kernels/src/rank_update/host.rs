//! The update of every host backend.

use std::borrow::Cow;

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;

use super::{Kept, cpu};
use crate::cpu::body;
use crate::host::{HostBackend, elements, into_elements, write_shape};

/// See [`FusedSteps`](crate::FusedSteps).
pub fn rank_update<B: HostBackend>(
    weight: FloatTensor<B>,
    kept: Kept<FloatTensor<B>>,
    [left, right]: [FloatTensor<B>; 2],
) -> FloatTensor<B> {
    let (shape, device) = (weight.shape(), B::float_device(&weight));
    let (columns, summands) = (shape[1], left.shape()[0]);
    let mut w = into_elements::<B>(weight);
    let kept = match &kept {
        Kept::Share(share) => Cow::Owned(vec![*share as f32]),
        Kept::Each(shares) => elements::<B>(shares),
    };
    let (left, right) = (elements::<B>(&left), elements::<B>(&right));
    let update = cpu::Update { left: &left, right: &right, kept: &kept, summands, columns };
    cpu::rank_update(body::chosen(), &update, &mut w);
    write_shape::<B>(w, shape, &device)
}
