use std::collections::HashSet;
use std::path::Path;

use image::DynamicImage;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::read::{Class, Source, read};
use super::{FolderReport, ReadOptions};
use crate::data::{DataError, PictureLimits, Result, Splits};
use crate::random::{Purpose, Stream};

/// The classes to train, to validate and to test on, with their images, found but not decoded.
pub(in crate::data) type Parts<E> = [Vec<Class<E>>; 3];

/// Names of the three parts in files.
pub(in crate::data) const PARTS: [&str; 3] = ["train", "val", "test"];

/// The results of `make` for the three parts, or its first error.
pub(in crate::data) fn try_each<A, T>(
    parts: [A; 3],
    make: impl FnMut(A) -> Result<T>,
) -> Result<[T; 3]> {
    let [train, validation, test] = parts.map(make);
    Ok([train?, validation?, test?])
}

/// Shuffles the classes by `seed`: 16 % of them, rounded to the nearest number but at least one, are to validate,
/// 20 % likewise to test, the others to train on.
///
/// Seed and name alone give a class its key, and classes stand in order of their keys. So a class more or less moves
/// none of the others but those at the two boundaries of the shares.
pub(in crate::data) fn shuffled_into_parts<E>(
    mut classes: Vec<Class<E>>,
    seed: u64,
) -> Result<Parts<E>> {
    let [train, validation, _] = shares(classes.len())?;
    classes.sort_by_cached_key(|(name, _)| key(name, seed));
    let mut shuffled = classes.into_iter();
    let [train, validation] =
        [train, validation].map(|count| shuffled.by_ref().take(count).collect());
    Ok([train, validation, shuffled.collect()])
}

/// Decodes the images of all parts. `source` is the file or folder that an error names.
pub(in crate::data) fn read_parts<E: Source>(
    source: &Path,
    parts: Parts<E>,
    options: &ReadOptions,
    decode: impl Fn(&E, PictureLimits) -> Result<DynamicImage> + Sync,
) -> Result<FolderReport<Splits>> {
    let counts = parts.each_ref().map(Vec::len);
    let expected = ["class to train on", "class to validate on", "class to test on"];
    if let Some(empty) = counts.iter().position(|&count| count == 0) {
        return Err(DataError::no_classes(source, expected[empty]));
    }
    let classes: Vec<Class<E>> = parts.into_iter().flatten().collect();
    let mut names = HashSet::new();
    if let Some((class, _)) = classes.iter().find(|(name, _)| !names.insert(name)) {
        return Err(DataError::InTwoSplits { class: class.clone() });
    }
    let folder = if source.is_dir() { source } else { source.parent().unwrap_or(source) };
    let digests: Vec<u64> = classes.par_iter().map(|(_, images)| digest(images, folder)).collect();
    let order: Vec<usize> = (0..classes.len()).collect();
    let report = read(&classes, options, decode)?;
    Ok(report.map(|data| Splits::partition(&data.with_digests(&digests), &order, counts)))
}

/// The place of a class among all that there could be.
fn key(name: &str, seed: u64) -> u64 {
    let digest = Sha256::digest(name);
    let word = |at: usize| first_word(&digest[at..]);
    Stream::new(seed, Purpose::SplitClasses, [word(0), word(8)]).seed()
}

/// The first eight bytes of the SHA-256 of a class's images, in their order.
fn digest<E: Source>(images: &[E], folder: &Path) -> u64 {
    let mut digest = Sha256::new();
    for image in images {
        let identity = image.identity(folder);
        digest.update((identity.len() as u64).to_le_bytes());
        digest.update(identity);
    }
    first_word(&digest.finalize())
}

fn first_word(digest: &[u8]) -> u64 {
    digest.iter().take(8).fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Numbers of classes to train, to validate and to test on.
pub(super) fn shares(classes: usize) -> Result<[usize; 3]> {
    if classes < 3 {
        let split = "a split into train, validation and test";
        return Err(DataError::TooFewClasses { split, expected: 3, actual: classes });
    }
    let share = |percent: usize| ((classes * percent + 50) / 100).max(1);
    let (validation, test) = (share(16), share(20));
    Ok([classes - validation - test, validation, test])
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn parts(classes: usize, seed: u64) -> [Vec<String>; 3] {
        let classes = (0..classes).map(|class| (format!("class {class}"), Vec::<PathBuf>::new()));
        let parts = shuffled_into_parts(classes.collect(), seed).unwrap();
        parts.map(|part| part.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn a_new_class_moves_none_but_those_at_the_boundaries() {
        for classes in 3..150 {
            let [before, after] = [parts(classes, 0), parts(classes + 1, 0)];
            assert_eq!(before.each_ref().map(Vec::len), shares(classes).unwrap());
            let stays =
                |part: usize| before[part].iter().filter(|name| after[part].contains(name)).count();
            let moved = classes - (0..3).map(stays).sum::<usize>();
            assert!(moved <= 3, "{moved} of {classes} classes moved");
        }
    }

    #[test]
    fn a_shuffle_means_the_same_for_ever() {
        assert_eq!(key("owl", 0), 0x0788_df75_a1ba_c209);
        assert_ne!(key("owl", 0), key("owl", 1));
        assert_ne!(key("owl", 0), key("fox", 0));
    }

    #[test]
    fn a_digest_is_of_names_from_the_folder_in_their_order() {
        let of = |paths: &[&str], folder: &str| {
            let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            digest(&paths, Path::new(folder))
        };
        let two = of(&["/a/owl/1.png", "/a/owl/2.png"], "/a");
        assert_eq!(two, of(&["/b/owl/1.png", "/b/owl/2.png"], "/b"));
        assert_ne!(two, of(&["/a/owl/2.png", "/a/owl/1.png"], "/a"));
        assert_ne!(two, of(&["/a/owl/1.png"], "/a"));
        assert_ne!(of(&["/a/ab", "/a/c"], "/a"), of(&["/a/a", "/a/bc"], "/a"));
    }
}
