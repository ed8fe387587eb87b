use burn::backend::Flex;
use burn::module::Module;
use fewshot::learners::heads::{FeatureTransform, PrototypeScore, SimpleShot};

use super::numbers::*;

const LABELS: [usize; 4] = [0, 1, 1, 0];

fn transformed(rows: &[f64], mean: &[f64], normalised: bool) -> Vec<f64> {
    let row = |row: &[f64]| {
        let row: Vec<f64> = row.iter().zip(mean).map(|(x, mean)| x - mean).collect();
        let length = if normalised { dot(&row, &row).sqrt() } else { 1.0 };
        row.into_iter().map(|x| x / length).collect::<Vec<_>>()
    };
    rows.chunks(mean.len()).flat_map(row).collect()
}

fn nearest(rows: &[f64], queries: &[f64], score: impl Fn(&[f64], &[f64]) -> f64) -> Vec<f64> {
    let means = [0, 1].map(|class| mean_of(rows, 3, &LABELS, class));
    let of = |query| means.iter().map(|mean| score(query, mean)).collect::<Vec<_>>();
    queries.chunks(3).flat_map(of).collect()
}

fn by_distance(q: &[f64], p: &[f64]) -> f64 {
    -square_distance(q, p)
}

#[test]
fn embeddings_are_normalised_and_centred_before_that_where_a_mean_is_known() {
    let (rows, queries, mean) = (drawn(12, 1), drawn(15, 2), drawn(3, 3));
    let zeros = [0.0; 3];
    let known = SimpleShot::new().with_base_mean(tensor(&mean, [3]));
    let with = |transform| SimpleShot { transform, ..known.clone() };
    let cases = [
        (SimpleShot::<Flex>::new(), &zeros[..], true),
        (known.clone(), &mean, true),
        (with(FeatureTransform::Normalised), &zeros, true),
        (with(FeatureTransform::Unchanged), &zeros, false),
    ];
    for (head, mean, normalised) in cases {
        let found = logits(&head, support(&rows, &LABELS, 2), &queries);
        let of = |x| transformed(x, mean, normalised);
        assert_near(&found, &nearest(&of(&rows), &of(&queries), by_distance), 1e-5);
    }
}

#[test]
fn cosines_with_means_of_unchanged_embeddings_are_an_option() {
    let (rows, queries) = (drawn(12, 4), drawn(15, 5));
    let (transform, score) = (FeatureTransform::Unchanged, PrototypeScore::Cosine);
    let head = SimpleShot::<Flex> { transform, score, ..SimpleShot::new() };
    let found = logits(&head, support(&rows, &LABELS, 2), &queries);
    assert_near(&found, &nearest(&rows, &queries, cosine), 1e-5);
}

#[test]
fn a_record_keeps_the_base_mean_and_no_optimizer_moves_it() {
    let of = |mean: &[f64]| SimpleShot::<Trained>::new().with_base_mean(tensor(mean, [3]));
    let (rows, queries) = (drawn(12, 6), drawn(15, 7));
    let results = |head| logits::<Trained>(&head, support(&rows, &LABELS, 2), &queries);
    let (kept, other) = (of(&[0.5, 0.0, -1.0]), of(&[0.0; 3]));
    assert_eq!(results(other.load_record(kept.clone().into_record())), results(kept.clone()));
    let mut wanting = Wanting(false);
    kept.visit(&mut wanting);
    assert!(!wanting.0);
}

struct Wanting(bool);

impl burn::module::ModuleVisitor<Trained> for Wanting {
    fn visit_float<const D: usize>(
        &mut self,
        param: &burn::module::Param<burn::tensor::Tensor<Trained, D>>,
    ) {
        self.0 |= param.val().is_require_grad();
    }
}
