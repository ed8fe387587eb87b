use std::ops::Range;

use crate::pickle::Step;

/// Where the elements of a tensor lie in a storage, all numbers in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) shape: Vec<usize>,
    strides: Vec<usize>,
    span: Range<usize>,
}

/// Elements that a tensor may have beyond those of its storage, some of which it then repeats.
const REPEATED: usize = 1 << 20;

impl Layout {
    /// The layout of a tensor in a storage of so many elements.
    ///
    /// # Errors
    /// Where it does not lie in there.
    pub(super) fn within(
        storage: usize,
        offset: usize,
        shape: Vec<usize>,
        strides: Vec<usize>,
    ) -> Step<Self> {
        if shape.len() != strides.len() {
            return Err(format!("has {} sizes and {} strides", shape.len(), strides.len()));
        }
        if shape.contains(&0) {
            return Ok(Self { shape, strides, span: 0..0 });
        }
        let elements = shape.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
        if elements.is_none_or(|elements| elements > storage.max(REPEATED)) {
            return Err(format!("is of the shape {shape:?}, its storage has {storage} elements"));
        }
        let end = shape.iter().zip(&strides).try_fold(offset, |last, (&size, &stride)| {
            last.checked_add(stride.checked_mul(size - 1)?)
        });
        match end.filter(|&last| last < storage) {
            Some(last) => Ok(Self { shape, strides, span: offset..last + 1 }),
            None => Err(format!(
                "lies from element {offset} in strides of {strides:?}, its storage has {storage} elements"
            )),
        }
    }

    /// The layout of a tensor that is all of its storage, row by row.
    pub(super) fn whole(shape: Vec<usize>) -> Self {
        let mut elements = 1;
        let mut strides: Vec<usize> = shape
            .iter()
            .rev()
            .map(|&size| {
                let stride = elements;
                elements *= size;
                stride
            })
            .collect();
        strides.reverse();
        Self { shape, strides, span: 0..elements }
    }

    /// The part of the storage that has all elements.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Elements of so many bytes, which lie in the [span](Self::span), row by row.
    pub(super) fn in_rows(&self, span: Vec<u8>, size: usize) -> Vec<u8> {
        if self.span.is_empty() || self.is_contiguous() {
            return span;
        }
        let mut places = vec![0];
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            let along = |place: usize| (0..size).map(move |at| place + at * stride);
            places = places.into_iter().flat_map(along).collect();
        }
        places.into_iter().flat_map(|place| &span[place * size..][..size]).copied().collect()
    }

    fn is_contiguous(&self) -> bool {
        let mut row = 1;
        self.shape.iter().zip(&self.strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == row;
            row *= size;
            fits
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(offset: usize, shape: &[usize], strides: &[usize]) -> Vec<u8> {
        let layout = Layout::within(8, offset, shape.to_vec(), strides.to_vec()).unwrap();
        let storage: Vec<u8> = (0..16).collect();
        let span = layout.span();
        layout.in_rows(storage[2 * span.start..2 * span.end].to_vec(), 2)
    }

    #[test]
    fn elements_are_taken_from_their_places() {
        assert_eq!(rows(0, &[2, 2], &[2, 1]), (0..8).collect::<Vec<_>>());
        assert_eq!(rows(1, &[2, 2], &[1, 2]), [2, 3, 6, 7, 4, 5, 8, 9]);
        assert_eq!(rows(1, &[2, 2], &[3, 2]), [2, 3, 6, 7, 8, 9, 12, 13]);
        assert_eq!(rows(7, &[2, 1], &[0, 9]), [14, 15, 14, 15]);
        assert_eq!(rows(7, &[], &[]), [14, 15]);
        assert!(rows(9, &[3, 0, usize::MAX, 9], &[1, 1, 1, 1]).is_empty());
        let whole = Layout::whole(vec![2, 3, 4]);
        assert_eq!(whole, Layout::within(24, 0, vec![2, 3, 4], vec![12, 4, 1]).unwrap());
        assert_eq!(Layout::whole(vec![2, 0]).span(), 0..0);
    }

    #[test]
    fn a_tensor_lies_in_its_storage() {
        let within = |offset, shape: &[usize], strides: &[usize]| {
            Layout::within(8, offset, shape.to_vec(), strides.to_vec()).err()
        };
        assert_eq!(within(4, &[2, 2], &[2, 1]), None);
        for (offset, shape, strides) in [
            (5, &[2, 2][..], &[2, 1][..]),
            (8, &[], &[]),
            (0, &[2], &[usize::MAX]),
            (usize::MAX, &[2], &[1]),
            (0, &[3], &[usize::MAX / 2 + 1]),
        ] {
            assert!(within(offset, shape, strides).unwrap().contains("lies from"), "{strides:?}");
        }
        for shape in [vec![1 << 40], vec![1 << 32, 1 << 32], vec![REPEATED, 2]] {
            let error = within(0, &shape, &vec![0; shape.len()]).unwrap();
            assert!(error.ends_with("its storage has 8 elements"), "{error}");
        }
        assert_eq!(within(0, &[2], &[]).unwrap(), "has 1 sizes and 0 strides");
    }
}
