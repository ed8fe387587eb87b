use std::sync::Arc;

use crate::data::{ClassDataset, ImageSet, PixelBlock, Result, Rotations, Scaling};

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

    /// The three sets with quarter turns treated this way.
    ///
    /// # Errors
    /// If the images are not square.
    pub fn with_rotations(self, rotations: Rotations) -> Result<Self> {
        self.try_map(|set| set.with_rotations(rotations))
    }

    /// The three sets scaled this way.
    ///
    /// # Errors
    /// If the scaling is not one for images of this many channels.
    pub fn with_scaling(self, scaling: &Scaling) -> Result<Self> {
        self.try_map(|set| set.with_scaling(scaling.clone()))
    }

    /// All classes of the three sets, those to train on first; `None` if the sets are no views of the same pixels, as
    /// those of a reader are.
    pub fn all(&self) -> Option<ImageSet> {
        ImageSet::join([&self.train, &self.validation, &self.test])
    }

    /// The validation classes moved behind those to train on, for a last training when all settings are chosen: none is left to
    /// validate. `None` as of [`all`](Self::all), and where the two are scaled or turned in different ways.
    pub fn trained_on_validation(self) -> Option<Self> {
        let (train, validation) = (&self.train, &self.validation);
        if train.scaling() != validation.scaling()
            || train.draws_turns() != validation.draws_turns()
        {
            return None;
        }
        let train = ImageSet::join([&self.train, &self.validation])?;
        Some(Self { train, validation: self.validation.select(&[]), ..self })
    }

    /// The block that all images of the three sets lie in, if it is one.
    pub(super) fn block(&self) -> Option<&Arc<PixelBlock>> {
        let [first, second, third] =
            [&self.train, &self.validation, &self.test].map(|set| set.block());
        let first = first?;
        let shared = [second?, third?].iter().all(|block| Arc::ptr_eq(block, first));
        shared.then_some(first)
    }

    /// Numbers of classes of the three sets: train, validation, test.
    pub fn classes(&self) -> [usize; 3] {
        [self.train.classes(), self.validation.classes(), self.test.classes()]
    }

    fn try_map(self, change: impl Fn(ImageSet) -> Result<ImageSet>) -> Result<Self> {
        Ok(Self {
            train: change(self.train)?,
            validation: change(self.validation)?,
            test: change(self.test)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::ImageShape;

    fn four_classes() -> Splits {
        let classes = ["a", "b", "c", "d"].map(|name| (name.to_string(), 1));
        let set = ImageSet::new(ImageShape::new(1, 1, 1), vec![0; 4], classes).unwrap();
        Splits::partition(&set, &[3, 1, 0, 2], [2, 1, 1])
    }

    #[test]
    fn a_partition_takes_the_classes_in_order() {
        let splits = four_classes();
        assert_eq!(splits.classes(), [2, 1, 1]);
        assert_eq!(splits.train.class_name(0), "d");
        assert_eq!(splits.test.class_name(0), "c");
    }

    #[test]
    fn all_classes_stand_in_the_order_of_the_sets() {
        let splits = four_classes();
        let all = splits.all().unwrap();
        let names: Vec<_> = (0..4).map(|class| all.class_name(class)).collect();
        assert_eq!(names, ["d", "b", "a", "c"]);
        assert!(Splits { test: four_classes().test, ..splits }.all().is_none());
    }

    #[test]
    fn validation_classes_move_behind_those_to_train_on() {
        let splits = four_classes().trained_on_validation().unwrap();
        assert_eq!(splits.classes(), [3, 0, 1]);
        assert_eq!([0, 1, 2].map(|class| splits.train.class_name(class)), ["d", "b", "a"]);
        let other = Splits { validation: four_classes().validation, ..four_classes() };
        assert!(other.trained_on_validation().is_none());
        let turning = four_classes();
        let validation = turning.validation.with_rotations(Rotations::PerClassAndEpisode).unwrap();
        assert!(Splits { validation, ..turning }.trained_on_validation().is_none());
    }

    #[test]
    fn a_change_reaches_all_three() {
        let scaling = Scaling { mean: vec![0.5], std: vec![0.5] };
        let splits = four_classes().with_rotations(Rotations::AsClasses).unwrap();
        let splits = splits.with_scaling(&scaling).unwrap();
        assert_eq!(splits.classes(), [8, 4, 4]);
        assert_eq!(splits.test.scaling(), &scaling);
        assert!(splits.with_scaling(&Scaling::unit(3)).is_err());
    }
}
