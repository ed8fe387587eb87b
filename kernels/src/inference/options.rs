//! The common settings of the convolutions.

/// The way of the window over a map, and the bounds of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FusedConvOptions {
    /// Distance between windows, 1 or 2.
    pub stride: usize,
    /// Zeros above, to the left, below and to the right; fewer than the window's side.
    pub padding: [usize; 4],
    /// Least and largest value of the result: 0 and 6 of a ReLU6, infinite for none.
    pub bounds: [f32; 2],
}

impl FusedConvOptions {
    /// Height and width of the result, of maps `[n, c, h, w]`.
    ///
    /// # Panics
    /// Where the options are none, or the maps are smaller than a window.
    pub(crate) fn checked(&self, maps: [usize; 4], window: usize) -> [usize; 2] {
        let Self { stride, padding, bounds: [least, most] } = *self;
        assert!(matches!(stride, 1 | 2), "a stride of 1 or 2, found {stride}");
        assert!(maps[2] * maps[3] > 0, "a map has pixels, found {maps:?}");
        assert!(
            padding.iter().all(|side| *side < window),
            "fewer zeros than {window}: {padding:?}"
        );
        assert!(least <= most, "bounds from the least to the largest, found {least} and {most}");
        self.out(maps, window)
            .unwrap_or_else(|| panic!("a map of {maps:?} is smaller than a window of {window}"))
    }

    /// Height and width of the result, unless the map is smaller than a window.
    pub(super) fn out(&self, [_, _, h, w]: [usize; 4], window: usize) -> Option<[usize; 2]> {
        let [top, left, bottom, right] = self.padding;
        let steps = |side: usize| Some(side.checked_sub(window)? / self.stride + 1);
        Some([steps(h + top + bottom)?, steps(w + left + right)?])
    }
}
