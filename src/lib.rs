#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![recursion_limit = "256"]

pub mod adapt;
pub mod adapted;
pub mod catalog;
pub mod data;
pub mod episode;
pub mod export;
pub mod files;
pub mod hardware;
pub mod learners;
mod machine;
pub mod metric;
pub mod optim;
pub mod parallel;
pub mod phase;
pub mod plasticity;
#[doc(hidden)]
pub mod plot;
pub mod precision;
mod random;
mod settings;
pub mod train;

pub use fewshot_kernels as kernels;
pub use fewshot_models as models;

/// The names that most programs need.
pub mod prelude {
    pub use crate::adapt::{InnerLoop, Order};
    pub use crate::data::{
        ClassDataset, Glyphs, GlyphsConfig, ImageSet, Omniglot, Rotations, Sinusoids, Split, Splits,
    };
    pub use crate::episode::{
        Episode, EpisodeBatch, EpisodeSampler, Protocol, RegressionSampler, Support,
    };
    pub use crate::learners::{Adapted, Learner, Maml, MetaLearner, ProtoNet};
    pub use crate::metric::Metric;
    pub use crate::optim::{Adam, AdamW, Lamb, Sgd};
    pub use crate::plasticity::{
        HierarchyConfig, Oja, PlasticLinear, PlasticLinearConfig, PlasticityRule, Rate,
    };
    pub use crate::train::{Evaluation, Evaluator, MetaTrainer, Score, TrainError, Trained};
    pub use fewshot_models::{BnStatistics, Classifier, Conv4Config, Encoder, MlpConfig};
}

/// The documents, whose examples are tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../ARCHITECTURE.md")]
    struct Architecture;
    #[doc = include_str!("../docs/benchmarks.md")]
    struct Benchmarks;
    #[doc = include_str!("../docs/browser.md")]
    struct Browser;
    #[doc = include_str!("../docs/data.md")]
    struct Data;
    #[doc = include_str!("../docs/datasets.md")]
    struct Datasets;
    #[doc = include_str!("../docs/features.md")]
    struct Features;
    #[doc = include_str!("../docs/gpu.md")]
    struct Gpu;
    #[doc = include_str!("../docs/hardware.md")]
    struct Hardware;
    #[doc = include_str!("../docs/learners.md")]
    struct Learners;
    #[doc = include_str!("../docs/onnx.md")]
    struct Onnx;
    #[doc = include_str!("../docs/pictures.md")]
    struct Pictures;
    #[doc = include_str!("../docs/plasticity.md")]
    struct Plasticity;
    #[doc = include_str!("../docs/python.md")]
    struct Python;
    #[doc = include_str!("../docs/reliability.md")]
    struct Reliability;
    #[doc = include_str!("../docs/scaling.md")]
    struct Scaling;
    #[doc = include_str!("../docs/training.md")]
    struct Training;
    #[doc = include_str!("../docs/tutorial.md")]
    struct Tutorial;
}
