use crate::data::{DataError, ImageShape, Result};
use crate::machine::{Bytes, memory};

/// Refuses images that do not fit in the memory that is free, before there is room for one.
pub(super) fn check_memory(images: usize, shape: ImageShape) -> Result {
    refuse_beyond(memory().map(|(_, free)| free), images, shape)?;
    // Where a limit is set that nothing tells of, the system refuses the room: it is given back untouched.
    let needed = images.saturating_mul(shape.values());
    let refused = Vec::<u8>::new().try_reserve_exact(needed);
    refused.map_err(|_| DataError::Memory { images, shape, free: None })
}

fn refuse_beyond(free: Option<Bytes>, images: usize, shape: ImageShape) -> Result {
    match free {
        Some(free) if free < needed(images, shape) => {
            Err(DataError::Memory { images, shape, free: Some(free) })
        }
        _ => Ok(()),
    }
}

/// A byte for each value.
pub(super) fn needed(images: usize, shape: ImageShape) -> Bytes {
    Bytes((images as u64).saturating_mul(shape.values() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_beyond_the_free_memory_are_refused_with_both_amounts() {
        let shape = ImageShape::new(3, 84, 84);
        let (free, million) = (Bytes(18 << 30), 1_000_000);
        let text = refuse_beyond(Some(free), million, shape).unwrap_err().to_string();
        assert_eq!(
            text,
            "1000000 images of 3x84x84 need 19.7 GiB of memory, 18.0 GiB are free: a smaller --image-size or fewer \
             images fit"
        );
        assert!(refuse_beyond(Some(Bytes(21_168_000_000)), million, shape).is_ok());
        assert!(refuse_beyond(Some(Bytes(21_167_999_999)), million, shape).is_err());
        assert!(refuse_beyond(None, million, shape).is_ok());
    }

    #[test]
    fn what_no_machine_has_is_refused_without_an_abort() {
        let largest = ImageShape::new(3, 65_535, 65_535);
        for images in [1_000_000, usize::MAX] {
            let text = check_memory(images, largest).unwrap_err().to_string();
            assert!(text.contains("of memory") && text.contains("are free"), "{text}");
        }
        let refused = DataError::Memory { images: 2, shape: ImageShape::new(1, 1, 1), free: None };
        assert!(refused.to_string().contains("2 B of memory, which the system refuses"));
        assert!(check_memory(1000, ImageShape::new(3, 84, 84)).is_ok());
    }
}
