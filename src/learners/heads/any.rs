// A program has one of them, and burn's records of an enum are enums.
#![allow(clippy::large_enum_variant)]

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor};
use serde_json::Value;

use super::*;
use crate::data::Features;

/// Names of the heads with weights of their own, which are of no use before training on episodes.
pub const TRAINED_ON_EPISODES: &[&str] = &["relation", "feat", "leo"];

/// Declares [`AnyHead`] by lists of heads, each with its name and how one with the paper's settings is
/// made from the shape `[c, h, w]` of the maps that embeddings are made of, and a device.
macro_rules! any_head {
    ($(
        $(#[$doc:meta])+
        $names:ident:
        $($variant:ident($head:ty) = $name:literal, |$maps:pat_param, $device:pat_param| $new:expr;)+
    )+) => {
        $(
            $(#[$doc])+
            pub const $names: &[&str] = &[$($name),+];
        )+

        /// Any [`Head`], chosen by its name.
        #[derive(Module, Debug)]
        #[allow(missing_docs)]
        pub enum AnyHead<B: Backend> {
            $($($variant($head),)+)+
        }

        impl<B: Backend> AnyHead<B> {
            /// The head of this name with the settings of its paper; `None` for an unknown name.
            ///
            /// `maps` is the shape of an embedding: `[c, h, w]` of a flattened map, `[d, 1, 1]` of a plain
            /// vector.
            pub fn with_name(name: &str, maps: [usize; 3], device: &B::Device) -> Option<Self> {
                match name {
                    $($($name => {
                        let ($maps, $device) = (maps, device);
                        Some(Self::$variant($new))
                    })+)+
                    _ => None,
                }
            }

            /// The head of this name for these features: of [maps](Features::maps) where rows are maps, and centred by the
            /// [mean of the base classes](Features::base_mean) where it is known and the method has a use for it.
            pub fn for_features(name: &str, features: &Features, device: &B::Device) -> Option<Self> {
                let mean = features.base_mean().map(|mean| Tensor::from_floats(mean, device));
                Some(match (Self::with_name(name, features.maps(), device)?, mean) {
                    (Self::SimpleShot(head), Some(mean)) => {
                        Self::SimpleShot(head.with_base_mean(mean))
                    }
                    (Self::LaplacianShot(head), Some(mean)) => {
                        Self::LaplacianShot(head.with_base_mean(mean))
                    }
                    (head, _) => head,
                })
            }
        }

        impl<B: Backend> Head<B> for AnyHead<B> {
            const NAME: &'static str = "any";
            const DRAWS: bool = true;

            fn fit(&self, support: EmbeddedSupport<B>) -> FittedHead<B> {
                match self { $($(Self::$variant(head) => head.fit(support),)+)+ }
            }

            fn formula(&self, support: EmbeddedSupport<B>) -> Result<LogitFormula<B>, NoFormula> {
                match self { $($(Self::$variant(head) => head.formula(support),)+)+ }
            }

            fn train_logits(
                &self,
                support: EmbeddedSupport<B>,
                queries: Tensor<B, 3>,
            ) -> Tensor<B, 3> {
                match self { $($(Self::$variant(head) => head.train_logits(support, queries),)+)+ }
            }

            fn loss(&self, logits: Tensor<B, 3>, labels: Tensor<B, 2, Int>) -> Tensor<B, 1> {
                match self { $($(Self::$variant(head) => Head::<B>::loss(head, logits, labels),)+)+ }
            }

            fn train_loss(&self, episode: EmbeddedEpisode<B>) -> (Tensor<B, 1>, Tensor<B, 1>) {
                match self { $($(Self::$variant(head) => head.train_loss(episode),)+)+ }
            }

            fn transductive(&self) -> bool {
                match self { $($(Self::$variant(head) => Head::<B>::transductive(head),)+)+ }
            }

            fn name(&self) -> &'static str {
                match self { $($(Self::$variant(head) => Head::<B>::name(head),)+)+ }
            }

            fn settings(&self) -> Value {
                match self { $($(Self::$variant(head) => Head::<B>::settings(head),)+)+ }
            }
        }
    };
}

any_head! {
    /// Names of the heads that judge each query by itself.
    HEAD_NAMES:
    Prototypes(Prototypes) = "prototypes", |_, _| Prototypes::new();
    SimpleShot(SimpleShot<B>) = "simpleshot", |_, _| SimpleShot::new();
    Matching(MatchingNet<B>) = "matching",
        |[c, h, w], device| MatchingNetConfig::new(c * h * w).init(device);
    Relation(RelationNet<B>) = "relation", |maps, device| RelationNetConfig::new(maps).init(device);
    MetaBaseline(MetaBaseline<B>) = "meta-baseline", |_, device| MetaBaseline::new(10.0, device);
    SimpleCnaps(SimpleCnaps) = "simple-cnaps", |_, _| SimpleCnaps::new();
    Feat(Feat<B>) = "feat", |[c, h, w], device| FeatConfig::new(c * h * w).init(device);
    Dn4(Dn4) = "dn4", |maps, _| Dn4::new(maps);
    DeepEmd(DeepEmd) = "deep-emd", |maps, _| DeepEmd::new(maps);
    Leo(Leo<B>) = "leo", |[c, h, w], device| LeoConfig::new(c * h * w).init(device);
    R2d2(R2d2<B>) = "r2d2", |_, device| R2d2Config::new().init(device);
    MetaOptNet(MetaOptNet<B>) = "meta-opt-net", |_, device| MetaOptNet::new(device);
    Logistic(LogisticRegression) = "logistic", |_, _| LogisticRegression::new();
    Baseline(Baseline) = "baseline", |_, _| Baseline::new();
    BaselinePlusPlus(BaselinePlusPlus) = "baseline++", |_, _| BaselinePlusPlus::new();
    Finetune(Finetune) = "finetune", |_, _| Finetune::new();

    /// Names of the heads that judge all queries of a task together.
    TRANSDUCTIVE_HEAD_NAMES:
    TransductiveFineTuning(TransductiveFineTuning) = "transductive-finetuning",
        |_, _| TransductiveFineTuning::new();
    TimGd(Tim) = "tim-gd", |_, _| Tim::new(TimSolver::Gd);
    TimAdm(Tim) = "tim-adm", |_, _| Tim::new(TimSolver::Adm);
    BdCspn(BdCspn) = "bd-cspn", |_, _| BdCspn::new();
    LaplacianShot(LaplacianShot<B>) = "laplacian-shot", |_, _| LaplacianShot::new();
    PtMap(PtMap) = "pt-map", |_, _| PtMap::new();
    SoftKMeans(SoftKMeans) = "soft-k-means", |_, _| SoftKMeans::new();
}
