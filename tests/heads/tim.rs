use burn::backend::Flex;
use fewshot::learners::heads::{Head, Tim, TimSolver};

use super::descending::{
    Adam, Task, assert_near, cosine, entropy, gradient, mean_entropy, square_distance,
};

/// Temperature, and weights of the cross-entropy, the marginal and the conditional entropy.
const PAPER: [f64; 4] = [15.0, 0.1, 1.0, 0.1];

type Score = fn(&[f64], &[f64]) -> f64;

fn half_square(x: &[f64], w: &[f64]) -> f64 {
    -0.5 * square_distance(x, w)
}

/// Predictions for support and queries.
fn predicted(task: &Task, w: &[f64], score: Score, temperature: f64) -> [Vec<Vec<f64>>; 2] {
    let w: Vec<_> = w.chunks(task.features).collect();
    [&task.support, &task.queries]
        .map(|rows| task.probabilities(rows, |x, k| temperature * score(x, w[k])))
}

fn mean(all: &[Vec<f64>]) -> Vec<f64> {
    let of = |k: usize| all.iter().map(|p| p[k]).sum::<f64>() / all.len() as f64;
    (0..all[0].len()).map(of).collect()
}

fn cross_entropy(task: &Task, p: &[Vec<f64>]) -> f64 {
    let of = p.iter().enumerate().map(|(i, p)| -p[task.label(i)].ln());
    of.sum::<f64>() / p.len() as f64
}

fn loss(task: &Task, w: &[f64], score: Score, [temperature, c, m, h]: [f64; 4]) -> f64 {
    let [labelled, p] = predicted(task, w, score, temperature);
    c * cross_entropy(task, &labelled) - m * entropy(&mean(&p)) + h * mean_entropy(&p)
}

/// What the alternating method lowers, with a distribution `q` for each query.
fn relaxed(task: &Task, w: &[f64], q: &[Vec<f64>], [temperature, c, m, h]: [f64; 4]) -> f64 {
    let [labelled, p] = predicted(task, w, half_square, temperature);
    let each = |of: fn(f64, f64) -> f64| {
        let pairs = q.iter().flatten().zip(p.iter().flatten());
        pairs.map(|(&q, &p)| of(q, p)).sum::<f64>() / q.len() as f64
    };
    c * cross_entropy(task, &labelled) - m * entropy(&mean(q))
        + h * each(|q, p| -q * p.ln())
        + each(|q, p| q * (q / p).ln())
}

/// The paper's closed form.
fn assigned(task: &Task, w: &[f64], [temperature, _, m, h]: [f64; 4]) -> Vec<Vec<f64>> {
    let [_, p] = predicted(task, w, half_square, temperature);
    let size = |k: usize| p.iter().map(|p| p[k].powf(1.0 + h)).sum::<f64>();
    let sizes: Vec<f64> = (0..task.ways).map(|k| size(k).powf(m / (1.0 + m))).collect();
    let of = |p: &Vec<f64>| {
        let all: Vec<f64> = p.iter().zip(&sizes).map(|(p, size)| p.powf(1.0 + h) / size).collect();
        let sum: f64 = all.iter().sum();
        all.into_iter().map(|value| value / sum).collect()
    };
    p.iter().map(of).collect()
}

/// Class weights after one alternation.
fn alternated(task: &Task, w: &[f64], settings: [f64; 4]) -> Vec<f64> {
    let [temperature, c, _, h] = settings;
    let [labelled, p] = predicted(task, w, half_square, temperature);
    let q = assigned(task, w, settings);
    let a = c / (1.0 + h);
    let b = labelled.len() as f64 / p.len() as f64;
    let one = |i: usize, k: usize| f64::from(u8::from(task.label(i) == k));
    let of = |k: usize, j: usize| {
        let w = w[k * task.features + j];
        let (mut above, mut below) = (0.0, 0.0);
        for (i, x) in task.support.chunks(task.features).enumerate() {
            above += a * (one(i, k) * x[j] + labelled[i][k] * (w - x[j]));
            below += a * one(i, k);
        }
        for (i, x) in task.queries.chunks(task.features).enumerate() {
            above += b * (q[i][k] * x[j] + p[i][k] * (w - x[j]));
            below += b * q[i][k];
        }
        above / below
    };
    (0..w.len()).map(|i| of(i / task.features, i % task.features)).collect()
}

fn class_weights(task: &Task, head: &Tim) -> Vec<f64> {
    let found = head.class_weights(task.support::<Flex>(), task.queries());
    found.into_data().iter::<f64>().collect()
}

#[test]
fn gradient_descent_takes_the_steps_of_adam() {
    let tim = Tim::new(TimSolver::Gd);
    let of_paper = Task::new(2, 9, 0.8, 1);
    let cases: [(_, _, Score, _, _); 2] = [
        (tim, of_paper.normalized(), half_square, PAPER, 1e-4),
        (Tim::easyfsl(), Task::new(2, 9, 0.8, 1), cosine, [10.0, 1.0, 1.0, 0.1], 1e-4),
    ];
    for (head, task, score, settings, rate) in cases {
        for (steps, rate) in [(50, rate), (30, 0.01)] {
            let mut wanted = task.prototypes();
            let mut adam = Adam::new(rate);
            for _ in 0..steps {
                let slopes = gradient(&|w| loss(&task, w, score, settings), &wanted);
                adam.step(&mut wanted, &slopes);
            }
            let head = Tim { steps, rate, ..head.clone() };
            let found = head.class_weights(of_paper.support::<Flex>(), of_paper.queries());
            assert_near(found, &wanted, 0.05 * rate);
        }
    }
}

#[test]
fn alternations_are_those_of_the_paper() {
    let raw = Task::new(2, 9, 0.8, 1);
    let task = raw.normalized();
    for settings in [PAPER, [8.0, 0.5, 0.7, 0.3]] {
        let [temperature, c, m, h] = settings;
        let mut wanted = task.prototypes();
        for steps in 1..=20 {
            wanted = alternated(&task, &wanted, settings);
            let head = Tim {
                temperature,
                cross_entropy: c,
                marginal_entropy: m,
                conditional_entropy: h,
                steps,
                ..Tim::new(TimSolver::Adm)
            };
            assert_near(head.class_weights(raw.support::<Flex>(), raw.queries()), &wanted, 1e-4);
        }
    }
}

#[test]
fn alternations_never_raise_the_objective_of_clustered_queries() {
    for seed in [1, 10, 20, 30] {
        let raw = Task::new(1, 12, 0.5, seed);
        let task = raw.normalized();
        let mut before = f64::INFINITY;
        let mut loss_before = f64::INFINITY;
        for steps in (1..10).chain((10..160).step_by(15)) {
            let w = class_weights(&raw, &Tim { steps, ..Tim::new(TimSolver::Adm) });
            let after = relaxed(&task, &w, &assigned(&task, &w, PAPER), PAPER);
            assert!(after <= before + 1e-6, "{after} after {before}, step {steps} of {seed}");
            let loss_after = loss(&task, &w, half_square, PAPER);
            assert!(loss_after <= loss_before + 1e-6, "{loss_after} after {loss_before}");
            (before, loss_before) = (after, loss_after);
        }
        let gain = relaxed_at_start(&task) - before;
        assert!(gain > 1e-4, "{gain} was won with seed {seed}");
    }
}

fn relaxed_at_start(task: &Task) -> f64 {
    let w = task.prototypes();
    relaxed(task, &w, &assigned(task, &w, PAPER), PAPER)
}

#[test]
fn alternations_end_where_the_objective_is_flat_in_the_weights() {
    let raw = Task::new(2, 12, 0.4, 1);
    let task = raw.normalized();
    let w = class_weights(&raw, &Tim { steps: 2000, ..Tim::new(TimSolver::Adm) });
    let q = assigned(&task, &w, PAPER);
    let slopes = gradient(&|w| relaxed(&task, w, &q, PAPER), &w);
    let largest = |slopes: &[f64]| slopes.iter().map(|slope| slope.abs()).fold(0.0, f64::max);
    let first = gradient(&|w| relaxed(&task, w, &q, PAPER), &task.prototypes());
    assert!(largest(&first) > 1e-2 && largest(&slopes) < 5e-4, "{slopes:?} after {first:?}");
}

#[test]
fn logits_are_half_squared_distances_and_the_paper_has_a_thousand_steps_or_a_hundred_and_fifty() {
    let raw = Task::new(2, 9, 0.8, 1);
    let task = raw.normalized();
    for (solver, steps) in [(TimSolver::Gd, 1000), (TimSolver::Adm, 150)] {
        let head = Tim::new(solver);
        let w = class_weights(&raw, &Tim { steps, ..head.clone() });
        let of = |x: &[f64]| {
            w.chunks(task.features).map(|w| 15.0 * half_square(x, w)).collect::<Vec<_>>()
        };
        let wanted: Vec<f64> = task.queries.chunks(task.features).flat_map(of).collect();
        assert_near(head.logits(raw.support::<Flex>(), raw.queries()), &wanted, 1e-4);
    }
}
