use image::metadata::Orientation;

/// Number of the orientation's field.
const ORIENTATION: u64 = 0x112;

/// The orientation in a block of Exif: its first directory, in either order of bytes, with the value as BYTE, SHORT or LONG.
///
/// # Source
/// CIPA DC-008 (Exif 2.32), 4.6.2: `II*\0` or `MM\0*`, the place of the first directory, the count of its entries, and of each
/// of them field, type, count and value in 2, 2, 4 and 4 bytes.
pub(super) fn noted_in(exif: &[u8]) -> Option<Orientation> {
    // WebP's writers disagree about this prefix of JPEG's.
    let exif = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    let number: fn(&[u8]) -> u64 = match exif.first_chunk()? {
        b"II*\0" => |bytes| bytes.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)),
        b"MM\0*" => |bytes| bytes.iter().fold(0, |all, &byte| all << 8 | u64::from(byte)),
        _ => return None,
    };
    let at = |place: usize, bytes: usize| exif.get(place..)?.get(..bytes).map(number);
    let directory = at(4, 4)? as usize;
    let entry = |number: u64| directory + 2 + 12 * number as usize;
    let place = (0..at(directory, 2)?).map(entry).find(|&of| at(of, 2) == Some(ORIENTATION))?;
    let bytes = match at(place + 2, 2)? {
        1 => 1,
        3 => 2,
        4 => 4,
        _ => return None,
    };
    Orientation::from_exif(u8::try_from(at(place + 8, bytes)?).ok()?)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A block of Exif with one orientation.
    pub(in crate::data::decode) fn exif(value: u32, kind: u16, order: Order) -> Vec<u8> {
        let short = |number: u16| match order {
            Order::Intel => number.to_le_bytes(),
            Order::Motorola => number.to_be_bytes(),
        };
        let long = |number: u32| match order {
            Order::Intel => number.to_le_bytes(),
            Order::Motorola => number.to_be_bytes(),
        };
        let value = match kind {
            1 => [value as u8, 0, 0, 0],
            3 => [short(value as u16), [0; 2]].concat().try_into().unwrap(),
            _ => long(value),
        };
        let magic: &[u8] = if order == Order::Intel { b"II" } else { b"MM" };
        let head = [magic, &short(42), &long(8), &short(1), &short(0x112), &short(kind), &long(1)];
        [&head.concat()[..], &value, &[0; 4]].concat()
    }

    #[derive(Clone, Copy, PartialEq)]
    pub(in crate::data::decode) enum Order {
        Intel,
        Motorola,
    }

    #[test]
    fn orientations_are_read_in_every_type_and_order() {
        for order in [Order::Intel, Order::Motorola] {
            for kind in [1, 3, 4] {
                for value in 1..=8 {
                    let block = exif(value, kind, order);
                    let noted = noted_in(&block).map(|noted| u32::from(noted.to_exif()));
                    assert_eq!(noted, Some(value));
                    assert_eq!(noted_in(&[b"Exif\0\0", &block[..]].concat()), noted_in(&block));
                }
                assert_eq!([0, 9, 200].map(|value| noted_in(&exif(value, kind, order))), [None; 3]);
            }
            assert_eq!(noted_in(&exif(6 << 16 | 6, 4, order)), None);
            assert_eq!(noted_in(&exif(6, 2, order)), None);
            // A directory without entries ends before what follows it.
            let (number, mut empty) = (exif(6, 3, order), exif(6, 3, order));
            empty[8..10].fill(0);
            assert_eq!([noted_in(&number).is_some(), noted_in(&empty).is_some()], [true, false]);
            let block = exif(6, 4, order);
            // Nothing comes after the value but the place of the next directory.
            assert!((0..block.len() - 4).all(|length| noted_in(&block[..length]).is_none()));
        }
    }
}
