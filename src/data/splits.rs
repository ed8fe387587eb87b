use crate::data::{ClassDataset, ImageSet};

/// Three sets with no class in common: few-shot learning is tested on classes never seen before.
#[derive(Clone, Debug)]
pub struct Splits {
    /// Classes to learn from.
    pub train: ImageSet,
    /// Classes to choose hyperparameters and the best checkpoint on.
    pub validation: ImageSet,
    /// Classes to report an accuracy on.
    pub test: ImageSet,
}

impl Splits {
    /// Views of the first, the next and the last of `order`, as many classes each as `counts` says.
    pub(super) fn partition(set: &ImageSet, order: &[usize], counts: [usize; 3]) -> Self {
        let (train, rest) = order.split_at(counts[0]);
        let (validation, test) = rest.split_at(counts[1]);
        debug_assert_eq!(test.len(), counts[2]);
        let [train, validation, test] = [train, validation, test].map(|part| set.select(part));
        Self { train, validation, test }
    }

    /// How many classes each set has: train, validation, test.
    pub fn classes(&self) -> [usize; 3] {
        [self.train.classes(), self.validation.classes(), self.test.classes()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ImageShape;

    #[test]
    fn a_partition_takes_the_classes_in_order() {
        let classes = ["a", "b", "c", "d"].map(|name| (name.to_string(), 1));
        let set = ImageSet::new(ImageShape::new(1, 1, 1), vec![0; 4], classes).unwrap();
        let splits = Splits::partition(&set, &[3, 1, 0, 2], [2, 1, 1]);
        assert_eq!(splits.classes(), [2, 1, 1]);
        assert_eq!(splits.train.class_name(0), "d");
        assert_eq!(splits.test.class_name(0), "c");
    }
}
