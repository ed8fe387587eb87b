/// Extent of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Some seconds, and on an accelerator as many again if kernels have to be compiled first.
    Full,
    /// Tiny sizes, to see that it works.
    Quick,
}

impl Effort {
    pub(super) fn squares(self) -> &'static [usize] {
        match self {
            Self::Full => &[16, 32, 64, 128, 256, 512, 1024],
            Self::Quick => &[8, 16],
        }
    }

    /// Seconds, about, for each figure of an accelerator.
    pub(super) fn seconds(self) -> f64 {
        match self {
            Self::Full => 0.2,
            Self::Quick => 0.0,
        }
    }

    pub(super) fn floats(self) -> usize {
        match self {
            Self::Full => 1 << 24,
            Self::Quick => 1 << 12,
        }
    }
}
