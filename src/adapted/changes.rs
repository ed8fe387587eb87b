//! Models of folders of pictures, and what classes come and go.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::backend::Backend;
use rayon::prelude::*;

use super::{
    AdaptedModel, AdaptedModelError, BegunModel, PretrainedBackbone, Result, backbone, classes,
};
use crate::data::{Features, Picture, PictureLimits, class_name, picture_files};
use crate::files;

/// A small picture of an example: the content of a JPEG file with [`THUMBNAIL_SIDE`] pixels along a side.
pub type Thumbnail = Arc<[u8]>;

/// Pixels along a side of a [`Thumbnail`].
pub const THUMBNAIL_SIDE: usize = 96;

/// A class with the embeddings of its examples and the small pictures that there are of them.
struct Class {
    name: String,
    rows: Vec<f32>,
    thumbnails: Vec<Option<Thumbnail>>,
    digests: Vec<Option<String>>,
}

/// The first 16 hexadecimal digits of the sha256 of a file's content: equal files have equal ones.
pub fn digest(bytes: &[u8]) -> String {
    let mut digest = files::sha256_of(bytes);
    digest.truncate(DIGITS);
    digest
}

const DIGITS: usize = 16;

/// The files whose content is not known yet, each content once, and their digests.
fn new_files(
    files: &[PathBuf],
    mut known: HashSet<String>,
) -> Result<(Vec<PathBuf>, Vec<Option<String>>)> {
    let digest = |file: &PathBuf| {
        let mut digest = backbone::sha256(file)?;
        digest.truncate(DIGITS);
        Ok((file.clone(), digest))
    };
    let mut files = files.par_iter().map(digest).collect::<Result<Vec<_>>>()?;
    files.retain(|(_, digest)| known.insert(digest.clone()));
    Ok(files.into_iter().map(|(file, digest)| (file, Some(digest))).unzip())
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

    /// The same of the files of each class; of those of a class with equal content the first counts.
    ///
    /// # Errors
    /// The reasons are those of [`of_folder`](Self::of_folder).
    pub fn adapt_to_pictures(
        backbone: PretrainedBackbone<B>,
        method: &str,
        classes: &[(String, Vec<PathBuf>)],
    ) -> Result<Self> {
        let (mut distinct, mut digests) = (Vec::new(), Vec::new());
        for (name, files) in classes {
            let (files, of_files) = new_files(files, HashSet::new())?;
            distinct.push((name.clone(), files));
            digests.push(of_files);
        }
        let (length, classes) = backbone.embed_classes(&distinct, small)?;
        let class = |((name, rows, thumbnails), digests)| Class { name, rows, thumbnails, digests };
        let classes = classes.into_iter().zip(digests).map(class).collect();
        Self::of_classes(backbone, method, length, classes)
    }

    /// This model with a further class of the pictures in these files, or with further pictures of a class
    /// that it has; other classes keep their embeddings. Files whose content an example of the class has already
    /// add nothing. Small pictures are kept if the model has any.
    ///
    /// # Errors
    /// If there is no picture, and where pictures cannot be read: all of them are in the error.
    pub fn with_class(self, name: &str, files: &[PathBuf]) -> Result<Self> {
        let name = &class_name(name)?;
        let mut classes = self.all();
        // Files of other versions may have names in other spellings of Unicode.
        let there =
            classes.iter().position(|class| class_name(&class.name).is_ok_and(|of| of == *name));
        let known = there.map(|place| classes[place].digests.as_slice()).unwrap_or_default();
        let known = known.iter().flatten().cloned().collect();
        let (files, mut digests) = new_files(files, known)?;
        if files.is_empty() && there.is_some() {
            return Ok(self);
        }
        let kept = self.has_thumbnails();
        let beside = |picture: &Picture| if kept { small(picture) } else { None };
        let (mut rows, _, mut thumbnails) = self.begun.backbone.embed_each(&files, beside)?;
        match there.map(|place| &mut classes[place]) {
            Some(there) => {
                there.rows.append(&mut rows);
                there.thumbnails.append(&mut thumbnails);
                there.digests.append(&mut digests);
            }
            None => classes.push(Class { name: name.to_owned(), rows, thumbnails, digests }),
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

    /// With these [digests](digest) of the files of the [examples](Self::examples), row by row.
    ///
    /// # Panics
    /// When they are not as many as the examples.
    pub fn with_digests(mut self, digests: Vec<Option<String>>) -> Self {
        assert_eq!(digests.len(), self.begun.examples.rows(), "digests and examples");
        self.begun.digests = digests;
        self
    }

    /// Without small pictures of examples.
    pub fn without_thumbnails(mut self) -> Self {
        self.begun.thumbnails.fill(None);
        self
    }

    fn all(&self) -> Vec<Class> {
        let BegunModel { examples, thumbnails, digests, .. } = &self.begun;
        let each = classes(examples).into_iter().enumerate();
        each.map(|(class, (name, rows))| Class {
            name,
            rows,
            thumbnails: thumbnails[examples.rows_of(class)].to_vec(),
            digests: digests[examples.rows_of(class)].to_vec(),
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
        let (mut thumbnails, mut digests) = (Vec::new(), Vec::new());
        let rows = classes.into_iter().map(|mut class| {
            thumbnails.append(&mut class.thumbnails);
            digests.append(&mut class.digests);
            (class.name, class.rows)
        });
        let examples = Features::new(length, rows)?;
        let model = Self::adapt(backbone, method, examples)?;
        Ok(model.with_thumbnails(thumbnails).with_digests(digests))
    }
}

fn small(picture: &Picture) -> Option<Thumbnail> {
    Some(picture.thumbnail(THUMBNAIL_SIDE).into())
}
