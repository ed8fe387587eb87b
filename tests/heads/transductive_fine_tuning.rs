use burn::backend::Flex;
use fewshot::learners::heads::{EntropyUpdate, Head, Similarity, TransductiveFineTuning};

use super::descending::{
    Adam, Task, assert_near, cosine, dot, gradient, mean_entropy, normalized, square_distance,
};

type Logit = fn(&[f64], &[f64], f64) -> f64;

/// Logits of all queries after Adam has moved weights, and biases of all classes after them.
fn moved(
    task: &Task,
    start: Vec<f64>,
    logit: Logit,
    [steps, rate]: [f64; 2],
    update: EntropyUpdate,
) -> Vec<f64> {
    let of = |layer: &[f64], x: &[f64], k: usize| {
        let size = task.ways * task.features;
        logit(x, &layer[k * task.features..][..task.features], layer[size + k])
    };
    let by_labels = |layer: &[f64]| task.cross_entropy(|x, k| of(layer, x, k));
    let by_entropy =
        |layer: &[f64]| mean_entropy(&task.probabilities(&task.queries, |x, k| of(layer, x, k)));
    let mut layer = [start, vec![0.0; task.ways]].concat();
    let mut adam = Adam::new(rate);
    for _ in 0..steps as usize {
        match update {
            EntropyUpdate::Joint => {
                let slopes = gradient(&|layer| by_labels(layer) + by_entropy(layer), &layer);
                adam.step(&mut layer, &slopes);
            }
            EntropyUpdate::InTurn => {
                let slopes = gradient(&by_labels, &layer);
                adam.step(&mut layer, &slopes);
                let slopes = gradient(&by_entropy, &layer);
                adam.step(&mut layer, &slopes);
            }
        }
    }
    let queries = task.queries.chunks(task.features);
    queries.flat_map(|x| (0..task.ways).map(|k| of(&layer, x, k)).collect::<Vec<_>>()).collect()
}

#[test]
fn a_linear_layer_on_normalized_embeddings_takes_its_losses_in_turn() {
    let task = Task::new(2, 7, 0.8, 1);
    let start = normalized(&task.prototypes(), task.features);
    let linear: Logit = |x, w, b| dot(x, w) + b;
    for (steps, rate) in [(25.0, 5e-5), (20.0, 0.02)] {
        let wanted =
            moved(&task.normalized(), start.clone(), linear, [steps, rate], EntropyUpdate::InTurn);
        let published = TransductiveFineTuning::published();
        let head = TransductiveFineTuning { steps: steps as usize, rate, ..published.clone() };
        assert_near(head.logits(task.support::<Flex>(), task.queries()), &wanted, 0.01 * rate);
        let same = published.logits(task.support::<Flex>(), task.queries());
        let far = (same - head.logits(task.support(), task.queries())).abs().max().into_scalar();
        assert_eq!(far == 0.0, rate == 5e-5, "the published ones are the paper's");
    }
}

#[test]
fn by_default_cosines_take_their_losses_in_turn() {
    let task = Task::new(2, 7, 0.8, 1);
    let start = normalized(&task.prototypes(), task.features);
    let logit: Logit = |x, w, _| 15.0 * cosine(x, w);
    let wanted = moved(&task, start, logit, [25.0, 5e-5], EntropyUpdate::InTurn);
    let head = TransductiveFineTuning::new();
    assert_near(head.logits(task.support::<Flex>(), task.queries()), &wanted, 1e-4);
}

#[test]
fn a_layer_of_cosines_starts_with_directions() {
    let task = Task::new(2, 7, 0.8, 1);
    let start = normalized(&task.prototypes(), task.features);
    let logit: Logit = |x, w, _| 4.0 * cosine(x, w);
    let wanted = moved(&task, start, logit, [20.0, 0.02], EntropyUpdate::Joint);
    let head = TransductiveFineTuning {
        similarity: Similarity::Cosine,
        update: EntropyUpdate::Joint,
        steps: 20,
        rate: 0.02,
        temperature: 4.0,
    };
    assert_near(head.logits(task.support::<Flex>(), task.queries()), &wanted, 1e-3);
}

#[test]
fn easyfsl_moves_class_means_by_distances_that_are_not_squared() {
    let logit: Logit = |x, w, _| -square_distance(x, w).sqrt();
    for shots in [1, 3] {
        let task = Task::new(shots, 7, 0.8, 1);
        let wanted = moved(&task, task.prototypes(), logit, [25.0, 5e-5], EntropyUpdate::Joint);
        let head = TransductiveFineTuning::easyfsl();
        assert_near(head.logits(task.support::<Flex>(), task.queries()), &wanted, 2e-6);
        let wanted = moved(&task, task.prototypes(), logit, [20.0, 0.02], EntropyUpdate::Joint);
        let head = TransductiveFineTuning { steps: 20, rate: 0.02, ..head };
        assert_near(head.logits(task.support::<Flex>(), task.queries()), &wanted, 1e-3);
    }
}
