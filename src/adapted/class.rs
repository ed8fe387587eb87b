//! A class of a model while its examples change.

use std::collections::HashSet;

use super::unfitted::{Example, THUMBNAIL_SIDE, Thumbnail};
use super::{AdaptedModelError, Result};
use crate::data::{Picture, class_name};

/// A class with the embeddings of its examples and the small pictures that there are of them.
#[derive(Default)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) rows: Vec<f32>,
    pub(super) thumbnails: Vec<Option<Thumbnail>>,
    pub(super) digests: Vec<Option<String>>,
}

impl Class {
    /// Adds rows of `length` values that no row of the class equals bit for bit; returns their places among `rows`.
    pub(super) fn add_distinct(&mut self, rows: &[f32], length: usize) -> Vec<usize> {
        let bits = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        let mut known: HashSet<_> = self.rows.chunks_exact(length).map(bits).collect();
        let mut places = Vec::new();
        for (place, row) in rows.chunks_exact(length).enumerate() {
            if known.insert(bits(row)) {
                self.rows.extend(row);
                self.thumbnails.push(None);
                self.digests.push(None);
                places.push(place);
            }
        }
        places
    }

    /// Removes one of its rows, of `length` values.
    pub(super) fn remove(&mut self, row: usize, length: usize) {
        self.rows.drain(row * length..(row + 1) * length);
        self.thumbnails.remove(row);
        self.digests.remove(row);
    }
}

/// Place of the class of this plain name among others; if it is not there, it is put at the end.
pub(super) fn place_of(classes: &mut Vec<Class>, name: &str) -> usize {
    // Files of other versions may have names in other spellings of Unicode.
    let is_same = |class: &Class| class_name(&class.name).is_ok_and(|other| other == name);
    classes.iter().position(is_same).unwrap_or_else(|| {
        classes.push(Class { name: name.to_owned(), ..Class::default() });
        classes.len() - 1
    })
}

/// Adds the examples of a class whose digests it does not have yet, with embeddings of `length` values.
pub(super) fn add_examples(
    classes: &mut Vec<Class>,
    class: &str,
    examples: Vec<Example>,
    length: usize,
    thumbnail: impl Fn(&Picture) -> Option<Thumbnail>,
) -> Result {
    let place = place_of(classes, &class_name(class)?);
    let class = &mut classes[place];
    for Example { picture, digest, embedding } in examples {
        if embedding.len() != length {
            let (expected, actual) = (length, embedding.len());
            return Err(AdaptedModelError::OtherLength { expected, actual });
        }
        if !class.digests.iter().flatten().any(|known| *known == digest) {
            class.rows.extend(embedding);
            class.thumbnails.push(thumbnail(&picture));
            class.digests.push(Some(digest));
        }
    }
    Ok(())
}

/// The small picture of an example.
pub(super) fn small(picture: &Picture) -> Option<Thumbnail> {
    Some(picture.thumbnail(THUMBNAIL_SIDE).into())
}
