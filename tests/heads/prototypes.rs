use burn::backend::Flex;
use fewshot::learners::heads::{Head, PrototypeScore, Prototypes};

use super::numbers::*;

const LABELS: [usize; 5] = [1, 0, 1, 0, 1];

/// Logits by a score that is written down.
fn wanted(queries: &[f64], rows: &[f64], score: impl Fn(&[f64], &[f64]) -> f64) -> Vec<f64> {
    let means = [0, 1].map(|class| mean_of(rows, 3, &LABELS, class));
    queries
        .chunks(3)
        .flat_map(|query| means.iter().map(|mean| score(query, mean)).collect::<Vec<_>>())
        .collect()
}

#[test]
fn the_default_is_the_squared_distance_to_class_means() {
    let (rows, queries) = (drawn(15, 1), drawn(12, 2));
    let found = logits::<Flex>(&Prototypes::new(), support(&rows, &LABELS, 2), &queries);
    assert_near(&found, &wanted(&queries, &rows, |q, p| -square_distance(q, p)), 1e-5);
}

#[test]
fn the_distance_itself_and_cosines_are_scores_too() {
    let (rows, queries) = (drawn(15, 3), drawn(12, 4));
    let of = |head: Prototypes| logits::<Flex>(&head, support(&rows, &LABELS, 2), &queries);
    let euclidean = Prototypes { score: PrototypeScore::Euclidean, scale: 1.0 };
    let distance = wanted(&queries, &rows, |q, p| -square_distance(q, p).sqrt());
    assert_near(&of(euclidean), &distance, 1e-5);
    let cosines = Prototypes { score: PrototypeScore::Cosine, scale: 10.0 };
    assert_near(&of(cosines), &wanted(&queries, &rows, |q, p| 10.0 * cosine(q, p)), 1e-5);
}

#[test]
fn a_class_of_one_shot_has_its_own_embedding_as_prototype() {
    let rows = [3.0, -1.0, 0.0, 2.0];
    let found = logits::<Flex>(&Prototypes::new(), support(&rows, &[0, 1], 2), &rows);
    assert_near(&found, &[0.0, -18.0, -18.0, 0.0], 1e-6);
}

#[test]
fn the_distance_of_a_query_at_its_prototype_has_a_finite_gradient() {
    let rows = [3.0, -1.0, 0.0, 2.0];
    let head = Prototypes { score: PrototypeScore::Euclidean, scale: 1.0 };
    let queries = tensor::<Trained, 3>(&rows, [1, 2, 2]).require_grad();
    let logits = head.fit(support(&rows, &[0, 1], 2)).logits(queries.clone());
    let gradient = values(queries.grad(&logits.sum().backward()).unwrap());
    let away = 18f64.sqrt().recip() * 3.0;
    assert_near(&gradient, &[-away, away, away, -away], 1e-4);
}
