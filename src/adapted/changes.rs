//! Models of folders of pictures, and what classes come and go.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::backend::Backend;

use super::{AdaptedModel, AdaptedModelError, BegunModel, PretrainedBackbone, Result, classes};
use crate::data::{Features, Picture, PictureLimits, picture_files};

/// A small picture of an example: the content of a JPEG file with [`THUMBNAIL_SIDE`] pixels along a side.
pub type Thumbnail = Arc<[u8]>;

/// Pixels along a side of a [`Thumbnail`].
pub const THUMBNAIL_SIDE: usize = 96;

/// A class with the embeddings of its examples and the small pictures that there are of them.
struct Class {
    name: String,
    rows: Vec<f32>,
    thumbnails: Vec<Option<Thumbnail>>,
}

impl<B: Backend> AdaptedModel<B> {
    /// Learns the classes of a [folder of folders](picture_files), one for each class, and keeps small pictures of its
    /// examples.
    ///
    /// # Errors
    /// As [`PretrainedBackbone::embed_folder`] and [`adapt`](Self::adapt).
    pub fn of_folder(
        backbone: PretrainedBackbone<B>,
        method: &str,
        root: impl AsRef<Path>,
    ) -> Result<Self> {
        Self::adapt_to_pictures(backbone, method, &picture_files(root)?)
    }

    /// The same of the files of each class.
    ///
    /// # Errors
    /// The reasons are those of [`of_folder`](Self::of_folder).
    pub fn adapt_to_pictures(
        backbone: PretrainedBackbone<B>,
        method: &str,
        classes: &[(String, Vec<PathBuf>)],
    ) -> Result<Self> {
        let (length, classes) = backbone.embed_classes(classes, small)?;
        let class = |(name, rows, thumbnails)| Class { name, rows, thumbnails };
        Self::of_classes(backbone, method, length, classes.into_iter().map(class).collect())
    }

    /// This model with a further class of the pictures in these files, or with further pictures of a class
    /// that it has; other classes keep their embeddings. Small pictures are kept if the model has any.
    ///
    /// # Errors
    /// If there is no picture, and where pictures cannot be read: all of them are in the error.
    pub fn with_class(self, name: &str, files: &[PathBuf]) -> Result<Self> {
        let kept = self.has_thumbnails();
        let beside = |picture: &Picture| if kept { small(picture) } else { None };
        let (mut rows, _, mut thumbnails) = self.begun.backbone.embed_each(files, beside)?;
        let mut classes = self.all();
        match classes.iter_mut().find(|class| class.name == name) {
            Some(there) => {
                there.rows.append(&mut rows);
                there.thumbnails.append(&mut thumbnails);
            }
            None => classes.push(Class { name: name.to_owned(), rows, thumbnails }),
        }
        self.changed(classes)
    }

    /// With these limits for pictures in files.
    pub fn with_limits(mut self, limits: PictureLimits) -> Self {
        self.begun.backbone = self.begun.backbone.with_limits(limits);
        self
    }

    /// This model without the class of this name; other classes keep their embeddings.
    ///
    /// # Errors
    /// If there is none of this name, or fewer than two are left.
    pub fn without_class(self, name: &str) -> Result<Self> {
        let mut classes = self.all();
        let Some(place) = classes.iter().position(|class| class.name == name) else {
            let (name, known) = (name.to_owned(), self.class_names());
            return Err(AdaptedModelError::UnknownClass { name, known });
        };
        classes.remove(place);
        self.changed(classes)
    }

    /// Small pictures of the [examples](Self::examples), row by row, where there are any.
    pub fn thumbnails(&self) -> &[Option<Thumbnail>] {
        &self.begun.thumbnails
    }

    /// Whether there is a small picture of any example.
    pub fn has_thumbnails(&self) -> bool {
        self.begun.thumbnails.iter().any(Option::is_some)
    }

    /// With these small pictures of the [examples](Self::examples), row by row.
    ///
    /// # Panics
    /// When they are not as many as the examples.
    pub fn with_thumbnails(mut self, thumbnails: Vec<Option<Thumbnail>>) -> Self {
        assert_eq!(thumbnails.len(), self.begun.examples.rows(), "small pictures and examples");
        self.begun.thumbnails = thumbnails;
        self
    }

    /// Without small pictures of examples.
    pub fn without_thumbnails(mut self) -> Self {
        self.begun.thumbnails.fill(None);
        self
    }

    fn all(&self) -> Vec<Class> {
        let BegunModel { examples, thumbnails, .. } = &self.begun;
        let each = classes(examples).into_iter().enumerate();
        each.map(|(class, (name, rows))| Class {
            name,
            rows,
            thumbnails: thumbnails[examples.rows_of(class)].to_vec(),
        })
        .collect()
    }

    fn changed(self, classes: Vec<Class>) -> Result<Self> {
        let BegunModel { backbone, method, examples, .. } = self.begun;
        Self::of_classes(backbone, &method, examples.length(), classes)
    }

    fn of_classes(
        backbone: PretrainedBackbone<B>,
        method: &str,
        length: usize,
        mut classes: Vec<Class>,
    ) -> Result<Self> {
        // The order of the rows.
        classes.sort_by(|one, other| one.name.cmp(&other.name));
        let mut thumbnails = Vec::new();
        let rows = classes.into_iter().map(|mut class| {
            thumbnails.append(&mut class.thumbnails);
            (class.name, class.rows)
        });
        let examples = Features::new(length, rows)?;
        Ok(Self::adapt(backbone, method, examples)?.with_thumbnails(thumbnails))
    }
}

fn small(picture: &Picture) -> Option<Thumbnail> {
    Some(picture.thumbnail(THUMBNAIL_SIDE).into())
}
