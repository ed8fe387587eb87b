use fewshot::data::ImageShape;

use super::args::Method;

/// What the papers report on, by which a method's defaults are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Benchmark {
    /// Images of at most 32 pixels a side.
    Omniglot,
    /// Larger images.
    MiniImagenet,
    Sinusoids,
}

/// What a method with an inner loop takes where nothing is said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Defaults {
    pub(crate) rate: f64,
    pub(crate) steps: usize,
    pub(crate) eval_steps: usize,
    /// Queries of a training task (of a class, with images); as many as shots where none is said.
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

    /// The papers' values.
    pub(crate) fn defaults(self, method: Method) -> Defaults {
        let maml = match self {
            Self::Omniglot => {
                Defaults { rate: 0.4, steps: 1, eval_steps: 3, queries: None, meta_batch: 32 }
            }
            Self::MiniImagenet => {
                Defaults { rate: 0.01, steps: 5, eval_steps: 10, queries: Some(15), meta_batch: 4 }
            }
            Self::Sinusoids => {
                Defaults { rate: 0.01, steps: 1, eval_steps: 1, queries: None, meta_batch: 25 }
            }
        };
        match (method, self) {
            (Method::Imaml, _) => Defaults { rate: 0.1, steps: 16, eval_steps: 16, ..maml },
            (Method::ProtoMaml, Self::Omniglot) => Defaults { rate: 0.01, ..maml },
            (Method::MamlPlusPlus, Self::Sinusoids) => Defaults { steps: 5, eval_steps: 5, ..maml },
            (Method::MamlPlusPlus, Self::Omniglot) => {
                Defaults { rate: 0.1, steps: 5, eval_steps: 5, queries: None, meta_batch: 8 }
            }
            (Method::MamlPlusPlus, Self::MiniImagenet) => {
                Defaults { steps: 5, eval_steps: 5, meta_batch: 2, ..maml }
            }
            (Method::Cavia, Self::Sinusoids) => Defaults { rate: 1.0, ..maml },
            (Method::Cavia, _) => {
                Defaults { rate: 1.0, steps: 2, eval_steps: 2, queries: Some(15), meta_batch: 16 }
            }
            (Method::Reptile, Self::Omniglot) => {
                Defaults { rate: 1e-3, steps: 5, eval_steps: 50, queries: Some(5), meta_batch: 5 }
            }
            (Method::Reptile, Self::MiniImagenet) => {
                Defaults { rate: 1e-3, steps: 8, eval_steps: 50, queries: Some(10), meta_batch: 5 }
            }
            (Method::Reptile, Self::Sinusoids) => {
                Defaults { rate: 0.01, steps: 10, eval_steps: 10, ..maml }
            }
            _ => maml,
        }
    }
}
