//! Distances and prototypes.

pub use fewshot_kernels::{
    Metric, ProtoLoss, distances, mahalanobis, proto_loss, prototypes, scores,
};
