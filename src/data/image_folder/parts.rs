use std::collections::HashSet;
use std::path::Path;

use image::DynamicImage;

use super::read::{Class, Source, read};
use super::{FolderReport, ReadOptions};
use crate::data::{DataError, PictureLimits, Result, Splits};
use crate::random::{Purpose, Stream};

/// The classes to train, to validate and to test on, with their images, found but not decoded.
pub(in crate::data) type Parts<E> = [Vec<Class<E>>; 3];

/// What files call the three parts.
pub(in crate::data) const PARTS: [&str; 3] = ["train", "val", "test"];

/// What `make` gives for each of three parts, or its first error.
pub(in crate::data) fn try_each<A, T>(
    parts: [A; 3],
    make: impl FnMut(A) -> Result<T>,
) -> Result<[T; 3]> {
    let [train, validation, test] = parts.map(make);
    Ok([train?, validation?, test?])
}

/// Shuffles the classes by `seed`: 16 % of them, rounded to the nearest number but at least one, are to validate,
/// 20 % likewise to test, the others to train on.
pub(in crate::data) fn shuffled_into_parts<E>(
    classes: Vec<Class<E>>,
    seed: u64,
) -> Result<Parts<E>> {
    let [train, validation, _] = shares(classes.len())?;
    let order = Stream::new(seed, Purpose::SplitClasses, [0, 0]).permutation(classes.len());
    let mut classes: Vec<Option<Class<E>>> = classes.into_iter().map(Some).collect();
    let mut shuffled = order.iter().filter_map(|&class| classes[class].take());
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
    let wanted = ["class to train on", "class to validate on", "class to test on"];
    if let Some(empty) = counts.iter().position(|&count| count == 0) {
        return Err(DataError::no_classes(source, wanted[empty]));
    }
    let classes: Vec<Class<E>> = parts.into_iter().flatten().collect();
    let mut names = HashSet::new();
    if let Some((class, _)) = classes.iter().find(|(name, _)| !names.insert(name)) {
        return Err(DataError::InTwoSplits { class: class.clone() });
    }
    let order: Vec<usize> = (0..classes.len()).collect();
    let report = read(&classes, options, decode)?;
    Ok(report.map(|data| Splits::partition(&data, &order, counts)))
}

/// How many of the classes are to train, to validate and to test on.
pub(super) fn shares(classes: usize) -> Result<[usize; 3]> {
    if classes < 3 {
        let split = "a split into train, validation and test";
        return Err(DataError::TooFewClasses { split, wanted: 3, found: classes });
    }
    let share = |percent: usize| ((classes * percent + 50) / 100).max(1);
    let (validation, test) = (share(16), share(20));
    Ok([classes - validation - test, validation, test])
}
