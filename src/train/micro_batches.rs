use std::ops::Range;

use super::TrainError;
use crate::parallel::shard;

/// The tasks of a step, cut into micro-batches (parts), each of which is one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MicroBatches {
    tasks: usize,
    parts: usize,
    /// Number of tasks of every part but the last; `None` for parts as equal as possible.
    size: Option<usize>,
}

impl MicroBatches {
    /// Parts of `size` tasks, or one for each of the `accumulated` meta-batches, or for each replica
    /// where there are more of those.
    pub(super) fn new(
        tasks: usize,
        accumulated: usize,
        size: Option<usize>,
        replicas: usize,
    ) -> Result<Self, TrainError> {
        let parts = match size {
            Some(size) => tasks.div_ceil(size),
            None => accumulated.max(replicas),
        };
        if replicas > parts.min(tasks) {
            let parts = parts.min(tasks);
            return Err(TrainError::MoreReplicasThanTasks { replicas, tasks, parts });
        }
        Ok(Self { tasks, parts, size })
    }

    pub(super) fn count(self) -> usize {
        self.parts
    }

    /// The tasks of a part, counted from the step's first.
    pub(super) fn tasks(self, part: usize) -> Range<usize> {
        match self.size {
            Some(size) => part * size..((part + 1) * size).min(self.tasks),
            None => shard(self.tasks, self.parts, part),
        }
    }

    /// Indices of the tasks of a part, where the step's first has the index `first`.
    pub(super) fn indices(self, first: u64, part: usize) -> Range<u64> {
        let tasks = self.tasks(part);
        first + tasks.start as u64..first + tasks.end as u64
    }

    /// The parts of these replicas, of `count` in all, in the order in which they are differentiated: in each round
    /// every replica that has parts left takes its next one. A part comes with the place of its replica in `replicas`.
    pub(super) fn rounds(self, replicas: Range<usize>, count: usize) -> Vec<Vec<(usize, usize)>> {
        let shares: Vec<_> = replicas.map(|replica| self.replica_parts(replica, count)).collect();
        let rounds = shares.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        let round = |round| {
            let parts = shares.iter().enumerate().filter_map(move |(place, parts)| {
                let part = parts.start + round;
                parts.contains(&part).then_some((place, part))
            });
            parts.collect()
        };
        (0..rounds).map(round).collect()
    }

    pub(super) fn replica_parts(self, replica: usize, replicas: usize) -> Range<usize> {
        shard(self.parts, replicas, replica)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(micro: MicroBatches) -> Vec<Range<usize>> {
        (0..micro.count()).map(|part| micro.tasks(part)).collect()
    }

    #[test]
    fn parts_are_meta_batches_unless_there_are_more_replicas() {
        let whole = MicroBatches::new(8, 1, None, 1).unwrap();
        assert_eq!((whole.count(), whole.tasks(0)), (1, 0..8));
        let accumulated = MicroBatches::new(8, 2, None, 2).unwrap();
        assert_eq!(parts(accumulated), [0..4, 4..8]);
        let shared = MicroBatches::new(8, 2, None, 3).unwrap();
        assert_eq!(parts(shared), [0..3, 3..6, 6..8]);
    }

    #[test]
    fn parts_of_a_size_do_not_depend_on_replicas() {
        for replicas in 1..=4 {
            let micro = MicroBatches::new(7, 1, Some(2), replicas).unwrap();
            assert_eq!(parts(micro), [0..2, 2..4, 4..6, 6..7]);
            let all = (0..replicas).flat_map(|replica| micro.replica_parts(replica, replicas));
            assert_eq!(all.collect::<Vec<_>>(), [0, 1, 2, 3]);
        }
    }

    #[test]
    fn replicas_take_their_parts_by_turns() {
        let micro = MicroBatches::new(7, 1, Some(2), 2).unwrap();
        assert_eq!(micro.rounds(0..2, 2), [vec![(0, 0), (1, 2)], vec![(0, 1), (1, 3)]]);
        assert_eq!(micro.rounds(1..2, 2), [[(0, 2)], [(0, 3)]]);
        let uneven = MicroBatches::new(3, 1, Some(1), 2).unwrap();
        assert_eq!(uneven.rounds(0..2, 2), [vec![(0, 0), (1, 2)], vec![(0, 1)]]);
    }

    #[test]
    fn more_replicas_than_tasks_or_parts_are_refused() {
        for micro in [MicroBatches::new(3, 1, None, 4), MicroBatches::new(8, 1, Some(4), 3)] {
            assert!(matches!(micro, Err(TrainError::MoreReplicasThanTasks { .. })), "{micro:?}");
        }
    }
}
