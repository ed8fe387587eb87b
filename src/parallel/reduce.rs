use serde::{Deserialize, Serialize};

use super::wire::{Message, Values, decode, encode};
use super::{Communicator, FlatGradients, ParallelError, Sum, TreeSum};

/// The contribution of a micro-batch to a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Contribution {
    /// Sum over its tasks of their gradients.
    pub gradients: FlatGradients,
    /// Sum over its tasks of their losses.
    pub loss: f64,
    /// Sum over its tasks of their scores.
    pub score: f64,
    /// Weight of the contribution: its number of tasks.
    pub weight: f64,
}

impl Sum for Contribution {
    /// # Panics
    /// If the gradients are of different modules.
    fn plus(self, right: Self) -> Self {
        Self {
            gradients: self.gradients.plus(right.gradients),
            loss: self.loss + right.loss,
            score: self.score + right.score,
            weight: self.weight + right.weight,
        }
    }
}

/// The order in which the sums of several processes are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// Along the tree over all micro-batches: the same bits for any number of processes. Each sends
    /// at most `2 log2 n` gradients to every other.
    #[default]
    Exact,
    /// Each process adds up its own, and MPI the sums of the processes, in an order of its choice.
    /// Each sends about two gradients, however many processes there are. Against [`Exact`](Self::Exact)
    /// an element may be off by `2 n 2^-24` times the sum of the absolute values of its `n` terms.
    Fast,
}

/// The sum over all leaves, the same in every process. Each process has added up a contiguous range
/// of leaves; the ranges follow each other in the order of ranks.
///
/// # Errors
/// [`ParallelError::Node`] and [`ParallelError::Incomplete`] for ranges that do not make up all leaves,
/// and [`ParallelError::Message`] for sums over another module or number of leaves. Every process has
/// the same error. Those of the communicator besides.
pub fn reduce(
    communicator: &dyn Communicator,
    reduction: Reduction,
    tree: TreeSum<Contribution>,
) -> Result<Contribution, ParallelError> {
    if communicator.size() == 1 {
        return whole(tree);
    }
    match reduction {
        Reduction::Exact => whole(gathered(communicator, &tree, Values::With)?),
        Reduction::Fast => fast(communicator, tree),
    }
}

fn whole(tree: TreeSum<Contribution>) -> Result<Contribution, ParallelError> {
    let expected = tree.leaves();
    let actual = tree.nodes().iter().map(|node| node.length).sum::<usize>();
    let total = tree.finish().filter(|_| actual == expected);
    total.ok_or(ParallelError::Incomplete { actual, expected })
}

fn fast(
    communicator: &dyn Communicator,
    tree: TreeSum<Contribution>,
) -> Result<Contribution, ParallelError> {
    let rest = whole(gathered(communicator, &tree, Values::Without)?)?;
    let expected = tree.leaves();
    let own = tree.finish().ok_or(ParallelError::Incomplete { actual: 0, expected })?;
    let mut gradients = own.gradients.spread(rest.gradients.present());
    communicator.all_reduce(&mut gradients.values)?;
    Ok(Contribution { gradients, ..rest })
}

/// The tree with the nodes of all processes.
fn gathered(
    communicator: &dyn Communicator,
    own: &TreeSum<Contribution>,
    values: Values,
) -> Result<TreeSum<Contribution>, ParallelError> {
    let messages = communicator.all_gather(&encode(own.leaves(), own.nodes(), values))?;
    let messages = decoded(&messages, values)?;
    let mut tree = TreeSum::new(own.leaves());
    for node in messages.into_iter().flat_map(|message| message.nodes) {
        tree.push(node)?;
    }
    Ok(tree)
}

/// Messages that agree with that of process 0; every process finds the same error.
fn decoded(messages: &[Vec<u8>], values: Values) -> Result<Vec<Message>, ParallelError> {
    let decode = |(rank, bytes): (usize, &Vec<u8>)| {
        decode(bytes, values).map_err(|reason| ParallelError::Message { rank, reason })
    };
    let decoded = messages.iter().enumerate().map(decode).collect::<Result<Vec<_>, _>>()?;
    let first = &decoded[0];
    for (rank, message) in decoded.iter().enumerate() {
        let reason = match message {
            other if other.leaves != first.leaves => {
                format!("{} micro-batches, process 0 has {}", other.leaves, first.leaves)
            }
            other if other.nodes.is_empty() => "it has added up no micro-batch".to_owned(),
            other if other.lengths != first.lengths => {
                "its parameters have other lengths than those of process 0".to_owned()
            }
            _ => continue,
        };
        return Err(ParallelError::Message { rank, reason });
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::super::shard;
    use super::super::thread_communicator::run_ranks;
    use super::*;

    /// Contribution of a module with tensors of 2, 3 and 4 elements; only every third leaf has a gradient of the second,
    /// no leaf one of the third.
    fn leaf(index: usize) -> Contribution {
        let number =
            |place: usize| ((index * 31 + place * 17) as f32).sin() * 10f32.powi(place as i32);
        let second = index % 3 == 2;
        let values = (0..if second { 5 } else { 2 }).map(number).collect();
        let gradients =
            FlatGradients { lengths: vec![2, 3, 4], present: vec![true, second, false], values };
        Contribution { gradients, loss: 1.0 / (index + 1) as f64, score: index as f64, weight: 2.0 }
    }

    fn tree(leaves: usize, range: std::ops::Range<usize>) -> TreeSum<Contribution> {
        let mut tree = TreeSum::new(leaves);
        range.for_each(|index| tree.leaf(index, leaf(index)).unwrap());
        tree
    }

    fn reduced(leaves: usize, size: usize, how: Reduction) -> Vec<Contribution> {
        run_ranks(size, |process| {
            let range = shard(leaves, size, process.rank());
            reduce(process, how, tree(leaves, range)).unwrap()
        })
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    #[test]
    fn the_sum_has_the_same_bits_for_any_number_of_processes() {
        for leaves in [5, 8, 13] {
            let alone = tree(leaves, 0..leaves).finish().unwrap();
            assert_eq!(alone.gradients.present(), [true, true, false]);
            for size in 1..=5 {
                for contribution in reduced(leaves, size, Reduction::Exact) {
                    let (found_bits, alone_bits) =
                        (bits(contribution.gradients.values()), bits(alone.gradients.values()));
                    assert_eq!(found_bits, alone_bits, "{leaves} leaves, {size} processes");
                    assert_eq!(contribution, alone);
                }
            }
        }
    }

    #[test]
    fn a_fast_sum_is_within_its_tolerance() {
        let leaves = 13;
        let terms =
            |place: usize| (0..leaves).map(move |index| leaf(index).gradients.values()[place]);
        for size in 2..=5 {
            let all = reduced(leaves, size, Reduction::Fast);
            let contribution = &all[0];
            assert!(all.iter().all(|other| other == contribution));
            assert_eq!(contribution.gradients.present(), [true, true, false]);
            assert_eq!(contribution.gradients.values().len(), 5);
            for place in 0..2 {
                let exact: f64 = terms(place).map(f64::from).sum();
                let size: f64 = terms(place).map(|term| f64::from(term.abs())).sum();
                let error = (f64::from(contribution.gradients.values()[place]) - exact).abs();
                assert!(error <= leaves as f64 * size / 2f64.powi(24), "{error}");
            }
            assert_eq!((contribution.score, contribution.weight), (78.0, 26.0));
        }
    }

    #[test]
    fn leaves_that_nobody_has_are_missed_by_everybody() {
        for how in [Reduction::Exact, Reduction::Fast] {
            let results = run_ranks(2, |process| {
                let range = if process.rank() == 0 { 0..3 } else { 3..5 };
                reduce(process, how, tree(6, range))
            });
            let expected = Err(ParallelError::Incomplete { actual: 5, expected: 6 });
            assert_eq!(results, [expected.clone(), expected]);
        }
        let expected = Err(ParallelError::Incomplete { actual: 2, expected: 3 });
        assert_eq!(reduce(&super::super::Solo, Reduction::Exact, tree(3, 0..2)), expected);
    }

    #[test]
    fn another_module_or_number_of_leaves_is_an_error_everywhere() {
        let other = |process: &dyn Communicator, leaves: usize| {
            let mut value = leaf(process.rank());
            if leaves == 2 && process.rank() == 1 {
                value.gradients.lengths[2] = 5;
            }
            let mut tree = TreeSum::new(leaves);
            tree.leaf(process.rank(), value).unwrap();
            reduce(process, Reduction::Fast, tree).unwrap_err().to_string()
        };
        let texts = run_ranks(2, |process| other(process, 2));
        assert!(texts.iter().all(|text| text.contains("process 1")), "{texts:?}");
        assert!(texts.iter().all(|text| text.contains("other lengths")), "{texts:?}");
        let texts = run_ranks(2, |process| other(process, 3 + process.rank()));
        let expected = "the message of process 1 cannot be read: 4 micro-batches, process 0 has 3";
        assert_eq!(texts, [expected, expected]);
    }
}
