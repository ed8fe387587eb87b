use super::Sum;

/// The gradients of a module one after the other, on the host.
///
/// # Conventions
/// In the order in which the module is visited; a parameter that it has twice is there once, and one
/// without a gradient takes no room.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlatGradients {
    /// Elements of every float tensor of the module, with a gradient or without.
    pub(super) lengths: Vec<usize>,
    /// Which of them have one.
    pub(super) present: Vec<bool>,
    /// The elements of those that do.
    pub(super) values: Vec<f32>,
}

impl FlatGradients {
    /// The numbers, of the parameters that have a gradient.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Which parameters have a gradient, in the order in which the module is visited.
    pub fn present(&self) -> &[bool] {
        &self.present
    }

    /// Every number times `factor`.
    pub fn scaled(mut self, factor: f32) -> Self {
        self.values.iter_mut().for_each(|value| *value *= factor);
        self
    }

    /// The same with zeros for those of `present` that have no gradient here.
    pub(super) fn spread(self, present: &[bool]) -> Self {
        if self.present == present {
            return self;
        }
        let mut values = Vec::new();
        let mut rest = &self.values[..];
        for (index, &length) in self.lengths.iter().enumerate() {
            match (self.present[index], present[index]) {
                (true, _) => {
                    let (own, others) = rest.split_at(length);
                    values.extend_from_slice(own);
                    rest = others;
                }
                (false, true) => values.resize(values.len() + length, 0.0),
                (false, false) => {}
            }
        }
        let present = union(&self.present, present);
        Self { lengths: self.lengths, present, values }
    }
}

impl Sum for FlatGradients {
    /// # Panics
    /// If they are of different modules.
    fn plus(self, right: Self) -> Self {
        assert_eq!(self.lengths, right.lengths, "gradients of one module");
        let present = union(&self.present, &right.present);
        let (mut sum, right) = (self.spread(&present), right.spread(&present));
        sum.values.iter_mut().zip(right.values).for_each(|(sum, right)| *sum += right);
        sum
    }
}

/// How many elements those `present` have, if that is a number.
pub(super) fn elements(lengths: &[usize], present: &[bool]) -> Option<usize> {
    let mut lengths = lengths.iter().zip(present).filter(|(_, present)| **present);
    lengths.try_fold(0_usize, |sum, (length, _)| sum.checked_add(*length))
}

pub(super) fn union(left: &[bool], right: &[bool]) -> Vec<bool> {
    left.iter().zip(right).map(|(left, right)| *left || *right).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_that_one_replica_lacks_counts_as_zero() {
        let flat = |present: [bool; 2], values: &[f32]| FlatGradients {
            lengths: vec![2, 1],
            present: present.to_vec(),
            values: values.to_vec(),
        };
        let sum = flat([true, false], &[1.0, 2.0]).plus(flat([false, true], &[5.0]));
        assert_eq!(sum, flat([true, true], &[1.0, 2.0, 5.0]));
        let more = sum.plus(flat([true, false], &[10.0, 10.0]));
        assert_eq!(more.values(), [11.0, 12.0, 5.0]);
    }
}
