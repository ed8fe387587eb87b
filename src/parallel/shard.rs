use std::ops::Range;

/// The leaves of `replica` where `leaves` are shared out among `replicas`.
///
/// Ranges follow each other in the order of the replicas, and sizes differ by at most one, the larger
/// first.
///
/// # Panics
/// If one would be without a leaf, or there is no such replica.
pub fn shard(leaves: usize, replicas: usize, replica: usize) -> Range<usize> {
    assert!(replica < replicas, "replica {replica} of {replicas}");
    assert!(replicas <= leaves, "{replicas} replicas cannot share {leaves} micro-batches");
    let (size, larger) = (leaves / replicas, leaves % replicas);
    let start = replica * size + replica.min(larger);
    start..start + size + usize::from(replica < larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_follow_each_other_and_differ_by_at_most_one() {
        for leaves in 1..40 {
            for replicas in 1..=leaves {
                let shards: Vec<_> =
                    (0..replicas).map(|replica| shard(leaves, replicas, replica)).collect();
                assert_eq!(shards[0].start, 0);
                assert_eq!(shards[replicas - 1].end, leaves);
                assert!(shards.windows(2).all(|pair| pair[0].end == pair[1].start));
                assert!(shards.windows(2).all(|pair| pair[0].len() >= pair[1].len()));
                assert!(shards[0].len() - shards[replicas - 1].len() <= 1);
            }
        }
        assert_eq!(shard(7, 3, 0), 0..3);
        assert_eq!(shard(7, 3, 2), 5..7);
    }

    #[test]
    #[should_panic(expected = "5 replicas cannot share 3 micro-batches")]
    fn a_replica_without_a_leaf_is_a_mistake() {
        let _ = shard(3, 5, 0);
    }
}
