use burn::backend::Flex;
use fewshot::learners::heads::{Finetune, Head};

use super::descending::{Adam, Task, assert_near, cosine, gradient};

fn moved(task: &Task, steps: usize, rate: f64, temperature: f64) -> Vec<f64> {
    let loss = |w: &[f64]| {
        let w: Vec<_> = w.chunks(task.features).collect();
        task.cross_entropy(|x, k| temperature * cosine(x, w[k]))
    };
    let mut weights = task.prototypes();
    let mut adam = Adam::new(rate);
    for _ in 0..steps {
        let slopes = gradient(&loss, &weights);
        adam.step(&mut weights, &slopes);
    }
    weights
}

#[test]
fn prototypes_move_by_adam() {
    let task = Task::new(2, 6, 0.8, 1);
    for steps in [1, 2, 40] {
        let head = Finetune { steps, rate: 0.02, temperature: 10.0 };
        let found = head.class_weights(task.support::<Flex>());
        assert_near(found, &moved(&task, steps, 0.02, 10.0), 2e-4);
    }
}

#[test]
fn defaults_are_two_hundred_steps_of_a_ten_thousandth() {
    let task = Task::new(2, 6, 0.8, 1);
    let found = Finetune::new().class_weights(task.support::<Flex>());
    assert_near(found, &moved(&task, 200, 1e-4, 1.0), 1e-5);
}

#[test]
fn logits_are_the_temperature_times_cosines() {
    let task = Task::new(2, 6, 0.8, 1);
    let head = Finetune { steps: 50, temperature: 10.0, ..Finetune::new() };
    let weights = moved(&task, 50, 1e-4, 10.0);
    let of =
        |x: &[f64]| weights.chunks(task.features).map(|w| 10.0 * cosine(x, w)).collect::<Vec<_>>();
    let wanted: Vec<f64> = task.queries.chunks(task.features).flat_map(of).collect();
    let fitted = Head::<Flex>::fit(&head, task.support());
    assert_near(fitted.logits(task.queries()), &wanted, 1e-4);
}
