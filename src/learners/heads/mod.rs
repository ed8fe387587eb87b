//! Classifiers over embeddings, one paper a file: each is a [`Head`], inductive or
//! [transductive](Head::transductive).
//!
//! A head needs no network: embeddings of whole tasks, wherever they come from, are its support
//! `[t, n, d]` and queries `[t, q, d]`, and give logits `[t, q, ways]`. On top of an encoder it is a
//! learner, [`EmbeddingLearner`](super::EmbeddingLearner).
//!
//! # Example
//! ```
//! use burn::backend::Flex;
//! use burn::tensor::{Int, Tensor};
//! use fewshot::learners::heads::{BdCspn, EmbeddedSupport, Head, SimpleShot};
//!
//! let device = Default::default();
//! let support = Tensor::<Flex, 3>::from_data([[[0.0, 1.0], [1.0, 0.0]]], &device);
//! let labels = Tensor::<Flex, 2, Int>::from_data([[0, 1]], &device);
//! let support = EmbeddedSupport::new(support, labels, 2);
//! let head = SimpleShot::new().fit(support.clone());
//! let logits = head.logits(Tensor::from_data([[[0.1, 3.0]]], &device));
//! assert_eq!(logits.argmax(2).into_scalar(), 0);
//!
//! // Settings are fields, with the paper's values by default. A transductive head judges all queries of
//! // a task together.
//! let queries = Tensor::from_data([[[0.1, 3.0], [2.0, 1.0]]], &device);
//! let head = BdCspn { scale: 5.0, ..BdCspn::new() };
//! assert_eq!(head.logits(support, queries).dims(), [1, 2, 2]); // tasks, queries, ways
//! ```

mod any;
mod baseline;
mod baseline_plus_plus;
mod bd_cspn;
mod checked;
mod class_blocks;
mod deep_emd;
mod descent;
mod dn4;
mod feat;
mod finetune;
mod formula;
mod full_context;
mod head;
mod laplacian_shot;
mod leo;
mod linear_solve;
mod logistic_regression;
mod matching_net;
mod meta_baseline;
mod meta_opt_net;
mod nearest;
mod prototype_score;
mod prototypes;
mod pt_map;
mod r2d2;
mod rectification;
mod relation_block;
mod relation_net;
mod sgd;
mod similarity;
mod simple_cnaps;
mod simple_shot;
mod sinkhorn;
mod slopes;
mod soft_k_means;
mod tim;
mod transductive_fine_tuning;
mod unit_length;

pub use any::{AnyHead, HEAD_NAMES, TRAINED_ON_EPISODES, TRANSDUCTIVE_HEAD_NAMES};
pub use baseline::Baseline;
pub use baseline_plus_plus::BaselinePlusPlus;
pub use bd_cspn::BdCspn;
pub use deep_emd::DeepEmd;
pub use dn4::Dn4;
pub use feat::{Feat, FeatConfig};
pub use finetune::Finetune;
pub use formula::{LEAST_SHARE, LogitFormula, NoFormula};
pub use full_context::{FullContext, LstmCell};
pub use head::{EmbeddedEpisode, EmbeddedSupport, FittedHead, Head};
pub use laplacian_shot::LaplacianShot;
pub use leo::{Leo, LeoCodes, LeoConfig, LeoLoss};
pub use logistic_regression::LogisticRegression;
pub use matching_net::{MatchingAttention, MatchingContext, MatchingNet, MatchingNetConfig};
pub use meta_baseline::MetaBaseline;
pub use meta_opt_net::MetaOptNet;
pub use prototype_score::PrototypeScore;
pub use prototypes::Prototypes;
pub use pt_map::{AfterPower, PtMap};
pub use r2d2::{R2d2, R2d2Config, RidgeErrors};
pub use rectification::{LengthNormalisation, RectificationWeights, ScoredQueries};
pub use relation_block::RelationBlock;
pub use relation_net::{
    ClassMap, RelationNet, RelationNetConfig, RelationPools, RelationStatistics,
};
pub use sgd::Sgd;
pub use similarity::Similarity;
pub use simple_cnaps::SimpleCnaps;
pub use simple_shot::{FeatureTransform, SimpleShot};
pub use soft_k_means::SoftKMeans;
pub use tim::{Tim, TimSolver};
pub use transductive_fine_tuning::{EntropyUpdate, TransductiveFineTuning};

pub(super) use checked::{not_negative, positive};
pub(super) use unit_length::unit_length;

use super::{accuracies, cross_entropy};
use crate::episode::one_hot;
