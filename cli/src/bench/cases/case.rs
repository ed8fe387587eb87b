use std::fmt;

use burn::tensor::backend::Backend;

/// Sizes to quote figures of, or the smallest that show that measuring works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Full,
    Quick,
}

impl Scale {
    pub(crate) fn choose<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

/// An operation at one size.
pub(crate) struct Case {
    pub(crate) operation: &'static str,
    pub(crate) shape: String,
    /// Mark that tells cases of one operation apart, as the statistics of batch-norm.
    pub(crate) variant: &'static str,
    pub(crate) pass: Pass,
    pub(crate) load: Load,
    /// Measures the reference too, which for large cases takes minutes and gigabytes.
    pub(crate) has_reference: bool,
    /// Runs it once, and waits for the device.
    pub(crate) work: Box<dyn FnMut()>,
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
pub(crate) enum Pass {
    Forward,
    ForwardBackward,
    /// Forward, backward, and the gradient of a function of that gradient.
    SecondOrder,
    Update,
    /// Forward, backward and an update of the parameters.
    Training,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forward => "forward",
            Self::ForwardBackward => "forward+backward",
            Self::SecondOrder => "second order",
            Self::Update => "update",
            Self::Training => "training",
        })
    }
}

/// Amount of work that bounds the time of a case from below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
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

    pub(crate) fn amount(self) -> f64 {
        match self {
            Self::Products { flops: amount, .. } | Self::Bytes(amount) => amount,
        }
    }
}
