use std::fmt;

use super::timing::Effort;

/// Sizes that figures are wanted of, or the smallest that show that measuring works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Full,
    Quick,
}

impl Scale {
    pub(super) fn choose<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }

    pub(super) fn effort(self) -> Effort {
        self.choose(Effort { rounds: 3, seconds: 4.0 }, Effort { rounds: 2, seconds: 0.0 })
    }
}

/// An operation at one size.
pub(super) struct Case {
    pub(super) operation: &'static str,
    pub(super) shape: String,
    /// What else tells it from others of its operation: what batch-norm normalises with.
    pub(super) variant: &'static str,
    pub(super) pass: Pass,
    pub(super) load: Load,
    /// Whether its reference can be borne.
    pub(super) reference: Reference,
    /// Does it once, and waits for the device.
    pub(super) work: Box<dyn FnMut()>,
}

/// What one run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Forward,
    ForwardBackward,
    /// An update of the parameters, given their gradients.
    Update,
    /// Forward, backward and an update of the parameters.
    Training,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forward => "forward",
            Self::ForwardBackward => "forward+backward",
            Self::Update => "update",
            Self::Training => "training",
        })
    }
}

/// What bounds a case at best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Load {
    /// Floating-point operations of its convolutions, counted as direct ones: the matrix product.
    Flops(f64),
    /// Bytes that it reads and writes if nothing stays in a cache: the copy.
    Bytes(f64),
}

impl Load {
    pub(super) fn amount(self) -> f64 {
        match self {
            Self::Flops(amount) | Self::Bytes(amount) => amount,
        }
    }

    /// Its limit, and the units of its rate in a table and in JSON.
    pub(super) fn names(self) -> [&'static str; 3] {
        match self {
            Self::Flops(_) => ["matmul", "GFLOP/s", "gflop_per_s"],
            Self::Bytes(_) => ["copy", "GB/s", "gb_per_s"],
        }
    }
}

/// Whether the reference is measured too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    Beside,
    /// It takes minutes and gigabytes.
    TooLarge,
}
