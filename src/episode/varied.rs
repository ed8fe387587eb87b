//! Episodes whose numbers of classes and examples are drawn anew for each.

use std::f64::consts::LN_2;

use super::class_set::ClassSet;
use super::{Episode, EpisodeError, Protocol, draw};
use crate::random::{Purpose, Stream};

const LEAST_WAYS: usize = 5;

/// Most classes of an episode.
pub const MOST_WAYS: usize = 50;

/// Most queries of a class.
const MOST_QUERIES: usize = 10;

/// Most examples of a support, by which its size is drawn.
const MOST_SUPPORT: usize = 500;

/// Most examples that a class adds to the size of the support.
const MOST_OF_CLASS: usize = 100;

/// Examples without which a class has no support and no query.
const LEAST_EXAMPLES: usize = 2;

/// Checks that episodes can be drawn from `set`.
pub(super) fn check(set: &dyn ClassSet) -> Result<(), EpisodeError> {
    let classes = set.classes();
    if classes < LEAST_WAYS {
        return Err(EpisodeError::NotEnoughClasses { ways: LEAST_WAYS, actual: classes });
    }
    match (0..classes).find(|&class| set.examples(class) < LEAST_EXAMPLES) {
        Some(class) => Err(EpisodeError::NoQuery { class: set.class_name(class) }),
        None => Ok(()),
    }
}

/// The protocol whose episodes are as large as the largest that can be drawn from `set`.
pub(super) fn largest(set: &dyn ClassSet) -> Protocol {
    let ways = MOST_WAYS.min(set.classes());
    let shots = MOST_SUPPORT.min(ways * MOST_OF_CLASS).div_ceil(ways);
    Protocol::new(ways, shots).with_queries(MOST_QUERIES)
}

/// Episode `index`.
pub(super) fn episode(set: &dyn ClassSet, seed: u64, index: u64) -> Episode {
    let mut random = Stream::new(seed, Purpose::VariedEpisode, [index, 0]);
    let most = MOST_WAYS.min(set.classes());
    let ways = LEAST_WAYS + random.below(most - LEAST_WAYS + 1);
    let classes = random.sample(set.classes(), ways);
    let sizes: Vec<_> = classes.iter().map(|&class| set.examples(class)).collect();
    let queries = queries(&sizes);
    let left: Vec<_> = sizes.iter().map(|size| size - queries).collect();
    // Uniform above 0, up to and with 1.
    let total = support_size(1.0 - random.unit(), &left);
    let weight = |&size: &usize| exp(random.between(-LN_2, LN_2)) * size as f64;
    let weights: Vec<_> = sizes.iter().map(weight).collect();
    let counts = shots(total, &weights, &left).into_iter().map(|shots| [shots, queries]);
    draw::examples(set, classes.into_iter().zip(counts), &mut random)
}

/// Queries of each class, by the numbers of examples that the classes have: at most half of the smallest.
fn queries(sizes: &[usize]) -> usize {
    let smallest = sizes.iter().min().map_or(0, |size| size / 2);
    smallest.min(MOST_QUERIES)
}

/// Size of the support that the share `beta` of what is `left` of the classes gives.
fn support_size(beta: f64, left: &[usize]) -> usize {
    let part = |&left: &usize| (beta * left.min(MOST_OF_CLASS) as f64).ceil() as usize;
    left.iter().map(part).sum::<usize>().min(MOST_SUPPORT)
}

/// Labelled examples of each class: one, and by weight a share of what `total` has beyond that, but no
/// more than is `left`.
fn shots(total: usize, weights: &[f64], left: &[usize]) -> Vec<usize> {
    let sum: f64 = weights.iter().sum();
    let more = (total - weights.len()) as f64;
    let shots = weights.iter().map(|weight| (weight / sum * more).floor() as usize + 1);
    shots.zip(left).map(|(shots, left)| shots.min(*left)).collect()
}

/// Powers of e from -1 to 1 by their series, without a function of the platform's mathematics library, so that
/// a seed means the same everywhere.
fn exp(x: f64) -> f64 {
    (1..=20).rev().fold(1.0, |sum, term| 1.0 + sum * x / f64::from(term))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Features;

    /// Classes of so many examples each.
    fn classes(sizes: &[usize]) -> Features {
        let class = |(at, &size): (usize, &usize)| (format!("{at:03}"), vec![0.0; size]);
        Features::new(1, sizes.iter().enumerate().map(class)).unwrap()
    }

    #[test]
    fn queries_are_half_of_the_smallest_class_and_at_most_ten() {
        assert_eq!(queries(&[40, 9, 100]), 4);
        assert_eq!(queries(&[2, 100]), 1);
        assert_eq!(queries(&[21, 600]), 10);
        assert_eq!(queries(&[600, 600]), 10);
    }

    #[test]
    fn a_support_has_a_share_of_what_is_left_of_each_class() {
        // 0.25 of 10, of 7 and of 100, which the last class counts as: 3 + 2 + 25.
        assert_eq!(support_size(0.25, &[10, 7, 590]), 30);
        assert_eq!(support_size(1.0, &[10, 7, 590]), 117);
        assert_eq!(support_size(1e-9, &[10, 7, 590]), 3);
        assert_eq!(support_size(1.0, &[90; 6]), 500);
        assert_eq!(support_size(0.5, &[200; 6]), 300);
    }

    #[test]
    fn shots_are_one_and_a_share_by_weight() {
        // 27 beyond one for each: 27 * (0.5, 0.3, 0.2) is 13.5, 8.1 and 5.4.
        assert_eq!(shots(30, &[10.0, 6.0, 4.0], &[50, 50, 50]), [14, 9, 6]);
        assert_eq!(shots(30, &[10.0, 6.0, 4.0], &[10, 50, 2]), [10, 9, 2]);
        assert_eq!(shots(3, &[10.0, 6.0, 4.0], &[50, 50, 50]), [1, 1, 1]);
        // A hundred a class bounds the size of the support, not the shots of a class.
        assert_eq!(shots(202, &[3.0, 1.0], &[500, 500]), [151, 51]);
    }

    #[test]
    fn the_series_is_the_exponential_function() {
        for at in -69..70 {
            let x = f64::from(at) / 100.0;
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-15, "{x}");
        }
        assert!((exp(LN_2) - 2.0).abs() < 1e-15 && (exp(-LN_2) - 0.5).abs() < 1e-15);
    }

    #[test]
    fn episodes_keep_the_rule_and_reach_its_bounds() {
        let sizes: Vec<_> = (0..70).map(|class| 12 + 7 * class).collect();
        let set = classes(&sizes);
        let mut ways = Vec::new();
        let mut sums = Vec::new();
        for index in 0..2000 {
            let episode = episode(&set, 3, index);
            let of: Vec<_> = episode.classes.iter().map(|draw| sizes[draw.class]).collect();
            let queries = (of.iter().min().unwrap() / 2).min(10);
            assert!(episode.classes.iter().all(|draw| draw.query.len() == queries));
            for (draw, size) in episode.classes.iter().zip(&of) {
                assert!((1..=size - queries).contains(&draw.support.len()));
                let mut all = [&draw.support[..], &draw.query].concat();
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), draw.support.len() + queries, "an example is shown once");
                assert!(all.iter().all(|example| example < size));
            }
            let mut classes: Vec<_> = episode.classes.iter().map(|draw| draw.class).collect();
            classes.sort_unstable();
            classes.dedup();
            assert_eq!(classes.len(), episode.classes.len());
            ways.push(episode.classes.len());
            sums.push(episode.sizes().support);
        }
        assert!((5..=50).all(|count| ways.contains(&count)));
        assert!(ways.iter().all(|count| (5..=50).contains(count)));
        let mean = ways.iter().sum::<usize>() as f64 / 2000.0;
        // Of the uniform distribution, whose deviation is 13.3.
        assert!((mean - 27.5).abs() < 1.0, "{mean}");
        assert!(sums.iter().all(|sum| *sum <= 500) && sums.iter().any(|sum| *sum > 450));
    }

    #[test]
    fn larger_classes_have_more_shots() {
        let sizes: Vec<_> = (0..5).map(|class| if class < 2 { 400 } else { 40 }).collect();
        let set = classes(&sizes);
        let (mut large, mut small) = (0, 0);
        for draw in (0..300).flat_map(|index| episode(&set, 1, index).classes) {
            let sum = if draw.class < 2 { &mut large } else { &mut small };
            *sum += draw.support.len();
        }
        // 2 classes against 3, ten times as many examples.
        assert!(large > 4 * small, "{large} and {small}");
    }

    #[test]
    fn an_episode_is_a_function_of_seed_and_index() {
        let set = classes(&[30; 12]);
        assert_eq!(episode(&set, 5, 9), episode(&set, 5, 9));
        assert_ne!(episode(&set, 5, 9), episode(&set, 6, 9));
        assert_ne!(episode(&set, 5, 9), episode(&set, 5, 10));
    }

    #[test]
    fn few_classes_and_single_examples_are_refused() {
        let few = check(&classes(&[9; 4])).unwrap_err();
        assert_eq!(few, EpisodeError::NotEnoughClasses { ways: 5, actual: 4 });
        let single = check(&classes(&[9, 9, 1, 9, 9])).unwrap_err();
        assert_eq!(
            single.to_string(),
            "an episode of varied size needs 2 examples a class, class 002 has 1"
        );
        assert_eq!(check(&classes(&[2; 5])), Ok(()));
    }
}
