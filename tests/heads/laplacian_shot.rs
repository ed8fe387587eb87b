use burn::backend::Flex;
use burn::tensor::{Int, Tensor};
use fewshot::learners::heads::{
    EmbeddedSupport, Head, LaplacianShot, LengthNormalisation, RectificationWeights, ScoredQueries,
};

use super::numbers::*;

const LABELS: [usize; 4] = [0, 1, 1, 0];
const QUERIES: usize = 9;

type Rows = Vec<Vec<f64>>;

/// What differs from the paper.
#[derive(Clone, Copy)]
struct Case {
    lambda: f64,
    neighbours: usize,
    steps: usize,
    tolerance: f64,
}

const PAPER: Case = Case { lambda: 1.0, neighbours: 3, steps: 20, tolerance: 1e-6 };

fn unit(row: Vec<f64>) -> Vec<f64> {
    let length = dot(&row, &row).sqrt();
    row.into_iter().map(|x| x / length).collect()
}

fn mean(rows: &[Vec<f64>]) -> Vec<f64> {
    let sum = |at: usize| rows.iter().map(|row| row[at]).sum::<f64>();
    (0..3).map(|at| sum(at) / rows.len() as f64).collect()
}

fn far(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

fn softmax(logits: [f64; 2]) -> [f64; 2] {
    let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
    logits.map(|logit| logit.exp() / sum)
}

/// Unit length after the mean is taken off, queries shifted, and prototypes rectified.
fn rectified(rows: &[f64], queries: &[f64], base: [f64; 3]) -> ([Vec<f64>; 2], Rows) {
    let read = |x: &[f64]| -> Rows {
        x.chunks(3).map(|row| unit(row.iter().zip(base).map(|(x, m)| x - m).collect())).collect()
    };
    let (rows, queries) = (read(rows), read(queries));
    let (to, from) = (mean(&rows), mean(&queries));
    let move_by = |row: &Vec<f64>| (0..3).map(|at| row[at] + to[at] - from[at]).collect();
    let queries: Rows = queries.iter().map(move_by).collect();
    let of = |class| -> Rows {
        rows.iter().zip(LABELS).filter(|(_, l)| *l == class).map(|(row, _)| row.clone()).collect()
    };
    let basic = [0, 1].map(|class| unit(mean(&of(class))));
    let shares = |x: &Vec<f64>| softmax([0, 1].map(|k| 10.0 * dot(&unit(x.clone()), &basic[k])));
    let prototypes = [0, 1].map(|class| {
        let near = queries.iter().filter(|x| shares(x)[class] > 0.5);
        let members = of(class).into_iter().chain(near.cloned());
        let weighted = members.map(|x| x.iter().map(|v| v * shares(&x)[class]).collect());
        mean(&weighted.collect::<Rows>())
    });
    (prototypes, queries)
}

fn affinities(queries: &Rows, case: Case) -> Vec<Vec<f64>> {
    let mut found = vec![vec![0.0; queries.len()]; queries.len()];
    for (at, query) in queries.iter().enumerate() {
        let mut others: Vec<usize> = (0..queries.len()).filter(|other| *other != at).collect();
        others.sort_by(|a, b| far(query, &queries[*a]).total_cmp(&far(query, &queries[*b])));
        for &other in &others[..case.neighbours.min(others.len())] {
            found[at][other] = 1.0;
        }
    }
    found
}

/// `log y`, and the number of steps.
fn wanted(rows: &[f64], queries: &[f64], base: [f64; 3], case: Case) -> (Vec<f64>, usize) {
    let (prototypes, queries) = rectified(rows, queries, base);
    let unary: Vec<[f64; 2]> =
        queries.iter().map(|query| [0, 1].map(|k| far(query, &prototypes[k]))).collect();
    let affinities = affinities(&queries, case);
    let pulled = |y: &[[f64; 2]], at: usize, class: usize| -> f64 {
        case.lambda * affinities[at].iter().zip(y).map(|(w, y)| w * y[class]).sum::<f64>()
    };
    let mut y: Vec<[f64; 2]> = unary.iter().map(|a| softmax(a.map(|a| -a))).collect();
    let (mut before, mut steps) = (f64::INFINITY, 0);
    for step in 0..case.steps {
        y = (0..y.len())
            .map(|at| softmax([0, 1].map(|class| pulled(&y, at, class) - unary[at][class])))
            .collect();
        steps += 1;
        let bound = (0..2 * y.len())
            .map(|i| (i / 2, i % 2))
            .map(|(at, k)| y[at][k] * (y[at][k].ln() + unary[at][k] - pulled(&y, at, k)))
            .sum::<f64>();
        if step > 1 && (bound - before).abs() <= case.tolerance * before.abs() {
            break;
        }
        before = bound;
    }
    (y.iter().flatten().map(|y| y.ln()).collect(), steps)
}

fn head(case: Case) -> LaplacianShot<Flex> {
    let Case { lambda, neighbours, steps, tolerance } = case;
    LaplacianShot { lambda, neighbours, steps, tolerance, ..LaplacianShot::new() }
}

#[test]
fn neighbours_pull_each_other_until_the_bound_stays() {
    let (rows, queries) = (drawn(12, 21), drawn(3 * QUERIES, 22));
    for case in [
        PAPER,
        Case { lambda: 0.3, neighbours: 2, steps: 4, tolerance: 0.0 },
        Case { tolerance: 1e-2, ..PAPER },
        Case { steps: 0, ..PAPER },
        Case { neighbours: 50, lambda: 0.2, ..PAPER },
    ] {
        let found =
            head(case).logits(support(&rows, &LABELS, 2), tensor(&queries, [1, QUERIES, 3]));
        assert_near(&values(found), &wanted(&rows, &queries, [0.0; 3], case).0, 1e-4);
    }
}

#[test]
fn the_paper_has_three_neighbours_and_twenty_steps() {
    let (rows, queries) = (drawn(12, 23), drawn(3 * QUERIES, 24));
    let found = LaplacianShot::<Flex>::new()
        .logits(support(&rows, &LABELS, 2), tensor(&queries, [1, QUERIES, 3]));
    assert_near(&values(found), &wanted(&rows, &queries, [0.0; 3], PAPER).0, 1e-4);
}

#[test]
fn a_base_mean_is_taken_off_before_embeddings_get_unit_length() {
    let (rows, queries, base) = (drawn(12, 25), drawn(3 * QUERIES, 26), [0.3, -0.2, 0.5]);
    let head = LaplacianShot::<Flex>::new().with_base_mean(tensor(&base, [3]));
    let found = head.logits(support(&rows, &LABELS, 2), tensor(&queries, [1, QUERIES, 3]));
    assert_near(&values(found), &wanted(&rows, &queries, base, PAPER).0, 1e-4);
}

#[test]
fn a_task_stops_by_itself() {
    let case = Case { tolerance: 1e-3, ..PAPER };
    let (rows, queries) = (drawn(24, 27), drawn(6 * QUERIES, 28));
    let parts: Vec<_> = (0..2)
        .map(|task| {
            let queries = &queries[3 * QUERIES * task..3 * QUERIES * (task + 1)];
            wanted(&rows[12 * task..12 * (task + 1)], queries, [0.0; 3], case)
        })
        .collect();
    assert_ne!(parts[0].1, parts[1].1, "tasks that need different numbers of steps");
    let labels =
        Tensor::<Flex, 2, Int>::from_data([[0, 1, 1, 0], [0, 1, 1, 0]], &Default::default());
    let support = EmbeddedSupport::new(tensor(&rows, [2, 4, 3]), labels, 2);
    let found = head(case).logits(support, tensor(&queries, [2, QUERIES, 3]));
    assert_near(&values(found), &[parts[0].0.clone(), parts[1].0.clone()].concat(), 1e-4);
}

#[test]
fn lengths_and_weights_and_queries_can_be_those_of_bd_cspn() {
    let (rows, queries) = (drawn(12, 31), drawn(3 * QUERIES, 32));
    let of = |scale: f64, lengths, scored| {
        let weights = RectificationWeights::WithinClass;
        let head =
            LaplacianShot::<Flex> { weights, scale, lengths, scored, ..LaplacianShot::new() };
        values(head.logits(support(&rows, &LABELS, 2), tensor(&queries, [1, QUERIES, 3])))
    };
    let base = of(1.0, LengthNormalisation::Given, ScoredQueries::Unshifted);
    assert_ne!(base, of(1.0, LengthNormalisation::Given, ScoredQueries::Shifted));
    assert_ne!(base, of(1.0, LengthNormalisation::Unit, ScoredQueries::Unshifted));
    assert_ne!(base, of(10.0, LengthNormalisation::Given, ScoredQueries::Unshifted));
}
