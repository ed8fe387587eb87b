//! The list of operations and sizes to measure, for `fewshot bench kernels` and for criterion, which includes this
//! folder.

mod augment_images;
mod case;
mod conv_stack;
mod gather_images;
mod layers;
mod metrics;
mod steps;
mod training_step;

pub(crate) use case::{Case, Load, Scale};

use burn::tensor::backend::AutodiffBackend;
use clap::ValueEnum;

/// Operations that are measured: every fused operation, and the training step that they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// The blocks of a Conv-4 encoder
    ConvStack,
    /// A convolution on its own
    Conv2d,
    /// Batch normalisation on its own
    BatchNorm,
    /// Batch normalisation, ReLU and pool in one
    NormRelu,
    /// A max-pool on its own, of 2x2 and of 3x3
    MaxPool,
    /// The mean over all pixels
    GlobalAvgPool,
    /// A convolution of each channel by itself, as networks that embed have it
    DepthwiseConv2d,
    /// A linear layer on its own
    Linear,
    /// Linear layers of several tasks side by side
    LinearStack,
    /// The mean embedding of each class
    Prototypes,
    /// Similarities of queries and prototypes
    Scores,
    /// Prototypes, scores, softmax and loss
    ProtoLoss,
    /// The same from the embeddings of support and queries in one tensor
    EpisodeProtoLoss,
    /// A step of an optimizer over all parameters
    OptimStep,
    /// The joint norm of all gradients
    GradStats,
    /// Images of an episode from a bank of bytes
    GatherImages,
    /// The same, changed at random by the preset standard
    AugmentImages,
    /// A tick of a plastic layer's weight
    RankUpdate,
    /// The outputs of a plastic layer for some examples
    WeightedSums,
    /// A prototypical network's step: episode, forward, backward, Adam
    TrainingStep,
}

impl Operation {
    pub(crate) fn cases<B: AutodiffBackend>(self, scale: Scale, device: &B::Device) -> Vec<Case> {
        match self {
            Self::ConvStack => conv_stack::cases::<B>(scale, device),
            Self::Conv2d => layers::conv2d::<B>(scale, device),
            Self::BatchNorm => layers::batch_norm::<B>(scale, device),
            Self::NormRelu => layers::norm_relu::<B>(scale, device),
            Self::MaxPool => layers::max_pool::<B>(scale, device),
            Self::GlobalAvgPool => layers::global_avg_pool::<B>(scale, device),
            Self::DepthwiseConv2d => layers::depthwise_conv2d::<B>(scale, device),
            Self::Linear => layers::linear::<B>(scale, device),
            Self::LinearStack => layers::linear_stack::<B>(scale, device),
            Self::Prototypes => metrics::prototypes::<B>(scale, device),
            Self::Scores => metrics::scores::<B>(scale, device),
            Self::ProtoLoss => metrics::proto_loss::<B>(scale, device),
            Self::EpisodeProtoLoss => metrics::episode_proto_loss::<B>(scale, device),
            Self::OptimStep => steps::optim_step::<B>(scale, device),
            Self::GradStats => steps::grad_stats::<B>(scale, device),
            Self::GatherImages => gather_images::cases::<B>(scale, device),
            Self::AugmentImages => augment_images::cases::<B>(scale, device),
            Self::RankUpdate => steps::rank_update::<B>(scale, device),
            Self::WeightedSums => steps::weighted_sums::<B>(scale, device),
            Self::TrainingStep => training_step::cases::<B>(scale, device),
        }
    }
}
