use serde::{Deserialize, Serialize};

use super::{EpisodeError, Protocol};
use crate::random::{Purpose, Stream};

/// Spread of the queries of an episode over its classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryCounts {
    /// The same number for each class.
    #[default]
    Balanced,
    /// The same number in all, of which each class has a share, drawn anew for each episode from a
    /// symmetric Dirichlet distribution. A class may have no query.
    ///
    /// # Conventions
    /// Shares become whole numbers as in the authors' code: cut down, and what is left over goes to
    /// those that lost most. Their `alpha` is 2.
    ///
    /// # Source
    /// Veilleux, Boudiaf, Piantanida and Ben Ayed, "Realistic Evaluation of Transductive Few-Shot
    /// Learning", NeurIPS 2021.
    Dirichlet {
        /// The larger, the more alike are the shares; from 1 to 1000.
        alpha: usize,
    },
}

/// The largest `alpha`: its shares differ by a few hundredths.
const MOST: usize = 1000;

impl QueryCounts {
    pub(super) fn check(self) -> Result<(), EpisodeError> {
        match self {
            Self::Dirichlet { alpha } if !(1..=MOST).contains(&alpha) => {
                Err(EpisodeError::Alpha { most: MOST, actual: alpha })
            }
            _ => Ok(()),
        }
    }

    /// Most queries that a class can have.
    pub(super) fn most(self, Protocol { ways, queries, .. }: Protocol) -> usize {
        match self {
            Self::Balanced => queries,
            Self::Dirichlet { .. } => ways.saturating_mul(queries),
        }
    }

    /// The queries of each class in episode `index`.
    pub(super) fn draw(self, protocol: Protocol, seed: u64, index: u64) -> Vec<usize> {
        let Protocol { ways, queries, .. } = protocol;
        let Self::Dirichlet { alpha } = self else { return vec![queries; ways] };
        let mut random = Stream::new(seed, Purpose::QueryCounts, [index, 0]);
        whole(&shares(ways, alpha, &mut random), ways * queries)
    }
}

/// A draw of the symmetric Dirichlet distribution.
///
/// Points at random cut `0..1` into pieces that have this distribution with an alpha of 1; so many
/// neighbours of them together have the sum of their alphas. It takes no function of the platform's
/// mathematics library.
fn shares(ways: usize, alpha: usize, random: &mut Stream) -> Vec<f64> {
    let mut points: Vec<_> = (1..ways * alpha).map(|_| random.unit()).collect();
    points.sort_by(f64::total_cmp);
    let bound = |way: usize| match way {
        0 => 0.0,
        way => points.get(way * alpha - 1).copied().unwrap_or(1.0),
    };
    (0..ways).map(|way| bound(way + 1) - bound(way)).collect()
}

/// Whole numbers that are `total` together, each less than one from its share of it.
fn whole(shares: &[f64], total: usize) -> Vec<usize> {
    let exact: Vec<_> = shares.iter().map(|share| share * total as f64).collect();
    let mut counts: Vec<_> = exact.iter().map(|share| share.floor() as usize).collect();
    let left = total - counts.iter().sum::<usize>();
    let fraction = |&place: &usize| exact[place].fract();
    let mut places: Vec<_> = (0..shares.len()).collect();
    places.sort_by(|one, other| fraction(other).total_cmp(&fraction(one)));
    places.into_iter().take(left).for_each(|place| counts[place] += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_become_the_nearest_whole_numbers_of_the_same_sum() {
        assert_eq!(whole(&[0.2, 0.2, 0.6], 75), [15, 15, 45]);
        // 3.5, 4.9 and 1.6: one more for 4.9, then for 1.6.
        assert_eq!(whole(&[0.35, 0.49, 0.16], 10), [3, 5, 2]);
        assert_eq!(whole(&[0.0, 1.0], 7), [0, 7]);
    }

    #[test]
    fn shares_have_mean_and_variance_of_the_distribution() {
        let (ways, alpha, draws) = (5, 2, 4000);
        let mut random = Stream::new(1, Purpose::QueryCounts, [0, 0]);
        let drawn: Vec<_> = (0..draws).map(|_| shares(ways, alpha, &mut random)).collect();
        // Of alpha / (ways * alpha) and of mean * (1 - mean) / (ways * alpha + 1).
        let (mean, variance) = (0.2, 0.2 * 0.8 / 11.0);
        for way in 0..ways {
            let values = || drawn.iter().map(|shares| shares[way]);
            let average = values().sum::<f64>() / f64::from(draws);
            let spread = values().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(draws);
            assert!((average - mean).abs() < 0.01, "{average}");
            assert!((spread / variance - 1.0).abs() < 0.1, "{spread}");
        }
        assert!(drawn.iter().all(|shares| (shares.iter().sum::<f64>() - 1.0).abs() < 1e-12));
    }

    #[test]
    fn one_way_has_all_queries() {
        let protocol = Protocol::new(1, 1).with_queries(4);
        assert_eq!(QueryCounts::Dirichlet { alpha: 1 }.draw(protocol, 0, 0), [4]);
    }
}
