use crate::data::{ClassDataset, Features};

/// Classes whose examples make episodes: of images, or of features.
pub(super) trait ClassSet {
    /// Number of classes.
    fn classes(&self) -> usize;

    /// Name of a class.
    fn class_name(&self, class: usize) -> String;

    /// Number of examples of a class.
    fn examples(&self, class: usize) -> usize;

    /// Name of the file of an example, if it has one of its own.
    fn example_name(&self, class: usize, example: usize) -> Option<&str>;

    /// Tells whether each class of an episode is shown in a quarter turn.
    fn draws_turns(&self) -> bool;
}

impl<D: ClassDataset + ?Sized> ClassSet for &D {
    fn classes(&self) -> usize {
        D::classes(self)
    }

    fn class_name(&self, class: usize) -> String {
        D::class_name(self, class)
    }

    fn examples(&self, class: usize) -> usize {
        D::examples(self, class)
    }

    fn example_name(&self, class: usize, example: usize) -> Option<&str> {
        D::example_name(self, class, example)
    }

    fn draws_turns(&self) -> bool {
        D::draws_turns(self)
    }
}

impl ClassSet for Features {
    fn classes(&self) -> usize {
        self.classes()
    }

    fn class_name(&self, class: usize) -> String {
        self.class_name(class).to_owned()
    }

    fn examples(&self, class: usize) -> usize {
        self.examples(class)
    }

    fn example_name(&self, _class: usize, _example: usize) -> Option<&str> {
        None
    }

    fn draws_turns(&self) -> bool {
        false
    }
}
