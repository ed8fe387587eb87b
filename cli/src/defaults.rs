use fewshot::data::ImageShape;

use super::args::Method;

/// What the papers report on, by which a method's defaults are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Benchmark {
    /// Images of at most 32 pixels a side.
    Omniglot,
    MiniImagenet,
    Sinusoids,
}

/// The defaults of a method with an inner loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Defaults {
    pub(crate) rate: f64,
    pub(crate) steps: usize,
    /// As many as in training, if `None`.
    pub(crate) eval_steps: Option<usize>,
    /// Examples (of a class, with images) that a training task is learned from; as many as in the
    /// test, if `None`.
    pub(crate) shots: Option<usize>,
    /// Queries of a training task (of a class, with images); as many as shots, if `None`.
    pub(crate) queries: Option<usize>,
    pub(crate) meta_batch: u64,
}

const SMALL: usize = 32;

impl Benchmark {
    pub(crate) fn of(image: ImageShape) -> Self {
        match image.height <= SMALL && image.width <= SMALL {
            true => Self::Omniglot,
            false => Self::MiniImagenet,
        }
    }

    /// Meta-steps in which maml++ has the loss after every inner step.
    pub(crate) fn multi_step_loss(self) -> u64 {
        match self {
            Self::Omniglot | Self::Sinusoids => 5000,
            Self::MiniImagenet => 7500,
        }
    }

    /// The papers' values where there are any; `docs/learners.md` tells which are not.
    pub(crate) fn defaults(self, method: Method) -> Defaults {
        use Benchmark::{MiniImagenet, Omniglot, Sinusoids};
        let (rate, steps, eval_steps, shots, queries, meta_batch) = match (method, self) {
            (Method::Imaml, Omniglot) => (0.1, 16, None, None, None, 32),
            (Method::Imaml, MiniImagenet) => (0.1, 16, None, None, Some(15), 4),
            (Method::Imaml, Sinusoids) => (0.01, 16, None, Some(10), None, 25),
            (Method::ProtoMaml, Omniglot) => (0.01, 1, Some(3), None, None, 32),
            (Method::MamlPlusPlus, Omniglot) => (0.1, 5, None, None, None, 8),
            (Method::MamlPlusPlus, MiniImagenet) => (0.01, 5, None, None, Some(15), 2),
            (Method::MamlPlusPlus, Sinusoids) => (0.001, 5, None, Some(10), None, 25),
            (Method::Cavia, Sinusoids) => (1.0, 1, None, Some(10), None, 25),
            (Method::Cavia, _) => (1.0, 2, None, None, Some(15), 16),
            (Method::Reptile, Omniglot) => (1e-3, 5, Some(50), Some(5), Some(5), 5),
            (Method::Reptile, MiniImagenet) => (1e-3, 8, Some(50), Some(8), Some(7), 5),
            (Method::Reptile, Sinusoids) => (0.01, 10, None, Some(10), None, 25),
            (_, Omniglot) => (0.4, 1, Some(3), None, None, 32),
            (_, MiniImagenet) => (0.01, 5, Some(10), None, Some(15), 4),
            (_, Sinusoids) => (0.001, 1, None, Some(10), None, 25),
        };
        Defaults { rate, steps, eval_steps, shots, queries, meta_batch }
    }
}
