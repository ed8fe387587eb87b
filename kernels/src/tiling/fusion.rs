//! Tiles and sums over lanes under Burn's fusion: plain operations, which it fuses itself.

use burn::tensor::ops::FloatTensor;
use burn_fusion::{Fusion, FusionBackend};

use super::{LaneCall, reference};
use crate::registry::Runs;

impl<B: FusionBackend> Runs<LaneCall> for Fusion<B> {
    fn run(xs: Vec<FloatTensor<Self>>, call: &LaneCall) -> Vec<FloatTensor<Self>> {
        xs.into_iter().map(|x| reference::over_lanes::<Self>(x, *call)).collect()
    }
}
