use super::ParallelError;

/// Values that can be added up.
pub trait Sum {
    /// `self + right`; need be neither associative nor commutative.
    fn plus(self, right: Self) -> Self;
}

/// The sum of the leaves from `start` on, `length` of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Node<V> {
    /// Index of its first leaf, a multiple of its length.
    pub start: usize,
    /// Leaves under it, a power of two.
    pub length: usize,
    /// Their sum.
    pub value: V,
}

/// A sum over leaves whose order of additions depends on their number alone.
///
/// Two neighbours of equal length `2^k` merge where the left one starts at a multiple of `2^(k+1)`.
/// Nodes that are left in the end are added from the right, the short ones first.
///
/// A contiguous range has at most `2 log2 n` nodes. Those of ranges that follow each other, pushed in their
/// order, make the tree that the leaves themselves would have made. The error of `n` additions grows as
/// `log n`.
///
/// # Source
/// Pairwise summation: Higham, "The accuracy of floating point summation", 1993.
#[derive(Clone, Debug)]
pub struct TreeSum<V> {
    leaves: usize,
    nodes: Vec<Node<V>>,
}

impl<V: Sum> TreeSum<V> {
    /// A sum of `leaves` leaves, none of which is there yet.
    pub fn new(leaves: usize) -> Self {
        Self { leaves, nodes: Vec::new() }
    }

    /// Number of leaves of the whole tree.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Adds the leaf `index`.
    ///
    /// # Errors
    /// The errors of [`push`](Self::push).
    pub fn leaf(&mut self, index: usize, value: V) -> Result<(), ParallelError> {
        self.push(Node { start: index, length: 1, value })
    }

    /// Adds a node of the tree right of those that are there. The first may start anywhere.
    ///
    /// # Errors
    /// [`ParallelError::Node`] if `node` is not a node of the tree, or if it overlaps the last node
    /// or leaves a gap after it.
    pub fn push(&mut self, node: Node<V>) -> Result<(), ParallelError> {
        let Node { start, length, .. } = node;
        let next = self.nodes.last().map_or(start, |last| last.start + last.length);
        let is_node = length.is_power_of_two() && start.is_multiple_of(length);
        let inside = start.checked_add(length).is_some_and(|end| end <= self.leaves);
        if !is_node || !inside || start != next {
            return Err(ParallelError::Node { start, length, next, leaves: self.leaves });
        }
        self.nodes.push(node);
        self.merge();
        Ok(())
    }

    fn merge(&mut self) {
        while let [.., left, right] = &self.nodes[..]
            && left.length == right.length
            && left.start.is_multiple_of(2 * left.length)
        {
            let (right, left) = (self.nodes.pop(), self.nodes.pop());
            self.nodes.extend(left.zip(right).map(|(left, right)| Node {
                start: left.start,
                length: 2 * left.length,
                value: left.value.plus(right.value),
            }));
        }
    }

    /// The nodes that are there, from left to right.
    pub fn nodes(&self) -> &[Node<V>] {
        &self.nodes
    }

    /// The nodes that are there, from left to right.
    pub fn into_nodes(self) -> Vec<Node<V>> {
        self.nodes
    }

    /// The sum of the leaves that are there; `None` if there are none.
    pub fn finish(self) -> Option<V> {
        let values = self.nodes.into_iter().rev().map(|node| node.value);
        values.reduce(|right, left| left.plus(right))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    impl Sum for f32 {
        fn plus(self, right: Self) -> Self {
            self + right
        }
    }

    /// Shows which additions were made.
    impl Sum for String {
        fn plus(self, right: Self) -> Self {
            format!("({self}{right})")
        }
    }

    fn letter(index: usize) -> String {
        char::from_u32('a' as u32 + index as u32).unwrap().to_string()
    }

    /// Sums of these depend on the order of additions.
    fn number(index: usize) -> f32 {
        (1.7 * index as f32 + 0.3).sin() * 10_f32.powi((index % 4) as i32)
    }

    fn over<V: Sum>(leaves: usize, range: Range<usize>, value: fn(usize) -> V) -> TreeSum<V> {
        let mut tree = TreeSum::new(leaves);
        range.for_each(|index| tree.leaf(index, value(index)).unwrap());
        tree
    }

    fn joined<V: Sum>(leaves: usize, shards: &[Range<usize>], value: fn(usize) -> V) -> TreeSum<V> {
        let mut tree = TreeSum::new(leaves);
        for shard in shards {
            for node in over(leaves, shard.clone(), value).into_nodes() {
                tree.push(node).unwrap();
            }
        }
        tree
    }

    /// Every way to cut `range` into at most `most` contiguous shards.
    fn partitions(range: Range<usize>, most: usize) -> Vec<Vec<Range<usize>>> {
        let mut splits = vec![vec![range.clone()]];
        if most > 1 {
            for end in range.start + 1..range.end {
                for mut rest in partitions(end..range.end, most - 1) {
                    rest.insert(0, range.start..end);
                    splits.push(rest);
                }
            }
        }
        splits
    }

    #[test]
    fn the_tree_is_binary_and_its_rest_is_added_from_the_right() {
        let tree = |leaves| over(leaves, 0..leaves, letter).finish().unwrap();
        assert_eq!(tree(1), "a");
        assert_eq!(tree(3), "((ab)c)");
        assert_eq!(tree(4), "((ab)(cd))");
        assert_eq!(tree(7), "(((ab)(cd))((ef)g))");
        assert_eq!(tree(11), "((((ab)(cd))((ef)(gh)))((ij)k))");
    }

    #[test]
    fn every_partition_makes_the_same_tree() {
        for leaves in 1..14 {
            let letters = over(leaves, 0..leaves, letter).finish();
            let numbers = over(leaves, 0..leaves, number).finish().unwrap();
            for shards in partitions(0..leaves, 7) {
                assert_eq!(joined(leaves, &shards, letter).finish(), letters, "{shards:?}");
                let sum = joined(leaves, &shards, number).finish().unwrap();
                assert_eq!(sum.to_bits(), numbers.to_bits(), "{shards:?}");
            }
        }
    }

    /// From which, shard after shard, the same follows for every partition into any number of them.
    #[test]
    fn the_nodes_of_a_range_stand_for_its_leaves_wherever_it_is() {
        for leaves in 1..40 {
            for start in 0..leaves {
                for middle in start + 1..leaves {
                    let shards = [start..middle, middle..leaves];
                    let sum = joined(leaves, &shards, letter).into_nodes();
                    assert_eq!(sum, over(leaves, start..leaves, letter).into_nodes());
                }
            }
        }
    }

    #[test]
    fn the_order_of_additions_matters_to_the_numbers_of_these_tests() {
        let straight = (0..13).map(number).reduce(|sum, value| sum + value).unwrap();
        let tree = over(13, 0..13, number).finish().unwrap();
        assert_ne!(straight.to_bits(), tree.to_bits());
    }

    #[test]
    fn a_range_has_few_nodes() {
        let leaves = 1000_usize;
        let most = 2 * leaves.ilog2() as usize;
        for start in 0..leaves {
            let nodes = over(leaves, start..leaves - start / 2, number).into_nodes().len();
            assert!(nodes <= most, "{nodes} from {start} on");
        }
    }

    #[test]
    fn gaps_overlaps_and_what_is_no_node_are_errors() {
        let pushed = |start, length| {
            let mut tree = over(8, 1..4, number);
            tree.push(Node { start, length, value: 0.0 })
        };
        assert_eq!(pushed(4, 4), Ok(()));
        for (start, length) in [(5, 1), (3, 1), (4, 3), (4, 0), (4, 8), (8, 8)] {
            let error = ParallelError::Node { start, length, next: 4, leaves: 8 };
            assert_eq!(pushed(start, length), Err(error), "{start}, {length}");
        }
        let mut first = TreeSum::<f32>::new(8);
        assert!(first.push(Node { start: 2, length: 4, value: 0.0 }).is_err());
    }

    #[test]
    fn a_sum_of_no_leaves_is_nothing() {
        assert_eq!(TreeSum::<f32>::new(3).finish(), None);
    }
}
