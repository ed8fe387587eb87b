use burn::backend::Flex;
use fewshot::learners::heads::{AfterPower, Head, PtMap};

use super::numbers::*;

const LABELS: [usize; 4] = [0, 1, 1, 0];

fn prepared(rows: &[f64], centred: bool) -> Vec<Vec<f64>> {
    let unit = |row: Vec<f64>| {
        let length = dot(&row, &row).sqrt();
        row.into_iter().map(|x| x / length).collect::<Vec<_>>()
    };
    let powers = rows.chunks(5).map(|row| row.iter().map(|x| (x.max(0.0) + 1e-6).sqrt()).collect());
    if !centred {
        return powers.collect();
    }
    let units: Vec<Vec<f64>> = powers.map(unit).collect();
    let mean = |at: usize| units.iter().map(|row| row[at]).sum::<f64>() / units.len() as f64;
    let mean: Vec<f64> = (0..5).map(mean).collect();
    units.iter().map(|row| unit(row.iter().zip(&mean).map(|(x, m)| x - m).collect())).collect()
}

/// The plan for these prototypes, after so many iterations that no more of them change it.
fn transported(queries: &[Vec<f64>], prototypes: &[Vec<f64>; 2], lambda: f64) -> Vec<[f64; 2]> {
    let near = |query: &Vec<f64>, class: usize| {
        let difference = query.iter().zip(&prototypes[class]).map(|(a, b)| (a - b) * (a - b));
        (-lambda * difference.sum::<f64>()).exp()
    };
    let mut plan: Vec<[f64; 2]> =
        queries.iter().map(|query| [near(query, 0), near(query, 1)]).collect();
    for _ in 0..5000 {
        plan.iter_mut().for_each(|[a, b]| (*a, *b) = (*a / (*a + *b), *b / (*a + *b)));
        let sums = [0, 1].map(|class| plan.iter().map(|row| row[class]).sum::<f64>());
        let mass = queries.len() as f64 / 2.0;
        plan.iter_mut().for_each(|row| *row = [0, 1].map(|at| row[at] * mass / sums[at]));
    }
    plan
}

fn wanted(rows: &[f64], queries: &[f64], centred: bool, steps: usize, rate: f64) -> Vec<f64> {
    let (rows, queries) = (prepared(rows, centred), prepared(queries, centred));
    let mean = |class: usize, plan: &[[f64; 2]]| -> Vec<f64> {
        let shares = LABELS.iter().map(|&l| f64::from(l == class));
        let all: Vec<_> = rows.iter().zip(shares).collect();
        let all: Vec<_> =
            all.into_iter().chain(queries.iter().zip(plan.iter().map(|row| row[class]))).collect();
        let total: f64 = all.iter().map(|(_, share)| share).sum();
        let sum = |at: usize| all.iter().map(|(row, share)| row[at] * share).sum::<f64>();
        (0..5).map(|at| sum(at) / total).collect()
    };
    let mut prototypes = [0, 1].map(|class| mean(class, &[]));
    for _ in 0..steps {
        let plan = transported(&queries, &prototypes, 10.0);
        prototypes = [0, 1].map(|class| {
            let estimates = mean(class, &plan);
            prototypes[class].iter().zip(estimates).map(|(p, m)| p + rate * (m - p)).collect()
        });
    }
    transported(&queries, &prototypes, 10.0).concat()
}

#[test]
fn prototypes_move_to_what_is_transported_to_them() {
    let (rows, queries) = (drawn(20, 11), drawn(35, 12));
    let power_alone = PtMap { after_power: AfterPower::Nothing, steps: 10, ..PtMap::new() };
    for (head, centred, steps, rate) in [
        (PtMap::new(), true, 20, 0.2),
        (PtMap { steps: 3, rate: 0.5, ..PtMap::new() }, true, 3, 0.5),
        (power_alone, false, 10, 0.2),
    ] {
        let found = head.logits(support::<Flex>(&rows, &LABELS, 2), tensor(&queries, [1, 7, 5]));
        let wanted = wanted(&rows, &queries, centred, steps, rate);
        assert_near(&values(found.exp()), &wanted, 1e-4);
    }
}

#[test]
fn what_all_embeddings_have_in_common_hides_nothing() {
    let far = |count: usize, seed: u64| -> Vec<f64> {
        drawn(count, seed).iter().map(|x| f64::from((x + 50.0) as f32)).collect()
    };
    let (rows, queries) = (far(20, 11), far(35, 12));
    let found =
        PtMap::new().logits(support::<Flex>(&rows, &LABELS, 2), tensor(&queries, [1, 7, 5]));
    let wanted = wanted(&rows, &queries, true, 20, 0.2);
    assert!(wanted.iter().any(|share| *share > 0.9), "{wanted:?}");
    assert_near(&values(found.exp()), &wanted, 5e-3);
}

/// The masses of queries and of classes.
fn masses(head: PtMap, queries: &[f64]) -> [Vec<f64>; 2] {
    let rows = drawn(20, 13);
    let found =
        head.logits(support::<Flex>(&rows, &LABELS, 2), tensor(queries, [1, queries.len() / 5, 5]));
    let plan = found.exp();
    [values(plan.clone().sum_dim(2)), values(plan.sum_dim(1))]
}

#[test]
fn every_query_has_a_mass_of_one_and_every_class_its_share() {
    let [of_queries, of_classes] = masses(PtMap::new(), &drawn(65, 14));
    assert_near(&of_queries, &[1.0; 13], 1e-5);
    assert_near(&of_classes, &[6.5; 2], 1e-5);
}

#[test]
fn masses_hold_where_exponentials_would_vanish() {
    // Squared distances of hundreds, all queries nearer to the same class.
    let queries: Vec<f64> = drawn(50, 15).iter().map(|x| 300.0 + 10.0 * x).collect();
    let (steps, rate, after_power) = (2, 0.1, AfterPower::Nothing);
    let head = PtMap { steps, rate, after_power, ..PtMap::new() };
    let [of_queries, of_classes] = masses(head, &queries);
    assert_near(&of_queries, &[1.0; 10], 1e-3);
    assert_near(&of_classes, &[5.0; 2], 1e-5);
}
