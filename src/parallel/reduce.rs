use serde::{Deserialize, Serialize};

use super::wire::{Message, Values, decode, encode};
use super::{Communicator, Contribution, ParallelError, TreeSum};

/// How the sums of several processes are added up.
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

/// The sum over all leaves, in every process, of which each has added up a contiguous range in the
/// order of their ranks.
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
        Reduction::Exact => exact(communicator, tree),
        Reduction::Fast => fast(communicator, tree),
    }
}

fn whole(tree: TreeSum<Contribution>) -> Result<Contribution, ParallelError> {
    let wanted = tree.leaves();
    let found = tree.nodes().iter().map(|node| node.length).sum();
    match tree.is_complete() {
        true => tree.finish().ok_or(ParallelError::Incomplete { found, wanted }),
        false => Err(ParallelError::Incomplete { found, wanted }),
    }
}

fn exact(
    communicator: &dyn Communicator,
    tree: TreeSum<Contribution>,
) -> Result<Contribution, ParallelError> {
    whole(gathered(communicator, &tree, Values::With)?)
}

fn fast(
    communicator: &dyn Communicator,
    tree: TreeSum<Contribution>,
) -> Result<Contribution, ParallelError> {
    let rest = whole(gathered(communicator, &tree, Values::Without)?)?;
    let wanted = tree.leaves();
    let own = tree.finish().ok_or(ParallelError::Incomplete { found: 0, wanted })?;
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
