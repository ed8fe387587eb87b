//! Distances and prototypes.

pub use fewshot_kernels::{
    EpisodeProtoLoss, Metric, ProtoLoss, episode_proto_loss, proto_loss, prototypes, scores,
};
