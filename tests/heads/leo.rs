use burn::backend::Flex;
use burn::module::Param;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use fewshot::learners::heads::{Head, LengthNormalisation, Leo, LeoCodes, LeoConfig, LeoLoss};

use super::gradients::are_differences;
use super::numbers::*;

const D: usize = 4;
const L: usize = 3;
const LABELS: [usize; 5] = [0, 1, 1, 2, 0];

fn config() -> LeoConfig {
    LeoConfig::new(D)
        .with_latents(L)
        .with_steps(3)
        .with_fine_tuning_steps(2)
        .with_fine_tuning_rate(0.3)
        .with_lengths(LengthNormalisation::Given)
        .with_codes(LeoCodes::Mean)
}

/// With parameters that are the same on every backend, and a rate for each feature.
fn head<B: Backend>(config: LeoConfig) -> Leo<B> {
    let mut head = config.init(&Default::default());
    let drawn = |shape: [usize; 2], seed| {
        Param::from_tensor(tensor::<B, 2>(&drawn(shape[0] * shape[1], seed), shape))
    };
    head.encoder = drawn([D, L], 11);
    head.relations = [12, 13, 14].map(|seed| drawn([2 * L, 2 * L], seed)).into();
    head.decoder = drawn([L, 2 * D], 15);
    head.rates = Param::from_tensor(tensor(&[0.4, 0.2, 0.6], [L]));
    head.fine_tuning_rates = Param::from_tensor(tensor(&[0.1, 0.3, 0.2, 0.5], [D]));
    head
}

/// With smaller parameters, from which no draw steps away without bound.
fn drawing(dropout: f64) -> Leo<Trained> {
    let mut head = head(config().with_codes(LeoCodes::Drawn).with_dropout(dropout));
    let less =
        |weight: &Param<Tensor<Trained, 2>>| Param::from_tensor((weight.val() * 0.3).detach());
    (head.decoder, head.relations) =
        (less(&head.decoder), head.relations.iter().map(less).collect());
    head
}

/// `x W`, the first `columns` of it, of a row.
fn times(x: &[f64], weight: &[f64], columns: usize) -> Vec<f64> {
    let width = weight.len() / x.len();
    (0..columns).map(|to| (0..x.len()).map(|at| x[at] * weight[at * width + to]).sum()).collect()
}

fn rectified(x: Vec<f64>) -> Vec<f64> {
    x.into_iter().map(|x| x.max(0.0)).collect()
}

/// Mean codes of all classes, one after the other.
fn codes(head: &Leo<Flex>, rows: &[f64], ways: usize) -> Vec<f64> {
    moments(head, rows, ways).chunks(2 * L).flat_map(|of| of[..L].to_vec()).collect()
}

/// Of each class, means and what deviations of codes are made of.
fn moments(head: &Leo<Flex>, rows: &[f64], ways: usize) -> Vec<f64> {
    let encoder = values(head.encoder.val());
    let layers: Vec<_> = head.relations.iter().map(|layer| values(layer.val())).collect();
    let encoded: Vec<_> = rows.chunks(D).map(|row| times(row, &encoder, L)).collect();
    let of_class = |class: usize| {
        let mut related = Vec::new();
        for left in (0..LABELS.len()).filter(|&at| LABELS[at] == class) {
            for right in &encoded {
                let pair = [encoded[left].as_slice(), right].concat();
                let hidden = rectified(times(&pair, &layers[0], 2 * L));
                let hidden = rectified(times(&hidden, &layers[1], 2 * L));
                related.push(times(&hidden, &layers[2], 2 * L));
            }
        }
        let count = related.len() as f64;
        (0..2 * L)
            .map(move |at| related.iter().map(|of| of[at]).sum::<f64>() / count)
            .collect::<Vec<_>>()
    };
    (0..ways).flat_map(of_class).collect()
}

/// The sum of the cross-entropy of the support.
fn loss(rows: &[f64], weights: &[f64]) -> f64 {
    let of = |(row, &label): (&[f64], &usize)| {
        let logits: Vec<f64> = weights.chunks(D).map(|weights| dot(weights, row)).collect();
        logits.iter().map(|logit| logit.exp()).sum::<f64>().ln() - logits[label]
    };
    rows.chunks(D).zip(&LABELS).map(of).sum()
}

fn decoded(codes: &[f64], decoder: &[f64]) -> Vec<f64> {
    codes.chunks(L).flat_map(|code| times(code, decoder, D)).collect()
}

/// Steps down central differences of `loss`, whose share in each class's step is `share`.
fn stepped(
    mut x: Vec<f64>,
    steps: usize,
    rates: &[f64],
    share: impl Fn(usize) -> f64,
    loss: impl Fn(&[f64]) -> f64,
) -> Vec<f64> {
    let h = 1e-5;
    for _ in 0..steps {
        let slope = |at: usize| {
            let moved = |by: f64| {
                let mut x = x.clone();
                x[at] += by;
                loss(&x)
            };
            (moved(h) - moved(-h)) / (2.0 * h)
        };
        let k = rates.len();
        x = (0..x.len()).map(|at| x[at] - rates[at % k] * share(at / k) * slope(at)).collect();
    }
    x
}

#[test]
fn codes_and_then_weights_step_down_the_loss_of_the_support() {
    let (rows, queries) = (drawn(20, 1), drawn(12, 2));
    let (steps, fine_tuning_steps) = (3, 2);
    let shots = [2.0, 2.0, 1.0];
    let of = |kind: LeoLoss, share: &dyn Fn(usize) -> f64| {
        let head = head::<Flex>(config().with_loss(kind));
        let decoder = values(head.decoder.val());
        let (rates, fine_rates) = (values(head.rates.val()), values(head.fine_tuning_rates.val()));
        let first = codes(&head, &rows, 3);
        let by_codes = |codes: &[f64]| loss(&rows, &decoded(codes, &decoder));
        let last = stepped(first.clone(), steps, &rates, share, by_codes);
        let weights = decoded(&last, &decoder);
        let tuned =
            stepped(weights.clone(), fine_tuning_steps, &fine_rates, share, |w| loss(&rows, w));
        let [before, between, after] =
            [&decoded(&first, &decoder), &weights, &tuned].map(|weights| loss(&rows, weights));
        assert!(between < 0.98 * before && after < 0.98 * between, "{before} {between} {after}");
        let wanted: Vec<f64> =
            queries.chunks(D).flat_map(|q| tuned.chunks(D).map(move |w| dot(q, w))).collect();
        assert_near(&logits(&head, support(&rows, &LABELS, 3), &queries), &wanted, 2e-5);
        values(head.adapted(support::<Flex>(&rows, &LABELS, 3)))
    };
    let sum = of(LeoLoss::Sum, &|_| 1.0);
    let per_shot = of(LeoLoss::PerShot, &|class| 1.0 / shots[class]);
    let mean = of(LeoLoss::Mean, &|_| 0.2);
    assert!(sum != per_shot && per_shot != mean);
}

#[test]
fn all_parameters_are_learned_through_all_steps() {
    let (rows, queries) = (drawn(20, 4), tensor(&drawn(12, 5), [1, 3, D]));
    are_differences(&head::<Trained>(config()), 7, 1e-3, |head| {
        weighted(head.fit(support(&rows, &LABELS, 3)).logits(queries.clone()), 6)
    });
}

#[test]
fn only_training_draws() {
    let rows = drawn(20, 4);
    let config = config().with_codes(LeoCodes::Drawn).with_dropout(0.2);
    let queries = drawn(12, 5);
    let of = |head: &Leo<Flex>| logits(head, support(&rows, &LABELS, 3), &queries);
    assert_eq!(of(&head(config)), of(&head(self::config())));
    for dropout in [0.0, 0.2] {
        let training = drawing(dropout);
        let drawn = || logits(&training, support(&rows, &LABELS, 3), &queries);
        let (one, other) = (drawn(), drawn());
        assert!(one != other && one.iter().chain(&other).all(|logit| logit.is_finite()));
    }
}

#[test]
fn draws_have_a_gradient_by_means_and_deviations() {
    let head = drawing(0.0);
    let fitted = head.fit(support(&drawn(20, 4), &LABELS, 3));
    let gradients = weighted(fitted.logits(tensor(&drawn(12, 5), [1, 3, D])), 6).backward();
    let decoder = values(head.decoder.val().grad(&gradients).unwrap());
    let moving = |columns: std::ops::Range<usize>| {
        decoder.chunks(2 * D).any(|row| row[columns.clone()].iter().any(|slope| slope.abs() > 1e-4))
    };
    assert!(moving(0..D) && moving(D..2 * D), "{decoder:?}");
    for layer in &head.relations {
        let slopes = values(layer.val().grad(&gradients).unwrap());
        assert!(slopes.iter().all(|slope| slope.is_finite()) && slopes.iter().any(|x| *x != 0.0));
    }
}

#[test]
fn penalties_are_added_to_the_loss() {
    let labels = || Tensor::from_data([[2, 0, 1]], &Default::default());
    let logits = || tensor::<Flex, 3>(&drawn(9, 3), [1, 3, 3]);
    let of = |l2: f64, orthogonality: f64| {
        let config = config().with_l2_penalty(l2).with_orthogonality_penalty(orthogonality);
        values(head::<Flex>(config).loss(logits(), labels()))[0]
    };
    let head = head::<Flex>(config());
    let squares = |weight: &Param<Tensor<Flex, 2>>| {
        let weight = values(weight.val());
        dot(&weight, &weight)
    };
    let decoder = values(head.decoder.val());
    let rows: Vec<&[f64]> = decoder.chunks(2 * D).collect();
    let mut correlated = 0.0;
    for (i, a) in rows.iter().enumerate() {
        for (j, b) in rows.iter().enumerate() {
            correlated += (cosine(a, b) - f64::from(i == j)).powi(2) / (L * L) as f64;
        }
    }
    let all = squares(&head.encoder) + squares(&head.decoder);
    let all = all + head.relations.iter().map(squares).sum::<f64>();
    let rest = of(0.0, 0.0);
    assert_near(&[of(0.1, 0.0) - rest], &[0.05 * all], 1e-5);
    assert_near(&[of(0.0, 3.0) - rest], &[3.0 * correlated], 1e-5);
}

#[test]
fn penalties_on_codes_are_added_in_training() {
    let (rows, queries) = (drawn(20, 1), drawn(12, 2));
    let of = |divergence: f64, codes: f64| {
        let config = config().with_loss(LeoLoss::Sum);
        let config = config.with_divergence_penalty(divergence).with_code_penalty(codes);
        let labels = Tensor::from_data([[2, 0, 1]], &Default::default());
        let queries = tensor(&queries, [1, 3, D]);
        let support = support(&rows, &LABELS, 3);
        let head = head::<Flex>(config);
        let logits = Head::logits(&head, support.clone(), queries.clone());
        let (_, loss) = head.train_loss(episode(support, queries, labels));
        (values(logits), values(loss)[0])
    };
    let head = head::<Flex>(config().with_loss(LeoLoss::Sum));
    let divergence = |moments: &[f64]| {
        let of = |at: usize| {
            let (mean, deviation) = (moments[at], (moments[L + at].exp() - 1.0).max(1e-10));
            (mean * mean + deviation * deviation - 1.0) / 2.0 - deviation.ln()
        };
        (0..L).map(of).sum::<f64>()
    };
    let divergences = moments(&head, &rows, 3).chunks(2 * L).map(divergence).sum::<f64>();
    let decoder = values(head.decoder.val());
    let first = codes(&head, &rows, 3);
    let by_codes = |codes: &[f64]| loss(&rows, &decoded(codes, &decoder));
    let last = stepped(first.clone(), 3, &values(head.rates.val()), |_| 1.0, by_codes);
    let count = first.len() as f64;
    let (logits, rest) = of(0.0, 0.0);
    assert_near(
        &logits,
        &super::numbers::logits(&head, support(&rows, &LABELS, 3), &queries),
        1e-6,
    );
    assert_near(&[of(0.1, 0.0).1 - rest], &[0.1 * divergences / count], 1e-4);
    assert_near(&[of(0.0, 3.0).1 - rest], &[3.0 * square_distance(&first, &last) / count], 1e-4);
}

#[test]
fn embeddings_have_length_one_unless_given_lengths_are_kept() {
    let (rows, queries) = (drawn(20, 1), drawn(12, 2));
    let config = || config().with_lengths(LengthNormalisation::Unit);
    let scaled = |values: &[f64]| values.iter().map(|x| 8.0 * x).collect::<Vec<_>>();
    let of = |head: &Leo<Flex>, factor: fn(f64) -> f64| {
        let rows: Vec<f64> = rows.iter().map(|&x| factor(x)).collect();
        logits(head, support(&rows, &LABELS, 3), &scaled(&queries))
    };
    let unit = head::<Flex>(config());
    assert_near(&of(&unit, |x| x), &of(&unit, |x| 8.0 * x), 1e-5);
    let units = |values: &[f64]| {
        values.chunks(D).flat_map(|x| x.iter().map(|v| v / dot(x, x).sqrt())).collect::<Vec<f64>>()
    };
    let given = head::<Flex>(self::config());
    let wanted = logits(&given, support(&units(&rows), &LABELS, 3), &units(&queries));
    assert_near(&of(&unit, |x| x), &wanted, 1e-5);
}

#[test]
fn one_class_one_shot_and_features_of_zero_have_finite_logits() {
    for ways in [1, 3] {
        let labels: Vec<usize> = (0..ways).collect();
        let config = || LeoConfig::new(D).with_rate(0.05);
        let test: Leo<Flex> = config().init(&Default::default());
        let training: Leo<Trained> = config().init(&Default::default());
        let zeros = vec![0.0; ways * D];
        assert!(logits(&test, support(&zeros, &labels, ways), &zeros).iter().all(|x| *x == 0.0));
        let rows = drawn(ways * D, 3);
        for rows in [zeros, rows] {
            let found = logits(&training, support(&rows, &labels, ways), &rows);
            assert!(found.len() == ways * ways && found.iter().all(|x| x.is_finite()), "{found:?}");
        }
    }
}
