//! Numbers of changes as words of 32 bits, which lie beside the images on a device.

use super::change::Change;
use super::pixels::color::Adjustment;
use super::pixels::rotation::Rotation;
use super::pixels::window::{Shift, Window};

/// The kind of a change, the same for an image as for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// [`Change::Crop`]
    Crop,
    /// [`Change::Shift`]
    Shift,
    /// [`Change::Flip`], of some images
    Flip,
    /// [`Change::Jitter`]
    Jitter {
        /// Number of adjustments.
        adjustments: usize,
        /// True if one of them is of contrast; there are no two.
        has_contrast: bool,
    },
    /// [`Change::Grey`], of some images
    Grey,
    /// [`Change::Rotation`]
    Rotation,
    /// [`Change::Erasing`], of some images
    Erasing,
}

/// The first word of an adjustment; its amount is the second.
pub const BRIGHTNESS: i32 = 0;
pub const CONTRAST: i32 = 1;
pub const SATURATION: i32 = 2;
pub const HUE: i32 = 3;

/// Bits of fraction in the first word of a cosine or sine. The second one is the rest, a float: together more than 40.
pub const FRACTION: u32 = 16;

impl ChangeKind {
    /// Number of words of a change.
    pub fn words(self) -> usize {
        match self {
            Self::Crop | Self::Rotation | Self::Erasing => 4,
            Self::Shift => 2,
            Self::Flip | Self::Grey => 1,
            Self::Jitter { adjustments, .. } => 2 * adjustments,
        }
    }

    /// Appends the words of a change, none if the image stays as it is.
    ///
    /// # Panics
    /// When the change is of another kind.
    pub fn encode(self, change: Option<&Change>, words: &mut Vec<i32>) {
        let of_window =
            |of: &Window| [of.top, of.left, of.height, of.width].map(|side| side as i32);
        match (self, change) {
            (Self::Crop, Some(Change::Crop(window))) => words.extend(of_window(window)),
            (Self::Erasing, Some(Change::Erasing(window))) => words.extend(of_window(window)),
            (Self::Shift, Some(Change::Shift(shift))) => words.extend([shift.down, shift.right]),
            (Self::Flip, Some(Change::Flip)) | (Self::Grey, Some(Change::Grey)) => words.push(1),
            (Self::Flip | Self::Grey | Self::Erasing, None) => {
                words.resize(words.len() + self.words(), 0);
            }
            (Self::Jitter { adjustments, has_contrast }, Some(Change::Jitter(drawn))) => {
                let contrasts = drawn.iter().filter(|of| matches!(of, Adjustment::Contrast(_)));
                assert_eq!(drawn.len(), adjustments, "adjustments of a jitter");
                assert_eq!(contrasts.count(), usize::from(has_contrast), "contrasts of a jitter");
                words.extend(drawn.iter().flat_map(|adjustment| adjustment_words(*adjustment)));
            }
            (Self::Rotation, Some(Change::Rotation(Rotation { cos, sin }))) => {
                words.extend([*cos, *sin].into_iter().flat_map(parts));
            }
            (kind, change) => panic!("{change:?} is no change of the kind {kind:?}"),
        }
    }

    /// The change of these words.
    pub(super) fn decode(self, words: &[i32]) -> Option<Change> {
        let window = || {
            let [top, left, height, width] = [0, 1, 2, 3].map(|place| words[place] as usize);
            Window { top, left, height, width }
        };
        match self {
            Self::Crop => Some(Change::Crop(window())),
            Self::Shift => Some(Change::Shift(Shift { down: words[0], right: words[1] })),
            Self::Flip => (words[0] != 0).then_some(Change::Flip),
            Self::Jitter { .. } => {
                Some(Change::Jitter(words.chunks_exact(2).map(adjustment).collect()))
            }
            Self::Grey => (words[0] != 0).then_some(Change::Grey),
            Self::Rotation => {
                let [cos, sin] = [0, 2].map(|place| whole(words[place], words[place + 1]));
                Some(Change::Rotation(Rotation { cos, sin }))
            }
            Self::Erasing => (words[2] != 0).then(|| Change::Erasing(window())),
        }
    }
}

fn adjustment_words(adjustment: Adjustment) -> [i32; 2] {
    let bits = |factor: f32| factor.to_bits() as i32;
    match adjustment {
        Adjustment::Brightness(factor) => [BRIGHTNESS, bits(factor)],
        Adjustment::Contrast(factor) => [CONTRAST, bits(factor)],
        Adjustment::Saturation(factor) => [SATURATION, bits(factor)],
        Adjustment::Hue(shift) => [HUE, i32::from(shift)],
    }
}

fn adjustment(words: &[i32]) -> Adjustment {
    let factor = f32::from_bits(words[1] as u32);
    match words[0] {
        BRIGHTNESS => Adjustment::Brightness(factor),
        CONTRAST => Adjustment::Contrast(factor),
        SATURATION => Adjustment::Saturation(factor),
        _ => Adjustment::Hue(words[1] as u8),
    }
}

/// A number from -1 to 1 in two words.
fn parts(number: f64) -> [i32; 2] {
    let unit = f64::from(1 << FRACTION);
    let first = (number * unit).floor();
    [first as i32, ((number - first / unit) as f32).to_bits() as i32]
}

fn whole(first: i32, rest: i32) -> f64 {
    f64::from(first) / f64::from(1 << FRACTION) + f64::from(f32::from_bits(rest as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_comes_back_from_its_words() {
        let window = Window { top: 1, left: 2, height: 30, width: 4 };
        let adjustments = vec![
            Adjustment::Hue(250),
            Adjustment::Contrast(0.7),
            Adjustment::Brightness(1.25),
            Adjustment::Saturation(0.0),
        ];
        let jitter = ChangeKind::Jitter { adjustments: 4, has_contrast: true };
        for (kind, change) in [
            (ChangeKind::Crop, Some(Change::Crop(window))),
            (ChangeKind::Shift, Some(Change::Shift(Shift { down: -3, right: 7 }))),
            (ChangeKind::Flip, Some(Change::Flip)),
            (ChangeKind::Flip, None),
            (jitter, Some(Change::Jitter(adjustments))),
            (ChangeKind::Grey, None),
            (ChangeKind::Rotation, Some(Change::Rotation(Rotation { cos: -0.5, sin: 1.0 }))),
            (ChangeKind::Erasing, Some(Change::Erasing(window))),
            (ChangeKind::Erasing, None),
        ] {
            let mut words = Vec::new();
            kind.encode(change.as_ref(), &mut words);
            assert_eq!(words.len(), kind.words());
            assert_eq!(kind.decode(&words), change);
        }
        for number in [0.1, -0.987_654_321, 1.0 / 3.0] {
            let [first, rest] = parts(number);
            assert!((whole(first, rest) - number).abs() < 1e-12, "{number}");
        }
    }

    #[test]
    #[should_panic(expected = "no change of the kind")]
    fn a_change_of_another_kind_is_refused() {
        ChangeKind::Crop.encode(Some(&Change::Flip), &mut Vec::new());
    }
}
