use super::ParallelError;

/// What can be added up.
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
/// What is left of all leaves when none merges any more, a node for each binary digit of their number,
/// is added from the right, the short ones first.
///
/// The nodes of any contiguous range are at most `2 log2 n`, and those of ranges that follow each
/// other, pushed in their order, make the tree that the leaves themselves would have made.
/// The error of `n` additions grows as `log n` besides, and not as `n`.
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

    /// How many leaves the whole tree has.
    pub fn leaves(&self) -> usize {
        self.leaves
    }

    /// Adds the leaf `index`.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn leaf(&mut self, index: usize, value: V) -> Result<(), ParallelError> {
        self.push(Node { start: index, length: 1, value })
    }

    /// Adds a node of the tree right of those that are there. The first may start anywhere.
    ///
    /// # Errors
    /// [`ParallelError::Node`] for what is no node of the tree, and where leaves are between it and
    /// the last one, or in both.
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

    /// Whether every leaf is in one of the nodes.
    pub fn is_complete(&self) -> bool {
        self.nodes.iter().map(|node| node.length).sum::<usize>() == self.leaves
    }

    /// The sum of the leaves that are there, and of none nothing.
    pub fn finish(self) -> Option<V> {
        let values = self.nodes.into_iter().rev().map(|node| node.value);
        values.reduce(|right, left| left.plus(right))
    }
}
