use std::fmt;

use super::timing::Repeats;
use crate::prelude::*;

/// Sizes that figures are wanted of, or the smallest that show that measuring works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
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

    pub(super) fn repeats(self) -> Repeats {
        self.choose(Repeats { rounds: 3, seconds: 4.0 }, Repeats { rounds: 2, seconds: 0.0 })
    }
}

/// An operation at one size.
pub(super) struct Case {
    pub(super) operation: &'static str,
    pub(super) shape: String,
    /// Mark that tells cases of one operation apart, as the statistics of batch-norm.
    pub(super) variant: &'static str,
    pub(super) pass: Pass,
    pub(super) load: Load,
    /// Measures the reference too, which for large cases takes minutes and gigabytes.
    pub(super) has_reference: bool,
    /// Runs it once, and waits for the device.
    pub(super) work: Box<dyn FnMut()>,
}

impl Case {
    /// A case that applies `run` to the state that `make` makes in the first run, which is not timed.
    pub(super) fn new<B: Backend, S: 'static>(
        [operation, variant]: [&'static str; 2],
        shape: String,
        (pass, load): (Pass, Load),
        device: &B::Device,
        make: impl Fn(&B::Device) -> S + 'static,
        run: impl Fn(&mut S) + 'static,
    ) -> Self {
        let (device, mut state) = (device.clone(), None);
        let work = move || {
            run(state.get_or_insert_with(|| {
                B::seed(&device, 1);
                make(&device)
            }));
            B::sync(&device).expect("the device answers");
        };
        Self { operation, shape, variant, pass, load, has_reference: true, work: Box::new(work) }
    }
}

/// Sizes as in `1x28x28`.
pub(super) fn sides<const N: usize>(shape: [usize; N]) -> String {
    shape.map(|side| side.to_string()).join("x")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Forward,
    ForwardBackward,
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

/// Amount of work that bounds the time of a case from below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Load {
    /// Floating-point operations of its products, convolutions counted as direct ones: the matrix product. On
    /// an accelerator the bytes that it reads and writes meanwhile, if these take longer.
    Products { flops: f64, bytes: f64 },
    /// Bytes that it reads and writes if nothing stays in a cache: the copy.
    Bytes(f64),
}

impl Load {
    pub(super) fn products(flops: f64, floats: usize) -> Self {
        Self::Products { flops, bytes: (4 * floats) as f64 }
    }

    pub(super) fn floats(count: usize) -> Self {
        Self::Bytes((4 * count) as f64)
    }

    pub(super) fn amount(self) -> f64 {
        match self {
            Self::Products { flops: amount, .. } | Self::Bytes(amount) => amount,
        }
    }

    /// Its limit, and the units of its rate in a table and in JSON.
    pub(super) fn names(self) -> [&'static str; 3] {
        match self {
            Self::Products { .. } => ["matmul", "GFLOP/s", "gflop_per_s"],
            Self::Bytes(_) => ["copy", "GB/s", "gb_per_s"],
        }
    }
}
