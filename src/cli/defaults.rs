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
    /// As many as in training, where none is said.
    pub(crate) eval_steps: Option<usize>,
    /// Examples (of a class, with images) that a training task is learned from; as many as in the
    /// test where none is said.
    pub(crate) shots: Option<usize>,
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
        let of = |rate, steps, meta_batch| Defaults {
            rate,
            steps,
            eval_steps: None,
            shots: None,
            queries: None,
            meta_batch,
        };
        let maml = match self {
            Self::Omniglot => Defaults { eval_steps: Some(3), ..of(0.4, 1, 32) },
            Self::MiniImagenet => {
                Defaults { eval_steps: Some(10), queries: Some(15), ..of(0.01, 5, 4) }
            }
            Self::Sinusoids => Defaults { shots: Some(10), ..of(0.001, 1, 25) },
        };
        match (method, self) {
            (Method::Imaml, _) => Defaults { rate: 0.1, steps: 16, eval_steps: None, ..maml },
            (Method::ProtoMaml, Self::Omniglot) => Defaults { rate: 0.01, ..maml },
            (Method::MamlPlusPlus, Self::Omniglot) => of(0.1, 5, 8),
            (Method::MamlPlusPlus, Self::MiniImagenet) => {
                Defaults { eval_steps: None, meta_batch: 2, ..maml }
            }
            (Method::MamlPlusPlus, Self::Sinusoids) => Defaults { steps: 5, ..maml },
            (Method::Cavia, Self::Sinusoids) => Defaults { rate: 1.0, ..maml },
            (Method::Cavia, _) => Defaults { queries: Some(15), ..of(1.0, 2, 16) },
            (Method::Reptile, Self::Omniglot) => {
                let halves = Defaults { shots: Some(5), queries: Some(5), ..of(1e-3, 5, 5) };
                Defaults { eval_steps: Some(50), ..halves }
            }
            (Method::Reptile, Self::MiniImagenet) => {
                let halves = Defaults { shots: Some(8), queries: Some(7), ..of(1e-3, 8, 5) };
                Defaults { eval_steps: Some(50), ..halves }
            }
            (Method::Reptile, Self::Sinusoids) => Defaults { rate: 0.01, steps: 10, ..maml },
            _ => maml,
        }
    }
}
