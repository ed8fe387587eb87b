//! Files with equal bytes, which count as one picture of a class.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::image_folder::{Class, Source};
use super::{DataError, Result};
use crate::files;

/// Classes of images, each image once.
pub(super) struct Distinct<'a, E> {
    pub(super) classes: Vec<(&'a str, Vec<&'a E>)>,
    /// Files that are left out, each after the one of its class that it equals.
    pub(super) duplicates: Vec<[PathBuf; 2]>,
    /// Files of different classes with equal bytes.
    pub(super) contradictions: Vec<[PathBuf; 2]>,
}

impl<'a, E: Source> Distinct<'a, E> {
    /// Images that are no files are taken to differ.
    pub(super) fn new(classes: &'a [Class<E>]) -> Result<Self> {
        let each = |(name, images): &'a Class<E>| (name.as_str(), images.iter().collect());
        let (mut duplicates, mut contradictions) = (Vec::new(), Vec::new());
        let mut classes: Vec<(&str, Vec<&E>)> = classes.iter().map(each).collect();
        let files = classes.iter().flat_map(|(_, images)| images).map(|image| image.file());
        if let Some(files) = files.collect::<Option<Vec<_>>>() {
            let pair = |first: usize, place: usize| [first, place].map(|at| files[at].to_owned());
            let mut places = first_equals(&files)?.into_iter().enumerate();
            // Of each content, the last class that has it and its file there.
            let mut met = HashMap::new();
            for (class, (_, images)) in classes.iter_mut().enumerate() {
                images.retain(|_| {
                    let Some((place, first)) = places.next() else { return true };
                    let Some((earlier, at)) = met.get(&first).copied() else {
                        met.insert(first, (class, place));
                        return true;
                    };
                    if earlier == class {
                        duplicates.push(pair(at, place));
                        return false;
                    }
                    contradictions.push(pair(at, place));
                    met.insert(first, (class, place));
                    true
                });
            }
        }
        Ok(Self { classes, duplicates, contradictions })
    }
}

/// The place of the first file with the same bytes, of each file: its own, if there is none before it. Only files of one length
/// are read.
fn first_equals(files: &[&Path]) -> Result<Vec<usize>> {
    let length = |path: &&Path| fs::metadata(path).map(|file| file.len());
    let lengths = files.par_iter().map(|path| length(path).map_err(DataError::read(path)));
    let lengths: Vec<u64> = lengths.collect::<Result<_>>()?;
    let mut counts = HashMap::new();
    lengths.iter().for_each(|length| *counts.entry(length).or_insert(0) += 1);
    // The place of a file whose length no other has is as good a key as its hash.
    let digest = |(place, path): (usize, &&Path)| match counts[&lengths[place]] {
        1 => Ok(place.to_string()),
        _ => files::sha256(path).map_err(DataError::read(path)),
    };
    let digests = files.par_iter().enumerate().map(digest).collect::<Result<Vec<_>>>()?;
    let mut firsts = HashMap::new();
    let places = digests.into_iter().enumerate();
    Ok(places.map(|(place, digest)| *firsts.entry(digest).or_insert(place)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image_files::put;

    #[test]
    fn files_with_equal_bytes_are_one_picture() {
        let root = tempfile::tempdir().unwrap();
        let contents = ["one", "two", "one", "three", "two", "one"];
        let files = contents.iter().enumerate().map(|(place, content)| {
            put(root.path(), &place.to_string(), content);
            root.path().join(place.to_string())
        });
        let files: Vec<_> = files.collect();
        let files: Vec<_> = files.iter().map(PathBuf::as_path).collect();
        assert_eq!(first_equals(&files).unwrap(), [0, 1, 0, 3, 1, 0]);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = first_equals(&[Path::new("nowhere/1.png")]).unwrap_err().to_string();
        assert!(error.starts_with("cannot read nowhere/1.png: "), "{error}");
    }
}
