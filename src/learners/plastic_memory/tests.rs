use burn::backend::{Autodiff, Flex};
use burn::tensor::TensorData;

use super::*;
use crate::episode::{PatternSampler, TaskSource};
use crate::precision::LossScale;

type A = Autodiff<Flex>;

const LENGTH: usize = 20;

fn patterns(seed: u64) -> PatternSampler {
    PatternSampler::new(LENGTH, 3, 2, seed).unwrap()
}

fn memory<B: Backend>() -> PlasticMemory<B> {
    let device = Default::default();
    B::seed(&device, 1);
    PlasticMemory::new(LENGTH, &device).with_presentation(1, 3, 2)
}

#[test]
fn connections_are_drawn_around_zero_as_the_authors_do() {
    let memory = memory::<Flex>();
    for drawn in [&memory.connections.weight, &memory.connections.alpha] {
        let values = drawn.val().into_data().to_vec::<f32>().unwrap();
        let count = values.len() as f32;
        let mean = values.iter().sum::<f32>() / count;
        let deviation = (values.iter().map(|v| v * v).sum::<f32>() / count).sqrt();
        assert!(mean.abs() < 2e-3 && (deviation / 0.01 - 1.0).abs() < 0.15, "{deviation}");
    }
}

#[test]
fn gradients_of_the_connections_agree_with_differences() {
    let tasks: RegressionBatch<A> = patterns(3).tasks(0..2, &Default::default());
    let moved = |place: usize, index: usize, step: f32| {
        let mut learner = memory::<A>();
        let connections = &mut learner.connections;
        connections.eta = Param::from_tensor(Tensor::full([1], 0.05, &Default::default()));
        let [weight, alpha] = [&mut connections.weight, &mut connections.alpha];
        for (at, param) in [weight, alpha].into_iter().enumerate() {
            let data = (param.val().inner() * 5.0).into_data();
            let shape = data.shape.clone();
            let mut values = data.to_vec::<f32>().unwrap();
            values[index] += if at == place { step } else { 0.0 };
            let values = Tensor::from_data(TensorData::new(values, shape), &Default::default());
            *param = Param::from_tensor(values);
        }
        learner
    };
    let read = |tensor: Tensor<Flex, 1>| tensor.into_data().to_vec::<f32>().unwrap()[0];
    let learner = moved(0, 0, 0.0);
    let gradients = learner.meta_gradients(&tasks, LossScale::ONE).gradients.into_parts().0;
    let ids = [learner.connections.weight.id, learner.connections.alpha.id];
    for (place, id) in ids.into_iter().enumerate() {
        let found = gradients.get::<Flex, 2>(id).unwrap();
        let found = found.into_data().to_vec::<f32>().unwrap();
        let size = |index: &usize| found[*index].abs();
        let largest = (0..found.len()).max_by(|a, b| size(a).total_cmp(&size(b))).unwrap();
        for index in [largest, 30, 100] {
            let loss =
                |step| read(moved(place, index, step).meta_gradients(&tasks, LossScale::ONE).loss);
            let difference = (loss(0.02) - loss(-0.02)) / 0.04;
            let error = (found[index] - difference).abs();
            let text = format!("parameter {place}, {index}: {}, {difference}", found[index]);
            assert!(error < 0.03 * difference.abs() + 2e-4, "{text}");
        }
    }
}

#[test]
fn tasks_and_queries_do_not_touch_one_another() {
    let memory = memory::<Flex>();
    let both: RegressionBatch<Flex> = patterns(1).tasks(0..2, &Default::default());
    let read = |tensor: Tensor<Flex, 3>| tensor.into_data().to_vec::<f32>().unwrap();
    let outputs = memory.outputs(&both, BnStatistics::Running);
    let alone = patterns(1).tasks(1..2, &Default::default());
    let adapted = memory.adapt(&alone.support);
    let query = adapted.predict(alone.queries.inputs.narrow(1, 1, 1));
    let expected = outputs.narrow(0, 1, 1).narrow(1, 1, 1);
    for (found, expected) in read(query).iter().zip(read(expected)) {
        assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
    }
}

#[test]
fn patterns_of_another_length_are_refused() {
    let sampler = PatternSampler::new(LENGTH + 2, 3, 2, 1).unwrap();
    let batch = sampler.tasks::<A>(0..1, &Default::default());
    let error = memory::<A>().check(&batch).unwrap_err();
    assert_eq!(error, AdaptError::Outputs { wanted: LENGTH + 2, found: LENGTH });
}
