use std::fmt;

use clap::ValueEnum;
use fewshot::learners::heads::{HEAD_NAMES, TRAINED_ON_EPISODES, TRANSDUCTIVE_HEAD_NAMES};
use serde::{Deserialize, Serialize};

/// How to learn.
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

impl Method {
    /// Whether it is maml or one of its relatives, with an inner loop.
    pub(crate) fn adapts(self) -> bool {
        !matches!(self, Self::Protonet | Self::Plastic) && !self.on_embeddings()
    }

    /// Its name among the heads, if it is one of them.
    pub(crate) fn head_name(self) -> String {
        match self {
            Self::Protonet => "prototypes".to_owned(),
            method => method.to_string(),
        }
    }

    /// Whether it is a head on embeddings.
    pub(crate) fn on_embeddings(self) -> bool {
        HEAD_NAMES.contains(&self.to_string().as_str()) || self.transductive()
    }

    /// Whether it is a head that sees all queries.
    pub(crate) fn transductive(self) -> bool {
        TRANSDUCTIVE_HEAD_NAMES.contains(&self.to_string().as_str())
    }

    /// Whether it is one of those [`TRAINED_ON_EPISODES`].
    pub(crate) fn needs_episodes(self) -> bool {
        TRAINED_ON_EPISODES.contains(&self.head_name().as_str())
    }

    /// Whether episodes train something of it, or the encoder through it.
    pub(crate) fn trains_on_episodes(self) -> bool {
        use Method::{Baseline, BaselinePlusPlus, Finetune, Logistic};
        let fitted = matches!(self, Logistic | Baseline | BaselinePlusPlus | Finetune);
        !fitted && !self.transductive()
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
