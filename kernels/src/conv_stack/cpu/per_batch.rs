//! A value for every batch with moments of its own, where one pass takes several.

use std::ops::Range;

/// A value for each batch that a run of adjacent images belongs to.
pub struct PerBatch<T> {
    /// Images of a batch.
    images: usize,
    /// The first batch.
    first: usize,
    values: Vec<T>,
}

impl<T> PerBatch<T> {
    /// For `range` of the images, so many of which are a batch.
    pub fn new(images: usize, range: &Range<usize>, make: impl Fn() -> T) -> Self {
        let (first, end) = (range.start / images, range.end.div_ceil(images));
        Self { images, first, values: (first..end).map(|_| make()).collect() }
    }

    /// The value of the batch with this image.
    pub fn of(&self, image: usize) -> &T {
        &self.values[image / self.images - self.first]
    }

    /// The value of the batch with this image.
    pub fn of_mut(&mut self, image: usize) -> &mut T {
        &mut self.values[image / self.images - self.first]
    }

    /// The values of all batches.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The results of `change` on each, given the first image of its batch as well.
    pub fn map<U>(&self, mut change: impl FnMut(usize, &T) -> U) -> PerBatch<U> {
        let Self { images, first, ref values } = *self;
        let values = (first..).zip(values).map(|(batch, value)| change(batch * images, value));
        PerBatch { images, first, values: values.collect() }
    }

    /// The values of adjacent runs of images, which `merge` adds to each other where a batch is in more
    /// than one.
    ///
    /// # Panics
    /// Without a run.
    pub fn total(parts: Vec<Self>, merge: impl Fn(&mut T, &T)) -> Self {
        let mut parts = parts.into_iter();
        let mut total = parts.next().expect("a batch has images");
        for part in parts {
            for (batch, value) in (part.first - total.first..).zip(part.values) {
                match total.values.get_mut(batch) {
                    Some(total) => merge(total, &value),
                    None => total.values.push(value),
                }
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::PerBatch;

    #[test]
    fn runs_that_share_a_batch_are_added() {
        // Batches of 3 images, in runs of 2, 5 and 5.
        let runs = [0..2, 2..7, 7..12];
        let part = |run: &std::ops::Range<usize>| {
            let mut part = PerBatch::new(3, run, Vec::new);
            run.clone().for_each(|image| part.of_mut(image).push(image));
            part
        };
        let all = PerBatch::total(runs.iter().map(part).collect(), |to: &mut Vec<_>, from| {
            to.extend(from)
        });
        assert_eq!(all.values(), [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]);
        assert_eq!(all.of(8), &[6, 7, 8]);
        let sums = all.map(|image, of| (image, of.iter().sum::<usize>()));
        assert_eq!(sums.values(), [(0, 3), (3, 12), (6, 21), (9, 30)]);
    }
}
