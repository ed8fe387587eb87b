//! Local learning recorded by Burn's fusion.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, TensorMetadata};
use burn_fusion::{Fusion, FusionBackend};

use super::{LocalLearning, LocalTensors, MostLayers};
use crate::fusion::{like, record};
use crate::registry::Runs;

impl<B: FusionBackend + Runs<MostLayers>> Runs<MostLayers> for Fusion<B> {
    fn run(device: Self::Device, call: &MostLayers) -> usize {
        B::run(device, call)
    }
}

impl<B: FusionBackend + Runs<LocalLearning>> Runs<LocalLearning> for Fusion<B> {
    fn run(
        (start, tensors): (usize, LocalTensors<FloatTensor<Self>>),
        learning: &LocalLearning,
    ) -> LocalTensors<FloatTensor<Self>> {
        let LocalTensors { values, weights, memory } = tensors;
        let (layers, ticks) = (weights.len(), values[0].shape()[1]);
        let mut outputs: Vec<_> = [&memory].into_iter().chain(&weights).map(like).collect();
        let fired = learning.outputs(start, ticks).into_iter();
        outputs.extend(fired.map(|shape| (shape.into(), DType::F32)));
        let inputs = values.into_iter().chain([memory]).chain(weights).collect();
        let learning = learning.clone();
        let results = record::<B, _>("local_learning", inputs, outputs, move |given| {
            let values = vec![given.float(0)];
            let memory = given.float(1);
            let weights = (0..layers).map(|layer| given.float(2 + layer)).collect();
            let LocalTensors { values, weights, memory } =
                B::run((start, LocalTensors { values, weights, memory }), &learning);
            [memory].into_iter().chain(weights).chain(values).collect()
        });
        let mut results = results.into_iter();
        let memory = results.next().expect("as many tensors as were recorded");
        let weights = results.by_ref().take(layers).collect();
        LocalTensors { values: results.collect(), weights, memory }
    }
}
