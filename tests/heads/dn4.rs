use burn::backend::Flex;
use fewshot::learners::heads::{Dn4, EmbeddedSupport, Head};

use super::numbers::*;

const MAP: [usize; 3] = [3, 2, 2];
const LABELS: [usize; 6] = [1, 0, 1, 1, 0, 2];

/// The channels of each of four places of flattened maps.
fn places(maps: &[f64]) -> Vec<Vec<f64>> {
    let of_map = |map: &[f64]| {
        (0..4).map(|at| (0..3).map(|channel| map[channel * 4 + at]).collect()).collect::<Vec<_>>()
    };
    maps.chunks(12).flat_map(of_map).collect()
}

fn wanted(rows: &[f64], queries: &[f64], neighbours: usize) -> Vec<f64> {
    let score = |query: &[f64], class: usize| {
        let members: Vec<f64> = rows
            .chunks(12)
            .zip(LABELS)
            .filter(|(_, of)| *of == class)
            .flat_map(|(row, _)| row.to_vec())
            .collect();
        let members = places(&members);
        let of_place = |place: &Vec<f64>| {
            let mut cosines: Vec<f64> = members.iter().map(|other| cosine(place, other)).collect();
            cosines.sort_by(|a, b| b.total_cmp(a));
            let there = neighbours.min(cosines.len());
            cosines[..there].iter().sum::<f64>() * neighbours as f64 / there as f64
        };
        places(query).iter().map(of_place).sum::<f64>()
    };
    queries
        .chunks(12)
        .flat_map(|query| (0..3).map(move |class| (query, class)))
        .map(|(query, class)| score(query, class))
        .collect()
}

#[test]
fn the_nearest_places_of_each_class_are_added_up() {
    let (rows, queries) = (drawn(72, 1), drawn(60, 2));
    for neighbours in [1, 3, 4, 7, 20] {
        let mut head = Dn4::new(MAP);
        head.neighbours = neighbours;
        let found = logits::<Flex>(&head, support(&rows, &LABELS, 3), &queries);
        assert_near(&found, &wanted(&rows, &queries, neighbours), 1e-5);
    }
}

#[test]
fn three_neighbours_are_the_default() {
    let (rows, queries) = (drawn(72, 3), drawn(12, 4));
    let found = logits::<Flex>(&Dn4::new(MAP), support(&rows, &LABELS, 3), &queries);
    assert_near(&found, &wanted(&rows, &queries, 3), 1e-5);
}

#[test]
fn equal_neighbours_count_each() {
    let support = support(&[2.0, 0.0, 2.0, 0.0, 0.0, 1.0], &[0, 0, 1], 2);
    let mut head = Dn4::new([2, 1, 1]);
    head.neighbours = 2;
    let found = logits::<Flex>(&head, support, &[1.0, 1.0]);
    assert_near(&found, &[2f64.sqrt(), 2f64.sqrt()], 1e-6);
}

#[test]
fn a_task_is_the_same_beside_one_with_larger_classes() {
    let (rows, queries) = (drawn(8, 5), drawn(2, 6));
    let of = |labels: &[usize]| support::<Flex>(&rows, labels, 2);
    let (even, uneven) = (of(&[0, 1, 0, 1]), of(&[1, 1, 1, 0]));
    let cat = |a, b| burn::tensor::Tensor::cat(vec![a, b], 0);
    let both = EmbeddedSupport::new(
        cat(even.embeddings.clone(), uneven.embeddings.clone()),
        burn::tensor::Tensor::cat(vec![even.labels.clone(), uneven.labels.clone()], 0),
        2,
    );
    let head = Dn4::new([2, 1, 1]);
    let twice = tensor(&queries.repeat(2), [2, 1, 2]);
    let found = values(head.fit(both).logits(twice));
    let alone = [logits(&head, even, &queries), logits(&head, uneven, &queries)].concat();
    assert_near(&found, &alone, 1e-6);
}

#[test]
fn gradients_go_through_the_chosen_places_alone() {
    let queries = tensor::<Trained, 3>(&[1.0, 0.0], [1, 1, 2]);
    let labelled = support::<Trained>(&[1.0, 1.0, -1.0, 1.0, 0.0, 1.0], &[0, 0, 1], 2);
    let embeddings = labelled.embeddings.clone().require_grad();
    let mut head = Dn4::new([2, 1, 1]);
    head.neighbours = 1;
    let logits = head.fit(labelled.with_embeddings(embeddings.clone())).logits(queries);
    let gradient = values(embeddings.grad(&logits.sum().backward()).unwrap());
    // The derivative of x / |x| at (1, 1) by (x, y) is (y^2, -x y) / |x|^3.
    let slope = 2f64.powf(-1.5);
    assert_near(&gradient, &[slope, -slope, 0.0, 0.0, 1.0, 0.0], 1e-5);
}

#[test]
fn gradients_of_all_embeddings_are_central_differences() {
    let (rows, queries, way) = (drawn(72, 8), drawn(60, 9), drawn(72, 10));
    let head = Dn4::new(MAP);
    let value = |rows| {
        let queries = tensor::<Trained, 3>(&queries, [1, 5, 12]);
        let support = support(&drawn(72, 8), &LABELS, 3).with_embeddings(rows);
        weighted(head.fit(support).logits(queries), 11)
    };
    let x = tensor::<Trained, 3>(&rows, [1, 6, 12]).require_grad();
    let along = dot(&values(x.grad(&value(x.clone()).backward()).unwrap()), &way);
    // So small a step that hardly a neighbour becomes another one.
    let h = 5e-4;
    let at = |step: f64| {
        let moved: Vec<f64> = rows.iter().zip(&way).map(|(x, way)| x + step * way).collect();
        values(value(tensor(&moved, [1, 6, 12])))[0]
    };
    let difference = (at(h) - at(-h)) / (2.0 * h);
    assert!((difference - along).abs() < 0.01 * along.abs(), "{along} {difference}");
}
