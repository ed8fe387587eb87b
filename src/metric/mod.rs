//! Distances, prototypes and accuracies.

mod accuracy;

pub use accuracy::accuracies;
pub use fewshot_kernels::{
    EpisodeProtoLoss, Metric, ProtoLoss, distances, episode_proto_loss, mahalanobis, proto_loss,
    prototypes, scores,
};
