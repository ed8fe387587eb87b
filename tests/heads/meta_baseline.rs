use burn::backend::Flex;
use fewshot::learners::heads::{Head, MetaBaseline};

use super::gradients::are_differences;
use super::numbers::*;

const LABELS: [usize; 4] = [0, 1, 1, 0];

#[test]
fn logits_are_ten_times_the_cosine_with_class_means() {
    let (rows, queries) = (drawn(12, 1), drawn(6, 2));
    let head: MetaBaseline<Flex> = MetaBaseline::new(10.0, &Default::default());
    let found = logits(&head, support(&rows, &LABELS, 2), &queries);
    let means = [0, 1].map(|class| mean_of(&rows, 3, &LABELS, class));
    let of = |query| means.iter().map(|mean| 10.0 * cosine(query, mean)).collect::<Vec<_>>();
    assert_near(&found, &queries.chunks(3).flat_map(of).collect::<Vec<_>>(), 1e-5);
}

#[test]
fn the_scale_is_learned() {
    let head: MetaBaseline<Trained> = MetaBaseline::new(10.0, &Default::default());
    let (rows, queries) = (drawn(12, 3), tensor(&drawn(6, 4), [1, 2, 3]));
    are_differences(&head, 1, 1e-3, |head| {
        weighted(head.fit(support(&rows, &LABELS, 2)).logits(queries.clone()), 5)
    });
}
