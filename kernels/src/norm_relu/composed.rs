//! The primitives made of those of the single layers: for hosts, and for levels of autodiff above
//! the first, where they are differentiated as those are.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{FloatDType, TensorMetadata};

use super::rectified::Rectified;
use crate::batch_norm::fused::moment_grad;
use crate::host::{unwrap, wrap};
use crate::layers::FusedLayers;
use crate::max_pool::Windows;

pub fn activate<B: FusedLayers>(
    x: FloatTensor<B>,
    map: [FloatTensor<B>; 3],
    after: Rectified,
) -> FloatTensor<B> {
    let v = B::channel_affine(x, map);
    let taken = wrap::<B, 4>(if after.pool { B::pool(Windows::Adjacent, v) } else { v });
    // As `spread` has it: a backend's own ReLU may take NaN for silent.
    let silent = taken.clone().lower_equal_elem(0.0);
    unwrap(taken.mask_fill(silent, 0.0))
}

/// See [`norm_backward`](FusedLayers::norm_backward).
pub fn backward<B: FusedLayers>(
    dz: FloatTensor<B>,
    x: FloatTensor<B>,
    map: [FloatTensor<B>; 3],
    inverse: Option<FloatTensor<B>>,
    after: Option<Rectified>,
    requires_grad: [bool; 2],
) -> [Option<FloatTensor<B>>; 2] {
    let dy = match after {
        Some(after) => spread::<B>(dz, x.clone(), map.clone(), after),
        None => dz,
    };
    let [centre, scale, _] = map;
    let [of_sums, of_x] = requires_grad;
    let sums = (of_sums || of_x && inverse.is_some())
        .then(|| B::channel_correlate([dy.clone(), x.clone(), centre.clone()]));
    let dx = of_x.then(|| {
        let Some((inverse, sums)) = inverse.zip(sums.clone()) else {
            return scaled::<B>(dy, scale);
        };
        let [slope, mean] = moment_grad::<B>(&x, [scale.clone(), inverse], sums).map(unwrap);
        B::channel_combine([[dy, mean, scale], [x, centre, slope]])
    });
    [sums.filter(|_| of_sums), dx]
}

/// `dz` at the pixels that were taken. Which ones these are does not change with a small change of
/// `x` or of the map, so only `dz` has a gradient. They are those of the fused pass, which rounds
/// nothing before it compares.
fn spread<B: FusedLayers>(
    dz: FloatTensor<B>,
    x: FloatTensor<B>,
    map: [FloatTensor<B>; 3],
    after: Rectified,
) -> FloatTensor<B> {
    let of = dz.dtype();
    let [x, dz] = [x, dz].map(|map| wrap::<B, 4>(map).cast(FloatDType::F32));
    let v = B::channel_affine(unwrap(x), map);
    let taken = if after.pool { B::pool(Windows::Adjacent, v.clone()) } else { v.clone() };
    let silent = wrap::<B, 4>(taken).lower_equal_elem(0.0);
    let dz = unwrap(dz.mask_fill(silent, 0.0));
    let dv = if after.pool { B::pool_scatter(Windows::Adjacent, v, dz) } else { dz };
    unwrap(wrap::<B, 4>(dv).cast(of))
}

/// `x * scale` by channel.
pub fn scaled<B: FusedLayers>(x: FloatTensor<B>, scale: FloatTensor<B>) -> FloatTensor<B> {
    let zero = unwrap(wrap::<B, 1>(scale.clone()).zeros_like());
    B::channel_affine(x, [zero.clone(), scale, zero])
}
