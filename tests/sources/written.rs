use fewshot::data::{ClassDataset, DataError, ImageSet, ImageShape, QuarterTurn, Scaling};

/// Images that are written one by one, without a block of them.
pub struct Written {
    pub images: ImageSet,
    /// A class whose images cannot be read any more.
    pub gone: Option<usize>,
}

impl ClassDataset for Written {
    fn classes(&self) -> usize {
        self.images.classes()
    }

    fn class_name(&self, class: usize) -> String {
        self.images.class_name(class)
    }

    fn examples(&self, class: usize) -> usize {
        self.images.examples(class)
    }

    fn image_shape(&self) -> ImageShape {
        self.images.image_shape()
    }

    fn scaling(&self) -> &Scaling {
        self.images.scaling()
    }

    fn write_image(
        &self,
        class: usize,
        example: usize,
        turn: QuarterTurn,
        out: &mut [u8],
    ) -> Result<(), DataError> {
        assert!(self.gone != Some(class), "the picture {example} of class {class} is gone");
        self.images.write_image(class, example, turn, out)
    }
}
