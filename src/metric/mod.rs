//! Distances and prototypes.

pub use fewshot_kernels::{
    EpisodeProtoLoss, Metric, ProtoLoss, distances, episode_proto_loss, mahalanobis, proto_loss,
    prototypes, scores,
};
