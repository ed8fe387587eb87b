//! The methods, what each needs, and its defaults.

use std::fmt;

use clap::ValueEnum;
use fewshot::data::ImageShape;
use serde::{Deserialize, Serialize};

/// Methods to learn by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    /// Prototypical network, Snell et al. 2017
    #[value(alias = "prototypes")]
    Protonet,
    /// Model-agnostic meta-learning, Finn et al. 2017
    Maml,
    /// MAML with inner gradients as constants
    Fomaml,
    /// MAML whose head alone adapts, Raghu et al. 2020
    Anil,
    /// MAML whose encoder alone adapts, Oh et al. 2021
    Boil,
    /// MAML with a learned rate for every value, Li et al. 2017
    MetaSgd,
    /// MAML whose gradients go through learned matrices, Park and Oliva 2019
    MetaCurvature,
    /// MAML with rates and batch-norm of each step and an annealed loss, Antoniou et al. 2019
    #[value(name = "maml++")]
    #[serde(rename = "maml++")]
    MamlPlusPlus,
    /// MAML by implicit gradients, Rajeswaran et al. 2019
    Imaml,
    /// MAML whose head begins with prototypes, Triantafillou et al. 2020
    ProtoMaml,
    /// MAML of a context vector, Zintgraf et al. 2019
    Cavia,
    /// Parameters towards where plain training goes, Nichol et al. 2018
    Reptile,
    /// Plastic connections that labels write into, Miconi et al. 2018
    Plastic,
    /// Nearest class mean of normalised embeddings (centred too with --base-features), Wang et al. 2019
    Simpleshot,
    /// Attention over the support, Vinyals et al. 2016
    Matching,
    /// A learned comparison of maps, Sung et al. 2018
    Relation,
    /// Cosine to class means with a learned scale, Chen et al. 2021
    MetaBaseline,
    /// Mahalanobis distance with the covariance of each class, Bateni et al. 2020
    SimpleCnaps,
    /// Class means that attend to each other, Ye et al. 2020
    Feat,
    /// Nearest neighbours among local descriptors, Li et al. 2019
    Dn4,
    /// The earth mover's distance between places of maps, Zhang et al. 2020
    DeepEmd,
    /// Adaptation of a code that class weights are decoded from, Rusu et al. 2019
    Leo,
    /// Differentiable ridge regression, Bertinetto et al. 2019
    R2d2,
    /// Differentiable support vector machine, Lee et al. 2019
    MetaOptNet,
    /// Logistic regression to convergence, Tian et al. 2020
    Logistic,
    /// A linear layer tuned on the support, Chen et al. 2019
    Baseline,
    /// A cosine layer tuned on the support, Chen et al. 2019
    #[value(name = "baseline++")]
    #[serde(rename = "baseline++")]
    BaselinePlusPlus,
    /// Class means tuned on the support
    Finetune,
    /// A cosine layer tuned on support and queries, Dhillon et al. 2020 (transductive; of eval alone)
    TransductiveFinetuning,
    /// Information maximisation by gradient descent, Boudiaf et al. 2020 (transductive; of eval alone)
    TimGd,
    /// Information maximisation in closed form, Boudiaf et al. 2020 (transductive; of eval alone)
    TimAdm,
    /// Rectified prototypes, Liu et al. 2020 (transductive; of eval alone)
    BdCspn,
    /// Laplacian regularisation, Ziko et al. 2020 (transductive; of eval alone)
    LaplacianShot,
    /// Power transform and optimal transport, Hu et al. 2021 (transductive; of eval alone)
    PtMap,
    /// Prototypes refined by soft k-means, Ren et al. 2018 (transductive; of eval alone)
    SoftKMeans,
}

/// Kinds of methods, by what they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Class means of embeddings, by a metric.
    ProtoNet,
    /// A head on embeddings.
    Head(HeadTraining),
    /// maml and its relatives: a network that adapts in an inner loop.
    InnerLoop,
    /// Plastic connections.
    Plastic,
}

/// Training of a head and of the encoder below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadTraining {
    /// Episodes alone, which train weights of the head itself.
    Episodes,
    /// Episodes or, if told so, the classification of all training classes.
    EpisodesOrClasses,
    /// The classification of all training classes or, if told so, episodes.
    ClassesOrEpisodes,
    /// The classification of all training classes: episodes train nothing of the head.
    Classes,
    /// None: the head sees all queries, on an encoder that another method has trained.
    Nothing,
}

/// Data that the papers report on, by which a method's defaults are chosen.
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
    /// Steps in the test; as many as in training, if `None`.
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
    pub(crate) fn for_image(image: ImageShape) -> Self {
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
}

impl Method {
    pub(crate) fn family(self) -> Family {
        use HeadTraining::{Classes, ClassesOrEpisodes, Episodes, EpisodesOrClasses, Nothing};
        match self {
            Self::Protonet => Family::ProtoNet,
            Self::Plastic => Family::Plastic,
            Self::Maml | Self::Fomaml | Self::Anil | Self::Boil | Self::MetaSgd => {
                Family::InnerLoop
            }
            Self::MetaCurvature | Self::MamlPlusPlus | Self::Imaml => Family::InnerLoop,
            Self::ProtoMaml | Self::Cavia | Self::Reptile => Family::InnerLoop,
            Self::Relation | Self::Feat | Self::Leo => Family::Head(Episodes),
            Self::Matching | Self::MetaBaseline | Self::SimpleCnaps | Self::Dn4 => {
                Family::Head(EpisodesOrClasses)
            }
            Self::DeepEmd | Self::R2d2 | Self::MetaOptNet => Family::Head(EpisodesOrClasses),
            Self::Simpleshot => Family::Head(ClassesOrEpisodes),
            Self::Logistic | Self::Baseline | Self::BaselinePlusPlus | Self::Finetune => {
                Family::Head(Classes)
            }
            Self::TransductiveFinetuning | Self::TimGd | Self::TimAdm | Self::BdCspn => {
                Family::Head(Nothing)
            }
            Self::LaplacianShot | Self::PtMap | Self::SoftKMeans => Family::Head(Nothing),
        }
    }

    /// `true` for a head that compares places of maps, and so needs maps for features.
    pub(crate) fn compares_places(self) -> bool {
        matches!(self, Self::Relation | Self::Dn4 | Self::DeepEmd)
    }

    /// The method's name among the heads, if it is one of them.
    pub(crate) fn head_name(self) -> String {
        match self {
            Self::Protonet => "prototypes".to_owned(),
            method => method.to_string(),
        }
    }

    /// The papers' values where there are any; `docs/learners.md` tells which are not.
    pub(crate) fn defaults(self, benchmark: Benchmark) -> Defaults {
        use Benchmark::{MiniImagenet, Omniglot, Sinusoids};
        let (rate, steps, eval_steps, shots, queries, meta_batch) = match (self, benchmark) {
            (Self::Imaml, Omniglot) => (0.1, 16, None, None, None, 32),
            (Self::Imaml, MiniImagenet) => (0.1, 16, None, None, Some(15), 4),
            (Self::Imaml, Sinusoids) => (0.01, 16, None, Some(10), None, 25),
            (Self::ProtoMaml, Omniglot) => (0.01, 1, Some(3), None, None, 32),
            (Self::MamlPlusPlus, Omniglot) => (0.1, 5, None, None, None, 8),
            (Self::MamlPlusPlus, MiniImagenet) => (0.01, 5, None, None, Some(15), 2),
            (Self::MamlPlusPlus, Sinusoids) => (0.001, 5, None, Some(10), None, 25),
            (Self::Cavia, Sinusoids) => (1.0, 1, None, Some(10), None, 25),
            (Self::Cavia, _) => (1.0, 2, None, None, Some(15), 16),
            (Self::Reptile, Omniglot) => (1e-3, 5, Some(50), Some(5), Some(5), 5),
            (Self::Reptile, MiniImagenet) => (1e-3, 8, Some(50), Some(8), Some(7), 5),
            (Self::Reptile, Sinusoids) => (0.01, 10, None, Some(10), None, 25),
            (_, Omniglot) => (0.4, 1, Some(3), None, None, 32),
            (_, MiniImagenet) => (0.01, 5, Some(10), None, Some(15), 4),
            (_, Sinusoids) => (0.001, 1, None, Some(10), None, 25),
        };
        Defaults { rate, steps, eval_steps, shots, queries, meta_batch }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

#[cfg(test)]
mod tests {
    use fewshot::learners::heads::{HEAD_NAMES, TRAINED_ON_EPISODES, TRANSDUCTIVE_HEAD_NAMES};

    use super::*;

    #[test]
    fn the_heads_of_the_library_are_methods() {
        let methods = Method::value_variants();
        for name in HEAD_NAMES.iter().chain(TRANSDUCTIVE_HEAD_NAMES) {
            let method = methods.iter().find(|method| method.head_name() == *name);
            let family = method.unwrap_or_else(|| panic!("{name}")).family();
            let transductive = TRANSDUCTIVE_HEAD_NAMES.contains(name);
            assert_eq!(family == Family::Head(HeadTraining::Nothing), transductive, "{name}");
            let trained = TRAINED_ON_EPISODES.contains(name);
            assert_eq!(family == Family::Head(HeadTraining::Episodes), trained, "{name}");
        }
        let heads = methods
            .iter()
            .filter(|method| matches!(method.family(), Family::ProtoNet | Family::Head(_)));
        assert_eq!(heads.count(), HEAD_NAMES.len() + TRANSDUCTIVE_HEAD_NAMES.len());
    }
}
